"""Scripts of programs on top of transformers' Trainer and of forks of Megatron-LM, and what is a
command in a script or a notebook."""

from __future__ import annotations

import json
from typing import Any

import pytest

from planner.formats import dialects
from planner.formats import recipe as formats
from planner.formats.recipe import Recipe
from planner.formats.record import Value


def read(text: str, name: str = "train.sh") -> Recipe:
    return formats.read({name: text})


_TRAINER = "--model_name_or_path meta-llama/Llama-2-7b-hf --bf16 True"
DIALECTS: dict[str, tuple[str, dict[str, Any]]] = {
    "llava": (
        f"deepspeed train.py {_TRAINER} --lora_enable True --mm_projector_type linear",
        {"lora": 64, "micro_batch": 8, "recompute": "none"},
    ),
    "llava, all weights": (
        f"deepspeed train.py {_TRAINER} --mm_projector_type linear",
        {"lora": None},
    ),
    "qlora.py": (
        f"python qlora.py {_TRAINER} --source_max_len 16 --target_max_len 512",
        {
            "lora": 64,
            "base_precision": "nf4-double",
            "optimizer": "paged-adam",
            "micro_batch": 1,
            "grad_accum": 16,
            "recompute": "full",
        },
    ),
    "qlora.py, 8 bit": (
        f"python qlora.py {_TRAINER} --bits 8 --source_max_len 16",
        {"base_precision": "int8"},
    ),
    "LMFlow": (
        f"deepspeed finetune.py {_TRAINER} --use_qlora 1 --disable_group_texts 1",
        {"lora": 8, "base_precision": "nf4"},
    ),
    "DeepSpeed-Chat": (
        "deepspeed main.py --model_name_or_path facebook/opt-1.3b --data_split 2,4,4"
        " --lora_dim 128 --zero_stage 2",
        {"lora": 128, "zero": 2, "micro_batch": 16, "seq_len": 512, "precision": "fp16"},
    ),
    "InternVL": (
        f"torchrun train.py {_TRAINER} --use_llm_lora 16 --grad_checkpoint True"
        " --per_device_train_batch_size 2",
        {"lora": 16, "recompute": "full", "micro_batch": 2},
    ),
}


@pytest.mark.parametrize("name", [*DIALECTS])
def test_programs_on_top_of_the_trainer_have_their_own_words_and_defaults(name: str) -> None:
    command, expected = DIALECTS[name]
    options = read(command).options
    assert {option: options.get(option) for option in expected} == expected


def test_a_default_of_a_program_gives_way_to_what_the_file_says() -> None:
    command = f"python qlora.py {_TRAINER} --source_max_len 16 --optim adafactor"
    recipe = read(command)
    assert recipe.options["optimizer"] == "adafactor"
    assert recipe.arguments["gradient_checkpointing"].use == "implied"
    assert "default of artidoro/qlora" in recipe.arguments["gradient_checkpointing"].note


def test_what_an_argument_of_a_program_says_stands_under_its_own_name() -> None:
    recipe = read(DIALECTS["llava"][0])
    assert recipe.arguments["lora_enable"].use in ("read", "implied")
    assert "use_peft" not in recipe.arguments


def test_arguments_of_dialects_are_of_the_trainer() -> None:
    """A default or an alias that no format reads would say nothing."""
    for command, _ in DIALECTS.values():
        words = command.split()
        names = [word.lstrip("-") for word in words if word.startswith("--")]
        values = {name: Value(True) for name in names}
        program = dialects.program_of(values)
        assert program, command
        assert dialects.added(values), program


@pytest.mark.parametrize(
    ("flag", "heads"),
    [
        ("--num-key-value-heads 4", 4),
        ("--num-attention-heads-kv 8", 8),
        ("--attention-head-type multiquery", 1),
        ("", 16),
    ],
)
def test_key_value_heads_of_forks_of_megatron(flag: str, heads: int) -> None:
    command = (
        "torchrun pretrain_gpt.py --num-layers 10 --hidden-size 2048 --num-attention-heads 16"
        f" --micro-batch-size 1 --seq-length 2048 --vocab-size 49152 {flag}"
    )
    model = json.loads(read(command).options["model"])
    assert model["kv_heads"] == heads


def test_of_several_commands_one_is_read_whole_and_said() -> None:
    """The GPUs of one command are not combined with the arguments of another."""
    size = "--num-layers 8 --hidden-size 512 --num-attention-heads 8 --micro-batch-size 1"
    text = (
        f"torchrun --nproc_per_node=2 pretrain_gpt.py {size}\n"
        f"torchrun --nproc_per_node=8 pretrain_gpt.py {size} --tensor-model-parallel-size 4\n"
    )
    recipe = read(text)
    assert (recipe.options["gpus"], recipe.options["tp"]) == (8, 4)
    assert any("read is the one with most arguments, line 2" in note for note in recipe.notes)
    assert not any("commands of" in note for note in read(text.splitlines()[0]).notes)


@pytest.mark.parametrize(
    "text",
    [
        "read -r -d '' ARGS <<EOF\n--micro-batch-size $N\n--num-layers 8\nEOF\n",
        "ARGS=$(cat <<EOF\n--micro-batch-size $N\n--num-layers 8\nEOF\n)\n",
    ],
)
def test_a_here_document_is_the_value_of_a_variable(text: str) -> None:
    command = "N=4\n" + text + "torchrun pretrain_gpt.py $ARGS --tensor-model-parallel-size 2\n"
    recipe = read(command)
    assert (recipe.options["micro_batch"], recipe.options["tp"]) == (4, 2)


def test_cells_of_a_notebook_in_other_languages_are_left_out() -> None:
    cells = ["%%bash\nif [ -n $X ]; then", "SFTConfig(per_device_train_batch_size=4)"]
    notebook = {"cells": [{"cell_type": "code", "source": [text]} for text in cells]}
    assert read(json.dumps(notebook), "n.ipynb").options["micro_batch"] == 4


def test_outputs_of_a_notebook_do_not_count() -> None:
    picture = {"data": {"image/png": "A" * formats.MOST_BYTES}}
    cell = {"cell_type": "code", "source": "SFTConfig(max_length=512)", "outputs": [picture]}
    assert read(json.dumps({"cells": [cell]}), "n.ipynb").options["seq_len"] == 512


@pytest.mark.parametrize(
    ("script", "lora"), [("train.py rllm/backend=verl", 32), ("-m verl.trainer.main_ppo", 32)]
)
def test_arguments_of_verl_count_whatever_script_is_started(script: str, lora: int) -> None:
    text = f"python {script} actor_rollout_ref.model.lora.rank={lora}"
    assert read(text).options["lora"] == lora
