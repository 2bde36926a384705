"""What several runs on one data set cost together: composed, beside the sum of their epsilons at the same total delta.

gdp: Gaussian runs.  zcdp: Laplace runs that no other accountant makes cheaper.  mixed: gdp, zcdp and pure runs in turn.
Every run costs the same epsilon by itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from dpgt_node.bench.figures import Around, Row, option
from dpgt_node.privacy.accountants.composition import Spent, add_up, as_written, tally
from dpgt_node.privacy.accountants.registry import APPROXIMATE, SOUND
from dpgt_node.values import dataclass

KINDS: Mapping[str, tuple[str, ...]] = {"gdp": ("gdp",), "zcdp": ("zcdp",), "mixed": ("gdp", "zcdp", "tight")}


@dataclass(frozen=True, slots=True)
class Settings:
    runs: tuple[int, ...] = option((2, 5, 20), "How many.", least=1)
    epsilon: tuple[float, ...] = option((0.1, 1.0), "Of each run.")
    delta: float = option(1e-5, "Of each run that is not pure.")


def figures(settings: Settings, around: Around) -> Iterator[Row]:
    for epsilon in settings.epsilon:
        for kind, names in KINDS.items():
            for count in settings.runs:
                chosen = [names[number % len(names)] for number in range(count)]
                spent = [Spent(name, {name: epsilon}, settings.delta) for name in chosen]
                found, plain = tally(spent, SOUND), add_up([epsilon] * count)
                delta = sum(as_written(settings.delta) for name in chosen if name in APPROXIMATE)
                dearer = found.epsilon > plain or found.delta > delta
                yield Row(
                    f"runs of epsilon {epsilon:g} each",
                    {
                        "kind": kind,
                        "runs": count,
                        "delta": float(found.delta),
                        "composed": found.epsilon,
                        "plain sum": plain,
                        "ratio": found.epsilon / plain,
                        "recipe": found.recipe,
                    },
                    "it costs more than the plain sum" if dearer else "",
                )
