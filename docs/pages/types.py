"""The block of model types: which types of transformers a config.json may have, with the
parameters that both count."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from pages.text import ROOT, table
from planner.formulas.params import parameter_count
from planner.inputs.huggingface import KNOWN, read_config
from planner.inputs.huggingface.document import Document
from planner.inputs.huggingface.nested import language_model
from planner.inputs.huggingface.typed import defaults

DATA = ROOT / "tests" / "data"


def types() -> str:
    """Types that are read, those whose count differs, and published configurations."""
    configs = json.loads((DATA / "hf_configs.json").read_text("utf-8"))
    counts = json.loads((DATA / "hf_counts.json").read_text("utf-8"))
    published = {name: row["config"] for name, row in configs["published"].items()}
    known = {name: _default(name, configs["defaults"]) for name in counts if name in defaults()}
    counted = {name: config for name, config in known.items() if config is not None}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "config.json"
        ours = {name: _count(path, config) for name, config in {**counted, **published}.items()}
    theirs = {name: counts[name]["parameters"] for name in ours if "parameters" in counts[name]}
    exact = [name for name in counted if ours[name] == theirs.get(name)]
    other = [name for name in counted if name in theirs and ours[name] != theirs[name]]
    refused = [name for name in counts if name not in counted and name not in published]
    lines = [
        f"{len(exact)} of the {len(counts) - len(published)} types of transformers' causal language"
        " models are read with transformers' parameters to the unit:"
        f" {', '.join(f'`{name}`' for name in exact)}.",
        *(f"`{name}`: {ours[name]:,} here, {theirs[name]:,} there." for name in other),
        _published([*exact, *other], [*published.values(), *_catalogued()]),
        f"Not read: {', '.join(f'`{name}`' for name in refused)}.",
    ]
    rows = [
        (
            f"`{name}`",
            f"`{config['model_type']}`",
            f"{ours[name]:,}",
            configs["published"][name]["source"],
        )
        for name, config in published.items()
        if ours[name] == theirs.get(name)
    ]
    header = ("Published configuration", "type", ">parameters of the language model", "from")
    return "\n\n".join(lines) + "\n\n" + table(header, rows)


def _catalogued() -> list[dict[str, Any]]:
    """Files of the catalogue's models."""
    paths = (ROOT / "tests" / "configs").glob("*.json")
    return [json.loads(path.read_text("utf-8")) for path in paths]


def _published(read: list[str], configs: list[dict[str, Any]]) -> str:
    """How many of the types that are read have a published file in the tests, and which have not;
    a file that nests its language model is one of both types."""
    seen = set()
    for config in configs:
        kind = config["model_type"]
        seen |= {kind, language_model(Document("", config), kind)[1]}
    without = [name for name in read if name not in seen]
    return (
        f"{len(read) - len(without)} of them have a published file in the tests (those of the table"
        " and of `tests/configs`), counted like the defaults; of these only the defaults are:"
        f" {', '.join(f'`{name}`' for name in without)}."
    )


def _default(family: str, changes: dict[str, Any]) -> dict[str, Any] | None:
    """The defaults of a type's class as a config.json; None where the type is not read."""
    known = defaults()[family]
    if family not in KNOWN and known.get("text") not in KNOWN:
        return None
    keys = {**known["keys"], **changes.get(family, {}), "model_type": family}
    if "text" in known:
        keys["text_config"] = _default(known["text"], changes)
    return keys


def _count(path: Path, config: dict[str, Any]) -> int:
    path.write_text(json.dumps(config), "utf-8")
    return parameter_count(read_config(path)[0])
