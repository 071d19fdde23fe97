"""The stacks that are tried when a request names none: each family of layouts on the stack that
usually runs it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from planner.inputs.calibration import stack_spec
from planner.specs.names import NVME, RECOMPUTE_KINDS, recompute_parts
from planner.specs.options import Options

# what a request asks for: nothing but to fit, a ZeRO stage, what is offloaded and where to, or
# modules that are repeated alone
MODULES = "modules"
ANY, STAGE, STATES, DRIVES, ACTIVATIONS = "any", "stage", "states", "drives", "activations"


_OPEN: Mapping[str, int] = MappingProxyType({})


@dataclass(frozen=True)
class Usual:
    """A stack at a ZeRO stage.

    family: what `--vary strategy=` calls it; fixed: options of that family besides the stack.
    """

    stack: str
    zero: int
    asked: frozenset[str]
    family: str
    fixed: Mapping[str, int]


def _usual(
    stack: str, zero: int, *asked: str, family: str = "", fixed: Mapping[str, int] = _OPEN
) -> Usual:
    return Usual(stack, zero, frozenset(asked), family, fixed)


# the order decides between layouts that are equally fast
USUAL = (
    _usual("pytorch-ddp", 0, ANY, STAGE, family="ddp", fixed={"zero": 0}),
    _usual("deepspeed", 1, ANY, STAGE, STATES, family="zero1", fixed={"zero": 1, "tp": 1, "pp": 1}),
    _usual("deepspeed", 2, ANY, STAGE, STATES, family="zero2", fixed={"zero": 2, "tp": 1, "pp": 1}),
    _usual("deepspeed", 3, STATES, DRIVES),
    _usual("pytorch-fsdp", 3, ANY, STAGE, STATES, ACTIVATIONS, family="zero3", fixed={"zero": 3}),
    _usual("pytorch-ddp", 0, ACTIVATIONS),
    _usual("megatron-core", 1, ANY, STAGE, ACTIVATIONS, MODULES, family="3d"),
    # a ZeRO stage beside tensor or pipeline parallelism
    _usual("megatron-core", 0, STAGE),
    _usual("torchtitan", 2, STAGE),
    _usual("torchtitan", 3, STAGE),
)
# stacks that are tried where none of these runs the schedule of a request
FURTHER = ("torchtitan", "zero-bubble", "hai-llm")
STACKS = tuple(sorted({one.stack for one in USUAL}))
FAMILIES: dict[str, dict[str, object]] = {  # by name, as options
    one.family: {"stack": one.stack, **one.fixed} for one in USUAL if one.family
}


def tried(options: Options) -> list[tuple[str, int | None]]:
    """Stack and ZeRO stage of each plan that a request without a stack is searched for."""
    if options.offload not in (None, "none"):
        asked = ACTIVATIONS if options.offload == "activations" else STATES
        asked = DRIVES if options.offload in NVME else asked
    else:
        asked = ANY if options.zero is None else STAGE
    kind = recompute_parts(options.recompute or "none")[0]
    asked = MODULES if RECOMPUTE_KINDS[kind] == "modules" else asked
    alone = options.gpus == 1 and asked == ANY  # one GPU shards nothing
    usual: list[tuple[str, int | None]] = [
        (one.stack, one.zero)
        for one in (USUAL[:1] if alone else USUAL)
        if asked in one.asked and options.zero in (None, one.zero)
    ]
    further = instead(options, usual)
    return usual if further is None else [(further, options.zero)]


def instead(options: Options, usual: list[tuple[str, int | None]]) -> str | None:
    """The stack that is tried in place of these, none of which runs the schedule of a request."""
    schedule = options.schedule
    if schedule is None or options.pp == 1 or _runs([name for name, _ in usual], schedule):
        return None
    return next(iter(_runs(FURTHER, schedule)), None)


def _runs(stacks: Iterable[str], schedule: str) -> list[str]:
    return [name for name in stacks if schedule in stack_spec(name).supports.schedules]
