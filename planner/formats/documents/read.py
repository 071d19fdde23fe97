"""The answer of `dpplan read`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from planner.specs.document import Document, key
from planner.specs.documents.advice import Advice, Value
from planner.specs.documents.estimate import Estimate, Possible


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


class Term(Document):
    """One part of the memory of the fullest GPU."""

    name: Annotated[str, key("as `memory.components` or `memory.outside`")]
    bytes: Annotated[float, key("of it on that GPU", "B")]
    share: Annotated[float, key("of all that the GPU holds", "1")]


class OutOfMemory(Document):
    """Why a plan runs out of memory."""

    missing_bytes: Annotated[
        float, key("more than a framework can allocate on the GPU; 0: the host's is short", "B")
    ]
    stage: Annotated[int, key("pipeline stage of the fullest GPU, from 0")]
    phase: Annotated[str, key("phase of the step in which it is fullest")]
    terms: Annotated[list[Term], key("its largest parts, the largest first")]
    says: Annotated[str, key("all of this as a sentence")]


class Edit(Document):
    """One argument to change."""

    argument: Annotated[str, key("its name as the file spells it")]
    kind: Annotated[
        str, key("id of the format that has it; empty: an option typed beside the files")
    ]
    place: Annotated[str, key("file and line; empty: it is new")]
    before: Annotated[Any, key("value in the file; null: it is new")]
    after: Annotated[Any, key("value that it gets; null: it is left out")]


class Recipe(Advice):
    """A change of the plan, and how the files say it."""

    edits: Annotated[list[Edit], key("arguments of the files to change; read back, they say it")]
    unsaid: Annotated[
        dict[str, Value], key("options of the change that such files have no word for")
    ]


class Read(Document):
    """Files of another program as a request, and its answer."""

    schema_version: Annotated[int, key("1")]
    kind: Annotated[str, key("id of the format of most arguments")]
    kinds: Annotated[list[str], key("ids of all formats that read a part")]
    options: Annotated[dict[str, Any], key("the request in options of `dpplan estimate`")]
    arguments: Annotated[dict[str, ReadArgument], key("every argument of the files by name")]
    counts: Annotated[dict[str, int], key("arguments by their use")]
    notes: Annotated[list[str], key("what was made of the files, as sentences")]
    undecided: Annotated[
        dict[str, list[str]],
        key("arguments that are not understood, by the option that they may set"),
    ]
    possible: Annotated[list[Possible], key("the answer with each value of undecided options")]
    missing: Annotated[list[str], key("options that the files do not say and an estimate needs")]
    refused: Annotated[str | None, key("why the files allow no estimate; null where they do")]
    estimate: Annotated[
        Estimate | None, key("the answer of `dpplan estimate`; null where there is none")
    ]
    out_of_memory: Annotated[OutOfMemory | None, key("null where it fits")]
    remedy: Annotated[
        Recipe | None,
        key("the cheapest change that makes it fit; null where it fits, or none does"),
    ]
    better: Annotated[
        Recipe | None,
        key(
            "the best layout of the same model, GPUs, batch and stack; null where none gains, and"
            " with --advice 0"
        ),
    ]
    command: Annotated[str | None, key("the command that asks the same without the files")]
