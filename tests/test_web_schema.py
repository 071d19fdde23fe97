"""The API against its own schema: nothing but documented answers, and no fault of the server,
whatever is asked."""

from __future__ import annotations

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from web.app import create
from web.guard import Served

schema = schemathesis.openapi.from_asgi("/openapi.json", create(Served(frozenset({"testserver"}))))
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]


@pytest.mark.filterwarnings("ignore")
@schema.parametrize()
@settings(
    max_examples=8,
    deadline=None,
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
def test_answers_are_documented(case: schemathesis.Case) -> None:
    case.call_and_validate(checks=CHECKS)
