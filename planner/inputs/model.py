"""A model by catalogue name, model TOML, config.json or name on the Hugging Face Hub."""

from __future__ import annotations

from pathlib import Path

from planner.formulas.params import parameter_count
from planner.inputs import catalog, hub, hub_configs, model_file, not_modelled, readers
from planner.specs.base import PlanError
from planner.specs.decoder import decoder_of
from planner.specs.layers import of_samples
from planner.specs.model import ModelSpec
from planner.specs.options.words import near
from planner.specs.published import Published

# what tells models apart: their training is published under a name, and a config.json has none
_SHAPE = ("layers", "hidden", "vocab", "towers")
_PLAIN = ("heads", "kv_heads", "head_dim", "ffn_hidden", "latent", "moe")
_STACKED = ("parts", "stack")

FIELD = "--model"
_PREFIX = "hf:"
_MISSPELLED = 0.93  # likeness of names from which another organisation's or size's is not meant


def model_spec(name: str) -> tuple[ModelSpec, list[str]]:
    """A model by catalogue name, path to a model TOML or to a Hugging Face config.json (or its
    folder), org/name of the Hub, or a model written out as JSON; and what was inferred, as
    sentences."""
    if name.startswith("{"):
        return _written_out(name), []
    if name.endswith(".toml"):
        return model_file.read(catalog.user_path(name, FIELD))
    if not name.startswith(_PREFIX) and not catalog.is_path(name):
        return _of_catalogue(name)
    path, hub_name = None, name.removeprefix(_PREFIX)
    if not name.startswith(_PREFIX):
        path = catalog.user_path(name, FIELD)
        folder = path / hub.FILE
        path = folder if catalog.is_file(folder) else path
    if hub.is_name(hub_name) and (path is None or not catalog.exists(path)):
        known = _named_in_hub(hub_name, name)
        if not isinstance(known, Path):
            return known
        path = known
    if path is None:
        raise PlanError(FIELD, name, "must read hf:org/name, such as hf:Qwen/Qwen3-8B")
    from planner.inputs import huggingface

    return _trained_alike(*huggingface.read_config(path))


def _of_catalogue(name: str) -> tuple[ModelSpec, list[str]]:
    """A model of the catalogue, else one that ships with the planner under a name of the Hub that
    is given without its organisation, such as bert-base-cased."""
    try:
        model = catalog.load("models", ModelSpec, name)
    except PlanError:
        shipped = hub_configs.named(name)
        if shipped is None:
            raise
        return _shipped(*shipped)
    return model, [f"model: {name} is {model.name} of the catalogue"] if "/" in name else []


def _named_in_hub(hub_name: str, name: str) -> Path | tuple[ModelSpec, list[str]]:
    """The config.json of a model of the Hub, or a model that the planner knows by this name."""
    asks_hub, shipped = name.startswith(_PREFIX), hub_configs.named(hub_name)
    if shipped is not None and not asks_hub:
        return _shipped(*shipped)
    try:
        return _from_hub(hub_name, name)
    except PlanError:
        if shipped is not None:
            return _shipped(*shipped)
        copied = None if asks_hub else _copied(hub_name)
        if copied is None:
            raise
        guess = f"is taken for {copied.name} of the catalogue, by its name: no config.json of it"
        return copied, [f"{FIELD}: {hub_name} {guess} is here"]


def _trained_alike(model: ModelSpec, inferred: list[str]) -> tuple[ModelSpec, list[str]]:
    """A model of a config.json with the training of the catalogue's model of its shape."""
    known = _same_shape(model)
    if known is not None:
        inferred = [*inferred, f"the shape of {known.name}: trained as that is taken to have been"]
        model = model.model_copy(update={"published": known.published})
    return model, [f"config.json: {key}" for key in inferred]


def _shipped(name: str, config: hub_configs.Shipped) -> tuple[ModelSpec, list[str]]:
    """A model of a configuration that ships with the planner."""
    fields = {"name": name.rpartition("/")[2], "title": name, "source": config.source}
    if config.alike:
        same, _ = model_spec(config.alike)
        alike = f"{name} has the shape of {config.alike}: {config.source}"
        return same.model_copy(update={**fields, "hub": (name,)}), [alike]
    from planner.inputs import huggingface

    model, inferred = huggingface.read_keys(config.config, name, name.rpartition("/")[2])
    model = model.model_copy(update=fields)
    return _trained_alike(model, [*inferred, f"shipped keys of {name}: {config.source}"])


def language_models() -> list[ModelSpec]:
    """Models of the catalogue that continue a text, ascending by parameters, without traced
    files, which have parts beside the text or an encoder, and which few stacks train."""
    every = catalog.load_all("models", ModelSpec)
    models = [model for model in every if not of_samples(model) and not model.traced]
    return sorted(models, key=parameter_count)


def _written_out(text: str) -> ModelSpec:
    """A model of the keys of a model TOML as one JSON object, as a recipe's shape is passed on."""
    try:
        data = readers.read_json(text)
    except ValueError as error:
        raise PlanError(FIELD, text, str(error)) from None
    return catalog.build(ModelSpec, data, FIELD, "written out")


def _same_shape(model: ModelSpec) -> ModelSpec | None:
    """The catalogue's model of this shape, by the same context if there are several; None without a
    match, or if its training is not published."""
    same = [
        known
        for known in catalog.load_all("models", ModelSpec)
        if known.published != Published()
        and all(getattr(known, name) == getattr(model, name) for name in _SHAPE)
        and _same_layers(known, model)
    ]
    return min(same, key=lambda known: known.max_positions != model.max_positions, default=None)


def _same_layers(known: ModelSpec, model: ModelSpec) -> bool:
    plain = decoder_of(known), decoder_of(model)
    pair, names = (plain, _PLAIN) if all(plain) else ((known, model), _STACKED)
    return all(getattr(pair[0], name) == getattr(pair[1], name) for name in names)


def _copied(hub_name: str) -> ModelSpec | None:
    """The catalogue's model of the same name under another organisation; None for copies that
    cannot be trained, such as quantised ones."""
    if not_modelled.of_name("models", hub_name, fetched=True):
        return None
    try:
        return catalog.load("models", ModelSpec, hub_name.rpartition("/")[2])
    except PlanError:
        return None


def _from_hub(hub_name: str, name: str) -> Path:
    """config.json of org/name. Raises PlanError at once if models of this name are not planned."""
    if why := not_modelled.of_name("models", hub_name, fetched=True):
        names = (*catalog.hub_names(), *hub_configs.shipped())
        hint = near(hub_name, names, cutoff=_MISSPELLED)
        raise PlanError(FIELD, name, f"{hint}it {why}" if hint else why)
    known = "" if catalog.is_path(hub_name) else catalog.find("models", hub_name).stem
    return hub.config_of(hub_name, name, known)
