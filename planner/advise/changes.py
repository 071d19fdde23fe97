"""Candidate changes of a plan: of its layout, of the request, or leaving options open. Nothing is
evaluated here.

A change of the layout is a set of columns with new values; what follows from them (data-parallel
degree, shard group) follows. A change of the request is a set of options with new values.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from planner.estimate.mechanisms import dispatch_overlap, transposes_again
from planner.formulas.divisors import divisors
from planner.formulas.stages import largest_chunk, stated_chunks
from planner.inputs import catalog
from planner.inputs.training import states_length
from planner.inputs.usual import STACKS
from planner.search.idle import rounder
from planner.search.space import MODULE_SETS, chunk_counts
from planner.specs.capabilities import has, values
from planner.specs.cluster import MAX_GPUS
from planner.specs.documents.plan import LayoutChoice
from planner.specs.hardware import LinkSpec
from planner.specs.layout import OFFLOADS, SCHEDULES, Layout
from planner.specs.names import SHARDS_GRADIENTS, SHARDS_PARAMETERS
from planner.specs.options import LAYOUT, Options, flag
from planner.specs.plan import Plan
from planner.specs.precision import is_low
from planner.units import show

WORTH = 0.01  # relative gain of speed, or of memory, below which a change is not reported
_FEW_SHARDS = 256  # GPUs up to which offloading is proposed. A choice
_FEW = 3  # fixed options that are freed one by one although the plan fits
_LOSS_CHUNKS = 8  # parts of the loss that are tried where it is in one
_SHORTEST = 512  # tokens of the shortest sequence that is proposed
_MORE_GPUS = (2, 4, 8, 16, 64, 256)  # times as many, until enough of them fit
_MOST_MICRO_BATCH = 64
_STATES = ("moments_precision", "master_precision", "gradient_precision")
_GROUPS = (2, 3, 4, 5, 6, 8, 10, 12, 16)  # layers per kept input that are tried
# graphs as the recipes of Megatron-LM and Megatron-Bridge have them: of whole layers, and of what
# has the same shapes in every step beside experts
_DENSE_GRAPHS, _EXPERT_GRAPHS = "layer", "attn+moe_router+moe_preprocess"
# kernels of dispatch that the recipes have on these GPUs
_DISPATCHERS = {"hopper": "deepep", "blackwell": "hybridep"}
_FABRICS = (
    "ib-hdr",
    "ib-ndr",
    "ib-xdr",
)  # 200, 400 and 800 Gbit/s per card: the next faster one is tried


@dataclass(frozen=True)
class Change:
    """A request that differs from another in `update`."""

    text: str
    update: dict[str, Any]


Update = dict[str, Any]  # columns of a layout with new values


def layout_changes(plan: Plan, base: Layout) -> list[list[Update]]:
    """One thing changed at a time: each entry lists variants of one change, of which only the best
    is shown."""
    replica = plan.training.global_batch // base.dp
    chunk = largest_chunk(plan, base.pp, base.vpp)
    micro = [b for b in divisors(replica) if b <= _MOST_MICRO_BATCH]
    out: list[list[Update]] = [
        [{"recompute": "none"}],
        [{"recompute": "selective"}],
        [{"recompute": "full"}],
        [{"recompute": name} for name in MODULE_SETS],
        [{"recompute": f"group:{k}"} for k in _GROUPS if k <= chunk],
        [{"recompute": f"block:{n}"} for n in range(1, chunk)],
        *([{"zero": stage}] for stage in range(4)),
        [{"shard_group": g} for g in divisors(base.dp * base.cp)],
        *(way for name in ("tp", "pp", "cp", "ep") for way in _steps(base, name)),
        [{"vpp": v} for v in chunk_counts(plan, base.pp)],
        [{"schedule": name} for name in SCHEDULES if has(plan.stack, "schedule", name)],
        [{"sequence_parallel": not base.sequence_parallel}],
        [{"micro_batch": b} for b in micro if b < base.micro_batch],
        [{"micro_batch": b} for b in micro if b > base.micro_batch],
        *([{"offload": name}] for name in OFFLOADS),
    ]
    new = [
        [u for u in variants if any(getattr(base, k) != v for k, v in u.items())]
        for variants in out
    ]
    return [variants for variants in new if variants]


def _steps(base: Layout, name: str) -> list[list[Update]]:
    """Twice and half of a degree; pipelines with the same chunks per rank or the same layers per
    chunk."""
    here = getattr(base, name)
    sizes = [2 * here] + ([here // 2] if here % 2 == 0 else [])
    if name != "pp" or base.vpp == 1:
        return [[{name: size}] for size in sizes]
    chunks = base.pp * base.vpp
    return [
        [{name: size}, *([{name: size, "vpp": chunks // size}] if chunks % size == 0 else [])]
        for size in sizes
    ]


def completed(
    base: Layout, update: Update, gpus: int, has_sequence_parallel: bool
) -> Layout | None:
    """The layout with these columns changed and what follows from them; None where degrees do not
    divide or nothing changes."""
    value = {**base.model_dump(), **update}
    each = value["tp"] * value["pp"] * value["cp"]
    if gpus % each:
        return None
    value["dp"] = gpus // each
    ranks = value["dp"] * value["cp"]
    if "shard_group" not in update and (value["zero"] < 3 or base.shard_group == base.dp * base.cp):
        value["shard_group"] = ranks
    if ranks % value["shard_group"]:
        return None
    if "sequence_parallel" not in update:
        value["sequence_parallel"] = value["tp"] > 1 and (
            has_sequence_parallel if base.tp == 1 else base.sequence_parallel
        )
    if value["pp"] == 1:
        value.update(vpp=1, schedule="1f1b")
    layout = Layout(**value)
    return None if update and layout == base else layout


def pairs(changes: list[list[Update]]) -> Iterator[tuple[int, int, Update]]:
    """Every two changes of different columns together: (index of one, index of the other,
    columns)."""
    for i, first in enumerate(changes):
        for j in range(i + 1, len(changes)):
            for a in first:
                for b in changes[j]:
                    if not a.keys() & b.keys():
                        yield i, j, {**a, **b}


_WORDS = {
    "tp": "tp",
    "pp": "pp",
    "dp": "dp",
    "vpp": "vpp",
    "cp": "cp",
    "ep": "ep",
    "zero": "ZeRO",
    "shard_group": "shard group",
    "schedule": "schedule",
    "recompute": "recompute",
    "micro_batch": "micro-batch",
    "offload": "offload",
    "sequence_parallel": "sequence parallelism",
}


def difference(
    base: Layout | LayoutChoice, other: Layout | LayoutChoice, fixed: Sequence[str] = ()
) -> str:
    """The fields in which two layouts differ, in words: "tp 4, micro-batch 1". Fields that follow
    from the others are left out, unless the request fixed them."""
    follows = {
        "dp": True,
        "shard_group": other.shard_group == other.dp * other.cp
        and base.shard_group == base.dp * base.cp,
        "schedule": other.pp == 1 != base.pp,
        "vpp": other.pp == 1,
        "sequence_parallel": min(base.tp, other.tp) == 1,
    }
    words = {
        ("offload", "none"): "nothing offloaded",
        ("sequence_parallel", True): "sequence parallel",
        ("sequence_parallel", False): "no sequence parallelism",
    }
    out = []
    for name, word in _WORDS.items():
        here, new = getattr(base, name), getattr(other, name)
        if here != new and (name in fixed or not follows.get(name)):
            out.append(words.get((name, new), f"{word} {new}"))
    return ", ".join(out)


@dataclass(frozen=True)
class Promise:
    """Shares of the step that a larger batch and a faster fabric could save at most."""

    batch: float = 1.0
    fabric: float = 1.0


def request_changes(plan: Plan, fits: bool, everything: bool, promise: Promise) -> list[Change]:
    """Changes beside the layout: number formats, kernels, optimizer, batch, GPUs, links, stack.

    What cannot help is left out unless `everything` is wanted: memory savers where the plan fits,
    speed where it does not, and what promises less than `WORTH`.
    """
    training, cluster, gpu = plan.training, plan.cluster, plan.cluster.gpu
    speed, memory = fits or everything, not fits or everything
    out = _kernels(plan, speed)
    if not training.mixed_precision and gpu.dense.bf16 is not None:
        out.append(Change("precision bf16", {"precision": "bf16"}))
    out += _precisions(plan, speed, memory)
    if memory and training.optimizer == "adam":
        out.append(Change("8-bit Adam", {"optimizer": "adam8bit"}))
        out += _narrow_states(plan) + _bf16_states(plan)
    if training.base_precision == "fp32":
        out.append(Change("frozen weights in 16 bit", {"base_precision": None}))
    if memory and training.adapter is not None and not training.quantised:
        out.append(Change("frozen weights in NF4 (QLoRA)", {"base_precision": "nf4-double"}))
    if memory and training.loss_chunks == 1:
        out.append(chunked_loss(plan))
    if everything or (speed and promise.batch > WORTH):
        twice = 2 * training.global_batch
        out.append(Change(f"global batch {twice:,}", {"global_batch": twice}))
    if cluster.nodes > 1 and (everything or (speed and promise.fabric > WORTH)):
        out += _faster_fabric(plan)
    if everything:
        out += _other_gpus(plan)
        if training.seq_len % 2 == 0:
            out.append(
                Change(
                    f"sequences of {training.seq_len // 2:,} tokens, as many tokens per step",
                    {"seq_len": training.seq_len // 2, "global_batch": 2 * training.global_batch},
                )
            )
        out += [
            Change(f"stack {name}", {"stack": name}) for name in STACKS if name != plan.stack.id
        ]
    return out


def fewer_nodes(plan: Plan) -> list[Change]:
    """Nodes left idle where those that are left divide better; see `search.idle`."""
    cluster = plan.cluster
    gpus = rounder(cluster.gpus, cluster.gpus_per_node)
    if gpus is None:
        return []
    idle = cluster.nodes - gpus // cluster.gpus_per_node
    text = f"{idle} of {cluster.nodes} nodes left idle"
    return [Change(text, {"gpus": gpus, "global_batch": plan.training.global_batch})]


def _narrow_states(plan: Plan) -> list[Change]:
    """Narrower types of states, if the stack has them and the request states none."""
    training = plan.training
    able = has(plan.stack, "master_precision") and (
        training.precision == "bf16" or is_low(training.precision)
    )
    if not able or _states_stated(plan) or training.state_precision:
        return []
    bf16 = {"moments_precision": "bf16"}
    every = {**bf16, "gradient_precision": "bf16", "master_precision": "remainder"}
    return [
        Change("moments in bf16", bf16),
        Change("moments and gradients in bf16, remainders as master copy", every),
    ]


def _states_stated(plan: Plan) -> bool:
    """Whether the request states a type of states, which the search has not chosen."""
    chosen = {choice.option for choice in plan.chosen}
    return any(getattr(plan.training, name) for name in _STATES if name not in chosen)


def _bf16_states(plan: Plan) -> list[Change]:
    """Fine-tuning as recipes for one small GPU have it: no fp32 copy of anything, and with 8-bit
    moments and gradients that are gone once used."""
    training = plan.training
    wide = training.precision == "bf16" and not (training.state_precision or plan.partial)
    if not wide or _states_stated(plan):
        return []
    # without the type of the master copy that the search has chosen: bf16 training keeps none
    chosen = {choice.option for choice in plan.chosen}
    bf16: Update = {"state_precision": "bf16", **dict.fromkeys(chosen.intersection(_STATES))}
    out = [Change("weights, gradients and moments in bf16", bf16)]
    wanted = "one GPU" if plan.cluster.gpus == 1 else "sharded"
    if has(plan.stack, "optimizer_in_backward", wanted):
        inside = {**bf16, "optimizer": "adam8bit", "optimizer_in_backward": True}
        out.append(Change("weights in bf16, 8-bit Adam inside backward", inside))
        if plan.cluster.gpus == 1:  # the recipe of torchtune for 8 billion on 24 GB
            least = {
                **inside,
                "optimizer": "paged-adam8bit",
                "loss_chunks": max(training.loss_chunks, _LOSS_CHUNKS),
            }
            name = "weights in bf16, paged 8-bit Adam inside backward, loss in chunks"
            out.append(Change(name, least))
    return out


def by_cost(plan: Plan, layout: Layout) -> list[Change]:
    """Unlike layers dealt out to stages by cost, if the stack deals them out by number and can be
    configured otherwise."""
    request, pp, vpp = plan.request, layout.pp, layout.vpp
    if pp == 1 or request.uneven_stages is not None or request.pipeline_layout is not None:
        return []
    uneven = plan.model_copy(update={"request": request.model_copy(update={"uneven_stages": True})})
    text = stated_chunks(uneven, pp, vpp)
    if text == stated_chunks(plan, pp, vpp):
        return []
    return [Change(f"layers dealt out by their cost, {text}", {"uneven_stages": True})]


def _precisions(plan: Plan, speed: bool, memory: bool) -> list[Change]:
    """Formats of fewer bits that the stack and the GPU have, and weights kept in them."""
    training, stack, gpu = plan.training, plan.stack.precision, plan.cluster.gpu
    out = []
    recipes = values(plan.stack, "precision")[1:]
    known = {recipe for recipe in recipes if gpu.rate(recipe) is not None}
    if speed and training.precision in ("bf16", "fp16") and known.intersection(recipes[:1]):
        out.append(Change("precision fp8", {"precision": "fp8"}))
    if speed and training.mixed_precision and "nvfp4" in known - {training.precision}:
        out.append(Change("precision nvfp4", {"precision": "nvfp4"}))
    if memory and plan.recipe and stack.weight_copies and not plan.is_low("weights"):
        kept = "+".join((*(training.low_parts or ()), "weights"))
        out.append(Change(f"weights kept in {plan.precision}", {"low_precision": kept}))
    turned = plan.recipe is not None and plan.recipe.transposes(gpu.architecture)
    if memory and turned and has(plan.stack, "transpose_weights") and not transposes_again(plan):
        again: Update = {"transpose_weights": True}
        out.append(Change("8-bit weights transposed in every backward pass", again))
    return out


def _kernels(plan: Plan, speed: bool) -> list[Change]:
    """Kernels in place of chains of torch operators."""
    out: list[Change] = []
    if not plan.flash_attention:
        out.append(Change("flash attention", {"flash_attention": True}))
    if speed and plan.chained:
        out.append(Change("fused kernels (norm, RoPE, gate)", {"fused_kernels": True}))
        out.append(Change("torch.compile", {"compile": True}))
    graphs = _EXPERT_GRAPHS if plan.model.routed else _DENSE_GRAPHS
    can = set(graphs.split("+")) <= {*values(plan.stack, "cuda_graphs")}
    if speed and can and "cuda-graphs" not in plan.settings:
        out.append(Change(f"CUDA graphs of {graphs}", {"cuda_graphs": graphs}))
    if speed and plan.model.routed and plan.stack.family == "megatron":
        kernels = _DISPATCHERS.get(plan.cluster.gpu.architecture)
        if kernels and kernels not in plan.dispatchers:
            out.append(Change(f"dispatch by {kernels}", {"dispatcher": kernels}))
        if not dispatch_overlap(plan).another:
            out.append(
                Change("dispatch beside compute of another micro-batch", {"ep_overlap": True})
            )
    return out


def chunked_loss(plan: Plan) -> Change:
    """The loss of parts of the tokens in turn: a part of the logits at a time."""
    return Change(f"loss in {_LOSS_CHUNKS} chunks", {"loss_chunks": _LOSS_CHUNKS})


def shorter(options: Options, plan: Plan) -> list[Change]:
    """Half the default sequence, a quarter, ..., with as many tokens per step; none if the request
    states the length."""
    length, batch = plan.training.seq_len, plan.training.global_batch
    if states_length(options):
        return []
    times = (2**k for k in range(1, length.bit_length()))
    return [
        Change(
            f"sequences of {length // t:,} tokens, as many tokens per step",
            {"seq_len": length // t, "global_batch": batch * t},
        )
        for t in times
        if length % t == 0 and length // t >= _SHORTEST
    ]


def _faster_fabric(plan: Plan) -> list[Change]:
    for name in _FABRICS:
        link = catalog.load("networks", LinkSpec, name)
        if float(link.bandwidth) > float(plan.cluster.nic_bandwidth) * 1.01:
            return [
                Change(
                    f"{show(float(link.bandwidth), 'B/s')} per network card ({link.title})",
                    {"inter_node": name, "nic_bandwidth": None},
                )
            ]
    return []


def _other_gpus(plan: Plan) -> list[Change]:
    """Twice and half of the GPUs, as replicas more or fewer, with the same batch."""
    gpus = plan.cluster.gpus
    sizes = [size for size in (2 * gpus, gpus // 2) if 1 <= size <= MAX_GPUS]
    return [
        Change(f"{size:,} GPUs", {"gpus": size})
        for size in sizes
        if 2 * size == gpus or size == 2 * gpus
    ]


def fixed_layout(options: Options) -> list[str]:
    """Layout options that the user fixed."""
    return [name for name in LAYOUT if getattr(options, name) is not None]


def freed(options: Options, fits: bool) -> list[Change]:
    """Leave out what was fixed, one by one and all together."""
    fixed = fixed_layout(options)
    changes = []
    if len(fixed) > 1:
        changes.append(Change("leave out all layout options (search them)", dict.fromkeys(fixed)))
    if not fits or len(fixed) <= _FEW:  # each is a search of its own
        changes += [Change(f"leave out {flag(name)} (search it)", {name: None}) for name in fixed]
    return changes


def more_room(options: Options, plan: Plan, layout: Layout) -> list[Change]:
    """Search what no search takes by itself to make room, where memory is short: something is
    repeated, or parameters are gathered. Over many GPUs shards of the states are smaller than what
    offloading saves, and a search takes longer."""
    short = layout.recompute != "none" or layout.zero == SHARDS_PARAMETERS
    if plan.cluster.gpus > _FEW_SHARDS or not short:
        return []
    out = []
    stated = options.offload is not None or options.search_offload
    if not stated and set(values(plan.stack, "offload")) > {"none"}:
        out.append(Change("offloading searched, too", {"search_offload": True}))
    if options.expandable_segments is None and plan.could_expand_segments:
        out.append(Change("expandable segments of the allocator", {"expandable_segments": True}))
    return out


def on_request(options: Options, plans: Sequence[Plan]) -> list[Change]:
    """ZeRO stages that shard gradients or parameters and that a stack runs on request only."""
    if options.zero is not None:
        return []
    stages = {
        (plan.stack.id, zero): f"ZeRO-{zero} of {plan.stack.title}"
        for plan in plans
        for zero in values(plan.stack, "zero", on_request=True)
        if zero not in values(plan.stack, "zero") and zero >= SHARDS_GRADIENTS
    }
    return [Change(text, {"stack": stack, "zero": zero}) for (stack, zero), text in stages.items()]


_NOT_OF_SHARDS = ("tp", "pp", "vpp", "cp", "ep", "schedule", "sequence_parallel", "stack")


def sharded(options: Options) -> list[Change]:
    """ZeRO-3 without other sharding, with states in host memory; options that rule it out are named
    and left open."""
    if options.offload is not None:
        return []
    fixed = [name for name in _NOT_OF_SHARDS if getattr(options, name) is not None]
    without = f", without {' and '.join(map(flag, fixed))}" if fixed else ""
    alone = {**dict.fromkeys(fixed), "zero": 3}
    return [
        Change(
            f"ZeRO-3, optimizer offloaded to host memory{without}",
            {**alone, "offload": "optimizer"},
        ),
        Change(
            f"ZeRO-3, optimizer and parameters offloaded to host memory{without}",
            {**alone, "offload": "params"},
        ),
    ]


def more_gpus(options: Options) -> list[Change]:
    """More of the same GPUs with the same batch, searched again, few first."""
    return [
        Change(f"{factor}x the GPUs ({options.gpus * factor:,})", {"gpus": options.gpus * factor})
        for factor in _MORE_GPUS
        if options.gpus * factor <= MAX_GPUS
    ]


def other_stacks(options: Options) -> list[Change]:
    """Other stacks, where the user named one."""
    if options.stack is None:
        return []
    others = [name for name in STACKS if name != options.stack]
    return [Change("leave out --stack (search it)", {"stack": None})] + [
        Change(f"stack {name}, layout searched", {**dict.fromkeys(LAYOUT), "stack": name})
        for name in others
    ]
