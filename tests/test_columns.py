"""Layouts as columns: one list of columns, there and back, and quantities that have a name."""

from __future__ import annotations

import numpy as np
import plans
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.specs.columns import COLUMNS, Columns, joined, unique_rows
from planner.specs.layout import (
    CODES,
    OFFLOADS,
    PLACEMENTS,
    SCHEDULES,
    Layout,
    recompute_parts,
    recompute_text,
)

SIZED = ("block", "group", "keep", "modules")
DEGREE = st.sampled_from([1, 2, 4])


@st.composite
def any_layout(draw: st.DrawFn) -> Layout:
    dp, cp = draw(DEGREE), draw(DEGREE)
    kind = draw(st.sampled_from(CODES["recompute"]))
    size = draw(st.integers(1, 31))
    return Layout(
        tp=draw(DEGREE),
        pp=draw(DEGREE),
        vpp=draw(DEGREE),
        dp=dp,
        cp=cp,
        ep=draw(st.sampled_from([1, dp])),
        zero=draw(st.integers(0, 3)),
        shard_group=draw(st.sampled_from([cp, dp * cp])),
        sequence_parallel=draw(st.booleans()),
        recompute=recompute_text(CODES["recompute"].index(kind), size * (kind in SIZED)),
        schedule=draw(st.sampled_from(SCHEDULES)),
        micro_batch=draw(DEGREE),
        offload=draw(st.sampled_from(OFFLOADS)),
        placement=draw(st.sampled_from(PLACEMENTS)),
    )


def test_columns_are_those_of_a_layout() -> None:
    assert set(COLUMNS) == {*Layout.model_fields, "recompute_size"}
    assert set(CODES) <= set(COLUMNS)


@given(st.lists(any_layout(), max_size=5))
def test_layouts_come_back(layouts: list[Layout]) -> None:
    table = Columns.of(layouts)
    assert len(table) == len(layouts)
    assert [table.layout(row) for row in range(len(table))] == layouts
    assert [table.candidate(row) for row in range(len(table))] == layouts


@given(any_layout())
def test_named_quantities_are_those_of_the_layout(layout: Layout) -> None:
    c = Columns.of([layout])
    kind = CODES["recompute"][recompute_parts(layout.recompute)[0]]
    assert c.gpus[0] == layout.tp * layout.pp * layout.cp * layout.dp
    assert c.replicas[0] == layout.dp * layout.cp
    assert c.shards[0] == (layout.shard_group if layout.zero else 1)
    assert c.sequence_ranks[0] == (layout.tp if layout.sequence_parallel else 1)
    assert c.syncs_per_layer[0] == (layout.zero == 3 or (layout.zero == 2 and layout.pp == 1))
    assert c.is_recompute(*CODES["recompute"]).all()  # type: ignore[arg-type]
    assert c.is_recompute("full", "group")[0] == (kind in ("full", "group"))
    names = layout.recompute.split("+") if kind == "modules" else []
    assert c.repeats_module("moe_act", "mlp")[0] == bool({"moe_act", "mlp"} & set(names))
    kept = layout.recompute.removeprefix("keep:").split("+") if kind == "keep" else []
    assert c.keeps_result("context")[0] == ("context" in kept)
    assert c.is_schedule("1f1b", "gpipe")[0] == (layout.schedule in ("1f1b", "gpipe"))
    assert c.offloads("params")[0] == (layout.offload == "params")
    assert c.is_placement(layout.placement)[0]


def test_a_batch_of_its_own_counts_before_that_of_the_plan() -> None:
    c = plans.rows(8, {}, {"micro_batch": 2})
    assert c.microbatches(64).tolist() == [8, 4]
    table = Columns(**c.named(), global_batch=np.array([8.0, 32.0]))
    assert table.microbatches(64).tolist() == [1, 2]
    assert joined([table, table]).pick([3]).microbatches(64).tolist() == [2]


def test_degrees_are_checked_when_a_table_is_made() -> None:
    first = plans.layout(8, tp=2)
    assert len(Columns.of([first], gpus=8)) == 1
    with pytest.raises(ValueError, match="but there are 16 GPUs"):
        Columns.of([first], gpus=16)
    with pytest.raises(ValueError, match=r"must divide dp \* cp = 8"):
        plans.layout(8, shard_group=3)


def test_distinct_combinations_lead_back_to_every_row() -> None:
    c = plans.rows(8, {}, {"tp": 2}, {"micro_batch": 2}, {"tp": 2, "zero": 1})
    columns = {name: getattr(c, name) for name in ("tp", "micro_batch")}
    result, back = unique_rows(columns)
    assert len(result["tp"]) == 3
    for name, column in columns.items():
        assert (result[name][back] == column).all()
