"""View of `dpplan list`: entries of the catalogue."""

from __future__ import annotations

from collections.abc import Sequence

from planner.specs.documents.listing import (
    Entry,
    GpuEntry,
    HostEntry,
    KindEntry,
    ModelEntry,
    ModelTree,
    NetworkEntry,
)
from planner.units import percent, show
from planner.views.view import Block, View, words

_HEADERS = {
    "gpus": ["id", "title", ">memory", ">bandwidth", ">bf16", ">fp8", "node", "aliases"],
    "hosts": ["id", "title", ">sockets", ">cores", ">memory", ">one core", "aliases"],
    "models": ["id", ">parameters", ">active", ">layers", ">hidden", ">context", "aliases"],
    "networks": ["id", "title", "where", ">one way", ">latency", ">all-reduce share"],
}
# columns that a narrow line leaves out, the first one first
_DROPPED = {
    "gpus": ("node", "title", "fp8", "bf16", "bandwidth"),
    "hosts": ("title", "aliases", "sockets"),
    "models": ("hidden", "layers", "active", "context"),
    "networks": ("title", "all-reduce share", "latency"),
    "stacks": ("title", "schedules", "aliases"),
    "clusters": ("title", "nics per node", "aliases", "intra node", "gpus per node"),
}
_SCOPES = {"intra_node": "inside a node", "inter_node": "between nodes"}


def view(kind: str, entries: Sequence[Entry]) -> View:
    """One row per catalogue entry."""
    rows = sorted((_row(entry) for entry in entries), key=lambda row: row[0])
    header = _HEADERS.get(kind) or [words(name) for name in _names(entries)]
    drop = _DROPPED.get(kind, ())
    block = Block(f"{len(entries)} {kind}", header=header, rows=rows, order="by id", drop=drop)
    return View.of([block])


def tree_view(tree: ModelTree) -> View:
    """The blocks of a model."""
    header = ["block", ">times", ">parameters", ">forward", ">moved", ">kept", "operators"]
    sample = f"one {tree.unit} of {tree.tokens:,} tokens" if tree.tokens > 1 else f"one {tree.unit}"
    block = Block(
        f"{tree.title}: {show(float(tree.parameters), 'count')} parameters in"
        f" {tree.layers} layer{'s' * (tree.layers > 1)}",
        [f"FLOP forward, bytes moved both ways and kept for backward: of {sample}, in 16 bit"],
        header=header,
        order="as they run",
        drop=("operators", "moved"),
    )
    block.rows = [
        [
            f"{row.name} ({row.module})" if row.module and row.module not in row.name else row.name,
            str(row.times),
            f"{row.parameters:,}",
            show(row.forward_flop, "FLOP"),
            "-" if row.moved_bytes is None else show(row.moved_bytes, "B"),
            "-" if row.saved_bytes is None else show(row.saved_bytes, "B"),
            row.operators,
        ]
        for row in tree.blocks
    ]
    return View.of([block])


def kinds_view(kinds: Sequence[KindEntry]) -> View:
    """One row per kind of entry, with the command that lists it."""
    block = Block("What can be listed", header=["command", ">entries", "what they are"])
    block.rows = [[f"dpplan list {kind.id}", str(kind.count), kind.title] for kind in kinds]
    block.order = "by name"
    return View.of([block])


def _names(entries: Sequence[Entry]) -> list[str]:
    return [name for name in entries[0].__struct_fields__ if name != "source"] if entries else []


def _row(e: Entry) -> list[str]:
    if isinstance(e, GpuEntry):
        rate = e.dense_flop_per_s
        low = (show(rate[p], "FLOP/s") if p in rate else "-" for p in ("bf16", "fp8"))
        memory, speed = show(e.memory_bytes, "B"), show(e.memory_bytes_per_s, "B/s")
        return [e.id, e.title, memory, speed, *low, e.node, ", ".join(e.aliases)]
    if isinstance(e, ModelEntry):
        counts = (show(count, "count") for count in (e.parameters, e.active_parameters))
        sizes = (show(size, "") for size in (e.layers, e.hidden, e.max_positions))
        return [e.id, *counts, *sizes, ", ".join(e.aliases)]
    if isinstance(e, NetworkEntry):
        speed = "the cards'" if e.bytes_per_s is None else show(e.bytes_per_s, "B/s")
        latency = show(e.latency_s, "s")
        return [e.id, e.title, _SCOPES[e.scope], speed, latency, percent(e.all_reduce_frac)]
    if isinstance(e, HostEntry):
        speeds = (show(rate, "B/s") for rate in (e.memory_bytes_per_s, e.core_bytes_per_s))
        return [e.id, e.title, str(e.sockets), str(e.cores), *speeds, ", ".join(e.aliases)]
    values = (getattr(e, name) for name in _names([e]))
    return [", ".join(map(str, v)) if isinstance(v, list) else str(v) for v in values]
