"""Plug-ins: a folder of modules, of which each is one by being there.

A plug-in's name is its file's, with `-` for `_`; a name that begins with a digit has a `_` before
it in the file's, since a module's name must not.
"""

from __future__ import annotations

import os.path
from importlib import import_module
from types import ModuleType

_ROOT = os.path.dirname(__file__)


def names(package: str) -> tuple[str, ...]:
    """Names of the plug-ins of a package of the planner ("schedules.library"), sorted; none is
    imported."""
    files = os.listdir(os.path.join(_ROOT, *package.split(".")))
    return tuple(
        sorted(
            file.removesuffix(".py").lstrip("_").replace("_", "-")
            for file in files
            if file.endswith(".py") and file != "__init__.py"
        )
    )


def loaded(package: str) -> dict[str, ModuleType]:
    """The plug-ins of a package by name."""
    return {name: import_module(f"planner.{package}.{_file(name)}") for name in names(package)}


def _file(name: str) -> str:
    return ("_" if name[0].isdigit() else "") + name.replace("-", "_")
