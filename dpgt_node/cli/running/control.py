"""``dpgt status | pause | resume | stop``: control of a running coordinator; of a run that ended, its result."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

import click

from dpgt_node import figures
from dpgt_node.cli import common
from dpgt_node.cli.running import past
from dpgt_node.cli.wrapping import say
from dpgt_node.errors import ConfigError, DpgtError, ExitCode, PeerError, Untrusted

if TYPE_CHECKING:
    from dpgt_node.protocol.messages import ControlReply, StatusReply
    from dpgt_node.runtime.coordinator.outdir import Address

TIMEOUT_S = 5.0


def _target(function: Callable[..., Any]) -> Callable[..., Any]:
    for option in (
        click.option("--insecure", is_flag=True, help="The coordinator has no TLS."),
        click.option(
            "--tls", "tls_folder", type=click.Path(path_type=Path), help="Folder with ca.pem, cert.pem, key.pem."
        ),
        click.option("--coordinator", "address", metavar="HOST:PORT", help="Where it listens."),
        click.option(
            "--run", "run_dir", metavar="DIR", type=click.Path(path_type=Path), help="The run's output folder."
        ),
    ):
        function = option(function)
    return function


_PERHAPS_OVER = "if its run is over, `dpgt status --run DIR` (its --out) says how it ended"
_UNSEEN = "not seen since this coordinator started"
_NOT_OVER = "the run is not over: repeat the command that began it to go on"
_ANSWERS = {
    "PERMISSION_DENIED": "the coordinator at {} refuses",
    "UNAUTHENTICATED": "the coordinator at {} refuses",
    "UNIMPLEMENTED": "what answers at {} is no coordinator",
}


def _resolve(run_dir: Path | None, address: str | None, tls_folder: Path | None, insecure: bool) -> Address | None:
    """Where to ask; None: in ``run_dir`` no coordinator ever ran."""
    from dpgt_node.runtime.coordinator.outdir import Address, read_address

    if (run_dir is None) == (address is None):
        raise ConfigError.one("command line", "--run", "give exactly one of --run DIR and --coordinator HOST:PORT")
    if run_dir is not None:
        if tls_folder is not None or insecure:
            raise ConfigError.one(
                "command line", "--run", "already says how to connect; leave --tls and --insecure out"
            )
        return read_address(run_dir)
    assert address is not None
    if insecure == (tls_folder is not None):
        raise ConfigError.one("command line", "--tls", "give exactly one of --tls DIR and --insecure")
    common.check_dialled(address, "--coordinator")
    return Address(address, tls_folder, 0)


def _call(target: Address, action: Literal["pause", "resume", "stop"] | None, watcher: int = 0) -> Any:
    from dpgt_node.protocol import messages as m
    from dpgt_node.runtime.trust.channels import COORDINATOR_IDENTITY, Security
    from dpgt_node.wire import services

    async def main() -> Any:
        async with Security.from_folder(target.tls).dialler(COORDINATOR_IDENTITY)(target.address) as channel:
            if action is None:
                return await services.status(channel, timeout_s=TIMEOUT_S, watcher=watcher)
            return await services.control(channel, m.ControlRequest(action), timeout_s=TIMEOUT_S)

    try:
        return common.run_async(main())
    except PeerError as error:
        other = "no connection with" if isinstance(error, Untrusted) else "no answer from"
        what = _ANSWERS.get(error.grpc_status, f"{other} the coordinator at {{}}").format(target.address)
        raise PeerError(f"{what}: {error}", grpc_status=error.grpc_status) from error


def _ask(
    run_dir: Path | None, target: Address | None, action: Literal["pause", "resume", "stop"] | None
) -> ControlReply | StatusReply:
    """What the coordinator answers; a StatusReply from ``run_dir`` when the run there is over."""
    reply: ControlReply | StatusReply
    if run_dir is None:
        assert target is not None
        reply = _call_there(target, action)
        return reply
    if target is None:
        over = past.result(run_dir)
        if over is not None:  # a simulation's
            return over
        raise ConfigError.one("command line", "--run", f"no coordinator ever ran in {run_dir} (no coordinator.json)")
    try:
        reply = _call_run(run_dir, target, action)
        return reply
    except PeerError as error:
        if (ended := past.over(run_dir)) is not None:
            return ended
        raise _unanswered(run_dir, target, error) from error


def _unanswered(run_dir: Path, target: Address, error: PeerError) -> PeerError:
    """What to say of a run that is not over and whose coordinator failed to answer with ``error``."""
    from dpgt_node.runtime.coordinator.outdir import in_use

    alive = past.alive(target.pid)
    if in_use(run_dir):
        if not _nobody(error):
            return error
        number = f" (pid {target.pid})" if alive else ""
        said = f"the coordinator{number} of the run in {run_dir} is there but does not answer: {error.__cause__}"
        return PeerError(f"{said}; it begins, ends or hangs: ask again in a moment")
    gone = not alive and error.grpc_status not in _ANSWERS
    return PeerError(f"{f'the coordinator of the run in {run_dir} is gone' if gone else error}; {_NOT_OVER}")


def _nobody(error: PeerError) -> bool:
    """Whether ``error`` of :func:`_call` says that nobody answered, and not that somebody refused or is not trusted."""
    return error.grpc_status in ("UNAVAILABLE", "DEADLINE_EXCEEDED") and not isinstance(error.__cause__, Untrusted)


def _call_there(target: Address, action: Literal["pause", "resume", "stop"] | None, watcher: int = 0) -> Any:
    """Ask a coordinator whose folder is not known.  Where nobody answers its run may be over: say who knows."""
    try:
        return _call(target, action, watcher)
    except PeerError as error:
        if not _nobody(error):
            raise
        raise PeerError(f"{error}; {_PERHAPS_OVER}") from error


def _call_run(run_dir: Path, target: Address, action: Literal["pause", "resume", "stop"] | None) -> Any:
    """Ask the coordinator of the run in ``run_dir`` and no other: a port is soon taken by somebody else."""
    from dpgt_node.runtime.coordinator.outdir import held_run_id

    status: StatusReply = _call(target, None)
    if status.run_id != held_run_id(run_dir):
        raise PeerError(f"at {target.address} is the coordinator of another run now")
    return status if action is None else _call(target, action)


def _show_end(reply: StatusReply, resumed: str = "") -> str:
    """A run that is over: what became of it, and a line an agent.  ``resumed``: :func:`past.resumed`."""
    from dpgt_node.record.epsilons import head
    from dpgt_node.report.text import accuracy, judged

    rate = f", {reply.rounds_per_second:.1f} rounds/s on average" if reply.rounds_per_second else ""
    rate = f", {resumed}" if resumed else rate
    why = f" ({reply.reason})" if reply.reason else ""
    if reply.k < 0:
        return f"{reply.name}: {reply.state} before the first of {reply.K + 1} rounds was done{why}"
    lines = [f"{reply.name}: {reply.state}, round {reply.k} of {reply.K} was the last{rate}{why}"]
    if reply.accountant is not None:
        lines.append(f"  adjacent data sets: {reply.adjacency}")
    if reply.delta_warning:
        lines.append(f"  WARNING: {reply.delta_warning}")
    for agent in reply.agents:
        parts = [] if agent.accuracy_test is None else [f"test accuracy {accuracy(agent.accuracy_test)}"]
        if reply.accountant is not None and agent.epsilon is not None:
            parts.append(f"{head(reply.accountant, reply.delta or 0.0)} {judged(agent.epsilon, agent.strength)}")
        lines.append(f"  {agent.name}: {', '.join(parts) or 'no accuracy and no epsilon'}")
    return "\n".join(lines)


def _show(reply: StatusReply) -> str:
    from dpgt_node.protocol.pace import speed
    from dpgt_node.record import epsilons
    from dpgt_node.report.text import judged

    head = [reply.state]
    if reply.k >= 0:
        head.append(f"k = {reply.k} of {reply.K}")
    elif reply.state == "running":
        head.append(f"in round 0 of {reply.K}")
    if reply.rounds_per_second > 0:
        head.append(f"{speed(reply.rounds_per_second)} rounds/s")
    lines = [f"{reply.name}: {', '.join(head)}" + (f" ({reply.reason})" if reply.reason else "")]
    if reply.accountant is not None:
        lines.append(f"  adjacent data sets: {reply.adjacency}")
    if reply.delta_warning:
        lines.append(f"  WARNING: {reply.delta_warning}")
    if reply.gives_up_s is not None:
        missing = [agent.name for agent in reply.agents if agent.missing_s is not None]
        until = f"{figures.some(missing)} {'comes' if len(missing) == 1 else 'come'}" if missing else "this mends"
        lines.append(f"  the run ends in {reply.gives_up_s:.0f} s unless {until} before that")
    if reply.slowest is not None:
        lines.append(f"  {reply.slowest.line()}")
    for agent in reply.agents:
        unseen = agent.last_seen_s is None
        parts = ["connected" if agent.connected else "NOT connected"]
        if reply.state == "stopping" and not agent.connected and not unseen:
            parts = ["has left"]
        if agent.k >= 0:
            parts.append(f"k = {agent.k}")
        elif not unseen:  # of who never came to this coordinator nobody knows it
            parts.append("no round done yet")
        if agent.missing_s is not None:
            parts.append(f"MISSING for {agent.missing_s:.1f} s" + (f" ({_UNSEEN})" if unseen else ""))
        else:
            parts.append(_UNSEEN if agent.last_seen_s is None else f"seen {agent.last_seen_s:.1f} s ago")
        if agent.waits_for:
            parts.append(f"waits for {figures.some(agent.waits_for)}")
        if reply.accountant is not None and agent.epsilon is not None:
            cost = epsilons.head(reply.accountant, reply.delta or 0.0)
            parts.append(f"{cost} {judged(agent.epsilon, agent.strength)} so far")
        lines.append(f"  {agent.name}: {', '.join(parts)}")
    return "\n".join(lines)


@click.command()
@_target
@common.format_option
@click.option("--watch", "watched", is_flag=True, help="Go on showing it until the run is over; Ctrl-C leaves the run.")
def status(
    run_dir: Path | None, address: str | None, tls_folder: Path | None, insecure: bool, format_: str, watched: bool
) -> ExitCode:
    """Where a run stands and who is connected."""
    if watched:
        from dpgt_node.cli.running.watch import watch

        if format_ != "text":
            raise ConfigError.one("command line", "--watch", "shows text; leave --format out")
        target = _resolve(run_dir, address, tls_folder, insecure)
        if run_dir is None:  # nothing but the coordinator tells the end: it stays until this terminal knows
            assert target is not None
            own = secrets.randbits(63) + 1
            return watch(lambda: cast("StatusReply", _call_there(target, None, own)), lambda: None)
        code = watch(lambda: cast("StatusReply", _ask(run_dir, target, None)), lambda: past.over(run_dir))
        say(past.results(run_dir))
        return code
    reply = cast("StatusReply", _ask(run_dir, _resolve(run_dir, address, tls_folder, insecure), None))
    if format_ == "text":
        if not reply.over:
            say(common.reddened(_show(reply)))
        elif run_dir is None:
            say(common.reddened(_show_end(reply)))
        else:
            say(common.reddened(_show_end(reply, past.resumed(run_dir))))
            say(past.results(run_dir))
        return ExitCode.DONE
    from dpgt_node.record.summary import to_json

    agents = [
        {
            "name": agent.name,
            "connected": agent.connected,
            "k": agent.k,
            "last_seen_s": agent.last_seen_s,
            "state": agent.state,
            "missing_s": agent.missing_s,
            "waits_for": list(agent.waits_for),
            "epsilon": to_json(agent.epsilon),
            "strength": agent.strength or None,
        }
        for agent in reply.agents
    ]
    document = {
        "name": reply.name,
        "run_id": reply.run_id.hex(),
        "state": reply.state,
        "reason": reply.reason,
        "k": reply.k,
        "K": reply.K,
        "rounds_per_second": reply.rounds_per_second,
        "accountant": reply.accountant,
        "delta": reply.delta,
        "adjacency": reply.adjacency,
        "delta_warning": reply.delta_warning or None,
        "gives_up_s": reply.gives_up_s,
        "slowest": None if reply.slowest is None else asdict(reply.slowest),
        "agents": agents,
    }
    click.echo(json.dumps(document, indent=2, allow_nan=False))
    return ExitCode.DONE


def _control(action: Literal["pause", "resume", "stop"], help_: str) -> click.Command:
    @click.command(name=action, help=help_)
    @_target
    def verb(run_dir: Path | None, address: str | None, tls_folder: Path | None, insecure: bool) -> ExitCode:
        from dpgt_node.protocol.messages import StatusReply

        reply = _ask(run_dir, _resolve(run_dir, address, tls_folder, insecure), action)
        message = f"the run is {reply.state}" if isinstance(reply, StatusReply) else reply.message
        if isinstance(reply, StatusReply) or not reply.ok:
            error = DpgtError(f"cannot {action}: {message}")
            error.exit_code = ExitCode.CHECK_FAILED
            raise error
        say(message)
        return ExitCode.DONE

    command: click.Command = verb
    return command


pause = _control("pause", "Keep the barrier shut after the current round.")
resume = _control("resume", "Open the barrier again.")
stop = _control("stop", "End the run; every process exits 5.")
