"""Charts and choices of the dashboard: charts match their tables, legal values are those that
estimates accept."""

from __future__ import annotations

import csv
import io
import json
import math
from functools import cache
from typing import Any
from urllib.parse import parse_qsl
from xml.etree import ElementTree

import numpy as np
import pytest
from plotly import graph_objects

from planner import api
from planner.estimate.ties import TIE
from planner.formulas.rules import check
from planner.inputs import catalog
from planner.inputs.scenario import resolve
from planner.search import layouts
from planner.specs.base import PlanError
from planner.specs.document import changed, plain, to_json
from planner.specs.documents.compare import FIGURES
from planner.specs.documents.estimate import Estimate
from planner.specs.options import Origin
from planner.specs.options.own import CompareOptions
from planner.specs.plan import Plan
from planner.studies.web import panel as measured
from planner.units import show
from planner.verbs import explanation as explained
from planner.verbs.compare import compare
from planner.views import estimate_figures
from planner.views.cells import Column, cell_text, csv_text
from planner.views.chart import Chart
from planner.views.drawn import svg
from planner.views.figures import DARK_TWINS, GIB, TEMPLATE
from web.panels import calibrated, gantt, landscape, legal, scaling
from web.state import State, of_pairs
from web.tasks import PANELS

FIXED = {
    "model": "llama-2-7b",
    "gpu": "h100-sxm5-80gb",
    "gpus": 16,
    "tp": 2,
    "pp": 4,
    "zero": 1,
    "micro_batch": 1,
    "recompute": "selective",
    "global_batch": 64,
    "vpp": 1,
    "schedule": "1f1b",
}
OPEN = {"model": "llama-3-8b", "gpu": "h100-sxm5-80gb", "gpus": 16, "global_batch": 128}


def cells(chart: Chart) -> Any:
    """Rows of a chart's table, whose columns are texts or numbers as the chart says."""
    return chart.rows


def panel(name: str, options: api.Options) -> Chart:
    """The chart of a panel that has one."""
    (chart,) = PANELS[name](State(options))
    return chart


@cache
def report(brief: bool = True) -> Estimate:
    return api.estimate(api.read_options(FIXED), brief=brief)


def test_a_brief_estimate_has_the_same_numbers() -> None:
    for given in (FIXED, OPEN):
        options = api.read_options(given)
        brief, full = api.estimate(options, brief=True), api.estimate(options)
        left_out = ("alternatives", "advice", "both_ways", "machine", "near_ties", "provenance")
        less = changed(full, **{name: getattr(brief, name) for name in left_out})
        assert less == brief
        assert full.machine
        assert brief.machine == []


def test_stages_add_up_to_the_device() -> None:
    chart = estimate_figures.stages(report())
    worst = next(row for row in chart.rows if row[0] == report().memory.worst_stage)
    assert worst[-1] == pytest.approx(report().memory.device_bytes)
    heights = [sum(trace["y"][i] for trace in chart.figure["data"]) for i in range(len(chart.rows))]
    assert [row[-1] for row in chart.rows] == pytest.approx([height * GIB for height in heights])


def test_phases_offer_every_stage_and_the_table_has_every_phase() -> None:
    chart = estimate_figures.phases(report())
    stages = report().memory.per_stage
    assert [choice.label for choice in chart.choices] == [
        f"stage {stage.stage}" for stage in stages
    ]
    assert len(chart.rows) == sum(len(stage.phases) for stage in stages)
    assert all(row[-1] == pytest.approx(sum(row[2:-1])) for row in cells(chart))


def test_the_waterfall_ends_at_the_step() -> None:
    chart = estimate_figures.waterfall(report())
    assert (
        sum(row[1] for row in cells(chart)[:-1])
        == pytest.approx(cells(chart)[-1][1])
        == pytest.approx(report().step.seconds)
    )


def test_no_kernel_is_above_the_roof() -> None:
    chart = panel("roofline", api.read_options(FIXED))
    clock = next(n.value for n in report(False).machine if n.name == "sustained_clock")
    for name, flop, moved, intensity, reached, share, seconds in cells(chart):
        assert intensity == pytest.approx(flop / moved), name
        assert reached == pytest.approx(flop / seconds), name
        assert 0 < share <= clock, name
    forward = {row[0]: row[1] for row in chart.rows}
    # a 2 x m x n x k product each way: both gradients do the work of the forward
    assert (
        forward["mlp in, forward"]
        == forward["mlp in, input gradient"]
        == forward["mlp in, weight gradient"]
    )
    tokens, hidden, ffn = 4096, 4096, 11008
    assert forward["mlp in, forward"] == 2 * tokens * hidden * (
        2 * ffn / 2
    )  # gate and up, half of each with tp 2


def test_scaling_is_the_curve_of_a_comparison() -> None:
    here = State(api.read_options(FIXED))
    chart, efficiency = scaling.charts(here, 1024)
    assert [row[0] for row in chart.rows] == [2, 4, 8, 16, 32, 64, 128]
    fitting: Any = {row[0]: row for row in chart.rows if row[1] != ""}
    sweep = CompareOptions(sweep=("gpus=8..128",))
    given_ = {name: value for name, value in FIXED.items() if name != "gpus"}
    (curve,) = compare(sweep, given_).curves
    for point in curve.points:
        assert point.step_seconds == pytest.approx(fitting[point.value][1])
        assert fitting[point.value][2:5] == pytest.approx(
            [point.tokens_per_s, point.tokens_per_s_per_gpu, point.mfu]
        )
    assert efficiency.figure["data"][0]["y"] == pytest.approx([p.efficiency for p in curve.points])
    assert fitting[16][1] == pytest.approx(report().step.seconds, rel=1e-9)
    clicked = {
        row[0]: update
        for row, update in zip(chart.rows, chart.states, strict=True)
        if update is not None
    }
    assert set(clicked) == set(fitting)
    target = of_pairs(parse_qsl(here.updated(clicked[64])))
    assert target.is_typed("gpus")
    again = api.estimate(target.options, brief=True)
    assert again.step.seconds == pytest.approx(fitting[64][1], rel=1e-12)
    assert "tp 2 x pp 4 does not divide 4 GPUs" in chart.summary
    assert f"More GPUs pay up to {curve.pays_until:,.0f}" in chart.summary
    seconds: Any = [row[1] for row in fitting.values()]
    assert seconds == sorted(seconds, reverse=True)  # more GPUs, same batch: faster


def test_scaling_stops_where_the_server_does() -> None:
    rows = cells(scaling.charts(State(api.read_options(FIXED)), 32)[0])
    assert [row[0] for row in rows] == [2, 4, 8, 16, 32]


def test_scaling_says_why_nothing_runs() -> None:
    with pytest.raises(PlanError, match="does not fit"):
        scaling.charts(
            State(api.read_options({**FIXED, "model": "llama-2-70b", "gpu": "rtx4090"})), 32
        )


def test_the_front_is_a_front_and_its_states_lead_to_its_numbers() -> None:
    open_ = State(api.read_options(OPEN))
    front, heat = landscape.charts(open_)
    seconds, memory = [row[0] for row in cells(front)], [row[1] for row in cells(front)]
    assert seconds == sorted(seconds)
    assert memory == sorted(memory, reverse=True)
    points: Any = [(update, *row[:2]) for row, update in zip(front.rows, front.states, strict=True)]
    fields: Any = [
        (update, *row[4:6]) for row, update in zip(heat.rows, heat.states, strict=True) if row[3]
    ]
    for update, step_s, device_bytes in [
        *points[:: max(1, len(points) // 4)],
        *fields[:: max(1, len(fields) // 4)],
    ]:
        pinned = of_pairs(parse_qsl(open_.updated(update)))
        again = api.estimate(pinned.options, brief=True)
        assert again.step.seconds == pytest.approx(step_s, rel=1e-12)
        assert again.memory.device_bytes == pytest.approx(device_bytes, rel=1e-12)
        assert pinned.options.origin("tp") == Origin("search", "picked")
    assert min(row[4] for row in cells(heat) if row[3]) == seconds[0]
    needs, fits = (
        [value for line in trace["z"] for value in line if value is not None]
        for trace in heat.figure["data"]
    )
    assert sorted(fits) == sorted(row[4] for row in cells(heat) if row[3])
    assert len(needs) == sum(not row[3] for row in heat.rows)


def test_the_front_begins_with_the_fastest_that_fits() -> None:
    """With stack defaults, since a search picks free options for the layout with headroom."""
    plain = {**OPEN, "stack_defaults": True}
    front, _ = landscape.charts(State(api.read_options(plain)))
    best = cells(front)[0][0]
    fastest = api.estimate(api.read_options({**plain, "headroom": "0%"}), brief=True)
    assert best <= fastest.step.seconds <= best * (1 + TIE)


def test_the_crossover_takes_the_fastest_algorithm() -> None:
    chart = panel("crossover", api.read_options({**OPEN, "gpus": 64, "tp": 2, "pp": 1}))
    assert [c.title for c in chart.columns][1:3] == ["ring", "double binary tree"]
    for row in cells(chart):
        assert row[5] == ("ring" if row[1] <= row[2] else "double binary tree")
        assert row[3] >= min(row[1], row[2]) * (1 - 1e-12)
    alone = api.read_options({**OPEN, "gpus": 1})
    with pytest.raises(PlanError, match="one GPU reduces nothing"):
        panel("crossover", alone)


def test_the_gantt_draws_every_pass_and_the_table_every_schedule() -> None:
    (chart,) = gantt.charts(api.read_options(FIXED))
    passes = sum(len(trace["x"]) for trace in chart.figure["data"])
    assert passes == 4 * (64 // 2) * 2  # ranks x micro-batches x (forward and backward)
    assert {row[0] for row in chart.rows} == {entry.id for entry in api.list_catalog("schedules")}
    assert gantt.charts(api.read_options({**OPEN, "pp": 1})) == []  # nor any without a pipeline


def test_measured_runs_are_those_that_ship() -> None:
    chart = measured.chart(api.read_options(OPEN))
    assert sum(row[2] for row in cells(chart)) == len(measured.runs()) > 1000
    drawn = sum(len(trace["x"]) for trace in chart.figure["data"] if trace["mode"] == "markers")
    assert drawn == len(measured.runs())


LAYOUT = (
    "tp",
    "pp",
    "dp",
    "cp",
    "vpp",
    "ep",
    "zero",
    "micro_batch",
    "recompute",
    "schedule",
    "offload",
    "sequence_parallel",
)


def _allowed(plan: Plan) -> bool:
    """Whether a search of the plan would find any layout."""
    table = layouts(plan)
    return len(table) > 0 and bool(np.logical_and.reduce(list(check(plan, table).values())).any())


@pytest.mark.parametrize(
    "given",
    [FIXED, {**OPEN, "stack": "megatron-core"}, {**OPEN, "model": "mixtral-8x7b", "tp": 2}],
    ids=["fixed", "open", "experts"],
)
def test_legal_values_are_what_an_estimate_accepts(given: dict[str, Any]) -> None:
    """An estimate accepts every offered value and refuses the others."""
    options = api.read_options(given)
    for name, offered in legal.choices(options, 64).items():
        assert offered, name
        for choice in offered:
            request = options.changed(**{name: choice.value})
            if name == "sequence_parallel" and request.tp is None:
                continue
            try:
                scenario = resolve(request)
                possible = any(_allowed(plan) for plan in scenario.plans)
            except PlanError:
                possible = False
            assert possible == (choice.reason is None), (name, choice)


def test_reasons_are_the_sentences_of_the_rules() -> None:
    options = api.read_options(FIXED)
    choices = {
        name: {c.value: c.reason for c in offered}
        for name, offered in legal.choices(options, 64).items()
    }
    text = "pp 4 x vpp 16 = 64 chunks are more than the 32 layers"
    assert choices["vpp"][16] == f"{text}; nearest: --pp 2, or --vpp 8"
    assert choices["gpus"][4] == "tp 2 x pp 4 does not divide 4 GPUs"
    assert "does not divide" in str(choices["tp"][16])
    with pytest.raises(PlanError, match=text):
        api.estimate(options.changed(vpp=16))


def test_every_figure_is_where_an_estimate_has_it() -> None:
    for name in ("name", "label", "path"):
        assert len({getattr(figure, name) for figure in FIGURES}) == len(FIGURES)
    timed = api.estimate(api.read_options({**FIXED, "tokens": "10B"}), brief=True)
    assert all(isinstance(figure.of(timed), (int, float)) for figure in FIGURES)


def test_explanations_hold_the_formulas_and_add_up() -> None:
    document = plain(explained.document(api.read_options(FIXED)))
    parts = {part["key"]: part for part in document["parts"]}
    figures = {"time", "memory", "throughput", "mfu", "days", "cost", "energy"}
    assert set(parts) == figures
    assert sum(leaf["value"] for leaf in parts["time"]["leaves"]) == pytest.approx(
        report().step.seconds
    )
    assert sum(leaf["value"] for leaf in parts["memory"]["leaves"]) == pytest.approx(
        report().memory.device_bytes
    )
    names = {call["name"] for key in ("throughput", "mfu") for call in parts[key]["calls"]}
    assert {"tokens per s", "utilisation"} <= names

    def walk(call: dict[str, Any]) -> list[dict[str, Any]]:
        return [call, *(inner for entry in call.get("calls", []) for inner in walk(entry))]

    items = [node for part in parts.values() for call in part["calls"] for node in walk(call)]
    assert all(node["source"] and node["equation"] for node in items if "output" in node)
    assert any(given.get("kind") == "vendor" for node in items for given in node.get("inputs", []))


def test_a_calibration_says_what_it_changed() -> None:
    text = (
        'schema_version = 1\ngpu = "h100-sxm5-80gb"\n[overlay.kernels]\ngemm_efficiency = { value ='
        ' 0.5, kind = "measured", source = "own run", date = "2026-11-01" }\n'
    )
    with catalog.only_given({"calibration.toml": text}):
        options = api.read_options({**FIXED, "calibration": "calibration.toml"})
        after = api.estimate(options)
        (block,) = calibrated.blocks(options, after)
    ((_, field, before, *others),) = block.rows
    assert (field, others) == ("kernels.gemm_efficiency", ["0.5", "measured", "own run"])
    assert float(before) > 0.5
    assert after.step.seconds > report().step.seconds
    steps = (show(seconds, "s") for seconds in (report().step.seconds, after.step.seconds))
    assert block.text == ["Step time without it {}, with it {}.".format(*steps)]
    assert after.provenance != report().provenance


def test_only_given_files_are_read() -> None:
    with (
        catalog.only_given({"model.json": "{}"}),
        pytest.raises(PlanError, match="are not read here"),
    ):
        resolve(api.read_options({"model": "tests/configs/llama-3.1-8b.json", "gpu": "a100"}))
    with catalog.only_given({}), pytest.raises(PlanError, match="are not read here"):
        resolve(api.read_options({"model": "gpt2", "gpu": "a100", "calibration": "/etc/hostname"}))
    planted = f"{catalog.profiles_folder()}/../pyproject.toml"
    with catalog.only_given({}), pytest.raises(PlanError, match="are not read here"):
        resolve(api.read_options({"model": "gpt2", "gpu": planted}))


def test_csv_keeps_every_digit_and_no_formula() -> None:
    rows: list[list[Any]] = [["=cmd()", 1 / 3, 0.25, None], ["b,c", 2.0**40, 1.0, 3]]
    text = csv_text(
        (Column("part"), Column("size", "B"), Column("share", "%"), Column("n", "number")), rows
    )
    head, first, second = csv.reader(io.StringIO(text))
    assert head == ["part", "size (B)", "share (share)", "n"]
    assert first == ["'=cmd()", repr(1 / 3), "0.25", ""]
    assert second == ["b,c", repr(2.0**40), "1.0", "3"]


def test_every_chart_is_plain_json_with_a_table_and_a_sentence() -> None:
    options = api.read_options(FIXED)
    charts: list[Chart] = [
        *estimate_figures.charts(report()),
        panel("roofline", options),
        panel("crossover", options),
        *gantt.charts(options),
    ]
    for chart in charts:
        document = json.loads(to_json(chart))
        assert document["summary"].endswith("."), chart.name
        assert document["rows"], chart.name
        assert all(len(row) == len(chart.columns) for row in document["rows"]), chart.name
        assert all(
            cell_text(v, c.unit)
            for row in chart.rows
            for v, c in zip(row, chart.columns, strict=True)
            if v != ""
        ), chart.name
        for row in document["rows"]:
            assert all(value is None or isinstance(value, str | int | float) for value in row), (
                chart.name
            )
            assert not any(isinstance(value, float) and math.isnan(value) for value in row), (
                chart.name
            )


def test_every_figure_is_one_that_plotly_knows() -> None:
    """An attribute that plotly.js does not know is silently left out; plotly.py names it."""
    options = api.read_options(FIXED)
    for chart in (
        *estimate_figures.charts(report()),
        *landscape.charts(State(api.read_options(OPEN))),
        panel("roofline", options),
        panel("crossover", options),
        *gantt.charts(options),
        measured.chart(options),
    ):
        layout = {"template": TEMPLATE, **chart.figure["layout"]}
        ElementTree.fromstring(svg(chart))  # what the page shows
        drawn = graph_objects.Figure({"data": chart.figure["data"], "layout": layout})
        assert len(drawn.data) == len(chart.figure["data"])
        for choice in chart.choices:
            graph_objects.Figure(drawn).update_traces(overwrite=True, **_first(choice.restyle))


def _first(restyle: dict[str, list[Any]]) -> dict[str, Any]:
    """The changes of a choice to the first trace."""
    return {key: values[0] for key, values in restyle.items()}


def _luminance(color: str) -> float:
    parts = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    r, g, b = (x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in parts)
    return 0.2126 * r + 0.7152 * g + 0.0722 * b


def test_dark_twins_stand_out_from_a_dark_ground() -> None:
    """3 to 1 at least, which WCAG 2 asks of graphics; the greys of grid and ground excepted."""
    ground = _luminance("#161a20")
    for light, dark in DARK_TWINS.items():
        if light not in ("#ffffff", "#e6e6e6", "#dddddd", "#bbbbbb"):
            assert (_luminance(dark) + 0.05) / (ground + 0.05) >= 3, light
