"""Shell scripts as commands, for the arguments in them. Nothing is ever run.

The part of bash that launch scripts use: assignments, arrays, `${A:-b}`,
`$((a * b))`, `if`, `case` and functions. What only running a script could tell (`$(...)`, a file
that is there or not) is left unknown, by name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from planner.formats.shell_words import (
    MOST_NESTING,
    SHOWN,
    State,
    Token,
    Word,
    assigned,
    expand,
    tokenised,
)

__all__ = ["Command", "Script", "Word", "script", "starts"]

_ASSIGNED = re.compile(r"([A-Za-z_]\w*)(\+?)=")


@dataclass(frozen=True, eq=False)
class Command:
    """A command with the variables before it (`A=1 torchrun ...`) among those set so far."""

    words: tuple[Word, ...]
    variables: Mapping[str, str]


@dataclass
class _State(State):
    """Commands and conditions found so far, beside the variables."""

    commands: list[Command] = field(default_factory=list)
    possible: list[Command] = field(default_factory=list)
    skipped: list[Word] = field(default_factory=list)
    held: bool | None = True  # whether the last command of a list with && and || succeeded


@dataclass(frozen=True)
class Script:
    """Contents of a script: its commands in order, its variables at the end, and the conditions
    that only running it could decide, whose branches are left out; possible: commands in those."""

    commands: tuple[Command, ...]
    variables: Mapping[str, str]
    skipped: tuple[Word, ...] = ()
    possible: tuple[Command, ...] = ()


def script(text: str, environment: Mapping[str, str] | None = None) -> Script:
    """The commands of a script. Raises ValueError with line and column where a quote or bracket is
    never closed, and where variables make it too long."""
    state = _State()
    for name, value in (environment or {}).items():
        state.variables[name] = [Word(value, 0)]
    _run(_assigned_texts(text), 1, state, 0)
    return Script(tuple(state.commands), _plain(state), tuple(state.skipped), tuple(state.possible))


# a here-document that becomes the value of a variable, to which it is put in quotes
_TEXT_READ = re.compile(
    r"(?m)^([ \t]*)read[ \t]+(?:-\w+[ \t]+(?:(?:''|\"\")[ \t]+)?){1,4}([A-Za-z_]\w*)[ \t]*"
    r"<<(-?)[ \t]*(\\?['\"]?)(\w+)['\"]?[ \t]*$"
)
_TEXT_PRINTED = re.compile(
    r"(?m)^([ \t]*(?:export[ \t]+)?)([A-Za-z_]\w*)=\"?\$\([ \t]*cat[ \t]*"
    r"<<(-?)[ \t]*(\\?['\"]?)(\w+)['\"]?[ \t]*$"
)


def _assigned_texts(text: str) -> str:
    """A script with `read -d '' A <<EOF` and `A=$(cat <<EOF` as assignments of the text, line by
    line as it was."""
    for pattern, closes in ((_TEXT_READ, ""), (_TEXT_PRINTED, r"\s*\)\"?")):
        parts, at = [], 0
        for match in pattern.finditer(text):
            before, name, tabs, quote, word = match.groups()
            indent = r"\t*" if tabs else ""
            close = re.compile(rf"(?m)^{indent}{word}[ \t]*${closes}")
            end = close.search(text, match.end())
            if end is None:
                break
            if match.start() < at:
                continue
            body = text[match.end() : end.start()]
            quoted = body.replace("'", "'\\''") if quote else body.replace('"', '\\"')
            mark = "'" if quote else '"'
            inner = quoted.strip("\n")
            lines = "\n" * (quoted.count("\n") - inner.count("\n") + end[0].count("\n"))
            parts += [text[at : match.start()], f"{before}{name}={mark}{inner}{mark}{lines}"]
            at = end.end()
        text = "".join([*parts, text[at:]])
    return text


_STARTS = re.compile(r"\w\.py$")
_FEW = 3  # arguments of a command that may be the one that trains


def starts(commands: Sequence[Command]) -> list[Command]:
    """The commands that start a Python program with arguments, the one with most of them first."""
    counts = [(sum(word.text.startswith("--") for word in c.words), c) for c in commands]
    likely = [
        (count, command)
        for count, command in counts
        if count >= _FEW and any(_STARTS.search(word.text) for word in command.words)
    ]
    return [command for _, command in sorted(likely, key=lambda pair: -pair[0])]


def _plain(state: _State) -> dict[str, str]:
    variables = state.variables.items()
    return {
        name: " ".join(word.text for word in words)
        for name, words in variables
        if not any(word.unknown for word in words)
    }


_DECLARES = ("export", "declare", "local", "readonly", "typeset", "env")
_SHELLS = ("bash", "sh", "zsh", "dash")
_OPENS, _CLOSES = ("if", "for", "while", "until", "case", "select"), ("fi", "done", "esac")
_BRANCHES = ("then", "else")
_PATTERNS = 3  # words of `case A in` before them
_KEYWORDS = ("do", "!", "time", "function")


@dataclass
class _Frame:
    """An `if`, a loop or a `case` that is open. active: what stands here is done; over: one of its
    branches was; guess: only running the script tells whether one before this was."""

    kind: str
    active: bool
    over: bool = False
    guess: bool = False
    tests: list[tuple[str, list[Token]]] | None = None  # of an `if`, with the operator before each
    subject: str | None = None  # of a `case`, None where it is not known
    patterns: list[str] | None = None


def _run(text: str, line: int, state: _State, depth: int) -> None:
    """Go through the statements of a text."""
    if depth > MOST_NESTING:
        raise ValueError(f"nests scripts in quotes more than {MOST_NESTING} deep")
    frames: list[_Frame] = []
    current: list[Token] = []
    operator = ""
    for token in (*tokenised(text, line, state), Token("\n", line, True)):
        if not token.separator:
            current.append(token)
            continue
        frame = frames[-1] if frames else None
        if frame is not None and frame.patterns is not None:  # of a `case`, up to its bracket
            frame.patterns += [word.text for word in current if word.text != "esac"]
            closes = any(word.text == "esac" for word in current)
            current = []
            if closes:
                frames.pop()
            elif token.text == ")":
                _choose(frame, state)
            continue
        if current:
            _statement(current, operator, frames, state, depth)
            current = []
            if token.text == ")" and frames and frames[-1].patterns:  # `case A in x) ...`
                _choose(frames[-1], state)
        operator = token.text
        if token.text == ";;" and frames and frames[-1].kind == "case":
            frames[-1].patterns = []


def _statement(
    tokens: list[Token], operator: str, frames: list[_Frame], state: _State, depth: int
) -> None:
    """One statement, up to its separator: opens or closes a frame, or is a command."""
    while tokens:
        word = tokens[0].text
        frame = frames[-1] if frames else None
        if word in ("if", "elif"):
            if word == "if":
                frames.append(_Frame("if", _active(frames)))
            frames[-1].tests, operator = [], ""
        elif frame and frame.tests is not None and word != "then":
            frame.tests.append((operator, tokens))
            return
        elif word in _OPENS:
            frames.append(_opened(tokens, frames, state))
            return
        elif word in _BRANCHES or word in _CLOSES or word in _KEYWORDS:
            _branch(word, frames, state)
        else:
            _listed(tokens, operator, frames, state, depth)
            return
        tokens = tokens[1:]


def _listed(
    tokens: list[Token], operator: str, frames: list[_Frame], state: _State, depth: int
) -> None:
    """A command in a list: behind `&&` and `||` it is run only after one that succeeded or
    failed."""
    sets = any(_ASSIGNED.match(token.text) for token in tokens[: 1 + (tokens[0].text in _DECLARES)])
    if not _active(frames):
        if any(not frame.active and frame.subject == "" for frame in frames):
            _undecided(tokens, state)
        return
    if sets and any(frame.guess for frame in frames):
        _undecided(tokens, state)
        return
    needs = {"&&": True, "||": False}.get(operator)
    if needs is not None and state.held is not needs:
        if state.held is None:
            _undecided(tokens, state)
        return
    test = tokens[0].text in ("[", "[[", "test", "true", "false", "!")
    if test:
        state.held = _holds([assigned(token.text, token.line, state) for token in tokens])
    else:
        _command(tokens, state, depth)
        state.held = True


def _undecided(tokens: list[Token], state: _State) -> None:
    """A command that only running the script could tell whether it is run: what it would set is
    unknown."""
    declares = len(tokens) > 1 and tokens[0].text in _DECLARES
    token = tokens[1] if declares else tokens[0]
    match = _ASSIGNED.match(token.text)
    if not match:
        words = [word for entry in tokens for word in expand(entry.text, entry.line, state)]
        if words and len(state.possible) < SHOWN:
            state.possible.append(Command(tuple(words), _plain(state)))
        return
    if len(state.skipped) < SHOWN:
        state.skipped.append(Word(match[1], token.line))
    value = _value(token.text[match.end() :], token.line, state)
    old = state.variables.get(match[1], [])
    arguments = any(word.text.startswith("-") for word in (*value, *old))
    if not match[2] and not arguments and value != old:  # of arguments the others are kept
        why = f"{match[1]} (line {token.line}: only running it tells)"
        state.variables[match[1]] = [Word("", token.line, (why,))]


def _branch(word: str, frames: list[_Frame], state: _State) -> None:
    """A word that begins a branch of a frame, or ends it."""
    if word in _CLOSES and frames:
        frames.pop()
    elif word in _BRANCHES and frames and frames[-1].kind == "if":
        frame = frames[-1]
        if word == "then":
            _decide(frame, frames, state)
        else:
            frame.active, frame.over = _active(frames[:-1]) and not frame.over, True
            frame.subject = None


def _active(frames: list[_Frame]) -> bool:
    return all(frame.active for frame in frames)


def _decide(frame: _Frame, frames: list[_Frame], state: _State) -> None:
    """Whether the branch that begins here is taken: one whose condition is not known is not."""
    holds: bool | None = None
    for operator, tokens in frame.tests or []:
        if operator == "||" and holds is True:
            continue
        if operator == "&&" and holds is False:
            continue
        holds = _holds([assigned(token.text, token.line, state) for token in tokens])
    frame.tests = None
    frame.subject = "" if holds is None else None
    frame.guess = frame.guess or holds is None
    frame.active = holds is True and not frame.over and _active(frames[:-1])
    frame.over = frame.over or holds is True


def _holds(words: list[Word]) -> bool | None:
    """Whether a test holds; None where only running it could tell."""
    texts = [word.text for word in words if word.text not in ("[", "]", "[[", "]]", "test")]
    if texts[:1] == ["!"]:
        inside = _holds(words[1:] if words[0].text == "!" else [words[0], *words[2:]])
        return None if inside is None else not inside
    match texts:
        case ["-z" | "-n", *_] if any("(" in name for word in words for name in word.unknown):
            return None  # of a command's output, or of a branch that is not known
        case ["-z", *rest]:
            return not any(rest)  # an unset variable is empty
        case ["-n", *rest]:
            return any(rest)
        case ["true" | "false"]:
            return texts[0] == "true"
        case [left, operator, right] if not any(word.unknown for word in words):
            return _compared(left, operator, right)
    return None


def _compared(left: str, operator: str, right: str) -> bool | None:
    """Whether a comparison of texts or whole numbers holds."""
    if operator in ("==", "="):
        return fnmatchcase(left, right)
    if operator == "!=":
        return not fnmatchcase(left, right)
    if not all(re.fullmatch(r"-?\d{1,15}", side) for side in (left, right)):
        return None
    a, b = int(left), int(right)
    holds = {"-eq": a == b, "-ne": a != b, "-gt": a > b, "-ge": a >= b, "-lt": a < b, "-le": a <= b}
    return holds.get(operator)


def _opened(tokens: list[Token], frames: list[_Frame], state: _State) -> _Frame:
    """The frame of a loop, whose body is read once, or of a `case`."""
    kind, active = tokens[0].text, _active(frames)
    if kind == "case":
        word = assigned(tokens[1].text, tokens[1].line, state) if tokens[1:] else None
        subject = word.text if word and not word.unknown else None
        patterns = [token.text for token in tokens[_PATTERNS:]]
        return _Frame("case", False, over=not active, subject=subject, patterns=patterns)
    words = [word for token in tokens[1:] for word in expand(token.text, token.line, state)]
    match [word.text for word in words]:
        case [name, "in", _, *_] if kind == "for" and active:
            state.variables[name] = [words[2]]
    return _Frame(kind, active)


def _choose(frame: _Frame, state: _State) -> None:
    """Whether the branch of a `case` that begins here is taken: the first that matches."""
    patterns, frame.patterns = frame.patterns or [], None
    texts = [assigned(pattern, 0, state).text for pattern in patterns]
    fits = frame.subject is not None and any(fnmatchcase(frame.subject, text) for text in texts)
    frame.active = fits and not frame.over
    frame.over = frame.over or fits


def _command(tokens: list[Token], state: _State, depth: int) -> None:
    """A command: assignments are made, what it runs in quotes is read, the rest is kept."""
    declares = tokens[0].text in _DECLARES
    rest = tokens[1:] if declares else tokens
    before: dict[str, list[Word]] = {}
    while rest and (_ASSIGNED.match(rest[0].text) or (declares and rest[0].text.startswith("-"))):
        if match := _ASSIGNED.match(rest[0].text):
            old = before.get(match[1], state.variables.get(match[1], []))
            raw = rest[0].text[match.end() :]
            value = _value(raw, rest[0].line, state)
            array = raw.startswith("(")
            before[match[1]] = _added(old, value, array) if match[2] else value
            if declares or len(rest) == 1 or all(_ASSIGNED.match(word.text) for word in rest):
                state.variables[match[1]] = before[match[1]]
        rest = rest[1:]
    if not rest:
        state.variables |= before
        return
    words = [word for entry in rest for word in expand(entry.text, entry.line, state)]
    if not words or (declares and tokens[0].text != "env"):
        return
    if words[0].text == "unset":
        for item in words[1:]:
            state.variables.pop(item.text, None)
    elif words[0].text in ("source", "."):
        state.skipped.append(Word(f"{words[0].text} (another file)", words[0].line))
    elif nested := _nested(words):
        _run(nested.text, nested.line, state, depth + 1)
    known = _plain(state) | {
        name: " ".join(word.text for word in value) for name, value in before.items()
    }
    state.commands.append(Command(tuple(words), known))


def _value(raw: str, line: int, state: _State) -> list[Word]:
    """The assigned value: one word, or the words of an array."""
    if raw.startswith("(") and raw.endswith(")"):
        inside = tokenised(raw[1:-1], line, state)
        return [
            w for word in inside if not word.separator for w in expand(word.text, word.line, state)
        ]
    return [assigned(raw, line, state)]


def _added(old: list[Word], new: list[Word], array: bool) -> list[Word]:
    """`A+=b` joins texts, `A+=(b)` arrays."""
    if array or not old:
        return [*old, *new]
    first, *others = old
    joined = Word(first.text + new[0].text, first.line, (*first.unknown, *new[0].unknown))
    return [joined, *others]


def _nested(words: list[Word]) -> Word | None:
    """The script that a command runs in quotes."""
    if words[0].text == "eval":
        return Word(" ".join(word.text for word in words[1:]), words[0].line)
    for i, entry in enumerate(words[:-2]):
        if entry.text.rpartition("/")[2] in _SHELLS and words[i + 1].text in ("-c", "-lc"):
            return words[i + 2]
    return None
