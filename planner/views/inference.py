"""Memory of generating text as a table of contexts and batches."""

from __future__ import annotations

from planner.specs.documents.estimate import Estimate
from planner.units import show
from planner.views.view import Block


def inference_blocks(r: Estimate) -> list[Block]:
    """Bytes per GPU of generating text, by context and batch."""
    i = r.inference
    if i is None:
        why = (
            "none: only caches of decoders are planned, and this model writes no text or"
            " reads another sequence for it"
        )
        return [Block("Inference memory per GPU", text=[why])]
    batches = sorted({row.batch for row in i.table})
    block = Block(
        "Inference memory per GPU",
        header=["context|,", *(f"batch {b}|B" for b in batches), "largest batch|,"],
        order="shortest context first",
        drop=tuple(f"batch {b}" for b in reversed(batches[1:])),
    )
    gpus = "does not fit on up to 128 GPUs" if i.gpus is None else f"on {i.gpus} of these GPUs"
    block.text.append(
        f"{gpus}: bf16 weights {show(i.weights_bytes, 'B')}, cache"
        f" {show(i.cache_bytes_per_token, 'B')} per token of one sequence,"
        f" {show(i.budget_bytes, 'B')} to use per GPU; - where it does not fit"
    )
    for most in i.max_batch:
        row = [row for row in i.table if row.context == most.context]
        cells = [cell.device_bytes if cell.fits else None for cell in row]
        block.rows.append([most.context, *cells, most.batch])
    return [block]
