"""Blocks of text for `dpplan compare` and `dpplan recommend`."""

from __future__ import annotations

import math
from collections.abc import Sequence

from planner.show.text import Block, Report, layout_text
from planner.units import show

_WIDTH, _HEIGHT = 64, 16  # characters of the chart
_MARKS = "*o+x#@%&"
_MOST_NOTES = 8
_SMALL = 0.005  # parts of a difference below this share of the step are left out of the table


def words(name: str) -> str:
    return name.replace("_", " ")


def percent(value: float | None, signed: bool = False) -> str:
    if value is None:
        return "-"
    return f"{100 * value:{'+' if signed else ''}.1f} %"


def figure(name: str, value: float | None) -> str:
    if value is None:
        return "-"
    if name in ("memory_bytes", "headroom_bytes"):
        return show(value, "B")
    if name == "step_seconds":
        return show(value, "s")
    if name == "mfu":
        return percent(value)
    return f"{value:,.1f}" if name == "days" else f"{value:,.0f}"


# what is compared: name and where a point document has it
FIGURES: dict[str, tuple[str, str]] = {
    "gpus": ("cluster", "gpus"),
    "memory_bytes": ("memory", "device_bytes"),
    "headroom_bytes": ("memory", "headroom_bytes"),
    "step_seconds": ("step", "seconds"),
    "mfu": ("throughput", "mfu"),
    "tokens_per_s": ("throughput", "tokens_per_s"),
    "tokens_per_s_per_gpu": ("throughput", "tokens_per_s_per_gpu"),
    "days": ("run", "days"),
    "cost_usd": ("run", "cost_usd"),
    "energy_kwh": ("run", "energy_kwh"),
}
NAMES = {
    "gpus": "GPUs",
    "memory_bytes": "memory",
    "headroom_bytes": "free",
    "step_seconds": "step",
    "mfu": "MFU",
    "tokens_per_s": "tokens/s",
    "tokens_per_s_per_gpu": "tokens/s/GPU",
    "days": "days",
    "cost_usd": "USD",
    "energy_kwh": "kWh",
}


def compare_blocks(r: Report) -> list[Block]:
    """Side by side with differences, or the curves of a sweep; refused requests and notes at the
    end."""
    blocks = _side_blocks(r) if r["difference"] is not None else _sweep_blocks(r)
    refused = [row for row in r["points"] if row["refused"] is not None]
    if refused:
        block = Block(
            f"Without an answer: {len(refused)} of {len(r['points'])}", header=["request", "why"]
        )
        block.rows = [[row["label"], row["refused"]] for row in refused[:_MOST_NOTES]]
        if len(refused) > _MOST_NOTES:
            block.text.append(f"{_MOST_NOTES} shown (--csv and --json list all)")
        blocks.append(block)
    if r["notes"]:
        blocks.append(Block("Notes", text=list(r["notes"])))
    return blocks


def _side_blocks(r: Report) -> list[Block]:
    answered = [row for row in r["points"] if row["refused"] is None]
    change = {row["label"]: row for row in r["difference"]["rows"]}
    shown = [
        name
        for name in FIGURES
        if any(row[FIGURES[name][0]][FIGURES[name][1]] is not None for row in answered)
    ]
    names = [d["name"] for d in r["dimensions"]]
    models = {row["model"] for row in answered}
    table = Block(
        f"{answered[0]['model'] if len(models) == 1 else 'Models'}: by {', '.join(names)},"
        f" {_BASIS[r['at']]}"
    )
    table.header = ["request", *(f">{NAMES[name]}" for name in shown), "layout"]
    for row in answered:
        cells = [figure(name, row[FIGURES[name][0]][FIGURES[name][1]]) for name in shown]
        if not row["memory"]["fits"]:
            cells[shown.index("step_seconds")] += " (does not fit)"
        table.rows.append([row["label"], *cells, f"{layout_text(row['layout'])} [{row['stack']}]"])
    first = r["difference"]["to"]
    moved = Block(f"Against {first}", header=["request", *(f">{NAMES[name]}" for name in shown)])
    for row in answered:
        if row["label"] != first:
            apart = change[row["label"]]["change_frac"]
            moved.rows.append(
                [row["label"], *(percent(apart[name], signed=True) for name in shown)]
            )
    return [table, moved, _difference_block(r["difference"])]


_BASIS = {"count": "at the GPUs asked", "cost": "at equal cost", "power": "at equal power"}


def _difference_block(d: Report) -> Block:
    """Seconds of each part beyond those of the first; the columns sum to the last line."""
    others = [row for row in d["rows"] if row["label"] != d["to"]]
    base = next(row for row in d["rows"] if row["label"] == d["to"])
    block = Block(
        f"What makes the difference: seconds per {d['per']} beyond {d['to']}"
        f" ({show(base['seconds'], 's')})"
    )
    block.header = ["part", *(f">{row['label']}" for row in others)]
    least = _SMALL * max(row["seconds"] for row in d["rows"])
    small = [0.0] * len(others)
    for name in base["components"]:
        values = [row["components"][name] for row in others]
        if max(map(abs, values), default=0.0) < least:
            small = [a + b for a, b in zip(small, values, strict=True)]
            continue
        block.rows.append([words(name), *(_signed(v) for v in values)])
    if any(small):
        block.rows.append(["smaller parts together", *(_signed(v) for v in small)])
    block.rows.append(["whole", *(_signed(row["difference_s"]) for row in others)])
    for row in others:
        most = sorted(row["components"].items(), key=lambda x: -abs(x[1]))[:2]
        named = ", ".join(f"{words(name)} {_signed(value)}" for name, value in most if value)
        if named:
            block.text.append(
                f"{row['label']}: {_signed(row['difference_s'])}"
                f" ({percent(row['difference_s'] / base['seconds'], True)}), most of it {named}"
            )
    return block


def _signed(seconds: float) -> str:
    return ("+" if seconds >= 0 else "-") + show(abs(seconds), "s") if seconds else "0"


# ------------------------------------------------------------------------------------------------ s


def _sweep_blocks(r: Report) -> list[Block]:
    blocks = []
    several = len(r["curves"]) > 1
    for curve in r["curves"]:
        blocks.append(_curve_block(curve, r))
        if curve["parts"] is not None:
            blocks.append(_parts_block(curve, r["scaling"]))
    axis = r["curves"][0]["axis"]
    named = axis_name(r["curves"][0])
    quantity = "tokens_per_s" if axis == "gpus" else "tokens_per_s_per_gpu"
    chart = [
        (c["label"], [(p["value"], p[quantity]) for p in c["points"] if p["fits"]])
        for c in r["curves"]
        if any(p["fits"] for p in c["points"])
    ]
    if chart:
        block = Block(f"{NAMES[quantity]} over {named}", text=chart_lines(chart, axis == "gpus"))
        if several:
            block.text.append(
                "  ".join(
                    f"{_MARKS[i % len(_MARKS)]} {label}" for i, (label, _) in enumerate(chart)
                )
            )
        if axis == "gpus":
            block.text.append(". in proportion to the first point")
        blocks.append(block)
    return blocks


def axis_name(curve: Report) -> str:
    """What is swept, with its unit."""
    return words(curve["axis"]) + (f" ({curve['unit']})" if curve["unit"] else "")


def _curve_block(curve: Report, r: Report) -> Block:
    axis, gpus = axis_name(curve), curve["axis"] == "gpus"
    first = next((row for row in r["points"] if row["refused"] is None), None)
    of = curve["label"] or (f"{first['model']} on {first['cluster']['gpu_title']}" if first else "")
    block = Block(f"{of}: {axis} swept" + (f", {r['scaling']} scaling" if gpus else ""))
    block.header = [f">{axis}", ">step", ">tokens/s", ">tokens/s/GPU", ">MFU"]
    days = any(p.get("days") is not None for p in curve["points"])
    block.header += [">days", ">USD"] if days else []
    block.header += [">speed-up", ">efficiency", ">added GPU brings"] if gpus else []
    block.header += ["bottleneck"]
    for p in curve["points"]:
        if not p["fits"]:
            block.rows.append(
                [f"{p['value']:,g}", p["why"].split(" - ")[0], *[""] * (len(block.header) - 2)]
            )
            continue
        cells = [
            f"{p['value']:,g}",
            show(p["step_seconds"], "s"),
            f"{p['tokens_per_s']:,.0f}",
            f"{p['tokens_per_s_per_gpu']:,.0f}",
            percent(p["mfu"]),
        ]
        cells += [figure("days", p["days"]), figure("cost_usd", p["cost_usd"])] if days else []
        cells += (
            [f"{p['speed_up']:,.2f}", percent(p["efficiency"]), percent(p["marginal_frac"])]
            if gpus
            else []
        )
        block.rows.append([*cells, p["bottleneck"]])
    if curve["best"] is None:
        block.text.append("nothing fits")
    elif gpus:
        block.text += _scaling_text(curve, r["stop_below"])
    else:
        block.text.append(f"most tokens/s per GPU at {axis} {curve['best']:,g}")
    return block


def _scaling_text(curve: Report, stop_below: float) -> list[str]:
    until, stops, fitted = curve["pays_until"], curve["stops_at"], curve["amdahl"]
    rule = f"each added GPU brings at least {percent(stop_below)} of one at the start"
    lines = [
        f"pays up to  {until:,g} GPUs: {rule}"
        + (f", at {stops:,g} less" if stops else " at every count tried")
    ]
    if fitted:
        most = (
            f", at most {fitted['most_speed_up']:,.0f} times the first"
            if fitted["most_speed_up"]
            else ""
        )
        lines.append(
            f"Amdahl      step = {show(fitted['serial_s'], 's')} +"
            f" {show(fitted['parallel_gpu_s'], 's')} / GPUs{most}; serial is"
            f" {percent(fitted['serial_share_at_last'])} of the last step; misses by up to"
            f" {percent(abs(fitted['worst_residual_frac']))}"
        )
    return lines


def _parts_block(curve: Report, scaling: str) -> Block:
    parts = curve["parts"]
    title = (
        f"What shrinks from {parts['first']:,g} to {parts['last']:,g} GPUs"
        if scaling == "strong"
        else (f"What stays from {parts['first']:,g} to {parts['last']:,g} GPUs")
    )
    block = Block(f"{title}{', ' + curve['label'] if curve['label'] else ''}")
    block.header = [
        "part",
        f">at {parts['first']:,g}",
        f">at {parts['last']:,g}",
        ">in proportion",
        ">beyond it",
        ">~ GPUs ^",
    ]
    for name, line in sorted(parts["components"].items(), key=lambda x: -abs(x[1]["excess_s"])):
        if max(line["first_s"], line["last_s"]) <= 0:
            continue
        power = "-" if line["exponent"] is None else f"{line['exponent']:+.2f}"
        block.rows.append(
            [
                words(name),
                *(show(line[k], "s") for k in ("first_s", "last_s", "ideal_s")),
                _signed(line["excess_s"]),
                power,
            ]
        )
    first, last = (
        sum(line[k] for line in parts["components"].values()) for k in ("first_s", "last_s")
    )
    block.rows.append(
        [
            "step",
            show(first, "s"),
            show(last, "s"),
            show(parts["ideal_s"], "s"),
            _signed(parts["excess_s"]),
            "",
        ]
    )
    return block


def chart_lines(
    curves: Sequence[tuple[str, Sequence[tuple[float, float]]]], ideal: bool
) -> list[str]:
    """Curves in characters, both axes logarithmic; ideal: dots in proportion to the first point of
    the first curve."""
    points = [p for _, curve in curves for p in curve]
    low_x, high_x = min(p[0] for p in points), max(p[0] for p in points)
    low_y, high_y = min(p[1] for p in points), max(p[1] for p in points)
    rows = [[" "] * _WIDTH for _ in range(_HEIGHT)]

    def at(x: float, y: float) -> tuple[int, int] | None:
        across = math.log(x / low_x) / math.log(high_x / low_x) if high_x > low_x else 0.0
        up = math.log(y / low_y) / math.log(high_y / low_y) if high_y > low_y else 0.0
        return (
            (round((1 - up) * (_HEIGHT - 1)), round(across * (_WIDTH - 1)))
            if 0 <= up <= 1
            else None
        )

    if ideal and high_x > low_x:
        first_x, first_y = curves[0][1][0]
        for i in range(_WIDTH):
            x = low_x * (high_x / low_x) ** (i / (_WIDTH - 1))
            place = at(x, first_y * x / first_x)
            if place:
                rows[place[0]][place[1]] = "."
    for i, (_, curve) in enumerate(curves):
        for x, y in curve:
            place = at(x, y)
            if place:
                rows[place[0]][place[1]] = _MARKS[i % len(_MARKS)]
    labels = {0: show(high_y, "count"), _HEIGHT - 1: show(low_y, "count")}
    out = [f"{labels.get(i, ''):>8} |{''.join(row).rstrip()}" for i, row in enumerate(rows)]
    out.append(" " * 9 + "+" + "-" * _WIDTH)
    out.append(" " * 10 + f"{low_x:,g}".ljust(_WIDTH - 12) + f"{high_x:,g}".rjust(12))
    return out
