"""What a user in a hurry gives: one small input each; what is said tells what is wrong, where, and the way out."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from dpgt_node.documents import parse_json
from tests.adversary.decode import wires as w
from tests.adversary.decode.tlstalk import talk
from tests.cli.conftest import Run

RUN = """name = "hurry"
[algorithm]
iterations = 1
{algorithm}
[scheme]
kind = "S2"
alpha = 0.1
beta = 0.01
gamma = 0.1
p_m = 1.0
[noise]
scale_zeta = 1.0
scale_eta = 1.0
law = "{law}"
[graph]
agents = 2
R = {R}
C = [[0, 1], [1, 0]]
[data]
{data}
[privacy]
{bound}
delta = 1e-5
"""
QUADRATIC = 'dataset = "quadratic"\ndimension = 3'


def text(
    *, data: str = QUADRATIC, law: str = "laplace", bound: str = "clip_l1 = 4.0", algorithm: str = "", R: str = ""
) -> str:
    return RUN.format(data=data, law=law, bound=bound, algorithm=algorithm, R=R or "[[0, 1], [1, 0]]")


# --- names and addresses


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("", '":7701" must be HOST:PORT, and there is no host'),
        ("m\u00fcnchen.example", "a host name is written in ASCII here: its xn-- form, or the address"),
        ("0x7f000001", "not an IPv4 address (four numbers, 0 to 255, without leading zeros)"),
        ("010.0.0.1", "not an IPv4 address (four numbers, 0 to 255, without leading zeros)"),
        ("localhost:7702", "agent-1 and agent-2 have one address and port"),
    ],
)
def test_an_address_that_cannot_be_meant(address: str, words: str, dpgt: Run, tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text(text())
    others = ["--host", "agent-2=127.0.0.1:7702", "--host", "coordinator=10.0.0.9"]
    code, _, err = dpgt("pki", "init", "run.toml", "--out", "hosts", "--host", f"agent-1={address}", *others)
    assert code == 2 and words in err and not (tmp_path / "hosts").exists()


def test_localhost_among_other_hosts_is_said(dpgt: Run, tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text(text())
    hosts = [f"--host={name}=127.0.0.1:{7700 + i}" for i, name in enumerate(["coordinator", "agent-1", "agent-2"])]
    assert dpgt("pki", "init", "run.toml", "--out", "one", *hosts)[2] == ""
    hosts[2] = "--host=agent-2=10.0.0.2"
    code, _, err = dpgt("pki", "init", "run.toml", "--out", "two", *hosts)
    assert code == 0 and "127.0.0.1 (coordinator, agent-1) is every host itself" in err


def test_a_node_is_not_its_own_coordinator(dpgt: Run, tmp_path: Path) -> None:
    (tmp_path / "NODE.toml").write_text(
        'name = "agent-1"\nrun = "run.toml"\nlisten = "127.0.0.1:7701"\ncoordinator = "127.0.0.1:7701"\n'
        'state_dir = "state"\n[tls]\ninsecure = true\n'
    )
    code, _, err = dpgt("doctor", "NODE.toml")
    assert code == 2 and "coordinator: \"127.0.0.1:7701\" is this node's own address, not the coordinator's" in err


@pytest.mark.parametrize(
    ("listen", "words"),
    [
        ("no-such-host.invalid:7700", "cannot listen on no-such-host.invalid:7700: "),
        ("192.0.2.1:7700", "cannot listen on 192.0.2.1:7700: cannot assign requested address"),
    ],
)
def test_why_nobody_can_listen_there(listen: str, words: str, dpgt: Run, tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text(text())
    code, _, err = dpgt("coordinator", "--config", "run.toml", "--listen", listen, "--out", "out", "--insecure")
    assert code == 2 and words in err and "port is in use" not in err and not (tmp_path / "out").exists()


def test_port_0_cannot_be_asked(dpgt: Run) -> None:
    code, _, err = dpgt("status", "--coordinator", "127.0.0.1:0", "--insecure")
    assert code == 2 and "--coordinator: 127.0.0.1:0: port 0 cannot be dialled" in err


# --- text files of other editors


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (text().encode("utf-16-le"), "is UTF-16 text without a mark that says so: save it as UTF-8"),
        (
            text().replace("hurry", "K\u00f6ln").encode("latin-1"),
            "is not UTF-8 text (line 1, byte 9): save it as UTF-8",
        ),
    ],
)
def test_a_run_file_in_another_encoding(content: bytes, words: str, dpgt: Run, tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_bytes(content)
    code, _, err = dpgt("check", "run.toml")
    assert code == 2 and words in err


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("0,1\r\n1,0\r\n".encode("utf-16"), ""),
        (b"0;1\n1;0\n", "line 1: could not convert string to float: '0;1'; a row is numbers with commas between them"),
    ],
)
def test_a_matrix_of_another_editor(content: bytes, words: str, dpgt: Run, tmp_path: Path) -> None:
    (tmp_path / "R.csv").write_bytes(content)
    (tmp_path / "run.toml").write_text(text(R='"R.csv"'))
    code, _, err = dpgt("check", "run.toml")
    assert (code, err) == (0, "") if not words else (code == 2 and words in err)


@pytest.mark.parametrize(
    ("head", "words"),
    [
        ("# my data\na,b,label", "the first line must name the columns, and is '# my data'"),
        ("'a','b','label'", "it has \"'a'\", \"'b'\", \"'label'\""),
        ("a,b,Label", 'did you mean "Label"?'),
        ("\u00e9,b,label", "is not UTF-8 text: save it as UTF-8"),
    ],
)
def test_a_table_whose_header_is_none(head: str, words: str, dpgt: Run, tmp_path: Path) -> None:
    rows = "".join(f"{i}.5,{i * i},{i % 2}\n" for i in range(20))
    (tmp_path / "t.csv").write_bytes(f"{head}\n{rows}".encode("latin-1"))
    (tmp_path / "run.toml").write_text(text(data='dataset = "csv:t.csv"\nlabel = "label"'))
    code, _, err = dpgt("check", "run.toml")
    assert code == 2 and words in err


# --- labels that are off

X = np.random.default_rng(0).random((24, 3))
EVEN = np.arange(24) % 2


@pytest.mark.parametrize(
    ("labels", "test", "words"),
    [
        (EVEN.astype(float), EVEN, ""),
        (EVEN.astype(bool), EVEN, ""),
        (EVEN.astype("S1"), EVEN.astype("U1"), ""),
        (EVEN + 0.5, EVEN, "y_train: has dtype float64; labels must be integers or words"),
        (EVEN[:, None], EVEN, "y_train: has shape (24, 1); labels must be (samples,): use y.ravel()"),
        (
            np.eye(2)[EVEN],
            EVEN,
            "y_train: has shape (24, 2); labels must be (samples,): of one column a class, y.argmax(",
        ),
        (np.array(["cat", "Cat ", "dog"])[np.arange(24) % 3], np.array(["dog"] * 24), "differ in capitals or spaces"),
        (EVEN, np.arange(24) % 3, "classes in the test set that no training sample here has: 2"),
    ],
    ids=["whole floats", "bool", "bytes", "halves", "a column", "one-hot", "case", "unseen"],
)
def test_labels(labels: np.ndarray, test: np.ndarray, words: str, dpgt: Run, tmp_path: Path) -> None:
    np.savez(tmp_path / "d.npz", x_train=X, y_train=labels, x_test=X + 1, y_test=test)
    (tmp_path / "run.toml").write_text(text(data='dataset = "npz:d.npz"'))
    code, out, err = dpgt("check", "run.toml")
    said = " ".join((out + err).split())
    assert words in said and code == (2 if "y_train" in words else 0)


# --- guarantees that guarantee nothing


def test_a_bound_that_is_only_declared_is_said_with_the_epsilon(dpgt: Run, tmp_path: Path) -> None:
    for bound, declared in (("C = 1.0", True), ("clip_l1 = 0.5", False)):
        (tmp_path / "run.toml").write_text(text(bound=bound))
        said = " ".join(dpgt("check", "run.toml")[1].split())
        assert ("only if no gradient exceeds C = 1, which is declared and not enforced" in said) == declared


def test_without_an_epsilon_both_ways_out_are_named(dpgt: Run, tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text(text(law="gaussian", bound="clip_l2 = 4.0"))
    said = " ".join(dpgt("check", "run.toml")[1].split())
    assert "Epsilon: none. Pure: pure epsilon needs Laplace noise; the law is gaussian. With a delta: the " in said


def test_an_epsilon_that_cannot_be_is_refused_before_anything_is_read(dpgt: Run, tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text(text(data='dataset = "digits"'))
    for option, value in (("--epsilon", "0"), ("--delta", "1")):
        code, _, err = dpgt("plan", "run.toml", "--epsilon", "1", option, value)
        assert code == 2 and err.startswith(f"dpgt plan: command line: {option}: must be ") and err.count("\n") == 1


# --- "this is a bug" for what a user can mend


def test_documents_that_cannot_be_read_are_no_bug() -> None:
    for document in ("[" * 100_000, "{", b"\xff", ""):
        with pytest.raises(ValueError):
            parse_json(document)
    assert parse_json("\ufeff[1]".encode()) == [1]


def test_a_result_that_was_spoiled_or_is_another_runs(dpgt: Run, tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text(text(algorithm='mechanism = "public-state"'))
    assert dpgt("simulate", "run.toml", "--out", "out")[0] == 0
    own, summary = (tmp_path / "out/run.toml").read_text(), tmp_path / "out/summary.json"
    held = summary.read_text()
    for spoiled in ("[" * 100_000, held.replace('"rounds": 2', '"rounds": 1e999'), "null"):
        summary.write_text(spoiled)
        code, _, err = dpgt("report", "out")
        assert code == 2 and "summary.json: " in err and "NoneType" not in err
    summary.write_text(held)
    (tmp_path / "out/run.toml").write_text(own.replace("scale_eta = 1.0", "scale_eta = 9.0"))
    code, _, err = dpgt("export", "out", "--out", "model")
    assert code == 2 and "out/run.toml: is not the run that began in this folder" in err
    assert "is not the run that began in this folder" in dpgt("report", "out")[2]


# --- decode that loses


def test_a_capture_of_nothing_leaves_nothing(dpgt: Run, tmp_path: Path) -> None:
    wires = w.exchange([[w.payload("X", k, 30)] for k in range(3)]).wires
    good = w.write_pcap(tmp_path / "x.pcap", wires).read_bytes()
    for content, kept in ((b"", False), (good[:10], False), (good[:-7], True)):
        (tmp_path / "x.pcap").write_bytes(content)
        assert dpgt("eavesdrop", "decode", "x.pcap", "--out", "t")[0] == 2
        assert (tmp_path / "t.part").exists() == kept and not (tmp_path / "t").exists()


def test_keys_that_nothing_needed_and_keys_of_one_direction(dpgt: Run, tmp_path: Path) -> None:
    turns = [(x.side, x.data) for x in w.exchange([[w.payload("X", k, 30)] for k in range(3)]).wires]
    inside, outside = talk(tmp_path, tmp_path / "keys", [(side, data) for side, data in turns if data]), w.Talk().open()
    w.write_pcap(tmp_path / "plain.pcap", w.exchange([[w.payload("X", k, 30)] for k in range(3)]).wires)
    _, out, _ = dpgt("eavesdrop", "decode", "plain.pcap", "--out", "t", "--keys", "keys", "--format", "json")
    assert json.loads(out)["channel"] == "plain"
    for side, data in inside.wire:
        outside.say(side, data)
    w.write_pcap(tmp_path / "tls.pcap", outside.end().wires)
    half = [line for line in (tmp_path / "keys").read_text().splitlines(True) if not line.startswith("SERVER")]
    (tmp_path / "half").write_text("".join(half))
    code, _, err = dpgt("eavesdrop", "decode", "tls.pcap", "--out", "u", "--keys", "half")
    assert code == 1 and "one a direction" in err and not (tmp_path / "u").exists()
