"""Blocks of text and tables from the report dicts, shown by rich on a terminal and as plain ASCII
when piped."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field


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
