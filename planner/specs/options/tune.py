"""Options of `dpplan tune` alone."""

from dataclasses import dataclass
from typing import Annotated, ClassVar

from planner.specs.options.own import OUTPUT, Shared
from planner.specs.options.row import Group, option

ANY = "any"
RANK = 16  # of adapters: a choice, that of most recipes


@dataclass(frozen=True, kw_only=True)
class TuneOptions(Shared):
    GROUP: ClassVar = Group("tuning", "Fine-tuning")

    method: Annotated[
        str,
        option(
            "Methods of fine-tuning to try, joined by +, such as full-8bit+full-paged; or any",
            label="Methods",
            length=1000,
            example="full-8bit",
        ),
    ] = ANY
    rank: Annotated[
        int,
        option(
            "Rank of the adapters of methods that have some",
            label="Rank of adapters",
            least=1,
            most=65_536,
            example="64",
        ),
    ] = RANK
    examples: Annotated[
        int,
        option(
            "Training examples of the data set, e.g. 52k",
            label="Examples",
            reads="tokens",
            least=1,
            most=1_000_000_000_000,
            example="1000",
        ),
    ] = 10_000
    epochs: Annotated[
        float,
        option("Passes over the data set", label="Epochs", least=0.001, most=10_000, example="3"),
    ] = 1.0
    length_max: Annotated[
        int | None,
        option(
            "Longest example in tokens: with --length-mean and --examples it says how widely"
            " lengths spread, and is the sequence length where --seq-len is not given",
            label="Longest example (tokens)",
            reads="context",
            least=2,
            most=100_000_000,
            example="4096",
            unset="as sigma spreads them",
        ),
    ] = None
    largest: Annotated[
        bool,
        option(
            "Find the largest model of the catalogue that each method fits, too",
            label="Largest models",
        ),
    ] = False
    csv: Annotated[
        str | None,
        option(
            "Write one line per method to this CSV file",
            file="written",
            group=OUTPUT,
            example="tune.csv",
        ),
    ] = None
