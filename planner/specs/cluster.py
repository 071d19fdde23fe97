"""Where it runs: how many GPUs, how they are wired into nodes, and what an hour costs."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator

from planner.ledger import Sourced
from planner.specs.base import Bytes, BytesPerSecond, Names, Quantity, Spec, Watts
from planner.specs.hardware import GpuSpec, Id, LinkSpec, NvmeSpec
from planner.specs.price import Price, UsdPerHour

MAX_GPUS = 1_000_000


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
    host_memory: Bytes | None = None
    host_link: Id = "pcie4"
    nvme: NvmeSpec | None = None  # its drives, for those who offload to them
    usd_per_gpu_hour: UsdPerHour | None = None  # its own rate, in place of list prices


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
    host_link: LinkSpec
    host_memory: Bytes | None = None
    nvme: NvmeSpec | None = None  # drives, only where the request offloads to them or states them
    price: Price
    clock: Annotated[Sourced, Quantity("1", maximum=1.5)] | None = (
        None  # tensor clock under load, where it is known
    )
    power_limit: Watts | None = None  # per GPU, where it is set below the board's

    @model_validator(mode="after")
    def _whole_nodes(self) -> Self:
        if self.gpus > self.gpus_per_node and self.gpus % self.gpus_per_node:
            raise ValueError(
                f"gpus {self.gpus} is no multiple of gpus_per_node {self.gpus_per_node}; plan whole"
                f" nodes ({self.gpus // self.gpus_per_node * self.gpus_per_node} or"
                f" {-(-self.gpus // self.gpus_per_node) * self.gpus_per_node}) or set"
                " --gpus-per-node"
            )
        return self

    @property
    def nodes(self) -> int:
        return -(-self.gpus // self.gpus_per_node)

    @property
    def gpus_per_host(self) -> int:
        """GPUs that share a host: its memory, bridges, drives and network cards. Fewer than a node
        has where not all of them are used."""
        return min(self.gpus_per_node, self.gpus)
