"""Read a model from a Hugging Face config.json: what was inferred is reported, what is not
understood is refused."""

from __future__ import annotations

import difflib
import json
from pathlib import Path
from typing import Any

from planner.inputs.catalog import build, read_text
from planner.inputs.huggingface import nested, others, refused, typed
from planner.inputs.huggingface.document import Document, plain_name
from planner.inputs.huggingface.harmless import is_harmless
from planner.inputs.not_modelled import of_type
from planner.inputs.readers import read_json
from planner.specs.base import PlanError
from planner.specs.model import ModelSpec

FIELD = "--model"

KNOWN = frozenset(typed.TYPES)

_INFINITE = ("time_step_limit",)  # Mamba's, which transformers writes as [0.0, Infinity]
_CAUSAL_HEADS = ("ForCausalLM", "LMHeadModel", "LMHead")


def read_config(path: Path) -> tuple[ModelSpec, list[str]]:
    """Read a config.json of a known decoder family.

    Returns the model and one short sentence for each thing the file did not state. The model is
    named after the file, or after its folder when the file is called config.json. Raises PlanError
    naming key, value and remedy when the file is malformed, the family or a key is unknown, or the
    file asks for something that the planner does not express.
    """
    name = path.resolve().parent.name if path.name == "config.json" else path.stem
    return read_keys(_parse(path), str(path), name)


def read_keys(data: dict[str, Any], where: str, name: str) -> tuple[ModelSpec, list[str]]:
    """`read_config` of keys that are already read. where: the file that errors name."""
    document = Document(where, data)
    family = document.get("model_type")
    _refuse_others(document, family)
    inner, kind = nested.language_model(document, family)
    if not isinstance(kind, str) or kind not in KNOWN:
        raise inner.error("model_type", refused.sentence(inner, kind, KNOWN))
    for part in (document,) if inner is document else (document, inner):
        if typed.TYPES[kind].whole is None:
            part.only("is_encoder_decoder", False, "only decoders of this type are planned")
        _common(part)
    shape = typed.read(inner, kind)
    _refuse_unknown(inner, kind)
    shape |= {
        "name": name[:200] or "config",
        "title": f"{family} model of {where}"[:200],
        "source": where,
        "left_out": others.left_out(document, inner, family, shape),
    }
    return build(ModelSpec, shape, FIELD, where), document.notes


def _parse(path: Path) -> dict[str, Any]:
    field = f"{FIELD} {path}"
    text = read_text(path, FIELD)
    try:
        data = read_json(text, _INFINITE)
    except ValueError as error:
        raise PlanError(field, None, str(error)) from None
    if not isinstance(data, dict):
        raise PlanError(
            field, type(data).__name__, "must be a JSON object, as a Hugging Face config.json is"
        )
    return data


def _refuse_others(document: Document, family: object) -> None:
    """Refuse files of adapters, of diffusion pipelines, and of models without a decoder."""
    if document.get("peft_type") is not None:
        base = document.get("base_model_name_or_path")
        raise document.error(
            "peft_type",
            "is an adapter, and no model; give the config.json of its base model"
            f"{f' {plain_name(base)}' if isinstance(base, str) else ''}, and --lora its rank",
        )
    if document.get("_class_name") is not None:
        name = plain_name(str(document.get("_class_name")))
        remedy = f"dpplan trace diffusers:{name}:config.json --out model.toml (docs/trace.md)"
        why = f"is a part of a diffusion pipeline: count it by its own code, {remedy}"
        raise document.error("_class_name", why)
    known = isinstance(family, str) and (family in KNOWN or nested.has_language_model(document))
    known = known or refused.lacks_parts(family)
    if isinstance(family, str) and not known and (why := of_type(family)):
        raise document.error("model_type", why)


def _common(document: Document) -> None:
    """Keys that any family may carry and that say more than bookkeeping."""
    document.only("add_cross_attention", False, "cross attention is not expressed")
    document.only(
        "pruned_heads", {}, "pruned heads are not expressed; give the config of the unpruned model"
    )
    if document.get("quantization_config") is not None:
        document.notes.append(
            "quantization_config is not used: it describes the stored weights, not the training"
        )
    architectures = document.get("architectures") or []
    if not isinstance(architectures, list) or not all(
        isinstance(item, str) for item in architectures
    ):
        raise document.error("architectures", "must be a list of class names")
    if architectures and not any(item.endswith(_CAUSAL_HEADS) for item in architectures):
        shown = plain_name(architectures[0])
        document.notes.append(f"architectures names {shown}: counted with a language-model head")


def _refuse_unknown(document: Document, family: str) -> None:
    known = typed.defaults().get(family, {}).get("keys", {})
    for place, key, value in document.unread():
        # null is how transformers writes "not set", so it says no more than an absent key; token
        # ids shape nothing
        if value is None or is_harmless(key):
            continue
        if key in known and value != known[key]:
            raise place.error(
                key,
                f"only {json.dumps(known[key])} is understood here for {family}; write the model as"
                " a model TOML",
            )
        close = difflib.get_close_matches(key[:100], place.read_keys(), n=2, cutoff=0.8)
        hint = f"did you mean {' or '.join(close)}? " if close else ""
        raise place.error(
            key,
            f"unknown key for {family}; {hint}remove it if it changes no weight, or write the model"
            " as a model TOML",
        )
