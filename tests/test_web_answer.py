"""Inputs and outputs of the page: published runs, reports, the glossary."""

from __future__ import annotations

import csv
import html
import re
from typing import Any, get_args

import pytest
from fastapi.testclient import TestClient
from not_none import not_none
from web_pages import FIXED, Page

from planner import api
from planner.specs.document import changed
from planner.specs.names import Verdict
from planner.specs.options import rows
from planner.specs.options.own import ScheduleOptions
from planner.verbs.schedule import draw
from planner.views.gantt import gantt
from web import limits, state, view
from web.presets import FILE, presets
from web.report import report


def test_a_published_run_is_the_row_it_is_made_of(client: TestClient) -> None:
    """Measured values and options equal the row in planner/studies/data/runs, and the request has
    an answer."""
    measured: dict[str, Any] = {}
    for path in (FILE.parents[1] / "studies/data/runs").glob("*.csv"):
        with path.open(encoding="utf-8", newline="") as file:
            measured |= {row["run_id"]: row for row in csv.DictReader(file)}
    assert len(presets()) > 40
    for preset in presets().values():
        row, pairs = measured[preset.run_id], dict(preset.pairs)
        assert (float(row["step_s"]), row["source"]) == (preset.step_s, preset.source)
        for name in ("gpu", "gpus", "tp", "pp", "seq_len", "global_batch", "micro_batch"):
            if name in pairs and row[name]:
                assert pairs[name] == row[name], (preset.run_id, name)
        assert state.of_pairs(preset.pairs).query  # nothing in it is wrong
    named = presets()["hagemann-2023-0219"]  # LLaMA 13B, whose shape OLMo 2 has, too
    assert (named.instead, dict(named.pairs)["model"]) == (None, "llama-13b")
    other = next(preset for preset in presets().values() if preset.instead)
    text = client.get("/", params={"preset": other.run_id}).text
    assert f"The run names {not_none(other.instead)[0]}" in html.unescape(text)
    first, second = list(presets())[:2]
    page = client.get("/", params={"preset": first})
    led = Page(page.text).links
    assert presets()[first].measured in page.text
    assert f"/?preset={second}" in led.values()
    assert f'href="/?preset={first}"' in client.get("/presets").text
    assert client.get("/", params={"preset": "none"}).status_code == 422
    assert client.get("/", params={"preset": first, "gpus": "8"}).status_code == 422


def test_a_report_holds_what_it_was_made_of_and_is_read_back(client: TestClient) -> None:
    values = {**FIXED, "require": "days < 3", "price": "1.5"}
    answer = client.get("/report", params=values)
    assert answer.status_code == 200
    result, text = state.of_pairs(list(values.items())), answer.text
    document = api.estimate(result.options)
    assert len(answer.content) < limits.MAX_SCENARIO_BYTES
    for sentence in (*document.assumptions, document.command, document.throughput.flop_convention):
        assert sentence in html.unescape(text)
    assert re.search(r"dpplan \d+\.\d+\.\d+, \d{4}-\d\d-\d\d<", text)
    for name in values:  # every input, with its option
        assert f">{rows(api.Options)[name].flag}</th>" in text, name
    assert "DOES NOT HOLD: days &lt; 3" in text
    assert not [tag for tag, _ in Page(text).tags if tag in ("script", "link", "img")]
    assert state.scenario_of(answer.content) == result
    picture = f'<svg xmlns="http://www.w3.org/2000/svg" data-dpplan-state="{result.query}"></svg>'
    assert state.scenario_of(picture.replace("&", "&amp;").encode()) == result
    pasted = state.of_mapping({"config": '{"a": "<\\"&>"}', "gpu": "a100", "gpus": 8})
    assert state.scenario_of(report(document, pasted).encode()) == pasted
    with pytest.raises(api.PlanError, match="option"):
        state.scenario_of(b'<svg data-dpplan-state="nonsense=1">')


def test_every_input_and_every_figure_is_in_the_glossary(client: TestClient) -> None:
    text = client.get("/glossary").text
    for row in rows(api.Options).values():
        if row.says.form != "absent":
            assert f'<div id="{row.name}"><dt>{row.says.label} <code>{row.flag}</code>' in text
    labels = re.findall(r'class="label">([^<]+)<', client.get("/", params=FIXED).text)
    assert len(labels) == 7
    assert all(f"<dt>{label}</dt>" in text for label in labels)


def test_the_verdict_has_three_states() -> None:
    """With room, within the error of memory on either side, and not: by colour, words and
    chance."""
    request = state.of_pairs(list(FIXED.items()))
    estimate = api.estimate(request.options, brief=True)
    values = {}
    for verdict, chance in zip(get_args(Verdict), (0.99, 0.7, 0.3, 0.01), strict=True):
        memory = changed(estimate.memory, verdict=verdict, fit_chance=chance)
        shown = view.answer(changed(estimate, memory=memory), request)
        assert f"{chance:.0%}".replace("%", " %") in shown["detail"]
        values[verdict] = shown["mark"], shown["verdict"].partition(":")[0]
    assert values == {
        "fits": ("yes", "It fits, with room"),
        "may not fit": ("maybe", "Tight"),
        "probably does not fit": ("maybe", "Tight"),
        "does not fit": ("no", "It does not fit"),
    }


def test_a_long_schedule_is_drawn_whole() -> None:
    """In slices that add up to what each rank computes, without outlines that read as idle."""
    drawn = draw(ScheduleOptions(microbatches=64), {"pp": 4, "schedule": "1f1b"})
    parts = drawn.document, drawn.program, drawn.timing
    chart = gantt(*parts, 80)
    bars = [bar for trace in chart.figure["data"] for bar in zip(*bars_of(trace), strict=True)]
    assert len(bars) <= 80
    busy = dict.fromkeys((f"rank {rank}" for rank in range(4)), 0.0)
    ends = dict.fromkeys(busy, 0.0)
    for rank, start, seconds in sorted(bars, key=lambda bar: (bar[0], bar[1])):
        assert start >= ends[rank] - 1e-9  # none covers another
        busy[rank], ends[rank] = busy[rank] + seconds, start + seconds
    assert list(busy.values()) == pytest.approx(drawn.document.busy_s)
    assert max(ends.values()) <= chart.figure["layout"]["xaxis"]["range"][1] + 1e-9
    assert all(trace["marker"]["line"]["width"] == 0 for trace in chart.figure["data"])
    assert all(trace["textposition"] == "none" for trace in chart.figure["data"])


def bars_of(trace: dict[str, Any]) -> tuple[list[str], list[float], list[float]]:
    return trace["y"], trace["base"], trace["x"]
