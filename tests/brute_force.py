"""All layouts that a search may find, by trying every tuple of factors: the rules once more from
their definitions."""

from __future__ import annotations

import itertools
import math
from collections import namedtuple
from functools import cache, partial
from typing import TYPE_CHECKING, Any, cast

from plans import flat_of

from planner.formulas.stages import largest_chunk
from planner.specs.layout import (
    OFFLOADED_PARAMS,
    OFFLOADS,
    PLACEMENTS,
    SCHEDULES,
    Layout,
    recompute_in,
)
from planner.specs.plan import Plan

MODULES = ("moe_act", "layernorm+moe_act")  # tried of experts without latent attention

if TYPE_CHECKING:
    Row = Layout
else:  # as a layout, but cheap enough to make a million of
    Row = namedtuple("Row", Layout.model_fields)


def allowed(p: Plan, x: Row) -> bool:
    """Whether the layout is possible, from the definitions: everything that is shared out comes out
    even."""
    model, can, batch, seq = p.model, p.stack.supports, p.training.global_batch, p.training.seq_len
    used = {"tensor": x.tp, "pipeline": x.pp, "context": x.cp, "expert": x.ep}
    if any(degree > 1 and not getattr(can, name) for name, degree in used.items()):
        return False
    if x.sequence_parallel and (x.tp == 1 or not can.sequence_parallel or seq % x.tp):
        return False
    if (
        flat_of(model).heads % x.tp
        or model.hidden % x.tp
        or (flat_of(model).kv_heads % x.tp and x.tp % flat_of(model).kv_heads)
    ):
        return False
    if model.dense_layers and flat_of(model).ffn_hidden % x.tp:
        return False
    if x.cp > 1 and seq % (2 * x.cp * (x.tp if x.sequence_parallel else 1)):
        return False
    split = x.tp if p.stack.experts.tensor == "as dense" else 1
    apart = x.ep * (p.training.etp or split)
    if x.ep > 1 and (model.routed is None or model.routed.experts % x.ep):
        return False
    if model.routed is not None and (
        (x.tp * x.dp * x.cp) % apart or model.routed.ffn_hidden % (apart // x.ep)
    ):
        return False
    if not filled(p, x.pp, x.vpp) or batch % (x.dp * x.micro_batch):
        return False
    chunks = {
        "interleaved": x.vpp > 1,
        "breadth-first": x.vpp > 1,
        "zb-v": x.vpp == 2,
        "dualpipev": x.vpp == 2,
    }
    if not chunks.get(x.schedule, x.vpp == 1) or (x.vpp > 1 and x.pp == 1):
        return False
    m = batch // (x.dp * x.micro_batch)
    suits = {
        "interleaved": m % x.pp == 0,
        "breadth-first": m >= x.pp,
        "zb-h2": m >= 2 * x.pp - 1,
        "dualpipev": m >= 2 * x.pp,
        "dualpipe": x.pp % 2 == 0 and m % 2 == 0 and m >= 2 * x.pp,
    }
    if x.pp > 1 and not suits.get(x.schedule, True):
        return False
    if x.pp > 1 and (x.schedule not in can.schedules or x.zero not in can.zero_with_pipeline):
        return False
    if x.tp > 1 and not x.sequence_parallel and not can.tensor_alone:
        return False
    if x.zero == 0 and x.dp > 1 and x.tp * x.pp * x.cp > 1 and not can.replicas_beside:
        return False
    if (x.cp > 1 and x.zero < can.context_zero) or (x.ep > 1 and x.zero < can.expert_zero):
        return False
    whole = x.shard_group == x.dp * x.cp
    least = 2 if p.stack.state.zero2_gathers else can.hybrid_zero
    hybrid = x.zero >= least and can.hybrid_shard and x.shard_group > 1
    if x.zero not in can.zero or not (whole or hybrid):
        return False
    if x.offload.endswith("nvme") and p.cluster.nvme is None:
        return False
    if (
        x.offload in OFFLOADED_PARAMS and x.zero < 3
    ):  # only sharded parameters can live in host memory
        return False
    if x.offload == "activations" and (
        x.pp > 1 or (x.recompute != "none" and not can.offload_with_recompute)
    ):
        return False
    if x.placement not in can.placements or (x.placement != "tp-cp-dp-pp" and x.ep > 1):
        return False
    kind = "modules" if x.recompute in MODULES else x.recompute.partition(":")[0]
    return kind in can.recompute and x.offload in can.offload


ANY_CHUNKS = ("torchtitan", "megatron-core", "hai-llm")  # may state the layers of every chunk


def even(p: Plan, pp: int, vpp: int) -> bool:
    """Stages and chunks of equal size; Megatron's may count embedding and head as a layer each if
    both ends keep one."""
    layers, each = p.model.layers, pp * vpp
    ends = (
        p.stack.id in ("megatron-core", "megatron-deepspeed", "torchtitan")
        and 1 < pp <= (layers + 2) // 2
    )
    return layers % each == 0 or (ends and (layers + 2) % each == 0)


def filled(p: Plan, pp: int, vpp: int) -> bool:
    """Equal chunks, or unequal ones of a layer or more where the stack can have them."""
    dealt = p.stack.id in ANY_CHUNKS or (p.stack.id == "megatron-deepspeed" and vpp == 1)
    return even(p, pp, vpp) or (dealt and pp * vpp <= p.model.layers)


def counts_tried(p: Plan, pp: int) -> list[int]:
    """Equal chunks; where chunks may differ in layers, one count per size of the largest."""
    layers = p.model.layers
    out = [v for v in range(1, layers + 1) if even(p, pp, v)]
    if p.stack.id in ANY_CHUNKS:
        out += [
            v for v in {-(-layers // (pp * n)) for n in range(1, layers + 1)} if filled(p, pp, v)
        ]
    return sorted({1, *out})


def worth_trying(p: Plan, x: Row) -> bool:
    """Layouts that the search skips unless requested, whatever they recompute."""
    r, node = p.request, p.cluster.nvlink_domain
    ranks = x.dp * x.cp
    return (
        (r.tp is not None or x.tp <= 16)
        and (
            r.cp is not None or x.cp == 1 or x.cp * (64 if x.cp <= 8 else 512) <= p.training.seq_len
        )
        # divided by a common factor both are never slower
        and (
            any((r.cp, r.dp, r.micro_batch, r.grad_accum, r.where))
            or bool(p.cluster.intra_node.mesh)
            or math.gcd(x.cp, x.micro_batch) == 1
        )
        and (
            r.schedule is not None
            or (
                x.schedule not in ("gpipe", "sequential", "breadth-first")
                and (x.pp > 1 or x.schedule == "1f1b")
            )
        )
        and (
            r.shard_group is not None
            or x.shard_group == ranks
            or x.shard_group % min(node, ranks) == 0
            # no group of whole domains divides the ranks: parts of a domain, of whole nodes
            or (
                x.shard_group < node < ranks
                and x.shard_group % p.cluster.gpus_per_node == 0
                and not any(ranks % size == 0 for size in range(node, ranks, node))
            )
        )
        and (r.offload is not None or r.search_offload or x.offload == "none")
        and (
            r.placement is not None
            or x.placement == "tp-cp-dp-pp"
            or (x.pp > 1 and x.dp > 1 and p.cluster.gpus > node)
        )
    )


@cache
def worth_repeating(repeats: tuple[str, ...], layers: int) -> list[str]:
    """Blocks of fewer layers than a chunk has, groups of a few sizes that keep less than smaller
    ones."""

    def worth(recompute: str) -> bool:
        kind, _, size = recompute.partition(":")
        if kind == "block":
            return int(size) < layers
        if kind != "group":
            return True
        k = int(size)
        listed = k in (2, 3, 4, 6, 8, 12, 16) or k == layers <= 16
        return listed and 1 < k <= layers and -(-layers // k) < -(-layers // (k - 1))

    return [recompute for recompute in repeats if worth(recompute)]


def brute_force(p: Plan) -> set[Layout]:
    """All tuples of factors, filtered one by one."""
    r, gpus = p.request, p.cluster.gpus
    numbers = range(1, gpus + 1)

    def tried(name: str, values: Any) -> Any:
        fixed = getattr(r, name)
        return list(values) if fixed is None else [fixed]

    names = set()
    chunk = cache(partial(largest_chunk, p))
    for tp, pp, cp in itertools.product(
        tried("tp", numbers), tried("pp", numbers), tried("cp", numbers)
    ):
        for dp in tried("dp", numbers):
            if tp * pp * cp * dp != gpus:
                continue
            layers = -(-p.model.layers // pp)
            repeats = (
                "none",
                "selective",
                "full",
                *(MODULES if p.model.routed else ()),
                *(f"{kind}:{n}" for kind in ("block", "group") for n in range(1, layers + 1)),
            )
            for vpp, ep, group, zero, sequence, schedule, micro, placement in itertools.product(
                tried("vpp", counts_tried(p, pp)),
                tried(
                    "ep",
                    [
                        e
                        for e in numbers
                        if e == 1 or (p.model.routed and p.model.routed.experts % e == 0)
                    ],
                ),
                tried("shard_group", [n for n in range(1, dp * cp + 1) if (dp * cp) % n == 0]),
                tried("zero", range(4)),
                tried("sequence_parallel", [False, True]),
                tried("schedule", SCHEDULES),
                tried("micro_batch", range(1, p.training.global_batch // dp + 1)),
                tried("placement", PLACEMENTS),
            ):
                most = (
                    1
                    if schedule in ("1f1b", "gpipe", "zb-1p", "zb-2p", "dualpipe")
                    else p.model.layers
                )
                if (dp * cp) % group or p.training.global_batch % (dp * micro) or vpp > most:
                    continue  # allowed() says so too, this only saves time
                if not filled(p, pp, vpp):
                    continue
                request = r.recompute and recompute_in(r.recompute, chunk(pp, vpp))
                for recompute, offload in itertools.product(
                    [request] if request else worth_repeating(repeats, chunk(pp, vpp)),
                    tried("offload", OFFLOADS if r.search_offload else ["none"]),
                ):
                    x = Row(
                        tp=tp,
                        pp=pp,
                        vpp=vpp,
                        dp=dp,
                        cp=cp,
                        ep=ep,
                        zero=zero,
                        shard_group=group,
                        sequence_parallel=sequence,
                        recompute=recompute,
                        schedule=schedule,
                        micro_batch=micro,
                        offload=offload,
                        placement=placement,
                    )
                    if worth_trying(p, x) and allowed(p, x):
                        names.add(Layout(**cast(Any, x)._asdict()))
    return names
