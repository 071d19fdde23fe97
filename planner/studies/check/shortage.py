"""An out-of-memory message: the requester, the missing bytes, and whether they were reserved but
unused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from planner.estimate import Estimates
from planner.formulas.params import layer_tensors
from planner.specs.documents.estimate import Estimate
from planner.specs.layers import layers_of
from planner.studies.documents.check import Shortage
from planner.studies.logs import contents as logs
from planner.units import show

_ALIKE = 0.03  # relative difference within which sizes are equal: the allocator rounds to 2 MiB
_FP32, _BF16 = 4.0, 2.0
# component that most likely asks in a phase
_OF_PHASE = {
    "loss": "logits",
    "forward": "activations",
    "backward": "backward_temporaries",
    "optimizer step": "optimizer_temporaries",
    "gathering weights": "gathered_layers",
    "load": "parameters",
}
_REMEDIES = {
    "logits": "--loss-chunks 8 or a fused cross entropy; tensor parallelism divides them, too",
    "activations": "--recompute selective or full, or half the --micro-batch",
    "backward_temporaries": "half the --micro-batch, or --tp 2 in place of 1",
    "optimizer": "--zero 1, which divides optimizer states over replicas",
    "optimizer_temporaries": "an optimizer that updates tensor by tensor (foreach off, fused on)",
    "gathered_layers": "resharding after forward, smaller FSDP units",
    "parameters": "--zero 3 or --tp, which divide weights",
    "gradients": "--zero 2, which divides gradients",
}
_OUTSIDE = (
    "the driver had no memory left, and says not for what: the context, buffers of NCCL, kernels of"
    " libraries or another process, all outside of torch's allocator"
)
_ROOM = (
    "nvidia-smi for other processes; torch.cuda.set_per_process_memory_fraction(0.95), which leaves"
    " room; a layout with more headroom (--headroom 10%)"
)
_FRAGMENTED = "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True (--expandable-segments)"


def of_snapshot(requested: float, free: float) -> logs.Shortage:
    """A shortage that a memory snapshot recorded."""
    return logs.Shortage(asked=requested, free=free)


def shortages(
    messages: Sequence[logs.Shortage], estimates: Estimates | None, predicted: Estimate | None
) -> list[Shortage]:
    """Messages; those that differ only by GPU are merged."""
    alike: dict[logs.Shortage, int] = {}
    for message in messages:
        key = replace(message, device=None)
        alike[key] = alike.get(key, 0) + 1
    return [_shortage(message, count, estimates, predicted) for message, count in alike.items()]


def _shortage(
    message: logs.Shortage, count: int, estimates: Estimates | None, predicted: Estimate | None
) -> Shortage:
    missing = None if message.free is None else max(message.asked - message.free, 0.0)
    idle = message.reserved_free or 0.0
    name, requester = _asker(message, estimates)
    if not message.asked:
        why, remedy, name = _OUTSIDE, _ROOM, None
    elif idle >= message.asked:
        why = (
            f"{show(message.asked, 'B')} were requested while {show(idle, 'B')} were reserved and"
            f" free, in pieces too small{_whether_need(predicted)}"
        )
        remedy = f"{_FRAGMENTED}: the free pieces are then one"
    else:
        short = "" if missing is None else f", {show(missing, 'B')} more than were free"
        size = show(message.asked, "B")
        why = f"{requester}: {size} were requested{short}{_beyond(message, predicted)}"
        remedy = _REMEDIES.get(name or "", "the changes that `dpplan estimate` lists for memory")
    return Shortage(
        asked_bytes=message.asked,
        missing_bytes=missing,
        reserved_free_bytes=message.reserved_free,
        allocated_bytes=message.allocated,
        free_bytes=message.free,
        process_bytes=message.process,
        capacity_bytes=message.capacity,
        gpus=count,
        phase=message.phase,
        term=name,
        why=why,
        remedy=remedy,
    )


def _whether_need(predicted: Estimate | None) -> str:
    """Whether the recipe fits except for the pieces that free memory is in."""
    if predicted is None:
        return ": fragmentation, unless more was to come (--recipe FILE tells)"
    missing = -predicted.memory.headroom_bytes
    if missing <= 0:
        return ": fragmentation at this request"
    return f"; yet the recipe itself is {show(missing, 'B')} short"


def _beyond(message: logs.Shortage, predicted: Estimate | None) -> str:
    """Bytes that tensors would have needed, beside the predicted peak."""
    if predicted is None or message.allocated is None:
        return ""
    needed, peak = message.allocated + message.asked, predicted.memory.peak_bytes
    if needed <= peak:
        return f"; the predicted peak is {show(peak, 'B')}, so that there is more to come"
    return (
        f"; tensors would hold {show(needed, 'B')}, beyond the predicted peak of {show(peak, 'B')}"
    )


def _asker(message: logs.Shortage, estimates: Estimates | None) -> tuple[str | None, str]:
    """(component, words) of the requester: a tensor of the recipe with this size that fits the
    phase; else the usual requester of the phase."""
    usual = _OF_PHASE.get(message.phase)
    sizes = _tensors(estimates) if estimates else []
    fit = [(name, words) for size, name, words in sizes if abs(message.asked / size - 1) <= _ALIKE]
    named = next((candidate for candidate in fit if candidate[0] == usual), fit[0] if fit else None)
    if named:
        return named
    if usual:
        return usual, f"{usual.replace('_', ' ')} ({message.phase})"
    return None, "a tensor that no size of the recipe tells"


def _largest_layer(estimates: Estimates) -> float:
    """Parameters of the largest layer, which FSDP and ZeRO-3 gather and reduce at once."""
    model = estimates.plan.model
    kinds = layers_of(model).kinds
    return float(max(sum(x.count for x in layer_tensors(model, kind)) for kind in kinds))


def _tensors(estimates: Estimates) -> list[tuple[float, str, str]]:
    """Sizes (B) of the large tensors of a rank: (size, component, words)."""
    model, c = estimates.plan.model, estimates.table
    tp, stages = float(c.tp[0]), float(c.pp[0])
    tokens = float(c.micro_batch[0]) * estimates.plan.training.seq_len / float(c.cp[0])
    logits = tokens * model.vocab / tp
    wide = model.mlp_part.ffn_hidden if model.mlp_part else 0
    inner = tokens * wide / tp
    layer = model.hidden * wide / tp
    table = model.vocab * model.hidden / tp
    heads = model.attention.heads if model.attention else 0
    scores = float(c.micro_batch[0]) * heads / tp * estimates.plan.training.seq_len**2
    whole = _largest_layer(estimates) / tp
    parameters = float(estimates.memory.components["parameters"][0])
    words = f"{tokens:,.0f} tokens x {model.vocab:,} words"
    entries = [
        (logits * _FP32, "logits", f"logits in fp32 ({words})"),
        (logits * _BF16, "logits", f"logits in 16 bit ({words})"),
        (inner * _BF16, "activations", f"MLP activations of {tokens:,.0f} tokens"),
        (2 * inner * _BF16, "activations", f"gate and up projection of {tokens:,.0f} tokens"),
        (tokens * model.hidden * _BF16, "activations", f"hidden states of {tokens:,.0f} tokens"),
        (scores * _BF16, "activations", "attention scores in 16 bit, which flash attention avoids"),
        (scores * _FP32, "activations", "attention scores in fp32, which flash attention avoids"),
        (whole * _BF16, "gathered_layers", "all weights of one layer in 16 bit"),
        (whole * _FP32, "gradients", "one layer in fp32: weights or gradients that FSDP joins"),
        (layer * _BF16, "gathered_layers", "one MLP weight in 16 bit"),
        (layer * _FP32, "gradients", "the gradient of one MLP weight in fp32"),
        (table * _BF16, "gathered_layers", "the embedding table in 16 bit"),
        (table * _FP32, "gradients", "the embedding table in fp32"),
        (parameters, "parameters", "all parameters of the rank at once"),
        (2 * parameters, "gradients", "a buffer of all gradients of the rank in fp32"),
    ]
    return [entry for entry in entries if entry[0] > 0 and stages > 0]
