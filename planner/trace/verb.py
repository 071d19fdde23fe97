"""A trace in a process of its own, and the model file that is made of it."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from planner.error import PlanError
from planner.inputs import catalog
from planner.inputs.model_tree import model_tree
from planner.specs.documents.listing import ModelTree
from planner.specs.model import ModelSpec
from planner.specs.shape import repeats
from planner.trace.options import TraceOptions

SECONDS = 60  # of a core; on a busy machine the clock may say more
_LONGEST = 4 * SECONDS  # by the clock
MEMORY_BYTES = 4_000_000_000  # of address space, beyond what torch maps
_TOO_LONG = f"took more than the {SECONDS} s that a trace may take"
MARK = "dpplan-trace: "
FIELD = "TARGET"
_FUNCTION = re.compile(r"(?P<file>[^:]*)(?::(?P<function>[^:]+))?.*")


@dataclass(frozen=True)
class Traced:
    """A traced model: what is shown of it, and its file."""

    model: ModelSpec
    document: ModelTree
    text: str
    counted: dict[str, Any]  # forward_flop, backward_flop, operators, seconds


def traced(options: TraceOptions) -> Traced:
    """Trace a target. Raises PlanError with one sentence where it cannot be traced."""
    import tomli_w

    if options.target is None:
        raise PlanError(FIELD, None, "name what to trace: file.py:function, or a config.json")
    if find_spec("torch") is None:
        raise PlanError(FIELD, options.target, "tracing needs torch: pip install 'dpplan[trace]'")
    answer = _answer(options)
    keys = _keys(options, answer)
    model = catalog.build(ModelSpec, keys, FIELD, "traced")
    _check(options, model, answer)
    return Traced(model, model_tree(model, answer["length"]), tomli_w.dumps(keys), answer)


def _answer(options: TraceOptions) -> dict[str, Any]:
    """Answer of the process of the trace."""
    target = str(options.target)
    request = {
        "target": target,
        "memory_bytes": MEMORY_BYTES,
        "seconds": SECONDS,
        "trust": options.trust_remote_code,
        "length": options.length,
        "autocast": options.autocast,
    }
    command = [sys.executable, "-m", "planner.trace.worker", json.dumps(request)]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_LONGEST, check=False
        )
    except subprocess.TimeoutExpired:
        raise PlanError(FIELD, target, _TOO_LONG) from None
    if done.returncode == -signal.SIGXCPU:
        raise PlanError(FIELD, target, _TOO_LONG)
    lines = [line for line in done.stdout.splitlines() if line.startswith(MARK)]
    if not lines:
        last = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
        most = f"{MEMORY_BYTES / 1e9:.0f} GB"
        why = f"ended the process of its trace, of {most} at most ({last[:200]})"
        raise PlanError(FIELD, target, why)
    answer: dict[str, Any] = json.loads(lines[-1].removeprefix(MARK))
    if "error" in answer:
        raise PlanError(FIELD, target, f"cannot be traced: {answer['error']}")
    return answer


def _keys(options: TraceOptions, answer: dict[str, Any]) -> dict[str, Any]:
    """Keys of the model file."""
    name = options.name or _name(str(options.target))
    model, positions = answer["model"], answer["model"]["max_positions"]
    sample = options.sample or answer["sample"]
    if not model["vocab"] and not sample and positions == 1:
        sample = "sample"
    words = answer["words"]
    stack = repeats(words) if len(words) > 1 else [{"layers": words, "times": 1}]
    tokens = answer["length"] or 1
    says = "the longest that was traced" if answer["length"] else "a sample counts as one token"
    says = "the size that it was made for" if answer["native"] else says
    out = {
        "name": name,
        "title": answer["title"] or name,
        "source": answer["source"],
        **({"sample": sample} if sample else {}),
        **model,
        "parts": answer["parts"],
        "stack": stack,
        "published": {"sequence": {"tokens": tokens, "source": says}},
    }
    return out


def _name(target: str) -> str:
    """Name of a model whose user gave none."""
    matched = _FUNCTION.fullmatch(target)
    file, function = (matched["file"], matched["function"]) if matched else (target, None)
    path = Path(file)
    if function is None:
        text = path.parent.name if path.suffix == ".json" and path.parent.name else path.name
    else:
        generic = function in ("build", "model", "make", "main")
        text = path.stem.rpartition(".")[2] if generic else function
    return re.sub(r"[^\w.-]+", "-", text).strip("-").lower()[:100] or "traced"


def _check(options: TraceOptions, model: ModelSpec, answer: dict[str, Any]) -> None:
    """The file counts what the module has."""
    from planner.formulas.params import parameter_count

    count = parameter_count(model)
    if count != answer["parameters"]:
        raise PlanError(
            FIELD,
            options.target,
            f"has {answer['parameters']:,} parameters, of which its blocks count {count:,}: weights"
            " are shared in a way that is not known",
        )
