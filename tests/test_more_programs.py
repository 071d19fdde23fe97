"""Programs that are known by their own files: what each says, worked out by hand from the program's
defaults, and what it is not."""

from __future__ import annotations

import json
from typing import Any

import pytest

from planner.formats import dialects
from planner.formats import recipe as formats
from planner.formats.recipe import Recipe
from planner.formats.record import Value

LITGPT = """
checkpoint_dir: checkpoints/meta-llama/Meta-Llama-3-8B
out_dir: out
precision: bf16-true
quantize: bnb.nf4
devices: 1
lora_r: 32
lora_query: true
lora_key: false
lora_value: true
train:
  global_batch_size: 8
  micro_batch_size: 2
  max_seq_length: 512
  lr_warmup_steps: 10
optimizer:
  class_path: torch.optim.AdamW
"""
OUMI = """
model:
  model_name: "meta-llama/Llama-3.1-8B-Instruct"
  model_max_length: 8192
  torch_dtype_str: "bfloat16"
training:
  trainer_type: "TRL_SFT"
  use_peft: True
  per_device_train_batch_size: 2
  enable_gradient_checkpointing: True
peft:
  q_lora: True
  lora_target_modules: [q_proj, v_proj]
"""
OLMO = """
model:
  d_model: 4096
  n_heads: 32
  n_layers: 32
  mlp_hidden_size: 22016
  weight_tying: false
  rope: true
  include_bias: false
  activation_type: swiglu
  layer_norm_type: rms
  attention_dropout: 0.0
  residual_dropout: 0.0
  embedding_dropout: 0.0
  max_sequence_length: 4096
  vocab_size: 100278
optimizer:
  name: adamw
global_train_batch_size: 1024
device_train_microbatch_size: 2
device_eval_batch_size: ${device_train_microbatch_size}
precision: amp_bf16
"""
FOUNDRY = """
variables:
  max_seq_len: 2048
max_seq_len: ${variables.max_seq_len}
model:
  name: mpt_causal_lm
  d_model: 4096
  n_heads: 32
  n_layers: 32
train_loader:
  name: text
optimizer:
  name: decoupled_adamw
global_train_batch_size: 1024
device_train_microbatch_size: 8
expandable_segments: true
fsdp_config:
  sharding_strategy: SHARD_GRAD_OP
  activation_checkpointing: true
"""
KEMPNER = """
[model]
dim = 8192
n_layers = 80
n_heads = 64
n_kv_heads = 8
ffn_hidden_dim = 28672
[train]
batch_size = 2
seq_len = 4096
grad_accum_steps = 4
activation_checkpointing = "full"
[distributed]
dp_shard = 8
tp = 4
"""
OPENRLHF = """
read -r -d '' training_commands <<EOF
openrlhf.cli.train_dpo \\
   --train.batch_size 256 \\
   --train.micro_batch_size 1 \\
   --model.model_name_or_path meta-llama/Meta-Llama-3-8B \\
   --data.max_len 8192 \\
   --ds.zero_stage 3 \\
   --model.gradient_checkpointing_enable
EOF
if [[ ${1} != "slurm" ]]; then
    deepspeed --module $training_commands
fi
"""
NEMO = """
trainer:
  num_nodes: 8
  devices: 8
  precision: bf16
model:
  megatron_amp_O2: True
  micro_batch_size: 2
  global_batch_size: ${.data.train_ds.batch}
  data:
    train_ds:
      batch: 64
  optim:
    name: distributed_fused_adam
"""
EXPECTED: dict[str, tuple[str, dict[str, Any]]] = {
    "litgpt.yaml": (
        LITGPT,
        {
            "kind": "litgpt",
            "gpus": 1,
            "zero": 0,
            "recompute": "none",
            "lora": 32,
            "lora_targets": "q_proj+v_proj",
            "base_precision": "nf4",
            "micro_batch": 2,
            "global_batch": 8,
            "seq_len": 512,
        },
    ),
    "oumi.yaml": (
        OUMI,
        {
            "kind": "oumi",
            "micro_batch": 2,
            "grad_accum": 1,
            "recompute": "full",
            "lora": 8,
            "base_precision": "nf4",
            "precision": "bf16",
            "zero": 0,
        },
    ),
    "olmo.yaml": (
        OLMO,
        {
            "kind": "olmo",
            "micro_batch": 2,
            "global_batch": 1024,
            "recompute": "none",
            "zero": 3,
            "precision": "bf16",
        },
    ),
    "mpt.yaml": (
        FOUNDRY,
        {
            "kind": "llm-foundry",
            "seq_len": 2048,
            "micro_batch": 8,
            "zero": 2,
            "recompute": "full",
            "precision": "bf16",
            "expandable_segments": True,
        },
    ),
    "70b.toml": (
        KEMPNER,
        {"kind": "kempnerforge", "gpus": 32, "tp": 4, "pp": 1, "grad_accum": 4, "zero": 3},
    ),
    "dpo.sh": (
        OPENRLHF,
        {
            "kind": "openrlhf",
            "task": "dpo",
            "micro_batch": 2,  # a pair
            "zero": 3,
            "recompute": "full",
            "seq_len": 8192,
            "precision": "bf16",
        },
    ),
    "sft.yaml": (
        NEMO,
        {"kind": "nemo", "gpus": 64, "micro_batch": 2, "zero": 1, "precision": "bf16"},
    ),
}


def _read(name: str, text: str) -> Recipe:
    return formats.read({name: text})


@pytest.mark.parametrize("name", [*EXPECTED])
def test_values_are_those_of_the_file_and_its_program(name: str) -> None:
    text, expected = EXPECTED[name]
    recipe = _read(name, text)
    assert recipe.kinds == (expected["kind"],)
    plan = {option: recipe.options.get(option) for option in expected if option != "kind"}
    assert plan == {option: value for option, value in expected.items() if option != "kind"}


def test_half_of_the_hidden_size_of_olmo_is_its_gate() -> None:
    model = json.loads(_read("olmo.yaml", OLMO).options["model"])
    assert (model["ffn_hidden"], model["kv_heads"]) == (11008, 32)


def test_a_checkpoint_says_the_degrees_that_a_file_of_nemo_leaves_out() -> None:
    recipe = _read("sft.yaml", NEMO)
    assert not {"tp", "pp", "recompute"} & recipe.options.keys()


def test_a_parallel_size_below_another_table_is_not_of_gpt_neox() -> None:
    text = "exp_manager:\n  checkpoint:\n    model_parallel_size: 4\n"
    assert not formats.knows({"a.yaml": text})


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
    options = _read("train.sh", command).options
    assert {option: options.get(option) for option in expected} == expected


def test_a_default_of_a_program_gives_way_to_what_the_file_says() -> None:
    command = f"python qlora.py {_TRAINER} --source_max_len 16 --optim adafactor"
    recipe = _read("train.sh", command)
    assert recipe.options["optimizer"] == "adafactor"
    assert recipe.arguments["gradient_checkpointing"].use == "implied"
    assert "default of artidoro/qlora" in recipe.arguments["gradient_checkpointing"].note


def test_what_an_argument_of_a_program_says_stands_under_its_own_name() -> None:
    recipe = _read("train.sh", DIALECTS["llava"][0])
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
    model = json.loads(_read("a.sh", command).options["model"])
    assert model["kv_heads"] == heads


def test_of_several_commands_one_is_read_whole_and_said() -> None:
    """The GPUs of one command are not combined with the arguments of another."""
    size = "--num-layers 8 --hidden-size 512 --num-attention-heads 8 --micro-batch-size 1"
    text = (
        f"torchrun --nproc_per_node=2 pretrain_gpt.py {size}\n"
        f"torchrun --nproc_per_node=8 pretrain_gpt.py {size} --tensor-model-parallel-size 4\n"
    )
    recipe = _read("a.sh", text)
    assert (recipe.options["gpus"], recipe.options["tp"]) == (8, 4)
    assert any("read is the one with most arguments, line 2" in note for note in recipe.notes)
    assert not any("commands of" in note for note in _read("a.sh", text.splitlines()[0]).notes)


@pytest.mark.parametrize(
    "text",
    [
        "read -r -d '' ARGS <<EOF\n--micro-batch-size $N\n--num-layers 8\nEOF\n",
        "ARGS=$(cat <<EOF\n--micro-batch-size $N\n--num-layers 8\nEOF\n)\n",
    ],
)
def test_a_here_document_is_the_value_of_a_variable(text: str) -> None:
    command = "N=4\n" + text + "torchrun pretrain_gpt.py $ARGS --tensor-model-parallel-size 2\n"
    recipe = _read("a.sh", command)
    assert (recipe.options["micro_batch"], recipe.options["tp"]) == (4, 2)
