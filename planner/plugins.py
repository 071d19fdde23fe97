"""Plug-ins: verbs, formats, mechanisms, schedules, models and stacks, each by being there.

What ships with the planner is found as a file of a folder, without reading metadata. Other
distributions declare entry points in the groups `dpplan.verbs`, `dpplan.formats`,
`dpplan.mechanisms` and `dpplan.schedules`, each naming a module that declares what a file of the
folder does, and `dpplan.models` and `dpplan.stacks`, each naming a package with TOML files. Set
DPPLAN_PLUGINS=off to ignore them. One that cannot be imported is left out with a PluginWarning; a
name that two of them have is a PlanError.

A plug-in's name is its file's, with `-` for `_`; a name that begins with a digit has a `_` before
it in the file's, since a module's name must not.

Parts of the planner that may be left out are folders of their own (PARTS): nothing outside of them
imports them, and they may import everything else.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

from planner.error import PlanError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

_ROOT = os.path.dirname(__file__)
_OFF = "DPPLAN_PLUGINS"
_FIELD = "plug-in"
OURS = "dpplan"
_MARK = b"[dpplan."
# group: folder of the planner, folder of a part, and what a module of another distribution declares
_GROUPS: dict[str, tuple[str, str, str]] = {
    "verbs": ("cli.commands", "commands", "command"),
    "formats": ("formats", "", "FORMAT"),
    "mechanisms": ("mechanisms", "mechanisms", "MECHANISM"),
    "schedules": ("schedules.library", "schedules", "actions"),
}


class PluginWarning(UserWarning):
    """A plug-in of another distribution is left out."""


class Part(NamedTuple):
    """A part that may be left out: what it holds, its verbs, and the parts that it imports."""

    holds: str
    verbs: tuple[str, ...]
    needs: tuple[str, ...] = ()


PARTS: dict[str, Part] = {
    "formats": Part("launch files of other programs, read and written", ("read", "export")),
    "calibrate": Part("measuring a node and fitting its numbers", ("calibrate",)),
    "lessons": Part("lessons whose figures are computed", ("learn",)),
    "trace": Part("models traced from their own code", ("trace",)),
    "agents": Part("answers for coding agents over the Model Context Protocol", ("mcp",)),
    "preflight": Part("this node against a plan", ("preflight",)),
    "prices": Part("prices of the day", ("prices",)),
    "rl": Part("steps of reinforcement learning", ("rl",)),
    "studies": Part(
        "measured runs: tables, logs, validation and fits", ("validate", "check"), ("formats", "rl")
    ),
}


# --------------------------------------------------------------------------------- parts


def has(part: str) -> bool:
    """Whether a part is installed, with the parts that it needs."""
    return not _lacking(part)


@cache
def _lacking(part: str) -> tuple[str, ...]:
    """The parts that are not installed, of a part and those that it needs."""
    names = (part, *PARTS[part].needs)
    return tuple(
        name for name in names if not os.path.isfile(os.path.join(_ROOT, name, "__init__.py"))
    )


def part_of(verb: str) -> str | None:
    """The part that has a verb."""
    return next((name for name, part in PARTS.items() if verb in part.verbs), None)


def why_absent(part: str) -> str:
    """Why a part cannot be used: a clause after the name of what was requested."""
    lacking = [f"dpplan-{name}" for name in _lacking(part)]
    if part in _lacking(part):
        sentence = f"is part of dpplan-{part}, which is not installed"
    else:
        sentence = f"is part of dpplan-{part}, which needs {' and '.join(lacking)}"
    return f"{sentence}: pip install {' '.join(lacking)}, or dpplan, which has every part"


def load(module: str, field: str, value: object = None) -> Any:
    """A module of a part by its name below the planner ("formats.plan"). Raises PlanError with the
    distribution to install where that part is left out. field: what was requested of it."""
    part = module.partition(".")[0]
    if not has(part):
        raise PlanError(field, value, why_absent(part))
    return import_module(f"planner.{module}")


def modules(name: str) -> Iterator[ModuleType]:
    """The module of this name ("web.tabs") of each part that is installed and has one."""
    path = name.replace(".", os.sep)
    for part in filter(has, PARTS):
        below = os.path.join(_ROOT, part, path)
        if os.path.isfile(f"{below}.py") or os.path.isfile(os.path.join(below, "__init__.py")):
            yield import_module(f"planner.{part}.{name}")


def folders(name: str) -> tuple[Path, ...]:
    """The folder of this name ("web/static") of each part that is installed and has one."""
    paths = (Path(_ROOT, part, name) for part in PARTS if has(part))
    return tuple(path for path in paths if path.is_dir())


# ------------------------------------------------------------------------------------- plug-ins


def names(group: str) -> tuple[str, ...]:
    """Names of the plug-ins of a group: those that ship, sorted, then plug-ins of other
    distributions; none is imported."""
    return (*_shipped(group), *(point.name for point in _from_outside(group)))


def loaded(group: str) -> dict[str, ModuleType]:
    """The plug-ins of a group by name, without those that cannot be imported."""
    out = {name: import_module(module) for name, module in _shipped(group).items()}
    for point in _from_outside(group):
        module = _imported(group, point)
        if module is not None:
            out[point.name] = module
    return out


def module_of(group: str, name: str) -> ModuleType | None:
    """One plug-in; None where it cannot be imported, or is unknown."""
    shipped = _shipped(group)
    if name in shipped:
        return import_module(shipped[name])
    point = next((point for point in _from_outside(group) if point.name == name), None)
    return None if point is None else _imported(group, point)


def files(kind: str, shipped: Path) -> Mapping[str, Path]:
    """TOML files of a kind ("models") by their ids: of a folder that ships, then of packages of
    other distributions."""
    out = {path.stem: path for path in sorted(shipped.glob("*.toml"))}
    if not any(group == kind for group, _ in _outside()):
        return out
    owners = dict.fromkeys(out, OURS)
    for point in _points(kind):
        for path in sorted(_folder(point).glob("*.toml")):
            refuse_twice(kind, path.stem, owners, _distribution(point))
            out[path.stem] = path
    return out


@cache
def _shipped(group: str) -> dict[str, str]:
    """Modules of the planner and its parts by name, sorted by it."""
    home, below, _ = _GROUPS[group]
    packages = [home, *(f"{part}.{below}" for part in PARTS if below and has(part))]
    by_name: dict[str, str] = {}
    for package in packages:
        folder = os.path.join(_ROOT, *package.split("."))
        for file in os.listdir(folder) if os.path.isdir(folder) else ():
            if file.endswith(".py") and file != "__init__.py":
                stem = file.removesuffix(".py")
                by_name[stem.lstrip("_").replace("_", "-")] = f"planner.{package}.{stem}"
    return dict(sorted(by_name.items()))


@cache
def _from_outside(group: str) -> tuple[EntryPoint, ...]:
    """Entry points of other distributions. Raises PlanError where a name is taken."""
    points = tuple(_points(group))
    # a module of formats may be none, and what two of them must not share is the id of the format
    owners = {} if group == "formats" else dict.fromkeys(_shipped(group), OURS)
    for point in points:
        refuse_twice(group, point.name, owners, _distribution(point))
    return points


def refuse_twice(group: str, name: str, owners: dict[str, str], owner: str) -> None:
    """Note who has a name. Raises PlanError naming both distributions where it is taken."""
    if name in owners:
        remedy = (
            f"is in dpplan.{group} of both {owners[name]} and {owner}; uninstall one, or set"
            f" {_OFF}=off"
        )
        raise PlanError(_FIELD, name, remedy)
    owners[name] = owner


def option_twice(flag: str, first: type, second: type) -> PlanError:
    """The error of an option that two records declare, which names their modules and
    distributions."""
    both = " and ".join(f"{m} of {_maker(m)}" for m in (first.__module__, second.__module__))
    remedy = f"is an option of both {both}; uninstall one, or set {_OFF}=off"
    return PlanError(_FIELD, flag, remedy)


def _maker(module: str) -> str:
    """The distribution of a module, by the package that its entry points name."""
    package = module.partition(".")[0]
    points = (point for _, point in _outside() if point.value.partition(".")[0] == package)
    return next(map(_distribution, points), OURS)


def owner(group: str, name: str) -> str:
    """The distribution of a plug-in."""
    points = {point.name: point for point in _from_outside(group)}
    return _distribution(points[name]) if name in points else OURS


def _points(group: str) -> Iterator[EntryPoint]:
    return (point for owner, point in _outside() if owner == group)


@cache
def _outside() -> tuple[tuple[str, EntryPoint], ...]:
    """(group, entry point) of every distribution that declares a group of ours, in the order of
    their names. Metadata is parsed only of those whose text names such a group: 110 distributions
    take 1 ms."""
    declaring = [] if os.environ.get(_OFF) == "off" else list(_declaring())
    if not declaring:
        return ()
    from importlib.metadata import Distribution

    by_name: dict[str, Distribution] = {}
    for distribution in map(Distribution.at, declaring):
        by_name.setdefault(distribution.name, distribution)  # the first of the path is imported
    return tuple(
        (point.group.removeprefix("dpplan."), point)
        for name in sorted(by_name)
        for point in by_name[name].entry_points
        if point.group.startswith("dpplan.")
    )


def _declaring() -> Iterator[str]:
    """Metadata folders whose entry points name a group of ours."""
    for folder in dict.fromkeys(sys.path):
        try:
            listed = os.scandir(folder or ".")
        except OSError:
            continue
        with listed:
            paths = [
                entry.path for entry in listed if entry.name.endswith((".dist-info", ".egg-info"))
            ]
        yield from filter(_declares, paths)


def _declares(metadata: str) -> bool:
    try:
        with open(os.path.join(metadata, "entry_points.txt"), "rb") as file:
            return _MARK in file.read()
    except OSError:
        return False


def _distribution(point: EntryPoint) -> str:
    return point.dist.name if point.dist is not None else point.value


def _folder(point: EntryPoint) -> Path:
    """The folder of a package that holds files."""
    from importlib.util import find_spec

    try:
        spec = find_spec(point.value)
    except (ImportError, ValueError):
        spec = None
    if spec is None or not spec.submodule_search_locations:
        _warn(point, f"{point.value} is not a package")
        return Path(os.devnull)
    return Path(next(iter(spec.submodule_search_locations)))


@cache
def _imported(group: str, point: EntryPoint) -> ModuleType | None:
    """The module of an entry point; None, with a warning, where it is not one of the group."""
    needed = _GROUPS[group][2]
    try:
        module = import_module(point.value)
        if not hasattr(module, needed):
            raise AttributeError(f"{point.value} declares no {needed}")
    except Exception as error:
        _warn(point, f"{type(error).__name__}: {error}")
        return None
    return module


def _warn(point: EntryPoint, why: str) -> None:
    sentence = " ".join(f"{point.group} {point.name!r} of {_distribution(point)}: {why}".split())
    warnings.warn(f"left out a plug-in, {sentence}", PluginWarning, stacklevel=2)
