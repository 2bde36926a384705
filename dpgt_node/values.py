"""``dataclass`` as the standard library has it, made in a fifth of the time; ``value``, whose values are made faster.

A start of any command makes some three hundred classes.  The standard library compiles each method of each class from
a text of its own, and only the constructor gains by it: here the others are closures, or are shared by all classes.

The constructor of a frozen dataclass sets each field by a call of ``object.__setattr__``, which takes four times as
long as setting it.  A ``@value(frozen=True, slots=True)`` is such a dataclass to the type checker, which sees to it
that nobody changes one; at run time nothing is in the way.  The many small values that are made in every round are
declared so.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any

__all__ = ["dataclass", "value"]

if TYPE_CHECKING:
    from dataclasses import dataclass
    from dataclasses import dataclass as value
else:

    def dataclass(cls=None, /, *, frozen=False, slots=False, eq=True, order=False, kw_only=False):
        """As ``dataclasses.dataclass``, of which it takes the options that are used here."""

        def made(bare: type) -> Any:
            if order:  # its methods are compiled, whatever the others are
                whole = dataclasses.dataclass(frozen=frozen, slots=slots, eq=eq, order=True, kw_only=kw_only)
                return whole(bare)
            return _made(bare, frozen=frozen, slots=slots, eq=eq, kw_only=kw_only, hashed=frozen)

        return made if cls is None else made(cls)

    def value(*, frozen: bool, slots: bool):
        """A dataclass that is frozen to the type checker alone."""
        return lambda bare: _made(bare, frozen=False, slots=slots, eq=True, kw_only=False, hashed=frozen)


def _made(bare: type, *, frozen: bool, slots: bool, eq: bool, kw_only: bool, hashed: bool) -> Any:
    """``hashed``: by the fields, where there is ``eq`` and the class says nothing else."""
    own = bare.__dict__
    # Python itself writes `__hash__ = None` into a class with an `__eq__`.
    says_hash = "__hash__" in own and not (own["__hash__"] is None and "__eq__" in own)
    says = {name for name in ("__init__", "__repr__", "__eq__") if name in own}
    if bare.__doc__ is None:
        bare.__doc__ = bare.__name__  # else the standard library writes the signature, at the price of all the rest
    fielded = dataclasses.dataclass(init=False, repr=False, eq=False, slots=slots, kw_only=kw_only)
    cls: Any = fielded(bare)
    fields = dataclasses.fields(cls)
    if "__init__" not in says:
        cls.__init__ = _constructor(cls, fields, frozen=frozen, slots=slots)
    if frozen:
        cls.__setattr__, cls.__delattr__ = _frozen(cls, frozenset(field.name for field in fields))
        if slots and "__getstate__" not in own:  # copies would be made by setting
            cls.__getstate__, cls.__setstate__ = _state_of, _put_state
    if "__repr__" not in says:
        cls.__repr__ = _shown(tuple(field.name for field in fields if field.repr))
    if not eq:
        return cls
    if "__eq__" not in says:
        cls.__eq__ = _equal(_values_of(tuple(field.name for field in fields if field.compare)))
    if hashed and not says_hash:
        names = tuple(field.name for field in fields if (field.compare if field.hash is None else field.hash))
        cls.__hash__ = _hashed(_values_of(names))
    elif not says_hash:
        cls.__hash__ = None
    return cls


class _Made:
    """Stands for a default that is made anew for each value."""


def _constructor(cls: type, fields: tuple[Any, ...], *, frozen: bool, slots: bool) -> Any:
    missing, known, body = dataclasses.MISSING, {"_set": object.__setattr__, "_Made": _Made}, []
    parameters: dict[bool, list[str]] = {False: [], True: []}
    optional = None
    for field in fields:
        name, taken, makes = field.name, field.name, field.default_factory is not missing
        if makes:
            known[f"_make_{name}"] = field.default_factory
            taken = f"_make_{name}() if {name} is _Made else {name}" if field.init else f"_make_{name}()"
        elif field.default is not missing:
            known[f"_default_{name}"] = field.default
            taken = name if field.init else f"_default_{name}"
        elif not field.kw_only and field.init and optional is not None:
            raise TypeError(f"non-default argument {name!r} follows default argument {optional!r}")
        if field.init:
            default = "=_Made" if makes else f"=_default_{name}" if field.default is not missing else ""
            parameters[field.kw_only].append(name + default)
            optional = name if default and not field.kw_only else optional
        elif not makes and (field.default is missing or not slots):
            continue  # whoever reads it finds the class's, if any
        body.append(f"_set(self, {name!r}, {taken})" if frozen else f"self.{name} = {taken}")
    if hasattr(cls, "__post_init__"):
        body.append("self.__post_init__()")
    given = ", ".join(["self", *parameters[False], *(["*"] if parameters[True] else []), *parameters[True]])
    exec(f"def __init__({given}):\n " + "\n ".join(body or ["pass"]), known)
    constructor: Any = known["__init__"]
    constructor.__qualname__ = f"{cls.__qualname__}.__init__"
    constructor.__annotations__ = {field.name: field.type for field in fields if field.init} | {"return": None}
    return constructor


def _frozen(cls: Any, names: frozenset[str]) -> tuple[Callable[..., None], Callable[..., None]]:
    def __setattr__(self: Any, name: str, held: object) -> None:
        if type(self) is cls or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
        super(cls, self).__setattr__(name, held)

    def __delattr__(self: Any, name: str) -> None:
        if type(self) is cls or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
        super(cls, self).__delattr__(name)

    return __setattr__, __delattr__


def _state_of(self: Any) -> list[Any]:
    return [getattr(self, field.name) for field in dataclasses.fields(self)]


def _put_state(self: Any, state: list[Any]) -> None:
    for field, held in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, field.name, held)


def _values_of(names: tuple[str, ...]) -> Callable[[Any], tuple[Any, ...]]:
    if len(names) > 1:
        return attrgetter(*names)
    if not names:
        return lambda _: ()
    one = attrgetter(names[0])
    return lambda this: (one(this),)


def _equal(values: Callable[[Any], tuple[Any, ...]]) -> Callable[[Any, object], bool]:
    def __eq__(self: Any, other: object) -> bool:
        return values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented

    return __eq__


def _hashed(values: Callable[[Any], tuple[Any, ...]]) -> Callable[[Any], int]:
    def __hash__(self: Any) -> int:
        return hash(values(self))

    return __hash__


def _shown(names: tuple[str, ...]) -> Callable[[Any], str]:
    @recursive_repr()
    def __repr__(self: Any) -> str:
        inside = ", ".join(f"{name}={getattr(self, name)!r}" for name in names)
        return f"{self.__class__.__qualname__}({inside})"

    return __repr__
