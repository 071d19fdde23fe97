"""Megatron-LM: arguments on a command line or in a shell script, and YAML files of them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from planner.formats import dialects
from planner.formats import megatron_table as names
from planner.formats.megatron_more import read_more
from planner.formats.record import Format, Value, unread
from planner.formats.shell import Command, Script, Word, script
from planner.inputs.readers import yaml_places

_KNOWN = re.compile(
    r"--(?:tensor|pipeline|expert)[-_]model[-_]parallel[-_]size|--use[-_]mcore[-_]models"
    r"|--micro[-_]batch[-_]size|--num[-_]attention[-_]heads|--max[-_]position[-_]embeddings"
)
_YAML = re.compile(r"\.ya?ml$", re.I)
# a command of ms-swift, which has its own names beside Megatron-LM's
STARTS_SWIFT = re.compile(r"(?:^|[\s&;/])(?:swift|megatron)(?:\s+|[./]cli[./])(?:sft|pt|rlhf)\b")
# tables of arguments in YAML files around Megatron-LM
_TABLES = re.compile(r"^(?:BASE_)?(?:MODEL_)?ARGS\.")
_ENVIRONMENT = re.compile(r"^(?:MODEL_)?ENV_VARS\.")
ENV = "env "  # before the name of a variable of the environment
_VARIABLES = re.compile(r"(?:PYTORCH_|CUDA_|NVTE_|NCCL_|OMP_)\w+")
_WHOLE, _REAL = re.compile(r"[-+]?\d{1,18}"), re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?")
_NESTED = re.compile(r"^(?:trainer\.strategy|model\.config|model|data)\.(?=[a-z])")
_LIST = re.compile(r"\[([^\[\]*+]*)\]")
_FLAG = re.compile(r"--?[A-Za-z]")
_NAME = re.compile(r"[A-Za-z_]\w*")
_OF_KNOWN = 1000  # weight of an argument that only Megatron-LM has


def detect(name: str, text: str) -> bool:
    """Whether a text has arguments of Megatron-LM."""
    if _YAML.search(name):
        return re.search(r"^(?:BASE_)?(?:MODEL_)?ARGS:", text, re.M) is not None
    return _KNOWN.search(text) is not None and not STARTS_SWIFT.search(text)


def parse(text: str) -> Mapping[str, Value]:
    """Arguments by the name of their flag, without dashes before it and with dashes in it."""
    if re.search(r"^(?:BASE_)?(?:MODEL_)?ARGS:", text, re.M):
        return _of_yaml(text)
    return _of_script(script(text))


def plain(name: str) -> str:
    """A name in the spelling of the table, "--num_layers" -> "num-layers", of NeMo's tables too:
    "trainer.strategy.sequence_parallel" -> "sequence-parallel"."""
    return _NESTED.sub("", name.lstrip("-").replace("_", "-"))


def _of_yaml(text: str) -> dict[str, Value]:
    out: dict[str, Value] = {}
    for path, (value, line) in yaml_places(text).items():
        if table := _TABLES.match(path):
            known = _listed(value) if isinstance(value, str) else value
            unknown = (known,) if isinstance(known, str) and known.startswith("$") else ()
            out[plain(path[table.end() :])] = Value(known, line, unknown)
        elif match := _ENVIRONMENT.match(path):
            out[ENV + path[match.end() :]] = Value(value, line)
    return out


def of_values(given: Any) -> dict[str, Value]:
    """Arguments of a mapping of flags without dashes. Raises ValueError for anything else."""
    if not isinstance(given, Mapping):
        raise ValueError(f"{type(given).__name__} where flags and their values must stand")
    known = {
        name: _listed(value) if isinstance(value, str) else value for name, value in given.items()
    }
    return {plain(str(name)): Value(value) for name, value in known.items()}


def _listed(text: str) -> Any:
    """A value; a list as the tests of Megatron-LM write it: `[attn mlp]`."""
    inside = _LIST.fullmatch(text)
    if not inside:
        return scalar(text)
    return [scalar(part.strip("'\"")) for part in re.split(r"[\s,]+", inside[1].strip()) if part]


def _of_script(script: Script) -> dict[str, Value]:
    words: Sequence[Word]
    command = max(script.commands, key=_flags, default=None)
    if command is None or _flags(command) < _OF_KNOWN:  # one of a branch that only running decides
        command = max(script.possible, key=_flags, default=command)
    bare = [
        word
        for command in script.commands
        for word in command.words
        if _FLAG.match(command.words[0].text)
    ]
    if bare:  # arguments without a program
        words, variables = bare, script.variables
    elif command is not None and _flags(command):
        words = own_words(command.words)
        variables = command.variables
    else:  # arrays of arguments for another script
        texts = [text for text in script.variables.values() if _KNOWN.search(text)]
        words = [Word(word, 0) for text in texts for word in text.split()]
        variables = script.variables
    out = of_words(words)
    for name, text in variables.items():
        if _VARIABLES.fullmatch(name):
            out[ENV + name] = Value(scalar(text))
    unknown = " ".join(name for word in words for name in word.unknown)
    for entry in script.skipped:
        if _NAME.fullmatch(entry.text) and entry.text not in unknown:
            continue  # a variable that no argument has
        note = f"if (line {entry.line}) {entry.text}".strip()
        out[note] = Value(None, entry.line, ("what only running it tells",))
    return out


def _flags(command: Command) -> int:
    """How much a command is one of Megatron-LM: by its known arguments, then by all of them."""
    text = " ".join(word.text for word in command.words)
    return len(_KNOWN.findall(text)) * _OF_KNOWN + sum(
        word.text.startswith("--") for word in command.words
    )


def own_words(words: Sequence[Word]) -> Sequence[Word]:
    """The arguments of the started program, without the launcher's before it."""
    scripts = [i for i, word in enumerate(words) if re.search(r"\w\.py$", word.text)]
    modules = [i + 1 for i, word in enumerate(words[:-1]) if word.text == "-m"]
    start = max([*scripts[:1], *modules[:1]], default=-1)
    return words[start + 1 :]


def of_words(words: Iterable[Word]) -> dict[str, Value]:
    """Arguments of a command line: a flag, and the words up to the next one."""
    out: dict[str, Value] = {}
    flag: Word | None = None
    values: list[Word] = []
    for word in (*words, Word("--end", 0)):
        if not _FLAG.match(word.text):
            if flag is not None:
                values.append(word)
            elif word.unknown:
                out[f"${word.unknown[0]}"] = Value(None, word.line, word.unknown)
            continue
        if flag is not None:
            _put(out, flag, values)
        flag, values = word, []
    return out


def _put(out: dict[str, Value], flag: Word, values: list[Word]) -> None:
    name, equals, text = flag.text.partition("=")
    unknown = tuple(text for word in values for text in word.unknown)
    texts = [text] if equals else [word.text for word in values]
    if equals or (len(texts) == 1 and not values[0].text):
        unknown = (*unknown, *flag.unknown)
    known = [scalar(text) for text in texts]
    value: Any = True if not known else known[0] if len(known) == 1 else known
    out[plain(name)] = Value(value, flag.line, unknown)


def scalar(text: Any) -> Any:
    """A number or a switch where a text is one."""
    if not isinstance(text, str):
        return text
    if _WHOLE.fullmatch(text):
        return int(text)
    if _REAL.fullmatch(text) and len(text) < len("1.7976931348623157e+308") + 1:
        number = float(text)
        return number if abs(number) < float("inf") else text
    return {"true": True, "false": False, "none": None, "null": None}.get(text.lower(), text)


FORMAT = Format(
    kind="megatron",
    title="Megatron-LM arguments (shell script, command line, YAML with MODEL_ARGS or ARGS)",
    detect=detect,
    parse=parse,
    table=names.TABLE,
    read_more=read_more,
    added=dialects.added,
    left=dialects.irrelevant,
    spelled=lambda name: name if name.startswith(ENV) else f"--{name}",
    **unread("megatron_table"),
)
