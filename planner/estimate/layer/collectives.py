"""Collectives of one layer and micro-batch: tensor, context and expert parallel."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np

from planner.estimate import communicate
from planner.estimate.communicate import Between, Calls, Collective, collective, place, share_of
from planner.estimate.layer import context, dispatch
from planner.estimate.layer.head import CONTRASTED
from planner.estimate.layer.shape import BothWays, LayerShape, head_columns
from planner.estimate.machine import Machine
from planner.formulas.stages import mtp_layers
from planner.ledger import Array
from planner.specs.parts import Attention, Latent, Mlp, Moe, Part, Traced
from planner.specs.parts.traced import scaled
from planner.specs.polynomial import Polynomial

# of tokens in fp32, for a loss whose columns are split over ranks: the largest logit, the sum of
# exponentials, the logit of the right word (Shoeybi et al. 2019, section 3)
_LOSS_REDUCTIONS, _LOSS_BYTES = 3.0, 4.0


def each_of(collective: Collective, share: float) -> Collective:
    """A collective of a share of the layers, of a mean layer."""
    calls = ("forward", "backward", "hidden_backward", "issued")
    return replace(collective, **{name: share * getattr(collective, name) for name in calls})


def layer_collectives(
    shape: LayerShape,
    m: Machine,
    core: BothWays[Array],
    busy: BothWays[Array],
    shared: BothWays[Array],
) -> tuple[Collective, ...]:
    """All collectives of a layer, given the compute they can hide behind.

    core: seconds of attention; busy: of all compute of the layer; shared: of shared experts.
    """
    collectives = _tensor(shape, m)
    if np.any(shape.cp > 1):
        collectives += context.exchanges(shape, m, core)
    if shape.mix.expert_share > 0 and np.any(shape.ep > 1):
        collectives += (_expert(shape, m, busy, shared),)
    return collectives


def _tensor(shape: LayerShape, m: Machine) -> tuple[Collective, ...]:
    """An all-reduce after attention and after the MLP; under sequence parallelism an all-gather
    before and a reduce-scatter after each (Korthikanti et al. 2022, section 4.2)."""
    sums = [_sums_of(shape, m, size, blocks) for size, blocks in _summed(shape)]
    return *(each for those in sums for each in those), *_sums(shape, m, sums[0][0])


def _summed(shape: LayerShape) -> list[tuple[Array, float]]:
    """(elements that ranks add up, how often in a mean layer): the residual stream once per block,
    where parts side by side share one; of traced blocks the output of each pair of GEMMs. Outputs
    of experts are added up token by token first."""
    mix, hidden = shape.mix, shape.plan.model.hidden
    stream = mix.sums
    others: dict[tuple[Polynomial, int], float] = {}
    for part, count in mix.parts:
        if not isinstance(part, Traced):
            continue
        for gemm in part.rows():
            rows = scaled(part.enters, Fraction(1, gemm.n)) if gemm.groups > 1 else gemm.rows
            if not (rows.is_per_token() and gemm.n == hidden):
                share = count * gemm.times / mix.layers
                others[rows, gemm.n] = others.get((rows, gemm.n), 0.0) + share
                stream -= share
    length = shape.tokens / shape.micro_batch
    sizes = [(n * rows.at(shape.micro_batch, length), x) for (rows, n), x in others.items()]
    return [(shape.tokens * hidden, stream), *sizes]


def _sums_of(
    shape: LayerShape, m: Machine, elements: Array, blocks: float
) -> tuple[Collective, ...]:
    """Collectives of outputs of this many elements."""
    plan, sequence = shape.plan, shape.sequence_parallel
    activation = plan.training.element_bytes * elements
    group = place(shape.tp, 1.0, plan.cluster.tiers)
    several = np.where(shape.tp > 1, 1.0, 0.0)
    exposed = several * (1.0 - m.tensor_hidden * sequence)
    plain, halves = np.where(sequence, 0.0, blocks), np.where(sequence, blocks, 0.0)
    plain_back = np.where(sequence, 0.0, blocks + _reductions_of_their_own(shape))
    # inputs gathered again for weight gradients, beside compute where anything overlaps
    again = np.where(sequence & (shape.tp > 1), blocks, 0.0)
    beside = 0.0 if plan.training.overlap is False else 1.0
    between = Between("tensor", "activations", "tensor_parallel", group)

    def calls(forward: Array, backward: Array, hidden: Array | None = None) -> Calls:
        return Calls(forward * exposed, backward * exposed, hidden, issued=forward * several)

    reduced = communicate.all_reduce_s(m, activation, group)
    gathered = communicate.all_gather_s(m, activation, group)
    scattered = communicate.reduce_scatter_s(m, activation, group)
    gathers = calls(halves, halves + (1 - beside) * again, beside * again)
    return (
        collective(between, "all_reduce", activation, reduced, calls(plain, plain_back)),
        collective(between, "all_gather", activation, gathered, gathers),
        collective(between, "reduce_scatter", activation, scattered, calls(halves, halves)),
    )


def _sums(shape: LayerShape, m: Machine, like: Collective) -> list[Collective]:
    """All-reduces inside parts, whole however the sequence is divided outside them."""
    out: dict[int, float] = {}
    for part, count in shape.mix.parts:
        if part.inner_sums():
            out[part.inner_sums()] = out.get(part.inner_sums(), 0.0) + count / shape.mix.layers
    several = np.where(shape.tp > 1, 1.0, 0.0)
    sums = []
    for width, share in out.items():
        size = shape.plan.training.element_bytes * shape.tokens * width
        seconds = communicate.all_reduce_s(m, size, like.placed)
        calls = share * several
        sums.append(
            replace(
                like,
                what="steering of a scan",
                tensor_bytes=size,
                seconds=seconds,
                forward=calls,
                backward=calls,
                issued=calls,
            )
        )
    return sums


def end_collectives(shape: LayerShape, m: Machine) -> tuple[Collective, ...]:
    """Tensor parallelism of embedding, head and loss, per micro-batch: words are looked up in parts
    of the table and added up, the gradient of the head's input is reduced, and the loss reduces its
    parts of the logits, or ranks gather them whole."""
    plan, sequence = shape.plan, shape.sequence_parallel
    activation = plan.training.element_bytes * shape.tokens * plan.model.hidden
    logits = plan.training.element_bytes * shape.tokens * head_columns(plan, shape.tp) * shape.tp
    group = place(shape.tp, 1.0, plan.cluster.tiers)
    several = np.where(shape.tp > 1, 1.0, 0.0)

    def between(label: str) -> Between:
        return Between("tensor", label, "tensor_parallel", group)

    once, halves = Calls(*(several * ~sequence,) * 2), Calls(*(several * sequence,) * 2)
    none, ends = np.zeros_like(shape.tokens), between("embedding and head")
    reduced = communicate.all_reduce_s(m, activation, group)
    gathered = communicate.all_gather_s(m, activation, group)
    scattered = communicate.reduce_scatter_s(m, activation, group)
    collectives = (
        collective(ends, "all_reduce", activation, reduced, once),
        collective(ends, "all_gather", activation, gathered, halves),
        collective(ends, "reduce_scatter", activation, scattered, halves),
    )
    if plan.stack.activations.gathered_logits:
        seconds, calls = communicate.all_gather_s(m, logits, group), Calls(several + none, none)
        return *collectives, collective(between("logits"), "all_gather", logits, seconds, calls)
    tokens, calls = _LOSS_BYTES * shape.tokens, Calls(_LOSS_REDUCTIONS * several + none, none)
    seconds = communicate.all_reduce_s(m, tokens, group)
    return *collectives, collective(between("loss"), "all_reduce", tokens, seconds, calls)


def contrast_collectives(shape: LayerShape, m: Machine) -> tuple[Collective, ...]:
    """Collectives of a contrastive loss: embeddings of the other ranks' samples, and sums of their
    gradients (gather-with-grad and local loss of OpenCLIP)."""
    plan = shape.plan
    if plan.model.contrast is None:
        return ()
    ranks = plan.cluster.gpus / shape.tp
    group = place(ranks, shape.tp, plan.cluster.tiers)
    samples = ranks * shape.micro_batch
    embedded = CONTRASTED * plan.training.element_bytes * samples * float(plan.model.contrast)
    several, none = np.where(ranks > 1, 1.0, 0.0), 0.0 * ranks
    between = Between("data", "embeddings of samples", "data_parallel", group)
    gathered = communicate.all_gather_s(m, embedded, group)
    summed = communicate.reduce_scatter_s(m, embedded, group)
    return (
        collective(between, "all_gather", embedded, gathered, Calls(several, none)),
        collective(between, "reduce_scatter", embedded, summed, Calls(none, several)),
    )


def module_collectives(shape: LayerShape, m: Machine) -> tuple[Collective, ...]:
    """Tensor parallelism of a module of multi-token prediction: its projection is divided by
    columns, its output gathered, and the gradient of its input, twice as wide, reduced
    (MultiTokenPredictionLayer of Megatron-Core)."""
    if not mtp_layers(shape.plan):
        return ()
    plan, sequence = shape.plan, shape.sequence_parallel
    activation = plan.training.element_bytes * shape.tokens * plan.model.hidden
    group = place(shape.tp, 1.0, plan.cluster.tiers)
    several, none = np.where(shape.tp > 1, 1.0, 0.0), np.zeros_like(shape.tokens)
    halves, plain = several * sequence, several * ~sequence
    wide, label = 2.0 * activation, "projection of multi-token prediction"
    between = Between("tensor", label, "tensor_parallel", group)
    gathered, all_of = (communicate.all_gather_s(m, size, group) for size in (activation, wide))
    scattered = communicate.reduce_scatter_s(m, wide, group)
    reduced = communicate.all_reduce_s(m, wide, group)
    return (
        collective(between, "all_gather", activation, gathered, Calls(several + none, none)),
        collective(between, "all_gather", wide, all_of, Calls(halves + none, halves + none)),
        collective(between, "reduce_scatter", wide, scattered, Calls(none, halves + none)),
        collective(between, "all_reduce", wide, reduced, Calls(none, plain + none)),
    )


def _reductions_of_their_own(shape: LayerShape) -> float:
    """More all-reduces of input gradients per layer where GEMMs that share an input do not share
    its reduction."""
    plan, fusion = shape.plan, shape.plan.stack.fusion
    if not plan.stack.overlap.reduce_each_product:
        return 0.0

    def more(part: Part) -> float:
        if isinstance(part, Attention | Latent):
            return 2.0 * (not fusion.joint_qkv)
        if isinstance(part, Mlp | Moe):
            return (part.inputs - 1.0) * (not fusion.joint_gate)
        return 0.0

    return shape.mix.mean_of(more)


def _expert(
    shape: LayerShape, m: Machine, busy: BothWays[Array], shared: BothWays[Array]
) -> Collective:
    """Tokens go to their experts and come back. Nothing hides that but shared experts or another
    micro-batch, where the stack runs them beside it."""
    plan = shape.plan
    sent = dispatch.one_way(shape, m)
    calls = np.where(shape.ep > 1, dispatch.CALLS * shape.mix.expert_share, 0.0)
    most = dispatch.hidden_share(plan)
    beside_shared = 1.0 if dispatch.beside_shared(plan) else 0.0

    def exposed(busy_s: Array, shared_s: Array) -> Array:
        """Calls that nothing hides; no more is hidden than there is compute."""
        whole = calls * sent.seconds
        hidden = np.minimum(np.maximum(most * whole, beside_shared * shared_s), busy_s)
        return calls * (1 - share_of(np.minimum(hidden, whole), whole))

    forward = exposed(busy.forward, shared.forward)
    backward = exposed(busy.backward, shared.backward)
    return collective(
        Between("expert", "routed tokens", "expert_parallel", sent.group),
        "all_to_all",
        sent.sent_bytes,
        sent.seconds,
        Calls(forward, backward, 2 * calls - forward - backward, calls),
    )
