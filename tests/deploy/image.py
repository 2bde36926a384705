"""The image of deploy/Dockerfile, made of its own steps in a bare Debian, and containers of it as compose.yaml says.

Every instruction is read from the file and carried out; one that is not known here ends the build.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.deploy.debian import PATH, copy, inside

DEVICES = ("null", "zero", "full", "random", "urandom")


@dataclass
class Image:
    """What a build leaves: a root, and how a process in it starts."""

    root: Path
    environment: dict[str, str] = field(default_factory=lambda: {"PATH": PATH})
    folder: str = "/"
    user: str = "root"
    entry: list[str] = field(default_factory=list)

    def ids(self) -> tuple[int, int]:
        """User and group of its processes."""
        lines = [line.split(":") for line in (self.root / "etc/passwd").read_text().splitlines()]
        return next((int(one[2]), int(one[3])) for one in lines if one[0] == self.user)


def instructions(text: str) -> Iterator[tuple[str, str]]:
    """(instruction, arguments) of a Dockerfile, lines joined, comments left out."""
    kept = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))
    for line in re.sub(r"\\\n", " ", kept).splitlines():
        if line.strip():
            name, _, rest = line.strip().partition(" ")
            yield name, rest.strip()


def context(root: Path, target: Path) -> Path:
    """The folder that a build sees: what .dockerignore lets through, and it lets nothing through but what it names."""
    first, *lines = (root / ".dockerignore").read_text().split()
    assert first == "*"
    for name in (line.removeprefix("!") for line in lines if line.startswith("!")):
        source, there = root / name, target / name
        there.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, there, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, there)
    return target


def build(dockerfile: str, seen: Path, base: Path, scratch: Path) -> Image:
    """Carry out ``dockerfile``.  ``seen``: its context.  ``base`` stands for every image that it is made FROM."""
    stages: dict[str, Image] = {}
    image: Image | None = None
    for name, rest in instructions(dockerfile):
        if name == "FROM":
            words = rest.split()
            image = Image(copy(base, scratch / f"stage-{len(stages)}"))
            (image.root / "usr/local/bin/python").symlink_to("/usr/bin/python3")  # as in the image of Python
            stages[words[2] if len(words) == 3 else str(len(stages))] = image
            continue
        assert image is not None
        match name:
            case "WORKDIR":
                image.folder = rest
                _under(image.root, rest).mkdir(parents=True, exist_ok=True)
            case "COPY":
                _copy(rest.split(), image, stages, seen)
            case "RUN":
                print(f"RUN {rest}", flush=True)
                inside(image.root, f"cd {shlex.quote(image.folder)}; {rest}", image.environment)
            case "ENV":
                for word in shlex.split(rest):
                    key, _, value = word.partition("=")
                    image.environment[key] = value.replace("$PATH", image.environment["PATH"])
            case "USER":
                image.user = rest
            case "ENTRYPOINT":
                image.entry = json.loads(rest)
            case _:
                raise AssertionError(f"{name}: not an instruction that this build knows")
    assert image is not None
    (image.root / "etc/hosts").touch()  # where containers get theirs
    return image


def _under(root: Path, path: str) -> Path:
    return root / path.lstrip("/")


def _copy(words: Sequence[str], image: Image, stages: Mapping[str, Image], seen: Path) -> None:
    options = dict(word.removeprefix("--").split("=") for word in words if word.startswith("--"))
    *sources, target = (word for word in words if not word.startswith("--"))
    assert options.keys() <= {"from", "chmod"}, options
    origin = stages[options["from"]].root if "from" in options else seen
    where = _under(image.root, f"{image.folder}/{target}" if not target.startswith("/") else target)
    for source in sources:
        found = _under(origin, source)
        there = where / found.name if target.endswith("/") else where
        there.parent.mkdir(parents=True, exist_ok=True)
        if found.is_dir():
            shutil.copytree(found, there, symlinks=True, dirs_exist_ok=True)
        else:
            shutil.copy(found, there)
            there.chmod(int(options.get("chmod", "0644"), 8))


def container(image: Image, arguments: Sequence[str], mounts: Mapping[str, Path], names: Path) -> list[str]:
    """A command that is one container: root read-only, /tmp empty, no capability, no way to gain one.

    ``mounts``: folders of this machine by where the container sees them.  ``names``: its /etc/hosts.
    """
    root, (uid, gid) = shlex.quote(str(image.root)), image.ids()
    lines = [
        "mount --make-rprivate /",
        f"mount --bind {root} {root}",
        f"mount -t proc proc {root}/proc",
        f"mount -t tmpfs -o mode=755 dev {root}/dev",
        *(f"touch {root}/dev/{name}; mount --bind /dev/{name} {root}/dev/{name}" for name in DEVICES),
        f"mkdir -m 1777 {root}/dev/shm",
        f"mount -t tmpfs -o mode=1777 tmp {root}/tmp",
        f"mount --bind {shlex.quote(str(names))} {root}/etc/hosts",
        *(f"mount --bind {shlex.quote(str(source))} {root}{target}" for target, source in mounts.items()),
        f"mount -o remount,bind,ro {root}",
        f"cd {root}",
        "pivot_root . mnt",
        "umount -l /mnt",
        f"cd {shlex.quote(image.folder)} 2>/dev/null || cd /",
        shlex.join(
            [
                *("setpriv", f"--reuid={uid}", f"--regid={gid}", "--clear-groups", "--no-new-privs"),
                *("--bounding-set=-all", "--inh-caps=-all", "env", "-i"),
                *(f"{key}={value}" for key, value in image.environment.items()),
                *(*image.entry, *arguments),
            ]
        )
        + " || exit $?",  # the first process stays root's, so that it dies with its maker: init of compose.yaml
    ]
    return ["unshare", "--mount", "--pid", "--ipc", "--fork", "--kill-child", "sh", "-ec", "\n".join(lines)]
