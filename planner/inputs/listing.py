"""The catalogue as short records: what `dpplan list` prints and the dashboard offers."""

from __future__ import annotations

from typing import Any

from planner.inputs import catalog
from planner.specs.base import PlanError
from planner.specs.model import ModelSpec
from planner.specs.stack import StackSpec


def list_catalog(kind: str) -> list[dict[str, Any]]:
    """Shipped gpus, models, networks, stacks, clusters or schedules, as short records."""
    from planner.formulas.params import active_parameter_count, parameter_count
    from planner.specs.cluster import ClusterTemplate
    from planner.specs.hardware import GpuSpec, LinkSpec

    if kind == "models":
        return [
            {
                "id": m.name,
                "title": m.title or m.name,
                "aliases": list(m.aliases),
                "parameters": parameter_count(m),
                "active_parameters": active_parameter_count(m),
                "layers": m.layers,
                "hidden": m.hidden,
                "max_positions": m.max_positions,
                "source": m.source,
            }
            for m in catalog.load_all("models", ModelSpec)
        ]
    if kind == "gpus":
        return [
            {
                "id": g.id,
                "title": g.title,
                "aliases": list(g.aliases),
                "memory_bytes": float(g.memory),
                "usable_bytes": float(g.usable_memory),
                "memory_bytes_per_s": float(g.memory_bandwidth),
                "dense_flop_per_s": g.dense.model_dump(exclude_none=True),
                "power_w": float(g.power),
                "node": (
                    f"{g.node.gpus_per_node} x, {g.node.intra_node}, {g.node.nics_per_node} x"
                    f" {g.node.inter_node}"
                ),
            }
            for g in catalog.load_all("gpus", GpuSpec)
        ]
    if kind == "networks":
        return [
            {
                "id": n.id,
                "title": n.title,
                "aliases": list(n.aliases),
                "scope": n.scope,
                "bytes_per_s": float(n.bandwidth),
                "latency_s": float(n.latency),
                "all_reduce_frac": float(n.all_reduce_frac),
                "peer_to_peer": n.peer_to_peer,
            }
            for n in catalog.load_all("networks", LinkSpec)
        ]
    if kind == "stacks":
        return [
            {
                "id": s.id,
                "title": s.title,
                "aliases": list(s.aliases),
                "zero": s.supports.zero,
                "schedules": list(s.supports.schedules),
                "recompute": list(s.supports.recompute),
                "source": s.source,
            }
            for s in catalog.load_all("stacks", StackSpec)
        ]
    if kind == "clusters":
        return [
            {
                "id": c.id,
                "title": c.title,
                "aliases": list(c.aliases),
                "gpu": c.gpu,
                "gpus_per_node": c.gpus_per_node,
                "intra_node": c.intra_node,
                "inter_node": c.inter_node,
                "nics_per_node": c.nics_per_node,
                "source": c.source,
            }
            for c in catalog.load_all("clusters", ClusterTemplate)
        ]
    if kind == "schedules":
        from planner.schedules import BY_NAME

        return [
            {"id": name, "title": " ".join((module.__doc__ or "").split("\n\n")[0].split())}
            for name, module in BY_NAME.items()
        ]
    raise PlanError(
        "kind", kind, "must be one of clusters, gpus, models, networks, schedules, stacks"
    )
