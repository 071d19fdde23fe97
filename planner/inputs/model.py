"""A model by catalogue name, model TOML, config.json or hub name."""

from __future__ import annotations

from pathlib import Path

from planner.inputs import catalog
from planner.specs.base import PlanError
from planner.specs.model import ModelSpec
from planner.specs.published import Published

# what tells models apart: their training is published under a name, and a config.json has none
_SHAPE = (
    "layers",
    "hidden",
    "heads",
    "kv_heads",
    "head_dim",
    "ffn_hidden",
    "vocab",
    "latent",
    "moe",
)


def model_spec(name: str) -> tuple[ModelSpec, list[str]]:
    """A model by catalogue name, path to a model TOML, or path to a Hugging Face config.json; and
    what was inferred."""
    from_hub = name.startswith("hf:")
    if not from_hub and (not catalog.is_path(name) or name.endswith(".toml")):
        return catalog.load("models", ModelSpec, name), []
    from planner.inputs import huggingface

    model, inferred = huggingface.read_config(
        _from_hub(name) if from_hub else catalog.user_path(name, "--model")
    )
    known = _same_shape(model)
    if known is None:
        return model, inferred
    trained = f"the shape of {known.name}: trained as that is taken to have been"
    return model.model_copy(update={"published": known.published}), [*inferred, trained]


def _same_shape(model: ModelSpec) -> ModelSpec | None:
    """The catalogue's model of this shape, the one of the same context where there are several;
    None: there is none, or its training is not published."""
    same = [
        known
        for known in catalog.load_all("models", ModelSpec)
        if known.published != Published()
        and all(getattr(known, name) == getattr(model, name) for name in _SHAPE)
    ]
    return min(same, key=lambda known: known.max_positions != model.max_positions, default=None)


def _from_hub(name: str) -> Path:
    """config.json of hf:org/name, through huggingface_hub and its cache (the `hub` extra)."""
    try:
        from huggingface_hub import hf_hub_download
    except ImportError:
        remedy = (
            "reading from the Hugging Face Hub needs huggingface_hub: install dpplan[hub], or give"
            " the path of a config.json"
        )
        raise PlanError("--model", name, remedy) from None
    try:
        return Path(hf_hub_download(name.removeprefix("hf:"), "config.json"))
    # network, permission, unknown repository: whatever the client raises is the user's to read
    except Exception as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise PlanError(
            "--model",
            name,
            f"cannot be fetched ({reason}); download its config.json and give the path",
        ) from None
