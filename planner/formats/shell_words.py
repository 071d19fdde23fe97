"""Words of a shell script: split at blanks, quotes taken off, variables put in, arithmetic of whole
numbers done. Nothing is run; what only running it could tell is unknown, by name."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

MOST_CHARACTERS = 1_000_000  # of all words of a script, once variables are put in
MOST_NESTING = 6  # brackets in arithmetic, scripts in quotes
SHOWN = 60  # characters of what is not known
_MOST_BRACKETS = 36
_MOST_STEPS = 200_000  # tokens, those of texts that a script runs included
_MOST_DIGITS = 15  # of a number in arithmetic
_NAME = re.compile(r"[A-Za-z_]\w*")
_WRITTEN = re.compile(r"[^\\'\"`$]+")
_SEPARATORS = ";&|\n(){}"


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


def _broken(text: str, at: int, first: int, what: str) -> ValueError:
    line = text.count("\n", 0, at)
    column = at - (text.rfind("\n", 0, at) + 1) + 1
    return ValueError(f"{what} is never closed (line {first + line}, column {column})")


def tokenised(text: str, first: int, state: State) -> Iterator[Token]:
    """Raw words and separators of a text, comments and here-documents left out."""
    at, line, end = 0, first, len(text)
    waiting: list[str] = []  # ends of here-documents that begin on the next line
    while at < end:
        char = text[at]
        if char == "\n":
            yield Token("\n", line, True)
            at, line = at + 1, line + 1
            while waiting:
                close = re.compile(rf"^\t*{re.escape(waiting.pop(0))}[ \t]*$", re.M)
                found = close.search(text, at)
                stop = found.end() if found else end
                line += text.count("\n", at, stop)
                at = stop
        elif char in " \t\r":
            at += 1
        elif text.startswith("\\\n", at):
            at, line = at + 2, line + 1
        elif char == "#":
            stop = text.find("\n", at)
            at = end if stop < 0 else stop
        elif here := re.compile(r"<<-?\s*(['\"]?)(\w+)\1").match(text, at):
            waiting.append(here[2])
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
    """Where a raw word ends."""
    start = at
    while at < len(text):
        char = text[at]
        if char == "\\":
            at += 2
        elif char == "'":
            close = text.find("'", at + 1)
            if close < 0:
                raise _broken(text, at, first, "a quote")
            at = close + 1
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


def _quoted_end(text: str, at: int, first: int) -> int:
    quote, start = text[at], at
    at += 1
    while at < len(text):
        if text[at] == "\\":
            at += 2
        elif text[at] == quote:
            return at + 1
        elif quote == '"' and text.startswith(("$(", "${"), at):
            at = _bracket_end(text, at + 1, first)
        else:
            at += 1
    raise _broken(text, start, first, "a quote")


def _bracket_end(text: str, at: int, first: int) -> int:
    """The end of a bracket, whatever is nested in it."""
    pairs, start = {"(": ")", "{": "}"}, at
    stack = [pairs[text[at]]]
    at += 1
    while at < len(text):
        char = text[at]
        if char == "\\":
            at += 1
        elif char == "'":
            close = text.find("'", at + 1)
            at = close if close > 0 else at
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
    """A part of a word: its text, whether it stood in quotes, the variables that are unknown."""

    text: str
    quoted: bool
    unknown: tuple[str, ...] = ()
    apart: tuple[Word, ...] | None = None  # of "${A[@]}": words of their own


def expand(raw: str, line: int, state: State) -> list[Word]:
    """The words that a raw word becomes."""
    words: list[Word] = []
    text, begun = "", False
    unknown: tuple[str, ...] = ()
    for piece in _pieces(raw, state):
        state.spend(piece.text)
        if piece.apart is not None:
            inside = list(piece.apart)
            if inside and (text or begun):
                inside[0] = replace(inside[0], text=text + inside[0].text)
                text, begun = "", False
            begun = begun and bool(text)  # "${A[@]}" without elements is no word
            words += [replace(one, line=one.line or line) for one in inside]
            for one in inside:
                state.spend(one.text)
            continue
        unknown = (*unknown, *piece.unknown)
        if piece.quoted:
            text, begun = text + piece.text, True
            continue
        parts = re.split(r"[ \t\n]+", piece.text)
        text += parts[0]
        for part in parts[1:]:
            if text or begun:
                words.append(Word(text, line, unknown))
            text, unknown, begun = part, (), False
    if text or begun or unknown:
        words.append(Word(text, line, unknown))
    return words


def _pieces(raw: str, state: State, quoted: bool = False) -> Iterator[_Piece]:
    """The parts of a raw word in order; what is written out is never split, like what is quoted."""
    at = 0
    while at < len(raw):
        char = raw[at]
        if char == "\\" and at + 1 < len(raw):
            after = raw[at + 1]
            kept = quoted and after not in '$`"\\\n'
            yield _Piece("" if after == "\n" else "\\" * kept + after, True)
            stop = at + 2
        elif char == "'" and not quoted:
            stop = raw.find("'", at + 1) + 1
            yield _Piece(raw[at + 1 : stop - 1], True)
        elif char == '"' and not quoted:
            stop = _quoted_end(raw, at, 1)
            if stop == at + 2:
                yield _Piece("", True)
            yield from _pieces(raw[at + 1 : stop - 1], state, True)
        elif char == "`":
            stop = _quoted_end(raw, at, 1)
            yield _Piece("", quoted, (raw[at:stop][:SHOWN],))
        elif char == "$":
            stop = _variable_end(raw, at)
            yield _variable(raw[at:stop], quoted, state)
        else:
            found = _WRITTEN.match(raw, at)
            stop = found.end() if found else at + 1
            yield _Piece(raw[at:stop], True)
        at = stop


def _variable_end(raw: str, at: int) -> int:
    if raw[at + 1 : at + 2] in ("(", "{"):
        return _bracket_end(raw, at + 1, 1)
    found = _NAME.match(raw, at + 1)
    return found.end() if found else min(at + 2, len(raw))


_LOOKED_UP = re.compile(r"\$\{?(?:([A-Za-z_]\w*)|(\d+))(\[[@*]\])?(?:(:?[-=+?])(.*))?\}?\Z", re.S)


def _variable(raw: str, quoted: bool, state: State) -> _Piece:
    """The expansion of `$A`, `${A:-b}`, `${A[@]}`, `$((...))` or `$(...)`."""
    if raw.startswith("$((") and raw.endswith("))"):
        try:
            return _Piece(_computed(raw[3:-2], state), quoted)
        except (ValueError, ZeroDivisionError, OverflowError):
            return _Piece("", quoted, (raw[:SHOWN],))
    if raw in ("$@", "$*", "${@}", "$#", "$?", "$$", "$!", "$"):
        own = () if "@" in raw else None  # words of their own, of which a script alone has none
        return _Piece("$" if raw == "$" else "", quoted, apart=own)
    inner = raw if not raw.startswith("${") else "${" + raw[2:-1]
    found = _LOOKED_UP.match(inner)
    if not found:
        return _Piece("", quoted, (raw[:SHOWN],))
    name, place, listed, operator, other = found.groups()
    held = state.variables.get(name) if name else None
    empty = held is not None and not any(one.text or one.unknown for one in held)
    unset = held is None or (empty and (operator or "").startswith(":"))
    if operator and operator[-1] in "-=" and unset:
        words = expand('"' + other + '"' if quoted else other, 0, state)
        text = " ".join(one.text for one in words)
        return _Piece(text, quoted, tuple(u for one in words for u in one.unknown))
    if operator and operator[-1] == "+":
        return _Piece("" if unset else other, quoted)
    if held is None:
        return _Piece("", quoted, (name or place,))
    if listed == "[@]" and quoted:
        return _Piece("", quoted, apart=tuple(held))
    if listed:
        return _Piece("", quoted, apart=tuple(w for one in held for w in _split(one)))
    text = " ".join(one.text for one in held[:1])
    return _Piece(text, quoted, held[0].unknown if held else ())


def _split(word: Word) -> list[Word]:
    """The words of an element that stands without quotes."""
    parts = word.text.split()
    return [replace(word, text=part) for part in parts] if parts else [word] * bool(word.unknown)


_NUMBER = re.compile(r"\s*(?:(\d+)|\$?\{?([A-Za-z_]\w*)\}?|([-+*/%()]))")


def _computed(text: str, state: State) -> str:
    """Whole-number arithmetic, by a parser of its own. Raises ValueError for anything else."""
    tokens: list[str] = []
    at = 0
    text = text.rstrip()
    while at < len(text):
        found = _NUMBER.match(text, at)
        if not found:
            raise ValueError(text)
        digits, name, operator = found.groups()
        if name:
            held = state.variables.get(name)
            if not held or held[0].unknown or not held[0].text.strip().lstrip("-").isdigit():
                raise ValueError(name)
            digits = held[0].text.strip()
        if digits and len(digits) > _MOST_DIGITS:
            raise ValueError(digits)
        tokens.append(digits or operator)
        at = found.end()
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
