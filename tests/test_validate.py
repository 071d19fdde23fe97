"""Measured runs against predictions, on tables small enough to compute by hand."""

from __future__ import annotations

import csv
import os
from pathlib import Path
from typing import Any

import pytest
from command import dpplan, refused

from planner import api
from planner.specs.base import PlanError
from planner.validate import predict, read_rows, residual_lines, summarise, validate_rows

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
    assert ranking(*up) == {"groups": 1, "spearman": pytest.approx(1), "pick_regret_mean": 0, "pick_regret_max": 0}
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
    none = {"groups": 0, "spearman": None, "pick_regret_mean": None, "pick_regret_max": None}
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
