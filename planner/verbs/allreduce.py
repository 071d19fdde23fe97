"""The verb `allreduce`: time by algorithm against size and number of ranks, the fastest of each,
and where it changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from planner.estimate import all_reduce
from planner.estimate.machine import Machine, machine
from planner.inputs.calibration import stack_spec
from planner.inputs.cluster import cluster_spec
from planner.inputs.doubts import message
from planner.inputs.model import model_spec
from planner.inputs.options import read_without_model
from planner.inputs.scenario import doubts_of
from planner.specs.base import PlanError
from planner.specs.cluster import ClusterSpec
from planner.specs.document import SCHEMA_VERSION
from planner.specs.documents.allreduce import (
    Algorithm,
    AllReduce,
    AllReduceCluster,
    Crossover,
    FastestBySize,
    FastestMap,
    Size,
)
from planner.specs.options import Options, rows
from planner.specs.options.numbers import several
from planner.specs.options.parallel import AllReduceOptions
from planner.specs.plan import Plan
from planner.specs.training import TrainingSpec

_SMALLEST, _LARGEST = 2.0**10, 2.0**33  # bytes of the map and of crossovers: 1 KiB to 8 GiB
_SIZES = tuple(2.0**power for power in range(12, 34, 3))  # of the table by default
_MAP_COLUMNS = 47  # two per power of two between the ends, and one
_MODEL = "gpt2"  # any: a plan has one


def answer(given: Mapping[str, Any], request: AllReduceOptions) -> AllReduce:
    """Seconds of every algorithm for each size on all GPUs, and the fastest by size and number of
    ranks.

    given: cluster options by name. Raises PlanError naming the option.
    """
    options = read_without_model(given, "allreduce")
    cluster, m, assumed = links(options)
    sizes, servers = _bytes(request.bytes), request.servers
    count = servers or cluster.nodes
    here = all_reduce.network(m, cluster, cluster.gpus, count)
    ladder = np.geomspace(_SMALLEST, _LARGEST, _MAP_COLUMNS)
    rows, crossovers = [], []
    for ranks in _rank_counts(cluster):
        x = all_reduce.network(
            m, cluster, ranks, servers or max(1.0, -(-ranks // cluster.gpus_per_node))
        )
        fastest = all_reduce.fastest(x, ladder)
        rows.append(FastestBySize(ranks=ranks, nodes=x.nodes, fastest=fastest))
        crossovers += [
            Crossover(ranks=ranks, bytes=c.bytes, below=c.below, above=c.above)
            for c in all_reduce.crossovers(x, _SMALLEST, _LARGEST)
        ]
    return AllReduce(
        schema_version=SCHEMA_VERSION,
        cluster=AllReduceCluster(
            title=cluster.title,
            gpu=cluster.gpu.id,
            gpus=cluster.gpus,
            nodes=cluster.nodes,
            ranks_per_node=here.per_node,
            intra_node=cluster.intra_node.id,
            inter_node=cluster.inter_node.id,
        ),
        servers=count,
        algorithms=[
            Algorithm(
                name=algorithm.name,
                title=algorithm.title,
                letter=algorithm.letter,
                source=algorithm.source,
                refused=algorithm.unfit(here),
            )
            for algorithm in all_reduce.ALGORITHMS
        ],
        sizes=_sizes(here, sizes),
        map=FastestMap(bytes=ladder.tolist(), rows=rows),
        crossovers=crossovers,
        assumptions=assumed,
        doubts=[*doubts_of(options, of_model=False), *_doubts(max(sizes), cluster)],
    )


def _doubts(largest_bytes: float, cluster: ClusterSpec) -> list[str]:
    sentence = message(largest_bytes, cluster)
    return [] if sentence is None else [sentence]


def links(options: Options) -> tuple[ClusterSpec, Machine, list[str]]:
    """The cluster and its numbers; model, training and stack of the plan bear on no number of a
    link."""
    gpus = options.gpus
    if gpus < 2:
        raise PlanError("--gpus", gpus, "an all-reduce needs at least 2 GPUs, e.g. --gpus 64")
    cluster, assumed = cluster_spec(options)
    precision: Any = next(p for p in ("bf16", "fp16", "fp32") if cluster.gpu.rate(p) is not None)
    plan = Plan(
        model=model_spec(_MODEL)[0],
        cluster=cluster,
        stack=stack_spec("pytorch-ddp"),
        training=TrainingSpec(seq_len=1024, global_batch=gpus, precision=precision),
    )
    return cluster, machine(plan), assumed


def _bytes(text: str | None) -> Sequence[float]:
    if text is None:
        return _SIZES
    try:
        return several(rows(AllReduceOptions)["bytes"], text)
    except ValueError as error:
        raise PlanError("--bytes", text, f"{error}; write for example 100MB or 1MiB,1GiB") from None


def _rank_counts(cluster: ClusterSpec) -> list[int]:
    """Powers of two up to all GPUs, and all GPUs: parts of a node, or whole nodes."""
    domain = cluster.nvlink_domain
    powers = [2**power for power in range(1, cluster.gpus.bit_length()) if 2**power <= cluster.gpus]
    return sorted({n for n in powers if n <= domain or n % domain == 0} | {cluster.gpus})


def _sizes(x: all_reduce.Network, sizes: Sequence[float]) -> list[Size]:
    columns = np.array(sizes)
    seconds_of = all_reduce.seconds(x, columns)
    estimated = np.broadcast_to(all_reduce.as_estimated(x, columns), len(sizes))
    out = []
    for i, (size, fastest) in enumerate(zip(sizes, all_reduce.fastest(x, columns), strict=True)):
        seconds = {name: float(column[i]) for name, column in seconds_of.items()}
        bus_bytes = 2 * (x.ranks - 1) / x.ranks * size  # as nccl-tests count
        out.append(
            Size(
                bytes=size,
                seconds=seconds,
                fastest=fastest,
                bus_bytes_per_s=bus_bytes / seconds[fastest],
                estimated_s=float(estimated[i]),
            )
        )
    return out
