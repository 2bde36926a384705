"""A bare Debian to deploy into: debootstrap's minimal root with Python, and commands inside it.

Mounts are made in namespaces that end with the command, so nothing stays mounted however a test ends.
"""

from __future__ import annotations

import functools
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from dpgt_node.runtime.process import die_with_parent

ROOT = Path(__file__).resolve().parents[2]
SUITE = "bookworm"  # its Python is 3.11
PACKAGES = ("python3", "python3-venv", "systemd", "systemd-sysv", "dbus", "libnss-systemd")
TOOLS = ("debootstrap", "unshare", "nsenter", "mount", "pivot_root", "setpriv", "ip")
SETTINGS = ("index-url", "proxy", "trusted-host", "default-timeout", "timeout")
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
LIMIT_S = 1800.0
INSIDE = """
mount --make-rprivate /
mount -t proc proc "$0/proc"
mount -t tmpfs -o mode=1777 tmp "$0/tmp"
if test -n "$1"; then mkdir "$0/tmp/registry"; cp "$1" "$0/tmp/registry/ca.pem"; fi
shift
exec chroot "$0" /bin/sh -ec "$@"
"""


def lacking() -> str | None:
    """Why this machine cannot make one; None where it can."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return "wants Linux and root"
    absent = [tool for tool in TOOLS if shutil.which(tool) is None]
    return f"wants {' '.join(absent)} (Debian: debootstrap, util-linux, iproute2)" if absent else None


def tied() -> None:
    """For ``preexec_fn``: the process dies with this one."""
    die_with_parent(PARENT)


PARENT = os.getpid()


def done(command: Sequence[object], **options: object) -> str:
    """Standard output of a command that must succeed."""
    found = subprocess.run(
        [str(word) for word in command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=LIMIT_S,
        check=False,
        preexec_fn=tied,
        **options,  # type: ignore[call-overload]
    )
    assert found.returncode == 0, (
        f"{shlex.join(map(str, command))[:400]}: exit {found.returncode}\n{found.stdout[-4000:]}"
    )
    return str(found.stdout)


def bare(folder: Path) -> Path:
    """A fresh root in ``folder``, which must not be there.  Minutes."""
    done(["debootstrap", "--variant=minbase", f"--include={','.join(PACKAGES)}", SUITE, folder])
    return folder


def copy(source: Path, target: Path) -> Path:
    """``source`` once more: as it is, owners and devices included."""
    done(["cp", "-a", "--reflink=auto", source, target])
    return target


@functools.cache
def registry() -> dict[str, str]:
    """This machine's way to the package registry as pip's environment: address, proxy, and its own authority."""
    found = {}
    for line in done([sys.executable, "-m", "pip", "config", "list"]).splitlines():
        key, _, value = line.partition("=")
        if (name := key.rpartition(".")[2]) in SETTINGS:
            found[f"PIP_{name.upper().replace('-', '_')}"] = value.strip("'\"")
    found.update({name: value for name, value in os.environ.items() if name.lower() in ("http_proxy", "https_proxy")})
    if authority():
        found["PIP_CERT"] = "/tmp/registry/ca.pem"
    return found


def authority() -> str:
    """The file of certificates that pip trusts here; "" where it brings its own."""
    named = (os.environ.get(name) for name in ("PIP_CERT", "REQUESTS_CA_BUNDLE", "SSL_CERT_FILE"))
    return next((name for name in named if name and Path(name).is_file()), "")


def inside(root: Path, command: str, environment: Mapping[str, str]) -> str:
    """``/bin/sh -c COMMAND`` with ``root`` as its root; it reaches the package registry as this machine does."""
    given = {"PATH": PATH, "HOME": "/root", "LANG": "C.UTF-8", **registry(), **environment}
    unshare = ["unshare", "--mount", "--pid", "--fork", "--kill-child"]
    return done(
        [*unshare, "sh", "-ec", INSIDE, root, authority(), command], env={**given, "PATH": os.environ["PATH"]} | given
    )
