"""What `dpplan calibrate` prints."""

from __future__ import annotations

from typing import Any

from planner.calibrate import report
from planner.show.text import Block

_MOST_ROWS = 30


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f} %"


def blocks(found: dict[str, Any]) -> list[Block]:
    """A verification, a difference, a merged file or a calibration."""
    if "cases" in found and isinstance(found["cases"], list):
        return _verified(found)
    if "numbers" in found and "first" in found:
        return [_difference(found)]
    if "nodes" in found:
        return [_merged(found)]
    return _calibrated(found)


def _verified(found: dict[str, Any]) -> list[Block]:
    block = Block(
        "Predicted against measured",
        text=[report.headline(found)],
        header=[
            "decoder",
            ">predicted",
            ">measured",
            ">error",
            ">fwd+bwd",
            ">optimizer",
            ">communication",
            ">bytes",
            "exact",
            ">tokens/s",
            "quiet",
        ],
    )
    block.rows = report.rows(found)
    kinds = Block("By parallelism", header=["parallel", ">decoders", ">mean error", ">worst"])
    kinds.rows = [
        [name, str(e["n"]), _percent(e["mape"]), _percent(e["worst"])]
        for name, e in found["summary"]["parallel"].items()
    ]
    s = found["summary"]
    kinds.text.append(
        f"tolerance {_percent(s['tolerance'])} of the mean error:"
        f" {'within' if s['within'] else 'beyond'}"
    )
    return [block, kinds]


def _difference(found: dict[str, Any]) -> Block:
    block = Block(
        f"{found['second']} against {found['first']}: what is worse first",
        header=["number", ">first", ">second", ">change", ">worse by"],
    )
    block.rows = [
        [
            r["name"],
            f"{r['first']:.5g}",
            f"{r['second']:.5g}",
            _percent(r["change"]),
            _percent(r["worse"]),
        ]
        for r in found["numbers"][:_MOST_ROWS]
    ]
    return block


def _merged(found: dict[str, Any]) -> Block:
    block = Block(
        f"{found['out']}: {found['nodes']} nodes of {found['gpu']}",
        header=["node", "number", ">value", ">middle", ">worse by"],
    )
    block.rows = [
        [r["node"], r["name"], f"{r['value']:.5g}", f"{r['middle']:.5g}", _percent(r["worse"])]
        for r in found["far"][:_MOST_ROWS]
    ]
    if not found["far"]:
        block.text.append("no node is more than 10 % worse than the middle in any number")
    return block


def _calibrated(found: dict[str, Any]) -> list[Block]:
    block = Block(
        f"Calibration of {found['gpu']}",
        header=["curve", ">cases", ">median error", ">worst", ">held-out", ">median there"],
    )
    block.text.append(
        f"written to {found['out']}; use it with --gpu {found['gpu']} --calibration {found['out']}"
    )
    quiet = f"{found['quiet']} of {found['cases']} cases were measured in quiet moments"
    if found["quiet"] < found["cases"]:
        quiet += (
            "; the others are scaled by a probe and less sure: run again on a quieter machine to"
            " replace them"
        )
    block.text.append(quiet)
    for name, f in found["fits"].items():
        block.rows.append(
            [
                name,
                str(f["cases"]),
                _percent(f["median_error"]),
                _percent(f["worst_error"]),
                str(f["held_out"]),
                _percent(f["held_out_median"]),
            ]
        )
    far = Block("Outliers and refused fits", header=["curve", "what"])
    far.rows = [
        [name, ", ".join(f["outliers"][:4])] for name, f in found["fits"].items() if f["outliers"]
    ]
    far.rows += [[name, f"refused: {why}"] for name, why in found["refused"].items()]
    far.rows += [
        [
            f"ranks {p['first']} and {p['second']}",
            f"messages take {p['times_the_middle']:.2f} times those of most pairs",
        ]
        for p in found["slow_pairs"]
    ]
    return [block, *([far] if far.rows else [])]
