"""Every option that one verb alone takes changes what it prints or writes; those of a request are
in test_every_option."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import pytest
from command import ROOT, Answer, dpplan

from planner.cli.group import COMMANDS, body_of
from planner.cli.made import options_of

NOTHING = str(ROOT / "tests" / "data" / "nothing.toml")  # a scenario without options
RUNS = str(ROOT / "docs" / "examples" / "runs.csv")
CALIBRATION = str(ROOT / "docs" / "examples" / "calibration.toml")

LOG = str(ROOT / "tests" / "data" / "train.log")

NODE = "--gpu h100 --gpus-per-node 4"
PLAN = "--model gpt2 --stack megatron-core --zero 1 --seq-len 512 --micro-batch 1 --recompute none"
FIXED = f"{PLAN} {NODE} --gpus 8 --global-batch 16 --tp 1 --pp 2 --schedule 1f1b --tokens 1B"
SWEPT = f"compare {PLAN} {NODE} --global-batch 64 --tokens 1B --jobs 1"
GROWN = f"batch {PLAN} {NODE} --global-batch 64 --tokens 1B --jobs 1 --sweep gpus=4,8"
BOUGHT = f"recommend cluster {PLAN} --gpu h100 --global-batch 64 --tokens 1B --jobs 1 --max-gpus 8"
SIZED = f"recommend model {PLAN} {NODE} --gpus 4 --global-batch 16 --tokens 1B --jobs 1"
TIMED = "schedule --schedule 1f1b --pp 4 --microbatches 8"
WAYS = "strategies --model gpt2 --gpu a100 --gpus 16"
TUNED = f"tune {PLAN} {NODE} --gpus 4 --method full --jobs 1"
RECIPE = "read tests/data/recipes/megatron.yaml --gpu a100 --gpus 8 --advice 0"
RL = (
    "rl --model qwen2.5-0.5b --stack megatron-core --gpu h100 --gpus 4 --tp 1 --micro-batch 1"
    " --recompute none --prompts 64 --generation-gpus 2"
)
READ = "input --sample-bytes 1MB --decoded-bytes 4MB --data-storage nfs --gpus 16"
WRITTEN = f"export --to megatron {FIXED}".replace("--stack megatron-core ", "")
SUITE = "validate --suite small-runs"

# option -> (a command, the same with the option); {file} is a file to be written or read
CASES: dict[str, tuple[str, str]] = {
    "estimate part": (f"estimate {FIXED} --explain", f"estimate {FIXED} --explain memory"),
    "estimate full": (f"estimate {FIXED}", f"estimate {FIXED} --full"),
    "search full": (f"search {FIXED}", f"search {FIXED} --full"),
    "estimate explain": (f"estimate {FIXED}", f"estimate {FIXED} --explain"),
    "estimate inference": (f"estimate {FIXED}", f"estimate {FIXED} --inference"),
    "estimate trace": (f"estimate {FIXED}", f"estimate {FIXED} --trace {{file}}.json"),
    "estimate html": (f"estimate {FIXED}", f"estimate {FIXED} --html {{file}}.html"),
    "search csv": (f"search {FIXED}", f"search {FIXED} --csv {{file}}.csv"),
    "search html": (f"search {FIXED}", f"search {FIXED} --html {{file}}.html"),
    "recommend question": (
        BOUGHT,
        BOUGHT.replace("cluster", "bandwidth").replace("--max-gpus 8", "--gpus 4"),
    ),
    "recommend days": (BOUGHT, f"{BOUGHT} --days 0.001"),
    "recommend budget": (BOUGHT, f"{BOUGHT} --budget 1"),
    "recommend max_gpus": (BOUGHT, BOUGHT.replace("gpus 8", "gpus 16")),
    "recommend power_kw": (BOUGHT, f"{BOUGHT} --power-kw 0.5"),
    "recommend sure": (BOUGHT, f"{BOUGHT} --days 9 --sure"),
    "recommend goal": (BOUGHT, f"{BOUGHT} --goal fastest"),
    "recommend model_out": (SIZED, f"{SIZED} --model-out {{file}}.toml"),
    "compare files": (f"{SWEPT} {NOTHING} {NOTHING}", f"{SWEPT} {NOTHING} {NOTHING} {NOTHING}"),
    "compare vary": (f"{SWEPT} --sweep gpus=4,8", f"{SWEPT} --sweep gpus=4,8 --vary pp=1,2"),
    "compare sweep": (f"{SWEPT} --vary pp=1,2", f"{SWEPT} --vary pp=1,2 --sweep gpus=4,8"),
    "compare at": (
        f"{SWEPT} --gpus 8 --vary gpu=h100,a100".replace("--gpu h100", ""),
        f"{SWEPT} --gpus 8 --vary gpu=h100,a100 --at power".replace("--gpu h100", ""),
    ),
    "compare scaling": (f"{SWEPT} --sweep gpus=4,8", f"{SWEPT} --sweep gpus=4,8 --scaling weak"),
    "compare stop_below": (
        f"{SWEPT} --sweep gpus=4,8,16",
        f"{SWEPT} --sweep gpus=4,8,16 --stop-below 0.999",
    ),
    "compare csv": (f"{SWEPT} --sweep gpus=4,8", f"{SWEPT} --sweep gpus=4,8 --csv {{file}}.csv"),
    "compare html": (f"{SWEPT} --sweep gpus=4,8", f"{SWEPT} --sweep gpus=4,8 --html {{file}}.html"),
    "batch sweep": (GROWN, GROWN.replace("4,8", "4,16")),
    "batch critical_batch": (GROWN, f"{GROWN} --critical-batch 1M"),
    "batch target_loss": (GROWN, f"{GROWN} --target-loss 2.5"),
    "batch gradient_norm": (GROWN, f"{GROWN} --gradient-norm 8:1.5 --gradient-norm 64:1"),
    "batch reference_batch": (GROWN, f"{GROWN} --reference-batch 128"),
    "batch learning_rate": (GROWN, f"{GROWN} --learning-rate 3e-4"),
    "batch warmup": (f"{GROWN} --learning-rate 3e-4", f"{GROWN} --learning-rate 3e-4 --warmup 8M"),
    "batch stop_below": (GROWN, f"{GROWN} --stop-below 0.999"),
    "batch csv": (GROWN, f"{GROWN} --csv {{file}}.csv"),
    "batch html": (GROWN, f"{GROWN} --html {{file}}.html"),
    "schedule microbatches": (TIMED, TIMED.replace(" 8", " 6")),
    "schedule forward_s": (TIMED, f"{TIMED} --forward-s 1.5"),
    "schedule backward_s": (TIMED, f"{TIMED} --backward-s 3"),
    "schedule weight_s": (
        TIMED.replace("1f1b", "zb-h1"),
        TIMED.replace("1f1b", "zb-h1") + " --weight-s 0.5",
    ),
    "schedule p2p_s": (TIMED, f"{TIMED} --p2p-s 0.1"),
    "schedule optimizer_s": (TIMED, f"{TIMED} --optimizer-s 1"),
    "schedule activation_bytes": (TIMED, f"{TIMED} --activation-bytes 1GiB"),
    "schedule straggler": (TIMED, f"{TIMED} --straggler 1:1.5"),
    "schedule blocking_sends": (f"{TIMED} --p2p-s 0.1", f"{TIMED} --p2p-s 0.1 --blocking-sends"),
    "schedule file": (
        "schedule --schedule gpipe --pp 2 --microbatches 3",
        "schedule --file {rows}",
    ),
    "schedule sends": (TIMED, f"{TIMED} --sends"),
    "schedule trace": (TIMED, f"{TIMED} --trace {{file}}.json"),
    "schedule html": (TIMED, f"{TIMED} --html {{file}}.html"),
    "tune method": (TUNED, TUNED.replace("full", "full-sgd")),
    "tune rank": (TUNED.replace("full", "lora"), TUNED.replace("full", "lora") + " --rank 64"),
    "tune examples": (TUNED, f"{TUNED} --examples 52k"),
    "tune epochs": (TUNED, f"{TUNED} --epochs 3"),
    "tune length_max": (
        f"{TUNED} --length-mean 300",
        f"{TUNED} --length-mean 300 --length-max 600",
    ),
    "tune largest": (TUNED, f"{TUNED} --largest"),
    "tune csv": (TUNED, f"{TUNED} --csv {{file}}.csv"),
    "read files": (RECIPE, RECIPE.replace("megatron.yaml", "megatron.sh")),
    "read full": (RECIPE, f"{RECIPE} --full"),
    "learn lesson": ("learn zero", "learn memory"),
    "learn set": ("learn zero", "learn zero --set ranks=64"),
    "strategies strategy": (WAYS, f"{WAYS} --strategy ddp"),
    "strategies explain": (f"{WAYS} --strategy ddp", f"{WAYS} --strategy ddp --explain"),
    "strategies local_steps": (WAYS, f"{WAYS} --local-steps 16"),
    "strategies rank": (WAYS, f"{WAYS} --rank 8"),
    "strategies density": (WAYS, f"{WAYS} --density 0.01"),
    "strategies servers": (WAYS, f"{WAYS} --servers 4"),
    "strategies slack": (f"{WAYS} --slow-hosts 5%", f"{WAYS} --slow-hosts 5% --slack 8"),
    "strategies backups": (f"{WAYS} --slow-hosts 5%", f"{WAYS} --slow-hosts 5% --backups 2"),
    "strategies bucket": (WAYS, f"{WAYS} --bucket 100MiB"),
    "strategies steps_factor": (
        f"{WAYS} --strategy diloco",
        f"{WAYS} --strategy diloco --steps-factor 1.2",
    ),
    "export to": (WRITTEN, WRITTEN.replace("megatron", "nanotron")),
    "export out": (WRITTEN, f"{WRITTEN} --out {{file}}.d"),
    "rl explain": (RL, f"{RL} --explain"),
    "rl algorithm": (RL, f"{RL} --algorithm ppo"),
    "rl framework": (RL, f"{RL} --framework nemo-rl"),
    "rl prompts": (RL, RL.replace("--prompts 64", "--prompts 128")),
    "rl responses": (RL, f"{RL} --responses 16"),
    "rl prompt_length": (RL, f"{RL} --prompt-length 1000"),
    "rl response_length": (RL, f"{RL} --response-length 2000"),
    "rl response_max": (RL, f"{RL} --response-max 8k"),
    "rl response_sigma": (RL, f"{RL} --response-sigma 1.2"),
    "rl update_batch": (RL, f"{RL} --update-batch 256"),
    "rl updates": (RL, f"{RL} --updates 2"),
    "rl kept": (RL, f"{RL} --kept 60%"),
    "rl reference": (RL, f"{RL} --reference yes"),
    "rl reward_time": (RL, f"{RL} --reward-time 5s"),
    "rl ahead": (RL, f"{RL} --ahead 1"),
    "rl generation_gpus": (RL, RL.replace("--generation-gpus 2", "--generation-gpus 3")),
    "rl generation_tp": (RL, f"{RL} --generation-tp 2"),
    "rl generation_precision": (RL, f"{RL} --generation-precision fp8"),
    "rl generation_memory": (RL, f"{RL} --generation-memory 40%"),
    "allreduce bytes": (f"allreduce {NODE} --gpus 8", f"allreduce {NODE} --gpus 8 --bytes 1MiB"),
    "allreduce servers": (f"allreduce {NODE} --gpus 8", f"allreduce {NODE} --gpus 8 --servers 4"),
    "batchnorm channels": (
        f"batchnorm {NODE} --gpus 8",
        f"batchnorm {NODE} --gpus 8 --channels 64,256x3",
    ),
    "input samples_per_s": (f"{READ} --samples-per-s 1000", f"{READ} --samples-per-s 2000"),
    "input batch": (f"{READ} --samples-per-s 1000", f"{READ} --samples-per-s 1000 --batch 8"),
    "input gpus": (
        f"{READ} --samples-per-s 1000",
        f"{READ} --samples-per-s 1000".replace("--gpus 16", "--gpus 8"),
    ),
    "input gpus_per_node": (
        f"{READ} --samples-per-s 1000",
        f"{READ} --samples-per-s 1000 --gpus-per-node 4",
    ),
    "list kind": ("list gpus", "list models"),
    "check logs": (f"check {LOG}", f"check {LOG} {RUNS}"),
    "check save": (f"check {LOG} {FIXED}", f"check {LOG} {FIXED} --save {{file}}.toml"),
    "read append": (RECIPE, f"{RECIPE} --append {{file}}.csv"),
    "check append": (f"check {LOG} {FIXED}", f"check {LOG} {FIXED} --append {{file}}.csv"),
    "validate runs": (SUITE, f"validate {RUNS}"),
    "validate suite": (SUITE, "validate --suite single-papers"),
    "validate calibration": (
        "validate --suite torchtune",
        f"validate --suite torchtune --calibration {CALIBRATION}",
    ),
    "validate coverage": (SUITE, f"{SUITE} --coverage"),
    "validate csv": (SUITE, f"{SUITE} --csv {{file}}.csv"),
    "validate plot": (SUITE, f"{SUITE} --plot {{file}}.html"),
}
# they change how an answer is made or printed on a terminal, not what it is
SAME = {
    "plain": "what is piped is plain",
    **dict.fromkeys(("jobs", "dask"), "who does the work changes the time alone"),
}
PRINTED = (
    "estimate inference",
    "estimate full",
    "search full",
    "read full",
)  # more text, the same document
MEASURED = set(options_of("calibrate", body_of("calibrate"))[1]) - {"json", "plain"}
# minutes of fits, measuring and serving: tests of their own
ELSEWHERE = {
    "validate ablations": "test_validate_ranking",
    "validate cross_validate": "test_crossval",
    "validate residuals": "test_crossval",
    "validate memory_residuals": "test_fit_chance",
    **dict.fromkeys(("export answer", "export rank"), "test_export"),
    **dict.fromkeys((f"calibrate {name}" for name in MEASURED), "test_calibrate"),
    **{f"serve {name}": "test_web_guard" for name in ("host", "port", "allow_host", "token_file")},
}


def options() -> list[str]:
    """ "VERB OPTION" of every option that belongs to one verb alone."""
    return [
        f"{verb} {name}"
        for verb in COMMANDS
        for name in options_of(verb, body_of(verb))[1]
        if name not in SAME and name != "json"
    ]


def test_every_own_option_has_a_case() -> None:
    assert set(options()) == set(CASES) | set(ELSEWHERE)
    for file in ELSEWHERE.values():
        assert (ROOT / "tests" / f"{file}.py").exists()


@cache
def before(words: tuple[str, ...]) -> Answer:
    """What a command says that several options are added to."""
    return dpplan(*words)


@pytest.mark.parametrize("option", CASES)
def test_an_own_option_counts(option: str, tmp_path: Path) -> None:
    rows = tmp_path / "rows.csv"
    rows.write_text("0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n", encoding="utf-8")
    without, given = (words.format(file=tmp_path / "out", rows=rows) for words in CASES[option])
    output = [] if option in PRINTED else ["--json"]
    first, second = before((*without.split(), *output)), dpplan(*given.split(), *output)
    for answer in (first, second):
        assert answer.status in (0, 3), answer.stderr
    files = [path for path in tmp_path.iterdir() if path.stem == "out"]
    if "{file}" in CASES[option][1]:
        assert [path.stat().st_size > 0 for path in files] == [True]
    else:
        assert second.stdout != first.stdout


@pytest.mark.parametrize("verb", COMMANDS)
def test_json_is_one_document(verb: str) -> None:
    """--json and --plain belong to every verb that answers; what is piped is plain already."""
    own = options_of(verb, body_of(verb))[1]
    if "json" not in own or verb == "calibrate":
        return
    line = next(given for option, (given, _) in CASES.items() if option.startswith(f"{verb} "))
    words = line.split()
    text, plain, document = (dpplan(*words, *more) for more in ([], ["--plain"], ["--json"]))
    assert json.loads(document.stdout) is not None
    assert document.stdout != text.stdout
    if "evaluated" not in document.stdout:  # prints how long a search took
        assert plain.stdout == text.stdout
