"""The public face: one function per verb, JSON-able dicts out, `PlanError` for wrong requests. CLI and web use nothing else."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import ValidationError

from planner import advise, catalog, report, request, schedules
from planner.estimate import Estimates, evaluate
from planner.estimate.table import Table, from_rows, length, pick
from planner.formulas.rules import RULES, check
from planner.ledger import Call, recording
from planner.listed import list_catalog
from planner.report import Report
from planner.search import CHUNK, Found, best, family_rows, layouts, pareto, ranked, search, smallest
from planner.specs.base import PlanError, sentence
from planner.specs.cluster import ClusterSpec
from planner.specs.layout import OFFLOADS, SCHEDULES, Layout, LayoutRequest, recompute_parts
from planner.specs.model import ModelSpec
from planner.specs.options import LAYOUT_OPTIONS, Options, flag
from planner.specs.plan import Plan
from planner.specs.stack import StackSpec
from planner.specs.training import TrainingSpec
from planner.units import UnitError, parse_count, show

__all__ = [
    "Options", "PlanError", "estimate", "explain", "list_catalog", "read_options", "search_layouts", "validate", "write_plot",
    "write_residuals", "write_runs",
]  # fmt: skip

# when no stack is named, each family of layouts runs on the software that usually runs it: (stack, ZeRO stage)
_USUAL = (("pytorch-ddp", 0), ("deepspeed", 1), ("deepspeed", 2), ("pytorch-fsdp", 3), ("megatron-core", 1))
# and these where the request asks for what only they run: a ZeRO stage beside tensor or pipeline parallelism, offloading
_WHEN_STAGE_ASKED = (("megatron-core", 0), ("torchtitan", 2), ("torchtitan", 3))
_WHEN_OFFLOADED = (("deepspeed", 1), ("deepspeed", 2), ("deepspeed", 3), ("pytorch-fsdp", 3))
_WHEN_ACTIVATIONS = (("pytorch-fsdp", 3), ("pytorch-ddp", 0), ("megatron-core", 1))


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


@dataclass(frozen=True)
class Scenario:
    """A request with everything but layout and stack resolved."""

    options: Options
    parts: tuple[ModelSpec, ClusterSpec, TrainingSpec]
    plans: tuple[Plan, ...]
    assumptions: tuple[str, ...]


def resolve(options: Options) -> Scenario:
    """Load what the request names and fill what it leaves out; plans differ in stack and ZeRO stage."""
    model, inferred = request.model_spec(options.model)
    assumptions = [f"config.json: {sentence}" for sentence in inferred]
    calibration = request.read_calibration(options.calibration) if options.calibration else None
    cluster, assumed = request.cluster_spec(
        gpu=options.gpu, gpus=options.gpus, cluster=options.cluster, gpus_per_node=options.gpus_per_node,
        intra_node=options.intra_node, inter_node=options.inter_node, nics_per_node=options.nics_per_node,
        nic_bandwidth=options.nic_bandwidth, price=options.price, clock=options.clock, power_limit=options.power_limit,
        calibration=calibration,
    )  # fmt: skip
    assumptions += assumed
    training = _training(options, model, cluster.gpu.rate("bf16") is not None, assumptions)
    if cluster.gpu.rate(training.precision) is None:
        has = [p for p in ("fp8", "bf16", "fp16", "tf32", "fp32") if cluster.gpu.rate(p) is not None]
        raise PlanError("--precision", training.precision, f"{cluster.gpu.title} does not have it; it has {', '.join(has)}")
    parts = (model, cluster, training)
    return Scenario(options, parts, _plans(options, *parts), tuple(assumptions))


def _plans(options: Options, model: ModelSpec, cluster: ClusterSpec, training: TrainingSpec) -> tuple[Plan, ...]:
    """One plan with the stack that was named, else one per usual stack and ZeRO stage."""
    fixed = {name: getattr(options, name) for name in LAYOUT_OPTIONS}
    usual: tuple[tuple[str, int], ...] = _USUAL
    if options.offload not in (None, "none"):
        usual = _WHEN_ACTIVATIONS if options.offload == "activations" else _WHEN_OFFLOADED
    elif options.zero is not None:
        usual = (*_USUAL, *_WHEN_STAGE_ASKED)
    elif options.gpus == 1:
        usual = _USUAL[:1]
    usual = tuple((stack, zero) for stack, zero in usual if options.zero in (None, zero))
    plans = []
    for name, zero in [(options.stack, options.zero)] if options.stack else usual:
        stack = request.stack_spec(name)
        layout = LayoutRequest(**{**fixed, "zero": zero})
        with_attention = _attention(training, options, stack)
        plans.append(Plan(model=model, cluster=cluster, training=with_attention, stack=stack, request=layout))
    return tuple(plans)


def _attention(training: TrainingSpec, options: Options, stack: StackSpec) -> TrainingSpec:
    """--flash-attention / --no-flash-attention against what the stack does by default."""
    if options.flash_attention is None or options.flash_attention == stack.fusion.attention.startswith("flash"):
        return training
    return training.model_copy(update={"attention": "flash2" if options.flash_attention else "eager"})


def _training(options: Options, model: ModelSpec, has_bf16: bool, assumptions: list[str]) -> TrainingSpec:
    seq_len = options.seq_len
    if seq_len is None:
        seq_len = model.max_positions
        assumptions.append(f"sequence length {seq_len:,}, the model's training context (set --seq-len)")
    elif model.positions == "learned" and seq_len > (model.position_rows or model.max_positions):
        raise PlanError("--seq-len", seq_len, f"{model.name} has learned positions for {model.max_positions} tokens")
    batch = options.global_batch
    if batch is None:
        batch = request.default_batch(seq_len, options.gpus)
        assumptions.append(
            f"global batch {batch:,} sequences ({show(batch * seq_len, 'count')} tokens): near 4 Mi tokens, and at least one "
            "sequence per GPU (set --global-batch)"
        )
    precision = options.precision
    if precision is None:
        precision = "bf16" if has_bf16 else "fp16"
        assumptions.append(f"precision {precision} with an fp32 master copy (set --precision)")
    tokens = None
    if options.tokens is not None:
        try:
            tokens = parse_count(options.tokens)
        except UnitError as error:
            raise PlanError("--tokens", options.tokens, str(error)) from None
        if not 1 <= tokens <= 1e18:
            raise PlanError("--tokens", options.tokens, "must be between 1 and 1e18")
    return TrainingSpec(
        seq_len=seq_len, global_batch=batch, precision=precision, optimizer=options.optimizer, tokens=tokens,
        loss_chunks=options.loss_chunks,
    )  # fmt: skip


# ------------------------------------------------------------------------------------------------------ estimate


@dataclass(frozen=True)
class Answer:
    """Searches of all plans of a scenario, and the chosen one."""

    found: tuple[Found, ...]
    chosen: Estimates
    row: int
    fits: bool


def answer_of(scenario: Scenario) -> Answer | None:
    """Fastest layout that fits over all plans; where none fits, the one that needs the least memory. None: none allowed."""
    found = tuple(search(plan) for plan in scenario.plans)
    fitting: list[tuple[float, int, Estimates]] = []
    short: list[tuple[float, int, Estimates]] = []
    for one in found:
        if one.estimates is None:
            continue
        row = best(one.estimates)
        if row is not None:
            fitting.append((float(one.estimates.time.seconds[row]), row, one.estimates))
        else:
            least = smallest(one.estimates)
            short.append((float(one.estimates.memory.device[least]), least, one.estimates))
    if not fitting and not short:
        return None
    _, row, estimates = min(fitting or short, key=lambda x: x[0])
    return Answer(found, estimates, row, bool(fitting))


def estimate(options: Options, *, brief: bool = False) -> Report:
    """Answer a request: the best layout in full, the best of each family, and advice. `memory.fits` tells whether any fits.

    brief: the same numbers sooner, without `advice`, `machine` and `provenance` (empty, and zero).
    """
    return _estimate(options, brief)[0]


def _estimate(options: Options, brief: bool = False) -> tuple[Report, Answer]:
    scenario = resolve(options)
    only = _only_layout(scenario)
    answer = only or answer_of(scenario)
    if answer is None:
        raise why_none(scenario)
    one = only.chosen if only else None
    out = report.report(answer.chosen, answer.row, scenario.assumptions, one=one, sensitivities=not brief)
    out["alternatives"] = _families(answer) + _top(answer, options.top)
    out["advice"] = [] if brief else _advice(scenario, out)
    out["search"] = {
        "evaluated": sum(len(f.estimates.table["tp"]) for f in answer.found if f.estimates is not None),
        "feasible": sum(int(f.estimates.fits.sum()) for f in answer.found if f.estimates is not None),
        "rejected": _rejected(answer.found),
    }
    out["command"] = advise.command_line(options)
    return out, answer


_DECISIVE = ("tp", "pp", "micro_batch", "recompute")  # with these fixed few layouts are left, so that counting them is quick


def _only_layout(scenario: Scenario) -> Answer | None:
    """The answer where the request leaves one layout, evaluated once and over every stage; None where it leaves more, or none."""
    if any(getattr(scenario.options, name) is None for name in _DECISIVE):
        return None
    found: list[Found] = []
    only: tuple[Plan, Table] | None = None
    for plan in scenario.plans:
        table = layouts(plan)
        allowed, rejected = np.ones(length(table), dtype=bool), {}
        for name, holds in check(plan, table).items():
            fails = allowed & ~np.asarray(holds, dtype=bool)
            if fails.any():
                rejected[name] = int(fails.sum())
            allowed &= ~fails
        rows = np.flatnonzero(allowed)
        if len(rows) > 1 or (len(rows) and only is not None):
            return None
        if len(rows):
            only = plan, pick(table, rows)
        found.append(Found(plan, None, rejected, length(table)))
    if only is None:
        return None
    one = evaluate(*only, stages=report.whole_pipeline(only[1], 0))
    found = [dataclasses.replace(f, estimates=one) if f.plan is one.plan else f for f in found]
    return Answer(tuple(found), one, 0, bool(one.fits[0]))


def _rejected(found: tuple[Found, ...]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for one in found:
        for rule, count in one.rejected.items():
            counts[rule] = counts.get(rule, 0) + count
        if one.estimates is not None:
            short = int((~one.estimates.fits).sum())
            if short:
                counts["does not fit memory"] = counts.get("does not fit memory", 0) + short
    return counts


def _families(answer: Answer) -> list[Report]:
    """The best layout of each family, or the nearest to fitting with the reason in bytes."""
    out: dict[str, Report] = {}
    for one in answer.found:
        estimates = one.estimates
        if estimates is None:
            continue
        for name, among in family_rows(estimates.table).items():
            if not among.any():
                continue
            row = best(estimates, among)
            entry = report.summary(estimates, smallest(estimates, among) if row is None else row)
            entry["family"] = name
            if row is None:
                entry["reason"] = _shortfall(estimates, smallest(estimates, among))
            old = out.get(name)
            if old is None or _better(entry) > _better(old):
                out[name] = entry
    return list(out.values())


def _better(entry: Report) -> tuple[bool, float]:
    """What fits is better; then what is faster, or among what does not fit what needs less memory."""
    return entry["fits"], -entry["step_seconds"] if entry["fits"] else -entry["device_bytes"]


def _shortfall(estimates: Estimates, row: int) -> str:
    usable = float(estimates.plan.cluster.gpu.usable_memory)
    need = float(estimates.memory.device[row])
    if need <= usable:
        return f"needs {show(float(estimates.memory.host[row]), 'B')} of host memory per GPU, more than the node has"
    parts = sorted(((float(v[row]), k) for k, v in estimates.memory.components.items()), reverse=True)[:3]
    largest = ", ".join(f"{k.replace('_', ' ')} {show(v, 'B')}" for v, k in parts if v > 0)
    return f"needs {show(need, 'B')} of {show(usable, 'B')}, {show(need - usable, 'B')} too much: {largest}"


def _top(answer: Answer, count: int) -> list[Report]:
    """The fastest layouts that fit, over all plans."""
    lines = [
        (float(f.estimates.time.seconds[row]), f.estimates, int(row))
        for f in answer.found
        if f.estimates is not None
        for row in ranked(f.estimates, count)
    ]
    lines.sort(key=lambda x: x[0])
    return [{**report.summary(e, row), "rank": i + 1} for i, (_, e, row) in enumerate(lines[:count])]


def _advice(scenario: Scenario, out: Report) -> list[Report]:
    """Candidate changes, each evaluated; only those that make it fit or make it at least 1 % faster."""
    options = scenario.options
    fits, seconds, need = out["memory"]["fits"], out["step"]["seconds"], out["memory"]["device_bytes"]
    changes = [(change.text, options.model_copy(update=change.update)) for change in advise.candidates(options, fits)]
    advice: list[Report] = []
    for (text, changed), found in zip(changes, _fastest(scenario, [c for _, c in changes]), strict=True):
        if found is None:
            continue
        step, estimates, row = found
        if fits and step > 0.99 * seconds:
            continue
        advice.append({
            "change": text,
            "command": advise.command_line(changed),
            "gpus": changed.gpus,
            "step_seconds": step,
            "step_change_frac": step / seconds - 1,
            "bytes_saved": need - float(estimates.memory.device[row]),
            "layout": report.summary(estimates, row)["layout"],
            "stack": estimates.plan.stack.id,
        })  # fmt: skip
    if fits:
        return sorted(advice, key=lambda a: a["step_seconds"])[:5]
    return sorted(advice, key=lambda a: (a["gpus"], a["step_seconds"]))[:6]  # the same cluster first, then the smallest


def _fastest(scenario: Scenario, requests: Sequence[Options]) -> list[tuple[float, Estimates, int] | None]:
    """Step time and row of the fastest layout that fits each request. What differs in layout only is evaluated together."""
    out: list[tuple[float, Estimates, int] | None] = [None] * len(requests)
    together: dict[str, list[tuple[int, Plan, Table]]] = {}
    for i, options in enumerate(requests):
        differs = {n for n in Options.model_fields if getattr(options, n) != getattr(scenario.options, n)}
        try:
            if not differs <= set(LAYOUT_OPTIONS):
                answer = answer_of(resolve(options))
                if answer is not None and answer.fits:
                    out[i] = (float(answer.chosen.time.seconds[answer.row]), answer.chosen, answer.row)
                continue
            for plan in _plans(options, *scenario.parts):
                table = layouts(plan)
                table = pick(table, np.flatnonzero(np.logical_and.reduce(list(check(plan, table).values()))))
                if length(table):
                    together.setdefault(plan.stack.id, []).append((i, plan, table))
        except PlanError:  # not possible, or too much to search
            continue
    for parts in together.values():
        owner = np.repeat([i for i, _, _ in parts], [length(table) for _, _, table in parts])
        joined = {name: np.concatenate([table[name] for _, _, table in parts]) for name in parts[0][2]}
        for start in range(0, len(owner), CHUNK):
            rows = slice(start, start + CHUNK)
            estimates = evaluate(parts[0][1], pick(joined, rows))
            for i in set(owner[rows].tolist()):
                row = best(estimates, owner[rows] == i)
                old = out[i]
                if row is not None and (old is None or float(estimates.time.seconds[row]) < old[0]):
                    out[i] = (float(estimates.time.seconds[row]), estimates, row)
    return out


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
    ]  # fmt: skip
    table = from_rows(np.array([row], dtype=float))
    for rule in RULES:
        if bool(np.asarray(rule.holds(plan, table)).reshape(-1)[0]):
            continue
        shown = Layout.model_construct(
            tp=tp, pp=pp, vpp=vpp, dp=dp, cp=cp, ep=fixed["ep"] or 1, zero=zero, shard_group=fixed["shard_group"] or dp * cp,
            sequence_parallel=bool(fixed["sequence_parallel"]), recompute=fixed["recompute"] or "none", schedule=schedule,
            micro_batch=fixed["micro_batch"] or 1, offload=fixed["offload"] or "none",
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
    return PlanError("layout", given, f"no layout satisfies all of these together ({reasons}); leave one of them out")


def explain(options: Options) -> tuple[Report, Call]:
    """The report and the tree of formulas that produced its chosen layout."""
    out, answer = _estimate(options)
    with recording("estimate of the chosen layout") as tree:
        report.evaluate_row(answer.chosen, answer.row)
    return out, tree


def search_layouts(options: Options) -> Report:
    """Every valid layout: counts, reasons of rejection, the fastest that fit and the front of time against memory."""
    started = time.perf_counter()
    scenario = resolve(options)
    answer = answer_of(scenario)
    if answer is None:
        raise why_none(scenario)
    spent = time.perf_counter() - started
    evaluated = [f.estimates for f in answer.found if f.estimates is not None]
    rows: list[tuple[float, float, Estimates, int]] = []
    for e in evaluated:
        usable = np.flatnonzero(e.fits)
        for i in usable[pareto(e.time.seconds[usable], e.memory.device[usable])]:
            rows.append((float(e.time.seconds[i]), float(e.memory.device[i]), e, int(i)))
    front = pareto(np.array([r[0] for r in rows]), np.array([r[1] for r in rows])) if rows else []
    tops = [
        (float(e.time.seconds[row]), e, int(row)) for e in evaluated for row in ranked(e, options.top)
    ]  # fmt: skip
    tops.sort(key=lambda x: x[0])
    return {
        "schema_version": report.SCHEMA_VERSION,
        "evaluated": sum(len(e.table["tp"]) for e in evaluated),
        "feasible": sum(int(e.fits.sum()) for e in evaluated),
        "rejected": _rejected(answer.found),
        "seconds": spent,
        "top": [report.report(e, row, scenario.assumptions) for _, e, row in tops[: options.top]],
        "pareto": [report.summary(rows[i][2], rows[i][3]) for i in front],
        "families": _families(answer),
    }


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
