"""Lessons: every figure is computed, every claim of our sources is checked by its command, and the
pages of the dashboard and of the documentation say the same."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest
from command import dpplan, refused
from fastapi.testclient import TestClient

from planner.lessons import learn
from planner.lessons.learn.commands import document
from planner.lessons.learn.expression import value_of
from planner.lessons.learn.written import lessons
from planner.lessons.view import VERDICTS
from planner.lessons.web import chart as learn_chart
from planner.specs.base import PlanError

ROOT = Path(__file__).resolve().parents[1]
if str(ROOT / "docs") not in sys.path:
    sys.path.append(str(ROOT / "docs"))

from pages import lessons as pages  # noqa: E402

MOST_LINES = 300


@pytest.mark.parametrize("name", lessons())
def test_a_lesson_is_computed_and_its_claims_are_checked(name: str) -> None:
    """No figure is missing, no line of a chart is empty, and what a verdict rests on holds."""
    page = pages.lesson(name)
    assert not page.problems
    assert [key for key, figure in page.figures.items() if figure.value is None] == []
    for section in page.sections:
        for item in section.items:
            assert "-" not in (item.figures or []), item.text
            if item.chart:
                assert all(None not in heights for heights in item.chart.series.values())
    for claim in page.claims:
        assert claim.verdict in VERDICTS
        assert claim.broken == [], claim.number
        assert re.search(r"\d", claim.why), f"claim {claim.number} has no number"


def test_every_claim_has_a_bound_that_can_break() -> None:
    numbers = [claim.number for written in lessons().values() for claim in written.claims]
    assert sorted(numbers) == list(range(1, pages.CLAIMS + 1))
    for written in lessons().values():
        for claim in written.claims:
            assert claim.holds, claim.number
            for bound in claim.holds:
                assert (bound.least, bound.most, bound.equals) != (None, None, None), bound
                assert "it" in bound.of


def test_an_input_moves_the_figures() -> None:
    start, moved = (learn.lesson("zero", given) for given in ({}, {"ranks": "64"}))
    assert start.figures["sent_0"].value == pytest.approx(2 * 140e9 * 7 / 8)
    assert moved.figures["sent_0"].value == pytest.approx(2 * 140e9 * 63 / 64)
    assert moved.figures["sent_0"].inputs is not start.figures["sent_0"].inputs


@pytest.mark.parametrize(
    ("name", "given", "text"),
    [
        ("zeros", {}, "must be one of memory"),
        ("zero", {"rank": "8"}, "has billions, ranks"),
        ("zero", {"ranks": "9"}, "must be one of 2, 4, 8"),
        ("zero", {"billions": "0"}, "between 0.1 and 1000"),
        ("zero", {"billions": "many"}, "a count"),
        ("memory", {"model": "gpt9"}, "must be one of qwen2.5-0.5b"),
    ],
)
def test_a_wrong_input_is_refused(name: str, given: dict[str, str], text: str) -> None:
    with pytest.raises(PlanError, match=text):
        learn.lesson(name, given)


def test_expressions_hold_nothing_of_python() -> None:
    def names(wanted: str) -> object:
        return {"it": {"a": [{"name": "b", "c": 2.0}], "n": 3}}[wanted]

    assert value_of('it.a["b"].c * it.n + it.a[0].c', names) == 8.0
    assert value_of('"yes" if it.n > 2 else "no"', names) == "yes"
    for wrong in ("__import__('os')", "(lambda: 1)()", "[x for x in it]", "it.n.__class__()"):
        with pytest.raises(ValueError):
            value_of(wrong, names)


def test_a_command_of_a_lesson_is_that_of_the_command_line() -> None:
    for command in (
        "estimate --model gpt2 --gpu a100 --gpus 8 --tp 1 --pp 1 --zero 1 --micro-batch 4",
        "input --samples-per-s 1000 --sample-bytes 1MB --data-storage nfs --gpus 16",
        "schedule --schedule 1f1b --pp 4 --microbatches 8",
        "recommend offload --model gpt2 --gpu a100 --gpus 8",
    ):
        printed = json.loads(dpplan(*command.split(), "--json").stdout)
        result = json.loads(json.dumps(document(command)))
        same = {key for key in result if result[key] == printed[key]}
        # what a brief estimate leaves out
        brief = {"advice", "alternatives", "machine", "provenance", "without", "step"}
        assert result.keys() - same <= brief
    refused(dpplan("learn", "--set", "ranks=8"), "--set", "name the lesson")
    assert "1.10 TB" in dpplan("learn", "zero", "--set", "ranks=64").stdout


def test_pages_of_lessons_are_complete_without_a_script(client: TestClient) -> None:
    assert all(f'href="/learn/{name}"' in client.get("/learn").text for name in lessons())
    text = client.get("/learn/zero", params={"ranks": "64"}).text
    assert '<option selected value="64">' in text
    assert '<button class="button">' in text
    assert "276 GB" in text  # 2 x 140 GB x 63/64
    assert len(set(re.findall(r'id="(live-[\w-]+)"', text))) == text.count("data-live")
    wrong = client.get("/learn/zero", params={"ranks": "<b>7</b>"}).text
    assert "must be one of" in wrong or "a count" in wrong
    assert "<b>7</b>" not in wrong
    assert client.get("/learn/none-such").status_code == 422
    printed = json.loads(dpplan("learn", "zero", "--set", "ranks=64", "--json").stdout)
    assert client.get("/api/learn/zero", params={"ranks": "64"}).json() == printed
    assert client.get("/api/learn").json() == json.loads(dpplan("learn", "--json").stdout)


def test_all_claims_are_one_list_everywhere(client: TestClient) -> None:
    printed = json.loads(dpplan("learn", "coverage", "--json").stdout)
    assert client.get("/api/learn/coverage").json() == printed
    assert [claim["number"] for claim in printed["claims"]] == list(range(1, pages.CLAIMS + 1))
    assert 'href="/learn/coverage"' in client.get("/learn").text
    text = client.get("/learn/coverage").text
    assert all(f"{claim['number']}. " in text for claim in printed["claims"])
    assert f"{pages.CLAIMS} claims" in dpplan("learn", "coverage").stdout
    refused(dpplan("learn", "coverage", "--set", "ranks=8"), "lesson", "must be one of")


def test_a_collective_is_as_slow_as_its_slowest_link() -> None:
    """The claim of the lesson on failures about shared networks, with the bandwidth of that
    link."""
    words = ("allreduce", "--gpu", "h100", "--gpus", "64", "--bytes", "1GB", "--json")
    whole, half = (
        dpplan(*words, "--nic-bandwidth", rate).json()["sizes"][0]["seconds"]["ring"]
        for rate in ("400 Gbit/s", "200 Gbit/s")
    )
    assert half / whole == pytest.approx(2, rel=0.1)
    software = dpplan("estimate", "--model", "gpt2", "--gpu", "a100", "--stack", "tensorflow")
    refused(software, "TensorFlow", "maxtext")


def test_bars_and_lines_stay_inside_their_chart() -> None:
    charts = [
        item.chart
        for name in lessons()
        for section in pages.lesson(name).sections
        for item in section.items
        if item.chart
    ]
    assert {chart.kind for chart in charts} >= {"lines", "stack"}
    for chart in charts:
        drawn = learn_chart.drawn(chart)
        places = [place for curve in drawn.curves for x, y, _ in curve.dots for place in (x, y)]
        places += [tick.at for tick in (*drawn.x, *drawn.y)]
        widths = [sum(bar.width for bar in line) for row in drawn.rows for line in row.bars]
        assert all(-0.01 <= place <= 100.01 for place in (*places, *widths)), chart.title
        assert drawn.curves or max(widths) > 99


def test_pages_of_the_documentation_are_current_and_short() -> None:
    for path, value in pages.pages().items():
        page = (ROOT / path).read_text(encoding="utf-8")
        assert page == value(), f"{path}: run python docs/build.py"
        assert page.count("\n") <= MOST_LINES, path
