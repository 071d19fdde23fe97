"""Print a memory snapshot of torch as JSON: a script that runs in a separate process.

A pickle is a program, so this one runs where it can do no harm: `find_class` refuses every name, so
that nothing is imported or called; limits of the operating system end it where it builds too much
(repeated values, claimed lengths) or computes too long (keys of one hash), and a stack that
overflows (the hash of nested tuples) ends only this process. It imports the standard library only.
"""

from __future__ import annotations

import gc
import json
import os
import pickle
import re
import sys
from contextlib import suppress
from functools import lru_cache
from typing import Any, NoReturn

MOST_MEMORY = 400_000_000  # bytes of address space
MOST_S = 10  # of the processor
_MOST_NAMES = 20_000
_MOST_SIZE = 1e18  # bytes
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


class _Refused(ValueError):
    """Why a pickle is not read."""


class _Plain(pickle.Unpickler):
    """Reads numbers, texts and containers."""

    def find_class(self, module: str, name: str, /) -> NoReturn:
        raise _Refused("holds code to run, which no memory snapshot does")

    def persistent_load(self, pid: Any, /) -> NoReturn:
        raise _Refused("refers to values outside of the file")


def main() -> None:
    import resource

    gc.disable()  # a million containers, all of them alive
    limits = {
        resource.RLIMIT_AS: int(sys.argv[1]),
        resource.RLIMIT_CPU: int(sys.argv[2]),
        resource.RLIMIT_CORE: 0,
    }
    for kind, most in limits.items():
        with suppress(OSError, ValueError):  # macOS has no limit of address space
            resource.setrlimit(kind, (most, most))
    print(json.dumps(_answer()), flush=True)
    os._exit(0)  # takes no time to free what was read


def _answer() -> dict[str, Any]:
    try:
        return _summary(_Plain(sys.stdin.buffer).load())
    except _Refused as error:
        return {"refused": str(error)}
    except MemoryError:
        return {"refused": "too large"}
    except EOFError:
        return {"refused": "ends in the middle"}
    except Exception as error:  # whatever the wrong bytes lead to
        cut = "truncated" in str(error)
        return {"refused": "ends in the middle" if cut else "is a broken pickle"}


def _summary(snapshot: Any) -> dict[str, Any]:
    """The fields of `snapshot.Snapshot`."""
    if not isinstance(snapshot, dict) or not isinstance(snapshot.get("segments"), list):
        raise _Refused("is not a memory snapshot of torch: it has no `segments`")
    out: dict[str, Any] = {"reserved": 0.0, "allocated": 0.0, "freest": 0.0, "held": {}}
    segments = [segment for segment in snapshot["segments"] if isinstance(segment, dict)]
    for segment in segments:
        _add(out, segment)
    return {**out, "segments": len(segments), **_replay(out, snapshot.get("device_traces"))}


def _add(out: dict[str, Any], segment: dict[str, Any]) -> None:
    out["reserved"] += _size(segment, "total_size")
    blocks = segment.get("blocks")
    for block in blocks if isinstance(blocks, list) else ():
        if not isinstance(block, dict):
            continue
        size = _size(block, "size")
        if block.get("state") in _ACTIVE:
            kind = _class_of(block.get("frames"))
            out["allocated"] += size
            out["held"][kind] = out["held"].get(kind, 0.0) + size
        else:
            out["freest"] = max(out["freest"], size)


def _replay(out: dict[str, Any], traces: Any) -> dict[str, Any]:
    """The highest moment of the recording, going backwards from its end."""
    trace = max(
        (events for events in traces or () if isinstance(events, list)), key=len, default=[]
    )
    now = peak = out["allocated"]
    short: list[tuple[float, float]] = []
    for entry in reversed(trace):
        if not isinstance(entry, dict):
            continue
        size = _size(entry, "size")
        if entry.get("action") == "alloc":
            now -= size
        elif entry.get("action") == "free_completed":
            now += size
            peak = max(peak, now)
        elif entry.get("action") == "oom":
            short.append((size, _size(entry, "device_free")))
    return {"peak": peak, "short": short[::-1]}


def _size(record: dict[str, Any], key: str) -> float:
    value = record.get(key)
    return float(value) if isinstance(value, int | float) and 0 <= value < _MOST_SIZE else 0.0


def _class_of(frames: Any) -> str:
    """Class of an allocation by its stack, innermost function first."""
    for frame in frames if isinstance(frames, list) else ():
        if isinstance(frame, dict) and "name" in frame:
            file = str(frame.get("filename", "")).rpartition("/")[2]
            if kind := _class_of_function(f"{file} {frame['name']}"[:200]):
                return kind
    return UNKNOWN


@lru_cache(_MOST_NAMES)
def _class_of_function(name: str) -> str:
    """Class of a function's allocations; empty if its name does not tell."""
    return next((kind for word, kind in _CLASSES if re.search(word, name)), "")


if __name__ == "__main__":
    main()
