"""Offers of machines from catalogues that others keep, as lists of prices per GPU-hour."""

from __future__ import annotations

import csv
import io
import logging
import re
import socket
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from itertools import groupby

from planner.error import PlanError
from planner.inputs import catalog
from planner.inputs.prices import prices
from planner.ledger import Sourced
from planner.specs.hardware import GpuSpec
from planner.specs.price import PriceList

_HYPERSCALERS = {"aws", "azure", "gcp", "oracle"}
_OURS = {"lambdalabs": "lambda", "oci": "oracle", "vastai": "vast"}  # providers of other names
_TIMEOUT_S = 30.0
_NODE = 8  # GPUs of a machine with SXM boards whose name does not state the form factor
_MEMORY_TOLERANCE = 0.1  # catalogues state nominal or usable memory


@dataclass(frozen=True)
class Offer:
    """A machine of a provider in a region.

    gpu: as the catalogue names it. memory_gb: of one GPU. usd: per hour, of the machine.
    clusters: numbers of such machines that are sold as one cluster.
    """

    provider: str
    machine: str
    region: str
    gpu: str
    gpus: int
    memory_gb: float | None
    usd: float
    spot: bool
    clusters: tuple[int, ...] = ()

    @property
    def market(self) -> str:
        spot = "spot" if self.spot else ""
        if self.provider in _HYPERSCALERS:
            return "-".join(filter(None, ("hyperscaler", spot)))
        return spot or ("community" if self.is_of_hosts else "on-demand")

    @property
    def is_of_hosts(self) -> bool:
        """Whether a private host lets the machine: of a market of hosts, or RunPod's community
        cloud, whose machines gpuhunt places in a country ("SE") and not in a data center
        ("EU-SE-1"), and SkyPilot names ("1x_H100_COMMUNITY")."""
        country = re.fullmatch(r"[A-Z]{2}", self.region) is not None
        in_runpod = self.provider == "runpod" and (country or "COMMUNITY" in self.machine)
        return in_runpod or self.provider == "vast"

    @property
    def usd_per_gpu(self) -> float:
        return self.usd / self.gpus


# --------------------------------------------------------------------------------- catalogues


def gpuhunt() -> list[Offer]:
    """Offers of the providers whose prices gpuhunt publishes every day (GPUHUNT_CATALOG_URL names
    another place). Raises PlanError where the library is missing or its catalogue is away."""
    if find_spec("gpuhunt") is None:
        raise PlanError(
            "--update",
            None,
            "needs gpuhunt, which is missing: install dpplan[prices], or give"
            " a CSV file of SkyPilot's catalogue with --feed",
        )
    from gpuhunt import Catalog

    timeout_s = socket.getdefaulttimeout()
    logging.getLogger("gpuhunt").setLevel(logging.CRITICAL)  # an error below names what is away
    socket.setdefaulttimeout(_TIMEOUT_S)
    try:
        source = Catalog(auto_reload=False)
        source.load()
        items = source.query(min_gpu_count=1)
    except Exception as error:  # whatever the network or a malformed file raise
        raise PlanError(
            "--update",
            None,
            f"gpuhunt's catalogue cannot be fetched ({error}); prices stay as they are",
        ) from None
    finally:
        socket.setdefaulttimeout(timeout_s)
    return [
        Offer(
            _OURS.get(item.provider, item.provider),
            item.instance_name,
            item.location,
            item.gpu_name or "",
            item.gpu_count,
            item.gpu_memory,
            item.price,
            item.spot,
            tuple(item.provider_data.get("pod_counts", ())),
        )
        for item in items
    ]


def skypilot(path: str) -> list[Offer]:
    """Offers of a CSV file of SkyPilot's catalogue, whose folder names the cloud. Raises PlanError
    for another file."""
    file = catalog.user_path(path, "--feed")
    text = catalog.read_text(file, "--feed")
    rows = csv.DictReader(io.StringIO(text))
    needed = {"InstanceType", "AcceleratorName", "AcceleratorCount", "Price", "Region"}
    if missing := sorted(needed - set(rows.fieldnames or ())):
        raise PlanError(
            "--feed", path, f"is not a catalogue of SkyPilot: without column {', '.join(missing)}"
        )
    cloud = file.parent.name if file.stem in ("vms", "catalog") else file.stem
    return list(_of_rows(rows, _OURS.get(cloud, cloud), path))


def _of_rows(rows: csv.DictReader[str], cloud: str, path: str) -> Iterator[Offer]:
    for row in rows:
        for column, spot in (("Price", False), ("SpotPrice", True)):
            if not row.get("AcceleratorName") or not row.get(column):
                continue
            try:
                gpus, usd = float(row["AcceleratorCount"]), float(row[column])
            except ValueError:
                raise PlanError(
                    "--feed", path, f"line {rows.line_num}: {column} or count is not a number"
                ) from None
            name, place = row["AcceleratorName"], row.get("AvailabilityZone") or row["Region"]
            if gpus >= 1 and usd > 0:
                yield Offer(cloud, row["InstanceType"], place, name, int(gpus), None, usd, spot)


# --------------------------------------------------------------------------------- lists


def lists(offers: Iterable[Offer], day: str, source: str) -> tuple[list[PriceList], Counter[str]]:
    """Lists by provider and market in the order of the shipped lists, and the number of offers
    that are left out by why.

    A GPU's price is the lowest of the largest machine with it: a cluster is made of whole nodes.
    """
    left_out: Counter[str] = Counter()
    known: list[tuple[str, Offer]] = []
    for offer in offers:
        gpu, why = profile_of(offer)
        if gpu is None:
            left_out[why] += 1
        else:
            known.append((gpu, offer))
    known.sort(key=lambda row: (_rank(row[1]), row[1].provider, row[1].market, row[0]))
    fetched = []
    for (provider, market), rows in groupby(known, lambda row: (row[1].provider, row[1].market)):
        by_gpu = {
            gpu: [offer for _, offer in group] for gpu, group in groupby(rows, lambda row: row[0])
        }
        fetched.append(
            PriceList(
                provider=provider,
                title=_title(provider, market),
                market=market,
                date=day,
                source=source,
                usd_per_gpu_hour={gpu: _lowest(offers) for gpu, offers in by_gpu.items()},
                offers={gpu: _counted(offers) for gpu, offers in by_gpu.items()},
            )
        )
    return fetched, left_out


def _lowest(offers: list[Offer]) -> Sourced:
    largest = max(offer.gpus for offer in offers)
    usd = min(offer.usd_per_gpu for offer in offers if offer.gpus == largest)
    return Sourced(usd / 3600, "USD/h", "vendor")


def _counted(offers: list[Offer]) -> dict[str, int]:
    counted = Counter(
        offer.gpus * machines for offer in offers for machines in (offer.clusters or (1,))
    )
    return {str(gpus): counted[gpus] for gpus in sorted(counted)}


def _rank(offer: Offer) -> int:
    """Place of a provider among the shipped lists, so that a fetch changes prices, not sellers."""
    order = [(entry.provider, entry.market) for entry in prices().list]
    pair = (offer.provider, offer.market)
    return order.index(pair) if pair in order else len(order)


def _title(provider: str, market: str) -> str:
    titles = {(entry.provider, entry.market): entry.title for entry in prices().list}
    name = titles.get((provider, market), provider)
    return name.partition(",")[0]  # without the region of the shipped list


# --------------------------------------------------------------------------------- GPUs


def profile_of(offer: Offer) -> tuple[str | None, str]:
    """The profile of an offer's GPU, or why there is none."""
    words = f"{offer.gpu} {offer.machine}".lower()
    base = re.sub(r"[\s_-]|sxm\d?|pcie|\d+gb", "", offer.gpu.lower())
    size = re.search(r"(\d+)gb", offer.gpu.lower())
    memory_gb = float(size[1]) if size else offer.memory_gb
    form = "pcie" if "pcie" in words else "sxm" if "sxm" in words or offer.gpus >= _NODE else ""
    sized = "" if memory_gb is None else f"{memory_gb:g}gb"
    profiles = _profiles()
    for spelling in (f"{base}{form}{sized}", f"{base}{sized}", f"{base}{form}", base):
        gpu = profiles.get(spelling)
        if gpu is None or not (memory_gb is None or _is_near(memory_gb, gpu)):
            continue
        if not form and re.sub(r"sxm\d?", "pcie", gpu) in set(profiles.values()) - {gpu}:
            return None, f"{offer.gpu} {sized}: SXM or PCIe is not stated"
        return gpu, ""
    return None, " ".join(filter(None, (offer.gpu, sized))) + ": no profile"


@cache
def _profiles() -> dict[str, str]:
    """Ids of GPUs by their names without hyphens."""
    return {name.replace("-", ""): gpu for name, gpu in catalog.owners("gpus").items()}


def _is_near(memory_gb: float, gpu: str) -> bool:
    memory_gib = float(catalog.load("gpus", GpuSpec, gpu).memory) / 2**30
    return abs(memory_gb / memory_gib - 1) < _MEMORY_TOLERANCE
