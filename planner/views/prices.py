"""The prices of an answer as text: which market, what is the cheapest there and elsewhere."""

from __future__ import annotations

from planner.specs.documents.prices import Cheapest, Prices
from planner.units import show
from planner.views.view import Block


def prices_block(prices: Prices) -> Block:
    """Every machine with its price, named; and which have none."""
    block = Block(
        f"Prices: {' and '.join(prices.markets) or 'none known'}",
        header=["machine", "per GPU-hour|USD", "kind, provider, date"],
        rows=[
            [machine.machine, machine.usd_per_gpu_hour, machine.source or ""]
            for machine in prices.machines
            if machine.usd_per_gpu_hour is not None
        ],
        order="as requested",
    )
    if len(prices.markets) > 1:
        block.text.append(
            "these are different kinds of price; --market gives all the same, where it is listed"
        )
    block.text += _missing_lines(prices)
    block.below += prices.notes
    return block


def _missing_lines(prices: Prices) -> list[str]:
    """Machines without a price, together where they have one on the same other lists."""
    missing: dict[str, list[str]] = {}
    for machine in prices.machines:
        if machine.missing is not None:
            missing.setdefault(machine.missing, []).append(machine.machine)
    if not missing:
        return []
    covering = (
        f"--market {' or '.join(prices.covering)} has a price of all"
        if prices.covering
        else "no market has a price of all"
    )
    return [
        *(f"{why}: {', '.join(machines)}" for why, machines in missing.items()),
        f"{covering}; --price or --market FILE states your own",
    ]


def cheapest_lines(prices: Prices) -> list[str]:
    """The cheapest at these prices, and at others; empty where there is nothing to choose."""
    if len(prices.machines) < 2 or prices.cheapest is None:
        return []
    return [f"cheapest: {_sentence(prices.cheapest, prices)}", *elsewhere_lines(prices)]


def elsewhere_lines(prices: Prices) -> list[str]:
    """The cheapest in other markets, where it differs."""
    return [
        f"at {cheapest.market} prices: {_sentence(cheapest, prices)}"
        for cheapest in prices.elsewhere
    ]


def _sentence(cheapest: Cheapest, prices: Prices) -> str:
    kinds = len(prices.machines)
    counted = (
        "" if cheapest.priced == kinds else f"; {cheapest.priced} of {kinds} have such a price"
    )
    cost = show(cheapest.cost_usd, "USD")
    return f"{cheapest.label}, {cost} per {prices.per} ({cheapest.source}{counted})"
