"""JSON that anybody may have written: damaged, foreign or hostile, it is a ValueError and nothing else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def parse_json(text: str | bytes) -> Any:
    """The document in ``text``; bytes are UTF-8, with or without a mark.  ValueError: it is none, or nested deeper than
    can be read.
    """
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def read_json(path: Path) -> Any:
    """The document in a file.  OSError, or ValueError as :func:`parse_json`."""
    return parse_json(path.read_bytes())
