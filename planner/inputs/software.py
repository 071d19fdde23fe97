"""Free options of a stack: kernels, overlap and dispatch that a search chooses where a request
leaves them open. Which they are, and which values are tried, is the column `free` of the option
table."""

from __future__ import annotations

from typing import Any

from planner.formulas.rules.state import types_refused
from planner.inputs.training import training_spec
from planner.specs.base import PlanError
from planner.specs.capabilities import lacks, values
from planner.specs.mechanism import Mechanism
from planner.specs.options import LAYOUT, MECHANISMS, Options, rows
from planner.specs.plan import Plan, SoftwareChoice
from planner.specs.training import TrainingSpec

_OFF = (None, False, "none")


def free_choices(options: Options, plan: Plan) -> tuple[SoftwareChoice, ...]:
    """Values of free options that the request leaves open and that the plan's stack, model and GPU
    have."""
    if options.stack_defaults:
        return ()
    training = plan.training
    with_option = options.changed(
        seq_len=training.seq_len,
        global_batch=training.global_batch,
        precision=training.precision,
        grad_accum=None,
        stack=plan.stack.id,
    )
    usual = _training(with_option, plan)
    out = []
    for name, row in rows(Options).items():
        if name in LAYOUT or not row.says.free or getattr(options, name) != row.default:
            continue
        start = row.says.start
        for value in _values(row.says.free, plan, name):
            if lacks(plan.stack, {name: value}) or not _acts(plan, name, value):
                continue
            try:
                if name in _MECHANISMS:
                    if on := _mechanism(with_option, name, value):
                        on.check(plan)
                        out.append(SoftwareChoice(name, value, {}, on, start))
                    continue
                changed = _training(with_option.changed(**{name: value}), plan)
            except PlanError:  # not of this model or GPU
                continue
            update = {
                field: new
                for field in TrainingSpec.model_fields
                if (new := getattr(changed, field)) != getattr(usual, field)
            }
            choice = SoftwareChoice(name, value, update, start=start)
            if update and not types_refused(plan.choosing((choice,))):
                out.append(choice)
    return tuple(out)


_MECHANISMS = {name: each for each in MECHANISMS if each.OPTIONS for name in rows(each.OPTIONS)}


def _mechanism(options: Options, name: str, value: Any) -> Mechanism | None:
    """The mechanism of an option at a value that is not off."""
    return None if value in _OFF else _MECHANISMS[name].of(options.changed(**{name: value}))


def _values(free: Any, plan: Plan, name: str) -> tuple[Any, ...]:
    return values(plan.stack, name) if free == "words" else free


def _training(options: Options, plan: Plan) -> TrainingSpec:
    training, _ = training_spec(options, plan.model, plan.cluster.gpu)
    if options.compile:
        training = training.model_copy(update={"compile": True})
    if options.fused_kernels:
        training = training.model_copy(update={"fused_kernels": True})
    return training


# scopes of CUDA graphs that hold experts, whose shapes differ from step to step
_OF_ROUTERS = frozenset({"moe_router", "moe_preprocess"})
_OF_EXPERTS = frozenset({"mlp", "layer", "full"})


def _acts(plan: Plan, name: str, value: Any) -> bool:
    """Whether a value differs from what the stack does by itself, and can be run."""
    if name == "cuda_graphs":
        scopes = {*value.split("+")}
        if plan.model.routed is None:
            return not _OF_ROUTERS & scopes
        return plan.training.capacity_factor is not None or not _OF_EXPERTS & scopes
    if name in ("fused_kernels", "compile"):
        generated = not lacks(plan.stack, {"compile": True})  # by torch.compile, with others
        return name == "compile" or (plan.chained and not generated)
    if name == "loss_kernel" and plan.model.outputs is not None:
        return False  # of a few outputs there is nothing to fuse
    usual = {
        "loss_kernel": plan.loss_kernel,
        "cp_comm_type": plan.context_way,
        "gradient_sync": "last" if plan.sync_waits else "each",
    }
    return bool(usual.get(name) != value)
