"""Fit the numbers of a link profile (latencies, ramp, shares of the bandwidth) on measured tables
of collectives.

    python benchmarks/fit_collectives.py TABLE.csv [--link nvlink2] [--gpu v100-sxm2-32gb] [--ranks
    4,8] [--hold mesh,ramp]

TABLE.csv has the columns gpu, nodes, gpus_per_node, ranks, intra_node, inter_node, nics_per_node,
nic_gbps, collective, bytes (whole tensor), time_us, note. All rows of one link are one fit of the
planner's own functions (planner/estimate/communicate.py): least squares of log(predicted /
measured). Printed are the values fitted on all rows, with a word on those that reached a bound; the
errors where each random half of the rows is predicted by the fit on the other half; and the errors
of the shipped profile. Writes nothing.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from pathlib import Path

import numpy as np

from planner.estimate import communicate
from planner.estimate.communicate import Group, place
from planner.estimate.machine import Machine, machine
from planner.inputs import catalog
from planner.inputs.calibration import stack_spec
from planner.inputs.cluster import cluster_spec
from planner.specs.cluster import Tiers
from planner.specs.hardware import GpuSpec, LinkSpec
from planner.specs.layout import LayoutRequest
from planner.specs.model import ModelSpec
from planner.specs.options import Options
from planner.specs.plan import Plan
from planner.specs.training import TrainingSpec

COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "send_recv")
# words of a note that rule a row out: the size convention is not known
DOUBTFUL = ("may be per rank",)


@dataclass(frozen=True)
class Parameter:
    """A number of the machine that a table can tell, and the range it may take."""

    field: str  # of Machine
    key: str  # of a link profile
    low: float
    high: float
    start: float


_FRAC = (0.02, 1.2, 0.8)
INTRA = (
    Parameter("intra_base", "base_latency", 0.0, 30e-6, 4e-6),
    Parameter("intra_latency", "latency", 0.0, 20e-6, 2e-6),
    Parameter("intra_ramp", "ramp", 0.0, 60e-9, 5e-9),
    Parameter("intra_all_reduce", "all_reduce_frac", *_FRAC),
    Parameter("intra_all_gather", "all_gather_frac", *_FRAC),
    Parameter("intra_reduce_scatter", "reduce_scatter_frac", *_FRAC),
    Parameter("intra_two_rank", "two_rank_frac", 0.2, 1.5, 0.9),
    Parameter("intra_switch", "switch_all_reduce_frac", 0.1, 1.5, 0.95),
    Parameter("intra_switch_setup", "switch_latency", 0.0, 300e-6, 60e-6),
    Parameter("intra_mesh", "mesh", 0.0, 1.0, 0.5),
    Parameter("host_bandwidth", "host_bandwidth", 5e9, 1e12, 1e11),
)
INTER = (
    Parameter("inter_hop", "latency", 1e-6, 1e-3, 20e-6),
    Parameter("inter_all_reduce", "all_reduce_frac", *_FRAC),
    Parameter("inter_all_gather", "all_gather_frac", *_FRAC),
    Parameter("inter_reduce_scatter", "reduce_scatter_frac", *_FRAC),
    Parameter("inter_send", "send_recv_frac", *_FRAC),
    Parameter("inter_socket", "socket_bandwidth", 1e8, 2e10, 2e9),
)


@dataclass(frozen=True)
class Calls:
    """Measured calls, one per row of every column; `numbers` is the machine of each call as the
    profiles ship it."""

    collective: np.ndarray
    group: Group
    tensor_bytes: np.ndarray
    measured_s: np.ndarray
    sharing: np.ndarray  # ranks that use the host's bridges at the time
    numbers: Machine

    def pick(self, rows: np.ndarray) -> Calls:
        numbers = Machine(
            **{
                f.name: getattr(self.numbers, f.name)[rows]
                for f in fields(Machine)
                if f.name != "without"
            }
        )
        group = Group(self.group.ranks[rows], self.group.ranks_per_node[rows])
        return Calls(
            self.collective[rows],
            group,
            self.tensor_bytes[rows],
            self.measured_s[rows],
            self.sharing[rows],
            numbers,
        )


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def link_of(row: dict[str, str]) -> str:
    """The link whose numbers a row tells about: the fabric, or the link inside the node."""
    return row["intra_node"] if row["nodes"] == "1" else row["inter_node"]


def usable(row: dict[str, str], smallest_bytes: float = 1.0) -> bool:
    """Whether a row has a known collective, size and time, and nothing doubtful about it."""
    stated = row["collective"] in COLLECTIVES and row["bytes"] and float(row["time_us"] or 0) > 0
    return (
        bool(stated)
        and float(row["bytes"]) >= smallest_bytes
        and not any(word in row["note"] for word in DOUBTFUL)
    )


def _numbers(row: dict[str, str]) -> tuple[Machine, int, LinkSpec]:
    """The planner's machine for a row's cluster. Inside a node the rest of the usual node is there
    but idle."""
    ranks, nodes = int(row["ranks"]), int(row["nodes"])
    per_node = int(row["gpus_per_node"] or ranks // nodes)
    if nodes == 1:
        per_node = max(catalog.load("gpus", GpuSpec, row["gpu"]).node.gpus_per_node, ranks)
    options = Options(
        model="gpt2",  # any: links know none
        gpu=row["gpu"],
        gpus=per_node * nodes,
        gpus_per_node=per_node,
        intra_node=row["intra_node"] or None,
        inter_node=row["inter_node"] or None,
        nics_per_node=int(row["nics_per_node"]) if row["nics_per_node"] else None,
        nic_bandwidth=f"{row['nic_gbps']} Gbit/s" if row["nic_gbps"] else None,
    )
    cluster, _ = cluster_spec(options)
    widths = dict.fromkeys(("hidden", "head_dim", "ffn_hidden", "vocab"), 64)
    shape = ModelSpec.model_validate(
        {"name": "none", "layers": 1, "heads": 1, "kv_heads": 1, **widths}
    )
    plan = Plan(
        model=shape,
        cluster=cluster,
        training=TrainingSpec(seq_len=64, global_batch=1, precision="fp16"),
        stack=stack_spec("megatron-core"),
        request=LayoutRequest(),
    )
    domain = cluster.nvlink_domain if nodes == 1 else per_node
    return machine(plan), domain, cluster.intra_node


def calls(rows: Iterable[dict[str, str]]) -> Calls:
    """Rows of a table as columns. The group fills its nodes, one rank after the other."""
    known: dict[tuple[str, ...], tuple[Machine, int, LinkSpec]] = {}
    collective, ranks, inside, size, time, sharing = [], [], [], [], [], []
    numbers: dict[str, list[float]] = {f.name: [] for f in fields(Machine) if f.name != "without"}
    for row in rows:
        key = tuple(
            row[name]
            for name in (
                "gpu",
                "nodes",
                "gpus_per_node",
                "ranks",
                "intra_node",
                "inter_node",
                "nics_per_node",
                "nic_gbps",
            )
        )
        if key not in known:
            known[key] = _numbers(row)
        m, domain, link = known[key]
        group = place(np.array([float(row["ranks"])]), np.ones(1), Tiers(domain, np.inf))
        collective.append(COLLECTIVES.index(row["collective"]))
        ranks.append(float(row["ranks"]))
        inside.append(float(group.ranks_per_node[0]))
        size.append(float(row["bytes"]))
        time.append(float(row["time_us"]) * 1e-6)
        sharing.append(inside[-1])
        for name, column in numbers.items():
            column.append(float(getattr(m, name)))
        if link.host_bandwidth is not None:
            numbers["intra_host"][-1] = (
                float(link.host_bandwidth) / inside[-1]
            )  # a test has its host to itself
        if "NVLS off" in row["note"]:
            numbers["intra_switch_ranks"][-1] = np.inf
    columns = Machine(**{name: np.array(column) for name, column in numbers.items()})
    return Calls(
        np.array(collective),
        Group(np.array(ranks), np.array(inside)),
        np.array(size),
        np.array(time),
        np.array(sharing),
        columns,
    )


def predicted_s(calls: Calls, changed: dict[str, float] | None = None) -> np.ndarray:
    """Seconds of each call by the planner, with some of the machine's numbers replaced."""
    changed = dict(changed or {})
    whole = changed.pop("host_bandwidth", None)
    same = np.ones_like(calls.tensor_bytes)
    columns = {name: value * same for name, value in changed.items()}
    if whole is not None:
        columns["intra_host"] = whole / calls.sharing
    m = replace(calls.numbers, **columns)
    times = [
        communicate.all_reduce_s(m, calls.tensor_bytes, calls.group),
        communicate.all_gather_s(m, calls.tensor_bytes, calls.group),
        communicate.reduce_scatter_s(m, calls.tensor_bytes, calls.group),
        communicate.send_s(m, calls.tensor_bytes, (calls.group.nodes > 1) * 1.0),
    ]
    return np.select([calls.collective == index for index in range(len(times))], times)


def determined(calls: Calls, link: LinkSpec) -> list[Parameter]:
    """The parameters that these calls can tell: of links that have them, and of collectives that
    were called."""
    seen = {COLLECTIVES[index] + "_frac" for index in np.unique(calls.collective)}
    optional = {
        "two_rank_frac",
        "switch_all_reduce_frac",
        "switch_latency",
        "mesh",
        "host_bandwidth",
        "socket_bandwidth",
    }
    chosen = []
    for parameter in INTRA if link.scope == "intra_node" else INTER:
        if parameter.key in optional:
            if getattr(link, parameter.key) is not None:
                chosen.append(parameter)
        elif not parameter.key.endswith("_frac") or parameter.key in seen:
            chosen.append(parameter)
    return chosen


def fit(calls: Calls, parameters: list[Parameter]) -> dict[str, float]:
    """Least squares of the log error; soft-L1 so that outliers of a table do not decide."""
    from scipy.optimize import least_squares

    scale = np.array([p.high for p in parameters])

    def residual(values: np.ndarray) -> np.ndarray:
        named = {p.field: value for p, value in zip(parameters, values * scale, strict=True)}
        return np.log(predicted_s(calls, named) / calls.measured_s)

    low, start = (
        np.array([getattr(p, name) for p in parameters]) / scale for name in ("low", "start")
    )
    solution = (
        least_squares(
            residual, start, bounds=(low, np.ones_like(scale)), loss="soft_l1", f_scale=0.1
        ).x
        * scale
    )
    return {p.field: float(value) for p, value in zip(parameters, solution, strict=True)}


def errors(calls: Calls, changed: dict[str, float] | None = None) -> np.ndarray:
    """Predicted over measured, less one."""
    return np.asarray(predicted_s(calls, changed) / calls.measured_s - 1.0)


def held_out(calls: Calls, parameters: list[Parameter], seed: int) -> np.ndarray:
    """Errors of two halves, each predicted by the fit on the other."""
    first = np.random.default_rng(seed).random(len(calls.measured_s)) < 0.5
    out = np.empty_like(calls.measured_s)
    for rows in (first, ~first):
        out[rows] = errors(calls.pick(rows), fit(calls.pick(~rows), parameters))
    return out


def _report(title: str, error: np.ndarray, calls: Calls) -> None:
    groups = {name: calls.collective == index for index, name in enumerate(COLLECTIVES)}
    groups |= {">= 1 MB": calls.tensor_bytes >= 1e6, "all": calls.tensor_bytes > 0}
    groups |= {f"{n:.0f} ranks": calls.group.ranks == n for n in np.unique(calls.group.ranks)}
    print(f"  {title}")
    for name, chosen in groups.items():
        if np.any(chosen):
            part = 100 * error[chosen]
            shown = (
                f"MAPE {np.abs(part).mean():5.1f} %  median {np.median(np.abs(part)):5.1f} %  bias"
                f" {np.median(part):+5.1f} %"
            )
            print(f"    {name:16s} {shown}  rows {len(part)}")


def main() -> None:
    arguments = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    arguments.add_argument("table", type=Path)
    arguments.add_argument("--link", help="only this link")
    arguments.add_argument("--gpu", help="only rows of this GPU")
    arguments.add_argument("--ranks", help="only groups of these sizes, as 4,8")
    arguments.add_argument(
        "--hold", default="", help="keys of the profile that are not fitted, as base_latency,mesh"
    )
    arguments.add_argument(
        "--smallest", type=float, default=1.0, help="bytes below which rows are left out"
    )
    arguments.add_argument("--seed", type=int, default=0)
    options = arguments.parse_args()
    sizes = options.ranks.split(",") if options.ranks else None
    table = [
        row
        for row in rows_of(options.table)
        if usable(row, options.smallest)
        and options.gpu in (None, row["gpu"])
        and (sizes is None or row["ranks"] in sizes)
    ]
    for link in catalog.load_all("networks", LinkSpec):
        rows = [row for row in table if link_of(row) == link.id]
        if not rows or options.link not in (None, link.id):
            continue
        every = calls(rows)
        print(f"{link.id}: {len(rows)} rows")
        _report("shipped profile, all rows", errors(every), every)
        if len(rows) < 10:
            continue
        parameters = [p for p in determined(every, link) if p.key not in options.hold.split(",")]
        values = fit(every, parameters)
        print("  fitted on all rows:")
        for p in parameters:
            value = values[p.field]
            edge = " ON ITS LOWER BOUND" if value < p.low + 1e-3 * (p.high - p.low) else ""
            edge = " ON ITS UPPER BOUND" if value > p.high - 1e-3 * (p.high - p.low) else edge
            print(f"    {p.key:24s} {value:.3g}{edge}")
        _report(
            "held out: each half by the fit on the other",
            held_out(every, parameters, options.seed),
            every,
        )


if __name__ == "__main__":
    main()
