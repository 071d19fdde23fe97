"""Prices: every one dated and of a kind, one kind per answer, a provider's clusters at its own, and
what would be the cheapest elsewhere."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
from command import dpplan, refused
from not_none import not_none

from planner import api
from planner.inputs import catalog
from planner.inputs.cluster import price_of
from planner.inputs.prices import markets, prices
from planner.specs.base import PlanError
from planner.specs.cluster import ClusterTemplate
from planner.specs.documents.compare import Comparison
from planner.specs.documents.run import Run
from planner.specs.options import Options
from planner.specs.options.own import CompareOptions
from planner.units import in_unit
from planner.verbs import compare

MARKETS = [market.id for market in markets()]
FIXED = {
    "model": "gpt2",
    "seq_len": 512,
    "global_batch": 512,
    "stack": "megatron-core",
    "tp": 1,
    "pp": 1,
    "micro_batch": 1,
    "recompute": "none",
    "tokens": "1B",
    "stack_defaults": True,
}


def listed(market: str | None = None, **machine: Any) -> tuple[str, float | None, str]:
    """Market, US dollars for a GPU-hour, and provider of a machine."""
    price = price_of(Options(model="gpt2", market=market, **machine))
    usd = price.usd_per_gpu_hour
    return price.market, None if usd is None else in_unit(float(usd), "USD/h"), price.provider


def test_every_price_names_an_exact_gpu_a_market_a_date_and_a_source() -> None:
    lists = prices().list
    assert {entry.market for entry in lists} == set(MARKETS)
    for item in lists:
        assert set(item.usd_per_gpu_hour) <= set(catalog.ids("gpus")), item.title
        assert "2026-01" < item.date < "2026-12"
        for usd in item.usd_per_gpu_hour.values():
            assert 0.1 < in_unit(float(usd), "USD/h") < 20  # base unit: USD per second
    keys = [
        (entry.provider, entry.market, gpu) for entry in lists for gpu in entry.usd_per_gpu_hour
    ]
    assert len(keys) == len(set(keys))
    terms = {market.id for market in markets() if market.terms == market.id}
    assert all(market.terms in terms for market in markets())


@pytest.mark.parametrize("market", [None, *MARKETS])
def test_every_gpu_has_a_price_of_the_market_asked_for_or_none(market: str | None) -> None:
    for gpu in catalog.ids("gpus"):
        result, usd, _ = listed(market, gpu=gpu)
        assert result == (market or MARKETS[0])
        on_lists = [entry for entry in prices().list if entry.market == result]
        assert (usd is None) == all(gpu not in on_list.usd_per_gpu_hour for on_list in on_lists)


def test_a_market_names_those_that_have_a_price() -> None:
    for gpu in catalog.ids("gpus"):
        known = price_of(Options(model="gpt2", gpu=gpu)).known
        assert set(known) == {m for m in MARKETS if listed(m, gpu=gpu)[1] is not None}


def test_a_providers_cluster_has_its_providers_price_or_none() -> None:
    owned = [c for c in catalog.load_all("clusters", ClusterTemplate) if c.provider]
    assert len(owned) > 9
    titles = {(entry.provider, entry.title) for entry in prices().list}
    for cluster, market in itertools.product(owned, [None, *MARKETS]):
        _, usd, title = listed(market, cluster=cluster.id)
        assert usd is None or (cluster.provider, title) in titles
    assert listed(cluster="aws-p5") == ("hyperscaler", 6.88, "AWS, us-east-1")
    assert listed(cluster="lambda-h100-8")[1:] == (3.99, "Lambda")
    assert listed("spot", cluster="aws-p5")[1] is None
    assert listed("hyperscaler", cluster="lambda-h100-8")[1] is None
    assert listed("hyperscaler", gpu="h100")[1] == listed(cluster="aws-p5")[1]


def test_a_market_may_be_a_provider_or_a_file(tmp_path: Path) -> None:
    assert listed("lambda", gpu="a100-sxm4-40gb")[1:] == (1.99, "Lambda")
    assert listed("aws", gpu="h200")[1] == 7.912
    assert listed("aws", gpu="rtx4090") == ("aws", None, "")
    assert listed("marketplace", gpu="rtx4090") == listed("community", gpu="rtx4090")
    quotes = tmp_path / "quotes.toml"
    head = 'provider = "mine"\ntitle = "my quotes"\nmarket = "quoted"\ndate = "2026-11"\n'
    quotes.write_text(head + 'source = "mail"\n[usd_per_gpu_hour]\nh100-sxm5-80gb = "2 USD/h"\n')
    assert listed(str(quotes), gpu="h100") == ("quoted", 2.0, "my quotes")
    assert listed(str(quotes), gpu="a100")[1] is None
    quotes.write_text(head)
    with pytest.raises(PlanError, match="source"):
        listed(str(quotes), gpu="h100")
    with pytest.raises(PlanError, match="did you mean on-demand"):
        listed("ondemand", gpu="h100")


GPUS = ["h100", "h200", "a800-sxm4-80gb", "rtx4090", "a100"]


def side_by_side(gpus: list[str], **given: object) -> Comparison:
    return compare.compare(
        CompareOptions(vary=(f"gpu={','.join(gpus)}",)), {**FIXED, "gpus": 8} | given
    )


@pytest.mark.parametrize("market", [None, "spot", "community", "hyperscaler", "survey-lowest"])
def test_no_comparison_mixes_kinds_of_price(market: str | None) -> None:
    given = {} if market is None else {"market": market}
    out = side_by_side(GPUS, **given)
    assert {p.cluster.price_market for p in out.points} == {market or MARKETS[0]}
    known = {p.label: p.run.cost_usd for p in out.points if p.run.cost_usd is not None}
    assert set(known) == {p.label for p in out.points if p.cluster.price_missing is None}
    cheapest = not_none(out.prices.cheapest)
    assert cheapest.label == min(known, key=lambda label: known[label])
    assert cheapest.cost_usd == pytest.approx(min(known.values()))
    assert "a800-sxm4-80gb" not in known or market == "survey-lowest"


def test_what_is_cheapest_elsewhere_is_what_is_cheapest_there() -> None:
    here = side_by_side(GPUS).prices
    assert here.covering == ["survey-lowest"]
    for item in here.elsewhere:
        other = side_by_side(GPUS, market=item.market).prices
        its = not_none(other.cheapest)
        assert its.label == item.label != not_none(here.cheapest).label
        assert its.cost_usd == pytest.approx(item.cost_usd)
        assert not other.elsewhere or its.market == item.market
    elsewhere = {entry.market for entry in here.elsewhere}
    interrupted = {market.id for market in markets() if market.preempted_after is not None}
    assert interrupted.isdisjoint(elsewhere)  # such runs take longer than on machines that stay
    for market in set(MARKETS) - interrupted - elsewhere - {MARKETS[0]}:
        cheapest = side_by_side(GPUS, market=market).prices.cheapest
        assert cheapest is None or cheapest.label == not_none(here.cheapest).label


def test_the_order_of_gpus_changes_nothing() -> None:
    first, other = (side_by_side(gpus).prices for gpus in (GPUS, GPUS[::-1]))
    assert (first.cheapest, first.elsewhere) == (other.cheapest, other.elsewhere)


def test_own_hardware_and_stated_prices_are_kinds_of_their_own() -> None:
    prices = side_by_side(["h100", "a100"], capex="30000").prices
    assert prices.markets == ["own"]
    assert prices.elsewhere == []
    mixed = compare.compare(
        CompareOptions(vary=("capex=search,30000",)), {**FIXED, "gpus": 8, "gpu": "h100"}
    )
    assert mixed.prices.markets == ["on-demand", "own"]
    for words, sentence in (
        ("--capex 3e4 --price 2", "--price"),
        ("--price 2 --market spot", "give one"),
    ):
        refused(
            dpplan("estimate", "--model", "gpt2", "--gpu", "a100", "--gpus", 8, *words.split()),
            sentence,
        )


def test_amounts_name_market_provider_and_date() -> None:
    words = ["--model", "gpt2", "--gpus", 8, "--tokens", "1B", "--seq-len", 512]
    words += ["--stack-defaults"]
    named = "on-demand, RunPod Secure Cloud, 2026-"
    assert named in dpplan("estimate", *words, "--gpu", "h100", "--advice", 0).stdout
    assert named in dpplan("compare", *words, "--vary", "gpu=h100,a100").stdout
    assert named in dpplan("search", *words, "--gpu", "h100", "--tp", 1, "--pp", 1).stdout
    missing = dpplan("estimate", *words, "--gpu", "a800", "--advice", 0).stdout
    assert "no price known of kind on-demand (listed: survey-lowest)" in missing


def test_hardware_that_costs_nothing_is_answered_and_never_the_cheapest() -> None:
    """Own machines that are paid for: no cost, no ratio to it, and nothing to compare."""
    request: tuple[object, ...] = (
        "--model",
        "gpt2",
        "--gpu",
        "h100",
        "--gpus",
        8,
        "--tokens",
        "1B",
    )
    request += ("--stack-defaults", "--price", 0)
    document = dpplan("search", *request, "--json").json()
    assert document["top"][0]["run"]["cost_usd"] == 0
    assert document["top"][0]["per_token"]["usd_per_million_tokens"] == 0
    assert document["top"][0]["per_token"]["tokens_per_usd"] is None
    refused(
        dpplan("search", *request, "--objective", "tokens-per-dollar"), "--objective", "costs 0"
    )
    two = ("compare", *request[:2], *request[4:], "--vary", "gpu=h100,a100")
    assert dpplan(*two, "--json").json()["prices"]["cheapest"] is None
    refused(dpplan(*two, "--at", "cost"), "--at", "cost nothing")
    electric = ("--capex", 0, "--electricity", 0.1)
    assert dpplan("estimate", *request[:-2], *electric, "--json").json()["run"]["cost_usd"] > 0


def test_spot_machines_are_taken_back() -> None:
    """Two nodes, each taken back after 4.4 h on average: the job stops every 2.2 hours and takes
    longer; a stated time between failures is taken as it is."""
    given = {"model": "llama-3.1-8b", "gpu": "h100", "gpus": 16, "tokens": "10B", "tp": 2, "pp": 1}
    given |= {"stack_defaults": True}
    given |= {"zero": 1, "stack": "megatron-core", "recompute": "none", "micro_batch": 1}

    def run(**more: Any) -> Run:
        return api.estimate(api.read_options({**given, **more}), brief=True).run

    kept, spot = run(), run(market="spot")
    stated = run(market="spot", mtbf="50000 GPU-hours")
    assert spot.reliability.taken_back_s == pytest.approx(2.2 * 3600)
    assert spot.reliability.mtbf_s == pytest.approx(2.2 * 3600, rel=0.01)
    assert spot.goodput < stated.goodput == pytest.approx(kept.goodput, abs=1e-3)
    assert run(market="preemptible").goodput == spot.goodput
    assert spot.reliability.nodes_in_repair == pytest.approx(kept.reliability.nodes_in_repair)


def test_a_notice_that_suffices_for_a_checkpoint_saves_the_work_since_the_last() -> None:
    """96 GB are written in 30 s at 20 GB/s and not to NFS: there the job checkpoints as often as it
    is stopped, here as often as it fails, and loses no more than the restarts."""
    given = {"model": "llama-3.1-8b", "gpu": "h100", "gpus": 16, "tokens": "10B", "tp": 2, "pp": 1}
    given |= {"stack_defaults": True}
    given |= {"zero": 1, "stack": "megatron-core", "recompute": "none", "micro_batch": 1}

    def run(**more: Any) -> Run:
        return api.estimate(api.read_options({**given, **more}), brief=True).run

    kept, saved = run(storage="20 GB/s"), run(market="spot", storage="20 GB/s")
    lost = run(market="spot", storage="nfs")
    assert saved.reliability.saved_in_notice
    assert not lost.reliability.saved_in_notice
    assert saved.reliability.interval_s == pytest.approx(kept.reliability.interval_s)
    assert lost.reliability.interval_s < run(storage="nfs").reliability.interval_s / 4
    r = saved.reliability
    stop_s = r.restart_s + r.checkpoint_write_s
    assert saved.goodput == pytest.approx(kept.goodput * (1 - stop_s / 7920), abs=0.002)
    assert lost.goodput < saved.goodput


def test_consumer_cards_fail_more_often() -> None:
    given = {"model": "gpt2", "gpus": 8, "tp": 1, "pp": 1, "micro_batch": 1, "recompute": "full"}
    given |= {"stack": "pytorch-ddp", "zero": 0}

    def hours(gpu: str) -> float:
        estimate = api.estimate(api.read_options({**given, "gpu": gpu}), brief=True)
        return estimate.run.reliability.mtbf_gpu_s / 3600

    assert hours("rtx4090") == hours("rtx3090") == pytest.approx(14_000)
    assert hours("h100") == hours("a100") == hours("rtx6000-ada") == pytest.approx(50_677, rel=1e-4)


def test_spot_can_cost_more_than_machines_that_are_kept() -> None:
    given = {"model": "llama-3.1-8b", "gpu": "h100", "gpus": 128, "tokens": "200B", "tp": 2}
    given |= {"stack_defaults": True}
    given |= {"pp": 1, "zero": 1, "stack": "megatron-core", "recompute": "none"}
    dear, cheap = (
        api.estimate(api.read_options({**given, "market": market}), brief=True)
        for market in ("spot", "on-demand")
    )
    assert not_none(dear.cluster.usd_per_gpu_hour) < not_none(cheap.cluster.usd_per_gpu_hour)
    assert not_none(dear.run.cost_usd) > not_none(cheap.run.cost_usd)
    assert any("taken back" in assumption for assumption in dear.assumptions)
