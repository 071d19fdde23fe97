"""`dpplan compare` as CSV, page, figures and text: all say what the JSON says."""

from __future__ import annotations

import csv
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from command import ROOT, argv, dpplan, dpplan_process, refused
from comparisons import SMALL, gpus_compared

from planner.inputs.options import read_options
from planner.specs.options.own import CompareOptions
from planner.verbs import compare
from planner.verbs.requests import answer
from planner.views import compare as shown
from planner.views import parts
from planner.views.characters import chart_lines
from planner.views.view import Block


def test_csv_page_and_json_say_the_same(tmp_path: Path) -> None:
    table, page = tmp_path / "sweep.csv", tmp_path / "sweep.html"
    words = ["--stack-defaults"]
    words += [f"--{k.replace('_', '-')}={v}" for k, v in SMALL.items() if v is not True]
    answer = dpplan(
        "compare",
        *words,
        *argv("--global-batch 64 --tp 1 --pp 1 --sweep gpus=8..32+8 --csv"),
        table,
        "--html",
        page,
        "--json",
    )
    out = answer.json()
    assert answer.status == 0
    rows = list(csv.DictReader(io.StringIO(table.read_text())))
    assert len(rows) == len(out["points"]) == 4
    assert rows[2]["fits"] == "False"  # 24 GPUs do not divide 64
    assert (
        rows[2]["refused"] == f"'{out['points'][2]['refused']}"
    )  # its first sign begins no formula
    for row, point in zip(rows, out["points"], strict=True):
        assert row["command"] == point["command"]
        if point["refused"] is None:
            assert float(row["step_seconds"]) == point["step"]["seconds"]
            parts = sum(
                float(v)
                for k, v in row.items()
                if k.removesuffix("_s") in point["step"]["components"]
            )
            assert parts == pytest.approx(point["step"]["seconds"])
    text = page.read_text()
    assert (
        "cdn.plot.ly" not in text.replace("https://cdn.plot.ly/", "", 0)
        or '"showSendToCloud": false' in text
    )
    assert '"showSendToCloud": false' in text
    assert "<script src" not in text


def test_figures_hold_the_numbers_of_the_comparison() -> None:
    out = gpus_compared()
    bars = shown.difference_chart(out.difference).figure["data"]
    whole = bars[-1]
    for i, row in enumerate(out.difference.rows[1:]):
        assert sum(bar["y"][i] for bar in bars[:-1]) == pytest.approx(row.difference_s)
        assert whole["y"][i] == row.difference_s
    stacked = parts.parts_chart({p.label: p.step.components for p in out.points}).figure["data"]
    assert [sum(bar["y"][i] for bar in stacked) for i in range(3)] == pytest.approx(
        [p.step.seconds for p in out.points]
    )


def test_a_chart_has_every_point_and_its_ends() -> None:
    lines = chart_lines(
        [("a", [(1.0, 10.0), (10.0, 100.0)]), ("b", [(1.0, 10.0), (10.0, 50.0)])], True
    )
    text = "\n".join(lines)
    assert lines[0].rstrip().endswith("*")
    assert text.count("*") >= 1
    assert text.count("o") >= 1
    assert "." in text
    assert "100" in lines[0]
    assert chart_lines([("a", [(5.0, 3.0)])], False)  # one point has no range


def test_results_do_not_replace_what_they_come_from(tmp_path: Path) -> None:
    scenario = tmp_path / "a.toml"
    scenario.write_text('model = "gpt2"\ngpu = "a100"\n')
    before = scenario.read_text()
    refused(dpplan("compare", scenario, "--vary", "gpus=1,2", "--csv", scenario), "--csv")
    assert scenario.read_text() == before
    same = tmp_path / "x"
    refused(
        dpplan("compare", scenario, "--vary", "gpus=1,2", "--csv", same, "--html", same), "--html"
    )
    assert not same.exists()


def test_an_interrupted_command_writes_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    table = tmp_path / "old.csv"
    table.write_text("before")

    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(compare, "answer", interrupt)
    with pytest.raises(KeyboardInterrupt):  # of which a process says one sentence
        dpplan(
            "compare", "--model", "gpt2", "--gpu", "a100", "--sweep", "gpus=1..4", "--csv", table
        )
    assert table.read_text() == "before"


def test_piped_output_is_plain_and_refused_json_is_one_document() -> None:
    answer = dpplan_process(
        *argv("compare --model gpt2 --gpu a100 --seq-len 512 --vary gpus=1,2 --jobs 1")
    )
    assert answer.status == 0
    assert answer.stdout.isascii()
    assert answer.stderr == ""
    assert "What makes the difference" in answer.stdout
    wrong = dpplan("compare", "--model", "gpt2", "--vary", "gpus=1,2", "--json")
    assert wrong.status == 2
    assert json.loads(wrong.stdout)["error"]["field"]


def test_nothing_fits_is_status_3() -> None:
    words = [
        "--model",
        "llama-2-70b",
        "--gpu",
        "rtx4090",
        "--seq-len",
        512,
        "--stack",
        "pytorch-ddp",
        "--vary",
        "gpus=1,2",
    ]
    assert dpplan("compare", *words).status == 3


def test_processes_that_cannot_start_end_in_one_sentence() -> None:
    """A script read from stdin cannot be imported again by its worker processes."""
    script = (
        "from dataclasses import replace as changed\n"
        "from planner.specs.options import Options\n"
        "from planner.specs.base import PlanError\n"
        "from planner.verbs import requests\n"
        "common = Options(model='gpt2', gpu='a100', gpus=8)\n"
        "asked = [changed(common, global_batch=8 * (i + 1)) for i in range(32)]\n"
        "try:\n"
        "    requests.answer(asked, jobs=2)\n"
        "except PlanError as error:\n"
        "    print(error)\n"
    )
    done = subprocess.run(
        [sys.executable],
        input=script,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    assert done.stdout.startswith("--jobs: 2")


def test_two_swept_numbers_are_a_map_of_their_requests() -> None:
    given = {**SMALL, "gpus": 8, "tp": 1, "pp": 1, "stack_defaults": True}
    sweep = ("micro_batch=1,2", "nic_bandwidth=100 Gbit/s,200 Gbit/s,400 Gbit/s")
    document = compare.compare(CompareOptions(sweep=sweep, jobs=1), given)
    view = shown.view(document, given)
    block = view.blocks[0]
    assert block.header[0] == "micro batch"
    assert "nic bandwidth (Gbit/s)" in view.title
    chart = next(part.chart for part in view.parts if isinstance(part, Block) and part.chart)
    (field,) = chart.figure["data"]
    for point in document.points:
        at = f"{point.values['micro_batch']:g}", f"{point.values['nic_bandwidth']:g}"
        row, column = field["y"].index(at[0]), field["x"].index(at[1])
        assert field["z"][row][column] == point.throughput.tokens_per_s_per_gpu
        assert field["customdata"][row][column] == point.command
        assert block.rows[row][1 + column] == field["z"][row][column]
    best = max(document.points, key=lambda point: point.throughput.tokens_per_s_per_gpu)
    assert best.label in view.verdict


def test_plans_side_by_side_begin_with_the_options_that_differ() -> None:
    requests = {
        "base": read_options({**SMALL, "gpus": 8, "tp": 1}),
        "wide": read_options({**SMALL, "gpus": 16, "tp": 2}),
    }
    points = dict(zip(requests, answer(list(requests.values())), strict=True))
    block = shown.view(compare.side_by_side(points), {}).blocks[0]
    assert block.title == "2 plans side by side"
    assert block.header == ["input", "base", "wide"]
    assert [row[1:] for row in block.rows] == [["8", "16"], ["1", "2"]]
