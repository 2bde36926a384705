"""TensorBoard events: read back with tensorboard's own reader; no TensorFlow, no import before the first row."""

from __future__ import annotations

import io
import math
import subprocess
import sys
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.summary.writer.record_writer import RecordWriter

from dpgt_node.record.costs import Epsilon
from dpgt_node.record.metrics import MetricsRow
from dpgt_node.record.tensorboard import TensorBoardWriter, record
from tests.report.synthetic import digits_run, rows_of


def scalars(folder: Path) -> dict[str, list[tuple[int, float]]]:
    accumulator = EventAccumulator(str(folder))
    accumulator.Reload()
    tags = accumulator.Tags()["scalars"]
    return {tag: [(event.step, event.value) for event in accumulator.Scalars(tag)] for tag in tags}


def test_read_back(tmp_path: Path) -> None:
    run = digits_run()
    rows = rows_of(run)
    writer = TensorBoardWriter(tmp_path, clock=lambda: 1e9)
    for start in range(0, len(rows), 5):
        writer.append(rows[start : start + 5])
    writer.close()
    writer.close()
    assert sorted(path.name for path in (tmp_path / "tb").iterdir()) == [*run.graph.agents, "all"]
    mine = [row for row in rows if row.agent == "agent-3"]
    found = scalars(tmp_path / "tb" / "agent-3")
    assert set(found) == {"loss/train", "accuracy/train", "accuracy/test", "grad_norm", "epsilon/lemma5"}
    assert [step for step, _ in found["accuracy/test"]] == [row.k for row in mine]
    for (_, value), row in zip(found["accuracy/test"], mine, strict=True):
        assert row.accuracy_test is not None and math.isclose(value, row.accuracy_test, rel_tol=1e-6)
    everybody = scalars(tmp_path / "tb" / "all")
    assert set(everybody) == {"consensus_error"}
    assert [step for step, _ in everybody["consensus_error"]] == [*range(0, 201, 10), 201]


def test_continued_run_adds_files(tmp_path: Path) -> None:
    for k in (0, 10):
        writer = TensorBoardWriter(tmp_path, clock=lambda: 1e9)
        writer.append([MetricsRow("a", k, loss_train=float(k), epsilon=Epsilon(lemma5=math.inf))])
        writer.close()
    assert len(list((tmp_path / "tb" / "a").iterdir())) == 2
    assert scalars(tmp_path / "tb" / "a") == {
        "loss/train": [(0, 0.0), (10, 10.0)],
        "epsilon/lemma5": [(0, math.inf), (10, math.inf)],
    }


def test_names_stay_inside_the_folder(tmp_path: Path) -> None:
    writer = TensorBoardWriter(tmp_path)
    writer.append([MetricsRow(name, 0, loss_train=1.0) for name in ("../../evil", "/etc", "..", "")])
    writer.close()
    folders = [path for path in tmp_path.rglob("*") if path.is_dir()]
    assert len(folders) > 3 and all(path.parent in (tmp_path, tmp_path / "tb") for path in folders)


@pytest.mark.parametrize("size", [0, 1, 300])
def test_a_record_is_framed_as_the_library_frames_it(size: int) -> None:
    data, theirs = bytes(range(256)) * 2, io.BytesIO()
    RecordWriter(theirs).write(data[:size])
    assert record(data[:size]) == theirs.getvalue()


def test_lazy_and_without_tensorflow(tmp_path: Path) -> None:
    (tmp_path / "tensorflow.py").write_text("raise AssertionError('TensorFlow was imported')\n")
    code = (
        "import sys; from pathlib import Path; from dpgt_node.record.metrics import MetricsRow\n"
        "from dpgt_node.record.tensorboard import TensorBoardWriter\n"
        f"writer = TensorBoardWriter(Path({str(tmp_path)!r}))\n"
        "assert 'tensorboard' not in sys.modules\n"
        "writer.append([MetricsRow('a', 0, loss_train=1.0)])\n"
        "assert 'tensorboard' in sys.modules and 'tensorflow' not in sys.modules\n"
        "assert not {'absl', 'fsspec', 'tensorboard.summary'} & sys.modules.keys()\n"
    )
    root = Path(__file__).parents[2]
    subprocess.run([sys.executable, "-c", code], check=True, env={"PYTHONPATH": f"{root}:{tmp_path}"})
