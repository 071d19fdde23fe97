"""How the API describes itself: parameters from the options, answers and errors, for
openapi.json."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from msgspec.json import schema_components

from planner import api
from planner.specs.base import Spec
from planner.specs.documents import by_answer, declared
from planner.specs.options.schema import option_schemas as option_schemas_of
from web import limits
from web.tabs.base import Tab

Schema = dict[str, Any]

_REF = "#/components/schemas/{name}"

KINDS: Schema = {"type": "array", "items": {"type": "string"}}


def document(answer: str) -> Schema:
    """The schema of a document of `by_answer`, by reference."""
    return {"$ref": _REF.format(name=declared(answer).__name__)}


def any_of(answers: Sequence[str]) -> Schema:
    """The schema of an answer that is one of some documents."""
    kinds = [document(answer) for answer in answers]
    return kinds[0] if len(kinds) == 1 else {"anyOf": kinds}


def entries() -> Schema:
    """A list of any kind of the catalogue."""
    kinds = [document(answer) for answer in by_answer() if answer.startswith("list ")]
    return {"type": "array", "items": {"anyOf": kinds}}


@cache
def components() -> dict[str, Schema]:
    """Schemas of all documents and their parts by name, as their declarations say."""
    kinds = [declared(answer) for answer in by_answer()]
    return schema_components(kinds, schema_hook=_of_spec, ref_template=_REF)[1]


def _of_spec(kind: type[Any]) -> Schema:
    if not issubclass(kind, Spec):
        raise NotImplementedError  # how a hook tells msgspec that it has no schema for a type
    return kind.model_json_schema()


def option_schemas() -> dict[str, Schema]:
    """JSON schema of each option; null is left out, as an option that is not given."""
    out = option_schemas_of(api.Options)
    for name, most in (("gpus", limits.MAX_GPUS), ("top", limits.MAX_TOP)):
        out[name]["maximum"] = most
    out["config"] = {
        "type": "string",
        "maxLength": limits.MAX_CONFIG_BYTES,
        "description": (
            "Text of a Hugging Face config.json or of a model TOML, in place of a model; never"
            " stored"
        ),
    }
    out["calibration"] = {
        "type": "string",
        "maxLength": limits.MAX_CALIBRATION_BYTES,
        "description": "Text of a calibration file; never stored",
    }
    return out


def parameters(*properties: Schema) -> list[Schema]:
    """Query parameters of an endpoint that takes a state."""
    return [
        *properties,
        *(
            {
                "name": n,
                "in": "query",
                "required": False,
                "description": s["description"],
                "schema": {k: v for k, v in s.items() if k != "description"},
            }
            for n, s in option_schemas().items()
        ),
    ]


def of_tab(tab: Tab) -> list[Schema]:
    """Query parameters of the verb of a tab: its own options, then the options of a request."""
    own_options = {}
    for record in tab.records:
        for name, schema in option_schemas_of(record).items():
            if name in tab.own_rows:
                own_options[name] = query(name, schema.pop("description"), schema)
    request = [
        parameter
        for parameter in parameters()
        if parameter["name"] not in own_options
        and (tab.model is not False or parameter["name"] not in ("model", "config"))
    ]
    return [*own_options.values(), *request]


def body() -> Schema:
    """A posted state."""
    schemas = option_schemas()
    schemas["config"] = {"anyOf": [schemas["config"], {"type": "object"}]}
    return _object(schemas)


def files() -> Schema:
    """Posted texts of files, and options beside them."""
    schemas = {n: s for n, s in option_schemas().items() if n not in ("config", "calibration")}
    texts = {
        "type": "object",
        "additionalProperties": {"type": "string"},
        "minProperties": 1,
        "description": "Texts of the files by their names; never stored",
    }
    return _object({"files": texts, **schemas}, "files")


def _object(properties: dict[str, Schema], *required: str) -> Schema:
    schema: Schema = {"type": "object", "properties": properties, "additionalProperties": False}
    if required:
        schema["required"] = list(required)
    return {"required": True, "content": {"application/json": {"schema": schema}}}


_WRONG = {
    400: "No valid HTTP, not one Host, or no UTF-8 text",
    401: "The server has a token, and the request has not",
    403: "Sent by another site's page",
    408: f"A head that takes over {limits.HEAD_S:g} s, or a body over {limits.BODY_S:g} s",
    413: f"A body of more than {limits.MAX_BODY_BYTES:,} bytes",
    414: f"An address of more than {limits.MAX_QUERY_BYTES:,} bytes",
    421: "A Host that the server does not answer to",
    422: "A wrong request, or one that takes too long here",
    429: "Too many requests wait; try again",
    500: "A fault of the server",
    503: "No worker process could be started, or all connections are in use; try again later",
}
_WRONG_POSTED = {415: "A body that is not application/json"}


def answers(
    schema: Schema | None = None,
    *,
    kinds: tuple[str, ...] = ("application/json",),
    posted: bool = False,
) -> dict[int | str, Any]:
    """Documented responses: the answer, and every way to be wrong."""
    content: dict[str, Any] = {
        kind: {
            "schema": (
                (schema or {"type": "object"}) if kind == "application/json" else {"type": "string"}
            )
        }
        for kind in kinds
    }
    wrong = {"application/json": {"schema": document("a wrong request over HTTP")}}
    statuses = _WRONG | _WRONG_POSTED if posted else _WRONG
    return {
        200: {"description": "The document", "content": content},
        **{status: {"description": text, "content": wrong} for status, text in statuses.items()},
    }


def query(name: str, text: str, schema: Schema, *, required: bool = False) -> Schema:
    """One query parameter of an endpoint's own."""
    return {
        "name": name,
        "in": "query",
        "required": required,
        "description": text,
        "schema": schema,
    }
