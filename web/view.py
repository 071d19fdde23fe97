"""From a report to what the answer says: cards with full digits behind them, the bottleneck,
advice, families."""

from __future__ import annotations

import shlex
from typing import Any

from planner.show.text import layout_text
from planner.specs.base import PlanError
from planner.specs.options import Options, rows
from planner.units import show
from web.panels.landscape import state_of
from web.state import State
from web.texts import BOTTLENECKS, text

Report = dict[str, Any]


def percent(value: float, digits: int = 1) -> str:
    """A share for people."""
    return f"{100 * value:.{digits}f} %"


def count(value: float) -> str:
    """A number with separators and as many digits as it deserves."""
    return (
        f"{value:,.0f}"
        if abs(value) >= 100
        else f"{value:,.1f}"
        if abs(value) >= 10
        else f"{value:,.2f}"
    )


def answer(report: Report, state: State) -> dict[str, Any]:
    """What the block of the answer shows."""
    memory, step = report["memory"], report["step"]
    layout = {
        **{k: v for k, v in report["layout"].items() if k not in ("global_batch", "grad_accum")}
    }
    fixed = fixed_state(state, {"layout": layout, "stack": report["stack"]["id"]})
    return {
        "title": (
            f"{report['model']['title']} {text('with')} {report['cluster']['gpus']:,} x"
            f" {report['cluster']['gpu_title']}"
        ),
        "fits": memory["fits"],
        "verdict": text("fits") if memory["fits"] else text("not_fits"),
        "detail": _detail(memory),
        "fill": min(memory["device_bytes"] / memory["capacity_bytes"], 1.0),
        "cards": cards(report),
        "bottleneck": bottleneck(report),
        "layout": layout_text(report["layout"]),
        "layout_values": report["layout"],
        "stack": report["stack"]["title"],
        "parameters": show(report["model"]["parameters"], "count"),
        "band": text("band_basis", basis=step["confidence"]),
        "convention": text("convention", convention=report["throughput"]["flop_convention"]),
        "assumptions": report["assumptions"],
        "command": report["command"],
        "families": [
            _family(entry, state) for entry in report["alternatives"] if "family" in entry
        ],
        "fixed": fixed.query if fixed else state.query,
        "query": state.query,
    }


def _detail(memory: Report) -> str:
    used, capacity, free = (
        show(abs(memory[k]), "B") for k in ("device_bytes", "capacity_bytes", "headroom_bytes")
    )
    if memory["headroom_bytes"] < 0:
        return text("short_detail", used=used, capacity=capacity, short=free)
    if not memory["host_fits"]:
        return text("host_short", need=show(memory["host_bytes"], "B"))
    if not memory["nvme_fits"]:
        return text("nvme_short", need=show(memory["nvme_bytes"], "B"))
    return text("fits_detail", used=used, capacity=capacity, free=free)


def card(
    key: str, label: str, value: float | None, shown: str, sub: str, part: str
) -> dict[str, Any]:
    """One figure: `value` keeps every digit."""
    words = shown.split(" ")
    split = (
        2 if len(words) > 1 and words[1] in ("K", "M", "B", "T") else 1
    )  # the multiplier belongs to the number
    return {
        "key": key,
        "label": text(label),
        "value": value,
        "shown": shown,
        "number": " ".join(words[:split]),
        "unit": " ".join(words[split:]),
        "sub": sub,
        "part": part,
    }


def cards(report: Report) -> list[dict[str, Any]]:
    """The figures of the answer."""
    step, speed, memory, run = (report[key] for key in ("step", "throughput", "memory", "run"))
    price = report["cluster"]["usd_per_gpu_hour"]
    out = [
        card(
            "step.seconds",
            "card_step",
            step["seconds"],
            show(step["seconds"], "s"),
            text("card_band", low=show(step["low"], "s"), high=show(step["high"], "s")),
            "time",
        ),
        card(
            "throughput.tokens_per_s",
            "card_tokens",
            speed["tokens_per_s"],
            f"{show(speed['tokens_per_s'], 'count')} tokens/s",
            text("card_per_gpu", value=f"{speed['tokens_per_s_per_gpu']:,.0f}"),
            "rates",
        ),
        card(
            "throughput.mfu",
            "card_mfu",
            speed["mfu"],
            percent(speed["mfu"]),
            text("card_hfu", value=percent(speed["hfu"])),
            "rates",
        ),
        card(
            "memory.device_bytes",
            "card_memory",
            memory["device_bytes"],
            show(memory["device_bytes"], "B"),
            text("card_worst", stage=memory["worst_stage"], phase=memory["worst_phase"]),
            "memory",
        ),
    ]
    if run["days"] is None:
        out.append(card("run.days", "card_days", None, "–", text("card_days_none"), "rates"))
        return out
    out.append(
        card(
            "run.days",
            "card_days",
            run["days"],
            count(run["days"]),
            text(
                "card_days_sub",
                tokens=show(run["tokens"], "count"),
                goodput=percent(run["goodput"]),
            ),
            "rates",
        )
    )
    if run["cost_usd"] is None:
        out.append(card("run.cost_usd", "card_cost", None, "–", text("card_cost_none"), "rates"))
    else:
        sub = text(
            "card_cost_sub", hours=show(run["gpu_hours"], "count"), price=f"{price:,.2f} USD"
        )
        out.append(
            card(
                "run.cost_usd",
                "card_cost",
                run["cost_usd"],
                f"{_dollars(run['cost_usd'])}",
                sub,
                "rates",
            )
        )
    out.append(
        card(
            "run.energy_kwh",
            "card_energy",
            run["energy_kwh"],
            f"{show(run['energy_kwh'] * 1e3, 'count')}Wh",
            "",
            "rates",
        )
    )
    return out


def _dollars(value: float) -> str:
    return f"{show(value, 'count')} USD" if value >= 1e6 else f"{value:,.0f} USD"


def bottleneck(report: Report) -> str:
    """One sentence with the share of the step."""
    step = report["step"]
    share = share_of(report, step["bottleneck"])
    return (
        BOTTLENECKS[step["bottleneck"]].format(share=percent(share, 0))
        if step["bottleneck"] in BOTTLENECKS
        else step["bottleneck"]
    )


_COMPUTE = ("matmul", "attention", "recompute")
_MOVES = ("memory_bound", "optimizer")
_ALONE = {
    "pipeline bubble": ("bubble",),
    "launch": ("launch",),
    "overhead": ("overhead",),
    "stragglers": ("stragglers",),
    "input": ("input",),
    "host link": ("offload",),
    "compute": _COMPUTE,
    "memory bandwidth": _MOVES,
}


def share_of(report: Report, name: str) -> float:
    """Share of the step that the bottleneck takes: the parts of planner.report.bottleneck."""
    parts, whole = report["step"]["components"], report["step"]["seconds"]
    if name in _ALONE:
        return sum(parts.get(part, 0.0) for part in _ALONE[name]) / whole
    across = name == "network"
    exposed = [
        (c["component"], c["seconds"] - c["hidden_seconds"], c["across_nodes"])
        for c in report["communication"]
    ]
    total = 0.0
    for part in {component for component, _, _ in exposed}:
        everything = sum(s for component, s, _ in exposed if component == part)
        mine = sum(s for component, s, far in exposed if component == part and far == across)
        total += parts.get(part, 0.0) * (mine / everything if everything > 0 else 0.0)
    return total / whole


def fixed_state(state: State, entry: Report) -> State | None:
    """The state with one searched layout fixed."""
    try:
        return state.changed(**state_of(entry))
    except PlanError:
        return None


def _family(entry: Report, state: State) -> dict[str, Any]:
    fixed = fixed_state(state, entry) if entry["fits"] else None
    return {
        "family": entry["family"],
        "stack": entry["stack"],
        "fits": entry["fits"],
        "step": (
            show(entry["step_seconds"], "s")
            if entry["fits"]
            else text("not_fits").lower().removeprefix("it ")
        ),
        "memory": show(entry["device_bytes"], "B"),
        "why": entry.get("reason") or layout_text(entry["layout"]),
        "query": fixed.query if fixed else None,
    }


def late(report: Report, state: State) -> dict[str, Any]:
    """Advice and what the answer rests on: what takes searches of its own."""
    shares = {
        kind: percent(report["provenance"][f"{kind}_frac"])
        for kind in ("measured", "vendor", "assumed")
    }
    return {
        "advice": [
            a
            for a in (advised(entry, report, state) for entry in report["advice"])
            if a is not None
        ],
        "advice_none": (
            text("advice_none") if report["memory"]["fits"] else text("advice_none_fits")
        ),
        "rests": text("rests_share", **shares),
        "machine": [
            {**n, "shown": f"{n['value']:.6g} {'' if n['unit'] == '1' else n['unit']}".strip()}
            for n in sorted(report["machine"], key=lambda n: -abs(n["elasticity"]))
        ],
    }


def advised(entry: Report, report: Report, state: State) -> dict[str, Any] | None:
    """One piece of advice and the state it leads to; None for a change that has no state here, such
    as more GPUs than allowed."""
    try:
        to = (
            state.changed(**entry["update"])
            if isinstance(entry.get("update"), dict)
            else of_command(entry["command"], state)
        )
    except PlanError:
        return None
    saved = entry["bytes_saved"]
    seconds, change = show(entry["step_seconds"], "s"), entry["step_change_frac"]
    told = (
        text("advice_step", step=seconds, change=f"{100 * change:+.0f} %")
        if report["memory"]["fits"]
        else text("advice_fits_step", step=seconds)
    )
    moved = text("advice_saved" if saved >= 0 else "advice_more", bytes=show(abs(saved), "B"))
    return {
        "change": entry["change"],
        "told": f"{told}, {moved}",
        "query": to.query,
        "command": entry["command"],
    }


def of_command(command: str, state: State) -> State:
    """The state that a `dpplan estimate` command asks for; pasted texts stay. Raises PlanError."""
    given: dict[str, Any] = {}
    words = shlex.split(command)[2:]
    i = 0
    while i < len(words):
        name = words[i].removeprefix("--").replace("-", "_")
        if name.startswith("no_") and name[3:] in rows(Options):
            given[name[3:]] = False
            i += 1
            continue
        if i + 1 >= len(words) or words[i + 1].startswith("--"):
            given[name] = True
            i += 1
            continue
        given[name] = words[i + 1]
        i += 2
    kept = {k: v for k, v in given.items() if k not in ("model", "calibration") or not state.files}
    typed = {
        k: int(v) if isinstance(v, str) and v.isascii() and v.isdigit() else v
        for k, v in kept.items()
    }
    from web.state import FRACTIONS, of_mapping

    typed.update({name: float(typed[name]) for name in FRACTIONS if name in typed})

    return of_mapping({**typed, "config": state.config, "calibration": state.calibration})
