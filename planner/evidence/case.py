"""What the certainty of a step time depends on: where its time goes, on which hardware, with which
software, and how far it lies from ordinary runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from planner.ledger import Array, Ledger
from planner.specs.columns import Columns
from planner.specs.names import OFFLOADED_OPTIMIZER, OFFLOADS
from planner.specs.plan import Plan


@dataclass(frozen=True)
class Feature:
    """Something that errors grow with: the share of the step that a mechanism takes, or a distance
    from ordinary runs.

    components: of the step, whose share it is. words: as a sentence about the width names it.
    """

    words: str
    components: tuple[str, ...] = ()


# Compute in GEMMs is in `general`, which is one for every run.
FEATURES: dict[str, Feature] = {
    "general": Feature("what all runs share"),
    "attention": Feature("attention", ("attention",)),
    "memory": Feature("memory-bound kernels", ("memory_bound", "optimizer")),
    "launch": Feature("kernel launches and fixed costs", ("launch", "overhead")),
    "tensor": Feature(
        "tensor and context parallel traffic", ("tensor_parallel", "context_parallel")
    ),
    "expert": Feature("expert traffic", ("expert_parallel",)),
    "data": Feature("data parallel and pipeline traffic", ("data_parallel", "pipeline_transfer")),
    "waiting": Feature("pipeline bubble and waiting", ("bubble", "stragglers", "input")),
    # copies' share of the step; how much longer it may be on another host, over that of a step
    # which is all update
    "offload": Feature("offload", ("offload", "nvme")),
    "experts": Feature("mixture of experts"),  # 1 or 0
    "fp8": Feature("8-bit GEMMs"),  # 1 or 0
    # halvings of the work of a kernel below _WORK: launches, tails and caches weigh
    "small": Feature("small kernels"),
    # doublings of the sequence beyond _LONG, times the share of attention
    "long": Feature("long sequences"),
    "scale": Feature("number of GPUs"),  # doublings beyond one
}

# elements of a hidden x hidden GEMM per rank: a micro-batch of 2,048 tokens of a model of width
# 4,096; a choice, below which errors grow
_WORK = 2048 * 4096.0**2
_LONG = 8192.0  # tokens; few validated runs are longer


# A host that a request does not name may be slower than the one assumed by this: two sockets had
# 154 GB/s of memory bandwidth in 2016 and have 922 since 2023, hosts of one GPU half of that apart.
# How software uses it matters more: published updates are from 0.25e9 parameters/s and node (two
# cores for eight ranks, ISEEKYAN/Megatron-LM#188) over 0.5e9 (gist chenyaofo/d4cd6a20), 1.4e9
# (deepspeedai/DeepSpeed#735, blogs/deepspeed-zenflow) and 1.8e9 (#6834) to 4e9 (arXiv 2101.06840).
_OTHER_HOST, _OTHER_USE = 2.0, 5.0
_KNOWN = 1.2  # where either is stated or measured


def slowest_host(plan: Plan) -> float:
    """How often longer an update on the CPU may take than on the host that is assumed."""
    cluster = plan.cluster
    host = _KNOWN if cluster.host_stated else _OTHER_HOST
    measured = cluster.host.update_frac is not None
    use = _KNOWN if measured or cluster.host_threads is not None else _OTHER_USE
    return host * use


class Times(Protocol):
    """Step times of layouts, as an estimate has them."""

    @property
    def seconds(self) -> Array: ...

    @property
    def components(self) -> Ledger: ...


def features(plan: Plan, c: Columns, time: Times) -> Array:
    """A line of FEATURES for every layout."""
    rows = np.ones(len(c))
    of_step = {name: rows * seconds / time.seconds for name, seconds in time.components.items()}
    found = {
        name: sum((of_step.get(part, 0.0) for part in one.components), 0.0 * rows)
        for name, one in FEATURES.items()
    }
    # an optimizer that is offloaded waits for the host link and the CPU
    codes = [OFFLOADS.index(name) for name in OFFLOADED_OPTIMIZER]
    updated = np.where(np.isin(c.offload, codes), of_step["optimizer"], 0.0)
    waits = updated
    if plan.stack.offload_update == "cpu":
        waits = np.log1p((slowest_host(plan) - 1) * updated) / np.log(_OTHER_HOST * _OTHER_USE)
    tokens = c.micro_batch * plan.training.seq_len / c.cp
    work = tokens * float(plan.model.hidden) ** 2 / c.tp
    found |= {
        "general": rows,
        "memory": found["memory"] - updated,
        "offload": found["offload"] + waits,
        "experts": rows * (plan.model.routed is not None),
        "fp8": rows * (plan.training.precision == "fp8"),
        "small": np.maximum(np.log2(_WORK / work), 0.0),
        "long": found["attention"] * max(np.log2(plan.training.seq_len / _LONG), 0.0),
        "scale": rows * np.log2(plan.cluster.gpus),
    }
    return np.stack([found[name] for name in FEATURES], axis=1)


@dataclass(frozen=True)
class Case:
    """What a band depends on."""

    gpu: str
    architecture: str
    stack: str
    family: str  # of the stack
    features: tuple[float, ...]  # in the order of FEATURES


def case_of(plan: Plan, c: Columns, time: Times, row: int = 0) -> Case:
    """The case of one layout."""
    stack = plan.stack
    return Case(
        plan.cluster.gpu.id,
        plan.cluster.gpu.architecture,
        stack.release_of or stack.id,
        stack.family or stack.id,
        tuple(features(plan, c, time)[row].tolist()),
    )
