"""docs/accuracy.md: what `dpplan validate` says over the shipped runs, what the bands mean, and
what mechanisms are worth."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable
from functools import cache

from pages import crossvalidation
from pages.text import NOTICE, percent, table
from planner import api
from planner.estimate.ties import TIE
from planner.evidence import band as uncertainty
from planner.inputs.calibration import stack_spec
from planner.inputs.cluster import cluster_spec
from planner.inputs.model import model_spec
from planner.specs.base import PlanError
from planner.specs.documents.validate import Errors, Run, Summary, Validation
from planner.specs.options import Options
from planner.specs.plan import Plan
from planner.specs.training import TrainingSpec
from planner.verbs.validate.errors import errors, noise_floor
from planner.verbs.validate.files import memory_residual_lines, residual_lines

_WORST = 15
_ANY = "llama-2-7b"  # a plan has a model; a band depends on none


@cache
def validated() -> Validation:
    """The document of `dpplan validate --coverage --ablations --cross-validate` over the shipped
    runs."""
    return api.validate(coverage=True, ablations=True, cross_validation=True)


def recorded() -> str:
    """planner/data/residuals.csv: the residuals that the bands of every answer come from."""
    return residual_lines(validated())


def recorded_memory() -> str:
    """planner/data/memory_residuals.csv: what runs say of their need, for every chance to fit."""
    return memory_residual_lines(validated())


def runs() -> list[Run]:
    """Shipped runs with a time."""
    return [row for row in validated().rows if row.time_error is not None]


def _four(e: Errors) -> list[str]:
    return [percent(value) for value in (e.mape, e.median_ape, e.bias, e.worst)]


def _cells(found: list[Run]) -> list[str]:
    e, noise = errors([r.time_error for r in found]), noise_floor(found)
    return [str(e.n), *_four(e), percent(noise.mean)]


def _by(found: list[Run], key: Callable[[Run], str]) -> dict[str, list[Run]]:
    groups: dict[str, list[Run]] = defaultdict(list)
    for one in found:
        groups[key(one)].append(one)
    return dict(sorted(groups.items()))


def _band(gpu: str, stack: str) -> str:
    try:
        cluster, _ = cluster_spec(Options(model=_ANY, gpu=gpu))
        plan = Plan(
            model=model_spec(_ANY)[0],
            cluster=cluster.model_copy(update={"gpus": cluster.gpus_per_node}),
            stack=stack_spec(stack),
            training=TrainingSpec(seq_len=1024, global_batch=1),
        )
    except PlanError:
        return "no profile"
    band = uncertainty.band(plan)
    return f"{band.low:.2f} .. {band.high:.2f}"


_HEADER = [">runs", ">MAPE", ">median", ">bias", ">worst", ">noise"]

MEANING = f"""## What the words mean

Error of a run is predicted over measured step time, minus one: a negative error means the
prediction is too fast. MAPE is the mean of absolute errors, `median` their median, `bias` the
median of the signed errors, `worst` the largest. `noise` is the noise floor: how far runs that
repeat one recipe (equal in everything but origin and result) lie from their median on average; `-`
where nothing was repeated. Where a recipe was measured twice, each run lies half of the difference
from the median: the error of a perfect prediction of an unseen run would be larger than this floor.

**These runs are those that the defaults were chosen while looking at.** Efficiencies of GPUs and
links come from microbenchmark tables where such tables exist, but the choices of the stacks (share
of bandwidth of elementwise kernels, launch cost, clock under load, what overlaps) were made with
these runs in view. They describe how well one set of defaults holds over many machines and
programs; they are no blind test, and a new machine can be further off than this page says. `dpplan
validate RUNS.csv` on runs of your own is the blind test.

Defaults are one value per GPU, GPU architecture or stack. Where a stack occurs in one suite only,
that amounts to one value per suite, and the error of that suite says little about others.

What the runs are: published step times, read from papers, repositories and benchmark tables,
shipped in `planner/data/runs` with their sources. Where a source does not print a part of its
recipe, the row leaves it empty and the planner takes the default of the stack. Tier A rows print
model, layout, batch and result; tier B rows rest on an assumption or two.

## Bands

The band beside every step time should hold {uncertainty.COVERAGE:.0%} of unseen runs. It rests on
predictions of runs that were not seen, each suite by shared numbers fitted on all other suites
(`suites` [below](#cross-validation)), not on the smaller errors of the defaults. Runs of one suite
share a machine, a team and a way of measuring and err together, so the spread between suites is
what an unseen cluster meets. A band is the 10 % and 90 % quantile of measured over predicted over
all validated runs, each weighted by

- likeness: x {uncertainty._OTHER_GPU:g} on another GPU, x {uncertainty._OTHER_STACK:g} with another
  stack, and half for every {uncertainty._HALVING:g} doublings between the numbers of GPUs, and
  between the sizes of the models, plus {uncertainty._FLOOR:g}; all that x
  {uncertainty._OTHER_KIND:g} between dense models and mixtures of experts;
- divided by 1 + (n - 1) {uncertainty._RHO:g} for a suite of n runs, the design effect of errors
  that correlate by {uncertainty._RHO:g} within a suite.

It widens by {uncertainty._FEW:.0%} over the sum of these weights, so with little alike it is wider,
and by {uncertainty._PER_DOUBLING:.1%} for every doubling beyond the largest validated cluster (an
assumption). It always contains the expected value and is not centred on it: where predictions are
too fast as a rule, the upper bound is further away. Without any residuals it is plus or minus
{uncertainty._UNKNOWN:.0%}, an assumption.
"""


def _coverage() -> list[str]:
    found = validated().coverage
    kinds = {f"{kind} in another suite": line for kind, line in found.evidence.items()}
    lines = {
        **{f"`{name}`": line for name, line in found.suites.items()},
        "all": found.all,
        **kinds,
    }
    return [
        "## Do the bands hold\n",
        (
            "Bands of each suite made from all other suites, as `dpplan validate --coverage` does."
            f" They hold {percent(found.all.inside_frac)} of the runs and"
            f" {percent(found.mean_of_suites)} on average over suites; promised are"
            f" {found.promised:.0%}. Low, high and width are means of measured over predicted;"
            " the score is the mean interval score on its logarithm, smaller is better. The suite"
            " is left out of the bands and of the fit of the numbers that predict it. It is not"
            " left out of the choices of the stacks: what nobody looked at can err more.\n"
        ),
        table(
            ["suite", ">runs", ">inside", ">low", ">high", ">width", ">score"],
            [
                [
                    name,
                    line.n,
                    percent(line.inside_frac),
                    *(f"{x:.2f}" for x in (line.low, line.high, line.width, line.score)),
                ]
                for name, line in lines.items()
            ],
        ),
    ]


def _ranking() -> list[str]:
    groups, summary = validated().groups, validated().summary.ranking
    noise = validated().summary.noise.mean
    return [
        "## Order of layouts\n",
        (
            f"{summary.groups} groups of five or more layouts that differ in nothing else. Mean"
            f" rank correlation {summary.spearman:.2f}; pick-regret, the time of the layout"
            f" predicted fastest over the best measured one, {percent(summary.pick_regret_mean)}"
            f" on average and {percent(summary.pick_regret_max)} at worst. In {summary.ties}"
            f" groups other predictions lie within the noise floor of {percent(noise)} of the pick:"
            f" ties. The pick is, of those within {percent(TIE)} of the fastest, the one that"
            " repeats the least work; where that is equal, too, the one whose GPU is busy for less"
            " time, then the one with fewer collectives.\n"
        ),
        table(
            [
                "suite",
                ">GPUs",
                "model",
                ">layouts",
                ">rank corr.",
                ">regret",
                ">ties",
                ">worst tie",
                "pick",
                "best",
            ],
            [
                [
                    f"`{g.suite}`",
                    g.gpus,
                    g.model,
                    g.layouts,
                    f"{g.spearman:.2f}",
                    percent(g.pick_regret),
                    g.ties,
                    percent(g.worst_tie_regret),
                    f"`{g.pick.run_id}`",
                    f"`{g.best.run_id}`",
                ]
                for g in groups[:_WORST]
            ],
        ),
    ]


def _memory() -> list[str]:
    def line(name: str, s: Summary) -> list[object]:
        right = [f"{kind.right}/{kind.n}" if kind.n else "-" for kind in (s.oom, s.ran)]
        return [name, s.memory.n, *_four(s.memory), *right]

    document = validated()
    some = {k: s for k, s in document.suites.items() if s.memory.n or s.oom.n}
    return [
        "## Memory\n",
        (
            "Predicted over measured peak, the statistic the source gives. `oom right`: runs that"
            " ran out of memory and were predicted to; `ran right`: runs that ran and were"
            " predicted to fit.\n"
        ),
        table(
            ["suite", *_HEADER[:-1], ">oom right", ">ran right"],
            [*(line(f"`{k}`", s) for k, s in some.items()), line("all", document.summary)],
        ),
    ]


def worth(names: str) -> str:
    """Lines of the ablations by name, separated by semicolons: error with and without, over the
    runs that a mechanism acts on."""
    known = {x.mechanism: x for x in validated().ablations}
    chosen = [known[name.strip()] for name in names.split(";")]
    return table(
        ["mechanism", "switched off means", ">runs it acts on", ">MAPE", ">MAPE without"],
        [
            [x.mechanism, x.off, x.acts.n, percent(x.acts.before), percent(x.acts.after)]
            for x in chosen
        ],
    )


def _ablations() -> list[str]:
    return [
        "## What single mechanisms are worth\n",
        (
            "`dpplan validate --ablations`: mean absolute error with each mechanism off, nothing"
            " fitted again. Defaults were chosen with all mechanisms on, so a change says what the"
            " model leans on, not what a model without it could reach. Where the error falls with a"
            " mechanism off, something else is wrong in the other direction, or the mechanism is."
            " The last columns are the suite whose errors change most in sum.\n"
        ),
        table(
            [
                "mechanism off",
                "that is",
                ">MAPE",
                ">off",
                ">runs it acts on",
                ">MAPE",
                ">off",
                "suite",
                ">runs",
                ">MAPE",
                ">off",
            ],
            [
                [
                    x.mechanism,
                    x.off,
                    percent(x.mape_before),
                    percent(x.mape_after),
                    x.acts.n,
                    percent(x.acts.before),
                    percent(x.acts.after),
                    f"`{x.most.suite}`" if x.most.suite else "-",
                    x.most.n,
                    percent(x.most.before),
                    percent(x.most.after),
                ]
                for x in validated().ablations
            ],
        ),
    ]


def _errors() -> list[str]:
    found = runs()
    by_suite = _by(found, lambda r: r.suite)
    return [
        "## By suite\n",
        table(
            ["suite", *_HEADER],
            [*([f"`{k}`", *_cells(v)] for k, v in by_suite.items()), ["all", *_cells(found)]],
        ),
        "## By kind of run\n",
        table(
            ["kind", ">runs", ">suites", ">MAPE", ">mean of suites", ">median", ">bias", ">worst"],
            [
                [
                    k,
                    e.n,
                    e.suites,
                    *map(percent, (e.mape, e.mape_of_suites, e.median_ape, e.bias, e.worst)),
                ]
                for k, e in validated().kinds.items()
            ],
        ),
        "## By GPU\n",
        table(
            ["gpu", *_HEADER],
            [[f"`{k}`", *_cells(v)] for k, v in _by(found, lambda r: r.gpu).items()],
        ),
        "## By stack\n",
        table(
            ["stack", *_HEADER],
            [[f"`{k}`", *_cells(v)] for k, v in _by(found, lambda r: r.stack).items()],
        ),
        "## By GPU and stack, with the band it gives\n",
        (
            "The band is measured over predicted: the factor on a predicted step time, here of a 7"
            " B model on one node.\n"
        ),
        table(
            ["gpu", "stack", *_HEADER, ">band"],
            [
                [f"`{v[0].gpu}`", f"`{v[0].stack}`", *_cells(v), _band(v[0].gpu, v[0].stack)]
                for v in _by(found, lambda r: f"{r.gpu}\t{r.stack}").values()
            ],
        ),
    ]


def _worst() -> list[str]:
    return [
        f"## The {_WORST} worst runs\n",
        table(
            ["run", "gpu", "stack", ">error"],
            [
                [f"`{r.run_id}`", f"`{r.gpu}`", f"`{r.stack}`", percent(r.time_error)]
                for r in sorted(runs(), key=lambda r: (-abs(math.log1p(r.time_error)), r.run_id))[
                    :_WORST
                ]
            ],
        ),
    ]


def _cross_validation() -> list[str]:
    return crossvalidation.parts(validated())


# the sections in their order; each gives Markdown parts
SECTIONS: tuple[Callable[[], list[str]], ...] = (
    _errors,
    _cross_validation,
    _coverage,
    _ranking,
    _memory,
    _ablations,
    _worst,
)


def page() -> str:
    e, noise = errors([r.time_error for r in runs()]), validated().summary.noise
    suites = len(_by(runs(), lambda r: r.suite))
    head = (
        f"{NOTICE}# Accuracy\n\nPredicted against measured step time over {e.n:,} published runs"
        f" in {suites} suites: mean absolute error {percent(e.mape)}, median"
        f" {percent(e.median_ape)}, bias {percent(e.bias)}, worst {percent(e.worst)}."
        f" Noise floor of the data: {noise.n} runs that repeat another lie"
        f" {percent(noise.mean)} from their median on average. `dpplan validate` prints these"
        " numbers.\n"
    )
    return "\n".join([head, MEANING, *(part for section in SECTIONS for part in section())])


def status() -> str:
    """One paragraph for the README."""
    found = runs()
    e, noise = errors([r.time_error for r in found]), validated().summary.noise
    held = validated().coverage.all.inside_frac
    unseen = validated().cross_validation.kinds["suites"].all
    within = sum(abs(r.time_error) <= 0.2 for r in found)
    return (
        f"Step time was compared with {e.n:,} published runs on"
        f" {len(_by(found, lambda r: r.gpu))} GPUs and {len(_by(found, lambda r: r.stack))}"
        f" training stacks: mean absolute error {percent(e.mape)}, median"
        f" {percent(e.median_ape)}, bias {percent(e.bias)}, worst {percent(e.worst)};"
        f" {within / len(found):.0%} of them within 20 %. Repeats of one run lie"
        f" {percent(noise.mean)} from their median. Predicted by numbers fitted without its"
        f" suite, a run is {percent(unseen.mape)} off on average, half of them at most"
        f" {percent(unseen.median_ape)}. Bands made without a suite hold {held:.0%} of its runs."
        " The defaults were chosen while looking at these runs, so this is not a blind test."
        " [docs/accuracy.md](docs/accuracy.md) has the tables; `dpplan validate` computes them.\n"
    )
