"""The answer of `dpplan export`."""

from __future__ import annotations

from typing import Annotated, Any

from planner.specs.document import Document, key
from planner.specs.documents.estimate import Figures


class ExportedFile(Document):
    """One file of a recipe."""

    name: Annotated[str, key("name of the file")]
    says: Annotated[str, key("its purpose, or how it is started")]
    text: Annotated[str, key("all of it")]


class NotExpressible(Document):
    """A value of the plan that the files do not say."""

    option: Annotated[str, key("our option")]
    value: Annotated[Any, key("of the plan")]
    written: Annotated[Any, key("what the files say instead; null: nothing")]
    why: Annotated[str, key("why, as a sentence; empty: the framework has no argument for it")]


class Export(Document):
    """The files of a framework for one layout."""

    schema_version: Annotated[int, key("1")]
    target: Annotated[str, key("framework, as given to --to")]
    title: Annotated[str, key("the framework for people, with its version")]
    files: Annotated[list[ExportedFile], key("the recipe and what starts it")]
    not_expressible: Annotated[
        list[NotExpressible], key("values of the plan that reading the files back does not give")
    ]
    to_fill: Annotated[list[str], key("what the files leave to you, as sentences")]
    plan: Annotated[dict[str, Any], key("the plan that was written, by our options")]
    predicted: Annotated[
        Figures, key("what is predicted of the files as they are written; their comments say so")
    ]
    picked: Annotated[
        Figures | None,
        key("what was picked, where the files say another plan; null: they say what was picked"),
    ]
    pick: Annotated[str, key("the command that estimates what was picked")]
    command: Annotated[str, key("the command that repeats the request")]
