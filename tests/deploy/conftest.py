"""What the tests that carry out deploy/ share: one bare Debian, made once."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.deploy import debian


@pytest.fixture(scope="session")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bare Debian that nobody changes.  DPGT_DEBIAN names one that is there already (debian.PACKAGES in it)."""
    if (lacking := debian.lacking()) is not None:
        pytest.fail(f"make deploy-check {lacking}", pytrace=False)
    given = os.environ.get("DPGT_DEBIAN")
    return Path(given) if given else debian.bare(tmp_path_factory.mktemp("debian") / "root")


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    """For roots: not below a folder that only this user may enter."""
    for folder in (tmp_path, *tmp_path.parents[:2]):
        folder.chmod(0o755)
    return tmp_path
