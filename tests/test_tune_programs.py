"""`dpplan tune` without a stack: the program of each method, and the others beside it."""

from __future__ import annotations

from planner.inputs.fine_tuning import TRAINERS
from planner.specs.options.tune import TuneOptions
from planner.verbs.tune import tune
from planner.views.tune import view

SMALL = {"model": "qwen2.5-0.5b", "gpu": "rtx4090", "seq_len": 1024, "stack_defaults": True}


def test_what_does_not_fit_on_the_trainer_names_the_stack_on_which_it_does() -> None:
    """Shards of Megatron-Core hold what replicas of the Trainer do not: an offer, no answer."""
    given = {"model": "gemma-3-27b", "gpu": "a100-pcie-40gb", "gpus": 2, "zero": 0}
    given |= {"stack_defaults": True}
    answer = tune(TuneOptions(method="lora"), given)
    (row,) = answer.methods
    assert row.stack == "trl-fsdp"
    assert not row.fits
    assert "GiB short" in view(answer).verdict
    assert "on trl-fsdp. " in view(answer).verdict
    assert "lora fits with --stack megatron-core" in view(answer).verdict
    alone = tune(TuneOptions(method="lora"), {**given, "stack": "trl-fsdp"})
    assert alone.on_trainer is None


def test_a_method_that_does_not_fit_names_the_one_with_offloading_that_does() -> None:
    """70B on two cards of 24 GB: the base on the host, from where FSDP brings it layer by layer."""
    given = {"model": "llama-3.1-70b", "gpu": "rtx3090", "gpus": 2, "seq_len": 512}
    answer = tune(TuneOptions(method="qlora", rank=8), given | {"stack_defaults": True})
    assert answer.fastest is None
    assert answer.variant is not None
    assert answer.variant.startswith("--method qlora-cpu fits")
    assert answer.variant in view(answer).verdict
    both = tune(TuneOptions(method="qlora+qlora-cpu"), given | {"stack_defaults": True})
    assert (both.fastest, both.variant) == ("qlora-cpu", None)


def test_what_the_trainer_does_not_run_says_so_and_why() -> None:
    given = {**SMALL, "gpus": 2, "pp": 2}
    answer = tune(TuneOptions(method="lora"), given)
    assert answer.methods[0].stack not in TRAINERS
    assert "which TRL does not: --pp" in view(answer).verdict


def test_one_gpu_takes_unsloth_where_the_trainer_does_not_fit() -> None:
    given = {"model": "qwen2.5-14b", "gpu": "rtx4090", "seq_len": 18432, "stack_defaults": True}
    given |= {"micro_batch": 1, "global_batch": 1}
    answer = tune(TuneOptions(method="qlora"), given)
    assert answer.methods[0].stack == "unsloth"
    assert answer.on_trainer is not None
    assert "TRL does not fit: --stack trl " in answer.on_trainer


def test_one_gpu_that_is_tight_stays_on_trl_where_it_is_expected_to_fit() -> None:
    """70B on 48 GB: what PEFT's preparation leaves in fp32 is 6 GiB, which TRL does not have."""
    given = {"model": "llama-3.1-70b", "gpu": "l40s", "seq_len": 1024, "stack_defaults": True}
    given |= {"micro_batch": 1, "global_batch": 1}
    answer = tune(TuneOptions(method="qlora"), given)
    (row,) = answer.methods
    assert (row.stack, row.fits) == ("trl", True)
    assert any("(probably does not fit)" in note and "hf-trainer" in note for note in answer.notes)
    (prepared,) = tune(TuneOptions(method="qlora"), {**given, "stack": "hf-trainer"}).methods
    assert not prepared.fits


def test_methods_run_on_the_trainer_that_a_person_would_use() -> None:
    """One GPU on plain TRL, shards under FSDP or DeepSpeed; notes name the default and the time
    that other programs take, and a stated stack stays."""
    given = {"model": "llama-3.1-8b", "gpu": "h100", "gpus": 8, "stack_defaults": True}
    answer = tune(TuneOptions(method="full+lora"), given)
    assert [row.stack for row in answer.methods] == ["trl-fsdp", "trl"]
    assert all(f"--stack {row.stack}" in row.command for row in answer.methods)
    assert any("methods run on TRL" in note for note in answer.notes)
    assert any("lora with other programs: hf-trainer " in note for note in answer.notes)
    stated = tune(TuneOptions(method="full+lora"), {**given, "stack": "torchtune"})
    assert {row.stack for row in stated.methods} == {"torchtune"}
    assert not any("TRL" in note or "programs" in note for note in stated.notes)
