"""Files that resemble files of a program that is read here: of programs without a reader, and
scripts that do not train. Which ones, by name, is others.toml. A format of another distribution may
read them."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

from planner.formats.shell import Command, script
from planner.inputs.readers import read_toml

_TABLE = Path(__file__).with_name("others.toml")
_SCRIPT = re.compile(r"(?:^|[/\s])([\w.-]+)\.py$")
_WORDS = re.compile(r"[a-z]+")
NO_SHELL = (".yaml", ".yml", ".json", ".jsonc", ".toml", ".py", ".ipynb")


def refusal(name: str, text: str) -> str:
    """Why a text states no training that can be read, as the rest of a sentence; "" where it may
    state one."""
    for program, patterns in _table()["programs"].items():
        if all(re.search(pattern, text, re.M) for pattern in patterns):
            return (
                f"is a file of {program}, which is not read here:"
                " give the model and the layout as options"
            )
    return _of_data(text) if name.endswith(NO_SHELL) else _of_script(text)


def _of_data(text: str) -> str:
    """Refusal of a data file that only another part of the program than its trainer reads."""
    for row in _table()["files"]:
        has = all(re.search(pattern, text, re.M) for pattern in row["has"])
        if has and not any(re.search(pattern, text, re.M) for pattern in row["lacks"]):
            return f"does not train: it {row['says']}"
    return ""


def _of_script(text: str) -> str:
    """Refusal of a shell script in which no command trains, and one does something else."""
    try:
        commands = script(text).commands
    except ValueError:
        return ""  # the format says what is broken
    works = [
        (named, _task(command) or _work(named, command))
        for command in commands
        if (named := _program(command))
    ]
    if not works or not all(work for _, work in works):
        return ""
    named, work = works[-1]
    return f"does not train: {named} {work}"


def _program(command: Command) -> str:
    """The Python script or module that a command starts, "" where it starts none."""
    words = [word.text for word in command.words]
    module = next((words[i + 1] for i, word in enumerate(words[:-1]) if word == "-m"), "")
    scripts = [match[1] for word in words if (match := _SCRIPT.search(word))]
    of_launcher = module.startswith("torch.distributed")
    return next(iter(scripts), "") if of_launcher or not module else module


def _task(command: Command) -> str:
    """Work of a task of Megatron-LM, "" where it trains or none is given."""
    words = [word.text for word in command.words]
    tasks = [words[i + 1].strip("\"'") for i, word in enumerate(words[:-1]) if word == "--task"]
    return "evaluates" if any(task in _table()["tasks"]["evaluates"] for task in tasks) else ""


def _work(named: str, command: Command) -> str:
    """The work of a program that does not train, "" where it may train."""
    words = _WORDS.findall(named.lower())
    table = _table()
    if any(word in words for word in table["trains"]["words"]):
        return ""
    options = {word.text.partition("=")[0] for word in command.words}
    if "benchmark" in words and not options.isdisjoint(table["trains"]["options"]):
        return ""
    for work, listed in table["works"].items():
        if any(word in words or ("_" in word and word in named.lower()) for word in listed):
            return str(work)
    return ""


@cache
def _table() -> dict[str, Any]:
    return read_toml(_TABLE.read_text("utf-8"))
