"""Where functions of the operator's own are looked for: PYTHONPATH first, then the current folder, last of all."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from dpgt_node.errors import ConfigError
from dpgt_node.learning.plugins import called


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    return tmp_path


def test_a_module_in_the_current_folder_is_found_with_what_it_imports(here: Path) -> None:
    (here / "beside_the_run.py").write_text("from other_beside_it import twice\n")
    (here / "other_beside_it.py").write_text("def twice(x): return 2 * x\n")
    assert called("beside_the_run:twice", "model.name", 21) == 42


def test_no_file_here_stands_for_a_module_that_is_installed(here: Path) -> None:
    (here / "json.py").write_text("def dumps(x): return 'mine'\n")
    assert called("json:dumps", "model.name", 1) == json.dumps(1)
    before = list(sys.path)
    assert str(here) not in before, "nobody looks here unless the module is nowhere else"


def test_a_module_that_is_nowhere_says_where_it_was_looked_for(here: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot be imported: .*modules are those of PYTHONPATH and of this folder"):
        called("nowhere_at_all:f", "model.name")
