"""``dpgt plan``: a run file that meets a stated epsilon."""

from __future__ import annotations

import contextlib
import json
import math
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from dpgt_node.cli import common
from dpgt_node.cli.beginning.rendering import looked_at, render, useless
from dpgt_node.cli.shape import find_shape
from dpgt_node.cli.wrapping import say, wrapped
from dpgt_node.config import SchemeS2, load_run
from dpgt_node.errors import ConfigError, ExitCode, Problem, attempt
from dpgt_node.privacy.accountants.registry import PLANNED

if TYPE_CHECKING:
    from dpgt_node.learning.data.datasets import Dataset
    from dpgt_node.report.pareto import Point
    from dpgt_node.sim.plans.choosing import Choice
    from dpgt_node.sim.plans.rehearsal import Shape

T = TypeVar("T")
FACTORS = (0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
"""Epsilons of the Pareto curve, as parts of the one asked for."""
_PARETO_REHEARSALS = 12
_SILENCE = 20.0
"""Seconds after which somebody wonders whether anything goes on."""


@click.command()
@common.run_argument
@click.option("--epsilon", type=float, required=True, help="What every agent's whole transcript may cost.")
@click.option("--delta", type=float, help="0: a pure guarantee.  [default: the run file's privacy.delta]")
@click.option("--accountant", help=f"{', '.join(PLANNED)}.  [default: the tightest sound one]")
@click.option("--mechanism", help="[default: noise-once]")
@click.option(
    "--towards",
    type=int,
    metavar="T",
    help="Epsilon counts towards any T of the other agents together; pairs of agents may then share noise.  [default: "
    "towards all of them]",
)
@click.option(
    "--shape",
    "shape_text",
    metavar="P,CLASSES,D",
    help="Numbers a sample, classes, samples an agent: where the data are not on this machine.",
)
@click.option(
    "--public",
    metavar="FILE.npz|NAME",
    help="Public data to try candidates on instead of synthetic ones, a file or a picture set that was fetched (mnist, "
    "...); never the agents' own.",
)
@common.alike_option
@click.option("--keep-features", is_flag=True, help="Keep features, normalise and bias of the run file.")
@click.option("--keep-clip", is_flag=True, help="Keep the clip of the run file, or its declared C; and its features.")
@click.option(
    "--keep-steps",
    is_flag=True,
    help="Keep K, alpha, beta, gamma, releases, clip and features of the run file; fill in mechanism and noise.",
)
@click.option(
    "--pareto",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Also write accuracy against epsilon there: pareto.csv, pareto.svg.",
)
@common.format_option
def plan(
    run_file: Path,
    epsilon: float,
    delta: float | None,
    accountant: str | None,
    mechanism: str | None,
    towards: int | None,
    shape_text: str | None,
    public: str | None,
    alike: str | None,
    keep_features: bool,
    keep_clip: bool,
    keep_steps: bool,
    pareto: Path | None,
    format_: str,
) -> ExitCode:
    """Choose mechanism, noise, releases, clip, steps and features of RUN.toml so that every agent keeps to EPSILON.

    The new run file goes to standard output, with reasons as comments.  Of the agents' data only the shape is used, and
    how alike you say they are: candidates are tried on synthetic data.  The plan says which accuracy it expects, where
    learning begins, and where staying alone is expected to be better.  Takes about a minute.
    """
    from dpgt_node.accounts.planner import Target
    from dpgt_node.sim.plans.alike import Alike
    from dpgt_node.sim.plans.choosing import Input, choose, inputs
    from dpgt_node.sim.plans.refusing import refusals
    from dpgt_node.sim.plans.staying import PUBLIC

    run = load_run(run_file)
    target = Target(epsilon, delta, accountant, mechanism, towards=towards)
    problems = list(refusals(run, target, keep_clip=keep_clip, keep_steps=keep_steps))
    if keep_steps and pareto is not None:
        problems.append(Problem("command line", "--keep-steps", "leaves nothing to search for --pareto"))
    problems += [] if pareto is None else _unwritable(pareto)
    how = attempt(problems, lambda: Alike.of(run) if alike is None else Alike.stated(alike))
    data = attempt(problems, lambda: _public(public))
    shape = attempt(problems, lambda: find_shape(run, str(run_file), shape_text))
    if problems:
        raise ConfigError(problems)
    assert shape is not None, "else there was a problem"
    with _at_work(_say) as progress:
        chosen = choose(
            run,
            shape,
            target,
            (Input.of(run),) if keep_features or keep_clip or keep_steps else inputs(run, shape),
            data,
            alike=how,
            keep_clip=keep_clip,
            keep_steps=keep_steps,
            progress=progress,
        )
    what = shape.stand_in if public is None else PUBLIC
    if pareto is not None:
        from dpgt_node.report.pareto import write_pareto

        written = write_pareto(pareto, trade_off(chosen), what)
        _say(f"wrote {' and '.join(map(str, written))}")
    text = render(chosen, what, looked_at(shape, public), shape.samples)
    if format_ == "json":
        click.echo(json.dumps(_document(chosen, shape, text), indent=2, allow_nan=False, ensure_ascii=False))
    else:
        click.echo(text, nl=False)
    for warning in (warnings := _warnings(chosen, shape)):
        _say(f"warning: {warning}")
    for line in (chosen.expected, *([] if chosen.staying is None else [chosen.staying.words])):
        if line not in warnings and not (chosen.useless and line == chosen.expected):
            _say(line)
    return ExitCode.DONE


@contextlib.contextmanager
def _at_work(say: Callable[[str], None], silence: float = _SILENCE) -> Iterator[Callable[[str], None]]:
    """What says a line, as ``say`` does; after ``silence`` seconds without one it says that the work goes on."""
    begin, done, spoken = time.monotonic(), threading.Event(), threading.Event()

    def heard(line: str) -> None:
        spoken.set()
        say(line)

    def tell() -> None:
        while not done.wait(silence):
            if not spoken.is_set():
                say(f"at work for {time.monotonic() - begin:.0f} s")
            spoken.clear()

    teller = threading.Thread(target=tell, name="dpgt-plan", daemon=True)
    teller.start()
    try:
        yield heard
    finally:
        done.set()
        teller.join()


def _unwritable(folder: Path) -> Iterator[Problem]:
    """Why no file can be written into ``folder``; tried, and nothing of it is left."""
    made: list[Path] = []
    try:
        made += [one for one in (folder, *folder.parents) if not one.exists()]
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        yield Problem("command line", "--pareto", f"{folder} cannot be written: {error.strerror}")
    finally:
        for one in made:
            with contextlib.suppress(OSError):
                one.rmdir()


def _warnings(chosen: Choice, shape: Shape) -> list[str]:
    """That delta protects nobody; that nothing learns; that staying alone is expected to be better."""
    from dpgt_node.privacy.strength import delta_warning

    staying = chosen.staying
    found = [useless(chosen, shape.samples)] if chosen.useless else []
    if (void := delta_warning(chosen.plan.route.delta, max(shape.samples))) is not None:
        found.insert(0, void)
    return found + ([staying.words] if staying is not None and staying.better else [])


def _say(line: str) -> None:
    for part in wrapped(f"dpgt plan: {line}"):
        click.echo(part, err=True)


def _document(chosen: Choice, shape: Shape, text: str) -> dict[str, Any]:
    found = chosen.plan
    return {
        "run_file": text,
        "accountant": found.route.accountant,
        "epsilon": found.target.epsilon,
        "delta": found.route.delta,
        "rounds": found.run.K + 1,
        "agents": [
            {"name": name, "samples": D, "epsilon": {key: values[i] for key, values in found.epsilon.items()}}
            for i, (name, D) in enumerate(zip(found.run.graph.agents, shape.samples, strict=True))
        ],
        "expected": expected_json(chosen),
        "warnings": _warnings(chosen, shape),
    }


def expected_json(chosen: Choice) -> dict[str, Any]:
    """What stand-in data say of the plan: test accuracies in [0, 1], null where nothing was rehearsed."""
    staying, found = chosen.staying, chosen.plan
    easier = None if staying is None else staying.easier
    return {
        "accuracy_worst": None if staying is None else staying.exchange.worst,
        "accuracy_worst_far_apart": None if easier is None else easier.worst,
        "guessing": found.chance,
        "alone": None if staying is None else staying.alone,
        "alone_is_better": None if staying is None else staying.better,
        "learns": not chosen.useless,
        "learning_begins_at": found.starts_at,
    }


def trade_off(chosen: Choice) -> list[Point]:
    """A plan for each of the epsilons around the one asked for; those that are impossible are left out.

    Accuracies are of the plan's ground, beside staying alone there; without one of the plan's own rehearsals.
    """
    from dataclasses import replace

    from dpgt_node.report.pareto import Point

    points, planner, found, ground = [], chosen.planner, chosen.plan, chosen.ground
    for factor in FACTORS:
        other = found
        if factor != 1.0:
            target = replace(found.target, epsilon=factor * found.target.epsilon)
            try:
                other = planner.plan(target, _PARETO_REHEARSALS, keep_steps=found.kept)
            except ConfigError as error:
                say(f"dpgt plan: left out: {error}", err=True)
                continue
        scheme, way, eta = other.run.scheme, other.route, other.run.noise.eta
        outcome = other.outcome if ground is None else ground.compare(other.run).exchange
        predicted = other.found.predicted
        assert eta is not None and isinstance(scheme, SchemeS2)
        points.append(
            Point(
                epsilon=other.target.epsilon,
                accountant=way.accountant,
                delta=way.delta,
                mechanism=way.mechanism,
                law=way.law,
                K=other.run.K,
                alpha=scheme.alpha,
                beta=scheme.beta,
                gamma=scheme.gamma,
                scale_eta=max(eta.values),
                accuracy_predicted=None if math.isnan(predicted) else predicted,
                accuracy_mean=outcome.mean,
                accuracy_worst=outcome.worst,
                accuracy_alone=None if ground is None else ground.alone,
            )
        )
    return points


def _public(text: str | None) -> Dataset | None:
    if text is None:
        return None
    from dpgt_node.learning.data.datasets import load_dataset
    from dpgt_node.learning.data.pictures.sets import IMAGE_SETS

    if text.lower().endswith(".npz") and ":" not in text:
        text = f"npz:{text}"
    if not text.startswith("npz:") and text not in IMAGE_SETS:
        message = f"must be an .npz file, or one of {', '.join(IMAGE_SETS)}, not {text!r}"
        raise ConfigError.one("command line", "--public", message)
    return load_dataset(text, common.data_root())
