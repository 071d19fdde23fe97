"""Prices behind an answer over several machines: one market for all, machines without a price
there, and the cheapest at other prices."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache

from planner.formulas import run_level
from planner.inputs.cluster import price_of
from planner.inputs.prices import caution, markets
from planner.inputs.run import electricity
from planner.specs.documents.estimate import Figures
from planner.specs.documents.plan import Cluster
from planner.specs.documents.prices import Cheapest, PricedMachine, Prices
from planner.specs.options import Options
from planner.specs.options.mechanisms import gpus_beside
from planner.specs.price import OWN, STATED, Price
from planner.units import in_unit


@dataclass(frozen=True)
class Bill:
    """Paid quantities of an answer.

    gpu_hours: including spare nodes. electricity_usd: paid beside the machines.
    """

    label: str
    options: Options
    gpu_hours: float
    electricity_usd: float = 0.0

    def usd(self, price: Price) -> float | None:
        """The bill at this price; None if unknown."""
        usd = price.usd_per_gpu_hour
        if usd is None:
            return None
        return self.gpu_hours * in_unit(float(usd), "USD/h") + self.electricity_usd


def machine(options: Options) -> str:
    """The GPU or cluster of a request, as it names it."""
    return options.cluster or options.gpu or options.calibration or ""


def bill(label: str, options: Options, figures: Figures) -> Bill:
    """Cost of the run, or of a million tokens if its length is unknown."""
    run, gpus = figures.run, figures.cluster.gpus + gpus_beside(options)
    spare = (run.reliability.spare_nodes or 0) * min(figures.cluster.gpus_per_node, gpus)
    if run.gpu_hours is not None:
        return Bill(label, options, run.gpu_hours * (1 + spare / gpus), run.electricity_usd or 0.0)
    seconds = 1e6 / figures.throughput.tokens_per_s
    facility = run_level.HOST_FACTOR * (options.pue or run_level.PUE)
    energy_j = float(run_level.energy_j(gpus, run.gpu_power_w, 1.0, facility, seconds))
    return Bill(label, options, (gpus + spare) * seconds / 3600, energy_j * electricity(options))


def _priced(name: str, cluster: Cluster) -> PricedMachine:
    """A machine of an answer with its price."""
    return PricedMachine(
        machine=name,
        usd_per_gpu_hour=cluster.usd_per_gpu_hour,
        market=cluster.price_market,
        source=cluster.price_source,
        missing=cluster.price_missing,
    )


PriceAt = Callable[[Options], Price]


def prices(
    requests_on: Iterable[tuple[Options, Cluster]],
    per: str,
    cheapest: Callable[[PriceAt], tuple[str, Bill, float] | None],
) -> Prices:
    """The prices of an answer.

    requests_on: requests, each with its cluster. cheapest: the cheapest choice at given prices,
    with label and US dollars; called again for every market, if there are machines to choose from
    and the request leaves the market open.
    """
    machines = {
        (machine(options), cluster.price): (options, cluster) for options, cluster in requests_on
    }
    requests = [options for options, _ in machines.values()]
    clusters = [cluster for _, cluster in machines.values()]
    known = cache(price_of)  # many bills have the same machine

    def at(market: str | None) -> PriceAt:
        def price_of(options: Options) -> Price:
            price = known(_machine_alone(options))
            listed = market is not None and price.is_listed
            return known(_machine_alone(options), market) if listed else price

        return price_of

    def winner(market: str | None) -> Cheapest | None:
        best = cheapest(at(market))
        if best is None:
            return None
        label, bill, usd = best
        price = at(market)(bill.options)
        prices_there = [at(market)(options) for options in requests]
        return Cheapest(
            market=market or price.market,
            label=label,
            cost_usd=usd,
            source=price.words,
            priced=sum(price.usd_per_gpu_hour is not None for price in prices_there),
        )

    here, elsewhere, covering = winner(None), [], []
    of_one = (
        len({name for name, _ in machines}) < 2 or len({request.market for request in requests}) > 1
    )
    # a run that is interrupted takes longer: such prices are compared on request
    for market in (spec.id for spec in markets() if not of_one and spec.preempted_after is None):
        if all(at(market)(options) == at(None)(options) for options in requests):
            continue
        if all(at(market)(options).usd_per_gpu_hour is not None for options in requests):
            covering.append(market)
        other = winner(market)
        if other and (here is None or (other.priced > 1 and other.label != here.label)):
            elsewhere.append(other)
    used = sorted({cluster.price_market for cluster in clusters if cluster.price_missing is None})
    cautions: dict[str, list[str]] = {}
    for name in dict.fromkeys([*used, *(cluster.market for cluster in elsewhere)]):
        cautions.setdefault(caution(name), []).append(name)
    return Prices(
        markets=used,
        per=per,
        machines=[_priced(name, cluster) for (name, _), (_, cluster) in machines.items()],
        covering=covering if any(cluster.price_missing for cluster in clusters) else [],
        cheapest=here,
        elsewhere=elsewhere,
        notes=[
            *(f"{', '.join(names)}: {words}" for words, names in cautions.items() if words),
            *([_ONE_FOR_ALL] if _is_one_for_all(clusters) else []),
        ],
    )


_ONE_FOR_ALL = (
    "one stated price is taken for every kind of machine; --market FILE gives each its own rent,"
    " scenario files their own purchase"
)


def _is_one_for_all(clusters: Sequence[Cluster]) -> bool:
    """Whether what the request states of one machine was taken for several."""
    return len({cluster.gpu for cluster in clusters}) > 1 and {
        cluster.price_market for cluster in clusters
    } in ({STATED}, {OWN})


def cheapest_of(bills: Sequence[Bill]) -> Callable[[PriceAt], tuple[str, Bill, float] | None]:
    """Lowest bill over all prices; None if zero."""

    def at(price: PriceAt) -> tuple[str, Bill, float] | None:
        known = ((bill.usd(price(bill.options)), bill) for bill in bills)
        priced = [(usd, bill) for usd, bill in known if usd is not None]
        usd, least = min(priced, key=lambda row: row[0], default=(0.0, None))
        return None if least is None or usd == 0 else (least.label, least, usd)

    return at


def _machine_alone(options: Options) -> Options:
    """The options that determine the price: equal for all counts and layouts."""
    names = ("gpu", "cluster", "calibration", "price", "market", "price_day")
    owned = ("capex", "lifetime", "use")
    return Options(model="none", **{name: getattr(options, name) for name in (*names, *owned)})
