"""A record is what the standard library's decorator makes, and is made sooner."""

import dataclasses
import pickle
from collections.abc import Callable, Mapping
from inspect import signature
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretell.records import Later, dataclass, made_when_asked, values_as_held

STANDARD: Callable[..., Any] = dataclasses.dataclass


class Plain:
    """What both decorate."""

    a: int
    b: float = 2.0
    c: Mapping[str, int] = dataclasses.field(default_factory=dict)
    d: str = dataclasses.field(default="x", compare=False)


def copy_of(plain: type) -> type:
    """A class of the same body, since a decorator may take what it needs out of it."""
    kept = {k: v for k, v in plain.__dict__.items() if k not in ("__dict__", "__weakref__")}
    return type(plain.__name__, (), kept)


ours = dataclass(frozen=True, slots=True, kw_only=True)(copy_of(Plain))
theirs = STANDARD(frozen=True, slots=True, kw_only=True)(copy_of(Plain))
ours.__qualname__ = ours.__name__ = "ours"  # so that pickle finds it


@made_when_asked("leaves")
@dataclass(frozen=True, slots=True, kw_only=True)
class Tree:
    """A record with a field that may come later."""

    name: str
    leaves: Any = ()


VALUES = st.fixed_dictionaries(
    {"a": st.integers(-2, 2)},
    optional={
        "b": st.floats(allow_nan=True),
        "c": st.dictionaries(st.text(max_size=2), st.integers(), max_size=2),
        "d": st.text(max_size=2),
    },
)


@given(VALUES, VALUES)
def test_it_is_the_standard_librarys(one: dict[str, Any], two: dict[str, Any]) -> None:
    assert repr(dataclasses.asdict(ours(**one))) == repr(dataclasses.asdict(theirs(**one)))
    assert repr(ours(**one)) == repr(theirs(**one)).replace("Plain(", "ours(", 1)
    assert (ours(**one) == ours(**two)) == (theirs(**one) == theirs(**two))
    assert (ours(**one) != ours(**two)) == (theirs(**one) != theirs(**two))
    changed = dataclasses.replace(ours(**one), b=4.0)
    assert (changed.a, changed.b) == (one["a"], 4.0)
    assert pickle.loads(pickle.dumps(changed)) == changed


def test_its_signature_and_fields() -> None:
    mine, other = (signature(kind).parameters.values() for kind in (ours, theirs))
    assert [(p.name, p.kind, p.annotation) for p in mine] == [
        (p.name, p.kind, p.annotation) for p in other
    ]
    assert [f.name for f in dataclasses.fields(ours)] == list("abcd")
    assert ours.__slots__ == theirs.__slots__
    assert not hasattr(ours(a=1), "__dict__")


@dataclass(frozen=True, slots=True, kw_only=True)
class Hashed:
    """A record that can be a key."""

    one: int
    two: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Single:
    """A record of one field."""

    one: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Empty:
    """A record of none."""


def test_keys() -> None:
    assert {Hashed(one=1): 1}[Hashed(one=1)] == 1
    assert len({Hashed(one=1), Hashed(one=1, two=(2,)), Hashed(one=1, two=())}) == 2
    assert Single(one=1) == Single(one=1) != Single(one=2)
    assert len({Single(one=1), Single(one=1), Single(one=2)}) == 2
    assert Empty() == Empty()
    assert hash(Empty()) == hash(Empty())
    assert Single(one=1) != Hashed(one=1)
    with pytest.raises(TypeError, match="unhashable"):
        hash(ours(a=1))


def test_it_is_frozen() -> None:
    made: Any = Single(one=1)
    with pytest.raises(dataclasses.FrozenInstanceError, match="'one'"):
        made.one = 2
    with pytest.raises(dataclasses.FrozenInstanceError, match="'other'"):
        made.other = 2
    with pytest.raises(dataclasses.FrozenInstanceError, match="'one'"):
        del made.one
    assert made.one == 1


def test_bad_arguments() -> None:
    bad: Any = Single
    with pytest.raises(TypeError, match="one"):
        bad()
    with pytest.raises(TypeError, match="two"):
        bad(one=1, two=2)
    with pytest.raises(TypeError):
        bad(1)
    with pytest.raises(TypeError, match="frozen"):
        dataclass(frozen=False, slots=True, kw_only=True)(copy_of(Plain))


def test_a_record_of_a_record() -> None:
    @dataclass(frozen=True, slots=True, kw_only=True)
    class More(Single):
        """Inherits."""

        two: int = 2

    assert (More(one=1).one, More(one=1).two) == (1, 2)
    assert More(one=1) == More(one=1)
    assert dataclasses.replace(More(one=1), one=3).one == 3


def test_a_field_is_made_when_it_is_asked_for() -> None:
    """A `Later` is made once, by whoever reads it first; copies as held make nothing."""
    made: list[int] = []

    def make() -> tuple[int, ...]:
        made.append(1)
        return (1, 2)

    late = Tree(name="a", leaves=Later(make))
    copy = Tree(**values_as_held(late))
    assert made == []
    assert late.leaves == (1, 2)
    assert late.leaves is late.leaves
    assert made == [1]
    assert pickle.loads(pickle.dumps(late)) == late
    assert dataclasses.replace(late, name="b").leaves == (1, 2)
    assert copy == late
    assert made == [1, 1]
    assert Tree(name="a").leaves == ()
    with pytest.raises(dataclasses.FrozenInstanceError):
        late.leaves = (3,)  # type: ignore[misc]
