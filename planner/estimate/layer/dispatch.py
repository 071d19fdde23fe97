"""How tokens reach the ranks of their experts and come back: which copies are sent, over which
links, and which part overlaps with compute.

- all-to-all (NCCL): a copy for every expert of a token; Megatron-LM, MoEAlltoAllTokenDispatcher;
- all-gather: every rank of the group receives all tokens; MoEAllGatherTokenDispatcher;
- DeepEP and HybridEP: a copy for every rank with an expert of the token, and one for every node
  (or switched domain), which its ranks pass on (deepseek-ai/DeepEP, README and README_Hybrid-EP).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from planner.estimate import communicate, mechanisms
from planner.estimate.communicate import Group, place
from planner.estimate.layer.shape import LayerShape
from planner.estimate.machine import Machine
from planner.estimate.machine.kernels import fused_experts
from planner.formulas import casts
from planner.formulas import collectives as formulas
from planner.ledger import Array
from planner.specs.names import DispatcherName
from planner.specs.parts import Moe
from planner.specs.plan import Plan

# of a token's weights that HybridEP sends with each copy, for all experts of a domain: with the
# dispatch forward, and back with their gradients, half of the calls
# (NUM_OF_EXPERTS_PER_RANK * NUM_OF_RANKS_PER_NODE floats, hybrid_ep_backend.cuh of DeepEP)
_WEIGHT_BYTES, _WEIGHTS_SENT = 4.0, 0.5
# least share of dispatch and combine that nothing hides where they overlap: over the validated
# runs with experts, docs/accuracy
EXPOSED = 0.15
CALLS = 2.0  # dispatch and combine of a layer with experts, each way
# bytes per hidden element and each way of a copy for a rank, where a dispatcher has buffers of its
# own: read as the copies for experts are made, written before it is sent back
# (dispatch_with_permute and combine_with_unpermute of HybridEP, _DeepepManager of Megatron-LM)
_UNPACKED_BYTES = 4.0


class Dispatcher(NamedTuple):
    """How the kernels of a dispatcher work.

    multiprocessors: that they work on, by default in Megatron-LM (moe_deepep_num_sms,
    moe_hybridep_num_sms); 0: NCCL's, which slow compute as any collective.
    sorted_bytes: per hidden element and each way, of a copy for an expert: tokens that arrive by
    rank are sorted by expert, and back after the experts (MoEAlltoAllTokenDispatcher).
    operators: for every local expert forward. A grouped GEMM calls one kernel each from C++; the
    all-to-all's tokens are split, sorted and counted by expert as well. Chosen for the least error
    on nemo-moe, with all suites of experts in view (docs/log).
    low_operators: the same in 8 and 4 bit, where each expert's operands are cast and scaled, a call
    or two each (split_quantize of Transformer Engine); of buffered dispatchers chosen for the least
    error on moe-recipes (docs/log).
    buffered: it receives into buffers of its own, and sends the weights of tokens in fp32
    (token_dispatcher.py of Megatron-LM: "only supports float32 probs").
    keeps_received: tokens of all ranks of the group stay in memory: of buffered ones, and of
    Megatron-LM's all-gather, which keeps one buffer for all layers (get_global_memory_buffer).
    """

    multiprocessors: float
    sorted_bytes: float
    operators: float
    low_operators: float
    buffered: float
    keeps_received: float


DISPATCHERS: dict[DispatcherName, Dispatcher] = {
    "alltoall": Dispatcher(0.0, 8.0, 2.0, 3.0, 0.0, 0.0),
    "allgather": Dispatcher(0.0, 0.0, 2.0, 3.0, 0.0, 1.0),
    "deepep": Dispatcher(20.0, 0.0, 1.0, 2.5, 1.0, 1.0),
    "hybridep": Dispatcher(16.0, 0.0, 1.0, 2.5, 1.0, 1.0),
}


@dataclass(frozen=True)
class OneWay:
    """Dispatch of one micro-batch in one layer, or its combine."""

    group: Group
    sent_bytes: Array  # of one rank, over all its links
    seconds: Array


def across_hosts(plan: Plan, ep: Array, etp: Array) -> Array:
    """Whether ranks that share experts are in several hosts."""
    return ep * etp > plan.cluster.gpus_per_host


def by_dispatcher(plan: Plan, ep: Array, etp: Array, field: str) -> Array:
    """A number of the dispatcher that a layout uses, by its field in `Dispatcher`."""
    inside, across = (getattr(DISPATCHERS[name], field) for name in plan.dispatchers)
    return np.where(across_hosts(plan, ep, etp), across, inside)


def one_way(shape: LayerShape, m: Machine) -> OneWay:
    """Bytes that each rank sends, and their time."""
    plan = shape.plan
    inside, across = plan.dispatchers
    sent = _one_way(shape, m, inside)
    if across == inside:
        return sent
    other = _one_way(shape, m, across)
    apart = across_hosts(plan, shape.ep, shape.etp)
    return OneWay(
        sent.group,
        np.where(apart, other.sent_bytes, sent.sent_bytes),
        np.where(apart, other.seconds, sent.seconds),
    )


def sent_bytes(plan: Plan) -> float:
    """Bytes per element of a routed token, mean of dispatch and combine: tokens, and gradients of
    expert outputs, may be sent in 8 bit; what is summed stays in 16 (arXiv 2412.19437, section
    3.3.3)."""
    wide, recipe = plan.training.element_bytes, plan.recipe
    if recipe is None or not plan.is_low("dispatch"):
        return wide
    return (casts.operand_bytes(recipe.element, recipe.scale, recipe.block) + wide) / CALLS


def _one_way(shape: LayerShape, m: Machine, dispatcher: DispatcherName) -> OneWay:
    plan, moe = shape.plan, shape.plan.model.routed
    assert moe is not None
    per_token = moe.per_token
    width = moe.read(plan.model.hidden)
    tokens_bytes = sent_bytes(plan) * width * shape.local_tokens
    tokens_bytes = tokens_bytes * shape.fullest
    # experts follow one another on neighbouring ranks, split or whole (Megatron-LM's rank order)
    group = place(shape.ep, shape.etp, plan.cluster.tiers)
    ranks = np.maximum(group.ranks, 1.0)
    if dispatcher == "allgather":
        sent = tokens_bytes * ranks
        seconds = communicate.all_gather_s(m, sent, group)
        return OneWay(group, sent, seconds + _split_s(shape, m, sent))
    near = np.minimum(ranks, group.ranks_per_node)
    away = 1 - 1 / group.nodes
    if dispatcher == "alltoall" or "shared_copies" in m.without:
        copies = per_token * np.ones_like(ranks)
        inside, outside = copies * (near - 1) / ranks, copies * away
    else:
        copies = formulas.distinct_copies(ranks, per_token, np.inf)
        limit = float(moe.group_limit or per_token)
        # what came from other nodes lands on a rank of its own, and is passed on from there
        inside = copies * (1 - 1 / near)
        outside = formulas.distinct_copies(group.nodes, per_token, limit) * away
    if dispatcher == "hybridep" and "token_weights" not in m.without:
        weights = _WEIGHTS_SENT * _WEIGHT_BYTES * moe.experts * near / ranks
        tokens_bytes = tokens_bytes * (1 + weights / (plan.training.element_bytes * width))
    sent = tokens_bytes * copies
    seconds = communicate.all_to_all_s(m, tokens_bytes * inside, tokens_bytes * outside, group)
    return OneWay(group, sent, seconds + _split_s(shape, m, sent))


def _split_s(shape: LayerShape, m: Machine, received_bytes: Array) -> Array:
    """Ranks that split an expert received apart what each of them needs whole."""
    group = place(shape.etp, np.ones_like(shape.etp), shape.plan.cluster.tiers)
    whole = communicate.all_gather_s(m, received_bytes * shape.etp, group)
    return np.where(shape.sequence_parallel & (shape.etp > 1), whole, 0.0)


def sorted_bytes(shape: LayerShape, m: Machine, moe: Moe) -> Array:
    """Bytes per routed copy and hidden element that bring what arrived to its experts, each way."""
    plan = shape.plan
    each = by_dispatcher(plan, shape.ep, shape.etp, "sorted_bytes")
    if "unpacking" in m.without:
        return each
    ranks = np.maximum(shape.ep * shape.etp, 1.0)
    arrived = formulas.distinct_copies(ranks, moe.per_token, np.inf) / moe.per_token
    return each + _UNPACKED_BYTES * buffers(plan, shape.ep, shape.etp) * arrived


def overlaps(plan: Plan) -> bool:
    """Whether dispatch and combine run beside compute of another micro-batch."""
    if plan.training.overlap is False:
        return False
    stated = mechanisms.dispatch_overlap(plan).another
    if stated is not None:
        return stated
    fuses, by_stack = bool(plan.stack.fusion.fused_experts), plan.stack.experts.overlapped
    return plan.cluster.gpu.architecture in by_stack and (fused_experts(plan) or not fuses)


def beside_shared(plan: Plan) -> bool:
    """Whether they run beside shared experts."""
    return plan.training.overlap is not False and bool(mechanisms.dispatch_overlap(plan).shared)


def hidden_share(plan: Plan) -> float:
    """Share of dispatch and combine that another micro-batch hides where there is enough of it."""
    return 1 - EXPOSED if overlaps(plan) else 0.0


def slowdown(plan: Plan, m: Machine, ep: Array, etp: Array) -> Array:
    """Extra compute time while dispatch runs: the share of multiprocessors that it uses, or the
    slow-down by any collective."""
    requested = mechanisms.dispatch_overlap(plan).multiprocessors
    sms = by_dispatcher(plan, ep, etp, "multiprocessors") if requested is None else float(requested)
    return np.where(sms > 0, np.minimum(sms / m.compute_units, m.slowdown), m.slowdown)


def buffers(plan: Plan, ep: Array, etp: Array) -> Array:
    """Whether a layout's dispatcher has receive buffers."""
    return by_dispatcher(plan, ep, etp, "buffered") > 0


def buffer_bytes(plan: Plan, ep: Array, etp: Array, local_tokens: Array) -> Array:
    """Receive buffers of the dispatcher: sized for all tokens of all ranks of the group (DeepEP,
    Hybrid-EP_Implementation, section 4.2), shared by dispatch and combine; for all-gather, the
    gathered tokens."""
    each = plan.training.element_bytes * plan.model.hidden * local_tokens * ep
    return by_dispatcher(plan, ep, etp, "keeps_received") * np.where(ep > 1, each, 0.0)
