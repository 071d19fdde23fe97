"""`dpplan calibrate` without a device: its options, and verification."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command import argv, dpplan, refused
from node_records import CASE, SESSION, node_records, written

from planner.calibrate import (
    cases,
    command,
    detect,
    fit_device,
    nodes,
    predict,
    profile,
    report,
    settings,
    text,
    verify,
)
from planner.calibrate.cases import Case
from planner.calibrate.documents import SlowPair, Verification
from planner.calibrate.settings import Settings
from planner.inputs.calibration import read_calibration
from planner.specs.document import changed, plain, read


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ((), "--out"),
        (("--quick", "--thorough", "--out", "x.toml"), "--thorough"),
        (("--out", "x.json"), ".toml"),
        (("--out", "/no/such/folder/x.toml"), "/no/such/folder"),
        (("--out", "x.toml", "--threads", "0"), "--threads"),
        (("--out", "x.toml", "--processes", "0"), "--processes"),
        (("--out", "x.toml", "--timeout", "1"), "--timeout"),
        (("--verify", "--tolerance", "0"), "--tolerance"),
        (("--verify", "--precision", "int4"), "--precision"),
        (("--verify", "--diff", "a.toml", "b.toml"), "one command each"),
        (("--case", "layers=1", "--out", "x.toml"), "--verify"),
        (("--verify", "--calibration", "nowhere.toml"), "nowhere.toml"),
        (("--verify", "--case", "layers=4,hidden=512"), "heads"),
        (("--verify", "--case", "layers=4,color=red"), "color"),
        (("--verify", "--case", "layers=0,hidden=64,heads=4,ffn=64,vocab=64,seq=16"), "layers"),
        (("--verify", "--case", "layers=1,hidden=100,heads=3,ffn=64,vocab=64,seq=16"), "heads=3"),
        (
            argv(
                "--verify --case layers=1,hidden=64,heads=4,ffn=64,vocab=64,seq=16,parallel=magic"
            ),
            "parallel=magic",
        ),
        (
            argv("--verify --case layers=1,hidden=64,heads=4,ffn=64,vocab=64,seq=16,parallel=ddp"),
            "--processes 2",
        ),
    ],
)
def test_a_wrong_request_is_one_sentence(words: tuple[str, ...], text: str) -> None:
    refused(dpplan("calibrate", *words), text)
    answer = dpplan("calibrate", *words, "--json")
    assert answer.status == 2
    assert answer.json()["error"]["remedy"]


def test_an_unwritable_output_is_refused_before_measuring(tmp_path: Path) -> None:
    refused(dpplan("calibrate", "--out", tmp_path), "--out")
    (tmp_path / "folder.toml").mkdir()
    refused(dpplan("calibrate", "--out", tmp_path / "folder.toml"), "is a folder")
    file = tmp_path / "file"
    file.write_text("x", encoding="utf-8")
    refused(dpplan("calibrate", "--out", file / "x.toml"), "missing folder")


def test_settings_pass_to_workers_unchanged() -> None:
    first = Settings(records="r", mode="quick", threads=3, cases=(CASE,), precision="bf16")
    assert settings.read(first.text()) == first


def test_cases_of_a_verification_are_not_those_of_a_fit() -> None:
    from planner.calibrate.overhead import fitted_cases

    for ranks in (1, 2, 8):
        for mode in cases.EFFORT:
            assert not set(cases.unseen(ranks, mode)) & set(fitted_cases(ranks))
    assert len(cases.unseen(1, "default")) >= 8
    assert {case.parallel for case in cases.unseen(2, "default")} == set(cases.PARALLEL) - {
        "single"
    }


def test_groups_are_those_a_plan_uses() -> None:
    assert cases.groups(2, 2) == {"pairs": [[0, 1]]}
    result = cases.groups(8, 4)
    assert result["node"] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert result["rails"] == [[0, 4], [1, 5], [2, 6], [3, 7]]
    assert result["all"] == [list(range(8))]
    for members in result.values():
        flat = [rank for group in members for rank in group]
        assert len(flat) == len(set(flat))


def test_a_slow_pair_is_named() -> None:
    from planner.calibrate.finish import slow_pairs

    assert cases.pairs(3) == [(0, 1), (0, 2), (1, 2)]
    assert len(cases.pairs(16)) == 120
    assert len(cases.pairs(1024)) == 1023
    records = [
        {"kind": "pair", "first": i, "second": j, "seconds": 2.0 if (i, j) == (1, 3) else 1.0}
        for i, j in cases.pairs(4)
    ]
    assert slow_pairs(records) == [SlowPair(1, 3, 2.0)]
    assert slow_pairs(records[:2]) == []


def test_sizes_reach_a_gibibyte_on_gpus() -> None:
    for mode in ("default", "thorough"):
        assert cases.sizes(mode, gpu=True)[0] == 1024
        assert cases.sizes(mode, gpu=True)[-1] == 2**30


def test_known_cards_have_profiles() -> None:
    small = detect.Hardware("gpu", "NVIDIA GeForce RTX 4060 Ti", 34, 15 * 2**30, 1, 8, "h")
    assert detect.profile_of(small) == "rtx4060ti-16gb"
    smaller = detect.Hardware("gpu", "NVIDIA GeForce RTX 4060 Ti", 34, 8 * 2**30, 1, 8, "h")
    assert detect.profile_of(smaller) is None  # sold with 8 GB, too
    card = detect.Hardware("gpu", "NVIDIA H100 80GB HBM3", 132, 80 * 2**30, 1, 8, "h")
    assert detect.device_id(card) == "h100-sxm5-80gb"
    new = detect.Hardware("gpu", "NVIDIA Z999", 132, 80 * 2**30, 1, 8, "h")
    assert detect.device_id(new) == "nvidia-z999"
    assert detect.nearest(new).compute_units == 132


def test_a_known_card_gets_an_overlay_and_a_new_one_a_whole_profile(tmp_path: Path) -> None:
    fits = fit_device.node(node_records(), ["fp32"], 1)
    for name, table in (("NVIDIA H100 80GB HBM3", "overlay"), ("NVIDIA Z999", "device")):
        card = detect.Hardware("gpu", name, 132, 80 * 2**30, 1, 8, "h")
        result = profile.build(fits, replace(SESSION, found=card), "2026-11-21")
        assert table in result
        profile.write(result, tmp_path / "gpu.toml")
        assert read_calibration(str(tmp_path / "gpu.toml")).gpu == detect.device_id(card)


def measured(case: Case, seconds: float, states: Sequence[Mapping[str, float]]) -> dict[str, Any]:
    return {
        "kind": "step",
        "case": plain(case),
        "precision": "fp32",
        "used_in_fit": False,
        "seconds": seconds,
        "spread": 0.01,
        "moments": [0.98 * seconds, 1.02 * seconds],
        "others": [0.0, 0.03],
        "kept": 6,
        "tried": 6,
        "quiet": True,
        "why": "",
        "parts": {"forward": seconds / 3, "backward": seconds / 2, "optimizer": seconds / 6},
        "states": states,
        "peak_bytes": None,
    }


def verified(tmp_path: Path, factor: float, tolerance: float = 0.1) -> Verification:
    path = str(written(tmp_path))
    given = predict.predict(
        CASE, gpu="cpu-test-cpu-9000-1t", ranks=1, precision="fp32", calibration=path
    )
    items = [{name: round(value) for name, value in state.items()} for state in given.states]
    return verify.compare(
        [measured(CASE, factor * given.step_s, items)],
        gpu="cpu-test-cpu-9000-1t",
        ranks=1,
        precision="fp32",
        calibration=path,
        tolerance=tolerance,
    )


def test_a_verification_says_errors_bytes_and_whether_it_is_within(tmp_path: Path) -> None:
    out = verified(tmp_path, 1 / 1.05)
    (row,) = out.cases
    assert row.error == pytest.approx(0.05)
    assert (
        row.predicted_bytes
        == row.measured_bytes
        == 16 * (4 * (4 * 256**2 + 3 * 256 * 704 + 512) + 2 * 2048 * 256 + 256)
    )
    assert row.states_exact
    assert row.used_in_fit is False
    assert out.summary.within
    assert not verified(tmp_path, 1 / 1.2).summary.within


def test_a_decoder_that_was_not_quiet_is_named_and_judges_nothing(tmp_path: Path) -> None:
    """Its estimate is ten times too fast, or so it seems."""
    path = str(written(tmp_path))
    where: dict[str, Any] = {"gpu": "cpu-test-cpu-9000-1t", "ranks": 1, "precision": "fp32"}
    other = changed(CASE, layers=3)
    rows = []
    for first, factor in ((CASE, 1.05), (other, 10.0)):
        predicted = predict.predict(first, **where, calibration=path)
        items = [{name: round(value) for name, value in each.items()} for each in predicted.states]
        rows.append(measured(first, factor * predicted.step_s, items))
    rows[1] |= {"quiet": False, "kept": 0, "why": "2 repeats disagree: 370 ms .. 3.92 s"}
    out = verify.compare(rows, **where, calibration=path, tolerance=0.1)
    assert (out.summary.n, out.summary.unquiet, out.quiet) == (1, [other.name], False)
    assert out.summary.mape == pytest.approx(1 - 1 / 1.05)
    assert out.summary.within
    said_of = report.markdown(out)
    assert f"not quiet and left out: {other.name}" in said_of
    assert "no: 2 repeats disagree" in said_of
    rows[0] |= rows[1] | {"case": plain(CASE), "states": rows[0]["states"]}
    none = verify.compare(rows, **where, calibration=path, tolerance=0.1)
    assert none.summary.n == 2
    assert not none.summary.within
    assert "none was quiet" in report.headline(none)


def test_a_verification_says_how_far_its_own_steps_differ(tmp_path: Path) -> None:
    """Repeats, moments and the scatter of errors by parallelism, as numbers and in words."""
    path = str(written(tmp_path))
    where: dict[str, Any] = {"gpu": "cpu-test-cpu-9000-1t", "ranks": 1, "precision": "fp32"}
    rows = []
    for layers, factor in ((2, 0.9), (3, 1.0), (4, 1.1), (5, 1.2)):
        case = changed(CASE, layers=layers)
        predicted = predict.predict(case, **where, calibration=path)
        items = [{name: round(value) for name, value in each.items()} for each in predicted.states]
        rows.append(measured(case, factor * predicted.step_s, items))
    rows[3]["moments"] = [0.5, 1.0]
    out = verify.compare(rows, **where, calibration=path, tolerance=0.1)
    steadiness, errors = out.summary.steadiness, out.summary.parallel["single"]
    assert steadiness.repeats == pytest.approx(0.01)
    assert steadiness.moments == pytest.approx(0.04)
    assert steadiness.moments_worst == pytest.approx(0.5 / 0.75)
    assert (steadiness.others_least, steadiness.others_most) == (0.0, 0.03)
    # Student's t with three degrees of freedom: 1.638 at nine tenths; one more than these four
    logs = np.log([0.9, 1.0, 1.1, 1.2])
    wide = 1.638 * np.std(logs, ddof=1) * np.sqrt(1 + 1 / 4)
    assert errors.low == pytest.approx(np.exp(logs.mean() - wide), rel=1e-3)
    assert errors.high == pytest.approx(np.exp(logs.mean() + wide), rel=1e-3)
    assert "its moments by 4.0 %" in report.steadiness(out)
    assert "other programs had 0 % to 3.0 % of the cores" in report.markdown(out)
    assert verify.kept(out) == {"decoders": 4, "low": errors.low, "high": errors.high}
    file = Path(path)
    before = nodes.read(file, "--calibration")
    assert command._kept(out, before, file).kept
    assert nodes.read(file, "--calibration") == {**before, "verified": verify.kept(out)}
    assert not command._kept(out, before, tmp_path / "none" / "node.toml").kept
    rows[0]["quiet"] = rows[1]["quiet"] = False
    assert verify.kept(verify.compare(rows, **where, calibration=path, tolerance=0.1)) is None
    two = verify.compare(rows[:2], **where, calibration=path, tolerance=0.1)
    assert two.summary.parallel["single"].low is None  # two have no scatter to speak of


def test_a_byte_too_many_is_seen(tmp_path: Path) -> None:
    given = [{"parameters": 10.0, "gradients": 10.0, "optimizer": 20.0}] * 2
    items = [
        {"parameters": 10, "gradients": 10, "optimizer": 21},
        {"parameters": 10, "gradients": 10, "optimizer": 19},
    ]
    assert not verify.exact(CASE, given, items)
    assert verify.exact(changed(CASE, parallel="zero1"), given, items)


def test_reports_are_written(tmp_path: Path) -> None:
    out = verified(tmp_path, 1.0)
    report.write(out, tmp_path)
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "<h1>Predicted against measured</h1>" in page
    assert 'src="http' not in page
    assert CASE.name in (tmp_path / "report.md").read_text(encoding="utf-8")
    assert plain(read((tmp_path / "report.json").read_bytes(), Verification)) == plain(out)
    assert "within" in "".join(block.text[0] for block in text.blocks(out) if block.text)
