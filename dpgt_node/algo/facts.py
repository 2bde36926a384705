"""What a run's graphs, steps and noise exponents are, before anything is judged: the inputs of every condition."""

from __future__ import annotations

import math

from dpgt_node.algo.graph import Topology
from dpgt_node.algo.schedule import Schedule
from dpgt_node.algo.spectrum import Spectrum, spectrum, stationary, weight_step_bound
from dpgt_node.config import model
from dpgt_node.types import F64
from dpgt_node.values import dataclass

RELEASES_APART = "the paper's theorems do not speak of rounds that release nothing"
ROBUST = (
    "the paper's theorems are of linear mixing: under [robust] they speak only of a run that clips and trims nothing"
)


@dataclass(frozen=True, slots=True, eq=False)
class Facts:
    """Lemma 1's quantities of one run, the model's constants, and the noise exponents per agent.

    ``v1``, ``v2``, ``r1``, ``r2`` and ``overlap`` = v1'v2 are None without spanning trees.  ``L1``: Lipschitz constant
    of Assumption 2(i); ``mu``: Polyak-Lojasiewicz constant of Assumption 3; None where unknown.  ``p_zeta``,
    ``p_eta``: exponents of the scheme's noise law, None when that noise is off; a constant scale is exponent 0 under S1
    and 1 under S2 (it does not depend on K), see ``noise_note``.
    """

    run: model.RunConfig
    topology: Topology
    schedule: Schedule
    D: tuple[int | None, ...]
    L1: float | None
    mu: float | None
    spectrum_L1: Spectrum
    spectrum_L2: Spectrum
    v1: F64 | None
    v2: F64 | None
    r1: float | None
    r2: float | None
    overlap: float | None
    rho_L1: float
    p_zeta: tuple[float, ...] | None
    p_eta: tuple[float, ...] | None
    noise_note: str

    @property
    def n(self) -> int:
        return self.topology.n

    @property
    def not_spoken_of(self) -> str | None:
        """Why the paper's theorems do not speak of such a run; None: they do, of the method's first mechanism."""
        return ROBUST if self.run.robust.on else RELEASES_APART if self.run.scheme.apart else None

    @property
    def bounded(self) -> bool:
        """Whether ``r1``, ``r2``, ``rho_L1`` and bounds by eigenvalues are themselves bounds, on the safe side."""
        return self.spectrum_L1.bounded or self.spectrum_L2.bounded

    @property
    def alpha_weight_bound(self) -> float:
        """min_i 1/r_i."""
        return weight_step_bound(self.topology.r)

    @property
    def beta_weight_bound(self) -> float:
        """min_i 1/c_i."""
        return weight_step_bound(self.topology.c)

    @property
    def alpha_spectral_bound(self) -> float:
        """min_{l>=2} Re(w_l) / (1 + |w_l|^2) over the eigenvalues of L1, or a lower bound on it."""
        return self.spectrum_L1.step_bound

    @property
    def beta_spectral_bound(self) -> float:
        """min_{l>=2} Re(w_l) / (1 + |w_l|^2) over the eigenvalues of L2, or a lower bound on it."""
        return self.spectrum_L2.step_bound

    @property
    def alpha_max(self) -> float:
        """Lemma 1's bound on alpha."""
        return min(self.alpha_weight_bound, self.alpha_spectral_bound)

    @property
    def beta_max(self) -> float:
        """Lemma 1's bound on beta."""
        return min(self.beta_weight_bound, self.beta_spectral_bound)


def gather(
    run: model.RunConfig,
    topology: Topology,
    schedule: Schedule,
    D: tuple[int | None, ...],
    L1: float | None,
    mu: float | None,
) -> Facts:
    """Evaluate everything that follows from the run file alone."""
    w1, w2 = spectrum(topology.in_R), spectrum(topology.in_C)
    v1, v2 = stationary(topology.in_R), stationary(topology.in_C)
    p_zeta, p_eta = exponents(schedule, "zeta"), exponents(schedule, "eta")
    return Facts(
        run=run,
        topology=topology,
        schedule=schedule,
        D=D,
        L1=L1,
        mu=mu,
        spectrum_L1=w1,
        spectrum_L2=w2,
        v1=v1,
        v2=v2,
        r1=None if v1 is None else w1.contraction(schedule.alpha),
        r2=None if v2 is None else w2.contraction(schedule.beta),
        overlap=None if v1 is None or v2 is None else math.fsum(v1 * v2),
        rho_L1=w1.radius,
        p_zeta=p_zeta,
        p_eta=p_eta,
        noise_note=_noise_note(schedule),
    )


def exponents(schedule: Schedule, which: str) -> tuple[float, ...] | None:
    """Noise exponents p of every agent, or None when that noise is off."""
    noise = schedule.zeta if which == "zeta" else schedule.eta
    if noise is None or not schedule.noisy:
        return None
    if noise.kind == "exponent":
        return noise.values
    return (0.0 if schedule.kind == "S1" else 1.0,) * len(noise.values)


def _noise_note(schedule: Schedule) -> str:
    if not schedule.noisy:
        return "the noise is off"
    notes = []
    if any(noise is not None and noise.kind == "constant" for noise in (schedule.zeta, schedule.eta)):
        law = "p = 0 in (k+1)^p" if schedule.kind == "S1" else "p = 1 in p^K: it does not fall as K grows"
        notes.append(f"a constant scale counts as {law}")
    if schedule.multiplier != 1.0:
        notes.append("noise.multiplier is a constant factor and does not change exponents")
    return "; ".join(notes)
