"""Clocks inside the agents of a launch, for benches: with this folder first on PYTHONPATH every ``dpgt node`` process
writes DPGT_BENCH/NAME.json at its end (see ``tests.bench.launched``).  DPGT_BENCH_STORE=off: states stay in memory.
"""

from __future__ import annotations

import os
import sys

FOLDER = os.environ.get("DPGT_BENCH", "")
if FOLDER and "node" in sys.orig_argv and "--config" in sys.orig_argv:
    from tests.bench import launched

    launched.watch(FOLDER, off=os.environ.get("DPGT_BENCH_STORE") == "off")
