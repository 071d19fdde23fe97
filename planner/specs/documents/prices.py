"""Documents: the prices that an answer rests on, and what would be the cheapest at others."""

from __future__ import annotations

from typing import Annotated

from planner.specs.document import Document, key


class PricedMachine(Document):
    """Hourly price of one kind of GPU or cluster."""

    machine: Annotated[str, key("GPU or cluster, as the request names it")]
    usd_per_gpu_hour: Annotated[
        float | None, key("price; null: none of this kind is known", "USD/h")
    ]
    market: Annotated[str, key("kind of price, as `cluster.price_market`")]
    source: Annotated[str | None, key("kind, provider and date, as `cluster.price_source`")]
    missing: Annotated[str | None, key("why there is none, as `cluster.price_missing`")]


class Cheapest(Document):
    """The cheapest choice in one market."""

    market: Annotated[str, key("kind of price")]
    label: Annotated[str, key("the cheapest request or GPU there")]
    cost_usd: Annotated[float, key("its cost there, per `prices.per`", "USD")]
    source: Annotated[str | None, key("kind, provider and date of its price")]
    priced: Annotated[int, key("kinds of machine that have a price there")]


class Prices(Document):
    """The prices of an answer: one market for all, unless requests ask for several."""

    markets: Annotated[list[str], key("kinds of price of the answer; several only on request")]
    per: Annotated[str, key("what is paid for: run, million tokens or hour")]
    machines: Annotated[list[PricedMachine], key("every kind of GPU or cluster")]
    covering: Annotated[
        list[str], key("markets in which all have a price; empty: none, or nothing is missing")
    ]
    cheapest: Annotated[Cheapest | None, key("null: nothing that fits has a price")]
    notes: Annotated[list[str], key("what to know of the markets named here")]
    elsewhere: Annotated[
        list[Cheapest], key("markets in which another would be the cheapest, of two or more")
    ]
