"""`dpplan validate FOLDER`: launch files of other programs with their results, scored like rows."""

from __future__ import annotations

from pathlib import Path

import pytest
from command import ROOT, dpplan
from not_none import not_none

from planner.formats.verbs.read import read
from planner.inputs.options import read_options
from planner.specs.base import PlanError
from planner.studies.validate import validate
from planner.verbs.estimate import estimate

EXAMPLES = ROOT / "docs" / "examples"
STRANGE = (ROOT / "tests" / "data" / "recipes" / "bridge.yaml").read_text()
BRIDGE = STRANGE.replace("  frobnicate: 7\n", "")


def folder(path: Path, table: str, name: str = "results.csv") -> Path:
    (path / "bridge.yaml").write_text(BRIDGE)
    (path / "strange.yaml").write_text(STRANGE)
    (path / name).write_text(table)
    return path


def test_recipes_with_results_are_scored_like_rows() -> None:
    """The example: the recipe's own prediction, and the measured step and peak beside it."""
    document = validate([EXAMPLES / "recipes"])
    assert [run.run_id for run in document.rows] == ["eager", "compiled"]
    text = (EXAMPLES / "recipes" / "llama3_8b.toml").read_text()
    given = {"gpu": "h100-sxm5-96gb", "gpus": 8, "advice": 0}
    expected = read({"a.toml": text}, given).estimate
    assert expected is not None
    run = document.rows[0]
    assert run.predicted_step_s == pytest.approx(expected.step.seconds, rel=1e-9)
    assert run.measured_step_s == 2.84346
    assert run.predicted_peak_gib == pytest.approx(expected.memory.reserved_bytes / 2**30)
    assert document.summary.time.n == 2
    assert not_none(document.summary.time.mape) < 0.1
    assert document.apart.rows == 0


def test_what_is_not_understood_stands_apart_and_what_is_refused_says_why(tmp_path: Path) -> None:
    table = "recipe,step_s,gpu,gpus,tp\nbridge.yaml,7,h100,16,\nstrange.yaml,7,h100,16,\n"
    table += "bridge.yaml,7,h100,16,3\nbridge.yaml,7,,16,\nbridge.yaml,,h100,16,\n"
    document = validate([folder(tmp_path, table)])
    assert document.apart.rows == 1
    assert document.apart.options == {"argument frobnicate": 1}
    assert [run.run_id for run in document.rows] == ["bridge", "strange"]
    reasons = [entry.reason for entry in document.skipped]
    assert len(reasons) == 3
    for name, reason in zip(("divide", "gpu", "no result"), reasons, strict=True):
        assert name in reason, reason


def test_other_columns_are_kept_as_notes(tmp_path: Path) -> None:
    """In both outputs, without a change of the prediction; a mistyped option is an error."""
    plain = "recipe,step_s,gpu,gpus\nbridge.yaml,7,h100,16\n"
    noted = "recipe,step_s,gpu,gpus,weather,commit\nbridge.yaml,7,h100,16,rain,abc123\n"
    (expected,) = validate([folder(tmp_path, plain)]).rows
    (run,) = validate([folder(tmp_path, noted)]).rows
    assert run.notes == {"weather": "rain", "commit": "abc123"}
    assert run.predicted_step_s == pytest.approx(expected.predicted_step_s)
    out = tmp_path / "out.csv"
    assert dpplan("validate", tmp_path, "--csv", out).status == 0
    header, line = out.read_text(encoding="utf-8").splitlines()
    assert header.endswith(",weather,commit,skipped")
    assert line.endswith(",rain,abc123,")
    folder(tmp_path, noted.replace("weather", "micro_bach"))
    with pytest.raises(PlanError, match="was micro_batch meant"):
        validate([tmp_path])


def test_a_log_is_a_result_and_a_row_appended_from_it_is_the_same(tmp_path: Path) -> None:
    """Both ways from a recipe and its log to a row: the folder, and `check --append`."""
    table = 'gpu = "h100"\n[[runs]]\nrecipe = ["train.sh"]\nlog = "train.log"\ngpus = 64\n'
    for name in ("train.sh", "train.log"):
        (tmp_path / name).write_bytes((EXAMPLES / name).read_bytes())
    (tmp_path / "results.toml").write_text(table)
    run = validate([tmp_path]).rows[0]
    path = tmp_path / "runs.csv"
    words = ("--recipe", tmp_path / "train.sh", "--gpu", "h100", "--gpus", 64, "--append", path)
    assert dpplan("check", tmp_path / "train.log", *words).status == 0
    again = validate([path]).rows[0]
    assert again.measured_step_s == pytest.approx(run.measured_step_s, rel=1e-5)
    assert again.predicted_step_s == run.predicted_step_s
    script = (EXAMPLES / "train.sh").read_text()
    options = read({"train.sh": script}, {"gpu": "h100", "gpus": 64, "advice": 0}).options
    expected = estimate(read_options(options), brief=True).step.seconds
    assert run.predicted_step_s == pytest.approx(expected, rel=0.01)


def test_a_wrong_table_names_the_run_and_the_remedy(tmp_path: Path) -> None:
    wrong = {
        "recipe,step_s,gpus\n,7,16\n": "names no recipe",
        "recipe,step_s,precison\nbridge.yaml,7,fp8\n": "not an option",
        "recipe,step_s,gpus\nbridge.yaml,7,many\n": "gpus",
        "name,step_s\nx,7\n": "not a line of recipe",
        "recipe,step_s\nmissing.yaml,7\n": "missing.yaml",
    }
    for table, value in wrong.items():
        with pytest.raises(PlanError) as error:
            validate([folder(tmp_path, table)])
        assert value in str(error.value), (table, str(error.value))
