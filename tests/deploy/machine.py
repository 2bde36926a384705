"""A Debian of its own with systemd as its first process, in namespaces and a cgroup of its own."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil

from tests.deploy.debian import PATH, tied

BOOT = """
echo 0 >"$2/cgroup.procs"
exec unshare --cgroup sh -ec '
mount --make-rprivate /
ip link set lo up
mount --bind "$1" "$1"
mount -t proc proc "$1/proc"
mount -t sysfs -o ro sysfs "$1/sys"
mount -t cgroup2 cgroup2 "$1/sys/fs/cgroup"
mount -t tmpfs -o mode=755 run "$1/run"
mount -t tmpfs -o mode=755 dev "$1/dev"
for name in null zero full random urandom tty; do
  touch "$1/dev/$name"; mount --bind "/dev/$name" "$1/dev/$name"
done
mkdir "$1/dev/pts" "$1/dev/shm"
mount -t devpts -o newinstance,ptmxmode=0666,mode=620 devpts "$1/dev/pts"
ln -s pts/ptmx "$1/dev/ptmx"
ln -s /proc/self/fd "$1/dev/fd"
mount -t tmpfs -o mode=1777 shm "$1/dev/shm"
cd "$1"
pivot_root . mnt
umount -l /mnt
mount --make-rshared /
exec env -i container=lxc PATH="$3" /lib/systemd/systemd --log-target=console
' boot "$1" "$2" "$3"
"""
LIMIT_S = 600.0


def hierarchy() -> Path:
    """Where this machine has its cgroups of version 2."""
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, place, kind, *_ = line.split()
        if kind == "cgroup2":
            return Path(place)
    raise AssertionError("wants cgroups of version 2")


class Machine:
    """Boots ``root`` when it is entered, and is gone, cgroup included, when it is left.  ``log``: of its console."""

    def __init__(self, root: Path, log: Path) -> None:
        self.root, self._log = root, log

    def __enter__(self) -> Self:
        self._cgroup = Path(tempfile.mkdtemp(prefix="dpgt-", dir=hierarchy()))
        flags = ("--pid", "--mount", "--uts", "--ipc", "--net", "--fork", "--kill-child")
        with self._log.open("ab") as said:
            self._outer = subprocess.Popen(
                ["unshare", *flags, "sh", "-ec", BOOT, "boot", str(self.root), str(self._cgroup), PATH],
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=subprocess.STDOUT,
                preexec_fn=tied,
            )
        try:
            self._await_boot()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for child in psutil.Process(self._outer.pid).children() if self._outer.poll() is None else []:
            child.kill()  # the first process of its namespace: all the others go with it
        self._outer.kill()
        self._outer.wait(LIMIT_S)
        end = time.monotonic() + LIMIT_S
        while self._cgroup.exists() and time.monotonic() < end:
            for folder in sorted((p for p in self._cgroup.rglob("*") if p.is_dir()), key=lambda p: -len(p.parts)):
                _removed(folder)
            _removed(self._cgroup)
            time.sleep(0.02)
        assert not self._cgroup.exists(), f"{self._cgroup} is left"

    @property
    def pid(self) -> int:
        """Of its first process, as this machine counts."""
        (first,) = psutil.Process(self._outer.pid).children()
        return first.pid

    def _await_boot(self) -> None:
        end = time.monotonic() + LIMIT_S
        while time.monotonic() < end:
            assert self._outer.poll() is None, self._log.read_text(errors="replace")[-4000:]
            if psutil.Process(self._outer.pid).children() and Path(f"/proc/{self.pid}/comm").read_text() == "systemd\n":
                found = self.run("systemctl", "is-system-running", "--wait", ok=False)
                if found.stdout.strip() in ("running", "degraded"):
                    return
            time.sleep(0.2)
        raise AssertionError(f"it did not boot: {self._log.read_text(errors='replace')[-4000:]}")

    def run(self, *command: object, ok: bool = True) -> subprocess.CompletedProcess[str]:
        """A command of this machine's administrator."""
        found = subprocess.run(
            ["nsenter", f"--target={self.pid}", "--all", "env", "-i", f"PATH={PATH}", *map(str, command)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
            preexec_fn=tied,
        )
        assert found.returncode == 0 or not ok, (
            f"{command}: {found.returncode}\n{found.stdout}{found.stderr}{self.journal()}"
        )
        return found

    def shell(self, line: str) -> str:
        """Standard output of a line of shell that must succeed."""
        return self.run("sh", "-ec", line).stdout

    def show(self, unit: str, key: str) -> str:
        """A property of a unit."""
        return self.run("systemctl", "show", "--value", f"--property={key}", unit).stdout.strip()

    def journal(self, unit: str | None = None) -> str:
        """What was logged, by one unit or by all."""
        chosen = ["--unit", unit] if unit else []
        command = [
            "nsenter",
            f"--target={self.pid}",
            "--all",
            "journalctl",
            "--no-pager",
            "--output=cat",
            "--lines=400",
        ]
        return subprocess.run([*command, *chosen], capture_output=True, text=True, check=False, timeout=LIMIT_S).stdout

    def process(self, unit: str) -> psutil.Process:
        """The main process of a unit, as seen from outside: whose cgroup is the unit's."""
        inner = int(self.show(unit, "MainPID"))
        assert inner > 0, self.journal(unit)
        for one in psutil.Process(self.pid).children(recursive=True):
            lines = Path(f"/proc/{one.pid}/status").read_text().splitlines()
            ids = next(line.split()[1:] for line in lines if line.startswith("NSpid:"))
            if int(ids[-1]) == inner and len(ids) == 2:
                return one
        raise AssertionError(f"{unit}: process {inner} is not among the machine's")


def _removed(folder: Path) -> None:
    try:
        os.rmdir(folder)
    except OSError:  # not empty yet
        return
