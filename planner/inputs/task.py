"""The objective of a fine-tuning, from options."""

from __future__ import annotations

from typing import Any

from planner.formulas.params import parameter_count
from planner.inputs.model import model_spec
from planner.specs.base import PlanError
from planner.specs.model import ModelSpec
from planner.specs.names import ReferenceName
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
    said = f"head: {objective.outputs} output per token in place of the vocabulary (--task)"
    return model.model_copy(update=head), [said]


def teacher_spec(options: Options, model: ModelSpec) -> tuple[ModelSpec | None, list[str]]:
    """The teacher of a request, which has the words of its student, and what is taken of it, as
    sentences. Raises PlanError."""
    if options.task != "distil":
        return None, []
    where = _where(options)
    if options.teacher is None:
        if where == "precomputed":
            return None, [
                "teacher: its words were computed before, by a model that is not looked at"
            ]
        remedy = "is needed by --task distil: the model whose words are learned"
        raise PlanError("--teacher", None, f"{remedy}, or --reference precomputed")
    try:
        teacher, inferred = model_spec(options.teacher)
    except PlanError as error:
        raise PlanError("--teacher", error.value, error.remedy) from None
    if teacher.vocab != model.vocab or not model.vocab:
        raise PlanError(
            "--teacher",
            options.teacher,
            f"has a vocabulary of {teacher.vocab:,}, {model.name} one of {model.vocab:,}, whose"
            " probabilities do not compare word by word; take a teacher of the same family",
        )
    place = "forward only, on the GPUs of its student"
    if options.teacher_gpus:
        place = f"on {options.teacher_gpus:,} GPUs of its own, for which training waits"
    elif where == "precomputed":
        place = "in one pass over the examples before the run, on the same GPUs"
    kept = options.teacher_precision or "16 bit"
    size = f"{parameter_count(teacher) / 1e9:,.2f}B parameters in {kept}"
    return teacher, [*inferred, f"teacher: {teacher.name}, {size}, {place}"]


def _where(options: Options) -> ReferenceName:
    """Where the probabilities of a teacher come from. Raises PlanError."""
    where = options.reference or "held"
    if where == "shared":
        remedy = "is the student itself without its adapters: take held or precomputed"
        raise PlanError("--reference", where, remedy)
    if where == "precomputed":
        if options.teacher_gpus is not None:
            remedy = "are of a teacher in every step: leave them or --reference precomputed out"
            raise PlanError("--teacher-gpus", options.teacher_gpus, remedy)
        if options.teacher_top_k is None:
            remedy = (
                "keeps only the most likely tokens: say how many per position (--teacher-top-k)"
            )
            raise PlanError("--reference", where, remedy)
    return where


def task_fields(options: Options) -> dict[str, Any]:
    """Objective and reference of a request. Raises PlanError."""
    task = options.task or "sft"
    if not TASKS[task].reference:
        return {"task": task}
    if task == "distil":
        return {
            "task": task,
            "reference": _where(options),
            "divergence": options.divergence or "forward",
            "teacher_top_k": options.teacher_top_k,
            "teacher_gpus": options.teacher_gpus,
            "teacher_precision": options.teacher_precision,
        }
    shared = options.lora is not None
    if options.reference == "shared" and not shared:
        raise PlanError(
            "--reference",
            "shared",
            "is the frozen base without its adapters: give --lora, or take held or precomputed",
        )
    return {"task": task, "reference": options.reference or ("shared" if shared else "held")}
