"""Recompute and offloading by module: names, and laws over all sets of modules and of results."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import plans
import pytest
from plans import flat_of

from planner.estimate import Estimates, evaluate
from planner.estimate.layer import model_cost
from planner.estimate.layer.shape import key_of
from planner.estimate.machine import machine
from planner.estimate.memory import PHASES, layer_activations
from planner.formulas.rules import RULES
from planner.ledger import Array
from planner.mechanisms.offload_modules import OffloadModules
from planner.specs.capabilities import lacks
from planner.specs.columns import Columns
from planner.specs.modules import MODULES, RESULTS
from planner.specs.names import (
    KEPT_RESULTS,
    RECOMPUTE_MODULES,
    REMAT_POLICIES,
    is_recompute,
    offload_modules_name,
    recompute_name,
    recompute_parts,
)
from planner.specs.plan import Plan
from planner.specs.where import constraint

LATENT = {
    "query_rank": 128,
    "kv_rank": 96,
    "nope_head_dim": 48,
    "rope_head_dim": 16,
    "value_head_dim": 40,
}
MOE = {"experts": 8, "experts_per_token": 2, "ffn_hidden": 320, "shared_ffn_hidden": 256}
FORWARD = PHASES.index("forward")


def every_module(**changes: Any) -> Plan:
    """A model that has all modules: latent attention, a dense layer, experts and a shared one."""
    shape = plans.model(latent=LATENT, moe={**MOE, "dense_layers": 1}, layers=4)
    return plans.plan(shape, software="megatron-core", gpus=8, global_batch=16, **changes)


def evaluated(plan: Plan, *recomputes: str, **layout: Any) -> Estimates:
    chosen = {"ep": 4, **layout}
    return evaluate(plan, plans.rows(8, *({**chosen, "recompute": name} for name in recomputes)))


def kept(estimates: Estimates) -> Array:
    """Activations of the first stage in the forward pass."""
    return estimates.memory.timeline[0][FORWARD]["activations"]


def sets_of(names: tuple[str, ...]) -> list[frozenset[str]]:
    sizes = range(1, len(names) + 1)
    return [
        frozenset(combination) for n in sizes for combination in itertools.combinations(names, n)
    ]


def test_names_have_one_spelling() -> None:
    assert recompute_name("moe_act+layernorm") == recompute_name("layernorm+moe-act")
    assert recompute_name("moe_act+layernorm") == "layernorm+moe_act"
    assert recompute_name("save_qkv_proj") == recompute_name("keep:qkv_proj") == "keep:qkv_proj"
    for name in (*RECOMPUTE_MODULES, *REMAT_POLICIES, "block:3", "group:2", "none", "full"):
        again = recompute_name(name)
        assert recompute_name(again) == again
    for wrong in (
        "mlp+",
        "+",
        "keep:",
        "keep:mlp",
        "keep",
        "modules",
        "full+mlp",
        "block",
        "mlp:2",
    ):
        assert not is_recompute(wrong), wrong
    with pytest.raises(ValueError, match=r"modules joined by \+ such as"):
        recompute_name("attn")
    with pytest.raises(ValueError, match="expert_fc1"):
        offload_modules_name("fc1")


def test_rows_of_modules_name_leaves_and_pieces_that_there_are() -> None:
    plan = every_module()
    table = plans.rows(8, {"ep": 4})
    kept = layer_activations(plan, table).keys()
    pieces = model_cost(plan, machine(plan), **key_of(table)).kinds[-1].pieces.keys()
    for row in MODULES.values():
        assert set(row.freed) <= kept
        assert set(row.pieces) <= pieces
    assert {piece for piece in RESULTS.values() if piece} <= pieces


def test_conditions_name_modules() -> None:
    from planner.search.where import holds

    plan = every_module()
    table = evaluated(plan, "none", "moe_act", "layernorm+moe_act").table
    for text, rows in (
        ("recompute = moe_act+layernorm", [False, False, True]),
        ("recompute != modules", [True, False, False]),
    ):
        assert holds(plan, constraint(text), table).tolist() == rows


def test_sets_of_modules_keep_less_and_take_longer() -> None:
    """Over all sets: one more module never keeps more, is never faster and never needs more; all of
    them keep no less than full recompute; what two share counts once."""
    plan, sets = every_module(), sets_of(RECOMPUTE_MODULES)
    estimates = evaluated(plan, "none", "full", *("+".join(entry) for entry in sets))
    each, seconds, peak = kept(estimates), estimates.time.seconds, estimates.memory.peak
    at = {frozenset[str](): 0} | {entry: 2 + i for i, entry in enumerate(sets)}
    for small, more in itertools.product(at, RECOMPUTE_MODULES):
        fewer, larger = at[small], at[small | {more}]
        assert each[larger] <= each[fewer]
        assert seconds[larger] >= seconds[fewer] * (1 - 1e-12)
        assert peak[larger] <= peak[fewer] * (1 + 1e-12)
        if more not in small and more != "core_attn" and not (more in PARTS and "moe" in small):
            assert each[larger] < each[fewer], (small, more)
            assert estimates.time.repeated_flop[larger] >= estimates.time.repeated_flop[fewer]
    assert each[at[frozenset(RECOMPUTE_MODULES)]] > each[1]
    saved = {name: each[0] - each[i] for name, i in at.items()}
    for a, b in itertools.combinations(at, 2):
        if not a & b and not (a | b) & {"moe"}:
            assert saved[a | b] == pytest.approx(saved[a] + saved[b], abs=1)
    assert saved[frozenset(PARTS)] < saved[frozenset({"moe"})] == saved[frozenset({*PARTS, "moe"})]


PARTS = ("moe_act", "shared_experts")  # modules of a mixture of experts


def test_what_is_repeated_by_hand() -> None:
    """FLOP of the modules of one layer, and the exchange of experts that is sent again."""
    plan = every_module()
    names = ("none", "mlp", "shared_experts", "mla_up_proj", "moe", "moe_act")
    result = evaluated(plan, *names)
    again = dict(zip(names, result.time.repeated_flop.tolist(), strict=True))
    h, tokens = float(plan.model.hidden), 2 * plan.training.seq_len
    assert again["none"] == again["moe_act"] == 0
    assert again["mlp"] == pytest.approx(tokens * 6 * h * flat_of(plan.model).ffn_hidden)
    assert again["shared_experts"] == pytest.approx(3 * tokens * 6 * h * 256)
    heads = flat_of(plan.model).heads
    up = 128 * heads * 64 + 96 * heads * (48 + 40)
    assert again["mla_up_proj"] == pytest.approx(4 * tokens * 2 * up)
    routed = 6 * h * (256 + 2 * 320) + 2 * h * 8
    assert again["moe"] == pytest.approx(3 * tokens * routed)
    sent = [
        sum(x.count[i] for x in result.time.traffic if x.component == "expert_parallel")
        for i in (names.index("moe_act"), names.index("moe"))
    ]
    assert sent[0] < sent[1] < 2 * sent[0]


def test_results_that_are_kept_save_time_for_memory() -> None:
    plan = plans.plan(plans.model(qk_norm="none"), software="maxtext", gpus=8, global_batch=16)
    sets = sets_of(KEPT_RESULTS)
    layout = {"ep": 1, "zero": 3}
    estimates = evaluated(
        plan, "none", "full", *(f"keep:{'+'.join(entry)}" for entry in sets), **layout
    )
    each, seconds = kept(estimates), estimates.time.seconds
    at = {frozenset[str](): 1} | {entry: 2 + i for i, entry in enumerate(sets)}
    for small, more in itertools.product(at, KEPT_RESULTS):
        fewer, larger = at[small], at[small | {more}]
        if more in small or more == "mlpwo":  # no backward reads it
            assert (each[fewer], seconds[fewer]) == (each[larger], seconds[larger])
        else:
            assert each[fewer] < each[larger] < each[0]
            assert seconds[fewer] > seconds[larger] > seconds[0]
    h, layers, tokens = plan.model.hidden, plan.model.layers, plan.training.seq_len
    qkv = at[frozenset({"qkv_proj"})]
    assert each[qkv] - each[1] == layers * tokens * 2 * 3 * h


def test_modules_that_leave_for_the_host() -> None:
    """Inputs of modules leave beside what is repeated and through pipelines; two sets together
    leave what each does."""

    def left(modules: str, recompute: str = "moe_act") -> tuple[float, float]:
        plan = every_module(
            mechanisms=(OffloadModules(tuple(modules.split("+"))),) if modules else ()
        )
        layout = {"pp": 2, "dp": 4, "vpp": 1, "offload": "activations"}
        result = evaluated(plan, recompute, **layout)
        table = plans.rows(8, {"ep": 4, **layout, "recompute": recompute})
        refused = [rule.name for rule in RULES if not rule.holds(plan, table).all()]
        assert refused == ([] if modules else ["offloaded activations supported"])
        return float(kept(result)[0]), float(result.memory.host[0])

    both, first, other = (left(m) for m in ("expert_fc1+attn_proj", "expert_fc1", "attn_proj"))
    everything = left("")
    assert both[1] == pytest.approx(first[1] + other[1])
    assert min(first[1], other[1]) > 0
    assert everything[0] < both[0] < min(first[0], other[0])
    # the input of the activation function stays where the module is not named
    assert left("moe_act")[1] > 0


def test_refused_where_the_model_or_the_stack_has_none() -> None:
    dense = plans.plan(plans.model(), software="megatron-core", gpus=8)

    def refused(plan: Plan, **layout: Any) -> dict[str, str]:
        table = plans.rows(8, layout)
        return {
            rule.name: rule.sentence(plan, table.layout(0))
            for rule in RULES
            if not rule.holds(plan, table).all()
        }

    reasons = refused(dense, recompute="mla_up_proj+mlp")
    assert "has no mla_up_proj" in reasons["modules are those of the model"]
    assert refused(dense, recompute="mlp") == {}
    reasons = refused(dense, recompute="keep:qkv_proj")
    assert "does not have --recompute keep:qkv_proj" in reasons["supported by the stack"]
    fsdp = plans.plan(software="pytorch-fsdp", gpus=8).stack
    (lack,) = lacks(fsdp, {"offload": "activations", "offload_modules": "attn_proj"})
    assert str(lack) == "--offload-modules attn_proj (it has none)"


def test_a_row_of_modules_is_the_row_of_the_table() -> None:
    result = Columns.of([plans.layout(8, recompute="moe+core_attn")])
    assert result.layout(0).recompute == "core_attn+moe"
    assert recompute_parts("core_attn+moe")[1] == 2**0 + 2**5
    assert np.array_equal(result.repeats_module("moe"), [True])
    assert not result.repeats_module("moe_act")[0]
