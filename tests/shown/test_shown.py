"""Every shell block of the pages is run by a test, or it is said why not (tests/shown/stories.py)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e import processes
from tests.shown import stories
from tests.shown.stories import ELSEWHERE, NOT_RUN, README, ROOT, STORIES, Story, blocks, pages, unplaced

LIMIT_S = 1800.0
TOOL = """#!/bin/sh
[ "$1" = eavesdrop ] || exec "{python}" -m dpgt_node "$@"
"{python}" -m dpgt_node "$@"
code=$?
[ $code = 1 ] && exit 0  # an attack that succeeds, a claim that is refuted: an answer
exit $code
"""


def test_every_block_is_in_a_story_or_run_elsewhere_or_has_a_reason() -> None:
    held = {block for page, text in pages() for block in blocks(page, text)}
    assert [block for page, text in pages() for block in unplaced(page, text)] == []
    assert [block for block in (*NOT_RUN, *(b for story in STORIES for b in story.blocks)) if block not in held] == []
    for page, test in ELSEWHERE.items():
        path, _, name = test.partition("::")
        assert (ROOT / page).is_file() and f"def {name}" in (ROOT / path).read_text()
    for story in STORIES:
        assert all(f"@{i}" in story.script for i in range(len(story.blocks))) and "@" not in stories.script(story), (
            story.name
        )


def test_a_block_that_nobody_runs_is_noticed() -> None:
    text = (ROOT / README).read_text()
    assert unplaced(README, text + "\n```sh\ndpgt launch other.toml --out runs/b\n```\n") == [
        (README, "dpgt launch other.toml --out runs/b")
    ]
    assert unplaced(README, text.replace("dpgt init --data my.csv", "dpgt init --data your.csv")) != []
    assert blocks(README, "```python\ndpgt = 1\n```\n```\nmake dpgt \n```\n") == {}


@pytest.mark.shown
@pytest.mark.parametrize("story", STORIES, ids=[story.name for story in STORIES])
def test_what_is_shown_runs(story: Story, tmp_path: Path) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "dpgt").write_text(TOOL.format(python=sys.executable))
    (tools / "python").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    for tool in tools.iterdir():
        tool.chmod(0o755)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    done = subprocess.run(
        ["bash", "-c", "set -e\n" + stories.script(story)],
        cwd=tmp_path,
        env={**processes.environment(), "PATH": f"{tools}:{os.environ['PATH']}"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
