"""`dpplan estimate --html`: the page holds what the report says, opens without a network, and is
written whole or not at all."""

from __future__ import annotations

import json
import os
import re
import sys
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from command import dpplan, refused

from planner.specs.document import read
from planner.specs.documents.estimate import Estimate
from planner.units import show, span
from planner.views import estimate_figures
from planner.views.full import view
from planner.views.groups import SEEN
from planner.views.page import page as written

GIB = 2.0**30
ASKED: tuple[str, ...] = (
    "--model",
    "llama-2-7b",
    "--gpu",
    "h100-sxm",
    "--gpus",
    "16",
    "--pp",
    "4",
    "--tp",
    "2",
)
ASKED += ("--stack-defaults",)
QUICK = ("--stack-defaults", "--advice", "0", "--json")


@cache
def _answer() -> str:
    return dpplan("estimate", *ASKED, "--json").stdout


def plain() -> Any:
    return json.loads(_answer())


def typed(document: Any) -> Estimate:
    return read(json.dumps(document), Estimate)


def report() -> Estimate:
    return read(_answer(), Estimate)


class Page(HTMLParser):
    """Text of every row of a table, labelled line and sentence, and what a browser would fetch."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.items: list[str] = []
        self.title = ""
        self.tags: list[str] = []
        self.fetched: list[str] = []
        self._in = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self._in = tag if tag != "data" else self._in
        self.fetched += [
            str(value) for key, value in attrs if key in ("src", "href", "data", "action")
        ]
        if tag in ("tr", "p"):
            self.rows.append([])
        if tag in ("td", "th", "span"):
            self.rows[-1].append("")
        if tag in ("li", "p"):
            self.items.append("")

    def handle_endtag(self, tag: str) -> None:
        self._in = ""

    def handle_data(self, data: str) -> None:
        if self._in in ("td", "th", "span"):
            self.rows[-1][-1] += data
        elif self._in in ("li", "p"):
            self.items[-1] += data
        elif self._in == "title" and not self.title:  # drawings come later
            self.title += data


def page_of(estimate: Estimate) -> str:
    return written(view(estimate), estimate.command)


def test_the_page_says_what_the_report_says() -> None:
    estimate = report()
    text = page_of(estimate)
    page = Page(text)
    cells = {row[0]: row[1:] for row in page.rows if row}
    assert page.title == "Llama 2 7B on 16 x NVIDIA H100 SXM5 80 GB"
    assert cells["memory"][0].startswith("fits: ")
    assert span(estimate.step.low, estimate.step.high, "s") in text
    assert show(estimate.memory.device_bytes, "B") in cells["memory"][0]
    assert f"{estimate.throughput.tokens_per_s:,.0f} tokens/s" in cells["throughput"][0]
    assert f"MFU {100 * estimate.throughput.mfu:.1f} %" in text
    assumed = [f"assumed: {text}" for text in estimate.assumptions]
    assert [item for item in page.items if item in assumed] == assumed
    for stage in estimate.memory.per_stage:
        for phase in stage.phases:
            rows = [row for row in page.rows if row[:2] == [str(stage.stage), phase.name]]
            assert [row[-1] for row in rows] == [show(phase.bytes, "B")]
    for part, seconds in estimate.step.components.items():
        if seconds == 0 or seconds > SEEN * estimate.step.seconds:
            assert cells[part.replace("_", " ")][0] == show(seconds, "s")
    for number in estimate.machine:
        assert any(number.source in row for row in page.rows)
    assert estimate.command in text


def test_a_plan_that_does_not_fit_says_so() -> None:
    answer = dpplan("estimate", "--model", "llama-70b", "--gpu", "rtx4090", "--gpus", "1", *QUICK)
    page = Page(page_of(answer.read(Estimate)))
    cells = {row[0]: row[1:] for row in page.rows if row}
    assert cells["memory"][0].startswith("DOES NOT FIT (")
    assert "short" in cells["memory"][0]


def test_bars_of_a_stage_add_up_to_what_lies_on_the_device() -> None:
    estimate = report()
    figure = estimate_figures.stages(estimate).figure
    worst, outside = estimate.memory.worst_stage, estimate.memory.outside
    for i, stage in enumerate(estimate.memory.per_stage):
        height = sum(trace["y"][i] for trace in figure["data"])
        assert height * GIB == pytest.approx(
            stage.reserved_bytes + outside.context + outside.communicators
        )
        if stage.stage == worst:
            assert height * GIB == pytest.approx(estimate.memory.device_bytes)
    (line,) = figure["layout"]["shapes"]
    assert line["y0"] == line["y1"] == estimate.memory.capacity_bytes / GIB


def test_bars_of_a_phase_add_up_and_every_stage_can_be_chosen() -> None:
    estimate = report()
    chart = estimate_figures.phases(estimate)
    figure, stages = chart.figure, estimate.memory.per_stage
    assert [choice.label for choice in chart.choices] == [
        f"stage {stage.stage}" for stage in stages
    ]
    for stage, choice in zip(stages, chart.choices, strict=True):
        columns = choice.restyle["y"]
        assert len(columns) == len(figure["data"])
        for i, phase in enumerate(stage.phases):
            assert sum(column[i] for column in columns) * GIB == pytest.approx(phase.bytes)
    shown = [trace["y"] for trace in figure["data"]]
    (chosen,) = [i for i, choice in enumerate(chart.choices) if choice.chosen]
    assert shown == chart.choices[chosen].restyle["y"]
    assert stages[chosen].stage == estimate.memory.worst_stage
    assert '"label":"stage 3","method":"restyle"' in page_of(estimate)


def test_the_waterfall_descends_to_the_step_and_hides_what_is_hidden() -> None:
    estimate = report()
    *groups, hidden, whole = estimate_figures.waterfall(estimate).figure["data"]
    end = 0.0
    adding = [bar for group in groups for bar in zip(group["base"], group["x"], strict=True)]
    for start, seconds in sorted(adding):
        assert start == pytest.approx(end)
        end = start + seconds
    assert end == pytest.approx(estimate.step.seconds)
    assert whole["x"] == [estimate.step.seconds]
    assert whole["x"][0] + whole["error_x"]["array"][0] == pytest.approx(estimate.step.high)
    assert whole["x"][0] - whole["error_x"]["arrayminus"][0] == pytest.approx(estimate.step.low)
    assert sum(hidden["x"]) == pytest.approx(sum(estimate.step.hidden.values()))
    assert hidden["marker"]["pattern"]["shape"] == "/"
    assert all("pattern" not in group["marker"] for group in groups)
    assert len({group["marker"]["color"] for group in groups}) == len(groups)


def test_names_are_escaped() -> None:
    sentence = plain()
    bad = '</script><script>alert("1")</script>'
    sentence["model"]["title"] = sentence["command"] = sentence["assumptions"][0] = sentence[
        "stack"
    ]["title"] = bad
    sentence["memory"]["per_stage"][0]["phases"][0]["name"] = bad
    sentence["machine"][0]["source"] = bad
    usual, text = page_of(report()), page_of(typed(sentence))
    assert "<script>alert" not in text
    assert Page(text).tags == Page(usual).tags  # no name became markup
    assert f"assumed: {bad}" in Page(text).items


def test_one_stage_and_nothing_hidden() -> None:
    text = plain()
    text["memory"]["per_stage"] = text["memory"]["per_stage"][:1]
    text["memory"]["worst_stage"], text["step"]["hidden"], text["communication"] = 0, {}, []
    first = typed(text)
    drawn = estimate_figures.waterfall(first).figure["data"]
    assert not any("pattern" in bars["marker"] for bars in drawn)
    assert estimate_figures.phases(first).choices == []
    assert "stage 0" in page_of(first)


def test_the_page_opens_without_a_network(tmp_path: Path) -> None:
    wanted = tmp_path / "out.html"
    answer = dpplan("estimate", *ASKED, "--html", wanted)
    assert answer.status == 0, answer.stderr
    assert answer.stdout == dpplan("estimate", *ASKED).stdout  # the answer is printed as ever
    text = wanted.read_text(encoding="utf-8")
    assert text == page_of(report())
    assert Page(text).fetched == []
    assert not re.search(r"<script[^>]+src=|<link|@import", text)
    assert len(text) > 1_000_000  # plotly.js is inside, once
    assert text.count("plotly.js v") == 1
    assert (
        text.count('"displaylogo": false')
        == text.count('"showSendToCloud": false')
        == text.count("<figure>")
        == 3
    )
    assert os.listdir(tmp_path) == ["out.html"]


def test_bad_paths_and_clashing_names_are_refused(tmp_path: Path) -> None:
    target = tmp_path / "one.html"
    refused(
        dpplan("estimate", *ASKED, "--html", tmp_path / "no" / "x.html"),
        "--html",
        "cannot be written",
    )
    refused(dpplan("estimate", *ASKED, "--html", tmp_path), "--html", "cannot be written")
    refused(
        dpplan("estimate", *ASKED, "--html", target, "--trace", tmp_path / "." / "one.html"),
        "--html",
        "named twice",
    )
    path = tmp_path / "asked.toml"
    path.write_text('model = "llama-2-7b"\ngpu = "a100"\ngpus = 8\n', encoding="utf-8")
    refused(dpplan("estimate", "--scenario", path, "--html", path), "--html", "this request reads")
    assert path.read_text(encoding="utf-8").startswith("model")
    assert os.listdir(tmp_path) == ["asked.toml"]


def test_a_page_that_cannot_be_finished_leaves_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = tmp_path / "out.html"
    wanted.write_text("before", encoding="utf-8")

    def full(source: str, target: str) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    refused(dpplan("estimate", *ASKED, "--html", wanted), "--html", "No space left")
    assert wanted.read_text(encoding="utf-8") == "before"
    assert os.listdir(tmp_path) == ["out.html"]


def test_without_plotly_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "plotly.io", None)
    refused(
        dpplan("estimate", *ASKED, "--html", tmp_path / "out.html", "--trace", tmp_path / "t.json"),
        "--html",
        "pip install",
    )
    assert os.listdir(tmp_path) == []
