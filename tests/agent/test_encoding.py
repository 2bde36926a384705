"""Vectors are drawn, rounded, checked and hashed in pieces: the bits are those of the whole."""

from __future__ import annotations

import hashlib
import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from dpgt_node.agent import encoding
from dpgt_node.agent.encoding import Diverged, Encoder, checked, pieces
from dpgt_node.agent.noise import sampler_for
from dpgt_node.agent.roles import Source, Sources
from dpgt_node.agent.work import AgentWork
from dpgt_node.algo.graph import Topology
from dpgt_node.algo.methods.robust import Guard, mix_of
from dpgt_node.algo.methods.sums import add_mixed
from dpgt_node.algo.schedule import Schedule
from dpgt_node.config.roles import Roles, parse_role
from dpgt_node.learning.oracle import build_oracle
from dpgt_node.privacy.laws import gaussian_sampler, grid_sampler
from dpgt_node.privacy.laws.compiled import COMPILED_FROM
from dpgt_node.privacy.laws.keystream import TestKeystream
from dpgt_node.protocol.types import DrawRelease
from tests.learning.cases import run
from tests.states import tracking

CHUNK = grid_sampler.CHUNK


@pytest.mark.parametrize("d", [1, 99, 100, 101, 199, 200, 201, 999])
def test_pieces_cover_a_vector_once_and_none_is_short(d, monkeypatch):
    monkeypatch.setattr(encoding, "PIECE", 100)
    found = pieces(d)
    assert np.concatenate([np.arange(d)[at] for at in found]).tolist() == list(range(d))
    sizes = [len(np.arange(d)[at]) for at in found]
    assert sizes == [d] if d < 200 else (set(sizes[:-1]) == {100} and 100 <= sizes[-1] < 200)


def test_a_piece_is_a_multiple_of_what_samplers_draw_at_a_time():
    assert encoding.PIECE % grid_sampler.CHUNK == encoding.PIECE % gaussian_sampler.CHUNK == 0


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("sizes", [(700,), (1, 699), (200, 200, 300)])
def test_a_payload_of_pieces_is_that_of_the_whole(dtype, sizes):
    values = np.random.default_rng(1).normal(size=700)
    whole = Encoder("a", 700, dtype, None)("X", 3, values)
    ends = np.cumsum(sizes)
    assert Encoder("a", 700, dtype, None)("X", 3, iter(np.split(values, ends[:-1]))) == whole
    assert whole.data == values.astype(dtype).tobytes() and whole.sha256 == hashlib.sha256(whole.data).digest()


def pairs(noisy, public, ends):
    return list(zip(np.split(noisy.copy(), ends), np.split(public, ends), strict=True))


@pytest.mark.parametrize("loop", [None, encoding.narrow])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_payload_of_noise_and_what_it_hides_is_that_of_the_sum(monkeypatch, dtype, loop):
    monkeypatch.setattr(encoding, "_NARROW", SimpleNamespace(of=lambda d: loop))
    noisy, public = np.random.default_rng(5).normal(size=(2, 700)) * np.geomspace(1e-44, 1e15, 700)
    send = Encoder("a", 700, dtype, None)
    assert send("X", 3, iter(pairs(noisy, public, [200, 400]))) == send("X", 3, noisy + public)
    whole = send("X", 3, iter([(noisy.copy(), public)]))
    assert whole == send("X", 3, noisy + public) and whole.data == (noisy + public).astype(dtype).tobytes()
    assert whole.sha256 == hashlib.sha256(whole.data).digest()
    for value in (np.nan, np.inf, -np.inf, *((1e39, -1e39) if dtype == "float32" else ())):
        far = noisy.copy()
        far[650] = value
        with np.errstate(all="ignore"), pytest.raises(Diverged, match="x is no longer finite in round 3"):
            send("X", 3, iter(pairs(far, public, [200, 400])))


@pytest.mark.fast
def test_narrowed_by_numba_from_some_size_on(monkeypatch):
    d = COMPILED_FROM + 5
    noisy, public = np.random.default_rng(6).normal(size=(2, d)) * np.geomspace(1e-44, 1e15, d)
    noisy[7], public[7] = -0.0, -0.0
    send = Encoder("a", d, "float32", None)
    compiled = send("Y", 3, iter(pairs(noisy, public, [COMPILED_FROM // 2])))
    assert encoding._NARROW.ready and compiled == send("Y", 3, noisy + public)
    far = noisy.copy()
    for value in (np.nan, np.inf, 1e39):
        far[-1] = value
        with np.errstate(all="ignore"), pytest.raises(Diverged, match="y is no longer finite in round 3"):
            send("Y", 3, iter(pairs(far, public, [COMPILED_FROM // 2])))


def test_a_role_replaces_what_is_released_in_pieces_as_well():
    role = Sources((Source(parse_role("poison value=3 stream=X"), None),))
    values = np.random.default_rng(4).normal(size=300)
    for stream, expected in (("X", [3.0] * 300), ("Y", values.tolist())):
        half = values / 2  # exact
        for given in (values, iter(np.split(values, 3)), iter(pairs(half, half, [100, 200]))):
            assert Encoder("a", 300, "float64", None, role)(stream, 0, given).array().tolist() == expected


@pytest.mark.parametrize("bad", [math.nan, math.inf, 1e39])
def test_what_cannot_be_sent_is_found_in_the_last_piece_too(bad):
    values = np.zeros(300)
    values[-1] = bad
    with np.errstate(over="ignore"), pytest.raises(Diverged, match="x is no longer finite in round 3"):
        Encoder("a", 300, "float32", None)("X", 3, np.split(values, 3))
    if not math.isfinite(bad):
        with pytest.raises(Diverged, match="x is no longer finite in round 3"):
            Encoder("a", 300, "float64", None)("X", 3, values)


def test_who_had_a_role_until_then_is_named_instead_of_step_sizes():
    roles = Roles((("b", "poison from=3"), ("c", "delay ms=1"), ("d", "trap from=4")))
    bad = np.full(3, math.inf)
    with pytest.raises(Diverged, match=r"round 3: the active adversary did it \(b\), unless"):
        checked(bad, "a", 3, "x", roles)
    with pytest.raises(Diverged, match="round 2: the run diverged"):
        checked(bad, "a", 2, "x", roles)


@pytest.mark.parametrize("law", ["laplace", "gaussian"])
def test_an_agent_that_releases_in_pieces_sends_the_same_bytes(law, monkeypatch):
    d = 4 * CHUNK + 7
    config = run("zeros", dimension=d)
    config = replace(config, noise=replace(config.noise, law=law))
    rng = np.random.default_rng(2)
    state = tracking(
        0, batch=np.empty(0, dtype=np.int64), **{name: rng.normal(size=d) for name in ("px", "tx", "p", "t", "g")}
    )

    def released() -> list[bytes]:
        topology, schedule = Topology.from_config(config.graph), Schedule.from_config(config)
        oracle, keystream = build_oracle(config, 0), TestKeystream("aa", 0)
        work = AgentWork(config, topology, schedule, 0, oracle, keystream, sampler_for(config))
        return [p.sha256 + bytes(p.data) for p in work.release(DrawRelease(state)).payloads]

    whole = released()
    monkeypatch.setattr(encoding, "PIECE", CHUNK)
    assert released() == whole


@pytest.mark.parametrize(
    "guard", [None, Guard("self-clip", outliers=1), Guard("norm-clip", 3.0), Guard("trimmed-mean", outliers=1)]
)
def test_what_came_in_as_float32_is_mixed_as_float64(guard):
    rng, edges = np.random.default_rng(3), ((0, 1 / 3), (1, 0.1), (2, 0.7), (3, 1 / 7))
    narrow = {j: rng.normal(size=501).astype("<f4") for j, _ in edges}
    wide = {j: v.astype(np.float64) for j, v in narrow.items()}
    start, found = rng.normal(size=501), []
    for received in (narrow, wide):
        mix, into = mix_of(guard, 0, edges, received, lambda: wide[0]), start.copy()
        for at in (slice(0, 200), slice(200, 501)):
            mix(0.3, into[at], at)
        found.append(into)
    assert found[0].tobytes() == found[1].tobytes()
    assert guard is not None or found[0].tolist() == expected(edges, wide, start)


def expected(edges, wide, start) -> list[float]:
    """Number by number, in Python's own floats."""
    sums = []
    for i, begin in enumerate(start.tolist()):
        total = 0.0
        for place, (j, weight) in enumerate(edges):
            term = weight * float(wide[j][i])
            total = term if place == 0 else total + term
        sums.append(begin + total * 0.3)
    return sums


def test_nobody_to_mix():
    into = np.ones(3)
    add_mixed((), {}, 0.5, into, slice(None))
    assert into.tolist() == [1.0, 1.0, 1.0]
