"""`dpplan list`: what the catalogue holds."""

from __future__ import annotations

from planner.cli.finish import Answer
from planner.specs.options.own import ListOptions, Output


def command(own: ListOptions, out: Output) -> Answer:
    """List the shipped GPUs, models, networks, stacks, clusters or schedules; without KIND what
    can be listed."""
    from planner.inputs.listing import list_catalog, list_kinds
    from planner.views.listing import kinds_view, view

    kind = own.kind
    if kind is None:
        kinds = list_kinds()
        return Answer(kinds, view=lambda: kinds_view(kinds))
    entries = list_catalog(kind)
    return Answer(entries, view=lambda: view(kind, entries))
