"""Features that the uncertainty of a step time depends on: the breakdown of the step, hardware,
software, and unstated facts of the machine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from planner.ledger import Array, Ledger
from planner.specs.columns import Columns
from planner.specs.decoder import decoder_of
from planner.specs.names import OFFLOADED_OPTIMIZER, OFFLOADS
from planner.specs.plan import Plan


@dataclass(frozen=True)
class Feature:
    """A property that distinguishes runs. Factors beyond 1 are physical bounds of what no request
    states, which the band covers; what else widens a band is fitted (`planner.evidence.band`).

    components: parts of the step that make up the share. words: its name in a sentence on the
    width. slower, faster: factors.
    """

    words: str
    components: tuple[str, ...] = ()
    slower: float = 1.0
    faster: float = 1.0


FEATURES: dict[str, Feature] = {
    "launch": Feature("kernel launches", ("launch", "overhead")),
    "tensor": Feature(
        "tensor and context parallel traffic", ("tensor_parallel", "context_parallel")
    ),
    "expert": Feature("expert traffic", ("expert_parallel",)),
    "data": Feature("data parallel and pipeline traffic", ("data_parallel", "pipeline_transfer")),
    "waiting": Feature("pipeline bubble and waiting", ("bubble", "stragglers", "input")),
    # hosts are seldom stated: memory of two sockets went from 410 to 922 GB/s in a generation
    "host": Feature("hosts faster than the one assumed", ("offload", "nvme"), faster=2.0),
    # what a slow host adds to the step, and islands of the network, over the step: both at most
    "offload": Feature("offload", slower=2.0),
    "islands": Feature("unknown islands of the network", slower=2.0),
    "parts": Feature("layers unlike a plain decoder's"),  # 1 or 0
    "experts": Feature("a mixture of experts"),  # 1 or 0
    "fp8": Feature("8-bit GEMMs"),  # 1 or 0; 4-bit ones too
    "fp4": Feature("4-bit GEMMs"),  # 1 or 0
    "adapters": Feature("adapters beside frozen weights"),  # 1 or 0
    "quantised": Feature("frozen weights in 4 or 8 bit"),  # 1 or 0
    "loop": Feature("a training loop of one's own"),  # 1 or 0: every team writes its trainer
    "blackwell": Feature("GPUs of Blackwell"),  # 1 or 0
    "amd": Feature("GPUs of AMD"),  # 1 or 0
    "before_ampere": Feature("GPUs before Ampere"),  # 1 or 0
    # doublings of the sequence beyond _LONG, times the share of attention
    "long": Feature("long sequences"),
    "scale": Feature("number of GPUs"),  # doublings beyond one
}

_FLAGS = ("parts", "experts", "fp8", "fp4", "adapters", "quantised")  # what makes a kind of run
_BEFORE_AMPERE = ("pascal", "volta", "turing")
_FOUR_BIT = ("nvfp4",)

_LONG = 8192.0  # tokens; few validated runs are longer


# A host that a request does not name may be slower than the one assumed by this: two sockets had
# 154 GB/s of memory bandwidth in 2016 and have 922 since 2023, hosts of one GPU half of that apart.
# How software uses it matters more: published updates are from 0.25e9 parameters/s and node (two
# cores for eight ranks, ISEEKYAN/Megatron-LM#188) over 0.5e9 (gist chenyaofo/d4cd6a20), 1.4e9
# (deepspeedai/DeepSpeed#735, blogs/deepspeed-zenflow) and 1.8e9 (#6834) to 4e9 (arXiv 2101.06840).
_OTHER_HOST, _OTHER_USE = 2.0, 5.0
_KNOWN = 1.2  # where either is stated or measured
# Copies from memory that is not pinned: 6 to 9 GB/s over PCI Express 4 beside 25 of pinned memory
# (recalled)
_COPIES = 3.0


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


def features(plan: Plan, c: Columns, time: Times, islands: Array | float = 0.0) -> Array:
    """A line of FEATURES for every layout.

    islands: how much longer each step takes on the islands that the network may have, over it.
    """
    rows = np.ones(len(c))
    of_step = {name: rows * seconds / time.seconds for name, seconds in time.components.items()}
    values = {
        name: sum((of_step.get(part, 0.0) for part in feature.components), 0.0 * rows)
        for name, feature in FEATURES.items()
    }
    # an optimizer that is offloaded waits for the host link and the CPU
    codes = [OFFLOADS.index(name) for name in OFFLOADED_OPTIMIZER]
    updated = np.where(np.isin(c.offload, codes), of_step["optimizer"], 0.0)
    slowest = slowest_host(plan) if plan.stack.offload_update == "cpu" else _COPIES
    values |= {
        "host": (values["host"] + updated) * (not plan.cluster.host_stated),
        "offload": (_COPIES - 1) * values["host"] + (slowest - 1) * updated,
        "islands": rows * islands,
        "parts": rows * (decoder_of(plan.model) is None),
        "experts": rows * (plan.model.routed is not None),
        "fp8": rows * (plan.recipe is not None),
        "fp4": rows * (plan.training.precision in _FOUR_BIT),
        "adapters": rows * (plan.training.adapter is not None),
        "quantised": rows * (plan.training.quantised),
        "loop": rows * plan.stack.own_loop,
        "blackwell": rows * plan.cluster.gpu.architecture.startswith("blackwell"),
        "amd": rows * plan.cluster.gpu.architecture.startswith("cdna"),
        "before_ampere": rows * (plan.cluster.gpu.architecture in _BEFORE_AMPERE),
        "long": rows * of_step["attention"] * max(np.log2(plan.training.seq_len / _LONG), 0.0),
        "scale": rows * np.log2(plan.cluster.gpus),
    }
    return np.stack([values[name] for name in FEATURES], axis=1)


def kinds(lines: Array) -> Array:
    """A number for each combination of experts, number formats, adapters, offloading and long
    sequences; lines: of FEATURES, shape (runs, features)."""
    names = list(FEATURES)
    columns = [names.index(name) for name in (*_FLAGS, "offload", "long")]
    powers = 2 ** np.arange(len(columns))
    number: Array = (lines[:, columns] > 0) @ powers
    return number


@dataclass(frozen=True)
class Case:
    """The properties of a request on which its band depends."""

    gpu: str
    architecture: str
    stack: str
    family: str  # of the stack
    features: tuple[float, ...]  # in the order of FEATURES
    mfu: float  # predicted
    tabled: bool = True  # GEMMs of the GPU were timed, whoever did
    pictured: bool = False  # of images or clips, of which the recorded suites have none

    def feature(self, name: str) -> float:
        """One of them."""
        return self.features[list(FEATURES).index(name)]

    @property
    def kind(self) -> int:
        """The combination of methods of the run, as in `kinds`."""
        return int(kinds(np.array([self.features]))[0])


def case_of(
    plan: Plan, c: Columns, time: Times, mfu: float, row: int = 0, islands: Array | float = 0.0
) -> Case:
    """The case of one layout; mfu: predicted; islands: as in `features`."""
    stack = plan.stack
    return Case(
        plan.cluster.gpu.id,
        plan.cluster.gpu.architecture,
        stack.release_of or stack.id,
        stack.family or stack.id,
        tuple(features(plan, c, time, islands)[row].tolist()),
        mfu,
        tabled=plan.cluster.gpu.kernels.gemm_efficiency.kind != "assumed",
        pictured=plan.model.convolves or plan.model.sample in ("image", "clip"),
    )
