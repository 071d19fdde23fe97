"""`dpplan check`: logs of every known program, traces, snapshots, shortages, what is learned of
them, and what hostile files come to."""

from __future__ import annotations

import csv
import gzip
import pickle
import re
import shlex
import time
import tomllib
import tracemalloc
from pathlib import Path

import pytest
import sample_logs as samples
from command import dpplan, refused
from fastapi.testclient import TestClient

from planner.inputs import calibration
from planner.inputs.options import read_options
from planner.specs.base import PlanError
from planner.studies.check.steps import Size, step_times
from planner.studies.logs import read_log, stream
from planner.studies.traces import pickles
from planner.studies.validate.rows import read_tables
from planner.studies.validate.scored import predict
from planner.verbs.estimate import chosen

RECIPE = shlex.split(
    "--model gpt3-1.3b --gpu a100 --gpus 8 --stack megatron-core --global-batch 64 --seq-len 2048"
    " --zero 1 --micro-batch 4 --tp 1 --pp 1 --recompute none"
)
RAN = [*RECIPE, "--stack-defaults"]  # how a log's recipe is estimated
GIB = 2**30


def read(path: Path):  # type: ignore[no-untyped-def]
    return read_log(path, "LOG")


def test_the_middle_of_every_programs_log(tmp_path: Path) -> None:
    size = Size(131072.0, 64.0, 8)
    for name, (_, program) in samples.LOGS.items():
        log = read(samples.write(tmp_path, name))
        assert log.title == program, name
        result = step_times(log, size)
        assert result is not None, name
        assert result.seconds == pytest.approx(1.5, rel=0.006), name
        assert result.low <= result.seconds <= result.high, name
        if result.lines > 20 and not log.smoothed:
            assert result.warm_up in (1, 2), name
            assert result.stalled + result.checkpoint == 1, name
            assert result.spread_frac < 0.01, name


_OF_VERL = {"allocated": 61.25 * GIB, "reserved": 70.5 * GIB}
_OF_AUTOMODEL = {"allocated": 41.25 * GIB}


def test_what_else_a_log_says(tmp_path: Path) -> None:
    log = read(samples.write(tmp_path, "megatron.log"))
    assert log.memory == {"allocated": 20480 * 2**20, "reserved": 22528 * 2**20}
    assert log.stated == {"global_batch": 64, "seq_len": 2048, "gpus": 8}
    assert [event.kind for event in log.events] == ["checkpoint"]
    assert log.steps[5].tflops == pytest.approx(180, rel=0.01)
    assert read(samples.write(tmp_path, "torchtitan.log")).memory == {"reserved": 47.31 * GIB}
    assert read(samples.write(tmp_path, "deepspeed.log")).memory == {"allocated": 38.49 * GIB}
    assert read(samples.write(tmp_path, "bridge.log")).steps[9].tflops == pytest.approx(663.5, 0.01)
    for name, value in {
        "nemo.log": {"allocated": 53930270720.0, "reserved": 57466159104.0},
        "bridge.log": {"allocated": 153.4e9, "reserved": 182.24e9},
        "torchtune.log": {"allocated": 27.5 * GIB, "reserved": 44.75 * GIB},
        "logging.jsonl": {"reserved": 15.75 * GIB},
        "huggingface.log": {"allocated": 2.5 * GIB, "reserved": 4.25 * GIB},
        **dict.fromkeys(("verl.log", "verl.jsonl", "verl.csv"), _OF_VERL),
        **dict.fromkeys(("automodel.log", "training.jsonl", "benchmark.log"), _OF_AUTOMODEL),
    }.items():
        assert read(samples.write(tmp_path, name)).memory == pytest.approx(value), name
    assert read(samples.write(tmp_path, "maxtext.log")).steps[9].tflops == pytest.approx(347, 0.01)
    peak = read(samples.write(tmp_path, "nanotron.log")).memory
    assert peak == {"allocated": 5703.86 * 2**20, "reserved": 6688.0 * 2**20}


def test_steps_behind_a_checkpoint_are_told_from_stalls(tmp_path: Path) -> None:
    log = read(samples.write(tmp_path, "megatron.log"))
    result = step_times(log, Size(None, None, None))
    assert result is not None
    assert (result.warm_up, result.checkpoint, result.stalled) == (2, 1, 0)
    assert result.lost_frac == pytest.approx(1.2 / 39.2, rel=0.01)
    log.events.clear()
    result = step_times(log, Size(None, None, None))
    assert result is not None
    assert (result.checkpoint, result.stalled) == (0, 1)


def test_a_log_against_its_recipe(tmp_path: Path) -> None:
    options = read_options(_given())
    seconds = float(chosen(options).time.seconds[0])
    path = tmp_path / "a.log"
    for factor, verdict, status in ((1.0, "inside the band", 0), (1.6, "slower than the band", 3)):
        path.write_text(samples.megatron(seconds * factor), encoding="utf-8")
        answer = dpplan("check", path, *RECIPE, "--json")
        against = answer.json()["against"]
        assert (against["verdict"], answer.status) == (verdict, status)
        assert against["ratio"] == pytest.approx(factor, rel=0.01)
        values = {reason["name"]: reason["factor"] for reason in against["reasons"]}
        if factor > 1:
            assert values["clock"] < 0.7
            assert values["launch"] > 2
    text = dpplan("check", path, *RECIPE, columns=100).stdout
    assert "measure next: " in text
    assert max(map(len, text.splitlines())) <= 100


def test_whose_flops_a_log_prints(tmp_path: Path) -> None:
    r = dpplan("estimate", *RAN, "--json").json()
    text = samples.megatron(r["step"]["seconds"])
    printed = r["throughput"]["tflops_palm"]
    path = tmp_path / "a.log"
    path.write_text(text.replace("TFLOP/s/GPU): 180.0", f"TFLOP/s/GPU): {printed:.1f}"))
    flops = dpplan("check", path, *RECIPE, "--json").json()["files"][0]["flops"]
    assert flops["nearest"] == "the whole score matrix (PaLM)"
    assert flops["ratio"] == pytest.approx(1, abs=0.02)


def test_memory_against_what_runs_like_it_are_off_by(tmp_path: Path) -> None:
    memory = dpplan("estimate", *RAN, "--json").json()["memory"]
    path = tmp_path / "a.log"
    for factor, sentence in ((1.0, "within"), (1.5, "more than"), (0.5, "less than")):
        peak = factor * memory["peak_bytes"]
        text = samples.megatron().replace("allocated: 20480.0", f"allocated: {peak / 2**20:.1f}")
        path.write_text(text, encoding="utf-8")
        against = dpplan("check", path, *RECIPE, "--json").json()["against"]
        assert against["memory"]["allocated"] == pytest.approx(factor, rel=1e-3)
        assert against["memory_verdict"].startswith(f"{sentence} what eight of ten"), factor


def test_a_log_that_contradicts_its_recipe_says_so(tmp_path: Path) -> None:
    path = samples.write(tmp_path, "megatron.log")
    words = [w if w != "8" else "16" for w in RECIPE]
    notes = dpplan("check", path, *words, "--json").json()["files"][0]["notes"]
    assert notes == ["the log says gpus 8, the recipe 16 (--gpus)"]


def _given() -> dict[str, object]:
    words = [word.removeprefix("--").replace("-", "_") for word in RECIPE[::2]]
    numbers = [int(v) if v.isdecimal() else v for v in RECIPE[1::2]]
    given = dict(zip(words, numbers, strict=True))
    return {**given, "stack_defaults": True}  # what ran is not searched


def test_a_calibration_of_a_log_predicts_it_better(tmp_path: Path) -> None:
    path, out = tmp_path / "a.log", tmp_path / "my.toml"
    seconds = float(chosen(read_options(_given())).time.seconds[0])
    path.write_text(samples.megatron(seconds * 1.08), encoding="utf-8")
    learned = dpplan("check", path, *RECIPE, "--save", out, "--json").json()["learned"]
    assert learned["before"] == pytest.approx(1 - 1 / 1.08, abs=0.003)
    assert learned["after"] < 0.85 * learned["before"]
    again = float(chosen(read_options({**_given(), "calibration": str(out)})).time.seconds[0])
    assert 1 - again / (1.08 * seconds) == pytest.approx(learned["after"], abs=0.004)
    measured = calibration.read_calibration(str(out))
    assert measured.gpu == "a100-sxm4-80gb"
    for number in learned["numbers"]:
        assert number["spread"] <= number["prior"]
    # a second log on top of it keeps what the first said
    more = dpplan("check", path, *RECIPE, "--calibration", out, "--save", tmp_path / "b.toml")
    assert more.status in (0, 3), more.stderr
    assert calibration.read_calibration(str(tmp_path / "b.toml")).overlay["kernels"]


def test_several_runs_of_a_table_are_one_calibration(tmp_path: Path) -> None:
    seconds = float(chosen(read_options(_given())).time.seconds[0])
    log, table = tmp_path / "a.log", tmp_path / "runs.csv"
    for i, factor in enumerate((1.07, 1.08, 1.09)):
        log = tmp_path / f"{i}.log"
        log.write_text(samples.megatron(seconds * factor), encoding="utf-8")
        answer = dpplan("check", log, *RECIPE, "--append", table)
        assert answer.status in (0, 3), answer.stderr
    document = dpplan("check", log, *RECIPE, "--save", tmp_path / "1.toml", "--json").json()[
        "learned"
    ]
    all_ = dpplan("check", table, "--save", tmp_path / "3.toml", "--json").json()["learned"]
    assert (document["runs"], all_["runs"]) == (1, 3)
    assert all_["after"] < document["after"] < document["before"]  # more runs, more trust


def test_a_row_is_what_validate_reads(tmp_path: Path) -> None:
    path, table = samples.write(tmp_path, "megatron.log"), tmp_path / "runs.csv"
    for _ in range(2):
        assert dpplan("check", path, *RECIPE, "--append", table).status == 3
    first, second = read_tables([table])
    assert first == second
    assert (first["assumptions"], first["peak_memory_gib"], first["step_s"]) == ("", "20", "1.5")
    seconds = float(chosen(read_options(_given())).time.seconds[0])
    assert float(predict(first).time.seconds[0]) == pytest.approx(seconds, rel=1e-6)
    assert len(dpplan("validate", table, "--json").json()["rows"]) == 2
    # columns of the file that is there are kept as they are
    target = tmp_path / "own.csv"
    with table.open(newline="") as file:
        names = [*next(csv.reader(file)), "cluster_name"]
    target.write_text(",".join(names) + "\n")
    dpplan("check", path, *RECIPE, "--append", target)
    assert read_tables([target])[0]["cluster_name"] == ""
    other = tmp_path / "other.csv"
    other.write_text("a,b\n1,2\n")
    refused(dpplan("check", path, *RECIPE, "--append", other), "--append")
    assert other.read_text() == "a,b\n1,2\n"


def test_a_trace_beside_the_ledger(tmp_path: Path) -> None:
    path = samples.write(tmp_path, "trace.json")
    plain = dpplan("check", path, "--json").json()["files"][0]["trace"]
    lines = {line["name"]: line["measured_s"] for line in plain["lines"]}
    want = {"matmul": 0.05, "attention": 0.01, "memory_bound": 0.005, "communication": 0.02}
    want |= {"exposed": 0.01, "idle": 0.025, "optimizer": 0.0, "all_reduce": 0.02}
    assert lines == pytest.approx(want, abs=1e-9)
    assert plain["steps"] == 2
    assert plain["first_wrong"] is None
    assert plain["collectives"] == pytest.approx({"all_reduce": 0.02})
    beside = dpplan("check", path, *RECIPE, "--json").json()["files"][0]["trace"]
    assert beside["first_wrong"] == "matmul"  # of a step of seconds
    # collectives by kind, with kinds of the recipe that the trace lacks
    kinds = {line["name"]: (line["measured_s"], line["predicted_s"]) for line in beside["lines"]}
    document = dpplan("estimate", *RAN, "--json").json()["communication"]
    for name in {entry["operation"] for entry in document if entry["group"] != "host"}:
        seconds = sum(entry["seconds"] for entry in document if entry["operation"] == name)
        assert kinds[name][1] == pytest.approx(seconds)
    assert kinds["reduce_scatter"][0] == 0
    assert kinds["all_reduce"][0] == pytest.approx(0.02)
    packed = tmp_path / "trace.json.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert dpplan("check", packed, "--json").json()["files"][0]["trace"] == plain
    broken = tmp_path / "broken.json"
    text = path.read_text()
    broken.write_text(text[: text.rindex('"args"')])
    answer = dpplan("check", broken)
    refused(answer, "LOG")
    assert "line " in answer.stderr
    assert "column " in answer.stderr


def test_a_memory_snapshot(tmp_path: Path) -> None:
    path = samples.write(tmp_path, "memory.pickle")
    answer = dpplan("check", path, *RECIPE, "--json")
    assert answer.status == 3  # it recorded that memory ran out
    document = answer.json()["files"][0]
    snapshot = document["snapshot"]
    assert snapshot["reserved_bytes"] == 12 * GIB
    assert snapshot["allocated_bytes"] == 8 * GIB
    assert snapshot["reserved_free_bytes"] == snapshot["largest_free_bytes"] == 4 * GIB
    assert snapshot["peak_bytes"] == 11 * GIB
    measured = {entry["name"]: entry["measured_bytes"] for entry in snapshot["held"]}
    assert measured["activations"] == 6 * GIB
    assert measured["without a known stack"] == 2 * GIB
    assert document["shortages"][0]["missing_bytes"] == 4 * GIB
    for protocol in (2, 3, 4, 5):
        path.write_bytes(pickle.dumps(samples.snapshot(), protocol))
        assert dpplan("check", path, "--json").json()["files"][0]["snapshot"]["segments"] == 1


class Hostile:
    def __reduce__(self):  # type: ignore[no-untyped-def]
        return (Path.write_text, (Path("executed"), "x"))


def test_a_hostile_pickle_runs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "memory.pickle"
    plain = pickle.dumps(samples.snapshot())
    hostile = {
        "code to run": pickle.dumps({"segments": [Hostile()]}),
        "outside of the file": b"\x80\x04NQ.",
        "ends in the middle": plain[: len(plain) // 2],
        "broken pickle": b"\x80\x04e.",
        "more than": b"\x80\x04X\xff\xff\xff\x7fabc.",
        "not a memory snapshot": pickle.dumps({"a": 1}),
    }
    for why, content in hostile.items():
        path.write_bytes(content)
        answer = dpplan("check", path)
        refused(answer, "LOG")
        assert why in answer.stderr, answer.stderr
    assert not (tmp_path / "executed").exists()
    # tuples in tuples as a key: their hash would overflow the stack of the process
    path.write_bytes(b"\x80\x04})" + b"\x85" * 500_000 + b"Ns.")
    refused(dpplan("check", path), "LOG")
    # a place in the memo of 16 GB, bytes of 1 TB, and keys of which all have one hash
    path.write_bytes(b"\x80\x04}r\xff\xff\xff\x7f.")
    refused(dpplan("check", path), "LOG")
    path.write_bytes(b"\x80\x04\x8e" + (2**40).to_bytes(8, "little") + b"bad.")
    refused(dpplan("check", path), "LOG")
    keys = (b"\x8a\x0c" + (i * (2**61 - 1)).to_bytes(12, "little") + b"N" for i in range(1, 2**16))
    path.write_bytes(b"\x80\x04}(" + b"".join(keys) + b"u.")
    monkeypatch.setattr(pickles, "MOST_S", 1)
    refused(dpplan("check", path), "LOG")


def test_what_ran_out(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_text(samples.OUT_OF_MEMORY + samples.OUT_OF_MEMORY.replace("GPU 3", "GPU 5"))
    (free,) = dpplan("check", path, "--json").json()["files"][0]["shortages"]
    assert free["gpus"] == 2
    assert free["phase"] == "backward"
    assert free["reserved_free_bytes"] == 6 * GIB
    assert "fragmentation" in free["why"]
    assert "expandable_segments" in free["remedy"]
    path.write_text(samples.OUT_OF_MEMORY.replace("6.00 GiB is reserved", "0.20 GiB is reserved"))
    (need,) = dpplan("check", path, "--json").json()["files"][0]["shortages"]
    assert need["missing_bytes"] == 2.5 * GIB
    assert need["term"] == "backward_temporaries"
    path.write_text(samples.OLD_OUT_OF_MEMORY)
    (old,) = dpplan("check", path, "--json").json()["files"][0]["shortages"]
    assert old["missing_bytes"] == 1.5 * GIB
    assert old["reserved_free_bytes"] == pytest.approx(0.25 * GIB)
    path.write_text(samples.XLA_OUT_OF_MEMORY)
    (xla,) = dpplan("check", path, "--json").json()["files"][0]["shortages"]
    assert xla["asked_bytes"] == pytest.approx(60.91 * GIB)
    for sentence in samples.OUTSIDE:
        path.write_text(sentence)
        (outside,) = dpplan("check", path, "--json").json()["files"][0]["shortages"]
        assert outside["asked_bytes"] == 0, sentence
        assert "outside of torch's allocator" in outside["why"]
    # a tensor of the recipe is recognised by its size: 4 x 2,048 tokens x 50,257 words in fp32
    logits = 4 * 2048 * 50257 * 4 / GIB
    path.write_text(samples.OLD_OUT_OF_MEMORY.replace("2.00 GiB (GPU", f"{logits:.2f} GiB (GPU"))
    (shortage,) = dpplan("check", path, *RECIPE, "--json").json()["files"][0]["shortages"]
    assert shortage["term"] == "logits"
    assert "fp32" in shortage["why"]


def test_broken_and_foreign_files_are_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "trainer_state.json"
    path.write_text(samples.trainer_state().replace('"step": 400,', '"step" 400,', 1))
    answer = dpplan("check", path)
    refused(answer, "LOG")
    assert "line " in answer.stderr
    assert "column " in answer.stderr
    for content in (b"", b"\x00" * 1000, b"hello\n", b"{}", b"[" * 5000, b"Step,x\n1,2\n"):
        other = tmp_path / "other"
        other.write_bytes(content)
        refused(dpplan("check", other), "LOG")
    (tmp_path / "bad.gz").write_bytes(b"\x1f\x8b\x08\x00garbage")
    refused(dpplan("check", tmp_path / "bad.gz"), "LOG")
    refused(dpplan("check"), "LOG")
    refused(dpplan("check", tmp_path), "LOG")
    log = samples.write(tmp_path, "megatron.log")
    refused(dpplan("check", log, "--save", tmp_path / "x.toml"), "--save")
    refused(dpplan("check", log, "--append", tmp_path / "x.csv"), "--append")
    rates = samples.write(tmp_path, "torchtitan.log")
    assert "give the recipe" in dpplan("check", rates, "--json").json()["files"][0]["notes"][0]


def test_numbers_that_no_log_counts_are_none(tmp_path: Path) -> None:
    """Digits by the thousand, and lines of nothing else, two of them in every kind of log: read or
    refused in time that their length is worth. The fuzzer of logs draws all of them."""
    hostile = [b"9" * 5000, b"1" * 19_000, b"1," * 9000, b"1e308", b"Infinity", b"." * 9000]
    hostile += [b'File "' + b"/" * 9000 + b", line 1", b"[" * 9000]
    names = [*samples.LOGS, "trace.json"]
    texts = {name: samples.write(tmp_path, name).read_bytes() for name in names}
    texts["memory.log"] = samples.OUT_OF_MEMORY.encode()
    start = time.process_time()
    for at, (name, text) in enumerate(texts.items()):
        marks = list(re.finditer(rb"[\d.]+", text))
        path = tmp_path / name
        for i in (at % len(hostile), (at + 3) % len(hostile)):
            sentence, first = hostile[i], marks[(i * 7919 + len(text)) % len(marks)]
            path.write_bytes(text[: first.start()] + sentence + text[first.end() :])
            answer = dpplan("check", path, "--json")
            assert answer.status in (0, 2, 3), (name, sentence[:9], answer.stderr)
    assert time.process_time() - start < 10
    path.write_bytes(b"x out of memory. Tried to allocate 1 KiB " + b"1" * 19_000)
    assert read(path).shortages[0].asked == 1024.0


def test_a_trainer_state_is_never_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "trainer_state.json"
    text = samples.trainer_state()
    many = text.replace('"log_history": [', '"log_history": [' + "[],{}," * 50_000, 1)
    path.write_text(many)
    monkeypatch.setattr(stream, "_PIECE", 20_000)
    tracemalloc.start()
    assert read(path).steps == read(samples.write(tmp_path, "trainer_state.json")).steps
    assert tracemalloc.get_traced_memory()[1] < 1e6
    tracemalloc.stop()
    for wrong in ("9" * 5000, "[" * 9000):
        path.write_text(text.replace("620.0", wrong))
        with pytest.raises(PlanError, match=r"line \d+, column \d+"):
            read(path)


def test_a_huge_log_streams(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading a file is limited in bytes, lines and memory."""
    path = tmp_path / "huge.log"
    line = (samples.megatron().splitlines()[-1] + "\n").encode()
    with path.open("wb") as file:
        file.write(samples.megatron().encode())
        file.write((b"x" * 200 + b"\n") * 40_000)
        file.truncate(2_000_000_000)  # zeros without an end of line
    monkeypatch.setattr(stream, "MOST_BYTES", 24_000_000)
    tracemalloc.start()
    start = time.perf_counter()
    log = read(path)
    assert tracemalloc.get_traced_memory()[1] < 100e6
    tracemalloc.stop()
    assert time.perf_counter() - start < 5
    assert log.partly == "its first 24 MB"
    assert len(log.steps) == samples.STEPS
    monkeypatch.setattr(stream, "MOST_READ", 1_000)
    path.write_bytes(line * 3_000)
    assert len(read(path).steps) <= 3_000
    bomb = tmp_path / "bomb.gz"
    with gzip.open(bomb, "wb", compresslevel=1) as packed:
        packed.write(b"\n" * 30_000_000)
    with pytest.raises(PlanError):
        read(bomb)


def test_the_same_over_http(client: TestClient) -> None:
    values = {"files": {"a.log": samples.megatron(), "memory.log": samples.OUT_OF_MEMORY}}
    document = client.post("/api/check", json=values).json()
    assert [file["program"] for file in document["files"]] == ["Megatron-LM", "torch"]
    assert document["against"] is None
    beside = client.post("/api/check", json={**values, **_given()}).json()
    assert beside["against"]["verdict"] == "slower than the band"
    # the results that the command writes with --save and --append
    assert tomllib.loads(beside["learned"]["calibration"])["gpu"] == "a100-sxm4-80gb"
    assert beside["row"]["step_s"] == "1.5"
    assert (document["learned"], document["row"], document["notes"]) == (None, None, [])
    for wrong in ({"a.log": "nothing"}, {"/etc/passwd": "x"}, {}):
        answer = client.post("/api/check", json={"files": wrong})
        assert answer.status_code == 422
        assert "root:" not in answer.text


def test_a_pickle_of_many_values_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(pickles, "MOST_MEMORY", 100_000_000)
    path = tmp_path / "many.pickle"
    path.write_bytes(b"\x80\x04(" + b"}" * 2_000_000 + b"l.")
    answer = dpplan("check", path)
    refused(answer, "LOG")
    assert "max_entries" in answer.stderr


def test_the_next_run_is_another_layout_that_narrows_the_error(tmp_path: Path) -> None:
    seconds = float(chosen(read_options(_given())).time.seconds[0])
    path, table = tmp_path / "a.log", tmp_path / "runs.csv"
    path.write_text(samples.megatron(seconds * 1.05), encoding="utf-8")
    request = [path, *RECIPE, "--save", tmp_path / "1.toml", "--append", table]
    first = dpplan("check", *request, "--json").json()["learned"]["next_run"]
    assert first["layout"] != dpplan("estimate", *RAN, "--json").json()["layout"]
    assert 0 < first["error_after"] < first["error_now"]
    assert first["fits"]
    # it is a command, whose facts need no option again
    words = shlex.split(first["command"])[2:]
    path.write_text(samples.megatron(first["step_seconds"] * 1.05), encoding="utf-8")
    dpplan("check", path, *words, "--append", table)
    second = dpplan("check", table, "--save", tmp_path / "2.toml", "--json").json()["learned"]
    assert second["runs"] == 2
    assert second["next_run"]["layout"] != first["layout"]
    assert second["next_run"]["error_now"] < first["error_now"]


def test_a_file_that_is_no_log_is_left_out_beside_one_that_is(tmp_path: Path) -> None:
    log, other = samples.write(tmp_path, "nanogpt.log"), tmp_path / "README.md"
    other.write_text("nothing of a run\n", encoding="utf-8")
    answer = dpplan("check", log, other, "--json").json()
    assert [file["name"] for file in answer["files"]] == ["nanogpt.log"]
    assert answer["notes"] == ["README.md is not used: no log that is known"]
    refused(dpplan("check", other), "LOG")
    refused(dpplan("check", other, other), "LOG")
