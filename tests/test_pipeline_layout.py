"""A stated pipeline layout: parsing, and its effect on memory and step time."""

from __future__ import annotations

import time

import numpy as np
import plans
import pytest
from hypothesis import given
from hypothesis import strategies as st
from run_tables import row_plan

from planner import api
from planner.estimate import Estimates, evaluate
from planner.formulas.stages import chunks_of, contents
from planner.inputs import catalog
from planner.specs.base import PlanError
from planner.specs.layout import LayoutRequest
from planner.specs.model import ModelSpec
from planner.specs.pipeline_layout import Chunk, layout_name, layout_text, pipeline_layout
from planner.studies.validate.rows import SHIPPED, read_rows


def test_megatrons_example_reads_as_its_table() -> None:
    """docs.nvidia.com/megatron-core, Custom Pipeline Model Parallel Layout: PP16, VPP2."""
    chunks = pipeline_layout("Et*3|(tt|)*29,m|L")
    assert len(chunks) == 32
    assert chunks[0] == Chunk(True, 3, 0, False)
    assert {(chunk.layers, chunk.mtp) for chunk in chunks[1:30]} == {(2, 0)}
    assert chunks[30:] == (Chunk(False, 0, 1, False), Chunk(False, 0, 0, True))
    assert sum(chunk.layers for chunk in chunks) == 61


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "one E"),
        ("tt|L", "one E"),
        ("Ett|t", "one L"),
        ("Et|EtL", "one E"),
        ("E|L", "no layer"),
        ("Em|tL", "behind all others"),
        ("Etm|mL", "in one chunk"),
        ("Etx|L", "'x' at character 3"),
        ("E(t|*3L", "not closed"),
        ("E((t|)*2)*2L", "inside parentheses"),
        ("E(t|)*3(tL", "not closed"),
        ("Et)*2L", "closes nothing"),
        ("E(t|)L", "repeats nothing"),
        ("E(t|)*9999tL", "chunks, more than"),
        ("Et*999999L", "letters"),
        ("E" + "(t*999999|)*999999" * 100 + "L", "letters"),
    ],
)
def test_a_wrong_layout_says_what_is_wrong(text: str, sentence: str) -> None:
    started = time.process_time()
    with pytest.raises(ValueError, match=sentence):
        pipeline_layout(text)
    assert time.process_time() - started < 0.5


@given(
    layers=st.lists(st.integers(0, 9), min_size=1, max_size=40).filter(any), mtp=st.integers(0, 2)
)
def test_what_is_written_reads_as_the_same(layers: list[int], mtp: int) -> None:
    end = len(layers) - 1
    chunks = tuple(Chunk(i == 0, n, mtp * (i == end), i == end) for i, n in enumerate(layers))
    text = layout_text(chunks)
    assert pipeline_layout(text) == chunks
    assert layout_name(text) == text


@pytest.mark.parametrize(("pp", "vpp"), [(16, 1), (4, 4), (2, 8), (8, 4), (3, 1)])
def test_stating_what_the_stack_would_do_changes_nothing(pp: int, vpp: int) -> None:
    shape = catalog.load("models", ModelSpec, "deepseek-v3")
    free = plans.plan(shape, gpus=8 * pp, software="megatron-core", global_batch=16 * pp)
    text = layout_text(chunks_of(free, pp, vpp))
    stated = free.model_copy(update={"request": LayoutRequest(pipeline_layout=text)})
    row = {"pp": pp, "vpp": vpp, "ep": 8, "schedule": "interleaved" if vpp > 1 else "1f1b"}
    every = np.arange(float(pp))[:, None]
    first, other = (evaluate(subject, plans.rows(8 * pp, row), every) for subject in (free, stated))
    assert other.time.seconds[0] == first.time.seconds[0]
    assert other.memory.stage_peaks.tolist() == first.memory.stage_peaks.tolist()


def test_the_slowest_stage_sets_the_pace() -> None:
    """Twelve layers on four stages: 3 each, or 1, 5, 5 and 1."""
    plan = plans.plan(plans.model(layers=12), gpus=4, software="megatron-core", global_batch=64)
    bad = plan.model_copy(update={"request": LayoutRequest(pipeline_layout="Et|t*5|t*5|tL")})
    row = plans.rows(4, {"pp": 4})
    even, uneven = (evaluate(entry, row).time for entry in (plan, bad))
    assert [float(n[0]) for n in uneven.ranks.layers] == [1, 5, 1]
    layer = float(even.components["matmul"][0]) - 64 * float(even.ranks.each.head.forward[0])
    assert uneven.components["matmul"][0] > 1.3 * even.components["matmul"][0] > layer > 0


def test_an_mtp_layer_is_a_layer_a_head_and_a_projection() -> None:
    def layouts(text: str) -> Estimates:
        plan = plans.plan(
            plans.model(layers=4), gpus=2, request=LayoutRequest(pipeline_layout=text)
        )
        return evaluate(plan, plans.rows(2, {"pp": 2}))

    plain, mtp = layouts("Ett|ttL"), layouts("Ett|ttmL")
    each = mtp.time.ranks.each
    module = sum(float(np.sum(x)) for w in (each.mean, each.head, each.module) for x in w)
    assert float(np.sum(each.module.forward)) > 0
    slowest = [float(entry.time.ranks.slowest_s()[0]) for entry in (plain, mtp)]
    assert slowest[1] - slowest[0] == pytest.approx(module)
    assert mtp.memory.stage_layers[-1][0] == 3


def test_a_layout_fixes_the_chunks_and_is_refused_where_it_does_not_go() -> None:
    options = {"model": "deepseek-v3", "gpu": "h800", "gpus": 2048, "stack_defaults": True}
    text = "Et*4|(t*4|)*14tmL"
    request = api.read_options({**options, "pp": 8, "pipeline_layout": text})
    estimate = api.estimate(request, brief=True)
    assert (estimate.layout.pp, estimate.layout.vpp) == (8, 2)
    assert estimate.layout.pipeline_layout == text
    assert estimate.memory.per_stage[0].holds == "Et*4|t*4"
    assert estimate.memory.per_stage[-1].holds == "t*4|tmL"
    for more, sentence in (
        ({"pipeline_layout": "Et*4|tL"}, "has 5 layers"),
        ({"pipeline_layout": text, "pp": 8, "vpp": 4}, "--vpp 2"),
        ({"pipeline_layout": text, "pp": 32}, "nearest: --pp 16"),
        ({"pipeline_layout": text, "stack": "megatron-lm-2022"}, "--stack megatron-core"),
    ):
        with pytest.raises(PlanError, match=sentence):
            api.estimate(api.read_options({**options, **more}))


def test_runs_say_what_their_stages_hold() -> None:
    row = next(r for r in read_rows(SHIPPED / "nemo-moe.csv") if r["pp"] == "4" == r["vpp"])
    for words, chunks in (
        ("pp_layout=Et*4|(t*4|)*14tmL", [4] * 15 + [2]),
        ("first_stage_layers=16;last_stage_layers=13", None),
        ("last_stage_layers=13", None),
    ):
        stated = {**row, "options": words, "vpp": "4" if chunks else "1"}
        plan, layout = row_plan(stated)
        layers = contents(plan, layout.pp, layout.vpp).layers
        assert layers.reshape(-1).tolist() == (chunks or [16, 16, 16, 13])
