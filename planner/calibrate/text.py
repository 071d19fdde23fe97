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


def blocks(found: Document) -> list[Block]:
    match found:
        case Verification():
            return report.blocks(found)
        case Compared():
            return [_compared(found)]
        case Merged():
            return [_merged(found)]
        case Calibrated():
            return _calibrated(found)


def _compared(found: Compared) -> Block:
    return Block(
        f"{found.second} against {found.first}: what is worse first",
        header=["number", ">first", ">second", ">change", ">worse by"],
        rows=[
            [r.name, f"{r.first:.5g}", f"{r.second:.5g}", percent(r.change), percent(r.worse)]
            for r in found.numbers[:_MOST_ROWS]
        ],
    )


def _merged(found: Merged) -> Block:
    block = Block(
        f"{found.out}: {found.nodes} nodes of {found.gpu}",
        header=["node", "number", ">value", ">middle", ">worse by"],
        rows=[
            [r.node, r.name, f"{r.value:.5g}", f"{r.middle:.5g}", percent(r.worse)]
            for r in found.far[:_MOST_ROWS]
        ],
    )
    if not found.far:
        block.text.append(
            f"no node is more than {100 * FAR:.0f} % worse than the middle in any number"
        )
    return block


def _calibrated(found: Calibrated) -> list[Block]:
    quiet = f"{found.quiet} of {found.cases} cases were measured in quiet moments"
    if found.quiet < found.cases:
        quiet += (
            "; the others are in no curve: run the same command again to measure them in quieter"
            " moments"
        )
    block = Block(
        f"Calibration of {found.gpu}",
        text=[
            f"written to {found.out}; use it with --gpu {found.gpu} --calibration {found.out}",
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
            for name, f in found.fits.items()
        ],
    )
    far = Block("Outliers, refused fits, cases left out", header=["curve", "what"])
    far.rows = [
        [name, ", ".join(f.outliers[:_MOST_OUTLIERS])]
        for name, f in found.fits.items()
        if f.outliers
    ]
    far.rows += [[name, f"refused: {why}"] for name, why in found.refused.items()]
    far.rows += [[u.case, f"left out: {u.why}"] for u in found.unquiet[:_MOST_ROWS]]
    if len(found.unquiet) > _MOST_ROWS:
        more = len(found.unquiet) - _MOST_ROWS
        far.rows.append(["", f"left out: {more} more cases, all in --json"])
    far.rows += [
        [
            f"ranks {p.first} and {p.second}",
            f"messages take {p.times_the_middle:.2f} times those of most pairs",
        ]
        for p in found.slow_pairs
    ]
    return [block, far] if far.rows else [block]
