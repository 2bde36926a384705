"""The laboratory itself: hosts that are apart, faults that happen, and nothing left afterwards."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.e2e import processes
from tests.e2e.processes import eventually
from tests.hosts.lab import Lab

pytestmark = pytest.mark.hosts

PORT = 9000
LISTEN = f"""
import socket, sys
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.setsockopt(socket.SOL_SOCKET, 33, 1 << 24)  # SO_RCVBUFFORCE: a slow reader loses nothing
server.bind(("0.0.0.0", {PORT}))
print("ready", flush=True)
while True:
    print(server.recvfrom(100)[0].decode(), flush=True)
"""
SEND = f"""
import socket, sys
client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for i in range(int(sys.argv[3])):
    client.sendto(f"{{sys.argv[2]}} {{i}}".encode(), (sys.argv[1], {PORT}))
"""


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Lab]:
    with Lab(tmp_path / "lab", ["a", "b"], processes.environment()) as lab:
        for host in lab:
            listener = host.start("heard", sys.executable, "-c", LISTEN)
            eventually(f"{host.name} listens", lambda listener=listener: "ready" in listener.said)
        yield lab


def send(lab: Lab, sender: str, receiver: str, word: str, count: int = 1) -> None:
    done = lab[sender].run(sys.executable, "-c", SEND, lab[receiver].fqdn, word, count)
    assert done.returncode == 0, done.stderr


def heard(lab: Lab, receiver: str, word: str) -> int:
    return (lab[receiver].folder / "heard.log").read_text().count(f"{word} ")


def arrives(lab: Lab, sender: str, receiver: str, word: str) -> None:
    """One datagram, sent until it got through: the first after a change may be lost to address resolution."""

    def once() -> bool:
        send(lab, sender, receiver, word)
        return heard(lab, receiver, word) > 0

    eventually(f"{word} arrives", once)


def test_hosts_reach_each_other_by_name_and_share_nothing_else(pair: Lab) -> None:
    arrives(pair, "a", "b", "hello")
    arrives(pair, "b", "a", "hello")
    a, b = pair["a"], pair["b"]
    assert a.run("hostname").stdout == "a\n"
    assert a.address != b.address and a.address in a.run("ip", "-br", "address").stdout
    (b.folder / "secret").write_text("b's")
    assert b.run("cat", "secret").stdout == "b's"
    assert a.run("cat", str(b.folder / "secret")).returncode != 0


@pytest.mark.needs("cut")
def test_a_cut_may_be_one_way_and_heals(pair: Lab) -> None:
    arrives(pair, "a", "b", "before")
    arrives(pair, "b", "a", "before")
    pair.cut("a", "b", one_way=True)
    arrives(pair, "b", "a", "against")
    send(pair, "a", "b", "along", 3)
    eventually("the switch drops them", lambda: pair.dropped() >= 3)
    pair.cut("a", "b")
    send(pair, "b", "a", "both", 3)
    eventually("the switch drops those too", lambda: pair.dropped() >= 3)
    pair.heal()
    arrives(pair, "a", "b", "after")
    assert heard(pair, "b", "along") == 0 and heard(pair, "a", "both") == 0


@pytest.mark.needs("loss")
def test_loss_drops_about_the_share_asked_for(pair: Lab) -> None:
    arrives(pair, "a", "b", "before")
    pair.lose(20)
    for sent in range(200, 2001, 200):  # 400 expected, standard deviation 18: ten of them either way
        send(pair, "a", "b", "lossy", 200)
        eventually("all went through", lambda sent=sent: pair.dropped() + heard(pair, "b", "lossy") >= sent)
    assert 220 < pair.dropped() < 600


def test_a_cable_out_and_in_again(pair: Lab) -> None:
    arrives(pair, "a", "b", "before")
    pair["a"].unplug()
    send(pair, "b", "a", "lost")
    pair["a"].plug()
    arrives(pair, "b", "a", "after")
    assert heard(pair, "a", "lost") == 0


def test_a_host_that_reboots_keeps_its_folder_and_loses_its_processes(pair: Lab) -> None:
    listener = pair["a"].daemons[0]
    (pair["a"].folder / "state").write_text("kept")
    pair["a"].reboot()
    assert not psutil.pid_exists(listener.process.pid)
    assert pair["a"].run("cat", "state").stdout == "kept"
    arrives(pair, "a", "b", "back")


def test_a_host_that_moves_keeps_its_name(pair: Lab) -> None:
    arrives(pair, "b", "a", "before")
    old = pair["a"].address
    pair["a"].move("10.77.0.99")
    arrives(pair, "b", "a", "after")
    assert pair["b"].run("getent", "hosts", "a").stdout.split()[0] == "10.77.0.99"
    assert old not in pair["a"].run("ip", "-br", "address").stdout


@pytest.mark.needs("rate")
def test_a_limited_link_is_slower_than_a_free_one(pair: Lab) -> None:
    count = "import socket; s = socket.create_server(('', 9001)); c = s.accept()[0]\nwhile c.recv(1 << 16): pass"
    blast = (
        "import socket, sys, time\n"
        "while True:\n"
        "    try: c = socket.create_connection((sys.argv[1], 9001)); break\n"
        "    except OSError: time.sleep(0.01)\n"
        "t = time.monotonic(); c.sendall(bytes(8_000_000)); c.shutdown(1); c.recv(1)\n"
        "print(time.monotonic() - t)"
    )

    def seconds() -> float:
        counter = pair["b"].start("count", sys.executable, "-c", count)
        done = pair["a"].run(sys.executable, "-c", blast, pair["b"].name)
        assert done.returncode == 0, done.stderr
        assert counter.wait(processes.LIMIT_S) == 0
        return float(done.stdout)

    pair["a"].limit_rate(20)  # 3.2 s at least: a lower bound, which load cannot break
    assert seconds() > 3.0
    assert pair["a"].bytes_out() > 8_000_000
    pair["a"].lift_limit()
    assert seconds() > 0


def test_two_labs_of_the_same_names_do_not_know_each_other(pair: Lab, tmp_path: Path) -> None:
    with Lab(tmp_path / "other", ["a", "b"], processes.environment()) as other:
        assert other["a"].address == pair["a"].address
        listener = other["b"].start("heard", sys.executable, "-c", LISTEN)
        eventually("it listens", lambda: "ready" in listener.said)
        arrives(other, "a", "b", "second")
        arrives(pair, "a", "b", "first")
        assert heard(pair, "b", "second") == 0 and heard(other, "b", "first") == 0


def test_a_killed_lab_leaves_no_process_and_no_interface(tmp_path: Path) -> None:
    code = """
import sys
from pathlib import Path
from tests.hosts.lab import Lab
lab = Lab(Path(sys.argv[1]), ["a", "b"]).__enter__()
daemon = lab["a"].start("sleeper", "sleep", "infinity")
print(lab.switch, lab["a"].pid, lab["b"].pid, daemon.process.pid, flush=True)
sys.stdin.read()
"""
    command = [sys.executable, "-c", code, str(tmp_path / "lab")]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env=processes.environment(), stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdout is not None
        made = [int(pid) for pid in process.stdout.readline().split()]
        assert len(made) == 4 and all(map(psutil.pid_exists, made))
        os.kill(process.pid, signal.SIGKILL)
    eventually("everything is gone", lambda: not any(map(alive, made)))


def alive(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
