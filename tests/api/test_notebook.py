"""The example notebook, run by a Jupyter kernel: an event loop is running there, and plots are inline."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from tests.e2e import processes

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.mark.e2e
def test_the_example_notebook_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PYTHONPATH", processes.environment()["PYTHONPATH"])
    monkeypatch.delenv("MPLBACKEND", raising=False)  # which the commands set; the kernel takes its own
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    for name in ("IPYTHONDIR", "JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR"):
        monkeypatch.setenv(name, str(tmp_path / name))
    notebook = nbformat.read(EXAMPLES / "demo.ipynb", as_version=4)  # type: ignore[no-untyped-call]
    assert [cell for cell in notebook.cells if cell.get("outputs")] == []  # the repository holds no results
    NotebookClient(
        notebook, timeout=2 * int(processes.LIMIT_S), kernel_name="python3", resources={"metadata": {"path": EXAMPLES}}
    ).execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    said = "".join(output.text for output in outputs if output.output_type == "stream" and output.name == "stdout")
    assert "would start: True" in said and "round  60 of 60" in said and 'must be one of "S1", "S2"' in said
    shown = [set(output.data) for output in outputs if "data" in output]
    assert any("text/html" in kinds for kinds in shown) and any("image/png" in kinds for kinds in shown)
