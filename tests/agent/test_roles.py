"""Active roles as functions: what each releases and sends, value by value."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from dpgt_node.agent.imprint import Imprint
from dpgt_node.agent.roles import Links, Source, links_of, source_of
from dpgt_node.config import RunConfig
from dpgt_node.config.roles import HIDDEN, Roles, parse_role
from dpgt_node.learning.oracle import build_oracle
from dpgt_node.protocol.types import Payload
from dpgt_node.types import Codes
from tests.runtime.cluster import make_run


def attacked(K: int, roles: dict[str, str]) -> RunConfig:
    run = make_run(K)
    return replace(run, adversary=replace(run.adversary, active=Roles(roles.items())))


NAMES = ("a", "b", "c", "d", "e")
ONES = np.ones(4)
CODES = Codes(0.5, -1.0, 0, 8)


def payload(stream: str, k: int, values: np.ndarray, codes: Codes | None = None) -> Payload:
    dtype = "float32" if codes is None else codes.dtype
    whole = values if codes is None else codes.nearest(values)
    data = whole.astype(np.dtype(dtype).newbyteorder("<")).tobytes()
    return Payload(stream, k, dtype, len(values), data, hashlib.sha256(data).digest(), codes=codes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("role", "k", "expected"),
    [
        ("poison", 0, [1000, 1000, 1000, 1000]),
        ("poison value=3 coordinates=1:3", 7, [1, 3, 3, 1]),
        ("poison scale=-2 from=2 until=4", 4, [-2, -2, -2, -2]),
        ("poison scale=-2 from=2 until=4", 5, [1, 1, 1, 1]),
        ("poison scale=-2 from=2 until=4", 1, [1, 1, 1, 1]),
        ("trap value=5", 3, [1, 1, 1, 1]),  # of X
    ],
)
def test_what_is_released_instead(role: str, k: int, expected: list[float]) -> None:
    given = ONES.copy()
    assert Source(parse_role(role), None).released("Y", k, given).tolist() == expected
    np.testing.assert_array_equal(given, ONES)  # the agent's own state is not its attack's


@pytest.mark.parametrize("lag", [1, 3])
def test_a_replay_releases_the_vector_of_so_many_rounds_before(lag: int) -> None:
    source = Source(parse_role(f"replay lag={lag} from=5"), None)
    for k in range(12):
        assert source.released("Y", k, ONES * k)[0] == (k if k < 5 else k - lag)
        assert source.released("X", k, ONES * k)[0] == k
    assert len(source._before) <= 2 * (lag + 1), "it remembers no more than it needs"
    assert Source(parse_role("replay lag=4"), None).released("Y", 9, ONES)[0] == 1, "a process that saw none before"


def test_integers_stay_in_their_range_and_on_their_grid() -> None:
    for role, value in (("poison", 3.0), ("poison value=-99", -1.0), ("poison value=1.3", 1.5)):
        assert Source(parse_role(role), CODES).released("Y", 0, ONES).tolist() == [value] * 4
    (sent,) = Links(parse_role("equivocate value=50"), NAMES, (1,)).sent(1, (payload("Y", 0, ONES, CODES),))
    assert sent.array().tolist() == [3.0] * 4 and sent.nbytes == 4


def sent(role: str, receivers: tuple[int, ...], stream: str = "Y", k: int = 6) -> list[float | None]:
    """First value that each of the receivers gets; None: nothing."""
    honest = payload(stream, k, ONES)
    links, out = Links(parse_role(role), NAMES, receivers), []
    for receiver in receivers:
        found = links.sent(receiver, (honest,))
        out.append(float(found[0].array()[0]) if found else None)
        assert all(hashlib.sha256(one.data).digest() == one.sha256 and one.nbytes == 16 for one in found)
    return out


@pytest.mark.parametrize(
    ("role", "receivers", "expected"),
    [
        ("equivocate value=2", (1, 2, 3, 4), [1, 3, 1, 5]),  # every second receiver, each its own
        ("equivocate value=2", (3,), [3]),
        ("equivocate value=2 to=b,d", (1, 2, 3), [3, 1, 5]),
        ("equivocate value=2 from=7", (1, 2), [1, 1]),
        ("equivocate value=2 stream=X", (1, 2), [1, 1]),
        ("withhold", (1, 2), [None, None]),
        ("withhold to=c", (1, 2), [1, None]),
        ("withhold stream=X", (1,), [1]),
        ("withhold until=5", (1,), [1]),
        ("withhold until=6", (1,), [None]),
        ("delay ms=5", (1,), [1]),
        ("repeat", (1,), [1]),
    ],
)
def test_what_leaves_on_each_link(role: str, receivers: tuple[int, ...], expected: list[float | None]) -> None:
    assert sent(role, receivers) == expected


def test_a_replay_to_some_gives_them_the_vector_of_before_as_that_of_the_round() -> None:
    links = Links(parse_role("replay lag=2 to=c from=3"), NAMES, (1, 2))
    for k in range(7):
        for receiver in (1, 2):
            (got,) = links.sent(receiver, (payload("Y", k, ONES * k),))
            assert got.k == k and got.array()[0] == (k - 2 if receiver == 2 and k >= 3 else k)
            assert hashlib.sha256(got.data).digest() == got.sha256
    assert len(links._before) <= 3 and parse_role("replay to=c").on_links and not parse_role("replay").on_links


def test_what_is_sent_again_and_what_is_held_back() -> None:
    again, late = (
        Links(parse_role(text), NAMES, (1, 2))
        for text in ("repeat lag=2 to=b stream=X from=3", "delay ms=40 to=b from=3")
    )
    for k in range(5):
        both = (payload("X", k, ONES * k), payload("Y", k, ONES))
        assert again.sent(1, both) == late.sent(1, both) == both and again.again(2, both) == ()
        assert [(one.stream, one.k) for one in again.again(1, both)] == ([("X", k - 2)] if k >= 3 else [])
        assert late.held_s(2, both) == 0.0, "on the other link"
        assert late.held_s(1, both) == (0.04 if k >= 3 else 0.0) and again.held_s(1, both) == 0.0 == len(
            late.again(1, both)
        )


def test_several_roles_of_one_agent_act_one_after_the_other() -> None:
    run = attacked(
        3, {"agent-1": "poison value=2 until=1; poison scale=3 from=1; withhold stream=X; delay ms=1; delay ms=2"}
    )
    source, links = source_of(run, 0, None, build_oracle(run, 0)), links_of(run, 0, (1, 2))
    assert (
        source is not None
        and links is not None
        and source_of(run, 1, None, build_oracle(run, 1)) is None is links_of(run, 1, (0,))
    )
    assert [float(source.released("Y", k, ONES)[0]) for k in range(3)] == [2, 6, 3]
    both = (payload("X", 0, ONES), payload("Y", 0, ONES))
    assert [one.stream for one in links.sent(1, both)] == ["Y"] and links.held_s(1, both) == pytest.approx(0.003)


def test_an_imprint_sorts_samples_by_brightness_in_its_rounds_and_in_x_alone() -> None:
    """As a network W2 relu(W1 phi + b1) + b2 of 3 classes, on the attacker's own samples."""
    features, classes, own = 4, 3, np.random.default_rng(1).uniform(size=(512, 4))
    oracle = SimpleNamespace(
        samples=512, sample_size=features, dimension=HIDDEN * (features + 1 + classes) + classes, inputs=own.__getitem__
    )
    imprint = Imprint(parse_role("imprint value=50 from=2 until=3"), oracle)  # type: ignore[arg-type]
    honest = np.ones(oracle.dimension)
    for stream, k in (("X", 1), ("X", 4), ("Y", 2)):
        assert imprint.released(stream, k, honest) is honest  # type: ignore[arg-type]
    W1, b1, W2, b2 = np.split(
        imprint.released("X", 2, honest), np.cumsum([HIDDEN * features, HIDDEN, HIDDEN * classes])
    )
    inside = own @ W1.reshape(HIDDEN, features).T + b1
    brighter = (inside > 0).sum(axis=1)
    assert np.bincount(brighter, minlength=HIDDEN + 1).tolist() == [2] + [4] * (HIDDEN - 1) + [2]
    assert (brighter[np.argsort(own.mean(axis=1))] == np.sort(brighter)).all()
    logits = np.maximum(inside, 0.0) @ W2.reshape(classes, HIDDEN).T + b2
    np.testing.assert_allclose(logits[:, 0], 50.0 * np.maximum(inside, 0.0).sum(axis=1))
    assert not logits[:, 1:].any(), "one class alone"
