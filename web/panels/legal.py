"""Values that each input can take in the current state, and why the others cannot: the sentences of
planner.formulas.rules.

A value is legal when some layout with it satisfies every rule, with what the request fixes fixed
and the rest open.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from planner import schedules
from planner.api import Options, PlanError
from planner.formulas.divisors import divisors
from planner.formulas.rules import RULES, check
from planner.inputs.scenario import acting, resolve
from planner.ledger import Array
from planner.search import degrees
from planner.specs.capabilities import has, values
from planner.specs.columns import Columns, joined
from planner.specs.layout import OFFLOADS, PLACEMENTS, SCHEDULES, recompute_parts
from planner.specs.plan import Plan

DEGREES = ("tp", "pp", "cp", "dp")
OTHERS = (
    "vpp",
    "ep",
    "zero",
    "micro_batch",
    "sequence_parallel",
    "recompute",
    "schedule",
    "offload",
)
# where no stack is named, these decide which are tried
_CHOOSES_STACKS = ("zero", "offload", "schedule", "recompute")
_SAMPLE = 24  # degrees beside which the other options are tried
_LARGEST = {"tp": 64, "pp": 128, "cp": 64, "vpp": 20}
_MOST_STEPS = 14  # of a slider
_SEQUENCES = tuple(2**i for i in range(9, 18))  # 512 to 131,072 tokens
_BATCHES = tuple(2**i for i in range(3, 15))
_CLUSTERS = tuple(2**i for i in range(15))
_NO_STACK = "no default stack runs this; name one"
_MICRO = (1, 2, 4, 8, 16, 32, 64)

Value = int | str | bool


@dataclass(frozen=True)
class Choice:
    """One value of an input; `reason` says why it is not possible, None where it is."""

    value: Value
    reason: str | None


def choices(options: Options, most_gpus: int) -> dict[str, list[Choice]]:
    """Choices of every input that has discrete values, by option name."""
    options = options.changed(stack_defaults=True)  # no rule of a layout asks for its kernels
    scenario = resolve(options)
    _, cluster, training = scenario.parts
    plans = scenario.plans
    tries = [_Tries(plan, options) for plan in plans]
    out: dict[str, list[Choice]] = {}
    for name in (*DEGREES, *OTHERS):
        values = _with(
            candidates(name, options, plans[0] if plans else None, cluster.gpus),
            getattr(options, name),
        )
        if name in _CHOOSES_STACKS and options.stack is None:
            out[name] = [Choice(value, _with_its_stacks(options, name, value)) for value in values]
        else:
            out[name] = _tried(tries, name, values)
    now = {"seq_len": training.seq_len, "global_batch": training.global_batch}
    for name, offered in (("seq_len", _SEQUENCES), ("global_batch", _BATCHES)):
        values = _with(_whole(x for x in offered), now[name])
        out[name] = [
            Choice(v, _first_legal(attempt.training(name, int(v)) for attempt in tries))
            for v in values
        ]
    out["gpus"] = [
        Choice(v, _cluster_reason(options, int(v)))
        for v in _with(_whole(x for x in _CLUSTERS if x <= most_gpus), options.gpus)
    ]
    return out


def _whole(values: Iterable[int]) -> list[Value]:
    return sorted(set(values))


def _with(values: Sequence[Value], current: Value | None) -> list[Value]:
    """The values and the current one, in order; thinned to what a slider can hold."""
    if current is None or current in values:
        return list(values)
    if isinstance(current, int) and not isinstance(current, bool):
        return sorted([*values, current])
    return [*values, current]


def _tried(tries: Sequence[_Tries], name: str, values: Sequence[Value]) -> list[Choice]:
    """Choices over all stacks tried; the reason comes from the last stack, which is the most
    able."""
    if not tries:
        return [Choice(value, _NO_STACK) for value in values]
    left = [True] * len(values)
    for attempt in tries:
        for i, holds in enumerate(attempt.holds(name, values)):
            left[i] = left[i] and not holds
        if not any(left):
            break
    return [
        Choice(value, tries[-1].reason(name, value) if no else None)
        for value, no in zip(values, left, strict=True)
    ]


def _with_its_stacks(options: Options, name: str, value: Value) -> str | None:
    """Reason against a value that decides which stacks are tried at all."""
    try:
        scenario = resolve(options.changed(**{name: value}))
    except PlanError as error:
        return error.remedy
    return _first_legal(_Tries(plan, options).reason(name, value) for plan in scenario.plans)


def _first_legal(reasons: Iterable[str | None]) -> str | None:
    """None as soon as one stack has no objection, else the last objection."""
    reason: str | None = _NO_STACK
    for reason in reasons:
        if reason is None:
            return None
    return reason


def candidates(name: str, options: Options, plan: Plan | None, gpus: int) -> list[Value]:
    """Values that are offered: powers of two and what divides layers, experts or GPUs."""
    model = plan.model if plan else None
    powers = [2**i for i in range(21) if 2**i <= gpus]
    if name in ("tp", "cp"):
        return _whole(x for x in powers if x <= _LARGEST[name])
    if name == "pp":
        layers = model.layers if model else 1
        stages = {x for x in (*powers, *divisors(layers)) if x <= min(_LARGEST["pp"], layers, gpus)}
        return _whole(sorted(stages)[:_MOST_STEPS])
    if name == "dp":
        return _whole(powers)[:_MOST_STEPS]
    if name == "vpp":
        return _whole(x for x in divisors(model.layers if model else 1) if x <= _LARGEST["vpp"])
    if name == "ep":
        experts = model.routed.experts if model and model.routed else 1
        return _whole(x for x in divisors(experts) if x <= gpus)[:_MOST_STEPS]
    if name == "micro_batch":
        return _whole(_MICRO)
    plain: dict[str, list[Value]] = {
        "zero": [0, 1, 2, 3],
        "sequence_parallel": [False, True],
        "recompute": ["none", "selective", "full", "group:2", "group:4", "group:8"],
        "schedule": list(SCHEDULES),
        "offload": list(OFFLOADS),
    }
    return plain[name]


class _Tries:
    """Layouts tried for one stack; methods return values, nothing is kept but what the request
    says."""

    def __init__(self, plan: Plan, options: Options) -> None:
        self.plan, self.options = plan, options
        rows = self._rows(self._degrees({}), {})
        legal = rows.pick(self._holds(plan, rows))
        sample = legal if len(legal) else rows
        few = sample.pick(_samples(sample))
        self.sample = np.stack([getattr(few, name) for name in DEGREES], axis=1)

    def _degrees(self, fixed: dict[str, int]) -> Array:
        """Rows of tp, pp, cp and dp that multiply to the GPUs, with what the request and `fixed`
        say."""
        gpus = self.plan.cluster.gpus
        given = {n: fixed.get(n, None if n in fixed else getattr(self.options, n)) for n in DEGREES}
        open_ = degrees(self.plan)  # those that a search tries
        lists: list[list[int]] = [
            open_[n] if (value := given[n]) is None else [value] for n in ("tp", "pp", "cp")
        ]
        out = []
        for tp, pp, cp in itertools.product(*lists):
            if gpus % (tp * pp * cp) == 0:
                dp = gpus // (tp * pp * cp)
                if given["dp"] in (None, dp):
                    out.append((tp, pp, cp, dp))
        return np.array(out, dtype=float).reshape(-1, len(DEGREES))

    def _rows(self, degrees: Array, changed: dict[str, Any]) -> Columns:
        """A table of these degrees; other options as `changed`, as fixed, or as the stack does
        by default."""
        stack = self.plan.stack
        given = {
            name: changed.get(name, getattr(self.options, name))
            for name in (*OTHERS, "shard_group", "placement")
        }
        zero = self.plan.request.zero if given["zero"] is None else given["zero"]
        zeros = np.array(values(stack, "zero") if zero is None else [int(zero)], dtype=float)
        tp, pp, cp, dp = np.repeat(degrees, len(zeros), axis=0).T

        def column(value: Array) -> Array:
            return np.broadcast_to(np.asarray(value, dtype=float), tp.shape)

        schedule, vpp, sequence = given["schedule"], given["vpp"], given["sequence_parallel"]
        if vpp is None:
            vpp = np.where(pp > 1, schedules.default_chunks(schedule), 1) if schedule else 1
        name = schedule or ("interleaved" if vpp > 1 else "1f1b")
        usual = next((kind for kind in ("none", "full") if has(stack, "recompute", kind)), "none")
        kind, size = recompute_parts(given["recompute"] or usual)
        return Columns(
            tp=tp,
            pp=pp,
            vpp=column(vpp),
            dp=dp,
            cp=cp,
            ep=column(given["ep"] or 1),
            zero=np.tile(zeros, len(degrees)),
            shard_group=column(given["shard_group"] or dp * cp),
            sequence_parallel=column(
                (tp > 1) & has(stack, "sequence_parallel") if sequence is None else sequence
            ),
            recompute=column(kind),
            recompute_size=column(size),
            schedule=column(SCHEDULES.index(name)),
            micro_batch=column(given["micro_batch"] or 1),
            offload=column(OFFLOADS.index(given["offload"] or "none")),
            placement=column(PLACEMENTS.index(given["placement"] or PLACEMENTS[0])),
        )

    def _holds(self, plan: Plan, rows: Columns) -> Array:
        return np.logical_and.reduce(list(check(plan, rows).values()))

    def _reason(self, plan: Plan, rows: Columns) -> str | None:
        """None where a row satisfies every rule, else the sentence of the row nearest to it."""
        if not len(rows):
            return "does not divide the GPUs with what is fixed"
        fails = np.stack([~np.asarray(holds, dtype=bool) for holds in check(plan, rows).values()])
        broken = fails.sum(axis=0)
        row = int(broken.argmin())
        if broken[row] == 0:
            return None
        return RULES[int(fails[:, row].argmax())].sentence(plan, rows.candidate(row))

    def _group(self, name: str, value: Value) -> Columns:
        if name in DEGREES:
            return self._rows(self._degrees({name: int(value)})[: 8 * _SAMPLE], {})
        return self._rows(self.sample, {name: value})

    def holds(self, name: str, values: Sequence[Value]) -> list[bool]:
        """Which values of an option some layout can have. Values with which the same options act
        are checked in one table."""
        alike: dict[tuple[str, ...], list[int]] = {}
        for i, value in enumerate(values):
            alike.setdefault(
                acting(self.options.changed(**{name: value}), self.plan.stack), []
            ).append(i)
        out = [False] * len(values)
        for acts, members in alike.items():
            groups = [self._group(name, values[i]) for i in members]
            if any(len(g) for g in groups):
                holds = self._holds(self._where(acts), joined(groups))
                ends = np.cumsum([len(g) for g in groups])
                for i, g, end in zip(members, groups, ends, strict=True):
                    out[i] = bool(holds[end - len(g) : end].any())
        return out

    def reason(self, name: str, value: Value) -> str | None:
        """Why a value of an option is not possible."""
        plan = self._where(acting(self.options.changed(**{name: value}), self.plan.stack))
        return self._reason(plan, self._group(name, value))

    def _where(self, acts: tuple[str, ...]) -> Plan:
        """The plan of a request whose options act that are named."""
        request = self.plan.request.model_copy(update={"acting": acts})
        return self.plan.model_copy(update={"request": request})

    def training(self, name: str, value: int) -> str | None:
        """Why a sequence length or global batch is not possible."""
        model = self.plan.model
        if (
            name == "seq_len"
            and model.positions == "learned"
            and value > (model.position_rows or model.max_positions)
        ):
            return f"{model.name} has learned positions for {model.max_positions} tokens"
        if name == "seq_len" and model.convolutions and value != 1:
            return f"an image of {model.name} is one token, of the pixels that its file has"
        plan = self.plan.model_copy(
            update={"training": self.plan.training.model_copy(update={name: value})}
        )
        degrees = self._degrees({}) if name == "global_batch" else self.sample
        return self._reason(plan, self._rows(degrees[: 4 * _SAMPLE], {}))


def _samples(rows: Columns) -> list[int]:
    """Rows of every set of degrees above 1, since options belong to pipelines, tensor parallelism
    and so on: those with the fewest and the most replicas first, on which batch and schedule
    depend."""
    above_and_dp = np.stack([rows.tp > 1, rows.pp > 1, rows.cp > 1, rows.dp], axis=1)
    values, first = np.unique(above_and_dp, axis=0, return_index=True)
    by_kind: dict[tuple[float, ...], list[int]] = {}
    for (*above, _), row in zip(values.tolist(), first.tolist(), strict=True):
        by_kind.setdefault(tuple(above), []).append(row)
    ends_first = [[kind[0], kind[-1], *kind[1:-1]] for kind in by_kind.values()]
    in_turn = itertools.chain.from_iterable(itertools.zip_longest(*ends_first))
    return list(dict.fromkeys(row for row in in_turn if row is not None))[:_SAMPLE]


def _cluster_reason(options: Options, gpus: int) -> str | None:
    """Why a number of GPUs is not possible: nodes, then the degrees that are fixed."""
    try:
        resolve(options.changed(gpus=gpus))
    except PlanError as error:
        return error.remedy
    fixed = {n: getattr(options, n) for n in DEGREES if getattr(options, n) is not None}
    product = int(np.prod([*fixed.values(), 1]))
    sentence = " x ".join(f"{n} {v}" for n, v in fixed.items())
    if gpus % product or ("dp" in fixed and len(fixed) == len(DEGREES) and product != gpus):
        return f"{sentence} does not divide {gpus:,} GPUs"
    return None
