"""`dpplan list`: what the catalogue holds."""

from __future__ import annotations

from planner.cli.finish import Answer
from planner.specs.options.own import ListOptions, Output


def command(own: ListOptions, out: Output) -> Answer:
    """List the shipped GPUs, models, networks, stacks, clusters or schedules; without KIND what
    can be listed."""
    from planner import api
    from planner.views.listing import kind_blocks, list_blocks

    kind = own.kind
    if kind is None:
        kinds = api.list_kinds()
        return Answer(kinds, blocks=lambda: kind_blocks(kinds))
    entries = api.list_catalog(kind)
    return Answer(entries, blocks=lambda: list_blocks(kind, entries))
