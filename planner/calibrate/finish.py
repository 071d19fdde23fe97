"""From records to the calibration file: curves, then what the stack adds, found by predicting small
decoders with the curves."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from statistics import median

import tomli_w

from planner.calibrate import detect, fit_device, fit_links, host, overhead, predict, profile
from planner.calibrate.cases import Case
from planner.calibrate.documents import Calibrated, FittedCurve, SlowPair, Unquiet
from planner.calibrate.fit import Fit, Fits, attempted
from planner.calibrate.overhead import Tables
from planner.calibrate.profile import Session
from planner.calibrate.record import Record, label, merged, usual_of
from planner.inputs import catalog
from planner.specs.document import SCHEMA_VERSION
from planner.specs.hardware import GpuSpec

_SLOW_PAIR = 1.25  # a message that takes this many times the middle one names its pair; a choice
_FEW_PAIRS = 3  # fewer have no middle


def finish(records: Sequence[Record], session: Session, out: Path) -> Calibrated:
    """Fit what was measured in quiet moments, write the file, and say what was found: errors of
    each curve, outliers, refused curves, cases that were left out since they were not quiet."""
    whole = merged(records)
    every = [r for r in whole if r["quiet"]]
    fits = _fits(every, session)
    date = _date(records)
    conditions = {**session.conditions, "probe_s": usual_of(records)}

    def built(tables: Tables) -> profile.Document:
        return profile.build(fits, replace(session, conditions=conditions), date, tables)

    def predicted(tables: Tables, case: Case) -> float:
        document = built(tables)
        with catalog.only_given({str(out): tomli_w.dumps(document)}):
            return predict.predict(
                case,
                gpu=document["gpu"],
                ranks=session.ranks,
                precision="fp32",
                calibration=str(out),
            ).step_s

    steps = {
        Case(**r["case"]): r["seconds"] for r in every if r["kind"] == "step" and r["used_in_fit"]
    }
    slowdown = fits.value("overlap", "slowdown")
    document = built(overhead.stacks(steps, slowdown, session.on_cpu, date, predicted))
    profile.write(document, out)
    return Calibrated(
        schema_version=SCHEMA_VERSION,
        out=str(out),
        gpu=document["gpu"],
        cases=len(whole),
        quiet=len(every),
        unquiet=[Unquiet(case=label(r), why=r["why"]) for r in whole if not r["quiet"]],
        fits={name: _summary(fit) for name, fit in fits.fits.items()},
        refused={**fits.refused, **_unknown(steps, session.ranks)},
        slow_pairs=slow_pairs(every),
        disturbed_frac=session.conditions.get("disturbed_frac", 0.0),
    )


def _unknown(steps: Collection[Case], ranks: int) -> dict[str, str]:
    """Fixed times of stacks that count as nothing, since decoders that show them were not quiet."""
    missing = [case.name for case in overhead.fitted_cases(ranks) if case not in steps]
    why = "counted as nothing where they need a step that was not quiet: "
    return {"fixed times of stacks": why + ", ".join(missing)} if missing else {}


def _fits(every: Sequence[Record], session: Session) -> Fits:
    """All curves. Shares are relative to the rates of the shipped profile, where there is one."""
    known = detect.profile_of(session.found)
    card = catalog.load("gpus", GpuSpec, known) if known else None
    rates = {
        p: float(rate)
        for p in session.precisions
        if card is not None and (rate := card.rate(p)) is not None
    }
    bandwidth = float(card.memory_bandwidth) if card else None
    links: dict[str, Callable[[], Fit]] = {
        f"link {group}": partial(fit_links.link, every, group)
        for group in sorted({r["group"] for r in every if r["kind"] == "collective"})
    }
    if session.ranks > 1:
        links["overlap"] = partial(fit_links.overlap, every)
    links["storage"] = partial(fit_links.storage, every)
    links["host"] = partial(host.memory, every)
    if not session.on_cpu:
        links["host copies"] = partial(host.copies, every)
    units = session.found.compute_units
    device = fit_device.node(every, session.precisions, units, rates, bandwidth)
    return device.joined(attempted(links))


def _summary(fit: Fit) -> FittedCurve:
    return FittedCurve(
        cases=fit.cases,
        median_error=fit.median_error,
        worst_error=fit.worst_error,
        held_out=fit.held_out,
        held_out_median=fit.held_out_median,
        outliers=list(fit.outliers),
        numbers={name: (number.value, number.error) for name, number in fit.numbers.items()},
    )


def slow_pairs(records: Sequence[Record]) -> list[SlowPair]:
    """Pairs of ranks with slower messages than most pairs, slowest first."""
    pairs = [r for r in records if r["kind"] == "pair"]
    if len(pairs) < _FEW_PAIRS:
        return []
    middle = median(r["seconds"] for r in pairs)
    slow = [
        SlowPair(first=r["first"], second=r["second"], times_the_middle=r["seconds"] / middle)
        for r in pairs
        if r["seconds"] / middle > _SLOW_PAIR
    ]
    return sorted(slow, key=lambda pair: -pair.times_the_middle)


def _date(records: Sequence[Record]) -> str:
    """Date of the last measurement."""
    last = max((r["when"] for r in records if "when" in r), default=0.0)
    return datetime.fromtimestamp(last, UTC).date().isoformat()
