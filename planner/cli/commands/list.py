"""`dpplan list`: what the catalogue holds."""

from __future__ import annotations

from planner.cli.finish import Answer
from planner.specs.options.own import ListOptions, Output


def command(own: ListOptions, out: Output) -> Answer:
    """List the shipped GPUs, models, networks, stacks, clusters or schedules; without KIND what
    can be listed."""
    from planner import api
    from planner.views.listing import kinds_view, view

    kind = own.kind
    if kind is None:
        kinds = api.list_kinds()
        return Answer(kinds, view=lambda: kinds_view(kinds))
    entries = api.list_catalog(kind)
    return Answer(entries, view=lambda: view(kind, entries))
