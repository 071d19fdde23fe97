"""The public face: one function per verb, JSON-able dicts out, `PlanError` for wrong requests. CLI
and web use nothing else."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from planner.inputs.options import read_options
from planner.specs.base import PlanError
from planner.specs.options import Options
from planner.verbs.estimate import estimate, explain
from planner.verbs.search import search_layouts, search_with_layouts

if TYPE_CHECKING:
    from planner.inputs.listing import list_catalog, list_kinds
    from planner.verbs.export import export
    from planner.verbs.export import saved as saved_answer
    from planner.verbs.validate import validate, write_plot, write_residuals, write_runs

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
    "write_residuals",
    "write_runs",
]


# what an estimate and a search do without: (module, name there), loaded when it is asked for
_LATE = {
    "list_catalog": ("planner.inputs.listing", "list_catalog"),
    "list_kinds": ("planner.inputs.listing", "list_kinds"),
    "export": ("planner.verbs.export", "export"),
    "saved_answer": ("planner.verbs.export", "saved"),
    "validate": ("planner.verbs.validate", "validate"),
    "write_plot": ("planner.verbs.validate", "write_plot"),
    "write_residuals": ("planner.verbs.validate", "write_residuals"),
    "write_runs": ("planner.verbs.validate", "write_runs"),
}


def __getattr__(name: str) -> Any:
    if name not in _LATE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, there = _LATE[name]
    found = globals()[name] = getattr(importlib.import_module(module), there)
    return found
