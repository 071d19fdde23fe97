"""Measured runs as recipes in words that any planner has, and what dpplan answers for them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from benchmarks.studies.crossval import without_each_suite
from benchmarks.studies.runs import Runs, read_runs
from planner.estimate import Estimates
from planner.specs.training import scores_on_chip
from planner.studies.documents.validate import Run
from planner.studies.runs.cells import Row, Skip, number, options_of, whole
from planner.studies.validate.errors import complete
from planner.studies.validate.predict import has_time
from planner.studies.validate.rows import FRESH, SHIPPED, read_rows
from planner.studies.validate.scored import predict

Recipe = dict[str, Any]
Answer = dict[str, Any]
_GB = 1e9
_SAME = 0.01  # parameters of a plain transformer differ by less from the plan's
# matrices that adapters stand on, in the words of benchmarks/planners/adapter.py
_TARGETS = {
    frozenset({"q_proj", "v_proj"}): "qv",
    frozenset({"q_proj", "k_proj", "v_proj", "o_proj"}): "attention",
    frozenset({"q_proj", "k_proj", "v_proj", "o_proj", "up_proj", "gate_proj", "down_proj"}): "all",
}
CLASSES = ("dense, pipeline", "dense, FSDP or ZeRO-3", "dense, other", "experts", "adapters")


def measured() -> dict[str, Row]:
    """Rows of the shipped and the fresh tables by id."""
    tables = (path for folder in (SHIPPED, FRESH) for path in sorted(folder.glob("*.csv")))
    return {row["run_id"]: row for path in tables for row in read_rows(path)}


def class_of(row: Row) -> str:
    """The class of a run, one of CLASSES."""
    if options_of(row).get("peft", "none") != "none":
        return "adapters"
    if number(row, "experts", 0) > 1:
        return "experts"
    if number(row, "pp", 1) > 1:
        return "dense, pipeline"
    return "dense, FSDP or ZeRO-3" if row.get("zero") == "3" else "dense, other"


def _plain_parameters(recipe: Recipe) -> float:
    """Parameters of a transformer of attention and MLP with these sizes."""
    hidden, matrices = recipe["hidden"], 3 if recipe["gated"] else 2
    heads = 2 * recipe["head_dim"] * (recipe["heads"] + recipe["kv_heads"])
    routed = recipe["layers"] - recipe["dense_layers"] if recipe["experts"] > 1 else 0
    each = matrices * recipe["expert_ffn"] + 1  # and a column of the router
    ffn = (recipe["layers"] - routed) * matrices * recipe["ffn"]
    ffn += routed * (recipe["experts"] + recipe["shared_experts"]) * each
    ends = recipe["vocab"] * (1 if recipe["tied"] else 2)
    ends += recipe["seq_len"] if recipe["learned"] else 0
    return float(hidden * (recipe["layers"] * heads + ffn + ends))


def _recipe(row: Row, run: Run, estimates: Estimates) -> Recipe:
    plan, layout, words = estimates.plan, estimates.table.layout(0), options_of(row)
    cluster, heads = plan.cluster, whole(row, "heads")
    targets = frozenset(words.get("targets", "").split("+"))
    recipe = {
        "run_id": row["run_id"],
        "gpu": row["gpu"],
        "gpus": cluster.gpus,
        "gpus_per_node": cluster.gpus_per_node,
        "node_gb_per_s": cluster.intra_node.bandwidth / _GB,
        "across_gb_per_s": cluster.nic_bandwidth
        * min(1.0, cluster.nics_per_node / cluster.gpus_per_node)
        / _GB,
        "layers": whole(row, "layers"),
        "hidden": whole(row, "hidden"),
        "ffn": whole(row, "ffn_hidden"),
        "heads": heads,
        "kv_heads": whole(row, "kv_heads", heads),
        "head_dim": whole(row, "head_dim", whole(row, "hidden") / heads),
        "vocab": whole(row, "vocab"),
        "gated": row.get("mlp", "") in ("swiglu", "geglu", ""),
        "tied": row.get("tied_embeddings", "") == "1",
        "learned": row.get("positions", "") == "learned",
        "experts": whole(row, "experts", 0),
        "experts_per_token": whole(row, "experts_per_token", 0),
        "expert_ffn": whole(row, "moe_ffn_hidden", 0),
        "shared_experts": whole(row, "shared_experts", 0),
        "dense_layers": whole(row, "dense_layers", 0),
        "precision": plan.training.precision,
        "flash": scores_on_chip(plan.attention),
        "peft": words.get("peft", "none"),
        "rank": int(words.get("rank", 0)),
        "targets": _TARGETS.get(targets, ""),
        "seq_len": plan.training.seq_len,
        "global_batch": plan.training.global_batch,
        **layout.model_dump(mode="json"),
    }
    same = math.isclose(_plain_parameters(recipe), run.parameters, rel_tol=_SAME)
    return recipe | {"plain": same}


def recipes(runs: Runs) -> Iterator[Recipe]:
    """A recipe for every run that states its own completely, the shape of its model included."""
    for row, run in zip(runs.rows, runs.document.rows, strict=True):
        if complete(run) and not run.phases and (run.measured_step_s or run.measured_peak_gib):
            with suppress(Skip):
                yield _recipe(row, run, predict(row))


def _answer(run: Run, step_s: float | None) -> Answer:
    """step_s: by numbers fitted without the run's suite; the band is around it."""
    scale = (step_s or run.predicted_step_s) / run.predicted_step_s
    return {
        "run_id": run.run_id,
        "step_s": run.predicted_step_s * scale,
        "low_step_s": run.low_step_s * scale,
        "high_step_s": run.high_step_s * scale,
        "peak_gib": run.predicted_peak_gib,
    }


def answered() -> tuple[list[Recipe], list[Answer]]:
    """All recipes, and dpplan's answers: step times by numbers fitted without the run's suite, of
    suites that nothing was chosen with by the shipped numbers. Minutes."""
    all_recipes: list[Recipe] = []
    answers: list[Answer] = []
    for folders in ([], [FRESH]):
        runs = read_runs(folders)
        unseen: dict[str, float] = {}
        if not folders:
            ids = [case.row["run_id"] for case in runs.cases]
            unseen = dict(zip(ids, without_each_suite(runs.cases)[0].tolist(), strict=True))
        mine = list(recipes(runs))
        known = {recipe["run_id"] for recipe in mine}
        all_recipes += mine
        answers += [
            _answer(run, unseen.get(run.run_id) if has_time(run) else None)
            for run in runs.document.rows
            if run.run_id in known
        ]
    return all_recipes, answers
