"""The catalogue as short records: what `dpplan list` prints and the dashboard offers."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from planner.inputs import catalog
from planner.specs.base import PlanError
from planner.specs.capabilities import values
from planner.specs.cluster import ClusterTemplate
from planner.specs.documents.listing import (
    ClusterEntry,
    Entry,
    GpuEntry,
    HostEntry,
    KindEntry,
    ModelEntry,
    ModelTree,
    NetworkEntry,
    StackEntry,
)
from planner.specs.hardware import GpuSpec, LinkSpec
from planner.specs.host import HostSpec
from planner.specs.model import ModelSpec
from planner.specs.names import SCHEDULES
from planner.specs.stack import StackSpec


def list_catalog(kind: str) -> Sequence[Entry]:
    """Shipped gpus, models, networks, stacks, clusters or schedules, as short records."""
    if kind not in KINDS:
        raise PlanError("kind", kind, f"must be one of {', '.join(KINDS)}")
    return KINDS[kind]()


_HOLDS = {
    "clusters": "servers and cloud instances, for --cluster",
    "gpus": "GPUs, for --gpu",
    "hosts": "processors and memory of a node, for --host",
    "models": "decoder-only language models, for --model",
    "networks": "links inside and between nodes, for --intra-node and --inter-node",
    "schedules": "pipeline schedules, for --schedule",
    "stacks": "training stacks, for --stack",
}


def list_kinds() -> Sequence[KindEntry]:
    """Kinds that can be listed, with the number of entries."""
    return [
        KindEntry(kind, _HOLDS[kind], len(SCHEDULES if kind == "schedules" else catalog.ids(kind)))
        for kind in KINDS
    ]


def tree_of(kind: str | None, name: str) -> ModelTree:
    """The blocks of a model. Raises PlanError for another kind of entry."""
    from planner.inputs.model import model_spec
    from planner.inputs.model_tree import model_tree

    if kind != "models":
        raise PlanError("entry", name, f"names an entry of {kind}: blocks can be listed of models")
    model, _ = model_spec(name)
    return model_tree(model)


def _clusters() -> Sequence[Entry]:
    return [
        ClusterEntry(
            id=c.id,
            title=c.title,
            aliases=list(c.aliases),
            gpu=c.gpu,
            gpus_per_node=c.gpus_per_node,
            intra_node=c.intra_node,
            inter_node=c.inter_node,
            nics_per_node=c.nics_per_node,
            source=c.source,
        )
        for c in catalog.load_all("clusters", ClusterTemplate)
    ]


def _gpus() -> Sequence[Entry]:
    return [
        GpuEntry(
            id=g.id,
            title=g.title,
            aliases=list(g.aliases),
            memory_bytes=float(g.memory),
            usable_bytes=float(g.usable_memory),
            memory_bytes_per_s=float(g.memory_bandwidth),
            dense_flop_per_s=g.dense.model_dump(exclude_none=True),
            power_w=float(g.power),
            node=(
                f"{g.node.gpus_per_node} x, {g.node.intra_node}, {g.node.nics_per_node} x"
                f" {g.node.inter_node}"
            ),
        )
        for g in catalog.load_all("gpus", GpuSpec)
    ]


def _hosts() -> Sequence[Entry]:
    return [
        HostEntry(
            id=h.id,
            title=h.title,
            aliases=list(h.aliases),
            sockets=h.sockets,
            cores=h.cores,
            memory_bytes_per_s=float(h.memory_bandwidth),
            core_bytes_per_s=float(h.core_bandwidth),
            source=h.source,
        )
        for h in catalog.load_all("hosts", HostSpec)
    ]


def _models() -> Sequence[Entry]:
    from planner.formulas.params import active_parameter_count, parameter_count

    return [
        ModelEntry(
            id=m.name,
            title=m.title or m.name,
            aliases=list(m.aliases),
            parameters=parameter_count(m),
            active_parameters=active_parameter_count(m),
            layers=m.layers,
            hidden=m.hidden,
            max_positions=m.max_positions,
            source=m.source,
        )
        for m in catalog.load_all("models", ModelSpec)
    ]


def _networks() -> Sequence[Entry]:
    return [
        NetworkEntry(
            id=n.id,
            title=n.title,
            aliases=list(n.aliases),
            scope=n.scope,
            bytes_per_s=None if n.takes_speed_of_cards else float(n.bandwidth),
            latency_s=float(n.latency),
            all_reduce_frac=float(n.all_reduce_frac),
            peer_to_peer=n.peer_to_peer,
        )
        for n in catalog.load_all("networks", LinkSpec)
    ]


def _schedules() -> Sequence[Entry]:
    from planner.schedules import BY_NAME

    return [
        Entry(name, " ".join((module.__doc__ or "").split("\n\n")[0].split()))
        for name, module in BY_NAME.items()
    ]


def _stacks() -> Sequence[Entry]:
    return [
        StackEntry(
            id=s.id,
            title=s.title,
            aliases=list(s.aliases),
            zero=list(values(s, "zero")),
            schedules=list(values(s, "schedule")),
            recompute=list(values(s, "recompute")),
            source=s.source,
        )
        for s in catalog.load_all("stacks", StackSpec)
    ]


KINDS: dict[str, Callable[[], Sequence[Entry]]] = {
    "clusters": _clusters,
    "gpus": _gpus,
    "hosts": _hosts,
    "models": _models,
    "networks": _networks,
    "schedules": _schedules,
    "stacks": _stacks,
}
