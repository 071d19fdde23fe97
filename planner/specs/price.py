"""Hourly price of a GPU: kinds of price, lists of prices, and the price of a request."""

from typing import Annotated

from pydantic import Field

from planner.ledger import Sourced
from planner.specs.base import Names, Quantity, Seconds, Spec
from planner.specs.hardware import Id
from planner.units import in_unit

UsdPerHour = Annotated[Sourced, Quantity("USD/h", exclusive=False)]

STATED = "stated"  # the market of a price that the request, or its cluster file, states
OWN = "own"  # the market of hardware that is bought


class MarketSpec(Spec):
    """A kind of price. Prices of two markets are compared only on request."""

    id: Id
    aliases: Names = ()
    title: str
    terms: Id  # the market whose prices a named provider's own are
    note: str = ""  # what to know beside an amount at such prices
    preempted_after: Seconds | None = None  # running time of a host until it is taken back
    notice: Seconds | None = None  # from the word that it will be


class PriceList(Spec):
    """Hourly GPU prices by one provider or survey on one day."""

    provider: Id
    title: str  # of the provider for people, with region or tier
    market: Id
    date: str = Field(pattern=r"^20\d\d-\d\d(-\d\d)?$")
    source: str = Field(min_length=1)
    usd_per_gpu_hour: dict[Id, UsdPerHour]  # by GPU
    # by GPU: machines on offer (a type in a region is an offer) by how many GPUs they have
    offers: dict[Id, dict[str, int]] = Field(default={})


class PriceFile(Spec):
    """Prices that were fetched on a day."""

    list: Annotated[tuple[PriceList, ...], Field(strict=False)]


class Prices(PriceFile):
    """The file of prices; the first market is the default."""

    market: Annotated[tuple[MarketSpec, ...], Field(strict=False, min_length=1)]


class Price(Spec):
    """Hourly price of one GPU of a request, and its kind."""

    market: str  # the requested one, or of the list taken; or STATED, or OWN
    usd_per_gpu_hour: UsdPerHour | None = None  # None: no price of this market is known
    provider: str = ""  # who asks it, for people
    offers: dict[str, int] = Field(default={})  # machines on offer by how many GPUs they have
    known: Names = ()  # markets in which this machine has a price

    @property
    def is_listed(self) -> bool:
        """Whether another market could give another price."""
        return self.market not in (STATED, OWN)

    @property
    def words(self) -> str | None:
        """Kind, provider and date, to stand beside an amount; None where no price is known."""
        usd = self.usd_per_gpu_hour
        if usd is None:
            return None
        if self.market == OWN:
            return f"own hardware, {usd.source}"
        if self.market == STATED:
            return ", ".join(word for word in (usd.source, usd.date) if word)
        return ", ".join((self.market, self.provider, str(usd.date), *offered(self.offers)))

    @property
    def sentence(self) -> str:
        """The price with its kind, or why there is none; printed beside amounts."""
        usd = self.usd_per_gpu_hour
        if usd is None:
            return self.missing or ""
        return f"{in_unit(float(usd), 'USD/h'):,.2f} USD per GPU-hour: {self.words}"

    @property
    def missing(self) -> str | None:
        """Why the price is unknown, as the beginning of a sentence; None where it is known."""
        if self.usd_per_gpu_hour is not None:
            return None
        listed = f"listed: {', '.join(self.known)}" if self.known else "on no list"
        return f"no price known of kind {self.market} ({listed})"


def offered(offers: dict[str, int]) -> list[str]:
    """Offers of the largest machine, as "14 offers of 8 GPUs"; empty where unknown."""
    if not offers:
        return []
    gpus = max(offers, key=int)
    return [f"{offers[gpus]} offer{'s' * (offers[gpus] != 1)} of {gpus} GPU{'s' * (gpus != '1')}"]
