"""Whether the order of layouts is right: correlation of ranks and pick-regret over groups that
differ only in layout."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from planner.estimate.step import StepTime
from planner.estimate.ties import fastest
from planner.ledger import Array
from planner.studies.documents.validate import Group, GroupRun, Ranking, Run
from planner.studies.runs.cells import Row

LAYOUT = (
    "tp",
    "pp",
    "vpp",
    "cp",
    "ep",
    "dp",
    "zero",
    "shard_group",
    "sequence_parallel",
    "recompute",
    "schedule",
    "micro_batch",
    "optimizer_offload",
)
_SAME = (
    "suite",
    "stack",
    "gpu",
    "gpus",
    "gpus_per_node",
    "intra_node",
    "inter_node",
    "nics_per_node",
    "nic_gbps",
    "layers",
    "hidden",
    "ffn_hidden",
    "heads",
    "kv_heads",
    "head_dim",
    "vocab",
    "mlp",
    "norm",
    "positions",
    "tied_embeddings",
    "experts",
    "experts_per_token",
    "moe_ffn_hidden",
    "shared_experts",
    "dense_layers",
    "seq_len",
    "precision",
    "global_batch",
    "flash_attention",
)
_LAYOUT_OPTIONS = ("selective",)  # the part of `options` that is layout
_SMALLEST_GROUP = 5
_EQUAL = 1e-9  # relative: predictions this close are one number

# step components in which the GPU computes; the others wait for communication, the CPU or other
# stages
_BUSY = ("matmul", "attention", "memory_bound", "recompute", "optimizer")


def busy_s(time: StepTime, row: int = 0) -> float:
    """Seconds of one layout's step in which the GPU computes."""
    return sum(_at(time.components[name], row) for name in _BUSY if name in time.components)


def repeated_s(time: StepTime, row: int = 0) -> float:
    """Seconds of recompute in one layout's step."""
    return _at(time.components["recompute"], row)


def collectives(time: StepTime, row: int = 0) -> float:
    """Collectives and messages of one layout's step."""
    return sum(_at(kind.count, row) for kind in time.traffic)


def _at(column: Array, row: int) -> float:
    """A row of a column, which is one number where it is the same in all rows."""
    values = np.ravel(column)
    return float(values[row if len(values) > 1 else 0])


def group_of(row: Row) -> str:
    """Group key: all fields except the layout, with stack release and kernels."""
    rest = sorted(
        part
        for part in row.get("options", "").split(";")
        if part.partition("=")[0] not in _LAYOUT_OPTIONS
    )
    same = [row.get(name, "") for name in _SAME]
    if not row.get("layers", ""):
        same.append(row.get("model", ""))  # the only key that states the shape
    return "|".join([*same, ";".join(rest)])


def layout_of(row: Row) -> str:
    """The layout of a row in the words of its cells, as `tp=2 pp=4 ...`; what is empty is left
    out."""
    words = [f"{name}={row[name]}" for name in LAYOUT if row.get(name, "")]
    words += [
        part
        for part in row.get("options", "").split(";")
        if part.partition("=")[0] in _LAYOUT_OPTIONS
    ]
    return " ".join(words)


@dataclass(frozen=True)
class Ranked:
    """A run with a time, and what decides where predictions are equal."""

    run_id: str
    suite: str
    gpu: str
    gpus: int
    stack: str
    model: str
    group: str
    layout: str
    predicted_s: float
    measured_s: float
    busy_s: float
    collectives: float
    recompute_s: float


def ranked(runs: Iterable[Run]) -> list[Ranked]:
    """The runs that have a time."""
    return [
        Ranked(
            run_id=run.run_id,
            suite=run.suite,
            gpu=run.gpu,
            gpus=run.gpus,
            stack=run.stack,
            model=run.model,
            group=run.group,
            layout=run.layout,
            predicted_s=run.predicted_step_s,
            measured_s=run.measured_step_s,
            busy_s=run.gpu_busy_s,
            collectives=run.collectives,
            recompute_s=run.components.get("recompute", 0.0),
        )
        for run in runs
        if run.measured_step_s and run.outcome != "oom"
    ]


def groups_of(runs: Iterable[Ranked], noise: float = 0.0) -> list[Group]:
    """Every group of five or more layouts that ran, the one with the largest regret first.

    noise: relative spread of repeated measurements; predictions within it of the pick are ties.
    """
    by_group: dict[str, list[Ranked]] = defaultdict(list)
    for run in runs:
        by_group[run.group].append(run)
    large = [
        members
        for members in by_group.values()
        if len({run.layout for run in members}) >= _SMALLEST_GROUP
    ]
    return sorted(
        (_group(members, noise) for members in large),
        key=lambda g: (-g.pick_regret, g.spearman, g.group),
    )


def _group(members: list[Ranked], noise: float) -> Group:
    pick, best = _pick(members), min(members, key=lambda run: run.measured_s)
    limit = pick.predicted_s * (1 + max(noise, _EQUAL))
    ties = [run for run in members if run is not pick and run.predicted_s <= limit]
    return Group(
        group=pick.group,
        suite=pick.suite,
        gpu=pick.gpu,
        gpus=pick.gpus,
        stack=pick.stack,
        model=pick.model,
        runs=len(members),
        layouts=len({run.layout for run in members}),
        spearman=_spearman(
            [run.predicted_s for run in members], [run.measured_s for run in members]
        ),
        pick_regret=pick.measured_s / best.measured_s - 1,
        ties=len(ties),
        worst_tie_regret=max(run.measured_s / best.measured_s - 1 for run in [pick, *ties]),
        pick=_named(pick),
        best=_named(best),
    )


def _named(run: Ranked) -> GroupRun:
    return GroupRun(
        run_id=run.run_id,
        layout=run.layout,
        predicted_step_s=run.predicted_s,
        measured_step_s=run.measured_s,
    )


def _pick(members: list[Ranked]) -> Ranked:
    """The layout that the planner takes, see estimate.ties.

    Where it is equal in that, too: the one that keeps the GPU busy for less time, then the one with
    fewer collectives, as what is hidden or waited for is what a real run most often adds to.
    """
    ordered = sorted(members, key=lambda run: (run.busy_s, run.collectives))
    seconds = np.array([run.predicted_s for run in ordered])
    return ordered[fastest(seconds, np.array([run.recompute_s for run in ordered]))]


def ranking(groups: list[Group]) -> Ranking:
    """Means over groups: rank correlation and pick-regret; and in how many groups the pick is a
    tie."""
    if not groups:
        return Ranking(groups=0, spearman=None, pick_regret_mean=None, pick_regret_max=None, ties=0)
    regrets = [g.pick_regret for g in groups]
    return Ranking(
        groups=len(groups),
        spearman=sum(g.spearman for g in groups) / len(groups),
        pick_regret_mean=sum(regrets) / len(groups),
        pick_regret_max=max(regrets),
        ties=sum(g.ties > 0 for g in groups),
    )


def _ranks(values: list[float]) -> list[float]:
    """Ranks with ties averaged."""
    order = sorted(range(len(values)), key=values.__getitem__)
    ranks = [0.0] * len(values)
    start = 0
    while start < len(order):
        end = start
        while end + 1 < len(order) and values[order[end + 1]] == values[order[start]]:
            end += 1
        for i in order[start : end + 1]:
            ranks[i] = (start + end) / 2
        start = end + 1
    return ranks


def _spearman(a: list[float], b: list[float]) -> float:
    """Correlation of ranks; 0 where one side has no order at all."""
    ra, rb = _ranks(a), _ranks(b)
    mean = (len(a) - 1) / 2
    covariance = sum((x - mean) * (y - mean) for x, y in zip(ra, rb, strict=True))
    spread = math.sqrt(sum((x - mean) ** 2 for x in ra) * sum((y - mean) ** 2 for y in rb))
    return covariance / spread if spread > 0 else 0.0
