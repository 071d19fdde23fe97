"""nanotron: its YAML.

Names: src/nanotron/config/ at 2411b022 (2026-04); its models are Llama's and Qwen2's blocks, with
or without experts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from planner.formats.record import Answer, Argument, Format, Value, unread
from planner.formats.target import PlanToWrite, Target, as_comments, nested, theirs
from planner.inputs.readers import yaml_places, yaml_text
from planner.specs.decoder import decoder_of
from planner.specs.options.aliases import words

_FILE = "config.yaml"
_P, _T, _M = "parallelism.", "tokens.", "model.model_config."
_FACTORY = "optimizer.optimizer_factory."
_DETECT = re.compile(r"(?m)^\s+batch_accumulation_per_replica\s*:")
_FLASH = "flash_attention_2"


def _parse(text: str) -> Mapping[str, Value]:
    return {name: Value(value, line) for name, (value, line) in yaml_places(text).items()}


_TABLE = (
    Argument(f"{_P}dp", "dp"),
    Argument(f"{_P}pp", "pp"),
    Argument(f"{_P}tp", "tp"),
    Argument(f"{_P}context_parallel_size", "cp", default=1),
    Argument(
        f"{_P}recompute_layer", "recompute", words={True: "full", False: "none"}, default=False
    ),
    Argument("optimizer.zero_stage", "zero"),
    Argument(f"{_T}sequence_length", "seq_len"),
    Argument(f"{_T}micro_batch_size", "micro_batch"),
    Argument(f"{_FACTORY}name", "optimizer", words=words("optimizers", "nanotron")),
    Argument(f"{_M}num_hidden_layers", "model.layers"),
    Argument(f"{_M}hidden_size", "model.hidden"),
    Argument(f"{_M}num_attention_heads", "model.heads"),
    Argument(f"{_M}num_key_value_heads", "model.kv_heads"),
    Argument(f"{_M}intermediate_size", "model.ffn_hidden"),
    Argument(f"{_M}vocab_size", "model.vocab"),
    Argument(f"{_M}max_position_embeddings", "model.max_positions"),
    Argument(f"{_M}tie_word_embeddings", "model.tied_embeddings"),
    Argument("model.make_vocab_size_divisible_by", "model.vocab_multiple"),
    Argument(f"{_M}moe_config.num_experts", "model.moe.experts"),
    Argument(f"{_M}moe_config.top_k", "model.moe.experts_per_token"),
    Argument(f"{_M}moe_config.moe_intermediate_size", "model.moe.ffn_hidden"),
)
_BF16 = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32", "float": "fp32"}
_GATHERED = "llama3_ring_attention"  # gathers keys and values of all ranks
_ATTENTION = {
    _FLASH: "flash2",
    "sdpa": "flash2",
    "flex_attention": "flash2",
    _GATHERED: "flash2",
    "ring": "flash2",
    "ring_flash_triton": "flash2",
    "eager": "eager",
}


def _more(values: Mapping[str, Value], answer: Answer) -> None:
    answer.imply("stack", "nanotron", "nanotron")
    degrees = [answer.option(name) or 1 for name in ("dp", "tp", "pp", "cp")]
    if answer.option("dp") is not None:
        gpus = degrees[0] * degrees[1] * degrees[2] * degrees[3]
        answer.imply("gpus", gpus, "product of the degrees")
    _batch(answer, degrees[0])
    _parallel(answer, degrees[1], degrees[2])
    precision = _BF16.get(str(answer.get("model.dtype", "bfloat16")))
    answer.imply("precision", precision, "type of weights", "model.dtype")
    if answer.get("optimizer.accumulate_grad_in_fp32") is False and precision == "bf16":
        answer.state("gradient_precision", "bf16", "optimizer.accumulate_grad_in_fp32")
    answer.mark("optimizer.accumulate_grad_in_fp32", "implied", "as nanotron does")
    _shape(answer)


def _batch(answer: Answer, dp: int) -> None:
    name = f"{_T}batch_accumulation_per_replica"
    micro, count = answer.option("micro_batch"), answer.get(name)
    if micro and count:
        answer.imply("global_batch", micro * count * dp, "micro-batch x accumulation x dp", name)
        answer.mark(name, "read")
    steps, seq_len = answer.get(f"{_T}train_steps"), answer.option("seq_len")
    if steps and micro and count and seq_len:
        tokens = steps * micro * count * dp * seq_len
        answer.state("tokens", tokens, f"{_T}train_steps", "steps x tokens a step")


def _parallel(answer: Answer, tp: int, pp: int) -> None:
    """Arguments that act only beside tensor, pipeline or expert parallelism."""
    mode, overlap = f"{_P}tp_mode", f"{_P}tp_linear_async_communication"
    scatter = str(answer.get(mode, "ALL_REDUCE")).upper() == "REDUCE_SCATTER"
    if tp > 1:
        answer.imply("sequence_parallel", scatter, "by tp_mode", mode)
        if scatter and overlap in answer.values:
            way = None if answer.get(overlap) else "none"  # on is what the profile of nanotron has
            answer.imply("tp_overlap", way, "of tensor-parallel collectives", overlap)
    for name in (mode, overlap, f"{_P}tp_recompute_allgather"):
        answer.mark(name, "implied", "no tensor parallelism, or as nanotron does")
    engine = f"{_P}pp_engine"
    if pp > 1:
        schedule = "1f1b" if str(answer.get(engine, "afab")) == "1f1b" else "gpipe"
        answer.imply("schedule", schedule, "afab where none is named", engine)
    answer.mark(engine, "irrelevant", "no pipeline")
    experts = f"{_P}expert_parallel_size"
    if (answer.get(experts) or 1) > 1:
        answer.state("ep", answer.get(experts), experts)
    answer.mark(experts, "implied", "1: experts are not shared out")


def _shape(answer: Answer) -> None:
    """Fields of the model without an argument of the same meaning; nanotron's blocks are
    Llama's."""
    if answer.option("model.hidden") is None:
        return
    for field, value in (("mlp", "gated"), ("norm", "rmsnorm"), ("positions", "rotary")):
        answer.imply(f"model.{field}", value, "blocks of Llama and Qwen2")
    if answer.get(f"{_M}attention_bias"):
        answer.state("model.bias_qkv", True, f"{_M}attention_bias")
    window = f"{_M}sliding_window_size"
    if answer.get(window):
        answer.state("model.attention_window", answer.get(window), window)
    shared = f"{_M}moe_config.shared_expert_intermediate_size"
    if answer.get(f"{_M}moe_config.enable_shared_expert") and answer.get(shared):
        answer.state("model.moe.shared_ffn_hidden", answer.get(shared), shared)
    attention = f"{_M}_attn_implementation"
    word = str(answer.get(attention, _FLASH))
    kernel = _ATTENTION.get(word)
    if (answer.option("cp") or 1) > 1:
        way = "all-gather" if word == _GATHERED else "ring"
        answer.imply("cp_comm_type", way, "by the kind of attention", attention)
    answer.mark(f"{_M}ring_attn_heads_k_stride", "implied", "heads gathered at a time")
    if kernel == "eager":
        answer.state("attention", kernel, attention)
    elif kernel is None:
        answer.mark(attention, "not understood", "is not an attention that is timed here")
    answer.mark(attention, "implied", "as nanotron does")


FORMAT = Format(
    kind="nanotron",
    title="nanotron YAML",
    detect=lambda name, text: bool(_DETECT.search(text)),
    parse=_parse,
    table=_TABLE,
    read_more=_more,
    **unread("nanotron"),
)


# ----- writing -----


def _write(request: PlanToWrite, comments: tuple[str, ...]) -> Mapping[str, str]:
    plan = {**theirs(_TABLE, request), **_rest(request), **_usual(request)}
    text = yaml_text(nested(plan))
    return {_FILE: as_comments(comments) + text}


def _rest(request: PlanToWrite) -> dict[str, Any]:
    """Arguments that do not map one to one."""
    tp, pp = request.get("tp", 1), request.get("pp", 1)
    sp = request.get("sequence_parallel", False)
    names = {ours: word for word, ours in reversed(_BF16.items())}
    precision = request.get("precision", "bf16")
    plain = decoder_of(request.model)
    out: dict[str, Any] = {
        f"{_P}dp": request.replicas,
        f"{_T}batch_accumulation_per_replica": request.micro_batches,
        f"{_T}train_steps": request.steps,
        f"{_P}tp_mode": "REDUCE_SCATTER" if sp else "ALL_REDUCE",
        f"{_P}tp_linear_async_communication": bool(sp) and request.get("tp_overlap") != "none",
        f"{_P}pp_engine": "afab" if request.get("schedule") == "gpipe" else "1f1b",
        f"{_P}expert_parallel_size": request.get("ep", 1),
        "model.dtype": {**names, "bf16": "bfloat16"}.get(precision, "bfloat16"),
        "optimizer.zero_stage": request.get("zero", 0),
        "optimizer.accumulate_grad_in_fp32": request.get("gradient_precision") != "bf16",
        f"{_M}attention_bias": plain is not None and plain.bias_qkv,
        f"{_M}hidden_act": plain.activation if plain else "silu",
    }
    if request.get("cp", 1) > 1:  # its other attention would see only the tokens of one rank
        out |= {f"{_M}_attn_implementation": _GATHERED, f"{_M}ring_attn_heads_k_stride": 1}
    if plain and plain.attention_window:
        out[f"{_M}sliding_window_size"] = plain.attention_window
    moe = plain and plain.moe
    if moe and moe.shared_ffn_hidden:
        out[f"{_M}moe_config.enable_shared_expert"] = True
        out[f"{_M}moe_config.shared_expert_intermediate_size"] = moe.shared_ffn_hidden
    return out if tp > 1 or pp > 1 else {**out, f"{_P}tp_linear_async_communication": False}


def _usual(request: PlanToWrite) -> dict[str, Any]:
    """Required arguments beside the plan, with the values of nanotron's examples."""
    steps = request.steps
    # Qwen2's blocks, without a bias on queries the ones of Llama, are the ones that its main branch
    # trains; of the two, only Llama's go through a pipeline (see `fill` below)
    plain = decoder_of(request.model)
    more = plain is not None and bool(plain.moe or plain.attention_window or plain.bias_qkv)
    llama = request.get("pp", 1) > 1 and request.get("cp", 1) == 1 and not more
    blocks = "is_llama_config" if llama else "is_qwen2_config"
    return {
        f"{_M}{blocks}": True,
        "general.project": "dpplan",
        "general.run": request.model.name,
        "general.seed": 42,
        "logging.iteration_step_info_interval": 1,
        "checkpoints.checkpoints_path": "checkpoints",
        "checkpoints.checkpoint_interval": 1000,
        "data_stages": [
            {
                "name": "training",
                "start_training_step": 1,
                "data": {"dataset": None, "seed": 42, "num_loading_workers": 1},
            }
        ],
        "model.init_method.std": 0.02,
        "optimizer.clip_grad": 1.0,
        "optimizer.weight_decay": 0.1,
        f"{_FACTORY}adam_beta1": 0.9,
        f"{_FACTORY}adam_beta2": 0.95,
        f"{_FACTORY}adam_eps": 1e-8,
        f"{_FACTORY}torch_adam_is_fused": True,
        "optimizer.learning_rate_scheduler.learning_rate": 3e-4,
        "optimizer.learning_rate_scheduler.lr_warmup_steps": max(1, steps // 100),
        "optimizer.learning_rate_scheduler.lr_warmup_style": "linear",
        "optimizer.learning_rate_scheduler.lr_decay_style": "cosine",
        "optimizer.learning_rate_scheduler.min_decay_lr": 3e-5,
    }


TARGET = Target(
    kind="nanotron",
    title="nanotron",
    stacks=("nanotron",),
    program='run_train.py --config-file "$RECIPE/config.yaml"',
    write=_write,
    environment={"CUDA_DEVICE_MAX_CONNECTIONS": "1"},
    checkout="nanotron",
    names=lambda model: False,
    lost={
        "model": "its blocks are those of Llama and Qwen2",
        "vpp": "its pipelines have one chunk per rank",
        "optimizer": "it has AdamW and SGD",
        "precision": "it trains in one type of weights",
        "pipeline_layout": "it deals layers out by their cost",
        "placement": "its order of ranks is fixed",
        "compile": "it compiles nothing",
        "cp_comm_type": "its packed attention gathers keys and values",
    },
    fill=(
        "the checkout of nanotron: its main branch (2411b022) trains without pipelines and ZeRO;"
        " ZeRO 1 beside fp32 gradients raises 'Not implemented' since 7bc99232 (2025-06), and a"
        " pipeline stops at the initialisation since 37cc8b0c (2025-04); d22eb809, the commit"
        " before, has both; its pipelines have no experts, windows and shared contexts",
        "dataset and tokenizer in config.yaml: without one it trains on random tokens",
        "learning rate and its schedule",
    ),
)
