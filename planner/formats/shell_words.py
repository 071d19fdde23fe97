"""Words of a shell script: split at blanks, quotes taken off, variables put in, arithmetic of whole
numbers done. Nothing is run; what only running it could tell is unknown, by name."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

MOST_CHARACTERS = 1_000_000  # of all words of a script, once variables are put in
MOST_NESTING = 6  # brackets in arithmetic, scripts in quotes
_MOST_CUT = 2_000  # characters of a value that `${A#...}` is tried on
SHOWN = 60  # characters of what is not known
_MOST_BRACKETS = 36
_MOST_STEPS = 200_000  # tokens, including texts that a script runs
_MOST_DIGITS = 15  # of a number in arithmetic
_NAME = re.compile(r"[A-Za-z_]\w*")
_WRITTEN = re.compile(r"[^\\'\"`$]+")
_SEPARATORS = ";&|\n(){}"
_HERE = re.compile(r"\d*<<(-?)[ \t]*\\?(['\"]?)([\w.%!@-]+)\2")


@dataclass(frozen=True)
class Word:
    """A word of a command; unknown: the variables in it that the script does not set."""

    text: str
    line: int
    unknown: tuple[str, ...] = ()


@dataclass
class State:
    """Variables set so far, and the remaining budget."""

    variables: dict[str, list[Word]] = field(default_factory=dict)
    characters: int = 0
    steps: int = 0

    def spend(self, text: str) -> None:
        self.characters += len(text)
        self.steps += 1
        if self.characters > MOST_CHARACTERS or self.steps > _MOST_STEPS:
            raise ValueError(f"grows beyond {MOST_CHARACTERS:,} characters: variables repeat it")


@dataclass(frozen=True)
class Token:
    """A raw word (with its quotes) or a separator."""

    text: str
    line: int
    separator: bool = False


def _broken(text: str, at: int, first: int, subject: str) -> ValueError:
    line = text.count("\n", 0, at)
    column = at - (text.rfind("\n", 0, at) + 1) + 1
    return ValueError(f"{subject} is never closed (line {first + line}, column {column})")


def tokenised(text: str, first: int, state: State) -> Iterator[Token]:
    """Raw words and separators of a text, comments and here-documents left out."""
    at, line, end = 0, first, len(text)
    waiting: list[tuple[str, str]] = []  # here-documents of the next line: tabs, and their ends
    while at < end:
        char = text[at]
        if char == "\n":
            yield Token("\n", line, True)
            at, line = at + 1, line + 1
            while waiting:
                tabs, ends = waiting.pop(0)
                close = re.compile(rf"^{tabs}{re.escape(ends)}\r?$", re.M)
                match = close.search(text, at)
                stop = match.end() if match else end
                line += text.count("\n", at, stop)
                at = stop
        elif char in " \t\r":
            at += 1
        elif text.startswith("\\\n", at):
            at, line = at + 2, line + 1
        elif char == "#":
            stop = text.find("\n", at)
            at = end if stop < 0 else stop
        elif here := _HERE.match(text, at):
            waiting.append(("\t*" if here[1] else "", here[3]))
            at = here.end()
        elif redirect := re.compile(r"\d*(?:<<<|>>|>&|<&|>\||&>>?|[<>])[ \t]*").match(text, at):
            at = redirect.end()
            stop = _word_end(text, at, first)
            line += text.count("\n", at, stop)
            at = stop
        elif char in _SEPARATORS:
            two = text[at : at + 2]
            operator = two if two in (";;", "&&", "||") else char
            yield Token(operator, line, True)
            at += len(operator)
        else:
            stop = _word_end(text, at, first)
            state.spend(text[at:stop])
            yield Token(text[at:stop], line)
            line += text.count("\n", at, stop)
            at = stop


def _word_end(text: str, at: int, first: int) -> int:
    """End of a raw word."""
    start = at
    while at < len(text):
        char = text[at]
        if char == "\\":
            at += 2
        elif text.startswith("$'", at):
            at = _single_end(text, at + 1, first, escapes=True)
        elif char == "'":
            at = _single_end(text, at, first)
        elif char in '"`':
            at = _quoted_end(text, at, first)
        elif text.startswith(("$(", "${"), at):
            at = _bracket_end(text, at + 1, first)
        elif char == "(" and at > start and text[at - 1] == "=":
            at = _bracket_end(text, at, first)
        elif char in " \t\r\n;&|()<>" or (char == "}" and at == start):
            break
        else:
            at += 1
    return max(min(at, len(text)), start + (start == at))


def _single_end(text: str, at: int, first: int, escapes: bool = False) -> int:
    """Behind the quote that closes the single one here; in `$'...'` a backslash escapes it."""
    close = at + 1
    while close < len(text) and text[close] != "'":
        close += 1 + (escapes and text[close] == "\\")
    if close >= len(text):
        raise _broken(text, at, first, "a quote")
    return close + 1


def _quoted_end(text: str, at: int, first: int) -> int:
    quote, start = text[at], at
    at += 1
    while at < len(text):
        if text[at] == "\\":
            at += 2
        elif text[at] == quote:
            return at + 1
        elif quote == '"' and text[at] == "`":
            at = _quoted_end(text, at, first)
        elif quote == '"' and text.startswith(("$(", "${"), at):
            at = _bracket_end(text, at + 1, first, quoted=text[at + 1] == "{")
        else:
            at += 1
    raise _broken(text, start, first, "a quote")


def _bracket_end(text: str, at: int, first: int, quoted: bool = False) -> int:
    """The end of a bracket, whatever is nested in it. quoted: `${...}` in double quotes, where a
    single quote is a plain character."""
    pairs, start = {"(": ")", "{": "}"}, at
    stack = [pairs[text[at]]]
    at += 1
    while at < len(text):
        char = text[at]
        if char == "\\":
            at += 1
        elif char == "'" and not (quoted and stack == ["}"]):
            escapes = text[at - 1] == "$"
            with suppress(ValueError):  # one that is never closed stands in a comment
                at = _single_end(text, at, first, escapes) - 1
        elif char in '"`':
            at = _quoted_end(text, at, first) - 1
        elif char == "#" and text[at - 1] in " \t\n" and stack[-1] == ")":
            close = text.find("\n", at)
            at = close if close > 0 else at
        elif char in pairs and (char == "(" or text[at - 1] == "$"):
            if len(stack) >= _MOST_BRACKETS:
                raise ValueError("nests brackets too deep to be read")
            stack.append(pairs[char])
        elif char == stack[-1]:
            stack.pop()
            if not stack:
                return at + 1
        at += 1
    raise _broken(text, start, first, "a bracket")


@dataclass(frozen=True)
class _Piece:
    """A part of a word: its text, whether it stood in quotes, the variables that are unknown, and
    whether a word ends before it, as between the elements of "${A[@]}"."""

    text: str
    quoted: bool
    unknown: tuple[str, ...] = ()
    apart: bool = False
    line: int = 0  # of an element; 0: the word's line


def expand(raw: str, line: int, state: State) -> list[Word]:
    """The words that a raw word becomes."""
    words: list[Word] = []
    text, begun, at = "", False, line
    unknown: list[str] = []

    def end() -> None:
        nonlocal text, begun, at
        if text or begun or unknown:
            words.append(Word(text, at, tuple(unknown)))
        text, begun, at = "", False, line
        unknown.clear()

    for piece in _pieces(raw, state):
        state.spend(piece.text)
        if piece.apart:
            end()
        at = piece.line or at
        unknown += piece.unknown
        if piece.quoted:
            text, begun = text + piece.text, True
            continue
        first, *others = re.split(r"[ \t\n]+", piece.text)
        text += first
        for part in others:
            end()
            text = part
    end()
    return words


def assigned(raw: str, line: int, state: State) -> Word:
    """The value of `A=...`, which is never split."""
    text: list[str] = []
    unknown: list[str] = []
    for piece in _pieces(raw, state):
        state.spend(piece.text)
        text += [" "] * piece.apart + [piece.text]
        unknown += piece.unknown
    return Word("".join(text), line, tuple(unknown))


def _pieces(
    raw: str, state: State, quoted: bool = False, splits: bool = False, depth: int = 0
) -> Iterator[_Piece]:
    """The parts of a raw word in order; what is written out is never split, like what is quoted,
    but in the word of `${A:-a b}`: splits."""
    if depth > _MOST_BRACKETS:
        raise ValueError("nests brackets too deep to be read")
    at = 0
    while at < len(raw):
        char = raw[at]
        if char == "\\" and at + 1 < len(raw):
            yield from _escaped(raw[at + 1], quoted)
            stop = at + 2
        elif raw.startswith("$'", at) and not quoted:
            stop = _single_end(raw, at + 1, 1, escapes=True)
            yield _Piece(_unescaped(raw[at + 2 : stop - 1]), True)
        elif char == "'" and not quoted:
            stop = _single_end(raw, at, 1)
            yield _Piece(raw[at + 1 : stop - 1], True)
        elif char == '"' or (raw.startswith('$"', at) and not quoted):
            opens = at + (char == "$")
            stop = _quoted_end(raw, opens, 1)
            if stop == opens + 2:
                yield _Piece("", True)
            yield from _pieces(raw[opens + 1 : stop - 1], state, True, depth=depth + 1)
        elif char == "`":
            stop = _quoted_end(raw, at, 1)
            yield _Piece("", quoted, (raw[at:stop][:SHOWN],))
        elif char == "$":
            stop = _variable_end(raw, at)
            yield from _variable(raw[at:stop], quoted, state, depth)
        else:
            match = _WRITTEN.match(raw, at)
            stop = match.end() if match else at + 1
            yield _Piece(raw[at:stop], quoted or not splits)
        at = stop


def _escaped(after: str, quoted: bool) -> Iterator[_Piece]:
    """The character behind a backslash, which itself stays before most of them in quotes."""
    if after != "\n":
        yield _Piece("\\" * (quoted and after not in '$`"\\') + after, True)


_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "e": "\x1b", "E": "\x1b"}
_ESCAPES |= {"f": "\f", "v": "\v", "\\": "\\", "'": "'", '"': '"', "?": "?"}
_ESCAPED = re.compile(r"\\(?:x([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{1,4})|([0-7]{1,3})|(.))", re.DOTALL)


def _unescaped(text: str) -> str:
    """The inside of `$'...'`."""

    def character(match: re.Match[str]) -> str:
        code = match[1] or match[2]
        if code or match[3]:
            return chr(int(code, 16) if code else int(match[3], 8))
        return _ESCAPES.get(match[4], match[0])

    return _ESCAPED.sub(character, text)


def _variable_end(raw: str, at: int) -> int:
    if raw[at + 1 : at + 2] in ("(", "{"):
        return _bracket_end(raw, at + 1, 1)
    match = _NAME.match(raw, at + 1)
    return match.end() if match else min(at + 2, len(raw))


_LOOKED_UP = re.compile(
    r"\$\{?(#?)(?:([A-Za-z_]\w*)|(\d+))(?:\[([@*]|\d{1,6})\])?"
    r"(?:(:?[-=+?]|##?|%%?|,,|\^\^)(.*))?\}?\Z",
    re.S,
)


_SPECIAL = ("$@", "$*", "${@}", "$#", "$?", "$$", "$!", "$")


def _variable(raw: str, quoted: bool, state: State, depth: int) -> Iterator[_Piece]:
    """The expansion of `$A`, `${A:-b}`, `${A[@]}`, `$((...))` or `$(...)`."""
    if raw.startswith("$((") and raw.endswith("))"):
        yield _arithmetic(raw, quoted, state)
        return
    if raw in _SPECIAL:
        # "$@" stands for arguments, which a script by itself does not have
        yield from [_Piece("$" if raw == "$" else "", quoted)] * ("@" not in raw)
        return
    inner = raw if not raw.startswith("${") else "${" + raw[2:-1]
    match = _LOOKED_UP.match(inner)
    if not match:
        yield _Piece("", quoted, (raw[:SHOWN],))
        return
    length, name, place, index, operator, other = match.groups()
    value = _parts(name, index, state)
    first = value if index in ("@", "*") else (value or [])[:1]
    empty = value is not None and not any(word.text or word.unknown for word in first or [])
    unset = not value or (empty and (operator or "").startswith(":"))
    if operator and operator[-1] in "-=+" and unset != (operator[-1] == "+"):
        if operator[-1] == "=" and name and index is None:
            yield _set_default(name, other, quoted, state)
        else:
            yield from _pieces(other, state, quoted, splits=True, depth=depth + 1)
    elif operator and operator[-1] == "+":
        yield _Piece("", quoted)
    elif value is None:
        yield _Piece("", quoted, (name or place,))
    elif length:
        yield _of_length(value, index, quoted)
    else:
        yield from _elements(value, index, _cut(operator, other, state), quoted)


def _parts(name: str | None, index: str | None, state: State) -> list[Word] | None:
    """The elements of a variable, or the one of an index; None where it is not set."""
    value = state.variables.get(name) if name else None
    if value is None or index is None or index in ("@", "*"):
        return value
    return value[int(index) : int(index) + 1]


def _set_default(name: str, other: str, quoted: bool, state: State) -> _Piece:
    """`${A:=b}` of an unset variable, which it sets."""
    word = assigned(f'"{other}"' if quoted else other, 0, state)
    state.variables[name] = [word]
    return _Piece(word.text, quoted, word.unknown)


def _arithmetic(raw: str, quoted: bool, state: State) -> _Piece:
    try:
        return _Piece(_computed(raw[3:-2], state), quoted)
    except (ValueError, ZeroDivisionError, OverflowError):
        return _Piece("", quoted, (raw[:SHOWN],))


def _of_length(words: list[Word], index: str | None, quoted: bool) -> _Piece:
    """`${#A}` in characters, `${#A[@]}` in elements."""
    counts = index in ("@", "*")
    counted = words if counts else words[:1]
    unknown = tuple(name for word in counted for name in word.unknown)
    count = len(words) if counts else sum(len(word.text) for word in counted)
    return _Piece("" if unknown else str(count), quoted, unknown)


def _cut(operator: str | None, pattern: str | None, state: State) -> Callable[[str], str]:
    """`${A#*/}`, `${A%.py}` and `${A,,}` as a function of the text of A."""
    if operator in (",,", "^^"):
        return str.lower if operator == ",," else str.upper
    if operator is None or operator[0] not in "#%":
        return str
    text = assigned(pattern or "", 0, state).text[:SHOWN]

    def cut(value: str) -> str:
        ends = range(min(len(value), _MOST_CUT) + 1)
        if operator[0] == "#":
            fits = [i for i in ends if fnmatchcase(value[:i], text)]
            return value[(fits[-1] if operator == "##" else fits[0]) :] if fits else value
        fits = [i for i in ends if fnmatchcase(value[len(value) - i :], text)]
        return value[: len(value) - (fits[-1] if operator == "%%" else fits[0])] if fits else value

    return cut


def _elements(
    words: list[Word], index: str | None, cut: Callable[[str], str], quoted: bool
) -> Iterator[_Piece]:
    """The value of a variable, or each element of an array."""
    if index == "*" and quoted:
        text = " ".join(cut(word.text) for word in words)
        yield _Piece(text, True, tuple(name for word in words for name in word.unknown))
    elif index in ("@", "*"):
        for i, entry in enumerate(words):
            yield _Piece(cut(entry.text), quoted, entry.unknown, i > 0, entry.line)
    else:
        entry = words[0] if words else Word("", 0)
        yield _Piece(cut(entry.text), quoted, entry.unknown)


_NUMBER = re.compile(r"\s*(?:(\d+)|\$?\{?([A-Za-z_]\w*)\}?|([-+*/%()]))")


def _computed(text: str, state: State) -> str:
    """Whole-number arithmetic, by a parser of its own. Raises ValueError for anything else."""
    tokens: list[str] = []
    at = 0
    text = text.rstrip()
    while at < len(text):
        match = _NUMBER.match(text, at)
        if not match:
            raise ValueError(text)
        digits, name, operator = match.groups()
        if name:
            variable = state.variables.get(name)
            if (
                not variable
                or variable[0].unknown
                or not variable[0].text.strip().lstrip("-").isdigit()
            ):
                raise ValueError(name)
            digits = variable[0].text.strip()
        if digits and len(digits) > _MOST_DIGITS:
            raise ValueError(digits)
        tokens.append(digits or operator)
        at = match.end()
    value = _sum(tokens, 0)
    if tokens or len(str(value)) > _MOST_DIGITS:
        raise ValueError(text)
    return str(value)


def _sum(tokens: list[str], depth: int) -> int:
    value = _product(tokens, depth)
    while tokens and tokens[0] in "+-":
        sign = tokens.pop(0)
        value += _product(tokens, depth) * (1 if sign == "+" else -1)
    return value


def _product(tokens: list[str], depth: int) -> int:
    value = _factor(tokens, depth)
    while tokens and tokens[0] in ("*", "/", "%"):
        operator, other = tokens.pop(0), _factor(tokens, depth)
        if operator == "*":
            value *= other
        else:
            value = value // other if operator == "/" else value % other
    return value


def _factor(tokens: list[str], depth: int) -> int:
    if not tokens or depth > MOST_NESTING:
        raise ValueError("ends")
    token = tokens.pop(0)
    if token == "(":
        value = _sum(tokens, depth + 1)
        if not tokens or tokens.pop(0) != ")":
            raise ValueError("bracket")
        return value
    if token == "-":
        return -_factor(tokens, depth + 1)
    return int(token)
