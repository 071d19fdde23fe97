"""A snapshot of torch's allocator (`torch.cuda.memory._dump_snapshot`): what was held, by what, and
what was free but reserved.

torch/cuda/memory.py documents the fields: `segments` with `blocks`, and `device_traces` with every
allocation of the recording.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO

from planner.inputs.traces.pickles import VERSIONS, read_pickle
from planner.specs.base import PlanError

_ACTIVE = ("active_allocated", "active_pending_free", "active_awaiting_free")
# names of functions in the stack of an allocation, and what it holds; the first that fits counts
_CLASSES: tuple[tuple[str, str], ...] = (
    (r"_init_group|optimizer|optim|adam|foreach|multi_tensor", "optimizer"),
    (r"cross_entropy|logits|lm_head|log_softmax|vocab_parallel", "logits"),
    (r"all_gather|unshard|reduce_scatter|all_reduce|foreach_all|bucket", "communication_buckets"),
    (r"recompute_fn|checkpoint", "recompute_working_set"),
    (r"backward|accumulate_grad|\bgrad", "gradients"),
    (r"forward|_call_impl", "activations"),
    (r"init_weights|from_pretrained|to_empty|_apply|reset_parameters|__init__", "parameters"),
)
UNKNOWN = "without a known stack"
_MOST_NAMES = 20_000
_MOST_SIZE = 1e18  # bytes
_KEEP = frozenset(
    {"total_size", "blocks", "size", "state", "action", "what", "device_free", "segments"}
)


@dataclass
class Snapshot:
    """Bytes of one GPU. held: what tensors hold, by class; freest: the largest free piece;
    peak: highest that tensors held in the recording; short: (asked, free) where memory ran out."""

    reserved: float = 0.0
    allocated: float = 0.0
    freest: float = 0.0
    segments: int = 0
    held: dict[str, float] = field(default_factory=dict)
    peak: float = 0.0
    short: list[tuple[float, float]] = field(default_factory=list)

    @property
    def reserved_free(self) -> float:
        """Reserved from the driver, and held by no tensor."""
        return self.reserved - self.allocated


def is_one(head: bytes) -> bool:
    """Whether a file begins as a pickle does."""
    return head[:1] == b"\x80" and head[1:2] in map(bytes, zip(VERSIONS, strict=True))


def read_snapshot(file: BinaryIO, path: Path, name: str) -> Snapshot:
    """What a snapshot says. Raises PlanError where the file is none."""
    found = read_pickle(file, path, name, _shortened)
    if not isinstance(found, dict) or not isinstance(found.get("segments"), list):
        raise PlanError(name, str(path), "is no memory snapshot of torch: it has no `segments`")
    out = Snapshot()
    for segment in found["segments"]:
        if isinstance(segment, dict):
            _add(out, segment)
    _replay(out, found.get("device_traces"))
    return out


def _shortened(found: dict[Any, Any]) -> None:
    """A stack frame keeps its function alone, a stack the class it says: a recording of a minute
    repeats the same frames a million times."""
    if "frames" in found and isinstance(found["frames"], list):
        found["what"] = _class_of(found.pop("frames"))
    if "filename" in found and "name" in found:
        said = f"{str(found['filename']).rpartition('/')[2]} {found['name']}"[:200]
        found.clear()
        found["name"] = said
    elif "size" in found or "total_size" in found:
        for key in [key for key in found if key not in _KEEP]:
            del found[key]


def _class_of(frames: list[Any]) -> str:
    """What a stack allocated for, the innermost function first."""
    names = (frame["name"] for frame in frames if isinstance(frame, dict) and "name" in frame)
    kinds = (kind for name in names if (kind := _class_of_function(str(name))))
    return next(kinds, UNKNOWN)


@lru_cache(_MOST_NAMES)
def _class_of_function(name: str) -> str:
    """What a function allocates for; empty where its name does not tell."""
    return next((kind for word, kind in _CLASSES if re.search(word, name)), "")


def _size(found: dict[str, Any], key: str) -> float:
    value = found.get(key)
    return float(value) if isinstance(value, int | float) and 0 <= value < _MOST_SIZE else 0.0


def _add(out: Snapshot, segment: dict[str, Any]) -> None:
    out.segments += 1
    out.reserved += _size(segment, "total_size")
    blocks = segment.get("blocks")
    for block in blocks if isinstance(blocks, list) else ():
        if not isinstance(block, dict):
            continue
        size = _size(block, "size")
        if block.get("state") in _ACTIVE:
            kind = str(block.get("what", UNKNOWN))
            out.allocated += size
            out.held[kind] = out.held.get(kind, 0.0) + size
        else:
            out.freest = max(out.freest, size)


def _replay(out: Snapshot, traces: Any) -> None:
    """The highest moment of the recording, from what is held at its end backwards."""
    trace = max((one for one in traces or () if isinstance(one, list)), key=len, default=[])
    now = out.peak = out.allocated
    for entry in reversed(trace):
        if not isinstance(entry, dict):
            continue
        size = _size(entry, "size")
        if entry.get("action") == "alloc":
            now -= size
        elif entry.get("action") == "free_completed":
            now += size
            out.peak = max(out.peak, now)
        elif entry.get("action") == "oom":
            out.short.append((size, _size(entry, "device_free")))
    out.short.reverse()
