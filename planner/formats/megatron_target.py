"""Megatron-LM, written: the arguments of pretrain_gpt.py for a plan."""

from __future__ import annotations

from typing import Any

from planner.formats.megatron_table import STATE_TYPES, TABLE
from planner.formats.target import PlanToWrite, Target, theirs
from planner.specs.decoder import decoder_of

_RECIPES = {
    "fp8": "delayed",
    "fp8-delayed": "delayed",
    "fp8-tensorwise": "tensorwise",
    "fp8-blockwise": "blockwise",
    "mxfp8": "mxfp8",
}


def _arguments(request: PlanToWrite) -> list[str]:
    plan = {
        **theirs(TABLE, request),
        **_shape(request),
        **_layout(request),
        **_precision(request),
        **_recompute(request),
        **_experts(request),
        **_graphs(request),
    }
    plan["train-iters"] = request.steps
    return [line for name, value in plan.items() if (line := _line(name, value))]


def _line(name: str, value: Any) -> str:
    """An argument as it is typed; "" for a switch that is off."""
    if value is False or value is None:
        return ""
    if value is True:
        return f"--{name}"
    if isinstance(value, list):
        return f"--{name} {' '.join(map(str, value))}"
    word = str(value)
    return f"--{name} '{word}'" if set(word) & set("|*()[]") else f"--{name} {word}"


def _shape(request: PlanToWrite) -> dict[str, Any]:
    """Arguments for properties of the model that take several arguments together."""
    m, plain = request.model, decoder_of(request.model)
    out: dict[str, Any] = {
        "use-mcore-models": True,
        "normalization": "RMSNorm" if m.norm == "rmsnorm" else "LayerNorm",
        "vocab-size": m.vocab,
        # its parser wants as many as a sequence has, though rotary ones hold no table
        "max-position-embeddings": max(m.max_positions, request.options["seq_len"]),
        "disable-bias-linear": True,
        "attention-dropout": 0.1 if m.dropout and m.dropout_of != "hidden" else 0.0,
        "hidden-dropout": 0.1 if m.dropout and m.dropout_of != "attention" else 0.0,
        "squared-relu": False,
        "mtp-num-layers": m.mtp or None,
    }
    if plain is None:  # no arguments say its layers
        return out
    out["squared-relu"] = plain.activation == "relu2"
    if plain.bias_qkv and not plain.bias_mlp:
        out["add-qkv-bias"] = True
    elif plain.bias_qkv or plain.bias_mlp or plain.bias_attention_out:
        out["disable-bias-linear"] = False
    if plain.latent:
        out["multi-latent-attention"] = True
        out["kv-channels"] = None
    elif plain.kv_heads != plain.heads:
        out |= {"group-query-attention": True, "num-query-groups": plain.kv_heads}
    if plain.attention_window:
        out["window-size"] = f"{plain.attention_window - 1},0"
        out["window-attn-skip-freq"] = plain.window_every if plain.window_every > 1 else None
    if plain.moe is None:
        return out
    out["moe-shared-expert-intermediate-size"] = plain.moe.shared_ffn_hidden or None
    if plain.moe.dense_layers:
        counts = f"([0]*{plain.moe.dense_layers}+[1]*{m.layers - plain.moe.dense_layers})"
        out["moe-layer-freq"] = counts
    elif plain.moe.every > 1:
        out["moe-layer-freq"] = plain.moe.every
    return out


def _layout(request: PlanToWrite) -> dict[str, Any]:
    vpp = request.get("vpp", 1)
    split = request.get("pipeline_layout") is not None
    out: dict[str, Any] = {
        "sequence-parallel": bool(request.get("sequence_parallel")),
        "num-virtual-stages-per-pipeline-rank": vpp if vpp > 1 and not split else None,
        "use-distributed-optimizer": request.get("zero", 0) == 1,
    }
    parts = str(request.get("dp_overlap") or "reduce+forward").split("+")
    out["overlap-grad-reduce"] = "reduce" in parts
    out["overlap-param-gather"] = "forward" in parts and request.get("zero", 0) == 1
    return out


def _precision(request: PlanToWrite) -> dict[str, Any]:
    precision = request.get("precision", "bf16")
    out: dict[str, Any] = {"bf16": precision not in ("fp32", "fp16"), "fp16": precision == "fp16"}
    low = str(request.get("low_precision", "")).split("+")
    if precision in _RECIPES:
        out |= {"fp8-format": "hybrid", "fp8-recipe": _RECIPES[precision]}
        out["fp8-param-gather"] = "weights" in low
    elif precision == "nvfp4":
        out |= {"fp4-format": "e2m1", "fp4-recipe": "nvfp4"}
    if request.get("bf16_layers"):
        start = request.get("bf16_layers") // 2
        out |= {"first-last-layers-bf16": True, "num-layers-at-start-in-bf16": start}
        out["num-layers-at-end-in-bf16"] = request.get("bf16_layers") - start
    return {**out, **_states(request)}


def _states(request: PlanToWrite) -> dict[str, Any]:
    """Types of states, which the precision-aware optimizer has."""
    moments, gradients = request.get("moments_precision"), request.get("gradient_precision")
    master = request.get("master_precision")
    out: dict[str, Any] = {}
    if moments in STATE_TYPES:
        out |= {"exp-avg-dtype": moments, "exp-avg-sq-dtype": moments}
    if gradients == "bf16":
        out["main-grads-dtype"] = "bf16"
    if master == "fp16":
        out["main-params-dtype"] = "fp16"
    if out or master == "remainder":
        out["use-precision-aware-optimizer"] = True
    return out


def _recompute(request: PlanToWrite) -> dict[str, Any]:
    kind, _, size = request.get("recompute", "none").partition(":")
    if kind == "none":
        return {}
    if kind in ("full", "group", "block"):
        method = "block" if kind == "block" else "uniform"
        return {
            "recompute-granularity": "full",
            "recompute-method": method,
            "recompute-num-layers": size or 1,
        }
    out: dict[str, Any] = {"recompute-granularity": "selective"}
    if kind != "selective":
        out["recompute-modules"] = kind.split("+")
    return out


def _experts(request: PlanToWrite) -> dict[str, Any]:
    plain = decoder_of(request.model)
    if plain is None or plain.moe is None:
        return {}
    kernels = request.get("expert_kernels", "grouped")
    dispatcher = request.get("dispatcher", "alltoall")
    out: dict[str, Any] = {
        "moe-grouped-gemm": kernels == "grouped",
        "use-transformer-engine-op-fuser": kernels == "fused",
    }
    if dispatcher in ("deepep", "hybridep"):
        out |= {"moe-token-dispatcher-type": "flex", "moe-flex-dispatcher-backend": dispatcher}
    else:
        out["moe-token-dispatcher-type"] = dispatcher
    if request.get("paged_stash"):
        out["moe-paged-stash"] = True
        out["moe-paged-stash-buffer-size-factor-cuda"] = request.get("paged_stash")
    return out


def _graphs(request: PlanToWrite) -> dict[str, Any]:
    """CUDA graphs, FlashAttention and offloaded modules."""
    out: dict[str, Any] = {"use-flash-attn": request.get("flash_attention") is True}
    scopes = request.get("cuda_graphs")
    if scopes and scopes != "none":
        words = {"layer": "full", "full": "full_iteration"}
        listed = [words.get(scope, scope) for scope in scopes.split("+")]
        out |= {"cuda-graph-impl": "transformer_engine", "cuda-graph-scope": listed}
    if (
        scopes == "full"
    ):  # a whole iteration is captured by Megatron itself, which then checks nothing
        out |= {"cuda-graph-impl": "local", "no-check-for-nan-in-loss-and-grad": True}
    if request.get("offload") == "activations" and request.get("offload_modules"):
        out["fine-grained-activation-offloading"] = True
        out["offload-modules"] = request.get("offload_modules").split("+")
    return out


TARGET = Target(
    kind="megatron",
    title="Megatron-LM",
    stacks=("megatron-core",),
    program="pretrain_gpt.py",
    write=lambda request, comments: {},
    arguments=_arguments,
    environment={"CUDA_DEVICE_MAX_CONNECTIONS": "1"},
    checkout="Megatron-LM",
    names=lambda model: False,
    deals=False,
    lost={
        "model": "its shape is more than the arguments of pretrain_gpt.py say: see the script of"
        " its family in Megatron-LM",
        "zero": "Megatron-LM shards optimizer states or nothing; parameters with Megatron-FSDP",
        "schedule": "Megatron-LM has 1F1B and its interleaved form",
        "optimizer": "it has Adam, SGD and Muon",
        "offload": "it offloads activations by modules, and optimizers by a share",
    },
    fill=(
        "--data-path, --tokenizer-type and --tokenizer-model, given to run.sh or added to ARGS",
        "learning rate (--lr) and its schedule",
    ),
)
