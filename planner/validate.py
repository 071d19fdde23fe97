"""Measured runs against predictions: read the columns of a runs table, estimate each row from the row alone, report errors."""

from __future__ import annotations

import csv
import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from planner import request
from planner.catalog import read_text
from planner.specs.base import PlanError
from planner.specs.layout import Layout, LayoutRequest
from planner.specs.model import Experts, LatentAttention, ModelSpec
from planner.specs.plan import Plan
from planner.specs.training import TrainingSpec

Row = dict[str, str]

REQUIRED = ("run_id", "suite", "gpu", "gpus", "stack", "layers", "hidden", "heads", "seq_len", "tp", "pp", "dp", "global_batch")

# what a stack does where a recipe is not printed
_SHARDED = ("composer-fsdp", "fms-fsdp", "torchtitan", "lightning-fsdp", "pytorch-fsdp")
_DISTRIBUTED_OPTIMIZER = ("megatron-core", "nemo", "meta-llama3", "hai-llm")
_ALWAYS_RECOMPUTES = ("megatron-lm-2021", "megatron-deepspeed", "bmtrain")

# latent attention is not in the columns; the families that have it share these ranks (their public configs)
_LATENT = {"deepseek": (1536, 512, 128, 64, 128), "kimi": (1536, 512, 128, 64, 128), "moonlight": (None, 512, 128, 64, 128)}


def read_rows(path: Path) -> list[Row]:
    """Rows of a runs table. Raises PlanError for a file that is none."""
    text = read_text(path, "RUNS.csv")
    reader = csv.DictReader(text.splitlines())
    names = reader.fieldnames or []
    missing = [name for name in REQUIRED if name not in names]
    if missing:
        raise PlanError("RUNS.csv", str(path), f"has no column {missing[0]!r}; the columns are in docs/validation.md")
    rows = []
    for number, row in enumerate(reader, start=2):
        if None in row:
            raise PlanError("RUNS.csv", str(path), f"line {number} has more cells than the header")
        rows.append({k: (v or "").strip() for k, v in row.items()})
    return rows


class _Skip(ValueError):
    """A row that cannot be expressed, with the reason."""


def _number(row: Row, name: str, default: float | None = None) -> float:
    text = row.get(name, "")
    if text == "":
        if default is None:
            raise _Skip(f"{name} is empty")
        return default
    try:
        value = float(text)
    except ValueError:
        raise _Skip(f"{name} is {text!r}, no number") from None
    if not math.isfinite(value) or value < 0:
        raise _Skip(f"{name} is {text!r}, out of range")
    return value


def _whole(row: Row, name: str, default: float | None = None) -> int:
    value = _number(row, name, default)
    if value != int(value):
        raise _Skip(f"{name} is {value}, no whole number")
    return int(value)


def _options(row: Row) -> dict[str, str]:
    pairs = (part.partition("=") for part in row.get("options", "").split(";") if part)
    return {key.strip(): value.strip() or "1" for key, _, value in pairs}


def row_model(row: Row) -> ModelSpec:
    """Transformer shape of a row."""
    heads = _whole(row, "heads")
    hidden = _whole(row, "hidden")
    head_dim = _whole(row, "head_dim", hidden // max(heads, 1))
    name = row.get("model", "") or "model"
    gated = row.get("mlp", "") in ("swiglu", "geglu", "")
    layers = _whole(row, "layers")
    norm = "layernorm" if row.get("norm", "") == "layernorm" else "rmsnorm"
    moe = None
    experts = _whole(row, "experts", 0)
    latent = None
    if experts > 1:
        width = _whole(row, "moe_ffn_hidden")
        family = next((f for f in _LATENT if f in name.lower()), None)
        moe = Experts(
            experts=experts, experts_per_token=_whole(row, "experts_per_token"), ffn_hidden=width,
            shared_ffn_hidden=width * _whole(row, "shared_experts", 0), dense_layers=_whole(row, "dense_layers", 0),
            group_limit=4 if family == "deepseek" else None,
        )  # fmt: skip
        if family and head_dim == 128:
            q, kv, nope, rope, value = _LATENT[family]
            latent = LatentAttention(
                query_rank=q, kv_rank=kv or 1, nope_head_dim=nope or 1, rope_head_dim=rope or 1, value_head_dim=value or 1
            )
    positions = {"rope": "rotary", "learned": "learned", "alibi": "alibi"}.get(row.get("positions", ""), "none")
    mpt = name.lower().startswith("mpt")
    return ModelSpec(
        name=name, layers=layers, hidden=hidden, heads=heads, kv_heads=_whole(row, "kv_heads", heads) or heads,
        head_dim=head_dim, ffn_hidden=_whole(row, "ffn_hidden", 4 * hidden) or 4 * hidden,
        vocab=_whole(row, "vocab", 51200), max_positions=_whole(row, "seq_len"),
        mlp="gated" if gated else "plain", activation="silu" if gated else "gelu",
        norm=norm, norm_bias=norm == "layernorm" and not mpt,  # type: ignore[arg-type]
        positions=positions,  # type: ignore[arg-type]
        tied_embeddings=row.get("tied_embeddings", "") == "1",
        bias_qkv=not gated and not mpt, bias_attention_out=not gated and not mpt, bias_mlp=not gated and not mpt,
        dropout=_legacy_gpt(row["stack"], row), latent=latent, moe=moe,
    )  # fmt: skip


def _legacy_gpt(stack: str, row: Row) -> bool:
    """Megatron's own defaults for a GPT with learned positions: dropout 0.1, attention without the flash switch."""
    return stack == "megatron-core" and row.get("positions") == "learned" and row.get("flash_attention", "") == ""


def row_plan(row: Row) -> tuple[Plan, Layout]:
    """Plan and layout of a row; raises _Skip where it cannot be expressed."""
    stack = request.stack_spec(row["stack"])
    options = _options(row)
    model = row_model(row)
    gpus = _whole(row, "gpus")
    nics, speed = row.get("nics_per_node", ""), row.get("nic_gbps", "")
    cluster, _ = request.cluster_spec(
        gpu=row["gpu"], gpus=gpus, gpus_per_node=_whole(row, "gpus_per_node", 0) or None,
        intra_node=row.get("intra_node") or None, inter_node=row.get("inter_node") or None,
        nics_per_node=int(float(nics)) if nics else None, nic_bandwidth=float(speed) if speed else None,
    )  # fmt: skip
    tp, pp, cp, dp = (_whole(row, name, 1) for name in ("tp", "pp", "cp", "dp"))
    vpp = _whole(row, "vpp", 1) or 1
    default_zero = 3 if stack.id in _SHARDED else 1 if stack.id in _DISTRIBUTED_OPTIMIZER else 0
    offloaded = row.get("optimizer_offload", "") == "1" or "offload" in options.get("flags", "")
    zero = _whole(row, "zero", 3 if offloaded and "zero" in row.get("source_ref", "").lower() else default_zero)
    micro_batch = _whole(row, "micro_batch", 1) or 1
    global_batch = _whole(row, "global_batch")
    if global_batch % (dp * micro_batch):
        raise _Skip(f"global_batch {global_batch} is no multiple of dp {dp} x micro_batch {micro_batch}")
    recompute = row.get("recompute", "") or ("full" if stack.id in _ALWAYS_RECOMPUTES else "none")
    sequence = row.get("sequence_parallel", "")
    schedule = row.get("schedule", "") or ("interleaved" if vpp > 1 else "1f1b")
    if schedule == "1f1b" and vpp > 1:
        schedule = "interleaved"
    shard = _whole(row, "shard_group", 0)
    offload = "none"
    if offloaded:
        offload = "params" if "parameters" in options.get("flags", "") else "optimizer"
    layout = Layout(
        tp=tp, pp=pp, vpp=vpp, dp=dp, cp=cp, ep=_whole(row, "ep", 1) or 1, zero=zero,
        shard_group=min(shard * cp, dp * cp) if shard else dp * cp,
        sequence_parallel=sequence == "1" or (sequence == "" and tp > 1 and stack.id in ("nemo", "megatron-core")),
        recompute=recompute, schedule=schedule, micro_batch=micro_batch, offload=offload,  # type: ignore[arg-type]
    )  # fmt: skip
    attention = options.get("attention")
    if attention is None and row.get("flash_attention", "") in ("0", "1"):
        wants = row["flash_attention"] == "1"
        has = stack.fusion.attention.startswith("flash")
        attention = None if wants == has else "flash2" if wants else "fused_softmax"
    elif attention is None and _legacy_gpt(stack.id, row):
        attention = "fused_softmax"
    recipe = options.get("fp8_recipe", "")
    training = TrainingSpec(
        seq_len=_whole(row, "seq_len"), global_batch=global_batch,
        precision=row.get("precision", "") or "bf16",  # type: ignore[arg-type]
        attention=attention,  # type: ignore[arg-type]
        fused_norm={"fused": True, "eager": False}.get(options.get("norm", "")),
        fused_cross_entropy=True if "fused_cross_entropy" in options else None,
        compile=True if "compile" in options else None,
        async_tensor_parallel="async_tp" in options,
        fp8_recipe={"rowwise": "rowwise", "tensorwise": "tensorwise"}.get(recipe),  # type: ignore[arg-type]
        selective="per_op" if options.get("selective") == "per_op" else "attention",
        gradient_reduce=options.get("grad_reduce"),  # type: ignore[arg-type]
        overlap=False if options.get("overlap") == "none" else None,
        moment_bytes=4.0 if options.get("adam_moments") == "bf16" else None,
    )  # fmt: skip
    uneven = model.layers % (pp * vpp) != 0
    plan = Plan(model=model, cluster=cluster, training=training, stack=stack, request=LayoutRequest(uneven_stages=uneven))
    return plan, layout
