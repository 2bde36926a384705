"""What ends a tap."""

from __future__ import annotations

from dpgt_node.errors import DpgtError, ExitCode


class CaptureError(DpgtError):
    """A capture that is not whole: something was sent that it does not hold."""

    exit_code = ExitCode.CHECK_FAILED
