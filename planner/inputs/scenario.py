"""From a request to its best layout: what it names is loaded, what it leaves out is filled, every
plan it allows is searched."""

from __future__ import annotations

from dataclasses import dataclass

from planner.inputs import workload as conditions
from planner.inputs.accumulation import accumulated
from planner.inputs.adapters import check_optimizer
from planner.inputs.calibration import read_calibration, stack_spec
from planner.inputs.cluster import cluster_spec
from planner.inputs.doubts import OfCluster, Request, doubts, flagged, of_several
from planner.inputs.images import with_images
from planner.inputs.least import possible
from planner.inputs.model import model_spec
from planner.inputs.options import readings
from planner.inputs.run import run_spec
from planner.inputs.software import free_choices
from planner.inputs.task import for_task
from planner.inputs.training import training_spec
from planner.inputs.usual import on_chip, passed_over, refusal
from planner.inputs.workload import two_kinds
from planner.specs.base import PlanError
from planner.specs.cluster import ClusterSpec
from planner.specs.layout import PLACEMENTS, LayoutRequest
from planner.specs.mechanism import Mechanism
from planner.specs.model import ModelSpec
from planner.specs.options import LAYOUT, MECHANISMS, Filled, Options, Origin, rows
from planner.specs.options.numbers import number
from planner.specs.pipeline_layout import pipeline_layout
from planner.specs.plan import Plan, SoftwareChoice
from planner.specs.stack import StackSpec
from planner.specs.training import TrainingSpec, scores_on_chip
from planner.units import in_unit


@dataclass(frozen=True)
class Scenario:
    """A request with everything but layout and stack resolved.

    filled: options that it left open and that are the same in every plan. doubts: sentences about
    implausible values.
    """

    options: Options
    parts: tuple[ModelSpec, ClusterSpec, TrainingSpec]
    plans: tuple[Plan, ...]
    assumptions: tuple[str, ...]
    filled: tuple[Filled, ...] = ()
    doubts: tuple[str, ...] = ()

    @property
    def sentences(self) -> tuple[str, ...]:
        """Doubts and assumptions, of an answer that has no other place for the former."""
        return (*flagged(self.doubts), *self.assumptions)


def resolve(options: Options, shape: ModelSpec | None = None) -> Scenario:
    """Load what the request names and fill what it leaves out; plans differ in stack and ZeRO
    stage.

    shape: a model that takes the place of the one the request names.
    """
    parts, defaults, assumed = _parts(options, shape)
    model, cluster, _ = parts
    mechanisms, named = active(options, model)
    assumptions = [*assumed, *(default.says for default in defaults), *named, *searched(options)]
    filled = (
        *_usual_node(options, cluster),
        *(default for default in defaults if default.value is not None),
    )
    plans = plans_of(options, *parts, mechanisms)
    if options.global_batch is None and options.grad_accum is not None:
        batches = accumulated(options, options.grad_accum, model, parts[2].seq_len)
        plans = tuple(_with_batch(plan, batch) for batch in batches for plan in plans)
    doubtful = _doubts(options, parts)
    return Scenario(options, parts, plans, tuple(assumptions), filled, doubtful)


_Parts = tuple[ModelSpec, ClusterSpec, TrainingSpec]


def _parts(
    options: Options, shape: ModelSpec | None = None
) -> tuple[_Parts, list[Filled], list[str]]:
    """Model, cluster and training of a request, defaults of training, and what was assumed."""
    model, inferred = model_spec(options.model) if shape is None else (shape, [])
    model, trained = with_modules(options, model)
    model, headed = for_task(options, model)
    model, pictured = with_images(options, model)
    cluster, assumed = cluster_spec(options)
    training, defaults = training_spec(options, model, cluster.gpu)
    assumed = [*assumed, *two_kinds(options, cluster)]
    sentences = [*readings(options), *inferred, *trained, *headed, *pictured, *assumed]
    return (model, cluster, training), defaults, sentences


def _doubts(options: Options, parts: _Parts) -> tuple[str, ...]:
    model, cluster, training = parts
    return doubts(Request(options, cluster, model, training))


def doubts_of(*requests: Options, of_model: bool = True) -> list[str]:
    """Implausible values of requests that are answered together, by option; a request that cannot
    be answered says so elsewhere. of_model: the requests name a model."""

    def each(options: Options) -> tuple[str, ...]:
        try:
            if not of_model:
                return doubts(OfCluster(options, cluster_spec(options)[0]))
            return _doubts(options, _parts(options)[0])
        except PlanError:
            return ()

    return of_several(map(each, requests))


def _usual_node(options: Options, cluster: ClusterSpec) -> list[Filled]:
    """Properties of nodes that a request leaves open, from its cluster or the usual node of its
    GPU."""
    values = {
        "gpus_per_node": cluster.gpus_per_node,
        "intra_node": cluster.intra_node.id,
        "inter_node": cluster.inter_node.id,
        "nics_per_node": cluster.nics_per_node,
        "nic_bandwidth": f"{in_unit(cluster.nic_bandwidth, 'Gbit/s'):g} Gbit/s",
    }
    where = f"cluster {options.cluster}" if options.cluster else f"usual node of {cluster.gpu.id}"
    origin = Origin("default", where)
    return [Filled(n, v, origin) for n, v in values.items() if getattr(options, n) is None]


def with_modules(options: Options, model: ModelSpec) -> tuple[ModelSpec, list[str]]:
    """The model with the modules of multi-token prediction that are trained, and where their number
    is from. Raises PlanError where they cannot be, or where a pipeline layout has others."""
    text, modules = options.pipeline_layout, options.mtp
    laid_out = None if text is None else sum(chunk.mtp for chunk in pipeline_layout(text))
    if modules is not None and laid_out not in (None, modules):
        remedy = (
            f"--pipeline-layout holds {laid_out} of them (m): leave --mtp out, or state as many"
        )
        raise PlanError("--mtp", modules, remedy)
    count = laid_out if modules is None else modules
    if count and model.towers:
        raise PlanError("--mtp", count, f"{model.name} predicts no further words; leave it out")
    if count is None or count == model.mtp:
        return model, []
    source = "--mtp" if modules is not None else "--pipeline-layout"
    sentence = (
        f"multi-token prediction: {count} module{'' if count == 1 else 's'} trained ({source})"
    )
    return model.model_copy(update={"mtp": count}), [sentence]


def searched(options: Options) -> list[str]:
    """Sentences on the layouts that a request has searched."""
    sentences = passed_over(options)
    sentences += [f"layouts: those with {condition} only (--where)" for condition in options.where]
    if options.headroom is not None:
        free = options.headroom
        sentences.append(
            f"layouts: the one taken leaves {free} of memory free where one can (--headroom)"
        )
    if options.search_offload:
        sentences.append("layouts: offloading is searched, too (--search-offload)")
    if options.uneven_stages is not None:
        also = "also where layers divide" if options.uneven_stages else "are left out"
        sentences.append(f"layouts: pipeline stages that differ in layers {also} (--uneven-stages)")
    return sentences


def _with_batch(plan: Plan, batch: int) -> Plan:
    training = plan.training.model_copy(update={"global_batch": batch})
    return plan.model_copy(update={"training": training})


def active(options: Options, model: ModelSpec) -> tuple[tuple[Mechanism, ...], list[str]]:
    """Mechanisms that a request switches on, with sentences about what they name. Raises
    PlanError."""
    stated = [on for each in MECHANISMS if (on := each.of(options)) is not None]
    resolved = [each.resolved(model, model_spec) for each in stated]
    return tuple(each for each, _ in resolved), [text for _, texts in resolved for text in texts]


def plans_of(
    options: Options,
    model: ModelSpec,
    cluster: ClusterSpec,
    training: TrainingSpec,
    mechanisms: tuple[Mechanism, ...],
) -> tuple[Plan, ...]:
    """One plan with the stack that was named, else one per usual stack and ZeRO stage."""
    fixed = {name: getattr(options, name) for name in LAYOUT}
    ranks = conditions.ranks_spec(options, cluster, training)
    lengths, data = (
        conditions.lengths_spec(options, model, training.seq_len),
        conditions.input_spec(options, cluster.nodes),
    )
    calibration = read_calibration(options.calibration) if options.calibration else None
    run = run_spec(options, cluster.nodes, calibration)

    def plan_of(stack: StackSpec, zero: int | None) -> Plan:
        layout = LayoutRequest(
            **{**fixed, "zero": zero},
            grad_accum=options.grad_accum,
            where=options.where,
            headroom=number(options, "headroom"),
            search_offload=options.search_offload,
            uneven_stages=options.uneven_stages,
            pipeline_layout=_pipeline_layout(options, model),
            acting=acting(options, stack),
        )
        plan = Plan(
            model=model,
            cluster=cluster,
            training=_attention(training, options, stack),
            stack=stack,
            request=layout,
            run=run,
            ranks=ranks,
            lengths=lengths,
            data=data,
            mechanisms=mechanisms,
        )
        check_optimizer(plan)
        for each in mechanisms:
            each.check(plan)
        return plan.model_copy(update={"training": _kernels(plan, options)})

    def runs(stack: StackSpec) -> bool:
        return possible(plan_of(stack, options.zero), options)

    plans, free = [], dict[str, tuple[SoftwareChoice, ...]]()
    for name, zero in on_chip(options, cluster.gpu):
        stack = stack_spec(name, calibration)
        if refused := refusal(stack, options, runs):
            raise refused
        plan = plan_of(stack, zero)
        if name not in free:  # the same at every ZeRO stage
            free[name] = free_choices(options, plan)
        plans.append(plan.model_copy(update={"free": free[name]}))
    return tuple(plans)


def _pipeline_layout(options: Options, model: ModelSpec) -> str | None:
    """The stated pipeline layout, which must have every layer of the model."""
    text = options.pipeline_layout
    if text is not None:
        layers = sum(chunk.layers for chunk in pipeline_layout(text))
        if layers != model.layers:
            raise PlanError(
                "--pipeline-layout",
                text,
                f"has {layers} layers (t), {model.name} has {model.layers}",
            )
    return text


def acting(options: Options, stack: StackSpec) -> tuple[str, ...]:
    """Options of the layout that the request states and that some layout of its GPUs lets act."""
    left = options.gpus // ((options.tp or 1) * (options.pp or 1))
    stages = options.gpus > 1 and options.pp != 1
    could = {
        "zero": bool(options.zero) and left > 1 and options.dp != 1,
        "shard_group": options.shard_group is not None and options.zero != 0,
        "schedule": options.schedule is not None and stages,
        "cp_comm_type": options.cp_comm_type is not None and left > 1 and options.cp != 1,
        "sub_group_size": options.sub_group_size is not None and left > 1 and options.dp != 1,
        "dp_overlap": options.dp_overlap is not None and left > 1 and options.dp != 1,
        "dp_bucket": options.dp_bucket is not None and not stack.state.fixed_buckets,
        "dispatcher": options.dispatcher is not None and options.ep != 1,
        "placement": options.placement not in (None, PLACEMENTS[0]) and stages and options.dp != 1,
    }
    table = rows(Options)
    for each in MECHANISMS:
        if each.ACTS and each.of(options) is not None:
            off = {n: (False, table[n].default) for n in each.ACTS.options}
            stated = (n for n, values in off.items() if getattr(options, n) not in values)
            could |= dict.fromkeys(stated, each.ACTS.could(options))
    return tuple(name for name, can in could.items() if can)


def _attention(training: TrainingSpec, options: Options, stack: StackSpec) -> TrainingSpec:
    """--attention, or --flash-attention / --no-flash-attention against what the stack does by
    default."""
    if options.attention is not None:
        return training.model_copy(update={"attention": options.attention})
    if options.flash_attention is None or options.flash_attention == scores_on_chip(
        stack.fusion.attention
    ):
        return training
    return training.model_copy(
        update={"attention": "flash2" if options.flash_attention else "eager"}
    )


def _kernels(plan: Plan, options: Options) -> TrainingSpec:
    """--compile, and --fused-kernels of stacks that have no such kernels of their own. Raises
    PlanError where it changes nothing."""
    model, stack, training = plan.model, plan.stack, plan.training
    if options.fused_kernels and not _can_fuse(model):
        remedy = f"changes nothing: {model.name} has no RMSNorm, RoPE or gate to fuse; leave it out"
        raise PlanError("--fused-kernels", options.fused_kernels, remedy)
    if options.fused_kernels and not plan.chained and options.stack is not None:
        remedy = f"changes nothing: {stack.title} has kernels of this kind of its own; leave it"
        raise PlanError("--fused-kernels", options.fused_kernels, remedy)
    acts: dict[str, object] = {"compile": True} if options.compile else {}
    if options.fused_kernels and plan.chained:
        acts["fused_kernels"] = True
    return training.model_copy(update=acts)


def _can_fuse(model: ModelSpec) -> bool:
    """Whether a layer has what some stack runs as a chain of operators: LayerNorm is one kernel
    everywhere."""
    return model.norm == "rmsnorm" or model.positions == "rotary" or model.gated
