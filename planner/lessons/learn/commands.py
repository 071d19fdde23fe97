"""The document of a command, as `dpplan COMMAND --json` prints it, without the command line."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from planner.inputs.options import read_options
from planner.specs.base import PlanError
from planner.specs.document import plain
from planner.specs.options import Options, Record, Row, rows
from planner.specs.options.checked import from_text, read
from planner.specs.options.own import BatchOptions, CompareOptions, ListOptions, ScheduleOptions
from planner.specs.options.parallel import (
    AllReduceOptions,
    BatchNormOptions,
    InputOptions,
    StrategyName,
    StrategySettings,
)
from planner.specs.options.recommend import Limits
from planner.specs.options.tune import TuneOptions

Given = Mapping[str, Any]
_KEPT = 512  # documents: a lesson has about ten, and each move of an input a few more


def _estimate(given: Given) -> Any:
    from planner.verbs.estimate import estimate

    # what the lessons show is in the brief answer, which is the same otherwise and ten times sooner
    return estimate(read_options(given), brief=True)


def _search(given: Given) -> Any:
    from planner.verbs.search import search_layouts

    return search_layouts(read_options(given))


def _allreduce(given: Given, request: AllReduceOptions) -> Any:
    from planner.verbs import allreduce

    return allreduce.answer(given, request)


def _batchnorm(given: Given, request: BatchNormOptions) -> Any:
    from planner.verbs import batchnorm

    return batchnorm.answer(given, request.channels)


def _input(given: Given, request: InputOptions) -> Any:
    from planner.verbs import input as loading

    return loading.answer(given, request)


def _strategies(given: Given, which: StrategyName, settings: StrategySettings) -> Any:
    from planner.verbs import strategies

    return strategies.answer(read_options(given), settings, which.strategy)


def _batch(given: Given, request: BatchOptions) -> Any:
    from planner.verbs import batch

    return batch.batch(request.changed(jobs=1), given)


def _compare(given: Given, request: CompareOptions) -> Any:
    from planner.verbs import compare

    return compare.compare(request.changed(jobs=1), given)


def _tune(given: Given, request: TuneOptions) -> Any:
    from planner.verbs import tune

    return tune.tune(request.changed(jobs=1), given)


def _schedule(given: Given, request: ScheduleOptions) -> Any:
    from planner.verbs import schedule

    return schedule.draw(request, given).document


def _recommend(question: Any) -> Callable[..., Any]:
    def ask(given: Given, limits: Limits) -> Any:
        from planner.verbs import recommend

        return recommend.ask(question, given, limits, jobs=1)

    return ask


def _list(given: Given, request: ListOptions) -> Any:
    from planner.inputs.listing import list_catalog, list_kinds

    return list_kinds() if request.kind is None else list_catalog(request.kind)


_VERBS: dict[str, tuple[Callable[..., Any], tuple[type[Record], ...]]] = {
    "estimate": (_estimate, ()),
    "search": (_search, ()),
    "allreduce": (_allreduce, (AllReduceOptions,)),
    "batchnorm": (_batchnorm, (BatchNormOptions,)),
    "input": (_input, (InputOptions,)),
    "strategies": (_strategies, (StrategyName, StrategySettings)),
    "batch": (_batch, (BatchOptions,)),
    "compare": (_compare, (CompareOptions,)),
    "tune": (_tune, (TuneOptions,)),
    "schedule": (_schedule, (ScheduleOptions,)),
    "list": (_list, (ListOptions,)),
    **{
        f"recommend {question}": (_recommend(question), (Limits,))
        for question in ("cluster", "bandwidth", "batch", "model", "offload")
    },
}


@lru_cache(_KEPT)
def document(command: str) -> Any:
    """The document of a command without `dpplan`, as plain values. Raises PlanError."""
    words = shlex.split(command)
    verb = " ".join(words[:2]) if words[0] == "recommend" else words[0]
    if verb not in _VERBS:
        raise PlanError("command", command, f"must be one of {', '.join(_VERBS)}")
    ask, records = _VERBS[verb]
    tables = [rows(record) for record in records]
    values_by_record: list[dict[str, Any]] = [{} for _ in records]
    given: dict[str, Any] = {}
    for name, typed in _typed(words[len(verb.split()) :], [*tables, rows(Options)]):
        table, into = next(
            (pair for pair in zip(tables, values_by_record, strict=True) if name in pair[0]),
            (rows(Options), given),
        )
        value = _value(table[name], typed)
        into[name] = [*into.get(name, []), value] if table[name].is_several else value
    arguments = [
        read(record, values) for record, values in zip(records, values_by_record, strict=True)
    ]
    return plain(ask(given, *arguments))


def _typed(words: Sequence[str], tables: Sequence[Mapping[str, Row]]) -> Iterator[tuple[str, Any]]:
    """(name, value) of each option; a word without one is the argument of the verb."""
    known = {name: row for table in reversed(tables) for name, row in table.items()}
    argument = next((name for table in tables for name in table if table[name].says.argument), "")
    rest = iter(words)
    for word in rest:
        name = word.removeprefix("--").replace("-", "_")
        if not word.startswith("--") and argument:
            yield argument, word
        elif name not in known:
            raise PlanError("command", word, "is not an option")
        else:
            yield name, True if known[name].is_switch else next(rest, "")


def _value(row: Row, typed: Any) -> Any:
    """A number as a number, as the command line reads it."""
    if row.kind not in (int, float) or row.takes_words or not isinstance(typed, str):
        return typed
    try:
        return from_text(row, typed)
    except ValueError as error:
        raise PlanError(row.flag, typed, str(error)) from None
