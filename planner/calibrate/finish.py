"""From records to the calibration file: curves, then what software adds, found by predicting small
models with the curves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from planner.calibrate import cases, detect, fit, predict, profile
from planner.calibrate.cases import Case
from planner.calibrate.detect import Hardware
from planner.calibrate.fit import Fits
from planner.calibrate.record import Record, merged, usual_of
from planner.inputs import catalog
from planner.inputs.calibration import read_calibration, stack_spec
from planner.specs.hardware import GpuSpec


def fitted_cases(ranks: int) -> list[Case]:
    """Small decoders of a fit: layers without work, and with ranks layers of weights without
    tokens."""
    found = cases.tiny("llama")
    if ranks > 1:
        found += [Case(2, 512, 8, 1408, 512, 16, 1, parallel=how) for how in ("ddp", "fsdp")]
    return found


def finish(
    records: Sequence[Record],
    found: Hardware,
    out: Path,
    *,
    ranks: int,
    ranks_per_node: int,
    precisions: Sequence[str],
    context_bytes: float,
    conditions: Mapping[str, Any],
) -> dict[str, Any]:
    """Fit, write the file, and say what was found: errors of each curve, outliers, refused curves,
    cases that were not quiet."""
    every = merged(records)
    known = detect.profile_of(found)
    card = catalog.load("gpus", GpuSpec, known) if known else None
    rates = {
        p: float(rate)
        for p in precisions
        if card is not None and (rate := card.rate(p)) is not None
    }
    fits = fit.node(
        every,
        precisions,
        found.compute_units,
        rates,
        float(card.memory_bandwidth) if card else None,
    )
    for group in sorted({r["group"] for r in every if r["kind"] == "collective"}):
        _try(fits, "link " + group, lambda g=group: fit.link(every, g))
    if ranks > 1:
        _try(fits, "overlap", lambda: fit.overlap(every))
    _try(fits, "storage", lambda: fit.storage(every))
    date = conditions.get("date") or _today(records)
    conditions = {**conditions, "probe_s": usual_of(records)}

    def built(overhead: Mapping[str, Any]) -> profile.Document:
        return profile.build(
            fits,
            found,
            date=date,
            ranks=ranks,
            ranks_per_node=ranks_per_node,
            precisions=precisions,
            context_bytes=context_bytes,
            conditions=conditions,
            overhead=overhead,
        )

    steps = {
        Case(**r["case"]): r["seconds"] for r in every if r["kind"] == "step" and r["used_in_fit"]
    }
    overhead = _overhead(steps, fits, found, ranks, date, built, out)
    document = built(overhead)
    profile.write(document, out)
    return {
        "out": str(out),
        "gpu": document["gpu"],
        "cases": len(every),
        "quiet": sum(r["quiet"] for r in every),
        "fits": {
            name: {
                "cases": f.cases,
                "median_error": f.median_error,
                "worst_error": f.worst_error,
                "held_out": f.held_out,
                "held_out_median": f.held_out_median,
                "outliers": list(f.outliers),
                "numbers": {k: [v.value, v.error] for k, v in f.numbers.items()},
            }
            for name, f in fits.fits.items()
        },
        "refused": fits.refused,
        "slow_pairs": slow_pairs(every),
        "disturbed_frac": conditions.get("disturbed_frac", 0.0),
    }


# a message that takes this much longer than the middle one names its pair
_SLOW_PAIR = 1.25


def slow_pairs(records: Sequence[Record]) -> list[dict[str, float]]:
    """Pairs of ranks whose messages take longer than those of most pairs, slowest first."""
    found = [r for r in records if r["kind"] == "pair"]
    if len(found) < _FEW_PAIRS:
        return []
    middle = median(r["seconds"] for r in found)
    slow = [
        {"first": r["first"], "second": r["second"], "times_the_middle": r["seconds"] / middle}
        for r in found
    ]
    return sorted(
        (s for s in slow if s["times_the_middle"] > _SLOW_PAIR),
        key=lambda s: -s["times_the_middle"],
    )


_FEW_PAIRS = 3  # fewer have no middle


def _try(fits: Fits, name: str, attempt: Any) -> None:
    try:
        fits.fits[name] = attempt()
    except fit.Unsupported as why:
        fits.refused[name] = str(why)


def _today(records: Sequence[Record]) -> str:
    from datetime import UTC, datetime

    last = max((r["when"] for r in records if "when" in r), default=0.0)
    return datetime.fromtimestamp(last, UTC).date().isoformat()


_LEAST_SHARE = 1e-3  # of a step that bytes must move to be found from it
_SOME_BYTES = 24.0  # per weight: any number will do
# a collective and a product that slow each other down by more than this gain nothing from running
# together
_NOTHING_GAINED = 0.75


def _overhead(
    steps: Mapping[Case, float],
    fits: Fits,
    found: Hardware,
    ranks: int,
    date: str,
    built: Any,
    out: Path,
) -> dict[str, profile.Document]:
    """[launch], [overlap] and [fusion] of the stacks: what is left of small models' steps once
    their kernels are predicted."""

    def said(value: float, what: str) -> profile.Document:
        return profile.number(max(value, 0.0), f"dpplan calibrate: {what}", date)

    slowdown = fits.value("overlap", "slowdown")
    launch: profile.Document = {
        "layer_idle": said(0.0, "not yet known"),
        "step_overhead": said(0.0, "not yet known"),
    }
    if found.kind == "cpu":
        launch["operator"] = said(
            0.0, "a CPU runs operators as they are issued; their fixed time is layer_idle"
        )
    tables: dict[str, profile.Document] = {
        name: {"launch": dict(launch)} for name in profile.STACKS
    }
    if slowdown is not None:
        together: profile.Document = {
            "slowdown": said(
                min(slowdown, 1.0), "a product beside an all-reduce, over the shorter of the two"
            )
        }
        if slowdown > _NOTHING_GAINED:
            together |= {"gradient_sync": False, "sharded_sync": False, "prefetch": False}
        for name in profile.STACKS:
            tables[name]["overlap"] = dict(together)
    if found.kind == "cpu":
        for name in profile.STACKS:
            tables[name]["fusion"] = {
                "weight_bytes_moved": said(
                    0.0, "one micro-batch and no buckets: weights are not touched again"
                )
            }

    trial = out.with_name(out.name + ".trial.toml")

    def predicted(case: Case) -> float:
        profile.write(built(tables), trial)
        try:
            return float(
                predict.predict(
                    case,
                    gpu=read_calibration(str(trial)).gpu,
                    ranks=ranks,
                    precision="fp32",
                    calibration=str(trial),
                )["step_s"]
            )
        finally:
            trial.unlink(missing_ok=True)

    few, many = (next((c for c in steps if c == case), None) for case in cases.tiny("llama"))
    if few is None or many is None:
        return tables
    rest_few, rest_many = steps[few] - predicted(few), steps[many] - predicted(many)
    layer_s = max((rest_many - rest_few) / (many.layers - few.layers), 0.0)
    step_s = max(rest_few - few.layers * layer_s, 0.0)
    for name in profile.STACKS:
        table = tables[name]["launch"]
        if found.kind == "cpu":
            table["layer_idle"] = said(
                layer_s, "what a layer of almost no work takes beyond its kernels"
            )
        else:
            stack = stack_spec(name)
            count = float(stack.launch.operators_forward) + float(stack.launch.operators_backward)
            table["operator"] = said(
                layer_s / count, "layers of almost no work, over the operators of a layer"
            )
            table.pop("layer_idle")
        table["step_overhead"] = said(
            step_s, "what a step of almost no work takes beyond its layers"
        )
    for name, how in (("pytorch-ddp", "ddp"), ("pytorch-fsdp", "fsdp")):
        case = next((c for c in steps if c.parallel == how), None)
        if case is None:
            continue
        fusion = tables[name].setdefault("fusion", {})
        source = (
            "what a step of many weights and few tokens takes beyond its kernels and collectives"
        )
        times = []
        for moved in (
            0.0,
            _SOME_BYTES,
        ):  # linear in the bytes: two points give the ones that explain the step
            fusion["weight_bytes_moved"] = said(moved, source)
            times.append(predicted(case))
        explained = times[1] - times[0]  # none where communication hides it
        moved = (
            _SOME_BYTES * (steps[case] - times[0]) / explained
            if explained > _LEAST_SHARE * times[0]
            else 0.0
        )
        fusion["weight_bytes_moved"] = said(moved, source)
    return tables
