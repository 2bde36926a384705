"""What others hear when something goes wrong at one host: a kind, and no word of its data, its files or its ledger."""

from __future__ import annotations

import ast
import asyncio
import os
import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import grpc
import grpc.aio
import numpy as np
import pyarrow
import pytest
from PIL import Image
from pyarrow import parquet as pq

from dpgt_node.agent.encoding import Diverged, OutOfReach
from dpgt_node.config import RunConfig, parse_run
from dpgt_node.config.model import Data
from dpgt_node.errors import (
    BudgetReached,
    ConfigError,
    DpgtError,
    PeerError,
    PeerLost,
    RefusedError,
    StaleState,
    StoreError,
    Untrusted,
)
from dpgt_node.learning.nets.models import SoftmaxOracle
from dpgt_node.protocol import messages as m
from dpgt_node.protocol.agent import session
from dpgt_node.protocol.agent.session_types import Address
from dpgt_node.protocol.calls import Dial, Ended, Note
from dpgt_node.protocol.coordinator import coordination
from dpgt_node.protocol.edge.sender import Sender
from dpgt_node.protocol.told import A_BUG, told
from dpgt_node.runtime.agent import node as node_module
from dpgt_node.runtime.agent import refusal
from dpgt_node.runtime.coordinator import results as results_module
from dpgt_node.runtime.trust.channels import Security
from dpgt_node.types import F64, I64
from dpgt_node.wire import convert, services
from tests.learning.data.files import cifar_batches, idx, write_cifar_binary, write_cifar_python, write_idx
from tests.runtime.cluster import Cluster, cluster, eventually

SECRET = "hiv"  # in the names of files, columns and classes
NUMBER = 77123  # a label, a value, a size
OWNER = "agent-2"
RUN = """
name = "clinic"
[algorithm]
iterations = 20
[scheme]
kind = "S2"
alpha = 0.2
beta = 0.2
gamma = 0.02
p_m = 1.0
[noise]
scale_zeta = 0.1
scale_eta = 0.01
[graph]
agents = 3
R = [[0, 1, 0], [1, 0, 0], [0, 1, 0]]
C = [[0, 0, 1], [0, 0, 0], [0.5, 1, 0]]
[data]
dataset = "csv:{good}"
label = "outcome"
classes = ["negative", "positive", "unsure"]
{data}
[privacy]
clip_l1 = 1.0
[evaluate]
every = 10
[runtime]
round_timeout = 20
register_timeout = 30
"""


def run_of(folder: Path, data: str = "", **changes: Any) -> RunConfig:
    good = folder / "public.csv"
    good.write_text("a,b,outcome\n" + "0.5,1.5,0\n1.0,2.0,1\n0.25,0.75,2\n" * 6)
    run = parse_run(RUN.format(good=good, data=data), "run.toml", folder)
    return replace(run, **changes)


@pytest.fixture(autouse=True)
def _short_farewells(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_module, "FAREWELL_S", 0.3)
    monkeypatch.setattr(coordination, "LATE_NS", 0)


# --- data that cannot be loaded ---------------------------------------------------------------------------------------


def csv(text: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        (folder / f"{SECRET}.csv").write_text(text)
        return folder / f"{SECRET}.csv"

    return make


def npz(**arrays: Any) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        x, y = np.zeros((4, 2)), np.array([0, 1, 2, 0])
        good = {"x_train": x, "y_train": y, "x_test": x[:0], "y_test": y[:0]}
        kept = {name: value for name, value in (good | arrays).items() if value is not None}
        np.savez(folder / f"{SECRET}.npz", **kept)
        return folder / f"{SECRET}.npz"

    return make


def raw(name: str, content: bytes) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        (folder / name).write_bytes(content)
        return folder / name

    return make


def pictures(*files: tuple[str, Any]) -> Callable[[Path], Path]:
    """A folder of classes; each file: (class/name, (width, height) or bytes, or an image)."""

    def make(folder: Path) -> Path:
        for name, what in files:
            path = folder / SECRET / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if isinstance(what, bytes):
                path.write_bytes(what)
            elif isinstance(what, tuple):
                Image.new("L", what).save(path)
            else:
                what.save(path)
        (folder / SECRET).mkdir(exist_ok=True)
        return folder / SECRET

    return make


def nothing(folder: Path) -> Path:
    return folder / f"{SECRET}.npz"


def parquet(**columns: Any) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        pq.write_table(pyarrow.table(columns), folder / f"{SECRET}.parquet")
        return folder / f"{SECRET}.parquet"

    return make


def of_mnist(change: Callable[[Path], object]) -> Callable[[Path], Path]:
    """A data folder with MNIST's four files, one of them changed: in MNIST/raw."""

    def make(folder: Path) -> Path:
        write_idx(folder / SECRET / "MNIST/raw")
        change(folder / SECRET / "MNIST/raw")
        return folder / SECRET

    return make


def of_cifar(
    write: Callable[..., None], change: Callable[[dict[str, Any]], object], after: Callable[[Path], object] = id
) -> Callable[[Path], Path]:
    """A data folder with CIFAR-10's six batches, changed before or after they are written."""

    def make(folder: Path) -> Path:
        batches = cifar_batches()
        change(batches)
        write(folder / SECRET, batches)
        after(folder / SECRET)
        return folder / SECRET

    return make


def batch_without(key: bytes) -> Callable[[Path], object]:
    def change(root: Path) -> None:
        path = root / "cifar-10-batches-py/data_batch_2"
        path.write_bytes(pickle.dumps({**pickle.loads(path.read_bytes()), key: SECRET}, protocol=2))

    return change


LABELS, IMAGES = "train-labels-idx1-ubyte", "train-images-idx3-ubyte"
AS_PYTHON, AS_BINARY = write_cifar_python, write_cifar_binary
TWO = (("negative/a.png", (8, 8)), ("positive/b.png", (8, 8)))
FLAWS: dict[str, Callable[[Path], Path]] = {
    "no file": nothing,
    "no NPZ": raw(f"{SECRET}.npz", b"patient 77123"),
    "pickle": raw(f"{SECRET}.npz", b"\x80\x04]."),
    "an array is missing": npz(y_test=None, hiv=np.zeros(1)),
    "features of another kind": npz(x_train=np.array([[SECRET, "x"]] * 4)),
    "features of another shape": npz(x_train=np.zeros((4, 2, 3))),
    "not finite": npz(x_train=np.array([[0.0, np.nan]] * 4)),
    "labels of another kind": npz(y_train=np.array([0.5, 1, 2, 0])),
    "labels of another shape": npz(y_train=np.zeros((4, 1), dtype=np.int64)),
    "a negative label": npz(y_train=np.array([0, 1, 2, -NUMBER])),
    "a label too large": npz(y_train=np.array([0, 1, 2, NUMBER])),
    "as many labels as features": npz(y_train=np.array([0, 1])),
    "nothing in it": npz(x_train=np.zeros((0, 2)), y_train=np.zeros(0, dtype=np.int64)),
    "test features of another size": npz(x_test=np.zeros((1, 5)), y_test=np.array([0])),
    "table: no label column": csv("hiv_load,b\n1,2\n"),
    "table: two label columns": csv("hiv_load,outcome,outcome\n1,2,1\n"),
    "table: only labels": csv("outcome\n1\n"),
    "table: no number": csv("hiv_load,b,outcome\n1,2,0\nanna,3,1\n"),
    "table: a row cut short": csv("hiv_load,b,outcome\n1,2,0\n77123,3\n"),
    "table: not finite": csv("hiv_load,b,outcome\n1,2,0\ninf,3,1\n"),
    "table: a label that is none": csv("hiv_load,b,outcome\n1,2,0.5\n"),
    "table: a label too large": csv(f"hiv_load,b,outcome\n1,2,{NUMBER}\n"),
    "table: a name too many": csv("hiv_load,b,c,outcome\n1,2,0\n"),
    "table: empty": csv(""),
    "table: no rows": csv("hiv_load,b,outcome\n"),
    "table: no text": raw(f"{SECRET}.csv", b"hiv_load,b,outcome\n\xff,2,0\n"),
    "Parquet: no label column": parquet(hiv_load=[1.0, 2.0], b=[1, 2]),
    "Parquet: words": parquet(hiv_load=["anna", "bob"], outcome=[0, 1]),
    "Parquet: something is missing": parquet(hiv_load=[1.0, None], outcome=[0, 1]),
    "Parquet: not finite": parquet(hiv_load=[1.0, np.inf], outcome=[0, 1]),
    "Parquet: a label that is none": parquet(hiv_load=[1.0, 2.0], outcome=[0.5, 1.0]),
    "Parquet: a label too large": parquet(hiv_load=[1.0, 2.0], outcome=[0, NUMBER]),
    "Parquet: only labels": parquet(outcome=[0, 1]),
    "Parquet: no rows": parquet(hiv_load=np.zeros(0), outcome=np.zeros(0)),
    "IDX: no folder": nothing,
    "IDX: a file is missing": of_mnist(lambda raw: (raw / LABELS).unlink()),
    "IDX: torn": of_mnist(lambda raw: os.truncate(raw / IMAGES, 1000)),
    "IDX: another magic number": of_mnist(lambda raw: (raw / LABELS).write_bytes(b"\0\0\x0d\1" + bytes(4))),
    "IDX: a label too large": of_mnist(lambda raw: (raw / LABELS).write_bytes(idx(np.full(30, 123)))),
    "IDX: as many labels as pictures": of_mnist(lambda raw: (raw / LABELS).write_bytes(idx(np.zeros(29)))),
    "IDX: tests of another size": of_mnist(
        lambda raw: (raw / "t10k-images-idx3-ubyte").write_bytes(idx(np.zeros((10, 7, 7))))
    ),
    "IDX: packed, no gzip": of_mnist(
        lambda raw: ((raw / LABELS).unlink(), (raw / f"{LABELS}.gz").write_bytes(b"anna"))
    ),
    "CIFAR: a batch is missing": of_cifar(
        AS_PYTHON, lambda _: None, lambda root: (root / "cifar-10-batches-py/data_batch_3").unlink()
    ),
    "CIFAR: torn": of_cifar(
        AS_PYTHON, lambda _: None, lambda root: os.truncate(root / "cifar-10-batches-py/data_batch_2", 99)
    ),
    "CIFAR: a pickle of something else": of_cifar(
        AS_PYTHON,
        lambda _: None,
        lambda root: (root / "cifar-10-batches-py/test_batch").write_bytes(pickle.dumps(Path(SECRET))),
    ),
    "CIFAR: no pictures": of_cifar(AS_PYTHON, lambda _: None, batch_without(b"data")),
    "CIFAR: no labels": of_cifar(AS_PYTHON, lambda _: None, batch_without(b"labels")),
    "CIFAR: a label too large": of_cifar(AS_PYTHON, lambda batches: batches["data_batch_1"][1].__setitem__(0, NUMBER)),
    "CIFAR: as many labels as pictures": of_cifar(AS_PYTHON, lambda batches: batches["data_batch_1"][1].pop()),
    "CIFAR: binary, torn": of_cifar(
        AS_BINARY, lambda _: None, lambda root: os.truncate(root / "cifar-10-batches-bin/data_batch_4.bin", 3074)
    ),
    "CIFAR: binary, a label too large": of_cifar(
        AS_BINARY, lambda batches: batches["data_batch_1"][1].__setitem__(0, 123)
    ),
    "CIFAR: binary, a batch is missing": of_cifar(
        AS_BINARY, lambda _: None, lambda root: (root / "cifar-10-batches-bin/data_batch_4.bin").unlink()
    ),
    "table: no Parquet": raw(f"{SECRET}.parquet", b"patient 77123"),
    "pictures: another size": pictures(*TWO, ("positive/c.png", (77, 123))),
    "pictures: damaged": pictures(*TWO, ("positive/c.png", b"no picture")),
    "pictures: 32 bits": pictures(("negative/a.tif", Image.new("I", (8, 8)))),
    "pictures: no class": pictures(),
    "pictures: a class that nobody named": pictures(*TWO, ("hiv-2/c.png", (8, 8))),
    "pictures: none": pictures(("positive/c.txt", b"")),
    "pictures: tests only": pictures(("test/positive/c.png", (8, 8))),
    "pictures: one class, where features want another size": pictures(*TWO),
    "fewer samples than a gradient takes": npz(),
}


SETS = {"IDX": "mnist", "CIFAR": "cifar10"}
"""Flaws of these are in a data folder, not in a file that NODE.toml names."""


class Ears:
    """Every message that an agent of this process writes to the coordinator, as bytes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.words: list[m.AgentMessage] = []
        self.bytes = b""
        encode = convert.encode_agent_message

        def spied(message: m.AgentMessage) -> bytes:
            if not isinstance(message, m.Register):  # it holds the run file, which everybody has
                self.words.append(message)
                self.bytes += (encoded := encode(message))
                return encoded
            return encode(message)

        monkeypatch.setattr(convert, "encode_agent_message", spied)


def leaked(secrets: list[str], *heard: bytes) -> list[str]:
    return [secret for secret in secrets if any(secret.encode() in one for one in heard)]


def files_of(*folders: Path) -> bytes:
    return b"".join(path.read_bytes() for folder in folders for path in sorted(folder.rglob("*")) if path.is_file())


async def everybody(c: Cluster) -> tuple[str, bytes]:
    """How the run ended for the coordinator; everything that the coordinator and the other agents kept or said."""
    assert c.serving is not None
    async with asyncio.timeout(30):
        conclude = (await c.serving).conclude
        results = await asyncio.gather(*c.agents.values(), return_exceptions=True)
    ends = " ".join(str(result) for name, result in zip(c.agents, results, strict=True) if name != OWNER)
    others = [c.folder / "state" / name for name in c.run.graph.agents if name != OWNER]
    return conclude.reason, files_of(c.out, *others) + ends.encode() + conclude.reason.encode()


async def hear(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, flaw: str
) -> list[str]:
    """The private words of ``flaw`` at one agent that anybody else got to know; [] for none."""
    private, shared = tmp_path / "private", tmp_path / "shared"
    private.mkdir()
    shared.mkdir()
    run = own = run_of(shared)
    if "where features" in flaw:
        own = run_of(shared, 'features = "hog"')
    if flaw.startswith("fewer"):
        own = replace(run, scheme=replace(run.scheme, samples=5))
    path = FLAWS[flaw](private)
    ears = Ears(monkeypatch)
    async with cluster(tmp_path / "cluster", run) as c:
        c.start("agent-1")
        c.start("agent-3")
        await eventually("they are there", lambda: c.round("agent-1") >= 0 and c.round("agent-3") >= 0)
        with pytest.raises(ConfigError) as caught:
            root, config = None, replace(c.config(OWNER), data_path=path)
            if (dataset := SETS.get(flaw.partition(":")[0])) is not None:
                own = replace(run, data=Data(dataset))
                root, config = path, c.config(OWNER)
            await refusal.oracle_or_refusal(config, own, 1, Security(), root)
        reason, kept = await everybody(c)
    detail = str(caught.value)
    words = (str(private), SECRET, str(NUMBER), "anna", "D = 4")
    secrets = [word for word in words if word in detail]
    assert secrets, f"the error has a detail to keep: {detail}"
    assert any(isinstance(word, m.Refusal) and word.kind == "data" for word in ears.words)
    assert reason.startswith(f"{OWNER} refused: cannot use its data")
    return leaked(secrets, ears.bytes, kept, caplog.text.encode())


@pytest.mark.parametrize("flaw", FLAWS)
async def test_data_that_cannot_be_used_tell_nobody_more_than_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, flaw: str
) -> None:
    caplog.set_level("DEBUG", "dpgt_node")
    assert await hear(tmp_path, monkeypatch, caplog, flaw) == []


def own_words(error: BaseException) -> str:
    """The mutant: what agents said before."""
    return str(error)[:1000]


async def test_the_words_of_an_exception_are_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(refusal, "told", lambda error: f"cannot use its data: {own_words(error)}")
    assert SECRET in await hear(tmp_path, monkeypatch, caplog, "pictures: another size")


# --- what breaks in mid-run -------------------------------------------------------------------------------------------

BROKEN: dict[str, DpgtError] = {
    "data": ConfigError.one(f"/{SECRET}/ward-9/b.png", "", "is 77123 x 4 pixels"),
    "state": StoreError(f"/{SECRET}/state.db: the disk is full"),
    "numbers": Diverged.at(OWNER, 77123, SECRET),
    "budget": BudgetReached(f"{SECRET}: 77123 of 10 are spent"),
    "certificate": Untrusted(f"/{SECRET}/node.pem expired"),
    "call": PeerError(f"/{SECRET}: 77123", grpc_status="DATA_LOSS"),
}


async def hear_broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: DpgtError) -> tuple[str, list[str]]:
    """(what the coordinator says, the private words that anybody else got) when a gradient of one agent fails so."""
    run, ears = run_of(tmp_path), Ears(monkeypatch)

    class Failing(SoftmaxOracle):
        def gradient(self, x: F64, batch: I64) -> F64:
            raise error

    async with cluster(tmp_path / "cluster", run) as c:
        c.start("agent-1")
        c.start("agent-3")
        node = c.nodes[OWNER] = c.node(OWNER)
        node._work._oracle.__class__ = Failing
        c.agents[OWNER] = asyncio.ensure_future(node.serve())
        with pytest.raises(type(error)) as caught:
            await c.agents[OWNER]
        reason, kept = await everybody(c)
    assert caught.value is error, "its own log says all of it"
    assert reason.startswith(f"{OWNER}: ") and any(isinstance(word, m.Failed) for word in ears.words)
    return reason, leaked([SECRET, "77123", "ward-9"], ears.bytes, kept)


@pytest.mark.parametrize("what", BROKEN)
async def test_a_gradient_that_fails_tells_nobody_more_than_its_kind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    reason, found = await hear_broken(tmp_path, monkeypatch, BROKEN[what])
    assert found == [] and type(BROKEN[what]).told in reason


async def test_the_words_of_an_exception_in_mid_run_are_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "told", own_words)
    _, found = await hear_broken(tmp_path, monkeypatch, BROKEN["data"])
    assert found == [SECRET, "77123", "ward-9"]


# --- every word, by itself --------------------------------------------------------------------------------------------


def kinds(of: type[DpgtError]) -> list[type[DpgtError]]:
    return [of, *(below for child in of.__subclasses__() for below in kinds(child))]


@pytest.mark.parametrize("kind", kinds(DpgtError), ids=lambda kind: kind.__name__)
def test_no_error_says_its_own_words(kind: type[DpgtError]) -> None:
    one, other = kind.__new__(kind), kind.__new__(kind)
    for error, text in ((one, SECRET), (other, "77123")):
        Exception.__init__(error, text)
        error.told = error.grpc_status = text  # type: ignore[attr-defined, misc]
    assert told(one) == told(other) and SECRET not in told(one)
    assert 1 <= len(told(one)) <= 100 and told(one).isprintable()
    assert told(ValueError(SECRET)) == f"{A_BUG}; its own log says more"


def test_kinds_can_be_told_apart() -> None:
    errors = (
        ConfigError([]),
        StoreError(),
        StaleState(),
        BudgetReached(),
        RefusedError("x"),
        Diverged(),
        OutOfReach(),
        PeerLost("x"),
    )
    assert len({told(error) for error in errors}) == len(errors)


def test_the_cause_of_a_lost_stream_is_a_kind() -> None:
    sender = Sender(1, OWNER, bytes(16), patience_ns=10**12, silence_ns=10**12)
    (dial,) = (e for e in sender.step(Address("127.0.0.1:1"), 0) if isinstance(e, Dial))
    out = sender.step(Ended(dial.call, Untrusted(f"/{SECRET}/node.pem: expired")), 0)
    assert sender.trouble == told(Untrusted("")) and SECRET not in sender.trouble
    assert any(isinstance(note, Note) and SECRET in note.text for note in out), "the own log has it all"


class Context:
    """Of a call, as gRPC gives it."""

    said: tuple[grpc.StatusCode, str] | None = None

    async def abort(self, code: grpc.StatusCode, details: str) -> None:
        self.said = code, details
        raise grpc.aio.AbortError


async def answer_to(error: BaseException) -> tuple[grpc.StatusCode, str]:
    """What the caller of a server hears when the work of its call fails so."""

    async def work() -> None:
        raise error

    context = Context()
    caller = cast("services.Caller", SimpleNamespace(address="ipv4:127.0.0.1:1"))
    with pytest.raises(grpc.aio.AbortError):
        await services.guarded(context, services.no_guard, caller, work)
    assert context.said is not None
    return context.said


@pytest.mark.parametrize(
    "error", [ValueError(SECRET), OSError(28, "No space left", f"/{SECRET}"), ConfigError.one(SECRET, "", SECRET)]
)
async def test_a_bug_in_a_call_is_no_word_of_it(error: Exception) -> None:
    assert await answer_to(error) == (grpc.StatusCode.INTERNAL, A_BUG)


@pytest.mark.parametrize("kind", [kind for kind in kinds(DpgtError) if kind is not PeerError], ids=lambda k: k.__name__)
async def test_a_call_that_ends_with_another_kind_of_error_hears_the_kind(
    kind: type[DpgtError], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What broke between this host and a third one is no answer to the caller."""
    error = kind.__new__(kind)
    Exception.__init__(error, SECRET)
    error.grpc_status = "UNAVAILABLE"  # type: ignore[attr-defined]
    _, said = await answer_to(error)
    assert said in (told(error), A_BUG) and SECRET not in said
    monkeypatch.setattr(services, "answered", own_words)
    assert (SECRET in (await answer_to(error))[1]) is issubclass(kind, PeerError), "the mutant: its own words"


async def test_the_gate_says_what_is_wrong_with_what_the_caller_sent() -> None:
    error = PeerError("a vector of 3 numbers, 4 are asked", grpc_status="OUT_OF_RANGE")
    assert await answer_to(error) == (grpc.StatusCode.OUT_OF_RANGE, str(error))


DIAL_OUT = {"runtime/trust/probe.py", "runtime/trust/channels.py", "runtime/trust/pinned.py"}
"""Their errors are about calls of this host's own, and reach its log."""


def quoted(source: str) -> list[str]:
    """PeerErrors of ``source`` that are made of the words of another exception."""
    found = []
    for handler in ast.walk(ast.parse(source)):
        if not isinstance(handler, ast.ExceptHandler) or handler.name is None:
            continue
        for call in ast.walk(handler):
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "PeerError":
                names = {name.id for name in ast.walk(call) if isinstance(name, ast.Name)}
                found += [ast.unparse(call)] if handler.name in names else []
    return found


def test_what_a_server_answers_is_never_made_of_another_error() -> None:
    root = Path(services.__file__).parents[1]
    paths = [path for package in ("wire", "protocol", "runtime") for path in sorted((root / package).rglob("*.py"))]
    found = {str(path.relative_to(root)): quoted(path.read_text()) for path in paths}
    assert {path: calls for path, calls in found.items() if calls and path not in DIAL_OUT} == {}
    assert len(paths) > 60
    assert quoted("try: pass\nexcept OSError as e: raise PeerError(f'cannot write: {e.filename}') from e")
    assert not quoted("try: pass\nexcept OSError as e: raise PeerError('cannot write') from e")


async def test_a_coordinator_that_cannot_keep_an_upload_says_no_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The words that go over the wire, of a whole run."""
    said: list[str] = []
    abort = services._abort

    async def heard(context: Any, error: PeerError) -> None:
        said.append(services.answered(error))
        await abort(context, error)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device", f"/{SECRET}/ward-9")

    monkeypatch.setattr(services, "_abort", heard)
    monkeypatch.setattr(results_module.Results, "_take_state", full)
    run = run_of(tmp_path)
    run = replace(run, evaluate=replace(run.evaluate, metrics="study"))
    async with cluster(tmp_path / "cluster", run) as c:
        c.start_all()
        reason, _ = await everybody(c)
    assert "the coordinator cannot write" in said and "ward-9" in reason, "its own end says all of it"
    states = files_of(*(c.folder / "state" / name for name in run.graph.agents))
    assert leaked([SECRET, "ward-9"], states, *(words.encode() for words in said)) == []
