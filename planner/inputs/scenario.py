"""From a request to its best layout: what it names is loaded, what it leaves out is filled, every
plan it allows is searched."""

from __future__ import annotations

from dataclasses import dataclass

from planner.inputs import workload as conditions
from planner.inputs.accumulation import accumulated
from planner.inputs.calibration import read_calibration, stack_spec
from planner.inputs.cluster import cluster_spec
from planner.inputs.model import model_spec, sequence_length
from planner.inputs.options import number, readings
from planner.inputs.run import default_batch, run_spec
from planner.inputs.usual import tried
from planner.specs.base import PlanError
from planner.specs.cluster import ClusterSpec
from planner.specs.layout import LayoutRequest
from planner.specs.model import ModelSpec
from planner.specs.options import LAYOUT, Options
from planner.specs.plan import Plan
from planner.specs.stack import StackSpec
from planner.specs.training import TrainingSpec
from planner.units import show


@dataclass(frozen=True)
class Scenario:
    """A request with everything but layout and stack resolved."""

    options: Options
    parts: tuple[ModelSpec, ClusterSpec, TrainingSpec]
    plans: tuple[Plan, ...]
    assumptions: tuple[str, ...]


def resolve(options: Options, shape: ModelSpec | None = None) -> Scenario:
    """Load what the request names and fill what it leaves out; plans differ in stack and ZeRO
    stage.

    shape: a model that takes the place of the one the request names.
    """
    model, inferred = model_spec(options.model) if shape is None else (shape, [])
    assumptions = [*readings(options), *(f"config.json: {sentence}" for sentence in inferred)]
    cluster, assumed = cluster_spec(options)
    assumptions += assumed
    training = _training(options, model, cluster.gpu.rate("bf16") is not None, assumptions)
    if cluster.gpu.rate(training.precision) is None:
        has = [
            p for p in ("fp8", "bf16", "fp16", "tf32", "fp32") if cluster.gpu.rate(p) is not None
        ]
        raise PlanError(
            "--precision",
            training.precision,
            f"{cluster.gpu.title} does not have it; it has {', '.join(has)}",
        )
    parts = (model, cluster, training)
    plans = plans_of(options, *parts)
    if options.global_batch is None and options.grad_accum is not None:
        batches = accumulated(options, options.grad_accum, training.seq_len)
        plans = tuple(_with_batch(plan, batch) for batch in batches for plan in plans)
    return Scenario(options, parts, plans, tuple(assumptions))


def _with_batch(plan: Plan, batch: int) -> Plan:
    training = plan.training.model_copy(update={"global_batch": batch})
    return plan.model_copy(update={"training": training})


def plans_of(
    options: Options, model: ModelSpec, cluster: ClusterSpec, training: TrainingSpec
) -> tuple[Plan, ...]:
    """One plan with the stack that was named, else one per usual stack and ZeRO stage."""
    fixed = {name: getattr(options, name) for name in LAYOUT}
    ranks = conditions.ranks_spec(options, cluster, training)
    lengths, data = (
        conditions.lengths_spec(options, model),
        conditions.input_spec(options, cluster.nodes),
    )
    calibration = read_calibration(options.calibration) if options.calibration else None
    plans, run = [], run_spec(options, cluster.nodes, calibration)
    for name, zero in [(options.stack, options.zero)] if options.stack else tried(options):
        stack = stack_spec(name, calibration)
        layout = LayoutRequest(
            **{**fixed, "zero": zero},
            grad_accum=options.grad_accum,
            where=options.where,
            search_offload=options.search_offload,
            uneven_stages=options.uneven_stages,
        )
        with_attention = _attention(training, options, stack)
        plans.append(
            Plan(
                model=model,
                cluster=cluster,
                training=with_attention,
                stack=stack,
                request=layout,
                run=run,
                ranks=ranks,
                lengths=lengths,
                data=data,
            )
        )
    return tuple(plans)


def _attention(training: TrainingSpec, options: Options, stack: StackSpec) -> TrainingSpec:
    """--flash-attention / --no-flash-attention against what the stack does by default."""
    if (
        options.flash_attention is None
        or options.flash_attention == stack.fusion.attention.startswith("flash")
    ):
        return training
    return training.model_copy(
        update={"attention": "flash2" if options.flash_attention else "eager"}
    )


def _training(
    options: Options, model: ModelSpec, has_bf16: bool, assumptions: list[str]
) -> TrainingSpec:
    seq_len = sequence_length(options, model)
    if options.seq_len is None:
        assumptions.append(
            f"sequence length {seq_len:,}, the model's training context (set --seq-len)"
        )
    elif model.positions == "learned" and seq_len > (model.position_rows or model.max_positions):
        raise PlanError(
            "--seq-len",
            seq_len,
            f"{model.name} has learned positions for {model.max_positions} tokens",
        )
    batch = options.global_batch
    if batch is None and options.grad_accum is not None:
        batch = accumulated(options, options.grad_accum, seq_len)[-1]
        assumptions.append(
            f"global batch: micro-batch x dp x {options.grad_accum} accumulation steps, with the"
            " most tokens/s (set --micro-batch and --dp, or --global-batch)"
        )
    elif batch is None:
        batch = default_batch(seq_len, options.gpus)
        assumptions.append(
            f"global batch {batch:,} sequences ({show(batch * seq_len, 'count')} tokens): near 4 Mi"
            " tokens, and at least one sequence per GPU (set --global-batch)"
        )
    precision = options.precision
    if precision is None:
        precision = "bf16" if has_bf16 else "fp16"
        assumptions.append(f"precision {precision} with an fp32 master copy (set --precision)")
    return TrainingSpec(
        seq_len=seq_len,
        global_batch=batch,
        precision=precision,
        optimizer=options.optimizer,
        tokens=number(options, "tokens"),
        loss_chunks=options.loss_chunks,
    )
