"""The section of docs/accuracy on cross-validation: tables of held-out errors, goals, and every
fitted number."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.studies.crossval import LARGE, ON_BOUND, CrossValidation
from pages.text import percent, table
from planner.studies.documents.validate import ErrorsOfSuites, Run, Validation
from planner.studies.validate.errors import KINDS, complete, errors, noise_floor
from planner.studies.validate.fit import ACROSS, HUBER, WITHIN

_TABLE_1 = {
    f"narayanan-2021-{i:04d}" for i in range(1, 11)
}  # 1.7B to 1008B on 32 to 3072 GPUs; the others are table 2


@dataclass(frozen=True)
class Goal:
    """Runs, how they were predicted, and what their mean error should be at most."""

    title: str
    kind: str  # a key of `CrossValidation.kinds`
    belongs: Callable[[Run], bool]
    mape: float


def _llmq(gpu: str) -> Callable[[Run], bool]:
    return lambda r: r.suite == "llmq" and r.gpu == gpu


def _extrapolated(r: Run) -> bool:
    return 2 * LARGE <= r.gpus <= 8 * LARGE


GOALS = (
    Goal(
        "Narayanan 2021, table 1, one clock for the paper",
        "clock",
        lambda r: r.run_id in _TABLE_1,
        0.03,
    ),
    Goal(
        "Korthikanti 2022, table 5, one clock for the paper",
        "clock",
        lambda r: r.suite == "korthikanti-2022",
        0.03,
    ),
    Goal(
        "llm-foundry on H100, other half", "halves", lambda r: r.suite == "llm-foundry-h100", 0.03
    ),
    Goal(
        "llm-foundry on A100 80 GB, other half",
        "halves",
        lambda r: r.suite == "llm-foundry-a100-80gb",
        0.04,
    ),
    Goal(
        "llm-foundry from up to 64 to 128..512 GPUs",
        "scale",
        lambda r: r.suite.startswith("llm-foundry") and _extrapolated(r),
        0.03,
    ),
    Goal("all platforms from up to 64 to 128..512 GPUs", "scale", _extrapolated, 0.03),
    *(
        Goal(
            f"llmq on {name}, {'defaults' if kind == 'defaults' else 'fitted on other suites'}",
            kind,
            _llmq(gpu),
            0.08,
        )
        for kind in ("defaults", "suites")
        for gpu, name in (("rtx4090", "RTX 4090"), ("rtx5090", "RTX 5090"), ("l40s", "L40S"))
    ),
    *(
        Goal(
            "mixtures of experts,"
            f" {'defaults' if kind == 'defaults' else 'fitted on other suites'}",
            kind,
            lambda r: r.experts > 0,
            0.12,
        )
        for kind in ("defaults", "suites")
    ),
)

# kind, subset, then the statistics with their goals
_SUMMARIES = (
    (
        "models",
        "tier_a",
        "tier A, whole models left out",
        ("mape_of_suites", 0.055),
        ("median_ape", 0.035),
        ("bias", 0.02),
    ),
    (
        "gpus",
        "tier_a",
        "tier A, GPU counts left out",
        ("mape_of_suites", 0.055),
        ("median_ape", 0.035),
        ("bias", 0.02),
    ),
    ("models", "all", "all runs, whole models left out", ("mape", 0.085), ("median_ape", 0.05)),
    ("gpus", "all", "all runs, GPU counts left out", ("mape", 0.085), ("median_ape", 0.05)),
    ("suites", "all", "all runs, each suite left out", ("mape", 0.10), ("median_ape", 0.07)),
)
_WORDS = {
    "mape": "MAPE",
    "mape_of_suites": "MAPE, mean of suites",
    "median_ape": "median",
    "bias": "bias",
}


def goals(document: Validation, crossed: CrossValidation) -> list[list[object]]:
    """Lines of what, statistic, goal, reached value, runs, verdict."""
    known = {r.run_id: r for r in document.rows}
    lines: list[list[object]] = []

    def say(
        subject: str,
        statistic: str,
        goal: str,
        value: float | None,
        shown: str,
        runs: int,
        reached: bool,
    ) -> None:
        lines.append(
            [
                subject,
                statistic,
                goal,
                shown,
                runs,
                "-" if value is None else "reached" if reached else "**missed**",
            ]
        )

    for goal in GOALS:
        judged = [
            r
            for r in crossed.rows
            if goal.belongs(known[r.run_id])
            and complete(known[r.run_id])
            and r.predicted_step_s[goal.kind] is not None
        ]
        value = errors([r.predicted_step_s[goal.kind] / r.measured_step_s - 1 for r in judged]).mape
        say(
            goal.title,
            "MAPE",
            f"<= {percent(goal.mape)}",
            value,
            percent(value),
            len(judged),
            bool(judged) and value <= goal.mape,
        )
    for kind, subset, title, *wanted in _SUMMARIES:
        summary = getattr(crossed.kinds[kind], subset)
        for name, limit in wanted:
            value, sign = getattr(summary, name), "within +-" if name == "bias" else "<= "
            reached = value is not None and abs(value) <= limit
            say(
                title,
                _WORDS[name],
                f"{sign}{percent(limit)}",
                value,
                percent(value),
                summary.n,
                reached,
            )
    r = crossed.kinds["defaults"].ranking
    for name, value, limit in (
        ("mean pick-regret", r.pick_regret_mean, 0.02),
        ("worst pick-regret", r.pick_regret_max, 0.10),
    ):
        say(
            "order of layouts, defaults",
            name,
            f"<= {percent(limit)}",
            value,
            percent(value),
            r.groups,
            value <= limit,
        )
    say(
        "order of layouts, defaults",
        "rank correlation",
        ">= 0.85",
        r.spearman,
        f"{r.spearman:.2f}",
        r.groups,
        r.spearman >= 0.85,
    )
    return lines


_MEANING = f"""What the model says of runs that had no part in a fit, as `python -m
benchmarks.studies.crossval` does.

A **platform** is the runs of one suite on one GPU with one stack. Its numbers (clock, share of
bandwidth of elementwise kernels, launch cost, attention, contention, network, link of the node) are
fitted on part of its runs and the rest is predicted: what a calibration on a few runs of a cluster
buys. A number is the most probable one given the runs and what is known before, a normal prior on
its logarithm centred on the shipped value; errors beyond {HUBER * WITHIN.noise:.1%} count linearly.
Repeats of one recipe lie on the same side of a division.

With **suites**, numbers shared by all platforms are fitted on all other suites: a stranger's
cluster, of which no run was ever seen. Runs count as in the bands: errors of a suite correlate, and
{ACROSS.noise:.0%} is the spread that a shared number leaves.

The shipped values that priors pull towards, the structure of the model and the choices of each
stack were made with all suites in view. So the errors here are a lower bound for an unseen
cluster."""

_VALUES = """The numbers that `suites` fits, here on all suites: each multiplies numbers of the
shipped profiles (1 is the shipped value). They are not shipped; they say how far the defaults are
from what all runs together would choose. `spread` is the standard deviation of the logarithm that
the runs leave, `runs` those whose step time moves by more than 2 % of its own change. A number that
rests on fewer than three runs is not fitted."""

_CLOCKS = """One clock per platform, fitted on all of its runs with nothing else moved, beside the
shipped one and what the [power law](mechanisms/clock.md) gives. A clock fitted by itself takes up
whatever else the platform does differently: a value above the law means a platform faster than the
model, not a GPU that clocks higher."""


def parts(document: Validation, crossed: CrossValidation) -> list[str]:
    """Markdown parts of the section."""
    kinds = crossed.kinds
    noise = noise_floor(document.rows).mean
    noise_a = noise_floor([r for r in document.rows if r.tier == "A"]).mean
    return [
        "## Cross-validation\n",
        f"{_MEANING}\n\n"
        + "".join(f"- `{name}`: {kind.meaning}.\n" for name, kind in kinds.items()),
        table(
            [
                "left out",
                ">runs",
                ">suites",
                ">MAPE",
                ">mean of suites",
                ">median",
                ">bias",
                ">noise",
                ">rank corr.",
                ">regret",
                ">worst regret",
            ],
            [
                [
                    f"`{name}`",
                    *_cells(k.all),
                    percent(noise),
                    _two(k.ranking.spearman),
                    percent(k.ranking.pick_regret_mean),
                    percent(k.ranking.pick_regret_max),
                ]
                for name, k in kinds.items()
            ],
        ),
        "Tier A:\n",
        table(
            [
                "left out",
                ">runs",
                ">suites",
                ">MAPE",
                ">mean of suites",
                ">median",
                ">bias",
                ">noise",
            ],
            [[f"`{name}`", *_cells(k.tier_a), percent(noise_a)] for name, k in kinds.items()],
        ),
        "### By suite\n",
        (
            "MAPE; `-` where a suite's platforms have one model, one number of GPUs, or nothing"
            f" beyond {LARGE} GPUs to be held out.\n"
        ),
        table(
            ["suite", ">runs", *(f">{name}" for name in kinds), ">noise"],
            _by_suite(document, crossed),
        ),
        "### By kind of run\n",
        "MAPE over the runs of a kind that could be held out.\n",
        table(
            ["kind", ">runs", *(f">{name}" for name in kinds), ">noise"],
            _by_kind(document, crossed),
        ),
        "### Goals\n",
        (
            "What this project set out to reach, and where it stands; the tables above say by how"
            " much each suite is off.\n"
        ),
        table(
            ["what", "statistic", ">goal", ">value", ">runs or groups", "verdict"],
            goals(document, crossed),
        ),
        "### Fitted numbers\n",
        _VALUES + "\n",
        table(
            [
                "number",
                "meaning",
                "multiplies",
                ">factor",
                ">spread",
                ">runs",
                ">bounds",
                "on a bound",
            ],
            [
                [
                    v.name,
                    v.meaning,
                    ", ".join(f"`{n}`" for n in v.numbers),
                    f"{v.multiplier:.3f}",
                    percent(v.spread),
                    v.runs,
                    f"{v.low:g} .. {v.high:g}",
                    ON_BOUND.get(v.name, "not explained") if v.on_bound else "no",
                ]
                for v in crossed.parameters
            ],
        ),
        "### Clocks of platforms\n",
        _CLOCKS + "\n",
        table(
            ["platform", ">runs", ">fitted", ">spread", ">shipped", ">power law", "on a bound"],
            [
                [
                    f"`{c.platform}`",
                    c.runs,
                    f"{c.fitted:.2f}",
                    percent(c.spread),
                    f"{c.shipped:.2f}",
                    _two(c.power_law),
                    "yes" if c.on_bound else "no",
                ]
                for c in crossed.clocks
            ],
        ),
    ]


def _cells(e: ErrorsOfSuites) -> list[object]:
    figures = (e.mape, e.mape_of_suites, e.median_ape, e.bias)
    return [e.n, e.suites, *map(percent, figures)]


def _two(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _by_kind(document: Validation, crossed: CrossValidation) -> list[list[object]]:
    known = {r.run_id: r for r in document.rows}
    judged = [r for r in crossed.rows if complete(known[r.run_id])]
    lines: list[list[object]] = []
    for title, belongs in KINDS.items():
        members = [r for r in judged if belongs(known[r.run_id])]
        pairs = [
            [(r.predicted_step_s[kind], r.measured_step_s) for r in members]
            for kind in crossed.kinds
        ]
        each = [
            errors(
                [predicted / seconds - 1 for predicted, seconds in kind if predicted is not None]
            ).mape
            for kind in pairs
        ]
        noise = noise_floor([known[r.run_id] for r in members]).mean
        lines.append([title, len(members), *map(percent, each), percent(noise)])
    return lines


def _by_suite(document: Validation, crossed: CrossValidation) -> list[list[object]]:
    lines: list[list[object]] = []
    for suite, summary in document.suites.items():
        each = [kind.suites.get(suite) for kind in crossed.kinds.values()]
        if any(each):
            runs = summary.time.n
            lines.append(
                [
                    f"`{suite}`",
                    runs,
                    *(percent(e.mape if e else None) for e in each),
                    percent(summary.noise.mean),
                ]
            )
    return lines
