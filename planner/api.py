"""The public face: one function per verb, JSON-able dicts out, `PlanError` for wrong requests. CLI
and web use nothing else."""

from __future__ import annotations

from planner.inputs.listing import list_catalog, list_kinds
from planner.inputs.options import read_options
from planner.specs.base import PlanError
from planner.specs.options import Options
from planner.verbs.estimate import estimate, explain
from planner.verbs.export import export
from planner.verbs.export import saved as saved_answer
from planner.verbs.search import search_layouts, search_with_layouts
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
