"""Collectives of one layer and micro-batch: tensor, context and expert parallel."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planner.estimate import communicate
from planner.estimate.communicate import Group, place, share_of
from planner.estimate.layer.shape import BothWays, LayerShape
from planner.estimate.machine import Machine
from planner.formulas import collectives as formulas
from planner.ledger import Array
from planner.specs.plan import Plan

_RING_HIDDEN = 0.7  # share of attention that can hide the next keys and values; assumed
# keys and values travel forward; backward they travel again, with their gradients
_RING_PASSES = BothWays(1.0, 2.0)
_DISPATCH_AND_COMBINE = 2.0  # all-to-alls of a layer with experts, each way


@dataclass(frozen=True)
class Collective:
    """A collective of one layer and micro-batch."""

    operation: str
    group: str
    what: str
    component: str
    tensor_bytes: Array
    seconds: Array  # one call
    forward: Array  # exposed calls (or shares of one) in forward
    backward: Array
    hidden_backward: Array  # calls in backward that overlap with compute
    issued: Array  # calls the CPU issues in one direction, hidden or not
    placed: Group

    @property
    def forward_s(self) -> Array:
        """Seconds of forward that nothing hides."""
        return self.forward * self.seconds

    @property
    def backward_s(self) -> Array:
        """Seconds of backward that nothing hides."""
        return self.backward * self.seconds


def layer_collectives(
    shape: LayerShape, m: Machine, core: BothWays[Array], busy: BothWays[Array]
) -> tuple[Collective, ...]:
    """All collectives of a layer, given the compute they can hide behind.

    core: seconds of attention; busy: of all compute of the layer.
    """
    found = _tensor(shape, m)
    if np.any(shape.cp > 1):
        found += (_context(shape, m, core),)
    if shape.plan.model.expert_share > 0 and np.any(shape.ep > 1):
        found += (_expert(shape, m, busy),)
    return found


def tensor_blocks(plan: Plan) -> float:
    """Collectives of tensor parallelism per layer and pass: attention and MLP share one where they
    run in parallel."""
    return 1.0 if plan.model.parallel_block else 2.0


def _tensor(shape: LayerShape, m: Machine) -> tuple[Collective, ...]:
    """An all-reduce after attention and after the MLP; under sequence parallelism an all-gather
    before and a reduce-scatter after each (Korthikanti et al. 2022, section 4.2)."""
    plan, sequence = shape.plan, shape.sequence_parallel
    activation = plan.training.element_bytes * shape.tokens * plan.model.hidden
    group = place(shape.tp, 1.0, plan.cluster.nvlink_domain)
    several = np.where(shape.tp > 1, 1.0, 0.0)
    exposed = several * (1.0 - m.tensor_hidden * sequence)
    blocks = tensor_blocks(plan)
    plain, halves = np.where(sequence, 0.0, blocks), np.where(sequence, blocks, 0.0)
    plain_back = np.where(sequence, 0.0, blocks + _reductions_of_their_own(plan))
    # inputs gathered again for weight gradients, beside compute where anything overlaps
    again = np.where(sequence & (shape.tp > 1), blocks, 0.0)
    beside = 0.0 if plan.training.overlap is False else 1.0
    none = np.zeros_like(shape.tokens)

    def collective(
        operation: str, seconds: Array, forward: Array, backward: Array, hidden: Array
    ) -> Collective:
        return Collective(
            operation=operation,
            group="tensor",
            what="activations",
            component="tensor_parallel",
            tensor_bytes=activation,
            seconds=seconds,
            forward=forward * exposed,
            backward=backward * exposed,
            hidden_backward=hidden,
            issued=forward * several,
            placed=group,
        )

    reduced = communicate.all_reduce_s(m, activation, group)
    gathered = communicate.all_gather_s(m, activation, group)
    scattered = communicate.reduce_scatter_s(m, activation, group)
    return (
        collective("all_reduce", reduced, plain, plain_back, none),
        collective("all_gather", gathered, halves, halves + (1 - beside) * again, beside * again),
        collective("reduce_scatter", scattered, halves, halves, none),
    )


def _reductions_of_their_own(plan: Plan) -> float:
    """More all-reduces of input gradients per layer where GEMMs that share an input do not share
    its reduction."""
    fusion = plan.stack.fusion
    if not plan.stack.overlap.reduce_each_product:
        return 0.0
    return 2.0 * (not fusion.joint_qkv) + (plan.model.mlp_inputs - 1.0) * (not fusion.joint_gate)


def _context(shape: LayerShape, m: Machine, core: BothWays[Array]) -> Collective:
    """Keys and values pass around a ring while attention works on the part at hand."""
    plan, model = shape.plan, shape.plan.model
    mla = model.latent
    per_token = (
        float(mla.kv_rank + mla.rope_head_dim)
        if mla
        else 2.0 * model.kv_heads * model.head_dim / shape.tp
    )
    keys = plan.training.element_bytes * shape.tokens * per_token * shape.cp
    ring = place(shape.cp, shape.tp, plan.cluster.nvlink_domain)
    each = communicate.all_gather_s(m, keys, ring)
    once = np.where(shape.cp > 1, 1.0, 0.0)
    hides = 0.0 if plan.training.overlap is False else _RING_HIDDEN

    def exposed(beside_s: Array) -> Array:
        """Share of one pass around the ring that attention on the part at hand does not hide."""
        rest = np.maximum(each - hides * beside_s, 0.0)
        return share_of(once * (rest + m.slowdown * np.minimum(each, beside_s)), each)

    forward = _RING_PASSES.forward * exposed(core.forward)
    backward = _RING_PASSES.backward * exposed(core.backward / _RING_PASSES.backward)
    passes = _RING_PASSES.forward + _RING_PASSES.backward
    return Collective(
        operation="all_gather",
        group="context",
        what="keys and values",
        component="context_parallel",
        tensor_bytes=keys,
        seconds=each,
        forward=forward,
        backward=backward,
        hidden_backward=np.maximum(passes * once - forward - backward, 0.0),
        issued=once,
        placed=ring,
    )


def _expert(shape: LayerShape, m: Machine, busy: BothWays[Array]) -> Collective:
    """Tokens go to their experts and come back; no more hides than there is compute."""
    plan, moe = shape.plan, shape.plan.model.moe
    assert moe is not None
    per_token = float(moe.experts_per_token)
    each_token = plan.training.element_bytes * moe.experts_per_token * plan.model.hidden
    routed = each_token * shape.local_tokens
    ring = place(shape.ep, shape.tp, plan.cluster.nvlink_domain)
    limit = float(moe.group_limit or per_token)  # a token has no more copies than experts
    remote = formulas.remote_copies_frac(ring.nodes, per_token, limit)
    if "shared_copies" in m.without:
        remote = np.ones_like(remote)
    each = communicate.all_to_all_s(m, routed, ring, remote)
    # experts are split by tensor parallelism: what their ranks received apart they need whole
    split = place(shape.tp, np.ones_like(shape.tp), plan.cluster.nvlink_domain)
    whole = communicate.all_gather_s(m, each_token * shape.tokens, split)
    each = each + np.where(shape.sequence_parallel & (shape.tp > 1), whole, 0.0)
    calls = np.where(shape.ep > 1, _DISPATCH_AND_COMBINE * plan.model.expert_share, 0.0)
    least = 1.0 if plan.training.overlap is False else float(plan.stack.overlap.expert_exposed)

    def exposed(busy_s: Array) -> Array:
        return calls * np.maximum(least, 1 - share_of(busy_s, calls * each))

    forward, backward = exposed(busy.forward), exposed(busy.backward)
    return Collective(
        operation="all_to_all",
        group="expert",
        what="routed tokens",
        component="expert_parallel",
        tensor_bytes=routed,
        seconds=each,
        forward=forward,
        backward=backward,
        hidden_backward=2 * calls - forward - backward,
        issued=calls,
        placed=ring,
    )
