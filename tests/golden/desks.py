"""Scenes of a real coordinator; ``desk_scene`` says who is who."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from tests.golden import wires
from tests.golden.adapter import RunConfig, canonical
from tests.golden.agent_scene import run
from tests.golden.desk_scene import HEAD, NAMES, Scene, done, finished, ready
from tests.golden.wires import RUN_ID, Caller, played
from tests.golden.words import frame, pb, up


async def start_to_farewell(s: Scene) -> None:
    """A study of two rounds."""
    await s.start()
    for i, name in enumerate(NAMES):
        await s.upload(name, frame(name, [("X", 0)], study=True))
        metrics = pb.Metrics(round=0, loss_train=0.5 + i, grad_norm=2.0)
        await s.hands[name].say(up(metrics=metrics))
    await s.done(0, head=HEAD)
    await s.all("go")
    await s.done(1, 1, head=HEAD)
    for name in NAMES:
        await s.upload(name, frame(name, [("X", 2)], study=True))
        await s.hands[name].say(finished(2))
    await s.all("goodbye")
    await s.close()
    await s.ends()
    s.disk()


async def blocks(s: Scene) -> None:
    """Barriers of three rounds: Go when the slowest is through a block."""
    await s.start()
    for k in range(3):
        await s.done(k, names=("agent-1",))
    for k in range(3):
        await s.done(k, names=("agent-2", "agent-3"))
    for _ in range(2):  # of the first round, and of the block: before that nobody may report round 3
        await s.all("go")
    await s.done(3)
    await s.hands["agent-1"].say(done(6))
    await s.hands["agent-1"].ends()
    await s.status(lambda reply: reply.round == 3)
    await s.control(pb.STOP)
    for name in NAMES[1:]:
        await s.hands[name].until("stop")
    await s.close()
    await s.ends()


async def twins(s: Scene) -> None:
    """Another process of the same name: while the first lives, with less than it told of, when it is silent."""
    await s.start()
    await s.done(0, head=HEAD)
    await s.all("go")
    first = s.hands["agent-1"]
    s.script.title("the first gives signs of life")
    twin = await s.registers(
        "agent-1", who="twin", instance=b"t" * 16, run_id=RUN_ID, last_released_round=0, last_done_round=0
    )
    living = asyncio.ensure_future(_lives(first))
    await twin.ends()
    living.cancel()
    await asyncio.gather(living, return_exceptions=True)
    s.script.title("it holds less than the first has told of")
    twin = await s.registers("agent-1", who="twin", instance=b"u" * 16)
    await twin.ends()
    s.script.title("the first is silent: it is replaced")
    heir = await s.registers(
        "agent-1", who="heir", instance=b"v" * 16, run_id=RUN_ID, last_released_round=0, last_done_round=0
    )
    await heir.until("welcome")
    await first.ends()
    await heir.say(ready())
    await heir.until("start")
    s.script.title("the same process registers again: no twin, its older stream ends")
    again = await s.registers(
        "agent-1", who="heir", instance=b"v" * 16, run_id=RUN_ID, last_released_round=0, last_done_round=0
    )
    await again.until("welcome")
    await heir.ends()
    await again.say(ready())
    await again.until("start")
    await s.control(pb.STOP, "enough")
    await again.until("stop")
    await s.close()
    await s.ends()


async def _lives(hand: Caller) -> None:
    while True:
        await hand._write(up(heartbeat=pb.Heartbeat()).SerializeToString())
        await asyncio.sleep(0.02)


async def strangers(s: Scene) -> None:
    """Who is turned away while the run goes on, and what ends a call and nothing else."""
    for title, name, message in (
        ("not in the run", "mallory", s.registration("mallory")),
        ("another name than the caller's", "agent-1", s.registration("agent-2")),
        ("not a registration", "agent-1", done(0)),
        ("no sign of who it is", "agent-1", up(heartbeat=pb.Heartbeat())),
        ("rounds that do not exist", "agent-1", s.registration("agent-1", last_done_round=4)),
        ("a refusal of a stranger", "mallory", up(refusal=pb.Refusal(kind=pb.POLICY, reason="no"))),
        ("malformed", "agent-1", s.registration("agent-1", run_sha256="00")),
    ):
        s.script.title(title)
        hand = s.call(name, "Join")
        await hand.say(message)
        await hand.ends()
    s.script.title("bytes that are no message")
    hand = s.call("agent-1", "Join")
    await hand.say(raw=b"\xff\xff")
    await hand.ends()
    s.script.title("a result before the run began")
    hand = await s.welcome("agent-1")
    await hand.say(finished(4))
    await hand.ends()
    await s.start()
    for title, message in (
        ("a round beyond the barrier", done(1)),
        ("durable before it is done", done(0, 1)),
        ("a result too early", finished(4)),
        ("a second registration", s.registration("agent-2")),
        ("an edge to itself", up(edges=pb.Edges(lacks=[pb.Lack(sender="agent-2")]))),
        ("an edge to nobody", up(edges=pb.Edges(down=[pb.Down(receiver="mallory", for_ns=1, cause="x")]))),
    ):
        s.script.title(title)
        await s.hands["agent-2"].say(message)
        await s.hands["agent-2"].ends()
        for name in ("agent-1", "agent-3"):
            await s.hands[name].say(up(heartbeat=pb.Heartbeat()))
        await s.welcome("agent-2")
        await s.all("start")
    s.script.title("states that are not the caller's, or no states")
    for sender, what, changes in (
        ("agent-1", [("X", 9)], {}),
        ("agent-2", [("X", 0)], {}),
        ("agent-1", [("X", 0)], {"dimension": 4}),
        ("agent-1", [("X", 0)], {"run_id": wires.OTHER_RUN}),
    ):
        await s.upload("agent-1", frame(sender, what, study=True, **changes))
    await s.done(0)
    await s.all("go")


def refusal(**changes: Any) -> Callable[[Scene], Awaitable[None]]:
    """An enrolled agent disagrees: the run does not take place."""

    async def scene(s: Scene) -> None:
        for title, change in changes.items():
            s.script.title(title.replace("_", " "))
            await s.welcome("agent-1")
            second = await s.registers("agent-2", **change)
            await second.ends()
            await s.hands["agent-1"].until("stop")
            await s.close()
            await s.all_hear_why()
            await s.ends()
            await s.again()

    return scene


async def failures(s: Scene) -> None:
    """An agent refuses instead of being ready, or fails in mid-run: everybody hears its words and its code."""
    s.script.title("a refusal for an answer to Welcome")
    for name in NAMES[:2]:
        await s.welcome(name)
    hand = await s.registers("agent-3")
    await hand.until("welcome")
    await hand.say(up(refusal=pb.Refusal(kind=pb.POLICY, reason="the policy forbids it")))
    await s.all("stop")
    await s.close(*NAMES[:2])
    await hand.hang_up()
    await s.ends()
    s.hands.clear()
    s.script.title("a refusal as the first word")
    await s.again()
    await s.welcome("agent-1")
    hand = s.call("agent-2", "Join")
    await hand.say(up(refusal=pb.Refusal(kind=pb.DATA, reason="too few samples")))
    await hand.ends()
    await s.hands["agent-1"].until("stop")
    await s.close()
    await s.all_hear_why()
    await s.ends()
    for code in (2, 4, 6, 70, 99):
        s.script.title(f"an agent fails with {code}")
        await s.again()
        await s.start()
        await s.hands["agent-2"].say(up(failed=pb.Failed(exit_code=code, message="its words")))
        await s.all("stop")
        await s.close()
        await s.ends()


async def heads(s: Scene) -> None:
    """What is remembered of every ledger; agents that come back with less are stopped, over a restart too."""
    await s.start()
    for k in range(2):
        await s.done(k, head=bytes([k + 1]) * 32)
        await s.all("go")
    await s.close("agent-2")
    s.script.title("it comes back and replays")
    await s.welcome("agent-2", run_id=RUN_ID, last_released_round=1, last_done_round=0)
    await s.all("start")
    s.script.title("a head of a round that it had reported already changes nothing")
    await s.hands["agent-2"].say(done(1, -1, b"\x7e" * 32), done(3))
    await s.hands["agent-2"].ends()
    await s.welcome("agent-2", run_id=RUN_ID, last_released_round=1, last_done_round=1)
    await s.all("start")
    await s.kill()
    await s.again()
    s.script.title("the coordinator comes back and knows them still; one agent's state is an old copy")
    for name in NAMES[:2]:
        await s.welcome(name, run_id=RUN_ID, last_released_round=1, last_done_round=1)
    hand = await s.registers("agent-3", run_id=RUN_ID, last_released_round=0, last_done_round=0)
    await hand.until("welcome")
    await hand.say(up(refusal=pb.Refusal(kind=pb.DATA, reason="an old state directory")))
    await s.all("stop")
    await s.close(*NAMES[:2])
    await hand.hang_up()
    await s.ends()


async def old_state(s: Scene) -> None:
    """An agent that comes back in mid-run and has forgotten a round that it had finished."""
    await s.start()
    for k in range(2):
        await s.done(k)
        await s.all("go")
    await s.close("agent-2")
    await s.welcome("agent-2", run_id=RUN_ID, last_released_round=0, last_done_round=0)
    await s.all("stop")
    await s.close()
    await s.ends()


async def operator(s: Scene) -> None:
    """Status, pause, resume and stop, in every state."""
    await s.status()
    await s.control(pb.PAUSE)
    await s.control(pb.RESUME)
    await s.start()
    await s.status()
    await s.control(pb.RESUME)
    await s.control(pb.PAUSE)
    await s.control(pb.PAUSE)
    await s.done(0)
    await s.status(lambda reply: reply.round == 0)
    s.script.title("the coordinator is killed while paused, and comes back paused")
    await s.kill()
    await s.again()
    for name in NAMES:
        await s.welcome(name, run_id=RUN_ID, last_released_round=0, last_done_round=0)
    await s.all("start")
    await s.status()
    await s.control(pb.RESUME)
    await s.all("go")
    await s.control(pb.STOP, "enough")
    await s.all("stop")
    await s.control(pb.STOP)
    await s.status()
    await s.close()
    await s.ends()


async def losses(s: Scene) -> None:
    """An agent that leaves, under on_agent_loss = stop."""
    await s.start()
    living = [asyncio.ensure_future(_lives(s.hands[name])) for name in NAMES[:2]]
    await s.close("agent-3")
    for name in NAMES[:2]:
        await s.hands[name].until("stop")
    for task in living:
        task.cancel()
    await asyncio.gather(*living, return_exceptions=True)
    await s.close()
    await s.ends()


async def never_registered(s: Scene) -> None:
    """One comes, two do not."""
    await s.welcome("agent-2")
    await s.hands["agent-2"].until("stop")
    await s.close()
    await s.all_hear_why()
    await s.ends()


async def after_the_end(s: Scene) -> None:
    """Who comes when the run is over hears its last word: Goodbye with the result of this run, Stop without."""
    over = {"run_id": RUN_ID, "last_released_round": 3, "last_done_round": 3, "last_durable_round": 3}
    await s.start()
    for k in range(4):
        await s.done(k, 3 if k == 3 else -1, head=HEAD)
        if k < 3:
            await s.all("go")
    for name in NAMES:
        await s.hands[name].say(finished(4))
    for name in NAMES[:2]:
        await s.hands[name].until("goodbye")
    await s.kill()
    s.script.title("the end was cut off: its next start says goodbye to whoever comes")
    await s.again()
    await s.status()
    for name, held in (("agent-1", over), ("agent-2", {**over, "run_id": wires.OTHER_RUN}), ("agent-3", over)):
        hand = await s.registers(name, **held)
        await hand.ends()
    await s.ends()


async def coordinator_restarts(s: Scene) -> None:
    """A coordinator that was killed in mid-run learns from the agents how far it was."""
    await s.start()
    await s.done(0, names=("agent-1", "agent-2"))
    await s.kill()
    await s.again()
    await s.welcome("agent-1", run_id=RUN_ID, last_released_round=0, last_done_round=0)
    s.script.title("a report that comes before everybody is here")
    await s.hands["agent-1"].say(done(0))
    await s.welcome("agent-2", run_id=RUN_ID, last_released_round=0, last_done_round=0)
    await s.welcome("agent-3", run_id=RUN_ID, last_released_round=0)
    await s.all("start")
    await s.hands["agent-3"].say(done(0))
    await s.all("go")
    await s.done(1)
    await s.all("go")
    await s.kill()
    s.script.title("again, with results that the one before had not counted")
    await s.again()
    over = {"run_id": RUN_ID, "last_released_round": 3, "last_done_round": 3, "last_durable_round": 3}
    for name in NAMES:
        await s.welcome(name, **over)
        await s.hands[name].say(finished(4))
    await s.all("start")
    for name in NAMES:
        await s.hands[name].say(finished(4))
    await s.all("goodbye")
    await s.close()
    await s.ends()


def script(scene: Callable[[Scene], Awaitable[None]], config: Callable[[], RunConfig] = run) -> Callable[[], list[str]]:
    """A scene as a function that makes its lines."""

    async def play(folder: Path) -> list[str]:
        async with Scene(config(), folder) as s:
            await played(s.script, scene(s))
            return s.script.lines

    def made() -> list[str]:
        with tempfile.TemporaryDirectory() as folder:
            return asyncio.run(play(Path(folder).resolve()))

    return made


_OTHER = canonical(run(5, every=11))
_OTHERS: dict[str, dict[str, Any]] = {
    "another_run_file": {"run_json": _OTHER[0], "run_sha256": _OTHER[1]},
    "another_package": {"package_version": "99.0"},
    "another_protocol": {"protocol_version": 2},
    "another_dimension": {"dimension": 4},
    "another_shape": {"shape_sha256": "5b" * 32},
}
SCRIPTS: dict[str, Callable[[], list[str]]] = {
    "desk-start-to-farewell": script(start_to_farewell, lambda: run(1, metrics="study")),
    "desk-blocks": script(blocks, lambda: run(8, barrier_every=3)),
    "desk-twins": script(twins, lambda: run(3, round_timeout=4)),
    "desk-strangers": script(strangers, lambda: run(3, metrics="study")),
    "desk-refusals": script(refusal(**_OTHERS), lambda: run(3)),
    "desk-failures": script(failures, lambda: run(3)),
    "desk-heads": script(heads, lambda: run(3)),
    "desk-old-state": script(old_state, lambda: run(3)),
    "desk-operator": script(operator, lambda: run(3)),
    "desk-losses": script(losses, lambda: run(3, round_timeout=2, on_agent_loss="stop")),
    "desk-never-registered": script(never_registered, lambda: run(3, register_timeout=2)),
    "desk-after-the-end": script(after_the_end, lambda: run(3)),
    "desk-coordinator-restarts": script(coordinator_restarts, lambda: run(3)),
}
