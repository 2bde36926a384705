"""Noise that pairs of agents share and that cancels in their sum: [noise] cancel, and who shares with whom."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dpgt_node.config.declare.keys import Key
from dpgt_node.config.declare.kinds import Integer, Schema
from dpgt_node.config.declare.reader import Section, bad_word, show
from dpgt_node.config.vocabulary import MAX_AGENTS, MAX_ITERATIONS
from dpgt_node.privacy.cancelling.lattice import charge
from dpgt_node.privacy.cancelling.masks import MaskGraph
from dpgt_node.privacy.laws.gaussian_grid import CELLS
from dpgt_node.privacy.laws.registry import LAWS, admitting
from dpgt_node.privacy.mechanisms import MECHANISMS
from dpgt_node.values import dataclass

if TYPE_CHECKING:
    from dpgt_node.config.model import Algorithm, Noise, RunConfig

Pairs = tuple[tuple[int, int], ...]
_DIMENSION_MAX: Final = 1 << 40
_SHAPES: Final = {"complete": MaskGraph.complete, "ring": MaskGraph.ring}


@dataclass(frozen=True, slots=True)
class Masks:
    """A word, or a list of pairs of agent numbers.  Whether there are such agents is not known here."""

    @property
    def placeholder(self) -> str:
        return "complete"

    def read(self, section: Section, key: str, value: object) -> str | Pairs:
        if isinstance(value, str):
            if value not in _SHAPES:
                section.problem(key, bad_word(value, tuple(_SHAPES)))
            return value
        if not isinstance(value, list) or not value:
            section.problem(key, f'must be "complete", "ring" or a list of pairs of agents, not {show(value)}')
            return self.placeholder
        pairs = []
        for index, pair in enumerate(value):
            ends = pair if isinstance(pair, list) and len(pair) == 2 else []
            numbers = [v for v in ends if isinstance(v, int) and not isinstance(v, bool) and 1 <= v <= MAX_AGENTS]
            if len(numbers) != 2:
                section.problem(f"{key}[{index}]", f"must be two agent numbers, such as [1, 2], not {show(pair)}")
            else:
                pairs.append((numbers[0], numbers[1]))
        return tuple(pairs) if len(pairs) == len(value) else self.placeholder

    def schema(self) -> Schema:
        number = Integer(1, MAX_AGENTS).schema()
        pair = {"type": "array", "items": number, "minItems": 2, "maxItems": 2, "uniqueItems": True}
        return {"anyOf": [{"enum": list(_SHAPES)}, {"type": "array", "items": pair, "minItems": 1}]}

    def words(self) -> str:
        return '"complete", "ring", or a list of pairs of agent numbers'


CANCEL: Final = Key(
    "r: each pair of mask_graph shares noise of r times their own scale, with opposite signs: it hides both from "
    "others and leaves the sum; noise-once with Gaussian noise only",
    Integer(1, CELLS),
    absent="every agent's noise is its own",
)
MASK_GRAPH: Final = Key("who shares noise with whom, whatever R and C are", Masks(), absent='"complete"')


def masks(run: RunConfig) -> MaskGraph | None:
    """Who shares noise with whom in ``run``; None where nobody does."""
    return None if run.noise.cancel is None else _graph(run.noise.mask_graph, run.n)


def _graph(given: str | Pairs | None, n: int) -> MaskGraph:
    """ValueError where it is none."""
    if given is None or isinstance(given, str):
        return _SHAPES[given or "complete"](n)
    return MaskGraph.of(n, ((i - 1, j - 1) for i, j in given))


def check_cancelling(section: Section, noise: Noise, algorithm: Algorithm, n: int) -> None:
    """Report what of [noise] and [algorithm] does not fit noise that cancels; ``n`` 0: how many agents is not known."""
    r = noise.cancel
    if r is None:
        if noise.mask_graph is not None:
            section.problem("mask_graph", "says who shares noise, but nobody does: cancel is not given")
        return
    mechanism, law = MECHANISMS[algorithm.mechanism], LAWS[noise.law]
    if not mechanism.accounted.once:
        fitting = ", ".join(name for name, one in MECHANISMS.items() if one.accounted.once)
        section.problem(
            "cancel",
            f'mechanism "{mechanism.name}" puts noise on states, of which a sender keeps a part without it: what is '
            f"shared would not cancel; it does under {fitting}",
        )
    if "mu" not in law.admits:
        laws = ", ".join(one.name for one in admitting("mu"))
        section.problem("cancel", f"{law.label} noise gains nothing from what is shared; it needs law = {laws}")
    if noise.multiplier == 0.0:
        section.problem("cancel", "multiplier = 0.0 leaves an agent no noise of its own: no guarantee, whatever r")
    if noise.eta is not None and len(set(noise.eta.values)) > 1:
        key = "scale_eta" if noise.eta.kind == "constant" else "p_eta"
        section.problem(key, "must be one for all agents: grids of different width do not let shared noise cancel")
    if n and section.ok("mask_graph"):
        try:
            graph = _graph(noise.mask_graph, n)
        except ValueError as error:
            section.problem("mask_graph", str(error))
            return
        try:
            charge(_DIMENSION_MAX, MAX_ITERATIONS + 1, r, graph.stiffness, len(graph.edges))
        except ValueError as error:
            section.problem("cancel", str(error))
