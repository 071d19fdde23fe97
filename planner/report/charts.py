"""Numbers behind the charts of one layout: its kernels against the limits of the GPU, and
all-reduce algorithms by message size."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import numpy as np

from planner.estimate import Estimates, all_reduce
from planner.estimate.communicate import Group, place
from planner.estimate.machine import machine
from planner.ledger import Call, recording
from planner.report.layout import evaluate_row
from planner.specs.base import PlanError
from planner.specs.document import Document
from planner.specs.documents.charts import Crossover, Kernel, MessageTime, Roofline
from planner.specs.options.own import ChartName

_RESULT_BYTES = 2.0  # gemm_s writes a 16-bit result
_PASSES = ("forward", "input gradient", "weight gradient")
_SECTIONS = ("one layer, one micro-batch", "language-model head")
_SIZES = 2.0 ** np.arange(10, 35)  # 1 KiB to 16 GiB
_NCCL = ("ring", "tree", "switch")  # NCCL chooses among these


def drawn(estimates: Estimates, name: ChartName) -> dict[str, Document]:
    """The numbers of a chart as the key of an estimate that holds them. estimates: of one
    layout."""
    return {name: {"roofline": roofline, "crossover": crossover}[name](estimates)}


def roofline(estimates: Estimates) -> Roofline:
    """GEMMs of a layer and the head as the step time counts them, each once. Raises PlanError where
    there are none."""
    with recording() as tree:
        evaluate_row(estimates, 0)
    by_name: dict[str, Kernel] = {}
    for section in _sections(tree):
        if section.formula.name == _SECTIONS[1]:
            by_name.update((k.name, k) for k in _gemms(section, "logits"))
        for inner in section.calls:
            if not inner.formula.equation:
                by_name.update((k.name, k) for k in _gemms(inner, inner.formula.name))
    kernels = [k for k in by_name.values() if k.flop > 0 and k.bytes > 0 and k.seconds > 0]
    if not kernels:
        raise PlanError("--chart", "roofline", "this layout has no GEMMs; leave --chart out")
    m = machine(estimates.plan)
    rate = float(m.dense_rate)
    return Roofline(rate, rate * float(m.sustained_clock), float(m.memory_bandwidth), kernels)


def _sections(tree: Call) -> Iterator[Call]:
    if tree.formula.name in _SECTIONS:
        yield tree
    for inner in tree.calls:
        yield from _sections(inner)


def _gemms(call: Call, name: str) -> Iterator[Kernel]:
    gemms = [inner for inner in call.calls if inner.formula.name == "gemm_s"]
    for i, inner in enumerate(gemms):
        word = _PASSES[i] if len(gemms) == len(_PASSES) else f"{i + 1}"
        yield _product(inner, f"{name.replace('_', ' ')}, {word}")


def _product(call: Call, name: str) -> Kernel:
    given = call.inputs
    m, n, k = (_number(given[key]) for key in ("m", "n", "k"))
    batch, extra, width = (
        _number(given.get(key, default))
        for key, default in (("batch", 1.0), ("extra_bytes", 0.0), ("input_bytes", 2.0))
    )
    moved = batch * (width * (m * k + n * k) + _RESULT_BYTES * m * n) + extra
    return Kernel(name, 2 * batch * m * n * k, moved, _number(call.output))


def _number(value: Any) -> float:
    return float(np.asarray(value, float).reshape(-1)[0])


def crossover(estimates: Estimates) -> Crossover:
    """NCCL's algorithms of an all-reduce over the data-parallel ranks of a layout, or its
    tensor-parallel ones. Raises PlanError for one GPU."""
    word, group = _group(estimates)
    cluster = estimates.plan.cluster
    network = all_reduce.Network(machine(estimates.plan), group, float(cluster.gpus_per_host), 1.0)
    sizes = _times(network, _SIZES)
    names = list(sizes[0].seconds)
    return Crossover(
        group=word,
        ranks=float(network.ranks),
        ranks_per_node=float(network.per_node),
        titles={name: all_reduce.BY_NAME[name].title for name in names},
        sizes=sizes,
        messages=_times(network, np.array(_messages(estimates, word))),
    )


def _times(network: all_reduce.Network, sizes: Any) -> list[MessageTime]:
    if not len(sizes):
        return []
    every = all_reduce.seconds(network, sizes)
    names = [name for name in every if name in _NCCL]
    columns = {name: np.broadcast_to(every[name], sizes.shape).tolist() for name in names}
    taken = np.broadcast_to(all_reduce.as_estimated(network, sizes), sizes.shape).tolist()
    rows = [{name: columns[name][i] for name in names} for i in range(len(sizes))]
    return [
        MessageTime(size, seconds, estimated, min(seconds, key=seconds.__getitem__))
        for size, seconds, estimated in zip(sizes.tolist(), rows, taken, strict=True)
    ]


def _group(estimates: Estimates) -> tuple[Literal["data", "tensor"], Group]:
    """Which ranks reduce, and where they are placed."""
    tp, replicas = estimates.table.tp[0], (estimates.table.dp * estimates.table.cp)[0]
    cluster = estimates.plan.cluster
    if float(replicas) > 1:
        return "data", place(replicas, tp, cluster.tiers)
    if float(tp) > 1:
        return "tensor", place(tp, np.ones_like(tp), cluster.tiers)
    raise PlanError("--gpus", cluster.gpus, "one GPU reduces nothing; take at least two")


def _messages(estimates: Estimates, word: str) -> list[float]:
    """Bytes of the all-reduces of this layout over that group."""
    return sorted(
        {
            float(t.bytes[0])
            for t in estimates.time.traffic
            if t.group == word and float(t.count[0]) > 0 and t.operation == "all_reduce"
        }
    )
