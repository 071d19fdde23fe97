"""Options: the model, and the GPUs and links of the cluster."""

from dataclasses import dataclass
from typing import ClassVar

from planner.specs.names import CpuOptimizerName
from planner.specs.options.record import Record
from planner.specs.options.row import Group
from planner.specs.options.verbs import REQUESTS


@dataclass(frozen=True, kw_only=True)
class ModelOptions(Record):
    GROUP: ClassVar = Group("model", "Model")
    VERBS: ClassVar = REQUESTS

    model: str


@dataclass(frozen=True, kw_only=True)
class ClusterOptions(Record):
    GROUP: ClassVar = Group("cluster", "Cluster")
    VERBS: ClassVar = REQUESTS

    gpu: str | None = None
    gpus: int = 1
    nodes: int | None = None
    cluster: str | None = None
    gpus_per_node: int | None = None
    intra_node: str | None = None
    inter_node: str | None = None
    nics_per_node: int | None = None
    nic_bandwidth: str | None = None
    island_nodes: int | None = None
    oversubscription: float | None = None
    price: float | str | None = None
    clock: float | None = None
    power_limit: str | None = None
    host_link: str | None = None
    host: str | None = None
    host_threads: int | None = None
    cpu_optimizer: CpuOptimizerName | None = None
