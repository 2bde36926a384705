"""Is the noise a weak generator's?  x_0 is public, so x̆_0 shows the first noise vector exactly: try to recover it.

Candidates: numpy's Mersenne Twister and PCG64, Python's ``random``, torch; seeds 0 .. 2^bits - 1, seconds around the
first message, the run file's own seeds and what people type; also the test keystream of short secrets.  Noise made of
them as libraries do, by inverse CDF of 64-bit words, or by our own grid sampler from their bytes: there the cell index
gives six bits of every word away.  A match means that every noise value of the run is known, and with it every
private vector.

Only ``paper`` and ``published-point`` release a noisy x̆_0.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any, ClassVar

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from dpgt_node.adversary.attack import Finding, Options, Result
from dpgt_node.adversary.attacks.common import between, result, setting, targets, whole
from dpgt_node.adversary.inference import estimators as es
from dpgt_node.adversary.inference.observation import Observation
from dpgt_node.config import RunConfig
from dpgt_node.privacy.laws import grid
from dpgt_node.privacy.laws.laplace import LAPLACE
from dpgt_node.record.truth import Truth
from dpgt_node.types import F64, I64
from dpgt_node.values import dataclass

Cells = I64
_HEAD = 8  # values compared before all of them are
_CHUNK = 1024  # seeds at a time
_MOST_BITS = 24  # more seeds neither fit in memory nor end in a day
_LATEST, _LONGEST = 1 << 40, 1_000_000  # seconds
_GRID_CHUNK = 1 << 15  # coordinates whose words come first in the grid sampler's stream
_TYPED = (
    *(0, 1, 2, 7, 12, 13, 42, 69, 99, 100, 111, 123, 256, 314, 420, 512, 666, 777, 999, 1000, 1024, 1111, 1234, 1337),
    *(2023, 2024, 2025, 2026, 4321, 9999, 12345, 31337, 65535, 123456, 314159, 1234567, 12345678, 123456789, 987654321),
    *(0xC0FFEE, 0xDEADBEEF, 0xBADC0DE, 2**31 - 1, 2**32 - 1),
)
_SECRETS = ("00", "01", "ff", "00ff", "0000", "1234", "5eed", "abcd", "c0ffee", "cafe", "beef", "deadbeef", "00112233")


class _Generator:
    name: ClassVar[str] = "generator"
    needs: ClassVar[frozenset[str]] = frozenset()
    settings: ClassVar[Mapping[str, str]] = {
        "bits": f"seeds 0 .. 2^BITS - 1 (default 12, at most {_MOST_BITS})",
        "around": "seconds since 1970 around which clock seeds are tried (default: the first message)",
        "window": "how many seconds before and after (default 900)",
        "secret": "one more secret of a test keystream to try, in hex",
    }

    def run(self, observation: Observation, truth: Truth | None, options: Options) -> Result:
        """One finding an agent: which generator and seed, or how many were tried."""
        whole(observation, self.name)
        run = observation.facts.run
        wanted = targets(observation, options)
        shown = {i: noise for i in wanted if (noise := _first_noise(es.view(observation, i, 0))) is not None}
        seeds = candidate_seeds(
            run,
            bits=setting(options, "bits", 12, between(1, _MOST_BITS)),
            around=setting(options, "around", observation.time_ns // 10**9, between(1, _LATEST)),
            window=setting(options, "window", 900, between(1, _LONGEST)),
        )
        secrets = [*_SECRETS, *setting(options, "secret", list[str](), _hex)]
        tried, found = _search(shown, seeds, secrets, _offsets(observation)) if shown else (0, {})
        findings = [_finding(observation.facts.names[i], shown.get(i), found.get(i), tried) for i in wanted]
        if found:
            text = f"the generator of {len(found)} agents was recovered: all of their noise is known"
        elif shown:
            text = f"no weak generator among {tried:,} candidates"
        else:
            text = "no release shows a noise vector: nothing to recover a generator from"
        return result(self.name, text, findings, observation)


@dataclass(frozen=True, slots=True)
class Noise:
    """zeta_0 of one agent in units of its scale, (d,); its cells where it lies on the sampler's grid."""

    unit: F64 = field(repr=False)
    cells: Cells | None = field(repr=False)
    tolerance: float


@dataclass(frozen=True, slots=True)
class Match:
    """``share`` of all coordinates that the generator gives."""

    generator: str
    seed: str
    share: float


def _first_noise(v: es.View) -> Noise | None:
    if v.mechanism.x_public or v.scale_x[0] == 0.0 or np.isnan(v.x0).any() or np.isnan(v.x[0]).any():
        return None
    zeta = v.x[0] - v.x0
    cells = None
    if v.law is LAPLACE:
        cell = v.law.cell(float(v.scale_x[0]))
        index = np.floor(zeta / cell)
        if np.abs(zeta / cell - index - 0.5).max() < 1e-3:
            cells = index.astype(np.int64)
    return Noise(zeta / v.scale_x[0], cells, 1e-9 if v.rounding <= 2.0**-53 else 1e-5)


def candidate_seeds(run: RunConfig, *, bits: int, around: int, window: int) -> list[int]:
    """Each seed once: the run file's own and near ones, typed ones, the clock, then 0 .. 2^bits - 1."""
    own = {run.data.seed, *(() if run.model.init_seed is None else (run.model.init_seed,))}
    near = {seed + shift for seed in own for shift in range(run.n + 2)}
    named = {
        int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big") for name in (run.name, *run.graph.agents)
    }
    clock = range(max(0, around - window), around + window + 1) if around else range(0)
    return list(dict.fromkeys([*sorted(near | named), *_TYPED, *clock, *range(1 << bits)]))


def _hex(text: str) -> list[str]:
    try:
        bytes.fromhex(text)
    except ValueError:
        raise ValueError(f"{text!r} is not hexadecimal: two digits a byte") from None
    return [text]


def _offsets(observation: Observation) -> tuple[int, ...]:
    """Bytes that a generator shared with the batches may have given before the noise: none, or one drawn batch."""
    m = observation.facts.schedule.m
    return (0,) if m is None else (0, 8 * (m + m // 4 + 4))


Make = Callable[[int], Callable[[int], bytes]]


def byte_sources() -> dict[str, Make]:
    """Seed to a function that gives the next bytes."""
    return {
        "numpy.random.default_rng(seed).bytes": lambda seed: np.random.default_rng(seed).bytes,
        "numpy.random.RandomState(seed).bytes": lambda seed: np.random.RandomState(seed % 2**32).bytes,
        "random.Random(seed).randbytes": lambda seed: random.Random(seed).randbytes,
    }


def float_sources() -> dict[str, Callable[[int, int], F64]]:
    """(seed, count) to noise of scale 1 as a library makes it."""
    return {
        "numpy.random.default_rng(seed).laplace": lambda seed, n: np.random.default_rng(seed).laplace(size=n),
        "numpy.random.RandomState(seed).laplace": lambda seed, n: np.random.RandomState(seed % 2**32).laplace(size=n),
        "random.Random(seed), inverse CDF": _python_laplace,
        **_torch_source(),
    }


def _python_laplace(seed: int, count: int) -> F64:
    draw = random.Random(seed).random
    u = np.array([draw() for _ in range(count)]) - 0.5
    return np.asarray(-np.sign(u) * np.log1p(-2.0 * np.abs(u)))


def _torch_source() -> dict[str, Callable[[int, int], F64]]:
    try:
        import torch
    except ImportError:
        return {}

    def draw(seed: int, count: int) -> F64:
        made = torch.Generator().manual_seed(seed)
        u = torch.empty(count).uniform_(torch.finfo(torch.float32).eps - 1.0, 1.0, generator=made)
        return np.asarray((-u.sign() * torch.log1p(-u.abs())).double().numpy())

    return {"torch.manual_seed(seed), Laplace": draw}


def inverse_cdf(data: bytes) -> F64:
    """64-bit words to noise of scale 1: the top 53 bits its size, the lowest its sign."""
    w = np.frombuffer(data, dtype="<u8")
    size = -np.log(((w >> np.uint64(11)).astype(np.float64) + 1.0) * 2.0**-53)
    return np.where(w & np.uint64(1), size, -size)


def low_cells(data: bytes) -> Cells:
    """What our sampler makes of 64-bit words: the place of each |noise| in its block of 64 cells."""
    w = np.frombuffer(data, dtype="<u8")
    return np.asarray(np.searchsorted(grid.TABLES.edges, (w >> np.uint64(40)).astype(np.int64), side="right") - 1)


@dataclass(frozen=True, slots=True)
class _Source:
    """A generator with candidate seeds: ``draw(seed, count)`` gives noise of scale 1, or ``words(seed, nbytes)`` bytes.

    ``label`` as it is reported; ``coarse``: single precision.
    """

    label: str
    seeds: Sequence[int] | Sequence[str]
    draw: Callable[[Any, int], F64] | None = None
    words: Callable[[Any, int], bytes] | None = None
    offsets: tuple[int, ...] = (0,)
    coarse: bool = False


def _sources(seeds: list[int], secrets: list[str], offsets: tuple[int, ...], agents: Sequence[int]) -> list[_Source]:
    keys = [_Source(f"test keystream of agent {agent + 1}", secrets, words=_keystream_of(agent)) for agent in agents]
    floats = [_Source(label, seeds, draw=draw, coarse="torch" in label) for label, draw in float_sources().items()]
    made = [_Source(label, seeds, words=_bytes_of(make), offsets=offsets) for label, make in byte_sources().items()]
    return keys + floats + made


def _search(
    shown: Mapping[int, Noise], seeds: list[int], secrets: list[str], offsets: tuple[int, ...]
) -> tuple[int, dict[int, Match]]:
    """How many candidates were tried, and the first match of every agent."""
    found: dict[int, Match] = {}
    tried = 0
    count = min(_HEAD, *(len(noise.unit) for noise in shown.values()))
    for source in _sources(seeds, secrets, offsets, tuple(shown)):
        for start in range(0, len(source.seeds), _CHUNK):
            if len(found) == len(shown):
                return tried, found
            part = source.seeds[start : start + _CHUNK]
            tried += len(part) * len(source.offsets)
            for offset, unit, cells in _heads(source, part, count):
                for i in [i for i in shown if i not in found]:
                    at = _matching(shown[i], unit, cells, count, source.coarse)
                    if at is not None:
                        found[i] = _confirmed(source, part[at], offset, shown[i])
    return tried, found


def _heads(source: _Source, seeds: Sequence[Any], count: int) -> Iterator[tuple[int, F64, Cells | None]]:
    """(offset, noise of scale 1, places in blocks of cells): the first ``count`` of every seed, (seeds, count)."""
    if source.draw is not None:
        yield 0, np.array([source.draw(seed, count) for seed in seeds]), None
    elif source.words is not None:
        reach = max(source.offsets) + 8 * count
        whole = b"".join(source.words(seed, reach) for seed in seeds)
        rows = np.frombuffer(whole, dtype=np.uint8).reshape(len(seeds), reach)
        for offset in source.offsets:
            data = rows[:, offset : offset + 8 * count].tobytes()
            shape = (len(seeds), count)
            yield offset, inverse_cdf(data).reshape(shape), low_cells(data).reshape(shape)


def _matching(noise: Noise, unit: F64, cells: Cells | None, count: int, coarse: bool) -> int | None:
    """Which row is the beginning of ``noise``; None: no one."""
    head = noise.unit[:count]
    tolerance = max(noise.tolerance, 1e-5 if coarse else 0.0)
    hits = (np.abs(unit - head) <= tolerance * (1.0 + np.abs(head))).all(axis=1)
    if cells is not None and noise.cells is not None:
        hits |= (cells == _places(noise.cells[:count])).all(axis=1)
    return int(np.argmax(hits)) if hits.any() else None


def _confirmed(source: _Source, seed: object, offset: int, noise: Noise) -> Match:
    """The whole vector beside what the generator gives: the better of library and grid sampling."""
    label = f"{source.label} after a batch" if offset else source.label
    d = len(noise.unit)
    if source.draw is not None:
        values = source.draw(seed, d)
    else:
        assert source.words is not None
        data = source.words(seed, offset + 8 * min(d, _GRID_CHUNK))[offset:]
        if noise.cells is not None:
            share = float(np.mean(low_cells(data) == _places(noise.cells[:_GRID_CHUNK])))
            return Match(f"{label}, grid sampler", str(seed), share)
        values = inverse_cdf(source.words(seed, offset + 8 * d)[offset:])
    close = np.abs(values - noise.unit) <= 1e-4 * (1.0 + np.abs(noise.unit))
    return Match(label, str(seed), float(np.mean(close)))


def _places(cells: Cells) -> Cells:
    """N = G or -1 - G: the place of G in its block."""
    return np.where(cells >= 0, cells, -1 - cells) % grid.BLOCK


def _bytes_of(make: Make) -> Callable[[int, int], bytes]:
    return lambda seed, nbytes: make(seed)(nbytes)


def _keystream_of(agent: int) -> Callable[[str, int], bytes]:
    return lambda secret, nbytes: _keystream(secret, agent)(nbytes)


def _keystream(secret: str, agent: int) -> Callable[[int], bytes]:
    """Bytes of a test keystream's first noise on x: AES-128-CTR under a hash of the secret."""
    key = hashlib.sha256(bytes.fromhex(secret) + f"|{agent}|0|X".encode()).digest()[:16]

    def take(nbytes: int) -> bytes:
        return Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor().update(bytes(nbytes))

    return take


def _finding(name: str, noise: Noise | None, match: Match | None, tried: int) -> Finding:
    if noise is None:
        note = "no noise vector is known: x̆_0 carries none, or was not seen, or x_0 is not known"
        return Finding(name, "no power", {"recovered": None}, {"recovered": 0.0}, note)
    measured = {"recovered": 1.0 if match else 0.0, "candidates": float(tried)}
    if match is None:
        return Finding(name, "clean", measured, {"recovered": 0.0})
    measured["noise_reproduced"] = match.share
    note = f"{match.generator}, seed {match.seed}: reproduces {match.share:.0%} of zeta_0"
    return Finding(name, "succeeds", measured, {"recovered": 0.0}, note)


attack = _Generator()
