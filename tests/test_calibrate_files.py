"""Records and calibrations as files: checked, resumed, used, merged and compared."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from command import argv, dpplan, refused
from node_records import BANDWIDTH, CASE, SESSION, document, node_records, raw, written

from planner.calibrate import cases, finish, nodes, overhead, predict, profile, record
from planner.calibrate.commands import calibrate as progress_of
from planner.calibrate.settings import Progress
from planner.error import PlanError
from planner.formulas import kernels
from planner.specs.document import plain


def test_records_resume_and_drop_a_line_that_was_cut_off(tmp_path: Path) -> None:
    path, conditions = tmp_path / "x.jsonl", {"device": "d", "threads": 1, "ranks": 1, "torch": "t"}
    values = {"kind": "loss", "tokens": 1, "vocab": 2, "precision": "fp32"}
    first = record.Records(path, conditions)
    first.add({**values, "samples": [[1.0, 0.01, 0.01], [1.1, 0.01, 0.01]]})
    with pytest.raises(PlanError, match="another run"):  # which an end by any means lets go on
        record.Records(path, conditions)
    assert first.file is not None
    first.file.close()
    path.write_text(path.read_text() + '{"kind": "loss", "samp', encoding="utf-8")
    second = record.Records(path, conditions)
    assert second.quiet(values, 0.01) == 2
    second.add({**values, "samples": [[1.2, 0.01, 0.01]]})
    (merged,) = record.merged(record.read(path))
    assert merged["seconds"] == pytest.approx(1.1)
    assert merged["kept"] == 3


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("hello\nworld\n", "not JSON"),
        ('{"kind": "loss"}\n', "no records of this version"),
        ("[1]\n[2]\n", "not a record"),
        ('{"kind": "conditions", "schema": 99}\n', "this version"),
    ],
)
def test_a_foreign_record_file_is_left_alone(content: str, text: str, tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(PlanError, match=text):
        record.Records(path, {})
    assert path.read_text(encoding="utf-8") == content


GEMM = (
    '{"kind": "gemm", "m": 8, "n": 8, "k": 8, "way": "forward", "precision": "fp32",'
    ' "held_out": false, "samples": [[1e-3, 1e-4, 1e-4]]}'
)


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        ("1e-3", "NaN", "samples[0][0] is nan"),
        ("1e-3", "Infinity", "samples[0][0] is inf"),
        ("1e-3", "1e999", "samples[0][0] is inf"),
        ("1e-3", "-1e-3", "samples[0][0] is -0.001"),
        ("1e-3", "0", "samples[0][0] is 0"),
        ("1e-3, ", "", "length 3"),
        ("1e-3", '"fast"', "samples[0][0] is 'fast'"),
        ("1e-3", "null", "samples[0][0] is None"),
        ("[[1e-3, 1e-4, 1e-4]]", "[]", "samples is []"),
        ("[[1e-3, 1e-4, 1e-4]]", "7", "samples is 7"),
        (', "samples": [[1e-3, 1e-4, 1e-4]]', "", "missing required field `samples`"),
        ('"m": 8, ', "", "missing required field `m`"),
        ('"m": 8', '"m": -8', "m is -8"),
        ("gemm", "spell", "kind is 'spell'"),
    ],
)
def test_a_record_of_what_cannot_have_been_measured_is_refused(
    old: str, new: str, text: str, tmp_path: Path
) -> None:
    path = tmp_path / "x.jsonl"
    record.Records(path, {})
    whole = path.read_text(encoding="utf-8")
    path.write_text(f"{whole}{GEMM}\n", encoding="utf-8")
    assert len(record.read(path)) == 2
    path.write_text(f"{whole}{GEMM.replace(old, new)}\n{GEMM}\n", encoding="utf-8")
    with pytest.raises(PlanError) as refusal:
        record.read(path)
    assert "line 2" in str(refusal.value)
    assert text in str(refusal.value)


def test_other_conditions_are_named(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    record.Records(path, {"device": "d", "threads": 1})
    with pytest.raises(PlanError, match="threads 1, this run has 2"):
        record.Records(path, {"device": "d", "threads": 2})


def test_a_device_of_its_own_is_estimated_with_measured_numbers(tmp_path: Path) -> None:
    path = written(tmp_path)
    request = (
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
    answer = dpplan(*request).json()
    numbers = {n["name"]: n for n in answer["machine"]}
    assert numbers["norm_forward_s"]["kind"] == "measured"
    assert "dpplan calibrate" in numbers["optimizer_s"]["source"]
    assert answer["provenance"]["measured_frac"] > 0.8
    slow = written(tmp_path, "slow.toml", speed=0.5)
    slower = dpplan(*request[:-2], slow, "--json").json()
    assert slower["step"]["seconds"] == pytest.approx(2 * answer["step"]["seconds"], rel=0.05)
    left_out = dpplan(
        *argv("estimate --model gpt2 --precision fp32 --global-batch 4 --calibration"),
        path,
        "--json",
    )
    assert left_out.status in (0, 3)  # the file names the device


def test_two_ranks_are_estimated_with_their_own_link(tmp_path: Path) -> None:
    """From raw records to an answer: curves, the link between ranks, what small decoders show."""
    steps = [
        {
            "kind": "step",
            "case": plain(case),
            "precision": "fp32",
            "used_in_fit": True,
            "seconds": 2e-3 * case.layers + 5e-3 * (case.layers == 2),
            "quiet": True,
        }
        for case in overhead.fitted_cases(2)
    ]
    path = tmp_path / "node.toml"
    session = replace(SESSION, ranks=2, ranks_per_node=2)
    result = finish.finish(raw([*node_records(ranks=2), *steps]), session, path)
    curves = {"products fp32", "attention fp32", "operators fp32", "link pairs", "overlap"}
    assert curves <= result.fits.keys()
    words = "--model gpt2 --gpus 2 --dp 2 --stack pytorch-ddp --precision fp32 --global-batch 4"
    answer = dpplan(
        "estimate", *words.split(), "--gpu", result.gpu, "--calibration", path, "--json"
    )
    assert answer.status == 0, answer.stderr
    out = answer.json()
    assert out["provenance"]["measured_frac"] > 0.8
    data = [row for row in out["communication"] if row["group"] == "data"]
    assert {row["link"] for row in data} == {f"{result.gpu}-link"}


@pytest.mark.parametrize("parallel", cases.PARALLEL)
def test_every_parallelism_that_verification_trains_is_predicted(parallel: str) -> None:
    case = next(
        entry for entry in (CASE, *cases.unseen(2, "thorough")) if entry.parallel == parallel
    )
    out = predict.predict(case, gpu="a100", ranks=2, precision="bf16", calibration=None)
    assert out.step_s > 0
    assert len(out.states) == (1 if parallel == "single" else 2)


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
    kept = 4 * (4 * 256**2 + 3 * 256 * 704) + 2 * 2048 * 256  # of layers, embedding and head
    return kept * 24.0 / (0.88 * BANDWIDTH)


def test_shipped_profiles_do_not_move() -> None:
    """Without measured operators every number is as before: bytes over bandwidth."""
    shape = kernels.attention_shape_frac(1000.0, 64.0)
    assert shape == pytest.approx(1000 / 1500 * 0.5**0.15)
    assert kernels.attention_shape_frac(1000.0, 64.0, 1000.0, 1.0) == pytest.approx(0.5 * 0.5)


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        ("schema_version = 1", "schema_version = 7", "schema_version"),
        ("compute_units = 1", "compute_units = -1", "compute_units"),
        ("[device.dense.", "[device.sparse.", "dense"),
        ('id = "cpu-test-cpu-9000-1t"', 'id = "another"', "another"),
        ("fp32.optimizer]\nvalue = 9e-10", "fp32.optimizer]\nvalue = nan", "nan"),
        ("fp32.optimizer]\nvalue = 9e-10", "fp32.optimizer]\nvalue = -9e-10", "out of range"),
        ("fp32.optimizer]\nvalue = 9e-10", "fp32.optimizer]\nvalue = 1e999", "inf"),
        ("fp32.optimizer]\nvalue = 9e-10", "fp32.optimizer]\nvalue = 1e300", "out of range"),
        ("fp32.optimizer]\nvalue = 9e-10", "fp32.optimizer]\nvalue = 1e-300", "out of range"),
    ],
)
def test_a_corrupt_calibration_is_refused(old: str, new: str, text: str, tmp_path: Path) -> None:
    path = written(tmp_path)
    content = path.read_text(encoding="utf-8")
    assert old in content
    path.write_text(content.replace(old, new), encoding="utf-8")
    refused(
        dpplan(
            "estimate", "--model", "gpt2", "--gpu", "cpu-test-cpu-9000-1t", "--calibration", path
        ),
        "--calibration",
        text,
    )
    refused(dpplan("calibrate", "--diff", path, path), text)


@pytest.mark.parametrize("value", ["nan", "-1.0", "inf", '"x"', "[]"])
@pytest.mark.parametrize(
    "table", ["stacks.pytorch-ddp.launch]\nstep_overhead", "links.nvlink3]\nbase_latency"]
)
def test_what_a_calibration_says_of_others_is_read_with_it(
    table: str, value: str, tmp_path: Path
) -> None:
    """Whether a request would use the stack or the link or not."""
    path = tmp_path / "node.toml"
    text = f'schema_version = 1\ngpu = "a100-sxm4-80gb"\n[{table} = '
    path.write_text(f'{text}"1 us"\n', encoding="utf-8")
    assert nodes.read(path, "--diff")
    path.write_text(f"{text}{value}\n", encoding="utf-8")
    with pytest.raises(PlanError, match=table.split("\n")[1]):
        nodes.read(path, "--diff")


def test_a_band_is_no_narrower_than_the_calibration_came_out(tmp_path: Path) -> None:
    """Errors of the verification in the file widen the band of an estimate, never narrow it, and
    apply only to that node."""
    path = tmp_path / "node.toml"

    def step(**verified: float) -> dict[str, Any]:
        node = document()
        profile.write({**node, "verified": verified} if verified else node, path)
        words = "--model gpt2 --stack pytorch-ddp --precision fp32 --gpus 1 --json"
        device = ("--gpu", node["gpu"], "--calibration", path)
        answer = dpplan("estimate", *words.split(), *device)
        assert answer.status == 0, answer.stderr
        result: dict[str, Any] = answer.json()["step"]
        return result

    plain_step = step()
    low, high = (plain_step[end] / plain_step["seconds"] for end in ("low", "high"))
    inside = step(decoders=9, low=(low + 1) / 2, high=(high + 1) / 2)
    assert inside == plain_step
    wide = step(decoders=9, low=low / 2, high=(high + 1) / 2)
    assert wide["low"] == pytest.approx(wide["seconds"] * low / 2)
    assert wide["high"] == pytest.approx(plain_step["high"])
    assert wide["seconds"] == plain_step["seconds"]
    assert "came out on 9 decoders" in wide["confidence"]
    assert "verified" not in nodes.merge([nodes.read(path, "--merge")] * 2, ["a", "b"])[0]
    with pytest.raises(PlanError, match="above high"):
        step(decoders=9, low=1.2, high=1.1)


def test_a_calibration_of_another_device_is_refused(tmp_path: Path) -> None:
    refused(
        dpplan("estimate", "--model", "gpt2", "--gpu", "h100", "--calibration", written(tmp_path)),
        "cpu-test-cpu-9000-1t",
    )
    refused(
        dpplan("estimate", "--model", "gpt2", "--gpu", "cpu-test-cpu-9000-1t"),
        "--gpu",
        "not modelled",
    )


def test_stack_numbers_of_a_calibration_are_used(tmp_path: Path) -> None:
    path = tmp_path / "node.toml"
    text_of = (
        'schema_version = 1\ngpu = "a100-sxm4-80gb"\n[stacks.pytorch-ddp.launch]\nstep_overhead ='
        ' "{}"\n'
    )
    seconds = []
    for late in ("5 ms", "105 ms"):
        path.write_text(text_of.format(late), encoding="utf-8")
        answer = dpplan(
            *argv(
                "estimate --model gpt2 --gpu a100 --stack pytorch-ddp --global-batch 8 "
                "--micro-batch 8 --seq-len 512 --calibration"
            ),
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
    path, two = tmp_path / "a.toml", tmp_path / "b.toml"
    profile.write(good, path)
    profile.write(bad, two)
    answer = dpplan("calibrate", "--diff", path, two, "--json").json()
    assert answer["numbers"][0]["name"] == "device.memory_bandwidth"
    assert "memory_bandwidth" in dpplan("calibrate", "--diff", path, two).stdout


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
    document = answer.json()
    assert {row["node"] for row in document["far"]} == {str(paths[2])}
    assert document["nodes"] == 3
    merged = nodes.numbers(nodes.read(tmp_path / "all.toml", "--out"))
    each = [nodes.numbers(nodes.read(path, "--out")) for path in paths]
    name = "device.memory_bandwidth"
    assert merged[name] == sorted(entry[name] for entry in each)[1]
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
    kept = [row for row in rows if abs(row.change) > 0.01]
    assert kept
    assert all(row.worse > 0 for row in kept), [row.name for row in kept if row.worse <= 0]


def test_a_run_of_a_calibrated_device_corrects_its_file(tmp_path: Path) -> None:
    """Calibrate, plan, run, learn from the log, score the run and plan another layout."""
    path, better, table = written(tmp_path), tmp_path / "better.toml", tmp_path / "runs.csv"
    words = "--model gpt2 --gpu cpu-test-cpu-9000-1t --precision fp32 --seq-len 128"

    def recipe(file: Path | str, micro_batch: int = 1) -> list[object]:
        batch = ("--global-batch", 4, "--micro-batch", micro_batch)
        return [*words.split(), *batch, "--calibration", file]

    def seconds(file: Path | str, micro_batch: int = 1) -> float:
        request = recipe(file, micro_batch)
        return float(dpplan("estimate", *request, "--json").json()["step"]["seconds"])

    slowdown = 1.2
    log = tmp_path / "run.log"
    log.write_text(
        "".join(
            f"iter {i}: loss 4.1, time {seconds_ * 1000:.3f}ms, mfu 30.00%\n"
            for i, seconds_ in enumerate([slowdown * seconds(path)] * 20)
        ),
        encoding="utf-8",
    )
    answer = dpplan("check", log, *recipe(path), "--save", better, "--append", table, "--json")
    assert answer.status in (0, 3), answer.stderr
    learned = answer.json()["learned"]
    assert learned["after"] < learned["before"]
    assert all(number["where"].startswith(("device.", "links.")) for number in learned["numbers"])
    for micro_batch in (1, 2):
        ratio = seconds(better, micro_batch) / seconds(path, micro_batch)
        assert 1.02 < ratio <= slowdown * 1.01  # the run moved it, another layout too
    rows = dpplan("validate", table, "--calibration", better, "--json").json()["rows"]
    assert len(rows) == 1


def test_progress_without_a_terminal_moves_every_ten_seconds(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seconds = iter((0.0, 4.0, 11.0, 22.0, 23.0))
    monkeypatch.setattr(progress_of, "time", SimpleNamespace(monotonic=lambda: next(seconds)))
    with progress_of._shown(plain=True) as report:
        for stage, done in (("GEMM", 0), ("GEMM", 5), ("GEMM", 9), ("GEMM", 9), ("links", 0)):
            report(Progress(stage, done, 20, 30.0, 0.0))
    lines = capsys.readouterr().err.splitlines()
    counts = [line.partition(" of")[0] for line in lines]
    assert counts == ["GEMM: 0", "GEMM: 9", "GEMM: 9", "links: 0"]
