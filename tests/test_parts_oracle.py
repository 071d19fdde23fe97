"""Parameters of every part against transformers itself, built on the meta device: equal to the
unit."""

from __future__ import annotations

import pytest
import torch
import transformers

from planner.formulas.params import parameter_count
from tests.part_models import MODELS, model_of

pytestmark = pytest.mark.oracle


def counted(model_type: str) -> int:
    """Parameters in transformers."""
    config = transformers.AutoConfig.for_model(model_type, **MODELS[model_type][0])
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config)
    return sum(weight.numel() for weight in model.parameters())


def test_parameters_are_those_of_transformers() -> None:
    assert {name: parameter_count(model_of(name)) for name in MODELS} == {
        name: counted(name) for name in MODELS
    }
