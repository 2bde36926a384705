"""Which run an output folder holds, by what its first start wrote there."""

from __future__ import annotations

from pathlib import Path

from dpgt_node.config import RunConfig, run_sha256
from dpgt_node.documents import read_json

IDENTITY_FILE = "run_id.json"


def another_run(out_dir: Path, run: RunConfig) -> str | None:
    """What is wrong where ``run``, of ``out_dir``/run.toml, is not the run that began there; None where it is, or where
    nothing tells.
    """
    try:
        held = str(read_json(out_dir / IDENTITY_FILE)["run_sha256"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    digest = run_sha256(run)
    if held == digest:
        return None
    return f"is not the run that began in this folder: sha256 {digest[:12]}, not {held[:12]}"
