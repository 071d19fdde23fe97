"""The text of `dpplan calibrate`."""

from __future__ import annotations

from planner.calibrate import report
from planner.calibrate.documents import Calibrated, Compared, Merged, Verification
from planner.calibrate.nodes import FAR
from planner.units import percent
from planner.views.view import Block

Document = Calibrated | Verification | Compared | Merged

_MOST_ROWS = 30  # of a comparison; --json has all
_MOST_OUTLIERS = 4  # named of a curve; --json has all


def blocks(document: Document) -> list[Block]:
    match document:
        case Verification():
            return report.blocks(document)
        case Compared():
            return [_compared(document)]
        case Merged():
            return [_merged(document)]
        case Calibrated():
            return _calibrated(document)


def _compared(compared: Compared) -> Block:
    return Block(
        f"{compared.second} against {compared.first}: what is worse first",
        header=["number", ">first", ">second", ">change", ">worse by"],
        rows=[
            [r.name, f"{r.first:.5g}", f"{r.second:.5g}", percent(r.change), percent(r.worse)]
            for r in compared.numbers[:_MOST_ROWS]
        ],
    )


def _merged(merged: Merged) -> Block:
    block = Block(
        f"{merged.out}: {merged.nodes} nodes of {merged.gpu}",
        header=["node", "number", ">value", ">middle", ">worse by"],
        rows=[
            [r.node, r.name, f"{r.value:.5g}", f"{r.middle:.5g}", percent(r.worse)]
            for r in merged.far[:_MOST_ROWS]
        ],
    )
    if not merged.far:
        block.text.append(
            f"no node is more than {100 * FAR:.0f} % worse than the middle in any number"
        )
    return block


def _calibrated(calibrated: Calibrated) -> list[Block]:
    quiet = f"{calibrated.quiet} of {calibrated.cases} cases were measured in quiet moments"
    if calibrated.quiet < calibrated.cases:
        quiet += (
            "; the others are in no curve: run the same command again to measure them in quieter"
            " moments"
        )
    block = Block(
        f"Calibration of {calibrated.gpu}",
        text=[
            f"written to {calibrated.out}; use it with --gpu {calibrated.gpu}"
            f" --calibration {calibrated.out}",
            quiet,
        ],
        header=["curve", ">cases", ">median error", ">worst", ">held-out", ">median there"],
        rows=[
            [
                name,
                str(f.cases),
                percent(f.median_error),
                percent(f.worst_error),
                str(f.held_out),
                percent(f.held_out_median),
            ]
            for name, f in calibrated.fits.items()
        ],
    )
    far = Block("Outliers, refused fits, cases left out", header=["curve", "what"])
    far.rows = [
        [name, ", ".join(f.outliers[:_MOST_OUTLIERS])]
        for name, f in calibrated.fits.items()
        if f.outliers
    ]
    far.rows += [[name, f"refused: {why}"] for name, why in calibrated.refused.items()]
    far.rows += [[u.case, f"left out: {u.why}"] for u in calibrated.unquiet[:_MOST_ROWS]]
    if len(calibrated.unquiet) > _MOST_ROWS:
        more = len(calibrated.unquiet) - _MOST_ROWS
        far.rows.append(["", f"left out: {more} more cases, all in --json"])
    far.rows += [
        [
            f"ranks {p.first} and {p.second}",
            f"messages take {p.times_the_middle:.2f} times those of most pairs",
        ]
        for p in calibrated.slow_pairs
    ]
    return [block, far] if far.rows else [block]
