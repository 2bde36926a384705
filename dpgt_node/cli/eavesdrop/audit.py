"""``dpgt eavesdrop audit``: is what accountants and ledgers claim true?  Exit 1 when something is refuted."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dpgt_node.cli import common
from dpgt_node.cli.wrapping import say
from dpgt_node.errors import ConfigError, ExitCode

if TYPE_CHECKING:
    from dpgt_node.adversary.audit.finding import Finding
    from dpgt_node.adversary.audit.report import Audit
    from dpgt_node.experiments.trials import Test


@click.command()
@click.argument("files", metavar="[TRANSCRIPT... | RUN.toml]", nargs=-1, type=click.Path(path_type=Path))
@click.option(
    "--preset", type=click.Choice(["counterexample", "partial-observer"]), help="Audit a built-in run instead of files."
)
@click.option(
    "--run",
    "run_file",
    metavar="RUN.toml|DIR",
    type=click.Path(path_type=Path),
    help="Of the transcripts: the run file, or the run's output folder.",
)
@click.option(
    "--truth",
    type=common.FOLDER,
    help="Of the transcripts: the output folder with the agents' study files; needed where m < D.",
)
@click.option(
    "--ledger",
    "ledgers",
    metavar="OUT|NAME=STATE_DIR",
    multiple=True,
    help="With --run: recount the ledgers under the run's output folder, or of one agent, and hold transcripts against "
    "them.",
)
@click.option(
    "--noise",
    is_flag=True,
    help="Of the transcripts: is the noise that was added the run file's, coordinate by coordinate, and are gradients "
    "clipped?  From the study files under --truth, or under --run DIR.",
)
@click.option(
    "--out",
    type=common.FOLDER,
    help="Write audit.json there as well; DIR/adversary shows it in the report of DIR.",
)
@click.option(
    "--agent",
    "agents",
    metavar="NAME",
    multiple=True,
    help="Audit these.  [default: the first; of transcripts, every agent that was seen well enough]",
)
@click.option(
    "--runs",
    type=click.IntRange(min=4),
    help="Canary trials a world, each in a world of its own (one run of the release path carries many); half of them "
    "pick the test, half prove the bound.  [default: 10000, or as many as 20000 rounds carry]",
)
@click.option(
    "--labels",
    type=click.IntRange(min=0),
    help="Besides, so many simulated runs of all agents with data whose labels are to be told: their own clip, oracle "
    "and sampler.  [default: 2000 labels a world, where that takes seconds and no --runs are given]",
)
@click.option(
    "--launches",
    type=click.IntRange(min=1),
    help="Real launches instead, of the run with data whose labels are to be told; every sample is a trial.",
)
@click.option(
    "--colluding",
    metavar="T",
    type=click.IntRange(min=0),
    help="Where agents share noise: audit what T of the others learn together, with their own keys.  [default: all]",
)
@click.option("--resume", type=common.FOLDER, help="Keep the trials here, and do only what is missing.")
@click.option("--jobs", type=click.IntRange(min=1), default=1, show_default=True, help="Processes.")
@click.option("--canaries", type=click.IntRange(min=1), help="Canaries a run.  [default: as many as fit]")
@click.option(
    "--test",
    type=click.Choice(["threshold", "guess", "event", "renyi"]),
    default="threshold",
    show_default=True,
    help="Hit and false-alarm rates of a threshold, the share of right guesses; or, presuming no law of the noise, an "
    "event or a witness of a Renyi divergence that are learnt from the trials.",
)
@click.option("--confidence", type=click.FloatRange(0.5, 1.0 - 1e-12), default=0.95, show_default=True)
@common.test_keystream_option
@common.format_option
def audit(
    files: tuple[Path, ...],
    preset: str | None,
    run_file: Path | None,
    truth: Path | None,
    ledgers: tuple[str, ...],
    noise: bool,
    out: Path | None,
    agents: tuple[str, ...],
    runs: int | None,
    labels: int | None,
    launches: int | None,
    colluding: int | None,
    resume: Path | None,
    jobs: int,
    canaries: int | None,
    test: Test,
    confidence: float,
    test_keystream: str | None,
    format_: str,
) -> ExitCode:
    """Audit what accountants and ledgers claim; exits 1 when something is refuted.

    RUN.toml alone: canaries through the release path of the run's own mechanism, noise and accountants; and labels
    told from simulated runs of all agents.

    TRANSCRIPT... with --run: the exact log-likelihood ratio of what was captured.

    [TRANSCRIPT...] with --run and --ledger: is all that was captured charged, and does every row say what it costs?

    TRANSCRIPT... with --run and --noise: is the noise that was added the noise that the run file states?

    --preset counterexample: a run in which the paper's Lemma 5 is false.

    --preset partial-observer: a run in which the row-space formula for observers of a part of the messages is false.
    """
    context = click.get_current_context()

    def say(audits: Sequence[Audit], findings: Sequence[Finding] = (), run_id: bytes = b"") -> ExitCode:
        return _say(audits, findings, format_, out, _about(context, files, run_file, run_id, test_keystream))

    if preset is not None:
        if files or run_file or truth or ledgers or noise:
            raise ConfigError.one("command line", "--preset", "takes no files")
        from dpgt_node.experiments.partial_runs import partial_audits
        from dpgt_node.experiments.witnesses import counterexample_audits

        made = counterexample_audits if preset == "counterexample" else partial_audits
        return say(made(test_keystream))
    if run_file is not None and (ledgers or noise):
        from dpgt_node.cli.eavesdrop.evidence import Captured, ledger_findings, noise_findings

        seen = Captured.of(files, run_file)
        found = ledger_findings(seen, ledgers, agents) if ledgers else []
        return say((), found + (noise_findings(seen, truth, agents) if noise else []), seen.run_id)
    if not files:
        raise ConfigError.one("command line", "", "name transcripts, or a run file, or --preset")
    if run_file is not None:
        return say(_transcripts(files, run_file, truth, agents))
    if len(files) > 1 or truth is not None or ledgers or noise or _is_transcript(files[0]):
        raise ConfigError.one("command line", "--run", "transcripts need the run file that they are of")
    from dpgt_node.cli.eavesdrop.canaries import canary_audits, coalition_audits, label_audits, launch_audits

    if launches is not None:
        if test_keystream is not None:
            raise ConfigError.one("command line", "--test-keystream", "launches are audited with their own entropy")
        return say(launch_audits(files[0], agents, launches, resume, test, confidence))
    if colluding is not None or common.load_local_run(files[0]).noise.cancel is not None:
        if test in ("event", "renyi"):
            raise ConfigError.one("command line", "--test", "no events are learnt where noise is shared")
        if canaries is not None:
            raise ConfigError.one("command line", "--canaries", "an audit of shared noise has as many as fit")
        if labels:
            raise ConfigError.one("command line", "--labels", "no labels are told where noise is shared")
        shared = coalition_audits(files[0], agents, colluding, runs, resume, test, confidence, test_keystream)
        return say(shared)
    audits = canary_audits(files[0], agents, runs, resume, jobs, canaries, test, confidence, test_keystream)
    asked = 0 if labels is None and runs is not None else labels
    told, left_out = label_audits(files[0], agents, asked, resume, test, confidence, test_keystream)
    *before, last = [*audits, *told]
    return say([*before, replace(last, notes=(*last.notes, left_out))])


def _is_transcript(path: Path) -> bool:
    from dpgt_node.wire.transcript import MAGIC

    try:
        with path.open("rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError:
        return False  # whoever reads it says why not


def _about(
    context: click.Context, files: Sequence[Path], run_file: Path | None, run_id: bytes, test_keystream: str | None
) -> dict[str, Any]:
    """What a document says of itself: version, run, settings, and where chance came from."""
    from dpgt_node import __version__

    given = {
        name: [str(one) for one in value]
        if isinstance(value, tuple)
        else str(value)
        if isinstance(value, Path)
        else value
        for name, value in context.params.items()
        if name not in ("format_", "out") and value not in (None, ())
    }
    return {
        "dpgt_node": __version__,
        "run": str(run_file or (files[0] if files else "")) or None,
        "run_id": run_id.hex() or None,
        "seed": test_keystream or "system entropy",
        "settings": given,
    }


def _say(
    audits: Sequence[Audit], findings: Sequence[Finding], format_: str, out: Path | None, about: dict[str, Any]
) -> ExitCode:
    from dpgt_node.adversary.audit.report import AUDIT_FILE, to_json, to_text
    from dpgt_node.durable import write_text

    text = json.dumps(to_json(audits, findings) | about, allow_nan=False, indent=2)
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        write_text(out / AUDIT_FILE, text + "\n")
    if format_ == "json":
        click.echo(text)
    else:
        say(to_text(audits, findings))
    refuted = any(one.refuted for one in audits) or any(one.refuted for one in findings)
    return ExitCode.CHECK_FAILED if refuted else ExitCode.DONE


def _transcripts(files: Sequence[Path], run_file: Path, truth: Path | None, agents: Sequence[str]) -> list[Audit]:
    from dpgt_node.adversary.inference.observation import Observation
    from dpgt_node.experiments.witnesses import transcript_audits
    from dpgt_node.record.truth import find_truth
    from dpgt_node.runtime.coordinator.outdir import held_run_id

    out = run_file if run_file.is_dir() else None
    run = common.load_local_run(run_file / "run.toml" if out is not None else run_file)
    if run.noise.cancel is not None:
        message = "a transcript alone does not tell what pairs shared: audit RUN.toml with --colluding T"
        raise ConfigError.one("run file", "noise.cancel", message)
    run_id = None if out is None else held_run_id(out)
    observation = Observation.load(files, run, run_id=run_id)
    known = None if truth is None else find_truth(truth, run.graph.agents, observation.run_id)
    return transcript_audits(
        observation,
        known,
        agents=agents,
        out=truth if out is None else out,
        data_root=common.data_root(),
        tied=run_id is not None and run_id == observation.run_id,
    )
