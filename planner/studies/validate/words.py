"""Words of the `options` cell of a row: which of them an estimate holds.

A row is a test of the estimate only where every word that moves step or memory is in the estimate;
other rows are scored apart. A word is in it where the table of runs tables makes it an option,
where it says what every estimate assumes, where it says nothing of step and memory, and where the
stack and the model do what it says. The meaning of the words: docs/validation.md.
"""

from __future__ import annotations

from itertools import compress

from planner.estimate.memory import state_ledger, state_of
from planner.specs.capabilities import has, values
from planner.specs.decoder import decoder_of
from planner.specs.layers import parts_of
from planner.specs.names import is_recompute
from planner.specs.plan import Plan
from planner.studies.documents.validate import Task
from planner.studies.runs.cells import Row, options_of
from planner.studies.runs.read import Run

# words of fine-tuning, whichever value they have
_TUNED = {"peft", "task"}
# columns whose values the stack may not have, or other columns contradict
_CELLS = ("recompute", "ep")
# filled where `step_s` is the step of reinforcement learning, generation included
_OTHER_STEP = "algorithm"

# what a checkpoint keeps, on the host: the inputs of layers
_KEPT_BY_RECOMPUTE = ("checkpoint_inputs", "1", "all")
_BYTES = {"fp32": 4.0, "bf16": 2.0, "fp16": 2.0}


def task_of(row: Row, plan: Plan) -> Task:
    """The task of a row; pre-training of all weights unless it states fine-tuning."""
    words = options_of(row)
    if plan.training.adapter is not None:
        quantised = plan.training.quantised
        return "adapters on a quantised base" if quantised else "adapters"
    return "full fine-tuning" if _TUNED & words.keys() else "pre-training"


def not_expressed(row: Row, run: Run, plan: Plan) -> list[str]:
    """Words and cells of a row that its estimate leaves out, sorted."""
    words = options_of(row)
    left = [
        name
        for name in run.not_understood
        if name in _CELLS or (name in words and not _as_planned(name, words[name], plan, words))
    ]
    return sorted([*left, *compress([_OTHER_STEP], [row.get(_OTHER_STEP, "")])])


def _lists(words: dict[str, str]) -> bool:
    """Whether the row lists the tensors that its recompute policy keeps or offloads."""
    return bool({"kept_modules", "offload_modules"} & words.keys())


def _as_planned(key: str, value: str, plan: Plan, words: dict[str, str]) -> bool:
    """Whether the stack and the model of the estimate do what the word says."""
    states, stack = state_ledger(plan), plan.stack
    says: dict[str, bool] = {
        "activation_offload": value in _KEPT_BY_RECOMPUTE and has(stack, "offload", "activations"),
        "autocast": value == plan.training.precision,
        "params_dtype": _BYTES.get(value) == states["parameters"],
        "grads_dtype": _BYTES.get(value) == states["gradients"]
        or _cast_for_the_update(value, plan),
        "master_dtype": _BYTES.get(value) == state_of(plan).master
        or (value == "fp32" and plan.training.master_precision == "remainder"),
        "peft": plan.training.adapter is not None and (value == "lora" or plan.training.quantised),
        "recompute_modules": is_recompute(value) and has(stack, "recompute", "modules"),
        "kept_modules": has(stack, "recompute", "keep"),
        "remat_policy": is_recompute(value) or (value == "custom" and _lists(words)),
        "offload_modules": {*value.split("+")} <= {*values(stack, "offload_modules")},
        "hybrid_pattern": decoder_of(plan.model) is None,  # read of the row's arguments
        "mla": value == "1" and any(part.type == "latent" for part, _ in parts_of(plan.model)),
        "overlap_grad_reduce": value == "1" and plan.stack.overlap.gradient_sync,
        "overlap_param_gather": value == "1" and plan.stack.overlap.sharded_sync,
    }
    return says.get(key, False)


def _cast_for_the_update(value: str, plan: Plan) -> bool:
    """Whether gradients are fp32 only while the optimizer reads them: reduced in bf16, they
    accumulate in the type of the reduction."""
    return value == "fp32" and plan.training.gradient_reduce == "bf16"
