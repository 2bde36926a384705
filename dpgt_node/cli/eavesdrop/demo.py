"""The demo's eavesdropper: what a tap has of its run over mTLS, and of one-sample gradients in the clear, with the
noise and without.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from rich.console import Console
from rich.text import Text

from dpgt_node.cli import common
from dpgt_node.cli.running.ended import say

if TYPE_CHECKING:
    from dpgt_node.adversary.attack import Finding, Result
    from dpgt_node.config import RunConfig
    from dpgt_node.runtime.launch.places import Places
    from dpgt_node.types import F64

FOLDER = "eavesdrop"
PICTURE = "eavesdropper.png"
DIGITS = "digits.npz"
SAID = (
    "Five agents with one digit each send their first round in the clear. Without noise the digit comes out of one "
    "message; with the noise that protects one sample as much as it does in the run above, it does not."
)
ROUNDS = 2
"""K of the short runs: round 0 is attacked."""

log = logging.getLogger(__name__)


@contextlib.asynccontextmanager
async def watched(run: RunConfig, out: Path) -> AsyncIterator[Places]:
    """Places for the demo's run behind a tap.  What befalls the tap's file is logged, and nothing of the run's."""
    from dpgt_node.adversary.taps.errors import CaptureError
    from dpgt_node.cli.eavesdrop.tapped_launch import tapped

    (out / FOLDER).mkdir(exist_ok=True)
    try:
        async with tapped(run, out / FOLDER / "run.pcap") as places:
            yield places
    except CaptureError as error:
        log.warning("%s", error)


def eavesdropped(run: RunConfig, out: Path, console: Console) -> None:
    """Attack the finished demo in ``out``, say what came out, and put it into its report.

    The run is over and stays as it is whatever happens here: what fails is one line.
    """
    from dpgt_node.adversary.attack import Result
    from dpgt_node.adversary.results import save
    from dpgt_node.report.html import build_report
    from dpgt_node.report.pictures import png_grid

    folder = out / FOLDER
    console.print(Text("What an eavesdropper has of it (--no-eavesdrop skips this)", style="bold"))
    try:
        traffic = _traffic(run, folder / "run.pcap")
        _say(console, "this run, over mTLS", traffic.summary)
        _write_digits(run, folder / DIGITS)
        found = {noise: _in_the_clear(one_sample(run, folder / DIGITS, noise), folder) for noise in (False, True)}
        _say(console, "five agents with one digit each, in the clear, without noise", _outcome(found[False]))
        _say(console, "the same with noise for one sample's protection in the run above", _outcome(found[True]))
        rows = _rows(found[False][-1], found[True][-1])
        (out / PICTURE).write_bytes(png_grid(rows))
        head = Result("five digits on the wire", SAID, (), found[True][0].vantage, pictures=rows)
        named = [
            replace(result, attack=f"{result.attack}, in the clear {'with' if noise else 'without'} noise", pictures={})
            for noise, results in found.items()
            for result in results
        ]
        save(out / "adversary", [head, replace(traffic, attack="traffic, this run over mTLS"), *named])
        build_report(out)
    except Exception as error:  # the run is over, whatever fails here
        say(console, f"The eavesdropper gave up: {error}", "red")
    else:
        say(console, f"The digits, true and recovered: {out / PICTURE}, and in the report")


def one_sample(run: RunConfig, digits: Path, noise: bool) -> RunConfig:
    """The demo's run in the clear, with one digit an agent, and the demo's protection of that digit or none.

    The noise covers a change of C/m of a gradient; at m = 1 that takes m times as much of it.
    """
    from dpgt_node.algo.schedule import Schedule
    from dpgt_node.config import Adversary, Data
    from dpgt_node.learning.oracle import sample_counts

    m = Schedule.from_config(run).m_for(min(count for count in sample_counts(run) if count is not None))
    return replace(
        run,
        name=f"{'with' if noise else 'without'}-noise",
        algorithm=replace(run.algorithm, iterations=ROUNDS),
        scheme=replace(run.scheme, samples=1),
        noise=replace(run.noise, multiplier=run.noise.multiplier * m if noise else 0.0),
        data=Data(f"npz:{digits.resolve()}", partition="contiguous", params={"classes": 10}),
        model=replace(run.model, init_seed=None),
        runtime=replace(run.runtime, channel="plain"),
        adversary=Adversary(truth=True),
    )


def _write_digits(run: RunConfig, path: Path) -> None:
    """One digit an agent: the first of its share."""
    from dpgt_node.learning.oracle import build_oracle

    oracles, first = [build_oracle(run, i) for i in range(run.n)], np.zeros(1, dtype=np.int64)
    x, y = np.concatenate([o.inputs(first) for o in oracles]), np.concatenate([o.labels(first) for o in oracles])
    np.savez(path, x_train=x, y_train=y, x_test=np.zeros((0, x.shape[1])), y_test=np.zeros(0, dtype=np.int64))


def _traffic(run: RunConfig, capture: Path) -> Result:
    from dpgt_node.adversary.decode.traffic import analyse

    return analyse([capture], run)


def _in_the_clear(run: RunConfig, folder: Path) -> list[Result]:
    """Run, capture, decode and attack one short run: gradients first, pictures last."""
    from dpgt_node.adversary.attack import NotApplicable, Options
    from dpgt_node.adversary.attacks.gradients import attack as gradients
    from dpgt_node.adversary.attacks.inversion import inversion
    from dpgt_node.adversary.attacks.labels import attack as labels
    from dpgt_node.adversary.decode.decoder import Decoder, decode
    from dpgt_node.adversary.decode.packets import Capture, open_capture
    from dpgt_node.adversary.inference.observation import Observation
    from dpgt_node.cli.eavesdrop.tapped_launch import tapped
    from dpgt_node.record.truth import find_truth
    from dpgt_node.runtime.launch.together import run_together

    capture, transcript, place = folder / f"{run.name}.pcap", folder / f"{run.name}.transcript", folder / run.name

    async def main() -> None:
        async with tapped(run, capture) as places:
            await run_together(run, place, places, common.data_root())

    with _quiet():
        common.run_async(main())
    with open_capture(capture) as stream:
        decode([Capture(stream, str(capture))], Decoder(transcript, senders=frozenset(run.graph.agents)))
    observation = Observation.load([transcript], run)
    truth = find_truth(place, run.graph.agents, observation.run_id)
    options = Options(
        rounds=(0,), extra={"fuse": "no", **({} if (root := common.data_root()) is None else {"data": str(root)})}
    )
    results = [gradients.run(observation, truth, options)]
    with contextlib.suppress(NotApplicable):  # a model without a bias has no gradient of it to read labels from
        results.append(labels.run(observation, truth, options))
    return [*results, inversion.run(observation, truth, options)]


def _rows(without: Result, with_noise: Result) -> dict[str, F64]:
    """Every agent's digit: true, recovered without noise, recovered with noise."""
    rows = {}
    for caption, result, which in (
        ("what the agents hold", without, "true"),
        ("recovered from the wire, without noise", without, "recovered"),
        ("recovered from the wire, with noise", with_noise, "recovered"),
    ):
        rows[caption] = np.concatenate([p for name, p in result.pictures.items() if name.endswith(f": {which}")])
    return rows


def _outcome(results: Sequence[Result]) -> str:
    """``5 of 5 digits recovered (PSNR 300 dB), 5 of 5 labels right, cosine of gradients 1.00``.

    Labels are those of the attack that got most of them right.
    """
    gradients, inversion = results[0].findings, results[-1].findings
    cosine, psnr = _measured(gradients, "B_cosine"), _measured(inversion, "psnr_db")
    every = [one for result in results for one in result.findings]
    labels = max(sum(_measured(inversion, "label_accuracy")), sum(_measured(every, "labels_right")))
    alike = round(float(np.mean(cosine)), 2) + 0.0  # -0.0 + 0.0 is 0.0
    seen = sum(one.verdict == "succeeds" for one in inversion)
    return (
        f"{seen} of {len(inversion)} digits recovered (PSNR {np.mean(psnr):.0f} dB), {labels:.0f} of "
        f"{len(inversion)} labels right, cosine of gradients {alike:.2f}"
    )


def _measured(findings: Sequence[Finding], key: str) -> list[float]:
    return [value for one in findings if (value := one.measured.get(key)) is not None]


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Daemons in this process warn of what a study means to do."""
    logger = logging.getLogger("dpgt_node")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)


def _say(console: Console, what: str, found: str) -> None:
    say(console, f"  {what}: {found}")
