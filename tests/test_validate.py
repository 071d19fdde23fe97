"""Measured runs against predictions, on tables small enough to compute by hand."""

from __future__ import annotations

import csv
import os
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command import dpplan, refused

from planner import api
from planner.estimate.machine import SWITCHES, machine
from planner.estimate.table import to_table
from planner.specs.base import PlanError
from planner.uncertainty import Case, band_of, recorded, residuals
from planner.validate import (
    ablations,
    coverage,
    predict,
    read_all,
    read_rows,
    residual_lines,
    row_plan,
    summarise,
    validate_rows,
)
from planner.validate.ablation import MECHANISMS, with_each_off
from planner.validate.errors import kinds
from planner.validate.files import SHIPPED
from planner.validate.plot import figure
from planner.validate.ranking import groups_of

PLAIN = {
    "run_id": "r", "suite": "small", "gpu": "a100-sxm4-80gb", "gpus": "8", "gpus_per_node": "8", "stack": "megatron-core",
    "layers": "24", "hidden": "2048", "heads": "16", "vocab": "50304", "seq_len": "2048", "precision": "bf16", "tp": "1",
    "pp": "1", "dp": "8", "zero": "1", "micro_batch": "4", "global_batch": "64", "recompute": "none", "step_s": "",
    "peak_memory_gib": "", "memory_kind": "", "outcome": "ok", "options": "",
}  # fmt: skip


def row(**changes: object) -> dict[str, str]:
    return PLAIN | {name: str(value) for name, value in changes.items()}


def write(path: Path, *rows: dict[str, str], names: tuple[str, ...] = tuple(PLAIN)) -> Path:
    with path.open("w", encoding="utf-8", newline="") as file:
        table = csv.DictWriter(file, names, extrasaction="ignore")
        table.writeheader()
        table.writerows(rows)
    return path


def entry(predicted: float, measured: float | None, **changes: Any) -> dict[str, Any]:
    return {
        "run_id": "r", "suite": "small", "predicted_step_s": predicted, "measured_step_s": measured, "predicted_peak_gib": 1.0,
        "measured_peak_gib": None, "predicted_fits": True, "outcome": "ok", "group": "g", "layout": str(predicted),
    } | changes  # fmt: skip


# ------------------------------------------------------------------------------------------------- errors


def test_errors_of_time_by_hand() -> None:
    """Errors +10 %, -20 %, +50 %, -5 %: mean 21.25 %, median (10 + 20) / 2, bias (-5 + 10) / 2, worst +50 %."""
    time = summarise([entry(1.1, 1.0), entry(1.6, 2.0), entry(6.0, 4.0), entry(0.95, 1.0)])["time"]
    assert time["n"] == 4
    assert time["mape"] == pytest.approx(0.2125)
    assert time["median_ape"] == pytest.approx(0.15)
    assert time["bias"] == pytest.approx(0.025)
    assert time["worst"] == pytest.approx(0.5)


def test_errors_of_memory_by_hand() -> None:
    """10 GiB seen as 8, 16 as 20, 5 as 5: errors -20 %, +25 %, 0."""
    seen = [entry(1, None, predicted_peak_gib=p, measured_peak_gib=m) for p, m in ((8.0, 10.0), (20.0, 16.0), (5.0, 5.0))]
    memory = summarise(seen)["memory"]
    assert (memory["n"], memory["mape"], memory["median_ape"]) == (3, pytest.approx(0.15), pytest.approx(0.2))
    assert (memory["bias"], memory["worst"]) == (pytest.approx(0.0), pytest.approx(0.25))
    assert summarise(seen)["time"] == {"n": 0, "mape": None, "median_ape": None, "bias": None, "worst": None}


def test_out_of_memory_rows_count_apart() -> None:
    entries = [
        entry(1.0, 1.0), entry(1.0, 1.0, predicted_fits=False),
        entry(9.0, None, outcome="oom", predicted_fits=False), entry(9.0, None, outcome="oom", predicted_fits=False),
        entry(9.0, None, outcome="oom", predicted_fits=True),
    ]  # fmt: skip
    summary = summarise(entries)
    assert summary["oom"] == {"n": 3, "right": 2}
    assert summary["ran"] == {"n": 2, "right": 1}
    assert summary["time"]["n"] == 2


# ------------------------------------------------------------------------------------------------- ranking


def ranking(*pairs: tuple[float, float], **changes: Any) -> dict[str, Any]:
    return summarise([entry(p, m, layout=f"{i}", **changes) for i, (p, m) in enumerate(pairs)])["ranking"]


def test_perfect_and_reversed_order() -> None:
    up = [(float(i), float(i)) for i in range(1, 6)]
    assert ranking(*up) == {"groups": 1, "spearman": pytest.approx(1), "pick_regret_mean": 0, "pick_regret_max": 0, "ties": 0}
    down = ranking(*[(p, 6 - m) for p, m in up])
    assert down["spearman"] == pytest.approx(-1)
    assert down["pick_regret_max"] == pytest.approx(4)  # takes the 5 s layout where 1 s was possible


def test_spearman_with_ties_by_hand() -> None:
    """Predicted 1 2 2 4 5 has ranks 1, 2.5, 2.5, 4, 5; measured 1 3 2 2 5 has 1, 4, 2.5, 2.5, 5. Covariance
    (-2)(-2) + (-.5)(1) + (-.5)(-.5) + (1)(-.5) + (2)(2) = 7.25; both variances 9.5: 7.25 / 9.5."""
    result = ranking((1, 1), (2, 3), (2, 2), (4, 2), (5, 5))
    assert result["spearman"] == pytest.approx(7.25 / 9.5)


def test_pick_regret_by_hand() -> None:
    """The layout predicted fastest took 1.2 s, the fastest one 1.0 s."""
    result = ranking((2, 1.0), (1, 1.2), (3, 2.0), (4, 1.5), (5, 3.0))
    assert result["pick_regret_mean"] == pytest.approx(0.2)
    two = [entry(p, m, layout=f"{i}", group=g)
           for g, measured in (("g", (1.0, 1.2, 2.0, 1.5, 3.0)), ("h", (1.0, 2.0, 3.0, 4.0, 5.0)))
           for i, (p, m) in enumerate(zip((2, 1, 3, 4, 5), measured, strict=True))]  # fmt: skip
    both = summarise(two)["ranking"]
    assert both["groups"] == 2
    assert both["pick_regret_mean"] == pytest.approx((0.2 + 1.0) / 2)
    assert both["pick_regret_max"] == pytest.approx(1.0)


def test_no_order_at_all_correlates_with_nothing() -> None:
    assert ranking(*[(1.0, float(m)) for m in range(1, 6)])["spearman"] == 0


def test_a_group_needs_five_layouts() -> None:
    none = {"groups": 0, "spearman": None, "pick_regret_mean": None, "pick_regret_max": None, "ties": 0}
    assert ranking((1, 1), (2, 2), (3, 3), (4, 4)) == none
    same = [entry(float(i), float(i), layout="one") for i in range(1, 9)]
    assert summarise(same)["ranking"] == none


def test_groups_are_rows_that_differ_only_in_layout() -> None:
    rows = [
        row(run_id=f"a{t}{m}", tp=t, dp=8 // t, micro_batch=m, step_s=1 + t / 10 + m / 100) for t in (1, 2, 4) for m in (1, 2)
    ]
    elsewhere = [dict(r, run_id=f"b{i}", seq_len="1024") for i, r in enumerate(rows)]
    release = [dict(r, run_id=f"c{i}", options="release=2") for i, r in enumerate(rows)]
    kernels = [dict(r, run_id=f"d{i}", options="selective=per_op") for i, r in enumerate(rows)]
    assert validate_rows(rows)["summary"]["ranking"]["groups"] == 1
    assert validate_rows(rows + elsewhere)["summary"]["ranking"]["groups"] == 2
    assert validate_rows(rows + release)["summary"]["ranking"]["groups"] == 2
    assert validate_rows(rows + kernels)["summary"]["ranking"]["groups"] == 1  # what is recomputed is layout
    failed = [dict(r, step_s="", outcome="oom") for r in rows[:2]]
    assert validate_rows(rows[2:] + failed)["summary"]["ranking"]["groups"] == 0


# ------------------------------------------------------------------------------------------------- rows


def test_rows_and_suites_of_a_table(tmp_path: Path) -> None:
    fits, full = row(), row(layers=96, hidden=12288, heads=96, tp=8, dp=1, micro_batch=8, step_s="", outcome="oom")
    seconds = float(predict(fits).time.seconds[0])
    peak = float(predict(fits).memory.peak[0]) / 2**30
    reserved = float(predict(fits).memory.reserved[0]) / 2**30
    device = float(predict(fits).memory.device[0]) / 2**30
    table = write(
        tmp_path / "runs.csv",
        row(run_id="a", suite="x", step_s=seconds / 1.25, peak_memory_gib=peak * 2),
        row(run_id="b", suite="x", step_s=seconds * 2, peak_memory_gib=reserved, memory_kind="reserved"),
        row(run_id="c", suite="y", step_s=seconds, peak_memory_gib=device, memory_kind="nvidia-smi"),
        dict(full, run_id="d", suite="y"),
        row(run_id="e", suite="y", step_s=""),
    )
    out = api.validate([table])
    assert [r["run_id"] for r in out["rows"]] == ["a", "b", "c", "d", "e"]
    assert [r["predicted_fits"] for r in out["rows"]] == [True, True, True, False, True]
    x, y, whole = out["suites"]["x"], out["suites"]["y"], out["summary"]
    assert x["time"]["n"] == 2
    assert x["time"]["mape"] == pytest.approx((0.25 + 0.5) / 2)
    assert x["time"]["worst"] == pytest.approx(-0.5)
    assert x["memory"]["mape"] == pytest.approx((0.5 + 0) / 2)
    assert y["memory"]["mape"] == pytest.approx(0, abs=1e-9)
    assert y["oom"] == {"n": 1, "right": 1}
    assert y["time"]["n"] == 1
    assert (whole["time"]["n"], whole["oom"]["n"], whole["memory"]["n"]) == (3, 1, 3)
    assert whole["time"]["mape"] == pytest.approx((0.25 + 0.5 + 0) / 3)


@pytest.mark.parametrize(("changes", "said"), [
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
    ({"gpus": "0"}, ["--gpus", "0"]),
    ({"gpus": "1e18"}, ["--gpus", "1000000000000000000"]),
    ({"global_batch": "63"}, ["global_batch 63", "dp 8"]),
    ({"global_batch": "0"}, ["global_batch"]),
    ({"seq_len": "0"}, ["seq_len is 0", "at least 1"]),
    ({"precision": "fp64"}, ["precision", "fp64"]),
    ({"precision": "fp8"}, ["precision", "fp8", "A100"]),
    ({"recompute": "some"}, ["recompute", "some"]),
    ({"schedule": "gantt"}, ["schedule", "gantt"]),
    ({"zero": "7"}, ["zero", "'7'"]),
    ({"shard_group": "3"}, ["shard_group 3", "8"]),
    ({"intra_node": "ib-ndr"}, ["--intra-node", "ib-ndr"]),
    ({"nics_per_node": "1000"}, ["--nics-per-node", "1000"]),
    ({"nic_gbps": "0"}, ["--nic-bandwidth", "positive"]),
    ({"gpus_per_node": "3"}, ["--gpus", "8", "3 GPUs per node"]),
    ({"experts": "8"}, ["moe_ffn_hidden is empty"]),
    ({"outcome": "crashed"}, ["outcome", "'crashed'", "ok, oom"]),
    ({"step_s": "fast"}, ["step_s", "'fast'"]),
    ({"step_s": "0"}, ["step_s", "positive"]),
    ({"step_s": "-1"}, ["step_s", "'-1'"]),
    ({"step_s": "inf"}, ["step_s", "'inf'"]),
    ({"peak_memory_gib": "80 GB"}, ["peak_memory_gib", "'80 GB'"]),
])  # fmt: skip
def test_a_row_that_cannot_be_expressed_is_skipped_with_the_reason(
    changes: dict[str, str], said: list[str], tmp_path: Path
) -> None:
    names = tuple(dict.fromkeys([*PLAIN, *changes]))
    table = write(tmp_path / "runs.csv", row(run_id="good", step_s=2), row(run_id="bad", **changes), names=names)
    out = api.validate([table])
    assert [r["run_id"] for r in out["rows"]] == ["good"]
    (skipped,) = out["skipped"]
    assert (skipped["run_id"], skipped["suite"]) == ("bad", "small")
    for text in said:
        assert text in skipped["reason"], skipped["reason"]
    assert "\n" not in skipped["reason"]
    assert out["summary"]["time"]["n"] == 1
    assert "bad" in dpplan("validate", table).stdout


def test_the_order_of_columns_and_unknown_columns_do_not_matter(tmp_path: Path) -> None:
    names = (*reversed(PLAIN), "assumptions")
    table = write(tmp_path / "runs.csv", row(step_s=2, assumptions="a, b; c\nd"), names=names)
    ours = write(tmp_path / "plain.csv", row(step_s=2))
    assert api.validate([table]) == api.validate([ours])


def test_a_table_saved_by_a_spreadsheet_is_read(tmp_path: Path) -> None:
    plain = write(tmp_path / "runs.csv", row(step_s=2), row(step_s=3))
    marked = tmp_path / "marked.csv"
    marked.write_bytes(b"\xef\xbb\xbf" + plain.read_bytes() + b"\r\n")
    assert read_rows(marked) == read_rows(plain)


def test_files_and_folders(tmp_path: Path) -> None:
    write(tmp_path / "b.csv", row(run_id="b"))
    write(tmp_path / "a.csv", row(run_id="a"))
    (tmp_path / "notes.txt").write_text("no table")
    assert [r["run_id"] for r in api.validate([tmp_path])["rows"]] == ["a", "b"]
    assert [r["run_id"] for r in api.validate([tmp_path / "b.csv", tmp_path / "a.csv"])["rows"]] == ["b", "a"]


@pytest.mark.parametrize(("content", "said"), [
    (b"", "no column 'run_id'"),
    (b"\n\n", "no column 'run_id'"),
    (b"run_id,suite\na,b\n", "no column 'gpu'"),
    (b"{\"json\": true}", "no column 'run_id'"),
    (b"\xff\xfe\x00", "not UTF-8"),
    (",".join(PLAIN).encode() + b"\n" + b"x," * 40, "more cells than the header"),
    (",".join([*PLAIN, "tp"]).encode() + b"\n", "'tp' twice"),
    (",".join(PLAIN).encode() + b'\n"open', "no readable CSV"),
    (",".join(PLAIN).encode() + b'\n' + b"y" * 200_000, "no readable CSV"),
    (b"x" * 9_000_000, "larger than"),
])  # fmt: skip
def test_a_file_that_is_no_table_is_refused(content: bytes, said: str, tmp_path: Path) -> None:
    file = tmp_path / "runs.csv"
    file.write_bytes(content)
    refused(dpplan("validate", file), "RUNS.csv", str(file), said)
    assert os.listdir(tmp_path) == ["runs.csv"]


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    refused(dpplan("validate", tmp_path / "missing.csv"), "RUNS.csv", "missing.csv", "No such file")
    refused(dpplan("validate", tmp_path), "RUNS.csv", "holds no CSV file")
    refused(dpplan("validate", "a\0b.csv"), "RUNS.csv")
    refused(dpplan("validate", "~nobody-of-this-name/runs.csv"), "RUNS.csv")


# ------------------------------------------------------------------------------------------------- residuals


def test_residuals_are_measured_over_predicted(tmp_path: Path) -> None:
    seconds = float(predict(row()).time.seconds[0])
    rows = [row(run_id="a", step_s=seconds * 2), row(run_id='b,"1"', step_s=seconds / 4), row(run_id="c"),
            row(run_id="d", outcome="oom")]  # fmt: skip
    table, wanted = write(tmp_path / "runs.csv", *rows), tmp_path / "residuals.csv"
    assert dpplan("validate", table, "--residuals", wanted).status == 0
    with wanted.open(encoding="utf-8", newline="") as file:
        lines = list(csv.DictReader(file))
    assert [line["run_id"] for line in lines] == ["a", 'b,"1"']
    assert [float(line["measured_over_predicted"]) for line in lines] == [2.0, 0.25]
    assert {(line["gpu"], line["stack"]) for line in lines} == {("a100-sxm4-80gb", "megatron-core")}
    assert wanted.read_text(encoding="utf-8") == residual_lines(api.validate([table]))
    assert sorted(os.listdir(tmp_path)) == ["residuals.csv", "runs.csv"]


def test_residuals_replace_a_file_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table, wanted = write(tmp_path / "runs.csv", row(step_s=2)), tmp_path / "residuals.csv"
    wanted.write_text("as it was")
    document = api.validate([table])

    def full(self: Path, target: Path) -> Path:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", full)
        with pytest.raises(PlanError, match="No space left"):
            api.write_residuals(document, wanted)
    assert wanted.read_text() == "as it was"
    assert sorted(os.listdir(tmp_path)) == ["residuals.csv", "runs.csv"]
    api.write_residuals(document, wanted)
    assert wanted.read_text() == residual_lines(document)


@pytest.mark.parametrize("where", ["folder", "missing/file.csv", "", "/", "a\0b"])
def test_residuals_that_cannot_be_written_are_refused(where: str, tmp_path: Path) -> None:
    table = write(tmp_path / "runs.csv", row(step_s=2))
    (tmp_path / "folder").mkdir()
    target = where if where in ("", "/") else f"{tmp_path}/{where}"
    refused(dpplan("validate", table, "--residuals", target), "--residuals")
    assert sorted(os.listdir(tmp_path)) == ["folder", "runs.csv"]


# ------------------------------------------------------------------------------------------------- shipped runs, suites


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
    out = dpplan("validate", "--suite", "korthikanti-2022", "--suite", "small-runs", "--json").json()
    assert set(out["suites"]) == {"korthikanti-2022", "small-runs"}
    assert out["summary"]["time"]["n"] == 12
    assert out == dpplan("validate", SHIPPED, "--suite", "small-runs", "--suite", "korthikanti-2022", "--json").json()
    assert out["skipped"] == []


def test_an_unknown_suite_answers_with_near_ones(tmp_path: Path) -> None:
    refused(dpplan("validate", "--suite", "korthikanti"), "--suite", "did you mean korthikanti-2022")
    refused(dpplan("validate", "--suite", "xyz"), "--suite", "the suites are", "zero-bubble")
    table = write(tmp_path / "runs.csv")
    refused(dpplan("validate", table, "--suite", "small"), "--suite", "no row")
    assert api.validate([table])["summary"]["time"]["n"] == 0  # a table without rows is no error


# ------------------------------------------------------------------------------------------------- noise floor


def test_noise_floor_by_hand() -> None:
    """One recipe measured as 1.0, 1.1 and 1.5 s (median 1.1), another as 2 and 4 s (median 3), a third once."""
    rows = [row(run_id=f"a{s}", source="x", step_s=s) for s in (1.0, 1.1, 1.5)]
    rows += [row(run_id=f"b{s}", seq_len=1024, step_s=s) for s in (2, 4)]
    rows += [row(run_id="c", seq_len=512, step_s=9), row(run_id="d", seq_len=1024, outcome="oom")]
    out = validate_rows(rows)
    deviations = [r["repeat_deviation"] for r in out["rows"]]
    assert deviations[:5] == pytest.approx([1 / 1.1 - 1, 0, 1.5 / 1.1 - 1, 2 / 3 - 1, 4 / 3 - 1])
    assert deviations[5:] == [None, None]
    noise = out["summary"]["noise"]
    expected = [1 - 1 / 1.1, 0, 1.5 / 1.1 - 1, 1 / 3, 1 / 3]
    assert (noise["n"], noise["mean"]) == (5, pytest.approx(sum(expected) / 5))
    assert (noise["median"], noise["worst"]) == (pytest.approx(1 / 3), pytest.approx(1.5 / 1.1 - 1))
    assert out["suites"]["small"]["noise"] == noise


@pytest.mark.parametrize("changes", [{"options": "release=2"}, {"vocab": 50257}, {"micro_batch": 2}, {"inter_node": "ib-hdr"}])
def test_runs_of_different_recipes_are_no_repeats(changes: dict[str, Any]) -> None:
    out = validate_rows([row(run_id="a", step_s=1, inter_node=""), row(run_id="b", step_s=2, **{"inter_node": "", **changes})])
    assert len(out["rows"]) == 2
    assert out["summary"]["noise"] == {"n": 0, "mean": None, "median": None, "worst": None}


# ------------------------------------------------------------------------------------------------- groups


def groups(*pairs: tuple[float, float], noise: float = 0.0, **changes: Any) -> list[dict[str, Any]]:
    return groups_of([entry(p, m, layout=f"{i}", run_id=f"r{i}", **changes) for i, (p, m) in enumerate(pairs)], noise)


def test_a_group_names_pick_best_and_ties() -> None:
    """The pick of 1.00 s took 1.2; 1.02 and 1.03 lie within a noise floor of 3.5 % of it, and the worst of them took 2.0."""
    (group,) = groups((2, 1.0), (1.0, 1.2), (1.02, 2.0), (1.03, 1.5), (1.04, 3.0), noise=0.035)
    assert (group["pick"]["run_id"], group["best"]["run_id"]) == ("r1", "r0")
    assert group["pick_regret"] == pytest.approx(0.2)
    assert (group["ties"], group["worst_tie_regret"]) == (2, pytest.approx(1.0))
    assert (group["runs"], group["layouts"]) == (5, 5)
    (alone,) = groups((2, 1.0), (1.0, 1.2), (1.02, 2.0), (1.03, 1.5), (1.04, 3.0))
    assert (alone["ties"], alone["worst_tie_regret"]) == (0, pytest.approx(0.2))


def test_equal_predictions_are_decided_by_busy_time_and_collectives() -> None:
    tied = [entry(1.0, 2.0, layout="a", run_id="a", gpu_busy_s=0.9, collectives=5),
            entry(1.0, 3.0, layout="b", run_id="b", gpu_busy_s=0.8, collectives=7),
            entry(1.0, 1.0, layout="c", run_id="c", gpu_busy_s=0.8, collectives=6),
            entry(1.1, 4.0, layout="d", run_id="d", gpu_busy_s=0.1, collectives=1),
            entry(1.2, 5.0, layout="e", run_id="e", gpu_busy_s=0.1, collectives=1)]  # fmt: skip
    for order in (tied, tied[::-1]):
        (group,) = groups_of(order)
        assert group["pick"]["run_id"] == "c"
        assert group["ties"] == 2


def test_the_worst_group_comes_first() -> None:
    good = [entry(float(i), float(i), layout=f"{i}", group="good") for i in range(1, 6)]
    bad = [entry(float(i), 7.0 - i, layout=f"{i}", group="bad") for i in range(1, 6)]
    assert [g["group"] for g in groups_of(good + bad)] == ["bad", "good"]


def test_offload_is_layout_and_the_cluster_is_not() -> None:
    rows = [row(run_id=f"a{m}", micro_batch=m, step_s=m, optimizer_offload=0) for m in (1, 2, 4, 8)]
    one = validate_rows([*rows, row(run_id="b", step_s=3, optimizer_offload=1, stack="deepspeed", zero=2)])
    assert one["summary"]["ranking"]["groups"] == 0  # another stack
    same = [dict(r, stack="deepspeed", zero="2") for r in rows]
    offloaded = row(run_id="b", step_s=3, optimizer_offload=1, stack="deepspeed", zero=2)
    assert validate_rows([*same, offloaded])["summary"]["ranking"]["groups"] == 1
    elsewhere = dict(offloaded, intra_node="nvlink2")
    assert validate_rows([*(dict(r, intra_node="") for r in same), elsewhere])["summary"]["ranking"]["groups"] == 0


# ------------------------------------------------------------------------------------------------- files written


def test_one_csv_line_per_row(tmp_path: Path) -> None:
    table = write(tmp_path / "runs.csv", row(run_id="a", step_s=2), row(run_id="b", outcome="oom"), row(run_id="c", tp=3),
                  row(run_id="d", peak_memory_gib=20))  # fmt: skip
    wanted = tmp_path / "out.csv"
    out = dpplan("validate", table, "--csv", wanted, "--json").json()
    with wanted.open(encoding="utf-8", newline="") as file:
        lines = {line["run_id"]: line for line in csv.DictReader(file)}
    assert sorted(lines) == ["a", "b", "c", "d"]
    assert "tp 3" in lines["c"]["skipped"]
    assert {lines["c"][name] for name in lines["c"] if name not in ("run_id", "suite", "skipped")} == {""}
    for entry in out["rows"]:
        line = lines[entry["run_id"]]
        assert float(line["predicted_step_s"]) == pytest.approx(entry["predicted_step_s"], rel=1e-5)
        components = [float(line[f"{name}_s"]) for name in entry["components"]]
        assert sum(components) == pytest.approx(entry["predicted_step_s"], rel=1e-4)
        assert line["skipped"] == ""
    assert float(lines["a"]["time_error"]) == pytest.approx(out["rows"][0]["predicted_step_s"] / 2 - 1, rel=1e-4)
    assert (lines["b"]["time_error"], lines["d"]["time_error"]) == ("", "")
    assert float(lines["d"]["memory_error"]) == pytest.approx(out["rows"][2]["predicted_peak_gib"] / 20 - 1, rel=1e-4)


@pytest.mark.parametrize("option", ["--csv", "--plot", "--residuals"])
def test_a_result_that_cannot_be_written_is_refused(option: str, tmp_path: Path) -> None:
    table = write(tmp_path / "runs.csv", row(step_s=2))
    before = table.read_bytes()
    (tmp_path / "folder").mkdir()
    for target in (tmp_path / "folder", tmp_path / "missing" / "file", "a\0b", "/"):
        refused(dpplan("validate", table, option, target), option)
    refused(dpplan("validate", table, option, table), "RUNS.csv", "named twice")
    assert table.read_bytes() == before
    assert sorted(os.listdir(tmp_path)) == ["folder", "runs.csv"]


def test_two_results_need_two_files(tmp_path: Path) -> None:
    table, wanted = write(tmp_path / "runs.csv", row(step_s=2)), tmp_path / "out.csv"
    refused(dpplan("validate", table, "--csv", wanted, "--residuals", wanted), "named twice")
    assert not wanted.exists()


# ------------------------------------------------------------------------------------------------- plot


def test_the_figure_holds_every_run_with_a_time() -> None:
    rows = [row(run_id=f"{s}{i}", suite=s, step_s=i + 1, tp=2**i, dp=8 // 2**i) for s in ("x<y", "z") for i in range(3)]
    document = validate_rows([*rows, row(run_id="none"), row(run_id="oom", outcome="oom")])
    shown = figure(document)
    points = [trace for trace in shown["data"] if trace["mode"] == "markers"]
    assert len(points) == 4  # two suites, two panels
    by_panel = {panel: [t for t in points if t.get("xaxis", "x") == panel] for panel in ("x", "x2")}
    measured = {r["run_id"]: r for r in document["rows"]}
    for time, error in zip(by_panel["x"], by_panel["x2"], strict=True):
        assert time["marker"] == error["marker"]
        for i, text in enumerate(time["text"]):
            run = measured[text.split("<br>")[0].replace("&lt;", "<")]
            assert (time["x"][i], time["y"][i]) == (run["measured_step_s"], run["predicted_step_s"])
            assert (error["x"][i], error["y"][i]) == (run["gpus"], pytest.approx(100 * run["time_error"]))
            assert f"tp={2 ** (i % 3)}" in text
            assert f"{run['time_error']:+.1%}" in text
            assert "x<y" not in text
    assert by_panel["x"][0]["marker"]["color"] != by_panel["x"][1]["marker"]["color"]
    guides = {t["name"]: t for t in shown["data"] if t["mode"] == "lines"}
    assert set(guides) == {"equal", "+5%", "-5%", "+10%", "-10%", "+20%", "-20%"}
    assert [y / x for x, y in zip(guides["-20%"]["x"], guides["-20%"]["y"], strict=True)] == pytest.approx([0.8, 0.8])
    (menu,) = shown["layout"]["updatemenus"]
    seconds = menu["buttons"][1]["args"]
    assert [shown["data"][i]["xaxis"] for i in seconds[2]] == ["x2", "x2"]
    assert seconds[0]["x"] == [trace["x"] for trace in by_panel["x"]]


def test_the_page_opens_without_a_network(tmp_path: Path) -> None:
    table, wanted = write(tmp_path / "runs.csv", row(step_s=2, run_id="<script>alert(1)</script>")), tmp_path / "out.html"
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
        "validate", table, "--coverage", "--ablations", "--cross-validate", "--csv", tmp_path / "out.csv", "--plot",
        tmp_path / "out.html",
    )  # fmt: skip
    assert answer.status == 0, answer.stderr
    assert "needs runs of at least two suites" in answer.stdout
    out = dpplan("validate", table, "--coverage", "--ablations", "--cross-validate", "--json").json()
    assert (out["cross_validation"]["rows"], out["cross_validation"]["parameters"]) == ([], [])
    assert (out["ablations"], out["coverage"]["suites"], out["groups"]) == ([], {}, [])
    assert not [trace for trace in figure(out)["data"] if trace["mode"] == "markers"]


def test_a_plot_without_plotly_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "plotly.io", None)
    table = write(tmp_path / "runs.csv", row(step_s=2))
    refused(dpplan("validate", table, "--plot", tmp_path / "out.html"), "--plot", "pip install")
    assert os.listdir(tmp_path) == ["runs.csv"]


# ------------------------------------------------------------------------------------------------- ablations


def test_every_mechanism_acts_somewhere_and_the_base_is_the_prediction() -> None:
    rows = [r for r in read_all([]) if r["step_s"]]
    chosen = [
        r for i, r in enumerate(rows)
        if i % 40 == 0 or "fp8_recipe=rowwise" in r["options"] or int(r["ep"] or 1) > 8 or r["suite"] == "narayanan-2021"
    ] + [row(gpu="h100-sxm5-80gb", tp=8, dp=1, sequence_parallel=0)]  # fmt: skip
    seen = {m.name: 0.0 for m in MECHANISMS}
    for r in chosen:
        plan, layout = row_plan(r)
        times = with_each_off(plan, to_table([layout]))[:, 0]
        assert times[0] == pytest.approx(float(predict(r).time.seconds[0]), rel=1e-12)
        for mechanism, off in zip(MECHANISMS, times[1:], strict=True):
            seen[mechanism.name] = max(seen[mechanism.name], abs(off / times[0] - 1))
    assert len(seen) == len(MECHANISMS)
    assert [name for name, change in seen.items() if change < 1e-4] == []


def test_switches_are_those_that_some_mechanism_uses() -> None:
    plan, _ = row_plan(row())
    base = machine(plan)
    used = {switch for m in MECHANISMS if m.off for switch in m.off(base).without}
    assert used == set(SWITCHES)
    assert "without" not in base.names()


def test_an_ablation_by_hand() -> None:
    """Without the step overhead a prediction is shorter by that time; errors before and after follow."""
    given = row(step_s=2, run_id="a")
    seconds = float(predict(given).time.seconds[0])
    overhead = float(machine(row_plan(given)[0]).step_overhead)
    rows = [given, row(run_id="b", step_s=1), row(run_id="c", step_s=4), row(run_id="d"), row(run_id="e", tp=3, step_s=1)]
    (line,) = [x for x in ablations(rows) if x["mechanism"] == "step overhead"]
    assert line["mape_before"] == pytest.approx(sum(abs(seconds / s - 1) for s in (1, 2, 4)) / 3)
    assert line["mape_after"] == pytest.approx(sum(abs((seconds - overhead) / s - 1) for s in (1, 2, 4)) / 3)
    assert line["acts"]["n"] == 3
    assert (line["most"]["suite"], line["most"]["n"]) == ("small", 3)
    assert ablations([row()]) == []


# ------------------------------------------------------------------------------------------------- bands


def runs_like(*ratios: float, **changes: Any) -> list[dict[str, Any]]:
    one = {"gpu": "g", "stack": "k", "gpus": 8, "parameters": 1e9} | changes
    return [{"run_id": f"s-{i}", "measured_over_predicted": ratio, **one} for i, ratio in enumerate(ratios)]


CASE = Case("g", "k", 8, 1e9)
SPREAD = (0.9, 0.95, 0.98, 1.0, 1.02, 1.05, 1.1, 1.15)


def test_a_band_holds_the_expected_time_and_widens_away_from_the_evidence() -> None:
    ratios = np.linspace(0.8, 1.25, 46)
    many = [r for s in "abcdefgh" for r in runs_like(*ratios, suite=s)]
    near = band_of(residuals(many), CASE)
    assert near.low < 1 < near.high
    assert near.runs == 368
    assert near.basis.startswith("368 validated runs on g with k, median error ")
    few = band_of(residuals(runs_like(*ratios, suite="a")), CASE)
    assert few.low < near.low
    assert few.high > near.high
    larger = band_of(residuals(many), Case("g", "k", 64, 1e9))
    assert larger.low < near.low
    assert larger.high > near.high
    assert "none on more than 8 GPUs" in larger.basis


def test_runs_more_alike_weigh_more() -> None:
    wide = [r for s in "abcdefgh" for r in runs_like(0.6, 0.8, 1.2, 1.5, suite=s, gpu="other", stack="other")]
    narrow = [r for s in "ijkl" for r in runs_like(*SPREAD, suite=s)]
    here, there = band_of(residuals(wide + narrow), CASE), band_of(residuals(wide + narrow), Case("other", "other", 8, 1e9))
    assert there.low < here.low
    assert there.high > here.high
    size = [r for s in "abcd" for r in runs_like(0.6, 0.8, 1.2, 1.5, suite=s, parameters=1e12)]
    small, large = band_of(residuals(size + narrow), CASE), band_of(residuals(size + narrow), Case("g", "k", 8, 1e12))
    assert small.high < large.high


def test_dense_runs_say_little_about_mixtures_of_experts() -> None:
    dense = [r for s in "abcdefgh" for r in runs_like(*SPREAD, suite=s)]
    sparse = [r for s in "ijkl" for r in runs_like(0.6, 0.8, 1.2, 1.5, suite=s, experts=8)]
    one, other = band_of(residuals(dense + sparse), CASE), band_of(residuals(dense + sparse), Case("g", "k", 8, 1e9, True))
    assert other.low < one.low
    assert other.high > one.high


def test_a_large_suite_does_not_drown_the_others() -> None:
    """300 runs of one suite that are 20 % slow, and 8 suites of 8 that are right: the band follows the suites."""
    right = [r for s in "abcdefgh" for r in runs_like(*SPREAD, suite=s)]
    alone = band_of(residuals(right), CASE)
    joined = band_of(residuals(right + runs_like(*[1.2] * 300, suite="z")), CASE)
    assert joined.low < 0.96  # a pooled 10 % quantile would be above 1
    assert joined.high >= alone.high


@pytest.mark.parametrize(("case", "said", "runs"), [
    (Case("g", "k", 8, 1e9), "8 validated runs on g with k, median error", 8),
    (Case("g", "z", 8, 1e9), "8 validated runs on g, other software, median error", 8),
    (Case("z", "k", 8, 1e9), "no validated run on z; 8 validated runs with k on other GPUs, median error", 8),
    (Case("z", "z", 8, 1e9), "no validated run on z or with z; 8 validated runs on other GPUs, median error", 0),
])  # fmt: skip
def test_a_band_says_what_it_rests_on(case: Case, said: str, runs: int) -> None:
    found = band_of(residuals(runs_like(*SPREAD)), case)
    assert found.basis.startswith(said)
    assert found.runs == runs
    nothing = band_of(residuals([]), case)
    assert (nothing.low, nothing.high, nothing.runs) == (0.7, 1.3, 0)
    assert nothing.basis == "no validated run: +-30%, assumed"


def test_coverage_by_hand() -> None:
    """Two suites alike hold each other's runs; a third that is off lies outside the bands the two give."""
    rows = [row(run_id=f"{s}-{i}", suite=s) for s in "abc" for i in range(len(SPREAD))]
    done = validate_rows(rows)["rows"]
    for i, entry in enumerate(done):
        entry["measured_step_s"] = entry["predicted_step_s"] * SPREAD[i % len(SPREAD)] * (3 if entry["suite"] == "c" else 1)
    found = coverage(done)
    assert found["suites"]["c"]["inside"] == 0
    assert found["suites"]["a"] == found["suites"]["b"]
    assert found["suites"]["a"]["inside_frac"] >= 0.6
    assert found["all"]["n"] == 24
    assert found["all"]["inside"] == sum(line["inside"] for line in found["suites"].values())
    assert found["evidence"] == {"same GPU and software": found["all"]}
    assert found["suites"]["c"]["score"] > found["suites"]["a"]["score"]
    assert coverage([e for e in done if e["suite"] == "a"])["mean_of_suites"] is None


def test_bands_hold_what_they_promise_on_suites_they_never_saw() -> None:
    """Over the recorded residuals: about 80 % of runs and on average over suites, and sharper than one band for all."""
    runs = recorded()
    entries = [
        {"suite": str(runs.suite[i]), "gpu": str(runs.gpu[i]), "stack": str(runs.stack[i]), "gpus": int(runs.gpus[i]),
         "parameters": runs.parameters[i], "experts": runs.experts[i], "outcome": "ok", "predicted_step_s": 1.0,
         "measured_step_s": float(np.exp(runs.log_ratio[i])), "run_id": "r-1"}
        for i in range(len(runs))
    ]  # fmt: skip
    found = coverage(entries)
    assert 0.72 <= found["all"]["inside_frac"] <= 0.88
    assert 0.72 <= found["mean_of_suites"] <= 0.90
    size = np.abs(runs.log_ratio)
    half = np.array([np.quantile(size[runs.suite != suite], 0.8) for suite in runs.suite])  # one band, from all other suites
    pooled = 2 * half + 10 * np.maximum(size - half, 0)
    assert found["all"]["score"] < float(pooled.mean()), "one band for all would do better"


# ------------------------------------------------------------------------------------------------- kinds of runs


def test_kinds_by_hand() -> None:
    """Suite x errs by 10 and 30 %, suite y by 40 %: mean over runs 80/3 %, mean over suites 30 %."""
    base = {"tier": "A", "experts": 0, "precision": "bf16", "architecture": "ampere", "micro_batch_tokens": 4096, "gpus": 8}
    entries = [{**base, "suite": s, "time_error": e} for s, e in (("x", 0.1), ("x", -0.3), ("y", 0.4), ("y", None))]
    entries[2] |= {"tier": "B", "experts": 8, "precision": "fp8", "micro_batch_tokens": 1024, "gpus": 129}
    found = kinds(entries)
    assert (found["all"]["n"], found["all"]["suites"]) == (3, 2)
    assert found["all"]["mape"] == pytest.approx(0.8 / 3)
    assert found["all"]["mape_of_suites"] == pytest.approx(0.3)
    assert (found["tier A"]["n"], found["tier A"]["mape_of_suites"]) == (2, pytest.approx(0.2))
    for name in ("tier B", "mixture of experts", "fp8", "up to 1024 tokens per micro-batch", "more than 128 GPUs"):
        assert (found[name]["n"], found[name]["mape"]) == (1, pytest.approx(0.4)), name
    assert found["Volta"] == {
        "n": 0, "mape": None, "median_ape": None, "bias": None, "worst": None, "suites": 0, "mape_of_suites": None,
    }  # fmt: skip
    assert kinds([{**entries[0], "architecture": "volta"}])["Volta"]["n"] == 1
