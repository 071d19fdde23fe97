"""No request, however large, takes more than it should: the work is bounded by its form, or refused
by a limit that has a name. Work is counted, not timed."""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import nullcontext
from pathlib import Path

import pytest
from command import dpplan, refused

from planner import cli
from planner.cli import fault
from planner.estimate.all_reduce import square_row
from planner.formulas.divisors import divisors
from planner.inputs.options import read_options
from planner.specs.options.recommend import Limits
from planner.studies.validate import rows
from planner.verbs import requests
from planner.verbs.recommend import ladder, models
from planner.verbs.recommend.clusters import cluster
from planner.verbs.requests import answer

pytestmark = pytest.mark.usefixtures("within_seconds_and_nothing_written")

LARGEST_PRIME = 999_983  # below a million GPUs


def test_grids_of_a_million_ranks_are_found_among_their_divisors() -> None:
    assert divisors(LARGEST_PRIME) == (1, LARGEST_PRIME)
    assert len(divisors(720_720)) == 240  # a highly composite number: OEIS A002182, A002183
    assert square_row(983_040.0, 8.0) == 960.0  # 960 x 1,024: the nearest to the square root, 991.5
    assert square_row(float(LARGEST_PRIME), 1.0) == 1.0


def table(folder: Path, header: list[str], *lines: str) -> Path:
    file = folder / "runs.csv"
    file.write_text("\n".join([",".join(header), *lines]) + "\n", encoding="utf-8")
    return file


def test_tables_of_runs_have_limits_that_errors_name(tmp_path: Path) -> None:
    needed = [*rows.REQUIRED]
    wide = table(tmp_path, [*needed, *(f"c{i}" for i in range(150_000))])
    refused(dpplan("validate", wide), "150,013 columns", str(rows.MOST_COLUMNS))
    tall = table(tmp_path, needed, *["r"] * 1_000_000)
    refused(dpplan("validate", tall), f"{rows.MOST_RUNS:,} runs")
    unclosed = table(tmp_path, needed, '"' + "1," * 200_000)
    refused(dpplan("validate", unclosed), "not a readable CSV")


def test_a_name_that_no_file_can_have_is_refused() -> None:
    name = "x" * 400
    refused(dpplan("validate", name), "File name too long")
    for option in ("--model", "--gpu", "--cluster", "--scenario", "--calibration"):
        refused(dpplan("estimate", "--model=gpt2", "--gpu=a100", f"{option}={name}.toml"))
    refused(dpplan("compare", f"{name}.toml"))


def test_what_nobody_foresaw_ends_in_a_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails() -> None:
        raise ZeroDivisionError("float division by zero")

    monkeypatch.setattr("planner.cli.app.app", fails)
    monkeypatch.setattr("planner.cli.contained", nullcontext)  # which takes this process's streams
    monkeypatch.setattr("sys.argv", ["dpplan", "estimate", "--json"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    out, err = capsys.readouterr()
    assert ended.value.code == fault.FAULT
    assert err.startswith("error: a fault of dpplan")
    assert "Traceback" not in err
    assert "ZeroDivisionError at test_bounds.py" in json.loads(out)["error"]["field"]
    monkeypatch.setenv(fault.TRACEBACK, "1")
    with pytest.raises(SystemExit):
        cli.main()
    assert "Traceback" in capsys.readouterr().err


def test_more_work_than_one_command_does_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    given = {"model": "gpt2", "gpu": "a100", "gpus": 8, "stack": "pytorch-ddp"}
    prices = [
        "compare",
        *(f"--{k}={v}" for k, v in given.items()),
        "--jobs=1",
        "--sweep=price=1..4",
    ]
    few = sum(entry.work for entry in answer([read_options(given)]))
    monkeypatch.setattr(requests, "MOST_WORK", few)
    assert dpplan(*prices).status == 0  # three prices have the layouts of one
    monkeypatch.setattr(requests, "MOST_WORK", few - 1)
    refused(dpplan(*prices), f"{few - 1:,} bounds", "--tp")


@pytest.mark.parametrize("every", [ladder.EVERY, 0])
def test_a_ladder_of_counts_finds_what_all_of_them_do(
    every: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ladder, "EVERY", every)
    given = {"model": "llama-2-7b", "tokens": "2T", "micro_batch": 1, "recompute": "full"}
    # which stacks there are and their free options do not matter to counts
    given |= {"stack_defaults": True, "stack": "megatron-core"}
    document = cluster(Limits(days=30), given, ["h100", "rtx4090"])
    assert {kind.machine: kind.smallest_gpus for kind in document.types} == {
        "h100": 128,
        # of which no number is the best: a ladder does not look for its smallest, and says so
        "rtx4090": None if every == 0 else 512,
    }
    assert any("no number of them" in (kind.reason or "") for kind in document.types) == (
        every == 0
    )
    best = (document.answers.cheapest, document.answers.smallest, document.answers.fastest)
    assert [entry.gpus for entry in best if entry] == [128, 128, 16384]
    assert all("are tried" in (kind.left_out or "") for kind in document.types) == (every == 0)
    assert document.tried <= 15 if every == 0 else document.tried > 25


@pytest.mark.parametrize("threshold", [0, 3, 4, 99, 107, 108, 500, 1228, 1229])
def test_the_largest_shape_is_found_in_few_attempts(threshold: int) -> None:
    tried: list[int] = []

    def attempt(positions: Iterable[int]) -> int | None:
        some = [i for i in positions if i < 1229]
        tried.extend(some)
        return next((i for i in some if i >= threshold), None)

    assert models._first(1229, attempt) == (threshold if threshold < 1229 else None)
    assert len(tried) == len(set(tried)) < 160
