"""A plan as a run file: TOML with the reasons as comments."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from dpgt_node import figures
from dpgt_node.cli.wrapping import WIDTH
from dpgt_node.config import to_toml

if TYPE_CHECKING:
    from dpgt_node.sim.plans.choosing import Choice
    from dpgt_node.sim.plans.everyround import Found
    from dpgt_node.sim.plans.planning import Plan
    from dpgt_node.sim.plans.rehearsal import Shape
    from dpgt_node.sim.plans.releasing import Drawn

_WIDTH = WIDTH - len("# ")
_BELOW = (
    "Guessing always says the most frequent class; a model that noise alone has moved says any, and is right less often"
)


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
        *_wrapped(
            [
                f"dpgt plan: every agent's whole transcript costs at most epsilon = {found.target.epsilon:g} "
                f"({label(way.accountant)}{delta}){_towards(found)}: {most}"
            ]
        ),
        *_wrapped([f"WARNING: {warning}"] if warning is not None else []),
        *_wrapped(
            [
                why_adjacency(found.run, way.pure),
                "Predicted epsilon of k = 0..K, by agent, and what the same noise reads elsewhere:",
            ]
        ),
    ]
    for i, name in enumerate(names):
        cells = [cell(key, i).replace(" ", "\u00a0") for key in speaking]  # a value and its word stay together
        found_lines = textwrap.wrap(
            "   ".join(cells),
            _WIDTH,
            initial_indent=f"  {name:<{wide}}  ",
            subsequent_indent=" " * (wide + 4),
            drop_whitespace=True,
        )
        lines += [line.replace("\u00a0", " ") for line in found_lines]
    costs = {name: {key: found.epsilon[key][i] for key in found.epsilon} for i, name in enumerate(names)}
    whom = towards_whom(found.run, costs, dict(zip(names, samples, strict=True)))
    forecast = staying.words if staying is not None else _forecast(found, stand_in)
    return [
        *lines,
        *([] if whom is None else ["", *towards_lines(whom, names), ""]),
        *_wrapped([f"WARNING: {useless(chosen, samples)}" if chosen.useless else chosen.expected]),
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


def useless(chosen: Choice, samples: Sequence[int]) -> str:
    """That nothing learns, since when something would, and why figures beside it may be worse than guessing."""
    found, staying = chosen.plan, chosen.staying
    worst = (found.outcome if staying is None else staying.exchange).worst
    below = "" if worst >= found.chance else f". {_BELOW}"
    begins = None if found.begins is None else figures.number(found.begins, 2)
    start = "" if begins is None else f"; from about epsilon = {begins} on it would learn"
    return (
        f"nothing learns at epsilon = {found.target.epsilon:g} from {min(samples):,} samples an agent: expect guessing "
        f"({100 * found.chance:.1f} %){start}. More samples an agent, more agents or fewer features help too{below}"
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
    if found.run.model.temperature is not None:
        reasons["model"] = [
            f"temperature: chances of the exported model are worth most with it on {stand_in}; it changes no class, "
            "and costs nothing: no row of the agents was looked at"
        ]
    if (every := found.run.runtime.barrier_every) > 1:
        reasons["runtime"] = [
            f"barrier_every: agents go through up to {every} rounds, about a second, before they wait for the "
            "coordinator; a pause waits as long, and no result depends on it"
        ]
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
        f"gamma: {figures.number(c.gamma / found.one_step, 2)} of the step that solves the steepest direction in one "
        "round; gamma K says how far the run gets, and noise grows with it"
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
