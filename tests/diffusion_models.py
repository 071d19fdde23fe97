"""Diffusion transformers of the catalogue, made small: the same layers and parts, 32 wide."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from planner.inputs import catalog
from planner.specs.model import ModelSpec

MODELS = Path(catalog.__file__).parents[1] / "models"
H, TEXT = 32, 10
# sizes of both models in diffusers: 2 heads of 16, text of 24, pooled text of 20
_SIZES = {"heads": 2, "kv_heads": 2, "head_dim": 16, "ffn_hidden": 4 * H, "joined": TEXT}
_PROJECTIONS = {"words": (24, H), "last_words": (H, 3 * H)}
PATCH = {"flux-1-dev": 8, "sd3-medium": 16}  # elements of a token: 8 channels; 2 x 2 in 4
STEP = 256 * H + H * H  # weights of the embedding of a step, or of the guidance
POOLED = 20 * H + H * H
CONDITIONS = {"flux-1-dev": 2 * STEP + POOLED, "sd3-medium": STEP + POOLED}
_VECTORS = {"flux-1-dev": 6, "sd3-medium": 4}  # biases of those


def small(name: str, layers: dict[str, int]) -> ModelSpec:
    """layers: of every tower, as many as its first, plain and last layers are."""
    raw: dict[str, Any] = tomllib.loads((MODELS / f"{name}.toml").read_text("utf-8"))
    raw |= {"hidden": H, "published": {}, "layers": sum(layers.values())}
    for tower in raw["towers"]:
        tower["tokens"] = TEXT
    for part in raw["parts"]:
        part.update({key: value for key, value in _SIZES.items() if key in part})
        if part["type"] == "projection":
            ends = {"latents": (PATCH[name], H), "noise": (H, PATCH[name]), **_PROJECTIONS}
            part["inputs"], part["outputs"] = ends[part["name"]]
        if part["name"] == "conditions":
            part["elements"] = CONDITIONS[name] + _VECTORS[name] * H
    left = dict(layers)
    for entry in raw["stack"]:
        left[entry.get("tower", "")] -= entry["times"] == 1
    for entry in raw["stack"]:
        if entry["times"] > 1:
            entry["times"] = left[entry.get("tower", "")]
    raw["stack"] = [entry for entry in raw["stack"] if entry["times"]]
    return ModelSpec.model_validate(raw)
