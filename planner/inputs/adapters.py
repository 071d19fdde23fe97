"""Which weights of a model a request trains."""

from __future__ import annotations

from typing import Any

from planner.formulas.optimizers import OPTIMIZERS
from planner.formulas.params import stream_of
from planner.specs.adapters import EXPERTS, WORDS, AdapterSpec, adapted, target_words
from planner.specs.base import PlanError
from planner.specs.layers import parts_of
from planner.specs.model import ModelSpec
from planner.specs.options import Options
from planner.specs.options.words import near
from planner.specs.plan import Plan


def trained_fields(options: Options, model: ModelSpec) -> dict[str, Any]:
    """Fields of TrainingSpec. Raises PlanError naming the option."""
    return {
        "adapter": adapter_spec(options, model),
        "train_embeddings": options.train_embeddings,
        "base_precision": options.base_precision,
        "base_group": options.base_group,
        "base_upcast": options.base_upcast,
    }


def check_optimizer(plan: Plan) -> None:
    """Refuse optimizers of matrices where some weights are frozen. Raises PlanError."""
    name = plan.training.optimizer
    optimizer = OPTIMIZERS[name]
    if plan.partial and (optimizer.work or optimizer.factored):
        remedy = (
            f"{optimizer.title} works on whole matrices, and of adapters or some layers that is not"
            " modelled; take adam or another that works element by element"
        )
        raise PlanError("--optimizer", name, remedy)


def adapter_spec(options: Options, model: ModelSpec) -> AdapterSpec | None:
    """Adapters of the request; None if all weights, or whole layers, are trained."""
    if options.lora is None:
        return None
    spec = AdapterSpec(
        rank=options.lora,
        method=options.lora_method or "lora",
        targets=targets_of(options.lora_targets, model),
        dropout=options.lora_dropout or 0.0,
        precision=options.lora_precision,
        autocast=options.lora_autocast is not False,
        resident=options.lora_adapters or 1,
        fused=options.fused_lora,
    )
    stream = stream_of(model)
    if not any(adapted(part, stream, spec) for part, _ in parts_of(model)):
        raise PlanError(
            "--lora-targets",
            options.lora_targets,
            f"{model.name} has no such matrix in a layer; take all-linear or attention",
        )
    return spec


def targets_of(text: str | None, model: ModelSpec) -> tuple[str, ...]:
    """Words for matrices from their names joined by + or commas. Raises PlanError."""
    if text is None:
        return AdapterSpec(rank=1).targets
    words = tuple(target_words(text))
    for word in words:
        if word not in WORDS:
            hint = near(word, WORDS, 3).strip() or f"take {', '.join(WORDS[:4])}"
            raise PlanError("--lora-targets", text, f"{word!r} names no matrix; {hint}")
    if EXPERTS in words and model.routed is None:
        raise PlanError("--lora-targets", text, f"{model.name} has no experts; leave {EXPERTS} out")
    return words
