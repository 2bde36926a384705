"""What the audit measures of the release path, and what it catches.

    python -m tests.bench.audit [--runs 10000] [--jobs 2] [--launches 100]

Lower bounds of epsilon (95 %) at claims 1, 2, 4 for K = 0 and K = 2, each with the sound sampler and with one that
draws half the noise; then the counterexample; then, on request, real launches at K = 0.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from dpgt_node.adversary.audit.report import to_text
from dpgt_node.agent.noise import sampler_for
from dpgt_node.experiments.canary_runs import conduct
from dpgt_node.experiments.launches import Flips
from dpgt_node.experiments.launches import conduct as launch
from dpgt_node.experiments.trials import lower_bound
from dpgt_node.experiments.witnesses import counterexample_audits
from tests.experiments.test_canary_runs import HalfNoise, calibrated, campaign_of
from tests.experiments.test_canary_runs import claim as claim_of
from tests.experiments.test_launches import run_of

CELLS = (
    ("noise-once", "laplace", 0), ("noise-once", "laplace", 2), ("public-state", "laplace", 2),
    ("published-point", "laplace", 2), ("noise-once", "gaussian", 2), ("public-state", "gaussian", 2),
)  # fmt: skip


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=10_000, help="in each world")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--launches", type=int, default=0)
    options = parser.parse_args()
    print(f"{options.runs} canary trials a world, half to test; threshold / guess; epsilon (Laplace) or mu (Gaussian)")
    print(f"{'mechanism':16} {'law':9} K  {'claim':>5}  {'sound sampler':>15}  half the noise")
    for mechanism, law, K in CELLS:
        for claim in (1.0, 2.0, 4.0):
            found = [bounds(mechanism, law, K, claim, half, options) for half in (False, True)]
            print(f"{mechanism:16} {law:9} {K}  {claim:5.0f}  {found[0]:>15}  {found[1]}", flush=True)
    sampled(options)
    print("\n" + to_text(counterexample_audits()))
    if options.launches:
        with tempfile.TemporaryDirectory() as folder:
            flips = Flips.of(run_of("noise-once", 0, 0.02), 0, None, Path(folder))
            trials = flips.kept()
            n = launch(flips, trials, options.launches, lambda done: print(f"\rlaunch {done}", end="", file=sys.stderr))
            print("\n" + to_text([flips.judge(trials, n)]))


def sampled(options: argparse.Namespace) -> None:
    """m = D/10 at K = 0: the claim is `amplified`; a fifth of the runs, because each holds one canary only."""
    n = options.runs // 5
    for sampler in (sampler_for, HalfNoise):
        campaign = campaign_of(
            "noise-once", "laplace", 0, 0.068965, m=10, samples=100, dimension=10, test_keystream=None, sampler=sampler
        )
        trials = campaign.kept_in(None)
        conduct(campaign, trials, n, jobs=options.jobs)
        values = [
            lower_bound("amplified", *trials.worlds(n), delta=0.0, test=test)[0] for test in ("threshold", "guess")
        ]
        print(
            f"m = D/10, {sampler.__name__}, {n} canary trials a world: "
            f"amplified {claim_of(campaign, 'amplified'):.3f}, measured {values[0]:.2f} / {values[1]:.2f}"
        )


def bounds(mechanism: str, law: str, K: int, claim: float, half: bool, options: argparse.Namespace) -> str:
    """Both tests' lower bounds; REFUTED where one is above the claim."""
    stacked = True if K and mechanism != "noise-once" else None
    campaign = calibrated(mechanism, law, claim, K, half=half, stacked=stacked)
    trials = campaign.kept_in(None)
    conduct(campaign, trials, options.runs, jobs=options.jobs)
    accountant, delta = ("tight" if law == "laplace" else "gdp"), campaign.run.privacy.delta
    worlds = trials.worlds(options.runs)
    values = [lower_bound(accountant, *worlds, delta=delta, test=test)[1].value for test in ("threshold", "guess")]
    return f"{values[0]:.2f} / {values[1]:.2f}" + (" REFUTED" if max(values) > claim else "")


if __name__ == "__main__":
    main()
