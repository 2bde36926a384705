"""``dpgt plan``: a run file that meets a stated epsilon."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dpgt_node.cli import common
from dpgt_node.config import RunConfig, load_run, resolved_dataset, to_toml
from dpgt_node.config.vocabulary import ACCOUNTANTS, TOYS
from dpgt_node.errors import ConfigError, ExitCode

if TYPE_CHECKING:
    from dpgt_node.learning.data.datasets import Dataset
    from dpgt_node.report.pareto import Point
    from dpgt_node.sim.planning import Plan, Planner
    from dpgt_node.sim.rehearsal import Shape
    from dpgt_node.sim.staying import Ground

FACTORS = (0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
"""Epsilons of the Pareto curve, as parts of the one asked for."""
_PARETO_REHEARSALS = 12
_WIDTH = 116


@click.command()
@common.run_argument
@click.option("--epsilon", type=float, required=True, help="What every agent's whole transcript may cost.")
@click.option("--delta", type=float, help="0: a pure guarantee.  [default: the run file's privacy.delta]")
@click.option("--accountant", help=f"{', '.join(ACCOUNTANTS.built)}.  [default: the tightest sound one]")
@click.option("--mechanism", help="[default: noise-once]")
@click.option(
    "--shape",
    "shape_text",
    metavar="P,CLASSES,D",
    help="Numbers a sample, classes, samples an agent: where the data are not on this machine.",
)
@click.option(
    "--public",
    metavar="npz:PATH|NAME",
    help="Public data to try candidates on instead of synthetic ones, a file or a picture set that was fetched (mnist, "
    "...); never the agents' own.",
)
@common.alike_option
@click.option("--tune-clip", is_flag=True, help="A clip smaller than the run file's may be taken where it helps.")
@click.option("--keep-steps", is_flag=True, help="Keep K, alpha, beta and gamma of the run file; fill in the rest.")
@click.option(
    "--pareto",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Also write accuracy against epsilon there: pareto.csv, pareto.svg.",
)
def plan(
    run_file: Path,
    epsilon: float,
    delta: float | None,
    accountant: str | None,
    mechanism: str | None,
    shape_text: str | None,
    public: str | None,
    alike: str | None,
    tune_clip: bool,
    keep_steps: bool,
    pareto: Path | None,
) -> ExitCode:
    """Fill in mechanism, noise, K, m and step sizes of RUN.toml so that every agent keeps to EPSILON.

    The new run file goes to standard output, with reasons as comments.  Of the agents' data only the shape is used, and
    how alike you say they are: candidates are tried on synthetic data.  The plan says where staying alone is expected
    to be better.  Takes about a minute.
    """
    from dpgt_node.accounts.planner import Target
    from dpgt_node.sim.alike import Alike
    from dpgt_node.sim.planning import Planner
    from dpgt_node.sim.staying import Ground

    run = load_run(run_file)
    target = Target(epsilon, delta, accountant, mechanism)
    shape = find_shape(run, str(run_file), shape_text)
    data, how = _public(public), Alike.of(run) if alike is None else Alike.stated(alike)
    planner = Planner(
        run,
        shape,
        data,
        alike=how,
        tune_clip=tune_clip,
        progress=lambda line: click.echo(f"dpgt plan: {line}", err=True),
    )
    if keep_steps and (tune_clip or pareto is not None):
        raise ConfigError.one("command line", "--keep-steps", "leaves nothing to search for --tune-clip and --pareto")
    found = planner.plan(target, keep_steps=keep_steps)
    ground = Ground(run, shape, how, data) if run.model.name == "softmax" else None
    staying = None if ground is None else ground.compare(found.run)
    if pareto is not None:
        from dpgt_node.report.pareto import write_pareto

        points = trade_off(planner, found, ground)
        written = write_pareto(pareto, points, _stand_in(public))
        click.echo(f"dpgt plan: wrote {' and '.join(map(str, written))}", err=True)
    said = "" if staying is None else staying.words(_stand_in(public))
    click.echo(render(found, _stand_in(public), _looked_at(shape, public), shape.samples, said), nl=False)
    if found.useless:
        click.echo(f"dpgt plan: warning: {_useless(found)}", err=True)
    if staying is not None and staying.better:
        click.echo(f"dpgt plan: warning: {said}", err=True)
    return ExitCode.DONE


def find_shape(run: RunConfig, source: str, text: str | None) -> Shape:
    """What is known of the agents' data; ConfigError where it is not known."""
    from dpgt_node.learning.data.shards import run_dataset
    from dpgt_node.learning.oracle import data_is_here, sample_counts
    from dpgt_node.sim.rehearsal import Shape

    if run.data.dataset in TOYS:
        raise ConfigError.one(
            source, "data.dataset", f"'{run.data.dataset}' has no samples, so there is nothing to protect and to plan"
        )
    if text is not None:
        try:
            p, classes, D = (int(part) for part in text.split(","))
        except ValueError:
            p = classes = D = 0
        if min(p, D) < 1 or classes < 2:
            raise ConfigError.one(
                "command line", "--shape", f"must be P,CLASSES,D (integers, as in 784,10,12000), not {text!r}"
            )
        return Shape(p, classes, (D,) * run.n)
    root = common.data_root()
    if not data_is_here(run, root):
        message = f"{resolved_dataset(run)} is not on this machine; give the shape of the data: --shape P,CLASSES,D"
        raise ConfigError.one(source, "data.dataset", message)
    data = run_dataset(run, root)
    return Shape(data.x_train.shape[1], data.classes, tuple(D for D in sample_counts(run, root) if D is not None))


def trade_off(planner: Planner, found: Plan, ground: Ground | None) -> list[Point]:
    """A plan for each of the epsilons around the one asked for; those that are impossible are left out.

    Accuracies are of ``ground``, beside staying alone there; without it of the plan's own rehearsals.
    """
    from dataclasses import replace

    from dpgt_node.report.pareto import Point

    points = []
    for factor in FACTORS:
        other = found
        if factor != 1.0:
            target = replace(found.target, epsilon=factor * found.target.epsilon)
            try:
                other = planner.plan(target, _PARETO_REHEARSALS, keep_steps=found.kept)
            except ConfigError as error:
                click.echo(f"dpgt plan: left out: {error}", err=True)
                continue
        c, way, eta = other.candidate, other.route, other.run.noise.eta
        outcome = other.outcome if ground is None else ground.compare(other.run).exchange
        assert eta is not None
        points.append(
            Point(
                epsilon=other.target.epsilon,
                accountant=way.accountant,
                delta=way.delta,
                mechanism=way.mechanism,
                law=way.law,
                K=c.K,
                alpha=c.alpha,
                beta=c.beta,
                gamma=c.gamma,
                scale_eta=max(eta.values),
                accuracy_predicted=None if math.isnan(c.predicted) else c.predicted,
                accuracy_mean=outcome.mean,
                accuracy_worst=outcome.worst,
                accuracy_alone=None if ground is None else ground.alone,
            )
        )
    return points


def render(found: Plan, stand_in: str, looked_at: str, samples: Sequence[int], staying: str = "") -> str:
    """The plan as a run file: TOML with the reasons as comments.

    ``looked_at``: which real data chose it; ``samples``: D of each agent.  ``staying``: what agents are expected to
    reach alone, if anybody knows.
    """
    text = to_toml(found.run)
    for section, reasons in _reasons(found, stand_in).items():
        lines = "".join(f"# {line}\n" for line in _wrapped(reasons))
        text = text.replace(f"\n[{section}]\n", f"\n{lines}[{section}]\n", 1)
    return "".join(f"# {line}".rstrip() + "\n" for line in _head(found, stand_in, looked_at, samples, staying)) + text


def _head(found: Plan, stand_in: str, looked_at: str, samples: Sequence[int], staying: str) -> list[str]:
    from dpgt_node.accounts.planner import why_adjacency
    from dpgt_node.privacy.accountants.registry import ACCOUNTANTS as VALUES
    from dpgt_node.privacy.strength import delta_warning, strength
    from dpgt_node.report.text import judged

    def label(name: str) -> str:
        one = VALUES[name]
        return name if one.sound else one.label

    way, outcome = found.route, found.outcome
    delta = f", delta = {way.delta:g}" if way.delta else ""
    names = found.run.graph.agents
    speaking = [name for name in VALUES if any(v is not None for v in found.epsilon[name])]
    wide = max(map(len, names))
    privacy = found.run.privacy

    def cell(name: str, i: int) -> str:
        value = found.epsilon[name][i]
        word = strength(name, value, privacy.delta, samples=samples[i], enforced=privacy.enforced)
        return f"{label(name)} {judged(value, word)}"

    most = strength(way.accountant, found.target.epsilon, way.delta, samples=max(samples), enforced=privacy.enforced)
    warning = delta_warning(way.delta, max(samples)) if way.delta else None
    lines = [
        f"dpgt plan: every agent's whole transcript costs at most epsilon = {found.target.epsilon:g} "
        f"({label(way.accountant)}{delta}): {most}",
        *_wrapped([f"WARNING: {warning}"] if warning is not None else []),
        *_wrapped(
            [
                why_adjacency(found.run, way.pure),
                "Predicted epsilon of k = 0..K, by agent, and what the same noise reads elsewhere:",
            ]
        ),
    ]
    for i, name in enumerate(names):
        values = "   ".join(cell(key, i) for key in speaking)
        lines.append(f"  {name:<{wide}}  {values}")
    guess = "" if math.isnan(found.candidate.predicted) else f" (predictor: {found.candidate.predicted:.3f})"
    return [
        *lines,
        *_wrapped(
            [
                f"Test accuracy of x_K+1 on {stand_in}: worst agent {outcome.worst:.3f}, mean {outcome.mean:.3f}"
                f"{guess}. Real data may be easier or harder. "
                f"{looked_at}"
            ]
        ),
        *_wrapped([staying] if staying else []),
        *_wrapped([f"WARNING: {_useless(found)}"] if found.useless else []),
        "",
    ]


def _useless(found: Plan) -> str:
    return (
        f"at epsilon = {found.target.epsilon:g} the noise leaves nothing to learn: the forecast accuracy, "
        f"{found.outcome.mean:.3f}, is that of guessing ({found.chance:.3f}). Take a larger epsilon, more samples an "
        "agent, or fewer features"
    )


def _reasons(found: Plan, stand_in: str) -> dict[str, list[str]]:
    way, c = found.route, found.candidate
    part = c.gamma / found.one_step
    reasons = {
        "algorithm": [
            f"mechanism {way.reasons[0]}",
            f"K = {c.K}, alpha, beta and gamma: as asked for, with --keep-steps"
            if found.kept
            else f"K = {c.K}, alpha, beta and gamma: the best of {found.considered} candidates by the predictor, then "
            f"of {found.rehearsed} rehearsed on {stand_in}",
        ],
        "scheme": [
            *(
                []
                if found.kept
                else ["alpha, beta: fast mixing against the noise that mixing feeds through this graph"]
            ),
            f"gamma: {part:.2g} of the step that solves the steepest direction in one round; gamma K says how far the "
            "run gets, and noise grows with it",
            'samples "full": the shift of a mean over m is C/m; sampling fewer never gains as much as it loses',
        ],
        "noise": [
            way.reasons[1],
            "scales: the least at which no agent exceeds epsilon",
        ],
    }
    if c.clip < 1.0:
        reasons["privacy"] = [
            f"clip: {c.clip:.2g} of the run file's: less noise for a bias that rehearsals say is worth it"
        ]
    if found.run.evaluate.metrics == "study":
        reasons["evaluate"] = ['metrics = "study": the coordinator sees every x_i,k: that is outside the guarantee']
    return reasons


def _wrapped(paragraphs: Iterable[str]) -> list[str]:
    return [line for text in paragraphs for line in textwrap.wrap(text, _WIDTH, subsequent_indent="  ")]


def _stand_in(public: str | None) -> str:
    return "synthetic data of the same shape" if public is None else "the public data given"


def _looked_at(shape: Shape, public: str | None) -> str:
    """Choosing by looking is a release too: the plan says what it looked at."""
    if public is not None:
        return "The plan looked at the public data and at the shape of the agents' data."
    from dpgt_node.learning.data.synthetic import calibrated_on

    return (
        "The plan looked at the shape of the agents' data alone. But the synthetic data were made to be as hard as "
        f"{calibrated_on(shape.p)}: where an agent holds some of those, epsilon does not cover that choice."
    )


def _public(text: str | None) -> Dataset | None:
    if text is None:
        return None
    from dpgt_node.learning.data.datasets import load_dataset
    from dpgt_node.learning.data.images import IMAGE_SETS

    if not text.startswith("npz:") and text not in IMAGE_SETS:
        message = f"must be npz:PATH, or one of {', '.join(IMAGE_SETS)}, not {text!r}"
        raise ConfigError.one("command line", "--public", message)
    return load_dataset(text, common.data_root())
