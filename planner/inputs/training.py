"""Defaults of sequence length, global batch and precision, each with its source."""

from __future__ import annotations

import math
from typing import Any

from planner.inputs.accumulation import accumulated
from planner.inputs.adapters import trained_fields
from planner.inputs.batch import default_batch
from planner.inputs.experts import expert_fields
from planner.inputs.fine_tuning import LENGTH_SOURCE, USUAL_SEQUENCE, is_fine_tuning
from planner.inputs.images import check_images
from planner.inputs.pixels import image_tokens
from planner.inputs.task import task_fields
from planner.specs.base import PlanError
from planner.specs.hardware import GpuSpec
from planner.specs.layers import of_samples
from planner.specs.model import ModelSpec
from planner.specs.names import LOW_PARTS, LowPart
from planner.specs.options import Filled, Options, Origin, flag
from planner.specs.options.numbers import number
from planner.specs.options.origin import SEARCHED, OriginKind
from planner.specs.published import PublishedSequence
from planner.specs.training import MOST_SEQUENCES, TrainingSpec

# longest sequence taken for a model whose training is not published: of the catalogue's published
# pre-trainings a single one has longer ones
LONGEST_DEFAULT = 8192


def sequence_length(options: Options, model: ModelSpec) -> int:
    """Tokens per sequence: as requested, else as is usual in fine-tuning, or as in the main phase
    of the model's pre-training, else the positions of the model up to LONGEST_DEFAULT."""
    if options.resolution is not None or options.frames is not None:
        return image_tokens(options, model)
    if options.seq_len is not None:
        return options.seq_len
    if is_fine_tuning(options) and not of_samples(model):
        return min(USUAL_SEQUENCE, model.max_positions)
    published = _published_length(options, model)
    return published.tokens if published else min(model.max_positions, LONGEST_DEFAULT)


def _published_length(options: Options, model: ModelSpec) -> PublishedSequence | None:
    """The published length that is a default of a request: none of pre-training in fine-tuning."""
    pretrains = of_samples(model) or not is_fine_tuning(options)
    return model.published.sequence if pretrains else None


def states_length(options: Options) -> bool:
    """Whether a request says how long a sample is, in tokens or in pixels."""
    return any(x is not None for x in (options.seq_len, options.resolution, options.frames))


def sequence_sentence(options: Options, model: ModelSpec, seq_len: int) -> str:
    """Source of the default sequence length of a request."""
    published = _published_length(options, model)
    reads = f"; it reads {model.max_positions:,}" if model.max_positions > seq_len else ""
    if published:
        why = f"as it was pre-trained ({published.source})"
    elif is_fine_tuning(options) and not of_samples(model):
        why = LENGTH_SOURCE
    elif reads:
        why = f"its training is not published, and few are pre-trained at more than {seq_len:,}"
    else:
        why = "the positions of the model"
    length = f"sequence length {seq_len:,}"
    if of_samples(model):
        if model.pixels and not model.frames:
            side = math.isqrt(seq_len) * model.pixels  # without the class token
            why = f"{side:,} x {side:,} pixels; {why}"
        towers = [f"{tower.length(seq_len):,} of its {tower.name}" for tower in model.towers]
        tokens = "token" if seq_len == 1 else "tokens"
        length = ", ".join([f"{seq_len:,} {tokens} per {model.samples[:-1]}", *towers])
    return f"{length}, {why}{reads} (set --seq-len)"


def training_spec(
    options: Options, model: ModelSpec, gpu: GpuSpec
) -> tuple[TrainingSpec, list[Filled]]:
    """The step of a request, and what was filled in for it. Raises PlanError naming the option."""
    filled = []
    seq_len = sequence_length(options, model)
    if not states_length(options):
        sentence = sequence_sentence(options, model, seq_len)
        published = _published_length(options, model) is not None
        filled.append(_filled("seq_len", seq_len, published, sentence))
    elif model.positions == "learned" and seq_len > (model.position_rows or model.max_positions):
        raise PlanError(
            "--seq-len",
            seq_len,
            f"{model.name} has learned positions for {model.max_positions} tokens",
        )
    if model.convolutions and seq_len != 1:
        remedy = f"an image of {model.name} is one token, of the pixels that its file has; leave it"
        raise PlanError("--seq-len", seq_len, f"{remedy} out")
    check_images(options, model, seq_len)
    batch = options.global_batch
    if batch is None and options.grad_accum is not None:
        batch = accumulated(options, options.grad_accum, model, seq_len)[-1]
        sentence = (
            f"global batch: micro-batch x dp x {options.grad_accum} accumulation steps, with the"
            " most tokens/s (set --micro-batch and --dp, or --global-batch)"
        )
        filled.append(Filled("global_batch", None, SEARCHED, sentence))
    elif batch is None:
        default = default_batch(options, model, seq_len)
        batch = default.sequences
        filled.append(_filled("global_batch", batch, default.published, default.sentence))
    if batch > MOST_SEQUENCES:
        remedy = (
            f"is the batch of the request, of at most {MOST_SEQUENCES:,} sequences; lower"
            " --micro-batch or --grad-accum"
        )
        raise PlanError("--global-batch", batch, remedy)
    precision = options.precision
    if precision is None:
        precision = "bf16" if gpu.rate("bf16") is not None else "fp16"
        filled.append(_filled("precision", precision, False, precision_sentence(precision, model)))
    if gpu.rate(precision) is None:
        raise PlanError("--precision", precision, gpu.lacks(precision))
    _refuse_loss(options, model)
    _refuse_layout(options, model)
    if options.expandable_segments and not gpu.expands_segments:
        remedy = f"needs the CUDA driver; PyTorch ignores it on {gpu.title}: leave it out"
        raise PlanError("--expandable-segments", options.expandable_segments, remedy)
    training = TrainingSpec(
        seq_len=seq_len,
        global_batch=batch,
        precision=precision,
        optimizer=options.optimizer,
        optimizer_rank=options.optimizer_rank,
        tokens=_tokens(options, seq_len),
        loss_kernel=options.loss_kernel,
        loss_chunks=options.loss_chunks,
        loss_share=number(options, "loss_share") or 1.0,
        cpu_optimizer=options.cpu_optimizer,
        context_way=options.cp_comm_type,
        fused_norm=options.fused_norm,
        channels_last=options.channels_last,
        overlap=options.overlap,
        selective=options.selective,
        **_replicas(options),
        state_precision=options.state_precision,
        moments_precision=options.moments_precision,
        master_precision=options.master_precision,
        gradient_precision=options.gradient_precision,
        gradient_reduce=options.grad_reduce_precision,
        gradient_sync=options.gradient_sync,
        low_parts=low_parts(options.low_precision, model),
        wide_layers=_wide_layers(options, model),
        expandable_segments=options.expandable_segments,
        sub_group_size=options.sub_group_size,
        weight_readers=options.weight_readers,
        **task_fields(options),
        **expert_fields(options, model, gpu),
        **trained_fields(options, model),
    )
    return training, filled


def _refuse_loss(options: Options, model: ModelSpec) -> None:
    """Refuse options of logits where a model has no vocabulary."""
    for name in ("loss_kernel", "loss_chunks", "loss_share"):
        if not model.vocab and name in options.given():
            remedy = f"applies to logits over a vocabulary, and {model.name} has none; leave it out"
            raise PlanError(flag(name), getattr(options, name), remedy)


def _refuse_layout(options: Options, model: ModelSpec) -> None:
    """Refuse a layout of images where a model has no convolution."""
    if options.channels_last and not model.convolves:
        remedy = f"applies to images in convolutions, and {model.name} has none; leave it out"
        raise PlanError("--channels-last", options.channels_last, remedy)


def _tokens(options: Options, seq_len: int) -> float | None:
    """Tokens of the run, as the request has them or its samples do."""
    if options.samples is None:
        return number(options, "tokens")
    return float(options.samples * seq_len)


def _filled(option: str, value: Any, published: bool, says: str) -> Filled:
    """A value from the model's publication, or a default with its reason."""
    kind: OriginKind = "publication" if published else "default"
    return Filled(option, value, Origin(kind, says.removesuffix(f" (set {flag(option)})")), says)


def _replicas(options: Options) -> dict[str, Any]:
    """Fields of the training spec on communication between replicas."""

    def words(text: str | None) -> list[str]:
        return [] if text in (None, "none") else str(text).split("+")

    requested = options.dp_overlap
    return {
        "data_overlap": None if requested is None else words(requested),
        "data_bucket": number(options, "dp_bucket"),
    }


def precision_sentence(precision: str, model: ModelSpec) -> str:
    """The default precision, and the one that the model was trained in where that is another."""
    published = model.published.precision
    other = (
        f"; {model.name} was trained in {published.name} ({published.source})"
        if published and published.name != precision
        else ""
    )
    return f"precision {precision} with an fp32 master copy{other} (set --precision)"


def low_parts(text: str | None, model: ModelSpec) -> tuple[LowPart, ...] | None:
    """Parts from their names joined by +; none: nothing but operands of GEMMs. Raises PlanError."""
    if text is None:
        return None
    names = [name.strip() for name in text.split("+")]
    if names == ["none"]:
        return ()
    for name in names:
        if name not in LOW_PARTS:
            remedy = f"takes none, or {', '.join(LOW_PARTS)}, joined by +"
            raise PlanError("--low-precision", text, remedy)
    if "dispatch" in names and model.routed is None:
        remedy = f"sends tokens to experts, and {model.name} has none; leave dispatch out"
        raise PlanError("--low-precision", text, remedy)
    return tuple(part for part in LOW_PARTS if part in names)


def _wide_layers(options: Options, model: ModelSpec) -> int:
    wide = options.bf16_layers or 0
    if wide > model.layers:
        raise PlanError(
            "--bf16-layers", wide, f"{model.name} has {model.layers} layers; take fewer"
        )
    return wide
