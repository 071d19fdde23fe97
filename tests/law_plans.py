"""Plans and layouts on which laws of estimates are tried: every dimension is used at least once."""

from __future__ import annotations

from typing import Any

import plans
from hypothesis import strategies as st

from planner.estimate import Estimates, evaluate
from planner.inputs import catalog
from planner.specs.columns import Columns
from planner.specs.model import ModelSpec
from planner.specs.plan import Plan

GPUS = 16
STACKS = catalog.ids("stacks")
PERSISTENT = [name for name in STACKS if plans.stack(name).state.persistent_gradients]

SHAPES: dict[str, ModelSpec] = {
    "dense": plans.model(),
    "experts": plans.expert_model(),
    "gpt": plans.model(
        mlp="plain",
        activation="gelu",
        norm="layernorm",
        positions="learned",
        dropout=True,
        tied_embeddings=True,
        bias_qkv=True,
        bias_mlp=True,
        vocab=5000,
    ),
    "grouped": plans.model(kv_heads=2, attention_window=256, window_every=2),
}

# layouts of 16 GPUs in two nodes that use every dimension at least once
LAYOUTS: tuple[dict[str, Any], ...] = (
    {},
    {"zero": 1, "recompute": "selective", "micro_batch": 2},
    {"zero": 2},
    {"zero": 3, "recompute": "full"},
    {"zero": 3, "shard_group": 8},
    {"tp": 2},
    {"tp": 4, "sequence_parallel": True, "zero": 1},
    {"tp": 2, "pp": 2, "micro_batch": 2},
    {"pp": 4, "zero": 1, "recompute": "block:1"},
    {"pp": 2, "tp": 2, "recompute": "core_attn+mlp"},
    {"zero": 2, "recompute": "keep:qkv_proj+mlpwi"},
    {"pp": 4, "schedule": "gpipe", "recompute": "group:2"},
    {"pp": 4, "vpp": 2, "schedule": "interleaved", "zero": 1},
    {"pp": 2, "schedule": "zb-1p"},
    {"pp": 2, "schedule": "zb-2p"},
    {"pp": 2, "schedule": "dualpipe", "tp": 2},
    {"cp": 2, "tp": 2, "sequence_parallel": True},
    {"tp": 8, "pp": 2, "sequence_parallel": True},
    {"zero": 3, "offload": "params"},
    {"zero": 1, "offload": "optimizer"},
    {"zero": 1, "micro_batch": 2, "offload": "activations"},
)
EXPERT_LAYOUTS: tuple[dict[str, Any], ...] = (
    {"ep": 8, "zero": 1},
    {"ep": 2, "tp": 2, "pp": 2},
    {"ep": 4, "zero": 3, "cp": 2},
)

PLANS = [
    ("megatron-core", "dense"),
    ("megatron-core", "experts"),
    ("torchtitan", "experts"),
    ("torchtitan", "gpt"),
    ("deepspeed", "grouped"),
    ("pytorch-ddp", "gpt"),
    ("nanotron", "dense"),
    ("hai-llm", "experts"),
]

SOFTWARE = st.sampled_from(STACKS)
SHAPE = st.sampled_from(sorted(SHAPES))


def table(shape: str) -> Columns:
    return plans.rows(GPUS, *LAYOUTS, *(EXPERT_LAYOUTS if shape == "experts" else ()))


def plan(software: str = "megatron-core", shape: str = "dense", **others: Any) -> Plan:
    return plans.plan(SHAPES[shape], software=software, **({"gpus": GPUS} | others))


def estimates_of(plan: Plan, **chosen: Any) -> Estimates:
    return evaluate(plan, plans.rows(plan.cluster.gpus, chosen))


def seconds(plan: Plan, **chosen: Any) -> float:
    return float(estimates_of(plan, **chosen).time.seconds[0])
