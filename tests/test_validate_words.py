"""Options of measured rows: which of them an estimate holds."""

from __future__ import annotations

from typing import get_args

import pytest
from run_tables import not_expressed, row, row_plan

from benchmarks.studies.residuals import time_rows
from planner.inputs.options import read_options
from planner.specs.quantised import BASES
from planner.studies.documents.validate import Task
from planner.studies.runs.table import written
from planner.studies.validate.files import read_all
from planner.studies.validate.predict import validate_rows
from planner.studies.validate.scored import predict


def test_rows_with_options_that_an_estimate_leaves_out_are_scored_apart() -> None:
    """A run with QLoRA does not test an estimate of full training; names and what every estimate
    assumes make no row stand apart."""
    plain = "release=26.06;recipe=x;peft=none;optimizer=adamw;cuda_graph=none;moments_dtype=fp32"
    rows = [
        row(run_id="a", step_s=1, options=plain),
        row(run_id="b", step_s=9, options="peft=qlora;rank=16"),
        row(run_id="c", step_s=9, options="peft=lora"),
        row(run_id="d", step_s=9) | {"algorithm": "grpo"},
    ]
    document = validate_rows(rows)
    assert [run.not_expressed for run in document.rows] == ["", "peft", "peft", "algorithm"]
    assert document.summary == validate_rows(rows[:1]).summary
    assert document.apart.options == {"peft": 2, "algorithm": 1}
    assert (document.apart.rows, document.apart.summary.time.n) == (3, 3)
    assert document.suites["small"].time.n == 1
    assert [run["run_id"] for run in time_rows(document.rows)] == ["a"]


def test_what_a_stack_stores_decides_whether_a_word_is_in_the_estimate() -> None:
    fsdp = row(stack="pytorch-fsdp", zero=3, options="params_dtype=fp32;autocast=bf16")
    assert validate_rows([fsdp]).rows[0].not_expressed == ""
    other = fsdp | {"options": "params_dtype=bf16;autocast=fp16"}
    assert validate_rows([other]).rows[0].not_expressed == "autocast"
    fp16 = fsdp | {"options": "params_dtype=fp16;grads_dtype=bf16"}
    assert validate_rows([fp16]).rows[0].not_expressed == "grads_dtype;params_dtype"


@pytest.mark.parametrize("base", BASES)
def test_a_quantised_base_is_that_of_the_option(base: str) -> None:
    """Rows say it as runs do, or by the option's name; both are one plan, and are written so that
    they are read again."""
    lora = {"model": "llama-3.1-8b", "gpu": "h100-sxm5-80gb", "lora": 16, "base_precision": base}
    words = [written(read_options(lora))["options"], f"rank=16;base_precision={base}"]
    for each in words:
        cells = row(stack="pytorch-ddp", zero=0, options=f"peft=lora;{each}")
        assert row_plan(cells)[0].training.base_precision == base
        assert not_expressed(cells) == []


def test_shipped_rows_are_expressed() -> None:
    """All but LLMQ's that repeat modules or offload what is in no estimate, and recipes of
    Megatron-LM that fuse the router or delay weight gradients."""
    rows = [r for r in read_all(()) if r["options"]]
    known = ("llmq", "moe-recipes")
    few = (*known, "nemo-rl")  # of which every third
    some = [r for r in rows if r["suite"] not in few][::14]
    document = validate_rows(some + [r for r in rows if r["suite"] in few][::3])
    apart = {run.suite for run in document.rows if run.not_expressed}
    assert apart == set(known)
    assert {run.task for run in document.rows} == set(get_args(Task))
    words = {"flags", "recompute", "router_fusion", "delay_wgrad"}
    assert document.apart.options.keys() == words


OF_EXPERTS = {"experts": 8, "experts_per_token": 2, "moe_ffn_hidden": 1024}


@pytest.mark.parametrize(
    ("stack", "recompute", "options", "apart"),
    [
        ("llmq", "selective", "", "recompute"),  # repeats modules, which no estimate of it does
        ("llmq", "full", "", ""),
        ("megatron-core", "selective", "", ""),
        ("nemo", "selective", "recompute_modules=moe_act+core_attn", ""),
        ("nemo", "selective", "recompute_modules=attn", "recompute_modules"),
        ("pytorch-fsdp", "selective", "recompute_modules=mlp", "recompute_modules"),
        ("megatron-core", "none", "offload_modules=core_attn+attn_proj", ""),
        ("maxtext", "", "remat_policy=custom;offload_modules=decoder_layer_input", ""),
        ("maxtext", "", "remat_policy=custom", "remat_policy"),
        ("llmq", "full", "flags=offload-opt-m+shard-weights", ""),
        ("llmq", "full", "flags=offload-opt-m offload-master", ""),
        ("llmq", "full", "flags=offload-opt-m+offload-residual", "flags"),
        ("llama-factory", "full", "flags=optimizer and parameters to CPU", ""),
    ],
)
def test_what_no_estimate_of_the_stack_does(
    stack: str, recompute: str, options: str, apart: str
) -> None:
    zero = 3 if stack == "pytorch-fsdp" else 1
    cells = row(stack=stack, zero=zero, recompute=recompute, options=options, **OF_EXPERTS)
    assert not_expressed(cells) == ([apart] if apart else [])


def test_modules_of_a_row_are_those_of_its_layout() -> None:
    """Megatron's modules, and MaxText's tensors; the input of a layer is always kept."""
    listed = row(
        stack="nemo", recompute="selective", options="recompute_modules=moe_act", **OF_EXPERTS
    )
    assert row_plan(listed)[1].recompute == "moe_act"
    kept = "kept_modules=decoder_layer_input+context+query_proj+key_proj+value_proj+qkv_proj"
    policies = {
        f"{kept};remat_policy=custom": "keep:qkv_proj+context",
        "remat_policy=save_out_proj": "keep:out_proj",
        "remat_policy=custom;offload_modules=decoder_layer_input": "full",
        "remat_policy=full": "full",
    }
    for options, recompute in policies.items():
        plan, layout = row_plan(row(stack="maxtext", recompute="", options=options))
        assert layout.recompute == recompute
        away = plan.settings.get("offload-modules")
        assert (layout.offload == "activations") == bool(away) == ("offload_modules" in options)


LLMQ = {"stack": "llmq", "gpu": "rtx5090", "gpus": 1, "gpus_per_node": 1, "dp": 1, "zero": 0}


@pytest.mark.parametrize(
    ("flags", "zero", "offload"),
    [
        ("offload-opt-m offload-opt-v", 0, "optimizer"),
        ("offload-master", 0, "optimizer"),  # whole weights stay on the GPU
        ("shard-gradients", 2, "none"),
        ("offload-opt-m+shard-weights+shard-gradients", 3, "optimizer"),
        ("shard-weights offload-master", 3, "params"),
        ("shard-weights+offload-master+offload-quants", 3, "optimizer"),
    ],
)
def test_switches_of_llmq(flags: str, zero: int, offload: str) -> None:
    _, layout = row_plan(row(**LLMQ, options=f"flags={flags}"))
    assert (layout.zero, layout.offload) == (zero, offload)


def test_weights_from_host_memory_cost_a_constant_per_micro_batch() -> None:
    """Twice the tokens per micro-batch is half as many reads of the weights, which hide behind
    nothing."""
    whole, twice = (
        predict(row(**LLMQ, micro_batch=n, options="flags=shard-weights offload-master"), None)
        for n in (4, 8)
    )
    read = whole.time.components["data_parallel"][0] / 16
    assert read > 0
    assert twice.time.components["data_parallel"][0] / 8 == pytest.approx(read)


def test_offloaded_activations_are_a_layout_where_the_stack_has_them() -> None:
    words = "activation_offload=checkpoint_inputs"
    fsdp = row(stack="pytorch-fsdp", zero=3, recompute="full", options=words)
    assert row_plan(fsdp)[1].offload == "activations"
    assert validate_rows([fsdp]).rows[0].not_expressed == ""
    planned = fsdp | {"options": "activation_offload=planned"}
    assert validate_rows([planned]).rows[0].not_expressed == "activation_offload"
    other = row(stack="deepspeed", zero=3, options=words)
    assert row_plan(other)[1].offload == "none"
    assert validate_rows([other]).rows[0].not_expressed == "activation_offload"
