"""What the extra [torch] brings, and what is said in every place where it is missing."""

from __future__ import annotations

import importlib.util


def lacking(module: str) -> str | None:
    """What ``needs`` says, where ``module`` is missing; None: it is here.  It is not imported."""
    return None if importlib.util.find_spec(module) is not None else needs(module)


def needs(module: str) -> str:
    """What is said where ``module`` is missing; whoever needs it stands before."""
    return f"needs {module}: pip install 'dpgt-node[torch]'"
