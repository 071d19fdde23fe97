"""Files of torchtitan, nanotron, MaxText and verl, and the launchers around them, as requests."""

from __future__ import annotations

from typing import Any

import pytest
from recipes import RECIPES, stated

from planner.formats import recipe as formats
from planner.inputs.scenario import resolve
from planner.specs.options import Options, rows

SAID: dict[str, dict[str, Any]] = stated("launch_files")
UNKNOWN = {
    "gpt_neox.yml": {"invented_key"},
    "bloom.sh": {"rampup-batch-size", "torchrun.nnodes"},
    "torchtitan.toml": {"invented.key"},
    "verl.sh": {"actor_rollout_ref.actor.megatron.override_transformer_config.moe_invented"},
}


@pytest.mark.parametrize("name", SAID)
def test_a_file_is_read_as_its_program_does(name: str) -> None:
    recipe = formats.read({name: (RECIPES / name).read_text()})
    assert {option: recipe.options.get(option) for option in SAID[name]} == SAID[name]
    unknown = {name for name, used in recipe.arguments.items() if used.use == "not understood"}
    assert unknown == UNKNOWN.get(name, set())
    assert recipe.options.keys() <= rows(Options).keys()
    assert resolve(Options(**{"gpu": "h100", **recipe.options})).plans


FLAGS = """
NGPU=8
torchrun --nnodes=2 --nproc_per_node=${NGPU} --rdzv_id=1 -m torchtitan.train --module llama3 \\
  --parallelism.tensor-parallel-degree 2 --parallelism.data_parallel_shard_degree=8 \\
  --training.num_tokens_per_microbatch_per_dp_rank 16384 --training.max_context_length 8192 \\
  --compile.enable --no-such-flag activation-checkpoint:full
"""
LINES: dict[str, dict[str, Any]] = {
    "#SBATCH -N 4\n#SBATCH --gres=gpu:h100:8\nsrun python x.py\n": {"gpus": 32, "gpus_per_node": 8},
    "#SBATCH --nodes=2 --ntasks-per-node=4\nsrun python x.py\n": {"gpus": 8, "gpus_per_node": 4},
    "N=3\ntorchrun --nnodes=$N --nproc_per_node 4 --rdzv_id $ID x.py --nodes 9\n": {
        "gpus": 12,
        "gpus_per_node": 4,
    },
    "torchrun --nproc-per-node=$COUNT x.py\n": {},
    "accelerate launch --num_processes 16 --num_machines=2 x.py\n": {"gpus": 16},
    "#SBATCH --nodes=2\n#SBATCH --gpus-per-node=8\nsrun torchrun --nproc-per-node 4 x.py\n": {
        "gpus": 8,
        "gpus_per_node": 4,  # as many as torchrun starts, whatever Slurm gives
    },
    "#SBATCH -N 4\n#SBATCH --ntasks-per-node=1\nsrun torchrun --nproc_per_node=gpu x.py\n": {},
    "#SBATCH -N 4\n#SBATCH --ntasks-per-node=1 --gres=gpu:8\nsrun torchrun x.py\n": {
        "gpus": 32,
        "gpus_per_node": 8,
    },
    "deepspeed --num_gpus 8 --num_nodes=2 x.py\n": {"gpus": 16, "gpus_per_node": 8},
    "deepspeed --include localhost:0,1,2 x.py\n": {"gpus": 3, "gpus_per_node": 3},
    "worker-1 slots=8\nworker-2 slots=8\n": {"gpus": 16, "gpus_per_node": 8},
    "mpirun --allow-run-as-root -np 16 -npernode 8 python x.py\n": {"gpus": 16},
    "mpirun -np 2 torchrun --nnodes 2 --nproc_per_node 8 x.py\n": {"gpus": 16},
    "srun -N 2 -n 16 --gres=gpu:8 python x.py\n": {"gpus": 16, "gpus_per_node": 8},
    "srun -n 16 python x.py\n": {"gpus": 16},
    "CUDA_VISIBLE_DEVICES=0,1,2,3 python x.py\n": {"gpus": 4, "gpus_per_node": 4},
    "CUDA_VISIBLE_DEVICES=0,1 torchrun --nproc_per_node 2 --nnodes 2 x.py\n": {"gpus": 4},
}
MANIFESTS: dict[str, dict[str, Any]] = {
    """
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
spec:
  replicatedJobs:
    - name: workers
      replicas: 2
      template:
        spec:
          parallelism: 4
          template:
            spec:
              containers:
                - name: trainer
                  resources:
                    limits: {nvidia.com/gpu: 8}
""": {"gpus": 64, "gpus_per_node": 8},
    """
kind: Service
---
kind: PyTorchJob
spec:
  pytorchReplicaSpecs:
    Master:
      replicas: 1
      template: {spec: {containers: [{resources: {limits: {nvidia.com/gpu: 8}}}]}}
    Worker:
      replicas: 3
      template: {spec: {containers: [{resources: {limits: {nvidia.com/gpu: "8"}}}]}}
""": {"gpus": 32, "gpus_per_node": 8},
    "num_nodes: 4\nresources:\n  accelerators: H100:8\n": {"gpus": 32, "gpus_per_node": 8},
}


def test_manifests_say_how_many_gpus() -> None:
    for text, expected in MANIFESTS.items():
        recipe = formats.read({"job.yaml": text}).options
        assert {name: recipe.get(name) for name in expected} == expected, text


def test_flags_of_torchtitan_are_read() -> None:
    recipe = formats.read({"run.sh": FLAGS}).options
    expected = {"tp": 2, "gpus": 16, "micro_batch": 2, "seq_len": 8192, "compile": True}
    assert {name: recipe[name] for name in expected} == expected
    assert recipe["recompute"] == "full"


def test_launch_lines_say_how_many_gpus() -> None:
    for text, expected in LINES.items():
        recipe = formats.read({"job.sh": text}).options
        values = {name: recipe[name] for name in ("gpus", "gpus_per_node") if name in recipe}
        assert values.items() >= expected.items(), text
        assert expected or not values, text


def test_megatron_bridge_says_what_is_kept_in_fp8() -> None:
    model = "model:\n  num_layers: 2\n  hidden_size: 64\n  activation_func_fp8_input_store: true\n"
    model += "  disable_parameter_transpose_cache: true\n"
    train = "train:\n  global_batch_size: 8\n  micro_batch_size: 1\n"
    ddp = "ddp:\n  use_distributed_optimizer: true\n"
    options = formats.read({"recipe.yaml": model + train + ddp}).options
    assert (options["fp8_mlp_input"], options["transpose_weights"]) == (True, True)
