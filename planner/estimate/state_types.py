"""Types of weights, gradients, master copy and moments: by the stack and the request."""

from __future__ import annotations

from planner.formulas.optimizers import TYPE_BYTES
from planner.specs.names import MasterType
from planner.specs.plan import Plan
from planner.specs.stack import StateBytes

_NARROW, _WIDE = TYPE_BYTES["bf16"], TYPE_BYTES["fp32"]
_MASTER_BYTES: dict[MasterType, float] = {"fp32": 4.0, "fp16": 2.0, "remainder": 2.0, "none": 0.0}


def state_of(plan: Plan) -> StateBytes:
    """The states of the stack in the plan's precision and types."""
    stack, training = plan.stack, plan.training
    own_type = None if training.adapter is None else training.adapter.precision
    if "bf16" in (training.state_precision, own_type):
        return bf16_states(stack.state)
    if own_type == "fp32":
        return fp32_states(stack.state)
    state = stack.state
    if stack.state_fp16 is not None and training.precision == "fp16":
        state = stack.state_fp16
    changed: dict[str, float] = {}
    if state.cast_alone and plan.cluster.gpus == 1 and training.adapter is None:
        changed["cast_copy"] = True
    if training.master_precision is not None and state.master > 0:
        changed["master"] = _MASTER_BYTES[training.master_precision]
    if training.gradient_precision is not None:
        changed["gradient"] = TYPE_BYTES[training.gradient_precision]
    if (
        training.gradient_reduce == "bf16"
        and state.gradient == state.gradient_wire == _WIDE
        and state.persistent_gradients
    ):  # a buffer that is reduced in place has the type of the reduction
        changed["gradient"] = _NARROW
        if state.master == _WIDE and training.gradient_precision != "bf16":
            # the update casts the rank's own gradients to the type of its master copy:
            # DistributedOptimizer._copy_model_grads_to_main_grads
            changed["optimizer_temporary"] = state.optimizer_temporary + _WIDE
    return state.model_copy(update=changed) if changed else state


def bf16_states(state: StateBytes) -> StateBytes:
    """State types of the program with weights in bf16: gradients, moments and the optimizer's
    temporaries have the type of their weight; without a master copy."""
    if state.parameter == _NARROW and state.master == 0:
        return state  # it is so already
    wide = state.master or state.parameter  # the type that temporaries of the optimizer have
    return state.model_copy(
        update={
            "parameter": _NARROW,
            "gradient": _NARROW,
            "gradient_wire": _NARROW,
            "master": 0.0,
            "cast_copy": False,
            "bucket": min(state.bucket, _NARROW),
            "optimizer_temporary": state.optimizer_temporary * _NARROW / wide,
        }
    )


def fp32_states(state: StateBytes) -> StateBytes:
    """State types of the program with weights in fp32, which are their own master copy."""
    changed = {"parameter": _WIDE, "gradient": _WIDE, "gradient_wire": _WIDE, "master": 0.0}
    return state.model_copy(update=changed)


def frozen_bytes(plan: Plan) -> float:
    """Bytes of a weight that is not trained: of the type that kernels read, unless the stack
    keeps others."""
    training, state = plan.training, plan.stack.state
    if not training.mixed_precision:
        return _WIDE
    if training.state_precision == "bf16":
        return _NARROW
    if plan.random_layers is not None:  # they are trained in their turn
        types = state_of(plan)
        return types.parameter + types.master
    return _NARROW if state.frozen is None else state.frozen


def reference_bytes(plan: Plan) -> float:
    """Bytes of a weight of a reference model."""
    state, whole = state_of(plan), plan.training.adapter is None
    if whole and state.reference is not None and plan.training.mixed_precision:
        return min(state.reference, state.parameter)
    return frozen_bytes(plan)


def moment_type_bytes(plan: Plan) -> float | None:
    """Bytes per element of moments without a fixed type; None: the optimizer's default."""
    training = plan.training
    if training.moments_precision is not None:
        return TYPE_BYTES[training.moments_precision]
    own_type = None if training.adapter is None else training.adapter.precision
    narrow = own_type is None and training.mixed_precision and plan.stack.state.narrow_moments
    return _NARROW if narrow or "bf16" in (training.state_precision, own_type) else None
