"""View of `dpplan validate`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from planner.specs.document import UNSET
from planner.studies.documents.validate import (
    Ablation,
    Apart,
    BandLine,
    Coverage,
    CrossValidation,
    Errors,
    ErrorsOfSuites,
    FitCoverage,
    Group,
    NotPrinted,
    Ranking,
    Skipped,
    Summary,
    Task,
    Validation,
    Worth,
)
from planner.studies.views.validate_figure import chart
from planner.units import percent
from planner.views.view import Block, View

_MOST_GROUPS = 5  # with the largest regret
_MOST_SKIPPED = 20
_MOST_OPTIONS = 20


def view(out: Validation) -> View:
    """Errors per suite and in all beside the noise floor, ranking and its worst groups, what else
    was asked, what was skipped."""
    blocks = [
        _time_block(out),
        _kinds_block(out.kinds),
        *_memory_blocks(out),
        *_task_blocks(out.tasks),
        *_regret_blocks(out.groups),
        *_not_printed_blocks(out.not_printed),
        *_apart_blocks(out.apart),
    ]
    if out.coverage is not UNSET:
        blocks += _coverage_blocks(out.coverage)
    if out.fit_coverage is not UNSET:
        blocks.append(fit_coverage_block(out.fit_coverage))
    if out.cross_validation is not UNSET:
        blocks += _cross_validation_blocks(out.cross_validation, out.summary.noise.mean)
    if out.ablations is not UNSET:
        blocks.append(_ablation_block(out.ablations))
    if out.worths is not UNSET:
        blocks.append(_worth_block(out.worths))
    blocks += _skipped_blocks(out.skipped)
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


_ORDER = [">rank corr.", ">regret", ">worst regret"]
_BY_SUITE = "by suite, all last"  # the order of rows


def _order(ranking: Ranking) -> list[str]:
    """Cells under `_ORDER`."""
    correlation = "-" if ranking.spearman is None else f"{ranking.spearman:.2f}"
    return [correlation, percent(ranking.pick_regret_mean), percent(ranking.pick_regret_max)]


def _time_block(out: Validation) -> Block:
    noise, ranked = out.summary.noise, out.summary.ranking
    block = Block(
        "Predicted against measured step time",
        header=["suite", ">runs", *_ERRORS, ">repeats", ">noise", ">groups", *_ORDER],
        rows=[
            [
                name,
                str(summary.time.n),
                *_errors(summary.time),
                str(summary.noise.n),
                percent(summary.noise.mean),
                str(summary.ranking.groups),
                *_order(summary.ranking),
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
    """Fine-tuning and reinforcement learning beside pre-training, where rows are of several."""
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


_BAND = [">runs", ">inside", ">low", ">high", ">score"]


def _band_cells(line: BandLine) -> list[str]:
    """Cells under `_BAND`."""
    numbers = (_score(x) for x in (line.low, line.high, line.score))
    return [str(line.n), percent(line.inside_frac), *numbers]


def _score(x: float | None) -> str:
    return "-" if x is None else f"{x:.2f}"


def _coverage_blocks(coverage: Coverage) -> list[Block]:
    """The shipped bands by what was left out of them, by what takes the time, and by suite."""
    over = Block(
        "Do the shipped bands hold",
        [
            f"promised {coverage.promised:.0%} of runs; each run by the band of all suites but its"
            " own, and without what the line names; scores are interval scores, smaller is better"
        ],
        header=["left out", *_BAND, ">mean of suites", ">score of suites"],
        rows=[
            [
                name,
                *_band_cells(line.all),
                percent(line.mean_of_suites),
                _score(line.score_of_suites),
            ]
            for name, line in {**coverage.left_out, "one band for all": coverage.one_band}.items()
        ],
        order="least left out first",
    )
    only = coverage.left_out["suites"]
    if not only.all.n:
        return [Block("Do the shipped bands hold", ["no run with a time"])]
    parts = (
        ("what the others share", "most first", only.evidence),
        ("kind", "as declared", only.kinds),
        ("suite", "by name", only.suites),
    )
    return [over] + [
        Block(
            f"Bands by {name}",
            header=[name, *_BAND],
            rows=[[label, *_band_cells(line)] for label, line in lines.items()],
            order=order,
        )
        for name, order, lines in parts
        if lines
    ]


def fit_coverage_block(coverage: FitCoverage) -> Block:
    """Whether chances to fit hold on suites they never saw."""
    brier = "-" if coverage.brier is None else f"{coverage.brier:.4f}"
    return Block(
        "Chances to fit, each suite under the evidence of all others",
        text=[
            f"Brier score {brier} over {coverage.n:,} runs; of {coverage.peaks:,} measured peaks"
            f" {percent(coverage.below_frac)} (mean of suites {percent(coverage.mean_of_suites)})"
            f" below the need that {percent(coverage.promised, 0)} should stay below"
        ],
        header=["chance", ">runs", ">mean chance", ">ran"],
        rows=[
            [
                f"{percent(line.low, 0)} to {percent(line.high, 0)}",
                f"{line.n:,}",
                percent(line.mean_chance),
                percent(line.ran_frac),
            ]
            for line in coverage.reliability
        ],
        order="from the least chance",
    )


def _ablation_block(ablations: Sequence[Ablation]) -> Block:
    return Block(
        "Each mechanism off, nothing fitted again",
        text=["MAPE with it -> without it: over all runs, those it acts on, and one suite"],
        header=[
            *("mechanism", ">all: with", ">all: without"),
            *(">acts on: runs", ">acts on: with", ">acts on: without"),
            *("most in", ">there: runs", ">there: with", ">there: without"),
        ],
        order="as declared",
        drop=("there: runs", "there: with", "there: without", "most in", "acts on: runs"),
        rows=[
            [
                line.mechanism,
                percent(line.mape_before),
                percent(line.mape_after),
                str(line.acts.n),
                percent(line.acts.before),
                percent(line.acts.after),
                line.most.suite or "-",
                str(line.most.n),
                percent(line.most.before),
                percent(line.most.after),
            ]
            for line in ablations
        ],
    )


def _worth_block(worths: Sequence[Worth]) -> Block:
    return Block(
        "What options are worth: runs that state one, against the same runs without it",
        text=[
            "without a word of `options` the stack's default holds; without recompute, sequence"
            " parallelism or offload the run has none; change: mean of predicted with over without"
        ],
        header=[
            *("option", ">runs", ">suites", ">step", ">least", ">most", ">memory"),
            *(">MAPE: stated", ">MAPE: without"),
        ],
        order="the largest change of the step first",
        drop=("least", "most", "suites"),
        rows=[
            [
                line.option,
                f"{line.runs:,}",
                str(line.suites),
                *(percent(x, sign=True) for x in (line.step_change, line.step_least)),
                *(percent(x, sign=True) for x in (line.step_most, line.memory_change)),
                percent(line.mape_stated),
                percent(line.mape_left_out),
            ]
            for line in worths
        ],
    )


def _cross_validation_blocks(crossval: CrossValidation, noise: float | None) -> list[Block]:
    """Errors of every kind of leaving out, over runs and of tier A; per suite; and what was
    fitted."""
    header = ["left out", ">runs", ">MAPE", ">of suites", ">median", ">bias"]

    def cells(name: str, errors_of: ErrorsOfSuites) -> list[str]:
        errors = (errors_of.mape, errors_of.mape_of_suites, errors_of.median_ape, errors_of.bias)
        return [name, str(errors_of.n), *map(percent, errors)]

    over = Block(
        "Cross-validation: errors of step time",
        [
            *(f"{name}: {kind.meaning}" for name, kind in crossval.kinds.items()),
            f"noise floor of the data: {percent(noise)}",
        ],
        [*header, *_ORDER],
        [[*cells(name, kind.all), *_order(kind.ranking)] for name, kind in crossval.kinds.items()],
        order="least left out first",
        drop=("worst regret", "bias"),
    )
    tier = Block(
        "Cross-validation: tier A",
        header=header,
        rows=[cells(name, kind.tier_a) for name, kind in crossval.kinds.items()],
        order="least left out first",
    )
    suites = Block(
        "Cross-validation by suite: MAPE",
        header=["suite", *(f">{name}" for name in crossval.kinds)],
        rows=[
            [
                suite,
                *(
                    percent(kind.suites[suite].mape if suite in kind.suites else None)
                    for kind in crossval.kinds.values()
                ),
            ]
            for suite in sorted({row.suite for row in crossval.rows})
        ],
        order="by suite",
    )
    values = Block(
        "Fitted on all suites",
        header=["number", ">factor", ">spread", ">runs", ">bounds", "on bound"],
        rows=[
            [
                value.name,
                f"{value.multiplier:.3f}",
                percent(value.spread),
                str(value.runs),
                f"{value.low:g} .. {value.high:g}",
                "yes" if value.on_bound else "",
            ]
            for value in crossval.parameters
        ],
        order="as fitted",
    )
    clocks = Block(
        "Clock of each platform",
        header=["platform", ">runs", ">fitted", ">spread", ">shipped", ">power law"],
        rows=[
            [
                clock.platform,
                str(clock.runs),
                f"{clock.fitted:.2f}",
                percent(clock.spread),
                f"{clock.shipped:.2f}",
                "-" if clock.power_law is None else f"{clock.power_law:.2f}",
            ]
            for clock in crossval.clocks
        ],
        order="by platform",
    )
    return [block for block in (over, tier, suites, values, clocks) if block.rows]
