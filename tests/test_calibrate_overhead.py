"""Overheads of a stack fitted from small decoders: synthetic steps return their parameters."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from node_records import SESSION, document

from planner.calibrate import cases, overhead, predict, profile
from planner.calibrate.cases import Case
from planner.calibrate.overhead import Tables

KERNELS_S, BANDWIDTH = 3e-4, 10e9
LAYER_S, STEP_S = 8e-4, 2e-3  # of a single rank
MORE_S = {"ddp": (3e-4, 5e-3), "fsdp": (4e-3, 9e-3)}  # of a layer and of a step, of ranks together
TENSOR_S = 6e-3  # of a layer and pass
MOVED = {"ddp": 9.0, "fsdp": 30.0}  # bytes per weight


def weights(case: Case) -> int:
    return case.layers * (4 * case.hidden**2 + 3 * case.hidden * case.ffn)


def number(tables: Tables, stack: str, table: str, name: str) -> float:
    return float(tables[stack].get(table, {}).get(name, {"value": 0.0})["value"])


def predicted(tables: Tables, case: Case) -> float:
    """Step time predicted only from numbers of the stack."""
    stack = predict._LAYOUTS[case.parallel][0]
    tensor = (case.layers + 1) * 2 * number(tables, stack, "launch", "tensor_idle")
    moved = number(tables, stack, "fusion", "weight_bytes_moved") * weights(case)
    return (
        case.layers * (KERNELS_S + number(tables, stack, "launch", "layer_idle"))
        + number(tables, stack, "launch", "step_overhead")
        + (tensor if case.parallel == "tensor" else 0.0)
        + moved / BANDWIDTH
    )


def took(case: Case) -> float:
    """Seconds of the case's step on a machine whose numbers are known."""
    layer_s, step_s = MORE_S.get(case.parallel, (0.0, 0.0))
    tensor = (case.layers + 1) * 2 * TENSOR_S if case.parallel == "tensor" else 0.0
    whole = case.layers * (KERNELS_S + LAYER_S + layer_s) + STEP_S + step_s + tensor
    return whole + MOVED.get(case.parallel, 0.0) * weights(case) / BANDWIDTH


@pytest.mark.parametrize("ranks", [2, 3, 8])
def test_numbers_of_stacks_are_recovered(ranks: int) -> None:
    steps = {case: took(case) for case in overhead.fitted_cases(ranks)}
    by_stack = overhead.stacks(steps, 1.0, True, "2026-11-22", predicted)
    assert number(by_stack, "torchtitan", "launch", "layer_idle") == pytest.approx(
        LAYER_S, rel=1e-3
    )
    assert number(by_stack, "torchtitan", "launch", "tensor_idle") == pytest.approx(
        TENSOR_S, rel=1e-3
    )
    for stack, parallel in (("pytorch-ddp", "ddp"), ("pytorch-fsdp", "fsdp")):
        # bytes that small layers move are not in the fixed time of a layer too
        layer_s, step_s = MORE_S[parallel]
        launch = {
            name: number(by_stack, stack, "launch", name)
            for name in ("layer_idle", "step_overhead")
        }
        assert launch["layer_idle"] == pytest.approx(LAYER_S + layer_s, rel=1e-3)
        assert launch["step_overhead"] == pytest.approx(STEP_S + step_s, rel=1e-3)
        assert number(by_stack, stack, "fusion", "weight_bytes_moved") == pytest.approx(
            MOVED[parallel], rel=1e-3
        )
        assert by_stack[stack]["overlap"]["prefetch"] is False  # nothing is gained from it


def test_without_one_of_its_decoders_a_stack_keeps_what_the_others_show() -> None:
    steps = {case: took(case) for case in overhead.fitted_cases(2)}
    light = {c: s for c, s in steps.items() if c != cases.of_weights("fsdp")}
    by_stack = overhead.stacks(light, 1.0, True, "2026-11-22", predicted)
    assert number(by_stack, "pytorch-fsdp", "fusion", "weight_bytes_moved") == 0.0
    assert number(by_stack, "pytorch-fsdp", "launch", "layer_idle") > LAYER_S + MORE_S["fsdp"][0]
    heavy = {c: s for c, s in steps.items() if c not in cases.shared("fsdp", 2)}
    by_stack = overhead.stacks(heavy, 1.0, True, "2026-11-22", predicted)
    assert number(by_stack, "pytorch-fsdp", "launch", "layer_idle") == pytest.approx(
        LAYER_S, rel=1e-3
    )
    assert number(by_stack, "pytorch-fsdp", "fusion", "weight_bytes_moved") > MOVED["fsdp"]


def test_ranks_divide_what_they_share() -> None:
    for ranks in (2, 3, 5, 8, 64):
        for case in cases.shared("tensor", ranks):
            assert cases.checked(case) == case
            assert {n % ranks for n in (case.heads, case.ffn, case.vocab)} == {0}


def test_a_rank_alone_shows_its_own_time_only() -> None:
    steps = {case: took(case) for case in overhead.fitted_cases(1)}
    by_stack = overhead.stacks(steps, None, True, "2026-11-22", predicted)
    for stack in by_stack:
        assert number(by_stack, stack, "launch", "layer_idle") == pytest.approx(LAYER_S, rel=1e-3)
        assert "tensor_idle" not in by_stack[stack]["launch"]
    assert overhead.stacks({}, None, True, "2026-11-22", predicted).keys() == by_stack.keys()


def test_ranks_that_take_no_longer_together_have_nothing_added() -> None:
    steps = {
        case: took(Case(**{**vars_of(case), "parallel": "single"}))
        for case in overhead.fitted_cases(2)
    }
    by_stack = overhead.stacks(steps, 0.2, True, "2026-11-22", predicted)
    assert number(by_stack, "torchtitan", "launch", "tensor_idle") == 0.0
    assert number(by_stack, "pytorch-fsdp", "launch", "layer_idle") == pytest.approx(
        LAYER_S, rel=1e-3
    )
    assert "prefetch" not in by_stack["pytorch-fsdp"]["overlap"]


def vars_of(case: Case) -> dict[str, Any]:
    return {name: getattr(case, name) for name in case.__struct_fields__}


def test_layers_that_stay_whole_are_gathered_once_a_step(tmp_path: Path) -> None:
    """FSDP that reshards gathers each layer twice, FSDP that does not once; neither is free where
    nothing is prefetched."""
    path = tmp_path / "node.toml"
    node = document(ranks=2, session=replace(SESSION, ranks=2, ranks_per_node=2))
    alone = {"gradient_sync": False, "sharded_sync": False, "prefetch": False}
    node["stacks"] = {"pytorch-fsdp": {"overlap": alone}}
    profile.write(node, path)

    def exposed_s(parallel: str) -> float:
        case = Case(6, 256, 4, 704, 512, 64, 1, parallel=parallel)
        where = {"gpu": node["gpu"], "ranks": 2, "precision": "fp32", "calibration": str(path)}
        return predict.predict(case, **where).communication_s

    layers = Case(6, 256, 4, 704, 512, 64, 1)
    moved_s = 4 * weights(layers) / 2 / 2e9  # half of all layers over the link of node_records
    started_s = 11 * 1.6e-4  # twelve calls against one
    gathered_s = exposed_s("fsdp") - exposed_s("fsdp-noreshard")
    assert moved_s < gathered_s < moved_s + started_s
    assert exposed_s("fsdp-noreshard") > 1.9 * moved_s  # one gather and one reduction
