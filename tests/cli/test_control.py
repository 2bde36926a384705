"""What ``dpgt status`` prints of a run that goes on, that stands still, and that is over."""

from __future__ import annotations

import asyncio
import json
import math
import os
import subprocess
import sys
from asyncio.subprocess import PIPE, STDOUT
from dataclasses import replace
from pathlib import Path

import pytest

from dpgt_node import cli
from dpgt_node.cli.running.control import _call_there, _show, _show_end
from dpgt_node.errors import PeerError, Untrusted
from dpgt_node.protocol.messages import AgentStatus, StatusReply
from dpgt_node.record.summary import load_summary, write_summary
from dpgt_node.runtime.coordinator.heads import keep_samples
from dpgt_node.runtime.coordinator.outdir import ADDRESS_FILE, Address, hold, prepare, write_address
from dpgt_node.runtime.coordinator.watch import Events
from dpgt_node.sim.simulate import simulate
from dpgt_node.wire import services
from tests.e2e import processes
from tests.runtime.cluster import KEY, cluster, make_run

AGENTS = (AgentStatus("agent-1", True, 7, 0.25, 0.9, 7.5), AgentStatus("agent-2", False, -1, None, None, math.inf))
REPLY = StatusReply("running", 6, 200, bytes(16), "digits", 81.25, AGENTS, 1e-3, "", "gdp", 1e-5, "replace-one")


def test_text_names_accountant_delta_and_adjacency() -> None:
    assert _show(REPLY) == (
        "digits: running, k = 6 of 200, 81.2 rounds/s\n"
        "  adjacent data sets: replace-one\n"
        "  agent-1: connected, k = 7, seen 0.2 s ago, epsilon (gdp, delta 1e-05) 7.5 so far\n"
        "  agent-2: NOT connected, not seen since this coordinator started, "
        "epsilon (gdp, delta 1e-05) infinite so far"
    )
    conditional = _show(replace(REPLY, accountant="lemma5", delta=None))
    assert conditional.count("epsilon (Lemma 5; conditional) ") == 2
    assert "epsilon" not in _show(replace(REPLY, accountant=None, reason="paused"))


def test_text_says_who_is_missing_since_when_and_who_waits() -> None:
    gone = replace(AGENTS[1], k=6, last_seen_s=73.21, state="silent", missing_s=73.21, epsilon=None)
    waiting = replace(AGENTS[0], waits_for=("agent-2",), epsilon=None)
    why = "agent-2 gave no sign of life for 73.2 s, in round 7"
    assert _show(replace(REPLY, accountant=None, agents=(waiting, gone), reason=why)) == (
        f"digits: running, k = 6 of 200, 81.2 rounds/s ({why})\n"
        "  agent-1: connected, k = 7, seen 0.2 s ago, waits for agent-2\n"
        "  agent-2: NOT connected, k = 6, MISSING for 73.2 s"
    )


def test_text_before_the_first_round_and_in_a_pause() -> None:
    agents = (replace(AGENTS[0], k=-1, epsilon=None), replace(AGENTS[1], epsilon=None, missing_s=2.0))
    begins = replace(REPLY, state="waiting", k=-1, rounds_per_second=0.0, accountant=None, agents=agents, reason="why")
    assert _show(begins) == (
        "digits: waiting (why)\n"
        "  agent-1: connected, no round done yet, seen 0.2 s ago\n"
        "  agent-2: NOT connected, MISSING for 2.0 s (not seen since this coordinator started)"
    )
    assert _show(replace(begins, state="running")).startswith("digits: running, in round 0 of 200 (why)\n")
    paused = replace(begins, state="paused", k=6, agents=agents[:0])
    assert _show(paused) == "digits: paused, k = 6 of 200 (why)"


def test_text_says_until_when_the_run_waits_for_whom_and_who_left_a_run_that_stops() -> None:
    late = [replace(AGENTS[1], name=f"agent-{i}", missing_s=2.0) for i in (2, 3)]
    waits = replace(REPLY, accountant=None, gives_up_s=297.2)
    ends = "\n  the run ends in 297 s unless {} before that\n"
    assert ends.format("agent-2 comes") in _show(replace(waits, agents=(AGENTS[0], late[0])))
    assert ends.format("agent-2, agent-3 come") in _show(replace(waits, agents=(AGENTS[0], *late)))
    assert ends.format("this mends") in _show(waits), "an edge is down, everybody is here"
    left = replace(AGENTS[0], connected=False)
    stops = _show(replace(REPLY, state="stopping", accountant=None, agents=(left, AGENTS[1])))
    assert "\n  agent-1: has left, k = 7, seen 0.2 s ago\n  agent-2: NOT connected, not seen" in stops


def ended(folder: Path) -> Path:
    """The output folder of a launch that finished a while ago."""
    run = make_run(3)
    claimed = prepare(folder, run, source="test", keystream="test")
    simulate(run, folder, claimed.run_id, test_keystream=KEY)
    return folder


def call(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str]:
    code = cli.run([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return code, captured.out + captured.err


def test_the_end_of_a_run_has_what_agents_reached_and_spent() -> None:
    agents = (AgentStatus("agent-1", False, 200, None, 0.9, 7.5, strength="weak", state="ended"),)
    over = replace(REPLY, state="finished", k=200, agents=agents)
    assert _show_end(over) == (
        "digits: finished, round 200 of 200 was the last, 81.2 rounds/s on average\n"
        "  adjacent data sets: replace-one\n"
        "  agent-1: test accuracy 0.900, epsilon (gdp, delta 1e-05) 7.5 (weak)"
    )


def test_a_finished_run_says_so_without_its_coordinator(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = ended(tmp_path / "out")
    for address in (None, "127.0.0.1:1"):
        if address is not None:
            write_address(out, address, None)
        code, text = call(capsys, "status", "--run", out)
        assert code == 0 and text.startswith("cluster: finished, round 3 of 3 was the last"), text
        assert "\n  agent-2: no accuracy and no epsilon\n" in text and "so far" not in text and "seen" not in text
        assert text.endswith(f"Results in {out}; `dpgt report {out}` makes the report\n")
        code, text = call(capsys, "status", "--run", out, "--format", "json")
        document = json.loads(text)
        assert (code, document["state"], document["k"], document["K"]) == (0, "finished", 3, 3)
        assert [(a["name"], a["state"], a["connected"]) for a in document["agents"]] == [
            (f"agent-{i}", "ended", False) for i in (1, 2, 3)
        ]
        for verb in ("pause", "resume", "stop"):
            code, text = call(capsys, verb, "--run", out)
            assert (code, text) == (1, f"dpgt {verb}: cannot {verb}: the run is finished\n")


def test_a_coordinator_that_is_gone_leads_to_the_folder_of_its_run(capsys: pytest.CaptureFixture[str]) -> None:
    for more in ((), ("--watch",)):
        code, text = call(capsys, "status", "--coordinator", "127.0.0.1:1", "--insecure", *more)
        told = "no answer from the coordinator at 127.0.0.1:1: Connection refused; if its run is over, "
        assert (code, text) == (3, f"dpgt status: {told}`dpgt status --run DIR` (its --out) says how it ended\n")


def test_nobody_is_sent_to_the_folder_for_a_certificate(monkeypatch: pytest.MonkeyPatch) -> None:
    async def distrusted(*_: object, **__: object) -> None:
        raise Untrusted("127.0.0.1:1 speaks TLS, and this process does not")

    monkeypatch.setattr(services, "status", distrusted)
    with pytest.raises(PeerError) as caught:
        _call_there(Address("127.0.0.1:1", None, 0), None)
    what = "no connection with the coordinator at 127.0.0.1:1: 127.0.0.1:1 speaks TLS, and this process does not"
    assert str(caught.value) == what


def test_a_run_that_is_not_over_and_has_no_coordinator_says_how_to_go_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_address(tmp_path, "127.0.0.1:1", None)
    code, text = call(capsys, "status", "--run", tmp_path)
    assert code == 3 and text.count("\n") == 1
    again = "the run is not over: repeat the command that began it to go on\n"
    assert "no answer" in text and again in text
    document = json.loads((tmp_path / ADDRESS_FILE).read_text())
    gone = subprocess.Popen(["true"])
    gone.wait()
    (tmp_path / ADDRESS_FILE).write_text(json.dumps({**document, "pid": gone.pid}))
    code, text = call(capsys, "status", "--run", tmp_path)
    assert code == 3 and f"the coordinator of the run in {tmp_path} is gone; " in text and again in text
    assert "no answer" not in text


def test_the_end_keeps_its_cause_and_advises_to_go_on_only_where_that_helps(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = ended(tmp_path / "out")
    write_address(out, "127.0.0.1:1", None)
    summary = load_summary(out)
    assert summary is not None
    summary = replace(summary, rounds=3, rounds_timed=2, seconds=4.0, rounds_per_second=0.5)
    events = Events(out)
    again = "start the same command again to go on"
    for status, advice in (("lost", f"; {again}"), ("refused", f"; once that is mended, {again}"), ("budget", "")):
        events.note("error", f"{status}: agent-3 did it: now")
        events.note("warning", "refused agent-2 at 127.0.0.1:9: the run is over")
        write_summary(out, replace(summary, status=status))
        code, text = call(capsys, "status", "--run", out)
        rounds = "3 rounds (the last 2 of them, since it was resumed, in 4 s, 0.5 rounds/s)"
        line = f"cluster: {status}, round 2 of 3 was the last, {rounds} (agent-3 did it: now{advice})\n"
        assert code == 0 and text.startswith(line), text
    write_summary(out, replace(summary, status="stopped", rounds_timed=3))
    text = call(capsys, "status", "--run", out)[1]
    assert f" was the last, 0.5 rounds/s on average ({again})\n" in text, "the cause is of another end"


def test_a_run_that_ended_before_its_first_round_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    prepare(tmp_path / "out", make_run(3), source="test", keystream=None)
    out = tmp_path / "out"
    write_address(out, "127.0.0.1:1", None)
    Events(out).note("error", "refused: never registered: agent-3")
    code, text = call(capsys, "status", "--run", out)
    assert (code, text) == (
        0,
        "cluster: refused before the first of 4 rounds was done (never registered: agent-3; once that is mended, start "
        f"the same command again to go on)\nWhat happened: {out / 'events.jsonl'}\n",
    )
    assert call(capsys, "stop", "--run", out) == (1, "dpgt stop: cannot stop: the run is refused\n")
    keep_samples(out, {"agent-1": 9})
    code, text = call(capsys, "status", "--run", out)
    assert code == 3 and "the run is not over" in text, "a later start began it"


def test_a_coordinator_that_is_there_and_silent_is_not_gone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = ended(tmp_path / "out")
    write_address(out, "127.0.0.1:1", None)
    summary = load_summary(out)
    assert summary is not None
    write_summary(out, replace(summary, status="stopped"))
    with hold(prepare(out, make_run(3), source="test", keystream="test"), source="test"):
        code, text = call(capsys, "status", "--run", out)
    assert (code, text) == (
        3,
        f"dpgt status: the coordinator (pid {os.getpid()}) of the run in {out} is there but does not answer: "
        "Connection refused; it begins, ends or hangs: ask again in a moment\n",
    )
    assert call(capsys, "status", "--run", out)[1].startswith("cluster: stopped, "), "it ended, its process remains"


async def test_the_coordinator_of_another_run_on_the_same_port_is_not_believed(
    tmp_path: Path,
) -> None:
    out = ended(tmp_path / "out")
    async with cluster(tmp_path / "other") as c:
        write_address(out, c.address, None)
        script = "import sys; from dpgt_node import cli; sys.exit(cli.run(sys.argv[1:]))"
        told = []
        for verb in ("status", "stop"):
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-c", script, verb, "--run", str(out), stdout=PIPE, stderr=STDOUT
            )
            told.append(((await process.communicate())[0].decode(), process.returncode))
        assert c.serving is not None and not c.serving.done(), "the other run was not stopped"
    assert told[0][1] == 0 and told[0][0].startswith("cluster: finished")
    assert told[1] == ("dpgt stop: cannot stop: the run is finished\n", 1)


def test_names_are_looked_up_as_the_host_does(tmp_path: Path) -> None:
    """By getaddrinfo, as `dpgt doctor` does, and not by DNS alone: a name may be known to /etc/hosts or LDAP only."""
    done = processes.dpgt("status", "--coordinator", "nowhere.invalid:7700", "--insecure", cwd=tmp_path)
    assert done.returncode == 3 and "getaddrinfo" in done.stderr, done.stderr
