"""Options of `dpplan tune` alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from planner.specs.options.own import OUTPUT
from planner.specs.options.record import Record
from planner.specs.options.row import Group, option

ANY = "any"


@dataclass(frozen=True, kw_only=True)
class TuneOptions(Record):
    GROUP: ClassVar = Group("tuning", "Fine-tuning")

    method: Annotated[
        str,
        option(
            "Methods of fine-tuning to try, joined by +, such as full-8bit+full-paged; or any",
            length=1000,
            example="full-8bit",
        ),
    ] = ANY
    examples: Annotated[
        int,
        option(
            "Training examples of the data set, e.g. 52k",
            reads="tokens",
            least=1,
            most=1_000_000_000_000,
            example="1000",
        ),
    ] = 10_000
    epochs: Annotated[
        float, option("Passes over the data set", least=0.001, most=10_000, example="3")
    ] = 1.0
    length_max: Annotated[
        int | None,
        option(
            "Longest example in tokens: with --length-mean and --examples it says how widely"
            " lengths spread, and is the sequence length where --seq-len is not given",
            reads="context",
            least=2,
            most=100_000_000,
            example="4096",
            unset="--length-sigma says",
        ),
    ] = None
    largest: Annotated[
        bool, option("Find the largest model of the catalogue that each method fits, too")
    ] = False
    jobs: Annotated[
        int | None,
        option(
            "Worker processes",
            least=1,
            most=1024,
            example="2",
            unset="cores of this machine, 8 at most",
        ),
    ] = None
    csv: Annotated[
        str | None,
        option(
            "Write one line per method to this CSV file",
            file="written",
            group=OUTPUT,
            example="tune.csv",
        ),
    ] = None
