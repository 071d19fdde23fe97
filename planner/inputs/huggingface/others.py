"""Parts of a model beside its language model, which a plan of that alone leaves out."""

from __future__ import annotations

import re
from typing import Any

from planner.inputs.catalog import load_all
from planner.inputs.huggingface.document import Document, plain_name
from planner.inputs.huggingface.source import FFN, HIDDEN, LAYERS
from planner.specs.model import ModelSpec
from planner.units import show

LANGUAGE = "text_config", "llm_config", "language_config"  # tables of a language model
_OTHER = re.compile(r".{0,40}(vision|visual|image|video|audio|speech|depth|mm_).{0,40}_config")
_NO_PARTS = ("quantization_config", "generation_config", "compression_config")
_SHOWN = 5  # parts in a sentence
_DEPTH, _WIDTH = ("depth", "encoder_layers", *LAYERS), (*HIDDEN, "embed_dim", "width")
_INNER = ("encoder_ffn_dim", *FFN)


def is_other(key: str) -> bool:
    """Whether a key names a part beside the language model, wherever it stands."""
    return _OTHER.fullmatch(key) is not None


def left_out(doc: Document, inner: Document, family: object, shape: dict[str, Any]) -> str:
    """Parts beside the language model, and how the whole is planned; empty for a model of one part.
    shape: fields of the language model."""
    nests = inner is not doc
    others = {
        key: value
        for key, value in (*doc.data.items(), *inner.data.items())
        if isinstance(value, dict)
        and (is_other(key) or (nests and key.endswith("_config") and key not in LANGUAGE))
        and key not in _NO_PARTS
    }
    if not others and not nests:
        return ""
    names = ", ".join(plain_name(key) for key in list(others)[:_SHOWN])
    count = sum(_of_layers(table) for table in others.values())
    size = f" (layers of {show(count, 'count')} parameters at least)" if count else ""
    file = doc.where if doc.where.endswith(".json") else "config.json"
    whole = f"dpplan trace {file} --out model.toml counts all parts"
    if known := _traced(family, shape):
        whole += f", as {known} of the catalogue does"
    return f"planned as its language model, without {names or 'other parts'}{size}: {whole}"


def _of_layers(table: dict[str, Any]) -> int:
    """Parameters of the layers of a tower at least: attention, and an MLP without a gate."""

    def first(names: tuple[str, ...]) -> float:
        values = (table.get(name) for name in names)
        return next((x for x in values if isinstance(x, int | float) and x > 0), 0)

    layers, width = first(_DEPTH), first(_WIDTH)
    inner = first(_INNER) or width * first(("mlp_ratio",))
    return int(layers * width * (4 * width + 2 * inner))


def _traced(family: object, shape: dict[str, Any]) -> str:
    """The catalogue's model of the same class and sizes that was traced with all of its parts."""
    begins = re.sub(r"\W|_", "", str(family)).lower() + "for"
    return next(
        (
            model.name
            for model in load_all("models", ModelSpec)
            if model.traced
            and (model.hidden, model.vocab) == (shape["hidden"], shape["vocab"])
            and begins in (model.source or "").lower().replace("_", "")
        ),
        "",
    )
