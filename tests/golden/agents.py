"""Scenes of one real agent; ``agent_scene`` says who is who."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path

from tests.golden import wires, words
from tests.golden.adapter import Policy, RunConfig, fixed_noise
from tests.golden.agent_scene import ME, SENDERS, Scene, private, run
from tests.golden.wires import played
from tests.golden.words import go, goodbye, pb, resume, stop, vector


async def start_to_farewell(s: Scene) -> None:
    """A study of three rounds: the private states go to the coordinator, who says goodbye when it has everything."""
    join = await s.start()
    await s.admit()
    await s.begin()
    await s.streams()
    upload = await s.desk.accept("Upload", "upload")
    await upload.until("Frame")
    await upload.say(pb.UploadReply(vectors=1))
    await s.rounds(0, 1, opened=True)
    await join.say(words.down(all_durable=pb.AllDurable(through=0)))
    await s.rounds(2, 2)
    await upload.until("Frame")
    await upload.say(pb.UploadReply(vectors=2))
    await join.until("finished")
    await join.say(goodbye())
    await upload.ends()
    s.desk.hang_up(upload)
    for name in SENDERS:
        await s.into[name].hang_up()
    await s.ends()
    s.disk()


async def barrier(s: Scene) -> None:
    """Two rounds at a time: the agent releases round 1 while a neighbour's round 0 is late; vectors that are early."""
    join = await s.start()
    await s.admit()
    await s.begin(1)
    await s.streams()
    await s.released()
    await s.into["agent-2"].say(vector("agent-2", "X", 0), vector("agent-2", "X", 1))
    await s.into["agent-3"].say(vector("agent-3", "Y", 0))
    await s.done()
    await s.released()
    await s.into["agent-3"].say(vector("agent-3", "Y", 1))
    await s.done()
    await join.say(go(2))
    await s.released()
    await s.give(2)
    await join.until("finished")
    await join.say(goodbye())
    for name in SENDERS:
        await s.into[name].hang_up()
    await s.ends()
    s.disk()


async def crash(s: Scene) -> None:
    """Killed after round 1, and again when round 2 was released and not yet mixed: stored bytes are sent again."""
    await s.up_to(1)
    await s.kill()
    s.script.title("it comes back; the coordinator remembers its ledger")
    join = await s.start()
    await s.admit(go_through=1, ledger_round=1, ledger_head=s.head)
    await s.begin(1)
    await s.streams(mixed_before=2)
    await s.released()
    await s.released()
    for k in (0, 1):
        await s.give(k)
        await s.done()
    await join.say(go(2))
    await s.released()
    await s.kill()
    s.script.title("it comes back; its neighbours have everything but round 2")
    join = await s.start()
    await s.admit(go_through=2, ledger_round=1, ledger_head=s.head)
    await s.begin(2)
    await s.streams(2, 2, mixed_before=2)
    await s.released()
    for k in range(3):
        await s.give(k)
        await s.done()
    await s.rounds(3, 3)
    await join.until("finished")
    await join.say(goodbye())
    for name in SENDERS:
        await s.into[name].hang_up()
    await s.ends()
    s.disk()


async def rollback(s: Scene) -> None:
    """An old copy of the state directory, another ledger, a neighbour that knows better: nothing is drawn again."""
    await s.up_to(0)
    await s.kill()
    backup = s.cluster.folder / "backup"
    shutil.copytree(s.state, backup)
    s.script.title("rounds 1 and 2 are released, then the copy of round 0 is put back")
    await s.start()
    await s.admit(go_through=1, ledger_round=0, ledger_head=s.head)
    await s.begin(1)
    await s.streams(1, 1, mixed_before=1)
    await s.give(0)
    await s.done()
    await s.rounds(1, 2, opened=True)
    await s.kill()
    newest = s.cluster.folder / "newest"
    shutil.move(s.state, newest)
    shutil.copytree(backup, s.state)
    join = await s.start()
    await join.say(words.welcome(s.run, go_through=3, ledger_round=2, ledger_head=s.head))
    await join.until("refusal")
    await join.say(stop("agent-1 refused", 2))
    await s.ends()
    s.disk()
    s.script.title("a coordinator that remembers nothing; a neighbour lacks only what comes after round 2")
    join = await s.start()
    await s.admit(go_through=2)
    await s.begin(2)
    await s.receive("agent-2", 3, 0)
    await join.until("failed")
    await join.say(stop("agent-1: old", 2))
    await s.ends()
    s.disk()
    s.script.title("the newest copy, and a head that its ledger never had")
    shutil.rmtree(s.state)
    shutil.move(newest, s.state)
    join = await s.start()
    await join.say(words.welcome(s.run, go_through=3, ledger_round=2, ledger_head=b"\x5a" * 32))
    await join.until("refusal")
    await join.say(stop("agent-1 refused", 2))
    await s.ends()
    s.script.title("the newest copy and its own head: it is let in")
    join = await s.start()
    await s.admit(go_through=3, ledger_round=2, ledger_head=s.head)
    await join.say(stop("enough", 5))
    await s.ends()
    s.disk()


async def refusals(s: Scene) -> None:
    """What an agent refuses, what it is refused, and how it exits: each time the first conversation of a process."""
    other, sha256 = wires.canonical(run(2, every=11))
    for title, message in (
        ("another run", words.welcome(s.run, run_json=other, run_sha256=sha256)),
        ("another package", words.welcome(s.run, package_version="99.0")),
        ("another protocol", words.welcome(s.run, protocol_version=2)),
        ("refused for its run", words.down(refused=pb.Refused(kind=pb.RUN_HASH, reason="scheme.alpha differs"))),
        ("refused for its name", words.down(refused=pb.Refused(kind=pb.IDENTITY, reason="another process runs"))),
        ("the run does not begin", stop("agent-3 refused: no", 3)),
        ("goodbye before anything was saved", goodbye()),
        ("rounds before Welcome", go(0)),
    ):
        s.script.title(title)
        join = await s.start()
        await join.say(message)
        await join.ends()
        await s.ends()
    for code in ("PERMISSION_DENIED", "INVALID_ARGUMENT"):
        s.script.title(f"the call ends with {code}")
        await s.start()
        assert s.join is not None
        s.desk.hang_up(s.join, code, "not you")
        await s.ends()


async def policy(s: Scene) -> None:
    """The owner's policy: a run that it forbids, and a budget that is used up in the middle of one."""
    with fixed_noise():
        await _policy(s)


async def _policy(s: Scene) -> None:
    for title, owner in (
        ("a mechanism that is not allowed", Policy(mechanisms=("paper",), allow_declared=True)),
        ("a scale that is too small", Policy(noise_min=0.6, allow_declared=True)),
        ("a run that costs too much", Policy(epsilon_max=6.9, allow_declared=True)),
    ):
        s.script.title(title)
        join = await s.start(policy=owner)
        await join.say(words.welcome(s.run))
        await join.until("refusal")
        await join.say(stop("agent-1 refused", 3))
        await s.ends()
    s.disk()
    s.script.title("the budget covers the run when it begins, and no more than round 2 when the agent comes back")
    await s.start(policy=Policy(epsilon_max=7.5, allow_declared=True))
    await s.admit()
    await s.begin()
    await s.streams()
    await s.rounds(0, 1, opened=True)
    await s.kill()
    join = await s.start(policy=Policy(epsilon_max=3.5, allow_declared=True))
    await s.admit(go_through=1, ledger_round=1, ledger_head=s.head)
    await s.begin(2)
    await s.streams(2, 2)
    for k in (0, 1):
        await s.give(k)
        await s.done()
    await s.rounds(2, 2, opened=True)
    await join.say(go(3))
    await join.until("failed")
    await join.say(stop("agent-1: budget", 4))
    await s.ends()
    s.disk()


async def stops(s: Scene) -> None:
    """Stop in mid-run with every code; no coordinator makes an unfinished agent look done."""
    await s.up_to(0)
    for code in (5, 3, 6, 2, 0, 70, 99):
        assert s.join is not None
        await s.join.say(stop("enough", code))
        await s.ends()
        s.script.title("again")
        await s.start()
        await s.admit(go_through=0)
        await s.begin(0)
        await s.streams(1, 1)
        await s.give(0)
        await s.done()
    s.script.title("goodbye in the middle")
    assert s.join is not None
    await s.join.say(goodbye())
    await s.ends()
    s.disk()


async def edges(s: Scene) -> None:
    """Who may open a stream to the agent, what it takes there, and whom it sends to."""
    await s.start()
    s.script.title("before Welcome: a neighbour waits, others are turned away")
    early = s.caller("agent-2")
    for name in ("mallory", ME, "no name!"):
        stranger = s.caller(name)
        await stranger.ends()
        await stranger.close()
    await s.admit()
    await early.hear()
    await early.close()
    await s.begin()
    s.script.title("a neighbour that answers for another, or of another run, gets nothing")
    for wrong in (resume("agent-3"), resume("agent-2", run_id=wires.OTHER_RUN)):
        stream = await s.neighbours["agent-2"].accept("Exchange", "to agent-2")
        await stream.say(wrong)
        await stream.ends()
    await s.streams()
    await s.released()
    s.script.title("a second stream of the same neighbour replaces the first")
    first = s.into["agent-2"]
    await s.dial("agent-2")
    await first.ends()
    s.script.title("what is not as it must be ends the stream, and the next one goes on")
    for what in (
        vector("agent-2", "X", 1),
        vector("agent-2", "Y", 0),
        vector("agent-3", "X", 0),
        vector("agent-2", "X", 0, run_id=wires.OTHER_RUN),
        vector("agent-2", "X", 0, dimension=4),
        vector("agent-2", "X", 0, dtype=wires.agent_pb2.FLOAT32),
        vector("agent-2", "X", 0, sha256=b"\0" * 32),
        vector("agent-2", "X", 3),
        wires.agent_pb2.Frame(),
        None,
    ):
        stream = s.into["agent-2"]
        await (stream.say(raw=b"\xff\xff") if what is None else stream.say(what))
        await stream.ends()
        await stream.close()
        await s.dial("agent-2")
    await s.give(0)
    await s.done()
    s.script.title("a stream that breaks; the neighbour lacks round 0 of what it had not got")
    s.neighbours["agent-2"].hang_up(s.out["agent-2"], "UNAVAILABLE", "leaving")
    await s.receive("agent-2", 0, 0, 0)
    await s.out["agent-2"].until("Frame")
    await s.rounds(1, 1)
    assert s.join is not None
    await s.join.say(stop("enough", 5))
    await s.ends()


async def coordinator_restarts(s: Scene) -> None:
    """The coordinator goes and comes back: the agent registers with what it holds now; another run is not followed."""
    await s.up_to(0)
    assert s.join is not None
    s.desk.hang_up(s.join)
    join = await s.registers()
    await s.admit(go_through=0, ledger_round=0, ledger_head=s.head)
    await s.begin(1)
    await s.rounds(1, 1, opened=True)
    s.desk.hang_up(join, "UNAVAILABLE", "gone")
    s.script.title("the result is there before it is back")
    join = await s.registers()
    await s.admit(go_through=2)
    await s.begin(2)
    await s.released()
    await s.give(2)
    await join.until("finished")
    s.desk.hang_up(join)
    join = await s.registers()
    await s.admit(go_through=2)
    await s.begin(2)
    await join.until("finished")
    s.script.title("it comes back with another run")
    s.desk.hang_up(join)
    join = await s.registers()
    await join.say(words.welcome(s.run, run_id=wires.OTHER_RUN))
    await s.ends()
    s.disk()


async def after_the_end(s: Scene) -> None:
    """An agent that has its result comes back: to a run that is over, to one that has to go on, to one that stopped."""
    await s.up_to(2)
    assert s.join is not None
    await s.join.until("finished")
    await s.kill()
    s.script.title("the run is over")
    join = await s.start()
    await join.say(goodbye())
    await s.ends()
    s.script.title("somebody still needs its payloads")
    join = await s.start()
    await s.admit(go_through=2)
    await s.begin(2)
    await s.receive("agent-2", 1, 3, 1)
    await s.receive("agent-3", 3, 3, 3)
    await s.out["agent-2"].until("Frame")
    await s.out["agent-2"].until("Frame")
    await join.until("finished")
    await join.say(goodbye())
    await s.ends()
    s.script.title("the run was stopped")
    join = await s.start()
    await join.say(stop("enough", 5))
    await s.ends()
    s.disk()


async def acknowledgements(s: Scene) -> None:
    """Small vectors are acknowledged once in 64 rounds; payloads that everybody has are dropped, the rest is resent."""
    join = await s.start()
    await s.admit()
    await s.begin()
    await s.streams()
    heard = len(s.script.lines)
    for k in range(69):
        if k:
            await join.say(go(k))
        await s.give(k)
        await s.done()
        await s.released()
    del s.script.lines[heard:]
    s.script.note("rounds 0..68 pass")
    for name in SENDERS:
        await s.into[name].hear()
    await join.say(words.down(all_durable=pb.AllDurable(through=59)))
    s.neighbours["agent-3"].hang_up(s.out["agent-3"])
    await s.receive("agent-3", 67, 67, 67)
    await s.out["agent-3"].until("Frame")
    await s.out["agent-3"].until("Frame")
    await join.say(stop("enough", 5))
    await s.ends()


async def interrupted(s: Scene) -> None:
    """The operator ends the agent's process: nothing is said, and it goes on from there."""
    await s.up_to(0)
    s.script.note("the agent is interrupted")
    for name in tuple(SENDERS):
        await s.into[name].hang_up()
    s.cluster.nodes[ME].interrupt()
    await s.ends()
    await s.start()
    await s.admit(go_through=0, ledger_round=0, ledger_head=s.head)
    assert s.join is not None
    await s.join.say(stop("enough", 5))
    await s.ends()
    s.disk()


def script(
    scene: Callable[[Scene], Awaitable[None]], config: Callable[[], RunConfig] = run, *, heads: bool = True
) -> Callable[[], list[str]]:
    """A scene as a function that makes its lines."""

    async def play(folder: Path) -> list[str]:
        async with Scene(config(), folder, heads=heads) as s:
            await played(s.script, scene(s))
            return s.script.lines

    def made() -> list[str]:
        with tempfile.TemporaryDirectory() as folder:
            return asyncio.run(play(Path(folder).resolve()))

    return made


SCRIPTS: dict[str, Callable[[], list[str]]] = {
    "agent-start-to-farewell": script(start_to_farewell, lambda: run(metrics="study")),
    "agent-barrier": script(barrier, lambda: run(barrier_every=2)),
    "agent-crash": script(crash, lambda: run(3)),
    "agent-rollback": script(rollback, lambda: run(9)),
    "agent-refusals": script(refusals),
    "agent-policy": script(policy, private, heads=False),
    "agent-stop": script(stops),
    "agent-edges": script(edges),
    "agent-coordinator-restarts": script(coordinator_restarts),
    "agent-after-the-end": script(after_the_end),
    "agent-interrupted": script(interrupted),
    "agent-acknowledgements": script(acknowledgements, lambda: run(99, barrier_every=69)),
}
