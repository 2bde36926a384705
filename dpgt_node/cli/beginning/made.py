"""What ``dpgt init`` says at its end: what was written, what comes of it on the rows here, and what to type next."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpgt_node.cli.beginning.draft import FROM_TABLE
from dpgt_node.cli.beginning.rendering import useless
from dpgt_node.cli.plan import expected_json
from dpgt_node.cli.wrapping import command, wrapped
from dpgt_node.privacy.strength import delta_warning
from dpgt_node.record.epsilons import releases
from dpgt_node.values import dataclass

if TYPE_CHECKING:
    from dpgt_node.cli.beginning.draft import Draft
    from dpgt_node.sim.own_rows import OwnRows
    from dpgt_node.sim.plans.choosing import Choice
    from dpgt_node.sim.plans.rehearsal import Shape

_ALONE = "Staying alone is expected to be better: it costs no privacy."
_FOR_YOU = (
    "These figures of your rows are for this screen alone: nothing was chosen by them, they are not in what was "
    "written, and no epsilon covers what you decide by them."
)


@dataclass(frozen=True, slots=True)
class Made:
    """``target``: what was written.  ``rows``: tried on the rows here, None where that could not be.  ``steps``: what
    to do next; commands begin with "dpgt".
    """

    target: Path
    chosen: Choice
    shape: Shape
    rows: OwnRows | None
    draft: Draft
    steps: tuple[str, ...]

    @property
    def learns(self) -> bool:
        """Whether it does on the rows here; where they were not tried, whether it is expected to."""
        return not self.chosen.useless if self.rows is None else self.rows.learns

    @property
    def bounds(self) -> bool:
        """Whether bounds of columns are what is missing first."""
        return not self.learns and self.draft.uneven is not None


def again(made: Made, given: Mapping[str, Sequence[object]], *, owners: bool) -> list[str]:
    """What to do first where nothing learns: the same command with the remedy, for ``steps``.

    ``given``: the values of every option, None: it has none.
    """
    found, options = made.chosen.plan, dict(given)
    epsilon = found.target.epsilon
    if made.bounds:
        options["--bounds"] = (*options["--bounds"], FROM_TABLE)
        why = "Next, since nothing learns: bounds for the columns. Where their ranges in this table are public:"
    else:
        epsilon = float(f"{2.0 * max(found.begins or 0.0, epsilon):.2g}")
        why = "Next, since nothing learns: a larger epsilon, if the owners of the data can bear it, or more rows:"
    return [why, asked_again(made, options, epsilon, owners=owners), "What was written, all the same:"]


def asked_again(made: Made, given: Mapping[str, Sequence[object]], epsilon: float, *, owners: bool) -> str:
    """The command with options ``given``, ``epsilon``, and a file to write that is not there."""
    (out,) = free(str(made.target.with_stem(f"{made.target.stem}-again")))
    options = {**given, "--epsilon": (epsilon,), "--out": (out,)}
    words = [
        f"{option} {shlex.quote(f'{one:g}' if isinstance(one, float) else str(one))}"
        for option, values in options.items()
        for one in values
        if one is not None
    ]
    words += ["--owners"] * owners
    return f"dpgt init {' '.join(words)}"


def free(*names: str) -> list[str]:
    """Names of which nothing is there: as they are, or all with the same number behind them, before a suffix."""
    paths, number = [Path(name) for name in names], 1
    while any(path.exists() for path in paths):
        number += 1
        paths = [Path(name).with_stem(f"{Path(name).stem}-{number}") for name in names]
    return [str(path) for path in paths]


def said(made: Made) -> list[str]:
    """For people, in 80 columns."""
    found, samples = made.chosen.plan, made.shape.samples
    delta = f" (delta {found.route.delta:g})" if found.route.delta else ""
    each = f"{min(samples):,} samples each" if len(set(samples)) == 1 else f"{min(samples):,} samples or more each"
    cost = f"epsilon {found.target.epsilon:g}{delta}"
    count = releases(found.run, found.run.K)
    head = f"{made.target}: {found.run.n} agents, {each}, {cost}, {found.run.K + 1} rounds, {count} releases each"
    steps = (command(step) if step.startswith("dpgt ") else wrapped(step) for step in made.steps)
    void = delta_warning(found.route.delta, max(samples))
    lines = [head, *([] if void is None else [f"WARNING: {void}."]), *_forecast(made)]
    return [part for line in lines for part in wrapped(line)] + [part for one in steps for part in one]


def _forecast(made: Made) -> Iterator[str]:
    staying, rows = made.chosen.staying, made.rows
    unseen = f"WARNING: {useless(made.chosen, made.shape.samples)}." if made.chosen.useless else made.chosen.expected
    if rows is None:
        yield unseen
        if staying is not None and not made.chosen.useless:
            yield f"Alone, at epsilon 0: about {100 * staying.alone:.0f} %. Real data may be easier or harder."
        if staying is not None and staying.better:
            yield f"WARNING: {_ALONE}"
        yield "It was not tried on the rows here: they have no test rows, or are too many to be quick."
        return
    draws = len(rows.together)
    if rows.learns:
        yield (
            f"Tried on the rows here with {draws} draws of the noise, the worst agent's test accuracy is "
            f"{_percent(rows.expected)}, and in nine of ten draws {_percent(rows.mostly)} or more. Alone, without "
            f"exchange and noise, the worst agent reaches {_percent(rows.alone)}; naming the largest class is right "
            f"in {_percent(rows.guessing)}. {rows.tested:,} test rows."
        )
    else:
        remedy = "A larger epsilon, more samples or more agents help."
        if made.bounds:
            remedy = "Columns differ in size and have no bounds: state these first, little else helps before that."
        yield (
            f"WARNING: nothing learns on the rows here: {_percent(rows.expected)}, the median of {draws} draws of the "
            f"noise, where naming the largest class is right in {_percent(rows.guessing)} and the worst agent alone in "
            f"{_percent(rows.alone)}. {remedy}"
        )
    for name, together, alone in rows.own:
        yield f"  {name} on its own test rows: {_percent(together)} together, {_percent(alone)} alone."
    if rows.better_alone:
        yield f"WARNING: {_ALONE}"
    yield _FOR_YOU
    yield f"Without a look at any row the forecast, which the file states, is: {unseen.removeprefix('WARNING: ')}"
    if staying is not None and staying.better != rows.better_alone:
        yield (
            f"There, on {staying.stand_in}, {'staying alone' if staying.better else 'the run'} is better: "
            f"{_percent(staying.alone)} alone, {_percent(staying.exchange.worst)} together. On your rows it is the "
            "other way round; for these rows believe the figures above."
        )


def _percent(part: float) -> str:
    return f"{100 * part:.1f} %"


def to_json(made: Made) -> dict[str, Any]:
    """For scripts."""
    found, rows = made.chosen.plan, made.rows
    ready = " ".join(f"--bounds {shlex.quote(one)}" for one in made.draft.ready)
    tried = None
    if rows is not None:
        tried = {
            "draws": len(rows.together),
            "accuracy_worst": rows.expected,
            "accuracy_nine_of_ten": rows.mostly,
            "alone": rows.alone,
            "guessing": rows.guessing,
            "tested": rows.tested,
            "learns": rows.learns,
            "alone_is_better": rows.better_alone,
            "own": [{"name": name, "together": both, "alone": alone} for name, both, alone in rows.own],
        }
    return {
        "written": str(made.target),
        "agents": [
            {"name": name, "samples": D} for name, D in zip(found.run.graph.agents, made.shape.samples, strict=True)
        ],
        "epsilon": found.target.epsilon,
        "delta": found.route.delta,
        "rounds": found.run.K + 1,
        "expected": expected_json(made.chosen),
        "rows_here": tried,
        "hints": [*made.draft.hints, *([f"this table's ranges, rounded outwards: {ready}"] if ready else [])],
        "next": [step for step in made.steps if step.startswith("dpgt ")],
    }
