"""The clock under load: the profile's, a cluster's own, and what a power limit leaves of it."""

from __future__ import annotations

from typing import Any

import plans
import pytest
from not_none import not_none

from planner import api
from planner.estimate.machine import machine
from planner.estimate.machine.clock import sustained_clock
from planner.inputs.cluster import cluster_spec
from planner.specs.base import PlanError
from planner.specs.options import Options


def clock(gpu: str = "a100", **options: Any) -> float:
    cluster, _ = cluster_spec(Options(model="gpt2", gpu=gpu, gpus=8, **options))
    return float(sustained_clock(plans.plan().model_copy(update={"cluster": cluster})))


def test_the_usual_clock_is_the_profile_s() -> None:
    cluster, _ = cluster_spec(Options(model="gpt2", gpu="a100", gpus=8))
    assert clock() == float(cluster.gpu.kernels.sustained_clock)


def test_a_clock_that_is_known_wins() -> None:
    assert clock(clock=0.95) == 0.95
    assert clock(clock=0.95, power_limit="200 W") == 0.95


def test_half_the_power_leaves_the_cubic_root_of_a_half() -> None:
    # an A100 is limited at its own 400 W already, so 200 W leave (1/2)^(1/3) = 0.794 of its clock
    assert clock(power_limit="200 W") / clock() == pytest.approx(0.5 ** (1 / 3))
    assert clock(power_limit="400 W") == pytest.approx(clock())


def test_a_card_with_power_to_spare_keeps_its_clock() -> None:
    # an RTX 4090 needs about 198 W for its 165.2 TFLOP/s at 1.2 pJ each
    assert clock("rtx4090", power_limit="250 W") == pytest.approx(clock("rtx4090"))
    assert clock("rtx4090", power_limit="100 W") < clock("rtx4090")


def test_fp8_gains_where_power_limits_and_nowhere_else() -> None:
    def fp8(gpu: str) -> float:
        cluster, _ = cluster_spec(Options(model="gpt2", gpu=gpu, gpus=8))
        plan = plans.plan().model_copy(update={"cluster": cluster})
        return float(
            machine(
                plan.model_copy(
                    update={"training": plan.training.model_copy(update={"precision": "fp8"})}
                )
            ).recipe_frac
        )

    assert fp8("rtx4090") == 1.0
    h100 = fp8("h100")
    assert 1.05 < h100 < 1.2
    assert h100 * clock("h100") <= 1.0 + 1e-12


@pytest.mark.parametrize("text", ["0 W", "-5 W", "401 W", "much"])
def test_an_impossible_limit_is_refused(text: str) -> None:
    with pytest.raises(PlanError, match="--power-limit"):
        clock(power_limit=text)


def test_no_law_for_an_architecture_nobody_fitted() -> None:
    with pytest.raises(PlanError, match="--clock"):
        clock("mi300x", power_limit="500 W")


def test_a_limit_costs_time_and_saves_energy() -> None:
    def answer(**more: object) -> dict[str, float]:
        given = {
            "model": "llama-2-7b",
            "gpu": "a100",
            "gpus": 8,
            "stack": "megatron-core",
            "tokens": "1B",
            **more,
        }
        out = api.estimate(Options(**given))  # type: ignore[arg-type]
        return {"step": out.step.seconds, "energy": not_none(out.run.energy_kwh)}

    usual, limited = answer(), answer(power_limit="250 W")
    assert limited["step"] > usual["step"]
    assert limited["energy"] < usual["energy"]
