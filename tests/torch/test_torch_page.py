"""The recipe for pictures and a network of one's own, as its page has it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from dpgt_node.learning.data.datasets import load_dataset
from tests.e2e import processes

pytestmark = pytest.mark.torch
PAGE = (processes.ROOT / "docs" / "howto" / "own-model.md").read_text(encoding="utf-8")
FILE = re.compile(r"ave this as\s`([\w.]+)`:\n\n```\w+\n(.*?)^```", re.MULTILINE | re.DOTALL)
COMMANDS = re.compile(r"^```\n(dpgt plan net\.toml.*?)^```", re.MULTILINE | re.DOTALL)


def test_the_page_s_files_and_commands_run_as_they_stand(tmp_path: Path) -> None:
    data = load_dataset("digits")
    for i, (x, y) in enumerate(zip(data.x_train, data.y_train, strict=True)):
        folder = tmp_path / "pictures" / f"digit {y}"
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray((x * 255).round().astype(np.uint8).reshape(8, 8)).save(folder / f"{i}.png")
    written = dict(FILE.findall(PAGE))
    assert set(written) == {"my_model.py", "net.toml"}
    for name, text in written.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "dpgt").write_text(f'#!/bin/sh\nexec "{sys.executable}" -P -m dpgt_node "$@"\n')
    (tools / "dpgt").chmod(0o755)
    (script,) = COMMANDS.findall(PAGE)
    done = subprocess.run(
        ["bash", "-ec", script],
        cwd=tmp_path,
        env={**processes.environment(), "PATH": f"{tools}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=3 * processes.LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    accuracy = re.search(r"folder:pictures, test: accuracy ([\d.]+) %.* 287 samples", done.stdout)
    assert accuracy is not None and float(accuracy[1]) > 70.0
    told = [line.split(",") for line in done.stdout.split("file,class\n")[1].splitlines()]
    right = [Path(file).parent.name == name for file, name in told]
    assert len(right) == len(data.y_train) and np.mean(right) > 0.7
