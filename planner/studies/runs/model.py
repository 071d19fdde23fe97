"""From a row to the shape of its model: what the cells say, and what the model's family adds."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Literal

from pydantic import Field

from planner.formats import megatron
from planner.formats.shape import model_of
from planner.inputs import catalog, readers
from planner.inputs.model import model_spec
from planner.inputs.names import spellings
from planner.specs.base import Spec
from planner.specs.decoder import decoder_of
from planner.specs.layout import Recompute
from planner.specs.model import Experts, Held, LatentAttention, ModelSpec
from planner.specs.stack import StackSpec
from planner.studies.runs.cells import Row, Skip, options_of, whole

_FAMILIES = Path(__file__).parent.parent / "data" / "families.toml"
_POSITIONS = {"rope": "rotary", "learned": "learned", "alibi": "alibi"}
_SHAPE = ("layers", "hidden", "heads")  # cells; a row without them has the catalogue's shape
_ARGUMENTS = "args"  # column of flags
_VOCAB = 32_000  # tokens where none is printed: LLaMA's
_FFN_FACTOR = 4  # width of an MLP / width of the model where none is printed


class Recipe(Spec):
    """Recomputation in the recipes of a family, on some GPUs of a stack."""

    stacks: tuple[str, ...] = Field(strict=False)
    gpus: tuple[str, ...] = Field(strict=False)  # how their ids begin
    micro_batch: int | None = Field(default=None, ge=1)  # where it decides; None: any
    recompute: Recompute


class Family(Spec):
    """Facts of a model that the columns lack."""

    source: str
    joint: tuple[Literal["qkv", "gate"], ...] = Field(default=(), strict=False)  # one matrix
    holds: tuple[Held, ...] = Field(default=(), strict=False)
    biases: bool = True  # of LayerNorm, and of the GEMMs of a model with a plain MLP
    latent: LatentAttention | None = None  # of mixtures of experts with this width of a head
    group_limit: int | None = Field(default=None, ge=1)  # groups of experts that a token may use
    bf16_layers: dict[str, int] = Field(
        default_factory=dict
    )  # layers whose GEMMs stay in 16 bit, by recipe
    # of its recipes for a stack: type in which gradients are reduced
    gradient_reduce: dict[str, Literal["fp32", "bf16"]] = Field(default_factory=dict)
    recipes: tuple[Recipe, ...] = Field(default=(), strict=False)


@cache
def families() -> dict[str, Family]:
    """Families by how a word of a model's name begins."""
    field = str(_FAMILIES)
    tables = catalog.read_toml(_FAMILIES, field)
    return {name: catalog.build(Family, table, field, name) for name, table in tables.items()}


def _family(name: str) -> Family:
    matching = (
        family for word, family in families().items() if re.search(rf"\b{word}", name.lower())
    )
    return next(matching, Family(source=""))


def family_of(row: Row) -> Family:
    """The family of a row's model; an empty one where none is known."""
    return _family(row.get("model", ""))


def repeats(row: Row, stack: StackSpec) -> str | None:
    """Recomputation in the recipes of this model and GPU; None if unknown."""
    micro = whole(row, "micro_batch", 1)
    for recipe in family_of(row).recipes:
        known = {stack.id, stack.release_of} & {*recipe.stacks}  # a release counts as its stack
        here = known and row["gpu"].startswith(recipe.gpus)
        if here and recipe.micro_batch in (None, micro):
            return recipe.recompute
    return None


@cache
def _catalogued(name: str) -> ModelSpec | None:
    """The catalogue's model of this name, alias or id of the Hugging Face Hub; None: of another
    name."""
    owners = catalog.owners("models")
    model_id = next((owners[word] for word in spellings(name) if word in owners), None)
    return catalog.load("models", ModelSpec, model_id) if model_id else None


def _agreed(row: Row, known: ModelSpec) -> ModelSpec:
    """The catalogue's model, where it has the numbers that the row states."""
    has = {
        "layers": {known.layers},
        "hidden": {known.hidden},
        "vocab": {known.vocab, known.padded_vocab},
        "experts": {known.routed.experts if known.routed else 0},
    }
    for name, numbers in has.items():
        if row.get(name, "") and whole(row, name) not in numbers:
            raise Skip(
                f"{name} is {row[name]}, where {known.name} of the catalogue has"
                f" {min(numbers)}; name another model, or leave the cell empty"
            )
    return known


def _of_arguments(row: Row) -> ModelSpec:
    """The model that the arguments of a row's launch state: JSON of flags of Megatron-LM."""
    try:
        flags = megatron.of_values(readers.read_json(row[_ARGUMENTS]))
    except ValueError as error:
        raise Skip(f"{_ARGUMENTS} is not JSON of flags: {error}") from None
    stated = {name: entry.value for name, entry in megatron.FORMAT.read(flags).model.items()}
    stated["vocab"] = whole(row, "vocab", stated.get("vocab") or _VOCAB)
    option, notes = model_of(stated, None)
    if not option:
        raise Skip(f"{_ARGUMENTS}: {' '.join(notes)}")
    spec, _ = model_spec(option["model"])
    return spec.model_copy(update={"name": row.get("model", "") or spec.name})


def row_model(row: Row, stack: StackSpec) -> ModelSpec:
    """Shape of a row's model: the catalogue's model of this name where its layers differ (columns
    cannot express that) or where the row leaves the shape out; else the shape in its cells. Raises
    Skip where a cell cannot be read, and where it contradicts the catalogue."""
    spec = _shape_of(row, stack)
    trained = whole(options_of(row), "mtp", 0)
    return spec.model_copy(update={"mtp": trained}) if trained else spec


def _shape_of(row: Row, stack: StackSpec) -> ModelSpec:
    """The model without modules that a recipe adds only for training (multi-token prediction)."""
    known = _catalogued(row.get("model", ""))
    blank = not any(row.get(name, "") for name in _SHAPE)
    if known is not None and (decoder_of(known) is None or blank):
        return _agreed(row, known)
    if blank and row.get(_ARGUMENTS, ""):
        return _of_arguments(row)
    if blank:
        raise Skip(
            f"model is {row.get('model', '')!r}, which the catalogue does not have, and"
            f" {', '.join(_SHAPE)} are empty"
        )
    heads = whole(row, "heads", minimum=1)
    hidden = whole(row, "hidden")
    head_dim = whole(row, "head_dim", hidden // heads)
    name = row.get("model", "") or "model"
    family = _family(name)
    layers = whole(row, "layers")
    moe = _experts(row, family)
    latent = family.latent
    gated = row.get("mlp", "") in ("swiglu", "geglu", "")
    norm = "layernorm" if row.get("norm", "") == "layernorm" else "rmsnorm"
    biases = family.biases and not gated
    return ModelSpec.model_validate(
        {
            "name": name,
            "layers": layers,
            "hidden": hidden,
            "heads": heads,
            "kv_heads": whole(row, "kv_heads", heads) or heads,
            "head_dim": head_dim,
            "ffn_hidden": whole(row, "ffn_hidden", 0) or _FFN_FACTOR * hidden,
            "vocab": whole(row, "vocab", _VOCAB),
            "max_positions": whole(row, "seq_len", minimum=1),
            "mlp": "gated" if gated else "plain",
            "activation": "silu" if gated else "gelu",
            "norm": norm,
            "norm_bias": norm == "layernorm" and family.biases,
            "positions": _POSITIONS.get(row.get("positions", ""), "none"),
            "tied_embeddings": row.get("tied_embeddings", "") == "1",
            "bias_qkv": biases,
            "bias_attention_out": biases,
            "bias_mlp": biases,
            "dropout": plain_gpt(row) and stack.unstated.gpt_dropout,
            "latent": latent if moe and latent and head_dim == latent.nope_head_dim else None,
            "moe": moe,
            "joint": family.joint,
            "holds": family.holds,
        }
    )


def plain_gpt(row: Row) -> bool:
    """A GPT with learned positions whose recipe has no word on FlashAttention."""
    return row.get("positions") == "learned" and row.get("flash_attention", "") == ""


def _experts(row: Row, family: Family) -> Experts | None:
    count = whole(row, "experts", 0)
    if count <= 1:
        return None
    width = whole(row, "moe_ffn_hidden")
    return Experts(
        experts=count,
        experts_per_token=whole(row, "experts_per_token"),
        ffn_hidden=width,
        shared_ffn_hidden=width * whole(row, "shared_experts", 0),
        dense_layers=whole(row, "dense_layers", 0),
        group_limit=family.group_limit,
    )
