"""Who may take part in a run: the coordinator's checks of a registration, as functions of values."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dpgt_node.config import diff_runs, differing_keys
from dpgt_node.protocol import messages as m
from dpgt_node.values import dataclass


@dataclass(frozen=True, slots=True)
class Refusal:
    """``ends_run``: an enrolled agent disagrees about the run itself, so the run cannot take place.

    ``reason``: what everybody hears.  ``own``: what the refused agent alone hears beside it, of its own file.
    """

    kind: m.RefusalKind
    reason: str
    ends_run: bool
    own: str = ""


def stranger(register: m.Register, caller: str, names: Sequence[str]) -> Refusal | None:
    """Who is not the agent it says, or no agent of the run, whose agents are ``names``; None: it is one.

    ``caller``: the name proven by the certificate.  The run goes on: a stranger must not be able to end it.
    """
    name = register.name
    if name != caller:
        return Refusal("identity", f"the certificate is {caller}'s, the registration says {name}", ends_run=False)
    if name not in names:
        enrolled = ", ".join(names[:10]) + (", ..." if len(names) > 10 else "")
        return Refusal("identity", f"{name} is not in the run, whose agents are {enrolled}", ends_run=False)
    return None


def twin(name: str) -> Refusal:
    """For a process whose agent is here already.  The run goes on, whatever else is wrong with the newcomer."""
    return Refusal("identity", f"another process runs as {name} right now", ends_run=False)


def changed(register: m.Register, before: int | None) -> Refusal | None:
    """For an agent that comes back to a run with another number of samples than ``before``: what its releases cost
    depends on that number.  The run goes on: the agent may yet come back with its own data.
    """
    if register.samples == before:
        return None
    was, now = ("none" if one is None else one for one in (before, register.samples))
    reason = (
        f"{register.name} had D = {was} samples when the run began and has D = {now} now: a run goes on "
        "with the data it was begun with; bring them back, or start a new run"
    )
    return Refusal("data", reason, ends_run=False)


def disagrees(
    register: m.Register, *, run_json: str, package_version: str, others: Iterable[m.Register]
) -> Refusal | None:
    """What an agent of the run sees otherwise than the coordinator or ``others``, registrations of other agents; None:
    nothing, it is admitted.
    """
    name = register.name
    if register.protocol_version != m.PROTOCOL_VERSION:
        return Refusal(
            "version",
            f"protocol version {register.protocol_version} at {name}, {m.PROTOCOL_VERSION} at the coordinator",
            ends_run=True,
        )
    if register.package_version != package_version:
        return Refusal(
            "version",
            f"dpgt-node {register.package_version} at {name}, {package_version} at the coordinator",
            ends_run=True,
        )
    if register.run_json != run_json:
        keys, lines = differing_keys(run_json, register.run_json), diff_runs(run_json, register.run_json)
        return Refusal(
            "run-hash",
            f"the run file of {name} differs in {_some(keys, ', ')}",
            ends_run=True,
            own=f" (here = the coordinator, there = {name}): {_some(lines, '; ')}",
        )
    for other in others:
        if register.dimension != other.dimension or register.shape_sha256 != other.shape_sha256:
            d, theirs = register.dimension, other.dimension
            both = f"{name} and {other.name} have models of d = {d} parameters each, but their names or"
            what = both if d == theirs else f"{name} has a model of d = {d} parameters, {other.name} of {theirs}:"
            message = (
                f"{what} shapes differ (or code or weights of their features, or the names of their class folders)"
            )
            return Refusal("data", message, ends_run=True)
    return None


def _some(lines: Sequence[str], between: str) -> str:
    return between.join(lines[:5]) + (f"{between}and {len(lines) - 5} more" if len(lines) > 5 else "")
