"""Slurm and torchrun: the number of nodes, and of GPUs on each.

Read from the lines of a script: `#SBATCH --nodes=4`, `srun -N 4`, `torchrun --nproc-per-node 8`,
`accelerate launch --num_machines`; written by `launch`.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence

from planner.formats.record import Answer, Argument, Format, Value
from planner.formats.shell import Word, script

_DIRECTIVE = re.compile(r"^[ \t]*#SBATCH[ \t]+(.+)$", re.M)
_STARTS = re.compile(
    r"#SBATCH|\btorchrun\b|torch\.distributed\.(?:run|launch)|\baccelerate\s+launch"
)
_TORCHRUN = ("torch.distributed.run", "torch.distributed.launch")
_MOST_DIGITS = 9  # of a number of nodes or processes
_SLURM = ("sbatch", "srun")
_SHORT = {"-N": "nodes", "-n": "ntasks", "-G": "gpus"}
# the programs' own switches, which take no value
_SWITCHES = frozenset({"standalone", "exclusive", "no-python", "module", "m", "use-env", "label"})


def _parse(text: str) -> Mapping[str, Value]:
    """Arguments of Slurm, torchrun and accelerate's launcher by name, a program before each:
    `sbatch.nodes`, `torchrun.nproc-per-node`."""
    out: dict[str, Value] = {}
    for found in _DIRECTIVE.finditer(text):
        line = text.count("\n", 0, found.start()) + 1
        out.update(_options("sbatch", [Word(word, line) for word in _split(found[1])]))
    try:
        commands = script(text).commands
    except ValueError:
        commands = ()
    for command in commands:
        for program, rest in _started(command.words):
            for name, value in _options(program, rest).items():
                out.setdefault(name, value)
    return out


def _split(line: str) -> list[str]:
    try:
        return shlex.split(line, comments=True)
    except ValueError:
        return line.split()


def _started(words: Sequence[Word]) -> Iterator[tuple[str, Sequence[Word]]]:
    """Each launcher in a command with the words behind it: `srun ... torchrun ... train.py`."""
    for i, word in enumerate(words):
        name = word.text.rsplit("/", 1)[-1]
        if name == "srun":
            yield "srun", words[i + 1 :]
        elif name == "torchrun" or word.text in _TORCHRUN:
            yield "torchrun", words[i + 1 :]
        elif name == "launch" and i and words[i - 1].text.rsplit("/", 1)[-1] == "accelerate":
            yield "accelerate", words[i + 1 :]


def _options(program: str, words: Sequence[Word]) -> dict[str, Value]:
    """The options of a launcher up to the program that it starts."""
    out: dict[str, Value] = {}
    rest = list(reversed(words))
    while rest and rest[-1].text.startswith("-") and rest[-1].text != "--":
        word = rest.pop()
        name, has_value, text = word.text.partition("=")
        short = next((one for one in _SHORT if re.fullmatch(rf"{one}\d*", name)), "")
        if short and program in _SLURM:
            name, text = _SHORT[short], text or name.removeprefix(short)
            has_value = text
        name = name.lstrip("-").replace("_", "-")
        unknown = word.unknown
        takes = not has_value and name not in _SWITCHES
        if takes and rest and not rest[-1].text.startswith("-"):
            value = rest.pop()
            has_value, text, unknown = "=", value.text, value.unknown
        out[f"{program}.{name}"] = Value(_number(text) if has_value else True, word.line, unknown)
    return out


def _number(text: str) -> int | str:
    return int(text) if text.isdecimal() and len(text) <= _MOST_DIGITS else text


def _count(value: object) -> int:
    """A number of nodes or processes. Raises ValueError for `auto`, `$N` and ranges."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError("is not a number that the file states")
    return value


_TABLE = (
    Argument("sbatch.nodes", "nodes", meaning=_count, also=("srun.nodes", "torchrun.nnodes")),
    Argument("accelerate.num-machines", "nodes", meaning=_count),
    Argument("accelerate.num-processes", "gpus", meaning=_count),
    Argument("torchrun.nproc-per-node", "gpus_per_node", meaning=_count),
)
_GPUS = re.compile(r"(?:gpu(?::[\w.-]+)?:)?(\d{1,4})(?:\(.*\))?")


def _more(values: Mapping[str, Value], answer: Answer) -> None:
    """GPUs of a node as Slurm has them, and GPUs in all."""
    for name in (f"{one}.{kind}" for kind in ("gres", "gpus-per-node") for one in _SLURM):
        found = _GPUS.fullmatch(str(answer.get(name, "")))
        if found and answer.option("gpus_per_node") is None:
            answer.state("gpus_per_node", int(found[1]), name)
        elif found:
            answer.mark(name, "implied", "as many as torchrun starts")
    for name in (f"{one}.ntasks-per-node" for one in _SLURM):
        tasks = answer.get(name)
        if answer.option("gpus_per_node") is not None:
            answer.mark(name, "implied", "GPUs of a node are stated beside it")
        elif isinstance(tasks, int):
            answer.imply("gpus_per_node", tasks, "one task for each GPU", name)
    nodes, each = answer.option("nodes"), answer.option("gpus_per_node")
    answer.drop("nodes")  # GPUs in all say the same, of any size of node
    if answer.option("gpus") is None and each is not None and isinstance(nodes or 1, int):
        name = next((one for one in (*_NODES, *_EACH) if one in values), "")
        answer.state("gpus", (nodes or 1) * each, name, f"{nodes or 1} x {each} GPUs")
    elif nodes is not None and each is None:
        answer.imply("nodes", nodes, "whole nodes", "sbatch.nodes")


_EACH = (
    "torchrun.nproc-per-node",
    *(f"{one}.{name}" for name in ("gres", "gpus-per-node", "ntasks-per-node") for one in _SLURM),
)
_NODES = ("sbatch.nodes", "srun.nodes", "torchrun.nnodes", "accelerate.num-machines")

FORMAT = Format(
    kind="launcher",
    title="Slurm, torchrun or accelerate launch lines",
    detect=lambda name, text: bool(_STARTS.search(text)),
    parse=_parse,
    table=_TABLE,
    irrelevant=("*",),
    read_more=_more,
)
