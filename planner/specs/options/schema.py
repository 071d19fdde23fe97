"""JSON Schema of options, for scenario files in editors and for the HTTP API."""

from __future__ import annotations

from typing import Any

from planner.specs.options import Options, Record, Row, rows
from planner.specs.options.checked import MOST_TEXTS, adapter_of, from_text

Schema = dict[str, Any]


def option_schemas(record: type[Record]) -> dict[str, Schema]:
    """JSON Schema of each option by name; null is left out, as an option that is not given."""
    schemas = adapter_of(record).json_schema()["properties"]
    return {name: _schema(row, schemas[name]) for name, row in rows(record).items()}


def scenario_schema() -> Schema:
    """JSON Schema of a scenario file."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "dpplan scenario",
        "description": "Options of a request as keys of a TOML, YAML or JSON file.",
        "type": "object",
        "properties": option_schemas(Options),
        "additionalProperties": False,
    }


def _schema(row: Row, schemas: Schema) -> Schema:
    """Pydantic's schema of the type, with texts and bounds of the option table."""
    kinds = [kind for kind in schemas.get("anyOf", [schemas]) if kind.get("type") != "null"]
    bare = [{k: v for k, v in schema.items() if k not in ("title", "default")} for schema in kinds]
    for schema in bare:
        if schema.get("type") in ("integer", "number"):
            limits = {"minimum": row.says.least, "maximum": row.says.most}
            schema |= {word: bound for word, bound in limits.items() if bound is not None}
        if schema.get("type") == "string" and "enum" not in schema:
            schema |= {"minLength": 1, "maxLength": row.length}
    if row.says.or_zero and any("minimum" in schema for schema in bare):
        bare.append({"const": 0})
    words = [schema.word for schema in row.says.aliases if schema.value is not None]
    if row.says.reads:
        bare.append({"type": "string", "minLength": 1, "maxLength": row.length})
    elif words and row.kind is not str:
        bare = [
            *(schema for schema in bare if "enum" not in schema),
            {"enum": [*row.choices, *words]},
        ]
    out: Schema = {"description": row.help + row.also}
    if row.says.unit:
        out["description"] += f" (a bare number is in {row.says.unit})" * (not row.says.needs_unit)
    if row.is_several:  # one text, or a list of them
        text = {"type": "string", "minLength": 1, "maxLength": row.length}
        bare = [text, {"type": "array", "items": text, "maxItems": MOST_TEXTS}]
    out |= bare[0] if len(bare) == 1 else {"anyOf": bare}
    if row.says.example:
        out["examples"] = [from_example(row)]
    if not row.is_needed and row.default not in (None, False, ()):
        out["default"] = row.default
    return out


def from_example(row: Row) -> Any:
    """The example of an option as a value of its type."""
    if not row.says.example:
        raise TypeError(f"option(...) of {row.flag} lacks example=, a value of it as text")
    return row.says.example if row.is_several else from_text(row, row.says.example)
