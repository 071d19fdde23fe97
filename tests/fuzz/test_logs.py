"""Logs, traces, snapshots and messages that memory ran out, bent as bytes, at `check`: read, or
refused in one sentence."""

from __future__ import annotations

import pickle
import re
import shlex

import sample_logs as samples
from hypothesis import given
from hypothesis import strategies as st

from fuzz.case import Case, Took, ask
from fuzz.invariants import check
from fuzz.short import few

# whole ones of every kind, by the names of their files: a new program's log is bent without an edit
WHOLE: dict[str, bytes] = {
    **{name: text().encode() for name, (text, _) in samples.LOGS.items()},
    "trace.json": samples.trace().encode(),
    "snapshot.pickle": pickle.dumps(samples.snapshot()),
    "memory.log": (samples.OUT_OF_MEMORY + samples.OLD_OUT_OF_MEMORY).encode(),
    "outside.log": "".join((samples.XLA_OUT_OF_MEMORY, *samples.OUTSIDE)).encode(),
}
_RECIPE = shlex.split(
    "--model gpt3-1.3b --gpu a100 --gpus 8 --stack megatron-core --global-batch 64 --seq-len 2048"
    " --zero 1 --micro-batch 4 --tp 1 --pp 1 --recompute none"
)
_PIECES = (
    *(b"9" * count for count in (16, 400, 5_000, 19_000)),
    *(b"1e308", b"1e-320", b"-1", b"0", b"nan", b"Infinity", b"-Infinity", b"18446744073709551616"),
    *(
        b"1," * 9_000,
        b"." * 9_000,
        b"|" * 9_000,
        b" " * 19_000,
        b"\x1b[" * 5_000,
        b"- a:1 " * 3_000,
    ),
    *(b"null", b"[]", b"{}", b'""', b"true", b'"x"', b"[[[[" * 3_000, b'{"a":' * 3_000),
    *(b"\xff\xfe", b"\x00", b"\n", b"\r", b"\x1f\x8b", b'File "' + b"/" * 15_000),
    *(b"\x85" * 5_000, b"h\x00" * 3_000, b"}" * 5_000, b"cos\nsystem\n", b"\x80\x04"),
)
_NUMBER = re.compile(rb"\d[\d.]*")


@st.composite
def logs(draw: st.DrawFn) -> Case:
    """A log that was bent in a few places, alone or beside its recipe."""
    name = draw(st.sampled_from(sorted(WHOLE)))
    content = WHOLE[name]
    for _ in range(draw(st.integers(1, 3))):
        content = draw(_bent(content))
    # that a recipe takes a hundred times as long is seen often enough so
    recipe = _RECIPE if draw(st.integers(0, 9)) == 0 else []
    as_json = ["--json"] if draw(st.booleans()) else []
    return Case(("check", name, *recipe, *as_json), {name: content})


@st.composite
def _bent(draw: st.DrawFn, content: bytes) -> bytes:
    """Bytes cut, doubled, turned over, or with a number or anything else put in."""
    at = draw(st.integers(0, len(content)))
    how = draw(st.sampled_from(("cut", "put", "leave", "number", "number", "again", "bits")))
    if how == "cut":
        return content[:at]
    if how == "leave":
        return content[:at] + content[at + draw(st.integers(1, 200)) :]
    if how == "again":
        return content[:at] + content[draw(st.integers(0, len(content))) :][:300] + content[at:]
    if how == "bits":
        return content[:at] + bytes(entry ^ 1 for entry in content[at : at + 1]) + content[at + 1 :]
    piece = draw(st.sampled_from(_PIECES))
    marked = _NUMBER.search(content, at) if how == "number" else None
    start, end = marked.span() if marked else (at, at)
    return content[:start] + piece + content[end:]


CASES, CASE, TOOK = logs(), Case, Took()


def fuzz(case: Case) -> None:
    check(case, ask(case, TOOK))


@few(30)
@given(case=CASES)
def test_any_log_is_read_or_refused(case: Case) -> None:
    fuzz(case)
