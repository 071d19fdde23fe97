"""Documents of every kind with keys and values changed, then cut and bent as bytes: answered, or
refused in one sentence."""

from __future__ import annotations

import json
import tomllib
import warnings
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import tomli_w
from hypothesis import given
from hypothesis import strategies as st
from test_huggingface_types import CONFIGS, COUNTS, accepted, default_config

from fuzz import values
from fuzz.case import Case, Took, ask
from fuzz.invariants import check
from fuzz.short import few
from fuzz.test_requests import DATA, EXAMPLES, ROOT
from planner.inputs import catalog
from planner.specs.base import Spec
from planner.specs.cluster import ClusterTemplate
from planner.specs.hardware import GpuSpec, LinkSpec
from planner.specs.model import ModelSpec
from planner.specs.options import Options, rows
from planner.specs.price import PriceList
from planner.specs.stack import StackSpec

_MODEL = ("--model=gpt2", "--zero=1", "--micro-batch=1", "--recompute=none")
_HERE = (*_MODEL, "--gpus=8", "--json")
_OWN = ("--gpu=a100", "--gpus=8", "--zero=3", "--micro-batch=1", "--recompute=full", "--json")


@dataclass(frozen=True)
class Kind:
    """A kind of document: whole ones to begin with, the command that reads one as FILE, and the
    spec or names that say which keys it may have."""

    files: tuple[Path, ...]
    words: tuple[str, ...]
    suffix: str = ".toml"
    spec: type[Spec] | None = None
    keys: tuple[str, ...] = ()
    part: str = ""  # the list within the files whose entries are such documents

    def known(self) -> tuple[str, ...]:
        """Keys that the kind may have, from its spec."""
        if self.spec is None:
            return self.keys
        with warnings.catch_warnings(action="ignore"):  # a default with its source is not JSON
            result = self.spec.model_json_schema()
        tables = [result, *result.get("$defs", {}).values()]
        return tuple(sorted({name for table in tables for name in table.get("properties", ())}))


def shipped(kind: str) -> tuple[Path, ...]:
    return tuple(sorted(catalog.folder(kind).glob("*.toml")))


FILE = "given"  # without its suffix
KINDS: dict[str, Kind] = {
    "model": Kind(shipped("models"), ("estimate", "--model=FILE", *_OWN), spec=ModelSpec),
    "config": Kind(
        tuple(sorted((ROOT / "tests" / "configs").glob("*.json"))),
        ("estimate", "--model=FILE", *_OWN),
        ".json",
    ),
    "config of a type": Kind(
        (DATA / "hf_configs.json",), ("estimate", "--model=FILE", *_OWN), ".json", part="published"
    ),
    "gpu": Kind(shipped("gpus"), ("estimate", "--gpu=FILE", *_HERE), spec=GpuSpec),
    "cluster": Kind(
        shipped("clusters"), ("estimate", "--cluster=FILE", *_HERE), spec=ClusterTemplate
    ),
    "network": Kind(
        shipped("networks"),
        ("allreduce", "--gpu=a100", "--gpus=16", "--inter-node=FILE", "--bytes=1MB", "--json"),
        spec=LinkSpec,
    ),
    "stack": Kind(
        shipped("stacks"), ("estimate", "--stack=FILE", "--gpu=a100", *_HERE), spec=StackSpec
    ),
    "prices": Kind(
        (catalog.profiles_folder() / "prices.toml",),
        ("estimate", "--market=FILE", "--gpu=a100", "--tokens=1B", *_HERE),
        spec=PriceList,
        part="list",
    ),
    "calibration": Kind(
        (DATA / "calibration.toml", EXAMPLES / "calibration.toml"),
        ("estimate", "--calibration=FILE", "--gpu=rtx4090", *_HERE),
        spec=GpuSpec,
    ),
    "nodes": Kind(
        (DATA / "calibration.toml", EXAMPLES / "calibration.toml"),
        ("calibrate", "--diff", "FILE", "FILE", "--json"),
        spec=GpuSpec,
    ),
    "merged nodes": Kind(
        (DATA / "calibration.toml", EXAMPLES / "calibration.toml"),
        ("calibrate", "--merge=FILE", "--merge=FILE", "--out=node.toml", "--json"),
        spec=GpuSpec,
    ),
    "scenario": Kind(
        (EXAMPLES / "scenario.toml",),
        ("estimate", "--scenario=FILE", "--json"),
        keys=tuple(rows(Options)),
    ),
    "scenario as JSON": Kind(
        (EXAMPLES / "scenario.toml",),
        ("estimate", "--scenario=FILE", "--json"),
        ".json",
        keys=tuple(rows(Options)),
    ),
    "scenarios": Kind(
        (EXAMPLES / "scenario.toml",),
        ("compare", "FILE", "FILE", "--jobs=1", "--json"),
        keys=tuple(rows(Options)),
    ),
    "runs": Kind((EXAMPLES / "runs.csv",), ("validate", "FILE", "--json"), ".csv"),
    "schedule": Kind((), ("schedule", "--file=FILE", "--json"), ".csv"),
}
_SCHEDULE = b"0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n"


@cache
def whole(path: Path, part: str) -> tuple[dict[str, Any], ...]:
    """The documents of a file, parsed. Published configs, and one of every type's class with all
    its keys."""
    if part == "published":
        of_types = [default_config(family) for family in COUNTS if accepted(family)]
        return (*(row["config"] for row in CONFIGS[part].values()), *of_types)
    text = path.read_text(encoding="utf-8")
    document = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    return tuple(document[part]) if part else (document,)


@st.composite
def documents(draw: st.DrawFn) -> Case:
    """A command that reads a document which was changed in a few places."""
    kind = KINDS[draw(st.sampled_from(sorted(KINDS)))]
    if kind.suffix == ".csv":
        content = draw(_tables(kind.files[0].read_bytes() if kind.files else _SCHEDULE))
    else:
        path = draw(st.sampled_from(kind.files))
        result = draw(st.sampled_from(whole(path, kind.part)))
        for _ in range(draw(st.sampled_from((0, 1, 1, 2)))):
            result = draw(_changed(result, kind.known()))
        content = written(result, kind.suffix)
    if draw(st.sampled_from((True, False, False, False))):
        content = draw(_bent(content))
    name = FILE + kind.suffix
    words = tuple(word.replace("FILE", name) for word in kind.words)
    return Case(words, {name: content})


def written(document: Any, suffix: str) -> bytes:
    """The document as text; TOML has no null, and neither form has half a character."""
    if suffix == ".json":
        return json.dumps(document).encode()
    try:
        return tomli_w.dumps(_without_null(document)).encode("utf-8", "surrogatepass")
    except (TypeError, ValueError):
        return json.dumps(document).encode()


def _without_null(document: Any) -> Any:
    if isinstance(document, dict):
        return {k: _without_null(v) for k, v in document.items() if v is not None}
    return (
        [_without_null(v) for v in document if v is not None]
        if isinstance(document, list)
        else document
    )


def _places(document: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Paths of everything in a document."""
    inner = document.items() if isinstance(document, dict) else enumerate(document)
    return [
        place
        for key, value in inner
        for place in (
            (*path, key),
            *(_places(value, (*path, key)) if isinstance(value, dict | list) else ()),
        )
    ]


_SCALES = (0.0, -1.0, 1e-300, 1e-30, 1e-9, 0.1, 2.0, 7.0, 1e3, 1e9, 1e30, 1e300)


@st.composite
def _changed(draw: st.DrawFn, document: dict[str, Any], known: tuple[str, ...]) -> dict[str, Any]:
    """The document with one thing changed: left out, renamed, of another value, type or depth."""
    out: dict[str, Any] = json.loads(json.dumps(document, default=str))
    places = _places(out)
    how = draw(st.sampled_from(("drop", "rename", "value", "number", "number", "add", "deep")))
    key = draw(st.sampled_from(known) if known else st.text(max_size=8)) if how != "drop" else ""
    if not places or how == "add":
        out[key] = draw(values.anything())
        return out
    *path, last = draw(st.sampled_from(places))
    at = out
    for entry in path:
        at = at[entry]
    if how == "drop":
        del at[last]
    elif how == "rename":
        value = at[last]
        del at[last]
        out[key] = value
    elif how == "number" and isinstance(at[last], int | float):
        at[last] = draw(st.sampled_from(_SCALES)) * at[last]
        if draw(st.booleans()) and abs(at[last]) < 1e18:
            at[last] = round(at[last])
    elif how == "number" and isinstance(at[last], str):
        at[last] = draw(st.sampled_from(values.NUMBERS)) + " " + at[last].rpartition(" ")[2]
    elif how == "deep":
        for _ in range(draw(st.sampled_from((1, 5, 31, 33, 200)))):
            at[last] = draw(st.sampled_from(([at[last]], {"a": at[last]})))
    else:
        at[last] = draw(values.anything())
    return out


_BYTES = (
    b"\xff",
    b"\x00",
    b"\xed\xa0\x80",
    b"\xc0\xaf",
    b"\x1b[31m",
    b'"',
    b"]",
    b"'''",
    b"\n[[",
    b"= ",
)
_MANY = (300, 170_000)


@st.composite
def _bent(draw: st.DrawFn, content: bytes) -> bytes:
    """The bytes of a document, cut, doubled, in another encoding, or far too many."""
    at = draw(st.integers(0, len(content)))
    how = draw(
        st.sampled_from(("cut", "put", "twice", "crlf", "bom", "utf-16", "latin", "nest", "many"))
    )
    if how == "cut":
        return content[:at]
    if how == "put":
        return content[:at] + draw(st.sampled_from(_BYTES) | st.binary(max_size=4)) + content[at:]
    if how == "nest":
        depth = draw(st.sampled_from((40, 3_000, 100_000)))
        opened = draw(st.sampled_from((b"[", b"{a=", b'{"a":', b"a.")))
        return content[:at] + b"\nx = " + opened * depth
    if how == "many":
        return content + b"".join(b"k%d = 1\n" % i for i in range(draw(st.sampled_from(_MANY))))
    text = content.decode("utf-8", "replace")
    return {
        "twice": content + content,
        "crlf": content.replace(b"\n", b"\r\n"),
        "bom": b"\xef\xbb\xbf" + content,
        "utf-16": text.encode("utf-16"),
        "latin": (text + "# Müller").encode("latin-1", "replace"),
    }[how]


@st.composite
def _tables(draw: st.DrawFn, content: bytes) -> bytes:
    """A CSV table with cells changed, rows and columns gone, doubled or far too many."""
    table = [line.split(",") for line in content.decode().splitlines()]
    for _ in range(draw(st.integers(0, 4))):
        row = draw(st.integers(0, len(table) - 1))
        column = draw(st.integers(0, len(table[row]) - 1))
        how = draw(st.sampled_from(("cell", "cell", "number", "row", "column", "wide", "quote")))
        if how == "cell":
            table[row][column] = draw(values.hostile())
        elif how == "number":
            table[row][column] = draw(st.sampled_from(values.NUMBERS))
        elif how == "row":
            table.insert(row, table.pop(draw(st.integers(0, len(table) - 1))))
        elif how == "column":
            table = [cells[:column] + cells[column + 1 :] or [""] for cells in table]
        elif how == "quote":
            table[row][column] = '"' + table[row][column]
        else:
            table[row] += ["1"] * draw(st.sampled_from((1, 1_000, 150_000)))
    return "\n".join(",".join(cells) for cells in table).encode("utf-8", "surrogatepass")


CASES, CASE, TOOK = documents(), Case, Took()


def fuzz(case: Case) -> None:
    check(case, ask(case, TOOK))


@few(25)
@given(case=CASES)
def test_any_document_is_read_or_refused(case: Case) -> None:
    fuzz(case)
