"""What goes to standard error: log lines as text or as JSON, and the one line that says why a command failed."""

from __future__ import annotations

import logging
import sys
import time

import click

from dpgt_node.cli import wrapping
from dpgt_node.record.lines import JsonLines, json_line

TEXT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
META = "log_format"


class TextLines(logging.Formatter):
    """A line a record; on a terminal it breaks at words, for whoever reads it there."""

    def __init__(self) -> None:
        super().__init__(TEXT)

    def format(self, record: logging.LogRecord) -> str:
        """See :class:`logging.Formatter`."""
        return wrapping.fitted(super().format(record), sys.stderr.isatty())


def _set_format(context: click.Context, _parameter: click.Parameter, value: str) -> None:
    context.find_root().meta[META] = value
    if value == "json":
        for handler in logging.getLogger().handlers:
            if isinstance(handler.formatter, TextLines):  # the command's own, not a host program's
                handler.setFormatter(JsonLines())


log_format_option = click.option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    expose_value=False,
    callback=_set_format,
    help="json: a document a line on standard error, for whoever collects logs.",
)


def log_format(context: click.Context) -> str:
    """What ``--log-format`` says, "text" for a command without it."""
    return str(context.find_root().meta.get(META, "text"))


def _is_json() -> bool:
    return any(isinstance(handler.formatter, JsonLines) for handler in logging.getLogger().handlers)


def remark(line: str) -> None:
    """Warn of what is not as it should be: plainly, as a command's other output, or as a record where the log is JSON.

    Nothing where ``--log-level`` leaves warnings out.
    """
    log = logging.getLogger("dpgt_node.check")
    if _is_json():
        log.warning("%s", line)
    elif log.isEnabledFor(logging.WARNING):
        tell(line)


def tell(line: str) -> None:
    """Print ``line`` on standard error, in the format of the log: why the command fails."""
    said = json_line(time.time(), "error", "dpgt", line) if _is_json() else wrapping.fitted(line, sys.stderr.isatty())
    print(said, file=sys.stderr, flush=True)
