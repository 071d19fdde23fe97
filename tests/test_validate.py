"""Measured runs against predictions, on tables small enough to compute by hand."""

from __future__ import annotations

import csv
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from command import dpplan, refused
from not_none import not_none
from run_tables import PLAIN, entry, row, write

from benchmarks.studies.residuals import time_lines, time_rows
from planner import api
from planner.specs.base import PlanError
from planner.specs.document import changed
from planner.studies.documents.validate import Errors, ErrorsOfSuites, Right
from planner.studies.validate.errors import kinds, summarise
from planner.studies.validate.files import read_all, run_lines
from planner.studies.validate.predict import validate_rows
from planner.studies.validate.rows import SHIPPED, read_rows
from planner.studies.validate.scored import predict
from planner.studies.views.validate_figure import chart


def test_errors_of_time_by_hand() -> None:
    """Errors +10 %, -20 %, +50 %, -5 %: mean 21.25 %, median (10 + 20) / 2, bias (-5 + 10) / 2,
    worst +50 %."""
    time = summarise([entry(1.1, 1.0), entry(1.6, 2.0), entry(6.0, 4.0), entry(0.95, 1.0)]).time
    assert time.n == 4
    assert time.mape == pytest.approx(0.2125)
    assert time.median_ape == pytest.approx(0.15)
    assert time.bias == pytest.approx(0.025)
    assert time.worst == pytest.approx(0.5)


def test_errors_of_memory_by_hand() -> None:
    """10 GiB seen as 8, 16 as 20, 5 as 5: errors -20 %, +25 %, 0."""
    seen = [
        entry(1, None, predicted_peak_gib=p, measured_peak_gib=m)
        for p, m in ((8.0, 10.0), (20.0, 16.0), (5.0, 5.0))
    ]
    memory = summarise(seen).memory
    assert (memory.n, memory.mape, memory.median_ape) == (
        3,
        pytest.approx(0.15),
        pytest.approx(0.2),
    )
    assert (memory.bias, memory.worst) == (pytest.approx(0.0), pytest.approx(0.25))
    assert summarise(seen).time == Errors(n=0, mape=None, median_ape=None, bias=None, worst=None)


def test_out_of_memory_rows_count_apart() -> None:
    entries = [
        entry(1.0, 1.0),
        entry(1.0, 1.0, predicted_fits=False),
        entry(9.0, None, outcome="oom", predicted_fits=False),
        entry(9.0, None, outcome="oom", predicted_fits=False),
        entry(9.0, None, outcome="oom", predicted_fits=True),
    ]
    summary = summarise(entries)
    assert summary.oom == Right(n=3, right=2)
    assert summary.ran == Right(n=2, right=1)
    assert summary.time.n == 2


def test_rows_and_suites_of_a_table(tmp_path: Path) -> None:
    fits, full = (
        row(),
        row(layers=96, hidden=12288, heads=96, tp=8, dp=1, micro_batch=8, step_s="", outcome="oom"),
    )
    seconds = float(predict(fits).time.seconds[0])
    peak = float(predict(fits).memory.peak[0]) / 2**30
    reserved = float(predict(fits).memory.reserved[0]) / 2**30
    device = float(predict(fits).memory.device[0]) / 2**30
    table = write(
        tmp_path / "runs.csv",
        row(run_id="a", suite="x", step_s=seconds / 1.25, peak_memory_gib=peak * 2),
        row(
            run_id="b",
            suite="x",
            step_s=seconds * 2,
            peak_memory_gib=reserved,
            memory_kind="reserved",
        ),
        row(
            run_id="c", suite="y", step_s=seconds, peak_memory_gib=device, memory_kind="nvidia-smi"
        ),
        dict(full, run_id="d", suite="y"),
        row(run_id="e", suite="y", step_s=""),
    )
    out = api.validate([table])
    assert [r.run_id for r in out.rows] == ["a", "b", "c", "d", "e"]
    assert [r.predicted_fits for r in out.rows] == [True, True, True, False, True]
    x, y, whole = out.suites["x"], out.suites["y"], out.summary
    assert x.time.n == 2
    assert x.time.mape == pytest.approx((0.25 + 0.5) / 2)
    assert x.time.worst == pytest.approx(-0.5)
    assert x.memory.mape == pytest.approx((0.5 + 0) / 2)
    assert y.memory.mape == pytest.approx(0, abs=1e-9)
    assert y.oom == Right(n=1, right=1)
    assert y.time.n == 1
    assert (whole.time.n, whole.oom.n, whole.memory.n) == (3, 1, 3)
    assert whole.time.mape == pytest.approx((0.25 + 0.5 + 0) / 3)


# what is changed in a row that can be expressed, and what the reason says of it
INEXPRESSIBLE: list[tuple[dict[str, str], list[str]]] = [
    ({"gpu": "no-such-gpu"}, ["--gpu", "no-such-gpu"]),
    ({"gpu": "a100-sxm4-80g"}, ["did you mean", "a100-sxm4-80gb"]),
    ({"stack": "megatron-cor"}, ["--stack", "did you mean", "megatron-core"]),
    ({"layers": ""}, ["layers is empty"]),
    ({"layers": "many"}, ["layers", "'many'", "no number"]),
    ({"layers": "2.5"}, ["layers", "2.5", "no whole number"]),
    ({"layers": "nan"}, ["layers", "'nan'", "out of range"]),
    ({"layers": "1e400"}, ["layers", "1e400"]),
    ({"layers": "-4"}, ["layers", "-4"]),
    ({"layers": "1000000000"}, ["layers", "1000000000", "less than or equal"]),
    ({"heads": "0"}, ["heads is 0", "at least 1"]),
    ({"heads": "7", "kv_heads": "2"}, ["heads 7", "kv_heads 2"]),
    ({"dp": "0"}, ["dp is 0", "at least 1"]),
    ({"tp": "0"}, ["tp is 0", "at least 1"]),
    ({"pp": "1e30"}, ["gpus is 8"]),
    ({"tp": "3"}, ["tp 3", "= 24", "gpus is 8"]),
    ({"gpus": "0"}, ["gpus is 0"]),
    ({"gpus": "1e18"}, ["gpus is 1000000000000000000"]),
    ({"global_batch": "63"}, ["global_batch 63", "dp 8"]),
    ({"global_batch": "0"}, ["--global-batch", "0"]),
    ({"seq_len": "0"}, ["seq_len is 0", "at least 1"]),
    ({"precision": "fp64"}, ["precision", "fp64"]),
    ({"precision": "fp8"}, ["precision", "fp8", "A100"]),
    ({"recompute": "some"}, ["recompute", "some"]),
    ({"schedule": "gantt"}, ["schedule", "gantt"]),
    ({"zero": "7"}, ["--zero", "7"]),
    ({"shard_group": "3"}, ["--shard-group 3", "Megatron-Core does not have", "hybrid"]),
    ({"stack": "pytorch-fsdp", "zero": "3", "shard_group": "3"}, ["--shard-group", "3", "8"]),
    ({"intra_node": "ib-ndr"}, ["--intra-node", "ib-ndr"]),
    ({"nics_per_node": "1000"}, ["--nics-per-node", "1000"]),
    ({"nic_gbps": "0"}, ["--nic-bandwidth", "positive"]),
    ({"gpus_per_node": "3"}, ["--gpus", "8", "3 GPUs per node"]),
    ({"experts": "8"}, ["moe_ffn_hidden is empty"]),
    ({"stack": "llmq", "cp": "2", "dp": "4"}, ["--cp 2", "context parallelism"]),
    ({"stack": "llmq", "tp": "2", "dp": "4"}, ["--tp 2", "tensor parallelism"]),
    ({"outcome": "crashed"}, ["outcome", "'crashed'", "ok, oom"]),
    ({"step_s": "fast"}, ["step_s", "'fast'"]),
    ({"step_s": "0"}, ["step_s", "positive"]),
    ({"step_s": "-1"}, ["step_s", "'-1'"]),
    ({"step_s": "inf"}, ["step_s", "'inf'"]),
    ({"peak_memory_gib": "80 GB"}, ["peak_memory_gib", "'80 GB'"]),
]


def test_a_row_that_cannot_be_expressed_is_skipped_with_the_reason(tmp_path: Path) -> None:
    names = tuple(dict.fromkeys([*PLAIN, *(name for first, _ in INEXPRESSIBLE for name in first)]))
    bad = {f"bad-{i}": entry for i, entry in enumerate(INEXPRESSIBLE)}
    table = write(
        tmp_path / "runs.csv",
        row(run_id="good", step_s=2),
        *(row(run_id=run_id, **changes) for run_id, (changes, _) in bad.items()),
        names=names,
    )
    out = api.validate([table])
    assert [r.run_id for r in out.rows] == ["good"]
    assert [entry.run_id for entry in out.skipped] == list(bad)
    for skipped in out.skipped:
        assert skipped.suite == "small"
        for text in bad[skipped.run_id][1]:
            assert text in skipped.reason, skipped.reason
        assert "\n" not in skipped.reason
    assert out.summary.time.n == 1
    printed = dpplan("validate", table).stdout
    assert "bad-0" in printed


def test_the_order_of_columns_and_unknown_columns_do_not_matter(tmp_path: Path) -> None:
    names = (*reversed(PLAIN), "assumptions")
    table = write(tmp_path / "runs.csv", row(step_s=2, assumptions="a, b; c\nd"), names=names)
    ours = write(tmp_path / "plain.csv", row(step_s=2))
    assert api.validate([table]) == api.validate([ours])


def test_a_table_saved_by_a_spreadsheet_is_read(tmp_path: Path) -> None:
    plain = write(tmp_path / "runs.csv", row(step_s=2), row(step_s=3))
    marked = tmp_path / "marked.csv"
    marked.write_bytes(b"\xef\xbb\xbf" + plain.read_bytes() + b"\r\n")
    assert [*read_rows(marked)] == [*read_rows(plain)]


def test_files_and_folders(tmp_path: Path) -> None:
    write(tmp_path / "b.csv", row(run_id="b"))
    write(tmp_path / "a.csv", row(run_id="a"))
    (tmp_path / "notes.txt").write_text("no table")
    assert [r.run_id for r in api.validate([tmp_path]).rows] == ["a", "b"]
    assert [r.run_id for r in api.validate([tmp_path / "b.csv", tmp_path / "a.csv"]).rows] == [
        "b",
        "a",
    ]


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"", "no column 'run_id'"),
        (b"\n\n", "no column 'run_id'"),
        (b"run_id,suite\na,b\n", "no column 'gpu'"),
        (b'{"json": true}', "no column 'run_id'"),
        (b"\xff\xfe\x00", "not UTF-8"),
        (",".join(PLAIN).encode() + b"\n" + b"x," * 40, "more cells than the header"),
        (",".join([*PLAIN, "tp"]).encode() + b"\n", "'tp' twice"),
        (",".join(PLAIN).encode() + b'\n"open', "not a readable CSV"),
        (",".join(PLAIN).encode() + b"\n" + b"y" * 200_000, "not a readable CSV"),
        (b"x" * 9_000_000, "larger than"),
    ],
)
def test_a_file_that_is_no_table_is_refused(content: bytes, text: str, tmp_path: Path) -> None:
    file = tmp_path / "runs.csv"
    file.write_bytes(content)
    refused(dpplan("validate", file), "RUNS.csv", str(file), text)
    assert os.listdir(tmp_path) == ["runs.csv"]


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    refused(dpplan("validate", tmp_path / "missing.csv"), "RUNS.csv", "missing.csv", "No such file")
    refused(dpplan("validate", tmp_path), "RUNS.csv", "holds no CSV file")
    refused(dpplan("validate", "a\0b.csv"), "RUNS.csv")
    refused(dpplan("validate", "~nobody-of-this-name/runs.csv"), "RUNS.csv")


def test_residuals_are_measured_over_predicted(tmp_path: Path) -> None:
    seconds = float(predict(row()).time.seconds[0])
    rows = [
        row(run_id="a", step_s=seconds * 2),
        row(run_id='b,"1"', step_s=seconds / 4),
        row(run_id="c"),
        row(run_id="d", outcome="oom"),
    ]
    table = write(tmp_path / "runs.csv", *rows)
    lines = list(csv.DictReader(time_lines(time_rows(api.validate([table]).rows)).splitlines()))
    assert [line["run_id"] for line in lines] == ["a", 'b,"1"']
    assert [float(line["measured_over_predicted"]) for line in lines] == [2.0, 0.25]
    assert {(line["gpu"], line["stack"]) for line in lines} == {("a100-sxm4-80gb", "megatron-core")}


def test_results_replace_a_file_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, wanted = write(tmp_path / "runs.csv", row(step_s=2)), tmp_path / "out.csv"
    wanted.write_text("as it was")
    document = api.validate([table])

    def full(source: str, target: str) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", full)
        with pytest.raises(PlanError, match="No space left"):
            api.write_runs(document, wanted)
    assert wanted.read_text() == "as it was"
    assert sorted(os.listdir(tmp_path)) == ["out.csv", "runs.csv"]
    api.write_runs(document, wanted)
    assert wanted.read_text() == run_lines(document)


def test_shipped_runs_have_sources_and_are_all_read() -> None:
    rows = read_all([])
    assert len({r["run_id"] for r in rows}) == len(rows) > 1000
    for r in rows:
        assert r["source"], r["run_id"]
        assert r["run_id"].startswith(r["suite"] + "-")
        assert r["tier"] in ("A", "B")
        assert bool(r["step_s"] or r["peak_memory_gib"]) == (r["outcome"] == "ok"), r["run_id"]
    assert {file.stem for file in SHIPPED.glob("*.csv")} == {r["suite"] for r in rows}


def test_without_an_argument_the_shipped_runs_are_validated() -> None:
    out = dpplan(
        "validate", "--suite", "korthikanti-2022", "--suite", "small-runs", "--json"
    ).json()
    assert set(out["suites"]) == {"korthikanti-2022", "small-runs"}
    assert out["summary"]["time"]["n"] == 12
    assert (
        out
        == dpplan(
            "validate", SHIPPED, "--suite", "small-runs", "--suite", "korthikanti-2022", "--json"
        ).json()
    )
    assert out["skipped"] == []


def test_an_unknown_suite_answers_with_near_ones(tmp_path: Path) -> None:
    refused(
        dpplan("validate", "--suite", "korthikanti"), "--suite", "did you mean korthikanti-2022"
    )
    refused(dpplan("validate", "--suite", "xyz"), "--suite", "the suites are", "zero-bubble")
    table = write(tmp_path / "runs.csv")
    refused(dpplan("validate", table, "--suite", "small"), "--suite", "no row")
    assert api.validate([table]).summary.time.n == 0  # a table without rows is not an error


def test_one_csv_line_per_row(tmp_path: Path) -> None:
    table = write(
        tmp_path / "runs.csv",
        row(run_id="a", step_s=2),
        row(run_id="b", outcome="oom"),
        row(run_id="c", tp=3),
        row(run_id="d", peak_memory_gib=20),
    )
    wanted = tmp_path / "out.csv"
    out = dpplan("validate", table, "--csv", wanted, "--json").json()
    with wanted.open(encoding="utf-8", newline="") as file:
        lines = {line["run_id"]: line for line in csv.DictReader(file)}
    assert sorted(lines) == ["a", "b", "c", "d"]
    assert "tp 3" in lines["c"]["skipped"]
    assert {
        lines["c"][name] for name in lines["c"] if name not in ("run_id", "suite", "skipped")
    } == {""}
    for predicted in out["rows"]:
        line = lines[predicted["run_id"]]
        assert float(line["predicted_step_s"]) == pytest.approx(
            predicted["predicted_step_s"], rel=1e-5
        )
        components = [float(line[f"{name}_s"]) for name in predicted["components"]]
        assert sum(components) == pytest.approx(predicted["predicted_step_s"], rel=1e-4)
        assert line["skipped"] == ""
    assert float(lines["a"]["time_error"]) == pytest.approx(
        out["rows"][0]["predicted_step_s"] / 2 - 1, rel=1e-4
    )
    assert (lines["b"]["time_error"], lines["d"]["time_error"]) == ("", "")
    assert float(lines["d"]["memory_error"]) == pytest.approx(
        out["rows"][2]["predicted_peak_gib"] / 20 - 1, rel=1e-4
    )


@pytest.mark.parametrize("option", ["--csv", "--plot"])
def test_a_result_that_cannot_be_written_is_refused(option: str, tmp_path: Path) -> None:
    table = write(tmp_path / "runs.csv", row(step_s=2))
    before = table.read_bytes()
    (tmp_path / "folder").mkdir()
    for target in (tmp_path / "folder", tmp_path / "missing" / "file", "a\0b", "/"):
        refused(dpplan("validate", table, option, target), option)
    refused(dpplan("validate", table, option, table), option, "this request reads")
    assert table.read_bytes() == before
    assert sorted(os.listdir(tmp_path)) == ["folder", "runs.csv"]


def test_two_results_need_two_files(tmp_path: Path) -> None:
    table, wanted = write(tmp_path / "runs.csv", row(step_s=2)), tmp_path / "out.csv"
    refused(dpplan("validate", table, "--csv", wanted, "--plot", wanted), "named twice")
    assert not wanted.exists()


def test_the_figure_holds_every_run_with_a_time() -> None:
    rows = [
        row(run_id=f"{s}{i}", suite=s, step_s=i + 1, tp=2**i, dp=8 // 2**i)
        for s in ("x<y", "z")
        for i in range(3)
    ]
    document = validate_rows([*rows, row(run_id="none"), row(run_id="oom", outcome="oom")])
    shown = chart(document).figure
    points = [trace for trace in shown["data"] if trace["mode"] == "markers"]
    assert len(points) == 4  # two suites, two panels
    by_panel = {panel: [t for t in points if t.get("xaxis", "x") == panel] for panel in ("x", "x2")}
    measured = {run.run_id: run for run in document.rows}
    for time, error in zip(by_panel["x"], by_panel["x2"], strict=True):
        assert time["marker"] == error["marker"]
        for i, text in enumerate(time["text"]):
            run = measured[text.split("<br>")[0].replace("&lt;", "<")]
            assert (time["x"][i], time["y"][i]) == (run.measured_step_s, run.predicted_step_s)
            assert (error["x"][i], error["y"][i]) == (
                run.gpus,
                pytest.approx(100 * not_none(run.time_error)),
            )
            assert f"tp={2 ** (i % 3)}" in text
            assert f"{run.time_error:+.1%}" in text
            assert "x<y" not in text
    assert by_panel["x"][0]["marker"]["color"] != by_panel["x"][1]["marker"]["color"]
    guides = {t["name"]: t for t in shown["data"] if t["mode"] == "lines"}
    assert set(guides) == {"equal", "+5%", "-5%", "+10%", "-10%", "+20%", "-20%"}
    assert [
        y / x for x, y in zip(guides["-20%"]["x"], guides["-20%"]["y"], strict=True)
    ] == pytest.approx([0.8, 0.8])
    (menu,) = shown["layout"]["updatemenus"]
    seconds = menu["buttons"][1]["args"]
    assert [shown["data"][i]["xaxis"] for i in seconds[2]] == ["x2", "x2"]
    assert seconds[0]["x"] == [trace["x"] for trace in by_panel["x"]]


def test_the_page_opens_without_a_network(tmp_path: Path) -> None:
    table, wanted = (
        write(tmp_path / "runs.csv", row(step_s=2, run_id="<script>alert(1)</script>")),
        tmp_path / "out.html",
    )
    answer = dpplan("validate", table, "--plot", wanted)
    assert answer.status == 0, answer.stderr
    text = wanted.read_text(encoding="utf-8")
    assert not re.search(r"<script[^>]+src=|<link|@import", text)
    assert len(text) > 1_000_000  # plotly.js is inside
    assert '"displaylogo": false' in text
    assert '"showSendToCloud": false' in text
    assert "<script>alert" not in text
    assert sorted(os.listdir(tmp_path)) == ["out.html", "runs.csv"]


def test_nothing_to_show_is_no_error(tmp_path: Path) -> None:
    """No run with a time, no second suite, no group: every output says so and none fails."""
    table = write(tmp_path / "runs.csv", row())
    answer = dpplan(
        "validate", table, "--csv", tmp_path / "out.csv", "--plot", tmp_path / "out.html"
    )
    assert answer.status == 0, answer.stderr
    assert dpplan("validate", table, "--json").json()["groups"] == []
    assert not [t for t in chart(api.validate([table])).figure["data"] if t["mode"] == "markers"]


def test_a_plot_without_plotly_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "plotly.io", None)
    table = write(tmp_path / "runs.csv", row(step_s=2))
    refused(dpplan("validate", table, "--plot", tmp_path / "out.html"), "--plot", "pip install")
    assert os.listdir(tmp_path) == ["runs.csv"]


def test_kinds_by_hand() -> None:
    """Suite x errs by 10 and 30 %, suite y by 40 %: mean over runs 80/3 %, mean over suites 30
    %."""
    runs = [
        entry(1.0, 1.0, suite=s, time_error=e)
        for s, e in (("x", 0.1), ("x", -0.3), ("y", 0.4), ("y", None))
    ]
    runs[2] = changed(
        runs[2], tier="B", experts=8, precision="fp8", micro_batch_tokens=1024, gpus=129
    )
    result = kinds(runs)
    assert (result["all"].n, result["all"].suites) == (3, 2)
    assert result["all"].mape == pytest.approx(0.8 / 3)
    assert result["all"].mape_of_suites == pytest.approx(0.3)
    three = kinds([entry(1.0, 1.0, suite="z", time_error=e) for e in (0.1, 0.2, 0.32)])
    # predicted 1.1, 1.2 and 1.32 times as long; the median, 1.2, goes
    assert three["all"].mape_within_suites == pytest.approx((0.1 / 1.2 + 0 + 0.12 / 1.2) / 3)
    assert (result["tier A"].n, result["tier A"].mape_of_suites) == (2, pytest.approx(0.2))
    for name in (
        "tier B",
        "mixture of experts",
        "fp8",
        "up to 1024 tokens per micro-batch",
        "more than 128 GPUs",
    ):
        assert (result[name].n, result[name].mape) == (1, pytest.approx(0.4)), name
    nothing = dict.fromkeys(
        ("mape", "median_ape", "bias", "worst", "mape_of_suites", "mape_within_suites")
    )
    assert result["Volta"] == ErrorsOfSuites(n=0, suites=0, **nothing)
    cases: dict[str, dict[str, Any]] = {
        "Volta": {"architecture": "volta"},
        "Blackwell": {"architecture": "blackwell-ultra"},
        "AMD": {"architecture": "cdna4"},
        "FSDP and ZeRO on up to one node": {"family": "deepspeed"},
        "offload": {"features": {"offload": 0.2}},
        "sequences from 32768 tokens": {"seq_len": 32768},
    }
    for name, case in cases.items():
        assert result[name] == ErrorsOfSuites(n=0, suites=0, **nothing), name
        assert kinds([changed(runs[0], **case)])[name].n == 1, name
    for case in ({"family": "fsdp", "gpus": 16}, {"family": "megatron"}):
        assert kinds([changed(runs[0], **case)])["FSDP and ZeRO on up to one node"].n == 0
