"""How the examples of a trainer become rows: joined, padded to the sequence, to the longest of
their micro-batch, or that among examples of like lengths. The lengths are in no file: --length-mean
says them, beside which this acts."""

from __future__ import annotations

from dataclasses import dataclass

from planner.formats.record import Answer
from planner.formats.trainer import is_on

_LENGTHS = "--length-mean says how long documents are; without it every sequence is full"
_SAYS = {
    "packed": f"documents are joined to full rows; {_LENGTHS}",
    "padded": f"rows are padded to the sequence; {_LENGTHS}",
    "longest": f"rows are padded to the longest of their micro-batch; {_LENGTHS}",
    "bucketed": f"rows of like lengths together, padded to the longest; {_LENGTHS}",
}


@dataclass(frozen=True)
class Rows:
    """Names of switches. packed: documents that do not attend to each other are joined; joined:
    those that do; padded: to the sequence; grouped: like lengths together; usual: what is done
    where none is on, "" where the file does not tell."""

    packed: tuple[str, ...] = ("packing",)
    joined: tuple[str, ...] = ()
    padded: tuple[str, ...] = ()
    grouped: tuple[str, ...] = ("group_by_length",)
    usual: str = "longest"


def read_rows(answer: Answer, names: Rows) -> None:
    """The option `packing` of these switches. What joins rows wins over what pads them."""
    ways = {"packed": names.packed, "": names.joined, "padded": names.padded}
    for way, switches in {**ways, "bucketed": names.grouped}.items():
        chosen = next((switch for switch in switches if is_on(answer, switch)), "")
        if chosen and way:
            answer.imply("packing", way, _SAYS[way], chosen)
        elif chosen:
            answer.mark(chosen, "implied", "documents of a row attend to each other: it is full")
        if chosen:
            break
    else:
        if names.usual:
            answer.imply("packing", names.usual, _SAYS[names.usual])
    for name in (*names.packed, *names.joined, *names.padded, *names.grouped):
        if name not in answer.arguments:
            answer.mark(name, "implied", "off, or another switch wins")
