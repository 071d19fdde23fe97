"""Features of a model without a cost in a plan are exported, or listed."""

from __future__ import annotations

import pytest

from planner.formats import recipe as formats
from planner.formats import semantics
from planner.inputs.model import model_spec


def _left(target: str, model: str) -> str:
    return "\n".join(semantics.left_to_you(target, model_spec(model)[0]))


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


def test_rows_are_of_conditions_and_targets_that_exist() -> None:
    kinds = {str(target.kind) for target in formats.targets()}
    for name, row in semantics.table().items():
        assert row["when"] in semantics.CONDITIONS, name
        named = row.keys() - {"when", "says"}
        assert named, name
        assert named <= kinds, name
