"""Frozen dataclasses that have their methods when these are called.

`dataclasses` writes and compiles six methods for each class: half a millisecond for each of some
250 records, of which one command makes a hundred and compares a dozen. Here `__init__` is compiled
with the first record, and the rest, by `dataclasses` itself, when a record is compared, hashed or
printed. Nothing else differs.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from threading import RLock
from typing import TYPE_CHECKING, Any, ClassVar, get_origin

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(made: type | None = None, /, **how: Any) -> Any:
        """As `dataclasses.dataclass(frozen=True)` without slots."""
        return _late(made, how) if made is not None else lambda kind: _late(kind, how)


_LOCK = RLock()
_FIELDS = "__dataclass_fields__"
_ASKED = (_FIELDS, "__dataclass_params__", "__match_args__")
_NONE = dataclasses.MISSING
_NEW = object()  # the default of a field that a function makes
_OWN = "_own_fields"  # of a class: its own annotations as (name, default or Field, is keyword-only)


def _late(kind: type, how: dict[str, Any]) -> type:
    """The class with stand-ins for what `dataclasses` adds to it."""
    own = {n: v for n, v in vars(kind).items() if n not in ("__dict__", "__weakref__")}
    if own.get("__hash__", own) is None:  # as Python has it beside an __eq__
        del own["__hash__"]
    compared = ("__eq__", "__hash__") if how.get("eq", True) else ()
    methods = [name for name in ("__repr__", *compared) if name not in own]
    waits = True

    def compiled() -> None:
        """Take the methods of a twin, so that the class is never without, whichever thread asks."""
        nonlocal waits
        with _LOCK:
            if not waits:
                return
            words = {**own, "__doc__": kind.__doc__ or kind.__name__}  # else a signature is written
            twin: type = dataclasses.dataclass(
                type(kind)(kind.__name__, kind.__bases__, words), **{**how, "init": False}
            )
            for name in (*methods, *_ASKED, "__replace__"):
                if name in vars(twin) and not (
                    name == _FIELDS and isinstance(vars(kind)[name], dict)
                ):
                    setattr(kind, name, vars(twin)[name])
            waits = False

    _keep_fields(kind, own, how)
    for name in methods:
        setattr(kind, name, _stand_in(kind, name, compiled))
    for name in _ASKED:
        setattr(kind, name, _Asked(name, _known(kind, own, how) if name == _FIELDS else compiled))
    if "__init__" not in own:
        kind.__init__ = _stand_in(kind, "__init__", lambda: _initiated(kind))  # type: ignore[misc]
    kind.__setattr__ = kind.__delattr__ = _refusal(kind)  # type: ignore[method-assign]
    return kind


def _known(kind: type, own: dict[str, Any], how: dict[str, Any]) -> Callable[[], None]:
    def known() -> None:
        """Take the fields of a twin that has nothing else, for which nothing is compiled."""
        names = ["__annotations__", "__module__", *own.get("__annotations__", ())]
        twin: type = type(kind.__name__, (), {name: own[name] for name in names if name in own})
        only = how.get("kw_only", False)
        dataclasses.dataclass(init=False, repr=False, eq=False, kw_only=only)(twin)
        fields: dict[str, Any] = {}
        for part in reversed(kind.__mro__[1:]):
            fields |= getattr(part, _FIELDS, {})
        setattr(kind, _FIELDS, {**fields, **vars(twin)[_FIELDS]})

    return known


def _refusal(kind: type) -> Any:
    def refuse(record: Any, name: str, *value: Any) -> None:
        if type(record) is kind or name in kind.__dataclass_fields__:  # type: ignore[attr-defined]
            word = "assign to" if value else "delete"
            raise dataclasses.FrozenInstanceError(f"cannot {word} field {name!r}")
        getattr(super(kind, record), "__setattr__" if value else "__delattr__")(name, *value)

    return refuse


def _keep_fields(kind: type, own: dict[str, Any], how: dict[str, Any]) -> None:
    """Note the fields of a class, and leave their defaults in it."""
    fields = []
    for name, said in own.get("__annotations__", {}).items():
        if not _is_of_class(said):
            fields.append((name, own.get(name, _NONE), how.get("kw_only", False)))
    setattr(kind, _OWN, fields)
    for name, value in own.items():
        if isinstance(value, dataclasses.Field):
            if value.default is _NONE:
                delattr(kind, name)
            else:
                setattr(kind, name, value.default)


def _is_of_class(annotation: Any) -> bool:
    if isinstance(annotation, str):
        return annotation.startswith("ClassVar")
    return annotation is ClassVar or get_origin(annotation) is ClassVar


def _stand_in(kind: type, name: str, made: Callable[[], None]) -> Any:
    def method(*given: Any, **named: Any) -> Any:
        made()
        return getattr(kind, name)(*given, **named)

    return method


class _Asked:
    """An attribute of a class that it has with its methods."""

    def __init__(self, name: str, made: Callable[[], None]) -> None:
        self.name, self.made = name, made

    def __get__(self, record: Any, kind: type) -> Any:
        self.made()
        return getattr(kind, self.name)


def _initiated(kind: type) -> None:
    """Give a class the `__init__` of its fields and those of its bases."""
    fields: dict[str, tuple[Any, bool]] = {}
    for part in reversed(kind.__mro__):
        if _OWN not in vars(part) and _FIELDS in vars(part):  # not made here
            fields |= {one.name: (one, False) for one in dataclasses.fields(part)}
        fields |= {name: (value, key) for name, value, key in vars(part).get(_OWN, ())}
    words: dict[str, Any] = {"_set": object.__setattr__, "_new": _NEW}
    places: list[str] = []
    keys: list[str] = []
    lines: list[str] = []
    for name, (value, only) in fields.items():
        default, given = value, name
        if isinstance(value, dataclasses.Field):
            default = value.default
            only = only if value.kw_only is _NONE else value.kw_only
            if value.default_factory is not _NONE:
                words[f"_make_{name}"], default = value.default_factory, _NEW
                given = f"_make_{name}() if {name} is _new else {name}"
            if not value.init:  # the class has its default
                lines += [f" _set(self, {name!r}, _make_{name}())"] if default is _NEW else []
                continue
        words[f"_of_{name}"] = default
        (keys if only else places).append(name if default is _NONE else f"{name}=_of_{name}")
        lines.append(f" _set(self, {name!r}, {given})")
    if hasattr(kind, "__post_init__"):
        lines.append(" self.__post_init__()")
    asked = ", ".join(["self", *places, *(["*", *keys] if keys else [])])
    exec(f"def __init__({asked}):\n" + ("\n".join(lines) or " pass"), words)
    kind.__init__ = words["__init__"]  # type: ignore[misc]
