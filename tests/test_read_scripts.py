"""Arguments of transformers' Trainer, TRL and Unsloth in commands, Python scripts and notebooks."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from command import dpplan

from planner.formats import recipe as formats
from planner.specs.base import PlanError

QLORA = """
import torch
from peft import LoraConfig, prepare_model_for_kbit_training
from transformers import AutoModelForCausalLM, AutoTokenizer, BitsAndBytesConfig
from trl import SFTConfig, SFTTrainer

model_id = "meta-llama/Llama-3.1-8B"
length = 4 * 512
bnb = BitsAndBytesConfig(
    load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True,
    bnb_4bit_compute_dtype=torch.bfloat16)
model = AutoModelForCausalLM.from_pretrained(
    model_id, quantization_config=bnb, attn_implementation="flash_attention_2")
model = prepare_model_for_kbit_training(model)
tokenizer = AutoTokenizer.from_pretrained("another/tokenizer")
lora = LoraConfig(r=8, lora_alpha=16, lora_dropout=0.05, target_modules=["q_proj", "v_proj"])
args = SFTConfig(
    output_dir="/home/someone/out", max_length=length, packing=True, bf16=True,
    per_device_train_batch_size=2, gradient_accumulation_steps=4, optim="paged_adamw_8bit",
    hub_token="hf_0123456789abcdef0123")
SFTTrainer(model=model, args=args, train_dataset=data, peft_config=lora).train()
"""
UNSLOTH = """
from unsloth import FastLanguageModel, is_bfloat16_supported
model, tokenizer = FastLanguageModel.from_pretrained(
    model_name="unsloth/Meta-Llama-3.1-8B-bnb-4bit", max_seq_length=2048, load_in_4bit=True)
model = FastLanguageModel.get_peft_model(
    model, r=16, lora_alpha=16, use_gradient_checkpointing="unsloth", random_state=3407)
trainer = SFTTrainer(
    model=model, train_dataset=dataset, max_seq_length=2048, dataset_text_field="text",
    args=TrainingArguments(
        per_device_train_batch_size=2, gradient_accumulation_steps=4, max_steps=60,
        fp16=not is_bfloat16_supported(), bf16=is_bfloat16_supported(), optim="adamw_8bit"))
"""
ALPACA = """torchrun --nproc_per_node=4 train.py --model_name_or_path huggyllama/llama-7b \\
  --bf16 True --per_device_train_batch_size 4 --gradient_accumulation_steps 8 \\
  --fsdp "full_shard auto_wrap" --fsdp_transformer_layer_cls_to_wrap LlamaDecoderLayer \\
  --tf32 True --model_max_length 512
"""
DPO = """accelerate launch --num_processes 8 trl/scripts/dpo.py \\
  --model_name_or_path Qwen/Qwen3-8B \\
  --per_device_train_batch_size 1 --max_length 1024 --use_peft --lora_r 32 --beta 0.1
"""
FACTORY = """llamafactory-cli train --stage sft --model_name_or_path Qwen/Qwen3-8B \\
  --finetuning_type lora \\
  --cutoff_len 2048 --per_device_train_batch_size 2 --gradient_accumulation_steps 8 \\
  --lora_rank 8 --lora_target all --quantization_bit 4 --bf16 True
"""


def notebook(code: str) -> str:
    cells = [
        {"cell_type": "markdown", "source": "# not Python: ("},
        {"cell_type": "code", "source": ["%%capture\n", "!pip install unsloth\n"]},
        {"cell_type": "code", "source": code.splitlines(keepends=True)},
    ]
    return json.dumps({"nbformat": 4, "cells": cells})


def options_in(name: str, text: str) -> dict[str, Any]:
    """The plan of a script, all of whose arguments are understood."""
    recipe = formats.read({name: text})
    assert [n for n, argument in recipe.arguments.items() if argument.use == "not understood"] == []
    return dict(recipe.options)


ADAPTED = {"lora": 8, "lora_targets": "q_proj+v_proj", "lora_dropout": 0.05}
IN_FOUR_BIT = {"base_precision": "nf4-double", "optimizer": "paged-adam8bit"}


@pytest.mark.parametrize(
    ("name", "text", "kind", "options"),
    [
        (
            "train.py",
            QLORA,
            "trl",
            {"model": "meta-llama/Llama-3.1-8B", "seq_len": 2048, "packing": "packed"}
            | {"base_upcast": "all", "recompute": "full", "micro_batch": 2, "grad_accum": 4}
            | {"attention": "flash2", "precision": "bf16", "stack": "hf-trainer"}
            | ADAPTED
            | IN_FOUR_BIT,
        ),
        (
            "run.py",
            UNSLOTH,
            "trl",
            {"model": "unsloth/Meta-Llama-3.1-8B", "stack": "unsloth", "gpus": 1, "lora": 16}
            | {"lora_targets": "all-linear", "base_precision": "nf4-double", "recompute": "full"}
            | {"offload": "activations", "optimizer": "adam8bit", "seq_len": 2048},
        ),
        (
            "train.sh",
            ALPACA,
            "hf-trainer",
            {"stack": "hf-fsdp", "zero": 3, "gpus": 4, "seq_len": 512, "recompute": "none"}
            | {"micro_batch": 4, "grad_accum": 8, "precision": "bf16"},
        ),
        (
            "dpo.sh",
            DPO,
            "trl",
            {"task": "dpo", "gpus": 8, "lora": 32, "seq_len": 1024, "micro_batch": 2},
        ),
        (
            "lf.sh",
            FACTORY,
            "llama-factory",
            {"lora": 8, "lora_targets": "all-linear", "base_precision": "nf4-double"}
            | {"seq_len": 2048, "micro_batch": 2, "grad_accum": 8},
        ),
    ],
    ids=("python", "unsloth", "command", "objective", "llama-factory"),
)
def test_a_script_says_its_plan(name: str, text: str, kind: str, options: dict[str, Any]) -> None:
    result = options_in(name, text)
    assert {option: result.get(option) for option in options} == options
    assert formats.read({name: text}).kinds[0] == kind


def test_a_notebook_is_the_script_of_its_cells() -> None:
    assert options_in("colab.ipynb", notebook(UNSLOTH)) == options_in("run.py", UNSLOTH)


def test_bf16_where_the_card_has_it_is_left_to_the_card() -> None:
    assert "precision" not in options_in("run.py", UNSLOTH)


def test_the_last_of_two_configurations_counts_and_both_are_listed() -> None:
    again = QLORA + "\nargs = SFTConfig(max_length=512, per_device_train_batch_size=1)\n"
    recipe = formats.read({"train.py": again})
    assert recipe.options["seq_len"] == 512
    first = [
        argument
        for name, argument in recipe.arguments.items()
        if name.startswith("max_length (line")
    ]
    assert [(entry.value, entry.use) for entry in first] == [(2048, "irrelevant")]


def test_adapters_that_a_script_may_train_are_not_passed_over() -> None:
    used = formats.read({"train.sh": ALPACA.rstrip() + " --lora_r 8\n"}).arguments["lora_r"]
    assert (used.use, "--lora" in used.note) == ("not understood", True)


def test_what_a_script_computes_is_not_understood() -> None:
    text = QLORA.replace("max_length=length", "max_length=int(sys.argv[1])")
    used = formats.read({"train.py": text}).arguments["max_length"]
    assert used.use == "not understood"
    assert "int(sys.argv[1])" in used.note


def test_generation_is_another_command() -> None:
    text = "trainer = GRPOTrainer(model='Qwen/Qwen3-8B', args=GRPOConfig(max_completion_length=64))"
    recipe = formats.read({"grpo.py": text})
    assert recipe.arguments["script"].use == "not understood"


def test_a_broken_script_is_one_sentence_with_its_place() -> None:
    with pytest.raises(PlanError, match=r"train.py.*not valid Python \(line 2, column"):
        formats.read({"train.py": "args = SFTConfig(max_length=1)\nthis is ("})


@pytest.mark.parametrize("text", ["-" * 3000 + "1", "(" * 150 + ")" * 150, "[" * 400, "a" * 10**5])
def test_a_script_that_was_written_to_harm_is_one_sentence(text: str) -> None:
    result = f"args = SFTConfig(max_length={text})\n"
    with_it = f"args = SFTConfig(per_device_train_batch_size=1)\nx = {text}\n"
    for script in (result, with_it):
        with suppress(PlanError):  # and no other error
            formats.read({"train.py": script})


def test_nothing_is_run_and_nothing_private_is_printed(tmp_path: Any) -> None:
    path = tmp_path / "train.py"
    path.write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n{QLORA}", encoding="utf-8")
    answer = dpplan("read", path, "--gpu", "rtx4090", "--gpus", 1, "--advice", 0)
    assert answer.status == 0, answer.stderr
    assert "Fits" in answer.stdout or "DOES NOT FIT" in answer.stdout
    for text in ("hf_0123", "/home/someone"):
        assert text not in answer.stdout
    assert not (tmp_path / "ran").exists()
