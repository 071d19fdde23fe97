"""The state of the page: options by name with where each comes from, a pasted model, a pasted
calibration. It is the query string, and nothing else.

`gpus=64` in an address was typed. `from.gpus=file|train.sh:3|32` beside it says what train.sh has:
where the values are the same, it is the file's, else the person chose another. What an address
leaves out and a page fills in is marked as a default (`default|page|64`), which no link between
tabs takes along. What a search filled in is marked as searched (`search|picked|2`): another verb
searches it again.
"""

from __future__ import annotations

import contextlib
import html
import json
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, cast, get_args
from urllib.parse import parse_qsl, urlencode

import tomli_w

from planner import api
from planner.inputs import catalog
from planner.inputs.readers import NotText, read_json, read_toml
from planner.search.pick import of_command
from planner.specs.options import TYPED, Given, Origin, Row, flag, pairs_of_command, rows
from planner.specs.options.checked import from_text
from planner.specs.options.origin import OriginKind
from web import limits

MODEL_FILE = "model.json"  # what a pasted model is called, in commands too
MODEL_TOML = "model.toml"
CALIBRATION_FILE = "calibration.toml"
SEPARATOR = "; "  # between several conditions in one field
TEXTS = ("calibration", "config")  # pasted whole

# the query string in what the page lets people take along: reports, and pictures as SVG
_STATE = re.compile(r'^\s*<.{0,2000}?\bdpplan-state(?:" content)?="([^"]*)"', re.S)

DEFAULT = "default|page|"  # begins the mark of what a page fills in
MARK = "from."  # before the name of an option: where its value comes from

Pairs = list[tuple[str, str]]

START: dict[str, Any] = {"model": "llama-3-8b", "gpu": "h100-sxm5-80gb", "gpus": 64, "tokens": "1T"}
PAGE: Pairs = [(name, str(value)) for name, value in START.items()]
_INSTEAD = {"model": ("config",), "gpu": ("cluster",), "gpus": ("nodes", "sweep")}


class Malformed(api.PlanError):
    """A request that cannot be decoded as text."""


@dataclass(frozen=True)
class State:
    """One request as the web knows it. marks: of values that were not typed, or replace such."""

    options: api.Options
    config: str | None = None
    calibration: str | None = None
    marks: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def query(self) -> str:
        """The canonical query string: options that differ from their default, and the number of
        GPUs, for which a page has another default; in the order of Options."""
        return urlencode(self.pairs)

    @cached_property
    def pairs(self) -> list[tuple[str, str]]:
        """Names and values of the query string."""
        out = [
            (name, _text(word))
            for name in rows(api.Options)
            if name in self.given or name == "gpus"
            for value in [getattr(self.options, name)]
            for word in (value if isinstance(value, tuple) else (value,))
            if not (name == "model" and self.config) and name != "calibration"
        ]
        out += [
            (name, text)
            for name, text in (("config", self.config), ("calibration", self.calibration))
            if text
        ]
        names = {name for name, _ in out}
        out += [(MARK + name, mark) for name, mark in self.marks.items() if name in names]
        return out

    def is_typed(self, name: str) -> bool:
        """Whether a person chose the value of an option that is given."""
        return self.options.origins.get(name, TYPED).kind == "typed"

    @cached_property
    def conflicts(self) -> list[dict[str, str]]:
        """Options on which a person and a file differ: a sentence, and the queries of either."""
        out = []
        for name, mark in self.marks.items():
            origin = self.options.origin(name)
            if origin is None or not origin.over:
                continue
            chosen, stated = _text(getattr(self.options, name)), mark.split("|", 2)[2]
            rest = [pair for pair in self.pairs if pair[0] not in (name, MARK + name)]
            out.append(
                {
                    "says": f"{origin.over} for {flag(name)}, you chose {chosen}",
                    "file": stated,
                    "take": urlencode([*rest, (name, stated), (MARK + name, mark)]),
                    "chosen": chosen,
                    "keep": urlencode([*rest, (name, chosen)]),
                }
            )
        return out

    @cached_property
    def given(self) -> dict[str, Any]:
        """Options that differ from their default, as typed values."""
        return self.options.given()

    @cached_property
    def files(self) -> dict[str, str]:
        """The texts that the options name, by file name."""
        out = {}
        if self.config:
            out[self.options.model] = self.config
        if self.calibration:
            out[CALIBRATION_FILE] = self.calibration
        return out

    def picked(self, command: str, chosen: Collection[str] = ()) -> State:
        """The state that the command of a pick asks for: differences belong to the search, except
        options that a person has chosen with it. Raises PlanError for what no page answers."""
        options = _within_limits(of_command(self.options, command))
        origins = {name: origin for name, origin in options.origins.items() if name not in chosen}
        options = replace(options, origins=origins)
        return replace(self, options=options, marks=marks_of(Given(options.given(), origins)))

    def update(self, other: State) -> dict[str, str]:
        """Pairs of another state's address that differ from this one's; empty: left out."""
        old, new = dict(self.pairs), dict(other.pairs)
        return {n: new.get(n, "") for n in {**old, **new} if old.get(n) != new.get(n)}

    def updated(self, update: Mapping[str, str]) -> str:
        """The query string with such an update."""
        kept = [pair for pair in self.pairs if pair[0] not in update]
        return urlencode([*kept, *((name, text) for name, text in update.items() if text)])

    def changed(self, **update: Any) -> State:
        """The state with some options changed. Raises PlanError for wrong ones."""
        kept = {name: origin for name, origin in self.options.origins.items() if name not in update}
        options = _within_limits(api.read_options({**self.given, **update}, kept))
        marks = {name: mark for name, mark in self.marks.items() if name not in update}
        return State(options, self.config, self.calibration, marks)


def filled(pairs: Pairs, defaults: Pairs) -> Pairs:
    """The pairs of an address with the defaults of a page for what they leave out, marked as such.
    A name without a value leaves it open."""
    names = {name for name, _ in pairs}
    given = {name for name, text in pairs if text}
    out = list(pairs)
    for name, value in defaults:
        if name not in names and not given.intersection(_INSTEAD.get(name, ())):
            out += [(name, value), (MARK + name, f"{DEFAULT}{value}")]
    return out


def stated(pairs: Pairs) -> Pairs:
    """The pairs that a link to another tab takes along: what was typed and what files say, without
    the defaults of the page."""
    left = {pair for pair in pairs if pair[0].startswith(MARK) and pair[1].startswith(DEFAULT)}
    left |= {(name.removeprefix(MARK), mark.removeprefix(DEFAULT)) for name, mark in left}
    return [pair for pair in pairs if pair not in left and (pair[1] or pair[0] in START)]


def searched(pairs: Pairs) -> set[str]:
    """Names whose values a search has filled in: no given of a person."""
    texts = {(MARK + name, text) for name, text in pairs}
    marks = [(name, *mark.split("|", 2)) for name, mark in pairs if name.startswith(MARK)]
    return {
        name.removeprefix(MARK)
        for name, kind, *_, text in marks
        if kind == "search" and (name, text) in texts
    }


def _origins(marks: Mapping[str, str], texts: Mapping[str, str]) -> dict[str, Origin]:
    """Origins of options from their marks and values. Raises PlanError for an unknown mark."""
    out = {}
    for name, mark in marks.items():
        kind, where, value = [*mark.split("|", 2), "", ""][:3]
        if name not in rows(api.Options) or kind not in get_args(OriginKind) or not where:
            remedy = "must name an option, as in from.gpus=file|train.sh:3|32"
            raise api.PlanError(_short(MARK + name), _short(mark), remedy)
        if texts.get(name) == value:
            out[name] = Origin(cast(OriginKind, kind), where)
        elif name in texts and kind not in ("default", "search"):
            out[name] = Origin("typed", over=f"{where} says {value}")
    return out


def marks_of(given: Given) -> dict[str, str]:
    """Marks of options by name, of those that files say or said."""
    out = {}
    for name, origin in given.origins.items():
        where, value = origin.where or "picked", _text(given.get(name))
        if origin.over:
            where, _, value = origin.over.partition("; ")[0].rpartition(" says ")
        if origin.over or origin.kind != "typed":
            out[name] = (
                f"{origin.kind if not origin.over else 'file'}|{where.replace('|', ' ')}|{value}"
            )
    return out


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return SEPARATOR.join(value) if isinstance(value, list | tuple) else str(value)


def of_pairs(pairs: Iterable[tuple[str, str]]) -> State:
    """State from the pairs of a query string. Raises PlanError naming what is wrong."""
    table = rows(api.Options)
    given: dict[str, Any] = {}
    marks: dict[str, str] = {}
    for name, text in pairs:
        if text == "":
            continue
        if name.startswith(MARK):
            marks[name.removeprefix(MARK)] = text
            continue
        row = None if name in TEXTS else table.get(name)
        if row is not None and row.is_several:
            parts = (part.strip() for part in text.split(SEPARATOR.strip()))
            given.setdefault(name, []).extend(part for part in parts if part)
            continue
        if name in given:
            raise api.PlanError(_short(name), _short(text), "is given twice; keep one")
        given[name] = text if row is None else typed(row, text)
    return of_mapping(given, marks)


def _short(text: object) -> str:
    return str(text)[:200]


def typed(row: Row, text: str) -> Any:
    """A text as a value of the option's type; a text that cannot be read is returned as
    it is, for the options to refuse."""
    try:
        return from_text(row, text)
    except ValueError:
        return text


def of_mapping(given: Mapping[str, Any], marks: Mapping[str, str] | None = None) -> State:
    """State from options by name, with `config` and `calibration` as texts; marks: where options
    come from that were not typed. Raises PlanError naming what is wrong."""
    options = {name: value for name, value in given.items() if value is not None}
    table = rows(api.Options)
    _check_values(options)
    config = _config(options.pop("config", None))
    calibration = _limited(
        "calibration", options.pop("calibration", None), limits.MAX_CALIBRATION_BYTES
    )
    for name, row in table.items():
        text = options.get(name) if row.is_catalogued else None
        if isinstance(text, str) and (catalog.is_path(text) or text.startswith("hf:")):
            raise api.PlanError(
                name,
                _short(text),
                "takes a catalogue name here; files are for the command line, or paste a model",
            )
    if config is not None:
        if options.get("model") not in (None, "", MODEL_FILE, MODEL_TOML):
            raise api.PlanError("config", "...", "is given beside a model; keep one")
        options["model"] = MODEL_FILE if config.startswith("{") else MODEL_TOML
    if calibration is not None:
        options["calibration"] = CALIBRATION_FILE
    marks = marks or {}
    texts = {name: _text(option) for name, option in options.items() if name in marks}
    read = api.read_options(options, _origins(marks, texts))
    if "nodes" in marks and "gpus" in read.origins:  # which are read as GPUs
        kind, where, _ = marks["nodes"].split("|", 2)
        marks = {**marks, "gpus": f"{kind}|{where}|{read.gpus}"}
    kept = {name: mark for name, mark in marks.items() if read.origins.get(name, TYPED) != TYPED}
    return State(_within_limits(read), config, calibration, kept)


def _check_values(options: Mapping[str, Any]) -> None:
    """Refuse repeated values, and texts with a zero byte. Raises PlanError."""
    table = rows(api.Options)
    for name, value in options.items():
        if name in table and table[name].is_several and isinstance(value, list | tuple):
            continue
        if isinstance(value, dict | list) and name != "config":
            raise api.PlanError(
                _short(name), "...", "must be one value, neither a list nor an object"
            )
        if isinstance(value, str) and "\x00" in value:
            raise api.PlanError(_short(name), _short(value), "holds a zero byte")


def _within_limits(read: api.Options) -> api.Options:
    """The options where the dashboard answers them. Raises PlanError where it does not."""
    if read.gpus > limits.MAX_GPUS:
        raise api.PlanError(
            "--gpus", read.gpus, f"must be at most {limits.MAX_GPUS:,} here; use the command line"
        )
    if read.top > limits.MAX_TOP:
        raise api.PlanError(
            "--top", read.top, f"must be at most {limits.MAX_TOP} here; use the command line"
        )
    return read


def _limited(name: str, value: Any, most: int) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str):
        raise api.PlanError(name, "...", "must be the text of a file")
    try:
        size = len(value.encode("utf-8"))
    except UnicodeEncodeError:
        raise api.PlanError(name, "...", "is not UTF-8 text") from None
    if size > most:
        raise api.PlanError(
            name, f"{size:,} bytes", f"is longer than {most:,} bytes; use the command line"
        )
    return value if value.strip() else None


def _config(value: Any) -> str | None:
    """A pasted config.json without its spaces, or a model TOML as it is."""
    if isinstance(value, dict):
        value = json.dumps(value)
    if (
        isinstance(value, str)
        and value.lstrip().startswith("{")
        and len(value) <= limits.MAX_BODY_BYTES
    ):
        with contextlib.suppress(
            ValueError, RecursionError
        ):  # what is wrong with it, the reader of models says
            value = json.dumps(read_json(value), separators=(",", ":"), ensure_ascii=False)
    return _limited(
        "config", value.strip() if isinstance(value, str) else value, limits.MAX_CONFIG_BYTES
    )


def scenario_of(content: bytes) -> State:
    """State of a scenario file, TOML or JSON, of an answer as JSON, which says its command, or of a
    report or a picture of the page. Raises PlanError."""
    if len(content) > limits.MAX_SCENARIO_BYTES:
        raise api.PlanError(
            "scenario", "...", f"is longer than {limits.MAX_SCENARIO_BYTES:,} bytes"
        )
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        raise Malformed("scenario", None, "is not UTF-8 text") from None
    try:
        if inside := _STATE.search(text):  # a report, or a picture of an answer
            pairs = parse_qsl(html.unescape(inside[1]), max_num_fields=limits.MOST_PAIRS)
            return of_pairs(pairs)
        data = read_json(text) if text.lstrip().startswith("{") else read_toml(text)
    except ValueError as error:
        raise _unread("scenario", error) from None
    if isinstance(line := data.get("command"), str) and "schema_version" in data:
        try:
            return of_pairs(pairs_of_command(line, api.Options, "estimate"))
        except ValueError as error:
            raise api.PlanError("command", _short(line), str(error)) from None
    return of_mapping({str(key).replace("-", "_"): value for key, value in data.items()})


def posted(body: bytes) -> State:
    """State of a posted JSON object. Raises PlanError."""
    return of_mapping(_object(body))


def recipe_of(body: bytes) -> tuple[dict[str, str], dict[str, Any]]:
    """Texts of files and options of a posted JSON object. Raises PlanError."""
    given = _object(body)
    files = given.pop("files", None)
    texts = isinstance(files, dict) and all(isinstance(file, str) for file in files.values())
    if not files or not texts:
        raise api.PlanError("files", None, "must be an object of at least one text by its name")
    for name in TEXTS:
        if name in given:
            raise api.PlanError(name, "...", "is not taken beside files; use the command line")
    # a request that lacks its model is checked as well
    of_mapping({"model": "gpt2", "gpu": START["gpu"], "gpus": 1, **given})
    return files, {name: value for name, value in given.items() if value is not None}


def _object(body: bytes) -> dict[str, Any]:
    """A posted JSON object. Raises PlanError."""
    try:
        given = read_json(body)
    except ValueError as error:
        raise _unread("request", error) from None
    if not isinstance(given, dict):
        raise api.PlanError("request", None, "must be a JSON object of options")
    return given


def _unread(field: str, error: ValueError) -> api.PlanError:
    kind = Malformed if isinstance(error, NotText) else api.PlanError
    return kind(field, None, str(error))


def readable(pairs: Pairs) -> State:
    """The readable part of pairs, the wrong ones left out one after the other."""
    known = [(n, text) for n, text in pairs if n in (*rows(api.Options), *TEXTS) and text]
    # marks behind the values: a default of the page stays one
    known += [(n, text) for n, text in pairs if n.startswith(MARK) and text]
    kept: dict[str, str] = {}
    for name, text in known:
        if name in kept:
            continue
        try:
            model = [] if {"model", "config"} & {name, *kept} else PAGE[:1]
            of_pairs([*model, *kept.items(), (name, text)])
        except api.PlanError:
            continue
        kept[name] = text
    try:
        return of_pairs(kept.items())
    except api.PlanError:  # no model: what is asked of the first page
        return of_pairs(filled([("model", kept["model"])] if "model" in kept else [], PAGE))


def toml_of(state: State) -> str:
    """The scenario file of the same request: `dpplan estimate --scenario FILE`."""
    notes = []
    if state.config:
        notes.append(f"# save the pasted model beside this file as {state.options.model}")
    if state.calibration:
        notes.append(f"# save the calibration beside this file as {CALIBRATION_FILE}")
    return "\n".join([*notes, tomli_w.dumps(state.given)])


def catalogue_id(row: Row, value: str | None) -> str | None:
    """The id behind an alias, so that a list can show what was chosen; None where it is unknown."""
    if value is None or catalog.is_path(value):
        return None
    try:
        return catalog.find(row.says.catalogue.partition("/")[0], value).stem
    except api.PlanError:
        return None
