"""Loops over many coordinates as machine code, where numba is installed (extras torch and fast).

What a loop computes is the same to the last bit as what numpy computes without it: no reciprocal, no fused product, no
other order of sums.  So who has numba and who has not get the same run.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt

COMPILED_FROM: Final = 1 << 18  # coordinates; below, importing numba would cost more than it saves
WORTH_COMPILING: Final = 1 << 28  # coordinates in all: about two seconds of numpy
Code = Callable[..., Any]


@cache
def machine_code(loop: Code) -> Code | None:
    """``loop`` compiled, once in a process: a second or two.  None where numba is not installed."""
    try:
        import numba
    except ImportError:
        return None
    # No fastmath: a reciprocal or a fused product would give other bits.  error_model: x / 0 is infinite, as in numpy.
    code: Code = numba.njit(nogil=True, error_model="numpy")(loop)
    return code


def compiles(d: int) -> bool:
    """Whether loops over ``d`` coordinates are machine code, where nobody says otherwise."""
    return d >= COMPILED_FROM and _has_numba()


def worth_compiling(coordinates: int) -> bool | None:
    """What ``compiled`` should be for so many coordinates in all, however short the vectors: True, or None."""
    return True if coordinates >= WORTH_COMPILING and _has_numba() else None


def _has_numba() -> bool:
    try:
        import numba  # noqa: F401
    except ImportError:
        return False
    return True


def fixed(v: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """``v``, read-only in one piece: one type for the compiler, and a promise."""
    view = np.ascontiguousarray(v).view()
    view.setflags(write=False)
    return view


class Loop:
    """``loop``, which plain Python could run too, as it is used.

    ``compiled``: True wants it as machine code, ValueError without numba; False never; None from COMPILED_FROM
    coordinates on, where numba is installed.
    """

    __slots__ = ("_code", "_compiled", "_loop")

    def __init__(self, loop: Code, compiled: bool | None = None) -> None:
        self._loop, self._compiled = loop, compiled
        self._code: Code | None = None

    @property
    def ready(self) -> bool:
        """Whether it was compiled and will be used."""
        return self._code is not None

    def of(self, d: int) -> Code | None:
        """What goes over ``d`` coordinates; None: leave it to numpy."""
        if self._compiled is False or (self._compiled is None and d < COMPILED_FROM):
            return None
        if self._code is None:
            self._code = machine_code(self._loop)
            if self._code is None:
                if self._compiled:
                    raise ValueError("a compiled loop needs numba: install dpgt-node[fast]")
                self._compiled = False
        return self._code
