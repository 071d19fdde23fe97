"""Rows that leave parts of their recipe open: open cells, cells that follow from others, assumed
values, and errors counted apart from complete rows."""

from __future__ import annotations

import itertools

import pytest
from run_tables import left_open, row, row_plan

from planner.estimate import evaluate
from planner.specs.base import PlanError
from planner.specs.columns import Columns
from planner.specs.layout import Layout
from planner.studies.runs.cells import Row, Skip
from planner.studies.validate.predict import validate_rows

# 7B on 16 GPUs of two nodes, as its cells would state it in full
WHOLE = {
    "layers": "32",
    "hidden": "4096",
    "heads": "32",
    "gpus": "16",
    "tp": "2",
    "pp": "4",
    "vpp": "2",
    "dp": "2",
    "sequence_parallel": "1",
    "recompute": "selective",
    "schedule": "interleaved",
    "micro_batch": "2",
    "global_batch": "64",
}


def opened(*names: str, **changes: object) -> Row:
    return row(**{**WHOLE, **dict.fromkeys(names, ""), **changes})


def test_cells_that_follow_from_others_are_not_open() -> None:
    """One degree is what the others leave, one stage has no virtual stages, a batch of one sequence
    per replica has no choice of micro-batches, and one rank shards nothing."""
    values = {
        (): (),
        ("dp",): (),
        ("tp",): (),
        ("vpp", "schedule"): ("vpp",),
        ("schedule",): (),
        ("cp", "ep", "shard_group"): (),
        ("recompute", "micro_batch"): ("recompute", "micro_batch"),
        ("tp", "dp"): ("tp", "dp", "cp"),
    }
    for empty, wanted in values.items():
        result = opened(*empty)
        _, layout = row_plan(result)
        assert left_open(result) == wanted, empty
        if not wanted:
            assert (layout.tp, layout.dp, layout.vpp, layout.schedule) == (2, 2, 2, "interleaved")
    alone = row(gpus=1, dp=1, global_batch=1, micro_batch="", zero="", vpp="", stack="deepspeed")
    assert left_open(alone) == ()
    experts = {"experts": 8, "experts_per_token": 2, "moe_ffn_hidden": 4096, "ep": ""}
    assert left_open(row(**experts)) == ("ep",)
    with pytest.raises(Skip, match="but gpus is 16"):
        row_plan(opened(dp=4))


def test_recompute_is_the_default_of_the_program_also_where_it_does_not_fit() -> None:
    """Stacks that state one are meant; the row still counts as one whose recipe is not printed."""
    large = {"layers": "96", "hidden": "8192", "heads": "64", "micro_batch": "8"}
    result = opened("recompute", **large)
    kinds = {
        stack: row_plan(result | {"stack": stack})[1].recompute
        for stack in ("megatron-core", "megatron-lm-2022")
    }
    assert kinds["megatron-core"] == "none"
    assert kinds["megatron-lm-2022"] != "none"
    assert left_open(result | {"stack": "megatron-core"}) == ("recompute",)


def test_what_is_open_is_the_fastest_that_fits() -> None:
    """Against every combination of the values that the cells can have, each evaluated by itself."""
    for changes in ({}, {"hidden": "6144", "heads": "48", "layers": "48"}):
        result = opened("vpp", "schedule", "recompute", "micro_batch", **changes)
        plan, layout = row_plan(result)
        best: tuple[float, Layout] | None = None
        for vpp, size, kind in itertools.product((1, 2, 4, 8, 16), (1, 2, 4, 8, 16, 32), KINDS):
            if int(result["layers"]) % (4 * vpp):
                continue
            schedule = "interleaved" if vpp > 1 else "1f1b"
            update = {"vpp": vpp, "micro_batch": size, "recompute": kind, "schedule": schedule}
            if schedule == "interleaved" and (32 // size) % 4:
                continue
            changed = layout.model_copy(update=update)
            e = evaluate(plan, Columns.of([changed], 16))
            if e.fits[0] and (best is None or e.time.seconds[0] < best[0]):
                best = float(e.time.seconds[0]), changed
        assert best is not None
        taken = float(evaluate(plan, Columns.of([layout], 16)).time.seconds[0])
        assert taken <= best[0] * (1 + 0.017)  # ties repeat the least work


KINDS = ("none", "selective", "full")


def test_groups_of_zero_1_are_a_layout_of_stacks_that_have_them() -> None:
    cells = row(stack="internevo", zero=1, shard_group=4, recompute="")
    _, layout = row_plan(cells)
    assert left_open(cells) == ("recompute",)
    assert (layout.shard_group, layout.recompute) == (4, "none")
    large = cells | {"hidden": "8192", "heads": "64", "layers": "32", "micro_batch": "8"}
    assert row_plan(large)[1].recompute != "none"


def test_rows_with_open_recipes_are_no_part_of_the_errors() -> None:
    peak = {"peak_memory_gib": 20, "memory_kind": "allocated"}
    document = validate_rows(
        [
            row(run_id="a", step_s=2, **peak),
            row(run_id="b", step_s=20, recompute="", micro_batch="", **peak),
            row(run_id="c", step_s=20, micro_batch="", **peak),
            row(run_id="d", step_s=20, recompute="", options="peft=lora"),
        ]
    )
    assert [run.not_printed for run in document.rows] == [
        "",
        "recompute;micro_batch",
        "micro_batch",
        "recompute",
    ]
    assert (document.summary.time.n, document.suites["small"].time.n) == (1, 1)
    assert (document.not_printed.rows, document.not_printed.summary.time.n) == (2, 2)
    assert document.not_printed.cells == {"micro_batch": 2, "recompute": 1}
    assert document.apart.rows == 1
    assert document.kinds["all"].n == 1
    assert [run.need is None for run in document.rows] == [False, True, True, True]


def test_no_layout_is_possible() -> None:
    with pytest.raises(PlanError, match="does not divide"):
        row_plan(row(gpus=7, dp="", tp="", pp=1, global_batch=64))
