"""Terms of docs/accuracy, and how its bands are made."""

from __future__ import annotations

from pages.text import table
from planner.evidence import band as uncertainty
from planner.evidence.case import FEATURES
from planner.evidence.spread import COVERAGE
from planner.specs.cluster import ONE_SWITCH, OVERSUBSCRIBED


def _widening() -> str:
    """Factors by which mechanisms may exceed or undercut their expected time."""
    return table(
        ["mechanism", ">slower", ">faster"],
        [
            [
                feature.words,
                *("-" if x == 1 else f"{x:g}" for x in (feature.slower, feature.faster)),
            ]
            for name, feature in FEATURES.items()
            if name not in _MOST and max(feature.slower, feature.faster) > 1
        ]
        + [
            [f"a {_NAMES.get(name, name)} that no suite shows", f"{factor:g}", f"{factor:g}"]
            for name, factor in uncertainty.NEW.items()
        ],
    )


_NAMES = {"gpu": "GPU"}
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

A band is as wide as the evidence is thin. Its base is what plain runs of measured software were
missed by: the residuals of validated runs without what is new or special in each, as quantiles in
which a run of a suite of n counts as 1/(1 + (n - 1) {uncertainty.CORRELATION:g}), because errors of
a suite correlate. Suites in view while the model was made were missed by less than those collected
later: their residuals count as {1 / uncertainty.IN_VIEW:.2g} times as large, and runs of the others
weigh {uncertainty.LATER:g}.

Beside it, independent and added in quadrature, stand what is new in a request and what was missed
by more than the rest. A GPU, a stack or a combination of methods (experts, number formats,
adapters, offloading, long sequences) that n suites show widens by its factor over the root of
1 + n; a GPU whose GEMMs nobody timed by another {uncertainty.UNTIMED_GPU - 1:.0%}. A mechanism
that may take longer or less by a factor moves the end of the band by its share of the step, and a
property of the request by the whole factor:

{_widening()}

An optimizer that is offloaded is as slow as the slowest host that the request may mean, ten times
where neither host nor threads are stated, and copies three times, as from memory that is not
pinned. Beyond {ONE_SWITCH} nodes whose fabric neither request nor cluster states, the slow end is
that of islands of so many nodes with {OVERSUBSCRIBED:g} times fewer links between them: the same
step evaluated there.

The weights and factors are choices among round numbers, by the interval score of suites left out:
`benchmarks/bands.py` prints it for these and their neighbours. Those of experts, AMD, Blackwell,
4-bit GEMMs and adapters rest on few suites, and on what 195 runs that were predicted blind showed.

Residuals are those of runs that were not seen: suites that were in view while the model was made
are predicted by shared numbers fitted on all other suites (`suites` [below](#cross-validation)).
Choices of mechanisms were made with them in view all the same. Suites in
`planner/studies/data/fresh` were never in view of a mechanism ([below](#do-the-bands-hold)).
"""
