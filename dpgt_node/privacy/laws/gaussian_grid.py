"""The public grid of the Gaussian law: draws are odd multiples of half a cell (docs/explanation/theory-sampler.md)."""

from __future__ import annotations

from typing import Final

CELLS: Final = 256
"""A standard deviation."""
LIMIT_CELLS: Final = 1 << 24
"""The largest magnitude that is not clipped."""
