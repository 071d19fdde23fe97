"""The objective of a fine-tuning, from options."""

from __future__ import annotations

from typing import Any

from planner.specs.base import PlanError
from planner.specs.model import ModelSpec
from planner.specs.options import Options
from planner.specs.task import TASKS


def for_task(options: Options, model: ModelSpec) -> tuple[ModelSpec, list[str]]:
    """The model with the head that its objective trains, and what was changed, as sentences."""
    objective = TASKS[options.task or "sft"]
    if objective.outputs is None:
        return model, []
    if not model.vocab:
        raise PlanError("--task", options.task, f"{model.name} reads no words; leave it out")
    head = {"outputs": objective.outputs, "tied_embeddings": False, "bias_head": False, "mtp": 0}
    sentence = f"head: {objective.outputs} output per token in place of the vocabulary (--task)"
    return model.model_copy(update=head), [sentence]


def task_fields(options: Options) -> dict[str, Any]:
    """Objective and reference of a request. Raises PlanError."""
    task = options.task or "sft"
    if not TASKS[task].reference:
        return {"task": task}
    if task == "distil":  # where its teacher computes is for the mechanism to say
        return {"task": task, "reference": options.reference or "held"}
    shared = options.lora is not None
    if options.reference == "shared" and not shared:
        raise PlanError(
            "--reference",
            "shared",
            "is the frozen base without its adapters: give --lora, or take held or precomputed",
        )
    return {"task": task, "reference": options.reference or ("shared" if shared else "held")}
