"""Pipelines whose layers do not divide: which are searched, what their chunks hold."""

from __future__ import annotations

import plans

from planner.formulas.stages import contents
from planner.inputs import catalog
from planner.search import search
from planner.specs.layout import LayoutRequest
from planner.specs.model import ModelSpec


def test_uneven_stages_are_searched_where_layers_do_not_divide() -> None:
    """Eight layers on six GPUs: stages of three, three and two. Unequal chunks unless refused."""
    odd = plans.plan(gpus=6, global_batch=60, request=LayoutRequest(recompute="none"))
    estimates = search(odd).estimates
    assert estimates is not None
    assert set(estimates.table.pp) == {1.0, 2.0, 3.0, 6.0}

    def chunks(uneven: bool | None) -> set[int]:
        request = LayoutRequest(pp=2, schedule="interleaved", uneven_stages=uneven)
        estimates = search(plans.plan(plans.model(layers=20), request=request)).estimates
        assert estimates is not None
        return set(estimates.table.vpp.astype(int).tolist())

    assert chunks(False) == {2, 5, 10, 11}  # 11: with embedding and head as chunks
    # 5 and 9: the fewest and the most of at most two layers
    assert chunks(None) == chunks(True) == {2, 3, 4, 5, 9, 10, 11}


def test_models_get_the_pipelines_they_were_trained_with() -> None:
    """BLOOM: 70 layers on 12 stages; Llama 3 405B: 126 on 16, eight chunks each; both count
    embedding and head as layers. DeepSeek-V3: 61 on 16, 4 x 4, 2 x 8 and 8 x 2 chunks."""
    for name, gpus, pp, vpp in (
        ("bloom-176b", 384, 12, 1),
        ("llama-3.1-405b", 16384, 16, 8),
        *(("deepseek-v3", 2048, pp, vpp) for pp, vpp in ((16, 1), (4, 4), (2, 8), (8, 2))),
    ):
        shape = catalog.load("models", ModelSpec, name)
        request = LayoutRequest(tp=8 if vpp == 8 else 4, pp=pp, vpp=vpp, ep=1, recompute="full")
        searched = search(
            plans.plan(
                shape, gpus=gpus, gpus_per_node=8, global_batch=2048, seq_len=2048, request=request
            )
        )
        assert searched.estimates is not None, name
    none = search(plans.plan(plans.model(layers=6), gpus=8, request=LayoutRequest(pp=8, dp=1)))
    assert none.estimates is None  # eight stages of six layers


def test_the_chunks_of_deepseek_v3_are_those_of_its_recipes() -> None:
    """Megatron-Bridge, recipes/deepseek/h100/deepseek_v3.py: 4 layers in each of 15 chunks, one
    beside the head in the last."""
    shape = catalog.load("models", ModelSpec, "deepseek-v3")
    for pp, vpp in ((16, 1), (4, 4), (8, 2)):
        kept = contents(plans.plan(shape, software="megatron-core"), pp, vpp)
        assert kept.layers.reshape(-1).tolist() == [4] * 15 + [1]
        assert kept.kinds[0].reshape(-1).tolist() == [3, *[0] * 15]
    kept = contents(plans.plan(shape, software="megatron-core"), 16, 2)
    assert kept.layers.reshape(-1).tolist() == [2] * 30 + [1, 0]


def test_other_stacks_deal_layers_out_in_their_own_way() -> None:
    def layers(software: str) -> list[float]:
        plan = plans.plan(plans.model(layers=11), software=software)
        return contents(plan, 4, 1).layers.reshape(-1).tolist()

    assert layers("megatron-deepspeed") == [3, 3, 3, 2]
    assert layers("internevo") == [2, 3, 3, 3]  # partition_uniform: the last take one more
    # torchtitan: 13 with embedding and head, 4 3 3 3, of which both ends have one that is not a
    # layer
    assert layers("torchtitan") == [3, 3, 3, 2]
