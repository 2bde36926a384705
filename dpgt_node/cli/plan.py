"""``dpgt plan``: a run file that meets a stated epsilon."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dpgt_node.cli import common
from dpgt_node.cli.shape import find_shape
from dpgt_node.config import SchemeS2, load_run, to_toml
from dpgt_node.config.vocabulary import ACCOUNTANTS
from dpgt_node.errors import ConfigError, ExitCode

if TYPE_CHECKING:
    from dpgt_node.learning.data.datasets import Dataset
    from dpgt_node.report.pareto import Point
    from dpgt_node.sim.plans.choosing import Choice
    from dpgt_node.sim.plans.everyround import Found
    from dpgt_node.sim.plans.planning import Plan
    from dpgt_node.sim.plans.rehearsal import Shape
    from dpgt_node.sim.plans.releasing import Drawn

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
) -> ExitCode:
    """Choose mechanism, noise, releases, clip, steps and features of RUN.toml so that every agent keeps to EPSILON.

    The new run file goes to standard output, with reasons as comments.  Of the agents' data only the shape is used, and
    how alike you say they are: candidates are tried on synthetic data.  The plan says which accuracy it expects, where
    learning begins, and where staying alone is expected to be better.  Takes about a minute.
    """
    from dpgt_node.accounts.planner import Target
    from dpgt_node.sim.plans.alike import Alike
    from dpgt_node.sim.plans.choosing import Input, choose, inputs
    from dpgt_node.sim.plans.staying import PUBLIC

    run = load_run(run_file)
    target = Target(epsilon, delta, accountant, mechanism, towards=towards)
    shape = find_shape(run, str(run_file), shape_text)
    data, how = _public(public), Alike.of(run) if alike is None else Alike.stated(alike)
    if keep_steps and pareto is not None:
        raise ConfigError.one("command line", "--keep-steps", "leaves nothing to search for --pareto")
    chosen = choose(
        run,
        shape,
        target,
        (Input.of(run),) if keep_features or keep_clip or keep_steps else inputs(run, shape),
        data,
        alike=how,
        keep_clip=keep_clip,
        keep_steps=keep_steps,
        progress=lambda line: click.echo(f"dpgt plan: {line}", err=True),
    )
    what = shape.stand_in if public is None else PUBLIC
    if pareto is not None:
        from dpgt_node.report.pareto import write_pareto

        written = write_pareto(pareto, trade_off(chosen), what)
        click.echo(f"dpgt plan: wrote {' and '.join(map(str, written))}", err=True)
    click.echo(render(chosen, what, looked_at(shape, public), shape.samples), nl=False)
    found, staying = chosen.plan, chosen.staying
    if found.useless:
        click.echo(f"dpgt plan: warning: {useless(found, shape.samples)}", err=True)
    else:
        click.echo(f"dpgt plan: {chosen.expected}", err=True)
    if staying is not None and staying.better:
        click.echo(f"dpgt plan: warning: {staying.words}", err=True)
    return ExitCode.DONE


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
                click.echo(f"dpgt plan: left out: {error}", err=True)
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


def render(chosen: Choice, stand_in: str, looked_at: str, samples: Sequence[int], data: Sequence[str] = ()) -> str:
    """The plan as a run file: TOML with the reasons as comments.

    ``looked_at``: which real data chose it; ``samples``: D of each agent.  ``data``: reasons for what stands in [data].
    """
    found = chosen.plan
    text = to_toml(found.run)
    reasons_data = [*data, *([] if chosen.why_input is None else [chosen.why_input])]
    for section, reasons in {**_reasons(found, stand_in), "data": reasons_data}.items():
        lines = "".join(f"# {line}\n" for line in _wrapped(reasons))
        text = text.replace(f"\n[{section}]\n", f"\n{lines}[{section}]\n", 1)
    return "".join(f"# {line}".rstrip() + "\n" for line in _head(chosen, stand_in, looked_at, samples)) + text


def _head(chosen: Choice, stand_in: str, looked_at: str, samples: Sequence[int]) -> list[str]:
    from dpgt_node.accounts.planner import why_adjacency
    from dpgt_node.accounts.towards import towards_whom
    from dpgt_node.cli.checking.full import towards_lines
    from dpgt_node.privacy.accountants.registry import ACCOUNTANTS as VALUES
    from dpgt_node.privacy.strength import delta_warning, strength
    from dpgt_node.report.text import judged

    def label(name: str) -> str:
        one = VALUES[name]
        return name if one.sound else one.label

    found, staying = chosen.plan, chosen.staying
    way = found.route
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
        f"({label(way.accountant)}{delta}){_towards(found)}: {most}",
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
    costs = {name: {key: found.epsilon[key][i] for key in found.epsilon} for i, name in enumerate(names)}
    whom = towards_whom(found.run, costs, dict(zip(names, samples, strict=True)))
    forecast = staying.words if staying is not None else _forecast(found, stand_in)
    return [
        *lines,
        *([] if whom is None else ["", *towards_lines(whom, names), ""]),
        *_wrapped([f"WARNING: {useless(found, samples)}" if found.useless else chosen.expected]),
        *_wrapped([f"{forecast} Real data may be easier or harder. {looked_at}"]),
        "",
    ]


def _forecast(found: Plan, stand_in: str) -> str:
    """Of another model than softmax, whose own accuracy nobody can rehearse without data."""
    outcome = found.outcome
    return (
        f"{found.run.model.name} is not rehearsed: its steps and noise are those for softmax, whose test accuracy on "
        f"{stand_in} is {outcome.worst:.3f} (worst agent). Try the steps on public data."
    )


def _towards(found: Plan) -> str:
    """Whom the epsilon of the headline counts towards, where that is not everybody else."""
    if found.run.noise.cancel is None:
        return ""
    return f" towards any {found.target.colluding(found.run.n)} of the others together"


def useless(found: Plan, samples: Sequence[int]) -> str:
    start = "" if found.starts_at is None else f"; from about epsilon = {found.starts_at:.2g} on it would learn"
    return (
        f"nothing learns at epsilon = {found.target.epsilon:g} from {min(samples):,} samples an agent: expect guessing "
        f"({100 * found.chance:.1f} %){start}. More samples an agent, more agents or fewer features help too"
    )


def _reasons(found: Plan, stand_in: str) -> dict[str, list[str]]:
    from dpgt_node.sim.plans.releasing import Drawn

    way = found.route
    reasons = {
        "algorithm": [f"mechanism {way.reasons[0]}"],
        "scheme": [],
        "noise": [way.reasons[1], "scales: the least at which no agent exceeds epsilon"],
        "privacy": [],
    }
    if isinstance(found.found, Drawn):
        _drawn_reasons(reasons, found, found.found, stand_in)
    else:
        _searched_reasons(reasons, found, found.found, stand_in)
    reasons["scheme"].append(
        'samples "full": the shift of a mean over m is C/m; sampling fewer never gains as much as it loses'
    )
    if found.run.evaluate.metrics == "study":
        reasons["evaluate"] = ['metrics = "study": the coordinator sees every x_i,k: that is outside the guarantee']
    return {section: texts for section, texts in reasons.items() if texts}


def _drawn_reasons(reasons: dict[str, list[str]], found: Plan, drawn: Drawn, stand_in: str) -> None:
    recipe, mixing, r = drawn.sketch.recipe, drawn.sketch.mixing, drawn.sketch.r
    reasons["algorithm"].append(
        f"K: {recipe.releases} releases, then rounds that settle: what else is sent costs nothing. The best of "
        f"{drawn.recipes} recipes, each tried at one holder of {stand_in}, then of {drawn.rehearsed} runs rehearsed"
    )
    reasons["scheme"] += [
        "alpha, beta: the fastest mixing of this graph within the bounds of Lemma 1",
        f"release_every, settle: rounds for agents to agree in, {mixing.every} from each release to the next and "
        f"{mixing.settle} at the end; more gained nothing",
    ]
    if recipe.sums is not None:
        reasons["scheme"].append(
            f"first: features summed by class, with {recipe.sums.part:.2g} of the budget, and "
            f"{recipe.gradients} gradients after it; that few releases are the better ones here"
        )
        reasons["noise"].append("by_release: of the class sums, then of the gradients")
        reasons["privacy"].append("by_release: of the features in the class sums, then of the gradients")
    if r is not None:
        reasons["noise"].append(
            f"cancel: every two agents share noise of {r} times their own scale, with opposite signs: it hides both "
            "and leaves the sum. Each release must survive a power cut: launch with --durability power"
        )
    elif found.target.shares(found.run.n):
        why = "gains nothing under pure epsilon" if found.route.pure else "gained nothing noticeable"
        reasons["noise"].append(f"own noise: noise that pairs share {why}, so this epsilon is towards all others")
    if not found.kept_clip:
        reasons["privacy"].append(f"clip: chosen with the releases on {stand_in}")


def _searched_reasons(reasons: dict[str, list[str]], found: Plan, searched: Found, stand_in: str) -> None:
    c = searched.candidate
    reasons["algorithm"].append(
        f"K = {c.K}, alpha, beta and gamma: as asked for, with --keep-steps"
        if found.kept
        else f"K = {c.K}, alpha, beta and gamma: the best of {searched.considered} candidates by the predictor, then "
        f"of {searched.rehearsed} rehearsed on {stand_in}"
    )
    if not found.kept:
        reasons["scheme"].append("alpha, beta: fast mixing against the noise that mixing feeds through this graph")
    reasons["scheme"].append(
        f"gamma: {c.gamma / found.one_step:.2g} of the step that solves the steepest direction in one round; gamma K "
        "says how far the run gets, and noise grows with it"
    )
    if not found.kept_clip:
        reasons["privacy"].append(f"clip: chosen with the steps on {stand_in}")


def _wrapped(paragraphs: Iterable[str]) -> list[str]:
    return [line for text in paragraphs for line in textwrap.wrap(text, _WIDTH, subsequent_indent="  ")]


def looked_at(shape: Shape, public: str | None) -> str:
    """Choosing by looking is a release too: the plan says what it looked at."""
    if public is not None:
        return "The plan looked at the public data and at the shape of the agents' data."
    if shape.tabular:
        return "The plan looked at the shape of the data alone."
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

    if text.lower().endswith(".npz") and ":" not in text:
        text = f"npz:{text}"
    if not text.startswith("npz:") and text not in IMAGE_SETS:
        message = f"must be an .npz file, or one of {', '.join(IMAGE_SETS)}, not {text!r}"
        raise ConfigError.one("command line", "--public", message)
    return load_dataset(text, common.data_root())
