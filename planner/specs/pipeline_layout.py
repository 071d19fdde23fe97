"""Contents of every pipeline chunk, in the letters of Megatron-LM's
--pipeline-model-parallel-layout.

E is the embedding, t a transformer layer, m a multi-token prediction (MTP) layer, L the final norm,
head and loss; bars stand between chunks, `t*3` repeats a letter and `(tt|)*29` what is in
parentheses. Commas and spaces count nothing. Chunk i of p ranks lies on rank i mod p.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

MOST_CHUNKS = 4096
MOST_LETTERS = 200_000
_TOKEN = re.compile(r"([EtmL|])(?:\*(\d{1,6}))?|(\()|\)(?:\*(\d{1,6}))?")
_EXAMPLE = "Et*3|(tt|)*29,m|L"


@dataclass(frozen=True)
class Chunk:
    """Contents of one chunk."""

    embedding: bool
    layers: int
    mtp: int
    head: bool


def pipeline_layout(text: str) -> tuple[Chunk, ...]:
    """Chunks of a pipeline layout. Raises ValueError naming the fault; linear in the length of the
    text and of the expanded layout."""
    parts = _expanded(text).split("|")
    if len(parts) > MOST_CHUNKS:
        raise ValueError(f"stands for {len(parts):,} chunks, more than {MOST_CHUNKS:,}")
    letters = "".join(parts)
    for letter, word, at in (("E", "embedding", 0), ("L", "head and loss", len(letters) - 1)):
        if letters.count(letter) != 1 or letters[at] != letter:
            place = "first" if letter == "E" else "last"
            raise ValueError(
                f"must have one {letter} ({word}), as its {place} letter, such as {_EXAMPLE}"
            )
    if "t" not in letters:
        raise ValueError(f"has no layer (t), such as {_EXAMPLE}")
    if "m" in letters and "t" in letters[letters.index("m") :]:
        raise ValueError("must have MTP layers (m) behind all others (t)")
    if sum("m" in part for part in parts) > 1:
        raise ValueError("must have all MTP layers (m) in one chunk")
    return tuple(Chunk("E" in p, p.count("t"), p.count("m"), "L" in p) for p in parts)


def _expanded(text: str) -> str:
    """Letters and bars with repetitions expanded."""
    short = re.sub(r"[\s,]", "", text)
    out: list[str] = []
    group: list[str] | None = None
    count, at = 0, 0
    while at < len(short):
        token = _TOKEN.match(short, at)
        if token is None:
            raise ValueError(
                f"has {short[at]!r} at character {at + 1}; letters are E, t, m and L, with bars"
                f" between chunks, *n behind a letter or (...)*n, such as {_EXAMPLE}"
            )
        letter, times, opens, again = token.groups()
        if opens:
            if group is not None:
                raise ValueError("has parentheses inside parentheses; write them out")
            group = []
        elif letter:
            count += int(times or 1)
            _check(count)
            (out if group is None else group).append(letter * int(times or 1))
        else:
            if group is None or again is None:
                raise ValueError("has a ) that closes nothing or repeats nothing; write (...)*n")
            inside = "".join(group)
            count += len(inside) * (int(again) - 1)
            _check(count)
            out.append(inside * int(again))
            group = None
        at = token.end()
    if group is not None:
        raise ValueError("has a ( that is not closed; write (...)*n")
    return "".join(out)


def _check(count: int) -> None:
    if count > MOST_LETTERS:
        raise ValueError(f"stands for more than {MOST_LETTERS:,} letters")


def layout_text(chunks: tuple[Chunk, ...]) -> str:
    """The shortest plain way to write these chunks: runs of equal ones as (...|)*n."""
    words = [chunk_text(chunk) for chunk in chunks]
    out, start = "", 0
    while start < len(words):
        end = start
        while end < len(words) and words[end] == words[start]:
            end += 1
        last = end == len(words)
        run = end - start - last  # a bar follows every chunk but the last
        out += f"({words[start]}|)*{run}" if run > 1 else f"{words[start]}|" * run
        out += words[start] if last else ""
        start = end
    return out


def chunk_text(chunk: Chunk) -> str:
    """One chunk in letters: "Et*4"."""

    def repeated(letter: str, count: int) -> str:
        return letter * count if count <= len(f"{letter}*") else f"{letter}*{count}"

    middle = repeated("t", chunk.layers) + repeated("m", chunk.mtp)
    return "E" * chunk.embedding + middle + "L" * chunk.head


def layout_name(text: str) -> str:
    """The layout in its shortest spelling. Raises ValueError."""
    return layout_text(pipeline_layout(text))
