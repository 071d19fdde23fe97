"""Programs of Colossal-AI and tasks of SkyPilot: degrees, nodes and variables as their launchers
have them."""

from __future__ import annotations

from typing import Any

import pytest

from planner.formats import recipe as formats
from planner.formats.recipe import Recipe
from planner.specs.base import PlanError


def _read(name: str, text: str) -> Recipe:
    return formats.read({name: text})


COLOSSAL = "colossalai run --nproc_per_node 8 {} benchmark.py -c 70b -g -x -b 8 {}"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("", {"zero": 3, "micro_batch": 8, "grad_accum": 1, "gpus": 8}),  # Gemini by default
        (
            "-p 3d --tp 4 --pp 2 --mbs 2",
            {"zero": 0, "tp": 4, "pp": 2, "micro_batch": 2, "grad_accum": 4, "schedule": "1f1b"},
        ),
        ("-p 3d --tp 2 --zero 1", {"zero": 1, "tp": 2, "micro_batch": 8, "grad_accum": 1}),
        ("-p 3d --tp 2 --sp 4 --sp_mode all_to_all", {"cp": 4, "cp_comm_type": "ulysses"}),
    ],
)
def test_a_plugin_of_colossal_ai_says_what_is_sharded(
    arguments: str, expected: dict[str, Any]
) -> None:
    recipe = _read("run.sh", COLOSSAL.format("", arguments))
    expected = {**expected, "model": "llama-2-70b", "recompute": "full", "seq_len": 4096}
    assert {name: recipe.options.get(name) for name in expected} == expected


def test_a_hostfile_of_colossal_ai_leaves_nodes_open() -> None:
    recipe = _read("run.sh", COLOSSAL.format("--hostfile hosts.txt", ""))
    assert recipe.options["gpus_per_node"] == 8
    assert "gpus" not in recipe.options
    assert recipe.arguments["colossalai.hostfile"].use == "not understood"


def test_defaults_of_colossal_chat_are_of_its_script() -> None:
    dpo = _read(
        "run.sh", "colossalai run train_dpo.py --pretrain x/y --plugin zero2 --batch_size 4"
    )
    assert (dpo.options["micro_batch"], dpo.options["seq_len"]) == (8, 2048)
    sft = _read("run.sh", "colossalai run train_sft.py --pretrain $M --plugin zero2_cpu")
    wanted = {"micro_batch": 4, "seq_len": 512, "grad_accum": 8, "zero": 2, "offload": "optimizer"}
    assert {name: sft.options.get(name) for name in wanted} == wanted
    assert "model" not in sft.options


def test_degrees_that_stand_in_a_program_are_left_open() -> None:
    recipe = _read("run.sh", "torchrun finetune.py --plugin hybrid_parallel --model_type gpt2")
    assert recipe.arguments["plugin"].use == "not understood"
    assert not {"tp", "pp"} & set(recipe.options)


SKYPILOT = """
num_nodes: 2
resources:
  accelerators: {}
envs:
  SIZE: 7
  TOKEN:
run: |
  if [ "$SKYPILOT_NODE_RANK" = "0" ]; then
    torchrun --nnodes $SKYPILOT_NUM_NODES --nproc_per_node $SKYPILOT_NUM_GPUS_PER_NODE \\
      train.py --model_name_or_path huggyllama/llama-${{SIZE}}b \\
      --per_device_train_batch_size $((8 / SKYPILOT_NUM_NODES)) --bf16 True
  fi
"""


@pytest.mark.parametrize(
    "accelerators", ["H100:4", "[H100:4, 'A100-80GB:4']", "\n    A100: 4\n    H100: 4"]
)
def test_what_a_task_of_skypilot_runs_is_read_with_its_variables(accelerators: str) -> None:
    recipe = _read("task.yaml", SKYPILOT.format(accelerators))
    expected = {"gpus": 8, "gpus_per_node": 4, "micro_batch": 4, "model": "huggyllama/llama-7b"}
    assert {name: recipe.options.get(name) for name in expected} == expected
    assert recipe.arguments["per_device_train_batch_size"].use == "read"


def test_gpus_that_a_task_of_skypilot_may_get_are_left_open() -> None:
    recipe = _read("task.yaml", SKYPILOT.format("[H100:4, A100:8]"))
    assert "gpus" not in recipe.options
    assert recipe.options["micro_batch"] == 4


def test_a_task_of_skypilot_that_does_not_train_is_refused() -> None:
    text = (
        "resources: {accelerators: H100:1}\nrun: |\n  torchrun generate.py --micro-batch-size 1\n"
    )
    with pytest.raises(PlanError, match="does not train: generate generates"):
        _read("task.yaml", text)
