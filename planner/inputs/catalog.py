"""Find profiles by exact id or declared alias, in a checkout as in an installed wheel, or by path.

Ids are file names, so the common case reads one file. An alias is found by searching the text of
the folder before anything is parsed: a cold start parses only the files it needs.
"""

from __future__ import annotations

import io
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from pydantic import ValidationError

from planner import plugins
from planner.inputs import files, not_modelled, readers
from planner.inputs.names import alike, spellings
from planner.specs.base import PlanError, Spec, sentence
from planner.specs.hardware import CURVE_SHAPE
from planner.specs.options.mechanisms import MECHANISMS
from planner.specs.options.words import near as did_you_mean

_PACKAGE = Path(__file__).parent.parent
MAX_FILE_BYTES = 2_000_000

S = TypeVar("S", bound=Spec)


def profiles_folder() -> Path:
    """hardware_profiles/, beside the package in a checkout, inside it in a wheel."""
    inside = _PACKAGE / "hardware_profiles"
    return inside if inside.is_dir() else _PACKAGE.parent / "hardware_profiles"


def folder(kind: str) -> Path:
    """Folder of one kind of profile that ships: models, stacks, gpus, networks, clusters."""
    return _PACKAGE / kind if kind in ("models", "stacks") else profiles_folder() / kind


@cache
def profiles(kind: str) -> Mapping[str, Path]:
    """Files of one kind of profile by their ids, sorted: shipped ones and, of models and stacks,
    profiles of other distributions."""
    return dict(sorted(plugins.files(kind, folder(kind)).items()))


def ids(kind: str) -> tuple[str, ...]:
    """All ids of one kind, sorted."""
    return tuple(profiles(kind))


def find(kind: str, name: str) -> Path:
    """Path of the profile with this id, alias or Hugging Face id, however it is spelled. Raises
    PlanError with what is like it, or with why nothing is."""
    words = spellings(name)
    shipped = next((path for word in words if (path := _declared(kind, word))), None)
    vendor, _, rest = words[-1].partition("-")
    if shipped is None and kind == "gpus" and vendor in _VENDORS:  # as drivers name their cards
        shipped = _declared(kind, rest)
        if shipped and readers.read_toml(_text(shipped)).get("vendor") != vendor:
            shipped = None
    if shipped:
        return shipped
    other = not_modelled.of_name(kind, name)
    counted = _COUNTED.fullmatch(name.strip()) if kind == "gpus" else None
    if counted:
        other = (
            f"is a number and a GPU: write --gpus {counted[1]} --gpu {spellings(counted[2])[-1]}"
        )
    raise PlanError(_FLAG[kind], name, other or f"unknown; {near(kind, name)}")


_COUNTED = re.compile(r"(\d{1,7})\s?[xX*]\s?(\w[\w -]*)")  # "8xH100"
_VENDORS = ("nvidia", "amd")


def _declared(kind: str, wanted: str) -> Path | None:
    """The profile that has this name: its id, an alias, or an id of the Hugging Face Hub with or
    without its organisation."""
    if wanted in profiles(kind):
        return profiles(kind)[wanted]
    for path in profiles(kind).values():
        text = _text(path)
        if f'{wanted}"' in text.lower() and wanted in _names(text):
            return path
    return None


def _text(path: Path) -> str:
    """Text of a profile that ships."""
    with path.open("rb") as file:
        files.note_open(file)
        return file.read().decode("utf-8")


def _head(text: str) -> dict[str, Any]:
    """Keys of a profile before its first table, which are a small part of a long file."""
    try:
        return readers.read_toml(text.partition("\n[")[0])
    except ValueError:  # cut inside a value of several lines
        return readers.read_toml(text)


def _names(text: str) -> set[str]:
    """The names that a profile declares beside its id, in lower case."""
    data = _head(text)
    hub = [str(name).lower() for name in data.get("hub", ())]
    return {*(str(name).lower() for name in data.get("aliases", ())), *hub} | {
        name.rpartition("/")[2] for name in hub
    }


@cache
def owners(kind: str) -> Mapping[str, str]:
    """The id of the profile that has a name, by every name in lower case."""
    names = {
        name: identity for identity, path in profiles(kind).items() for name in _names(_text(path))
    }
    return names | {identity: identity for identity in ids(kind)}


LINK = "link"  # what errors call a network: which of the options names it, the caller knows
_FLAG = {
    "models": "--model",
    "stacks": "--stack",
    "gpus": "--gpu",
    "networks": LINK,
    "clusters": "--cluster",
    "hosts": "--host",
}


_OFFERED = 4  # profiles that an unknown name is answered with


def hub_names() -> list[str]:
    """Models of the Hugging Face Hub that the catalogue has, as org/name."""
    heads = (_head(_text(path)) for path in profiles("models").values())
    return [str(name) for head in heads for name in head.get("hub", ())]


def near(kind: str, wanted: str) -> str:
    """Hint for an unknown name: the nearest known ones, and where all are listed."""
    owner = {identity: identity for identity in ids(kind)}
    for path in profiles(kind).values():
        owner |= {str(name): path.stem for name in _head(_text(path)).get("aliases", ())}
    offered: dict[str, str] = {}  # one name of each profile
    for name in alike(kind, wanted, list(owner)):
        offered.setdefault(owner[name], name)
    close = list(offered.values())[:_OFFERED]
    hint = f"did you mean {', '.join(close)}? " if close else ""
    return f"{hint}`dpplan list {kind}` shows all, or give a path"


def is_path(name: str) -> bool:
    """Whether an option names a file rather than a catalogue entry."""
    if name.startswith("{"):  # a model written out
        return False
    if name.endswith((".toml", ".json", ".yaml", ".yml")) or "\\" in name:
        return True
    return "/" in name and name.lower() not in _hub_ids()


@cache
def _hub_ids() -> frozenset[str]:
    """Ids of the Hugging Face Hub that the catalogue's models have."""
    texts = (_text(path) for path in profiles("models").values())
    return frozenset(name for text in texts for name in _names(text) if "/" in name)


def user_path(name: str, field: str) -> Path:
    """The path a user wrote, ~ expanded."""
    try:
        return Path(name).expanduser()
    except (RuntimeError, ValueError) as error:
        raise PlanError(field, name, f"is not a usable path: {error}") from None


# one per thread and task, as the recorder of planner.ledger
_given: ContextVar[Mapping[str, str | bytes] | None] = ContextVar("given files", default=None)


@contextmanager
def only_given(files: Mapping[str, str] | Mapping[str, str | bytes]) -> Iterator[None]:
    """Inside the block the files that a user names are these texts, by name; no other but the
    shipped ones is read from disk."""
    token = _given.set(files)
    try:
        yield
    finally:
        _given.reset(token)


_NOT_HERE = "is a file, and files of this machine are not read here"


def _is_shipped(path: Path) -> bool:
    return ".." not in path.parts and (
        path.is_relative_to(_PACKAGE) or path.is_relative_to(profiles_folder())
    )


def exists(path: Path) -> bool:
    """Whether a user's path is there; nothing is where only given files are read."""
    return _given.get() is None and os.path.exists(
        path
    )  # False for a name too long, or a zero byte


def is_file(path: Path) -> bool:
    """Whether a user's path is a file; nothing is where only given files are read."""
    return _given.get() is None and os.path.isfile(path)


def _as_bytes(given: str | bytes) -> bytes:
    return given if isinstance(given, bytes) else given.encode("utf-8", "surrogatepass")


def given(path: Path) -> bytes | None:
    """Contents of a file if only given ones are read, empty for any other; None if the disk is
    read."""
    texts = _given.get()
    return None if texts is None else _as_bytes(texts.get(str(path), b""))


@contextmanager
def opened(path: Path, field: str) -> Iterator[BinaryIO]:
    """A user's file to be read piece by piece, with clear errors for what can be wrong with it."""
    given = _given.get()
    if given is not None and not _is_shipped(path):
        if str(path) not in given:
            raise PlanError(field, str(path), _NOT_HERE)
        yield io.BytesIO(_as_bytes(given[str(path)]))
        return
    try:
        if path.is_dir():
            raise PlanError(field, str(path), "is a folder; give the file inside it")
        with path.open("rb") as file:
            files.note_open(file)
            yield file
    except OSError as error:
        raise PlanError(field, str(path), f"cannot be read: {error.strerror or error}") from None
    except ValueError as error:
        if isinstance(error, PlanError):
            raise
        raise PlanError(field, str(path), f"is not a usable path: {error}") from None


def read_text(path: Path, field: str, most_bytes: int = MAX_FILE_BYTES) -> str:
    """Text of a user's file, with clear errors for what can be wrong with a file."""
    given = _given.get()
    text: str | bytes = b""
    try:
        if given is not None and not _is_shipped(path):
            if str(path) not in given:
                raise PlanError(field, str(path), _NOT_HERE)
            text = given[str(path)]
            content = _as_bytes(text)
        elif path.is_dir():
            raise PlanError(field, str(path), "is a folder; give the file inside it")
        else:
            with path.open("rb") as file:
                files.note_open(file)
                content = file.read(most_bytes + 1)  # no more: what is named may be endless
        if len(content) > most_bytes:
            raise PlanError(
                field,
                str(path),
                f"is larger than the {most_bytes:,} bytes that are read; is it the right file?",
            )
        # half a surrogate pair in a text is for its reader to name
        wrong = "surrogatepass" if isinstance(text, str) else "strict"
        return content.decode("utf-8", wrong).replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise PlanError(
            field, str(path), f"is not UTF-8 text (byte {error.start}); save it as UTF-8"
        ) from None
    except OSError as error:
        raise PlanError(field, str(path), f"cannot be read: {error.strerror or error}") from None
    except ValueError as error:
        if isinstance(error, PlanError):
            raise
        raise PlanError(field, str(path), f"is not a usable path: {error}") from None


def read_toml(path: Path, field: str) -> dict[str, Any]:
    """Parse a TOML file; a malformed one is a PlanError naming line and column."""
    try:
        return readers.read_toml(read_text(path, field, readers.MOST_BYTES))
    except PlanError:
        raise
    except ValueError as error:
        raise PlanError(field, str(path), str(error)) from None


def build(spec: type[S], data: Any, field: str, where: str) -> S:
    """Validate data into a spec; the first problem becomes one sentence naming key, value and what
    is wrong."""
    try:
        return spec.model_validate(data)
    except ValidationError as error:
        faults = error.errors(include_url=False, include_context=False)
        first = next((fault for fault in faults if fault["type"] == "extra_forbidden"), faults[0])
        missing = [_place(fault["loc"]) for fault in faults if fault["type"] == "missing"]
        if missing and first["type"] == "missing":
            raise PlanError(f"{field} {where}", None, f"needs {' and '.join(missing)}") from None
        key = _place(first["loc"])
        more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
        message = sentence(first["msg"])
        if first["type"] == "extra_forbidden":
            known = sorted(spec.stated_keys()) if len(first["loc"]) == 1 else []
            hint = did_you_mean(key, [name.replace("_", "-") for name in known]).replace("-", "_")
            listed = ", ".join(known) or "see the shipped profiles"
            message = f"unknown key; {hint}known keys: {listed}"
            raise PlanError(f"{field} {where}", key, message + more) from None
        shown = first.get("input")
        raise PlanError(
            f"{field} {where}: {key}",
            shown if not isinstance(shown, dict) else "...",
            message + more,
        ) from None


def _place(loc: tuple[Any, ...]) -> str:
    return ".".join(str(part) for part in loc) or "document"


def load(kind: str, spec: type[S], name: str) -> S:
    """Load a shipped profile by id or alias, or a user's TOML by path."""
    field = _FLAG[kind]
    if is_path(name):
        path = user_path(name, field)
        return build(spec, _whole(kind, read_toml(path, field)), field, str(path))
    return _shipped(kind, spec, name)


@cache
def _shipped(kind: str, spec: type[S], name: str) -> S:
    """Shipped profiles do not change while the program runs."""
    path = find(kind, name)
    return build(spec, _whole(kind, readers.read_toml(_text(path))), _FLAG[kind], path.stem)


# what a profile has for itself, whatever it rests on
_OWN = ("id", "title", "aliases", "source", "release_of", "since", "printed_in")


def _whole(kind: str, data: dict[str, Any]) -> dict[str, Any]:
    """A stack that has a `base` with all that its own file does not state, as that one does it.
    Lists are replaced whole. A GPU whose kernels are `like` another's with the shape of its
    curve."""
    if kind == "gpus":
        return _shaped(data)
    if kind != "stacks":
        return data
    base = data.get("base")
    if isinstance(base, str):
        rest = _whole(kind, readers.read_toml(_text(find(kind, base))))
        data = _merge({key: value for key, value in rest.items() if key not in _OWN}, data)
    return _with_mechanisms(data)


def _with_mechanisms(stack: dict[str, Any]) -> dict[str, Any]:
    """A stack with the options of mechanisms whose modules name it."""
    needs = (needed for each in MECHANISMS for needed in each.NEEDS)
    names = [needed.option for needed in needs if stack.get("id") in needed.stacks]
    supports = stack.get("supports")
    if not names or not isinstance(supports, dict):
        return stack
    mechanisms = [*supports.get("mechanisms", ()), *names]
    return {**stack, "supports": {**supports, "mechanisms": mechanisms}}


def _shaped(data: dict[str, Any]) -> dict[str, Any]:
    """A GPU with those numbers of `CURVE_SHAPE` that it does not state, of the GPU it names."""
    kernels = data.get("kernels")
    like = kernels.get("like") if isinstance(kernels, dict) else None
    if not isinstance(kernels, dict) or not isinstance(like, str):
        return data
    try:
        path = find("gpus", like)
    except PlanError as error:
        raise PlanError("kernels.like", like, error.remedy) from None
    other = _shaped(readers.read_toml(_text(path)))["kernels"]
    shape = {
        key: {**other[key], "kind": "assumed", "source": f"no GEMM table: as {like}"}
        for key in CURVE_SHAPE
    }
    return {**data, "kernels": {**shape, **kernels}}


def load_overlaid(kind: str, spec: type[S], name: str, overlay: dict[str, Any], source: str) -> S:
    """A profile with some of its fields replaced, as a calibration does; nested tables merge key by
    key."""
    field = _FLAG[kind]
    path = user_path(name, field) if is_path(name) else find(kind, name)
    data = _whole(kind, read_toml(path, field))
    return build(spec, _merge(data, overlay), "--calibration", source)


def _merge(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    out = dict(base)
    for key, value in over.items():
        number = isinstance(value, dict) and "value" in value
        nested = isinstance(value, dict) and isinstance(base.get(key), dict) and not number
        out[key] = _merge(base[key], value) if nested else value
    return out


def tables(kind: str, name: str) -> dict[str, dict[str, Any]]:
    """This table, with those below it, of every profile that has it, by id. Reading all of every
    profile takes a second."""
    header = re.compile(rf"^\[{re.escape(name)}(?:\.[^\]]*)?\]\n(?:(?!\[).*\n?)*", re.MULTILINE)
    parts = {key: "".join(header.findall(_text(path))) for key, path in profiles(kind).items()}
    return {key: readers.read_toml(part)[name] for key, part in parts.items() if part}


def load_all(kind: str, spec: type[S]) -> list[S]:
    """Every shipped profile of one kind, sorted by id."""
    return [load(kind, spec, name) for name in ids(kind)]
