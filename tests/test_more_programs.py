"""Programs that are known by their own files: what each says, worked out by hand from the program's
defaults, and what it is not."""

from __future__ import annotations

import json
from typing import Any

import pytest

from planner.formats import recipe as formats
from planner.formats.recipe import Recipe

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
NEMO_RL = """
sft: {max_num_steps: 20}
policy:
  model_name: Qwen/Qwen2.5-32B
  train_global_batch_size: 32
  train_micro_batch_size: 1
  max_total_sequence_length: 16000
  precision: bfloat16
  dtensor_cfg:
    enabled: true
    sequence_parallel: true
    activation_checkpointing: true
    tensor_parallel_size: 8
  optimizer: {name: torch.optim.AdamW}
cluster: {gpus_per_node: 8, num_nodes: 4}
"""
LEVANTER = """
data: !include data/pile.yaml
model: {type: gpt2, hidden_dim: 1024, num_heads: 16, num_layers: 24, seq_len: 1024}
trainer:
  tracker: {type: wandb}
  mp: p=f32,c=bfloat16
  train_batch_size: 256
optimizer: {learning_rate: 1E-3}
"""
OLMO_CORE = """
from olmo_core.nn.transformer import TransformerConfig
SEQUENCE_LENGTH = 8192
GLOBAL_BATCH_SIZE = 512 * SEQUENCE_LENGTH
def build(opts):
    sequence_length = opts.sequence_length or SEQUENCE_LENGTH
    model = TransformerConfig.olmo2_7B(vocab_size=tokenizer.padded_vocab_size())
    return TransformerTrainModuleConfig(
        rank_microbatch_size=2 * sequence_length,
        max_sequence_length=sequence_length,
        optim=SkipStepAdamWConfig(lr=1e-4),
        dp_config=TransformerDataParallelConfig(
            name=DataParallelType.hsdp, param_dtype=DType.bfloat16, shard_degree=64
        ),
        cp_config=TransformerContextParallelConfig.ulysses(degree=2),
        ac_config=TransformerActivationCheckpointingConfig(
            mode=TransformerActivationCheckpointingMode.selected_modules,
            modules=["blocks.*.feed_forward"],
        ),
    )
"""
XTUNER = """
from mmengine.optim import AmpOptimWrapper
from torch.optim import AdamW
pretrained_model_name_or_path = "meta-llama/Llama-2-7b-hf"
max_length = 2048
pack_to_max_length = True
sequence_parallel_size = 2
batch_size = 1
accumulative_counts = 16
accumulative_counts *= sequence_parallel_size
optim_type = AdamW
model = dict(
    type=SupervisedFinetune,
    llm=dict(quantization_config=dict(load_in_4bit=True, bnb_4bit_quant_type="nf4")),
    lora=dict(type=LoraConfig, r=64, lora_dropout=0.1),
)
optim_wrapper = dict(optimizer=dict(type=optim_type, lr=2e-4), dtype="float16")
"""
ROLL = """
pretrain: Qwen/Qwen2.5-7B
prompt_length: 2048
response_length: 4096
actor_train:
  model_args: {dtype: bf16}
  training_args: {per_device_train_batch_size: 1, gradient_accumulation_steps: 32}
  strategy_args:
    strategy_name: megatron_train
    strategy_config:
      tensor_model_parallel_size: 2
      pipeline_model_parallel_size: 2
      use_distributed_optimizer: true
      recompute_granularity: full
  device_mapping: list(range(0,32))
"""
AREAL = """
experiment_name: x
train_dataset: {batch_size: 256}
gconfig: {n_samples: 4}
actor:
  backend: "megatron:d4p2t2"
  path: Qwen/Qwen3-8B
  dtype: bfloat16
  gradient_checkpointing: true
  mb_spec: {max_tokens_per_mb: 10240}
  optimizer: {type: adam}
"""
AUTOMODEL = """
recipe: TrainFinetuneRecipeForNextTokenPrediction
step_scheduler: {global_batch_size: 32, local_batch_size: 4}
model:
  _target_: nemo_automodel.NeMoAutoModelForCausalLM.from_pretrained
  pretrained_model_name_or_path: Qwen/Qwen2.5-7B
  torch_dtype: bf16
peft: {target_modules: "*_proj", dim: 8}
distributed: {strategy: fsdp2, tp_size: 2}
optimizer: {_target_: torch.optim.Adam}
"""
SKYRL = """
uv run -m skyrl.train.entrypoints.main_base trainer.policy.model.path="Qwen/Qwen2.5-7B" \\
  trainer.strategy=megatron trainer.placement.policy_num_gpus_per_node=8 \\
  trainer.policy.megatron_config.tensor_model_parallel_size=4 \\
  trainer.micro_train_batch_size_per_gpu=2 trainer.policy.model.lora.rank=32
"""
SLIME = """
ray job submit -- python3 train.py --actor-num-nodes 2 --actor-num-gpus-per-node 8 \\
  --tensor-model-parallel-size 4 --context-parallel-size 2 --global-batch-size 256 \\
  --recompute-granularity full --recompute-method uniform --recompute-num-layers 1
"""
PRIMUS = """
modules:
  pre_trainer:
    framework: torchtitan
    model: llama3.1_8B-fp8.yaml
    overrides:
      training: {local_batch_size: 5, seq_len: 8192}
      activation_checkpoint: {mode: "full"}
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
    "rl.yaml": (
        NEMO_RL,
        {
            "kind": "nemo-rl",
            "gpus": 32,
            "tp": 8,
            "zero": 3,
            "recompute": "mlp",  # parallelize.py wraps only the MLP
            "seq_len": 16000,
            "precision": "bf16",
        },
    ),
    "levanter.yaml": (
        LEVANTER,
        {
            "kind": "levanter",
            "global_batch": 256,
            "seq_len": 1024,
            "precision": "bf16",
            "recompute": "full",
            "zero": 3,
            "tp": 1,
        },
    ),
    "olmo2.py": (
        OLMO_CORE,
        {
            "kind": "olmo-core",
            "model": "olmo-2-7b",
            "global_batch": 512,  # it counts tokens
            "micro_batch": 2,
            "shard_group": 64,
            "zero": 3,
            "cp": 2,
            "cp_comm_type": "ulysses",
            "recompute": "mlp",
            "optimizer": "adam",
        },
    ),
    "xtuner.py": (
        XTUNER,
        {
            "kind": "xtuner",
            "micro_batch": 1,
            "grad_accum": 32,
            "cp": 2,
            "lora": 64,
            "lora_targets": "all-linear",
            "base_precision": "nf4",
            "packing": "packed",
            "precision": "fp16",
            "recompute": "full",
        },
    ),
    "roll.yaml": (
        ROLL,
        {"kind": "roll", "gpus": 32, "tp": 2, "pp": 2, "seq_len": 6144, "recompute": "full"},
    ),
    "areal.yaml": (
        AREAL,
        {"kind": "areal", "gpus": 16, "tp": 2, "pp": 2, "cp": 1, "zero": 1, "global_batch": 1024},
    ),
    "auto.yaml": (
        AUTOMODEL,
        {"kind": "automodel", "tp": 2, "lora": 8, "micro_batch": 4, "recompute": "none"},
    ),
    "skyrl.sh": (
        SKYRL,
        {"kind": "verl", "gpus": 8, "tp": 4, "lora": 32, "micro_batch": 2, "zero": 1},
    ),
    "slime.sh": (
        SLIME,
        {"kind": "megatron", "gpus": 16, "tp": 4, "cp": 2, "zero": 1, "precision": "bf16"},
    ),
    "primus.yaml": (
        PRIMUS,
        {"kind": "primus-torchtitan", "micro_batch": 5, "seq_len": 8192, "recompute": "full"},
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


def test_a_pair_of_nemo_rl_is_two_sequences() -> None:
    options = _read("rl.yaml", NEMO_RL.replace("sft:", "dpo:")).options
    assert (options["task"], options["micro_batch"], options["global_batch"]) == ("dpo", 2, 64)


def test_an_included_file_of_levanter_is_not_guessed() -> None:
    text = LEVANTER.replace("optimizer: {learning_rate: 1E-3}", "optimizer: !include optim/x.yaml")
    recipe = _read("levanter.yaml", text)
    assert "optimizer" not in recipe.options
    assert recipe.arguments["data"].use == "irrelevant"


def test_a_model_that_a_script_changes_is_left_open() -> None:
    changed = OLMO_CORE.replace("    return", "    model_config.n_layers = 8\n    return", 1)
    assert "model" not in _read("olmo2.py", changed).options


def test_files_that_stand_on_others_state_no_defaults() -> None:
    recipe = _read("rl.yaml", "defaults: base.yaml\n" + NEMO_RL.replace("    enabled: true\n", ""))
    assert "zero" not in recipe.options
    assert recipe.arguments["defaults"].use == "not understood"


def test_a_gate_of_nemo_is_one_of_its_activation() -> None:
    text = NEMO.replace("model:", "model:\n  activation: fast-swiglu\n  num_layers: 2", 1)
    arguments = _read("sft.yaml", text).arguments
    assert arguments["activation"].use == "read"


def test_nodes_of_a_trainer_make_no_task_of_skypilot() -> None:
    recipe = _read("litgpt.yaml", LITGPT + "\nnum_nodes: 2\n")
    assert recipe.kinds == ("litgpt",)
