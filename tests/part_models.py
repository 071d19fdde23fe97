"""Small models of every part: keys of transformers' own config, and the same as a model of ours."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from planner.specs.model import ModelSpec

H, VOCAB = 32, 96
BASE = {"vocab_size": VOCAB, "hidden_size": H, "num_hidden_layers": 4, "pad_token_id": 0}
TABLE = Path(__file__).parent / "data/part_models.json"

# model_type, its config, and ours
MODELS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    name: ({**BASE, **config}, keys)
    for name, (config, keys) in json.loads(TABLE.read_text(encoding="utf-8")).items()
}


def keys_of(model_type: str) -> dict[str, Any]:
    return {"name": model_type, "layers": 4, "hidden": H, "vocab": VOCAB, **MODELS[model_type][1]}


def model_of(model_type: str) -> ModelSpec:
    return ModelSpec.model_validate(keys_of(model_type))
