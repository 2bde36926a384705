"""Agents that share noise over real connections: they agree on keys through a coordinator that may lie."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import os
import re
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from dpgt_node.config import Policy, RunConfig, canonical_json, parse_run, run_sha256
from dpgt_node.errors import ConfigError, DpgtError, NoAgreement
from dpgt_node.protocol import messages as m
from dpgt_node.protocol.coordinator import membership, relay
from dpgt_node.protocol.coordinator.relay import KeyRelay, Say
from dpgt_node.runtime.store.ledger import DATABASE
from dpgt_node.runtime.trust import agreement
from dpgt_node.runtime.trust.pki import agent_identity
from tests.runtime.cluster import LIMIT_S, RUN, Cluster, cluster, eventually

TEXT = RUN.replace("[algorithm]\n", '[algorithm]\nmechanism = "noise-once"\n').replace(
    "scale_zeta = 0.1\n", 'law = "gaussian"\ncancel = 2\n'
)
NAMES = ("agent-1", "agent-2", "agent-3")


def make_run(K: int = 12, register_timeout: int = 30) -> RunConfig:
    text = TEXT.format(K=K).replace("register_timeout = 30", f"register_timeout = {register_timeout}")
    return parse_run(text, "run.toml", Path("/"))


def start(made: Cluster, *names: str, **options: object) -> None:
    for name in names or NAMES:
        made.start(name, **{"keystream": None, "durability": "power", **options})


def rows(made: Cluster, name: str, query: str) -> list[Any]:
    with contextlib.closing(sqlite3.connect(made.folder / "state" / name / DATABASE)) as db:
        return db.execute(query).fetchall()


def drew_nothing(made: Cluster) -> bool:
    """Whether no state directory holds a release."""
    found = [
        rows(made, name, "SELECT count(*) FROM rounds") for name in NAMES if (made.folder / "state" / name).exists()
    ]
    return all(count == [(0,)] for count in found)


async def test_a_run_goes_its_way_and_leaves_no_key_of_before(tmp_path: Path) -> None:
    async with cluster(tmp_path, make_run(), secure=True, test=False) as made:
        start(made)
        await made.end()
        pairs = {name: dict(rows(made, name, "SELECT partner, key FROM pair_keys")) for name in NAMES}
        for i, name in enumerate(NAMES):
            assert rows(made, name, "SELECT private FROM agreements") == [(None,)]
            assert sorted(pairs[name]) == [j for j in range(3) if j != i]
            assert rows(made, name, "SELECT DISTINCT k FROM pair_keys") == [(13,)]
            for j, key in pairs[name].items():
                assert pairs[NAMES[j]][i] == key, "both ends have the same"
        assert len({key for held in pairs.values() for key in held.values()}) == 3


async def test_under_a_test_keystream_keys_are_agreed_on_and_the_bits_are_the_simulators(tmp_path: Path) -> None:
    async with cluster(tmp_path, make_run(), secure=True) as made:
        made.start_all()
        await made.end()
        made.assert_simulators_bits()
        assert rows(made, "agent-1", "SELECT private FROM agreements") == [(None,)]


# --- a coordinator that lies ------------------------------------------------------------------------------------------


@dataclass
class Liar(KeyRelay):
    """Tells each agent what ``twist`` makes of what it should hear: None is nothing at all."""

    twist: Callable[[str, Any], Any]

    def take(self, name: str, word: m.KeyOffer | m.KeyProofs, say: Say) -> bool:
        def twisted(to: str, message: m.KeyRing | m.KeyProof) -> None:
            if (told := self.twist(to, message)) is not None:
                say(to, told)

        return super().take(name, word, twisted)


def changed(ring: m.KeyRing, name: str, **fields: Any) -> m.KeyRing:
    return m.KeyRing(tuple(replace(offer, **fields) if offer.name == name else offer for offer in ring.offers))


MINE = os.urandom(32)


def swapped_key(to: str, message: Any) -> Any:
    return changed(message, "agent-2", key=agreement.public_of(MINE)) if isinstance(message, m.KeyRing) else message


def swapped_key_towards_one(to: str, message: Any) -> Any:
    return swapped_key(to, message) if to == "agent-1" else message


def swapped_names(to: str, message: Any) -> Any:
    if not isinstance(message, m.KeyRing):
        return message
    one, two, three = message.offers
    return m.KeyRing((one, replace(three, name="agent-2"), replace(two, name="agent-3")))


def small_order(to: str, message: Any) -> Any:
    return changed(message, "agent-3", key=bytes(32)) if isinstance(message, m.KeyRing) else message


def dropped_offer(to: str, message: Any) -> Any:
    return m.KeyRing(message.offers[:2]) if isinstance(message, m.KeyRing) else message


def wrong_proof(to: str, message: Any) -> Any:
    return replace(message, proof=os.urandom(32)) if isinstance(message, m.KeyProof) else message


def another_agents_proof(to: str, message: Any) -> Any:
    other = {"agent-2": "agent-3", "agent-3": "agent-2"}
    return (
        replace(message, sender=other.get(message.sender, message.sender))
        if isinstance(message, m.KeyProof)
        else message
    )


LIES = {
    swapped_key: "the key offer of agent-2 is not signed by agent-2",
    swapped_key_towards_one: "the key offer of agent-2 is not signed by agent-2",
    swapped_names: "certificate in the key offer of agent-2 is dpgt:agent:agent-3's",
    small_order: "the key offer of agent-3 is not signed by agent-3",
    dropped_offer: "relayed 0 key offers of agent-3",
    wrong_proof: "has no common key with this agent",
    another_agents_proof: "(has no common key with this agent|relayed a proof of an agent that shares no noise)",
}


async def ends(made: Cluster) -> dict[str, BaseException]:
    """How every agent ended; the run did not start and nothing was drawn."""
    async with asyncio.timeout(LIMIT_S):
        found = await asyncio.gather(*made.agents.values(), return_exceptions=True)
    assert drew_nothing(made)
    errors = dict(zip(made.agents, found, strict=True))
    assert all(isinstance(error, DpgtError) or error in (3, 5) for error in errors.values()), errors
    return {name: error for name, error in errors.items() if isinstance(error, BaseException)}


@pytest.mark.parametrize("lie", LIES, ids=lambda lie: lie.__name__)
async def test_a_lie_keeps_the_run_from_starting_and_is_named(
    lie: Callable[[str, Any], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dpgt_node.protocol.coordinator.coordination.KeyRelay", lambda names: _liar(names, lie))
    async with cluster(tmp_path, make_run(), secure=True, test=False) as made:
        start(made)
        errors = await ends(made)
        words = [str(error) for error in errors.values() if isinstance(error, NoAgreement)]
        assert words, errors
        assert any(re.search(LIES[lie], text) for text in words), words
        assert made.serving is not None
        outcome = await made.serving
        assert outcome.conclude.exit_code == 3 and "cannot agree on a key with another agent" in outcome.conclude.reason


def _liar(names: tuple[str, ...], twist: Callable[[str, Any], Any]) -> Liar:
    made = Liar(twist)
    relay.KeyRelay.__init__(made, names)
    return made


async def test_an_offer_of_another_run_is_found_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Recorded in one run, relayed in the next, of the same agents with the same certificates."""
    recorded: dict[str, m.KeyOffer] = {}

    def record(to: str, message: Any) -> Any:
        if isinstance(message, m.KeyRing):
            recorded.update({offer.name: offer for offer in message.offers})
        return message

    def replay(to: str, message: Any) -> Any:
        if isinstance(message, m.KeyRing) and to != "agent-2":
            return m.KeyRing(tuple(recorded[o.name] if o.name == "agent-2" else o for o in message.offers))
        return message

    twist = [record]
    monkeypatch.setattr("dpgt_node.protocol.coordinator.coordination.KeyRelay", lambda names: _liar(names, twist[0]))
    async with cluster(tmp_path / "one", make_run(), secure=True, test=False) as made:
        start(made)
        await made.end()
        authority = made.authority
    twist[0] = replay
    async with cluster(tmp_path / "two", make_run(), secure=True, test=False) as made:
        assert made.serving is not None
        made.serving.cancel()  # its certificates are of an authority of its own
        await asyncio.gather(made.serving, return_exceptions=True)
        made.authority = authority
        made.folder = tmp_path / "three"
        (tmp_path / "three").mkdir()
        (tmp_path / "one" / "tls").rename(tmp_path / "three" / "tls")
        await made.coordinate()
        start(made)
        errors = await ends(made)
        assert any("or it is of another run" in str(error) for error in errors.values()), errors


async def test_proofs_that_are_dropped_are_named_after_a_while(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def drop(to: str, message: Any) -> Any:
        return None if isinstance(message, m.KeyProof) and {to, message.sender} == {"agent-1", "agent-2"} else message

    monkeypatch.setattr("dpgt_node.protocol.coordinator.coordination.KeyRelay", lambda names: _liar(names, drop))
    async with cluster(tmp_path, make_run(register_timeout=2), secure=True, test=False) as made:
        start(made)
        errors = await ends(made)
        assert any("no proof of a common key came from agent-" in str(error) for error in errors.values()), errors


async def test_a_round_that_a_coordinator_opens_too_early_draws_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start_instead(to: str, message: Any) -> Any:
        return m.Start({name: "127.0.0.1:1" for name in NAMES}, 12)

    monkeypatch.setattr(
        "dpgt_node.protocol.coordinator.coordination.KeyRelay", lambda names: _liar(names, start_instead)
    )
    async with cluster(tmp_path, make_run(), secure=True, test=False) as made:
        start(made)
        await eventually("an agent ends", lambda: any(task.done() for task in made.agents.values()))
        (error,) = {str(task.exception()) for task in made.agents.values() if task.done()}
        assert "the coordinator spoke of rounds" in error and drew_nothing(made)


async def test_two_agents_with_different_run_files_do_not_share_noise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The coordinator shows agent-3 the run file that agent-3 has, so only the keys can tell."""
    other = replace(make_run(), noise=replace(make_run().noise, cancel=1))
    other = replace(other, runtime=replace(other.runtime, channel="mtls"))
    say = membership.Membership._say

    def fooling(self: Any, seat: Any, message: Any, out: Any) -> None:
        if isinstance(message, m.Welcome) and seat.call.peer == "agent-3":
            message = replace(message, run_json=canonical_json(other), run_sha256=run_sha256(other))
        say(self, seat, message, out)

    monkeypatch.setattr(membership.Membership, "_say", fooling)
    monkeypatch.setattr(membership.admission, "disagrees", lambda *_, **__: None)
    async with cluster(tmp_path, make_run(), secure=True, test=False) as made:
        start(made, "agent-1", "agent-2")
        start(made, "agent-3", run=other)
        errors = await ends(made)
        assert any("this run and this run file" in str(error) for error in errors.values()), errors


# --- certificates -----------------------------------------------------------------------------------------------------


async def test_a_mask_partner_heeds_a_revocation_list_that_only_it_has(tmp_path: Path) -> None:
    """agent-2 and agent-3 exchange no vector; they share noise."""
    async with cluster(tmp_path, make_run(), secure=True, test=False) as made:
        for name in NAMES:
            made.security(agent_identity(name))
        three = made.security("dpgt:agent:agent-3")
        assert made.authority is not None and three.credentials is not None
        gone = three.credentials.material().certificate.serial_number
        listed = made.authority.revocation_list({gone: datetime.datetime.now(datetime.UTC)})
        (tmp_path / "tls" / "dpgt-agent-agent-2" / "crl.pem").write_bytes(listed)
        start(made)
        errors = await ends(made)
        assert "the certificate in the key offer of agent-3 is revoked" in str(errors["agent-2"])
        assert isinstance(errors["agent-2"], NoAgreement)


async def test_without_tls_or_power_an_agent_of_such_a_run_does_not_start(tmp_path: Path) -> None:
    async with cluster(tmp_path / "plain", make_run()) as made:
        with pytest.raises(ConfigError, match=r"tls\.insecure: leaves agents without certificates"):
            made.node("agent-1", keystream=None, durability="power")
    async with cluster(tmp_path / "secure", make_run(), secure=True, test=False) as made:
        with pytest.raises(ConfigError, match='durability: must be "power"'):
            made.node("agent-1", keystream=None)
        assert not (tmp_path / "secure" / "state").exists()
        made.node("agent-1", keystream=None, durability="power", policy=Policy())._store.close()


# --- restarts ---------------------------------------------------------------------------------------------------------


async def test_a_lost_state_directory_before_the_run_began_ends_it(tmp_path: Path) -> None:
    """The others pinned its first key; whoever has another one is not believed to be the same."""
    async with cluster(tmp_path, make_run(), secure=True, test=False) as made:
        start(made)
        await made.end()
        run_id = rows(made, "agent-1", "SELECT run_id FROM runs")[0][0]
    node = Cluster(made.run, tmp_path, made.authority, address=made.address)
    one = node.node("agent-1", keystream=None, durability="power")
    try:
        assert one._store.pairs.open(run_id) is not None
        ring = tuple(
            m.KeyOffer(name, key, b"c", b"s")
            for name, key in rows(made, "agent-1", "SELECT name, key FROM pinned_keys ORDER BY name")
        )
        one._store.pairs.pin(ring, {"agent-2": b"p" * 32})
        with pytest.raises(NoAgreement, match="agent-3 offers another key than it did before"):
            one._store.pairs.pin((*ring[:2], replace(ring[2], key=b"n" * 32)), {"agent-2": b"p" * 32})
    finally:
        one._store.close()
