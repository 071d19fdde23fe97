"""The terminal of README.md: a command and its answer as a picture that is text."""

from __future__ import annotations

import html
import re
from itertools import pairwise

from pages.text import run

COMMAND = "dpplan estimate --model llama-2-7b --gpu rtx4090 --gpus 2 --seq-len 2048"
LINES = 26  # of the answer; the tail says what it rests on

_LETTER, _LINE, _EDGE, _HEAD = 8.0, 18.0, 16.0, 34.0  # pixels
_RULE = re.compile(r"^-[- ]*-$")
_STYLES = {"title": "t", "rule": "d", "head": "b", "prompt": "p", "no": "n"}
_CSS = (
    "text{font:13px ui-monospace,'SF Mono',Menlo,Consolas,'DejaVu Sans Mono',monospace;"
    "fill:#d6dae0;white-space:pre}.t{fill:#6cb6ff;font-weight:700}.d{fill:#697079}"
    ".b{font-weight:700}.p{fill:#8ddb8c;font-weight:700}.n{fill:#ff9492;font-weight:700}"
)


def picture() -> str:
    """The answer of COMMAND as SVG: letters of one width wherever it is shown."""
    answer = run(COMMAND)[1].splitlines()[:LINES]
    lines = [("prompt", f"$ {COMMAND}"), *zip(_roles(answer), answer, strict=True)]
    width = 2 * _EDGE + _LETTER * max(len(line) for _, line in lines)
    height = _HEAD + _LINE * len(lines) + _EDGE
    dots = "".join(
        f'<circle cx="{_EDGE + 4 + 18 * i:g}" cy="17" r="5.5" fill="{color}"/>'
        for i, color in enumerate(("#ff5f57", "#febc2e", "#28c840"))
    )
    written = "\n".join(
        f'<text x="{_EDGE:g}" y="{_HEAD + _LINE * (i + 0.75):g}"'
        f' textLength="{_LETTER * len(line):g}" class="{_STYLES.get(role, "")}">'
        f"{html.escape(line)}</text>"
        for i, (role, line) in enumerate(lines)
        if line
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}"'
        f' role="img" aria-label="{html.escape(COMMAND)} and its answer">\n<style>{_CSS}</style>\n'
        f'<rect width="{width:g}" height="{height:g}" rx="8" fill="#1c2128"/>{dots}\n'
        f"{written}\n</svg>\n"
    )


def _roles(lines: list[str]) -> list[str]:
    """Kind of each line, as the terminal styles it: titles and heads stand above a rule."""
    out = []
    for line, below in pairwise([*lines, ""]):
        if _RULE.match(line):
            out.append("rule")
        elif _RULE.match(below):
            out.append("head" if "  " in below or "  " in line.strip() else "title")
        else:
            out.append("no" if line.startswith("DOES NOT FIT") else "")
    return out
