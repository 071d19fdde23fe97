"""Small plans for tests: a model of a few layers, a cluster from the shipped profiles, layouts with
stated defaults."""

from __future__ import annotations

import dataclasses
from functools import cache
from typing import Any

from hypothesis import settings

from planner.estimate.machine import Machine, machine
from planner.inputs.calibration import stack_spec
from planner.inputs.cluster import cluster_spec
from planner.ledger import Sourced
from planner.specs.cluster import ClusterSpec
from planner.specs.columns import Columns
from planner.specs.decoder import Decoder, decoder_of
from planner.specs.layout import Layout, LayoutRequest
from planner.specs.mechanism import Mechanism
from planner.specs.model import Experts, ModelSpec
from planner.specs.options import Options
from planner.specs.plan import Plan
from planner.specs.stack import StackSpec
from planner.specs.training import TrainingSpec

settings.register_profile(
    "plans", deadline=None
)  # the first estimate of a session imports and reads profiles
settings.load_profile("plans")


def keys(**changes: Any) -> dict[str, Any]:
    """The keys of a gated decoder of eight layers."""
    shape: dict[str, Any] = {
        "name": "small",
        "layers": 8,
        "hidden": 512,
        "heads": 8,
        "kv_heads": 8,
        "head_dim": 64,
        "ffn_hidden": 1408,
        "vocab": 4096,
    }
    return shape | changes


def model(**changes: Any) -> ModelSpec:
    """A gated decoder of eight layers."""
    return ModelSpec.model_validate(keys(**changes))


def flat_of(shape: ModelSpec) -> Decoder:
    """The plain decoder that a model is."""
    result = decoder_of(shape)
    assert result is not None, shape.name
    return result


def expert_model(**changes: Any) -> ModelSpec:
    """A model as `model` gives it, with eight experts, two of them per token."""
    return model(moe=Experts(experts=8, experts_per_token=2, ffn_hidden=704), **changes)


@cache
def cluster(
    gpus: int, gpu: str = "a100-sxm4-80gb", gpus_per_node: int | None = None
) -> ClusterSpec:
    return cluster_spec(Options(model="gpt2", gpu=gpu, gpus=gpus, gpus_per_node=gpus_per_node))[0]


@cache
def stack(name: str) -> StackSpec:
    return stack_spec(name)


def in_islands(plan: Plan, nodes: int, oversubscription: float) -> Plan:
    """The plan on a fabric with this many nodes below one tier of switches."""
    share = Sourced(oversubscription, "1", "assumed", "a test")
    tiers = {"island_nodes": nodes, "oversubscription": share}
    return plan.model_copy(update={"cluster": plan.cluster.model_copy(update=tiers)})


def plan(
    shape: ModelSpec | None = None,
    *,
    gpus: int = 8,
    gpu: str = "a100-sxm4-80gb",
    gpus_per_node: int | None = None,
    software: str = "megatron-core",
    seq_len: int = 1024,
    global_batch: int = 64,
    request: LayoutRequest | None = None,
    mechanisms: tuple[Mechanism, ...] = (),
    **training: Any,
) -> Plan:
    return Plan(
        model=shape or model(),
        cluster=cluster(gpus, gpu, gpus_per_node),
        training=TrainingSpec(seq_len=seq_len, global_batch=global_batch, **training),
        stack=stack(software),
        request=request or LayoutRequest(),
        mechanisms=mechanisms,
    )


def layout(gpus: int, **chosen: Any) -> Layout:
    """Plain data parallelism except for what is chosen; dp is what the other degrees leave of the
    GPUs."""
    whole: dict[str, Any] = {
        "tp": 1,
        "pp": 1,
        "vpp": 1,
        "cp": 1,
        "ep": 1,
        "zero": 0,
        "sequence_parallel": False,
        "recompute": "none",
        "schedule": "1f1b",
        "micro_batch": 1,
    }
    whole |= chosen
    whole.setdefault("dp", gpus // (whole["tp"] * whole["pp"] * whole["cp"]))
    whole.setdefault("shard_group", whole["dp"] * whole["cp"])
    return Layout(**whole)


def rows(gpus: int, *chosen: dict[str, Any]) -> Columns:
    """A table of one row per dict."""
    return Columns.of((layout(gpus, **entry) for entry in chosen), gpus)


def numbers(plan: Plan, **changed: Any) -> Machine:
    """The plan's machine with some numbers replaced."""
    return dataclasses.replace(machine(plan), **changed)


# what moves data between GPUs or to the host, at no cost but latency
_FREE = 1e60  # bytes per second; not infinite, since links share each other's time in ratios
FREE_LINKS: dict[str, float] = {
    "intra_bandwidth": _FREE,
    "intra_host": _FREE,
    "intra_ramp": 0.0,
    "nic_per_gpu": _FREE,
    "inter_socket": _FREE,
    "host_bandwidth": _FREE,
    "host_copy_bandwidth": _FREE,
}
NO_LATENCY: dict[str, float] = {
    "operators_per_collective": 0.0,
    "intra_base": 0.0,
    "intra_latency": 0.0,
    "intra_switch_setup": 0.0,
    "inter_hop": 0.0,
}
