"""`dpplan rl --recipe`: files of verl and OpenRLHF as a whole step of reinforcement learning."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from command import dpplan

VERL = """
python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo data.train_batch_size=32 \\
    data.max_prompt_length=256 data.max_response_length=512 \\
    actor_rollout_ref.model.path=Qwen/Qwen2.5-0.5B-Instruct actor_rollout_ref.rollout.n=4 \\
    actor_rollout_ref.actor.ppo_mini_batch_size=16 \\
    actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=8 \\
    actor_rollout_ref.actor.use_kl_loss=True \\
    actor_rollout_ref.actor.fsdp_config.param_offload={offload} \\
    actor_rollout_ref.actor.fsdp_config.optimizer_offload={offload} \\
    actor_rollout_ref.rollout.tensor_model_parallel_size=2 \\
    actor_rollout_ref.rollout.gpu_memory_utilization=0.6 \\
    trainer.n_gpus_per_node=4 trainer.nnodes=1
"""
OPENRLHF = """
python3 -m openrlhf.cli.train_ppo_ray --actor.num_nodes 1 --actor.num_gpus_per_node 4 \\
   --vllm.num_engines 2 --vllm.tensor_parallel_size 2 {shared} --train.batch_size 64 \\
   --rollout.batch_size 32 --rollout.n_samples_per_prompt 4 --data.max_len 1024 \\
   --rollout.max_new_tokens 512 --ds.zero_stage 3 --algo.advantage.estimator {estimator} \\
   --actor.model_name_or_path Qwen/Qwen2.5-0.5B-Instruct
"""


ASYNC = """
python -m verl.experimental.fully_async_policy.fully_async_main algorithm.adv_estimator=grpo \\
    data.train_batch_size=0 data.max_prompt_length=256 data.max_response_length=512 \\
    actor_rollout_ref.model.path=Qwen/Qwen2.5-0.5B-Instruct actor_rollout_ref.rollout.n=4 \\
    actor_rollout_ref.actor.ppo_mini_batch_size=16 actor_rollout_ref.actor.use_dynamic_bsz=True \\
    actor_rollout_ref.rollout.tensor_model_parallel_size=1 \\
    trainer.n_gpus_per_node=6 trainer.nnodes=1 rollout.nnodes=1 rollout.n_gpus_per_node=2 \\
    async_training.staleness_threshold={stale} async_training.require_batches=2 \\
    async_training.trigger_parameter_sync_step=4
"""
NEMO = """
grpo:
  num_prompts_per_step: 16
  num_generations_per_prompt: 4
  async_grpo: {enabled: true, max_trajectory_age_steps: 2, in_flight_weight_updates: true}
policy:
  model_name: Qwen/Qwen2.5-0.5B-Instruct
  train_global_batch_size: 64
  train_micro_batch_size: 1
  max_total_sequence_length: 1024
  dtensor_cfg: {enabled: false}
  megatron_cfg: {enabled: true, tensor_model_parallel_size: 1}
  generation:
    max_new_tokens: 512
    colocated: {enabled: false, resources: {num_nodes: 1, gpus_per_node: 2}}
    vllm_cfg: {tensor_parallel_size: 1}
cluster: {num_nodes: 1, gpus_per_node: 8}
"""


def planned(tmp_path: Path, text: str, more: str = "", name: str = "run.sh") -> dict[str, Any]:
    file = tmp_path / name
    file.write_text(text)
    words = shlex.split(f"--recipe {file} --gpu h100 {more} --json")
    answer: dict[str, Any] = dpplan("rl", *words).json()
    return answer


def test_a_script_of_verl_is_a_whole_step(tmp_path: Path) -> None:
    """As its log would show: 32 x 4 responses, half of them in each of two updates."""
    answer = planned(tmp_path, VERL.format(offload="False"))
    work, training = answer["work"], answer["training"]
    assert (work["algorithm"], work["sequences"], work["optimizer_steps"]) == ("grpo", 128, 2)
    assert (work["longest_tokens"], work["response_tokens"]) == (512, 128)
    assert (answer["framework"], answer["gpus"], training["stack"]) == ("verl", 4, "verl-fsdp")
    assert answer["generation"]["tp"] == 2
    assert "reference log-probabilities" in {phase["name"] for phase in answer["phases"]}


def test_what_is_typed_beside_a_script_wins(tmp_path: Path) -> None:
    answer = planned(
        tmp_path, VERL.format(offload="False"), "--gpus 8 --prompts 64 --response-length 300"
    )
    assert (answer["gpus"], answer["work"]["sequences"]) == (8, 256)
    assert answer["work"]["response_tokens"] == 300
    assert answer["rests_on"] is None  # nothing that is a default


def test_a_default_length_of_responses_is_said_with_the_step_without_it(tmp_path: Path) -> None:
    """The recipe knows the limit only; twice the mean takes longer."""
    answer = planned(tmp_path, VERL.format(offload="False"))
    assert "128 tokens decides: with --response-length 256 a step takes" in answer["rests_on"]
    longer = planned(tmp_path, VERL.format(offload="False"), "--response-length 256")
    assert longer["step_s"] > answer["step_s"]


def test_what_verl_offloads_between_phases_leaves_room_for_generation(tmp_path: Path) -> None:
    def generating(answer: dict[str, Any]) -> float:
        return next(p["device_bytes"] for p in answer["phases"] if p["name"] == "generation")

    stays = planned(tmp_path, VERL.format(offload="False"))
    leaves = planned(tmp_path, VERL.format(offload="True"))
    assert generating(leaves) < generating(stays)
    moves = {p["name"]: p["seconds"] for p in stays["phases"]}.get("moves", 0.0)
    assert {p["name"]: p["seconds"] for p in leaves["phases"]}["moves"] > moves


@pytest.mark.parametrize(
    ("estimator", "algorithm"), [("gae", "ppo"), ("group_norm", "grpo"), ("rloo", "rloo")]
)
def test_a_script_of_openrlhf_is_a_whole_step(
    tmp_path: Path, estimator: str, algorithm: str
) -> None:
    text = OPENRLHF.format(shared="--train.colocate_all", estimator=estimator)
    answer = planned(tmp_path, text)
    work = answer["work"]
    assert (work["algorithm"], work["sequences"], work["longest_tokens"]) == (algorithm, 128, 512)
    assert answer["framework"] == "OpenRLHF"
    assert answer["gpus"] == 4
    assert answer["generation"]["engines"] == 2


def test_engines_of_their_own_are_gpus_beside_those_that_train(tmp_path: Path) -> None:
    answer = planned(tmp_path, OPENRLHF.format(shared="", estimator="group_norm"))
    assert (answer["gpus"], answer["training"]["gpus"]) == (8, 4)
    assert [split["shared"] for split in answer["splits"]] == [False]


def test_a_recipe_of_supervised_training_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "sft.sh"
    file.write_text(
        "python -m openrlhf.cli.train_sft --data.max_len 1024 --model.model_name_or_path gpt2"
    )
    refused = dpplan("rl", "--recipe", str(file), "--gpu", "h100", "--gpus", "8")
    assert refused.status == 2
    assert "states no step of `dpplan rl`" in refused.stderr
    assert "dpplan estimate --recipe" in refused.stderr


def test_gpus_that_are_visible_are_not_all_in_use(tmp_path: Path) -> None:
    """examples/tuning of verl: eight are exported, n_gpus_per_node is 1."""
    text = VERL.format(offload="False").replace("n_gpus_per_node=4", "n_gpus_per_node=2")
    answer = planned(tmp_path, f"export CUDA_VISIBLE_DEVICES=0,1,2,3,4,5,6,7\n{text}")
    assert answer["gpus"] == 2


def test_the_loss_of_verl_takes_the_place_of_its_logits(tmp_path: Path) -> None:
    """Unless it trains the entropy, for which logits stay."""

    def training(more: str) -> float:
        text = VERL.format(offload="False").rstrip() + f" {more}\n"
        phases = planned(tmp_path, text)["phases"]
        return next(p["device_bytes"] for p in phases if p["name"] == "training")

    assert training("") < training("actor_rollout_ref.actor.entropy_coeff=0.001")


GRPO = """
model_name_or_path: Qwen/Qwen2.5-0.5B-Instruct
bf16: true
use_vllm: {vllm}
per_device_train_batch_size: 8
gradient_accumulation_steps: 4
num_generations: 16
max_prompt_length: 256
max_completion_length: 512
reward_funcs: [accuracy]
"""


def test_grpo_of_trl_is_a_whole_step(tmp_path: Path) -> None:
    """8 x 4 completions on each of 4 GPUs, 16 to a prompt (generation_batch_size)."""
    answer = planned(tmp_path, GRPO.format(vllm="true"), "--gpus 4", name="grpo.yaml")
    work = answer["work"]
    assert (answer["framework"], work["algorithm"]) == ("TRL", "grpo")
    assert (work["sequences"], work["optimizer_steps"], work["longest_tokens"]) == (128, 1, 512)
    assert answer["generation"]["engine"] == "vLLM"
    twice = planned(tmp_path, GRPO.format(vllm="true"), "--gpus 8", name="grpo.yaml")
    assert twice["work"]["sequences"] == 256


def test_without_vllm_the_trainer_generates_by_itself(tmp_path: Path) -> None:
    """Operators that the CPU issues for each layer bound a token; memory is what training left."""
    by_vllm, by_itself = (
        planned(tmp_path, GRPO.format(vllm=word), "--gpus 1", name="grpo.yaml")
        for word in ("true", "false")
    )
    assert by_itself["generation"]["engine"] == "transformers' generate"
    assert by_itself["generation"]["token_s"] > 24 * 0.54e-3
    assert by_itself["step_s"] > by_vllm["step_s"]
    assert [split["shared"] for split in by_itself["splits"]] == [True]


@pytest.mark.parametrize(("stale", "ahead", "stream"), [("0", 0, True), ("0.5", 1, False)])
def test_asynchronous_scripts_of_verl_have_gpus_that_generate(
    tmp_path: Path, stale: str, ahead: int, stream: bool
) -> None:
    """4 x 2 mini-batches of 16 prompts between two updates of the engines' weights."""
    answer = planned(tmp_path, ASYNC.format(stale=stale))
    work = answer["work"]
    assert (answer["gpus"], answer["training"]["gpus"], work["sequences"]) == (8, 6, 512)
    assert work["steps_ahead"] == ahead
    assert ("each of 4 parts" in " ".join(answer["notes"])) == stream
    assert ("go on in the next step" in " ".join(answer["notes"])) == (not stream)


def test_asynchronous_grpo_of_nemo_rl_has_nodes_that_generate(tmp_path: Path) -> None:
    answer = planned(tmp_path, NEMO, name="grpo.yaml")
    assert (answer["gpus"], answer["training"]["gpus"]) == (8, 6)
    assert answer["work"]["steps_ahead"] == 2
    assert "go on in the next step" in " ".join(answer["notes"])


def test_ulysses_of_verl_is_one_rule_for_scripts_and_options(tmp_path: Path) -> None:
    script = VERL.format(offload="False").rstrip() + (
        " \\\n    actor_rollout_ref.actor.ulysses_sequence_parallel_size=2\n"
    )
    read = planned(tmp_path, script)["training"]
    assert (read["stack"], read["layout"]["cp"]) == ("verl-fsdp", 2)
    assert "--cp-comm-type ulysses" in read["command"]
    shape = "--model qwen2.5-0.5b --gpu h100 --gpus 4 --cp 2 --stack verl-fsdp"
    typed = dpplan("rl", *shlex.split(f"{shape} --cp-comm-type ulysses --json"))
    assert typed.json()["training"]["layout"]["cp"] == 2
    refused = dpplan("rl", *shlex.split(f"{shape} --cp-comm-type ring"))
    assert refused.status == 2
    assert "it has ulysses" in refused.stderr


@pytest.mark.parametrize(
    ("name", "title"), [("sglang", "SGLang"), ("hf", "transformers' generate")]
)
def test_the_engine_of_a_script_of_verl(tmp_path: Path, name: str, title: str) -> None:
    script = VERL.format(offload="False").rstrip() + (
        f" \\\n    actor_rollout_ref.rollout.name={name}\n"
    )
    assert planned(tmp_path, script)["generation"]["engine"] == title


@pytest.mark.parametrize(("alone", "gpus"), [("False", 4), ("True", 6)])
def test_the_reward_model_of_a_script_of_verl(tmp_path: Path, alone: str, gpus: int) -> None:
    script = VERL.format(offload="False").rstrip() + (
        " \\\n    reward_model.enable=True reward_model.model.path=Qwen/Qwen2.5-0.5B-Instruct"
        f" reward_model.enable_resource_pool={alone} reward_model.nnodes=1"
        " reward_model.n_gpus_per_node=2\n"
    )
    answer = planned(tmp_path, script)
    assert (answer["gpus"], answer["training"]["gpus"]) == (gpus, 4)
    assert any("reward model" in note for note in answer["notes"])


@pytest.mark.parametrize(
    ("text", "name", "argument", "value"),
    [
        (VERL.format(offload="False"), "run.sh", "data.max_response_length", "512"),
        (VERL.format(offload="False"), "run.sh", "actor_rollout_ref.rollout.n", "4"),
        (OPENRLHF.format(shared="", estimator="rloo"), "run.sh", "rollout.max_new_tokens", "512"),
        (NEMO, "grpo.yaml", "policy.generation.max_new_tokens", "512"),
    ],
)
@pytest.mark.parametrize("word", ["many", "$LONGEST"])
def test_a_number_that_is_other_text_is_refused_by_its_name(
    tmp_path: Path, text: str, name: str, argument: str, value: str, word: str
) -> None:
    """In place of a default that the file does not have; what is typed stands in for it."""
    last = argument.rpartition(".")[2]
    file = tmp_path / name
    file.write_text(re.sub(rf"({last}[=: ]+){value}", rf"\g<1>{word}", text))
    options = ("--recipe", str(file), "--gpu", "h100")
    refused = dpplan("rl", *options)
    flag = "--responses" if last == "n" else "--response-max"
    assert refused.status == 2
    assert f"{argument}: " in refused.stderr
    assert f"give {flag}" in " ".join(refused.stderr.split())
    assert dpplan("rl", *options, flag, value).status in (0, 3)
