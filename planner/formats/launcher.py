"""Launchers of a program on nodes and GPUs: how many there are.

Read from the lines of a script (`#SBATCH --nodes=4`, `srun -N 4`, `torchrun --nproc-per-node 8`,
`accelerate launch --num_machines`, `deepspeed --num_gpus`, `colossalai run --nproc_per_node`,
`mpirun -np`), from a hostfile, and from manifests of Kubernetes (SkyPilot's: skypilot.py); written
by `launch`.
"""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from planner.formats.record import Answer, Argument, Format, Use, Value
from planner.formats.shell import Command, Word, script, starts
from planner.inputs.readers import yaml_places

_DIRECTIVE = re.compile(r"^[ \t]*#SBATCH[ \t]+(.+)$", re.M)
_VISIBLE = re.compile(r"\bCUDA_VISIBLE_DEVICES=[\"']?(\d{1,3}(?:,\d{1,3})*)\b")
_VISIBLE_GPUS = "visible.devices"
# transformers/trainer.py (n_gpu above 1), trl/trainer/sft_trainer.py and create_model_from_path
_ONE_PROCESS = (
    "no launcher starts a process for each of the {0} visible GPUs, as is planned: under"
    " `torchrun --nproc-per-node {0}` it is so, while one process of transformers' Trainer takes"
    " DataParallel, and one of TRL spreads the layers over them, both slower"
)
_STARTS = re.compile(
    r"#SBATCH|\btorchrun\b|torch\.distributed\.(?:run|launch)|\baccelerate\s+launch"
    r"|\bcolossalai\s+run|(?:^|[\s\"'/])(?:deepspeed|mpirun|mpiexec|srun)[ \t]+[^\s=:]",
    re.M,
)
_HOST = re.compile(r"[ \t]*[\w.-]+[ \t]+slots=(\d{1,4})[ \t]*(?:#.*)?")
_MANIFEST = re.compile(r"^kind:[ \t]*(?:JobSet|Job|PyTorchJob|MPIJob|TrainJob)\b", re.M)
_TORCHRUN = ("torch.distributed.run", "torch.distributed.launch")
_MOST_DIGITS = 9  # of a number of nodes or processes
_SLURM = ("sbatch", "srun")
_LAUNCHERS = (
    "torchrun",
    "accelerate",
    "deepspeed",
    "colossalai",
)  # one on a node starts its processes
_SLURM_SHORT = {"-N": "nodes", "-n": "ntasks", "-G": "gpus"}
_MPI_SHORT = {
    "-np": "np",
    "-n": "np",
    "-npernode": "npernode",
    "-N": "npernode",
    "-ppn": "npernode",
}
_SHORT = {"sbatch": _SLURM_SHORT, "srun": _SLURM_SHORT, "mpirun": _MPI_SHORT}
# the programs' own switches, which take no value
_SWITCHES = frozenset(
    {
        *("standalone", "exclusive", "no-python", "module", "m", "use-env", "label"),
        *("allow-run-as-root", "oversubscribe", "no-local-rank", "force-multi", "multi-gpu"),
    }
)
# variables that hold the settings of PyTorch's allocator, the newest last
ALLOCATOR = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF", "PYTORCH_ALLOC_CONF")
_PLAIN = "started"  # a launcher without options


def _detect(name: str, text: str) -> bool:
    return bool(_STARTS.search(text) or _VISIBLE.search(text) or _MANIFEST.search(text)) or (
        _hosts(text) is not None
    )


def _hosts(text: str) -> list[int] | None:
    """GPUs of each line of a hostfile; None for any other text."""
    lines = [
        line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")
    ]
    matches = [_HOST.fullmatch(line) for line in lines]
    return [int(match[1]) for match in matches if match] if lines and all(matches) else None


def _parse(text: str) -> Mapping[str, Value]:
    """Arguments of launchers by name, a program before each: `sbatch.nodes`,
    `torchrun.nproc-per-node`."""
    hosts = _hosts(text)
    if hosts is not None:
        each = hosts[0] if len(set(hosts)) == 1 else None
        out = {"hostfile.nodes": Value(len(hosts)), "hostfile.slots": Value(each)}
        return out if each else {"hostfile.gpus": Value(sum(hosts))}
    if _MANIFEST.search(text):
        return _of_manifest(text)
    out = {}
    for match in _DIRECTIVE.finditer(text):
        line = text.count("\n", 0, match.start()) + 1
        out.update(_options("sbatch", [Word(word, line) for word in _split(match[1])]))
    try:
        commands = script(text).commands
    except ValueError:
        commands = ()
    # of several commands the same one as its program's arguments are read of
    for command in dict.fromkeys([*starts(commands), *commands]):
        for program, rest in _started(command.words):
            for name, value in _options(program, rest).items():
                out.setdefault(name, value)
    return out | _visible(commands) | _allocator(commands)


def expandable(text: object) -> bool | None:
    """Whether settings of PyTorch's allocator make segments expandable; None where they do not
    say."""
    settings = re.sub(r"[\s'\"]", "", str(text)).lower()
    stated = re.search(r"expandable_segments:(true|false)", settings)
    return None if stated is None else stated[1] == "true"


def _allocator(commands: Sequence[Command]) -> dict[str, Value]:
    """Settings of PyTorch's allocator in the environment of the programs of a script."""
    return {
        f"env {name}": Value(command.variables[name], command.words[0].line)
        for command in commands
        for name in ALLOCATOR
        if name in command.variables and any(_started(command.words))
    }


def _split(line: str) -> list[str]:
    try:
        return shlex.split(line, comments=True)
    except ValueError:
        return line.split()


def _visible(commands: Sequence[Command]) -> dict[str, Value]:
    """GPUs that are left visible to the programs of a script, where all have as many."""
    seen = {
        len(listed.split(",")): command.words[0].line
        for command in commands
        if re.fullmatch(r"[\d,]+", listed := command.variables.get("CUDA_VISIBLE_DEVICES", ""))
        and any(word.text.endswith(".py") or word.text == "-m" for word in command.words)
    }
    if len(seen) != 1:
        return {}
    [(count, line)] = seen.items()
    return {_VISIBLE_GPUS: Value(count, line)}


def _started(words: Sequence[Word]) -> Iterator[tuple[str, Sequence[Word]]]:
    """Each launcher in a command with the words behind it: `srun ... torchrun ... train.py`."""
    for i, word in enumerate(words):
        name = word.text.rsplit("/", 1)[-1]
        if name in ("srun", "deepspeed"):
            yield name, words[i + 1 :]
        elif name in ("mpirun", "mpiexec"):
            yield "mpirun", words[i + 1 :]
        elif name == "torchrun" or word.text in _TORCHRUN:
            yield "torchrun", words[i + 1 :]
        elif name == "launch" and i and words[i - 1].text.rsplit("/", 1)[-1] == "accelerate":
            yield "accelerate", words[i + 1 :]
        elif name == "run" and i:
            before = words[i - 1].text.rsplit("/", 1)[-1]
            if before in ("colossalai", "tune"):  # torchtune starts torchrun
                yield "torchrun" if before == "tune" else before, words[i + 1 :]


def _options(program: str, words: Sequence[Word]) -> dict[str, Value]:
    """The options of a launcher up to the program that it starts."""
    out: dict[str, Value] = {}
    rest = list(reversed(words))
    while rest and rest[-1].text.startswith("-") and rest[-1].text != "--":
        word = rest.pop()
        name, has_value, text = word.text.partition("=")
        shorts = _SHORT.get(program, {})
        short = next((short for short in shorts if re.fullmatch(rf"{short}\d*", name)), "")
        if short:
            name, text = shorts[short], text or name.removeprefix(short)
            has_value = text
        name = name.lstrip("-").replace("_", "-")
        unknown = word.unknown
        takes = not has_value and name not in _SWITCHES
        if takes and rest and not rest[-1].text.startswith("-"):
            value = rest.pop()
            has_value, text, unknown = "=", value.text, value.unknown
        out[f"{program}.{name}"] = Value(_number(text) if has_value else True, word.line, unknown)
    if not out and program in _LAUNCHERS and rest:
        out[f"{program}.{_PLAIN}"] = Value(True, rest[-1].line)
    return out


def _number(text: str) -> int | str:
    return int(text) if text.isdecimal() and len(text) <= _MOST_DIGITS else text


_LIMIT = re.compile(r"(?:.*\.)?resources\.limits\.[\w.-]+/gpu")


def _of_manifest(text: str) -> dict[str, Value]:
    """Nodes and GPUs of each: pods of a job of Kubernetes."""
    pods: Counter[int] = Counter()
    for document in re.split(r"^---[ \t]*$", text, flags=re.M):
        if not _MANIFEST.search(document):
            continue
        values = {path: value for path, (value, _) in yaml_places(document).items()}
        for path, value in values.items():
            if _LIMIT.fullmatch(path) and str(value).isdecimal():
                pods[int(value)] += _copies(path, values)
    if len(pods) != 1:
        return {"manifest.gpus": Value(sum(gpus * count for gpus, count in pods.items()))}
    [(each, nodes)] = pods.items()
    return {"manifest.nodes": Value(nodes), "manifest.gpus-per-node": Value(each)}


def _copies(path: str, values: Mapping[str, object]) -> int:
    """Pods of a container: the product of `replicas` and `parallelism` above it."""
    parts, count = path.split("."), 1
    for i in range(len(parts)):
        for name in ("replicas", "parallelism", "numNodes"):
            value = values.get(".".join([*parts[:i], name]))
            count *= value if isinstance(value, int) and value > 0 else 1
    return count


def _count(value: object) -> int:
    """A number of nodes or processes. Raises ValueError for `auto`, `$N` and ranges."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError("is not a number that the file states")
    return value


_NODES = (
    *("sbatch.nodes", "srun.nodes", "torchrun.nnodes", "deepspeed.num-nodes"),
    *("hostfile.nodes", "manifest.nodes"),
)
_TABLE = (
    Argument(_NODES[0], "nodes", meaning=_count, also=_NODES[1:]),
    Argument("accelerate.num-machines", "nodes", meaning=_count),
    Argument("accelerate.num-processes", "gpus", meaning=_count),
    Argument("hostfile.gpus", "gpus", meaning=_count, also=("manifest.gpus",)),
    *(Argument(f"env {name}", "expandable_segments", meaning=expandable) for name in ALLOCATOR),
)
_GPUS = re.compile(r"(?:gpu(?::[\w.-]+)?:)?(\d{1,4})(?:\(.*\))?")
_INCLUDED = re.compile(r"[\w.-]+:(\d{1,3}(?:,\d{1,3})*)")
_ALL = ("gpu", "auto")  # as many processes as a node has GPUs
# what says the GPUs of a node, the surest first: what starts processes, what is given to a job
_STARTED = (
    *("torchrun.nproc-per-node", "colossalai.nproc-per-node"),
    *("deepspeed.num-gpus", "deepspeed.include"),
)
_HOSTFILE = "colossalai.hostfile"  # which says the nodes, beside the GPUs of each on the command
_GIVEN = (
    *("hostfile.slots", "manifest.gpus-per-node"),
    *(f"{name}.{kind}" for kind in ("gres", "gpus-per-node") for name in _SLURM),
    "mpirun.npernode",
)


def _more(values: Mapping[str, Value], answer: Answer) -> None:
    """GPUs of a node, and GPUs in all."""
    for name in (*_STARTED, *_GIVEN):
        _each(name, answer)
    _tasks(values, answer)
    if answer.option("gpus_per_node") is None and answer.option("gpus") is None:
        count = answer.get(_VISIBLE_GPUS)
        if count and answer.option("nodes") in (None, 1):
            answer.imply("gpus_per_node", count, "CUDA_VISIBLE_DEVICES", _VISIBLE_GPUS)
            if count > 1:
                answer.notes.append(_ONE_PROCESS.format(count))
    _whole(values, answer)
    if answer.option("gpus") is not None:
        for name in (*_NODES, *_STARTED):
            if name in values and values[name].unknown:
                answer.mark(name, "irrelevant", "nodes and GPUs are stated beside it")


def _each(name: str, answer: Answer) -> None:
    """One of the arguments that say the GPUs of a node."""
    value = answer.get(name)
    match = _GPUS.fullmatch(str(value))
    listed = _INCLUDED.fullmatch(str(value)) if name.endswith(".include") else None
    count = len(listed[1].split(",")) if listed else int(match[1]) if match else 0
    if value is not None and count and answer.option("gpus_per_node") is None:
        answer.state("gpus_per_node", count, name)
    elif count:
        answer.mark(name, "implied", "as many as the launcher starts")
    elif value in _ALL:
        known = [name for name in _GIVEN if _GPUS.fullmatch(str(answer.get(name, "")))]
        use: Use = "implied" if known else "not understood"
        answer.mark(name, use, "all GPUs of a node: --gpus-per-node says how many" * (not known))
    elif name in _STARTED and name in answer.values:
        answer.mark(name, "not understood", "is not a number that the file states")


def _tasks(values: Mapping[str, Value], answer: Answer) -> None:
    """Processes of Slurm and MPI: one for each GPU, but where each starts a launcher."""
    launched = any(name.startswith(tuple(f"{name}." for name in _LAUNCHERS)) for name in values)
    for name in (f"{name}.ntasks-per-node" for name in _SLURM):
        tasks = answer.get(name)
        if answer.option("gpus_per_node") is not None:
            answer.mark(name, "implied", "GPUs of a node are stated beside it")
        elif launched or tasks == 1:
            why = "each task starts a launcher" if launched else "one task may use many GPUs"
            answer.mark(name, "not understood", f"{why}: --gpus-per-node says how many")
        elif isinstance(tasks, int):
            answer.imply("gpus_per_node", tasks, "one task for each GPU", name)
    for name in ("sbatch.gpus", "srun.gpus", "mpirun.np", "srun.ntasks", "sbatch.ntasks"):
        value = _GPUS.fullmatch(str(answer.get(name, "")))
        processes = not name.endswith(".gpus")
        if value and not (launched and processes) and answer.option("gpus") is None:
            nodes, each = answer.option("nodes"), answer.option("gpus_per_node")
            if each is None or nodes is None:
                note = "one process for each GPU" if processes else ""
                answer.imply("gpus", int(value[1]), note, name)
        answer.mark(name, "implied", "nodes and GPUs of each are stated beside it")


def _whole(values: Mapping[str, Value], answer: Answer) -> None:
    """GPUs in all, where nodes and GPUs of each are known."""
    nodes, each = answer.option("nodes"), answer.option("gpus_per_node")
    if nodes is None and _HOSTFILE in values:
        answer.mark(_HOSTFILE, "not understood", "says the nodes: give it beside this file")
        return
    node = next((name for name in _NODES if name in answer.arguments), "sbatch.nodes")
    answer.drop("nodes")  # GPUs in all say the same, of any size of node
    if answer.option("gpus") is None and each is not None and isinstance(nodes or 1, int):
        tasks = tuple(f"{name}.ntasks-per-node" for name in _SLURM)
        order = (*_NODES, "accelerate.num-machines", *_STARTED, *_GIVEN, *tasks, _VISIBLE_GPUS)
        name = next((name for name in order if name in values), "")
        # GPUs that are visible are not all in use where a program says how many are
        words = f"{nodes or 1} x {each} GPUs"
        if name == _VISIBLE_GPUS:
            answer.imply("gpus", (nodes or 1) * each, words, name)
        else:
            answer.state("gpus", (nodes or 1) * each, name, words)
    elif nodes is not None and each is None:
        answer.imply("nodes", nodes, "whole nodes", node)


FORMAT = Format(
    kind="launcher",
    title="Launch lines (Slurm, torchrun, accelerate, deepspeed, Colossal-AI, MPI), hostfiles,"
    " manifests",
    detect=_detect,
    parse=_parse,
    table=_TABLE,
    irrelevant=("*",),
    read_more=_more,
)
