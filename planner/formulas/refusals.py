"""Why a rule refuses a layout: what was asked, the option or value that would allow it, and what is
nearest.

Long: one sentence per rule, and all rules of layouts are refused alike.
"""

from __future__ import annotations

import math

import numpy as np

from planner import schedules
from planner.formulas.experts import tensor_of
from planner.formulas.optimizers import OPTIMIZERS, TYPE_BYTES
from planner.formulas.stages import equal_chunks
from planner.ledger import Array
from planner.specs.layers import (
    attended_of,
    cores_of,
    limits_of,
    modules_of,
    parts_of,
    shared_heads,
)
from planner.specs.layout import (
    NVME,
    OFFLOADED_OPTIMIZER,
    PLACEMENTS,
    RECOMPUTE_KINDS,
    SCHEDULES,
    Layout,
    recompute_parts,
)
from planner.specs.model import ModelSpec
from planner.specs.options import flag
from planner.specs.parts import Scan
from planner.specs.parts.base import WIDTHS, Limit
from planner.specs.pipeline_layout import pipeline_layout
from planner.specs.plan import Plan
from planner.specs.task import TASKS

# a stack that runs tensor, pipeline, context and expert parallelism, over chunks that may differ
FREE_STACK = "megatron-core"
_MOST_LISTED = 1_000_000  # numbers that are looked through for the nearest


def _nearest(flag: str, asked: float, fitting: Array) -> str:
    """The values next to what was asked, below and above: "nearest: --tp 4 or 8"; "" where there
    are none. fitting: whether 1, 2, 3 ... would do."""
    values = 1 + np.flatnonzero(fitting)
    found = [*values[values <= asked][-1:].tolist(), *values[values > asked][:1].tolist()]
    return f"nearest: {flag} {' or '.join(map(str, found))}" if found else ""


def _numbers(most: float) -> Array:
    return np.arange(1, min(int(most), _MOST_LISTED) + 1)


def _divides(numbers: Array, whole: float) -> Array:
    return np.mod(whole, numbers) == 0


def _ways(*ways: str) -> str:
    """Ways out, those that there are: "; take one, or the other"."""
    there = [way for way in ways if way]
    return f"; {', or '.join(there)}" if there else ""


def degrees(p: Plan, x: Layout) -> str:
    """The degrees do not multiply to the GPUs."""
    return (
        f"tp {x.tp} x pp {x.pp} x cp {x.cp} x dp {x.dp} = {x.tp * x.pp * x.cp * x.dp}, but"
        f" there are {p.cluster.gpus} GPUs; leave one degree out and it is found for you"
    )


def whole(p: Plan, x: Layout) -> str:
    """Towers and convolutions are not divided by layers or by tokens."""
    if p.model.convolutions:
        return (
            f"the convolutions of {p.model.name} are planned whole on every rank, not over pp"
            f" {x.pp} stages or cp {x.cp} ranks; take --pp 1 --cp 1: data parallelism and ZeRO"
            " divide its work"
        )
    names = ", ".join(tower.name for tower in p.model.towers)
    return (
        f"{p.model.name} has samples of several lengths (its sequence, {names}), whose layers are"
        f" not planned over pp {x.pp} stages or cp {x.cp} ranks; take --pp 1 --cp 1: data and"
        " tensor parallelism and ZeRO are planned"
    )


def plain(p: Plan, x: Layout) -> str:
    """A stack of transformers' layers."""
    return (
        f"{p.stack.title} divides layers of its own, of transformers, and {p.model.name} is of"
        " convolutions; take --stack pytorch-ddp, pytorch-fsdp or deepspeed"
    )


def heads(p: Plan, x: Layout) -> str:
    """Heads, groups or channels cannot be shared out."""
    limits = [limit for limit in limits_of(p.model) if limit.what not in WIDTHS]
    tps = _numbers(shared_heads(p.model))
    fitting = np.ones_like(tps, dtype=bool)
    refused = []
    for limit in limits:
        fits = _fits(limit, tps)
        fitting &= fits
        if not _fits(limit, np.array([x.tp]))[0]:
            refused.append(limit)
    said = _names(p.model, refused)
    return f"{said} cannot be shared by tp {x.tp}{_ways(_nearest('--tp', x.tp, fitting))}"


def _fits(limit: Limit, tps: Array) -> Array:
    """Whether degrees divide what is limited, or hold copies of it."""
    copies = limit.repeats & (np.mod(tps, limit.count) == 0)
    return _divides(tps, limit.count) | copies


def _names(model: ModelSpec, refused: list[Limit]) -> str:
    """What cannot be shared; heads of keys and values are told with the heads they are of."""
    if any(limit.what in ("heads", "heads of keys and values") for limit in refused):
        core = next(core for core, _ in attended_of(model))
        return f"{core.heads} heads ({core.kv_heads or core.heads} of keys and values)"
    return " and ".join(f"{limit.count} {limit.what}" for limit in refused)


def widths(p: Plan, x: Layout) -> str:
    """Hidden or MLP widths cannot be cut."""
    model, tps = p.model, _numbers(shared_heads(p.model))
    each = [model.hidden]
    each += [limit.count for limit in limits_of(model) if limit.what in WIDTHS]
    fitting = _divides(tps, math.gcd(*each)) & _divides(tps, shared_heads(model))
    return (
        f"widths {', '.join(f'{one:,}' for one in each)} (hidden and MLP) do not all divide by tp"
        f" {x.tp}{_ways(_nearest('--tp', x.tp, fitting))}"
    )


def layers(p: Plan, x: Layout) -> str:
    """Layers do not fill the stages."""
    model, supports, chunks = p.model, p.stack.supports, x.pp * x.vpp
    free = f"--stack {FREE_STACK}, whose chunks may differ"
    if p.request.pipeline_layout is not None:
        stated = len(pipeline_layout(p.request.pipeline_layout))
        if chunks != stated:
            return (
                f"the pipeline layout has {stated} chunks (bars and one), pp {x.pp} x vpp {x.vpp} ="
                f" {chunks}"
                + _ways(
                    f"--vpp {stated // x.pp}" if stated % x.pp == 0 else "",
                    _nearest("--pp", x.pp, _divides(_numbers(stated), stated)),
                )
            )
        return f"{p.stack.title} cannot be told what its chunks hold{_ways(free)}"
    said, numbers = f"pp {x.pp} x vpp {x.vpp} = {chunks}", _numbers(model.layers)
    if chunks > model.layers:
        fewer = numbers * x.vpp <= model.layers
        ways = (
            _nearest("--pp", x.pp, fewer & _divides(numbers, p.cluster.gpus)),
            f"--vpp {model.layers // x.pp} or less" if x.vpp > 1 and x.pp <= model.layers else "",
        )
        return f"{said} chunks are more than the {model.layers} layers{_ways(*ways)}"
    equal = _nearest("--pp", x.pp, equal_chunks(p, numbers, x.vpp))
    refused = f"{model.layers} layers do not divide into {said} equal chunks"
    if supports.uneven != "no" and p.request.uneven_stages is False:
        return refused + _ways("leave out --no-uneven-stages, and unequal ones are searched", equal)
    if supports.uneven == "one chunk":
        return (
            f"{refused}, and {p.stack.title} makes unequal ones with one chunk per rank alone"
            f"{_ways('take --vpp 1', free)}"
        )
    return f"{refused}, and those of {p.stack.title} are equal{_ways(equal, free)}"


def batch(p: Plan, x: Layout) -> str:
    """The batch does not divide."""
    each, whole = x.dp * x.micro_batch, p.training.global_batch
    near = " or ".join(str(n * each) for n in (whole // each, whole // each + 1) if n)
    smaller = _numbers(x.micro_batch)
    fitting = _divides(smaller * x.dp, whole)
    return (
        f"global batch {whole} does not divide by dp {x.dp} x micro-batch {x.micro_batch} = {each}"
        + _ways(
            f"nearest: --global-batch {near}", _nearest("--micro-batch", x.micro_batch, fitting)
        )
    )


def sequence(p: Plan, x: Layout) -> str:
    """The sequence does not divide."""
    each = 1 if p.context_way == "ulysses" else 2
    slices = (each * x.cp if x.cp > 1 else 1) * (x.tp if x.sequence_parallel else 1)
    tokens = p.training.seq_len
    near = " or ".join(str(n * slices) for n in (tokens // slices, tokens // slices + 1) if n)
    plain = (
        "--no-sequence-parallel" if x.sequence_parallel and tokens % (slices // x.tp) == 0 else ""
    )
    return (
        f"sequence {tokens} does not divide into the {slices} slices of cp {x.cp}"
        + (f" and sequence parallel over tp {x.tp}" if x.sequence_parallel else "")
        + _ways(f"nearest: --seq-len {near}", plain)
    )


def _scanned(model: ModelSpec, core: Scan) -> str:
    """What the ranks that share a sequence divide of a layer with a state."""
    limits = next(part.limits() for part, _ in parts_of(model) if core in part.core())
    return min(limits, key=lambda one: one.count != core.units).what


def context(p: Plan, x: Layout) -> str:
    """The stack has no such way to share a sequence, or heads cannot be shared out."""
    ways, model = p.stack.supports.context_ways, p.model
    if p.context_way not in ways:
        return (
            f"{p.stack.title} shares sequences by {' or '.join(ways)}, not {p.context_way}"
            f"{_ways('leave out --cp-comm-type', '--stack ' + FREE_STACK)}"
        )
    cps, fitting = _numbers(shared_heads(model)), np.ones(1, dtype=bool)
    for core, _ in cores_of(model):
        if isinstance(core, Scan) and core.units % (x.tp * x.cp):
            fitting = _divides(x.tp * cps, core.units)
            return (
                f"ranks that share a sequence share the {core.units} {_scanned(model, core)}, of"
                f" which tp {x.tp} leaves {core.units / x.tp:g}: they do not divide by cp"
                f" {x.cp}{_ways(_nearest('--cp', x.cp, fitting))}"
            )
    core = next(core for core, _ in attended_of(model))
    own, keys, shared = core.heads / x.tp, core.kv_heads or core.heads, x.tp * cps
    fitting = _divides(shared, core.heads) & (_divides(shared, keys) | (np.mod(shared, keys) == 0))
    others = [way for way in ways if way != "ulysses"]
    return (
        f"Ulysses shares heads: the {own:g} of {core.heads} ({keys} of keys and values) that tp"
        f" {x.tp} leaves a rank do not divide by cp {x.cp}"
        + _ways(
            _nearest("--cp", x.cp, fitting),
            f"--cp-comm-type {' or '.join(others)}" if others else "",
        )
    )


def experts(p: Plan, x: Layout) -> str:
    """Experts cannot be shared out."""
    if p.model.routed is None:
        return f"ep {x.ep} needs a model with experts; leave out --ep"
    count, width, ranks = p.model.routed.experts, p.model.routed.ffn_hidden, x.tp * x.dp * x.cp
    etp = int(tensor_of(p, np.float64(x.tp)))
    if width % etp:
        near = _nearest("--etp", etp, _divides(_numbers(width), width))
        return f"etp {etp} must divide the width {width:,} of an expert{_ways(near)}"
    eps = _numbers(count)
    fitting = _divides(eps, count) & _divides(eps * etp, ranks)
    split = f" over the {etp} ranks that split each (--etp)" if etp > 1 else ""
    return (
        f"ep {x.ep} must divide {count} experts and tp x dp x cp = {ranks}{split}"
        f"{_ways(_nearest('--ep', x.ep, fitting), '--etp 1' if etp > 1 else '')}"
    )


def microbatches(p: Plan, x: Layout) -> str:
    """The schedule does not run with so many micro-batches."""
    needs, replica = schedules.BY_NAME[x.schedule].NEEDS, p.training.global_batch / x.dp
    sizes = _numbers(replica)
    fitting = _divides(sizes, replica) & schedules.allowed(
        SCHEDULES.index(x.schedule), x.pp, replica / sizes, x.vpp
    )
    return (
        f"the {x.schedule} schedule needs {needs}; micro-batches per step are"
        f" {replica / x.micro_batch:g}, pp is {x.pp}"
        + _ways(
            _nearest("--micro-batch", x.micro_batch, fitting),
            "--schedule 1f1b --vpp 1, which runs any number" if x.schedule != "1f1b" else "",
            "another --global-batch",
        )
    )


def schedule(p: Plan, x: Layout) -> str:
    """The schedule does not go with chunks, stages or stack."""
    runs = p.stack.supports.schedules
    return (
        f"schedule {x.schedule} with vpp {x.vpp} and pp {x.pp} is not possible with"
        f" {p.stack.title} (it runs {', '.join(runs)}; vpp > 1 means interleaved, breadth-first, or"
        " with 2 a V, and needs pp > 1)"
        + _ways(
            "take --vpp 1" if x.vpp > 1 else "",
            "leave out --schedule" if x.schedule not in runs else "",
            "a --stack that runs it (dpplan list stacks)",
        )
    )


def shard_group(p: Plan, x: Layout) -> str:
    """The shard group does not divide the replicas, or is not whole."""
    ranks, hybrid = x.dp * x.cp, p.stack.supports.hybrid_shard
    stages = (2, 3) if p.stack.state.zero2_gathers else (3,)
    groups = _numbers(ranks)
    near = _nearest("--shard-group", x.shard_group, _divides(groups, ranks) & (groups > 1))
    return (
        f"shard group {x.shard_group} must divide dp x cp = {ranks}; a smaller one needs --zero"
        f" {' or '.join(map(str, stages))} and a stack with hybrid sharding"
        f" ({p.stack.title}: {'yes' if hybrid else 'no'})"
        + _ways(near if hybrid and x.zero in stages else f"--shard-group {ranks}, or leave it out")
    )


def zero(p: Plan, x: Layout) -> str:
    """The stack does not shard so."""
    supports = p.stack.supports
    piped = x.pp > 1
    allowed = [z for z in supports.zero if not piped or z in supports.zero_with_pipeline]
    return (
        f"{p.stack.title} runs ZeRO {supports.zero}"
        + (f" ({supports.zero_with_pipeline} with a pipeline)" if piped else "")
        + f", not {x.zero}"
        + _ways(
            " or ".join(f"--zero {z}" for z in allowed),
            "--pp 1" if piped and x.zero in supports.zero else "",
            "" if x.zero in supports.zero else "--stack pytorch-fsdp or deepspeed",
        )
    )


def lacking(p: Plan, x: Layout) -> list[str]:
    """Dimensions of parallelism that the layout uses and the stack does not have."""
    s = p.stack.supports
    return [
        f"--{name} {degree} ({word} parallelism)"
        for name, degree, word, has in (
            ("tp", x.tp, "tensor", s.tensor),
            ("pp", x.pp, "pipeline", s.pipeline),
            ("cp", x.cp, "context", s.context),
            ("ep", x.ep, "expert", s.expert),
        )
        if degree > 1 and not has
    ]


def stack(p: Plan, x: Layout) -> str:
    """The stack has no such parallelism, recompute or offloading."""
    s = p.stack.supports
    lacks = lacking(p, x)
    if x.sequence_parallel and not s.sequence_parallel:
        lacks.append("--sequence-parallel")
    kind = RECOMPUTE_KINDS[recompute_parts(x.recompute)[0]]
    if kind not in s.recompute:
        lacks.append(f"--recompute {x.recompute} (it has {', '.join(s.recompute)})")
    if x.offload not in s.offload:
        lacks.append(f"--offload {x.offload} (it has {', '.join(s.offload)})")
    others = f"--stack {FREE_STACK}" if x.offload == "none" else "--stack deepspeed or pytorch-fsdp"
    others = "--stack maxtext" if kind == "keep" else others
    return f"{p.stack.title} does not have {' and '.join(lacks)}; leave it out, or take {others}"


def offload(p: Plan, x: Layout) -> str:
    """Parameters and NVMe need ZeRO-3."""
    what = (
        f"DeepSpeed offloads to NVMe under ZeRO-3 alone, not with ZeRO-{x.zero}"
        if x.offload in NVME
        else f"parameters can be offloaded only where they are sharded, not with ZeRO-{x.zero}"
    )
    return what + "; take --zero 3, or --offload optimizer"


def drives(p: Plan, x: Layout) -> str:
    """No drives are known."""
    return (
        f"the NVMe drives of {p.cluster.title} are not known; state them with --nvme-read and"
        " --nvme-write, such as '10 GB/s' and '5 GB/s', or take --offload params"
    )


def modules(p: Plan, x: Layout) -> str:
    """The model has no such modules."""
    kind = RECOMPUTE_KINDS[recompute_parts(x.recompute)[0]]
    names = x.recompute.split("+") if kind == "modules" else []
    asked = [*names, *p.training.offload_modules]
    missing = dict.fromkeys(name for name in asked if name not in modules_of(p.model))
    return (
        f"{p.model.name} has no {' and '.join(missing)}; leave that out of --recompute and of"
        " --offload-modules"
    )


def offload_activations(p: Plan, x: Layout) -> str:
    """The stack offloads activations only in some layouts."""
    s = p.stack.supports
    if missing := [n for n in p.training.offload_modules if n not in s.offload_modules]:
        has = f"it has {', '.join(s.offload_modules)}" if s.offload_modules else "it has no modules"
        return (
            f"{p.stack.title} does not offload {' and '.join(missing)} alone ({has}); leave"
            " --offload-modules out, or take --stack megatron-core or maxtext"
        )
    piped, repeated = s.offload_with_pipeline, s.offload_with_recompute
    return (
        f"{p.stack.title} offloads activations "
        + ("" if piped else "only without a pipeline, ")
        + ("beside recompute" if repeated else "only without recompute")
        + f"; here pp is {x.pp}, recompute {x.recompute}"
        + _ways(
            "--pp 1" if x.pp > 1 and not piped else "",
            "--recompute none" if x.recompute != "none" and not repeated else "",
            "--offload none",
        )
    )


def optimizer_in_backward(p: Plan, x: Layout) -> str:
    """The stack cannot update weights inside backward, or gradients are still needed then."""
    able, each = p.stack.supports.optimizer_in_backward, x.dp * x.micro_batch
    needs = {
        "no": "cannot",
        "one GPU": "can on one GPU alone, since all replicas' gradients share buckets",
        "sharded": "can on one GPU, or without --pp and --ep where gradients are sharded",
    }
    turns = p.training.global_batch // each
    return (
        f"{p.stack.title} {needs[able]} with weights that are updated inside backward, which frees"
        f" each gradient at once: nothing accumulates, and no state waits on the host; here"
        f" micro-batches per step are {turns}, zero {x.zero}, pp {x.pp}, ep {x.ep}, dp x cp"
        f" {x.dp * x.cp}, offload {x.offload}"
        + _ways(
            f"--global-batch {each}" if turns > 1 else "",
            "--zero 2 or 3" if able == "sharded" and x.zero in (0, 1) and x.dp * x.cp > 1 else "",
            "--stack pytorch-fsdp or torchtitan" if able != "sharded" else "",
            "leave out --optimizer-in-backward",
        )
    )


def frozen(p: Plan, x: Layout) -> str:
    """The stack does not divide adapters so, or a pipeline has stages without a backward pass."""
    if p.training.active_layers is not None:
        ways = _ways("--pp 1", "leave out --lisa")
        return f"a stage would have as many random layers as another by chance alone{ways}"
    if p.training.trainable_layers is not None:
        return (
            f"the first stages of a pipeline would have no backward pass, which no schedule here"
            f" knows; here pp is {x.pp}{_ways('--pp 1', 'leave out --trainable-layers')}"
        )
    return (
        f"{p.stack.title} has no adapters of matrices that tensor or expert parallelism divides;"
        f" here tp is {x.tp}, ep {x.ep}"
        + _ways("--tp 1" if x.tp > 1 else "--ep 1", "--stack nemo or megatron-core")
    )


def quantised(p: Plan, x: Layout) -> str:
    """The stack keeps weights in 16 bit, or in 8 bit as its GEMMs read them."""
    ways = _ways("--stack pytorch-fsdp, deepspeed or pytorch-ddp", "--base-precision fp8")
    return f"{p.stack.title} keeps no weights in {p.training.base_precision}{ways}"


def whole_examples(p: Plan, x: Layout) -> str:
    """An example has several sequences, which a micro-batch parts."""
    task = TASKS[p.training.task]
    return (
        f"an example of {task.title} has {task.sequences} sequences, and a micro-batch"
        f" {x.micro_batch}; take a --micro-batch and --global-batch that they divide"
    )


def teacher(p: Plan, x: Layout) -> str:
    """A teacher beside its student stands in no pipeline, and its widths are not divided so."""
    name = p.teacher.name if p.teacher else "the teacher"
    ways = _ways("--tp 1 --pp 1", "--teacher-gpus with --teacher-top-k")
    return (
        f"{name} computes on the GPUs of its student, without a pipeline and divided as that is;"
        f" here tp is {x.tp}, pp {x.pp}, ep {x.ep}{ways}"
    )


def cuda_graphs(p: Plan, x: Layout) -> str:
    """The stack does not capture these parts."""
    has = [scope for scope in p.stack.supports.cuda_graphs if scope != "none"]
    captures = f"captures {', '.join(has)}" if has else "captures no part of a step"
    return (
        f"{p.stack.title} {captures} as CUDA graphs, not {'+'.join(p.training.cuda_graphs)}; leave"
        f" out --cuda-graphs, or take --stack {FREE_STACK}"
    )


def whole_matrices(p: Plan, x: Layout) -> str:
    """The optimizer needs tensors as they are, and shards or the host have pieces of them."""
    own, title = OPTIMIZERS[p.training.optimizer], p.stack.title
    if x.offload in OFFLOADED_OPTIMIZER and (own.work or own.paged):
        what = "pages its states itself" if own.paged else "has no implementation on the CPU here"
        return f"{own.title} {what}; take --offload none, or --optimizer adam"
    remedy = _ways("--zero 0" if 0 in p.stack.supports.zero else "", "--optimizer adam")
    if own.block:
        return (
            f"{own.title} has a scale per {own.block} elements of a tensor, and shards of {title}"
            f" under ZeRO-{x.zero} are cut out of flat buffers anywhere inside them"
            + _ways("--zero 2", "--stack pytorch-fsdp, whose shards are of one tensor")
        )
    needs = "means of rows and columns" if own.factored else "matrices"
    return (
        f"{own.title} needs {needs}, and shards of {title} under ZeRO-{x.zero} are pieces of flat"
        f" buffers, which are vectors{remedy}, or --stack pytorch-fsdp"
    )


def no_such_types(p: Plan) -> list[str]:
    """Types of states that were asked for and that the optimizer or the stack cannot have, with
    what to do."""
    training, state = p.training, p.stack.state
    own, found = OPTIMIZERS[training.optimizer], []
    asked = {
        "moments": training.moments_precision,
        "master": training.master_precision,
        "gradient": training.gradient_precision,
    }
    given = [f"--{name}-precision" for name, value in asked.items() if value is not None]
    if given and not training.mixed_precision:
        return [
            f"{' and '.join(given)}: states of training in {training.precision} are fp32; take"
            " --precision bf16"
        ]
    if asked["moments"] and not (own.typed and (own.moments or own.factored)):
        kept = "states of a type of their own" if own.moments else "no moments"
        found.append(f"--moments-precision: {own.title} has {kept}; leave it out")
    if asked["master"] and state.master == 0:
        found.append(
            f"--master-precision: the weights of {p.stack.title} are what its optimizer updates;"
            " leave it out, or take --state-precision bf16"
        )
    if asked["master"] == "remainder" and training.precision == "fp16":
        found.append(
            "--master-precision remainder: 16 bits complete a bf16 weight, not an fp16 one; take"
            " --precision bf16"
        )
    if asked["master"] == "remainder" and not p.stack.supports.precision_aware:
        found.append(
            f"--master-precision remainder: {p.stack.title} keeps whole master copies; leave it"
            " out, or take --stack megatron-core or nemo"
        )
    wants = TYPE_BYTES[training.gradient_precision or "fp32"]
    if asked["gradient"] and not state.persistent_gradients and wants != state.gradient:
        found.append(
            f"--gradient-precision: gradients of {p.stack.title} have the type of its weights, with"
            " no buffer of their own; leave it out, or take --state-precision bf16"
        )
    return found


def state_types(p: Plan, x: Layout) -> str:
    """States cannot have the types that were asked for."""
    return "; ".join(no_such_types(p))


def placement(p: Plan, x: Layout) -> str:
    """The stack does not order ranks so, or experts forbid it."""
    known = p.stack.supports.placements
    return (
        f"{p.stack.title} places ranks as {' or '.join(known)}, {PLACEMENTS[0]} alone where experts"
        f" are shared out; here it is {x.placement}, ep {x.ep}"
        + _ways(f"--placement {PLACEMENTS[0]}", "--ep 1" if x.placement in known else "")
    )


def sequence_parallel(p: Plan, x: Layout) -> str:
    """Sequence parallelism without tensor parallelism."""
    return (
        "sequence parallelism divides work among tensor-parallel ranks; it needs tp > 1, such as"
        " --tp 2, or leave out --sequence-parallel"
    )


def acting(p: Plan, x: Layout) -> str:
    """What was asked for would do nothing."""
    return (
        f"{', '.join(map(flag, p.request.acting))} would do nothing in a layout of tp {x.tp},"
        f" pp {x.pp}, ep {x.ep}, dp {x.dp} x cp {x.cp}, zero {x.zero}: ZeRO shards over dp x cp > 1"
        " with zero 1 to 3, FSDP reduces layers and no buckets, schedules need pp > 1,"
        " dispatch of tokens ep > 1; leave it out, or fix"
        " the degrees"
    )
