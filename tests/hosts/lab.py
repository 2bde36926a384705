"""Hosts that share nothing but a network: namespaces of this machine, joined by a switch that can be told to misbehave.

A host has its own network (one interface, one address), host name, and folder, which it sees as ``/mnt``; the folders
of the others are hidden from it.  The switch is one more network namespace with a bridge.  Nothing has a name outside:
a namespace lives as long as the processes in it, and every process dies with the one that made the lab (PDEATHSIG).
So two labs never collide, and a killed lab leaves nothing behind.

    with Lab(folder, ["a", "b"]) as lab:
        lab["a"].start("listener", "dpgt", "node", ...)
        lab.cut("a", "b")

    python -m tests.hosts.lab      what this machine can do: one line an ability; exit 1 when it can make no hosts

Needs Linux, root, util-linux and iproute2; cuts and loss need nftables.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from dpgt_node.adversary.taps.lab import Network
from dpgt_node.errors import ConfigError
from dpgt_node.runtime.process import die_with_parent

DOMAIN = "lab.example"
HOME = "/mnt"
LIMIT_S = 60.0
_SETUP = """
mount --bind "$1" /etc/hosts
mount --bind "$2" /mnt
mount -t tmpfs -o size=64k,mode=0700 none "$3"
hostname "$4"
ip link set lo up
echo ready
exec sleep infinity
"""


class LabError(Exception):
    """This machine cannot do what the lab was asked for."""


def _do(*command: object, stdin: str | None = None) -> str:
    done = subprocess.run(
        [str(c) for c in command], input=stdin, capture_output=True, text=True, check=False, timeout=LIMIT_S
    )
    if done.returncode != 0:
        raise LabError(f"{' '.join(map(str, command))}: {(done.stderr or done.stdout).strip()}")
    return done.stdout


def _tied() -> Callable[[], None]:
    """For ``preexec_fn``: die with this process.  Before exec, so that it holds as soon as Popen has returned."""
    return functools.partial(die_with_parent, os.getpid())


def _holder(*command: str) -> subprocess.Popen[str]:
    """A process in new namespaces, which are there when this returns."""
    process = subprocess.Popen(
        ["unshare", *command],
        preexec_fn=_tied(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None and process.stderr is not None
    if process.stdout.readline() != "ready\n":
        process.kill()
        process.wait(LIMIT_S)
        raise LabError(f"this machine does not let root make namespaces: {process.stderr.read().strip()}")
    return process


def _end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait(LIMIT_S)
    for pipe in (process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()


class Daemon:
    """One process on a host; what it says goes to ``log``."""

    def __init__(self, command: Sequence[str], log: Path, environment: dict[str, str]) -> None:
        self.log = log
        with log.open("ab") as said:
            self.process = subprocess.Popen(
                command,
                env=environment,
                preexec_fn=_tied(),
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=subprocess.STDOUT,
            )

    @property
    def said(self) -> str:
        return self.log.read_text(encoding="utf-8")

    @property
    def running(self) -> bool:
        return self.process.poll() is None

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def kill(self) -> None:
        """SIGKILL, and gone."""
        self.process.kill()
        self.process.wait(LIMIT_S)

    def wait(self, limit_s: float) -> int:
        """The exit code."""
        return self.process.wait(limit_s)


class Host:
    """One machine of the lab.  Made by Lab."""

    def __init__(self, lab: Lab, index: int, name: str) -> None:
        self._lab = lab
        self.name = name
        self.fqdn = f"{name}.{DOMAIN}"
        self.port = f"port{index}"  # of the switch
        self._mac = f"02:00:00:00:00:{index:02x}"
        self.address = f"10.77.0.{index}"
        self.folder = lab.folder / name
        self.folder.mkdir(parents=True)
        self.daemons: list[Daemon] = []
        self._holder: subprocess.Popen[str] | None = None

    @property
    def pid(self) -> int:
        """Whose namespaces are this host's."""
        assert self._holder is not None, f"{self.name} is switched off"
        return self._holder.pid

    def power_on(self) -> None:
        """Boot: an empty machine but for its folder, plugged in."""
        lab = self._lab
        flags = ("--net", "--mount", "--uts")
        arguments = (str(lab.names), str(self.folder), str(lab.folder), self.name)
        self._holder = _holder(*flags, "sh", "-ec", _SETUP, "host", *arguments)
        link = ("ip", "link", "add", "eth0", "address", self._mac, "netns", self.pid, "type", "veth")
        _do(*link, "peer", "name", self.port, "netns", lab.switch)
        self._network("ip", "address", "add", f"{self.address}/24", "dev", "eth0")
        self._network("ip", "link", "set", "eth0", "up")
        lab.on_switch("ip", "link", "set", self.port, "master", "bridge", "up")

    def power_off(self) -> None:
        """Every process is killed at once and the interface is gone; the folder stays."""
        for daemon in self.daemons:
            if daemon.running:
                daemon.process.kill()
        for daemon in self.daemons:
            daemon.wait(LIMIT_S)
        self.daemons.clear()
        if self._holder is not None:
            # The namespace goes some time after its last process; the interface must not outlive this call.
            with contextlib.suppress(LabError):
                self._lab.on_switch("ip", "link", "delete", self.port)
            _end(self._holder)
            self._holder = None

    def reboot(self) -> None:
        """Off and on: nothing runs then."""
        self.power_off()
        self.power_on()

    def _network(self, *command: object) -> str:
        return _do("nsenter", f"--target={self.pid}", "--net", "--", *command)

    def _inside(self, command: Sequence[object]) -> list[str]:
        enter = ["nsenter", f"--target={self.pid}", "--net", "--mount", "--uts", "--"]
        return [*enter, "sh", "-c", f'cd {HOME} && exec "$0" "$@"', *map(str, command)]

    def start(self, name: str, *command: object) -> Daemon:
        """A process in this host's folder; its output is ``NAME.log`` there."""
        daemon = Daemon(self._inside(command), self.folder / f"{name}.log", self._lab.environment)
        self.daemons.append(daemon)
        return daemon

    def run(self, *command: object, limit_s: float = LIMIT_S) -> subprocess.CompletedProcess[str]:
        """One command to its end, in this host's folder."""
        return subprocess.run(
            self._inside(command),
            env=self._lab.environment,
            preexec_fn=_tied(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=limit_s,
            check=False,
        )

    def unplug(self) -> None:
        """The cable is out: no carrier."""
        self._lab.on_switch("ip", "link", "set", self.port, "down")

    def plug(self) -> None:
        """The cable is back in."""
        self._lab.on_switch("ip", "link", "set", self.port, "up")

    def move(self, address: str) -> None:
        """Another address, as after a DHCP lease ran out: the old one is gone, the name means the new one."""
        self._network("ip", "address", "flush", "dev", "eth0")
        self._network("ip", "address", "add", f"{address}/24", "dev", "eth0")
        self.address = address
        self._lab.write_names()

    def limit_rate(self, mbit: float) -> None:
        """At most this much goes out of this host, in 10^6 bits a second."""
        tbf = ("tbf", "rate", f"{mbit}mbit", "burst", "256kb", "latency", "50ms")
        self._network("tc", "qdisc", "replace", "dev", "eth0", "root", *tbf)

    def lift_limit(self) -> None:
        """As fast as it goes."""
        self._network("tc", "qdisc", "delete", "dev", "eth0", "root")

    def bytes_out(self) -> int:
        """What left the interface since the host was switched on."""
        return int(json.loads(self._network("ip", "-json", "-s", "link", "show", "eth0"))[0]["stats64"]["tx"]["bytes"])


class Lab:
    """Context manager: hosts by name, and the switch between them.  ``folder`` must not exist yet.

    The n-th host has the address 10.77.0.n; all hosts know each other as NAME and NAME.lab.example.
    """

    def __init__(self, folder: Path, names: Sequence[str], environment: dict[str, str] | None = None) -> None:
        self.folder = folder
        self.environment = dict(os.environ) if environment is None else environment
        folder.mkdir(parents=True)
        self.names = folder / "names"
        self._hosts = {name: Host(self, i, name) for i, name in enumerate(names, start=1)}
        self._switch: subprocess.Popen[str] | None = None
        self._rules: dict[str, str] = {}

    def __enter__(self) -> Lab:
        try:
            self.write_names()
            self._switch = _holder("--net", "sh", "-c", "echo ready; exec sleep infinity")
            self.on_switch("ip", "link", "add", "bridge", "up", "type", "bridge", "forward_delay", 0)
            for host in self:
                host.power_on()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for host in self:
            host.power_off()
        if self._switch is not None:
            _end(self._switch)
            self._switch = None

    def __getitem__(self, name: str) -> Host:
        return self._hosts[name]

    def __iter__(self) -> Iterator[Host]:
        return iter(self._hosts.values())

    @property
    def switch(self) -> int:
        """Whose network namespace is the switch."""
        assert self._switch is not None
        return self._switch.pid

    def on_switch(self, *command: object, stdin: str | None = None) -> str:
        """A command of the network's administrator."""
        return _do("nsenter", f"--target={self.switch}", "--net", "--", *command, stdin=stdin)

    def write_names(self) -> None:
        """Name resolution of all hosts, at once (in place: each has the file mounted)."""
        lines = ["127.0.0.1 localhost", *(f"{host.address} {host.fqdn} {host.name}" for host in self)]
        self.names.write_text("\n".join(lines) + "\n", encoding="utf-8")

    # --- misbehaviour -----------------------------------------------------------------------------------------------

    def cut(self, sender: str, receiver: str, *, one_way: bool = False) -> None:
        """Drop every frame from ``sender`` to ``receiver``, and back unless ``one_way``.  Nobody is told."""
        for a, b in [(sender, receiver)] if one_way else [(sender, receiver), (receiver, sender)]:
            self._rules[f"{a} {b}"] = f'iifname "{self[a].port}" oifname "{self[b].port}"'
        self._filter()

    def lose(self, percent: float) -> None:
        """Drop each frame between any two hosts with this probability."""
        self._rules["loss"] = f"numgen random mod 1000 < {round(10 * percent)}"
        self._filter()

    def heal(self) -> None:
        """Forget all cuts and losses."""
        self._rules.clear()
        self._filter()

    def dropped(self) -> int:
        """Frames dropped since the last cut, loss or healing."""
        listing = json.loads(self.on_switch("nft", "-j", "list", "chain", "bridge", "lab", "forward"))
        expressions = [e for item in listing["nftables"] if "rule" in item for e in item["rule"]["expr"]]
        return sum(int(e["counter"]["packets"]) for e in expressions if "counter" in e)

    def _filter(self) -> None:
        rules = "".join(f"{rule} counter drop\n" for rule in self._rules.values())
        chain = f"chain forward {{\ntype filter hook forward priority 0\n{rules}}}\n"
        self.on_switch(
            "nft",
            "-f",
            "-",
            stdin=f"add table bridge lab\ndelete table bridge lab\ntable bridge lab {{\n{chain}}}\n",
        )


# ---------------------------------------------------------------- what this machine can do


def _eavesdrop(_: Lab) -> None:
    try:
        with Network(["a"]):
            pass
    except ConfigError as error:
        raise LabError(str(error)) from error


ABILITIES: dict[str, Callable[[Lab], None]] = {
    "eavesdrop": _eavesdrop,
    "cut": lambda lab: lab.cut("a", "b"),
    "loss": lambda lab: lab.lose(1),
    "rate": lambda lab: lab["a"].limit_rate(160),
}


def missing() -> dict[str, str]:
    """For each ability that this machine lacks ("hosts", or a key of ABILITIES): why.  Tried, not guessed."""
    reason = None
    if sys.platform != "linux":
        reason = "network namespaces need Linux"
    elif os.geteuid() != 0:
        reason = "network namespaces need root"
    else:
        wanted = ("ip", "unshare", "nsenter", "mount", "hostname")
        absent = [tool for tool in wanted if shutil.which(tool) is None]
        if absent:
            reason = f"no {' '.join(absent)} on this machine (iproute2, util-linux)"
    found: dict[str, str] = {}
    if reason is None:
        with tempfile.TemporaryDirectory() as folder:
            try:
                with Lab(Path(folder) / "lab", ["a", "b"]) as lab:
                    for ability, attempt in ABILITIES.items():
                        try:
                            attempt(lab)
                        except (LabError, FileNotFoundError) as error:
                            found[ability] = str(error).splitlines()[0]
            except LabError as error:
                reason = str(error)
    return found if reason is None else dict.fromkeys(["hosts", *ABILITIES], reason)


def main() -> int:
    absent = missing()
    for ability in ("hosts", *ABILITIES):
        print(f"{ability}: {absent.get(ability, 'yes')}")
    return "hosts" in absent


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    sys.exit(main())
