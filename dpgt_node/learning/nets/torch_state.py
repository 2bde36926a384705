"""What a module of the operator's own keeps in itself, put back after every pass.

A clip bounds what one sample adds to a sum, if no other sample's gradient depends on it.  Within a pass none does,
since a pass is vectorised over samples.  From one pass to the next a module could carry a sample in an attribute: here
its attributes, and all that lists, dicts, sets, tensors, arrays and objects of the operator's own in them hold, become
again what they were when the module was made.  Trained parameters are left alone: x sets them before every gradient.

What it keeps elsewhere (a closure, a global, a file) is not put back.  ``Network.look`` looks for that.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

from dpgt_node.learning.nets.torch_models import Module, torch

Back = Callable[[], None]
_FOREIGN = sys.stdlib_module_names | {"torch", "torchvision", "numpy"}
"""Whose objects are left as they are: a logger, a lock or a generator is no place for samples."""
_CODE = type | FunctionType | MethodType | ModuleType | BuiltinFunctionType
_LARGE = 1 << 20
"""Numbers of a tensor from which on its version alone tells whether it was changed."""


class Kept:
    """The state of ``module`` when this was made."""

    def __init__(self, module: Module) -> None:
        self._lib = torch()
        self._seen = {id(value): value for value in module.parameters() if value.requires_grad}
        self._backs: list[Back] = []
        for part in module.modules():
            self._hold(part.__dict__)

    @contextmanager
    def restored(self) -> Iterator[None]:
        """Whatever happens in the block, the state is as it was afterwards."""
        try:
            yield
        finally:
            for back in self._backs:
                back()

    def _hold(self, value: Any) -> None:
        if id(value) in self._seen:
            return
        self._seen[id(value)] = value  # which also keeps its id its own
        back = self._back_of(value)
        if back is not None:
            self._backs.append(back)

    def _back_of(self, value: Any) -> Back | None:
        if isinstance(value, self._lib.Tensor):
            return self._tensor(value)
        if isinstance(value, dict):
            return self._dict(value)
        if isinstance(value, list | deque | set | tuple):
            items = list(value)
            for item in items:
                self._hold(item)
            return None if isinstance(value, tuple) else lambda: _refill(value, items)
        if isinstance(value, np.ndarray):
            array = value.copy()
            return lambda: np.copyto(value, array) if value.flags.writeable else None
        if isinstance(value, self._lib.nn.Module):
            self._hold(value.__dict__)  # one that is no submodule, in a list
        elif not isinstance(value, _CODE) and type(value).__module__.partition(".")[0] not in _FOREIGN:
            self._hold(getattr(value, "__dict__", None))
        return None

    def _dict(self, value: dict[Any, Any]) -> Back:
        items = dict(value)
        for item in items.values():
            self._hold(item)

        def back() -> None:
            if value.keys() != items.keys():
                for key in value.keys() - items.keys():
                    del value[key]
            for key, item in items.items():
                if key != "training" and value.get(key, self) is not item:  # train() and eval() set that one
                    value[key] = item

        return back

    def _tensor(self, value: Any) -> Back:
        array, version = value.detach().clone(), value._version

        def back() -> None:
            if value._version == version and value.numel() >= _LARGE:
                return
            if value.shape != array.shape:
                value.data = array.clone()
            elif not self._lib.equal(value, array):
                with self._lib.no_grad():
                    value.detach().copy_(array)

        return back


def _refill(value: Any, items: list[Any]) -> None:
    if len(value) == len(items) and all(a is b for a, b in zip(value, items, strict=True)):
        return
    value.clear()
    (value.update if isinstance(value, set) else value.extend)(items)
