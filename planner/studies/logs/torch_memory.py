"""torch's out-of-memory messages (c10/cuda/CUDACachingAllocator.cpp), and the phase of the step by
their traceback."""

from __future__ import annotations

import re
from typing import ClassVar

from planner.studies.logs.contents import GIB, MIB, NUMBER, WHOLE, Reader, Shortage, positive

_SIZE = rf"({NUMBER}) ?(bytes|KiB|MiB|GiB|TiB)"
_UNITS = {"bytes": 1.0, "KiB": 2.0**10, "MiB": MIB, "GiB": GIB, "TiB": 2.0**40}
# torch's, and XLA's of JAX
_ASKED = re.compile(rf"ut of memory(?:\. Tried| while trying) to allocate {_SIZE}")
# of the driver and of NCCL, which say no size: what is outside of torch's allocator
_OUTSIDE = re.compile(
    r"(?:CUDA|HIP)(?: driver)? error:? ?\w* ?out of memory|[Cc]uda failure \S* ?'out of memory'"
    r"|Failed to CUDA (?:c|m)alloc"
)
_DEVICE = re.compile(rf"GPU ({WHOLE})")
# since torch 2.1, and before
_SAID = {
    "capacity": (rf"total capacity of {_SIZE}", rf"{_SIZE} total capacity"),
    "free": (rf"of which {_SIZE} is free", rf"{_SIZE} free"),
    "process": (rf"this process has {_SIZE} memory in use",),
    "allocated": (rf"{_SIZE} is allocated by PyTorch", rf"{_SIZE} already allocated"),
    "reserved_free": (rf"{_SIZE} is reserved by PyTorch but unallocated",),
    "reserved": (rf"{_SIZE} reserved in total by PyTorch",),
}
_MOST_KEPT = 64  # messages: every rank of a node has one
# names of functions and files of a traceback, and the phase of the step that they are in; the
# innermost that is known counts
_PHASES: tuple[tuple[str, str], ...] = (
    (r"cross_entropy|[Vv]ocab_parallel|fused_linear_ce|compute_loss|loss_func", "loss"),
    (r"optimizer|optim[/.]|_init_group|foreach|adam", "optimizer step"),
    (r"_engine_run_backward|\bbackward\b|recompute_fn", "backward"),
    (r"all_gather|unshard|_prefetch|allgather", "gathering weights"),
    (r"from_pretrained|load_state_dict|\b_?init_(?:weights|model)|to_empty", "load"),
    (r"\bforward\b|_call_impl", "forward"),
)
_FRAME = re.compile(r'File "(?:[^"/]*+/)*+([^"/]*+)", line \d+, in (\S+)')


class TorchMemory(Reader):
    """`torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total
    capacity of 79.15 GiB of which 1.12 GiB is free. ... Of the allocated memory 70.23 GiB is
    allocated by PyTorch, and 6.11 GiB is reserved by PyTorch but unallocated.`"""

    MARKS: ClassVar = (b"ut of memory", b"Failed to CUDA", b", line ", b"Traceback (most recent")

    def __init__(self) -> None:
        super().__init__()
        self._phase = ""

    def line(self, text: str) -> None:
        if "Traceback (most recent" in text:
            self._phase = ""
        elif frame := _FRAME.search(text):
            place = f"{frame[1]} {frame[2]}"
            self._phase = next(
                (name for word, name in _PHASES if re.search(word, place)), self._phase
            )
        if len(self.log.shortages) >= _MOST_KEPT:
            return
        if match := _ASKED.search(text):
            self.log.shortages.append(_shortage(text[match.start() :], self._phase))
        elif _OUTSIDE.search(text):
            self.log.shortages.append(Shortage(asked=0.0, phase=self._phase))


def _shortage(text: str, phase: str) -> Shortage:
    sizes = {name: _first(patterns, text) for name, patterns in _SAID.items()}
    reserved, allocated = sizes.pop("reserved"), sizes["allocated"]
    if sizes["reserved_free"] is None and reserved is not None and allocated is not None:
        sizes["reserved_free"] = reserved - allocated
    device, requested = _DEVICE.search(text), _ASKED.match(text)
    return Shortage(
        asked=_bytes(requested[1], requested[2]) if requested else 0.0,
        device=int(device[1]) if device else None,
        phase=phase,
        **sizes,
    )


def _first(patterns: tuple[str, ...], text: str) -> float | None:
    matches = (re.search(pattern, text) for pattern in patterns)
    return next((_bytes(match[1], match[2]) for match in matches if match), None)


def _bytes(value: str, unit: str) -> float:
    return (positive(value) or 0.0) * _UNITS[unit]
