"""``dpgt eavesdrop attack``: what a transcript gives away, measured beside what theory predicts."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dpgt_node.cli.common import FOLDER, data_root, format_option
from dpgt_node.cli.eavesdrop.attacked import render
from dpgt_node.cli.wrapping import say
from dpgt_node.config import RunConfig, load_run
from dpgt_node.errors import ConfigError, DpgtError, ExitCode, Problem, attempt
from dpgt_node.learning.extras import lacking
from dpgt_node.values import dataclass

if TYPE_CHECKING:
    from dpgt_node.adversary.attack import Attack, Options, Result
    from dpgt_node.adversary.inference.observation import Observation
    from dpgt_node.record.truth import Truth


@click.command()
@click.argument("transcripts", metavar="TRANSCRIPT...", nargs=-1, type=click.Path(path_type=Path))
@click.option("--run", "run_path", type=click.Path(path_type=Path), help="RUN.toml, or a run's folder.")
@click.option("--truth", type=FOLDER, help="Output folder of a study run: measures each attack's error.")
@click.option("--attack", "names", multiple=True, metavar="NAME", help="Only these; or your own as module:attribute.")
@click.option("--agent", "agents", multiple=True, metavar="NAME", help="Attack only these agents.")
@click.option("--round", "rounds", multiple=True, type=click.IntRange(min=0), help="Measure only these rounds.")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="A setting of an attack.")
@click.option("--seed", type=click.IntRange(min=0), default=0, help="Of the attacks' own randomness.")
@click.option("--shadows", type=click.IntRange(min=2), help="Shadow runs for lira and rmia, simulated here.")
@click.option("--keep-shadows", type=FOLDER, help="Keep shadow runs there, and simulate only what is missing.")
@click.option("--jobs", type=click.IntRange(min=1), default=1, show_default=True, help="Processes for shadow runs.")
@click.option("--out", type=FOLDER, help="Write attacks.json and attacks.npz there.")
@click.option("--list", "list_", is_flag=True, help="List the attacks and their settings, and attack nothing.")
@format_option
def attack(
    transcripts: tuple[Path, ...],
    run_path: Path | None,
    truth: Path | None,
    names: tuple[str, ...],
    agents: tuple[str, ...],
    rounds: tuple[int, ...],
    settings: tuple[str, ...],
    seed: int,
    shadows: int | None,
    keep_shadows: Path | None,
    jobs: int,
    out: Path | None,
    list_: bool,
    format_: str,
) -> ExitCode:
    """Attack transcripts of one run: `dpgt eavesdrop attack TRANSCRIPT... --run RUN.toml [--truth OUTDIR]`.

    Ground truth is used for nothing but measuring.  --shadows N simulates runs whose members are known, from the run's
    data on this machine; lira, lira-model and rmia compare with them.  Without --attack, every attack that applies is
    run.  Traffic analysis takes captures (FILE.pcap) in the place of transcripts.  Exits 1 when an attack succeeds.
    """
    from dpgt_node.adversary.attack import NotApplicable
    from dpgt_node.adversary.results import About, save, to_json

    problems: list[Problem] = []
    found = attempt(problems, lambda: _chosen(names))
    if list_:
        if found is None:
            raise ConfigError(problems)
        say("\n".join(_described(found[0])))
        return ExitCode.DONE
    chosen, skipped = found or ({}, {})
    extra = attempt(problems, lambda: _settings(settings, None if found is None else chosen))
    run, run_id, extra = *_given(transcripts, run_path, agents, rounds, problems), extra or {}
    if (root := data_root()) is not None:
        extra.setdefault("data", str(root))
    case = _case(transcripts, run, run_id, truth, (agents, rounds, seed, extra))
    results = []
    if names and case.captures and not any("capture" in one.needs for one in chosen.values()):
        message = f"{', '.join(map(str, case.captures))}: captures, of which {', '.join(names)} reads nothing"
        raise ConfigError.one("command line", "TRANSCRIPT", message)
    without = ""
    if shadows is not None:
        try:
            case = case.with_shadows(shadows, keep_shadows, jobs)
        except NotApplicable as error:
            if any("shadows" in chosen[name].needs for name in names):
                raise
            without = str(error)
    for name, one in chosen.items():
        if without and "shadows" in one.needs:
            skipped[name] = without
            continue
        try:
            results.append(_run_own(case, name, one) if _is_own(name) else case.attack(one))
        except NotApplicable as error:
            # Asked for by name, it fails; among all of them it only has nothing to say about this run.
            if names:
                raise
            skipped[name] = str(error)
    run_id = b"" if case.observation is None else case.observation.run_id
    about = About(case.run.name, run_id, tuple(map(str, transcripts)), case.options)
    if out is not None:
        save(out, results, skipped, about)
    if format_ == "json":
        click.echo(json.dumps(to_json(results, skipped, about), allow_nan=False, indent=2))
    else:
        say("\n".join(render(results, skipped, case)))
    succeeded = any(finding.verdict == "succeeds" for result in results for finding in result.findings)
    return ExitCode.CHECK_FAILED if succeeded else ExitCode.DONE


@dataclass(frozen=True, slots=True)
class Case:
    """What is attacked.  ``observation`` None: only captures were given.  ``tied``: its run id is the run folder's."""

    run: RunConfig
    observation: Observation | None
    captures: tuple[Path, ...]
    truth: Truth | None
    told: str
    options: Options
    tied: bool = False

    def with_shadows(self, count: int, folder: Path | None, jobs: int) -> Case:
        """The same beside ``count`` shadow runs.  NotApplicable: this run has none."""
        from dpgt_node.adversary.attack import NotApplicable
        from dpgt_node.experiments.shadow_runs import conduct

        if self.observation is None:
            raise NotApplicable.one("command line", "--shadows", "are runs seen as a transcript saw one: name one")
        made = conduct(
            self.observation,
            count,
            seed=self.options.seed,
            jobs=jobs,
            folder=folder,
            data_root=data_root(),
            progress=_progress,
        )
        return replace(self, options=replace(self.options, shadows=made))

    def attack(self, one: Attack) -> Result:
        """Run ``one``.  NotApplicable: it lacks something."""
        from dpgt_node.adversary.attack import NotApplicable

        if "capture" in one.needs:
            from dpgt_node.adversary.decode.traffic import analyse

            if not self.captures:
                message = f"{one.name} works on captures (FILE.pcap), not on what was decoded from them"
                raise NotApplicable.one("command line", "TRANSCRIPT", message)
            return analyse(self.captures, self.run)
        if self.observation is None:
            message = f"{one.name} works on transcripts: dpgt eavesdrop decode makes them of captures"
            raise NotApplicable.one("command line", "TRANSCRIPT", message)
        if "truth" in one.needs and self.truth is None:
            message = f"{one.name} needs the ground truth of a study run"
            raise NotApplicable.one("command line", "--truth", message)
        if "shadows" in one.needs and self.options.shadows is None:
            message = f"{one.name} compares with runs whose members are known: --shadows 64"
            raise NotApplicable.one("command line", "--shadows", message)
        if "torch" in one.needs and (why := lacking("torch")) is not None:
            raise NotApplicable.one("command line", "--attack", f"{one.name} {why}")
        return one.run(self.observation, self.truth, self.options)


def _progress(done: int, of: int) -> None:
    """On a terminal only."""
    if sys.stderr.isatty():
        click.echo(f"\r{done} of {of} shadow runs" + ("\n" if done >= of else ""), err=True, nl=False)


def _is_own(name: str) -> bool:
    from dpgt_node.adversary.attacks import ATTACKS

    return name not in ATTACKS and name not in ATTACKS.values()


def _run_own(case: Case, name: str, one: Attack) -> Result:
    """An operator's own attack may fail in any way; ConfigError says how, and the debug log where."""
    from dpgt_node.adversary.attack import Result
    from dpgt_node.adversary.results import to_json

    try:
        made = case.attack(one)
        if not isinstance(made, Result):
            raise TypeError(f"it returned {type(made).__name__}, not a Result")
        json.dumps(to_json([made]), allow_nan=False)
        render([made], {}, case)
    except DpgtError:
        raise
    except Exception as error:
        message = " ".join(f"{name} raised {type(error).__name__}: {error}".split())
        raise ConfigError.one("command line", "--attack", message) from error
    return made


def _case(
    paths: Sequence[Path],
    run: RunConfig,
    run_id: bytes | None,
    truth: Path | None,
    options: tuple[tuple[str, ...], tuple[int, ...], int, dict[str, str]],
) -> Case:
    from dpgt_node.adversary.attack import Options
    from dpgt_node.adversary.inference.observation import Observation
    from dpgt_node.record.truth import find_truth

    agents, rounds, seed, extra = options
    captures = tuple(path for path in paths if _is_capture(path))
    transcripts = [path for path in paths if path not in captures]
    observation = Observation.load(transcripts, run, run_id=run_id) if transcripts else None
    known, told = None, "none given, so nothing is measured (--truth OUTDIR)"
    if truth is not None:
        if not truth.is_dir():
            raise ConfigError.one("command line", "--truth", f"{truth}: there is no such folder")
        known = find_truth(truth, run.graph.agents, observation.run_id if observation is not None else b"")
        absent = [name for name in run.graph.agents if name not in known]
        told = str(truth) + (f"; none of {', '.join(absent)}" if absent else "")
    return Case(run, observation, captures, known, told, Options(agents, rounds, seed, extra), tied=run_id is not None)


def _given(
    paths: Sequence[Path],
    run_path: Path | None,
    agents: Sequence[str],
    rounds: Sequence[int],
    problems: list[Problem],
) -> tuple[RunConfig, bytes | None]:
    """The run, and its id where ``run_path`` is its folder.  ConfigError: ``problems``, or what is missing or of
    another kind.
    """
    from dpgt_node.runtime.coordinator.outdir import held_run_id

    if not paths:
        message = "is missing: what dpgt eavesdrop decode made of a capture; or the capture, for traffic analysis"
        problems.append(Problem("command line", "TRANSCRIPT", message))
    for path in paths:
        attempt(problems, partial(_is_capture, path))
    run = None
    if run_path is None:
        problems.append(Problem("command line", "--run", "is missing: the run's file or folder"))
    else:
        file = run_path / "run.toml" if run_path.is_dir() else run_path
        run = attempt(problems, lambda: load_run(file))
        problems += [] if run is None else _beyond(run, agents, rounds)
    if problems or run is None or run_path is None:
        raise ConfigError(problems)
    return run, held_run_id(run_path)


def _beyond(run: RunConfig, agents: Sequence[str], rounds: Sequence[int]) -> Iterator[Problem]:
    """What the run has no agents and no rounds of."""
    if strangers := [name for name in agents if name not in run.graph.agents]:
        message = f"{', '.join(strangers)}: the run has {', '.join(run.graph.agents)}"
        yield Problem("command line", "--agent", message)
    if late := [k for k in rounds if k > run.K]:
        yield Problem("command line", "--round", f"{late[0]}: the run ends at round {run.K}")


def _is_capture(path: Path) -> bool:
    """By its first bytes: pcap of either byte order and precision, or pcapng, or packed.  ConfigError: it is no
    transcript either.
    """
    from dpgt_node.adversary.decode.packed import unpacker
    from dpgt_node.wire.transcript import MAGIC

    try:
        with path.open("rb") as file:
            head = file.read(len(MAGIC))
    except OSError as error:
        raise ConfigError.one(str(path), "", f"cannot be read: {error.strerror}") from error
    if head == MAGIC:
        return False
    head = head[:4]
    if unpacker(head) is None and head.hex() not in ("a1b2c3d4", "d4c3b2a1", "a1b23c4d", "4d3cb2a1", "0a0d0d0a"):
        message = "is neither a transcript of this version, which dpgt eavesdrop decode makes, nor a capture"
        raise ConfigError.one(str(path), "", message)
    return True


def _chosen(names: Sequence[str]) -> tuple[dict[str, Attack], dict[str, str]]:
    """Attacks by name, and why others of the registry are left out.  ConfigError for a name that nobody has."""
    from dpgt_node.adversary.attacks import ATTACKS

    unknown = [name for name in names if name not in ATTACKS and ":" not in name]
    if unknown:
        message = f"no attack {', '.join(unknown)}: there are {', '.join(ATTACKS)}, or your own as module:attribute"
        raise ConfigError.one("command line", "--attack", message)
    found: dict[str, Attack] = {}
    skipped: dict[str, str] = {}
    for name in names or ATTACKS:
        try:
            found[name] = _import(ATTACKS.get(name, name))
        except ConfigError as error:
            if names:
                raise
            skipped[name] = str(error)
    return found, skipped


def _import(target: str) -> Attack:
    module_name, _, attribute = target.partition(":")
    if str(Path.cwd()) not in sys.path:
        sys.path.append(str(Path.cwd()))  # an attack of one's own is a file in this folder
    try:
        made: Attack = getattr(importlib.import_module(module_name), attribute)
        made.run, made.name, frozenset(made.needs), dict(getattr(made, "settings", None) or {})
    except DpgtError:
        raise
    except Exception as error:  # an operator's own file may fail in any way
        message = f"{target!r} is no attack: {type(error).__name__}: {error}"
        raise ConfigError.one("command line", "--attack", message) from error
    return made


def _settings(pairs: Sequence[str], chosen: dict[str, Attack] | None) -> dict[str, str]:
    """KEY=VALUE; ConfigError for keys that no chosen attack knows (one that lists none takes any).

    ``chosen`` None: nobody knows which they are.
    """
    out: dict[str, str] = {}
    problems: list[Problem] = []
    listed = [None] if chosen is None else [getattr(one, "settings", None) for one in chosen.values()]
    known = sorted({key for keys in listed if keys is not None for key in keys})
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            problems.append(Problem("command line", "--set", f"{pair!r} is not KEY=VALUE"))
        elif key not in known and None not in listed:
            message = f"no attack has a setting {key!r}; there are {', '.join(known) or 'none'}"
            problems.append(Problem("command line", "--set", message))
        out[key] = value
    if problems:
        raise ConfigError(problems)
    return out


def _described(chosen: dict[str, Attack]) -> list[str]:
    lines = []
    for name, one in chosen.items():
        needs = f" (needs {', '.join(sorted(one.needs))})" if one.needs else ""
        lines.append(f"{name}{needs}")
        keys = getattr(one, "settings", None) or {}
        lines += [f"  --set {key}=...  {text}" for key, text in keys.items()]
    return lines
