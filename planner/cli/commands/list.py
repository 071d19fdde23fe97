"""`dpplan list`: what the catalogue holds."""

from __future__ import annotations

from planner.cli.finish import Answer
from planner.specs.options.own import ListOptions, Output


def command(request: ListOptions, out: Output) -> Answer:
    """List the shipped GPUs, models, networks, stacks, clusters or schedules; without KIND what
    can be listed, with models NAME the blocks of one model, shipped or a file."""
    from planner.inputs.listing import list_catalog, list_kinds
    from planner.views.listing import kinds_view, view

    kind = request.kind
    if request.entry is not None:
        from planner.inputs.listing import tree_of
        from planner.views.listing import tree_view

        tree = tree_of(kind, request.entry)
        return Answer(tree, view=lambda: tree_view(tree))
    if kind is None:
        kinds = list_kinds()
        return Answer(kinds, view=lambda: kinds_view(kinds))
    entries = list_catalog(kind)
    return Answer(entries, view=lambda: view(kind, entries))
