"""Numbers that could explain a step that differs from the prediction: each by itself, the least
surprising first."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from planner.estimate import Estimates
from planner.estimate.machine import Machine, machine
from planner.estimate.machine.clock import power_of
from planner.estimate.step import step_time
from planner.ledger import Array
from planner.specs.plan import Plan
from planner.studies.documents.check import Flops, Reason, StepTimes
from planner.units import percent, show

_FACTORS = np.geomspace(1 / 16, 16.0, 161)  # of a number, among which the explaining one is sought
_NOTHING = 1e-6
_LEAST_POWER = 0.25  # of a board; no card takes a lower limit
_ANOTHER = 1.2  # printed FLOP over counted FLOP, beyond which a log ran another recipe
_LIKELY = 2.0  # spreads up to which a reason is likely


@dataclass(frozen=True)
class _Suspect:
    """Numbers of the machine that move together, and what else a run would tell of them.

    spread: standard deviation of the logarithm over clusters (`verbs.validate.parameters`, there
    for shared numbers). components: of the step that hold its time. inverse: more of it takes
    longer.
    """

    name: str
    numbers: tuple[str, ...]
    spread: float
    components: tuple[str, ...]
    says: str
    measure: str
    applies: Callable[[Plan], bool] = lambda plan: True


_COPIES = ("offload", "optimizer", "nvme")
_WIRES = (
    "tensor_parallel",
    "context_parallel",
    "expert_parallel",
    "data_parallel",
    "pipeline_transfer",
)
SUSPECTS: tuple[_Suspect, ...] = (
    _Suspect(
        "clock",
        ("sustained_clock",),
        0.06,
        ("matmul", "attention", "recompute"),
        "tensor clock under load",
        "nvidia-smi --query-gpu=clocks.sm,power.draw,power.limit,power.default_limit,"
        "clocks_event_reasons.active -lms 500",
    ),
    _Suspect(
        "network",
        ("nic_per_gpu",),
        0.2,
        _WIRES,
        "bandwidth between nodes",
        "all_reduce_perf -b 64M -e 4G -f 2 over all nodes (nccl-tests), beside the stated cards",
        lambda plan: plan.cluster.nodes > 1,
    ),
    _Suspect(
        "node link",
        ("intra_bandwidth",),
        0.1,
        _WIRES,
        "bandwidth inside a node",
        "all_reduce_perf -b 64M -e 4G -f 2 -g GPUs on one node (nccl-tests)",
        lambda plan: plan.cluster.gpus > 1,
    ),
    _Suspect(
        "launch",
        ("operator_launch",),
        0.3,
        ("launch",),
        "CPU time to issue an operator",
        "a torch profiler trace of three steps: pauses between kernels",
    ),
    _Suspect(
        "memory-bound kernels",
        ("elementwise_limit", "elementwise_frac"),
        0.2,
        ("memory_bound", "optimizer"),
        "rate of kernels that move bytes",
        "a torch profiler trace: norms, activations and copies by name",
    ),
    _Suspect(
        "attention",
        ("attention_forward", "attention_backward"),
        0.2,
        ("attention", "recompute"),
        "rate of attention kernels",
        "a torch profiler trace: whether the attention kernel is the one of the recipe",
    ),
    _Suspect(
        "contention",
        ("slowdown",),
        0.5,
        (),
        "slow-down of compute beside a collective",
        "one run with the overlap switched off",
        lambda plan: plan.cluster.gpus > 1,
    ),
    _Suspect(
        "stragglers",
        ("straggler_sigma",),
        0.7,
        ("stragglers", "overhead"),
        "jitter between ranks",
        "the step time of every rank: timers over ranks (Megatron: --timing-log-level 1"
        " --timing-log-option all), a list of slow hosts",
        lambda plan: plan.cluster.gpus > 1,
    ),
    _Suspect(
        "offload",
        ("host_bandwidth", "host_copy_bandwidth", "host_update", "host_staged"),
        0.7,
        _COPIES,
        "link to host memory, and the update on the CPU",
        "calibrate this host: copies to and from pinned memory, and the update on its CPU",
        lambda plan: True,
    ),
)


def reasons(estimates: Estimates, measured_s: float, steps: StepTimes | None) -> list[Reason]:
    """Numbers each of which explains a measured step by itself, the values nearest to the usual
    first."""
    plan, numbers = estimates.plan, machine(estimates.plan)
    parts = {name: float(np.ravel(value)[0]) for name, value in estimates.time.components.items()}
    suspects = [suspect for suspect in SUSPECTS if suspect.applies(plan)]
    times = _times(estimates, numbers, suspects)
    out = []
    for suspect, line in zip(suspects, times, strict=True):
        if np.ptp(line) <= _NOTHING * line[0]:  # the step does not hang on it
            continue
        factor = _explaining(line, measured_s)
        out.append(_reason(suspect, factor, parts, _capped(plan, suspect, factor)))
    out += _loading(float(estimates.time.seconds[0]), measured_s, steps)
    return sorted(out, key=lambda r: (r.spreads is None, r.spreads or 0.0, -r.component_s))


def _times(estimates: Estimates, numbers: Machine, suspects: list[_Suspect]) -> Array:
    """Step times (s) under every factor: a line per suspect."""
    count = len(_FACTORS)
    columns: dict[str, Any] = {
        name: np.full(len(suspects) * count, float(getattr(numbers, name)))
        for suspect in suspects
        for name in suspect.numbers
    }
    for i, suspect in enumerate(suspects):
        for name in suspect.numbers:
            columns[name][i * count : (i + 1) * count] *= _FACTORS
    table = estimates.table.each(lambda column: np.repeat(column[:1], len(suspects) * count))
    seconds = step_time(estimates.plan, table, replace(numbers, **columns)).seconds
    lines: Array = seconds.reshape(len(suspects), count)
    return lines


def _explaining(line: Array, measured_s: float) -> float | None:
    """The factor nearest to 1 at which the step takes what was measured."""
    beyond = line - measured_s
    crossed = np.flatnonzero(np.sign(beyond[:-1]) != np.sign(beyond[1:]))
    if not len(crossed):
        return None
    logs = np.log(_FACTORS)
    at = [float(np.interp(0.0, *_ordered(beyond[i : i + 2], logs[i : i + 2]))) for i in crossed]
    return float(np.exp(min(at, key=abs)))


def _ordered(x: Array, y: Array) -> tuple[Array, Array]:
    return (x, y) if x[0] <= x[1] else (x[::-1], y[::-1])


def _capped(plan: Plan, suspect: _Suspect, factor: float | None) -> str:
    """The power limit that lowers the clock as much, since owners of workstations set one.

    Nothing where a clock was measured or a limit is stated: the law starts from the board's power.
    """
    cluster = plan.cluster
    given = cluster.clock is not None or cluster.power_limit is not None
    if suspect.name != "clock" or factor is None or factor >= 1 or given:
        return ""
    limit_w = power_of(cluster.gpu, factor)
    if limit_w is None or limit_w < _LEAST_POWER * float(cluster.gpu.power):
        return ""
    return (
        f"; a card capped at {limit_w:.0f} of its {float(cluster.gpu.power):.0f} W runs at that"
        f" clock (--power-limit {limit_w:.0f})"
    )


def _reason(
    suspect: _Suspect, factor: float | None, parts: dict[str, float], remark: str = ""
) -> Reason:
    component_s = sum(parts.get(name, 0.0) for name in suspect.components)
    if factor is None:
        says, spreads = f"{suspect.says}: no value of it explains the step by itself", None
    else:
        spreads = abs(float(np.log(factor))) / suspect.spread
        usual = "usual" if spreads <= _LIKELY else "unusual"
        says = (
            f"{suspect.says} at {percent(factor, 0)} of what is assumed would explain it by itself;"
            f" that is {usual} ({spreads:.1f} standard deviations of clusters){remark}"
        )
    return Reason(
        name=suspect.name,
        factor=factor,
        spreads=spreads,
        component_s=component_s,
        says=says,
        measure=suspect.measure,
    )


def _loading(predicted_s: float, measured_s: float, steps: StepTimes | None) -> list[Reason]:
    """Waiting for data, where the log prints it or the step is longer than predicted."""
    logged = steps.loading_s if steps else None
    over = measured_s - predicted_s
    if over <= 0 and not logged:
        return []
    if logged is None:
        says = f"waiting for data: the log does not print it; {show(over, 's')} would explain it"
        spreads = None
    else:
        share = logged / measured_s
        says = f"waiting for data: the log prints {show(logged, 's')}, {percent(share)} of a step"
        spreads = max(over - logged, 0.0) / max(over, 1e-12) * _UNLIKELY if over > 0 else None
    return [
        Reason(
            name="loading",
            factor=None,
            spreads=spreads,
            component_s=logged or 0.0,
            says=says,
            measure="the same run with synthetic data, or the time that the loop waits for a batch",
        )
    ]


def another_recipe(flops: Flops | None) -> list[Reason]:
    """The recipe itself, where a log prints FLOP that no count of the recipe comes near to: no
    machine explains these."""
    if flops is None or 1 / _ANOTHER <= flops.ratio <= _ANOTHER:
        return []
    says = (
        f"the recipe: the log prints {flops.ratio:.2f} times the FLOP of a step of the one given"
        f" (nearest count: {flops.nearest}), whatever the machine; model, batch, length or GPUs"
        " are other ones"
    )
    return [
        Reason(
            name="recipe",
            factor=flops.ratio,
            spreads=0.0,
            component_s=0.0,
            says=says,
            measure="the arguments that the run printed, against --model, --global-batch, --seq-len"
            " and --gpus",
        )
    ]


_UNLIKELY = 6.0  # spreads beyond which a wait cannot explain the difference
