"""The public face for programs: one function per verb, JSON-able dicts out, `PlanError` for wrong
requests. Commands and pages call the same verbs."""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import TYPE_CHECKING, Any

from planner import plugins
from planner.inputs.options import read_options
from planner.specs.base import PlanError
from planner.specs.options import Options
from planner.verbs.estimate import estimate, explain
from planner.verbs.search import search_layouts, search_with_layouts

if TYPE_CHECKING:
    from planner.formats.verbs.export import export
    from planner.formats.verbs.export import saved as saved_answer
    from planner.inputs.listing import list_catalog, list_kinds
    from planner.studies.validate import validate, write_plot, write_runs

__all__ = [
    "Options",
    "PlanError",
    "estimate",
    "explain",
    "export",
    "list_catalog",
    "list_kinds",
    "read_options",
    "saved_answer",
    "search_layouts",
    "search_with_layouts",
    "validate",
    "write_plot",
    "write_runs",
]


# what an estimate and a search do without: (module, name there), loaded when it is first used; of a
# part that is left out a PlanError says what to install
_LATE = {
    "list_catalog": ("inputs.listing", "list_catalog"),
    "list_kinds": ("inputs.listing", "list_kinds"),
    "export": ("formats.verbs.export", "export"),
    "saved_answer": ("formats.verbs.export", "saved"),
    "validate": ("studies.validate", "validate"),
    "write_plot": ("studies.validate", "write_plot"),
    "write_runs": ("studies.validate", "write_runs"),
}


def __getattr__(name: str) -> Any:
    if name not in _LATE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, attribute = _LATE[name]
    part = module.partition(".")[0]
    loaded = plugins.load(module, f"api.{name}") if part in plugins.PARTS else _core(module)
    value = globals()[name] = getattr(loaded, attribute)
    return value


def _core(module: str) -> ModuleType:
    return importlib.import_module(f"planner.{module}")
