"""`dpplan schedule` and `dpplan estimate --trace`: documents, traces and pages that load, and clear
refusals."""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path
from typing import Any

import pytest
from command import argv, dpplan

from planner import schedules
from planner.inputs.options import read_options
from planner.schedules import base, checks, timing
from planner.schedules.intervals import intervals, messages
from planner.specs.document import UNSET
from planner.specs.options.own import ScheduleOptions
from planner.verbs import step_trace
from planner.verbs.estimate import chosen
from planner.verbs.schedule import draw


def document(*words: str) -> Any:
    answer = dpplan("schedule", *words, "--json")
    assert answer.status == 0, answer.stderr
    return json.loads(answer.stdout)


def refused(*words: str) -> Any:
    answer = dpplan("schedule", *words, "--json")
    assert answer.status == 2
    return json.loads(answer.stdout)["error"]


def test_unit_durations() -> None:
    r = document("--schedule", "zb-h1", "--pp", "8", "--microbatches", "32")
    assert (r["schedule"], r["pp"], r["vpp"], r["microbatches"]) == ("zb-h1", 8, 1, 32)
    assert r["makespan_s"] == pytest.approx(32 * 3 + 7)
    assert r["bubble_frac"] == pytest.approx(7 / (32 * 3 + 7))
    assert r["peak_live_microbatches"] == [8.0] * 8
    assert r["peak_live_bytes"] is None
    assert r["actions"][7][:4] == ["7F0", "7I0", "7F1", "7I1"]
    assert {row["schedule"] for row in r["comparison"]} == set(schedules.BY_NAME)


def test_seconds_per_stage_and_bytes() -> None:
    r = document(
        "--schedule",
        "1f1b",
        "--pp",
        "4",
        "--microbatches",
        "16",
        "--forward-s",
        "1,1,1,2",
        "--backward-s",
        "2,2,2,4",
        "--activation-bytes",
        "1 GiB",
    )
    assert r["makespan_s"] == pytest.approx(16 * 6 + 9)
    assert r["peak_live_bytes"] == [n * 2**30 for n in (4, 3, 2, 1)]
    assert r["bubble_frac"] == pytest.approx(1 - (16 * (3 * 3 + 6) / 4) / (16 * 6 + 9))


def test_ranks_that_run_on_have_a_shorter_step() -> None:
    r = document("--schedule", "zb-h2", "--pp", "4", "--microbatches", "16")
    assert r["step_s"] == pytest.approx(48)
    assert r["makespan_s"] == pytest.approx(51)
    assert r["bubble_frac"] == pytest.approx(0)


def test_chunks_share_the_seconds_of_their_rank() -> None:
    loop = document("--schedule", "interleaved", "--pp", "4", "--vpp", "3", "--microbatches", "8")
    assert loop["makespan_s"] == pytest.approx(8 * 3 + 9 / 3)
    each = document(
        "--schedule",
        "interleaved",
        "--pp",
        "4",
        "--vpp",
        "3",
        "--microbatches",
        "8",
        "--forward-s",
        ",".join(["0.5"] * 12),
        "--backward-s",
        "3",
    )
    assert each["makespan_s"] == pytest.approx(8 * 4.5 + 3 * 4.5 / 3)


def test_sends_among_the_actions() -> None:
    r = document("--schedule", "1f1b", "--pp", "2", "--microbatches", "1", "--sends")
    assert r["actions"] == [
        ["0F0", "0SEND_F0", "0RECV_B0", "0B0"],
        ["1RECV_F0", "1F0", "1B0", "1SEND_B0"],
    ]


def test_a_file_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    path.write_text(
        base.format_actions(schedules.actions("interleaved", 4, 8, 2)), encoding="utf-8"
    )
    mine, theirs = (
        document("--file", str(path)),
        document("--schedule", "interleaved", "--pp", "4", "--microbatches", "8"),
    )
    for key in (
        "makespan_s",
        "bubble_frac",
        "peak_live_microbatches",
        "actions",
        "pp",
        "vpp",
        "microbatches",
    ):
        assert mine[key] == theirs[key]
    assert mine["schedule"] == "mine.csv"


def test_a_model_gives_seconds_and_bytes() -> None:
    r = document(
        "--model",
        "llama-2-7b",
        "--gpu",
        "a100",
        "--gpus",
        "16",
        "--pp",
        "4",
        "--tp",
        "1",
        "--schedule",
        "1f1b",
        "--stack-defaults",
    )
    assert (r["schedule"], r["pp"]) == ("1f1b", 4)
    assert r["peak_live_microbatches"] == [4, 3, 2, 1]
    assert all(1e6 < x < 1e12 for x in r["peak_live_bytes"])
    assert 0 < r["bubble_frac"] < 1


@pytest.mark.parametrize(
    ("words", "field", "remedy"),
    [
        (["--schedule", "zb-h3", "--pp", "4", "--microbatches", "8"], "--schedule", "zb-h1"),
        (["--pp", "4", "--microbatches", "8"], "--schedule", "is needed"),
        (["--schedule", "1f1b", "--pp", "4"], "--microbatches", "is needed"),
        (
            ["--schedule", "interleaved", "--pp", "4", "--microbatches", "6"],
            "--microbatches",
            "divide by pp",
        ),
        (
            ["--schedule", "1f1b", "--pp", "4", "--microbatches", "8", "--forward-s", "1,2"],
            "--forward-s",
            "give 1 or 4",
        ),
        (
            ["--schedule", "1f1b", "--pp", "4", "--microbatches", "8", "--forward-s", "fast"],
            "--forward-s",
            "a number with a unit such as '1 s'",
        ),
        (
            argv("--schedule 1f1b --pp 4 --microbatches 8 --weight-s 3 --backward-s 2"),
            "--weight-s",
            "longer",
        ),
        (
            ["--schedule", "1f1b", "--pp", "4", "--microbatches", "8", "--straggler", "4:2"],
            "--straggler",
            "0 to 3",
        ),
        (
            ["--schedule", "1f1b", "--pp", "4", "--microbatches", "8", "--activation-bytes", "1 s"],
            "--activation-bytes",
            "B",
        ),
        (
            ["--schedule", "1f1b", "--pp", "4", "--microbatches", "8", "--tp", "2"],
            "--tp",
            "needs --model",
        ),
        (["--file", "no-such-file.csv"], "--file", "cannot be read"),
        (["--file", "x.csv", "--pp", "4"], "--pp", "is in the file"),
        (
            ["--model", "gpt2", "--gpu", "a100", "--gpus", "8", "--pp", "4", "--forward-s", "1"],
            "--forward-s",
            "comes from the model",
        ),
        (
            ["--model", "gpt2", "--gpu", "a100", "--gpus", "8", "--pp", "4", "--vpp", "5"],
            "--pp/--vpp",
            "12 layers",
        ),
        (
            argv("--schedule 1f1b --pp 4 --microbatches 8 --trace no/folder/x.json"),
            "--trace",
            "cannot be written",
        ),
    ],
)
def test_wrong_requests(words: list[str], field: str, remedy: str) -> None:
    error = refused(*words)
    assert error["field"] == field
    assert remedy in error["remedy"]


def test_the_terminal_shows_ranks_and_all_schedules() -> None:
    words = ("schedule", "--schedule", "dualpipe", "--pp", "4", "--microbatches", "8")
    out = dpplan(*words, columns=120).stdout
    assert all(f"rank {r} |" in out for r in range(4))
    assert all(name in out for name in schedules.BY_NAME)
    assert max(len(line) for line in out.splitlines() if line.startswith("rank ")) <= 120


def well_formed(events: list[dict[str, Any]]) -> None:
    """Checks that a viewer can show the trace events: named tracks, slices that do not overlap on a
    track, arrows from slice to slice."""
    named = {(e["pid"], e["tid"]) for e in events if e["ph"] == "M" and e["name"] == "thread_name"}
    tracks: dict[tuple[int, int], list[tuple[float, float]]] = {}
    for e in events:
        assert e["ph"] in "MXsf"
        if e["ph"] == "X":
            assert e["ts"] >= 0
            assert e["dur"] > 0
            assert (e["pid"], e["tid"]) in named
            tracks.setdefault((e["pid"], e["tid"]), []).append((e["ts"], e["ts"] + e["dur"]))
    for slices in tracks.values():
        slices.sort()
        longest = max(end for _, end in slices)
        assert all(a[1] <= b[0] + 1e-9 * longest for a, b in itertools.pairwise(slices))
    starts = {e["id"]: e for e in events if e["ph"] == "s"}
    ends = {e["id"]: e for e in events if e["ph"] == "f"}
    assert set(starts) == set(ends)
    for number, start in starts.items():
        assert start["ts"] <= ends[number]["ts"]
        for e in (start, ends[number]):
            inside = [
                s for s in tracks[e["pid"], e["tid"]] if s[0] <= e["ts"] <= s[1] + 1e-9 * s[1]
            ]
            assert inside, e


@pytest.mark.parametrize("name", sorted(schedules.BY_NAME))
def test_trace_of_a_schedule(name: str, tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    assert (
        dpplan(
            "schedule",
            "--schedule",
            name,
            *argv("--pp 4 --microbatches 8 --p2p-s 0.1 --trace"),
            str(path),
        ).status
        == 0
    )
    document = json.loads(path.read_text(encoding="utf-8"))
    well_formed(document["traceEvents"])
    slices = [e for e in document["traceEvents"] if e["ph"] == "X"]
    lists = schedules.actions(name, 4, 8)
    assert len(slices) == sum(len(a.parts or (a,)) for row in lists for a in row)
    arrows = [e for e in document["traceEvents"] if e["ph"] == "s"]
    assert len(arrows) == sum(
        a.kind.startswith("SEND") for row in base.with_sends(lists) for a in row
    )
    assert {e["tid"] for e in slices} == {0, 1, 2, 3}


@pytest.mark.parametrize(
    "given",
    [
        {
            "model": "llama-2-7b",
            "gpu": "h100",
            "gpus": 16,
            "zero": 1,
            "tp": 2,
            "pp": 4,
            "schedule": "1f1b",
            "global_batch": 64,
        },
        {
            "model": "llama-2-7b",
            "gpu": "h100",
            "gpus": 16,
            "zero": 1,
            "tp": 2,
            "pp": 4,
            "vpp": 4,
            "global_batch": 64,
        },
        {"model": "llama-2-7b", "gpu": "h100", "gpus": 16, "zero": 3, "global_batch": 32},
        {"model": "gpt2", "gpu": "a100", "gpus": 8, "zero": 0, "tp": 1, "pp": 1},
        {"model": "mixtral-8x7b", "gpu": "h100", "gpus": 64, "ep": 8, "pp": 4, "global_batch": 128},
    ],
    ids=["1f1b", "interleaved", "zero-3", "ddp", "experts"],
)
def test_trace_of_an_estimate(given: dict[str, Any]) -> None:
    options = read_options(given)
    estimates = chosen(options)
    document = json.loads(step_trace.text(options))
    well_formed(document["traceEvents"])
    seconds = float(estimates.time.seconds[0])
    assert document["otherData"]["estimated_step_s"] == pytest.approx(seconds)
    overhead = float(estimates.time.components["overhead"][0])
    assert document["otherData"]["drawn_s"] == pytest.approx(seconds - overhead, rel=0.05)
    names = {
        e["args"]["name"]
        for e in document["traceEvents"]
        if e["ph"] == "M" and e["name"] == "thread_name"
    }
    assert {"compute", "pipeline parallel", "data parallel"} <= names
    assert ("tensor parallel" in names) == (float(estimates.table.tp[0]) > 1)
    buckets = [e for e in document["traceEvents"] if e["ph"] == "X" and "bucket" in e["name"]]
    assert bool(buckets) == (given.get("zero") != 3)
    if given.get("zero") == 0:  # buckets start while the backward still computes
        last = max(
            e["ts"] + e["dur"] for e in document["traceEvents"] if e.get("cat") == "backward"
        )
        assert min(e["ts"] for e in buckets) < last


def test_arrows_join_what_sends_and_what_waits() -> None:
    program = checks.checked(schedules.actions("1f1b", 2, 2))
    first = timing.timed(program, timing.Durations(send=0.5), keep=True)
    pairs = [
        (a.stage, b.stage, a.kind, a.microbatch)
        for a, b in messages(list(intervals(program, first)))
    ]
    assert sorted(pairs) == [(0, 1, "F", 0), (0, 1, "F", 1), (1, 0, "B", 0), (1, 0, "B", 1)]


def test_a_long_step_is_drawn_pass_by_pass() -> None:
    """Detail per layer gives way to one slice per pass before a trace becomes too large to load."""
    options = chosen(
        read_options(
            {"model": "gpt2", "gpu": "a100", "gpus": 1, "micro_batch": 1, "global_batch": 4096}
        )
    )
    assert len(step_trace.of_estimate(options).events) < 3 * step_trace.MOST_LAYER_SLICES


def test_a_page_that_loads_and_sends_nothing(tmp_path: Path) -> None:
    pytest.importorskip("plotly", reason="plotly draws the page")
    path = tmp_path / "out.html"
    assert (
        dpplan(*argv("schedule --schedule zb-v --pp 4 --microbatches 8 --html"), str(path)).status
        == 0
    )
    page = path.read_text(encoding="utf-8")
    assert "Plotly.newPlot" in page
    assert not re.search(r'<script[^>]+src="http', page)
    assert '"showSendToCloud": false' in page
    assert '"displaylogo": false' in page


@pytest.mark.parametrize(("pp", "zero"), [(1, 3), (2, 1)])
def test_a_layout_is_drawn_as_it_was_estimated(pp: int, zero: int) -> None:
    """The step of the estimate is the schedule and what the answer names beside it, all of it with
    one stage, where nothing is idle."""
    stack = "pytorch-fsdp" if pp == 1 else "megatron-core"
    given = {"model": "gpt2", "gpu": "a100", "gpus": 8, "pp": pp, "zero": zero, "stack": stack}
    drawn = draw(ScheduleOptions(), given).document
    assert drawn.estimate is not UNSET
    estimate, step = drawn.estimate, drawn.estimate.step
    assert estimate.layout.pp == pp
    parts = drawn.step_s + sum(estimate.around.values()) + estimate.transfers_s
    assert parts == pytest.approx(step.seconds, rel=1e-6)
    assert estimate.around == {"overhead": step.components["overhead"]}
    if pp == 1:
        assert estimate.transfers_s == 0
    else:
        assert abs(estimate.transfers_s) < 0.05 * step.seconds


def test_messages_that_there_are_not_are_refused() -> None:
    first = refused("--model", "gpt2", "--gpu", "a100", "--pp", "1", "--sends")
    assert (first["field"], "--pp 2" in first["remedy"]) == ("--sends", True)
    free = refused("--schedule", "1f1b", "--pp", "2", "--microbatches", "2", "--blocking-sends")
    assert (free["field"], "--p2p-s" in free["remedy"]) == ("--blocking-sends", True)


@pytest.mark.parametrize("tp", ["1", "2", "4"])
@pytest.mark.parametrize(("stack", "near"), [("megatron-core", 0.01), ("torchtitan", 0.05)])
def test_slow_sends_stall_the_estimate_as_they_do_the_schedule(
    stack: str, near: float, tp: str
) -> None:
    """10 GbE between two stages of a node each: a send takes longer than a chunk's forward. Ranks
    compute meanwhile, or wait for it as torchtitan's do, which the estimate has less exactly."""
    case = ["--model", "llama-2-13b", "--gpu", "rtx6000-ada", "--gpus", "16", "--pp", "2"]
    case += ["--cp", "1", "--micro-batch", "1", "--stack", stack]
    answer = dpplan(
        "schedule", *case, "--vpp", "5", "--tp", tp, "--placement", "tp-cp-dp-pp", "--json"
    ).json()
    step = answer["estimate"]["step"]
    around = step["components"]["overhead"]
    assert step["seconds"] - around == pytest.approx(answer["step_s"], rel=near)
