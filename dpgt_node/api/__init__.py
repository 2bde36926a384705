"""What the command line does, from Python: ``from dpgt_node import api``.

Every call that computes is a ``dpgt`` command in a process of its own.  So the bits are those of the command line, and
event loops, signal handlers, threads and plots of whoever calls, a notebook for instance, stay as they are.  Errors
are those of :mod:`dpgt_node.errors`; a ConfigError carries all problems at once.  See docs/reference/api.md.
"""

from __future__ import annotations

from dpgt_node.api.answers import Checked, Planned, check, plan
from dpgt_node.api.beginning import Begun, init
from dpgt_node.api.models import Evaluated, Exported, evaluate, export, predict, report
from dpgt_node.api.results import Results, load_results
from dpgt_node.api.runfile import RunFile, load_run
from dpgt_node.api.running import Round, Running, Stopped, run, simulate, start, start_simulation
from dpgt_node.api.table import Table
from dpgt_node.errors import BudgetReached, ConfigError, DpgtError, PeerLost, Problem, RefusedError

__all__ = [
    "Begun",
    "BudgetReached",
    "Checked",
    "ConfigError",
    "DpgtError",
    "Evaluated",
    "Exported",
    "PeerLost",
    "Planned",
    "Problem",
    "RefusedError",
    "Results",
    "Round",
    "RunFile",
    "Running",
    "Stopped",
    "Table",
    "check",
    "evaluate",
    "export",
    "init",
    "load_results",
    "load_run",
    "plan",
    "predict",
    "report",
    "run",
    "simulate",
    "start",
    "start_simulation",
]
