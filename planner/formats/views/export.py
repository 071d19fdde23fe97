"""View of `dpplan export`."""

from __future__ import annotations

from planner.formats.documents.export import Export, ExportedFile
from planner.specs.documents.plan import describe
from planner.units import percent, show
from planner.views.view import Block, File, Fixed, Link, View, words


def view(r: Export, folder: str | None) -> View:
    """Options written and not, values left to fill in; and the files, where no folder holds
    them."""
    files = () if folder else _files(r)
    return View.of([_summary(r, folder), *_lost(r), Block("Left to you", list(r.to_fill)), *files])


def _summary(r: Export, folder: str | None) -> Block:
    f = r.predicted
    count = f"{len(r.files)} files"
    return Block(
        f"{f.model} on {f.cluster.title}, for {r.title}",
        [
            f"layout: {describe(f.layout, with_layers=False)}",
            f"predicted: {show(f.step.seconds, 's')} a step (80 % band {show(f.step.low, 's')} to"
            f" {show(f.step.high, 's')}), MFU {percent(f.throughput.mfu)},"
            f" {show(f.memory.device_bytes, 'B')} of {show(f.memory.capacity_bytes, 'B')}:"
            f" {f.memory.verdict}",
            *_picked(r),
            f"{count} written into {folder}"
            if folder
            else f"{count} follow; --out FOLDER keeps them",
        ],
        ["file", "what it is"],
        [[file.name, file.says] for file in r.files],
        order="recipe first",
        links=[] if folder else [_download(file) for file in r.files],
    )


def _download(file: ExportedFile) -> Link:
    """The file as an address that holds it."""
    address = File(file.name, file.text, file.says).address
    return Link(address=address, word="Download")


def _picked(r: Export) -> list[str]:
    """The picked layout, where the files say another plan."""
    if r.picked is None:
        return []
    f = r.picked
    return [
        f"picked, and not what the files say: {describe(f.layout)}, {show(f.step.seconds, 's')} a"
        f" step, {show(f.memory.device_bytes, 'B')}"
    ]


def _lost(r: Export) -> list[Block]:
    """Values of the plan that the files do not say."""
    rows = [
        [
            words(expressible.option),
            str(expressible.value),
            "nothing" if expressible.written is None else str(expressible.written),
            expressible.why or "it has no argument for it",
        ]
        for expressible in r.not_expressible
    ]
    header = ["option", "planned", "the files say", "why"]
    block = Block("Not expressible", header=header, rows=rows, order="as planned", drop=("why",))
    return [block] if rows else []


def _files(r: Export) -> list[Block]:
    return [
        Block(file.name, [Fixed(line) for line in file.text.splitlines()], folded=True)
        for file in r.files
    ]
