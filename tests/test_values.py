"""What ``values.dataclass`` makes is what the standard library makes, seen from outside; ``value`` but for freezing."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from collections.abc import Callable
from typing import Any, ClassVar
from unittest.mock import ANY

import numpy as np
import pytest

from dpgt_node import values
from dpgt_node.record.costs import Epsilon

OPTIONS: list[dict[str, Any]] = [
    {},
    {"frozen": True},
    {"slots": True},
    {"frozen": True, "slots": True},
    {"frozen": True, "slots": True, "eq": False},
    {"slots": True, "eq": False},
    {"frozen": True, "eq": False},
    {"order": True, "slots": True},
    {"order": True, "frozen": True},
    {"frozen": True, "slots": True, "kw_only": True},
]
Decorator = Callable[[type], Any]


def empty(decorate: Decorator) -> Any:
    class Made:
        """Nothing."""

    return decorate(Made)


def plain(decorate: Decorator) -> Any:
    class Made:
        one: int
        two: tuple[int, ...] = ()
        shared: ClassVar[int] = 7

    return decorate(Made)


def single(decorate: Decorator) -> Any:
    class Made:
        one: int

    return decorate(Made)


def rich(decorate: Decorator) -> Any:
    class Made:
        one: int
        hidden: str = dataclasses.field(default="h", repr=False)
        made: list[int] = dataclasses.field(default_factory=list, compare=False)
        apart: int = dataclasses.field(default=3, compare=False, hash=False)
        unhashed: list[int] = dataclasses.field(default_factory=list, hash=False)
        inner: int = dataclasses.field(default=5, init=False)
        bag: dict[str, int] = dataclasses.field(default_factory=dict, init=False, compare=False)

        def __post_init__(self) -> None:
            if self.one < 0:
                raise ValueError("negative")

    return decorate(Made)


def own(decorate: Decorator) -> Any:
    class Made:
        one: int

        def __repr__(self) -> str:
            return "mine"

        def __eq__(self, other: object) -> bool:
            return isinstance(other, type(self)) and abs(self.one) == abs(other.one)

        def __hash__(self) -> int:
            return abs(self.one)

    return decorate(Made)


def own_equality(decorate: Decorator) -> Any:
    class Made:
        one: int

        def __eq__(self, other: object) -> bool:
            return True

    return decorate(Made)


def own_beginning(decorate: Decorator) -> Any:
    class Made:
        one: int

        def __init__(self, one: int) -> None:
            object.__setattr__(self, "one", one + 1)

    return decorate(Made)


def named_first(decorate: Decorator) -> Any:
    class Made:
        named: int = dataclasses.field(default=2, kw_only=True)
        one: int

    return decorate(Made)


def derived(decorate: Decorator) -> Any:
    @decorate
    class Base:
        one: int
        two: int = 2

    class Made(Base):  # type: ignore[misc,valid-type]
        two: int = 4
        three: int = 3

    return decorate(Made)


BODIES = [empty, plain, single, rich, own, own_equality, own_beginning, named_first, derived]
CALLS: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
    ((), {}),
    ((1,), {}),
    ((), {"one": 1}),
    ((1, (2, 3)), {}),
    ((), {"one": 1, "two": 9}),
    ((-1,), {}),
    ((), {"one": -1}),
    ((), {"one": 1, "hidden": "x", "apart": 8}),
    ((1, 2, 3, 4, 5, 6), {}),
    ((), {"one": 1, "nobody": 2}),
]


def outcome(what: Callable[[], Any]) -> Any:
    """What comes of it, in words that two classes of one name can share."""
    try:
        found = what()
    except Exception as error:
        return type(error), str(error) if not isinstance(error, TypeError) else ""
    return found if isinstance(found, bool | int | str | tuple | dict | list | None) else repr(found)


def refused(what: Callable[[], Any]) -> bool:
    """Of a field that a frozen class with slots lacks, the standard library stumbles over its own words (TypeError)."""
    try:
        what()
    except (AttributeError, TypeError):
        return True
    return False


def derived_from(cls: Any) -> Any:
    return type("Derived", (cls,), {"__doc__": "With nothing of its own."})


def seen(cls: Any) -> list[Any]:
    """All that can be seen of a class and its instances from outside."""
    looks: list[Callable[[], Any]] = [
        lambda: [(f.name, f.type, f.init, f.repr, f.compare, f.hash, f.kw_only) for f in dataclasses.fields(cls)],
        lambda: cls.__match_args__,
        lambda: cls.__init__.__annotations__,
        lambda: cls.__init__.__qualname__,
        lambda: (cls.__qualname__, cls.__module__, hasattr(cls, "__slots__"), cls.__hash__ is None),
    ]
    for given, named in CALLS:

        def make(given: Any = given, named: Any = named, cls: Any = cls) -> Any:
            return cls(*given, **named)

        looks += [
            lambda make=make: repr(make()),
            lambda make=make: make() == make(),
            lambda make=make: make() != make(),
            lambda make=make: make() == 3,
            lambda make=make: make() == ANY,
            lambda make=make: make() == make(cls=derived_from(cls)),
            lambda make=make: make() == copy.deepcopy(make()),
            lambda make=make: repr(copy.copy(make())),
            lambda make=make: hash(make()) == hash(make()) if cls.__eq__ is not object.__eq__ else hash(make()) > 0,
            lambda make=make: dataclasses.asdict(make()),
            lambda make=make: repr(dataclasses.replace(make(), one=5)),
            lambda make=make: dataclasses.replace(make(), one=5) == make(),
            lambda make=make: refused(lambda: setattr(make(), "one", 4)),
            lambda make=make: refused(lambda: setattr(make(), "strange", 4)),
            lambda make=make: refused(lambda: delattr(make(), "one")),
            lambda make=make: make() < make(),
        ]
    return [outcome(look) for look in looks]


@pytest.mark.parametrize("body", BODIES, ids=lambda body: body.__name__)
@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: "-".join(options) or "none")
def test_a_dataclass_is_what_the_standard_library_makes(
    body: Callable[[Decorator], Any], options: dict[str, Any]
) -> None:
    theirs: Any = outcome(lambda: body(dataclasses.dataclass(**options)) and True)
    ours: Any = outcome(lambda: body(values.dataclass(**options)) and True)
    assert ours == theirs
    if theirs is True:
        assert seen(body(values.dataclass(**options))) == seen(body(dataclasses.dataclass(**options)))


def test_what_is_frozen_says_so() -> None:
    for options in ({"frozen": True}, {"frozen": True, "slots": True}):
        made = plain(values.dataclass(**options))(1)
        with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign to field 'one'"):
            made.one = 4
        with pytest.raises(dataclasses.FrozenInstanceError, match="cannot delete field 'two'"):
            del made.two

        class More(type(made)):  # type: ignore[misc]
            """Not frozen: what it adds may be set."""

        more = More(1)
        more.added = 5
        with pytest.raises(dataclasses.FrozenInstanceError):
            more.one = 2


def test_without_options_too() -> None:
    assert seen(plain(values.dataclass)) == seen(plain(dataclasses.dataclass))


def test_fields_with_a_default_come_last() -> None:
    def late(decorate: Decorator) -> Any:
        class Made:
            one: int = 1
            two: int

        return decorate(Made)

    with pytest.raises(TypeError, match="non-default argument 'two' follows default argument"):
        late(values.dataclass(frozen=True))
    made = late(values.dataclass(kw_only=True))
    assert repr(made(two=2)).endswith("Made(one=1, two=2)")


def test_hashes_are_of_the_fields_that_are_compared() -> None:
    one, other = rich(values.dataclass(frozen=True, slots=True)), {"one": 1, "apart": 9, "hidden": "h"}
    assert hash(one(1)) == hash(one(**other)) and one(1) == one(**other)
    assert one(1) != one(1, hidden="x") and hash(one(1)) != hash(one(1, hidden="x"))
    with pytest.raises(TypeError, match="unhashable"):
        hash(plain(values.dataclass(slots=True))(1))


def test_a_frozen_value_with_slots_is_pickled_and_copied() -> None:
    epsilon = Epsilon.of({"zcdp": 1.5})
    assert pickle.loads(pickle.dumps(epsilon)) == epsilon == copy.deepcopy(epsilon)


def test_a_value_is_a_dataclass_that_nothing_holds_fast() -> None:
    ours, theirs = values.value(frozen=True, slots=True), dataclasses.dataclass(slots=True, unsafe_hash=True)
    for body in (empty, plain, single, rich, derived):
        assert seen(body(ours)) == seen(body(theirs))


def test_what_holds_itself_is_shown() -> None:
    made = rich(values.dataclass(slots=True))(1)
    made.made.append(made)
    assert "made=[...]" in repr(made) and repr(made).count("Made(") == 1


def test_what_is_made_anew_is_nobody_elses() -> None:
    for decorate in (
        values.dataclass,
        values.dataclass(frozen=True, slots=True),
        values.value(frozen=True, slots=True),
    ):
        one, other = map(rich(decorate), (1, 1))
        one.made.append(4)
        one.bag["four"] = 4
        assert (other.made, other.bag) == ([], {})


def test_arrays_compare_as_in_tuples() -> None:
    """The same array is equal to itself; another one has no truth."""
    made = single(values.dataclass(frozen=True, slots=True))
    row = np.zeros(3)
    assert made(row) == made(row)
    with pytest.raises(ValueError, match="ambiguous"):
        assert made(row) != made(np.zeros(3))
