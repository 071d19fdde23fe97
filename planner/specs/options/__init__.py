"""THE option table: everything that a user may set, under the same names on the command line, in a
scenario file and in a query string.

An option is one field of a record, with its texts and bounds in a row of options.json (`table`).
The options of a request are `Options`, in the parts of this folder; options of a single verb are in
`own`. Numbers are read and checked against their bounds in one place (`numbers`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from planner.specs.names import Objective
from planner.specs.options.adapters import AdapterOptions
from planner.specs.options.cluster import ClusterOptions, ModelOptions
from planner.specs.options.data import LOADING, LengthOptions, LoadingOptions, RankOptions
from planner.specs.options.experts import ExpertOptions
from planner.specs.options.layout import LAYOUT, LayoutOptions, SearchOptions
from planner.specs.options.line import command_line, options_of_command, pairs_of_command
from planner.specs.options.mechanisms import MECHANISMS, MechanismOptions
from planner.specs.options.origin import (
    AS_IT_RUNS,
    SEARCHED,
    TYPED,
    Filled,
    Given,
    NoNumber,
    Origin,
    PerGpu,
    Undecided,
    over,
)
from planner.specs.options.record import Record, refuse, refuse_of_all
from planner.specs.options.replicas import ReplicaOptions
from planner.specs.options.row import Group, Reading, Row, flag, option, why_not
from planner.specs.options.run import AnswerOptions, ObjectiveOptions, RunOptions
from planner.specs.options.table import rows, taken
from planner.specs.options.task import TaskOptions
from planner.specs.options.training import StackOptions, TrainingOptions

__all__ = [
    "AS_IT_RUNS",
    "LAYOUT",
    "LOADING",
    "MECHANISMS",
    "TYPED",
    "Filled",
    "Given",
    "Group",
    "NoNumber",
    "Objective",
    "Options",
    "Origin",
    "PerGpu",
    "Reading",
    "Record",
    "Row",
    "Undecided",
    "command_line",
    "flag",
    "option",
    "options_of_command",
    "over",
    "pairs_of_command",
    "refuse",
    "refuse_of_all",
    "rows",
    "taken",
    "why_not",
]


@dataclass(frozen=True, kw_only=True)
class Options(  # fields come in the order of the parts from the last to the first
    AnswerOptions,
    StackOptions,
    LoadingOptions,
    LengthOptions,
    RankOptions,
    RunOptions,
    TaskOptions,
    AdapterOptions,
    TrainingOptions,
    ObjectiveOptions,
    MechanismOptions,
    ReplicaOptions,
    SearchOptions,
    ExpertOptions,
    LayoutOptions,
    ClusterOptions,
    ModelOptions,
):
    """One request. None means: searched (layout), typical for the hardware (cluster), or the
    stack's default (training)."""

    # options that were typed in other words than their values: what an answer says it has read
    spelled: tuple[Reading, ...] = field(default=(), compare=False)
    # origins of the options that are given by name; one that is absent was typed
    origins: Mapping[str, Origin] = field(default_factory=dict, compare=False, repr=False)
    # options that launch files leave undecided, by name
    undecided: Mapping[str, Undecided] = field(default_factory=dict, compare=False, repr=False)

    def origin(self, name: str) -> Origin | None:
        """Where the value of an option comes from; None where it is left open."""
        if getattr(self, name) == rows(Options)[name].default:
            return self.origins.get(name)
        return self.origins.get(name, TYPED)

    def changed(self, origin: Origin = SEARCHED, /, **update: Any) -> Self:
        """The request with other values of some options, which come from `origin`."""
        table = rows(Options)
        new = {n: v for n, v in update.items() if n in table and v != getattr(self, n)}
        kept = {name: source for name, source in self.origins.items() if name not in new}
        more = {name: origin for name, value in new.items() if value != table[name].default}
        left = {name: why for name, why in self.undecided.items() if name not in update}
        return super().changed(**{"origins": {**kept, **more}, "undecided": left, **update})
