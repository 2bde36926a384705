"""Start-up folders of owners who each have data of their own, with a policy that allows this run and no more."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dpgt_node.cli.beginning.made import free
from dpgt_node.cli.pki.shared import AGENT_PORT, COORDINATOR, COORDINATOR_PORT, Host, signed, write_start_up
from dpgt_node.config import format_address

if TYPE_CHECKING:
    from dpgt_node.sim.plans.planning import Plan

_DAYS = 365.0


def write_owners(out: Path, text: str, found: Plan, names: Sequence[str], places: Mapping[str, Host]) -> list[str]:
    """``out``/NAME for the coordinator and every agent: run.toml and NODE.toml with the owner's data and a policy.

    ``text``: the run file.  ``names``: the owners' files, in the order of the agents.  ``places``: where each process
    is reached; empty: all on this machine, which then makes their keys and certificates too.  Keys of other hosts are
    made there.  Returns what to do next; commands begin with "dpgt".
    """
    import tomli_w

    from dpgt_node.durable import write_text
    from dpgt_node.runtime.coordinator.outdir import blamed
    from dpgt_node.runtime.trust.pki import AUTHORITY, Registry, identity_of

    run, epsilon, delta = found.run, found.target.epsilon, found.route.delta
    where = dict(places) or {
        COORDINATOR: Host("127.0.0.1", COORDINATOR_PORT),
        **{name: Host("127.0.0.1", AGENT_PORT + i) for i, name in enumerate(run.graph.agents)},
    }
    with blamed(out):
        registry = Registry.create(out / AUTHORITY, days=3650)
        for name, place in where.items():
            if places:
                registry.invite(out / name)
            else:
                signed(registry, identity_of(name), [place.address], out / name, _DAYS)
            write_start_up(out / name, name, run, place, where[COORDINATOR])
            write_text(out / name / "run.toml", text)
    policy = {"epsilon_max": epsilon, **({"delta_max": delta} if delta else {})}
    for name, file in zip(run.graph.agents, names, strict=True):
        path, data = out / name / "NODE.toml", Path(file).expanduser().absolute()
        node = tomllib.loads(path.read_text(encoding="utf-8"))
        node |= {"data": {"path": data.name if places else str(data), "id": data.name[:128]}, "policy": policy}
        beside = f" {data.name} lies beside this file, on the owner's host alone." if places else ""
        write_text(path, f"# {name}: its own data, and what may be spent on them.{beside}\n{tomli_w.dumps(node)}")
    return (_elsewhere if places else _here)(out, where, names)


def _listens(place: Host) -> str:
    """What the coordinator listens on: its own address, or any where others know it by a name."""
    return format_address(place.address if place.is_ip else "0.0.0.0", place.port)


def _here(out: Path, where: Mapping[str, Host], names: Sequence[str]) -> list[str]:
    tls, listen = out / COORDINATOR, _listens(where[COORDINATOR])
    agents = [name for name in where if name != COORDINATOR]
    (results,) = free("results")
    return [
        f"Start-up folders with certificates in {out}, for this machine:",
        f"dpgt coordinator --config {tls}/run.toml --listen {listen} --tls {tls} --out {results} &",
        *(f"dpgt node --config {out / name}/NODE.toml &" for name in agents),
        "When the run is over, every owner makes the model and judges it on its own test rows:",
        *_results([str(out / name) for name in agents]),
    ]


def _elsewhere(out: Path, where: Mapping[str, Host], names: Sequence[str]) -> list[str]:
    agents = [name for name in where if name != COORDINATOR]
    coordinator, listen = COORDINATOR, _listens(where[COORDINATOR])
    data = "; ".join(f"{name}: {Path(file).name}" for name, file in zip(agents, names, strict=True))
    return [
        f"Start-up folders in {out}. Give each to its host; the owner's data go beside NODE.toml ({data}). Then:",
        "1. On each host, the key, which never leaves it. Its request.pem comes back here:",
        *(f"dpgt pki request {name} --host {place.address} --into {name}" for name, place in where.items()),
        "2. Here, once its key sha256 was compared over another way. The new cert.pem goes back to the host:",
        *(f"dpgt pki sign {name} {out / name}/request.pem --pki {out}" for name in where),
        "3. On each host:",
        f"dpgt coordinator --config {coordinator}/run.toml --listen {listen} --tls {coordinator} --out results",
        *(f"dpgt doctor {name}/NODE.toml && dpgt node --config {name}/NODE.toml" for name in agents),
        "4. When the run is over, every owner makes the model and judges it on its own test rows:",
        *_results(agents),
    ]


def _results(folders: Sequence[str]) -> list[str]:
    return [
        step
        for folder in folders
        for step in (
            f"dpgt export {folder}/state --run {folder}/run.toml --out {folder}/model",
            f"dpgt evaluate {folder}/model --node {folder}/NODE.toml",
            f"dpgt predict {folder}/model --data new.csv",
        )
    ]
