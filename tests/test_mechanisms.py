"""Laws that every mechanism of planner/mechanisms obeys, and cases worked by hand."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import plans
import pytest

from benchmarks.studies.ablation import with_active, with_each_off
from planner import plugins
from planner.estimate import Estimates, evaluate, outline
from planner.formulas.params import parameter_count
from planner.formulas.rules import check
from planner.formulas.rules.rule import Rule, of_mechanism
from planner.inputs.catalog import ids, load
from planner.inputs.scenario import resolve
from planner.ledger import first
from planner.mechanisms.ema import Ema
from planner.search import allowed_layouts, search
from planner.search.batched import Chosen, choose
from planner.specs.base import PlanError
from planner.specs.capabilities import has
from planner.specs.columns import Columns
from planner.specs.components import BOTTLENECKS
from planner.specs.mechanism import Bytes, Mechanism, Stage, Step
from planner.specs.names import NVME
from planner.specs.options import MECHANISMS, Options, rows
from planner.specs.options.schema import from_example
from planner.specs.plan import Plan
from planner.specs.stack import StackSpec

if TYPE_CHECKING:
    from planner.ledger import Ledger

# micro-batches of one sequence, one of them per step: where nothing accumulates
REQUEST: dict[str, Any] = {
    "model": "gpt2",
    "gpu": "h100",
    "gpus": 8,
    "gpus_per_node": 4,
    "global_batch": 8,
    "seq_len": 512,
}
EVERY = pytest.mark.parametrize("each", MECHANISMS, ids=lambda each: each.NAME)
OF_PLANS = pytest.mark.parametrize(
    "each",
    [each for each in MECHANISMS if not each.OFFLOADS and "implied" not in vars(each)],
    ids=lambda each: each.NAME,
)
OF_LAYOUTS = pytest.mark.parametrize(
    "each", [each for each in MECHANISMS if each.OFFLOADS], ids=lambda each: each.NAME
)


def on(each: type[Mechanism]) -> Plan:
    """The first plan with layouts of a request with the examples of the mechanism's options."""
    ours = {} if each.OPTIONS is None else rows(each.OPTIONS)
    given = {name: from_example(row) for name, row in ours.items()}
    plans_of = resolve(Options(**{**REQUEST, **each.EXAMPLE, **given})).plans
    plan = next(entry for entry in plans_of if len(allowed(entry)))
    by_option = not each.OFFLOADS and "implied" not in vars(each)
    assert [type(mechanism) for mechanism in plan.mechanisms] == [each] * by_option
    assert each.implied(plan) is ("implied" in vars(each))
    return plan


def allowed(plan: Plan) -> Columns:
    """Layouts of the GPUs on which the laws are tried."""
    shapes: tuple[dict[str, Any], ...] = (
        {},
        {"zero": 1},
        {"zero": 2},
        {"zero": 3},
        {"zero": 3, "shard_group": 4},
        {"tp": 2},
        {"tp": 2, "sequence_parallel": True},
        {"zero": 1, "offload": "optimizer"},
        {"offload": "activations"},
        *({"zero": 3, "offload": way} for way in ("none", "params", *NVME)),
        {"ep": 8, "zero": 1},
    )
    table = plans.rows(8, *shapes)
    return table.pick(np.logical_and.reduce([*check(plan, table).values()]))


def answers(estimates: Estimates) -> dict[str, Any]:
    parts = {**estimates.time.components, **estimates.memory.components}
    return {**parts, "step": estimates.time.seconds, "device": estimates.memory.device} | {
        "host": estimates.memory.host,
        "drive": estimates.memory.drive,
    }


def test_a_module_is_a_mechanism_with_its_source() -> None:
    assert [each.NAME for each in MECHANISMS] == [*plugins.names("mechanisms")]
    for each in MECHANISMS:
        assert each.SOURCE
        assert each.OFF
        assert {kind for kind, _ in each.STEP.values()} <= BOTTLENECKS.keys()
        assert set(each.LASTING) <= each.MEMORY.keys()
        assert each.of(Options(model="gpt2")) is None


@OF_LAYOUTS
def test_it_adds_to_layouts_that_offload_so_alone(each: type[Mechanism]) -> None:
    """Beside them in a table as without them."""
    plan = on(each)
    table = allowed(plan)
    by_it = table.offloads(*each.OFFLOADS)
    assert 0 < by_it.sum() < len(table)
    together, alone = evaluate(plan, table), evaluate(plan, table.pick(~by_it))
    assert sum(together.time.components.values()) == pytest.approx(together.time.seconds)
    for name, leaf in answers(together).items():
        others = answers(alone).get(name, 0.0)
        np.testing.assert_allclose(leaf[~by_it], others, rtol=1e-12, err_msg=name)
    items = [answers(together)[name] for name in {*each.MEMORY, *each.STEP}]
    assert all((leaf[by_it] > 0).all() for leaf in items)


@OF_PLANS
def test_off_it_adds_nothing_and_on_its_parts_add_up(each: type[Mechanism]) -> None:
    plan = on(each)
    table = allowed(plan)
    assert len(table)
    with_it = evaluate(plan, table)
    off = plan.without(each)
    without = evaluate(off, table)
    plain = evaluate(off.model_copy(update={"mechanisms": ()}), table)
    assert {k: v.tolist() for k, v in answers(without).items()} == {
        k: v.tolist() for k, v in answers(plain).items()
    }
    assert sum(with_it.time.components.values()) == pytest.approx(with_it.time.seconds, rel=1e-12)
    assert sum(with_it.memory.components.values()) == pytest.approx(with_it.memory.peak, rel=1e-12)
    changed = {n for n, v in answers(with_it).items() if (v != answers(without).get(n)).any()}
    assert changed
    ablated = with_active([plan])[-1:]
    seconds = with_each_off(plan, table, ablated)
    assert seconds.tolist() == [with_it.time.seconds.tolist(), without.time.seconds.tolist()]
    ours = {*each.MEMORY, *each.STEP}
    assert not ours & answers(without).keys()
    for name in ours & answers(with_it).keys():
        assert (answers(with_it)[name] >= 0).all()


@EVERY
def test_a_search_finds_what_an_estimate_does(
    each: type[Mechanism], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On distinct combinations as on plain columns."""
    monkeypatch.setattr("planner.estimate._SMALL", 0)
    estimates = search(on(each)).estimates
    assert estimates is not None
    fast = outline(on(each), estimates.space)
    full = fast.full(np.arange(estimates.space.count))
    np.testing.assert_allclose(fast.time.seconds, full.time.seconds, rtol=1e-12)
    np.testing.assert_allclose(fast.memory.device, full.memory.device, rtol=1e-12)
    np.testing.assert_allclose(fast.memory.host, full.memory.host, rtol=1e-12)


@OF_PLANS
def test_plans_that_are_searched_together_are_kept_apart(each: type[Mechanism]) -> None:
    plan = on(each)
    off = plan.without(each)
    together = choose([[plan], [off]])
    for plans_of, value in zip(([plan], [off]), together, strict=True):
        (alone,) = choose([plans_of])
        assert isinstance(alone, Chosen)
        assert isinstance(value, Chosen)
        assert answers(value.estimates).keys() == answers(alone.estimates).keys()
        assert first(value.estimates.time.seconds) == first(alone.estimates.time.seconds)


@dataclass(frozen=True)
class _Anything(Mechanism):
    """Hooks with operations that columns of the engine do not have."""

    NAME = "anything"
    MEMORY: ClassVar = {"anything": "bytes"}
    STEP: ClassVar = {"anything": ("memory bandwidth", "seconds")}

    def memory(self, stage: Stage) -> Bytes:
        plain = (stage.layout.tp, stage.layout.micro_batch, stage.elements, stage.owned)
        assert {(type(x), x.dtype, x.shape) for x in plain} == {
            (np.ndarray, np.dtype(float), stage.owned.shape)
        }
        kept: Any = np.round(np.cbrt(stage.owned), 3)
        if (stage.layout.zero >= 1).any() and kept.max() > 1:
            kept[stage.layout.zero >= 1] = 1.0
        return Bytes({"anything": kept}, host=np.array([math.floor(x) for x in kept]))

    def after_update(self, step: Step) -> Ledger:
        each = [min(x, 1e-3) * int(tp) for x, tp in zip(step.seconds, step.layout.tp, strict=True)]
        order = np.argsort(each)
        return {"anything": np.array(each)[order][np.argsort(order)] + np.std([1.0, 3.0])}


def _few(plan: Plan, c: Columns) -> Any:
    return np.array([int(tp) in {1, 2} for tp in c.tp])


def _of_anything(mechanism: Mechanism) -> Plan:
    dense = plans.plan(gpus=64, global_batch=512)
    return dense.model_copy(update={"mechanisms": (mechanism,)})


def test_hooks_compute_with_whatever_numpy_and_python_have(monkeypatch: pytest.MonkeyPatch) -> None:
    """On plain columns and on distinct combinations, evaluated block by block."""
    monkeypatch.setattr("planner.estimate._SMALL", 0)
    monkeypatch.setattr("planner.estimate.factored.column.EAGER", 64)
    monkeypatch.setattr("planner.estimate.factored.evaluate.BLOCK", 256)
    plan = _of_anything(_Anything())
    estimates = search(plan).estimates
    assert estimates is not None
    assert estimates.space.count > 1000
    full = estimates.full(np.arange(estimates.space.count))
    np.testing.assert_allclose(estimates.time.seconds, full.time.seconds, rtol=1e-12)
    np.testing.assert_allclose(estimates.memory.host, full.memory.host, rtol=1e-12)
    np.testing.assert_allclose(estimates.memory.device, full.memory.device, rtol=1e-12)
    sharded = full.table.zero >= 1
    assert (full.memory.components["anything"][sharded] == 1).all()
    assert set(full.memory.host[sharded]) == {1.0}
    slower = full.time.components["anything"]
    assert slower == pytest.approx(1 + 1e-3 * full.table.tp, rel=1e-9)


def test_rules_of_mechanisms_see_plain_arrays() -> None:
    rule = of_mechanism(_Anything, Rule("few", ("tp",), _few, lambda plan, x: "tp is 1 or 2"))
    plan = _of_anything(_Anything())
    space = allowed_layouts(plan.without(_Anything))
    factored = space.restricted(rule.holds(plan, space.columns()))
    assert 0 < factored.count < space.count
    assert set(factored.flat().tp) == {1.0, 2.0}
    assert factored.count == rule.holds(plan, space.flat()).sum()
    assert rule.holds(plan.without(_Anything), space.flat()).all()


@dataclass(frozen=True)
class _Careless(_Anything):
    fault: str

    def memory(self, stage: Stage) -> Bytes:
        if self.fault == "writes":
            stage.owned[:] = 0.0
        leaf = "nothing" if self.fault == "undeclared" else "anything"
        return Bytes({leaf: np.ones(len(stage.owned) + 1)})


@pytest.mark.parametrize(
    ("fault", "text"),
    [("writes", "read-only"), ("undeclared", "nothing is not declared"), ("longer", "shape")],
)
def test_a_careless_hook_is_named(fault: str, text: str) -> None:
    with pytest.raises(ValueError, match=text) as caught:
        evaluate(_of_anything(_Careless(fault)), plans.rows(64, {}, {"tp": 2}))
    assert "memory of the mechanism anything" in str(caught.value.__notes__)


def _averaged(place: str, zero: int) -> tuple[Estimates, Estimates]:
    off = plans.plan(software="pytorch-fsdp", gpus=8)
    plan = off.model_copy(update={"mechanisms": (Ema(place),)})
    table = plans.rows(8, {"zero": zero})
    return evaluate(off, table), evaluate(plan, table)


@pytest.mark.parametrize(("zero", "ranks"), [(0, 1), (3, 8)])
def test_an_average_on_the_device_is_one_more_fp32_copy(zero: int, ranks: int) -> None:
    """4 bytes of each weight of a rank; a step reads average and weight, and writes the average."""
    off, on = _averaged("device", zero)
    owned = parameter_count(plans.model()) / ranks
    assert first(on.memory.components["weight_average"]) == pytest.approx(4 * owned)
    assert first(on.memory.peak - off.memory.peak) == pytest.approx(4 * owned)
    assert first(on.memory.host) == 0
    m = plans.numbers(on.plan)
    moved = 12 * owned / (m.memory_bandwidth * m.stream_frac)
    assert first(on.time.components["weight_average"]) == pytest.approx(moved)


def test_an_average_on_the_host_waits_for_its_copy() -> None:
    """Weights leave through pageable memory, and the CPU's update hides behind a long step."""
    off, on = _averaged("host", 3)
    owned = parameter_count(plans.model()) / 8
    assert "weight_average" not in on.memory.components
    assert first(on.memory.peak) == first(off.memory.peak)
    assert first(on.memory.host) == pytest.approx(4 * owned)
    m = plans.numbers(on.plan)
    copied = 4 * owned / min(m.host_copy_bandwidth, m.host_staged)
    assert first(on.time.components["weight_average"]) == pytest.approx(copied)
    slow = plans.numbers(on.plan, host_update=1.0)
    update = 20 * owned * on.plan.cluster.gpus_per_host
    waits = first(evaluate(on.plan, on.table, None, slow).time.components["weight_average"])
    rest = first(off.time.seconds - off.time.components["overhead"])
    assert waits == pytest.approx(copied + update - rest)


def test_an_average_needs_a_loop_of_ones_own() -> None:
    with pytest.raises(PlanError, match="does not have --ema device"):
        resolve(Options(**REQUEST, stack="megatron-core", ema="gpu"))  # type: ignore[call-arg]


def test_stacks_and_launch_files_that_a_module_names_are_there() -> None:
    modules = plugins.loaded("formats").values()
    formats = {module.FORMAT.kind: module.FORMAT for module in modules if hasattr(module, "FORMAT")}
    for each in MECHANISMS:
        for needed in each.NEEDS:
            assert {*needed.stacks} <= {*ids("stacks")}
            assert all(len(source) > 8 for source in needed.stacks.values())
        for kind, names in each.ARGUMENTS.items():
            arguments = {argument.name: argument.option for argument in formats[kind].table}
            assert names.items() <= arguments.items(), each.NAME


def test_a_stack_based_on_one_that_a_module_names_has_its_option(tmp_path: Path) -> None:
    file = tmp_path / "stack.toml"
    for text, had in (
        ('base = "megatron-core"', True),
        ('base = "gpt-neox"', False),
        ('base = "gpt-neox"\n[supports]\nmechanisms = ["fp8_mlp_input"]', True),
    ):
        file.write_text(f'id = "own"\ntitle = "Own"\nsource = "a test"\n{text}\n')
        assert has(load("stacks", StackSpec, str(file)), "fp8_mlp_input") is had
