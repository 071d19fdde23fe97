"""Price of a GPU-hour: of the request, else from dated lists, one market per answer."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from planner.formulas import run_level
from planner.inputs import catalog, price_history
from planner.ledger import Sourced
from planner.specs.base import PlanError
from planner.specs.cluster import ClusterTemplate
from planner.specs.options import Options
from planner.specs.options.numbers import number
from planner.specs.price import OWN, STATED, MarketSpec, Price, PriceList, Prices

SHIPPED = "shipped"  # the day of the lists that are part of the package
_YEAR_S = 365.25 * 86400.0


@cache
def prices() -> Prices:
    """Shipped markets and lists."""
    name = "prices.toml"
    return catalog.build(
        Prices, catalog.read_toml(catalog.profiles_folder() / name, name), name, name
    )


def markets() -> tuple[MarketSpec, ...]:
    """Kinds of price, the default first."""
    return prices().market


def caution(market: str) -> str:
    """Caution on amounts at prices of this market, "" for none."""
    return next((listed.note for listed in markets() if listed.id == market), "")


def taken_back(options: Options) -> MarketSpec | None:
    """The kind of price that a request names, where its machines are taken back."""
    word = (options.market or "").lower()
    matching = (market for market in markets() if word == market.id or word in market.aliases)
    return next((market for market in matching if market.preempted_after is not None), None)


@dataclass(frozen=True)
class _Asked:
    """Which lists answer a request. market: the word for it; terms: of a named provider's own
    prices."""

    market: str
    terms: str
    lists: tuple[PriceList, ...]
    named: bool = False  # the lists have one provider, or come from a file: all of them answer


def lists_of(day: str | None) -> tuple[PriceList, ...]:
    """Lists of a day: those fetched then, before the shipped ones for what they lack.

    day: of `dpplan prices`, or "shipped"; None takes the newest that was fetched. Raises PlanError
    for a day of which nothing was fetched.
    """
    shipped = prices().list
    known = price_history.days()
    if day == SHIPPED or (day is None and not known):
        return shipped
    if day is not None and day not in known:
        raise PlanError(
            "--price-day",
            day,
            f"days with prices are {', '.join((SHIPPED, *known))}; dpplan prices --update fetches"
            " those of today",
        )
    return (*price_history.lists(day or known[-1]), *shipped)


def _market_of(market: str | None, day: str | None = None) -> _Asked:
    """The market, provider or file that `--market` names. Raises PlanError with near matches."""
    known = Prices(market=prices().market, list=lists_of(day))
    if market is None:
        return _Asked(known.market[0].id, known.market[0].terms, known.list)
    if catalog.is_path(market):
        given = _list_of(market)
        return _Asked(given.market, given.market, (given,), named=True)
    word = market.lower()
    for listed in known.market:
        if word == listed.id or word in listed.aliases:
            return _Asked(listed.id, listed.id, known.list)
    terms = known.market[0].terms
    offers = tuple(
        listed for listed in known.list if listed.provider == word and _terms(listed) == terms
    )
    if offers:
        return _Asked(word, terms, offers, named=True)
    words = [listed.id for listed in known.market]
    close = difflib.get_close_matches(word, [*words, *(x.provider for x in known.list)], n=1)
    raise PlanError(
        "--market",
        market,
        (f"did you mean {close[0]}? " if close else "")
        + f"markets are {', '.join(words)}; providers with a list are"
        f" {', '.join(sorted({x.provider for x in known.list if _terms(x) == terms}))}",
    )


def _list_of(path: str) -> PriceList:
    """A user's own list of prices. Raises PlanError for what is wrong with the file."""
    field = "--market"
    return catalog.build(
        PriceList, catalog.read_toml(catalog.user_path(path, field), field), field, path
    )


def _terms(listed: PriceList) -> str:
    return next(market.terms for market in markets() if market.id == listed.market)


def price(options: Options, gpu: str, template: ClusterTemplate | None) -> Price:
    """Price of a GPU-hour of this request: as stated, of own hardware, of the cluster file, or of
    its market.

    gpu: the profile's id. Raises PlanError for an unknown market, and for options that exclude each
    other.
    """
    stated, market = number(options, "price"), options.market
    if options.capex is not None:
        return _depreciation(options)
    if stated is not None:
        if market is not None:
            raise PlanError(
                "--market", market, "chooses among lists, and --price states the price: give one"
            )
        return _stated(Sourced(stated, "USD/h", "assumed", "stated in the request"))
    if template is not None and template.usd_per_gpu_hour is not None and market is None:
        return _stated(template.usd_per_gpu_hour)
    request = _market_of(market, options.price_day)
    everywhere = _market_of(None, options.price_day).lists
    known = {offer.market: offer for offer in _offers(gpu, template, everywhere)}
    answer = next(
        (
            offer
            for offer in _offers(gpu, template, request.lists)
            if _answers(offer, request, template)
        ),
        None,
    )
    if answer is None:
        return Price(market=request.market, known=tuple(known))
    usd = answer.usd_per_gpu_hour[gpu]
    return Price(
        market=answer.market,
        usd_per_gpu_hour=Sourced(float(usd), "USD/h", "vendor", answer.source, answer.date),
        provider=answer.title,
        offers=answer.offers.get(gpu, {}),
        known=tuple(known),
    )


def _offers(
    gpu: str, template: ClusterTemplate | None, lists: tuple[PriceList, ...]
) -> Iterator[PriceList]:
    """Price lists with this GPU; for a provider's cluster only the lists of that provider."""
    provider = template.provider if template else None
    return (
        listed
        for listed in lists
        if gpu in listed.usd_per_gpu_hour and provider in (None, listed.provider)
    )


def _answers(listed: PriceList, request: _Asked, template: ClusterTemplate | None) -> bool:
    if request.named or listed.market == request.market:
        return True
    return (
        template is not None and template.provider is not None and _terms(listed) == request.market
    )


def _stated(usd: Sourced) -> Price:
    return Price(market=STATED, usd_per_gpu_hour=usd)


def _depreciation(options: Options) -> Price:
    """Depreciation of own hardware; electricity comes on top. Raises PlanError where a rental price
    is given, too."""
    for name in ("price", "market"):
        if getattr(options, name) is not None:
            raise PlanError(
                "--capex",
                options.capex,
                "own hardware has no price per hour; leave out --price and --market",
            )
    lifetime_s, use_frac = depreciation(options)
    capex = number(options, "capex")
    assert capex is not None
    usd = float(run_level.owned_usd(1.0, capex, lifetime_s, use_frac))
    source = (
        f"{capex:,.0f} USD per GPU over {lifetime_s / _YEAR_S:g} years, {use_frac:.0%} of them"
        " earning, and electricity beside it"
    )
    return Price(market=OWN, usd_per_gpu_hour=Sourced(usd, "USD/h", "assumed", source))


def depreciation(options: Options) -> tuple[float, float]:
    """Lifetime of own hardware in seconds, and the share of it in which it earns."""
    lifetime_s = number(options, "lifetime") or run_level.LIFETIME_YEARS * _YEAR_S
    return lifetime_s, number(options, "use") or run_level.USE_FRAC
