"""Files of torchtitan, nanotron, MaxText and verl, and the launchers around them, as requests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from planner.formats import recipe as formats
from planner.inputs.scenario import resolve
from planner.specs.options import Options, rows

RECIPES = Path(__file__).parent / "data" / "recipes"

SAID: dict[str, dict[str, Any]] = {
    "torchtitan.toml": {
        "model": "llama-3.1-70b",
        "stack": "torchtitan",
        "gpus": 128,
        "tp": 4,
        "pp": 2,
        "vpp": 4,  # ceil((80 + 2) / 11) stages
        "cp": 1,
        "dp": 16,
        "zero": 2,
        "shard_group": 8,
        "schedule": "interleaved",
        "micro_batch": 2,
        "global_batch": 256,
        "seq_len": 8192,
        "tokens": 1000 * 256 * 8192,
        "recompute": "selective",
        "precision": "fp8-rowwise",
        "tp_overlap": "async",
        "compile": True,
    },
    "nanotron.yaml": {
        "model": "llama-3-8b",
        "stack": "nanotron",
        "gpus": 64,
        "tp": 8,
        "pp": 2,
        "zero": 1,
        "schedule": "1f1b",
        "sequence_parallel": True,
        "micro_batch": 2,
        "global_batch": 2 * 16 * 4,
        "recompute": "none",
    },
    "maxtext.yml": {
        "model": "mixtral-8x7b",
        "stack": "maxtext",
        "gpus": 16,
        "ep": 2,
        "zero": 3,
        "shard_group": 8,
        "micro_batch": 2,
        "global_batch": 32,
        "recompute": "keep:qkv_proj+context+out_proj+mlpwi+mlpwo",
        "precision": "fp8-tensorwise",
    },
    "verl.sh": {
        "model": "Qwen/Qwen3-30B-A3B",
        "stack": "megatron-core",
        "gpus": 32,
        "gpus_per_node": 8,
        "tp": 4,
        "ep": 8,
        "etp": 1,
        "zero": 1,
        "global_batch": 128 * 16,
        "seq_len": 2048 + 6144,
        "recompute": "full",
    },
}
UNKNOWN = {
    "torchtitan.toml": {"invented.key"},
    "verl.sh": {"actor_rollout_ref.actor.megatron.override_transformer_config.moe_invented"},
}


@pytest.mark.parametrize("name", SAID)
def test_a_file_is_read_as_its_program_does(name: str) -> None:
    found = formats.read({name: (RECIPES / name).read_text()})
    assert {option: found.options.get(option) for option in SAID[name]} == SAID[name]
    unknown = {one for one, used in found.arguments.items() if used.use == "not understood"}
    assert unknown == UNKNOWN.get(name, set())
    assert found.options.keys() <= rows(Options).keys()
    assert resolve(Options(**{"gpu": "h100", **found.options})).plans


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
}


def test_flags_of_torchtitan_are_read() -> None:
    found = formats.read({"run.sh": FLAGS}).options
    expected = {"tp": 2, "gpus": 16, "micro_batch": 2, "seq_len": 8192, "compile": True}
    assert {name: found[name] for name in expected} == expected
    assert found["recompute"] == "full"


def test_launch_lines_say_how_many_gpus() -> None:
    for text, expected in LINES.items():
        found = formats.read({"job.sh": text}).options
        said = {name: found[name] for name in ("gpus", "gpus_per_node") if name in found}
        assert said == expected, text
