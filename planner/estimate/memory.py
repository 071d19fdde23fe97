"""Peak memory of every layout, stage by stage and phase by phase: the answer is the worst of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planner import schedules
from planner.estimate import sync
from planner.estimate.layer import padded_vocab
from planner.estimate.states import RankParameters, rank_parameters
from planner.estimate.table import Table
from planner.formulas import memory
from planner.formulas.data_parallel import shard_count
from planner.ledger import Array, Ledger, total
from planner.specs.layout import OFFLOADS, RECOMPUTE_KINDS, SCHEDULES
from planner.specs.plan import Plan

PHASES = ("forward and loss", "backward", "optimizer step")

# bytes per parameter of what an optimizer keeps besides the fp32 master copy: two fp32 moments; 8-bit moments with block
# statistics (Dettmers 2021, arXiv 2110.02861); Adafactor's row and column means are negligible beside a matrix
MOMENT_BYTES = {"adam": 8.0, "adam8bit": 2.03, "adafactor": 0.01, "sgd": 0.0, "sgd-momentum": 4.0}

_COMMUNICATOR_BYTES = 0.15 * 2**30  # NCCL channels and buffers of one communicator, assumed (16 channels x 4 MiB and proxies)
_SCORE_BYTES = {"fused_softmax": (2.0, 5.0), "eager": (4.0, 6.0)}  # per score: without, with attention dropout
_PREFETCH_LAYERS = 2.0  # a layer in use and the next one, gathered ahead


@dataclass(frozen=True)
class Memory:
    """Bytes per GPU. Arrays are (rows,) for the worst stage; `stages` keeps the per-stage peaks, (stages, rows)."""

    peak: Array
    components: Ledger
    reserved: Array
    device: Array  # what nvidia-smi shows: reserved, context and communicators
    context: Array
    communicators: Array
    worst_stage: Array
    worst_phase: Array
    stages: Array  # stage numbers evaluated
    stage_peaks: Array
    stage_components: list[Ledger]  # of the worst phase, one ledger of rows per stage
    host: Array  # bytes in host memory per GPU
    layer_bytes: Array  # activations of one layer and micro-batch without recompute
    input_bytes: Array  # the input of one layer


def representative_stages(pp: Array) -> Array:
    """First, second and last stage: on uniform stages one of them is the worst. Shape (3, rows)."""
    return np.stack([np.zeros_like(pp), np.minimum(1.0, pp - 1), pp - 1])


def layer_activations(plan: Plan, c: Table) -> Ledger:
    """Bytes that one mean layer keeps for backward, by operator, without recompute."""
    model, stack, training = plan.model, plan.stack, plan.training
    e = 4.0 if training.precision in ("fp32", "tf32") else 2.0
    wide = e / 2
    tp = c["tp"]
    tokens = c["micro_batch"] * training.seq_len / c["cp"]
    local = tokens / np.where(c["sequence_parallel"] > 0, tp, 1.0)
    h = float(model.hidden)
    eager_norm = not _fused_norm(plan)
    norm = 2.0 if not eager_norm else max(stack.activations.norm, 6.0)
    out: Ledger = {"norm": memory.norm_kept_bytes(local, h, float(model.norms_per_layer), norm * wide)}
    gathered = stack.activations.gathered_inputs
    whole = gathered == "always" or ((gathered == "without pipeline") & (c["pp"] == 1))
    inputs = np.where(whole, tokens, local)
    out["attention/input"] = memory.product_input_bytes(inputs, h, e)
    if model.latent is None:
        width = float(model.heads * model.head_dim)
        copies = e + stack.activations.qkv_copies * wide
        pairs = 2.0 * np.maximum(model.kv_heads, tp) * model.head_dim
        out["attention/qkv"] = memory.projected_bytes(tokens, width + pairs, copies, tp)
    else:
        mla = model.latent
        width = float(model.heads * mla.value_head_dim)
        low = float((mla.query_rank or 0) + mla.kv_rank + mla.rope_head_dim)
        high = float(model.heads * (2 * mla.nope_head_dim + mla.rope_head_dim + mla.value_head_dim + mla.rope_head_dim))
        out["attention/latent"] = memory.product_input_bytes(local, 2 * low, e)
        out["attention/qkv"] = memory.projected_bytes(tokens, high, e, tp)
    attention = training.attention or stack.fusion.attention
    score = 0.0 if attention.startswith("flash") else _SCORE_BYTES[attention][int(model.dropout)] * wide
    keys = float(training.seq_len)
    out["attention/core"] = memory.attention_core_bytes(tokens, float(model.heads), keys, score + 0 * tp, tp)
    out["attention/output"] = memory.projected_bytes(tokens, width, e, tp)
    if model.dropout:
        out["dropout"] = memory.dropout_mask_bytes(local, h, 2.0)
    kept = (stack.activations.mlp_gated if model.mlp == "gated" else stack.activations.mlp_plain) * wide
    share = model.moe_layers / model.layers
    if share < 1:
        out["mlp/input"] = (1 - share) * memory.product_input_bytes(inputs, h, e)
        out["mlp/hidden"] = (1 - share) * memory.mlp_kept_bytes(tokens, float(model.ffn_hidden), kept, tp)
    if model.moe is not None and share > 0:
        routed = tokens * model.moe.experts_per_token
        out["moe/input"] = share * memory.product_input_bytes(inputs, h, e)
        out["moe/routed"] = share * memory.product_input_bytes(routed, 2 * h, e)
        widths = memory.mlp_kept_bytes(routed, float(model.moe.ffn_hidden), kept, tp)
        out["moe/hidden"] = share * (widths + memory.mlp_kept_bytes(tokens, float(model.moe.shared_ffn_hidden), kept, tp))
    return out


def _fused_norm(plan: Plan) -> bool:
    if plan.model.norm == "layernorm":
        return True
    chosen = plan.training.fused_norm
    return plan.stack.fusion.fused_norm if chosen is None else chosen


def _selective_saving(plan: Plan, c: Table, kept: Ledger) -> Array:
    """Bytes per layer that selective recompute no longer keeps."""
    if plan.training.selective == "attention":
        return kept["attention/core"]
    # torchtitan's rule keeps the layer input, attention output and every second product (q, v, gate, down)
    e, model = 2.0, plan.model
    tokens = c["micro_batch"] * plan.training.seq_len / c["cp"]
    widths = 3 * model.hidden + model.heads * model.head_dim / c["tp"] * 2 + model.kv_heads * model.head_dim / c["tp"]
    widths = widths + model.ffn_hidden / c["tp"]
    return np.maximum(total(kept) - e * tokens * widths - kept["attention/core"], 0.0)


def _activations(plan: Plan, c: Table, stage: Array, layers: Array) -> tuple[Array, Array, Array, Array]:
    """(kept through the schedule, working set of a repeated group, one layer without recompute, one layer's input)."""
    kept = layer_activations(plan, c)
    whole = total(kept)
    e = 4.0 if plan.training.precision in ("fp32", "tf32") else 2.0
    tokens = c["micro_batch"] * plan.training.seq_len / c["cp"]
    local = tokens / np.where(c["sequence_parallel"] > 0, c["tp"], 1.0)
    one_input = memory.product_input_bytes(local, float(plan.model.hidden), e)
    code = RECOMPUTE_KINDS.index
    kind, size = c["recompute"], np.maximum(c["recompute_size"], 1.0)
    block = np.where(layers > 0, np.minimum(size / np.maximum(layers, 1e-9), 1.0), 0.0)
    per_layer = np.select(
        [kind == code("selective"), kind == code("full"), kind == code("block"), kind == code("group")],
        [
            whole - _selective_saving(plan, c, kept),
            one_input,
            block * one_input + (1 - block) * whole,
            one_input / size,
        ],
        whole,
    )
    working = np.select(
        [kind == code("selective"), kind == code("full"), kind == code("block"), kind == code("group")],
        [
            whole - (whole - _selective_saving(plan, c, kept)),
            whole,
            whole,
            np.minimum(size, np.maximum(layers, 1.0)) * whole,
        ],
        np.zeros_like(whole),
    )
    microbatches = plan.training.global_batch / (c["dp"] * c["micro_batch"])
    chunks = schedules.live_chunks(SCHEDULES, c["schedule"], stage, c["pp"], c["vpp"], microbatches)
    return chunks / c["vpp"] * layers * per_layer, working, whole, one_input


def state_ledger(plan: Plan) -> dict[str, float]:
    """Bytes per parameter: parameters, gradients, optimizer (fp32 master copy and moments)."""
    training, state = plan.training, plan.stack.state
    moments = MOMENT_BYTES[training.optimizer] if training.moment_bytes is None else training.moment_bytes
    if training.precision in ("fp32", "tf32"):
        return {"parameters": 4.0, "gradients": 4.0, "optimizer": moments}
    return {"parameters": state.parameter, "gradients": state.gradient, "optimizer": state.master + moments}


def _one_stage(plan: Plan, c: Table, p: RankParameters, stage: Array, layers: Array) -> tuple[list[Ledger], Array, Array, Array]:
    """Ledgers of the phases of one stage, host bytes, bytes of one layer and of its input."""
    stack, training = plan.stack, plan.training
    first, last = (stage == 0) * 1.0, (stage == c["pp"] - 1) * 1.0
    shared, experts = p.shared(layers, first, last), layers * p.experts
    replicas = c["dp"] * c["cp"]
    shard = np.where(c["zero"] >= 1, np.minimum(c["shard_group"], replicas), 1.0)
    expert_shard = np.maximum(np.minimum(shard, replicas / c["ep"]), 1.0)
    ledger = state_ledger(plan)
    dual = np.where(c["schedule"] == SCHEDULES.index("dualpipe"), 2.0, 1.0)  # two directions, two copies of the parameters

    def state(name: str, level: float) -> Array:
        cut = memory.state_bytes(shared, ledger[name], shard_count(c["zero"], level, shard))
        return cut + memory.state_bytes(experts, ledger[name], shard_count(c["zero"], level, expert_shard))

    away_optimizer = c["offload"] != OFFLOADS.index("none")
    away_params = c["offload"] == OFFLOADS.index("params")
    parameters, gradients, optimizer = state("parameters", 3.0) * dual, state("gradients", 2.0), state("optimizer", 1.0)
    host = np.where(away_optimizer, optimizer + gradients, 0.0) + np.where(away_params, parameters, 0.0)
    optimizer = np.where(away_optimizer, 0.0, optimizer)
    if stack.offload_update == "cpu":  # the CPU updates: sharded gradients leave for host memory layer by layer
        in_flight = 2 * p.per_layer() * ledger["gradients"] / shard_count(c["zero"], 2.0, shard)
        gradients = np.where(away_optimizer & (c["zero"] >= 2), np.minimum(in_flight, gradients), gradients)
    parameters = np.where(away_params & (c["zero"] >= 3), 0.0, parameters)

    kept, working, whole, one_input = _activations(plan, c, stage, layers)
    left = np.maximum(whole - working, one_input)  # of the first layer, when all gradients are there
    tokens = c["micro_batch"] * training.seq_len / c["cp"]
    fused_loss = training.fused_cross_entropy
    per_logit = 2.0 if fused_loss else stack.activations.logits
    logits = memory.logits_bytes(tokens, padded_vocab(plan, c["tp"]), per_logit, c["tp"]) * last

    low = training.precision not in ("fp32", "tf32")
    narrow, wire = sync.compute_bytes(plan), sync.wire_bytes(plan)
    zero3 = c["zero"] >= 3
    layer = p.per_layer()
    root = first * total(p.first) + last * total(p.last)
    gathered = np.where(zero3, narrow * (root + _PREFETCH_LAYERS * layer), 0.0)
    reducing = np.where(zero3, (narrow + wire) * layer, np.where(c["zero"] == 2, narrow * layer, 0.0))
    several = np.where(replicas > 1, 1.0, 0.0)
    buckets = several * (stack.state.fixed_buckets + np.where(stack.state.bucket_copy, wire * (shared + experts), 0.0))
    cast = np.where(stack.state.cast_copy & low & (c["zero"] < 3), 2.0 * (shared + experts), 0.0)
    several_passes = training.global_batch / (c["dp"] * c["micro_batch"]) > 1
    standing = np.where(stack.state.persistent_gradients | several_passes, gradients, 0.0)
    temporary = stack.state.optimizer_temporary * (shared + experts) / shard_count(c["zero"], 1.0, shard)
    temporary = np.where(away_optimizer & (stack.offload_update == "cpu"), 0.0, temporary)

    base: Ledger = {"parameters": parameters, "optimizer": optimizer}
    forward = {**base, "gradients": standing, "activations": kept, "recompute_working_set": working, "logits": logits,
               "gathered_layers": gathered, "communication_buckets": buckets, "cast_copies": cast,
               "optimizer_temporaries": 0.0 * kept}  # fmt: skip
    backward = {**base, "gradients": gradients, "activations": np.minimum(kept, left), "recompute_working_set": working,
                "logits": 0.0 * kept, "gathered_layers": gathered + reducing, "communication_buckets": buckets,
                "cast_copies": cast, "optimizer_temporaries": 0.0 * kept}  # fmt: skip
    step = {**base, "gradients": gradients, "activations": 0.0 * kept, "recompute_working_set": 0.0 * kept,
            "logits": 0.0 * kept, "gathered_layers": 0.0 * kept, "communication_buckets": buckets, "cast_copies": 0.0 * kept,
            "optimizer_temporaries": temporary}  # fmt: skip
    return [forward, backward, step], host, whole, one_input


def peak_memory(plan: Plan, c: Table, stage_layers: Array, last_layers: Array, stages: Array | None = None) -> Memory:
    """Peak per GPU of every layout over the given stages (by default those that can be the worst)."""
    rows = len(c["tp"])
    stages = representative_stages(c["pp"]) if stages is None else stages
    count = len(stages)
    many = {name: np.tile(column, count) for name, column in c.items()}  # one row per layout and stage
    stage = np.broadcast_to(stages, (count, rows)).reshape(-1)
    layers = np.where(stage == many["pp"] - 1, np.tile(last_layers, count), np.tile(stage_layers, count))
    phases, host, whole, one_input = _one_stage(plan, many, rank_parameters(plan, many), stage, layers)
    sums = np.stack([total(phase) for phase in phases])
    phase = sums.argmax(axis=0)
    tops = sums.max(axis=0).reshape(count, rows)
    leaves = {
        name: np.choose(phase, [np.broadcast_to(one[name], phase.shape) for one in phases]).reshape(count, rows)
        for name in phases[0]
    }
    worst = (tops >= tops.max(axis=0) * (1 - 1e-12)).argmax(axis=0)  # the first of equals
    at = (worst, np.arange(rows))
    peak, components = tops[at], {name: leaf[at] for name, leaf in leaves.items()}
    reserved = memory.reserved_bytes(peak, float(plan.stack.fragmentation_frac))
    context = np.full(rows, float(plan.cluster.gpu.context_memory))
    groups = sum((c[name] > 1) * 1.0 for name in ("tp", "pp", "dp", "cp", "ep"))
    communicators = groups * _COMMUNICATOR_BYTES
    return Memory(
        peak=peak,
        components=components,
        reserved=reserved,
        device=reserved + context + communicators,
        context=context,
        communicators=communicators,
        worst_stage=stage.reshape(count, rows)[at],
        worst_phase=phase.reshape(count, rows)[at],
        stages=stages,
        stage_peaks=tops,
        stage_components=[{name: leaf[i] for name, leaf in leaves.items()} for i in range(count)],
        host=host.reshape(count, rows).max(axis=0),
        layer_bytes=whole[-rows:],
        input_bytes=one_input[-rows:],
    )
