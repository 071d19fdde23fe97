"""Measured cases by mode: shapes that small and large decoders use, and the decoders that verify a
calibration."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil
from typing import Any, Literal

from planner.calibrate.documents import TrainedCase
from planner.error import PlanError

Mode = Literal["quick", "default", "thorough"]


@dataclass(frozen=True)
class Effort:
    """How long a mode measures; choices."""

    visit_s: float  # of one visit of a case
    wait_s: float  # for a quiet moment in it
    samples: int  # quiet ones that a case wants
    moments: int  # over which these are spread: visits at least
    visits: int  # before a case is given up
    total_s: float  # kernels, collectives and small decoders, before no further visit starts
    storage_s: float  # beside them, for the folder of checkpoints
    training_s: float  # of all steps of a verification
    steps: int  # quiet ones of a decoder


EFFORT: dict[Mode, Effort] = {
    "quick": Effort(0.25, 0.05, 2, 1, 2, 45.0, 3.0, 20.0, 4),
    "default": Effort(0.5, 0.15, 4, 2, 8, 420.0, 15.0, 280.0, 6),
    "thorough": Effort(2.0, 1.0, 9, 3, 20, 3600.0, 120.0, 1500.0, 12),
}

KIB, MIB = 1024, 1024**2


class Case(TrainedCase):
    """A decoder to train; `parallel` is one of PARALLEL, `family` of FAMILIES."""

    @property
    def name(self) -> str:
        how = "" if self.parallel == "single" else f" {self.parallel}"
        again = "" if self.recompute == "none" else f" {self.recompute}"
        return (
            f"{self.family} L{self.layers} h{self.hidden} a{self.heads} f{self.ffn} v{self.vocab}"
            f" s{self.seq} b{self.micro_batch}{how}{again}"
        )


PARALLEL = ("single", "ddp", "zero1", "fsdp", "fsdp-noreshard", "tensor", "pipeline")
FAMILIES = ("llama", "gpt")
_LIMITS = {
    "layers": 512,
    "hidden": 65536,
    "heads": 1024,
    "ffn": 1_000_000,
    "vocab": 1_000_000,
    "seq": 1_000_000,
    "micro_batch": 4096,
    "microbatches": 4096,
}


def read_case(text: str) -> Case:
    """A case as a user writes it:
    layers=4,hidden=512,heads=8,ffn=2048,vocab=8192,seq=256,micro_batch=2."""
    given: dict[str, Any] = {}
    known = set(Case.__struct_fields__)
    for part in text.split(","):
        key, _, value = (x.strip() for x in part.partition("="))
        if key not in known:
            raise PlanError(
                "--case", part, f"write key=value with the keys {', '.join(sorted(known))}"
            )
        if key in given:
            raise PlanError("--case", part, f"{key} is given twice; keep one")
        if key in _LIMITS:
            if not re.fullmatch(r"[0-9]{1,9}", value) or not 1 <= int(value) <= _LIMITS[key]:
                raise PlanError(
                    "--case", part, f"{key} must be a whole number from 1 to {_LIMITS[key]}"
                )
            given[key] = int(value)
        else:
            given[key] = value
    missing = _LIMITS.keys() - {"micro_batch", "microbatches"} - given.keys()
    if missing:
        raise PlanError("--case", text, f"also needs {', '.join(sorted(missing))}")
    return checked(Case(**given))


def checked(case: Case) -> Case:
    """A case whose parts go together. Raises PlanError."""
    for key, allowed in (
        ("parallel", PARALLEL),
        ("family", FAMILIES),
        ("recompute", ("none", "full")),
    ):
        if getattr(case, key) not in allowed:
            raise PlanError(
                "--case", f"{key}={getattr(case, key)}", f"must be one of {', '.join(allowed)}"
            )
    if case.hidden % case.heads or (case.hidden // case.heads) % 2:
        raise PlanError(
            "--case",
            f"heads={case.heads}",
            f"must divide hidden {case.hidden} into heads of an even width",
        )
    return case


# ----------------------------------------------------------------------------------------- kernels

_TOKENS: dict[Mode, tuple[int, ...]] = {
    "quick": (128, 512),
    "default": (256, 512, 1024),
    "thorough": (256, 384, 512, 1024, 1536, 2048, 4096),
}
_HIDDEN: dict[Mode, tuple[int, ...]] = {
    "quick": (256, 512),
    "default": (256, 704, 1024),
    "thorough": (256, 384, 512, 704, 768, 1024, 1536),
}
# a GPU needs larger GEMMs before its rate shows
_ON_GPU = 4
_HEAD = 8192  # vocabulary columns of the head's GEMM


def gemms(mode: Mode, gpu: bool = False) -> list[tuple[int, int, int, bool]]:
    """(tokens, columns, inner width, held out of the fit) of weight GEMMs: attention, both MLP
    widths, the head."""
    scale = _ON_GPU if gpu else 1
    problems: list[tuple[int, int, int, bool]] = []
    for i, hidden in enumerate(_HIDDEN[mode]):
        for j, tokens in enumerate(_TOKENS[mode]):
            t, h = tokens * scale, hidden * scale
            shapes = [(t, h, h), (t, 4 * h, h), (t, h, 4 * h)]
            if j == i % len(_TOKENS[mode]):
                shapes.append((t, _HEAD * scale, h))
            problems += [(*shape, (i + 2 * j + k) % 4 == 3) for k, shape in enumerate(shapes)]
    return problems


def attentions(mode: Mode, gpu: bool = False) -> list[tuple[int, int, int, int]]:
    """(batch, heads, sequence, head width) of causal attention."""
    sequences = {
        "quick": (128, 256, 512),
        "default": (128, 256, 512, 1024),
        "thorough": (128, 256, 512, 1024, 2048),
    }[mode]
    widths = {"quick": (64,), "default": (32, 64, 128), "thorough": (32, 64, 128)}[mode]
    scale = _ON_GPU if gpu else 1
    return [(max(1, 1024 // s), 512 // d, s * scale, d) for s in sequences for d in widths]


OPERATORS = ("layernorm", "rmsnorm", "residual", "plain", "gated", "rotary", "copies")


def operators(mode: Mode, gpu: bool = False) -> Iterator[tuple[str, int, int]]:
    """(operator, tokens, width): widths of hidden states for norms and sums, of MLPs for
    activations."""
    scale = _ON_GPU if gpu else 1
    sizes = {
        "quick": ((256, 512),),
        "default": ((256, 512), (1024, 512), (1024, 1024)),
        "thorough": ((256, 256), (256, 512), (1024, 512), (1024, 1024), (2048, 1024)),
    }[mode]
    for name in OPERATORS:
        for tokens, width in sizes:
            wide = 3 if name in ("plain", "gated") else 1
            yield name, tokens * scale, wide * width * scale


def losses(mode: Mode) -> list[tuple[int, int]]:
    """(tokens, vocabulary) of the loss."""
    return {
        "quick": [(256, 8192)],
        "default": [(256, 8192), (1024, 4096)],
        "thorough": [(256, 8192), (1024, 4096), (1024, 32000)],
    }[mode]


def embeddings(mode: Mode) -> list[tuple[int, int, int]]:
    """(tokens, vocabulary, width): few rows used of many, and many of few, so that both costs
    show."""
    return (
        [(256, 16384, 512), (2048, 1024, 512)]
        if mode != "thorough"
        else [(256, 16384, 512), (2048, 1024, 512), (1024, 8192, 1024), (4096, 4096, 256)]
    )


OPTIMIZERS = ("fused", "foreach", "for-loop")

# ------------------------------------------------------------------------------------- collectives

COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "send_recv")
HELD_OUT_EVERY = 3  # of the sizes, the second of each three is predicted and not fitted


def sizes(mode: Mode, gpu: bool = False) -> list[int]:
    """Bytes of the whole tensor, 1 KiB to 1 GiB on GPUs and in thorough mode; less where a CPU
    would take minutes."""
    most = {"quick": 4 * MIB, "default": 64 * MIB, "thorough": 1024 * MIB}[mode]
    if gpu:
        most = {"quick": 64 * MIB, "default": 1024 * MIB, "thorough": 1024 * MIB}[mode]
    step, size, result = {"quick": 16, "default": 4, "thorough": 2}[mode], KIB, []
    while size <= most:
        result.append(size)
        size *= step
    return result if result[-1] == most else [*result, most]


def groups(ranks: int, per_node: int) -> dict[str, list[list[int]]]:
    """Groups a plan would use: neighbours, the node, the same card of every node (rails), and all
    ranks."""
    by_name = {"pairs": [[r, r + 1] for r in range(0, ranks - 1, 2)]}
    nodes = [
        list(range(first, min(first + per_node, ranks))) for first in range(0, ranks, per_node)
    ]
    if per_node > 2:
        by_name["node"] = nodes
    if len(nodes) > 1:
        by_name["rails"] = [list(range(i, ranks, per_node)) for i in range(per_node)]
    if ranks > 2:
        by_name["all"] = [list(range(ranks))]
    return by_name


MOST_IN_PAIRS = 16  # ranks of which every pair is measured; of more, neighbours only


def pairs(ranks: int) -> list[tuple[int, int]]:
    """Pairs of ranks whose link is measured on its own, to find a slow one."""
    if ranks > MOST_IN_PAIRS:
        return [(r, r + 1) for r in range(ranks - 1)]
    return [(i, j) for i in range(ranks) for j in range(i + 1, ranks)]


# ------------------------------------------------------------------------------------ verification


_FEW_LAYERS, _MANY_LAYERS = 2, 10


def tiny(family: str) -> list[Case]:
    """Layers so small that only their fixed cost shows: what the framework takes per layer and per
    step."""
    return [Case(n, 32, 2, 64, 64, 16, 1, family) for n in (_FEW_LAYERS, _MANY_LAYERS)]


def shared(parallel: str, ranks: int) -> list[Case]:
    """Small layers of ranks together: what hooks and distributed tensors take per layer and step.
    Of some milliseconds of work each, as collectives are timed between; ranks split every width."""
    heads = ranks * ceil(4 / ranks)
    hidden, ffn, vocab = (
        each * ceil(width / each) for width, each in ((128, 2 * heads), (352, heads), (512, heads))
    )
    return [
        Case(n, hidden, heads, ffn, vocab, 128, 1, parallel=parallel)
        for n in (_FEW_LAYERS, _MANY_LAYERS)
    ]


def of_weights(parallel: str) -> Case:
    """Layers of many weights and few tokens: what is done per weight beside the collectives."""
    return Case(2, 512, 8, 1408, 512, 16, 1, parallel=parallel)


def unseen(ranks: int, mode: Mode, gpu: bool = False) -> list[Case]:
    """Decoders to verify a calibration with: widths, depths, sequences and micro-batches, none of
    them used in a fit."""
    if gpu:
        return _unseen_on_gpu(ranks)
    if ranks == 1:
        decoders = [
            Case(4, 384, 6, 1024, 4096, 256, 2),
            Case(6, 448, 7, 1216, 8192, 128, 4),
            Case(3, 640, 10, 1728, 4096, 384, 1),
            Case(2, 896, 14, 2432, 8192, 256, 2),
            Case(8, 320, 5, 896, 2048, 512, 1),
            Case(3, 576, 9, 1536, 6144, 192, 3),
            Case(4, 448, 7, 1792, 4096, 256, 2, "gpt"),
            Case(3, 640, 10, 2560, 8192, 128, 3, "gpt"),
            Case(2, 832, 13, 3328, 4096, 320, 1, "gpt"),
        ]
        return decoders[:2] if mode == "quick" else decoders
    shape = (4, 448, 8, 1216, 4096, 192, 2)
    decoders = [
        Case(*shape, parallel=how) for how in ("ddp", "fsdp", "fsdp-noreshard", "zero1", "tensor")
    ]
    decoders.append(Case(*shape, parallel="pipeline", microbatches=4))
    more = [
        (3, 640, 10, 1728, 6144, 256, 1),
        (2, 832, 8, 2240, 4096, 320, 1),
        (6, 320, 10, 896, 8192, 256, 2),
    ]
    decoders += [Case(*shape, parallel=how) for shape in more for how in ("ddp", "fsdp")]
    return (
        [Case(2, 128, 4, 256, 512, 64, 2, parallel=how) for how in ("ddp", "fsdp")]
        if mode == "quick"
        else decoders
    )


def _unseen_on_gpu(ranks: int) -> list[Case]:
    """125M to 7B shapes; those beyond a card's memory are left out when they are run."""
    shapes = [
        (12, 768, 12, 2048, 32000, 1024, 8),
        (24, 1024, 16, 2816, 32000, 1024, 8),
        (24, 1536, 16, 4096, 32000, 2048, 4),
        (24, 2048, 16, 5504, 32000, 2048, 4),
        (16, 2048, 32, 8192, 128256, 4096, 1),
        (32, 2560, 32, 6912, 32000, 2048, 2),
        (26, 3200, 32, 8640, 32000, 2048, 2),
        (32, 4096, 32, 11008, 32000, 2048, 1),
    ]
    if ranks == 1:
        return [Case(*shape, recompute=again) for shape in shapes for again in ("none", "full")]
    how = ("ddp", "fsdp", "fsdp-noreshard", "zero1", "tensor")
    return [Case(*shape, parallel=parallel) for shape in shapes[:5] for parallel in how]
