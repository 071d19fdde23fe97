"""Parameter counts of configs against transformers itself, built on the meta device: equal to the
unit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from planner.formulas.params import active_parameter_count, parameter_count
from planner.inputs.huggingface import read_config
from planner.specs.layers import layer_words, words_of
from planner.specs.parts.attention import Attention

pytestmark = pytest.mark.oracle

CONFIGS = Path(__file__).parent / "configs"


def oracle(data: dict[str, Any]) -> tuple[int, int]:
    """(elements of all routed experts, elements of the whole model) in transformers; a tied head
    counts once."""
    fields = {
        key: value
        for key, value in data.items()
        if key not in ("model_type", "quantization_config", "auto_map")
    }
    config = transformers.AutoConfig.for_model(data["model_type"], **fields)
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config)
    routed = sum(
        weight.numel() for name, weight in model.named_parameters() if ".mlp.experts." in name
    )
    return routed, sum(weight.numel() for weight in model.parameters())


def compare(path: Path, data: dict[str, Any]) -> None:
    spec, _ = read_config(path)
    routed, total = oracle(data)
    assert parameter_count(spec) == total
    idle = (
        routed * (spec.routed.experts - spec.routed.experts_per_token) // spec.routed.experts
        if spec.routed
        else 0
    )
    assert active_parameter_count(spec) == total - idle


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("*.json")), ids=lambda path: path.stem)
def test_catalogue_config(path: Path) -> None:
    compare(path, json.loads(path.read_text("utf-8")))


TABLE = Path(__file__).parent / "data/small_configs.json"
SMALL: dict[str, dict[str, Any]] = json.loads(TABLE.read_text(encoding="utf-8"))
LLAMA = {key: value for key, value in SMALL["llama"].items() if key != "model_type"}


@pytest.mark.parametrize("name", SMALL)
def test_small_config(name: str, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(SMALL[name]), "utf-8")
    compare(path, SMALL[name])


@pytest.mark.parametrize("name", SMALL)
def test_config_as_transformers_writes_it(name: str, tmp_path: Path) -> None:
    """Configs that `save_pretrained` of the installed transformers writes are read without an
    unknown key, as the same shape."""
    first, second = tmp_path / "config.json", tmp_path / "saved"
    first.write_text(json.dumps(SMALL[name]), "utf-8")
    transformers.AutoConfig.for_model(**SMALL[name]).save_pretrained(second)
    same = {"name", "title", "source"}
    assert read_config(second / "config.json")[0].model_dump(exclude=same) == read_config(first)[
        0
    ].model_dump(exclude=same)


@pytest.mark.parametrize(
    ("family", "fields"),
    [
        ("gemma2", {**LLAMA, "head_dim": 16}),
        (
            "qwen2",
            {**LLAMA, "use_sliding_window": True, "max_window_layers": 0, "sliding_window": 16},
        ),
        (
            "qwen2",
            {**LLAMA, "use_sliding_window": True, "max_window_layers": 5, "sliding_window": 16},
        ),
        ("qwen3", {**LLAMA, "head_dim": 16, "sliding_window": 16}),
    ],
)
def test_windowed_layers(family: str, fields: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"model_type": family, **fields}), "utf-8")
    spec, _ = read_config(path)
    kinds = transformers.AutoConfig.for_model(family, **fields).layer_types
    windows = {part.name for part in spec.parts if isinstance(part, Attention) and part.window}
    windowed = [words_of(text)[0][0] in windows for _, text in layer_words(spec)]
    assert windowed == [kind == "sliding_attention" for kind in kinds]
