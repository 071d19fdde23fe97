"""Blocks read from the code itself: options of the command line, keys of profile files, phases and
traffic tables."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Literal, get_args, get_origin

from pages.text import table
from planner.specs.base import Spec

_UNITS = {
    "Bytes": 'number, "80 GiB"',
    "BytesPerSecond": 'number, "100 Gbit/s"',
    "FlopPerSecond": 'number, "312 TFLOP/s"',
    "Seconds": 'number, "4.5 us"',
    "Watts": 'number, "400 W"',
    "Number": "number",
    "Fraction": "number, 0..1",
    "Efficiency": "number, 0..1.5",
    "Names": "list of text",
    "Id": "id",
    "str": "text",
    "dict[str, BytesPerSecond]": "table of numbers by link id",
}


def _type(text: str, module: ModuleType) -> str:
    if text.startswith("Annotated[Sourced, Quantity('"):
        unit = text.split("'")[1]
        return f"number in {unit}" if unit != "1" else "number"
    base, *optional = text.split(" | ")
    choice = getattr(module, base, None)
    if get_origin(choice) is Literal:
        base = ", ".join(map(str, get_args(choice)))
    base = re.sub(r"Literal\[([^\]]*)\]", lambda m: m.group(1).replace("'", ""), base)
    shown = _UNITS.get(
        base, base if base[:1].islower() or base[:1].isdigit() else f"table, `{base}`"
    )
    return shown + (" or none" if optional == ["None"] else "")


def fields(where: str) -> str:
    """Keys of a spec: `planner.specs.hardware:GpuSpec`, with inherited ones.
    Name, type, default and the comment beside it in the code."""
    module, _, name = where.partition(":")
    spec = getattr(importlib.import_module(module), name)
    # what it states itself last, in place of what it extends
    known = [
        row for base in reversed(spec.__mro__) if base in _specs(spec) for row in _own_keys(base)
    ]
    rows = {row[0]: row for row in known}
    return table(["key", "type", "default", "meaning"], [*rows.values()])


def _specs(spec: type) -> list[type]:
    """A spec and what it extends, without what all specs are."""
    return [base for base in spec.__mro__ if issubclass(base, Spec) and base is not Spec]


def _own_keys(spec: type) -> Iterator[list[str]]:
    """Rows of the keys that a class itself states."""
    meanings = dict(_meanings(inspect.getdoc(spec) or ""))
    source = inspect.getsource(spec)
    lines, (body,) = source.splitlines(), ast.parse(source).body
    assert isinstance(body, ast.ClassDef)
    for node in body.body:
        if not isinstance(node, ast.AnnAssign):
            continue
        comment = (
            lines[(node.end_lineno or node.lineno) - 1][node.end_col_offset or 0 :]
            .partition("#")[2]
            .strip()
        )
        yield [
            f"`{ast.unparse(node.target)}`",
            _type(ast.unparse(node.annotation), sys.modules[spec.__module__]),
            _default(node.value),
            comment or meanings.get(ast.unparse(node.target), "").rstrip("."),
        ]


def _meanings(doc: str) -> Iterator[tuple[str, str]]:
    """Meanings given in a docstring, as `name, other: text`."""
    for names, text in re.findall(r"^(\w+(?:, \w+)*): (.*)$", doc, re.MULTILINE):
        for key in names.split(", "):
            yield key, text


def _default(value: ast.expr | None) -> str:
    if value is None:
        return "needed"
    if isinstance(value, ast.Name):
        return {"Width": "needed", "MaybeWidth": "`None`"}.get(value.id, value.id)
    if isinstance(value, ast.Call):
        for word in value.keywords:
            if word.arg == "default":
                return f"`{ast.unparse(word.value)}`"
            if word.arg == "default_factory":
                return f"`{ast.unparse(word.value).removeprefix('lambda: ').replace('dict', '{}')}`"
        return "needed"
    return f"`{ast.unparse(value)}`"


def traffic() -> str:
    """Bytes that each optimizer keeps and moves per parameter, of a matrix of 4,096 x 4,096 where
    that matters, and what it computes."""
    from pages.sources import plan_of
    from planner.estimate.machine.kernels import optimizer_traffic
    from planner.formulas.optimizers import OPTIMIZERS
    from planner.inputs.calibration import stack_spec

    side, rows = 4096.0, []
    for name, optimizer in OPTIMIZERS.items():
        work = optimizer.work(side, side) if optimizer.work else None
        flop = 0.0
        if work:
            products = sum(2 * g.m * g.n * g.k * g.times for g in work.gemms)
            flop = (products + work.decomposed_flop) / side**2
        plan = plan_of(stack_spec("megatron-core"), optimizer=name)
        moved = optimizer_traffic(plan) + (work.moved_bytes / side**2 if work else 0.0)
        kept = optimizer.matrix_bytes(side, side) / side**2
        rest = f"`{optimizer.rest}`" if optimizer.rest else "-"
        rows.append(
            [f"`{name}`", f"{kept:.4g}", f"{moved:.4g}", f"{flop:,.0f}", rest, optimizer.source]
        )
    return table(
        [
            "optimizer",
            ">moments kept, B",
            ">moved per step, B",
            ">FLOP",
            "embeddings, norms",
            "source",
        ],
        rows,
    )


def run_level() -> str:
    """Constants of the run level."""
    from planner.formulas import run_level as r

    return table(
        ["number", ">value", "kind"],
        [
            [
                "running time of one GPU between failures of its job",
                f"{r.MTBF_GPU_S / 3600:,.0f} h",
                "measured: Llama 3, arXiv 2407.21783 table 5",
            ],
            [
                "running time of one consumer card between failures of its job",
                f"{r.MTBF_CONSUMER_S / 3600:,.0f} h",
                "assumed: the least published, OPT-175B, arXiv 2205.01068",
            ],
            [
                "stop of replicas that go on without another",
                f"{r.REGROUP_S:g} s",
                "measured: FT-HSDP, arXiv 2602.00277",
            ],
            [
                "share of failures after which a node is replaced",
                f"{r.HARDWARE_FRAC:g}",
                "measured: Llama 3, section 3.3.4",
            ],
            ["until a replaced node is back", f"{r.REPAIR_S / 3600:g} h", "assumed"],
            [
                "pause of an asynchronous checkpoint, beside its copy to host memory",
                f"{r.PAUSE_S:g} s",
                "measured: 7B model, pytorch.org/blog/reducing-checkpointing-times",
            ],
            [
                "checkpoint storage, reading over writing",
                f"{r.READ_OVER_WRITE:g}",
                "assumed: DGX SuperPOD, recalled",
            ],
            ["restart after a failure, without loading", f"{r.RESTART_S:g} s", "assumed"],
            ["board power over its limit, computing", f"{r.POWER_FRAC:g}", "assumed"],
            [
                "board power over its limit, waiting",
                f"{r.WAIT_FRAC:g}",
                "assumed: arXiv 2308.12908 shows 0.2 to 0.75, recalled",
            ],
            ["host and network per GPU watt", f"{r.HOST_FACTOR:g}", "assumed"],
            ["building over computers (PUE)", f"{r.PUE:g}", "assumed"],
            [
                "CO2 of electricity, g/kWh",
                f"{r.GRID_G_PER_KWH:g}",
                "world mean of 2022: Ember, Global Electricity Review 2023",
            ],
            ["lifetime of own hardware", f"{r.LIFETIME_YEARS:g} years", "assumed"],
            ["share of it that earns", f"{r.USE_FRAC:g}", "assumed"],
            [
                "electricity beside own hardware",
                f"{r.ELECTRICITY_USD_PER_KWH:g} USD/kWh",
                "assumed",
            ],
        ],
    )


def checkpoint_storage() -> str:
    """Writing a checkpoint and the goodput that is left, by storage, for three models at the scale
    they are trained at."""
    from planner import api
    from planner.inputs.run import storages
    from planner.units import show

    rows = []
    for model, gpus, tp in (
        ("llama-3.1-8b", 256, 1),
        ("llama-3.1-70b", 2048, 4),
        ("llama-3.1-405b", 16384, 8),
    ):
        options = api.Options(
            model=model, gpu="h100", gpus=gpus, tp=tp, zero=1, stack="megatron-core", advice=0
        )
        for kind in ("async", "sync"):
            run = api.estimate(options.changed(checkpoint=kind)).run.reliability
            cells = [
                f"{show(storage.write_s, 's')}, {100 * storage.goodput:.1f} %"
                for storage in run.storages
            ]
            rows.append(
                [
                    model,
                    f"{gpus:,}",
                    show(run.checkpoint_bytes, "traffic"),
                    show(run.mtbf_s / 3600, "h"),
                    kind,
                    *cells,
                ]
            )
    names = [f">`{storage.id}`" for storage in storages()]
    return table(["model", ">H100", ">checkpoint", ">a failure every", "writer", *names], rows)


def convention() -> str:
    from planner.formulas.flops import CONVENTION

    return f"> {CONVENTION}\n"


def schedules() -> str:
    """Bubble and live chunks of each schedule for one case, computed."""
    import numpy as np

    from planner.schedules import BY_NAME, default_chunks
    from planner.schedules.base import Work

    pp, m = 8.0, 32.0
    rows = []
    for name, schedule in BY_NAME.items():
        v = float(default_chunks(name))
        idle = float(schedule.idle_s(Work(*[(pp - 1) / 3] * 3), Work(*[1 / 3] * 3), pp, m, v)) / (
            pp - 1
        )
        ends = schedule.live_chunks(
            np.array([0.0, pp - 1]), np.full(2, pp), np.full(2, v), np.full(2, m)
        )
        live = [float(x) / v for x in ends]
        rows.append([f"`{name}`", f"{v:g}", f"{idle:.2f}", f"{live[0]:g}", f"{live[1]:g}"])
    return table(
        [
            "schedule",
            ">vpp",
            ">idle share of fill and drain",
            ">micro-batches held, first stage",
            ">last stage",
        ],
        rows,
    )


def clocks() -> str:
    """Power by the law for every GPU of a known generation, beside its profile's."""
    from planner.estimate.machine.clock import law_of
    from planner.formulas.kernels import ENERGY_PER_FLOP
    from planner.inputs import catalog
    from planner.specs.hardware import GpuSpec

    rows = []
    for gpu in catalog.load_all("gpus", GpuSpec):
        law, rate = law_of(gpu), gpu.dense.bf16 or gpu.dense.fp16
        if law is None or rate is None:
            continue
        energy = ENERGY_PER_FLOP[gpu.architecture]
        shipped = gpu.kernels.sustained_clock
        origin = "runs" if "over all validated" in shipped.source else "assumed"
        origin = "law" if shipped.source.startswith("power law") else origin
        rows.append(
            [
                f"`{gpu.id}`",
                f"{float(gpu.power):g} W",
                f"{float(rate) / 1e12:g} TFLOP/s",
                f"{float(energy) * 1e12:g} pJ",
                f"{law:.2f}",
                f"{float(shipped):.2f}",
                origin,
            ]
        )
    return table(
        ["GPU", ">power", ">dense 16-bit rate", ">energy per FLOP", ">law", ">shipped", "from"],
        rows,
    )
