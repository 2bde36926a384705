"""Who may take part in a run: the coordinator's checks of a registration, as a function of values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dpgt_node.config import diff_runs
from dpgt_node.protocol import messages as m


@dataclass(frozen=True, slots=True)
class Refusal:
    """``ends_run``: an enrolled agent disagrees about the run itself, so the run cannot take place."""

    kind: m.RefusalKind
    reason: str
    ends_run: bool


def refuse(
    register: m.Register,
    *,
    caller: str,
    names: Sequence[str],
    run_json: str,
    package_version: str,
    others: Sequence[m.Register],
    twin: bool,
) -> Refusal | None:
    """None admits.  ``caller``: the name proven by the certificate.  ``others``: registrations of other agents.

    A caller that is not enrolled, or a twin of one that is, is turned away and the run goes on: a stranger must not be
    able to end it.
    """
    name = register.name
    if name != caller:
        return Refusal("identity", f"the certificate is {caller}'s, the registration says {name}", ends_run=False)
    if name not in names:
        enrolled = ", ".join(names[:10]) + (", ..." if len(names) > 10 else "")
        return Refusal("identity", f"{name} is not in the run, whose agents are {enrolled}", ends_run=False)
    if twin:
        return Refusal("identity", f"another process runs as {name} right now", ends_run=False)
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
        lines = diff_runs(run_json, register.run_json)
        shown = "; ".join(lines[:5]) + (f"; and {len(lines) - 5} more" if len(lines) > 5 else "")
        return Refusal(
            "run-hash",
            f"the run file of {name} differs (here = the coordinator, there = {name}): {shown}",
            ends_run=True,
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
