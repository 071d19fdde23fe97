"""Options: what is trained, and on which GPUs over which links."""

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from planner.specs.names import (
    MAX_ISLAND_NODES,
    MAX_OVERSUBSCRIPTION,
    NVME,
    OFFLOADED_OPTIMIZER,
    CpuOptimizerName,
)
from planner.specs.options.record import Record
from planner.specs.options.row import Group, Needs, option
from planner.specs.options.run import NOT_OF_RUNS, OF_COST
from planner.specs.options.verbs import LINKS, METHODS, PHASES, REQUESTS, RUNS

USUAL_NODE = "the usual node of this GPU"
_NO_DRIVES = "is of NVMe drives, which this verb does not look at"


def _on_drives(given: Any) -> bool:
    return given.search_offload or given.offload in NVME


_OF_DRIVES = Needs(
    _on_drives,
    f"is of states on NVMe drives: give --offload {', '.join(NVME)}, or --search-offload, too",
    "--offload to NVMe",
)

NO_UPDATE = "is of the update on the host, which this verb does not look at"


def _on_host(given: Any) -> bool:
    return given.search_offload or given.offload in OFFLOADED_OPTIMIZER


OF_UPDATE = Needs(
    _on_host,
    "is of an optimizer on the host: give --offload optimizer, --offload params, or"
    " --search-offload, too",
    "--offload optimizer",
)
UPDATES = REQUESTS - METHODS - {"strategies", "recommend offload"}


@dataclass(frozen=True, kw_only=True)
class ModelOptions(Record):
    GROUP: ClassVar = Group("model", "Model")
    VERBS: ClassVar = REQUESTS

    model: Annotated[
        str,
        option(
            "Model: a catalogue name, org/name of the Hugging Face Hub, a config.json, a model"
            " TOML, or its keys as one JSON object",
            label="Model",
            catalogue="models",
            example="gpt2",
            form="shown",
            brief=True,
        ),
    ]


@dataclass(frozen=True, kw_only=True)
class ClusterOptions(Record):
    GROUP: ClassVar = Group("cluster", "Cluster")
    VERBS: ClassVar = REQUESTS

    gpu: Annotated[
        str | None,
        option(
            "GPU: an id or alias (dpplan list gpus), or a GPU TOML",
            label="GPU",
            catalogue="gpus",
            example="a100",
            unset="from --cluster",
            verbs=REQUESTS | LINKS,
            several=frozenset({"recommend cluster"}),
            form="shown",
            brief=True,
        ),
    ] = None
    gpus: Annotated[
        int,
        option(
            "Number of GPUs",
            label="Number of GPUs",
            least=1,
            most=1_000_000,
            example="8",
            verbs=REQUESTS - {"recommend cluster"} | LINKS,
            why_not="is what is looked for; limit it with --max-gpus",
            form="shown",
            brief=True,
            slider=True,
        ),
    ] = 1
    nodes: Annotated[
        int | None,
        option(
            "Number of full nodes; sets the number of GPUs in place of --gpus",
            label="Number of nodes",
            least=1,
            most=1_000_000,
            example="2",
            unset="as many as --gpus need",
            verbs=REQUESTS - {"recommend cluster"} | LINKS,
            why_not="is what is looked for; limit it with --max-gpus",
        ),
    ] = None
    cluster: Annotated[
        str | None,
        option(
            "Server or cloud instance (dpplan list clusters), or a cluster TOML",
            label="Server or instance",
            catalogue="clusters",
            example="dgx-a100",
            unset=USUAL_NODE,
            verbs=REQUESTS | LINKS,
            several=frozenset({"recommend cluster"}),
            form="folded",
        ),
    ] = None
    gpus_per_node: Annotated[
        int | None,
        option(
            "GPUs per node",
            label="GPUs per node",
            least=1,
            most=1024,
            example="4",
            unset=USUAL_NODE,
            verbs=REQUESTS | LINKS,
            form="folded",
        ),
    ] = None
    intra_node: Annotated[
        str | None,
        option(
            "Interconnect between GPUs of a node (dpplan list networks)",
            label="Interconnect in a node",
            catalogue="networks/intra_node",
            example="pcie4",
            unset=USUAL_NODE,
            verbs=REQUESTS | LINKS,
            form="folded",
        ),
    ] = None
    inter_node: Annotated[
        str | None,
        option(
            "Network fabric between nodes (dpplan list networks)",
            label="Network between nodes",
            catalogue="networks/inter_node",
            example="ib-hdr",
            unset=USUAL_NODE,
            verbs=REQUESTS | LINKS,
            form="folded",
        ),
    ] = None
    nics_per_node: Annotated[
        int | None,
        option(
            "Network cards (NICs) per node",
            label="NICs per node",
            least=1,
            most=256,
            example="2",
            unset=USUAL_NODE,
            verbs=REQUESTS | LINKS,
            form="folded",
        ),
    ] = None
    nic_bandwidth: Annotated[
        str | None,
        option(
            "Bandwidth of one NIC in one direction, e.g. '200 Gbit/s'",
            label="NIC bandwidth",
            unit="B/s",
            needs_unit=("Gbit/s", "GB/s"),
            least=1e5,
            most=1e13,
            example="200 Gbit/s",
            unset=USUAL_NODE,
            verbs=REQUESTS | LINKS,
            form="folded",
        ),
    ] = None
    island_nodes: Annotated[
        int | None,
        option(
            "Nodes per network island (leaf switch, rail group, pod or scalable unit);"
            " --oversubscription applies to links between islands",
            label="Nodes per island",
            least=1,
            most=MAX_ISLAND_NODES,
            example="8",
            unset="from --cluster, else one non-blocking fabric",
            verbs=REQUESTS | LINKS,
            needs=Needs(
                lambda given: given.oversubscription is not None or given.cluster is not None,
                "acts where links between islands are oversubscribed: give --oversubscription, or"
                " a --cluster that states it, too",
                "--oversubscription",
            ),
            form="folded",
        ),
    ] = None
    oversubscription: Annotated[
        float | None,
        option(
            "Oversubscription between network islands: bandwidth of an island's nodes over"
            " that of its links to other islands; 1 is non-blocking",
            label="Oversubscription",
            least=1,
            most=MAX_OVERSUBSCRIPTION,
            example="2",
            unset="from --cluster, else 1",
            verbs=REQUESTS | LINKS,
            needs=Needs(
                lambda given: (
                    given.island_nodes is not None
                    or given.cluster is not None
                    or given.oversubscription == 1
                ),
                "is of links between islands of nodes: give --island-nodes, or a --cluster that"
                " states it, too",
                "--island-nodes",
            ),
            form="folded",
        ),
    ] = None
    price: Annotated[
        float | str | None,
        option(
            "Rental price, US dollars per GPU-hour",
            label="Price per GPU-hour (USD)",
            unit="USD/h",
            least=1e-4,
            most=10_000,
            or_zero=True,
            example="1.99",
            verbs=RUNS | PHASES,
            why_not=NOT_OF_RUNS,
            unset="the list price of the market",
            needs=OF_COST,
            form="shown",
        ),
    ] = None
    clock: Annotated[
        float | None,
        option(
            "Sustained tensor-core clock as a fraction of the boost clock",
            label="Sustained clock",
            most=1.2,
            least=0.05,
            example="0.85",
            unset="from the GPU's profile",
            form="folded",
        ),
    ] = None
    power_limit: Annotated[
        str | None,
        option(
            "Power limit of one GPU, e.g. '500 W'; lowers the sustained clock",
            label="Power limit",
            unit="W",
            needs_unit=("W", "kW"),
            least=1,
            most=100_000,
            example="250 W",
            unset="board power",
            form="folded",
        ),
    ] = None
    host_link: Annotated[
        str | None,
        option(
            "Link between GPU and host memory, which offloading uses (dpplan list networks)",
            label="Host link",
            catalogue="networks/intra_node",
            example="pcie3",
            unset=USUAL_NODE,
            strategies=("zero-offload", "zero-offload-dpu", "zero-infinity"),
            form="folded",
        ),
    ] = None
    host: Annotated[
        str | None,
        option(
            "Processors and memory of a node, which update an offloaded optimizer (dpplan list"
            " hosts), or a host TOML",
            label="Host",
            catalogue="hosts",
            example="epyc-9004",
            unset=USUAL_NODE,
            verbs=UPDATES,
            why_not=NO_UPDATE,
            needs=OF_UPDATE,
            form="folded",
        ),
    ] = None
    host_threads: Annotated[
        int | None,
        option(
            "Threads of each rank that update an offloaded optimizer (OMP_NUM_THREADS); torchrun"
            " sets 1 where nothing else does",
            label="Threads per rank",
            least=1,
            most=100_000,
            example="2",
            unset="as the launcher of the stack does: 1, or all cores",
            verbs=UPDATES,
            why_not=NO_UPDATE,
            needs=OF_UPDATE,
            form="folded",
        ),
    ] = None
    cpu_optimizer: Annotated[
        CpuOptimizerName | None,
        option(
            "Implementation of an offloaded optimizer: DeepSpeed's, torch's fused AdamW, or torch's"
            " loop of operators",
            label="Optimizer on the CPU",
            example="torch-eager",
            unset="as the stack does",
            verbs=UPDATES,
            why_not=NO_UPDATE,
            needs=OF_UPDATE,
            form="folded",
        ),
    ] = None
    nvme_read: Annotated[
        str | None,
        option(
            "Aggregate NVMe read bandwidth per node, which offloading to NVMe uses",
            label="NVMe read bandwidth per node",
            unit="B/s",
            needs_unit=("GB/s", "Gbit/s"),
            least=1e6,
            most=1e14,
            example="10 GB/s",
            verbs=UPDATES,
            why_not=_NO_DRIVES,
            needs=_OF_DRIVES,
            form="folded",
        ),
    ] = None
    nvme_write: Annotated[
        str | None,
        option(
            "Aggregate NVMe write bandwidth per node, which offloading to NVMe uses",
            label="NVMe write bandwidth per node",
            unit="B/s",
            needs_unit=("GB/s", "Gbit/s"),
            least=1e6,
            most=1e14,
            example="5 GB/s",
            verbs=UPDATES,
            why_not=_NO_DRIVES,
            needs=_OF_DRIVES,
            form="folded",
        ),
    ] = None
    nvme_capacity: Annotated[
        str | None,
        option(
            "NVMe capacity per node for offloaded states; not checked where unknown",
            label="NVMe capacity per node",
            unit="B",
            needs_unit=("TB", "GB"),
            least=1e6,
            most=1e18,
            example="30 TB",
            verbs=UPDATES - {"schedule"},
            why_not=_NO_DRIVES,
            needs=_OF_DRIVES,
            form="folded",
        ),
    ] = None
