"""A calibration from logs: clock, fabric and overheads fitted to the runs.

Parameters, priors and the fit are the same as for validated platforms
(`validate.parameters.PLATFORM`). A run informs a parameter as far as its step depends on it: a
parameter that one layout does not determine stays near the profile.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tomli_w

from planner.inputs import catalog
from planner.inputs.calibration import FILE_VERSION, read_calibration
from planner.ledger import Sourced
from planner.specs.base import PlanError
from planner.specs.options import Options
from planner.specs.plan import Plan
from planner.studies.check.next_run import next_run
from planner.studies.documents.check import Learned, LearnedNumber
from planner.studies.validate import fit
from planner.studies.validate.parameters import PLATFORM

# spread of the log error of one run around what its cluster has in common: over the validated
# platforms its root mean square is 0.11, 0.09 without the widest (benchmarks/learn_from_logs.py)
TRUST = fit.Trust(noise=0.10, fewest=1)
_MOST_SHARE = 1.5  # of a link's bandwidth that a profile takes
_LEAST_FACTOR = 0.002  # of a logarithm, below which a number stays as it is
_FRACS = ("all_reduce_frac", "all_gather_frac", "reduce_scatter_frac", "send_recv_frac")
Table = dict[str, Any]


def learn(
    cases: Sequence[fit.Case], base: Mapping[str, Any] | None = None, options: Options | None = None
) -> Learned:
    """A calibration from runs of one GPU and stack. Raises PlanError where they have several.

    base: the calibration that the recipes were resolved with, whose numbers stay except for those
    that move here. options: the request whose other layouts could be run next.
    """
    plan = _one_machine(cases)
    values = fit.answers(
        cases, [fit.Question(range(len(cases)), PLATFORM, [np.ones(len(cases))], TRUST)]
    )[0][0]
    multipliers = fit.multipliers(values)
    before = [float(fit.step_times(case, PLATFORM, [{}]).seconds[0]) for case in cases]
    after = [float(fit.step_times(case, PLATFORM, [multipliers]).seconds[0]) for case in cases]
    source = f"dpplan check: {len(cases)} run{'s' * (len(cases) != 1)}"
    date = datetime.datetime.now(tz=datetime.UTC).date().isoformat()
    writer = _Writer(plan, source, date, base or {})
    numbers, notes = [], []
    for value in values:
        where = writer.write(value)
        if where is None:
            notes.append(f"{value.label}: {_NOWHERE}")
            continue
        numbers.append(
            LearnedNumber(
                name=value.label,
                where=where,
                factor=value.multiplier,
                spread=value.spread,
                prior=value.parameter.spread,
            )
        )
    open_ = [number.name for number in numbers if number.spread > _OPEN * number.prior]
    if open_:
        notes.append(
            f"these runs hardly tell {', '.join(open_)}: their steps do not hang on it enough;"
            " add a run that does (more nodes, another micro-batch, another model)"
        )
    if _error(cases, after) > _FAR:
        notes.append(
            "the runs are further from their prediction than clocks, fabrics and overheads of"
            " clusters are from each other: look for the reason before this file is used"
        )
    following = None
    left = np.array([case.log_seconds for case in cases]) - np.log(after)
    if options is not None:
        try:
            following = next_run(options, cases, left, TRUST.noise)
        except PlanError as error:
            notes.append(f"no next run is named: {error}")
    document = _merged(base or {}, writer.document)
    text = tomli_w.dumps(document)
    with catalog.only_given({_NAME: text}):
        read_calibration(_NAME)
    return Learned(
        runs=len(cases),
        gpu=plan.cluster.gpu.id,
        stack=plan.stack.id,
        numbers=numbers,
        before=_error(cases, before),
        after=_error(cases, after),
        notes=notes,
        calibration=text,
        next_run=following,
    )


_NAME = "learned.toml"
_FAR = 0.15  # mean error with the calibration, from which it explains too little
_OPEN = 0.9  # of the spread before, above which a number is as open as it was
_NOWHERE = "it would be another, but a calibration has no place for it in this request"


def _one_machine(cases: Sequence[fit.Case]) -> Plan:
    kinds = {(case.plan.cluster.gpu.id, case.plan.stack.id) for case in cases}
    if not cases:
        raise PlanError("--save", None, "needs a step time and its recipe (--model, --gpu, ...)")
    if len(kinds) > 1:
        listed = ", ".join(sorted(f"{gpu} with {stack}" for gpu, stack in kinds))
        raise PlanError("--save", None, f"runs used {listed}; a calibration has one GPU type")
    return cases[0].plan


def _error(cases: Sequence[fit.Case], seconds: Sequence[float]) -> float:
    return float(
        np.mean([abs(s / case.seconds - 1) for s, case in zip(seconds, cases, strict=True)])
    )


class _Writer:
    """The tables of a calibration that multipliers become."""

    def __init__(self, plan: Plan, source: str, date: str, base: Mapping[str, Any]) -> None:
        self._plan, self._source, self._date = plan, source, date
        self._gpu = "device" if "device" in base else "overlay"  # a whole one has no overlay
        self._own_links = base.get("links", {})
        self.document: Table = {
            "schema_version": FILE_VERSION,
            "gpu": plan.cluster.gpu.id,
            "date": date,
            "source": source,
            self._gpu: {},
            "links": {},
            "stacks": {},
        }

    def write(self, value: fit.Value) -> str | None:
        """Put a multiplier where the profile has its number; where that is, None: nowhere."""
        if abs(float(np.log(value.multiplier))) < _LEAST_FACTOR:
            return "as in the profile"
        where: str | None = getattr(self, f"_{value.parameter.name.replace(' ', '_')}")(value)
        return where

    def _number(self, base: float, value: fit.Value, most: float = np.inf) -> Table:
        text = f"{value.multiplier:.3f} +- {value.spread:.3f} of {base:.4g}"
        unit = base.unit if isinstance(base, Sourced) else "1"
        product = min(base * value.multiplier, most)
        return {
            "value": float(f"{product:.6g}") if unit == "1" else f"{product:.6g} {unit}",
            "kind": "measured",
            "source": f"{self._source}: {text}",
            "date": self._date,
        }

    def _clock(self, value: fit.Value) -> str | None:
        if self._plan.cluster.clock is not None or self._plan.cluster.power_limit is not None:
            return None
        clock = self._plan.cluster.gpu.kernels.sustained_clock
        self._kernels()["sustained_clock"] = self._number(clock, value, _MOST_SHARE)
        return f"{self._gpu}.kernels.sustained_clock"

    def _attention(self, value: fit.Value) -> str:
        curve = self._plan.cluster.gpu.kernels
        for name in ("attention_forward", "attention_backward"):
            self._kernels()[name] = self._number(getattr(curve, name), value, _MOST_SHARE)
        for kernel, numbers in curve.attention.items():
            self._kernels().setdefault("attention", {})[kernel] = {
                name: self._number(getattr(numbers, name), value, _MOST_SHARE)
                for name in ("forward", "backward")
            }
        return f"{self._gpu}.kernels.attention_forward, attention_backward"

    def _elementwise(self, value: fit.Value) -> str | None:
        limit = self._plan.stack.fusion.elementwise_limit
        return self._stack("fusion", "elementwise_limit", self._number(limit, value))

    def _launch(self, value: fit.Value) -> str | None:
        return self._stack(
            "launch", "operator", self._number(self._plan.stack.launch.operator, value)
        )

    def _contention(self, value: fit.Value) -> str | None:
        slowdown = self._plan.stack.overlap.slowdown
        return self._stack("overlap", "slowdown", self._number(slowdown, value, 1.0))

    def _network(self, value: fit.Value) -> str | None:
        return self._link(value, "inter_node")

    def _node_link(self, value: fit.Value) -> str | None:
        return self._link(value, "intra_node")

    def _link(self, value: fit.Value, which: str) -> str | None:
        link = getattr(self._plan.cluster, which)
        if link.id not in catalog.ids("networks") and link.id not in self._own_links:
            return None
        names = [*_FRACS, *(["switch_all_reduce_frac"] if link.switch_all_reduce_frac else [])]
        self.document["links"][link.id] = {
            name: self._number(getattr(link, name), value, _MOST_SHARE) for name in names
        }
        return f"links.{link.id}, shares of its bandwidth"

    def _kernels(self) -> Table:
        table: Table = self.document[self._gpu].setdefault("kernels", {})
        return table

    def _stack(self, table: str, name: str, number: Table) -> str | None:
        stack = self._plan.stack.id
        if stack not in catalog.ids("stacks"):
            return None
        self.document["stacks"].setdefault(stack, {}).setdefault(table, {})[name] = number
        return f"stacks.{stack}.{table}.{name}"


def _merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> Table:
    """Tables key by key; a number is replaced whole."""
    out = dict(base)
    for name, value in over.items():
        old = out.get(name)
        if isinstance(value, dict) and isinstance(old, dict) and "value" not in value:
            value = _merged(old, value)
        out[name] = value
    return out
