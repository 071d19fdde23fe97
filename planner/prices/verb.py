"""`dpplan prices`: the lists of a day, or a fetch of today's."""

from __future__ import annotations

import datetime
from collections import Counter
from importlib.metadata import version

from planner.error import PlanError
from planner.inputs import catalog, price_history
from planner.inputs.prices import SHIPPED, prices
from planner.prices import feeds
from planner.prices.documents import ListedPrice, ListedPrices
from planner.prices.options import PricesOptions
from planner.specs.hardware import GpuSpec
from planner.specs.price import PriceList, offered
from planner.units import in_unit
from planner.views.view import Block, View


def answer(options: PricesOptions) -> ListedPrices:
    """Prices of a GPU on every day, or of all GPUs on the newest; of today where `update` is set.

    Raises PlanError for an unknown GPU, and where nothing can be fetched or kept; then the prices
    of earlier days stay as they are.
    """
    if options.feed is not None and not options.update:
        raise PlanError("--feed", options.feed, "is read by --update: give it, too")
    gpu = None if options.gpu is None else catalog.load("gpus", GpuSpec, options.gpu).id
    left_out: Counter[str] = Counter()
    file = None
    if options.update:
        fetched, left_out = _fetched(options.feed)
        file = str(price_history.written(fetched[0].date, fetched))
    days = (SHIPPED, *price_history.days())
    shown = days if gpu else days[-1:]
    rows = [row for day in reversed(shown) for row in _rows(_lists(day), gpu)]
    return ListedPrices(
        day=days[-1], days=list(days), file=file, prices=rows, left_out=dict(left_out.most_common())
    )


def _fetched(feed: str | None) -> tuple[list[PriceList], Counter[str]]:
    day = datetime.datetime.now(datetime.UTC).date().isoformat()
    if feed is None:
        offers = feeds.gpuhunt()
        source = f"gpuhunt {version('gpuhunt')}, catalogue of {day}"
    else:
        offers, source = feeds.skypilot(feed), f"SkyPilot catalogue, file read on {day}"
    fetched, left_out = feeds.lists(offers, day, source)
    if not fetched:
        raise PlanError(
            "--update",
            feed,
            f"{len(offers)} offers, none of a GPU with a profile; prices stay as they are",
        )
    return fetched, left_out


def _lists(day: str) -> tuple[PriceList, ...]:
    return prices().list if day == SHIPPED else price_history.lists(day)


def _rows(lists: tuple[PriceList, ...], gpu: str | None) -> list[ListedPrice]:
    order = [market.id for market in prices().market]
    rows = [
        ListedPrice(
            gpu=name,
            usd_per_gpu_hour=in_unit(float(usd), "USD/h"),
            market=entry.market,
            provider=entry.title,
            date=entry.date,
            offers=entry.offers.get(name, {}),
            source=entry.source,
        )
        for entry in lists
        for name, usd in entry.usd_per_gpu_hour.items()
        if gpu in (None, name)
    ]
    return sorted(rows, key=lambda row: (row.gpu, order.index(row.market)))


def view(document: ListedPrices) -> View:
    """Prices as a table, and what a fetch left out."""
    listed_on = "prices of the package" if document.day == SHIPPED else f"prices of {document.day}"
    remarks = [f"{listed_on}; days: {', '.join(document.days)} (--price-day of any plan)"]
    if document.file:
        remarks.append(f"kept in {document.file}")
    block = Block(
        "Prices of GPUs, US dollars per GPU-hour",
        remarks,
        header=["gpu", ">USD/h", "market", "provider", "date", "largest machine"],
        order="by GPU; of a market the first is taken",
        drop=("largest machine", "date"),
    )
    block.rows = [
        [
            row.gpu,
            f"{row.usd_per_gpu_hour:,.2f}",
            row.market,
            row.provider,
            row.date,
            *(offered(row.offers) or ["-"]),
        ]
        for row in document.prices
    ]
    if not document.left_out:
        return View.of([block])
    left = Block("Offers left out", header=["why", ">offers"], order="the most first")
    left.rows = [[why, f"{count:,}"] for why, count in document.left_out.items()]
    return View.of([block, left])
