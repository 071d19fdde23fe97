"""Stacks of measured runs: which release a run gets, what fused experts change, and what a stack
and a model's family do where a recipe does not say."""

from __future__ import annotations

from pathlib import Path

import pytest
from plans import flat_of
from run_tables import left_open, row, row_plan

from planner.estimate import evaluate
from planner.estimate.layer import dispatch
from planner.estimate.machine import machine
from planner.estimate.machine.kernels import fused_experts
from planner.inputs import catalog
from planner.studies.runs import recipes
from planner.studies.runs.cells import Row, options_of
from planner.studies.runs.model import families
from planner.studies.validate.rows import SHIPPED, read_rows


def rows() -> list[Row]:
    return [*read_rows(SHIPPED / "nemo-moe.csv")]


def on(gpu: str) -> Row:
    return next(row for row in rows() if row["gpu"] == gpu)


@pytest.mark.parametrize(
    ("release", "stack"),
    [
        ("26.08", "nemo-26.06"),
        ("26.06.01", "nemo-26.06"),
        ("26.04.01", "nemo"),
        ("25.09", "nemo"),
        ("v4.1", "nemo"),
        ("v5.1", "nemo-mlperf-5.1"),
        ("v6.0", "nemo-mlperf-5.1"),
        ("", "nemo"),
    ],
)
def test_a_run_gets_the_latest_profile_that_is_not_newer(release: str, stack: str) -> None:
    plan, _ = row_plan(on("gb300-279gb") | {"options": f"release={release}"})
    assert plan.stack.id == stack


CARD = "NVIDIA-NeMo/Megatron-Bridge@067f987d examples/model_verification_cards/x/card.yaml items."


@pytest.mark.parametrize(
    ("named", "reference", "stack"),
    [
        ("megatron-deepspeed", "bigscience-workshop/bigscience@9e64ede train/tr11", "bigscience"),
        ("megatron-deepspeed", "VIA-Research/vTrain@f8dda84 validation", "megatron-deepspeed"),
        ("megatron-deepspeed", "bigscience-workshop, by letter", "megatron-deepspeed"),
        ("megatron-deepspeed", "", "megatron-deepspeed"),
        ("megatron-core", "bigscience-workshop/bigscience@9e64ede train", "megatron-core"),
        ("megatron-core", "NVIDIA-NeMo/Megatron-Bridge@067f987d skills/x/card.yaml", "nemo"),
        ("megatron-core", CARD + "pretrain.H100", "nemo"),
        ("megatron-core", CARD + "pretrain_performance.H100", "nemo-26.06"),
        ("megatron-core", "NVIDIA/Megatron-LM@d98e8a64 tests", "megatron-core"),
        ("nemo", CARD + "pretrain_performance.H100", "nemo"),
    ],
)
def test_a_run_is_of_the_program_that_its_source_runs(
    named: str, reference: str, stack: str
) -> None:
    assert row_plan(row(stack=named, source_ref=reference))[0].stack.id == stack


def test_fused_experts_are_for_experts_on_blackwell() -> None:
    def fused(row: Row) -> bool:
        return fused_experts(row_plan(row | {"options": "release=26.06"})[0])

    assert fused(on("gb300-279gb"))
    assert not fused(on("h100-sxm5-80gb"))
    assert not fused([*read_rows(SHIPPED / "nemo-dense.csv")][-1])


def test_captured_iterations_launch_at_once() -> None:
    """Whole iterations of NVIDIA's MLPerf v5.1 runs are graphs, of dense models too, and on its own
    GPUs."""
    dense = [*read_rows(SHIPPED / "mlperf.csv")][-1]

    def launch(gpu: str, release: str) -> float:
        changes = {"gpu": gpu, "options": f"release={release}", "precision": "bf16"}
        return float(machine(row_plan(dense | changes)[0]).operator_launch)

    for gpu in ("b300-sxm-270gb", "h100-sxm5-80gb"):
        assert launch(gpu, "v5.1") < launch(gpu, "v4.1") / 10
    assert launch("mi355x-288gb", "v5.1") == launch("mi355x-288gb", "v4.1")


def test_fused_experts_move_less_and_launch_at_once() -> None:
    from planner.specs.columns import Columns

    row = on("gb300-279gb")
    before, after = (
        row_plan(row | {"options": f"release={release};mtp=0"}) for release in ("26.04", "26.06")
    )
    assert float(machine(after[0]).operator_launch) < float(machine(before[0]).operator_launch)
    old, new = (evaluate(plan, Columns.of([layout])).time for plan, layout in (before, after))
    for name in ("memory_bound", "matmul", "launch"):
        assert new.components[name][0] <= old.components[name][0], name
    assert new.components["attention"][0] == old.components["attention"][0]


def profile(tmp_path: Path, unstated: str) -> str:
    """A custom stack: torchtitan with other defaults where a recipe is silent, and with tensor
    parallelism that sequence parallelism does not have to go with."""
    text = (catalog.folder("stacks") / "torchtitan.toml").read_text(encoding="utf-8")
    assert "tensor_alone = false" in text
    text = text.replace("tensor_alone = false", "tensor_alone = true")
    path = tmp_path / "own.toml"
    path.write_text(text.partition("[unstated]")[0] + unstated, encoding="utf-8")
    return str(path)


def test_what_a_recipe_does_not_say_is_a_fact_of_its_stack(tmp_path: Path) -> None:
    """Its table is known, not open; what the table does not name is searched."""
    silent = row(zero="", sequence_parallel="", tp=2, dp=4)
    for value in (True, False):
        ours = f"[unstated]\nzero = 3\nsequence_parallel = {str(value).lower()}\n"
        known = silent | {"stack": profile(tmp_path, ours)}
        _, layout = row_plan(known)
        assert (layout.zero, layout.sequence_parallel) == (3, value)
        assert left_open(known) == ()
    unknown = silent | {"stack": profile(tmp_path, "")}
    assert left_open(unknown) == ("zero", "sequence_parallel")
    text = known | {"zero": "2", "recompute": "selective", "sequence_parallel": "0"}
    _, layout = row_plan(text)
    assert (layout.zero, layout.recompute, layout.sequence_parallel) == (2, "selective", False)
    assert left_open(text) == ()


def test_a_gpt_of_megatron_trains_as_its_scripts_do() -> None:
    gpt = row(positions="learned")
    plan, _ = row_plan(gpt)
    assert plan.model.dropout
    assert plan.training.attention == "fused_softmax"
    for other in ({"flash_attention": "1"}, {"positions": "rope"}, {"stack": "nemo"}):
        plan, _ = row_plan(gpt | other)
        assert not plan.model.dropout
        assert plan.training.attention is None


EXPERTS = {"experts": "64", "experts_per_token": "6", "moe_ffn_hidden": "1408", "head_dim": "128"}


@pytest.mark.parametrize(
    ("name", "query_rank", "groups"),
    [
        ("deepseek-ai/DeepSeek-V3", 1536, 4),
        ("DeepSeekV3 (w/o MTP)", 1536, 4),
        ("Kimi-K2", 1536, None),
        ("Moonlight 16B", None, None),
    ],
)
def test_a_family_adds_latent_attention(
    name: str, query_rank: int | None, groups: int | None
) -> None:
    model = row_plan(row(model=name, **EXPERTS))[0].model
    latent = flat_of(model).latent
    assert latent is not None
    assert model.routed is not None
    assert (latent.query_rank, model.routed.group_limit) == (query_rank, groups)
    assert flat_of(row_plan(row(model=name))[0].model).latent is None  # dense
    assert flat_of(row_plan(row(model="Mixtral-8x7B", **EXPERTS))[0].model).latent is None


def test_every_family_has_a_source_and_only_mpt_has_no_biases() -> None:
    assert all(family.source for family in families().values())
    plain = {"mlp": "gelu", "norm": "layernorm"}
    assert not flat_of(row_plan(row(model="MPT-7b", **plain))[0].model).bias_mlp
    assert flat_of(row_plan(row(model="prompt-7b", **plain))[0].model).bias_mlp


def test_a_loss_is_compiled_where_the_stack_compiles_it_with_the_model() -> None:
    def fused(**cells: str) -> bool | None:
        return row_plan(row(**{"zero": "3", **cells}))[0].fused_cross_entropy

    assert fused(stack="torchtitan", options="compile") is None
    assert fused(stack="torchtitan", options="compile;release=25.04")
    assert fused(stack="nanogpt", options="compile", zero="0")
    assert fused(stack="nanogpt", options="", zero="0") is None
    assert fused(stack="pytorch-fsdp", options="compile") is None
    assert fused(stack="pytorch-fsdp", options="compile;fused_cross_entropy=1")


def test_no_dispatcher_is_none() -> None:
    plain, none = (
        row_plan(on("b200-sxm-180gb") | {"options": o})[0] for o in ("", "dispatcher=none")
    )
    assert none == plain


def test_recipes_of_a_release_complete_rows_that_print_results_alone() -> None:
    def completed(**cells: str) -> dict[str, str]:
        given = {"stack": "nemo", "model": "DeepSeekV3", "gpu": "b300-sxm-270gb"}
        layout = {"tp": "1", "pp": "16", "vpp": "", "ep": "8", "micro_batch": "1"}
        return options_of(recipes.completed(given | layout | {"precision": "fp8"} | cells))

    # DeepSeek-V3 on B300 was fused by 26.06.01, not by 26.06
    for release, pp, vpp, fused in (("26.06", "8", "1", "0"), ("26.06.01", "8", "2", "1")):
        micro_batch = "2" if fused == "0" else "1"
        words = f"release={release};fp8_recipe=mxfp8"
        row = completed(options=words, pp=pp, vpp=vpp, micro_batch=micro_batch)
        assert (row["te_op_fuser"], row["ep_overlap"]) == (fused, fused)
    for other in ({"gpu": "a100-sxm4-80gb"}, {"ep": "4"}, {"stack": "torchtitan"}):
        assert completed(options="release=26.04", **other) == {"release": "26.04"}
    # what a row says comes first, unless it was read from the sources of another release
    values = {"model": "openai/gpt-oss-120b", "pp": "1", "micro_batch": "4", "precision": "bf16"}
    values |= {"gpu": "b200-sxm-180gb"}
    for named, dispatcher in (("", "alltoall"), ("recipe=x;", "hybridep")):
        row = completed(options=f"{named}dispatcher=alltoall;release=26.04", **values)
        assert row["dispatcher"] == dispatcher


def test_multi_token_prediction_is_trained_where_the_row_or_its_recipe_says() -> None:
    row = next(row for row in rows() if row["run_id"] == "nemo-moe-0062")
    assert row_plan(row)[0].model.mtp == 1
    assert row_plan(row | {"model": "DeepSeekV3 (w/o MTP)"})[0].model.mtp == 0
    assert row_plan(row | {"options": "release=25.09;mtp=2"})[0].model.mtp == 2


def test_graphs_and_overlap_come_with_the_fused_experts_of_a_stack() -> None:
    """The kernel runs experts in 8 bit, and recipes without it have neither."""
    row = on("gb300-279gb") | {"options": "release=26.08"}
    mxfp8 = {"precision": "fp8", "options": "release=26.08;fp8_recipe=mxfp8"}
    for words, fused in (
        ({"precision": "fp8"}, True),
        (mxfp8, True),
        ({"precision": "bf16"}, False),
        ({"precision": "nvfp4"}, False),
    ):
        plan, _ = row_plan(row | words)
        assert fused_experts(plan) == dispatch.overlaps(plan) == fused
        assert (float(machine(plan).operator_launch) < 2e-5) == fused
