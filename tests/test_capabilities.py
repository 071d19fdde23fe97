"""Capabilities of stacks: every entry is sourced, and a request is refused where the table says
so."""

import ast
import itertools
import tomllib
from pathlib import Path
from typing import Any

import plans
import pytest

from planner import api
from planner.formats import recipe as formats
from planner.inputs import catalog
from planner.inputs.least import possible
from planner.inputs.scenario import resolve
from planner.search import allowed_layouts
from planner.specs.base import PlanError
from planner.specs.capabilities import CAPABILITIES, lacks
from planner.specs.stack import StackSpec, Supports

STACKS = {
    stack.id: stack
    for stack in catalog.load_all("stacks", StackSpec)
    if "gpu" in stack.accelerators
}
REQUEST = {"model": "llama3-8b", "gpu": "h100", "gpus": 16, "advice": 0}
EXPERTS = {**REQUEST, "model": "mixtral-8x7b"}
# for each option a value for each of its words, and what lets it act
BESIDE: dict[str, dict[str, Any]] = {
    "sequence_parallel": {"tp": 2},
    "schedule": {"pp": 2},
    "zeropp": {"zero": 3},
    "hpz": {"zero": 3},
    "sub_group_size": {"zero": 3},
    "offload_modules": {"offload": "activations"},
    "cp_comm_type": {"cp": 2},
    "transpose_weights": {"gpu": "h100", "precision": "fp8-delayed", "low_precision": "weights"},
    "placement": {"pp": 2},
    "tp_overlap": {"tp": 2, "sequence_parallel": True},
    "base_precision": {"lora": 16},
    "dispatcher": {"ep": 8},
    "etp": {"tp": 2},
    "ep_overlap": {"ep": 8},
    "shard_group": {"zero": 3, "dp": 16},
    "loss_chunks": {"loss_kernel": "chunked"},  # tiles of another kernel have a fixed size
    "optimizer_in_backward": {"gpus": 1, "global_batch": 1, "micro_batch": 1},
}
OF_EXPERTS = ("ep", "etp", "dispatcher", "ep_overlap")
SPELLED: dict[tuple[str, str], Any] = {
    ("recompute", "block"): "block:2",
    ("recompute", "group"): "group:2",
    ("recompute", "modules"): "core_attn+mlp",
    ("recompute", "keep"): "keep:qkv_proj",
}
ON: dict[str, Any] = {"hpz": 8, "sub_group_size": 10**8, "shard_group": 8, "lora": 16}
ON |= {"loss_chunks": 8, "etp": 2}
ON |= {"optimizer_in_backward": True, "tp": 2, "pp": 2, "cp": 2, "ep": 8, "base_precision": "nf4"}
TABLE = ("supports", "tensor_ways")  # keys of a stack that its capabilities are made of
# stated by a layout of the model, by routing with shared experts, or by experts that it lacks
LEFT_OUT = ("pipeline_layout", "shared_expert_overlap")
UNLIKE: tuple[str, ...] = (
    "expert_fc1",
    "moe_act",
    "mamba",
    "moe_router",
    "moe_preprocess",
    "optimizer-nvme",
)
UNLIKE += ("params-optimizer-nvme", "params-nvme")


def requests() -> list[dict[str, Any]]:
    """A request for every word of every option."""
    out: dict[str, dict[str, Any]] = {}
    for entry in CAPABILITIES:
        if entry.option in LEFT_OUT or (entry.name and entry.name != "zero_with_pipeline"):
            continue
        for word in entry.words:
            value = SPELLED.get((entry.option, word), ON.get(entry.option, word))
            value = True if value == "on" else value
            base = EXPERTS if entry.option in OF_EXPERTS else REQUEST
            base = {**base, "gpu": "b200"} if word in ("mxfp8", "nvfp4") else base
            values = {**base, **BESIDE.get(entry.option, {}), entry.option: value}
            if word not in (*UNLIKE, "none"):
                out.setdefault(str(values), values)
    return list(out.values())


def recommended_by(error: PlanError) -> list[str]:
    """The stacks that a refusal recommends."""
    _, text, rest = str(error).partition("take --stack ")
    return rest.replace(" or ", ", ").split(", ") if text else []


@pytest.mark.parametrize("part", [6, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("at", "given"),
    list(enumerate(requests())),
    ids=lambda value: str([*value.items()][4:]) if isinstance(value, dict) else str(value),
)
def test_a_request_is_refused_where_the_table_says_so(
    at: int, given: dict[str, Any], part: int
) -> None:
    """By the stacks in turn: a sixth of them for each request."""
    for name, stack in itertools.islice(STACKS.items(), at % part, None, part):
        options = api.read_options({**given, "stack": name})
        lacking = lacks(stack, vars(options))
        try:
            scenario = resolve(options)
            assert any(possible(plan, scenario.options) for plan in scenario.plans), name
            refused = None
        except PlanError as error:
            refused = error
        says = refused is not None and "does not have" in str(refused)
        assert says == bool(lacking), (name, str(refused), list(map(str, lacking)))
        assert name not in (recommended_by(refused) if refused else []), str(refused)


@pytest.mark.parametrize("given", requests()[::4], ids=lambda given: str(list(given.items())[4:]))
def test_what_a_refusal_recommends_accepts_the_request(given: dict[str, Any]) -> None:
    recommended: set[str] = set()
    for name, stack in itertools.islice(STACKS.items(), 0, None, 5):
        options = api.read_options({**given, "stack": name})
        if lacks(stack, vars(options)):
            with pytest.raises(PlanError) as refused:
                resolve(options)
            recommended |= {*recommended_by(refused.value)}
    for name in recommended:
        options = api.read_options({**given, "stack": name, "stack_defaults": True})
        assert any(allowed_layouts(plan).count for plan in resolve(options).plans), name


def test_a_stack_that_takes_the_place_of_the_default_is_named() -> None:
    plain = {**REQUEST, "stack_defaults": True}
    for request, stack, typed in (
        ({"schedule": "zb-v", "pp": 4}, "torchtitan", "--schedule zb-v"),
        ({"schedule": "zb-2p", "pp": 4}, "zero-bubble", "--schedule zb-2p"),
        ({"tp_overlap": "async", "tp": 2}, "torchtitan", "--tp-overlap async"),
        # which act only under ZeRO-3
        ({"hpz": 8}, "deepspeed", "--hpz 8"),
        ({"zeropp": "qwz"}, "deepspeed", "--zeropp qwz"),
        ({"sub_group_size": 1e8}, "deepspeed", "--sub-group-size 100000000.0"),
    ):
        estimate = api.estimate(api.read_options({**plain, **request}), brief=True)
        assert estimate.stack.id == stack
        assert f"stack: {stack}, since megatron-core lacks {typed}" in estimate.assumptions
    estimate = api.estimate(api.read_options({**plain, "compile": True}), brief=True)
    assert any(
        "since megatron-core lacks --compile" in assumption for assumption in estimate.assumptions
    )
    estimate = api.estimate(api.read_options(plain), brief=True)
    assert not any("lacks" in assumption for assumption in estimate.assumptions)


def test_every_capability_that_a_file_states_has_its_source() -> None:
    for name in STACKS:
        stated = tomllib.loads((catalog.folder("stacks") / f"{name}.toml").read_text("utf-8"))
        supports = stated.get("supports", {})
        sources = supports.pop("sources", {})
        sourced = list(itertools.chain.from_iterable(sources.values()))
        assert sorted(sourced) == sorted(supports), name
        assert all(len(source) > 8 for source in sources)


def test_every_word_of_a_stack_is_one_of_the_option() -> None:
    for entry in CAPABILITIES:
        for stack in STACKS.values():
            assert {*entry.all_of(stack)} <= {*entry.words}, (entry.option, stack.id)
        values = {entry.all_of(stack) for stack in STACKS.values()}
        assert len(values) > 1, f"no two stacks differ in {entry.option}"
    assert {*Supports.model_fields} >= {"schedules", "sources"}


def test_nothing_but_the_table_reads_what_a_stack_supports() -> None:
    root = Path(api.__file__).parent.parent
    entries = (root / "planner" / "mechanisms").glob("*.py")  # are part of the table
    tables = {root / "planner" / "specs" / "capabilities.py", *entries}
    folders = [root / name for name in ("planner", "web", "check", "docs", "benchmarks")]
    for path in itertools.chain.from_iterable(folder.rglob("*.py") for folder in folders):
        text = path.read_text("utf-8")
        if path in tables or not any(key in text for key in TABLE):
            continue
        nodes = (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Attribute))
        assert not [f"{path.name}:{node.lineno}" for node in nodes if node.attr in TABLE]


def test_the_least_layout_is_what_rules_are_asked_about() -> None:
    """The nearest values that a rule names satisfy its own condition."""
    from planner.formulas.rules import RULES
    from planner.specs.columns import Columns

    plan = plans.plan(gpus=64, global_batch=64)
    for chosen, option in (
        ({"tp": 3, "dp": 1}, "tp"),
        ({"micro_batch": 3}, "micro_batch"),
        ({"pp": 5, "vpp": 7, "schedule": "interleaved"}, "pp"),
    ):
        layout = plans.layout(64 if option == "micro_batch" else 15 * 7, **chosen)
        for rule in RULES:
            if option in rule.near and not rule.holds(plan, Columns.of([layout]))[0]:
                text = rule.sentence(plan, layout).split("nearest: ")[1]
                flag = f"--{option.replace('_', '-')} "
                value = int(text.split(flag)[1].split()[0].rstrip(",;"))
                near = layout.model_copy(update={option: value})
                assert rule.holds(plan, Columns.of([near]))[0], text


def test_what_a_stack_has_on_one_gpu_alone_is_refused_on_several() -> None:
    """LitGPT quantises frozen weights on one device."""
    values = {"model": "llama-3.1-8b", "gpu": "h100", "lora": 16, "base_precision": "nf4"}
    quantised = {**values, "stack": "lightning-fsdp"}
    assert api.estimate(api.read_options({**quantised, "gpus": 1})).memory.fits
    with pytest.raises(PlanError, match=r"on several GPUs\); leave it out, or take --stack"):
        api.estimate(api.read_options({**quantised, "gpus": 8}))


def test_a_target_states_no_condition_that_its_stack_has_anyway() -> None:
    """Capabilities belong in the stack's file; `where` has only what it cannot state."""
    values = {"model": "mixtral-8x7b", "gpu": "h100", "gpus": 8}
    for target in formats.targets():
        for name, conditions in target.where.items():
            for condition in conditions:
                opposite = {"zero = 3": "zero <= 2", "zero >= 2": "zero <= 1", "cp = 1": "cp >= 2"}
                other = opposite.get(condition, condition.replace("= none,full", "!= none,full"))
                assert other != condition
                options = api.read_options({**values, "stack": name, "where": (other,)})
                layouts = [allowed_layouts(plan).count for plan in resolve(options).plans]
                assert any(layouts), (target.kind, condition)
