"""Whether the order of layouts is right: correlation of ranks and pick-regret over groups that differ only in layout."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import Any

from planner.validate.rows import Row

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
)
_SAME = (
    "suite", "stack", "gpu", "gpus", "layers", "hidden", "ffn_hidden", "heads", "kv_heads", "head_dim", "vocab", "mlp", "experts",
    "experts_per_token", "moe_ffn_hidden", "seq_len", "precision", "global_batch",
)  # fmt: skip
_LAYOUT_OPTIONS = ("selective",)  # the part of `options` that is layout
_SMALLEST_GROUP = 5


def group_of(row: Row) -> str:
    rest = sorted(part for part in row.get("options", "").split(";") if part.partition("=")[0] not in _LAYOUT_OPTIONS)
    return "|".join([*(row.get(name, "") for name in _SAME), ";".join(rest)])


def ranking(entries: list[dict[str, Any]]) -> dict[str, Any]:
    """Spearman correlation and pick-regret, means over groups of rows that differ only in layout."""
    groups: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for entry in entries:
        if entry["measured_step_s"]:
            groups[entry["group"]].append(entry)
    correlations, regrets = [], []
    for members in groups.values():
        if len({e["layout"] for e in members}) < _SMALLEST_GROUP:
            continue
        predicted, measured = [e["predicted_step_s"] for e in members], [e["measured_step_s"] for e in members]
        correlations.append(_spearman(predicted, measured))
        regrets.append(measured[predicted.index(min(predicted))] / min(measured) - 1)
    if not regrets:
        return {"groups": 0, "spearman": None, "pick_regret_mean": None, "pick_regret_max": None}
    return {
        "groups": len(regrets),
        "spearman": sum(correlations) / len(correlations),
        "pick_regret_mean": sum(regrets) / len(regrets),
        "pick_regret_max": max(regrets),
    }


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
