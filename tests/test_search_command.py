"""`dpplan search` as a command: its document, its files, Ctrl-C."""

from __future__ import annotations

import csv
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from command import ROOT, dpplan, refused

from planner import api
from planner.cli import progress
from planner.report import search as search_report
from planner.views.characters import points_lines

_FREE = ("search", "--model", "llama-2-7b", "--gpu", "a100", "--gpus", 8, "--top", 3)
SMALL = (*_FREE, "--stack-defaults")  # kernels are not searched, which takes most of the time
NARROW = (*SMALL, "--where", "tp <= 2", "--where", "recompute = none")


def test_the_document_adds_up() -> None:
    answer = dpplan(*NARROW, "--json")
    document = answer.json()
    assert answer.status == 0
    assert document["enumerated"] == document["feasible"] + sum(document["rejected"].values())
    assert (
        document["evaluated"] == document["feasible"] + document["rejected"]["does not fit memory"]
    )
    assert {"where tp <= 2", "where recompute = none"} <= set(document["rejected"])
    assert 0 < document["shortfall"]["least_bytes"] <= document["shortfall"]["median_bytes"]
    layouts = [r["layout"] for r in document["top"]]
    assert all(x["tp"] <= 2 and x["recompute"] == "none" for x in layouts)
    rows = {
        (r["stack"]["id"], *((k, v) for k, v in x.items() if k not in ("recompute", "offload")))
        for r, x in zip(document["top"], layouts, strict=True)
    }
    assert len(rows) == len(layouts) == 3
    for line in (*(r["per_token"] for r in document["top"]), *document["pareto"]):
        assert line["tokens_per_usd"] == pytest.approx(1e6 / line["usd_per_million_tokens"])
        assert line["kwh_per_million_tokens"] > 0


def test_each_tp_and_pp_has_its_best_layout() -> None:
    document = dpplan(*SMALL, "--json").json()
    pairs = document["by_tp_pp"]
    assert [(p["tp"], p["pp"]) for p in pairs] == sorted({(p["tp"], p["pp"]) for p in pairs})
    assert sum(p["layouts"] for p in pairs) == document["evaluated"]
    fitting = {(p["tp"], p["pp"]): p["best"] for p in pairs if p["best"]}
    for (tp, pp), best in fitting.items():
        assert (best["layout"]["tp"], best["layout"]["pp"]) == (tp, pp)
    for point in document["pareto"]:
        best = fitting[point["layout"]["tp"], point["layout"]["pp"]]
        assert best["step_seconds"] <= point["step_seconds"] * (1 + 1e-9)
    text = dpplan(*SMALL).stdout
    assert "Best step for each tp and pp" in text
    assert f"{len(fitting)} of {len(pairs)} combinations of tp and pp" in " ".join(text.split())


def test_objectives() -> None:
    by = {
        name: dpplan(*NARROW, "--objective", name, "--json").json()
        for name in ("time", "cost", "tokens-per-dollar", "memory")
    }
    assert (
        len(
            {
                repr([r["layout"] for r in by[name]["top"]])
                for name in ("time", "cost", "tokens-per-dollar")
            }
        )
        == 1
    )
    sizes = [r["memory"]["device_bytes"] for r in by["memory"]["top"]]
    assert sizes == sorted(sizes)
    assert sizes[0] == pytest.approx(by["memory"]["pareto"][-1]["device_bytes"])
    refused(dpplan(*NARROW, "--objective", "beauty"), "--objective", "beauty")


def test_money_needs_a_price(tmp_path: Path) -> None:
    text = (ROOT / "docs/examples/gpu.toml").read_text(encoding="utf-8")
    gpu = tmp_path / "gpu.toml"
    gpu.write_text(
        "\n".join(line for line in text.splitlines() if "usd" not in line.lower()), encoding="utf-8"
    )
    words = ("search", "--model", "gpt2", "--gpu", gpu, "--gpus", 8, "--objective", "cost")
    refused(dpplan(*words), "--objective", "--price")
    assert dpplan(*words, "--price", 1.5).status == 0


def test_csv_and_html(tmp_path: Path) -> None:
    table, page = tmp_path / "layouts.csv", tmp_path / "layouts.html"
    document = dpplan(*NARROW, "--csv", table, "--html", page, "--json").json()
    with table.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == document["feasible"]
    fastest = min(rows, key=lambda row: float(row["step_seconds"]))
    assert float(fastest["step_seconds"]) == pytest.approx(
        document["pareto"][0]["step_seconds"], rel=1e-5
    )
    for row in rows:
        parts = sum(float(value) for name, value in row.items() if name.startswith("seconds_"))
        assert parts == pytest.approx(float(row["step_seconds"]), rel=1e-4)
        assert row["fits"] == "True"
    text = page.read_text(encoding="utf-8")
    assert "Front of time against memory" in text
    assert "showSendToCloud&quot;:true" not in text
    assert '"showSendToCloud": true' not in text
    assert "<script src=" not in text
    refused(dpplan(*NARROW, "--csv", table, "--html", table), "named twice")
    assert not list(tmp_path.glob("*.partial"))


def test_where_nothing_fits_offloading_is_tried() -> None:
    words = (
        "search",
        "--model",
        "llama-2-7b",
        "--gpu",
        "rtx4090",
        "--gpus",
        2,
        "--seq-len",
        2048,
        "--stack",
        "pytorch-fsdp",
    )
    answer = dpplan(*words, "--json")
    assert answer.status == 3
    document = answer.json()
    assert (document["feasible"], document["top"], document["pareto"]) == (0, [], [])
    (advice,) = document["advice"]
    assert advice["fits"]
    assert advice["layout"]["offload"] != "none"
    assert dpplan(*words, "--search-offload", "--json").json()["feasible"] > 0
    assert dpplan(*words).status == 3


def test_a_scenario_file_may_hold_conditions(tmp_path: Path) -> None:
    file = tmp_path / "case.toml"
    file.write_text(
        'model = "llama-2-7b"\ngpu = "a100"\ngpus = 8\nwhere = ["tp = 2", "pp = 1"]\n',
        encoding="utf-8",
    )
    layout = dpplan("estimate", "--scenario", file, "--json").json()["layout"]
    assert (layout["tp"], layout["pp"]) == (2, 1)
    file.write_text('model = "llama-2-7b"\ngpu = "a100"\ntp = [1, 2]\n', encoding="utf-8")
    refused(dpplan("search", "--scenario", file), "neither a list")


def test_no_layout_is_left() -> None:
    refused(dpplan(*SMALL, "--where", "tp = 3"), "where tp = 3")


def test_a_space_that_is_too_large_is_said_and_not_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("planner.search.MOST_LAYOUTS", 1000)
    refused(dpplan(*SMALL), "layouts are possible", "1,000")


def test_a_page_where_nothing_fits() -> None:
    from planner.views.page import page
    from planner.views.search import view

    search = api.search_layouts(
        api.read_options(
            {"model": "llama-2-7b", "gpu": "rtx4090", "gpus": 2, "stack": "megatron-core"}
        )
    )
    assert "does not fit memory" in page(view(search))


def test_chart_puts_points_where_they_are() -> None:
    lines = points_lines([1.0, 2.0, 3.0], [30.0, 20.0, 10.0], "s", "GiB")
    rows = [line.partition("|")[2] for line in lines if "|" in line]
    places = [(i, row.index("*")) for i, row in enumerate(rows) if "*" in row]
    assert places[0] == (0, 0)
    assert places[-1] == (len(rows) - 1, 63)
    assert len(places) == 3
    assert sum(line.count("*") for line in points_lines([5.0], [7.0], "s", "GiB")) == 1


def test_progress_is_for_terminals_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: False, raising=False)
    with progress.progress("x") as tick:
        assert tick is None


def test_progress_shows_after_a_second(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(progress, "_QUIET_S", 3600.0)
    with progress.progress("working") as tick:
        assert tick is not None
        tick(0.5)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(progress, "_QUIET_S", 0.0)
    with progress.progress("working") as tick:
        assert tick is not None
        tick(0.5)
    assert "working" in capsys.readouterr().err


def test_the_search_says_how_far_it_is() -> None:
    shares: list[float] = []
    result, plans = api.search_with_layouts(
        api.read_options(
            {"model": "llama-2-7b", "gpu": "a100", "gpus": 16, "stack_defaults": True}
        ),
        shares.append,
    )
    assert shares == sorted(shares)
    assert shares[-1] == pytest.approx(1.0)
    lines: list[float] = []
    assert len(search_report.csv_text(plans, lines.append).splitlines()) == result.feasible + 1
    assert lines == sorted(lines)
    assert lines[-1] == pytest.approx(1.0)


def test_ctrl_c_ends_with_one_sentence_and_leaves_files_whole(tmp_path: Path) -> None:
    table = tmp_path / "layouts.csv"
    table.write_text("as it was\n", encoding="utf-8")
    code = (
        "import signal, sys, planner.report.search as r, time; from planner.cli import main;"
        " sys.argv[0] = 'dpplan'\n"
        # a shell starts background jobs that ignore it
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "def stuck(*_):\n    print('here', flush=True); time.sleep(60)\n"
        "r.csv_text = stuck; main()"
    )
    words: list[Any] = [sys.executable, "-c", code, *NARROW, "--csv", table]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        list(map(str, words)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "here\n"
        time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert out == ""
    assert err.strip().startswith("interrupted")
    assert len(err.strip().splitlines()) == 1
    assert table.read_text(encoding="utf-8") == "as it was\n"
    assert not list(tmp_path.glob("*.partial"))
