"""Options of `dpplan export`."""

from dataclasses import dataclass
from typing import Annotated, ClassVar

from planner.specs.names import TargetName
from planner.specs.options.own import OUTPUT
from planner.specs.options.record import Record
from planner.specs.options.row import NAME_LENGTH, Group, option

_EXPORT = Group("export", "Export")


@dataclass(frozen=True, kw_only=True)
class ExportOptions(Record):
    GROUP: ClassVar = _EXPORT

    answer: Annotated[
        str | None,
        option(
            "JSON answer of `dpplan estimate` or `dpplan search`, whose layout is written; options"
            " given here win",
            argument="[ANSWER.json]",
            file="read",
            example="answer.json",
        ),
    ] = None
    to: Annotated[TargetName, option("Framework whose files are written", example="megatron")]
    rank: Annotated[
        int | None,
        option(
            "Which layout of the answer, by its rank among the fastest that fit",
            least=1,
            most=1000,
            example="1",
            unset="the one taken",
        ),
    ] = None
    out: Annotated[
        str | None,
        option(
            "Write the files into this folder",
            file="folder",
            length=NAME_LENGTH,
            group=OUTPUT,
            example="recipe",
            unset="they are printed",
        ),
    ] = None
