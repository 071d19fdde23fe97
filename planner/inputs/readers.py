"""The one reader of TOML, JSON and YAML that people write: with all limits, so that no text takes
more than its length is worth, or says what nothing behind it can hold.

Each raises ValueError with the rest of a sentence, "is not valid TOML: ...", and NotText where the
input cannot be decoded as text.
"""

from __future__ import annotations

import functools
import json
import math
import re
import tomllib
from collections.abc import Iterator
from typing import Any

from planner.error import is_text

MOST_BYTES = 500_000  # of a text of options or of a profile; the largest that ships has 12,000
MOST_NESTING = 32
MOST_KEYS = 20_000  # of a document
MOST_DIGITS = 40  # of a whole number: some files write 1e30 in full
_MOST_INTEGER = 10**MOST_DIGITS
_DEEP = f"is nested deeper than {MOST_NESTING} levels"
# the memory of the TOML parser grows with the square of a key's parts
_LONG_KEY = re.compile(
    rf"""(?<![\w-])(?:(?:[\w-]++|"[^"\n]*"|'[^'\n]*')[ \t]*+\.[ \t]*+){{{MOST_NESTING}}}"""
)
_SHOWN = 200  # characters of a parser's message


class NotText(ValueError):
    """Bytes that are not UTF-8, or half of a surrogate pair: no answer could repeat it."""


def read_toml(text: str) -> dict[str, Any]:
    """Parse a TOML text."""
    if len(text) > MOST_BYTES:
        raise ValueError(f"is larger than the {MOST_BYTES:,} bytes that are read")
    if _LONG_KEY.search(text):
        raise ValueError(_DEEP)
    try:
        data = tomllib.loads(text)
    except RecursionError:
        raise ValueError(_DEEP) from None
    except ValueError as error:
        raise ValueError(f"is not valid TOML: {_one_line(error)}") from None
    _check(data)
    return data


def read_json(text: str | bytes, dropped: tuple[str, ...] = ()) -> Any:
    """Parse a JSON text; a duplicate key is an error.

    dropped: keys of the document that are not read, whose values may be infinite.
    """
    try:
        data = json.loads(text, object_pairs_hook=unique, parse_int=_whole)
    except RecursionError:
        raise ValueError(_DEEP) from None
    except json.JSONDecodeError as error:
        where = f"(line {error.lineno}, column {error.colno})"
        raise ValueError(f"is not valid JSON: {error.msg} {where}") from None
    except UnicodeDecodeError:
        raise NotText("is not valid JSON: it is not UTF-8 text") from None
    except ValueError as error:
        raise ValueError(f"is not valid JSON: {_one_line(error)}") from None
    for key in dropped if isinstance(data, dict) else ():
        data.pop(key, None)
    _check(data)
    return data


def read_yaml(text: str) -> dict[Any, Any]:
    """Keys and plain values of a YAML mapping; what is nested becomes an empty list, and is never
    expanded."""
    import yaml

    try:
        loader = _shallow()(text)
        root = loader.get_single_node()
        if not isinstance(root, yaml.MappingNode):
            raise ValueError("it must be a mapping of options")
        data = unique(
            [
                (_plain(loader, key, "?"), _plain(loader, value, _texts(loader, value)))
                for key, value in root.value
            ]
        )
    except RecursionError:
        raise ValueError(_DEEP) from None
    except (yaml.YAMLError, ValueError) as error:
        raise ValueError(f"is not valid YAML: {_yaml_error(error, text)}") from None
    _check(data)
    return data


def yaml_text(document: dict[str, Any]) -> str:
    """A document as YAML, keys in their order."""
    import yaml

    return str(yaml.safe_dump(document, sort_keys=False, default_flow_style=False, width=90))


def yaml_places(text: str) -> dict[str, tuple[Any, int]]:
    """Every plain value of a YAML mapping with its line, by a path such as `model.layers` or
    `stages.0.name`; a list of plain values is one, and an anchor's stands wherever it is
    repeated."""
    import yaml

    out: dict[str, tuple[Any, int]] = {}
    try:
        loader = _shallow()(text)
        root = loader.get_single_node()
        if not isinstance(root, yaml.MappingNode):
            raise ValueError("it must be a mapping of options")
        todo: list[tuple[str, Any]] = [("", root)]
        merged: dict[int, dict[Any, Any]] = {}
        for level in range(MOST_NESTING + 1):
            if level == MOST_NESTING and todo:
                raise RecursionError
            todo = [
                place for path, node in todo for place in _below(loader, path, node, out, merged)
            ]
            if len(out) + len(todo) > MOST_KEYS:
                raise ValueError(f"has more than {MOST_KEYS:,} keys")
    except RecursionError:
        raise ValueError(_DEEP) from None
    except (yaml.YAMLError, ValueError) as error:
        raise ValueError(f"is not valid YAML: {_yaml_error(error, text)}") from None
    _check({name: value for name, (value, _) in out.items()})
    return out


def _below(
    loader: Any,
    path: str,
    node: Any,
    out: dict[str, tuple[Any, int]],
    merged: dict[int, dict[Any, Any]],
) -> Iterator[tuple[str, Any]]:
    """Nested nodes by path; plain values go into `out`."""
    import yaml

    for name, child in _inside(loader, node, merged):
        below = f"{path}.{name}" if path else str(name)
        if isinstance(child, yaml.ScalarNode):
            out[below] = _text_of(_plain(loader, child, None)), child.start_mark.line + 1
        elif _is_plain_list(child):
            texts = [_text_of(element) for element in _texts(loader, child)]
            out[below] = texts, child.start_mark.line + 1
        else:
            yield below, child
        if len(out) > MOST_KEYS:
            raise ValueError(f"has more than {MOST_KEYS:,} keys")


def _text_of(value: Any) -> Any:
    """A plain value; a date as YAML has them is a text."""
    return value if isinstance(value, str | int | float | None) else str(value)


def _inside(loader: Any, node: Any, merged: dict[int, dict[Any, Any]]) -> list[tuple[Any, Any]]:
    """Names and nodes inside a list or a mapping, with what that merges under its own. A key that
    is given twice counts as the last says, as in every program that reads such files; the others
    are there by their lines.

    merged: what mappings are with all that they merge, by identity: each is joined once.
    """
    import yaml

    if not isinstance(node, yaml.MappingNode):
        return list(enumerate(node.value))
    pairs = [(_plain(loader, k, "?"), v) for k, v in node.value if k.value != "<<"]
    last = dict(pairs)
    named = [
        (name if last[name] is value else f"{name} (line {value.start_mark.line + 1})", value)
        for name, value in pairs
    ]
    below = _merged(loader, node, merged)
    return [*((name, value) for name, value in below.items() if name not in last), *named]


def _merged(loader: Any, node: Any, merged: dict[int, dict[Any, Any]]) -> dict[Any, Any]:
    """Keys of a mapping with those that it merges (`<<`), its own first."""
    import yaml

    if id(node) in merged:
        return merged[id(node)]
    out: dict[Any, Any] = {}
    merged[id(node)] = out  # a mapping may merge itself
    for key, value in node.value:
        if key.value != "<<":
            continue
        for mapping in value.value if isinstance(value, yaml.SequenceNode) else [value]:
            if isinstance(mapping, yaml.MappingNode):
                out.update({**_merged(loader, mapping, merged), **out})
    out.update({_plain(loader, k, "?"): v for k, v in node.value if k.value != "<<"})
    if len(out) > MOST_KEYS:
        raise ValueError(f"has more than {MOST_KEYS:,} keys")
    return out


def _is_plain_list(node: Any) -> bool:
    import yaml

    if not isinstance(node, yaml.SequenceNode):
        return False
    return all(isinstance(element, yaml.ScalarNode) for element in node.value)


@functools.cache
def _shallow() -> type[Any]:
    """PyYAML's loader, without depth: for every bracket it looks again through all that are open,
    which takes time with the square of their number."""
    import yaml

    class Shallow(yaml.SafeLoader):
        def fetch_flow_collection_start(self, TokenClass: type[yaml.Token]) -> None:
            if self.flow_level >= MOST_NESTING:
                raise RecursionError
            super().fetch_flow_collection_start(TokenClass)

    return Shallow


def unique(pairs: list[tuple[Any, Any]]) -> dict[Any, Any]:
    """Keys and values as a dict. Raises ValueError naming a key that is given twice."""
    mapping = dict(pairs)
    if len(mapping) < len(pairs):
        for key, _ in pairs:
            if key not in mapping:
                raise ValueError(f"{str(key)[:_SHOWN]!r} is given twice; keep one")
            del mapping[key]
    return mapping


def _whole(digits: str) -> int:
    if len(digits) > MOST_DIGITS:  # the time of reading them grows with their square
        raise ValueError(f"a whole number has more than {MOST_DIGITS} digits")
    return int(digits)


def _yaml_error(error: Exception, text: str) -> str:
    """A YAML parser's error in one sentence with the place."""
    import yaml

    if isinstance(error, yaml.reader.ReaderError):
        before = text[: error.position]
        line, column = before.count("\n") + 1, error.position - (before.rfind("\n") + 1) + 1
        shown = f"#x{error.character:04x}" if isinstance(error.character, int) else "a byte"
        return f"{error.reason}: {shown} (line {line}, column {column})"
    mark = getattr(error, "problem_mark", None)
    if mark is None:
        return _one_line(error)
    context = getattr(error, "context", None)
    words = " ".join(part for part in (context, getattr(error, "problem", "")) if part)
    return f"{words[:_SHOWN]} (line {mark.line + 1}, column {mark.column + 1})"


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:_SHOWN]


# where a value stands: (where its parent stands, its key or place); None: the document
_Place = tuple[Any, Any] | None


def _check(data: Any) -> None:
    """Refuse what is nested deeper than any document is, has more keys, or holds what no answer can
    repeat; walks without recursion."""
    level, keys = 0, 0
    todo: list[tuple[_Place, Any]] = [(None, data)]
    while todo:
        level += 1
        if level > MOST_NESTING:
            raise ValueError(_DEEP)
        for place, value in todo:
            if why := _unusable(value) or (place and _unusable(place[1])):
                raise type(why)(f"has {_named(place)}: {why}")
        keys += sum(len(value) for _, value in todo if isinstance(value, dict))
        if keys > MOST_KEYS:
            raise ValueError(f"has more than {MOST_KEYS:,} keys")
        todo = [child for place, value in todo for child in _children(place, value)]


def _children(place: _Place, value: Any) -> Iterator[tuple[_Place, Any]]:
    if isinstance(value, dict):
        yield from (((place, name), child) for name, child in value.items())
    elif isinstance(value, list):
        yield from (((place, i), child) for i, child in enumerate(value))


def _unusable(value: Any) -> ValueError | None:
    """Why no answer could repeat a value; None where one can."""
    if isinstance(value, str) and not is_text(value):
        return NotText("half of a surrogate pair, which is not a character")
    if isinstance(value, int) and abs(value) >= _MOST_INTEGER:
        return ValueError(f"a whole number of more than {MOST_DIGITS} digits")
    if isinstance(value, float) and not math.isfinite(value):
        return ValueError(f"{value}, which is not finite")
    return None


def _named(place: _Place) -> str:
    """A place as people write it: "rope_scaling.factors[1]"."""
    words: list[str] = []
    while place is not None:
        place, key = place
        name = str(key)[:_SHOWN]
        name = name if name.isprintable() else repr(name)
        words.append(f"[{key}]" if isinstance(key, int) else f".{name}")
    return "".join(reversed(words)).removeprefix(".") or "one value"


def _plain(loader: Any, node: Any, else_: Any) -> Any:
    import yaml

    return loader.construct_object(node) if isinstance(node, yaml.ScalarNode) else else_


def _texts(loader: Any, node: Any) -> list[Any]:
    """Plain values of a YAML list, empty for anything else."""
    import yaml

    if not isinstance(node, yaml.SequenceNode):
        return []
    return [_plain(loader, element, []) for element in node.value]
