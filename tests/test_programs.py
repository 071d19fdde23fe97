"""Which program a file belongs to: look-alikes are not claimed by another, and a file that trains
nothing is recognised."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from command import dpplan, refused

from planner import formats as package
from planner.error import PlanError
from planner.formats import recipe as formats
from planner.formats.documents.read import Read
from planner.formats.verbs.read import read
from planner.formats.views.read import view
from planner.inputs.readers import read_toml
from planner.specs.options import Options, rows

FOLDER = Path(package.__file__).parent

_MEGATRON = "--num-layers 8 --micro-batch-size 2 --tensor-model-parallel-size 2"
REFUSED = {
    "evaluate.yaml": (
        "model:\n  _component_: torchtune.models.llama2.llama2_7b\ntasks: [hellaswag]\n"
        "batch_size: 8\n",
        "does not train: it evaluates or generates with torchtune",
    ),
    "sft.py": (
        "from xtuner.v1.model import Qwen3Dense8BConfig\nmodel = Qwen3Dense8BConfig()\n",
        "is a file of XTuner",
    ),
    "7B.py": ("model = dict(num_layers=32)\nparallel = dict(zero1=8)\n", "is a file of InternEvo"),
    "c.sh": (f"python tasks/main.py --task LAMBADA {_MEGATRON}", "does not train: main evaluates"),
    "a.sh": (
        f"python tools/preprocess_data.py {_MEGATRON}",
        "does not train: preprocess_data prepares",
    ),
    "b.sh": (f"torchrun tools/run_text_generation_server.py {_MEGATRON}", "generates"),
}


@pytest.mark.parametrize("name", [*REFUSED])
def test_what_is_no_training_or_not_read_is_refused(name: str) -> None:
    text, why = REFUSED[name]
    with pytest.raises(PlanError, match=why):
        formats.read({name: text})


@pytest.mark.parametrize("program", ["pretrain_gpt.py", "train_and_eval.py", "x.py", "-m nemo.run"])
def test_what_trains_is_read(program: str) -> None:
    lines = f"python tools/preprocess_data.py --input x\ntorchrun {program} {_MEGATRON}"
    assert formats.read({"a.sh": lines}).options["tp"] == 2


_VERL = """
data: {train_batch_size: 1024, max_prompt_length: 512, max_response_length: 512}
actor_rollout_ref:
  model: {path: Qwen/Qwen2.5-7B}
  actor: {ppo_mini_batch_size: 256, ppo_micro_batch_size_per_gpu: 4}
  rollout: {n: 5, prompt_length: "${data.max_prompt_length}"}
trainer: {nnodes: 2, n_gpus_per_node: 8}
"""


def test_verl_yaml_is_of_verl_alone() -> None:
    recipe = formats.read({"ppo.yaml": _VERL})
    assert recipe.kinds == ("verl",)
    values = {"global_batch": 1280, "seq_len": 1024, "gpus": 16, "micro_batch": 4}
    assert {name: recipe.options.get(name) for name in values} == values


def test_older_verl_counts_a_micro_batch_under_another_name() -> None:
    text = "python -m verl.trainer.fsdp_sft_trainer data.micro_batch_size=8 data.max_length=1024"
    assert formats.read({"a.sh": text}).options["micro_batch"] == 8


_PAIRS = "model_name_or_path: a/b\nper_device_train_batch_size: 2\nmax_length: 1024\nbeta: 0.05\n"


@pytest.mark.parametrize(
    ("rest", "task"),
    [
        ("", None),
        ("output_dir: data/zephyr-orpo-141b\n", "orpo"),
        ("hub_model_id: zephyr-7b-dpo-full\n", "dpo"),
        ("precompute_ref_log_probs: true\n", "dpo"),
    ],
)
def test_orpo_is_not_taken_for_dpo(rest: str, task: str | None) -> None:
    recipe = formats.read({"config.yaml": _PAIRS + rest})
    assert recipe.options.get("task") == task
    assert (recipe.arguments["beta"].use == "not understood") is (task is None)


def test_frozen_weights_without_a_type_are_said_to_be_wide_in_newer_trl() -> None:
    text = (
        "model_name_or_path: a/b\nper_device_train_batch_size: 1\nmax_length: 512\nuse_peft: true\n"
    )
    for rest, count in (("", 1), ("dtype: bfloat16\n", 0), ("load_in_4bit: true\n", 0)):
        notes = formats.read({"a.yaml": text + rest}).notes
        assert sum("float32" in note for note in notes) == count


def test_a_script_of_grpo_is_not_of_the_plain_trainer() -> None:
    text = "torchrun src/open_r1/grpo_vllm.py --model_name_or_path a/b --num_generations 8"
    recipe = formats.read({"a.sh": text})
    assert recipe.kinds[0] == "trl"
    assert recipe.arguments["script"].use == "not understood"


def test_the_name_of_a_model_is_shown_and_a_path_is_not() -> None:
    text = "torchrun pretrain_gpt.py --micro-batch-size 1 --tokenizer-model {}"
    for name, shown in (("meta-llama/Llama-3.1-8B", True), ("/data/private/tok.model", False)):
        recipe = formats.read({"a.sh": text.format(name)}).arguments["tokenizer-model"]
        assert (recipe.value == name) is shown


_OLD = "torchrun pretrain_gpt.py --micro-batch-size 1 "


@pytest.mark.parametrize(
    ("arguments", "recompute"),
    [
        ("--checkpoint-activations", "full"),
        ("--checkpoint-activations --checkpoint-num-layers 2", "group:2"),
        ("--activations-checkpoint-method block --activations-checkpoint-num-layers 3", "block:3"),
        ("--activations-checkpoint-granularity selective", "selective"),
        ("--checkpoint-num-layers 2", "none"),
    ],
)
def test_recompute_by_the_names_of_older_releases(arguments: str, recompute: str) -> None:
    recipe = formats.read({"a.sh": _OLD + arguments})
    assert recipe.options["recompute"] == recompute
    assert not [n for n, used in recipe.arguments.items() if used.use == "not understood"]


_UNREAD = (
    _OLD + "--bf16 --num-layers 32 --hidden-size 4096 --num-attention-heads 32 --seq-length {} "
)
_UNREAD += "--use-rotary-position-embeddings --global-batch-size 8 --our-activation-checkpointing"


def _read(length: int, **typed: Any) -> Read:
    given = {"gpu": "h100", "gpus": 8, "advice": 0, **typed}
    return read({"a.sh": _UNREAD.format(length)}, given)


def test_no_verdict_on_memory_where_an_unread_argument_decides_it() -> None:
    result = _read(32768, tp=8)
    assert result.undecided == {"recompute": ["our-activation-checkpointing"]}
    assert {entry.value: entry.fits for entry in result.possible} == {"none": False, "full": True}
    verdict = view(result).verdict
    assert verdict.startswith(
        "undecided: --recompute (our-activation-checkpointing not understood)"
    )
    assert "whether it fits depends on it: it does with --recompute full" in verdict


def test_what_fits_either_way_is_said_to() -> None:
    assert "it fits either way" in view(_read(1024, tp=8)).verdict


def test_what_is_typed_is_decided() -> None:
    result = _read(1024, tp=8, recompute="full")
    assert result.undecided == {}
    assert not view(result).verdict.startswith("undecided")


def test_options_of_undecided_arguments_exist() -> None:
    table = read_toml((FOLDER / "undecided.toml").read_text("utf-8"))
    assert table.keys() <= rows(Options).keys()


_UNDECIDED = (
    "torchrun --nproc-per-node 8 pretrain_gpt.py --num-layers 32 --hidden-size 4096"
    " --num-attention-heads 32 --seq-length 8192 --max-position-embeddings 8192 --swiglu --bf16"
    " --micro-batch-size 2 --global-batch-size 64 --tensor-model-parallel-size 4"
    " --vocab-size 128000 --our-activation-checkpointing deep"
)


def test_an_estimate_of_a_recipe_is_a_range_and_a_question(tmp_path: Path) -> None:
    file = tmp_path / "train.sh"
    file.write_text(_UNDECIDED)
    request = ("estimate", "--recipe", str(file), "--gpu", "a100-80gb")
    left = dpplan(*request, "--json").json()["undecided"]
    assert left["options"] == {"recompute": ["our-activation-checkpointing"]}
    assert left["moves"]
    assert {case["value"] for case in left["possible"]} == {"none", "full"}
    assert "undecided" not in dpplan(*request, "--recompute", "full", "--json").json()


def test_other_verbs_give_no_verdict_on_what_is_undecided(tmp_path: Path) -> None:
    file = tmp_path / "train.sh"
    file.write_text(_UNDECIDED)
    request = ("compare", "--recipe", str(file), "--gpu", "a100-80gb")
    question = "undecided: --recompute (our-activation-checkpointing not understood)"
    refused(dpplan(*request, "--vary", "tp=2,4"), question)
    assert dpplan(*request, "--vary", "recompute=none,full").status == 0


def test_examples_of_an_undecided_objective_are_undecided_too() -> None:
    """beta belongs to DPO, ORPO and KTO, whose examples are two sequences, two, and one."""
    text = "per_device_train_batch_size: 8\nmodel_name_or_path: gpt2\nbeta: 0.1\nmax_length: 512\n"
    given = {"gpu": "a100-80gb", "gpus": 1}
    assert {"task", "micro_batch"} <= read({"a.yaml": text}, given).undecided.keys()
    assert read({"a.yaml": text}, {**given, "task": "dpo", "micro_batch": 16}).undecided == {}


def test_files_that_state_no_training_are_left_out_beside_one_that_does() -> None:
    files = {"train.sh": f"torchrun pretrain_gpt.py {_MEGATRON}", "README.md": "# Words\n"}
    recipe = formats.read({**files, "b.sh": REFUSED["b.sh"][0]})
    assert recipe.options["tp"] == 2
    assert recipe.notes[0] == "README.md is not used: it is not a kind of file that is read"
    assert recipe.notes[1].startswith("b.sh is not used: it does not train")
    with pytest.raises(PlanError, match="is an unsupported file type"):
        formats.read({"README.md": "# Words\n"})
