"""View of `dpplan validate`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from planner.evidence.spread import COVERAGE
from planner.studies.documents.validate import (
    Apart,
    Errors,
    ErrorsOfSuites,
    Group,
    NotPrinted,
    Ranking,
    Skipped,
    Summary,
    Task,
    Validation,
)
from planner.studies.validate.errors import complete
from planner.studies.views.validate_figure import chart
from planner.units import percent
from planner.views.view import Block, View

_MOST_GROUPS = 5  # with the largest regret
_MOST_SKIPPED = 20
_MOST_OPTIONS = 20


def view(out: Validation) -> View:
    """Errors per suite and in all beside the noise floor, ranking and its worst groups, and what
    was skipped."""
    blocks = [
        _time_block(out),
        _kinds_block(out.kinds),
        *_memory_blocks(out),
        *_task_blocks(out.tasks),
        *_regret_blocks(out.groups),
        *_not_printed_blocks(out.not_printed),
        *_apart_blocks(out.apart),
        *_skipped_blocks(out.skipped),
    ]
    return View.of([replace(blocks[0], chart=chart(out)), *blocks[1:]])


def _all_of(out: Validation) -> list[tuple[str, Summary]]:
    return [*out.suites.items(), ("all", out.summary)]


def _apart_of(out: Validation) -> list[tuple[str, Summary]]:
    """The lines below all others: rows that are left out of the totals."""
    lines = {
        "recipe not printed": (out.not_printed.rows, out.not_printed.summary),
        "apart: options left out": (out.apart.rows, out.apart.summary),
    }
    return [(name, summary) for name, (rows, summary) in lines.items() if rows]


_ERRORS = [">MAPE", ">median", ">bias", ">worst"]
KINDS = ["kind", ">runs", ">suites", ">MAPE", ">mean of suites", *_ERRORS[1:], ">within suites"]


def _errors(e: Errors) -> list[str]:
    """Cells under `_ERRORS`."""
    return [percent(value) for value in (e.mape, e.median_ape, e.bias, e.worst)]


ORDER = [">rank corr.", ">regret", ">worst regret"]
_BY_SUITE = "by suite, all last"  # the order of rows


def order_cells(ranking: Ranking) -> list[str]:
    """Cells under `ORDER`."""
    correlation = "-" if ranking.spearman is None else f"{ranking.spearman:.2f}"
    return [correlation, percent(ranking.pick_regret_mean), percent(ranking.pick_regret_max)]


def _time_block(out: Validation) -> Block:
    noise, ranked = out.summary.noise, out.summary.ranking
    block = Block(
        "Predicted against measured step time",
        header=["suite", ">runs", *_ERRORS, ">repeats", ">noise", ">groups", *ORDER],
        rows=[
            [
                name,
                str(summary.time.n),
                *_errors(summary.time),
                str(summary.noise.n),
                percent(summary.noise.mean),
                str(summary.ranking.groups),
                *order_cells(summary.ranking),
            ]
            for name, summary in [*_all_of(out), *_apart_of(out)]
            if summary.time.n or name == "all"
        ],
        order=_BY_SUITE,
        drop=("repeats", "noise", "worst regret", "groups", "worst", "bias"),
    )
    time = out.summary.time
    if time.n:
        block.text.append(
            f"{time.n:,} runs: mean error {percent(time.mape)}, half of them within"
            f" {percent(time.median_ape)}, bias {percent(time.bias, sign=True)}, worst"
            f" {percent(time.worst)}"
        )
        inside = sum(
            run.low_step_s <= run.measured_step_s <= run.high_step_s
            for run in out.rows
            if run.measured_step_s is not None and run.time_error is not None and complete(run)
        )
        block.text.append(
            f"{inside:,} of them lie inside their band, which should hold {COVERAGE:.0%}"
        )
    if noise.n:
        block.text.append(
            f"noise floor: {noise.n} runs that repeat another lie {percent(noise.mean)} from"
            f" their median on average, half of them within {percent(noise.median)}"
        )
    if ranked.groups:
        block.text.append(
            f"ranking: {ranked.groups} groups that differ only in layout, mean rank correlation"
            f" {ranked.spearman:.2f}, pick-regret {percent(ranked.pick_regret_mean)} on"
            f" average and {percent(ranked.pick_regret_max)} at worst; {ranked.ties} picks tie"
            " with others within the noise floor"
        )
    return block


def _memory_blocks(out: Validation) -> list[Block]:
    rows = [
        [
            name,
            str(summary.memory.n),
            *_errors(summary.memory),
            *(f"{kind.right}/{kind.n}" for kind in (summary.oom, summary.ran)),
        ]
        for name, summary in [*_all_of(out), *_apart_of(out)]
        if summary.memory.n or summary.oom.n
    ]
    header = ["suite", ">runs", *_ERRORS, ">oom right", ">ran right"]
    title = "Predicted against measured memory"
    return [Block(title, header=header, rows=rows, order=_BY_SUITE)] if rows else []


TASK_ERRORS = [
    *(">timed", ">MAPE", ">median"),
    *(">with peak", ">MAPE of peak", ">median of peak"),
    *(">oom right", ">ran right"),
]


def task_cells(summary: Summary) -> list[str]:
    """Cells under `TASK_ERRORS`."""
    return [
        str(summary.time.n),
        *map(percent, (summary.time.mape, summary.time.median_ape)),
        str(summary.memory.n),
        *map(percent, (summary.memory.mape, summary.memory.median_ape)),
        *(f"{kind.right}/{kind.n}" if kind.n else "-" for kind in (summary.oom, summary.ran)),
    ]


def _task_blocks(tasks: Mapping[Task, Summary]) -> list[Block]:
    """Fine-tuning and reinforcement learning beside pre-training, where rows include several of
    them."""
    if set(tasks) <= {"pre-training"}:
        return []
    rows = [[name, *task_cells(summary)] for name, summary in tasks.items()]
    return [
        Block(
            "Step time and memory by what is trained",
            header=["task", *TASK_ERRORS],
            rows=rows,
            order="as declared",
        )
    ]


def _kinds_block(kinds: Mapping[str, ErrorsOfSuites]) -> Block:
    rows = []
    for name, summary in kinds.items():
        if summary.n:
            mape, *others = _errors(summary)
            mean, within = percent(summary.mape_of_suites), percent(summary.mape_within_suites)
            rows.append([name, str(summary.n), str(summary.suites), mape, mean, *others, within])
    return Block(
        "Step time by kind of run",
        header=KINDS,
        rows=rows,
        order="all runs first",
        below=["within suites: MAPE once the median of each suite is removed"],
    )


def _regret_blocks(groups: Sequence[Group]) -> list[Block]:
    regret = [g for g in groups if g.pick_regret > 0]
    if not regret:
        return []
    block = Block(
        f"Groups in which the layout predicted fastest was not: {len(regret)} of {len(groups)}",
        header=["suite", ">GPUs", ">layouts", ">rank corr.", ">regret", ">ties", "pick", "best"],
        rows=[
            [
                g.suite,
                str(g.gpus),
                str(g.layouts),
                f"{g.spearman:.2f}",
                percent(g.pick_regret),
                str(g.ties),
                g.pick.run_id,
                g.best.run_id,
            ]
            for g in regret[:_MOST_GROUPS]
        ],
        order="largest regret first",
        drop=("ties", "layouts", "best", "pick"),
    )
    if len(regret) > _MOST_GROUPS:
        block.below.append(f"the {_MOST_GROUPS} worst; --json lists all")
    return [block]


def _not_printed_blocks(not_printed: NotPrinted) -> list[Block]:
    if not not_printed.rows:
        return []
    cells = ", ".join(f"{name} {rows}" for name, rows in not_printed.cells.items())
    block = Block(
        f"Recipe not printed: {not_printed.rows} rows, completed by the fastest layout that fits",
        header=["suite", ">runs", *_ERRORS],
        rows=[
            [name, str(summary.time.n), *_errors(summary.time)]
            for name, summary in [*not_printed.suites.items(), ("all", not_printed.summary)]
            if summary.time.n
        ],
        order=_BY_SUITE,
    )
    block.text.append(f"what was open, and in how many rows: {cells}")
    return [block]


def _apart_blocks(apart: Apart) -> list[Block]:
    if not apart.rows:
        return []
    block = Block(
        f"Options that estimates leave out: {apart.rows} rows have one, scored apart",
        header=["option", ">rows"],
        rows=[[name, str(rows)] for name, rows in list(apart.options.items())[:_MOST_OPTIONS]],
    )
    if len(apart.options) > _MOST_OPTIONS:
        block.text.append(f"the {_MOST_OPTIONS} most frequent; --json lists all")
    return [block]


def _skipped_blocks(skipped: Sequence[Skipped]) -> list[Block]:
    if not skipped:
        return []
    block = Block(
        f"Skipped: {len(skipped)}",
        header=["run", "reason"],
        rows=[[run.run_id, run.reason] for run in skipped[:_MOST_SKIPPED]],
        order="as in the file",
    )
    if len(skipped) > _MOST_SKIPPED:
        block.below.append(f"the first {_MOST_SKIPPED} of them; --json and --csv list all")
    return [block]
