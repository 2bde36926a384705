"""Log lines as JSON, one document a line, and how a line of either format is read back."""

from __future__ import annotations

import json
import logging
import math
import time
from collections.abc import Mapping
from typing import Any

from dpgt_node.documents import parse_json
from dpgt_node.values import dataclass


def json_line(wall_s: float, level: str, logger: str, message: str, fields: Mapping[str, object] | None = None) -> str:
    """One line.  ``wall_s``: seconds since the epoch.  ``fields`` stand beside the others; no NaN, no Infinity."""
    stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(wall_s)) + f".{int(wall_s % 1 * 1000):03d}Z"
    document = {"time": stamp, "level": level, "logger": logger, "message": message, **(fields or {})}
    return json.dumps(plain(document), allow_nan=False, ensure_ascii=False)


def plain(value: Any) -> Any:
    """``value`` as JSON takes it: infinite is "inf" or "-inf", NaN is null, what JSON has no word for is its text."""
    match value:
        case float():
            return None if math.isnan(value) else str(value) if math.isinf(value) else value
        case Mapping():
            return {str(key): plain(one) for key, one in value.items()}
        case list() | tuple():
            return [plain(one) for one in value]
        case None | bool() | int() | str():
            return value
        case _:
            return str(value)


class JsonLines(logging.Formatter):
    """``time`` (UTC), ``level``, ``logger``, ``message``; ``extra={"fields": {...}}`` of a record beside them."""

    def format(self, record: logging.LogRecord) -> str:
        fields = dict(getattr(record, "fields", None) or {})
        if record.exc_info:
            fields["traceback"] = self.formatException(record.exc_info)
        return json_line(record.created, record.levelname.lower(), record.name, record.getMessage(), fields)


@dataclass(frozen=True, slots=True)
class Said:
    """A line of a log.  ``text``: its message, in the text format the line as it stands."""

    text: str
    info: bool
    logger: str


def read_line(line: str) -> Said:
    """A line of either format; what is neither is taken as it stands, and is no mere information."""
    if line.startswith("{"):
        try:
            document = parse_json(line)
            return Said(str(document["message"]), document["level"] in ("info", "debug"), str(document["logger"]))
        except (ValueError, KeyError, TypeError):
            return Said(line, False, "")
    _, mark, after = line.partition(" INFO ")
    return Said(line, bool(mark), after.partition(": ")[0])
