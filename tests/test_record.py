"""The public record: predictions that cannot be changed unseen, measurements beside them, and the
leaderboard of planners."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.planners import leaderboard, peers, recipes
from benchmarks.record import __main__ as record
from benchmarks.record import entries
from benchmarks.record.entries import Measurement
from planner.error import PlanError

ROOT = Path(__file__).parents[1]
STEP = {"step_s": "4", "low_s": "3", "high_s": "5", "peak_gib": "50"}


def entry(name: str) -> dict[str, str]:
    return {"id": name, **STEP}


def measured(name: str, **changes: str) -> Measurement:
    cells = {"step_s": "4.4", "peak_gib": "55", "source": "a log", "date": "2027-01-01"}
    return Measurement(**({"id": name} | cells | changes))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two files of predictions."""
    entries.add([entry("a"), entry("b")], "2026-11-01", "1", tmp_path)
    entries.add([entry("c")], "2026-11-02", "1", tmp_path)
    return tmp_path


def test_the_hash_is_of_the_content_and_not_of_its_spelling() -> None:
    assert entries.sha256({"b": 1, "a": "x"}) == entries.sha256({"a": "x", "b": 1, "sha256": "-"})
    assert entries.sha256({"a": "x"}) != entries.sha256({"a": "y"})
    assert entries.canonical({"b": ["é"], "a": "x"}) == '{"a":"x","b":["é"]}'.encode()


def test_a_prediction_that_is_changed_is_named(folder: Path) -> None:
    older, newer = entries.contents(folder)
    assert (older["before"], newer["before"]) == ("", older["sha256"])
    first = entries.files(folder)[0]
    content = json.loads(first.read_text("utf-8"))
    content["predictions"][0]["step_s"] = "3.9"
    first.write_text(json.dumps(content), "utf-8")
    with pytest.raises(PlanError, match=first.name):
        entries.contents(folder)
    content["sha256"] = entries.sha256(content)  # whoever hashes it again breaks the next file
    first.write_text(json.dumps(content), "utf-8")
    with pytest.raises(PlanError, match=entries.files(folder)[1].name):
        entries.contents(folder)


def test_a_day_and_an_id_are_written_once(folder: Path) -> None:
    with pytest.raises(PlanError, match="never changes"):
        entries.add([entry("d")], "2026-11-02", "1", folder)
    with pytest.raises(PlanError, match="was predicted before"):
        entries.add([entry("a")], "2026-11-03", "1", folder)
    assert len(entries.files(folder)) == 2


@pytest.mark.parametrize(
    ("step_s", "error", "inside"), [("4.4", 0.1, True), ("3", -0.25, True), ("5.2", 0.3, False)]
)
def test_a_measurement_says_the_error_and_whether_the_band_held(
    folder: Path, step_s: str, error: float, inside: bool
) -> None:
    scored = entries.attach(measured("a", step_s=step_s), folder)
    assert scored.error == pytest.approx(error)
    assert scored.held is inside
    assert scored.peak_error == pytest.approx(0.1)
    assert ("inside" if inside else "outside") in record.sentence_of(scored)
    again = entries.scores(entries.measurements(folder), entries.contents(folder))
    assert [known.held for known in again] == [inside, None, None]


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (measured("z"), "is in no file"),
        (measured("a", step_s="", peak_gib=""), "neither measured"),
        (measured("a", step_s="-1"), "is not a positive number"),
        (measured("a", step_s="fast"), "is not a positive number"),
        (measured("a", source=""), "no source"),
    ],
)
def test_a_wrong_measurement_is_refused_and_not_written(
    folder: Path, wrong: Measurement, says: str
) -> None:
    with pytest.raises(PlanError, match=says):
        entries.attach(wrong, folder)
    assert entries.measurements(folder) == []


def test_a_second_measurement_of_a_prediction_is_refused(folder: Path) -> None:
    entries.attach(measured("a"), folder)
    with pytest.raises(PlanError, match="measured already"):
        entries.attach(measured("a"), folder)


def test_a_prediction_is_the_answer_to_its_request() -> None:
    written = record.prediction("x", {"model": "gpt2", "gpu": "a100", "stack": "pytorch-ddp"})
    assert float(written["low_s"]) < float(written["step_s"]) < float(written["high_s"])
    assert 0 < float(written["peak_gib"]) <= float(written["reserved_gib"])
    assert written["request"] == {"model": "gpt2", "gpu": "a100", "stack": "pytorch-ddp"}
    assert "--model gpt2" in written["command"]


def test_the_shipped_record_is_whole() -> None:
    written = {
        known["id"]: known["request"]
        for content in entries.contents()
        for known in content["predictions"]
    }
    assert written == {
        name: {key: str(value) for key, value in options.items()}
        for name, options in record.requests().items()
    }
    assert {line.id for line in entries.measurements()} <= set(written)
    assert record.PAGE.read_text("utf-8") == record.page()


def test_planners_are_pinned_and_have_an_adapter() -> None:
    planners = peers.listed()
    assert len({planner.planner for planner in planners}) == len(planners)
    assert leaderboard.OURS in {planner.planner for planner in planners}
    for planner in planners:
        assert re.fullmatch(r"\d{4}-\d\d-\d\d", planner.date), planner
        if planner.planner != leaderboard.OURS:
            assert re.fullmatch(r"[0-9a-f]{40}", planner.commit), planner
            assert re.fullmatch(r"[\w.-]+/[\w.-]+", planner.repository), planner
            assert all(re.search(r"==|@", need) for need in planner.needs.split()), planner
            assert (peers.HERE / planner.adapter).is_file(), planner


def test_answers_are_of_listed_planners_and_shipped_runs() -> None:
    answers, rows = leaderboard.read(), recipes.measured()
    assert set(answers) == {planner.planner for planner in peers.listed()}
    for planner, runs in answers.items():
        assert runs, planner
        assert set(runs) <= set(rows), planner
        for run_id, numbers in runs.items():
            assert numbers, (planner, run_id)
            assert min(numbers.values()) > 0, (planner, run_id)
    ours = answers[leaderboard.OURS]
    assert all(set(runs) <= set(ours) for runs in answers.values())
    assert all(x["low_step_s"] < x["step_s"] < x["high_step_s"] for x in ours.values())


def test_the_leaderboard_is_that_of_its_answers_and_pins() -> None:
    assert leaderboard.PAGE.read_text("utf-8") == leaderboard.page()


def test_an_error_of_the_leaderboard_by_hand() -> None:
    rows = {"a": {"step_s": "2"}, "b": {"step_s": "4"}, "c": {"step_s": ""}}
    answers = {"x": {"a": {"step_s": 3.0}, "b": {"step_s": 3.0}, "c": {"step_s": 1.0}}}
    board = leaderboard.Board(leaderboard.TIME, rows, answers)
    assert board.known("x") == ["a", "b"]
    assert board.errors("x", ["a", "b"]) == [0.5, -0.25]
    assert board.cell("x", ["a", "b"]) == "37.5 % (2)"


@pytest.mark.parametrize(
    ("cells", "kind"),
    [
        ({"options": "peft=lora", "experts": "8"}, "adapters"),
        ({"experts": "8", "pp": "4"}, "experts"),
        ({"pp": "4", "zero": "3"}, "dense, pipeline"),
        ({"zero": "3"}, "dense, FSDP or ZeRO-3"),
        ({"zero": "1", "options": "peft=none"}, "dense, other"),
    ],
)
def test_a_run_is_of_one_class(cells: dict[str, str], kind: str) -> None:
    assert recipes.class_of(cells) == kind
    assert kind in recipes.CLASSES


def test_an_adapter_answers_line_by_line_and_says_what_it_refuses(tmp_path: Path) -> None:
    code = (
        "from adapter import dense_decoder, serve\n"
        "def answer(recipe):\n"
        "    dense_decoder(recipe)\n"
        "    print('noise of the planner')\n"
        "    return 1.5, 2.0\n"
        "serve(answer)\n"
    )
    plain = {"plain": True, "peft": "none", "offload": "none"}
    lines = [{"run_id": "a", **plain}, {"run_id": "b", **plain, "peft": "lora"}]
    done = subprocess.run(
        [sys.executable, "-c", code],
        input="".join(json.dumps(line) + "\n" for line in lines),
        cwd=peers.HERE,
        capture_output=True,
        text=True,
        check=True,
    )
    assert [json.loads(line) for line in done.stdout.splitlines()] == [
        {"run_id": "a", "step_s": 1.5, "peak_gib": 2.0},
        {"run_id": "b", "refused": "adapters"},
    ]
