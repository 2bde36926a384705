"""Preflight of one host before a run: what would go wrong, and what to do about it.  Starts and changes nothing."""

from __future__ import annotations

import datetime
import os
import platform
import sqlite3
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

import cryptography
import grpc
import numpy as np

from dpgt_node import __version__, figures
from dpgt_node.agent.noise import account_for
from dpgt_node.agent.policy import DELTAS
from dpgt_node.algo.graph import Topology
from dpgt_node.algo.hard import hard_failures
from dpgt_node.algo.methods import method_of, network_of
from dpgt_node.algo.schedule import Schedule
from dpgt_node.config import NodeConfig, RunConfig, check_node_in_run, parse_address, run_sha256
from dpgt_node.config.privacy.cancelling import masks
from dpgt_node.errors import ConfigError, DpgtError, PeerError, Untrusted
from dpgt_node.learning.common import Oracle
from dpgt_node.learning.oracle import build_oracle, odd_about_data, oracle_and_digest
from dpgt_node.learning.tables import table_size
from dpgt_node.privacy.accountants.composition import Spent, tally
from dpgt_node.privacy.accountants.registry import APPROXIMATE, SOUND, called
from dpgt_node.privacy.strength import delta_warning, strength
from dpgt_node.protocol.messages import PROTOCOL_VERSION
from dpgt_node.record.epsilons import tightest
from dpgt_node.runtime.agent.budget import Request, also_known, terms_of
from dpgt_node.runtime.agent.sharing import require_means
from dpgt_node.runtime.disk import agent_need
from dpgt_node.runtime.launch import hostcheck
from dpgt_node.runtime.launch.hostcheck import Finding, failed, passed, unknown, warned
from dpgt_node.runtime.requirements import outdated
from dpgt_node.runtime.store.keyed import OwnerKey, read_signed
from dpgt_node.runtime.store.ledger import DATABASE, Charge, last_charges, look_on, read_ledger
from dpgt_node.runtime.store.runs import RunInfo, salt_of, select_runs
from dpgt_node.runtime.store.terms import differences, of_these_data
from dpgt_node.runtime.trust.certificates import dates_problem, instant, judge, names_of, span
from dpgt_node.runtime.trust.channels import COORDINATOR_IDENTITY, agent_identity
from dpgt_node.runtime.trust.credentials import Credentials, expires_soon, load
from dpgt_node.runtime.trust.files import Files, key_mode_problem
from dpgt_node.runtime.trust.pki import read_certificate
from dpgt_node.runtime.trust.probe import look, speaks_tls
from dpgt_node.runtime.trust.requests import REQUEST_FILE, key_fingerprint
from dpgt_node.values import dataclass

RENEW = "dpgt pki renew"


@dataclass(frozen=True, slots=True)
class Row:
    """One check.  ``todo``: what to do, empty when there is nothing."""

    check: str
    status: Literal["passed", "warning", "failed", "unknown"]
    found: str
    todo: str

    @property
    def passed(self) -> bool | None:
        """A warning passes; None: this host cannot know."""
        return None if self.status == "unknown" else self.status != "failed"


def _row(check: str, finding: Finding) -> Row:
    return Row(check, finding.status, finding.found, finding.todo)


def _tried(check: str, attempt: Callable[[], Finding], run_file: Path | None = None) -> Row:
    """A check that raises has failed with the error's words; ``run_file``: whose name they are to have."""
    try:
        return _row(check, attempt())
    except DpgtError as error:
        return _row(check, failed(_words(error, run_file), "see the message"))


def _words(error: DpgtError, run_file: Path | None) -> str:
    named = error.of_run_file(run_file) if isinstance(error, ConfigError) and run_file is not None else error
    return "; ".join(str(named).splitlines())


async def examine_node(config: NodeConfig, run: RunConfig, *, data_root: Path | None) -> list[Row]:
    """Every check of an agent's host."""
    rows = [_run(run), _tried("in the run", lambda: _in_run(config, run), config.run)]
    oracle: Oracle | None = None
    if rows[-1].passed:
        rows_of_data, oracle = _data(config, run, data_root)
        rows += rows_of_data
        rows.append(_tried("policy", lambda: _policy(config, run, oracle, data_root), config.run))
        if oracle is not None and _begun(config, run) is not None:
            rows.append(_tried("goes on", lambda: _goes_on(config, run, data_root), config.run))
        if (mine := _mine(config, run)) and mine[-1].finished:
            ended = f"run {mine[-1].run_id.hex()[:12]} of this run file is finished here"
            rows.append(_row("finished", passed(f"{ended}; a start is another run, and costs again")))
    host, port = parse_address(config.listen)
    rows += _certificates(config)
    if rows[1].passed and (graph := masks(run)) is not None:
        partners = [run.graph.agents[j] for j in graph.partners(run.graph.agents.index(config.name))]
        rows.append(_tried("shared noise", lambda: _shared(config, run, partners), config.run))
    rows.append(_row("listen", hostcheck.listens(host, port)))
    rows += [_row(f"advertise{what}", found) for what, found in hostcheck.advertised(config)]
    rows.append(await _coordinator(config))
    rows += _state(config, run, oracle)
    return [*rows, _versions()]


async def examine_coordinator(run: RunConfig, listen: str | None, tls: Path | None, out: Path | None) -> list[Row]:
    """Every check of the coordinator's host; what was not said is not checked."""
    rows = [_run(run), _tried("conditions", lambda: _conditions(run, (None,) * run.n))]
    if tls is not None:
        names = [parse_address(listen)[0]] if listen is not None else []
        rows += _chain(Files.of(tls), COORDINATOR_IDENTITY, names)
    if listen is not None:
        rows.append(_row("listen", hostcheck.listens(*parse_address(listen))))
    if out is not None:
        rows.append(_row("output folder", hostcheck.writable(out)))
        rows.append(_row("free space", hostcheck.free_space(out, None)))
    rows.append(_row("open files", hostcheck.open_files(2 * run.n)))
    return [*rows, _versions()]


# --- the run, the data, the owner's policy --------------------------------------------------------------------------


def _run(run: RunConfig) -> Row:
    return _row("run file", passed(f"{run.name}: {run.n} agents, rounds 0..{run.K}, sha256 {run_sha256(run)}"))


def _conditions(run: RunConfig, samples: tuple[int | None, ...]) -> Finding:
    topology, schedule = Topology.from_config(run.graph), Schedule.from_config(run)
    problems = [f"{key}: {message}" for key, message in hard_failures(run, topology, schedule, samples)]
    if why := method_of(run).simulated:
        problems.append(f'algorithm.method: "{run.algorithm.method}" is for dpgt simulate alone: {why}')
    return (
        failed("; ".join(problems), "dpgt check shows both sides")
        if problems
        else passed("all that a run needs hold; dpgt check has those of the theorems, too")
    )


def _in_run(config: NodeConfig, run: RunConfig) -> Finding:
    return passed(f"{config.name} is agent {check_node_in_run(config, run) + 1} of {run.n}")


def _data(config: NodeConfig, run: RunConfig, data_root: Path | None) -> tuple[list[Row], Oracle | None]:
    index = run.graph.agents.index(config.name)
    shard = config.shard - 1 if config.shard is not None else index
    try:
        oracle = build_oracle(run, shard, data_root=data_root, data_path=config.data_path, data_test=config.data_test)
        odd = odd_about_data(run, data_root, config.data_path, config.data_test)
    except ConfigError as error:
        todo = "mend that; [data] of NODE.toml says where the agent's data are"
        return [_row("data", failed(_words(error, config.run), todo))], None
    D = "no samples (closed form)" if oracle.samples is None else f"D = {oracle.samples} samples"
    known = tuple(oracle.samples if i == index else None for i in range(run.n))
    return [
        _row("data", passed(f"{D}, d = {oracle.dimension} parameters")),
        *(_row("data", warned(line, "see docs/reference/data.md")) for line in odd),
        _tried("conditions", lambda: _conditions(run, known), config.run),
    ], oracle


def _charges(config: NodeConfig) -> tuple[Charge, ...]:
    state_dir = config.state_dir
    key = None if config.ledger_key is None else OwnerKey.read(config.ledger_key, state_dir)
    if not (state_dir / DATABASE).exists():
        return ()
    ledger = read_ledger(state_dir) if key is None else read_signed(state_dir, key)
    return last_charges((entry, ledger.terms[entry.run_id]) for entry in ledger.entries)


def _policy(config: NodeConfig, run: RunConfig, oracle: Oracle | None, data_root: Path | None) -> Finding:
    if oracle is None:
        return unknown("needs the data", "first mend the data")
    topology, schedule = Topology.from_config(run.graph), Schedule.from_config(run)
    index = run.graph.agents.index(config.name)
    account = account_for(run, topology, schedule, index, oracle.samples, oracle.dimension)
    charges, same = _charges(config), set[bytes]()
    if charges:
        shard = index if config.shard is None else config.shard - 1
        _, digest = oracle_and_digest(
            run, shard, data_root=data_root, data_path=config.data_path, data_test=config.data_test
        )
        same = {known.run_id for known in of_these_data(look_on(config.state_dir, select_runs), digest)}
    request = Request(config.policy, config.data_id, run, account, oracle.samples, charges, same=same)
    spent, verdict = request.verdict()
    costs = {a: [account.total(a)] for a in SOUND}
    accountant = verdict.accountant or tightest(costs, run.privacy.delta, oracle.samples)
    cost = account.total(accountant) if accountant is not None else None
    privacy = run.privacy
    found = "the run's cost is not bounded: no sound accountant has a value for it"
    if accountant is not None and cost is not None:  # at the delta at which the policy counts all runs
        at = None if verdict.total is None else verdict.total.delta or None
        alone = tally([Spent("this run", {accountant: cost}, privacy.delta, declared=False)], SOUND, accountant, at)
        delta = float(alone.delta)
        word = strength(accountant, alone.epsilon, delta, samples=oracle.samples, enforced=privacy.enforced)
        named = f"{called(accountant)}, delta {delta:g}" if delta else called(accountant)
        cost_of_it = f"epsilon {figures.epsilon(alone.epsilon)} ({named})"
        found = f"the run costs {cost_of_it}: {'no' if word == 'none' else word} protection"
    also = also_known(request.ids())
    runs = f"{len(spent)} run{'' if len(spent) == 1 else 's'}" if spent else "no run"
    found += f"\n{runs} on this data set{also} before"
    if verdict.problems:
        return failed("; ".join(verdict.problems), "[policy] in NODE.toml, or another run file")
    if verdict.shortfall is not None:
        if _begun(config, run) is not None:  # it may go on, and then counts once
            return unknown(verdict.shortfall, "fine if this run only goes on: it counts once")
        if verdict.shortfall.startswith(DELTAS):  # no epsilon_max would help
            return failed(verdict.shortfall, "a larger [policy] delta_max, or a smaller privacy.delta in the run file")
        return failed(verdict.shortfall, "a larger [policy] epsilon_max, or dpgt plan for a run that fits")
    void = delta_warning(privacy.delta, oracle.samples) if accountant in APPROXIMATE else None
    if verdict.warnings or void is not None:
        said = [*verdict.warnings, *([void] if void is not None else [])]
        return warned("\n".join((found, *said)), "[policy] in NODE.toml")
    return passed(found)


def _begun(config: NodeConfig, run: RunConfig) -> Charge | None:
    """What this agent has released in the unfinished run of this run file, which it would go on with."""
    mine = _mine(config, run)
    if not mine or mine[-1].finished:
        return None
    return next((charge for charge in _charges(config) if charge.run_id == mine[-1].run_id), None)


def _mine(config: NodeConfig, run: RunConfig) -> list[RunInfo]:
    """Runs of this run file by this agent, in the order in which they were begun."""
    if not (config.state_dir / DATABASE).exists():
        return []
    known = look_on(config.state_dir, select_runs)
    return [one for one in known if (one.run_sha256, one.name) == (run_sha256(run), config.name)]


def _goes_on(config: NodeConfig, run: RunConfig, data_root: Path | None) -> Finding:
    """Whether what lies here now is what the run was begun with: the agent refuses everything else."""
    charge = _begun(config, run)
    if charge is None:
        return passed("nothing was begun")
    index = run.graph.agents.index(config.name)
    shard = config.shard - 1 if config.shard is not None else index
    oracle, digest = oracle_and_digest(
        run, shard, data_root=data_root, data_path=config.data_path, data_test=config.data_test
    )
    now = terms_of(config.data_id, run, config.name, oracle.samples, charge.terms.keystream)
    salt = b"" if charge.terms.since is None else look_on(config.state_dir, lambda db: salt_of(db, charge.run_id))
    found = differences(charge.terms, now, digest, salt)
    if charge.terms.data_id != config.data_id:
        found.insert(0, f'[data] id was "{charge.terms.data_id}" and is "{config.data_id}"')
    whose = f"run {charge.run_id.hex()[:12]} was begun here, rounds 0..{charge.k} are released"
    if found:
        return failed(f"{whose}; {'; '.join(found)}: it would be refused", "bring that back, or start a new run")
    return passed(f"{whose}: the same data on the same terms")


# --- certificates -----------------------------------------------------------------------------------------------------


def _certificates(config: NodeConfig) -> list[Row]:
    tls = config.tls
    if tls.insecure or tls.ca is None or tls.cert is None or tls.key is None:
        return [_row("certificate", warned("insecure = true: everybody can read and send", "[tls] with dpgt pki init"))]
    names = [parse_address(config.advertise)[0]] if config.advertise is not None else []
    return _chain(Files(tls.ca, tls.cert, tls.key), agent_identity(config.name), names)


def _chain(files: Files, identity: str, hosts: list[str]) -> list[Row]:
    rows = []
    if (mode := key_mode_problem(files.key)) is not None:
        rows.append(_row("key mode", failed(f"{files.key} {mode[0]}", mode[1])))
    elif files.key.exists():
        rows.append(_row("key mode", passed(f"{files.key}: {files.key.stat().st_mode & 0o777:04o}")))
    try:
        certificate = read_certificate(files.cert)
    except ConfigError as error:
        asked = files.cert.with_name(REQUEST_FILE)
        if not files.cert.exists() and asked.exists():
            todo = f"have the authority sign {asked} (dpgt pki sign), and put its cert.pem there"
            return [*rows, _row("certificate", failed(f"{files.cert} is not there yet", todo))]
        return [*rows, _row("certificate", failed(str(error), "dpgt pki init or issue; dpgt pki request and sign"))]
    if closed := [path for path in (files.ca, files.key) if path.exists() and not os.access(path, os.R_OK)]:
        todo = f"let user {os.geteuid()} read it (a mounted secret: runAsUser its owner, or an fsGroup)"
        return [*rows, _row("certificate", failed(f"{', '.join(map(str, closed))} cannot be read", todo))]
    names = names_of(certificate)
    now = datetime.datetime.now(datetime.UTC)
    try:
        material = load(files)
        listed = f"{len(material.revoked)} revoked" if files.crl.exists() else "no revocation list"
        serial = f"serial {certificate.serial_number:x}, key sha256 {key_fingerprint(certificate.public_key())}"
        rows.append(_row("certificate", passed(f"{serial}, issued by the CA here, fits its key; {listed}")))
    except ConfigError as error:
        todo = f"{RENEW} or issue, and copy it" if mode is None else "first close the key to others"
        rows.append(_row("certificate", failed("; ".join(str(error).splitlines()), todo)))
    until = f"valid until {instant(certificate.not_valid_after_utc)}"
    if (dates := dates_problem(certificate, now)) is not None:
        todo = "set this host's clock (NTP)" if now < certificate.not_valid_before_utc else RENEW
        rows.append(_row("expiry", failed(dates, todo)))
    elif expires_soon(certificate, now):
        rows.append(_row("expiry", warned(f"{until}, in {span(certificate.not_valid_after_utc - now)}", RENEW)))
    else:
        rows.append(_row("expiry", passed(until)))
    shown = ", ".join(names.identities) or "none"
    if names.identities == (identity,):
        rows.append(_row("identity", passed(shown)))
    else:
        rows.append(_row("identity", failed(f"{shown}, not {identity}", "the start-up folder of this name")))
    for host in hosts:
        if host in (*names.dns, *names.ip):
            rows.append(_row("alternative names", passed(f"cover {host}")))
        else:
            todo = f"dpgt pki issue --host {host}, if other tools dial it: nodes look for the identity, not the address"
            rows.append(_row("alternative names", warned(f"{', '.join((*names.dns, *names.ip))}: not {host}", todo)))
    return rows


def _shared(config: NodeConfig, run: RunConfig, partners: list[str]) -> Finding:
    secure = not config.tls.insecure
    require_means(run, config.name, secure=secure, durability=config.durability)
    return passed(f"with {', '.join(partners)}: keys are agreed on before round 0, durability is power")


async def _coordinator(config: NodeConfig) -> Row:
    """Who answers there now.  Before it is started nobody does, which says nothing against it."""
    tls, check = config.tls, "coordinator"
    host, port = parse_address(config.coordinator)
    reach = await hostcheck.reaches(host, port)
    if reach.status == "passed" and tls.insecure and await speaks_tls(config.coordinator):
        found = f"{config.coordinator} speaks TLS, and this node does not: it would be turned away without a word"
        return _row(check, failed(found, "leave insecure = true out, and give ca, cert and key in [tls]"))
    if reach.status != "passed" or tls.insecure or tls.ca is None or tls.cert is None or tls.key is None:
        return _row(check, reach)
    try:
        credentials = Credentials(Files(tls.ca, tls.cert, tls.key))
        credentials.material()
        seen = await look(config.coordinator, credentials, tls.coordinator_id)
    except ConfigError:
        return _row(check, unknown(f"{reach.found}; not asked who it is", "first mend this host's certificate"))
    except Untrusted as error:
        return _row(check, failed(str(error), "the same dpgt pki for all hosts, clocks by NTP, no expired certificate"))
    except PeerError as error:
        return _row(check, failed(f"{reach.found}, then: {error}", "look at its log"))
    now = datetime.datetime.now(datetime.UTC)
    reasons = judge(seen, credentials.material().authorities, frozenset(), now=now, uses=("server",))
    assert not reasons  # look() raised otherwise
    within = f"its certificate's dates fit this host's clock ({instant(seen.not_valid_before_utc)} on)"
    return _row(check, passed(f"{config.coordinator} is {tls.coordinator_id}; {within}"))


# --- the host -----------------------------------------------------------------------------------------------------


def _state(config: NodeConfig, run: RunConfig, oracle: Oracle | None) -> Iterator[Row]:
    yield _row("state directory", hostcheck.writable(config.state_dir))
    yield _row("state lock", hostcheck.unlocked(config.state_dir))
    yield _row("file system", hostcheck.keeps(config.state_dir, config.durability))
    need = None
    if oracle is not None:
        m = Schedule.from_config(run).m
        batch = oracle.samples if m is None else m
        table = table_size(run, oracle)
        need = agent_need(run, config.name, oracle.dimension, batch, oracle.sample_size, table).total
    yield _row("free space", hostcheck.free_space(config.state_dir, need))
    if config.name in run.graph.agents:
        topology = Topology.from_config(run.graph)
        index = run.graph.agents.index(config.name)
        network = network_of(run, topology)
        yield _row("open files", hostcheck.open_files(len(network.senders(index)) + len(network.peers(index)) + 1))


def _versions() -> Row:
    python = f"Python {platform.python_version()} on {platform.platform(terse=True)}"
    libraries = f"grpc {grpc.__version__}, cryptography {cryptography.__version__}, numpy {np.__version__}"
    found = (
        f"dpgt-node {__version__}, protocol {PROTOCOL_VERSION}, {python}, {libraries}, SQLite {sqlite3.sqlite_version}"
    )
    if wrong := outdated():
        return _row("versions", failed(f"{found}; {'; '.join(wrong)}", "pip install --upgrade them"))
    if sys.byteorder != "little":
        return _row("versions", failed(f"{found}: big-endian", "vectors travel little-endian; another machine"))
    return _row("versions", passed(f"{found}; all hosts need the same dpgt-node"))
