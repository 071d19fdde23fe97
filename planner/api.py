"""The public face: one function per verb, JSON-able dicts out, `PlanError` for wrong requests. CLI and web use nothing else."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import ValidationError

from planner import advise, catalog, report, require, schedules, search_report
from planner.answer import Answer, Scenario, answer_of, resolve
from planner.estimate import Estimates
from planner.estimate.table import from_rows
from planner.formulas.rules import RULES
from planner.ledger import Call, recording
from planner.listed import list_catalog
from planner.report import Report
from planner.search import Found, best, families, search, smallest
from planner.search_report import NEEDS_PRICE, best_of, rejections
from planner.specs.base import PlanError, sentence
from planner.specs.layout import OFFLOADS, PLACEMENTS, SCHEDULES, Layout, recompute_parts
from planner.specs.options import LAYOUT_OPTIONS, Options, flag, only_for
from planner.units import show

__all__ = [
    "Options", "PlanError", "estimate", "explain", "list_catalog", "read_options", "search_layouts", "search_with_layouts",
    "validate", "write_plot",
    "write_residuals", "write_runs",
]  # fmt: skip


def read_options(given: Mapping[str, Any]) -> Options:
    """Options from a mapping of names to values; a wrong one is a PlanError naming its flag."""
    try:
        return Options.model_validate({k: v for k, v in given.items() if v is not None})
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        name = str(first["loc"][0]) if first["loc"] else "options"
        if first["type"] == "extra_forbidden":
            raise PlanError(name, first["input"], f"is no option; options are {', '.join(Options.model_fields)}") from None
        if first["type"] == "missing":
            raise PlanError(flag(name), None, "is needed; `dpplan list models` shows the catalogue") from None
        raise PlanError(flag(name), first["input"], sentence(first["msg"])) from None


# ------------------------------------------------------------------------------------------------------ estimate


def estimate(options: Options, *, brief: bool = False) -> Report:
    """Answer a request: the best layout in full, the best of each family, and advice. `memory.fits` tells whether any fits.

    brief: the same numbers sooner, without `advice`, `machine` and `provenance` (empty, and zero).
    """
    return _estimate(options, brief)[0]


def _estimate(options: Options, brief: bool = False) -> tuple[Report, Answer]:
    only_for(options, "estimate")
    required = require.read(options.require)
    scenario = resolve(options)
    answer = answer_of(scenario)
    if answer is None:
        raise why_none(scenario)
    out = report.report(answer.chosen, answer.row, scenario.assumptions, sensitivities=not brief)
    out["alternatives"] = _families(answer) + _top(answer, options.top)
    out["advice"] = [] if brief else advise.advice(scenario, answer.chosen, answer.row)
    out["search"] = {
        "evaluated": sum(f.estimates.space.count for f in answer.found if f.estimates is not None),
        "feasible": sum(int(f.estimates.fits.sum()) for f in answer.found if f.estimates is not None),
        "rejected": rejections(answer.found),
    }
    out["requirements"] = require.judge(required, out)
    out["command"] = advise.command_line(options)
    return out, answer


def _families(answer: Answer) -> list[Report]:
    """The best layout of each family, or the nearest to fitting with the reason in bytes."""
    out: dict[str, Report] = {}
    for one in answer.found:
        estimates = one.estimates
        if estimates is None:
            continue
        there = {name: among for name, among in families(estimates).items() if among.any()}
        rows = {name: best(estimates, among) for name, among in there.items()}
        nearest = {name: smallest(estimates, there[name]) if row is None else row for name, row in rows.items()}
        for (name, row), (full, at) in zip(rows.items(), estimates.some(list(nearest.values())), strict=True):
            entry = report.summary(full, at)
            entry["family"] = name
            if row is None:
                entry["reason"] = _shortfall(full, at)
            old = out.get(name)
            if old is None or _better(entry) > _better(old):
                out[name] = entry
    return list(out.values())


def _better(entry: Report) -> tuple[bool, float]:
    """What fits is better; then what is faster, or among what does not fit what needs less memory."""
    return entry["fits"], -entry["step_seconds"] if entry["fits"] else -entry["device_bytes"]


def _shortfall(estimates: Estimates, row: int) -> str:
    usable = estimates.plan.usable_bytes
    need = float(estimates.memory.device[row])
    if need <= usable and not estimates.drive_fits[row]:
        return f"needs {show(float(estimates.memory.drive[row]), 'B')} of NVMe drives per GPU, more than the node has"
    if need <= usable:
        return f"needs {show(float(estimates.memory.host[row]), 'B')} of host memory per GPU, more than the node has"
    parts = sorted(((float(v[row]), k) for k, v in estimates.memory.components.items()), reverse=True)[:3]
    largest = ", ".join(f"{k.replace('_', ' ')} {show(v, 'B')}" for v, k in parts if v > 0)
    return f"needs {show(need, 'B')} of {show(usable, 'B')}, {show(need - usable, 'B')} too much: {largest}"


def _top(answer: Answer, count: int) -> list[Report]:
    """The fastest layouts that fit, over all plans."""
    lines = best_of(answer.found, count, "time")
    return [{**report.summary(e, row), "rank": i + 1} for i, (e, row) in enumerate(lines)]


def why_none(scenario: Scenario) -> PlanError:
    """No layout satisfies the request: find the first rule that what was fixed already breaks."""
    options = scenario.options
    fixed = {name: getattr(options, name) for name in LAYOUT_OPTIONS}
    plan = max(scenario.plans, key=lambda p: (p.stack.supports.tensor, p.stack.supports.pipeline)) if scenario.plans else None
    if plan is None:
        return PlanError("--zero", options.zero, "no stack runs this; name one with --stack")
    tp, pp, cp = (fixed[k] or 1 for k in ("tp", "pp", "cp"))
    degrees = {n: fixed[n] for n in ("tp", "pp", "cp", "dp") if fixed[n] is not None}
    if options.gpus % math.prod(degrees.values()):
        asked = " x ".join(f"{name} {value}" for name, value in degrees.items())
        which = "/".join(flag(name) for name in degrees)
        return PlanError(which, math.prod(degrees.values()), f"{asked} does not divide {options.gpus} GPUs; tp x pp x cp x dp is "
                         "the number of GPUs, take divisors of it")  # fmt: skip
    dp = fixed["dp"] or max(1, options.gpus // (tp * pp * cp))
    kind, size = recompute_parts(fixed["recompute"] or "none")
    vpp = fixed["vpp"] or (schedules.default_chunks(fixed["schedule"]) if fixed["schedule"] and pp > 1 else 1)
    schedule: Any = fixed["schedule"] or ("interleaved" if vpp > 1 else "1f1b")
    zero = plan.request.zero if plan.request.zero is not None else plan.stack.supports.zero[0]
    row = [
        tp, pp, vpp, dp, cp, fixed["ep"] or 1, zero, fixed["shard_group"] or dp * cp, bool(fixed["sequence_parallel"]),
        kind, size, SCHEDULES.index(schedule), fixed["micro_batch"] or 1, OFFLOADS.index(fixed["offload"] or "none"),
        PLACEMENTS.index(fixed["placement"] or PLACEMENTS[0]),
    ]  # fmt: skip
    table = from_rows(np.array([row], dtype=float))
    for rule in RULES:
        if bool(np.asarray(rule.holds(plan, table)).reshape(-1)[0]):
            continue
        shown = Layout.model_construct(
            tp=tp, pp=pp, vpp=vpp, dp=dp, cp=cp, ep=fixed["ep"] or 1, zero=zero, shard_group=fixed["shard_group"] or dp * cp,
            sequence_parallel=bool(fixed["sequence_parallel"]), recompute=fixed["recompute"] or "none", schedule=schedule,
            micro_batch=fixed["micro_batch"] or 1, offload=fixed["offload"] or "none",
            placement=fixed["placement"] or PLACEMENTS[0],
        )  # fmt: skip
        names = [
            n for n in rule.field.removeprefix("--").replace("/--", " ").replace("-", "_").split() if n in Options.model_fields
        ]
        given = {n: getattr(options, n) for n in names if getattr(options, n, None) is not None}
        value = next(iter(given.values())) if len(given) == 1 else given or None
        return PlanError(rule.field, value, rule.sentence(plan, shown))
    rejected: dict[str, int] = {}
    for one in (search(p) for p in scenario.plans):
        for name, count in one.rejected.items():
            rejected[name] = rejected.get(name, 0) + count
    reasons = "; ".join(f"{name}: {count}" for name, count in rejected.items()) or "no factorisation of the GPUs matches"
    given = {flag(n): v for n, v in fixed.items() if v is not None}
    if options.where:
        given["--where"] = "; ".join(options.where)
    return PlanError("layout", given, f"no layout satisfies all of these together ({reasons}); leave one of them out")


def explain(options: Options) -> tuple[Report, Call]:
    """The report and the tree of formulas that produced its chosen layout."""
    out, answer = _estimate(options)
    out["offload"] = advise.offload_or_recompute(resolve(options), answer.chosen, answer.row)
    with recording("estimate of the chosen layout") as tree:
        report.evaluate_row(answer.chosen, answer.row)
    return out, tree


def search_layouts(options: Options, tick: Callable[[float], None] | None = None) -> Report:
    """Every valid layout: counts, reasons of rejection, the best that fit and the front of time against memory.

    tick: called with the share of the work that is done, now and then.
    """
    return search_with_layouts(options, tick)[0]


def search_with_layouts(options: Options, tick: Callable[[float], None] | None = None) -> tuple[Report, tuple[Found, ...]]:
    """`search_layouts` and what it was made from, for files that list every layout."""
    only_for(options, "search")
    started = time.perf_counter()
    scenario = resolve(options)
    if options.objective in NEEDS_PRICE and scenario.parts[1].usd_per_gpu_hour is None:
        raise PlanError("--objective", options.objective, "needs a price of this GPU; give it with --price")
    answer = answer_of(scenario, tick)
    if answer is None:
        raise why_none(scenario)
    spent = time.perf_counter() - started
    out = search_report.document(answer.found, options.objective, options.top, scenario.assumptions)
    out["seconds"] = spent
    out["families"] = _families(answer)
    out["command"] = advise.command_line(options, "search")
    if not answer.fits and options.offload is None and not options.search_offload:
        out["advice"] = _with_offload(scenario)
    return out, answer.found


def _with_offload(scenario: Scenario) -> list[Report]:
    """The fastest layout that fits once offloading is searched, too: what to try where nothing fits."""
    usual = [None] if scenario.options.stack else [None, "optimizer", "activations"]
    out = []
    for kind in usual:
        update: dict[str, Any] = {"search_offload": True} if kind is None else {"offload": kind}
        changed = scenario.options.model_copy(update=update)
        answer = answer_of(resolve(changed))
        if answer is not None and answer.fits:
            entry = report.summary(answer.chosen, answer.row)
            out.append({**entry, "change": "offload to host memory", "command": advise.command_line(changed, "search")})
    return sorted(out, key=lambda entry: float(entry["step_seconds"]))[:1]


# ------------------------------------------------------------------------------------------------------ validation


def validate(
    paths: Sequence[Path] = (), calibration: str | None = None, suites: Sequence[str] = (), *, coverage: bool = False,
    ablations: bool = False, cross_validation: bool = False, unseen: bool = False,
) -> Report:  # fmt: skip
    """Predicted against measured for these CSV files, all CSV files of these folders, or by default the shipped runs.

    suites: only these; coverage: also how much the bands hold; ablations: also errors with each mechanism switched off;
    cross_validation: also errors of held-out models, GPU counts and suites; unseen: each row also predicted without its suite.
    """
    from planner import validate as validation

    return validation.validate(
        paths, calibration, suites, with_coverage=coverage, with_ablations=ablations, with_cross_validation=cross_validation,
        with_unseen=unseen,
    )  # fmt: skip


def write_residuals(document: Report, path: Path) -> None:
    """Write measured over predicted per run, by numbers fitted without its suite if the document was made with `unseen`."""
    from planner import validate as validation

    catalog.write_text(path, "--residuals", validation.residual_lines(document))


def write_runs(document: Report, path: Path) -> None:
    """Write one CSV line per row: predicted, measured, errors, components; the file appears whole or not at all."""
    from planner import validate as validation

    catalog.write_text(path, "--csv", validation.run_lines(document))


def write_plot(document: Report, path: Path) -> None:
    """Write predicted against measured as one HTML page that needs no network; the file appears whole or not at all."""
    from planner import validate as validation

    catalog.write_text(path, "--plot", validation.page(document))
