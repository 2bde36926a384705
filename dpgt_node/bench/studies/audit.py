"""What the audit measures of the release path, and what it catches.

Lower bounds of epsilon (95 %) at claims 1, 2, 4 for K = 0 and K = 2, each with the sound sampler and with one that
draws half the noise; then batches that are sampled; then the counterexample to Lemma 5; then, on request, real launches
at K = 0.  Half of the canary trials pick the test, half prove the bound: of a threshold, and of a guess.  Epsilon is
Laplace's, mu Gaussian's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

from dpgt_node.adversary.audit.report import Audit
from dpgt_node.agent.noise import sampler_for
from dpgt_node.bench.figures import Around, Row, Value, option
from dpgt_node.config import RunConfig, model, parse_run
from dpgt_node.experiments.canary_runs import Campaign, conduct
from dpgt_node.experiments.launches import Flips
from dpgt_node.experiments.launches import conduct as launch
from dpgt_node.experiments.trials import Test, lower_bound
from dpgt_node.experiments.witnesses import counterexample_audits
from dpgt_node.privacy.accountants.gaussian import gdp_mu
from dpgt_node.privacy.laws.noise import ByteStream, Sampler
from dpgt_node.types import F64, NoiseLaw
from dpgt_node.values import dataclass

BETA = 0.3
WIDTH = 1000
TESTS: tuple[Test, ...] = ("threshold", "guess")
CELLS: tuple[tuple[str, NoiseLaw, int], ...] = (
    ("noise-once", "laplace", 0), ("noise-once", "laplace", 2), ("public-state", "laplace", 2),
    ("published-point", "laplace", 2), ("noise-once", "gaussian", 2), ("public-state", "gaussian", 2),
)  # fmt: skip
LAUNCH_SAMPLES = 100
LAUNCH = """
name = "audit"
[algorithm]
mechanism = "{mechanism}"
iterations = {K}
[scheme]
kind = "S2"
alpha = 0.1
beta = 0.1
gamma = 0.01
p_m = 1.0
samples = {samples}
[noise]
scale_zeta = {scale}
scale_eta = {scale}
[graph]
agents = 2
R = [[0, 1], [1, 0.5]]
C = [[0.5, 1], [1, 0]]
[data]
dataset = "zeros"
dimension = 3
[privacy]
clip_l1 = 1.0
"""


@dataclass(frozen=True, slots=True)
class Settings:
    runs: int = option(10_000, "Canary trials in each world.", least=4)
    jobs: int = option(1, "Processes.", least=1)
    launches: int = option(0, "Real launches besides.", least=0)
    claim: tuple[float, ...] = option((1.0, 2.0, 4.0), "What is claimed.")
    width: int = option(WIDTH, "Coordinates, and samples of the agent.", least=1)


def figures(settings: Settings, around: Around) -> Iterator[Row]:
    for mechanism, law, K in CELLS:
        for claimed in settings.claim:
            cells: dict[str, Value] = {"mechanism": mechanism, "law": law, "K": K, "claim": claimed}
            for name, half in (("sound", False), ("half the noise", True)):
                found = bounds(mechanism, law, claimed, K, half, settings)
                cells |= {f"{name}: {test}": bound for test, bound in zip(TESTS, found, strict=True)}
                cells[f"{name}: says"] = "REFUTED" if max(found) > claimed else "not refuted"
            yield Row(f"lower bounds, {settings.runs} canary trials a world", cells)
    yield from _sampled(settings)
    yield from _audits("the counterexample to Lemma 5", counterexample_audits())
    if settings.launches:
        with around.temporary() as folder:
            flips = Flips.of(launch_run("noise-once", 0, 0.02), 0, None, folder)
            trials = flips.kept()
            n = launch(flips, trials, settings.launches)
            yield from _audits(f"{settings.launches} real launches", [flips.judge(trials, n)])


def _audits(table: str, audits: list[Audit]) -> Iterator[Row]:
    for audit in audits:
        for claim in audit.claims:
            yield Row(
                table,
                {
                    "agent": audit.agent,
                    "accountant": claim.accountant,
                    "claim": claim.claimed,
                    "measured": claim.realised,
                    "says": claim.verdict,
                },
            )


def _sampled(settings: Settings) -> Iterator[Row]:
    """m = D/10 at K = 0: the claim is ``amplified``; a fifth of the runs, because each holds one canary only."""
    n = max(4, settings.runs // 5)
    samplers: dict[str, Callable[[RunConfig], Sampler]] = {"sound": sampler_for, "half the noise": HalfNoise}
    for name, sampler in samplers.items():
        run = audited_run("noise-once", "laplace", 0, 0.068965, m=10)
        campaign = Campaign.of(run, 0, dimension=10, samples=100, sampler=sampler)
        trials = campaign.kept_in(None)
        conduct(campaign, trials, n, jobs=settings.jobs)
        found = [lower_bound("amplified", *trials.worlds(n), delta=0.0, test=test)[0] for test in TESTS]
        cells: dict[str, Value] = {"sampler": name, "amplified": claim(campaign, "amplified")}
        yield Row(
            f"m = D/10, {n} canary trials a world",
            cells | dict(zip(TESTS, found, strict=True)),
        )


def bounds(mechanism: str, law: NoiseLaw, claimed: float, K: int, half: bool, settings: Settings) -> list[float]:
    """Both tests' lower bounds."""
    stacked = True if K and mechanism != "noise-once" else None
    campaign = calibrated(mechanism, law, claimed, K, half=half, stacked=stacked, width=settings.width)
    trials = campaign.kept_in(None)
    conduct(campaign, trials, settings.runs, jobs=settings.jobs)
    accountant, delta = ("tight" if law == "laplace" else "gdp"), campaign.run.privacy.delta
    worlds = trials.worlds(settings.runs)
    return [lower_bound(accountant, *worlds, delta=delta, test=test)[1].value for test in TESTS]


# ---------------------------------------------------------------- what is audited
class HalfNoise:
    """The planted bug: draws at half the scale that is charged."""

    clipped = 0

    def __init__(self, run: RunConfig) -> None:
        self.sampler = sampler_for(run)

    def perturb(self, private: F64, scale: float, stream: ByteStream) -> F64:
        """``private`` with half the noise."""
        return self.sampler.perturb(private, scale / 2, stream)

    def lam(self, dimension: int, scale: float, norm: float | None = None) -> float:
        """The sound sampler's."""
        return self.sampler.lam(dimension, scale, norm)

    def range(self, scale: float) -> float:
        """The sound sampler's."""
        return self.sampler.range(scale)


def audited_run(
    mechanism: str, law: NoiseLaw, K: int, scale: float, m: int | Literal["full"] = "full", *, width: int = WIDTH
) -> RunConfig:
    """One agent alone, with a clip of 1 in the law's norm."""
    loop, noise = ((1.0,),), model.NoiseStream("constant", (scale,))
    return RunConfig(
        name="audit",
        algorithm=model.Algorithm(iterations=K, mechanism=mechanism),
        scheme=model.SchemeS2(alpha=0.1, beta=BETA, gamma=0.1, p_m=1.0, samples=m),
        noise=model.Noise(noise, noise, law=law),
        graph=model.Graph(("agent-1",), loop, loop),
        data=model.Data("zeros", params={"dimension": width}),
        privacy=model.Privacy(clip_l1=1.0) if law == "laplace" else model.Privacy(clip_l2=1.0),
    )


def claim(campaign: Campaign, accountant: str) -> float:
    """epsilon, or the mu whose (epsilon, delta) ``gdp`` prints."""
    total = campaign.account().total(accountant)
    assert total is not None, "the accountant applies"
    return gdp_mu(total, campaign.run.privacy.delta) if accountant == "gdp" else total


def calibrated(
    mechanism: str,
    law: NoiseLaw,
    target: float,
    K: int,
    *,
    half: bool = False,
    stacked: bool | None = None,
    width: int = WIDTH,
    test_keystream: str | None = "00",
) -> Campaign:
    """A campaign whose ``tight``, or mu, is ``target``."""
    accountant = "tight" if law == "laplace" else "gdp"

    def at(scale: float, sampler: Callable[[RunConfig], Sampler]) -> Campaign:
        return Campaign.of(
            audited_run(mechanism, law, K, scale, width=width),
            0,
            dimension=width,
            samples=width,
            stacked=stacked,
            test_keystream=test_keystream,
            sampler=sampler,
        )

    scale = claim(at(1.0, sampler_for), accountant) / target
    return at(scale, HalfNoise if half else sampler_for)


def launch_text(mechanism: str, K: int, scale: float) -> str:
    """A run file of two agents whose labels a launch can tell."""
    return LAUNCH.format(mechanism=mechanism, K=K, scale=scale, samples=LAUNCH_SAMPLES)


def launch_run(mechanism: str, K: int, scale: float) -> RunConfig:
    return parse_run(launch_text(mechanism, K, scale), "run.toml", Path.cwd())
