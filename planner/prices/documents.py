"""The answer of `dpplan prices`."""

from __future__ import annotations

from typing import Annotated

from planner.specs.document import Document, key

__all__ = ["ANSWERS", "ListedPrice", "ListedPrices"]

ANSWERS = {"prices": "ListedPrices"}


class ListedPrice(Document):
    """The price of a GPU on one list."""

    gpu: Annotated[str, key("id of the GPU")]
    usd_per_gpu_hour: Annotated[float, key("price", "USD/h")]
    market: Annotated[str, key("kind of price")]
    provider: Annotated[str, key("who asks it")]
    date: Annotated[str, key("day or month of the price")]
    offers: Annotated[
        dict[str, int], key("machines on offer, types times regions, by their GPUs; empty: unknown")
    ]
    source: Annotated[str, key("where the price is from")]


class ListedPrices(Document):
    """Prices of GPUs, and the days of which there are any."""

    day: Annotated[str, key("day of the prices: shipped, or a date")]
    days: Annotated[list[str], key("days with prices; the last is the default of every cost")]
    file: Annotated[str | None, key("file that this fetch was kept in; null: nothing was fetched")]
    prices: Annotated[list[ListedPrice], key("by GPU, market and provider")]
    left_out: Annotated[dict[str, int], key("offers of this fetch that are not used, by why")]
