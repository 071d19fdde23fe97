"""docs/accuracy.md: errors over the recorded residuals, and what the bands mean."""

from __future__ import annotations

import csv
import math
from collections import defaultdict
from collections.abc import Callable
from typing import Any

from pages.text import NOTICE, percent, table
from planner import request, uncertainty
from planner.specs.base import PlanError
from planner.specs.plan import Plan
from planner.specs.training import TrainingSpec
from planner.validate import summarise

Run = dict[str, Any]

_WORST = 15


def runs() -> list[Run]:
    """Rows of the shipped residuals; empty when none are recorded."""
    if not uncertainty.RESIDUALS.exists():
        return []
    with uncertainty.RESIDUALS.open(encoding="utf-8", newline="") as file:
        return [
            {**row, "suite": row["run_id"].rpartition("-")[0], "ratio": float(row["measured_over_predicted"])}
            for row in csv.DictReader(file)
        ]


def errors(found: list[Run]) -> dict[str, Any]:
    """n, MAPE, median, bias and worst, by the same function as `dpplan validate`."""
    entries = [
        {
            "outcome": "ok", "predicted_step_s": 1.0, "measured_step_s": one["ratio"], "predicted_peak_gib": None,
            "measured_peak_gib": None, "predicted_fits": True, "group": one["run_id"], "layout": "",
        }
        for one in found
    ]  # fmt: skip
    time: dict[str, Any] = summarise(entries)["time"]
    return time


def _cells(found: list[Run]) -> list[str]:
    e = errors(found)
    return [str(e["n"]), *(percent(e[name]) for name in ("mape", "median_ape", "bias", "worst"))]


def _by(found: list[Run], key: Callable[[Run], str]) -> dict[str, list[Run]]:
    groups: dict[str, list[Run]] = defaultdict(list)
    for one in found:
        groups[key(one)].append(one)
    return dict(sorted(groups.items()))


def _band(gpu: str, stack: str) -> str:
    try:
        cluster, _ = request.cluster_spec(gpu=gpu, gpus=1)
        plan = Plan(
            model=request.model_spec("gpt2")[0], cluster=cluster, stack=request.stack_spec(stack),
            training=TrainingSpec(seq_len=1024, global_batch=1),
        )  # fmt: skip
    except PlanError:
        return "no profile"
    band = uncertainty.band(plan)
    return f"{band.low:.2f} .. {band.high:.2f}"


_HEADER = [">runs", ">MAPE", ">median", ">bias", ">worst"]

_MEANING = """## What the words mean

Error of a run is predicted over measured step time, minus one: a negative error means the prediction is too fast. MAPE is
the mean of absolute errors, `median` their median, `bias` the median of the signed errors, `worst` the largest.

**These residuals are of runs that the defaults were chosen while looking at.** Efficiencies of GPUs and links come from
microbenchmark tables where such tables exist, but the choices of the stacks (share of bandwidth of elementwise kernels,
launch cost, clock under load, what overlaps) were made with these runs in view. They describe how well one set of defaults
holds over many machines and programs; they are no blind test, and a new machine can be further off than this page says.
`dpplan validate RUNS.csv` on runs of your own is the blind test.

Defaults are one value per GPU, GPU architecture or stack. Where a stack occurs in one suite only, that amounts to one value
per suite, and the error of that suite says little about others.

What the runs are: published step times, read from papers, repositories and benchmark tables. Repeats of one run differ by
about 5 % in such tables, so errors of that size are noise. Where a source does not print a part of its recipe, the row
leaves it empty and the planner takes the default of the stack.

## Bands

The band beside every step time comes from this table of residuals: the 10 % and 90 % quantiles of measured over predicted,
so that four of five runs alike lie inside. Alike means, in this order, the same GPU with the same stack; the same GPU with
other software (the band is widened, its bounds raised to the power 1.25); the same stack on other GPUs (to the power 1.5).
Fewer than six runs do not count. Where nothing alike was ever measured the band is plus or minus 30 %, an assumption, and
the answer says so. The band always contains the expected value. It is not centred on it: where predictions are too fast as a
rule, the upper bound is further away.
"""

_MECHANISMS = """## What single mechanisms are worth

Sources in the code refer to this table. Each line is the mean absolute error on the runs named, before and after the
mechanism was added, with the free parameters of the suite fitted again each time. They were recorded when the equations were
first tried, with fitted
parameters, and are not errors of this version.

| mechanism | runs | before | after |
| --- | --- | ---: | ---: |
| time to launch operators from the CPU | small models on one A100 node (vTrain) | 31.8 % | 8.4 % |
| | nanotron on H100 | 8.2 % | 6.6 % |
| exposed share of expert all-to-all, copies limited by nodes reached | mixture of experts | 20.4 % | 11.6 % |
| layers per stage chosen with the LM head in mind | uneven stages (nanotron, Hagemann) | 10.4 % | 6.6 % |
| matrix widths that do not fill tiles and vectors | BigScience A100 sweep | 11.6 % | 5.0 % |
| fp8 rate and casts beside it (not fitted again) | fp8 runs | 13.6 % | 8.7 % |
| fabric share of early ZeRO-3 software | ZeRO-3 runs of 2021 | 28.6 % | 4.2 % |
| optimizer on the CPU under offload | offloaded runs | 26.9 % | 5.5 % |
| fabric share of EFA | nanotron on H100 | 8.2 % | 6.6 % |
| gradient window of interleaved pipelines | MLPerf | 9.9 % | 6.0 % |
| scatter-gather sends | vTrain on several nodes | 9.5 % | 7.4 % |
| latency of 4.5 us per rank and pass of a ring across nodes | 8..64 to 512 GPUs | 4.2 % | 2.1 % |
"""


def page() -> str:
    found = runs()
    head = NOTICE + "# Accuracy\n\n"
    if not found:
        body = (
            "No measured runs are recorded in this version: `planner/data/residuals.csv` does not exist, and every band is the "
            "assumed plus or minus 30 %. `dpplan validate FOLDER --residuals planner/data/residuals.csv` records them.\n"
        )
        return "\n".join([head + body, _MEANING, _MECHANISMS])
    e = errors(found)
    suites = _by(found, lambda r: r["suite"])
    head += (
        f"Measured against predicted step time over {e['n']:,} published runs in {len(suites)} suites, recorded in "
        f"`planner/data/residuals.csv`: mean absolute error {percent(e['mape'])}, median {percent(e['median_ape'])}, bias "
        f"{percent(e['bias'])}, worst {percent(e['worst'])}.\n"
    )
    parts = [
        head, _MEANING, "## By suite\n", table(["suite", *_HEADER], [[f"`{k}`", *_cells(v)] for k, v in suites.items()]),
        "## By GPU\n", table(["gpu", *_HEADER], [[f"`{k}`", *_cells(v)] for k, v in _by(found, lambda r: r["gpu"]).items()]),
        "## By stack\n",
        table(["stack", *_HEADER], [[f"`{k}`", *_cells(v)] for k, v in _by(found, lambda r: r["stack"]).items()]),
        "## By GPU and stack, with the band it gives\n",
        "The band is measured over predicted: the factor on a predicted step time.\n",
        table(["gpu", "stack", *_HEADER, ">band"], [
            [f"`{v[0]['gpu']}`", f"`{v[0]['stack']}`", *_cells(v), _band(v[0]["gpu"], v[0]["stack"])]
            for v in _by(found, lambda r: f"{r['gpu']}\t{r['stack']}").values()
        ]),
        f"## The {_WORST} worst runs\n",
        table(["run", "gpu", "stack", ">error"], [
            [f"`{r['run_id']}`", f"`{r['gpu']}`", f"`{r['stack']}`", percent(1 / r["ratio"] - 1)]
            for r in sorted(found, key=lambda r: (-abs(math.log(r["ratio"])), r["run_id"]))[:_WORST]
        ]),
        _MECHANISMS,
    ]  # fmt: skip
    return "\n".join(parts)


def status() -> str:
    """One paragraph for the README."""
    found = runs()
    if not found:
        return "No measured runs are recorded yet: step times carry the assumed band of plus or minus 30 %.\n"
    e, within = errors(found), sum(abs(1 / r["ratio"] - 1) <= 0.2 for r in found)
    return (
        f"Step time was compared with {e['n']:,} published runs on {len(_by(found, lambda r: r['gpu']))} GPUs and "
        f"{len(_by(found, lambda r: r['stack']))} software stacks: mean absolute error {percent(e['mape'])}, median "
        f"{percent(e['median_ape'])}, bias {percent(e['bias'])}, worst {percent(e['worst'])}; "
        f"{within / len(found):.0%} of them within 20 %. "
        "The defaults were chosen while looking at these runs, so this is not a blind test. "
        "[docs/accuracy.md](docs/accuracy.md) has the tables.\n"
    )
