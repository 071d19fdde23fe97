"""Defaults of readers against the argument classes of the frameworks: of transformers as installed,
of others as read in the source that tests/data/reader_defaults.json names."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from planner.formats import axolotl, hf_trainer, recipe
from planner.formats.plan import planned

STATED = json.loads(Path("tests/data/reader_defaults.json").read_text(encoding="utf-8"))
MODEL = "Qwen/Qwen2.5-7B"


def bare(text: str, name: str = "a.sh") -> dict[str, Any]:
    """The request of a file that says next to nothing."""
    return dict(planned({name: text}, {"gpu": "a100"}).options)


def excess_of(text: str, name: str = "a.sh") -> Any:
    """The option --excess-length of a recipe read beside a length."""
    given = {"gpu": "a100", "length_mean": 900}
    return planned({name: text}, given).options.get("excess_length")


def of_rl(text: str, name: str = "a.sh") -> dict[str, Any]:
    return dict(recipe.read({name: text}).by_verb["rl"])


def test_transformers_has_the_defaults_of_its_reader() -> None:
    module = pytest.importorskip("transformers")
    fields = {field.name: field.default for field in dataclasses.fields(module.TrainingArguments)}
    compared = [row for row in hf_trainer.FORMAT.table if isinstance(row.default, bool | int | str)]
    assert len(compared) >= 4
    for row in compared:
        default = getattr(fields[row.name], "value", fields[row.name])
        default = bool(default) if isinstance(row.default, bool) else default  # None is off
        assert default == row.default, row.name


@pytest.mark.parametrize("name", ["SFTConfig", "DPOConfig"])
def test_trl(name: str) -> None:
    known = STATED["trl"][name]
    word = name.removesuffix("Config")
    options = bare(f'trl {word.lower()} --model_name_or_path {MODEL} --dataset_name "x"')
    assert options["seq_len"] == known["max_length"]
    assert (options["recompute"] == "full") == known["gradient_checkpointing"]
    rank = STATED["trl"]["ModelConfig"]["lora_r"]
    assert bare(f"trl {word.lower()} --model_name_or_path {MODEL} --use_peft")["lora"] == rank


@pytest.mark.parametrize("algorithm", ["grpo", "rloo"])
def test_trainers_of_trl_that_generate(algorithm: str) -> None:
    known = STATED["trl"][f"{algorithm.upper()}Config"]
    step = of_rl(f"trl {algorithm} --model_name_or_path {MODEL} --reward_funcs x")
    assert step["algorithm"] == algorithm
    assert step["responses"] == known["num_generations"]
    assert step["response_max"] == known["max_completion_length"]
    assert step["updates"] == known["num_iterations"]
    assert (step["generation_engine"] == "vllm") == known["use_vllm"]
    assert (step["reference"] == "yes") == (known["beta"] > 0)


def test_ms_swift() -> None:
    known = STATED["ms-swift"]["SftArguments"]
    options = bare(f"swift sft --model {MODEL} --max_length 2048")
    assert options["micro_batch"] == known["per_device_train_batch_size"]
    assert (options["recompute"] == "full") == known["gradient_checkpointing"]
    assert options["lora"] == known["lora_rank"]
    assert known["truncation_strategy"] == "delete"
    assert excess_of(f"swift sft --model {MODEL} --max_length 2048") == "drop"
    assert excess_of(f"megatron sft --model {MODEL} --max_length 2048") == "drop"
    preferences = bare(f"swift rlhf --model {MODEL} --max_length 2048")
    assert preferences["task"] == STATED["ms-swift"]["RLHFArguments"]["rlhf_type"]


def test_megatron_of_ms_swift() -> None:
    known = STATED["ms-swift"]["MegatronArguments"]
    options = bare(f"NPROC_PER_NODE=8 megatron sft --model {MODEL} --max_length 2048")
    assert options["micro_batch"] == known["micro_batch_size"]
    assert options["global_batch"] == known["global_batch_size"]
    assert options["recompute"] == known["recompute_granularity"]
    assert options["tp"] == known["tensor_model_parallel_size"]
    assert options["sequence_parallel"] == known["sequence_parallel"]
    assert (options["zero"] == 1) == known["use_distributed_optimizer"]
    assert ("lora" in options) == (known["tuner_type"] == "lora")
    adapters = f"NPROC_PER_NODE=8 megatron sft --tuner_type lora --model {MODEL} --max_length 2048"
    assert bare(adapters)["lora"] == known["lora_rank"]


def test_preferences_of_megatron_count_pairs() -> None:
    """Chosen and rejected answers of a sample are two sequences of a micro-batch and of a step."""
    pairs = bare(f"NPROC_PER_NODE=8 megatron rlhf --model {MODEL} --max_length 2048")
    known = STATED["ms-swift"]["MegatronArguments"]
    assert pairs["task"] == STATED["ms-swift"]["MegatronRLHFArguments"]["rlhf_type"]
    assert pairs["micro_batch"] == 2 * known["micro_batch_size"]
    assert pairs["global_batch"] == 2 * known["global_batch_size"]


def test_llama_factory() -> None:
    known = STATED["llama-factory"]["Arguments"]
    lines = (
        "stage: sft",
        "do_train: true",
        f"model_name_or_path: {MODEL}",
        "finetuning_type: lora",
    )
    text = "\n".join((*lines, "dataset: x", "template: qwen", "bf16: true"))
    options = bare(text, "a.yaml")
    assert options["seq_len"] == known["cutoff_len"]
    assert (options["recompute"] == "none") == known["disable_gradient_checkpointing"]
    assert options["lora"] == known["lora_rank"]


def test_axolotl() -> None:
    known = STATED["axolotl"]["AxolotlInputConfig"]
    table = {row.name: row.default for row in axolotl.FORMAT.table}
    names = ("micro_batch_size", "gradient_accumulation_steps", "sequence_len")
    for name in (*names, "excess_length_strategy"):
        assert table[name] == known[name]


_WORDS_OF_SWIFT = (("delete", "drop"), ("left", "truncate"), ("right", "truncate"))


def test_what_becomes_of_longer_documents() -> None:
    of_swift = f"swift sft --model {MODEL} --max_length 2048 --truncation_strategy"
    for word, ours in (*_WORDS_OF_SWIFT, ("split", "split")):
        assert excess_of(f"{of_swift} {word}") == ours
    of_axolotl = f"base_model: {MODEL}\nsequence_len: 2048\n"
    for word in ("drop", "truncate"):
        assert excess_of(f"{of_axolotl}excess_length_strategy: {word}", "a.yaml") == word
    assert excess_of(f"{of_axolotl}excess_length_strategy: raise", "a.yaml") is None
    assert excess_of(of_axolotl, "a.yaml") == "drop"
    of_trl = f"trl sft --model_name_or_path {MODEL} --dataset_name x"
    assert excess_of(of_trl) is None  # it truncates
    alone = planned({"a.yaml": of_axolotl}, {"gpu": "a100", "gpus": 1})
    assert alone.options.get("excess_length") is None  # every sequence is full


@pytest.mark.parametrize("program", ["sft", "dpo", "rm", "ppo_ray"])
def test_openrlhf(program: str) -> None:
    known = STATED["openrlhf"][program]
    pairs = 2 if program in ("dpo", "rm") else 1
    model = "actor.model_name_or_path" if program == "ppo_ray" else "model.model_name_or_path"
    text = f"python -m openrlhf.cli.train_{program} --{model} {MODEL}"
    options = bare(text)
    assert options["micro_batch"] == pairs * known["train.micro_batch_size"]
    assert options["zero"] == known["ds.zero_stage"]
    assert options["seq_len"] == known["data.max_len"]
    assert (options["recompute"] == "full") == known["gradient_checkpointing"]
    assert "lora" not in options
    if program == "ppo_ray":
        step = of_rl(text)
        assert step["prompts"] == known["rollout.batch_size"]
        assert step["responses"] == known["rollout.n_samples_per_prompt"]
