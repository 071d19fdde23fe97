"""Terms of docs/accuracy, and how its bands are made."""

from __future__ import annotations

import csv
import math

from benchmarks.studies.widths import CORRELATION
from pages.text import table
from planner.evidence import band as uncertainty
from planner.evidence.spread import COVERAGE
from planner.specs.cluster import ONE_SWITCH, OVERSUBSCRIBED


def _widening() -> str:
    """Fitted factors on the half-width of a band."""
    widths = _widths()
    return table(
        ["property of a step", ">factor on the half-width"],
        [
            [words, f"{math.exp(widths.widens[name]):.2f}{_sided(widths, name)}"]
            for name, words in uncertainty.WIDENS.items()
            if name != uncertainty.LATER
        ],
    )


def _widths() -> uncertainty.Widths:
    with uncertainty.WIDTHS.open(encoding="utf-8", newline="") as file:
        return uncertainty.widths_of(next(csv.DictReader(file)))


def _sided(widths: uncertainty.Widths, name: str) -> str:
    if name not in uncertainty.ONE_SIDED:
        return ""
    faster, slower = (math.exp(side[name]) for side in (widths.below_of, widths.above_of))
    return f", times {slower:.2f} towards slower and {faster:.2f} towards faster"


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
programs; they are not a blind test, and a new machine can be further off than this page says.
`dpplan validate RUNS.csv` on runs of your own is the blind test.

Defaults are one value per GPU, GPU architecture or stack. Where a stack occurs in one suite only,
that amounts to one value per suite, and the error of that suite says little about others.

What the runs are: published step times, read from papers, repositories and benchmark tables,
shipped in `planner/studies/data/runs` with their sources. Where a source does not print a part of
its recipe, the row leaves it empty and the planner takes the default of the stack. Tier A rows
print model, layout, batch and result; tier B rows rest on an assumption or two.

## Bands

The band beside every step time should hold {COVERAGE:.0%} of unseen runs: its ends are the 10 %
and the 90 % quantile of measured over predicted step time. It always contains the expected time.

A band is as wide as the evidence is thin. Its half-width, as a logarithm, is that of plain runs of
measured software times a factor for each property that makes a step less or better known. Factors
are fitted to the interval score (Gneiting & Raftery 2007, equation 43) of all suites together, in
which a run of a suite of n counts as 1/(1 + (n - 1) {CORRELATION:g}), because errors of a suite
correlate, and are shrunk towards what 195 runs that were predicted blind showed of their classes.
Suites in view while the model was made were missed by less than those collected later: that, too,
is a factor ({math.exp(_widths().widens[uncertainty.LATER]):.2f}), and every answer has it.
Nothing is fitted by suite, GPU or stack.

{_widening()}

That few suites show a GPU counts 1 over 1 + suites of the exponent; a step far from the peak rate
the logarithm of 0.5 over its predicted MFU. What no request states stands beside it, in quadrature.
GEMMs of a GPU that was never timed may be {uncertainty.UNTIMED_GPU - 1:.0%} off.
An optimizer that is offloaded is as slow as the slowest host that the request may mean, ten times
where neither host nor threads are stated, and copies three times, as from memory that is not
pinned; a host that is not stated may be twice as fast. Beyond {ONE_SWITCH} nodes whose fabric
neither request nor cluster states, the slow end assumes islands of that size with
{OVERSUBSCRIBED:g} times fewer links between them: the same step evaluated there.

`python -m benchmarks.studies.widths` fits, and `python -m benchmarks.bands` prints the score of
suites left out for each choice in it and its neighbours.

Residuals are those of runs that were not seen: suites that were in view while the model was made
are predicted by shared numbers fitted on all other suites (`suites` [below](#cross-validation)).
Choices of mechanisms were made with them in view all the same. Suites in
`planner/studies/data/fresh` were never in view of a mechanism ([below](#do-the-bands-hold)).
"""
