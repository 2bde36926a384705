"""``dpgt eavesdrop decode``: captures to a transcript."""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import signal
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from dpgt_node.cli import common
from dpgt_node.cli.wrapping import say
from dpgt_node.documents import read_json
from dpgt_node.errors import ConfigError, ExitCode

if TYPE_CHECKING:
    from dpgt_node.adversary.decode.decoder import Decoded, Keep
    from dpgt_node.config import RunConfig
    from dpgt_node.wire.transcript import Link

_SHOWN_REASONS = 8


@click.command()
@click.argument("pcap", metavar="PCAP...", nargs=-1, required=True)
@click.option("--out", required=True, type=click.Path(path_type=Path, dir_okay=False), help="The transcript to write.")
@click.option(
    "--run", type=click.Path(path_type=Path), help="The run's file, or its folder: agents that are not in it are named."
)
@click.option("--run-id", metavar="HEX", help="The run that is meant.  [default: --run's, else the first one seen]")
@click.option("--keys", type=click.Path(path_type=Path, dir_okay=False), help="TLS secrets (NSS key log format).")
@click.option(
    "--keep", default="all", show_default=True, metavar="all|digests|coordinates=0,7,20-29", help="Values to keep."
)
@click.option(
    "--link", "links", metavar="SENDER>RECEIVER", multiple=True, help="Only this link; repeatable.  [default: all]"
)
@click.option("--port", "ports", type=click.IntRange(1, 65535), multiple=True, help="Only this port; repeatable.")
@common.format_option
def decode(
    pcap: tuple[str, ...],
    out: Path,
    run: Path | None,
    run_id: str | None,
    keys: Path | None,
    keep: str,
    links: tuple[str, ...],
    ports: tuple[int, ...],
    format_: str,
) -> ExitCode:
    """Decode captures (pcap, pcapng, also packed by gzip, bzip2 or xz; - is standard input) to a transcript: which
    vectors crossed the links, what of them was not seen.  TLS keys that a pcapng file holds are used.

    Several captures (parts of one, several taps) are merged by time.  Live: tcpdump -i lo -s 0 -B 262144 -U -w - tcp |
    dpgt eavesdrop decode - --out FILE.  FILE is written as FILE.part, and replaced, if it is a transcript, when that is
    whole.  Where no vector is found, the exit code is 1 and FILE stays as it was.  A capture that was cut short is an
    error (exit 2): FILE stays as it was, FILE.part has no end.
    """
    from dpgt_node.adversary.decode.decoder import Decoder
    from dpgt_node.adversary.decode.decoder import decode as run_decoder
    from dpgt_node.adversary.decode.packets import Capture, open_capture
    from dpgt_node.adversary.decode.tls.secrets import KeyLog
    from dpgt_node.runtime.process import tune_malloc

    tune_malloc()  # vectors come and go; without it their pages do too
    config, known_id = _run(run)
    wanted = _links(links, config)
    target, part = _places(out, pcap)
    with contextlib.ExitStack() as stack:
        captures = []
        for name in pcap:
            stream = stack.enter_context(_standard_input() if name == "-" else open_capture(Path(name)))
            captures.append(Capture(stream, "standard input" if name == "-" else name))
        decoder = Decoder(
            part,
            keep=_keep(keep),
            run_id=_run_id(run_id) or known_id,
            senders=frozenset(config.graph.agents) if config else frozenset(),
            links=wanted,
            keys=None if keys is None else KeyLog.read(keys),
            ports=frozenset(ports),
            source=", ".join(pcap),
        )
        common.check_file(part, "--out")
        found = run_decoder(captures, decoder)
    try:
        _require_of_run(found, run, run_id)
        if config is None:
            _require_on_links(found, links)
    except ConfigError:
        part.unlink()  # nothing is in it
        raise
    if found.messages:
        part.replace(target)
    else:  # a transcript of nothing helps nobody, and an earlier one may lie there
        part.unlink()
    if format_ == "json":
        click.echo(json.dumps(_json(found), indent=2, allow_nan=False))
    else:
        say(_text(found, out))
    for line in _warnings(found, keys):
        say(f"dpgt eavesdrop: {line}", err=True)
    return ExitCode.CHECK_FAILED if found.capture_dropped or not found.messages else ExitCode.DONE


# --- where it goes


def _places(out: Path, inputs: tuple[str, ...]) -> tuple[Path, Path]:
    """The file that ``out`` is (through links) and the one beside it that is written first.

    ConfigError where either would cost anybody a file that is not an earlier transcript.
    """
    target = Path(os.path.realpath(out))
    if not target.parent.is_dir():
        raise ConfigError.one("command line", "--out", f"there is no folder {target.parent}")
    part = target.with_name(f"{target.name}.part")
    for path in (target, part):
        if not path.exists():
            continue
        shown = out if path == target else path
        if any(name != "-" and Path(name).exists() and path.samefile(name) for name in inputs):
            raise ConfigError.one("command line", "--out", f"{shown} is a capture to read: give another file name")
        if not _is_transcript(path):
            what = f"{shown} is there and is not a transcript: give another file name, or remove it"
            raise ConfigError.one("command line", "--out", what)
    return target, part


def _is_transcript(path: Path) -> bool:
    """Whether ``path`` begins like one of this version, or is an empty file: nothing else may be replaced."""
    from dpgt_node.wire.transcript import MAGIC

    try:
        if not path.is_file():
            return False
        with path.open("rb") as file:
            return file.read(len(MAGIC)) in (MAGIC, b"")
    except OSError as error:
        raise ConfigError.one("command line", "--out", f"{path} cannot be read: {error.strerror}") from error


# --- what was asked for


def _run(path: Path | None) -> tuple[RunConfig | None, bytes | None]:
    """The run file at ``path`` or in that folder, and the run's id where the folder tells."""
    from dpgt_node.config import load_run

    if path is None:
        return None, None
    if not path.is_dir():
        return load_run(path), None
    if not (path / "run.toml").exists() and (path / "run" / "run.toml").exists():
        path = path / "run"  # the output folder of a lab
    try:
        summary = read_json(path / "summary.json")
        found: bytes | None = bytes.fromhex(summary["run_id"])
    except (OSError, ValueError, KeyError, TypeError):
        found = None  # the run goes on, or it was simulated
    return load_run(path / "run.toml"), found


def _run_id(text: str | None) -> bytes | None:
    if text is None:
        return None
    if not re.fullmatch(r"[0-9a-fA-F]{32}", text):
        raise ConfigError.one("command line", "--run-id", f"{text!r} is not 32 hex digits")
    return bytes.fromhex(text)


def _keep(text: str) -> Keep:
    from dpgt_node.adversary.decode.decoder import Keep

    if text == "all":
        return Keep("all")
    if text == "digests":
        return Keep("digests")
    wanted: set[int] = set()
    kind, _, ranges = text.partition("=")
    for part in ranges.split(",") if kind == "coordinates" else ("",):
        matched = re.fullmatch(r"(\d{1,10})(?:-(\d{1,10}))?", part)
        first, last = (int(matched[1]), int(matched[2] or matched[1])) if matched else (1, 0)
        if not first <= last < first + (1 << 20):
            raise ConfigError.one("command line", "--keep", f"{text!r} is not all, digests or coordinates=0,7,20-29")
        wanted.update(range(first, last + 1))
    return Keep("coordinates", tuple(sorted(wanted)))


def _link(text: str) -> Link:
    from dpgt_node.wire.fields import is_name
    from dpgt_node.wire.transcript import Link

    sender, _, receiver = text.partition(">")
    if not (is_name(sender) and is_name(receiver)):
        raise ConfigError.one("command line", "--link", f"{text!r} is not SENDER>RECEIVER")
    return Link(sender, receiver)


def _links(texts: tuple[str, ...], config: RunConfig | None) -> tuple[Link, ...]:
    """Those that are named; with ``config``, only such as the run has."""
    found = tuple(map(_link, texts))
    if config is not None:
        from dpgt_node.cli.eavesdrop.tapped_launch import parse_links

        for text in texts:
            parse_links(text, config, "--link")
    return found


@contextlib.contextmanager
def _standard_input() -> Iterator[BinaryIO]:
    """Standard input to its end: Ctrl-C ends the tap that writes it, and what is on the way is still decoded.

    A second Ctrl-C ends this too.
    """

    def interrupted(_: int, __: object) -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)

    before = signal.signal(signal.SIGINT, interrupted)
    try:
        yield sys.stdin.buffer
    finally:
        signal.signal(signal.SIGINT, before)


# --- what was found


def _require_of_run(found: Decoded, run: Path | None, run_id: str | None) -> None:
    """ConfigError when vectors were seen, and all of them belong to others."""
    if found.ours or not found.strangers:
        return
    others = [what for what in found.named if what.startswith("a vector of ")]
    first = max(others, key=lambda what: found.named[what], default="others")
    option, given = ("--run-id", run_id) if run_id is not None or run is None else ("--run", run)
    what = f"{given}: none of the {found.strangers} vectors in the capture is of this run; there is {first}"
    raise ConfigError.one("command line", option, what)


def _require_on_links(found: Decoded, links: tuple[str, ...]) -> None:
    """ConfigError when vectors were seen, and none on a link that was asked for."""
    if found.elsewhere and not found.messages:
        what = f"none of the {found.elsewhere} vectors in the capture went over {', '.join(links)}"
        raise ConfigError.one("command line", "--link", what)


def _json(found: Decoded) -> dict[str, Any]:
    tcp = found.tcp
    return {
        "messages": found.messages,
        "complete": found.complete,
        "with_holes": found.with_holes,
        "agents": len(found.agents),
        "rounds": found.rounds,
        "segments_lost": found.segments_lost,
        "run_id": found.run_id.hex() or None,
        "channel": found.channel,
        "names": list(found.agents),
        "edges": [asdict(e) for e in found.edges],
        "bytes": found.bytes,
        "bytes_lost": found.bytes_lost,
        "resent": found.resent,
        "conflicting": found.conflicting,
        "wrong_hash": found.wrong_hash,
        "unverified": found.unverified,
        "foreign": found.foreign,
        "named": dict(found.named),
        "orphan_bytes": found.orphan_bytes,
        "study": found.study,
        "elsewhere": found.elsewhere,
        "tls_connections": found.tls_connections,
        "tls": None if found.tls is None else asdict(found.tls),
        "capture": {
            "packets": tcp.packets,
            "connections": tcp.connections,
            "repeated_segments": tcp.repeated,
            "cut_packets": tcp.cut,
            "fragments": tcp.fragments,
            "ignored_packets": dict(tcp.others),
            "dropped": found.capture_dropped,
        },
        "statistics": _statistics(found),
    }


def _statistics(found: Decoded) -> dict[str, Any]:
    agents: dict[str, Any] = {}
    for (name, stream), one in sorted(found.statistics.items()):
        norms = {"mean": one.norm_mean, "min": one.norm_min, "max": one.norm_max, "last": one.norm_last}
        agents.setdefault(name, {})[stream] = {
            "count": one.count,
            "mean": one.mean,
            "norm": {key: value if math.isfinite(value) else None for key, value in norms.items()},
            "not_finite": one.not_finite,
        }
    return agents


def _text(found: Decoded, out: Path) -> str:
    lines = [
        f"{found.messages} messages of {len(found.agents)} agents in {found.rounds} rounds "
        f"(run {found.run_id.hex() or 'unknown'}, {found.channel}): {found.complete} complete, "
        f"{found.with_holes} with holes; {found.segments_lost} segments were not seen"
    ]
    rows = [(e.sender, e.receiver, str(e.X), str(e.Y), str(e.again)) for e in found.edges]
    if rows:
        rows.insert(0, ("sender", "receiver", "X", "Y", "again"))
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines += [
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
        ]
    lines.append(f"Transcript: {out}" if found.messages else "No transcript was written.")
    return "\n".join(lines)


def _warnings(found: Decoded, keys: Path | None) -> Iterator[str]:
    """What nobody should overlook."""
    if found.capture_dropped:
        yield f"the tap lost {found.capture_dropped} packets before it wrote them: give it a larger buffer (tcpdump -B)"
    if found.tcp.cut:
        yield f"{found.tcp.cut} packets are cut: capture with a larger snap length (tcpdump -s 0)"
    if found.tcp.fragments:
        yield f"{found.tcp.fragments} fragments of IP packets were left out"
    hidden = {what: count for what, count in found.tcp.others.items() if "encrypted" in what or "EtherType" in what}
    for what, count in hidden.items() if found.tcp.connections else ():
        yield f"{count} packets were left out: {what}"
    if found.wrong_hash:
        yield f"{found.wrong_hash} messages do not have the sha256 they declare"
    if found.unverified:
        yield f"{found.unverified} messages are whole, but the header with their sha256 was not seen"
    if found.conflicting:
        yield f"{found.conflicting} copies of a release have other bytes than the first"
    if found.orphan_bytes:
        yield f"{found.orphan_bytes} bytes of values belong to vectors whose header was not seen"
    if found.study:
        yield f"{found.study} private vectors went to the coordinator in plain sight (a study run); they were left out"
    yield from _why_nothing(found, keys) if not found.messages else _not_opened(found, keys)
    reasons = sorted(found.named.items(), key=lambda item: (-item[1], item[0]))
    for what, count in reasons[:_SHOWN_REASONS]:
        yield f"not of this run, left out: {what}" + (f" ({count} times)" if count > 1 else "")
    if len(reasons) > _SHOWN_REASONS:
        yield f"and {len(reasons) - _SHOWN_REASONS} more kinds of it (--format json names all)"


def _why_nothing(found: Decoded, keys: Path | None) -> Iterator[str]:
    """No vector came out: the reason, as far as the capture tells."""
    from dpgt_node.adversary.decode.network import OTHER_PORTS

    if found.elsewhere:
        yield f"none of the {found.elsewhere} vectors in the capture went over the links asked for"
    elif found.tls is not None and found.tls.connections:
        yield from _not_opened(found, keys)
        if found.tls.records:
            yield (
                f"{found.tls.records} TLS records were opened, and no vector of a run is in them: is it the right "
                "capture, and are the secrets of both directions right?"
            )
    elif found.tls_connections:
        yield (
            f"{found.tls_connections} connections are TLS: without --keys FILE only sizes and times can be seen, "
            "by dpgt eavesdrop attack PCAP --attack traffic"
        )
    elif not found.tcp.connections:
        what = "no TCP that --port asks for is in the capture" if OTHER_PORTS in found.tcp.others else "no TCP is in it"
        what = what if found.tcp.packets else "the capture holds no packet"
        yield f"no vector of a run was found: {what}" + (
            f"; its packets are {_kinds(found)}" if found.tcp.others else ""
        )
    elif found.tcp.cut:
        yield "no vector of a run was found: too little of each packet was kept"
    else:
        yield "no vector of a run was found: is it the right capture, and the right port?"


def _not_opened(found: Decoded, keys: Path | None) -> Iterator[str]:
    """TLS that the keys at hand do not open."""
    tls = found.tls
    if tls is None or not tls.connections or not (tls.without_keys or not tls.records):
        return
    missing = tls.without_keys or tls.connections
    yield (
        f"{missing} of {tls.connections} TLS connections could not be opened: {keys or 'the capture'} holds no keys "
        "of theirs (they are of one process and connection, one a direction: take those written during the capture)"
    )


def _kinds(found: Decoded) -> str:
    """What packets without TCP carry, the most frequent first."""
    most = found.tcp.others.most_common(_SHOWN_REASONS)
    return ", ".join(f"{what} ({count} times)" for what, count in most)
