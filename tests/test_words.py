"""Words that people of other tools type: what they mean here, or why they mean nothing."""

from __future__ import annotations

from typing import Any

import pytest
from command import dpplan, refused

from planner import api
from planner.inputs import catalog
from planner.inputs.accumulation import accumulated
from planner.inputs.model import model_spec
from planner.inputs.options import read_options, readings
from planner.specs.base import PlanError
from planner.specs.options import Options, aliases, foreign, rows
from planner.specs.options.checked import from_text, read
from planner.specs.options.recommend import Limits
from planner.specs.options.words import meaning, plain


@pytest.mark.parametrize(
    ("name", "texts", "value"),
    [
        ("seq_len", ["128k", "128K", "128Ki", "131072", "131,072", "128k tokens"], 131072),
        ("seq_len", ["1M", "1m"], 2**20),
        ("optimizer", ["adamw", "AdamW", "ADAM", "fused_adam", "adamw_torch"], "adam"),
        ("optimizer", ["adamw_bnb_8bit", "adam-8bit"], "adam8bit"),
        ("precision", ["bfloat16", "BF16", "bf16-mixed"], "bf16"),
        ("precision", ["half", "float16"], "fp16"),
        ("precision", ["float8", "FP8"], "fp8"),
        ("precision", ["MXFP8", "fp8-mx", "fp8_mx"], "mxfp8"),
        ("precision", ["fp8_cs", "tensorwise", "FP8-Tensorwise"], "fp8-tensorwise"),
        ("precision", ["fp4", "NVFP4"], "nvfp4"),
        ("recompute", ["true", "Yes", "full", "FULL", "gradient_checkpointing"], "full"),
        ("recompute", ["no", "None", "false"], "none"),
        ("recompute", ["Block:4"], "block:4"),
        ("zero", ["3", "stage3", "ZeRO-3", "zero3", "FSDP", "full_shard"], 3),
        ("zero", ["shard_grad_op", "stage 2"], 2),
        ("schedule", ["1F1B", "OneFOneB".replace("FOne", "-F-One-")], "1f1b"),
        ("schedule", ["interleaved-1f1b", "Interleaved1F1B"], "interleaved"),
        ("schedule", ["ZBVZeroBubble", "zbv", "ZB-V"], "zb-v"),
        ("offload", ["param", "parameters"], "params"),
        ("placement", ["TP-CP-DP-PP"], "tp-cp-dp-pp"),
    ],
)
def test_words_and_their_values(name: str, texts: list[str], value: Any) -> None:
    for text in texts:
        assert getattr(read_options({"model": "gpt2", name: text}), name) == value, text


def test_limits_of_a_run_in_the_units_of_calendars_and_budgets() -> None:
    recipe = read(Limits, {"days": "6 weeks", "budget": "$1.5M", "power_kw": "2 MW"})
    assert (recipe.days, recipe.budget, recipe.power_kw) == (42, 1.5e6, 2000)


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("gpus", "16k", "16,000 or 16,384"),
        ("global_batch", "4M", "4,000,000 or 4,194,304"),
        ("seq_len", "1.0001k", "whole number"),
        ("seq_len", "2T", "tokens such as 4096, 32k or 1M"),
        ("precision", "int4", "--base-precision nf4"),
        ("precision", "bf61", "did you mean bf16"),
        ("optimizer", "adagrad", "as lion does"),
        ("optimizer", "adawm", "did you mean adam or adamw"),
        ("schedule", "zero-bubble", "zb-h1, zb-h2"),
        ("recompute", "uniform", "group:N"),
        ("zero", "hsdp", "--shard-group"),
        ("zero", "stage7", "whole number"),
        ("offload", "cpu", "optimizer, params or activations"),
    ],
)
def test_words_that_are_refused_say_what_to_write(name: str, text: str, sentence: str) -> None:
    row = rows(Options)[name]
    with pytest.raises(ValueError, match=sentence):
        from_text(row, text) if row.says.read is None else meaning(row, text)


@pytest.mark.parametrize("row", rows(Options).values(), ids=lambda row: row.name)
def test_other_words_are_in_plain_spelling_and_mean_one_thing(row: Any) -> None:
    words = [aliase.word for aliase in row.says.aliases]
    assert len(set(words)) == len(words)
    assert [plain(word) for word in words] == words
    for aliase in row.says.aliases:
        if aliase.value is None:
            assert aliase.note
        else:
            assert meaning(row, str(aliase.value)) in (aliase.value, str(aliase.value))
            assert aliase.word in row.also


def test_an_answer_says_how_it_read_what_might_mean_something_else() -> None:
    given = {"model": "gpt2", "seq_len": "128k", "optimizer": "adamw", "precision": "BF16"}
    options = read_options(given)
    assert readings(options) == [
        "--seq-len 128k is 131,072 tokens",
        "--optimizer adamw is read as adam: decoupled weight decay takes no memory and no time of"
        " its own",
    ]
    assert readings(options.changed(seq_len=512, optimizer="sgd")) == [], "what-ifs change it"
    assert options == read_options({**given, "seq_len": 131072, "optimizer": "adam"})
    request = ("--model", "gpt2", "--gpu", "h100", "--precision", "fp8-cs", "--optimizer", "AdamW")
    screen = " ".join(dpplan("estimate", *request).stdout.split())
    assert "--optimizer AdamW is read as adam: decoupled weight decay takes no memory" in screen
    assert "--precision fp8-cs is read as fp8-tensorwise" in screen


@pytest.mark.parametrize(
    ("typed", "text"),
    [
        ("--tensor-model-parallel-size 8", "--tp"),
        ("--num_gpus 8", "--gpus"),
        ("--gradient_accumulation_steps 8", "--grad-accum"),
        ("--per_device_train_batch_size 4", "--micro-batch"),
        ("--batch-size 4", "--global-batch"),
        ("--bf16", "--precision bf16"),
        ("--seq-length 4096", "--seq-len"),
        ("--lora-r 8", "--lora RANK"),
        ("--lr 1e-4", "neither memory nor time"),
        ("--num-layers 32", "model TOML"),
    ],
)
def test_options_of_other_tools_are_named_as_they_are_here(typed: str, text: str) -> None:
    answer = dpplan("estimate", "--model", "gpt2", "--gpu", "a100", *typed.split())
    refused(answer, typed.split()[0], text)


def test_foreign_options_are_foreign_and_name_options_that_exist() -> None:
    ours = {row.flag for row in rows(Options).values()}
    known = {*ours, "--json", "--explain", "--inference", "--days", "--budget", "--goal"}
    known |= {"--no-flash-attention", "--learning-rate"}
    for name in foreign.names():
        assert f"--{name}" not in ours
        named = {word.strip(",.:;()`") for word in foreign.answer(name).split()}
        assert {word for word in named if word.startswith("--")} <= known, name
    with pytest.raises(PlanError, match="it is --tp here"):
        read_options({"model": "gpt2", "tensor_parallel_size": 8})


def test_nodes_are_gpus_of_whole_nodes_and_agree_with_gpus() -> None:
    options = read_options({"model": "gpt2", "gpu": "h100", "nodes": 4})
    assert (options.gpus, options.nodes) == (32, None)
    assert readings(options) == ["--nodes 4 are 32 GPUs, 8 per node"]
    assert read_options({"model": "gpt2", "gpu": "h100", "nodes": 4, "gpus": 32}) == options
    ours = read_options({"model": "gpt2", "gpu": "h100", "nodes": 4, "gpus_per_node": 2})
    assert ours.gpus == 8
    with pytest.raises(PlanError, match="are 32 GPUs, but --gpus is 16"):
        read_options({"model": "gpt2", "gpu": "h100", "nodes": 4, "gpus": 16})
    with pytest.raises(PlanError, match="--gpu"):
        read_options({"model": "gpt2", "nodes": 4})


def test_accumulation_leaves_the_batches_that_replicas_and_micro_batches_make() -> None:
    def batches(**given: Any) -> list[int]:
        options = Options(**{"model": "gpt2", "gpus": 16, "grad_accum": 8, **given})
        return accumulated(options, 8, model_spec("gpt2")[0], 1024)

    assert batches(micro_batch=2, dp=4) == [64]
    assert batches(micro_batch=2, tp=2, pp=2, cp=1) == [64]
    assert batches(micro_batch=2, tp=2) == [16, 32, 64, 128], "8 replicas, and groups of 2, 4, 8"
    assert batches() == [128, 256, 512], "up to the batch that GPT-2 was trained with"


@pytest.mark.parametrize(
    "beside",
    [{"micro_batch": 2}, {}, {"global_batch": 64}, {"global_batch": 64, "micro_batch": 2, "dp": 4}],
)
def test_an_answer_accumulates_as_often_as_asked(beside: dict[str, int]) -> None:
    given = {"model": "gpt2", "gpu": "a100", "gpus": 4, "seq_len": 512, "stack": "megatron-core"}
    estimate = api.estimate(read_options({**given, **beside, "grad_accum": 8, "advice": 0})).layout
    assert estimate.global_batch == 8 * estimate.micro_batch * estimate.dp
    for name, value in beside.items():
        assert getattr(estimate, name) == value


@pytest.mark.parametrize("kind", aliases.kinds())
def test_a_word_of_a_program_means_one_value(kind: str) -> None:
    table = aliases.kinds()[kind]
    for program in {name for row in table for name in row} - {"is", "refused", "note"}:
        words = [word for row in table for word in row.get(program, ())]
        # torchtitan's flavors of Llama 3 and 3.1 have one name, under which the first is read
        assert len(words) == len(set(words)) or (kind, program) == ("models", "torchtitan")
    for row in table:
        assert ("is" in row) != ("refused" in row), row
        assert any(name not in ("is", "refused", "note") for name in row), row


def test_every_value_that_words_mean_exists() -> None:
    kinds = {row.says.aliases: row for row in rows(Options).values() if row.says.aliases}
    for kind in aliases.kinds():
        option = kinds.get(aliases.aliases(kind))
        for row in aliases.kinds()[kind] if option else ():
            if "is" in row and option:
                assert from_text(option, str(row["is"])) == row["is"], (kind, row)
    for row in aliases.kinds()["models"]:
        assert "/" in row["is"] or catalog.find("models", row["is"]), row
