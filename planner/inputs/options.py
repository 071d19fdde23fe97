"""Options from a mapping of names to values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from planner.specs.base import PlanError, sentence
from planner.specs.options import Options, flag


def read_options(given: Mapping[str, Any]) -> Options:
    """Options from a mapping of names to values; a wrong one is a PlanError naming its flag."""
    try:
        return Options.model_validate({k: v for k, v in given.items() if v is not None})
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        name = str(first["loc"][0]) if first["loc"] else "options"
        if first["type"] == "extra_forbidden":
            raise PlanError(
                name, first["input"], f"is no option; options are {', '.join(Options.model_fields)}"
            ) from None
        if first["type"] == "missing":
            raise PlanError(
                flag(name), None, "is needed; `dpplan list models` shows the catalogue"
            ) from None
        raise PlanError(flag(name), first["input"], sentence(first["msg"])) from None
