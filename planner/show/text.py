"""Blocks of text and tables from the report dicts, shown by rich on a terminal and as plain ASCII
when piped."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import Any

from planner.units import show

Report = dict[str, Any]


@dataclass
class Block:
    """A title, sentences, and perhaps a table. Numbers are right-aligned where the header starts
    with '>'."""

    title: str
    text: list[str] = field(default_factory=list)
    header: list[str] = field(default_factory=list)
    rows: list[list[str]] = field(default_factory=list)


def show_blocks(blocks: list[Block], plain: bool = False) -> None:
    """Print blocks: rich tables on a terminal, ASCII otherwise."""
    if plain or not sys.stdout.isatty():
        for block in blocks:
            print(ascii_block(block))
        return
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False)
    for block in blocks:
        console.print(Text(block.title, style="bold cyan"))
        for line in block.text:
            console.print(Text(line))
        if block.header:
            table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
            for name in block.header:
                table.add_column(
                    name.lstrip(">"),
                    justify="right" if name.startswith(">") else "left",
                    overflow="fold",
                )
            for row in block.rows:
                table.add_row(*(Text(cell) for cell in row))
            console.print(table)
        console.print()


def ascii_block(block: Block) -> str:
    """The block as ASCII lines."""
    lines = [block.title, "-" * len(block.title), *block.text]
    if block.header:
        names = [name.lstrip(">") for name in block.header]
        widths = [
            (
                max(len(names[i]), *(len(row[i]) for row in block.rows))
                if block.rows
                else len(names[i])
            )
            for i in range(len(names))
        ]
        right = [name.startswith(">") for name in block.header]

        def line(cells: list[str]) -> str:
            padded = [
                c.rjust(w) if r else c.ljust(w)
                for c, w, r in zip(cells, widths, right, strict=True)
            ]
            return "  ".join(padded).rstrip()

        lines += [
            line(names),
            "  ".join("-" * w for w in widths),
            *(line(row) for row in block.rows),
        ]
    return "\n".join(lines).encode("ascii", "backslashreplace").decode("ascii") + "\n"


def layout_text(layout: Report) -> str:
    """A layout in one line: only what differs from plain data parallelism."""
    parts = [f"{k} {layout[k]}" for k in ("tp", "pp", "vpp", "cp", "ep") if layout[k] > 1]
    parts.append(f"dp {layout['dp']}")
    if layout["zero"]:
        shard = (
            f" over {layout['shard_group']}"
            if layout["shard_group"] != layout["dp"] * layout["cp"]
            else ""
        )
        parts.append(f"zero {layout['zero']}{shard}")
    if layout["sequence_parallel"]:
        parts.append("sp")
    if layout["pp"] > 1:
        parts.append(layout["schedule"])
    parts += [
        f"recompute {layout['recompute']}",
        f"micro-batch {layout['micro_batch']} x {layout['grad_accum']}",
    ]
    if layout["offload"] != "none":
        parts.append(f"offload {layout['offload']}")
    if layout["placement"] != "tp-cp-dp-pp":
        parts.append(f"placement {layout['placement']}")
    return ", ".join(parts)


def _percent(value: float) -> str:
    return f"{100 * value:.1f} %"


def limit_text(one: Report, key: str) -> str:
    """Value or limit of a judged requirement."""
    value, unit = one[key], one["unit"]
    if value is None:
        return "-"
    if unit == "1":
        return _percent(value)
    return (
        show(value, unit)
        if unit in ("B", "s")
        else f"{value:,.{1 if abs(value) < 1000 else 0}f} {unit}"
    )


_FRONT_ROWS = 20  # of the front, in a terminal; --json and --html have all
_CHART = (64, 14)  # columns and rows of characters


def search_blocks(found: Report) -> list[Block]:
    """Counts, the best layouts, the front as chart and table, and the rejections."""
    head = Block(
        "Search",
        [
            f"{found['evaluated']:,} of {found['enumerated']:,} layouts evaluated in"
            f" {show(found['seconds'], 's')}, {found['feasible']:,} fit"
        ],
    )
    by = found["objective"]
    title = (
        "Best layouts that fit, by time"
        if by == "time"
        else f"Best layouts that fit, by {by.replace('-', ' ')}"
    )
    top = Block(
        title,
        header=[">#", ">step", ">MFU", ">memory", ">USD/Mtoken", ">Wh/Mtoken", "stack", "layout"],
    )
    for i, r in enumerate(found["top"]):
        price = r["per_token"]["usd_per_million_tokens"]
        top.rows.append(
            [
                str(i + 1),
                show(r["step"]["seconds"], "s"),
                _percent(r["throughput"]["mfu"]),
                show(r["memory"]["device_bytes"], "B"),
                "-" if price is None else f"{price:.4g}",
                f"{1000 * r['per_token']['kwh_per_million_tokens']:.4g}",
                r["stack"]["id"],
                layout_text(r["layout"]),
            ]
        )
    front = Block("Front of time against memory", header=[">step", ">memory", "stack", "layout"])
    points = found["pareto"]
    if len(points) > 1:
        front.text = chart(
            [a["step_seconds"] for a in points],
            [a["device_bytes"] / 2**30 for a in points],
            "s per step",
            "GiB",
        )
    shown = points[:: -(-len(points) // _FRONT_ROWS)] if points else []
    for a in shown:
        front.rows.append(
            [
                show(a["step_seconds"], "s"),
                show(a["device_bytes"], "B"),
                a["stack"],
                layout_text(a["layout"]),
            ]
        )
    if len(shown) < len(points):
        front.text.append(
            f"{len(shown)} of {len(points)} layouts on the front (--json and --html have all)"
        )
    why = Block("Rejected", header=["reason", ">layouts"])
    why.rows = [
        [reason, f"{count:,}"]
        for reason, count in sorted(found["rejected"].items(), key=lambda x: -x[1])
    ]
    if found["shortfall"] is not None:
        least, median = (show(found["shortfall"][k], "B") for k in ("least_bytes", "median_bytes"))
        why.text.append(
            f"of those that do not fit memory, the nearest is {least} short, the median {median}"
        )
    blocks = [head, top, front, why] if found["feasible"] else [head, why]
    if found.get("advice"):
        help_ = Block("With offloading", header=["change", ">step", ">memory", "command"])
        help_.rows = [
            [a["change"], show(a["step_seconds"], "s"), show(a["device_bytes"], "B"), a["command"]]
            for a in found["advice"]
        ]
        blocks.append(help_)
    return blocks


def chart(x: list[float], y: list[float], x_title: str, y_title: str) -> list[str]:
    """Points as lines of text: y upwards, x to the right."""
    width, height = _CHART
    low_x, high_x, low_y, high_y = min(x), max(x), min(y), max(y)
    cells = [[" "] * width for _ in range(height)]
    for a, b in zip(x, y, strict=True):
        column = round((a - low_x) / (high_x - low_x or 1.0) * (width - 1))
        row = round((high_y - b) / (high_y - low_y or 1.0) * (height - 1))
        cells[row][column] = "*"
    labels = {0: f"{high_y:.4g}", height - 1: f"{low_y:.4g}"}
    margin = max(len(y_title), *(len(text) for text in labels.values()))
    lines = [f"{y_title:>{margin}}"]
    lines += [
        f"{labels.get(i, ''):>{margin}} |{''.join(line).rstrip()}" for i, line in enumerate(cells)
    ]
    lines.append(f"{'':>{margin}} +{'-' * width}")
    ends = f"{low_x:.4g}", f"{high_x:.4g} {x_title}"
    lines.append(
        f"{'':>{margin}}  {ends[0]}{ends[1]:>{max(width - len(ends[0]), len(ends[1]) + 1)}}"
    )
    return lines


def list_blocks(kind: str, entries: list[Report]) -> list[Block]:
    """One row per catalogue entry."""
    block = Block(f"{len(entries)} {kind}")
    if kind == "gpus":
        block.header = ["id", "title", ">memory", ">bandwidth", ">bf16", ">fp8", "node", "aliases"]
        for e in entries:
            rate = e["dense_flop_per_s"]
            low = [show(rate[p], "FLOP/s") if p in rate else "-" for p in ("bf16", "fp8")]
            block.rows.append(
                [
                    e["id"],
                    e["title"],
                    show(e["memory_bytes"], "B"),
                    show(e["memory_bytes_per_s"], "B/s"),
                    *low,
                    e["node"],
                    ", ".join(e["aliases"]),
                ]
            )
    elif kind == "models":
        block.header = ["id", ">parameters", ">active", ">layers", ">hidden", ">context", "aliases"]
        for e in entries:
            block.rows.append(
                [
                    e["id"],
                    f"{e['parameters']:,}",
                    show(e["active_parameters"], "count"),
                    str(e["layers"]),
                    str(e["hidden"]),
                    str(e["max_positions"]),
                    ", ".join(e["aliases"]),
                ]
            )
    elif kind == "networks":
        block.header = ["id", "title", "scope", ">one way", ">latency", ">all-reduce share"]
        for e in entries:
            block.rows.append(
                [
                    e["id"],
                    e["title"],
                    e["scope"],
                    show(e["bytes_per_s"], "B/s"),
                    show(e["latency_s"], "s"),
                    _percent(e["all_reduce_frac"]),
                ]
            )
    else:
        names = [k for k in entries[0] if k != "source"] if entries else []
        block.header = names
        block.rows = [
            [", ".join(map(str, e[k])) if isinstance(e[k], list) else str(e[k]) for k in names]
            for e in entries
        ]
    return [block]


def _error(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f} %"


def validate_blocks(out: Report) -> list[Block]:
    """Errors per suite and in all beside the noise floor, ranking and its worst groups, what else
    was asked, what was skipped."""
    noise, ranked = out["summary"]["noise"], out["summary"]["ranking"]
    block = Block(
        "Predicted against measured step time",
        header=[
            "suite",
            ">runs",
            ">MAPE",
            ">median",
            ">bias",
            ">worst",
            ">repeats",
            ">noise",
            ">groups",
            ">rank corr.",
            ">regret",
            ">worst",
        ],
    )
    memory = Block(
        "Predicted against measured memory",
        header=[
            "suite",
            ">runs",
            ">MAPE",
            ">median",
            ">bias",
            ">worst",
            ">oom right",
            ">ran right",
        ],
    )
    errors = ("mape", "median_ape", "bias", "worst")
    for name, s in [*out["suites"].items(), ("all", out["summary"])]:
        t, m, g, n = s["time"], s["memory"], s["ranking"], s["noise"]
        if t["n"] or name == "all":
            block.rows.append(
                [
                    name,
                    str(t["n"]),
                    *(_error(t[e]) for e in errors),
                    str(n["n"]),
                    _error(n["mean"]),
                    str(g["groups"]),
                    "-" if g["spearman"] is None else f"{g['spearman']:.2f}",
                    _error(g["pick_regret_mean"]),
                    _error(g["pick_regret_max"]),
                ]
            )
        if m["n"] or s["oom"]["n"]:
            right = [f"{s[kind]['right']}/{s[kind]['n']}" for kind in ("oom", "ran")]
            memory.rows.append([name, str(m["n"]), *(_error(m[e]) for e in errors), *right])
    if noise["n"]:
        block.text.append(
            f"noise floor: {noise['n']} runs that repeat another lie {_error(noise['mean'])} from"
            f" their median on average, half of them within {_error(noise['median'])}"
        )
    if ranked["groups"]:
        block.text.append(
            f"ranking: {ranked['groups']} groups that differ only in layout, mean rank correlation"
            f" {ranked['spearman']:.2f}, pick-regret {_error(ranked['pick_regret_mean'])} on"
            f" average and {_error(ranked['pick_regret_max'])} at worst; {ranked['ties']} picks tie"
            " with others within the noise floor"
        )
    blocks = [
        block,
        _kinds_block(out["kinds"]),
        *([memory] if memory.rows else []),
        *_regret_blocks(out["groups"]),
    ]
    blocks += _coverage_blocks(out["coverage"]) if "coverage" in out else []
    blocks += (
        _cross_validation_blocks(out["cross_validation"], noise["mean"])
        if "cross_validation" in out
        else []
    )
    blocks += [_ablation_block(out["ablations"])] if "ablations" in out else []
    if out["skipped"]:
        skipped = Block(f"Skipped: {len(out['skipped'])}", header=["run", "reason"])
        skipped.rows = [[s["run_id"], s["reason"]] for s in out["skipped"][:20]]
        if len(out["skipped"]) > len(skipped.rows):
            skipped.text.append(f"the first {len(skipped.rows)} of them; --json and --csv list all")
        blocks.append(skipped)
    return blocks


def _kinds_block(kinds: Report) -> Block:
    block = Block(
        "Step time by kind of run",
        header=[
            "kind",
            ">runs",
            ">suites",
            ">MAPE",
            ">mean of suites",
            ">median",
            ">bias",
            ">worst",
        ],
    )
    keys = ("mape", "mape_of_suites", "median_ape", "bias", "worst")
    block.rows = [
        [name, str(e["n"]), str(e["suites"]), *(_error(e[key]) for key in keys)]
        for name, e in kinds.items()
        if e["n"]
    ]
    return block


def _regret_blocks(groups: list[Report]) -> list[Block]:
    regret = [g for g in groups if g["pick_regret"] > 0]
    if not regret:
        return []
    block = Block(
        f"Groups in which the layout predicted fastest was not: {len(regret)} of {len(groups)}",
        header=["suite", ">GPUs", ">layouts", ">rank corr.", ">regret", ">ties", "pick", "best"],
    )
    for g in regret[:5]:
        block.rows.append(
            [
                g["suite"],
                str(g["gpus"]),
                str(g["layouts"]),
                f"{g['spearman']:.2f}",
                _error(g["pick_regret"]),
                str(g["ties"]),
                g["pick"]["run_id"],
                g["best"]["run_id"],
            ]
        )
    if len(regret) > len(block.rows):
        block.text.append(f"the {len(block.rows)} worst; --json lists all")
    return [block]


def _coverage_blocks(found: Report) -> list[Block]:
    block = Block(
        "Bands of each suite, made from all other suites",
        header=["suite", ">runs", ">inside", ">low", ">high", ">width"],
    )
    if found["mean_of_suites"] is None:
        block.text.append("needs runs of at least two suites")
        return [block]
    block.text.append(
        f"promised {found['promised']:.0%}; held {_error(found['all']['inside_frac'])} of runs, "
        f"{_error(found['mean_of_suites'])} on average over suites"
    )
    known = {f"all, {kind} elsewhere": line for kind, line in found["evidence"].items()}
    for name, line in {**found["suites"], "all": found["all"], **known}.items():
        ends = [f"{line[key]:.2f}" for key in ("low", "high", "width")]
        block.rows.append([name, str(line["n"]), _error(line["inside_frac"]), *ends])
    return [block]


def _ablation_block(found: list[Report]) -> Block:
    block = Block(
        "Each mechanism off, nothing fitted again",
        header=[
            "mechanism",
            ">MAPE",
            ">off",
            ">runs it acts on",
            ">MAPE",
            ">off",
            "most in",
            ">runs",
            ">MAPE",
            ">off",
        ],
    )
    for line in found:
        acts, most = line["acts"], line["most"]
        block.rows.append(
            [
                line["mechanism"],
                _error(line["mape_before"]),
                _error(line["mape_after"]),
                str(acts["n"]),
                _error(acts["before"]),
                _error(acts["after"]),
                most["suite"] or "-",
                str(most["n"]),
                _error(most["before"]),
                _error(most["after"]),
            ]
        )
    return block


def _cross_validation_blocks(found: Report, noise: float | None) -> list[Block]:
    """Errors of every kind of leaving out, over runs and of tier A; per suite; and what was
    fitted."""
    header = ["left out", ">runs", ">MAPE", ">of suites", ">median", ">bias"]
    over = Block(
        "Cross-validation: errors of step time",
        header=[*header, ">rank corr.", ">regret", ">worst"],
    )
    tier = Block("Cross-validation: tier A", header=header)
    for name, kind in found["kinds"].items():
        over.text.append(f"{name}: {kind['meaning']}")
        for block, e in ((over, kind["all"]), (tier, kind["tier_a"])):
            keys = ("mape", "mape_of_suites", "median_ape", "bias")
            block.rows.append([name, str(e["n"]), *(_error(e[key]) for key in keys)])
        r = kind["ranking"]
        correlation = "-" if r["spearman"] is None else f"{r['spearman']:.2f}"
        over.rows[-1] += [correlation, _error(r["pick_regret_mean"]), _error(r["pick_regret_max"])]
    over.text.append(f"noise floor of the data: {_error(noise)}")
    suites = Block(
        "Cross-validation by suite: MAPE",
        header=["suite", *(f">{name}" for name in found["kinds"])],
    )
    for suite in sorted({row["suite"] for row in found["rows"]}):
        each = (kind["suites"].get(suite, {"mape": None}) for kind in found["kinds"].values())
        suites.rows.append([suite, *(_error(e["mape"]) for e in each)])
    values = Block(
        "Fitted on all suites",
        header=["number", ">factor", ">spread", ">runs", ">bounds", "on bound"],
    )
    values.rows = [
        [
            v["name"],
            f"{v['multiplier']:.3f}",
            _error(v["spread"]),
            str(v["runs"]),
            f"{v['low']:g} .. {v['high']:g}",
            "yes" if v["on_bound"] else "",
        ]
        for v in found["parameters"]
    ]
    clocks = Block(
        "Clock of each platform",
        header=["platform", ">runs", ">fitted", ">spread", ">shipped", ">power law"],
    )
    clocks.rows = [
        [
            c["platform"],
            str(c["runs"]),
            f"{c['fitted']:.2f}",
            _error(c["spread"]),
            f"{c['shipped']:.2f}",
            "-" if c["power_law"] is None else f"{c['power_law']:.2f}",
        ]
        for c in found["clocks"]
    ]
    return [block for block in (over, tier, suites, values, clocks) if block.rows]
