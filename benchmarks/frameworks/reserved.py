"""Memory that PyTorch's caching allocator reserves for counted steps, allocation by allocation.

    python -m benchmarks.frameworks reserved

Two tables: steps of drawn configurations, and 200 steps of one model whose sequences are all of one
length, padded to the longest of their micro-batch, or of lengths that packing leaves.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch

from benchmarks.caching_allocator import OutOfMemory, Settings, rounded, simulate
from benchmarks.frameworks import draw, gpu_rules, transformers_step
from benchmarks.frameworks.live import LiveBytes, fake
from benchmarks.frameworks.setting import Setting, compact

Events = list[tuple[object, float]]  # (tensor, bytes) of an allocation, (tensor, 0) of its end
GROWING = Settings(expandable_segments=True)
_STEPS = 200
_NEAR = 0.02
_LONGEST, _SHORTEST, _GRAIN = 4096, 256, 128  # tokens of a sequence, and what they are rounded to
_MODEL = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 32_000,
    "hidden_size": 2048,
    "intermediate_size": 5632,
    "num_hidden_layers": 4,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "max_position_embeddings": 8192,
}
_PLAIN = Setting("transformers", compact(_MODEL), 2, _LONGEST, precision="bf16")
_SHALLOW = compact(_MODEL | {"num_hidden_layers": 2})
OF_LENGTHS = (
    _PLAIN,
    replace(_PLAIN, model=_SHALLOW, micro_batch=4, precision="mixed"),
    replace(_PLAIN, model=_SHALLOW, micro_batch=8, recompute="full"),
)


class _Traced(LiveBytes):
    """Counts, and writes down every allocation and its end."""

    def __init__(self) -> None:
        super().__init__()
        self.events: Events = []
        self.steps: list[int] = []  # events before each step
        self._names: dict[int, int] = {}
        self._next = 0

    def _count(self, storage: torch.UntypedStorage) -> None:
        key = storage._cdata
        before = self._storages.get(key, (0, ""))[0]
        super()._count(storage)
        size = self._storages[key][0]
        if size == before:
            return
        self._end(key)
        if size:
            self._next += 1
            self._names[key] = self._next
            self.events.append((self._next, size))

    def _free(self, key: int) -> None:
        super()._free(key)
        self._end(key)

    def _end(self, key: int) -> None:
        if key in self._names:
            self.events.append((self._names.pop(key), 0))

    def restart(self) -> None:
        super().restart()
        self.steps.append(len(self.events))


def traced(setting: Setting) -> tuple[Events, Events]:
    """Allocations of load and first step, and allocations of the second step."""
    with gpu_rules.rules(), transformers_step.traced(), fake(_Traced()) as live:
        transformers_step.train(setting, live)
        assert isinstance(live, _Traced)
        begins = live.steps[1]
        return live.events[:begins], list(live.events[begins:])


@dataclass(frozen=True)
class Reservation:
    """Bytes of a sequence of steps."""

    resting: float  # between steps
    allocated: float  # at the fullest moment
    reserved: float
    growing: float  # reserved where segments expand
    least: float  # memory of the smallest device on which they run, to 2 %
    least_growing: float  # the same where segments expand

    def share(self, reserved: float) -> float:
        """Reserved but unallocated memory over the memory that a step allocates and frees."""
        return (reserved - self.allocated) / (self.allocated - self.resting)


def reservation(before: Events, steps: Sequence[Events]) -> Reservation:
    """Reservation after a model's first step and others, whose tensors are freed at their end."""
    events = list(before)
    for number, step in enumerate(steps):
        events += [((number, name), size) for name, size in _within(step)]
    live, most, resting = 0.0, 0.0, 0.0
    sizes: dict[object, float] = {}
    for i, (name, size) in enumerate(events):
        if size:
            sizes[name] = rounded(int(size))
            live += sizes[name]
        else:
            live -= sizes.pop(name)
        most = max(most, live)
        if i == len(before) - 1:
            resting = live
    usual, growing = simulate(events), simulate(events, GROWING)
    least = _least(events, most, usual.peak, Settings())
    least_growing = _least(events, most, growing.peak, GROWING)
    return Reservation(resting, most, usual.peak, growing.peak, least, least_growing)


def _least(events: Events, allocated: float, reserved: float, settings: Settings) -> float:
    """Bytes of the smallest device on which a sequence runs, whose allocator gives segments, or
    free pages of expandable ones, back and tries again."""
    low, high = allocated, reserved
    while high - low > _NEAR * allocated:
        middle = (low + high) / 2
        try:
            simulate(events, replace(settings, capacity=int(middle)))
            high = middle
        except OutOfMemory:
            low = middle
    return high


def _within(step: Events) -> Iterator[tuple[object, float]]:
    """Events of tensors that begin and end in a step."""
    begun, over = {n for n, size in step if size}, {n for n, size in step if not size}
    for name, size in step:
        if name in begun and name in over:
            yield name, size


def lengths(kind: str, micro_batch: int, rng: random.Random) -> int:
    """Tokens of a micro-batch's sequences: the longest of drawn ones where they are padded, a
    nearly full row where they are packed."""
    if kind == "constant":
        return _LONGEST
    if kind == "packed":
        return _LONGEST - _GRAIN * rng.randrange(4)
    drawn = max(rng.randint(_SHORTEST, _LONGEST) for _ in range(micro_batch))
    return _GRAIN * round(drawn / _GRAIN)


def of_lengths(setting: Setting, seed: int = 1) -> Iterator[tuple[str, Reservation]]:
    """(how sequences are made, what 200 steps reserve)."""
    traces: dict[int, tuple[Events, Events]] = {}
    for kind in ("constant", "packed", "padded"):
        rng = random.Random(f"{kind} {seed}")
        drawn = [lengths(kind, setting.micro_batch, rng) for _ in range(_STEPS)]
        for length in drawn:
            if length not in traces:
                traces[length] = traced(replace(setting, seq_len=length))
        yield kind, reservation(traces[drawn[0]][0], [traces[length][1] for length in drawn])


def of_settings(count: int, seed: int = 1) -> Iterator[tuple[Setting, Reservation]]:
    """Steps of drawn configurations."""
    for setting in draw.drawn("transformers", count, seed, layers=4):
        before, step = traced(setting)
        yield setting, reservation(before, [step] * 3)


def show(count: int) -> None:
    """Print both tables."""
    row = "{:44s}" + 5 * " {:>9s}" + 4 * " {:>7s}"
    names = "allocated", "reserved", "growing", "least", "least, g"
    print(row.format("GiB, and shares of what comes and goes", *names, *names[1:]))

    def line(name: str, value: Reservation) -> None:
        over = value.reserved, value.growing, value.least, value.least_growing
        sizes = [f"{size / 2**30:.2f}" for size in (value.allocated, *over)]
        print(row.format(name, *sizes, *(f"{value.share(size):.3f}" for size in over)), flush=True)

    shares: list[list[float]] = []
    for setting, value in of_settings(count):
        words = [setting.config["model_type"], setting.precision, setting.recompute]
        line(" ".join([*words, f"{setting.micro_batch} x {setting.seq_len}"]), value)
        over = value.reserved, value.growing, value.least, value.least_growing
        shares.append([value.share(size) for size in over])
    middle = [sorted(each)[len(each) // 2] for each in zip(*shares, strict=True)]
    print("median shares:", *(f"{share:.3f}" for share in middle))
    for setting in OF_LENGTHS:
        words = [setting.precision, setting.recompute, str(setting.micro_batch)]
        for kind, value in of_lengths(setting):
            line(" ".join([*words, f"x {_LONGEST},", f"{_STEPS} steps, {kind}"]), value)
