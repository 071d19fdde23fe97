"""What the words of docs/accuracy mean, and how its bands are made."""

from __future__ import annotations

from pages.text import table
from planner.evidence import band as uncertainty
from planner.evidence.case import FEATURES
from planner.evidence.spread import COVERAGE
from planner.specs.cluster import ONE_SWITCH, OVERSUBSCRIBED


def _widening() -> str:
    """What mechanisms may take beside what is expected."""
    return table(
        ["mechanism", ">slower", ">faster"],
        [
            [one.words, *("-" if x == 1 else f"{x:g}" for x in (one.slower, one.faster))]
            for name, one in FEATURES.items()
            if name not in _MOST and max(one.slower, one.faster) > 1
        ],
    )


_MOST = ("offload", "islands")  # whose feature is already what they add at most


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
shipped in `planner/studies/data/runs` with their sources. Where a source does not print a part of
its recipe, the row leaves it empty and the planner takes the default of the stack. Tier A rows
print model, layout, batch and result; tier B rows rest on an assumption or two.

## Bands

The band beside every step time should hold {COVERAGE:.0%} of unseen runs: its ends are the 10 %
and the 90 % quantile of measured over predicted step time. It always contains the expected time.

Its base is what validated runs were missed by: quantiles of their residuals, in which a run of a
suite of n counts as 1/(1 + (n - 1) {uncertainty.CORRELATION:g}), because errors of a suite
correlate. Runs of the other kind of program (of Megatron's lineage, which has one recipe, or not)
weigh {uncertainty.OTHER_PROGRAM:g}. Everything else that was tried tells suites apart no better
than chance ([log](log/index.md)): GPU, architecture, stack, number of GPUs, length, experts, what
takes the time.

Beside it, independent and added in quadrature, stands what nobody measured or states. A GPU that no
run was on moves either end by {uncertainty.NEW_GPU - 1:.0%}, by
{uncertainty.UNTIMED_GPU - 1:.0%} where no table of its GEMMs is known. A mechanism that may
take longer or less by a factor moves the end of the band by its share of the step:

{_widening()}

An optimizer that is offloaded is as slow as the slowest host that the request may mean, ten times
where neither host nor threads are stated, and copies three times, as from memory that is not
pinned. Beyond {ONE_SWITCH} nodes whose fabric neither request nor cluster states, the slow end is
that of islands of so many nodes with {OVERSUBSCRIBED:g} times fewer links between them: the same
step evaluated there.

The weights and factors are choices among round numbers, by the interval score of suites left out:
`benchmarks/bands.py` prints it for these and their neighbours.

Residuals are those of runs that were not seen: suites that were in view while the model was made
are predicted by shared numbers fitted on all other suites (`suites` [below](#cross-validation)).
Choices of mechanisms were made with them in view all the same. Suites in
`planner/studies/data/fresh`, which nothing was chosen with, lie inside as often
([below](#do-the-bands-hold)).
"""
