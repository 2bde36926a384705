"""[robust]: how an agent bounds what any one of its in-neighbours can do to it.

The keys alone; ``algo.methods.robust`` has the equations, and which method takes which of them.
"""

from __future__ import annotations

from typing import Annotated, Literal

from dpgt_node.config.declare.keys import Key, When
from dpgt_node.config.declare.kinds import Choice, Integer, Number
from dpgt_node.config.declare.reader import Section
from dpgt_node.config.vocabulary import MAX_AGENTS
from dpgt_node.values import dataclass

Rule = Literal["none", "clipped-gossip", "self-clip", "trimmed-mean"]
TrackerRule = Literal["none", "norm-clip", "clipped-gossip"]
RULES: Choice[Rule] = Choice(
    ("none", "clipped-gossip", "self-clip", "trimmed-mean"),
    title="Robust mixing",
    texts=(
        "every vector counts as it came in",
        "each in-neighbour's x is clipped to a ball of L2 radius `radius` around the agent's own released x",
        "the same with a radius of its own in every round: the distance of the in-neighbour that `outliers` others "
        "exceed",
        "in every coordinate the `outliers` largest and smallest of the in-neighbours' values are left out, and the "
        "others get their weight",
    ),
)
TRACKER_RULES: Choice[TrackerRule] = Choice(
    ("none", "norm-clip", "clipped-gossip"),
    title="Robust tracking",
    texts=(
        "every vector counts as it came in",
        "a received y whose L2 norm exceeds `tracker_radius` is scaled down to it; what is cut off is missing from the "
        "sum of all y for ever",
        "as for x, around the agent's own released y; for symmetric C only, where the sum of all y stays what it is",
    ),
)
_COUNTED = When("rule", ("self-clip", "trimmed-mean"), text='rule = "self-clip" or "trimmed-mean" only')


@dataclass(frozen=True, slots=True)
class Robust:
    """``radius``, ``tracker_radius``: L2.  ``outliers``: b, how many in-neighbours of an agent may attack it."""

    rule: Annotated[Rule, Key("how an agent mixes the x that it receives", RULES, later=True)] = "none"
    radius: Annotated[
        float | None,
        Key(
            "L2 distance from the agent's own released x beyond which a received one is clipped",
            Number(above=0.0),
            only=When("rule", ("clipped-gossip",), text='rule = "clipped-gossip" only'),
            required=True,
        ),
    ] = None
    outliers: Annotated[
        int | None,
        Key(
            "b: how many in-neighbours of any agent may attack it; every agent that receives x has more than b of "
            "them (self-clip) or more than 2 b (trimmed-mean)",
            Integer(1, MAX_AGENTS),
            only=_COUNTED,
            required=True,
        ),
    ] = None
    tracker: Annotated[TrackerRule, Key("how an agent mixes the y that it receives", TRACKER_RULES, later=True)] = (
        "none"
    )
    tracker_radius: Annotated[
        float | None,
        Key(
            "L2, of norm-clip around 0 and of clipped-gossip around the agent's own released y",
            Number(above=0.0),
            only=When("tracker", ("norm-clip", "clipped-gossip"), text="where y is clipped"),
            required=True,
        ),
    ] = None

    @property
    def on(self) -> bool:
        """Whether anything is bounded."""
        return self.rule != "none" or self.tracker != "none"


PLAIN = Robust()


def check_robust(section: Section, robust: Robust, *, cancels: bool) -> None:
    """Report what does not go together.  ``cancels``: [noise] cancel is given."""
    if cancels and robust.on:
        section.problem(
            "", "noise.cancel hides each agent in noise that only a plain sum takes out again: no robust mixing with it"
        )
