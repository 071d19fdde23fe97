"""The answer of `dpplan read`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from planner.specs.document import Document, key
from planner.specs.documents.advice import Advice
from planner.specs.documents.estimate import Estimate


class ReadArgument(Document):
    """One argument of a file."""

    value: Annotated[Any, key("as the file has it; secrets and paths are not shown")]
    use: Annotated[
        Literal["read", "implied", "irrelevant", "not understood"],
        key(
            "read: it states an option or a part of the model; implied: it follows from others, or"
            " is what the program does by itself; irrelevant: it moves neither memory nor time"
        ),
    ]
    note: Annotated[str, key("what is to be said of it; may be empty")]


class Read(Document):
    """Files of another program as a request, and its answer."""

    schema_version: Annotated[int, key("1")]
    kind: Annotated[str, key("id of the format that most arguments are of")]
    kinds: Annotated[list[str], key("ids of all formats that read a part")]
    options: Annotated[dict[str, Any], key("the request in options of `dpplan estimate`")]
    arguments: Annotated[dict[str, ReadArgument], key("every argument of the files by name")]
    counts: Annotated[dict[str, int], key("arguments by their use")]
    notes: Annotated[list[str], key("what was made of the files, as sentences")]
    missing: Annotated[list[str], key("options that the files do not say and an estimate needs")]
    refused: Annotated[str | None, key("why the files allow no estimate; null where they do")]
    estimate: Annotated[
        Estimate | None, key("the answer of `dpplan estimate`; null where there is none")
    ]
    better: Annotated[
        Advice | None, key("the change of the layout that gains most; null where none gains")
    ]
    command: Annotated[str | None, key("the command that asks the same without the files")]
