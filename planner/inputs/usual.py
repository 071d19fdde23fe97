"""The stacks that are tried when a request names none: each family of layouts on the stack that
usually runs it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType, SimpleNamespace

from planner.inputs.calibration import stack_spec
from planner.inputs.catalog import ids
from planner.inputs.fine_tuning import PROGRAMS, STACK_SOURCE, is_fine_tuning
from planner.specs.base import PlanError
from planner.specs.capabilities import lacks, values
from planner.specs.hardware import GpuSpec
from planner.specs.names import NVME, RECOMPUTE_KINDS, recompute_parts
from planner.specs.options import Options, rows
from planner.specs.stack import StackSpec

# what a request asks for: nothing but to fit, a ZeRO stage, what is offloaded and where to, or
# modules that are repeated by themselves
MODULES = "modules"
ANY, STAGE, STATES, DRIVES, ACTIVATIONS = "any", "stage", "states", "drives", "activations"


_OF_SEVERAL = ("deepspeed", "pytorch-fsdp")  # that are there to shard
_MOST_NAMED = 3  # stacks that a refusal names
_OPEN: Mapping[str, int] = MappingProxyType({})


@dataclass(frozen=True)
class Usual:
    """A stack at a ZeRO stage, at every one that it has where zero is None.

    family: what `--vary strategy=` calls it; fixed: options of that family besides the stack.
    """

    stack: str
    zero: int | None
    asked: frozenset[str]
    family: str
    fixed: Mapping[str, int]


def _usual(
    stack: str,
    zero: int | None,
    *conditions: str,
    family: str = "",
    fixed: Mapping[str, int] = _OPEN,
) -> Usual:
    return Usual(stack, zero, frozenset(conditions), family, fixed)


# the order decides between layouts that are equally fast
USUAL = (
    _usual("pytorch-ddp", 0, ANY, STAGE, family="ddp", fixed={"zero": 0}),
    _usual("deepspeed", 1, ANY, STAGE, STATES, family="zero1", fixed={"zero": 1, "tp": 1, "pp": 1}),
    _usual("deepspeed", 2, ANY, STAGE, STATES, family="zero2", fixed={"zero": 2, "tp": 1, "pp": 1}),
    _usual("deepspeed", 3, STATES, DRIVES, fixed={"tp": 1}),
    _usual("pytorch-fsdp", 3, ANY, STAGE, STATES, ACTIVATIONS, family="zero3", fixed={"zero": 3}),
    _usual("torchtitan", 2, ANY, STAGE),
    _usual("torchtitan", 3, ANY, STAGE),
    _usual("pytorch-ddp", 0, ACTIVATIONS),
    _usual("megatron-core", None, ANY, STAGE, ACTIVATIONS, MODULES, family="3d"),
)
# further stacks, for requests that these cannot run
FURTHER = ("torchtitan", "nemo", "zero-bubble", "maxtext", "hf-deepspeed", "hf-fsdp")
STACKS = tuple(sorted({row.stack for row in USUAL}))
FAMILIES: dict[str, dict[str, object]] = {  # by name, as options
    row.family: {"stack": row.stack, **row.fixed} for row in USUAL if row.family
}


def on_chip(options: Options, gpu: GpuSpec) -> list[tuple[str, int | None]]:
    """Stack and ZeRO stage of each plan of a request: of the stated stack, else `tried`, else the
    first stack that runs on this kind of accelerator. Raises PlanError for a stack that does
    not."""
    pairs = [(options.stack, options.zero)] if options.stack else tried(options)
    if all(gpu.accelerator in stack_spec(name).accelerators for name, _ in pairs):
        return pairs
    usual = dict.fromkeys((*(row.stack for row in reversed(USUAL)), *ids("stacks")))
    able = [name for name in usual if gpu.accelerator in stack_spec(name).accelerators]
    if options.stack:
        why = f"does not run on {gpu.title}; {named_stacks(able)}"
        raise PlanError("--stack", options.stack, why)
    return [(able[0], options.zero)]


def tried(options: Options) -> list[tuple[str, int | None]]:
    """Stack and ZeRO stage of each plan that a request without a stack is searched for: of
    fine-tuning the first program of a person that has what is stated, else the usual ones that have
    it, else the first other stack that does."""
    if is_fine_tuning(options) and (able := _able(options, _of_trainers(options))):
        return able
    usual = _usual_of(options)
    able = _able(options, usual)
    return able or [(stack.id, options.zero) for stack in able_stacks(options)[:1]] or usual[-1:]


def trainers(options: Options) -> list[str]:
    """Ways of the first program of a person that has what a request states; on one GPU, which
    shards nothing, the plain one if it can."""
    return [stack for stack, _ in _of_trainers(options)]


def _of_trainers(options: Options) -> list[tuple[str, int | None]]:
    """The usual trainers with the ZeRO stage of the request; all ways of the last program where
    none has what is stated."""
    alone = options.gpus == 1 and options.offload in (None, "none")
    for program in PROGRAMS.values():
        pairs = [(stack, options.zero) for stack in program]
        if able := (_able(options, pairs[:1]) if alone else []) or _able(options, pairs):
            return able
    return pairs


def _able(
    options: Options, pairs: Sequence[tuple[str, int | None]]
) -> list[tuple[str, int | None]]:
    """Stacks and ZeRO stages of these pairs that have what a request states."""
    return [
        (stack, zero)
        for stack, zero in pairs
        if not lacks(stack_spec(stack), vars(options)) and _all_act(options, zero)
    ]


def _all_act(options: Options, zero: int | None) -> bool:
    """Whether this ZeRO stage leaves every option something to do that has it in the request."""
    if zero == options.zero:
        return True
    table, at_stage = rows(Options), SimpleNamespace(**{**vars(options), "zero": zero})
    needed = (needs for name in options.given() if (needs := table[name].says.needs))
    return all(needs.holds(at_stage) or not needs.holds(options) for needs in needed)


def _usual_of(options: Options) -> list[tuple[str, int | None]]:
    if options.offload not in (None, "none"):
        needs = ACTIVATIONS if options.offload == "activations" else STATES
        needs = DRIVES if options.offload in NVME else needs
    else:
        needs = ANY if options.zero is None else STAGE
    kind = recompute_parts(options.recompute or "none")[0]
    needs = MODULES if RECOMPUTE_KINDS[kind] == "modules" else needs
    alone = options.gpus == 1 and needs == ANY  # one GPU shards nothing
    return [
        (usual.stack, options.zero if usual.zero is None else usual.zero)
        for usual in USUAL
        if needs in usual.asked
        and not (alone and usual.stack in _OF_SEVERAL)
        and (usual.zero is None or options.zero in (None, usual.zero))
        and all(getattr(options, name) in (None, value) for name, value in usual.fixed.items())
    ]


def able_stacks(options: Options) -> list[StackSpec]:
    """All stacks of GPUs that have what a request states, the usual ones first, releases and forks
    last, and after all of them those whose degrees no search tries."""
    stacks = [spec for name in ids("stacks") if "gpu" in (spec := stack_spec(name)).accelerators]
    degrees = [name for name in ("tp", "pp", "cp", "ep") if (getattr(options, name) or 1) > 1]
    order = (*STACKS, *FURTHER)

    def place(stack: StackSpec) -> tuple[bool, int, bool]:
        usual = order.index(stack.id) if stack.id in order else len(order)
        rare = any(not values(stack, name) for name in degrees)
        return rare, usual, bool(stack.release_of)

    return sorted((stack for stack in stacks if not lacks(stack, vars(options))), key=place)


def passed_over(options: Options) -> list[str]:
    """The stacks that a request without one is answered for, where they differ from the
    usual stacks of pre-training: for fine-tuning, or because the usual one lacks what is stated."""
    if options.stack is not None:
        return []
    tuned, names = is_fine_tuning(options), [name for name, _ in tried(options)]
    for program, ways in PROGRAMS.items() if tuned else ():
        if {*names} <= {*ways}:
            return [f"stack: {program} ({', '.join(names)}), {STACK_SOURCE} (set --stack)"]
    usual = _of_trainers(options) if tuned else _usual_of(options)
    stack = stack_spec(usual[-1][0] if usual else STACKS[0])
    lacking = lacks(stack, vars(options))
    if not lacking or stack.id in names:
        return []
    typed = " and ".join(lack.typed for lack in lacking)
    return [f"stack: {' or '.join(dict.fromkeys(names))}, since {stack.id} lacks {typed}"]


def refusal(
    stack: StackSpec, options: Options, runs: Callable[[StackSpec], bool]
) -> PlanError | None:
    """Why a stack cannot run what a request states, and which stacks can; None where it can. runs:
    whether another has a layout for it."""
    lacking = lacks(stack, vars(options))
    if not lacking:
        return None
    values = {lack.flag: lack.value for lack in lacking}
    remedy = f"{stack.title} does not have {' and '.join(map(str, lacking))}; leave it out"
    others = named_stacks(other.id for other in able_stacks(options) if runs(other))
    return PlanError(
        "/".join(values),
        next(iter(values.values())) if len(values) == 1 else values,
        f"{remedy}, or {others}" if others else remedy,
    )


def named_stacks(names: Iterable[str]) -> str:
    """The first few of these stacks as a remedy, "" for none."""
    *most, last = [*itertools.islice(names, _MOST_NAMED)] or [""]
    return f"take --stack {', '.join(most)}{' or ' if most else ''}{last}" if last else ""
