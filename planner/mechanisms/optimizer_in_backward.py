"""Weights that are updated inside backward: a weight's gradient is freed when it has been used.

torch registers the update with `Tensor.register_post_accumulate_grad_hook`. On one GPU it runs
tensor by tensor. Where gradients are sharded it runs when a layer's are reduced, and their buffer
lives until the last of them has been used (fully_shard, `foreach_reduce`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from planner.error import PlanError
from planner.specs.mechanism import Alive, Gradients, Mechanism, Needed, Updated
from planner.specs.options.record import Record
from planner.specs.options.row import Needs, option
from planner.specs.options.training import TrainingOptions
from planner.specs.options.verbs import METHODS, OF_METHODS, REQUESTS

if TYPE_CHECKING:
    from planner.formulas.rules.rule import Rule
    from planner.ledger import Array
    from planner.specs.columns import Columns
    from planner.specs.layout import Layout
    from planner.specs.plan import Plan
    from planner.specs.stack import StackSpec

_ZERO_2 = 2.0  # the first ZeRO stage that shards gradients
_WIDTHS = ("one GPU", "sharded")  # where a stack has it; the second includes the first


@dataclass(frozen=True, kw_only=True)
class InBackwardOptions(Record):
    GROUP: ClassVar = TrainingOptions.GROUP
    VERBS: ClassVar = REQUESTS - METHODS
    WHY_NOT: ClassVar = OF_METHODS

    optimizer_in_backward: Annotated[
        bool,
        option(
            "Update each weight as soon as its gradient is ready, then free the gradient"
            " (optimizer_in_bwd of torchtune, early_step_in_backward of torchtitan, LOMO)",
            label="Optimizer in backward",
            needs=Needs(
                lambda given: given.precision != "fp16",
                "cannot look for overflows in all gradients first, which fp16 needs: leave it out,"
                " or take --precision bf16",
            ),
            form="folded",
        ),
    ] = False


def _has(stack: StackSpec) -> tuple[str, ...]:
    return {"one GPU": _WIDTHS[:1], "sharded": _WIDTHS}.get(
        stack.supports.optimizer_in_backward, ()
    )


def _allowed(plan: Plan, c: Columns) -> Array:
    from planner.specs.names import OFFLOADED_OPTIMIZER

    # of one layer's gradients, where they are reduced layer by layer
    sharded = (c.zero >= _ZERO_2) & (c.pp == 1) & (c.ep == 1)
    able = (c.gpus == 1) | (("sharded" in _has(plan.stack)) & sharded)
    once = c.microbatches(plan.training.global_batch) == 1
    return once & able & ~c.offloads(*OFFLOADED_OPTIMIZER)


def _refusal(plan: Plan, x: Layout) -> str:
    turns = plan.training.global_batch // (x.dp * x.micro_batch)
    able = (
        "can on one GPU, or without --pp and --ep where gradients are sharded"
        if "sharded" in _has(plan.stack)
        else "can only on one GPU, since all replicas' gradients share buckets"
    )
    return (
        f"{plan.stack.title} {able} with weights"
        " that are updated inside backward, which frees each gradient at once: nothing accumulates,"
        f" and no state waits on the host; here micro-batches per step are {turns}, zero {x.zero},"
        f" pp {x.pp}, ep {x.ep}, dp x cp {x.dp * x.cp}, offload {x.offload}"
    )


def _ways(plan: Plan, x: Layout) -> tuple[str, ...]:
    able, each = "sharded" in _has(plan.stack), x.dp * x.micro_batch
    return (
        f"--global-batch {each}" if plan.training.global_batch > each else "",
        "--zero 2 or 3" if able and x.zero < _ZERO_2 and x.dp * x.cp > 1 else "",
        "leave out --optimizer-in-backward",
    )


@dataclass(frozen=True)
class InBackward(Mechanism):
    """There is nothing to set."""

    NAME = "optimizer-in-backward"
    OFF = "weights are updated once all gradients are there"
    SOURCE = "Tensor.register_post_accumulate_grad_hook of PyTorch; LOMO (arXiv 2306.09782)"
    OPTIONS = InBackwardOptions
    NEEDS = (
        Needed("optimizer_in_backward", "updates inside backward", _has, _WIDTHS, graded=True),
    )
    ARGUMENTS: ClassVar = {
        "torchtitan": {"optimizer.early_step_in_backward": "optimizer_in_backward"}
    }

    @classmethod
    def of(cls, options: Any) -> InBackward | None:
        return cls() if options.optimizer_in_backward else None

    @classmethod
    def rules(cls) -> tuple[Rule, ...]:
        from planner.formulas.rules.rule import Rule

        name = "weights can be updated in backward"
        return (Rule(name, ("optimizer_in_backward",), _allowed, _refusal, ways=_ways),)

    def check(self, plan: Plan) -> None:
        if plan.partial:
            remedy = "frees gradients that frozen weights do not have: leave it out"
            raise PlanError("--optimizer-in-backward", True, remedy)

    def gradient_passes(self) -> float:
        return 1.0  # the update's own: none unscales, takes the norm or zeroes

    def freed(self, gradients: Gradients) -> Alive:
        import numpy as np

        from planner.formulas.memory import updated_gradient_bytes

        def updated(elements: Array, tensor: Array, beside: Array = 0.0) -> Updated:
            return Updated(
                updated_gradient_bytes(elements, beside, gradients.each, gradients.shards),
                updated_gradient_bytes(tensor, 0.0, gradients.temporary, gradients.shards),
            )

        # a tied embedding's gradient waits from the loss on for what the embedding adds to it
        several, waits = gradients.shards > 1, gradients.words if gradients.tied else 0.0
        layer = updated(
            np.where(several, gradients.layer, gradients.tensor), gradients.tensor, waits
        )
        # where the optimizer reads the gradient that a GEMM gives as it is, it counts once
        given = np.minimum(gradients.product, layer.gradients) if gradients.as_given else 0.0
        return Alive(
            layer._replace(given=given),
            updated(np.where(several, gradients.last, gradients.head), gradients.head, waits),
            updated(gradients.words, gradients.words),
        )


MECHANISM = InBackward
