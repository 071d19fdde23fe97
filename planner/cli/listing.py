"""`dpplan list`: what the catalogue holds."""

from __future__ import annotations

from planner.cli.finish import Answer
from planner.specs.options.own import ListOptions, Output


def command(own: ListOptions, out: Output) -> Answer:
    """List the shipped GPUs, models, networks, stacks, clusters or schedules."""
    from planner import api
    from planner.show.listing import list_blocks

    entries = api.list_catalog(own.kind)
    return Answer(entries, blocks=lambda: list_blocks(own.kind, entries))
