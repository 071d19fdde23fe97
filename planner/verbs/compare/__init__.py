"""The verb `compare`: requests side by side with what makes the difference, and sweeps with their
scaling."""

from __future__ import annotations

import csv
import io
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

from planner.inputs.cluster import node_size, unit_cost
from planner.inputs.model import model_spec
from planner.inputs.options import read_options
from planner.inputs.scenario_file import read
from planner.report.layout import SCHEMA_VERSION, Report
from planner.show.compare import FIGURES
from planner.show.text import layout_text
from planner.specs.base import PlanError
from planner.specs.options import Options, refuse
from planner.specs.options.own import CompareOptions
from planner.verbs.compare import scaling
from planner.verbs.compare.dimensions import Dimension, Value, product, swept, unit_of, varied
from planner.verbs.requests import Point, Progress, answer, common_batch, document

_NEIGHBOURS = (
    8  # whole-node counts on each side of the equal one that are tried where it has no layout
)
_SIDE = 200  # requests side by side; more are a sweep


def compare(
    asked: CompareOptions, given: Mapping[str, Any], progress: Progress | None = None
) -> Report:
    """All combinations answered; those side by side are compared with the first that fits, sweeps
    are followed.

    given: options common to all, stronger than those of scenario files. Raises PlanError where
    nothing can be answered.
    """
    sides, sweeps = _dimensions(asked)
    dimensions = [*sides, *sweeps]
    rows = product(dimensions)
    notes: list[str] = []
    requests = [_options(row, bool(asked.files), given) for row in rows]
    requests = _batches(requests, dimensions, asked, notes)
    if asked.at != "count":
        requests = _equal(requests, asked, notes)
    points = answer(requests, jobs=asked.jobs or 1, progress=progress)
    if all(point.report is None for point in points):
        raise PlanError(
            "compare",
            None,
            f"none of the {len(points)} requests can be answered; the first: {points[0].refused}",
        )
    documents = [
        {
            "label": _label(dimensions, row),
            "values": {d.name: _shown(v) for d, v in zip(dimensions, row, strict=True)},
            **document(point),
        }
        for row, point in zip(rows, points, strict=True)
    ]
    return {
        "schema_version": SCHEMA_VERSION,
        "dimensions": [
            {"name": d.name, "values": [v.label for v in d.values], "swept": d in sweeps}
            for d in dimensions
        ],
        "at": asked.at,
        "scaling": asked.scaling,
        "stop_below": asked.stop_below,
        "notes": notes,
        "points": documents,
        "difference": None if sweeps else difference(documents),
        "curves": _curves(sides, sweeps, rows, documents, asked) if sweeps else [],
    }


# ------------------------------------------------------------------------------------------------ r


def _dimensions(asked: CompareOptions) -> tuple[list[Dimension], list[Dimension]]:
    """What stands side by side, and what is swept."""
    if len(asked.sweep) > 2:
        raise PlanError(
            "--sweep", len(asked.sweep), "sweeps are too many; two at most, others with --vary"
        )
    sides, sweeps = [varied(text) for text in asked.vary], [swept(text) for text in asked.sweep]
    names = [one.name for one in (*sides, *sweeps)]
    if asked.at != "count" and "gpus" in names:
        raise PlanError(
            "--at", asked.at, "chooses the number of GPUs; leave gpus out of --sweep and --vary"
        )
    if asked.scaling == "weak" and "gpus" not in [one.name for one in sweeps]:
        raise PlanError(
            "--scaling", "weak", "keeps the batch per GPU over --sweep gpus=...; give that"
        )
    if asked.scaling == "weak" and "global_batch" in names:
        raise PlanError(
            "--scaling",
            "weak",
            "chooses the global batch; leave global_batch out of --sweep and --vary",
        )
    if asked.files:
        files = tuple(Value(name, read(name)) for name in asked.files)
        sides.insert(0, Dimension("scenario", files))
    if math.prod(len(one.values) for one in (*sides, *sweeps)) < 2:
        raise PlanError(
            "compare",
            None,
            "needs two requests: two files, --vary gpu=rtx4090,a100 or --sweep gpus=8..512",
        )
    if not sweeps and math.prod(len(one.values) for one in sides) > _SIDE:
        many = " x ".join(str(len(one.values)) for one in sides)
        raise PlanError(
            "--vary",
            many,
            f"are more than {_SIDE} requests side by side; sweep a number with --sweep",
        )
    return sides, sweeps


def _options(values: Sequence[Value], files: bool, given: Mapping[str, Any]) -> Options:
    """A scenario file first, over it the options of the command line, over them what is varied."""
    first, *rest = (
        ({}, *(v.update for v in values)) if not files else tuple(v.update for v in values)
    )
    merged = {**first, **given}
    for update in rest:
        merged.update(update)
    options = read_options(merged)
    refuse(options, "compare")
    return options


def _label(dimensions: Sequence[Dimension], values: Sequence[Value]) -> str:
    named = (
        v.label if v.number is None else f"{d.name.replace('_', ' ')} {v.label}"
        for d, v in zip(dimensions, values, strict=True)
    )
    return ", ".join(named)


def _shown(value: Value) -> Any:
    return value.label if value.number is None else value.number


def _batches(
    requests: Sequence[Options],
    dimensions: Sequence[Dimension],
    asked: CompareOptions,
    notes: list[str],
) -> list[Options]:
    """The same global batch for all that name none; with weak scaling the batch per GPU of the
    first count."""
    counts = sorted({one.gpus for one in requests})
    if all(one.global_batch is not None for one in requests) and asked.scaling == "strong":
        return list(requests)
    weak = asked.scaling == "weak"
    out, shown = [], set()
    for one in requests:
        batch = one.global_batch
        if batch is None:
            seq_len = one.seq_len or model_spec(one.model)[0].max_positions
            batch = common_batch(seq_len, counts[:1] if weak else counts)
        if weak:
            per_gpu, rest = divmod(batch * one.gpus, counts[0])
            if rest:
                raise PlanError(
                    "--global-batch",
                    batch,
                    f"of {counts[0]} GPUs is no whole batch on {one.gpus}; give a multiple "
                    f"of {counts[0]}",
                )
            batch = per_gpu
        out.append(one.changed(global_batch=batch))
        shown.add(batch)
    if weak:
        notes.append(
            f"weak scaling: {out[0].global_batch:,} sequences on {counts[0]:,} GPUs, and as many"
            " per GPU on the others"
        )
    elif any(one.global_batch is None for one in requests):
        said = ", ".join(f"{batch:,}" for batch in sorted(shown))
        notes.append(
            f"global batch {said} sequences, near 4 Mi tokens, the same at every count of GPUs (set"
            " --global-batch)"
        )
    return out


def _equal(requests: Sequence[Options], asked: CompareOptions, notes: list[str]) -> list[Options]:
    """Whole nodes of each request's GPUs that cost, or draw, what the first request's do."""
    spend = [unit_cost(one, asked.at) for one in requests]
    target = requests[0].gpus * spend[0]
    tried: list[list[Options]] = []
    for one, each in zip(requests, spend, strict=True):
        node = node_size(one)
        step = node if target >= node * each else 1
        nearest = max(1, round(target / each / step))
        counts = sorted(
            range(max(1, nearest - _NEIGHBOURS), nearest + _NEIGHBOURS + 1),
            key=lambda k: (abs(k - nearest), k),
        )
        tried.append(
            [one.changed(gpus=k * step) for k in counts if step > 1 or node == 1 or node % k == 0]
            or [one.changed(gpus=nearest)]
        )
    tried[0] = [requests[0]]
    found = iter(answer(list(itertools.chain(*tried)), jobs=asked.jobs or 1))
    out = []
    unit = "USD an hour" if asked.at == "cost" else "W of GPUs"
    for options, each in zip(tried, spend, strict=True):
        points: list[Point] = [next(found) for _ in options]
        with_layout = [p.options for p in points if p.report is not None]
        taken = (with_layout or options)[0]
        passed = options.index(taken)
        said = (
            f"{taken.gpus:,} x {taken.gpu or taken.cluster}: {taken.gpus * each:,.2f} {unit} of"
            f" {target:,.2f}"
        )
        notes.append(
            said
            + (
                f"; no layout on {', '.join(f'{o.gpus:,}' for o in options[:passed])}"
                if passed
                else ""
            )
        )
        out.append(taken)
    return out


# ------------------------------------------------------------------------------------------------ d


def quantity(row: Report, path: tuple[str, str]) -> float | None:
    """A figure of a point document, None where it has none."""
    value: float | None = row.get(path[0], {}).get(path[1])
    return value


def difference(rows: Sequence[Report]) -> Report | None:
    """Every answered row against the first that fits: quantities in per cent, seconds part by part.

    Seconds are those of a step where all take equally many tokens, else of a million tokens. Parts
    sum to the whole difference.
    """
    answered = [row for row in rows if row["refused"] is None]
    first = next((row for row in answered if row["memory"]["fits"]), answered[0])
    equal = len({row["tokens_per_step"] for row in answered}) == 1
    names = list(dict.fromkeys(name for row in answered for name in row["step"]["components"]))
    others = []
    for row in answered:
        mine, base = ({n: _part(one, n, equal) for n in names} for one in (row, first))
        apart = {name: mine[name] - base[name] for name in names}
        others.append(
            {
                "label": row["label"],
                "change_frac": {
                    name: _change(quantity(row, path), quantity(first, path))
                    for name, path in FIGURES.items()
                },
                "seconds": sum(mine.values()),
                "difference_s": sum(mine.values()) - sum(base.values()),
                "components": apart,
            }
        )
    return {"to": first["label"], "per": "step" if equal else "million tokens", "rows": others}


def _part(row: Report, name: str, per_step: bool) -> float:
    seconds: float = row["step"]["components"].get(name, 0.0)
    return seconds if per_step else seconds / row["tokens_per_step"] * 1e6


def _change(value: float | None, base: float | None) -> float | None:
    return value / base - 1 if value is not None and base and value >= 0 < base else None


# ------------------------------------------------------------------------------------------------ s


def _curves(
    sides: Sequence[Dimension],
    sweeps: Sequence[Dimension],
    rows: Sequence[Sequence[Value]],
    documents: Sequence[Report],
    asked: CompareOptions,
) -> list[Report]:
    """One curve per combination of what stands side by side and of the second sweep; GPUs are the
    axis where they are swept."""
    axis = next((i for i, one in enumerate(sweeps) if one.name == "gpus"), len(sweeps) - 1)
    dimensions = [*sides, *sweeps]
    at = len(sides) + axis
    lines: dict[str, list[tuple[float, Report]]] = {}
    for values, found in zip(rows, documents, strict=True):
        rest = [i for i in range(len(dimensions)) if i != at]
        label = _label([dimensions[i] for i in rest], [values[i] for i in rest])
        number = values[at].number
        assert number is not None
        lines.setdefault(label, []).append((number, found))
    unit = unit_of(sweeps[axis].values[0].label)
    return [
        scaling.curve(
            sweeps[axis].name,
            label,
            sorted(line, key=lambda x: x[0]),
            asked.scaling,
            asked.stop_below,
        )
        | {"unit": unit}
        for label, line in lines.items()
    ]


# ------------------------------------------------------------------------------------------------ f


def csv_text(out: Report) -> str:
    """One line per request: what varies, the answer, seconds of each component, and the command
    that asks for it alone."""
    names = [one["name"] for one in out["dimensions"]]
    answered = [row for row in out["points"] if row["refused"] is None]
    parts = list(dict.fromkeys(name for row in answered for name in row["step"]["components"]))
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(
        [
            *(f"varied_{name}" for name in names),
            "fits",
            "refused",
            "stack",
            "layout",
            "capacity_bytes",
            "step_low_s",
            "step_high_s",
            *(name for name in FIGURES),
            "goodput",
            *(f"{name}_s" for name in parts),
            "command",
        ]
    )
    for row in out["points"]:
        varied_here = [row["values"][name] for name in names]
        if row["refused"] is not None:
            writer.writerow(
                [
                    *varied_here,
                    False,
                    row["refused"],
                    *[""] * (6 + len(FIGURES) + len(parts)),
                    row["command"],
                ]
            )
            continue
        step, memory = row["step"], row["memory"]
        figures = [quantity(row, path) for path in FIGURES.values()]
        writer.writerow(
            [
                *varied_here,
                memory["fits"],
                "",
                row["stack"],
                layout_text(row["layout"]),
                memory["capacity_bytes"],
                step["low"],
                step["high"],
                *("" if value is None else value for value in figures),
                row["run"]["goodput"],
                *(step["components"].get(name, 0.0) for name in parts),
                row["command"],
            ]
        )
    return buffer.getvalue()
