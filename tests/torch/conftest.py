"""This folder is the tier of the extra [torch]: without torch there is nothing here that can be collected."""

from __future__ import annotations

import importlib.util

collect_ignore_glob = [] if importlib.util.find_spec("torch") else ["test_*.py"]
