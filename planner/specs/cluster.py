"""Where it runs: how many GPUs, how they are wired into nodes, and what an hour costs."""

import math
from typing import Annotated, NamedTuple, Self

from pydantic import AfterValidator, Field, model_validator

from planner.ledger import Sourced
from planner.specs.base import Bytes, BytesPerSecond, Names, Number, Quantity, Spec, Watts
from planner.specs.hardware import USUAL_HOST, GpuSpec, Id, LinkSpec, NvmeSpec
from planner.specs.host import HostSpec
from planner.specs.names import MAX_ISLAND_NODES, MAX_OVERSUBSCRIPTION
from planner.specs.price import Price, UsdPerHour

MAX_GPUS = 1_000_000


def _at_least_one(given: Sourced) -> Sourced:
    if not 1.0 <= given <= MAX_OVERSUBSCRIPTION:
        raise ValueError(
            f"oversubscription is {float(given):g}; it must be from 1 (non-blocking) to"
            f" {MAX_OVERSUBSCRIPTION:g}"
        )
    return given


# nodes that any fabric for training has below one tier of switches: half the ports of a switch of
# 32 and less go to nodes of one card; a choice, from which on an answer names what it assumes
ONE_SWITCH = 16
# of links between islands, where the request does not state the fabric, at the slow end of the
# band: full fat trees have 1, cost-saving ones 2 to 4. Published runs on this many nodes (298) lie
# where 1 puts them, so that every step towards 4 costs interval score (docs/log)
OVERSUBSCRIBED = 2.0
# of the ports of an island's switches towards nodes over those towards other islands: 1 is a
# non-blocking fabric
Oversubscription = Annotated[Number, AfterValidator(_at_least_one)]


class Tiers(NamedTuple):
    """GPUs that are together at each tier of the network."""

    domain: int  # in a node, or a switched NVLink domain
    island: float  # in an island of nodes; infinite where the fabric is one


class ClusterTemplate(Spec):
    """A kind of node that can be rented or bought, from hardware_profiles/clusters/*.toml."""

    id: Id
    title: str
    aliases: Names = ()
    source: str
    provider: Id | None = None  # whose machines these are, and whose prices they have
    gpu: Id
    gpus_per_node: int = Field(ge=1, le=1024)
    intra_node: Id
    inter_node: Id
    nics_per_node: int = Field(ge=1, le=256)
    nic_bandwidth: BytesPerSecond
    nvlink_domain: int | None = Field(default=None, ge=1, le=1_000_000)
    # nodes below one tier of switches: a leaf, rail group, pod or scalable unit
    island_nodes: int | None = Field(default=None, ge=1, le=MAX_ISLAND_NODES)
    oversubscription: Oversubscription | None = (
        None  # of the links between islands; 1: non-blocking
    )
    host_memory: Bytes | None = None
    host_link: Id = "pcie4"
    host: Id = USUAL_HOST  # processors and memory, see specs.host
    nvme: NvmeSpec | None = None  # its drives, for those who offload to them
    usd_per_gpu_hour: UsdPerHour | None = None  # its own rate, in place of list prices


class Verified(Spec):
    """Measured over estimated step time of decoders trained to verify a calibration; low to high is
    the interval for 80 % of further ones."""

    decoders: int = Field(ge=3)
    low: float = Field(gt=0, le=1e3)
    high: float = Field(gt=0, le=1e3)

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.low > self.high:
            raise ValueError(f"low {self.low:g} must not be above high {self.high:g}")
        return self


class ClusterSpec(Spec):
    """A concrete cluster: every choice made."""

    title: str
    gpu: GpuSpec
    gpus: int = Field(ge=1, le=MAX_GPUS)
    gpus_per_node: int = Field(ge=1, le=1024)
    intra_node: LinkSpec
    inter_node: LinkSpec
    nics_per_node: int = Field(ge=1, le=256)
    nic_bandwidth: BytesPerSecond
    nvlink_domain: int = Field(ge=1)
    island_nodes: int | None = Field(default=None, ge=1, le=MAX_ISLAND_NODES)
    oversubscription: Oversubscription | None = None
    host_link: LinkSpec
    host: HostSpec
    host_stated: bool = False  # named, of the cluster that was named, or measured; else assumed
    host_threads: int | None = Field(default=None, ge=1, le=100_000)  # a rank; None: as the stack
    host_memory: Bytes | None = None
    nvme: NvmeSpec | None = None  # drives, only where the request offloads to them or states them
    price: Price
    clock: Annotated[Sourced, Quantity("1", maximum=1.5)] | None = (
        None  # tensor clock under load, where it is known
    )
    power_limit: Watts | None = None  # per GPU, where it is set below the board's
    verified: Verified | None = None  # how near a calibration came, where it was verified

    @model_validator(mode="after")
    def _whole_nodes(self) -> Self:
        if self.gpus > self.gpus_per_node and self.gpus % self.gpus_per_node:
            raise ValueError(
                f"gpus {self.gpus} is not a multiple of gpus_per_node {self.gpus_per_node}; plan"
                f" whole nodes ({self.gpus // self.gpus_per_node * self.gpus_per_node} or"
                f" {-(-self.gpus // self.gpus_per_node) * self.gpus_per_node}) or set"
                " --gpus-per-node"
            )
        return self

    @property
    def nodes(self) -> int:
        return -(-self.gpus // self.gpus_per_node)

    @property
    def tiers(self) -> Tiers:
        """GPUs per NVLink domain and per island of nodes. An island holds whole domains."""
        if self.island_nodes is None or float(self.oversubscription or 1.0) == 1.0:
            return Tiers(self.nvlink_domain, math.inf)
        island = self.island_nodes * self.gpus_per_node
        return Tiers(self.nvlink_domain, float(max(island, self.nvlink_domain)))

    @property
    def islands_unknown(self) -> bool:
        """Whether ranks may span several islands of nodes that are not specified."""
        return self.oversubscription is None and self.nodes > ONE_SWITCH

    @property
    def gpus_per_host(self) -> int:
        """GPUs that share a host: its memory, bridges, drives and network cards. Fewer than a node
        has where not all of them are used."""
        return min(self.gpus_per_node, self.gpus)
