"""The seam for attacks: a typed observation in, a result with its prediction out.

An attack is one file: a value with a ``name``, a ``needs`` and a ``run``, handed to :func:`run_attack` (Python) or
named ``module:attribute`` on the command line (``dpgt eavesdrop attack TRANSCRIPT --attack my_attack:attack``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Literal, Protocol

import numpy as np
import numpy.typing as npt

from dpgt_node.adversary.inference.observation import Observation
from dpgt_node.errors import ConfigError
from dpgt_node.record.truth import Truth
from dpgt_node.values import dataclass

if TYPE_CHECKING:
    from dpgt_node.adversary.membership.shadows import Shadows


class NotApplicable(ConfigError):
    """An attack that has nothing to say about a run: an error where it was asked for, one line where all were."""


Verdict = Literal["succeeds", "fails", "partly", "clean", "no power", "not measured"]
"""``succeeds``: the secret came out.  ``fails``: it did not, though the attack had what it needs.  ``clean``: a check
that found nothing wrong.  ``no power``: the attack could not have told, whatever the truth (never "private").
``not measured``: no ground truth was given.
"""


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of a result: of one agent, or of the run (``agent`` empty).

    ``measured`` and ``predicted`` have the same keys where theory predicts something; None: not applicable.  ``true``:
    what is so, where the run file tells and the adversary was to find it out.  Units are in the keys (``psnr_db``,
    ``relative_error``, ``cosine``, ``auc``).
    """

    agent: str
    verdict: Verdict
    measured: Mapping[str, float | None]
    predicted: Mapping[str, float | None] = field(default_factory=dict)
    note: str = ""
    true: Mapping[str, float | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Result:
    """What an attack found.  ``vantage`` and ``missing`` say what it worked on (:class:`Observation`).

    ``pictures``: rows of grey or colour pictures for the report, float in [0, 1], by caption, shape (count, height,
    width) or (count, height, width, 3).  ``curves``: (x, y) series by caption.
    """

    attack: str
    summary: str
    findings: tuple[Finding, ...]
    vantage: str = ""
    missing: str = ""
    pictures: Mapping[str, npt.NDArray[np.float64]] = field(default_factory=dict, repr=False)
    curves: Mapping[str, tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]] = field(
        default_factory=dict, repr=False
    )


@dataclass(frozen=True, slots=True)
class Options:
    """``agents``: those attacked (empty: all).  ``rounds``: only these (empty: all).  ``seed``: of the attack's own
    randomness.  ``extra``: an attack's own settings, KEY=VALUE on the command line.  ``shadows``: runs whose members
    the adversary chose.
    """

    agents: tuple[str, ...] = ()
    rounds: tuple[int, ...] = ()
    seed: int = 0
    extra: Mapping[str, str] = field(default_factory=dict)
    shadows: Shadows | None = field(default=None, repr=False)


class Attack(Protocol):
    """``needs``: words of "truth" (refused without a study file), "torch" (refused without the extra), "shadows"
    (refused without shadow runs), "capture" (works on captures, not on transcripts).  ``settings``, optional: keys of
    ``Options.extra`` that it reads, a line each.
    """

    @property
    def name(self) -> str:
        """One word or words-with-hyphens, as on the command line."""
        ...

    @property
    def needs(self) -> frozenset[str]:
        """What it cannot do without."""
        ...

    def run(self, observation: Observation, truth: Truth | None, options: Options) -> Result:
        """Attack.  ``truth`` is used for nothing but ``measured``."""
        ...
