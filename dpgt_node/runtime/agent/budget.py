"""What the ledger of this host says to the owner's policy."""

from __future__ import annotations

import logging
import math
from collections.abc import Collection, Sequence

from dpgt_node import figures
from dpgt_node.accounts.account import AgentAccount
from dpgt_node.accounts.towards import Sharing, sharing
from dpgt_node.agent.policy import Verdict, judge
from dpgt_node.config.model import RunConfig
from dpgt_node.config.node_model import Policy
from dpgt_node.errors import RefusedError
from dpgt_node.privacy.accountants.composition import Spent, Total, as_written, tally
from dpgt_node.privacy.accountants.registry import SOUND
from dpgt_node.privacy.accountants.rounding import within
from dpgt_node.privacy.strength import strength
from dpgt_node.record.summary import adjacency
from dpgt_node.runtime.store.ledger import DECLARED, Charge, Terms
from dpgt_node.runtime.store.terms import OtherTerms
from dpgt_node.values import dataclass

log = logging.getLogger(__name__)


def terms_of(data_id: str, run: RunConfig, agent: str, samples: int | None, keystream: str) -> Terms:
    """What ``agent``'s charges of ``run`` mean on this data set of ``samples``, with noise of this ``keystream``."""
    known = run.privacy.adjacency is not None or run.privacy.enforced
    words = adjacency(run) + (DECLARED if known and not run.privacy.enforced else "")
    shared = sharing(run)
    shares = "" if shared is None else shared[run.graph.agents.index(agent)].text
    return Terms(data_id, run.privacy.delta, words, samples, keystream, shares=shares)


def known_as(data_id: str, charges: Sequence[Charge], same: Collection[bytes] = ()) -> tuple[str, ...]:
    """Every id of the data set ``data_id``, that one first.

    Ids are one data set where a run of each had the same data, bit for bit.  ``same``: runs that had the data at hand.
    """
    seals: dict[str, set[str]] = {}
    for charge in charges:
        seals.setdefault(charge.terms.data_id, set()).update({charge.terms.seal} - {""})
    found = dict.fromkeys([data_id, *(charge.terms.data_id for charge in charges if charge.run_id in same)])
    while more := [one for one in seals if one not in found and any(seals[one] & seals.get(o, set()) for o in found)]:
        found |= dict.fromkeys(more)
    return tuple(found)


def also_known(ids: Sequence[str]) -> str:
    """What stands behind the first id that :func:`known_as` found; empty where it is the only one."""
    return f" (also known as {', '.join(map(_quoted, ids[1:]))})" if len(ids) > 1 else ""


def _quoted(name: str) -> str:
    return f'"{name}"'


def spent_on(
    data_id: str, charges: Sequence[Charge], colluding: int | None = None, same: Collection[bytes] = ()
) -> list[Spent]:
    """What was spent of the budget of ``data_id``, under any id, and how much of that towards ``colluding`` other
    agents.  ``same``: as in :func:`known_as`.
    """
    ids = known_as(data_id, charges, same)
    return [_spent(charge, colluding) for charge in charges if charge.terms.data_id in ids]


def _spent(charge: Charge, colluding: int | None) -> Spent:
    terms, shared = charge.terms, Sharing.of(charge.terms.shares)
    some = None if shared is None or colluding is None else shared.some(charge.cost, terms.delta, colluding)
    return Spent(charge.run_id.hex()[:12], charge.cost, terms.delta, terms.declared, some)


def check_unrecorded(charges: Sequence[Charge], run_id: bytes, account: AgentAccount) -> None:
    """OtherTerms: a version that did not record the data charged the run more than it would have cost with these.

    With fewer samples it would have cost more, and goes on at that price.
    """
    for charge in charges:
        if charge.run_id != run_id or charge.terms.since is not None:
            continue
        now = account.epsilon_after(charge.k)
        for name, before in charge.cost.items():
            value = now.get(name)
            if before is not None and value is not None and value < before < math.inf and not within(before, value):
                was, would = figures.epsilon(before, value), figures.epsilon(value, before)
                raise OtherTerms(
                    f"run {run_id.hex()} cost {was} under {name} through round {charge.k}, and with these data "
                    f"it would have cost {would}: they are not the data it was begun with. Bring those back, or "
                    f'start a new run. What this one spent of data set "{charge.terms.data_id}" stays spent'
                )


@dataclass(frozen=True, slots=True)
class Request:
    """A run that asks for data set ``data_id`` of ``samples`` samples (None: a closed form), and what ``charges`` say
    was spent of it before.

    ``run_id``: what this run released is part of its own cost, so it counts once; None: it begins.  ``same``: runs that
    had the data at hand, whatever those were called.
    """

    policy: Policy
    data_id: str
    run: RunConfig
    account: AgentAccount
    samples: int | None
    charges: Sequence[Charge]
    run_id: bytes | None = None
    same: Collection[bytes] = ()

    def ids(self) -> tuple[str, ...]:
        """Every id of the data set: see :func:`known_as`."""
        return known_as(self.data_id, self.charges, self.same)

    def others(self, colluding: int | None = None) -> list[Spent]:
        """What other runs have spent, and how much of that towards ``colluding`` other agents."""
        return spent_on(self.data_id, [one for one in self.charges if one.run_id != self.run_id], colluding, self.same)

    def verdict(self) -> tuple[list[Spent], Verdict]:
        """What others have spent, and what the policy says to the run after them."""
        spent = self.others(self.policy.colluding)
        return spent, judge(self.policy, self.run, self.account, spent, samples=self.samples)

    def obey(self) -> Verdict:
        """The verdict, its warnings logged.  RefusedError when the policy forbids the run.

        A run that had begun goes on as far as the budget reaches.
        """
        begun = any(charge.run_id == self.run_id for charge in self.charges)
        if also := also_known(self.ids()):
            log.warning(
                'data set "%s"%s: the data are the same, bit for bit, and the runs count together', self.data_id, also
            )
        _, verdict = self.verdict()
        against = [*verdict.problems, *([verdict.shortfall] if verdict.shortfall is not None and not begun else [])]
        if against:
            raise RefusedError(f"the policy of the data's owner forbids this run: {'; '.join(against)}")
        for line in verdict.warnings:
            log.warning("%s", line)
        if verdict.shortfall is not None:
            log.warning("the run will end early: %s", verdict.shortfall)
        return verdict

    def costs(self, k: int) -> str:
        """What the run through round ``k`` costs, what all runs on its data cost with it, and what remains.

        For the owner's own log.
        """
        policy, privacy = self.policy, self.run.privacy
        others = self.others()
        declared = privacy.adjacency is not None and not privacy.enforced
        mine = Spent("this run", self.account.epsilon_after(k), privacy.delta, declared)
        most = None if policy.delta_max is None else as_written(policy.delta_max)
        held = not any(one.declared for one in (*others, mine))

        def said(one: Total) -> str:
            delta = f", delta {float(one.delta):g}" if one.delta else ""
            proven = held and not one.conditional
            word = strength(None, one.epsilon, float(one.delta), samples=self.samples, enforced=proven)
            return f"epsilon {figures.epsilon(one.epsilon, cap)} ({word}){delta} ({one.recipe or 'no finite value'})"

        own, whole = (tally(spent, SOUND, policy.accountant, most) for spent in ([mine], [*others, mine]))
        earlier = f"{len(others)} other run{'' if len(others) == 1 else 's'}"
        cap = policy.epsilon_max
        rest = None if cap is None else figures.epsilon(max(0.0, cap - whole.epsilon))
        left = "" if rest is None else f"; {rest} of epsilon_max = {cap:g} remain"
        return (
            f'data set "{self.data_id}": rounds 0..{k} of this run cost {said(own)}, with {earlier} '
            f"{said(whole)}{left}; {adjacency(self.run)}"
        )
