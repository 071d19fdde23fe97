"""Predicted against measured: step time and memory of each trained decoder beside its estimate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import exp, log1p, sqrt
from statistics import mean, median, stdev

from planner.calibrate.cases import Case
from planner.calibrate.documents import (
    Errors,
    MeasuredParts,
    PredictedParts,
    Steadiness,
    Summary,
    Verification,
    VerifiedCase,
)
from planner.calibrate.predict import STATES, predict
from planner.calibrate.record import Record
from planner.evidence.spread import SIDE
from planner.specs.document import SCHEMA_VERSION

_WHOLE_TENSORS = ("zero1",)  # deals out whole tensors: ranks differ, their sum does not
_FEWEST = 3  # errors that have a scatter; a choice
_NO_TIME_S = 1e-12  # below any that is measured: a divisor that is not zero


def compare(
    measured: Sequence[Record],
    *,
    gpu: str,
    ranks: int,
    precision: str,
    calibration: str | None,
    tolerance: float,
    speed: float = 1.0,
) -> Verification:
    """The document of `dpplan calibrate --verify --json`. speed: present probe speed over the probe
    speed at calibration."""
    rows = [
        one_case(r, gpu=gpu, ranks=ranks, precision=precision, calibration=calibration)
        for r in measured
        if r["kind"] == "step" and not r["used_in_fit"]
    ]
    return Verification(
        schema_version=SCHEMA_VERSION,
        gpu=gpu,
        ranks=ranks,
        precision=precision,
        calibration=calibration,
        speed=speed,
        cases=rows,
        summary=_summary(rows, tolerance),
        quiet=all(row.quiet for row in rows),
    )


def _summary(every: Sequence[VerifiedCase], tolerance: float) -> Summary:
    """Errors over the quiet decoders; over all decoders if none was quiet."""
    rows = [row for row in every if row.quiet] or every
    errors = [abs(row.error) for row in rows]
    by_kind: dict[str, list[float]] = {}
    for row in rows:
        by_kind.setdefault(row.case.parallel, []).append(row.error)
    return Summary(
        n=len(rows),
        unquiet=[row.name for row in every if not row.quiet],
        mape=sum(errors) / len(errors) if errors else None,
        median_ape=median(errors) if errors else None,
        worst=max(errors, default=None),
        bias=sum(row.error for row in rows) / len(rows) if rows else None,
        states_exact=all(row.states_exact for row in every),
        tolerance=tolerance,
        within=bool(errors) and sum(errors) / len(errors) <= tolerance,
        parallel={name: errors_of(e) for name, e in by_kind.items()},
        steadiness=_steadiness(every),
    )


def errors_of(errors: Sequence[float]) -> Errors:
    """Mean and worst of relative errors, and the band that holds eight of ten further ones where
    these are a sample of them: Student's t of measured over predicted."""
    away = [abs(error) for error in errors]
    low, high = _band([-log1p(error) for error in errors])
    return Errors(
        n=len(errors), mape=mean(away), worst=max(away), bias=mean(errors), low=low, high=high
    )


def kept(out: Verification) -> dict[str, float] | None:
    """Errors that the calibration file keeps for the bands of estimates; None if too few decoders
    were undisturbed."""
    errors = [row.error for row in out.cases if row.quiet]
    summary = errors_of(errors) if errors else None
    if summary is None or summary.low is None or summary.high is None:
        return None
    return {"decoders": summary.n, "low": summary.low, "high": summary.high}


def _band(logs: Sequence[float]) -> tuple[float | None, float | None]:
    """Ends of the band of the next factor whose logarithm is one more of these."""
    from scipy.special import stdtrit

    if len(logs) < _FEWEST:
        return None, None
    middle = mean(logs)
    wide = float(stdtrit(len(logs) - 1, SIDE)) * stdev(logs) * sqrt(1 + 1 / len(logs))
    return exp(middle - wide), exp(middle + wide)


def _steadiness(rows: Sequence[VerifiedCase]) -> Steadiness:
    """Spread over repeats and moments of one decoder."""
    between = [
        (max(row.moments) - min(row.moments)) / median(row.moments)
        for row in rows
        if len(row.moments) > 1
    ]
    repeats = [row.spread for row in rows if row.quiet]
    others = [share for row in rows for share in row.others]
    return Steadiness(
        repeats=median(repeats) if repeats else None,
        moments=median(between) if between else None,
        moments_worst=max(between, default=None),
        others_least=min(others, default=None),
        others_most=max(others, default=None),
    )


def one_case(
    r: Record, *, gpu: str, ranks: int, precision: str, calibration: str | None
) -> VerifiedCase:
    """One decoder: seconds, parts, bytes of each rank."""
    case = Case(**r["case"])
    prediction = predict(case, gpu=gpu, ranks=ranks, precision=precision, calibration=calibration)
    expected = [sum(state[name] for name in STATES) for state in prediction.states]
    bytes_per_rank = [sum(state[name] for name in STATES) for state in r["states"]]
    fullest = bytes_per_rank.index(max(bytes_per_rank))
    # parts are timed in steps of their own: their shares of the undisturbed step count
    scale = r["seconds"] / max(sum(r["parts"].values()), _NO_TIME_S)
    error = prediction.step_s / r["seconds"] - 1
    return VerifiedCase(
        name=case.name,
        case=case,
        used_in_fit=False,
        quiet=r["quiet"],
        why=r["why"],
        repeats=r["kept"],
        tried=r["tried"],
        spread=r["spread"],
        moments=r["moments"],
        others=r["others"],
        predicted_step_s=prediction.step_s,
        measured_step_s=r["seconds"],
        error=error,
        predicted_parts=PredictedParts(
            forward_and_backward=prediction.step_s
            - prediction.optimizer_s
            - prediction.communication_s,
            optimizer=prediction.optimizer_s,
            communication=prediction.communication_s,
        ),
        measured_parts=MeasuredParts(
            **{name: scale * seconds for name, seconds in r["parts"].items()}
        ),
        communication_ratio=prediction.communication_s
        / max(prediction.step_s - prediction.communication_s, _NO_TIME_S),
        predicted_bytes=expected[min(fullest, len(expected) - 1)],
        measured_bytes=bytes_per_rank[fullest],
        predicted_states=prediction.states,
        measured_states=r["states"],
        states_exact=exact(case, prediction.states, r["states"]),
        predicted_peak_bytes=prediction.peak_bytes,
        measured_peak_bytes=r.get("peak_bytes"),
        predicted_tokens_per_s=prediction.tokens_per_s,
        measured_tokens_per_s=prediction.tokens_per_s * prediction.step_s / r["seconds"],
    )


def exact(
    case: Case,
    states: Sequence[Mapping[str, float]],
    measured_states: Sequence[Mapping[str, float]],
) -> bool:
    """Whether every rank holds the bytes that were predicted, to the byte."""
    for name in STATES:
        predicted, measured = (
            [state[name] for state in states],
            [state[name] for state in measured_states],
        )
        if case.parallel in _WHOLE_TENSORS and name == "optimizer":
            if round(sum(predicted)) != sum(measured):
                return False
        elif [round(x) for x in predicted] != list(measured):
            return False
    return True
