"""Time and memory of an engine that generates text on some of a plan's GPUs: a roofline of weights,
cache of keys and values, and collectives, with the machine's own kernels."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from planner.estimate import inference
from planner.estimate.communicate import all_reduce_s, place
from planner.estimate.layer.gemm import UNALIGNED_WEIGHT, gemm_at_rate_s
from planner.estimate.machine import Machine, machine
from planner.formulas import generation, kernels
from planner.formulas.params import parameter_count, stream_of
from planner.ledger import Array, Sourced
from planner.specs.base import PlanError
from planner.specs.layers import layers_of, mix_of
from planner.specs.parts import Moe, Product
from planner.specs.plan import Plan

_BYTES = 2.0  # of an activation, and of an element of the cache
# kernels of a layer beside GEMMs, in a replayed graph: two norms, rotation, writing the cache,
# attention and the sum of its parts, activation; of experts: router, sorting, activation and sum
_KERNELS, _EXPERT_KERNELS = 7.0, 5.0
# what a layer of experts takes beyond these: MiniMax-M2.5 and Qwen3-235B in 8 bit at 4 sequences
_EXPERT_WAIT = Sourced(
    25e-6,
    "s",
    "measured",
    "token time of served mixtures of experts minus kernels and host: 17 us (SGLang, H200) to 30"
    " and 40 us (vLLM, H200, B200) per layer; silicon_sample.csv of ai-dynamo/aiconfigurator",
    "2026-11",
)
CHUNK_TOKENS = 8192.0  # of prompts in one pass, max_num_batched_tokens of vLLM
GREEDY_BYTES = 16.0  # per word and sequence of a token: logits in fp32, soft-maxed and compared
# the same where tokens are drawn and their log-probabilities returned, counted in vLLM's sampler
# (vllm/v1/sample/sampler.py at 00ec9781, ops/topk_topp_sampler.py at 01fa3fe7): to fp32 6,
# log-softmax 12, temperature 8, softmax 12, exponential noise 4, division 12, argmax 4, ranks of
# the drawn words 4
DRAWN_BYTES = 62.0
_ONE_SHOT = Sourced(
    5e-6, "s", "measured", "ai-dynamo/aiconfigurator, custom_allreduce of vLLM 0.24.0", "2026-11"
)


@dataclass(frozen=True)
class Engine:
    """How text is generated: GPUs of one engine, its number format and its limits."""

    tp: int
    weight_bytes: float  # per parameter
    budget_frac: float  # of the device's memory
    most_sequences: int  # that one engine runs at a time
    step_s: float  # on the CPU between two passes
    sequence_s: float  # the same per sequence
    sample_bytes: float = GREEDY_BYTES
    in_process: bool = False  # in the trainer, in the memory that it leaves
    shares_weights: bool = False  # with the trainer, which holds them whole


def pass_s(
    plan: Plan,
    m: Machine,
    engine: Engine,
    tokens: Array,
    cached: Array,
    sequences: Array | None = None,
) -> Array:
    """GPU seconds of a forward pass over `tokens` new tokens that read `cached` tokens of KV cache
    in total. sequences: number that sample a next token; None: one per token."""
    rows = np.asarray(tokens, float)
    last = rows if sequences is None else np.asarray(sequences, float)
    seconds = 0.0 * rows
    model, layers = plan.model, layers_of(plan.model)
    for kind, count in zip(layers.kinds, layers.counts, strict=True):
        stream = stream_of(model, kind)
        for part in kind.parts:
            part_s = _KERNELS / len(kind.parts) * m.kernel_gap + 0.0 * rows
            for product in part.products(stream):
                part_s = part_s + _product_s(m, engine, product, rows)
            if isinstance(part, Moe):
                part_s = part_s + _experts_s(plan, m, engine, part, rows)
            seconds = seconds + count * part_s
    read = inference.sequence_bytes(model, np.asarray(cached, float), engine.tp)
    seconds = seconds + _moved_s(m, read)
    head = _gemm_s(m, engine, last, model.padded_vocab / engine.tp, float(model.hidden), 1.0)
    sampled = _moved_s(m, engine.sample_bytes * last * model.padded_vocab / engine.tp)
    mix = mix_of(model)
    sums = mix.layers * mix.blocks * _all_reduce_s(plan, m, engine, _BYTES * rows * model.hidden)
    return seconds + head + sampled + sums


def step_s(plan: Plan, m: Machine, engine: Engine, sequences: Array, context: Array) -> Array:
    """Seconds of one decoding step of a batch of sequences with this mean context."""
    gpu = pass_s(plan, m, engine, sequences, sequences * context)
    return generation.decode_step_s(gpu, sequences, engine.step_s, engine.sequence_s)


def serve_s(plan: Plan, batch: Array, gpus: Array, field: str) -> Array:
    """Seconds in which engines on this many GPUs give the probabilities of every token of this many
    sequences: each on as few GPUs as hold the weights, a power of two of them. Raises PlanError
    where they hold no engine. field: the option that says how many there are."""
    weights = _BYTES * parameter_count(plan.model)
    room = inference.BUDGET_FRAC * float(plan.cluster.gpu.usable_memory)
    tp = 2 ** max(0, math.ceil(math.log2(weights / room)))
    least = int(np.min(gpus))
    if tp > least:
        remedy = f"do not hold the weights of {plan.model.name}; take {tp} or more"
        raise PlanError(field, least, remedy)
    engine = Engine(tp, _BYTES, inference.BUDGET_FRAC, 1, 0.0, 0.0)
    tokens = batch * plan.training.seq_len
    chunk = np.minimum(CHUNK_TOKENS, tokens)
    return tokens / chunk * pass_s(plan, machine(plan), engine, chunk, chunk) * tp / gpus


def _product_s(m: Machine, engine: Engine, product: Product, rows: Array) -> Array:
    k = product.k / engine.tp if product.split == "rows" else float(product.k)
    n = product.n.local(float(engine.tp)) if product.split == "columns" else product.n.elements
    return _gemm_s(m, engine, rows, product.times * n, k, 1.0)


def _experts_s(plan: Plan, m: Machine, engine: Engine, moe: Moe, rows: Array) -> Array:
    touched = generation.touched_experts(rows, float(moe.experts), moe.per_token)
    each = np.maximum(rows * moe.per_token / touched, 1.0)
    read, width = float(moe.read(plan.model.hidden)), moe.ffn_hidden / engine.tp
    return (
        _gemm_s(m, engine, each, moe.inputs * width, read, touched)
        + _gemm_s(m, engine, each, read, width, touched)
        + _EXPERT_KERNELS * m.kernel_gap
        + _EXPERT_WAIT
    )


def _gemm_s(m: Machine, engine: Engine, rows: Array, n: Array, k: Array, batch: Array) -> Array:
    low = engine.weight_bytes < _BYTES
    return gemm_at_rate_s(
        m,
        (rows, n, k, batch),
        m.dense_rate * m.recipe_frac if low else m.wide_rate,
        engine.weight_bytes,
        alignment=kernels.alignment_frac(n, k, engine.weight_bytes, UNALIGNED_WEIGHT),
    )


def _moved_s(m: Machine, moved: Array) -> Array:
    return kernels.elementwise_s(
        moved,
        1.0,
        memory_bytes_per_s=m.memory_bandwidth,
        elementwise_frac=m.gemm_memory_frac,
        gap_s=m.kernel_gap,
    )


def _all_reduce_s(plan: Plan, m: Machine, engine: Engine, message: Array) -> Array:
    """The faster of a one-shot kernel inside a host, whose ranks map each other's memory
    (in_the_same_node_as in custom_all_reduce.py of vLLM), and the library's."""
    ranks = float(engine.tp)
    group = place(ranks, 1.0, plan.cluster.tiers)
    library = all_reduce_s(m, message, group)
    if engine.tp > min(plan.cluster.tiers.domain, plan.cluster.gpus_per_host):
        return library
    one_shot = generation.one_shot_all_reduce_s(
        message, ranks, base_s=_ONE_SHOT, bytes_per_s=m.intra_bandwidth
    )
    return np.minimum(library, one_shot)


def weight_bytes(plan: Plan, engine: Engine) -> float:
    """Bytes of weights on one GPU of an engine."""
    return engine.weight_bytes * parameter_count(plan.model) / engine.tp
