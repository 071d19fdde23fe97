"""What a GPU-hour costs: one market per answer, from dated lists, unless the request states it."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from planner.formulas import run_level
from planner.inputs import catalog
from planner.ledger import Sourced
from planner.specs.base import PlanError
from planner.specs.cluster import ClusterTemplate
from planner.specs.options import Options
from planner.specs.options.numbers import number
from planner.specs.price import OWN, STATED, MarketSpec, Price, PriceList, Prices

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
    """What to know beside an amount at prices of this market, "" where nothing."""
    return next((one.note for one in markets() if one.id == market), "")


def preempted_after(options: Options) -> Sourced | None:
    """Running time of a host until it is taken back, at the kind of price that a request names;
    None where that keeps its machines."""
    word = (options.market or "").lower()
    found = (one for one in markets() if word == one.id or word in one.aliases)
    return next((one.preempted_after for one in found), None)


@dataclass(frozen=True)
class _Asked:
    """Which lists answer a request. market: the word for it; terms: of a named provider's own
    prices."""

    market: str
    terms: str
    lists: tuple[PriceList, ...]
    named: bool = False  # the lists are of one provider, or of a file: all of them answer


def _asked(market: str | None) -> _Asked:
    """The market, provider or file that `--market` names. Raises PlanError with near matches."""
    known = prices()
    if market is None:
        return _Asked(known.market[0].id, known.market[0].terms, known.list)
    if catalog.is_path(market):
        own = _list_of(market)
        return _Asked(own.market, own.market, (own,), named=True)
    word = market.lower()
    for one in known.market:
        if word == one.id or word in one.aliases:
            return _Asked(one.id, one.id, known.list)
    terms = known.market[0].terms
    offers = tuple(one for one in known.list if one.provider == word and _terms(one) == terms)
    if offers:
        return _Asked(word, terms, offers, named=True)
    words = [one.id for one in known.market]
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


def _terms(one: PriceList) -> str:
    return next(market.terms for market in markets() if market.id == one.market)


def price(options: Options, gpu: str, template: ClusterTemplate | None) -> Price:
    """What a GPU-hour of this request costs: as stated, of own hardware, of the cluster file, or of
    the market asked for.

    gpu: the profile's id. Raises PlanError for a market that is not known, and for options that
    exclude each other.
    """
    stated, market = number(options, "price"), options.market
    if options.capex is not None:
        return _own(options)
    if stated is not None:
        if market is not None:
            raise PlanError(
                "--market", market, "chooses among lists, and --price states the price: give one"
            )
        return _stated(Sourced(stated, "USD/h", "assumed", "stated in the request"))
    if template is not None and template.usd_per_gpu_hour is not None and market is None:
        return _stated(template.usd_per_gpu_hour)
    asked = _asked(market)
    known = {one.market: one for one in _offers(gpu, template, _asked(None).lists)}
    found = next(
        (one for one in _offers(gpu, template, asked.lists) if _answers(one, asked, template)), None
    )
    if found is None:
        return Price(market=asked.market, known=tuple(known))
    usd = found.usd_per_gpu_hour[gpu]
    return Price(
        market=found.market,
        usd_per_gpu_hour=Sourced(float(usd), "USD/h", "vendor", found.source, found.date),
        provider=found.title,
        known=tuple(known),
    )


def _offers(
    gpu: str, template: ClusterTemplate | None, lists: tuple[PriceList, ...]
) -> Iterator[PriceList]:
    """Price lists with this GPU; for a provider's cluster only the lists of that provider."""
    provider = template.provider if template else None
    return (
        one for one in lists if gpu in one.usd_per_gpu_hour and provider in (None, one.provider)
    )


def _answers(one: PriceList, asked: _Asked, template: ClusterTemplate | None) -> bool:
    if asked.named or one.market == asked.market:
        return True
    return template is not None and template.provider is not None and _terms(one) == asked.market


def _stated(usd: Sourced) -> Price:
    return Price(market=STATED, usd_per_gpu_hour=usd)


def _own(options: Options) -> Price:
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
