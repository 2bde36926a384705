"""``python -m tests.fuzz``: every part in full, with the figures; ``make fuzz``.

Parts: ``decoder`` (atheris), ``services`` (real servers on loopback), ``coverage`` (branches of dpgt_node/wire).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.fuzz.services import attack
from tests.fuzz.stream import shares

ROOT = Path(__file__).resolve().parents[2]
CORPUS = Path(__file__).resolve().parent / "corpus"
LEAST_HEADERS = 0.30
LEAST_BRANCHES = 95
ROUNDS = 6_000
CONNECTIONS = 4_000


def decoder(inputs: int, workers: int, keep: Path) -> None:
    """Decoder inputs, shared among ``workers`` processes with a seed each."""
    begin = time.monotonic()
    jobs = []
    for seed in range(1, workers + 1):
        new = keep / f"new-{seed}"
        new.mkdir(parents=True)
        command = [sys.executable, "-m", "tests.fuzz.decoder", "--inputs", str(inputs // workers)]
        command += ["--corpus", str(new), str(CORPUS), "--seed", str(seed)]
        log = keep / f"decoder-{seed}.log"
        with log.open("wb") as err:
            jobs.append((subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=err), log))
    counts: Counter[str] = Counter()
    rss = 0.0
    for process, log in jobs:
        out, _ = process.communicate()
        if process.returncode != 0:
            print(out.decode(errors="replace")[-4000:], log.read_text(errors="replace")[-2000:], file=sys.stderr)
            raise SystemExit(f"an input broke the decoder; it is in {keep} as crash-*")
        report = json.loads(out)
        rss = max(rss, report["rss_mib"][1] - report["rss_mib"][0])
        counts.update({name: report[name] for name in report if name not in ("seconds", "rss_mib")})
    print(f"decoder: {shares(counts)}; 0 crashes; RSS +{rss:.1f} MiB; {time.monotonic() - begin:.0f} s")
    assert counts["header passed"] >= LEAST_HEADERS * counts["inputs"], "too few inputs pass the header"


def services(inputs: int, keep: Path) -> None:
    """Service-level inputs, half of them at servers without TLS."""
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)  # it says of every connection that broke that it did
    for secure in (False, True):
        folder = keep / ("mtls" if secure else "plain")
        folder.mkdir()
        attacked = attack(folder, inputs // 2, secure=secure, rounds=ROUNDS, connections=CONNECTIONS)
        print(f"services, {folder.name}: {asyncio.run(attacked).line()}", flush=True)


def coverage(keep: Path) -> None:
    """Branches of dpgt_node/wire under its tests, which replay the corpus and a share of the fuzzer."""
    data = f"--data-file={keep / 'coverage'}"
    run = [sys.executable, "-m", "coverage", "run", "--branch", "--source=dpgt_node.wire", data]
    subprocess.run([*run, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/wire"], cwd=ROOT, check=True)
    report = [
        sys.executable,
        "-m",
        "coverage",
        "report",
        data,
        "--omit=*/gen/*,*/mutant",
        f"--fail-under={LEAST_BRANCHES}",
    ]
    subprocess.run(report, cwd=ROOT, check=True)


def main() -> None:
    """Run the parts that are asked for."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("parts", nargs="*", default=["decoder", "services", "coverage"])
    parser.add_argument("--inputs", type=int, default=2_000_000, help="decoder inputs")
    parser.add_argument("--service-inputs", type=int, default=50_000)
    parser.add_argument("--workers", type=int, default=2, help="processes of the decoder part")
    parser.add_argument("--keep", type=Path, help="new folder for what was found (default: a temporary one)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        keep = options.keep or Path(scratch)
        keep.mkdir(parents=True, exist_ok=True)
        for part in options.parts:
            if part == "decoder":
                decoder(options.inputs, options.workers, keep)
            elif part == "services":
                services(options.service_inputs, keep)
            elif part == "coverage":
                coverage(keep)
            else:
                parser.error(f"no part {part}")


if __name__ == "__main__":
    main()
