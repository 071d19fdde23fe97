"""`dpplan calibrate` without a device: fits recover what made the data, noise is seen, files are
checked, merged and compared."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command import dpplan, refused
from hypothesis import given
from hypothesis import strategies as st

from planner.calibrate import (
    cases,
    detect,
    fit,
    fit_device,
    fit_links,
    nodes,
    predict,
    profile,
    quiet,
    record,
    report,
    settings,
    text,
    verify,
)
from planner.calibrate.cases import Case
from planner.calibrate.quiet import Probe, Sample
from planner.calibrate.settings import Settings
from planner.formulas import kernels
from planner.inputs.calibration import read_calibration
from planner.specs.document import changed, plain, read
from planner.specs.documents.calibrate import SlowPair, Verification
from planner.specs.error import PlanError

pytest.importorskip("scipy", reason="fits need scipy, of the calibrate extra")

RATE, BANDWIDTH = 60e9, 20e9
HARDWARE = detect.Hardware("cpu", "Test CPU 9000", 1, 8 * 2**30, 1, 2, "testing")
SESSION = profile.Session(HARDWARE, 1, 1, ["fp32"], 2e8, {"torch": "0"})
CASE = Case(4, 256, 4, 704, 2048, 128, 2)


# -------------------------------------------------------------------------------------------------


def node_records(
    speed: float = 1.0, ranks: int = 1, noise: float = 0.0, mode: cases.Mode = "default"
) -> list[dict[str, Any]]:
    """Merged records of a node that follows the curves; speed slows everything; noise is relative,
    of a fixed seed."""
    random = np.random.default_rng(7)

    def value(seconds: float) -> dict[str, Any]:
        return {
            "seconds": seconds / speed * float(np.exp(noise * random.standard_normal())),
            "quiet": True,
        }

    out: list[dict[str, Any]] = []
    for m, n, k, held in cases.gemms(mode):
        for way in ("forward", "input", "weight"):
            what = {
                "kind": "gemm",
                "m": m,
                "n": n,
                "k": k,
                "way": way,
                "precision": "fp32",
                "held_out": held,
            }
            rows, columns, inner = fit_device.gemm_shape(what)
            seconds = kernels.gemm_s(
                rows,
                columns,
                inner,
                input_bytes=4.0,
                rate_flop_per_s=RATE,
                compute_units=1.0,
                efficiency=0.9,
                tile_exponent=0.0,
                tile_overhead_s=5e-6,
                wave_softness=1.0,
                launch_s=4e-6,
                memory_bytes_per_s=BANDWIDTH,
                memory_frac=0.7,
            )
            out.append({**what, **value(float(seconds))})
    for batch, heads, seq, width in cases.attentions(mode):
        for way, share in (("forward", 0.5), ("backward", 0.4)):
            what = {
                "kind": "attention",
                "batch": batch,
                "heads": heads,
                "seq": seq,
                "width": width,
                "way": way,
            }
            shape = float(kernels.attention_shape_frac(seq, width, 120.0, 0.3))
            out.append(
                {
                    **what,
                    "precision": "fp32",
                    **value(fit_device.causal_flop(what) / (RATE * share * shape)),
                }
            )
    for name, tokens, width in cases.operators(mode):
        for way in ("forward", "backward"):
            what = {
                "kind": "operator",
                "operator": name,
                "tokens": tokens,
                "width": width,
                "way": way,
                "precision": "fp32",
            }
            out.append({**what, "compiled": False, **value(2e-9)})
    out += [
        {"kind": "loss", "tokens": t, "vocab": v, "precision": "fp32", **value(4e-9)}
        for t, v in cases.losses(mode)
    ]
    out += [
        {
            "kind": "embedding",
            "tokens": t,
            "vocab": v,
            "width": w,
            "precision": "fp32",
            **value(1e-9 * t * w + 3e-10 * v * w),
        }
        for t, v, w in cases.embeddings(mode)
    ]
    out += [
        {"kind": "optimizer", "how": "fused", **value(9e-10)},
        {"kind": "memory", "what": "copy", **value(1 / BANDWIDTH)},
        {"kind": "memory", "what": "launch", **value(3e-6)},
    ]
    if ranks > 1:
        for operation in cases.COLLECTIVES:
            for i, whole in enumerate(cases.sizes(mode)):
                volume, steps = (
                    ((ranks - 1) / ranks, (ranks - 1) / 2)
                    if operation != "send_recv"
                    else (1.0, 0.0)
                )
                volume, steps = (
                    (2 * volume, 2 * steps) if operation == "all_reduce" else (volume, steps)
                )
                out.append(
                    {
                        "kind": "collective",
                        "operation": operation,
                        "group": "pairs",
                        "ranks": ranks,
                        "bytes": whole,
                        "held_out": i % 3 == 1,
                        **value(1e-4 + steps * 8e-5 + volume * whole / 2e9),
                    }
                )
        out += [
            {"kind": "overlap", "part": p, "bytes": 8, "ranks": ranks, **value(s)}
            for p, s in (("product", 2.0), ("collective", 1.0), ("both", 2.5))
        ]
    return out


def document(speed: float = 1.0, **given: Any) -> dict[str, Any]:
    fits = fit_device.node(node_records(speed, **given), ["fp32"], 1)
    return profile.build(fits, SESSION, "2026-11-21")


def written(folder: Path, name: str = "node.toml", speed: float = 1.0) -> Path:
    path = folder / name
    profile.write(document(speed), path)
    return path


# -------------------------------------------------------------------------------------------------


def test_fits_recover_the_curves_that_made_the_data() -> None:
    fits = fit_device.node(node_records(), ["fp32"], 1)
    assert fits.refused == {}
    products = fits.fits["products fp32"]
    assert products.median_error < 0.01
    assert products.held_out > 5
    assert products.held_out_median is not None
    assert products.held_out_median < 0.01
    assert products.outliers == ()
    attention = fits.fits["attention fp32"]
    assert attention.median_error < 0.01
    rate = fits.value("rate fp32", "rate")
    assert rate is not None
    # the curve's rate is what was measured, whatever the fit takes it as a share of
    assert rate * attention.numbers["attention_forward"].value == pytest.approx(
        0.5 * RATE, rel=0.02
    )
    assert attention.numbers["attention_half_sequence"].value == pytest.approx(120, rel=0.05)
    operators = fits.fits["operators fp32"].numbers
    assert operators["gated_forward"].value == pytest.approx(2e-9)
    assert operators["residual_backward"].value == pytest.approx(
        2.5 * 2e-9
    )  # five sums of gradients a layer, two counted
    assert operators["table"].value == pytest.approx(3e-10, rel=1e-3)
    assert operators["optimizer"].value == pytest.approx(9e-10)
    assert fits.value("memory", "bandwidth") == pytest.approx(BANDWIDTH)


def test_noise_widens_confidence_and_an_outlier_is_named() -> None:
    clean, noisy = (
        fit_device.node(node_records(noise=x), ["fp32"], 1).fits["products fp32"]
        for x in (0.0, 0.05)
    )
    assert noisy.numbers["gemm_efficiency"].error > clean.numbers["gemm_efficiency"].error
    assert noisy.median_error < 0.1
    records = node_records()
    records[4]["seconds"] *= 3
    found = fit_device.node(records, ["fp32"], 1).fits["products fp32"]
    assert len(found.outliers) == 1
    assert found.numbers["gemm_efficiency"].value == pytest.approx(
        clean.numbers["gemm_efficiency"].value, rel=0.05
    )


def test_a_fit_its_data_do_not_support_is_refused() -> None:
    few = [r for r in node_records() if r["kind"] != "gemm"] + [
        r for r in node_records() if r["kind"] == "gemm"
    ][:3]
    refused_fit = fit_device.node(few, ["fp32"], 1)
    assert "cases for 4 numbers" in refused_fit.refused["products fp32"]
    assert set(refused_fit.fits["products fp32"].numbers) == {
        "gemm_efficiency"
    }  # the middle rate, and no shape
    random = np.random.default_rng(1)
    wild = node_records()
    for r in wild:
        r["seconds"] *= float(np.exp(2 * random.standard_normal()))
    assert "misses half" in fit_device.node(wild, ["fp32"], 1).refused["products fp32"]
    assert "no copy" in fit_device.node([], ["fp32"], 1).refused["memory"]
    assert "bf16" in next(iter(fit_device.node(node_records(), ["bf16"], 1).refused))


def test_a_link_is_recovered_and_its_held_out_sizes_predicted() -> None:
    fits = fit_links.link(node_records(ranks=2), "pairs")
    assert fits.held_out_median is not None
    assert fits.held_out_median < 0.02
    assert fits.numbers["all_reduce_bandwidth"].value == pytest.approx(2e9, rel=0.05)
    assert fit_links.overlap(node_records(ranks=2)).numbers["slowdown"].value == pytest.approx(0.5)
    with pytest.raises(fit.Unsupported):
        fit_links.link(node_records(), "pairs")


# -------------------------------------------------------------------------------------------------


def test_quiet_samples_decide_and_disturbed_ones_are_scaled() -> None:
    quiet_ones = [Sample(1.0, 0.010, 0.010), Sample(1.1, 0.0101, 0.010), Sample(5.0, 0.010, 0.050)]
    value = quiet.value_of(quiet_ones, 0.010)
    assert value.quiet
    assert value.seconds == pytest.approx(
        (1.0 + 1.1 * 0.010 / 0.01005) / 2
    )  # each at the speed of its own probes
    assert (value.kept, value.tried) == (2, 3)
    scaled = quiet.value_of(
        [Sample(2.0, 0.020, 0.020), Sample(3.0, 0.020, 0.040), Sample(4.0, 0.040, 0.040)], 0.010
    )
    assert not scaled.quiet
    assert scaled.seconds == pytest.approx(1.0)


def test_the_reference_is_the_speed_of_most_moments() -> None:
    steady = [0.0100 + 0.0001 * (i % 9) for i in range(60)]
    burst, load = [0.0085] * 20, [0.02 + 0.001 * i for i in range(40)]
    assert quiet.usual_probe_s(burst + steady + load) == pytest.approx(0.0104)
    assert quiet.usual_probe_s([0.01, 0.02]) == 0.01  # of equals the fastest
    assert quiet.usual_probe_s([0.3]) == 0.3


@given(st.lists(st.floats(1e-4, 1.0), min_size=1, max_size=60))
def test_no_band_holds_more_probes_than_the_reference(probes: list[float]) -> None:
    usual = quiet.usual_probe_s(probes)
    assert min(probes) <= usual <= max(probes)
    most = max(sum(p <= x <= p * quiet.SLACK**2 for x in probes) for p in probes)
    assert sum(usual / quiet.SLACK**2 <= x <= usual * quiet.SLACK**2 for x in probes) >= most


@given(st.lists(st.tuples(st.floats(1e-6, 1e3), st.floats(1e-4, 1.0)), min_size=1, max_size=30))
def test_a_value_lies_inside_its_samples_or_below_when_scaled(
    samples: list[tuple[float, float]],
) -> None:
    best = min(p for _, p in samples)
    value = quiet.value_of([Sample(s, p, p) for s, p in samples], best)
    assert 0 < value.seconds <= max(s for s, _ in samples) * (1 + 1e-9)
    assert value.kept <= value.tried == len(samples)


def test_a_probe_waits_for_quiet_and_gives_up() -> None:
    times = iter([*[0.001] * 40, *[0.01] * 800])
    busy = Probe(lambda: __import__("time").sleep(next(times)))
    found = busy.samples(lambda: 1.0, want=3, wait_s=0.05, most_s=0.1)
    assert found
    assert not any(busy.quiet(s.probe_s) for s in found)
    assert busy.disturbed_frac > 0.5


# -------------------------------------------------------------------------------------------------


def test_records_resume_and_drop_a_line_that_was_cut_off(tmp_path: Path) -> None:
    path, conditions = tmp_path / "x.jsonl", {"device": "d", "threads": 1, "ranks": 1, "torch": "t"}
    what = {"kind": "loss", "tokens": 1, "vocab": 2, "precision": "fp32"}
    first = record.Records(path, conditions)
    first.add({**what, "samples": [[1.0, 0.01, 0.01], [1.1, 0.01, 0.01]]})
    path.write_text(path.read_text() + '{"kind": "loss", "samp', encoding="utf-8")
    second = record.Records(path, conditions)
    assert second.quiet(what, 0.01) == 2
    second.add({**what, "samples": [[1.2, 0.01, 0.01]]})
    (merged,) = record.merged(record.read(path))
    assert merged["seconds"] == pytest.approx(1.1)
    assert merged["kept"] == 3


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("hello\nworld\n", "no JSON"),
        ('{"kind": "loss"}\n', "no records of this version"),
        ("[1]\n[2]\n", "no record"),
        ('{"kind": "conditions", "schema": 99}\n', "this version"),
    ],
)
def test_a_foreign_record_file_is_left_alone(content: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(PlanError, match=said):
        record.Records(path, {})
    assert path.read_text(encoding="utf-8") == content


def test_other_conditions_are_named(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    record.Records(path, {"device": "d", "threads": 1})
    with pytest.raises(PlanError, match="threads 1, this run has 2"):
        record.Records(path, {"device": "d", "threads": 2})


# -------------------------------------------------------------------------------------------------


def test_a_device_of_its_own_is_estimated_with_measured_numbers(tmp_path: Path) -> None:
    path = written(tmp_path)
    asked = (
        "estimate",
        "--model",
        "gpt2",
        "--gpu",
        "cpu-test-cpu-9000-1t",
        "--precision",
        "fp32",
        "--seq-len",
        "128",
        "--global-batch",
        "4",
        "--micro-batch",
        "1",
        "--calibration",
        path,
        "--json",
    )
    answer = dpplan(*asked).json()
    numbers = {n["name"]: n for n in answer["machine"]}
    assert numbers["norm_forward_s"]["kind"] == "measured"
    assert "dpplan calibrate" in numbers["optimizer_s"]["source"]
    assert answer["provenance"]["measured_frac"] > 0.8
    slow = written(tmp_path, "slow.toml", speed=0.5)
    slower = dpplan(*asked[:-2], slow, "--json").json()
    assert slower["step"]["seconds"] == pytest.approx(2 * answer["step"]["seconds"], rel=0.05)
    left_out = dpplan(
        "estimate",
        "--model",
        "gpt2",
        "--precision",
        "fp32",
        "--global-batch",
        "4",
        "--calibration",
        path,
        "--json",
    )
    assert left_out.status in (0, 3)  # the file names the device


def test_measured_operators_replace_counted_ones_and_only_those(tmp_path: Path) -> None:
    given = predict.predict(
        CASE,
        gpu="cpu-test-cpu-9000-1t",
        ranks=1,
        precision="fp32",
        calibration=str(written(tmp_path)),
    )
    # by hand: tokens x width x seconds, forward and backward, of norms, sums, activation, rotation,
    # loss and embedding
    tokens, hidden, ffn, layers, vocab = 256.0, 256.0, 704.0, 4.0, 2048.0
    each = 2e-9
    a_layer = tokens * (
        2 * hidden * 2 * each
        + 2 * hidden * (each + 2.5 * each)
        + ffn * 2 * each
        + 3 * hidden * 2 * each
    )
    embedding = tokens * hidden * (1e-9 + 2 * each) + 3e-10 * vocab * hidden
    assert given.components["memory_bound"] - weights_s() == pytest.approx(
        layers * a_layer + tokens * vocab * 4e-9 + embedding, rel=1e-3
    )
    assert given.optimizer_s == pytest.approx(
        9e-10 * (layers * (4 * 256**2 + 3 * 256 * 704 + 512) + 2 * vocab * 256 + 256)
    )


def weights_s() -> float:
    """Traffic of weights outside of products, which stays counted: 24 bytes of pytorch-ddp at the
    copy rate."""
    return 4 * (4 * 256**2 + 3 * 256 * 704) * 24.0 / (0.88 * BANDWIDTH)


def test_shipped_profiles_do_not_move() -> None:
    """Without measured operators every number is as before: bytes over bandwidth."""
    shape = kernels.attention_shape_frac(1000.0, 64.0)
    assert shape == pytest.approx(1000 / 1500 * 0.5**0.15)
    assert kernels.attention_shape_frac(1000.0, 64.0, 1000.0, 1.0) == pytest.approx(0.5 * 0.5)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("schema_version = 1", "schema_version = 7", "schema_version"),
        ("compute_units = 1", "compute_units = -1", "compute_units"),
        ("[device.dense.", "[device.sparse.", "dense"),
        ('id = "cpu-test-cpu-9000-1t"', 'id = "another"', "another"),
        ("fp32.optimizer]\nvalue = 9e-10", "fp32.optimizer]\nvalue = nan", "nan"),
        ("fp32.optimizer]\nvalue = 9e-10", "fp32.optimizer]\nvalue = -9e-10", "out of range"),
        ("fp32.optimizer]\nvalue = 9e-10", "fp32.optimizer]\nvalue = 1e999", "inf"),
    ],
)
def test_a_corrupt_calibration_is_refused(old: str, new: str, said: str, tmp_path: Path) -> None:
    path = written(tmp_path)
    content = path.read_text(encoding="utf-8")
    assert old in content
    path.write_text(content.replace(old, new), encoding="utf-8")
    refused(
        dpplan(
            "estimate", "--model", "gpt2", "--gpu", "cpu-test-cpu-9000-1t", "--calibration", path
        ),
        "--calibration",
        said,
    )
    refused(dpplan("calibrate", "--diff", path, path), said)


def test_a_calibration_of_another_device_is_refused(tmp_path: Path) -> None:
    refused(
        dpplan("estimate", "--model", "gpt2", "--gpu", "h100", "--calibration", written(tmp_path)),
        "cpu-test-cpu-9000-1t",
    )
    refused(
        dpplan("estimate", "--model", "gpt2", "--gpu", "cpu-test-cpu-9000-1t"), "--gpu", "unknown"
    )


def test_stack_numbers_of_a_calibration_are_used(tmp_path: Path) -> None:
    path = tmp_path / "node.toml"
    text_of = (
        'schema_version = 1\ngpu = "a100-sxm4-80gb"\n[stacks.pytorch-ddp.launch]\nstep_overhead ='
        ' "{}"\n'
    )
    seconds = []
    for overhead in ("5 ms", "105 ms"):
        path.write_text(text_of.format(overhead), encoding="utf-8")
        answer = dpplan(
            "estimate",
            "--model",
            "gpt2",
            "--gpu",
            "a100",
            "--stack",
            "pytorch-ddp",
            "--global-batch",
            "8",
            "--micro-batch",
            "8",
            "--seq-len",
            "512",
            "--calibration",
            path,
            "--json",
        )
        seconds.append(answer.json()["step"]["seconds"])
    assert seconds[1] - seconds[0] == pytest.approx(0.1, rel=1e-6)
    path.write_text(text_of.format("5 ms").replace("pytorch-ddp", "no-such"), encoding="utf-8")
    refused(
        dpplan("estimate", "--model", "gpt2", "--gpu", "a100", "--calibration", path), "no-such"
    )


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    path = written(tmp_path)
    before = path.read_text(encoding="utf-8")
    bad = document()
    bad["device"]["compute_units"] = -3
    with pytest.raises(PlanError):
        profile.write(bad, path)
    assert path.read_text(encoding="utf-8") == before
    assert [p.name for p in tmp_path.iterdir()] == ["node.toml"]


# -------------------------------------------------------------------------------------------------


def test_diff_names_what_is_worse_first(tmp_path: Path) -> None:
    good = document()
    bad = document()
    bad["device"]["memory_bandwidth"]["value"] *= 0.7
    bad["device"]["operators"]["fp32"]["loss"]["value"] *= 1.2
    rows = nodes.compare(good, bad)
    assert rows[0].name == "device.memory_bandwidth"
    assert rows[0].worse == pytest.approx(1 / 0.7 - 1)
    assert rows[1].name.endswith("operators.fp32.loss")
    assert rows[1].worse == pytest.approx(0.2)
    assert all(row.worse < 0.2 for row in rows[2:])
    one, two = tmp_path / "a.toml", tmp_path / "b.toml"
    profile.write(good, one)
    profile.write(bad, two)
    answer = dpplan("calibrate", "--diff", one, two, "--json").json()
    assert answer["numbers"][0]["name"] == "device.memory_bandwidth"
    assert "memory_bandwidth" in dpplan("calibrate", "--diff", one, two).stdout


def test_merging_takes_the_middle_and_names_the_slow_node(tmp_path: Path) -> None:
    paths = [written(tmp_path, f"{i}.toml", speed) for i, speed in enumerate((1.0, 1.01, 0.6))]
    answer = dpplan(
        "calibrate",
        "--merge",
        paths[0],
        "--merge",
        paths[1],
        "--merge",
        paths[2],
        "--out",
        tmp_path / "all.toml",
        "--json",
    )
    found = answer.json()
    assert {row["node"] for row in found["far"]} == {str(paths[2])}
    assert found["nodes"] == 3
    merged = nodes.numbers(nodes.read(tmp_path / "all.toml", "--out"))
    each = [nodes.numbers(nodes.read(path, "--out")) for path in paths]
    name = "device.memory_bandwidth"
    assert merged[name] == sorted(one[name] for one in each)[1]
    refused(dpplan("calibrate", "--merge", paths[0], "--out", tmp_path / "x.toml"), "--merge")
    refused(
        dpplan("calibrate", "--merge", paths[0], "--merge", paths[1], "--out", paths[0]), "--out"
    )
    other = tmp_path / "other.toml"
    other.write_text('schema_version = 1\ngpu = "a100-sxm4-80gb"\n', encoding="utf-8")
    refused(
        dpplan("calibrate", "--merge", paths[0], "--merge", other, "--out", tmp_path / "x.toml"),
        "a100-sxm4-80gb",
    )


def test_every_number_of_a_file_has_a_direction() -> None:
    """A number that grows is either better or worse: a node slower in everything is worse in
    everything that tells speed."""
    rows = nodes.compare(document(), document(speed=0.5))
    told = [row for row in rows if abs(row.change) > 0.01]
    assert told
    assert all(row.worse > 0 for row in told), [row.name for row in told if row.worse <= 0]


# -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "said"),
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
            (
                "--verify",
                "--case",
                "layers=1,hidden=64,heads=4,ffn=64,vocab=64,seq=16,parallel=magic",
            ),
            "parallel=magic",
        ),
        (
            (
                "--verify",
                "--case",
                "layers=1,hidden=64,heads=4,ffn=64,vocab=64,seq=16,parallel=ddp",
            ),
            "--processes 2",
        ),
    ],
)
def test_a_wrong_request_is_one_sentence(words: tuple[str, ...], said: str) -> None:
    refused(dpplan("calibrate", *words), said)
    answer = dpplan("calibrate", *words, "--json")
    assert answer.status == 2
    assert answer.json()["error"]["remedy"]


def test_an_unwritable_output_is_refused_before_measuring(tmp_path: Path) -> None:
    refused(dpplan("calibrate", "--out", tmp_path), "--out")
    (tmp_path / "folder.toml").mkdir()
    refused(dpplan("calibrate", "--out", tmp_path / "folder.toml"), "is a folder")
    file = tmp_path / "file"
    file.write_text("x", encoding="utf-8")
    refused(dpplan("calibrate", "--out", file / "x.toml"), "no folder")


def test_settings_pass_to_workers_unchanged() -> None:
    one = Settings(records="r", mode="quick", threads=3, cases=(CASE,), precision="bf16")
    assert settings.read(one.text()) == one


def test_cases_of_a_verification_are_not_those_of_a_fit() -> None:
    from planner.calibrate.overhead import fitted_cases

    for ranks in (1, 2, 8):
        for mode in cases.MODES:
            assert not set(cases.unseen(ranks, mode)) & set(fitted_cases(ranks))
    assert len(cases.unseen(1, "default")) >= 8
    assert {case.parallel for case in cases.unseen(2, "default")} == set(cases.PARALLEL) - {
        "single"
    }


def test_groups_are_those_a_plan_uses() -> None:
    assert cases.groups(2, 2) == {"pairs": [[0, 1]]}
    found = cases.groups(8, 4)
    assert found["node"] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert found["rails"] == [[0, 4], [1, 5], [2, 6], [3, 7]]
    assert found["all"] == [list(range(8))]
    for members in found.values():
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
    from planner.inputs import catalog

    assert set(detect._NAMES.values()) <= set(catalog.ids("gpus"))
    card = detect.Hardware("gpu", "NVIDIA H100 80GB HBM3", 132, 80 * 2**30, 1, 8, "h")
    assert detect.device_id(card) == "h100-sxm5-80gb"
    new = detect.Hardware("gpu", "NVIDIA Z999", 132, 80 * 2**30, 1, 8, "h")
    assert detect.device_id(new) == "nvidia-z999"
    assert detect.nearest(new).compute_units == 132


def test_a_known_card_gets_an_overlay_and_a_new_one_a_whole_profile(tmp_path: Path) -> None:
    fits = fit_device.node(node_records(), ["fp32"], 1)
    for name, table in (("NVIDIA H100 80GB HBM3", "overlay"), ("NVIDIA Z999", "device")):
        card = detect.Hardware("gpu", name, 132, 80 * 2**30, 1, 8, "h")
        made = profile.build(fits, replace(SESSION, found=card), "2026-11-21")
        assert table in made
        profile.write(made, tmp_path / "gpu.toml")
        assert read_calibration(str(tmp_path / "gpu.toml")).gpu == detect.device_id(card)


# -------------------------------------------------------------------------------------------------


def measured(case: Case, seconds: float, states: list[dict[str, float]]) -> dict[str, Any]:
    return {
        "kind": "step",
        "case": plain(case),
        "precision": "fp32",
        "used_in_fit": False,
        "seconds": seconds,
        "spread": 0.01,
        "quiet": True,
        "parts": {"forward": seconds / 3, "backward": seconds / 2, "optimizer": seconds / 6},
        "states": states,
        "peak_bytes": None,
    }


def verified(tmp_path: Path, factor: float, tolerance: float = 0.1) -> Verification:
    path = str(written(tmp_path))
    given = predict.predict(
        CASE, gpu="cpu-test-cpu-9000-1t", ranks=1, precision="fp32", calibration=path
    )
    held = [{name: round(value) for name, value in one.items()} for one in given.states]
    return verify.compare(
        [measured(CASE, factor * given.step_s, held)],
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


def test_a_byte_too_many_is_seen(tmp_path: Path) -> None:
    given = [{"parameters": 10.0, "gradients": 10.0, "optimizer": 20.0}] * 2
    held = [
        {"parameters": 10, "gradients": 10, "optimizer": 21},
        {"parameters": 10, "gradients": 10, "optimizer": 19},
    ]
    assert not verify.exact(CASE, given, held)
    assert verify.exact(changed(CASE, parallel="zero1"), given, held)


def test_reports_are_written(tmp_path: Path) -> None:
    out = verified(tmp_path, 1.0)
    report.write(out, tmp_path)
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "<h1>Predicted against measured</h1>" in page
    assert 'src="http' not in page
    assert CASE.name in (tmp_path / "report.md").read_text(encoding="utf-8")
    assert plain(read((tmp_path / "report.json").read_bytes(), Verification)) == plain(out)
    assert "within" in "".join(block.text[0] for block in text.blocks(out) if block.text)
