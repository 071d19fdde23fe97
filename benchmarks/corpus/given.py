"""Arguments of a file as given, and the truths that follow from them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from typing import Any

import yaml

from benchmarks.corpus import sandbox
from benchmarks.corpus.fetch import File

Truth = tuple[str, Any, str]
_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?")


def scalar(text: Any) -> Any:
    if not isinstance(text, str):
        return text
    if re.fullmatch(r"-?\d+", text):
        return int(text)
    if _NUMBER.fullmatch(text):
        return float(text)
    return {"true": True, "false": False, "none": None, "null": None}.get(text.lower(), text)


class Given:
    """Arguments of a file by name, and truths that are collected from them."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self.values = values
        self.out: list[Truth] = []

    def get(self, *names: str, default: Any = None) -> Any:
        for name in names:
            if self.values.get(name) is not None:
                return self.values[name]
        return default

    def say(self, option: str, value: Any, why: str) -> None:
        if value is not None and not (isinstance(value, str) and "$" in value):
            self.out.append((option, value, why))

    def number(self, option: str, names: str, default: Any = None, program: str = "") -> None:
        """A number of the file under one of its names, else the program's default."""
        for name in names.split():
            value = self.values.get(name)
            if isinstance(value, int) and not isinstance(value, bool):
                self.say(option, value, name)
                return
            if value is not None:
                return
        if default is not None:
            self.say(option, default, f"default of {program}: {names.split()[0]} {default}")


def flags(words: list[str], joined: str = "_") -> dict[str, Any]:
    """Flags of a command with their values; a flag without a value is True. name=value words
    too."""
    out: dict[str, Any] = {}
    i = 0
    while i < len(words):
        word = words[i]
        i += 1
        if word.startswith("--") and len(word) > len("--"):
            name, equals, text = word[2:].partition("=")
            values = [text] if equals else []
            while not equals and i < len(words) and not re.match(r"--?[A-Za-z]", words[i]):
                values.append(words[i])
                i += 1
            known = [scalar(value) for value in values]
            value = True if not known else known[0] if len(known) == 1 else known
            out[name.replace("-", joined)] = value
        elif re.match(r"[+~]*[\w.]+=", word):
            name, _, text = word.lstrip("+~").partition("=")
            out[name] = scalar(text)
    return out


def command_of(file: File, mark: str = "") -> list[str]:
    """The command of a script with most flags; mark: what it has to name."""
    text = file.cached.read_text("utf-8", "replace")
    if file.path.endswith((".yaml", ".yml")):
        text = task_script(text)
    recorded = [
        words for words in sandbox.commands(text) if not mark or any(mark in word for word in words)
    ]
    return max(recorded, key=lambda words: sum(word.startswith("--") for word in words), default=[])


def task_script(text: str) -> str:
    """The script that a task of SkyPilot runs on its first node, with the variables it sets."""
    task = yaml.safe_load(text)
    if not isinstance(task, dict) or not {"run", "resources"} <= set(task):
        return text
    each = str(task["resources"]["accelerators"]).partition(":")[2] or "1"
    nodes = task.get("num_nodes", 1)
    variables = {"SKYPILOT_NUM_NODES": nodes, "SKYPILOT_NUM_GPUS_PER_NODE": each}
    variables |= {"SKYPILOT_NODE_RANK": 0, "SKYPILOT_NODE_IPS": "\n".join(["10.0.0.1"] * nodes)}
    variables |= {name: value for name, value in (task.get("envs") or {}).items() if value}
    stated = [f"export {name}={shlex.quote(str(value))}" for name, value in variables.items()]
    return "\n".join([*stated, task["run"]])


def gpus_of(words: list[str], file: File) -> list[Truth]:
    """Nodes and GPUs of a launcher in front of a program."""
    program = next((i for i, w in enumerate(words) if re.search(r"\w\.py$", w)), len(words))
    front = flags(words[:program])
    text = file.cached.read_text("utf-8", "replace")
    slurm = dict(re.findall(r"(?m)^#SBATCH\s+--([\w-]+)[= ](\S+)", text))
    each = front.get("nproc_per_node", front.get("num_gpus"))
    nodes = front.get("nnodes", front.get("num_nodes", 1))
    if slurm.get("nodes", "").isdecimal() and not isinstance(nodes, int):
        nodes = int(slurm["nodes"])
    included = re.search(r"--include[= ]\S*localhost:([\d,]+)", " ".join(words))
    if included and words[0] == "deepspeed":
        return [("gpus", len(included[1].split(",")), "--include")]
    if isinstance(each, int) and isinstance(nodes, int) and words[0] in ("torchrun", "deepspeed"):
        return [("gpus", each * nodes, "GPUs of a node x nodes of the launcher")]
    if isinstance(front.get("num_processes"), int):
        return [("gpus", front["num_processes"], "--num_processes of accelerate")]
    return []


def on(value: Any) -> bool:
    return value is True or str(value).lower() in ("true", "1", "yes")
