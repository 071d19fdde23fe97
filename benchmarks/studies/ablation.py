"""Ablation: the error over measured runs with one mechanism off, nothing fitted again.

python -m benchmarks.studies.ablation [--suite SUITE] [RUNS.csv ...]
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from benchmarks.studies.runs import named, show
from planner.estimate.machine import Machine, machine
from planner.estimate.step import step_time
from planner.inputs.calibration import Calibration
from planner.ledger import Array
from planner.specs.columns import Columns, joined
from planner.specs.plan import Plan
from planner.specs.stack import StackSpec
from planner.studies.runs.cells import Row
from planner.studies.validate.errors import errors
from planner.studies.validate.fit import Case, cases
from planner.units import percent
from planner.views.view import Block

_CHANGED = (
    1e-3  # relative change of a prediction from which a run counts as one where the mechanism acts
)
_SMALLEST_SUITE = 3  # runs where it acts, for a suite to be named


@dataclass(frozen=True)
class Acts:
    """Runs whose prediction a mechanism changes by more than 0.1 %."""

    n: int  # runs
    before: float | None  # their mean absolute error
    after: float | None  # the same with the mechanism off


@dataclass(frozen=True)
class MostIn(Acts):
    """The suite whose sum of absolute errors changes most."""

    suite: str | None  # None where no suite has three such runs


@dataclass(frozen=True)
class Ablation:
    """One mechanism switched off, nothing fitted again."""

    mechanism: str  # its name; the largest rise of the error first
    off: str  # what switching it off means
    mape_before: float  # over all runs with a time
    mape_after: float  # with the mechanism off
    acts: Acts  # runs on which it acts
    most: MostIn  # where it matters most


@dataclass(frozen=True)
class Mechanism:
    """One mechanism and how it is switched off: in the numbers of the machine, in what the stack
    does, or in the plan."""

    name: str
    title: str
    off: Callable[[Machine], Machine] | None = None
    stack_off: Callable[[StackSpec], StackSpec] | None = None
    plan_off: Callable[[Plan], Plan] | None = None
    acts_on: Callable[[Plan], bool] = lambda plan: True  # plans on which it can act at all


def _fp8(plan: Plan) -> bool:
    return plan.recipe is not None


def _experts(plan: Plan) -> bool:
    return plan.model.routed is not None


def _several_nodes(plan: Plan) -> bool:
    return plan.cluster.gpus > plan.cluster.gpus_per_node


def _set(**values: Any) -> Callable[[Machine], Machine]:
    return lambda m: replace(m, **values)


def _without(switch: str) -> Callable[[Machine], Machine]:
    return lambda m: replace(m, without=m.without | {switch})


def _overlap(**values: bool) -> Callable[[StackSpec], StackSpec]:
    return lambda stack: stack.model_copy(
        update={"overlap": stack.overlap.model_copy(update=values)}
    )


def _narrow_norms(stack: StackSpec) -> StackSpec:
    kept = stack.activations.model_copy(update={"wide_layernorm": False})
    return stack.model_copy(update={"activations": kept})


def _grouped_adapters(stack: StackSpec) -> StackSpec:
    experts = stack.experts.model_copy(update={"grouped_adapters": None})
    return stack.model_copy(update={"experts": experts})


_UNLIMITED = 1e18  # B/s, more than any memory moves
_FULL_INTRA: dict[str, Any] = dict.fromkeys(
    (
        "intra_all_reduce",
        "intra_all_gather",
        "intra_reduce_scatter",
        "intra_send",
        "intra_two_rank",
        "intra_switch",
    ),
    1.0,
)
_FULL_INTER: dict[str, Any] = dict.fromkeys(
    ("inter_all_reduce", "inter_all_gather", "inter_reduce_scatter", "inter_send"), 1.0
)

MECHANISMS: tuple[Mechanism, ...] = (
    Mechanism(
        "sustained clock",
        "tensor clocks as in the kernel tables, no power limit",
        _set(sustained_clock=1.0),
    ),
    Mechanism(
        "wave quantisation",
        "a GEMM may use a fraction of a wave of tiles",
        _set(gemm_wave_softness=1.0),
    ),
    Mechanism(
        "tile overhead", "tiles of a GEMM start and end in no time", _set(gemm_tile_overhead=0.0)
    ),
    Mechanism(
        "tile size", "small tiles reach the rate of large ones", _set(gemm_tile_exponent=0.0)
    ),
    Mechanism("alignment", "odd matrix widths cost nothing", _without("alignment")),
    Mechanism(
        "kernel gaps",
        "kernels follow each other without a gap",
        _set(kernel_gap=0.0, gemm_launch=0.0),
    ),
    Mechanism("launch floor", "the CPU issues operators in no time", _set(operator_launch=0.0)),
    Mechanism(
        "operators of chains",
        "unfused norms, RoPE, gates and softmax cost the CPU no more than fused ones",
        _without("split_operators"),
    ),
    Mechanism(
        "expert operators",
        "experts cost the CPU no operators",
        _without("expert_operators"),
        acts_on=_experts,
    ),
    Mechanism(
        "biases and clamps of experts",
        "they are part of the GEMMs and of the activation everywhere",
        _without("expert_chains"),
        acts_on=_experts,
    ),
    Mechanism(
        "bandwidth of elementwise kernels",
        "they reach all of the memory bandwidth",
        _set(elementwise_frac=1.0),
    ),
    Mechanism(
        "bytes in flight",
        "elementwise kernels reach the same share of any memory",
        _set(elementwise_limit=_UNLIMITED),
    ),
    Mechanism(
        "last cache", "tensors of elementwise kernels always go to memory", _set(cache_bytes=0.0)
    ),
    Mechanism(
        "norms of torch operators",
        "every norm is one fused kernel",
        _set(norm_forward=4.0, norm_backward=8.0),
    ),
    Mechanism(
        "unfused RoPE", "RoPE is one kernel each way", _set(rotary_forward=4.0, rotary_backward=4.0)
    ),
    Mechanism(
        "fused experts",
        "experts move and cast what they move where they are not fused",
        _set(expert_traffic=1.0),
        acts_on=_experts,
    ),
    Mechanism(
        "unfused gate",
        "every gated activation is one kernel each way",
        _set(gate_forward=6.0, gate_backward=10.0),
    ),
    Mechanism(
        "loss of torch operators", "every loss is one fused kernel", _set(cross_entropy_bytes=8.0)
    ),
    Mechanism(
        "weight traffic",
        "gradients accumulate, are cast and copied in no time",
        _set(weight_bytes_moved=0.0),
    ),
    Mechanism(
        "waiting inside a layer",
        "the CPU never waits for the GPU inside a layer",
        _set(layer_idle=0.0, adapter_idle=0.0, token_idle=0.0),
    ),
    Mechanism(
        "reductions of separate GEMMs",
        "GEMMs that share an input share its all-reduce",
        stack_off=_overlap(reduce_each_product=False),
    ),
    Mechanism(
        "attention shape",
        "attention runs at its best rate at any length and head width",
        _without("attention_shape"),
    ),
    Mechanism(
        "attention kernel",
        "every fused attention kernel has the long-sequence rate of the GPU's profile",
        _set(attention_version_forward=1.0, attention_version_backward=1.0),
    ),
    Mechanism(
        "fp8 casts", "operands are cast to 8 bit in no time", _set(cast_bytes=0.0), acts_on=_fp8
    ),
    Mechanism(
        "fp8 recipe and clock",
        "every scaling recipe reaches the fp8 rate, at the clock of 16-bit GEMMs",
        _set(recipe_frac=1.0),
        acts_on=_fp8,
    ),
    Mechanism(
        "recompute that stops early",
        "recompute repeats whole layers",
        stack_off=lambda stack: stack.model_copy(update={"recompute_stops_early": False}),
    ),
    Mechanism(
        "overlapped tensor-parallel collectives",
        "tensor-parallel collectives do not overlap with GEMMs",
        _set(tensor_hidden=0.0),
    ),
    Mechanism("contention", "overlapped collectives do not slow compute down", _set(slowdown=0.0)),
    Mechanism(
        "gradient overlap",
        "gradients are reduced after the backward pass",
        stack_off=_overlap(gradient_sync=False, sharded_sync=False),
    ),
    Mechanism(
        "interleaved window",
        "gradients hide behind one micro-batch only, virtual stages or not",
        stack_off=_overlap(interleaved_window=False),
    ),
    Mechanism(
        "overlapped sends", "a stage waits for its sends", stack_off=_overlap(pipeline_send=False)
    ),
    Mechanism(
        "scatter-gather sends",
        "every tensor-parallel rank sends the whole activation",
        stack_off=_overlap(scatter_gather=False),
    ),
    Mechanism(
        "layers per stage",
        "layers are dealt out without a thought to embedding and head",
        stack_off=lambda stack: stack.model_copy(update={"layer_split": "even"}),
    ),
    Mechanism(
        "share of the node's link",
        "collectives inside a node reach the full rate",
        _set(**_FULL_INTRA),
    ),
    Mechanism("ramp", "no square-root term in collectives inside a node", _set(intra_ramp=0.0)),
    Mechanism("in-switch reduction", "switches do not add", _set(intra_switch_ranks=1e9)),
    Mechanism(
        "share of the fabric", "collectives between nodes reach the full rate", _set(**_FULL_INTER)
    ),
    Mechanism("network hop", "a message crosses nodes in no time", _set(inter_hop=0.0)),
    Mechanism("trees", "all-reduces are rings", _without("tree"), acts_on=_several_nodes),
    Mechanism(
        "stack's share of the fabric",
        "every ZeRO-3 reaches what the fabric can do",
        _set(network_frac=1.0),
    ),
    Mechanism(
        "copies sent once",
        "a token's copies for one node go one by one",
        _without("shared_copies"),
        acts_on=_experts,
    ),
    Mechanism(
        "weights of tokens",
        "HybridEP sends only tokens",
        _without("token_weights"),
        acts_on=_experts,
    ),
    Mechanism(
        "unpacking of tokens",
        "DeepEP and HybridEP deliver tokens to their experts",
        _without("unpacking"),
        acts_on=_experts,
    ),
    Mechanism(
        "norms in fp32",
        "a LayerNorm under autocast gives quantised matrices 16 bit",
        stack_off=_narrow_norms,
    ),
    Mechanism(
        "loops of adapters",
        "experts with adapters are grouped GEMMs on every GPU",
        stack_off=_grouped_adapters,
    ),
    Mechanism("stragglers", "all GPUs are equally fast", _set(straggler_sigma=0.0)),
    Mechanism("step overhead", "nothing happens between steps", _set(step_overhead=0.0)),
)


def with_active(plans: Iterable[Plan]) -> tuple[Mechanism, ...]:
    """These and the mechanisms of planner/mechanisms that are on in a plan."""
    kinds = {type(each) for plan in plans for each in plan.mechanisms}
    named = sorted(kinds, key=lambda kind: kind.NAME)
    active = (Mechanism(x.NAME, x.OFF, plan_off=partial(Plan.without, kind=x)) for x in named)
    return (*MECHANISMS, *active)


def ablations(rows: list[Row], calibration: Calibration | None = None) -> list[Ablation]:
    """Errors of step time with each mechanism off, over all runs with a time, over those it acts
    on, and in the suite in which it changes the sum of absolute errors most. Rows that cannot be
    expressed are left out, as in validation.
    """
    by_plan: dict[str, tuple[Plan, list[Case]]] = {}  # cases that differ in layout only: one table
    for case in cases(rows, calibration):
        _, alike = by_plan.setdefault(case.plan.model_dump_json(), (case.plan, []))
        alike.append(case)
    if not by_plan:
        return []
    every = with_active(plan for plan, _ in by_plan.values())
    errs = np.concatenate(
        [
            with_each_off(plan, joined([case.table for case in alike]), every)
            / np.array([case.seconds for case in alike])
            - 1
            for plan, alike in by_plan.values()
        ],
        axis=1,
    )
    names = [case.row["suite"] for _, alike in by_plan.values() for case in alike]
    lines = [_line(m, names, errs[0], errs[i + 1]) for i, m in enumerate(every)]
    return sorted(lines, key=lambda line: -(line.mape_after - line.mape_before))


def with_each_off(
    plan: Plan, table: Columns, mechanisms: Sequence[Mechanism] = MECHANISMS
) -> Array:
    """Step times of these layouts as they are, then with each mechanism off, shape (1 + mechanisms,
    layouts).

    What is a number of the machine is evaluated together, one block of rows each.
    """
    base, rows = machine(plan), len(table)
    changed = [m.off(base) if m.off and m.acts_on(plan) else base for m in mechanisms]
    together = [0, *(i + 1 for i, c in enumerate(changed) if c is not base and not c.without)]
    each = [base if i == 0 else changed[i - 1] for i in together]
    columns: dict[str, Any] = {
        name: np.repeat([float(getattr(numbers, name)) for numbers in each], rows)
        for name in base.names()
    }
    blocks = step_time(
        plan, table.pick(np.tile(np.arange(rows), len(each))), Machine(**columns)
    ).seconds
    out = np.zeros((1 + len(mechanisms), rows))
    out[together] = blocks.reshape(len(each), rows)
    for i, mechanism in enumerate(mechanisms):
        other = plan
        if mechanism.stack_off:
            other = plan.model_copy(update={"stack": mechanism.stack_off(plan.stack)})
        elif mechanism.plan_off:
            other = mechanism.plan_off(plan)
        if changed[i].without:
            out[i + 1] = step_time(plan, table, changed[i]).seconds
        elif (other.stack, other.mechanisms) != (plan.stack, plan.mechanisms):
            out[i + 1] = step_time(other, table).seconds
        elif changed[i] is base:
            out[i + 1] = out[0]
    return out


def _line(mechanism: Mechanism, suites: list[str], before: Array, after: Array) -> Ablation:
    acts = np.abs((1 + after) / (1 + before) - 1) > _CHANGED
    where: dict[str, list[int]] = defaultdict(list)
    for i in np.flatnonzero(acts):
        where[suites[i]].append(int(i))
    changes = {
        suite: float((np.abs(after[at]) - np.abs(before[at])).sum())
        for suite, at in where.items()
        if len(at) >= _SMALLEST_SUITE
    }
    most = max(changes, key=lambda suite: abs(changes[suite])) if changes else None
    at = where[most] if most else []
    return Ablation(
        mechanism=mechanism.name,
        off=mechanism.title,
        mape_before=_mape(before) or 0.0,
        mape_after=_mape(after) or 0.0,
        acts=Acts(n=int(acts.sum()), before=_mape(before[acts]), after=_mape(after[acts])),
        most=MostIn(suite=most, n=len(at), before=_mape(before[at]), after=_mape(after[at])),
    )


def _mape(relative: Array) -> float | None:
    return errors(relative.tolist()).mape


def block(ablations: Sequence[Ablation]) -> Block:
    return Block(
        "Each mechanism off, nothing fitted again",
        text=["MAPE with it -> without it: over all runs, those it acts on, and one suite"],
        header=[
            *("mechanism", ">all: with", ">all: without"),
            *(">acts on: runs", ">acts on: with", ">acts on: without"),
            *("most in", ">there: runs", ">there: with", ">there: without"),
        ],
        order="largest rise of the error first",
        drop=("there: runs", "there: with", "there: without", "most in", "acts on: runs"),
        rows=[
            [
                line.mechanism,
                percent(line.mape_before),
                percent(line.mape_after),
                str(line.acts.n),
                percent(line.acts.before),
                percent(line.acts.after),
                line.most.suite or "-",
                str(line.most.n),
                percent(line.most.before),
                percent(line.most.after),
            ]
            for line in ablations
        ],
    )


if __name__ == "__main__":
    runs = named(__doc__)
    show(block(ablations(runs.complete, runs.calibration)))
