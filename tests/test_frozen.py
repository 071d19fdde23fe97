"""Records whose methods come late are what `dataclasses` makes of the same class."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import threading
from dataclasses import field, fields, replace
from functools import cached_property
from typing import Any, ClassVar

import pytest

from planner import frozen


def three(dataclass: Any) -> tuple[type[Any], type[Any], type[Any]]:
    @dataclass(frozen=True)
    class Base:
        KIND: ClassVar[str] = "base"
        size: int
        name: str = "none"

        @cached_property
        def double(self) -> int:
            return self.size * 2

    @dataclass(frozen=True, kw_only=True)
    class More(Base):
        parts: list[int] = field(default_factory=list)
        note: str = field(default="", compare=False)
        made: int = field(default=7, init=False, repr=False)

        def __post_init__(self) -> None:
            object.__setattr__(self, "name", self.name.upper())

    @dataclass(frozen=True, eq=False)
    class Itself:
        size: int

        def __repr__(self) -> str:
            return "itself"

    return Base, More, Itself


def told(kinds: tuple[type[Any], type[Any], type[Any]]) -> list[Any]:
    """What can be told of records, all of it in an order in which late methods come one by one."""
    base, more, itself = kinds
    one, two = base(3), more(3, "a", parts=[1], note="x")
    out: list[Any] = [one.double, one == base(3), one != base(4), one == two, two == replace(two)]
    out += [two == replace(two, note="other"), two.made, two.parts, more(1).parts is more(1).parts]
    out += [hash(one) == hash(base(3)), len({one, base(3), base(4)}), itself(1) == itself(1)]
    out += [repr(x).rpartition(".")[2] for x in (one, two, itself(1))]
    out += [[(f.name, f.kw_only, f.init) for f in fields(x)] for x in (base, two, itself)]
    out += [base.name, hasattr(base, "size"), more.__match_args__, base.__match_args__]
    out += [copy.copy(two) == two, dataclasses.asdict(two), dataclasses.is_dataclass(more)]
    for wrong in (
        lambda: base(),
        lambda: base(1, "a", 2),
        lambda: more(1, "a", [2]),
        lambda: base(sized=1),
        lambda: more(1, made=2),
        lambda: setattr(one, "size", 4),
        lambda: setattr(one, "other", 4),
        lambda: delattr(two, "note"),
        lambda: hash(more(1)),
    ):
        with pytest.raises((TypeError, dataclasses.FrozenInstanceError)) as said:
            wrong()
        out.append((type(said.value), str(said.value).partition(") ")[2] or str(said.value)))
    return out


def test_late_records_are_as_dataclasses_makes_them() -> None:
    late = told(three(frozen.dataclass))
    for ours, theirs in zip(late, told(three(dataclasses.dataclass)), strict=True):
        assert ours == theirs


def test_fields_of_a_class_without_records_are_known() -> None:
    base, more, _ = three(frozen.dataclass)
    assert [one.name for one in fields(more)] == ["size", "name", "parts", "note", "made"]
    assert more.KIND == base.KIND == "base"


def test_late_records_stand_on_others_and_under_them() -> None:
    first, _, _ = three(dataclasses.dataclass)

    @frozen.dataclass(frozen=True, kw_only=True)
    class Late(first):  # type: ignore[misc,valid-type]
        late: int = 1

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Last(Late):
        last: int

    assert Late(3, "a") == Late(3, "a", late=1) != Late(3, "a", late=2)
    assert repr(Last(3, late=4, last=5)).endswith("(size=3, name='none', late=4, last=5)")


@frozen.dataclass(frozen=True)
class Sent:
    size: int


def test_a_record_of_another_process_is_compared_before_one_is_made_here() -> None:
    first = pickle.dumps(Sent(2))
    assert pickle.loads(first) == Sent(2)
    record = object.__new__(Sent)
    with pytest.raises(dataclasses.FrozenInstanceError):
        record.size = 4


def test_threads_that_make_the_first_records_at_once_all_do() -> None:
    for _ in range(20):
        base, _, _ = three(frozen.dataclass)
        made: list[Any] = []
        gate = threading.Barrier(4)

        def make(kind: type[Any] = base, gate: Any = gate, made: list[Any] = made) -> None:
            gate.wait()
            made.append((kind(1), kind(1) == kind(1), repr(kind(1))))

        threads = [threading.Thread(target=make) for _ in range(4)]
        for one in threads:
            one.start()
        for one in threads:
            one.join()
        assert len(made) == 4
        assert all(same for _, same, _ in made)
