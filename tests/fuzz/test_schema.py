"""The API against its own schema: nothing but documented answers, with the headers of the page, and
no fault of the server, whatever is asked."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import schemathesis
from hypothesis import strategies as st
from schemathesis.checks import not_a_server_error
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from fuzz.case import Took
from fuzz.short import few
from web.app import create
from web.guard import HEADERS, Served

schema = schemathesis.openapi.from_asgi("/openapi.json", create(Served(frozenset({"testserver"}))))
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]
# the others take every option: making those at random takes seconds each, in the long run
_SHORT = ["/api/compare", "/api/catalog", "/api/catalog/{kind}"]


@dataclass(frozen=True)
class Case:
    """A request of an operation of the API."""

    path: str
    method: str
    parts: dict[str, Any]

    @classmethod
    def of(cls, case: schemathesis.Case) -> Case:
        names = ("path_parameters", "query", "body", "media_type")
        values = {name: getattr(case, name) for name in names}
        kept = {n: v for n, v in values.items() if v and isinstance(v, str | dict | list)}
        return cls(case.operation.path, case.method, kept)

    def to_json(self) -> dict[str, Any]:
        return {"path": self.path, "method": self.method, "parts": self.parts}

    @classmethod
    def of_json(cls, values: dict[str, Any]) -> Case:
        return cls(**values)


def _cases() -> st.SearchStrategy[Case]:
    items = [
        get_all_operation.ok().as_strategy()
        for get_all_operation in schema.get_all_operations()
        if isinstance(get_all_operation, Ok)
    ]
    return st.one_of(items).map(Case.of)


CASE, TOOK = Case, Took()


def fuzz(case: Case) -> None:
    checked(schema[case.path][case.method].Case(**case.parts))


def checked(case: schemathesis.Case) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of schemathesis, on what the schema leaves open
        answer = case.call_and_validate(checks=CHECKS)
    TOOK.add(f"{answer.status_code // 100}xx", answer.elapsed)
    for name, value in HEADERS:
        assert answer.headers[name.decode()] == [value.decode()], name


def __getattr__(name: str) -> Any:
    """CASES of the long run, made on first access."""
    if name == "CASES":
        return _cases()
    raise AttributeError(name)


@schema.include(path=_SHORT).parametrize()
@few(8)
def test_answers_are_documented(case: schemathesis.Case) -> None:
    checked(case)
