"""The manual page of `dpplan`, from its commands and the option table:

python -m dpplan.manual           # writes dpplan/dpplan.1
"""

from __future__ import annotations

import inspect
import re
from pathlib import Path

from planner import __version__
from planner.cli.group import COMMANDS, body_of
from planner.specs.options import Options, Row, rows

FILE = Path(__file__).with_name("dpplan.1")
_ABOUT = "plan the training of large models before renting a GPU"
_DESCRIPTION = """\
dpplan answers whether a model trains on a cluster, with which layout, how fast, at what cost, and
how sure that is. What is left out of the layout is searched; every other default is stated in the
answer. `dpplan help COMMAND` shows the options of a command, `--json` prints its answer as one
document."""
_ENVIRONMENT = {
    "DPPLAN_PRICES": "folder of fetched prices, in place of ~/.cache/dpplan/prices",
    "DPPLAN_TOKEN": "token of `dpplan serve`",
    "DPPLAN_TRACEBACK": "1: a fault of dpplan shows its traceback",
}


def roff(text: str) -> str:
    """A text without anything that roff reads as a request or an escape; `words` become bold."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq")
    bold = re.sub(r"`([^`]+)`", r"\\fB\1\\fR", escaped)
    return "\n".join("\\&" + line if line.startswith(".") else line for line in bold.split("\n"))


def _entry(head: str, text: str) -> str:
    return f".TP\n\\fB{roff(head)}\\fR\n{roff(text)}"


def _command(name: str) -> str:
    paragraphs = (inspect.getdoc(body_of(name)) or "").split("\n\n")
    return _entry(f"dpplan {name}", " ".join(" ".join(paragraphs).split()))


def _option(row: Row) -> str:
    head = row.flag if row.is_switch else f"{row.flag} {row.name.upper()}"
    return _entry(head, row.help)


def text() -> str:
    """The whole page."""
    parts = [
        f'.TH DPPLAN 1 "" "dpplan {__version__}" "User Commands"',
        f".SH NAME\ndpplan \\- {_ABOUT}",
        ".SH SYNOPSIS\n.B dpplan\n.I COMMAND\n[OPTIONS]",
        f".SH DESCRIPTION\n{roff(_DESCRIPTION)}",
        ".SH COMMANDS",
        *map(_command, COMMANDS),
        ".SH OPTIONS OF A REQUEST",
    ]
    group = ""
    for row in rows(Options).values():
        if row.group.title != group:
            group = row.group.title
            parts.append(f".SS {roff(group)}")
        parts.append(_option(row))
    parts.append(".SH ENVIRONMENT")
    parts += [_entry(name, says) for name, says in _ENVIRONMENT.items()]
    return "\n".join(parts) + "\n"


if __name__ == "__main__":
    FILE.write_text(text(), encoding="utf-8")
