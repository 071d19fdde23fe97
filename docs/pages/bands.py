"""The sections of docs/accuracy on whether bands and chances to fit hold what they promise."""

from __future__ import annotations

from benchmarks.studies.bands import BandLine, Coverage
from benchmarks.studies.chances import FitCoverage
from benchmarks.studies.widths import CORRELATION
from pages.text import percent, table


def parts(coverage: Coverage, fits: FitCoverage) -> list[str]:
    """Both sections."""
    return [*_coverage(coverage), *_fit_chances(fits)]


_HEADS = [
    *(">runs", ">suites", ">low", ">high"),
    *(">inside", ">+-", ">of suites", ">+-", ">score", ">of suites"),
]


def _cells(line: BandLine) -> list[object]:
    return [
        line.n,
        line.suites,
        *(f"{x:.2f}" for x in (line.low, line.high)),
        percent(line.inside_frac),
        percent(line.error, 0),
        percent(line.mean_of_suites),
        percent(line.error_of_suites, 0),
        *(f"{x:.2f}" for x in (line.score, line.score_of_suites)),
    ]


def _lines(name: str, lines: dict[str, BandLine]) -> str:
    return table([name, *_HEADS], [[label, *_cells(line)] for label, line in lines.items()])


def _coverage(coverage: Coverage) -> list[str]:
    only = coverage.left_out["suites"]
    return [
        "## Do the bands hold\n",
        (
            "The shipped bands over all recorded residuals, as `python -m benchmarks.studies.bands`"
            " does: each run in the band of residuals without its suite, and without what the line"
            f" names, by widths fitted without them. Promised are {coverage.promised:.0%}. The mean"
            " over suites counts each the same. Low and high are means of measured over predicted;"
            " the score is the mean interval score on its logarithm, smaller is better. By runs it"
            " is that of the five largest suites, which hold half of the runs and were missed by"
            " little; by suites it is that of the few that were missed by much. One band for all"
            " runs has the quantiles by runs of all other suites, so it is best at the former."
            " Suites in view while the model was made are judged by the narrower band of such"
            " suites, the others by that of every answer. +- is the standard error that a share"
            f" would have if the bands were right, as errors of a suite correlate ({CORRELATION:g})"
            ": 3 points of percent take some 60 suites of any size, 10 take 5.\n"
        ),
        table(
            ["left out with its suite", *_HEADS],
            [
                [name, *_cells(line.all)]
                for name, line in [
                    *coverage.left_out.items(),
                    ("one band for all runs, instead", coverage.one_band),
                ]
            ],
        ),
        _lines("what the others share with a run", only.evidence),
        _lines("kind of run", only.kinds),
        _lines("suite", {f"`{name}`": line for name, line in only.suites.items()}),
    ]


def _fit_chances(coverage: FitCoverage) -> list[str]:
    return [
        "## Do the chances to fit hold\n",
        (
            "Runs that ran or ran out of memory by the chance they had, each suite under the"
            " evidence of all others, as `python -m benchmarks.studies.chances` does. Brier score"
            f" {coverage.brier:.4f} over {coverage.n:,} runs that say something of their memory. Of"
            f" {coverage.peaks} measured peaks {percent(coverage.below_frac)}"
            f" ({percent(coverage.mean_of_suites)} on average over suites) lie below the need that"
            f" {percent(coverage.promised, 0)} should stay below; a measured peak has fragmentation"
            " in it that a full device gives back. Most of those above are nanotron's: many of its"
            " runs hold one or two gathered inputs per layer more than others, and no row says"
            " which kept them. Runs that ran with next to no chance offload or recompute in ways"
            " that the estimate does not know.\n"
        ),
        table(
            ["chance", ">runs", ">mean chance", ">ran"],
            [
                [
                    f"{percent(line.low, 0)} to {percent(line.high, 0)}",
                    line.n,
                    percent(line.mean_chance),
                    percent(line.ran_frac),
                ]
                for line in coverage.reliability
            ],
        ),
    ]
