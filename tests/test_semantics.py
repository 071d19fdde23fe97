"""Features of a model without a cost in a plan are exported, or listed."""

from __future__ import annotations

import pytest
from test_export import files_of

from planner.formats import recipe as formats
from planner.formats import semantics
from planner.formats.target import PlanToWrite, Target, no_decoder
from planner.formats.verbs.export import lost_in
from planner.inputs import catalog
from planner.inputs.model import model_spec
from planner.specs.base import PlanError
from planner.specs.model import ModelSpec
from planner.specs.options.aliases import written


def _left(target: str, model: str) -> str:
    return "\n".join(semantics.left_to_you(formats.target(target), model_spec(model)[0]))


@pytest.mark.parametrize(
    ("model", "arguments"),
    [
        ("llama-3-8b", ["--rotary-base", "--norm-epsilon"]),
        ("deepseek-v3", ["--moe-router-num-groups", "--moe-router-score-function"]),
        ("gemma-2-9b", ["activation_func", "final_logit_softcapping"]),
        ("mixtral-8x7b", ["--moe-aux-loss-coeff"]),
    ],
)
def test_what_megatron_needs_beside_a_plan_is_listed(model: str, arguments: list[str]) -> None:
    left = _left("megatron", model)
    assert [name for name in arguments if name not in left] == []


@pytest.mark.parametrize(
    ("model", "argument"),
    [
        ("gpt3-175b", "--rotary-base"),
        ("llama-3-8b", "--moe-router"),
        ("mixtral-8x7b", "num-groups"),
        ("llama-3-8b", "activation_func"),
    ],
)
def test_what_a_model_does_not_have_is_not_listed(model: str, argument: str) -> None:
    assert argument not in _left("megatron", model)


def test_a_target_that_names_the_model_leaves_none_of_it() -> None:
    assert _left("trl", "deepseek-v3") == ""


@pytest.mark.parametrize(
    ("target", "model", "argument"),
    [
        ("nanotron", "qwen3-8b", "which has none: norms of queries"),
        ("megatron", "olmo-2-7b", "--qk-layernorm acts per head"),
        ("megatron", "gpt-neox-20b", "its layer specification: attention and MLP of the same"),
        ("maxtext", "granite-3-8b", "rope_max_timescale"),
        ("maxtext", "gpt-neox-20b", "decoder_block: LayerNorm"),
    ],
)
def test_what_a_target_has_no_argument_for_is_listed(
    target: str, model: str, argument: str
) -> None:
    assert argument in _left(target, model)


def test_a_model_that_maxtext_names_has_all_that_its_name_says() -> None:
    assert _left("maxtext", "llama-3-8b") == ""


def test_rows_are_of_conditions_and_targets_that_exist() -> None:
    kinds = {str(target.kind) for target in formats.targets()}
    for name, row in semantics.table().items():
        assert row["when"] in semantics.CONDITIONS, name
        named = {*row, *row.get("carried", {})} - {"when", "says", "carried"}
        assert named, name
        assert named <= kinds, name


def _request(target: Target, model: ModelSpec) -> PlanToWrite:
    options = {"stack": target.stacks[0], "gpus": 8, "tp": 1, "pp": 1, "cp": 1, "micro_batch": 1}
    options |= {"zero": 1 if target.kind in ("megatron", "nanotron") else 3, "optimizer": "adam"}
    options |= {"global_batch": 8, "seq_len": 1024, "precision": "bf16", "recompute": "none"}
    return PlanToWrite({"model": model.name, **options}, model, 1, 8)


@pytest.mark.parametrize("target", formats.targets(), ids=lambda target: str(target.kind))
def test_every_property_of_every_model_is_carried_or_left(target: Target) -> None:
    """A target names the model in its files, or spells it: then each property of the table that the
    model has stands in the files by one of the arguments of its row, or is left to the user. What
    is neither has to be among the options that the files do not express."""
    known = [catalog.load("models", ModelSpec, name) for name in catalog.ids("models")]
    models = [model for model in known if not no_decoder(model)]
    assert len(models) > 100
    for model in models:
        request = _request(target, model)
        try:
            text = "\n".join([*target.write(request, ()).values(), *target.arguments(request)])
        except PlanError:  # it has no name for the model, which its refusal says
            continue
        ids = {*model.hub, *_words_of(target, model)}
        if target.names(model):
            assert any(name in text for name in ids), model.name
            continue
        files = files_of(target, request)
        if "model" in {entry.option for entry in lost_in(target, request, files)}:
            continue
        if not semantics.spells(target):
            assert semantics.left_to_you(target, model), model.name
            continue
        for name, row in semantics.table().items():
            if semantics.CONDITIONS[row["when"]](model) and target.kind not in row:
                arguments = row["carried"][target.kind]
                assert any(_says(word, text) for word in arguments), (name, model.name)


def _says(argument: str, text: str) -> bool:
    """Whether a text has an argument, or with "no " before it has not."""
    return argument.removeprefix("no ") not in text if argument[:3] == "no " else argument in text


def _words_of(target: Target, model: ModelSpec) -> list[str]:
    """The target's own name of a model, the last part of it: `llama3 8B`."""
    word = written("models", str(target.kind)).get(model.name)
    return [] if word is None else [str(word).split()[-1]]
