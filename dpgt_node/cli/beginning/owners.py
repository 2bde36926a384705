"""Start-up folders of owners who each have data of their own, with a policy that allows this run and no more."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dpgt_node.cli.pki.shared import AGENT_PORT, COORDINATOR, COORDINATOR_PORT, Host, signed, write_start_up

if TYPE_CHECKING:
    from dpgt_node.sim.plans.planning import Plan

_DAYS = 365.0


def write_owners(out: Path, text: str, found: Plan, names: Sequence[str]) -> None:
    """``out``/NAME for the coordinator and every agent: certificate, key, run.toml and NODE.toml, for this machine.

    ``text``: the run file.  ``names``: the owners' files, in the order of the agents.
    """
    import tomli_w

    from dpgt_node.durable import write_text
    from dpgt_node.runtime.coordinator.outdir import blamed
    from dpgt_node.runtime.trust.pki import AUTHORITY, Registry, identity_of

    run, epsilon, delta = found.run, found.target.epsilon, found.route.delta
    places = {COORDINATOR: Host("127.0.0.1", COORDINATOR_PORT)}
    places |= {name: Host("127.0.0.1", AGENT_PORT + i) for i, name in enumerate(run.graph.agents)}
    with blamed(out):
        registry = Registry.create(out / AUTHORITY, days=3650)
        for name, place in places.items():
            signed(registry, identity_of(name), [place.address], out / name, _DAYS)
            write_start_up(out / name, name, run, place, places[COORDINATOR])
            write_text(out / name / "run.toml", text)
    policy = {"epsilon_max": epsilon, **({"delta_max": delta} if delta else {})}
    for name, file in zip(run.graph.agents, names, strict=True):
        path, data = out / name / "NODE.toml", Path(file).expanduser().absolute()
        node = tomllib.loads(path.read_text(encoding="utf-8"))
        node |= {"data": {"path": str(data), "id": data.name[:128]}, "policy": policy}
        write_text(path, f"# {name}: its own data, and what may be spent on them.\n{tomli_w.dumps(node)}")
    click.echo(f"Start-up folders with certificates in {out}, for this machine:")
    tls = out / COORDINATOR
    click.echo(
        f"  dpgt coordinator --config {tls}/run.toml --listen 127.0.0.1:{COORDINATOR_PORT} --tls {tls} --out results &"
    )
    for name in run.graph.agents:
        click.echo(f"  dpgt node --config {out / name}/NODE.toml &")
