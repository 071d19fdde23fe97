"""Weights in 8 and 4 bit: as the model keeps them, or as copies beside 16-bit weights."""

from __future__ import annotations

from planner.estimate.mechanisms import transposes_again
from planner.formulas import casts, memory
from planner.specs.plan import Plan


def copies_bytes(plan: Plan) -> float:
    """Bytes per weight of all the copies that its GEMMs read; 0 in 16 bit and more."""
    recipe = plan.recipe
    if recipe is None:
        return 0.0
    each = casts.operand_bytes(recipe.element, recipe.scale, recipe.block)
    copies = 1.0 if transposes_again(plan) else recipe.copies(plan.cluster.gpu.architecture)
    return float(memory.state_bytes(copies, each, 1.0))


def narrow_share(plan: Plan) -> float:
    """Share of layers whose GEMMs run in 8 or 4 bit."""
    return 1 - plan.training.wide_layers / plan.model.layers


def kept_bytes(plan: Plan, usual: float, master: float) -> float:
    """Bytes per weight of a layer as the model keeps it; `usual`: in 16 bit.

    Weights without a separate master copy, such as the fp32 shards of FSDP, stay as they are: there
    the format applies to gathers only.
    """
    return usual if master == 0 else frozen_bytes(plan, usual)


def frozen_bytes(plan: Plan, usual: float) -> float:
    """Bytes per frozen weight of a layer, which no update needs in 16 bit: what its GEMMs read;
    `usual`: in 16 bit."""
    if not plan.is_low("weights"):
        return usual
    share = narrow_share(plan)
    return share * copies_bytes(plan) + (1 - share) * usual


def keeps_copies(plan: Plan) -> bool:
    """Whether copies for GEMMs stay beside weights in 16 bit."""
    narrow = plan.recipe is not None and not plan.is_low("weights")
    return narrow and plan.stack.precision.weight_copies


def low_copy_bytes(plan: Plan) -> float:
    """Bytes per element of the copy in 8 or 4 bit that a GEMM keeps for its weight gradient; 0:
    it keeps what it was made of, as adapters do, which are not in the format."""
    recipe, frozen = plan.recipe, plan.training.adapter is not None
    if recipe is None or frozen or not plan.stack.activations.fp8_inputs:
        return 0.0
    return float(casts.operand_bytes(recipe.element, recipe.scale, recipe.block))
