"""A target of export: a format with the program that reads it, and its start.

A module of this folder with a `TARGET`, or several `TARGETS`, has one; nothing else has to name it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from planner.formats.record import MODEL, Argument
from planner.specs.base import PlanError
from planner.specs.decoder import decoder_of
from planner.specs.layers import parts_of
from planner.specs.model import ModelSpec, stated
from planner.specs.names import SHARDS_GRADIENTS, SHARDS_PARAMETERS
from planner.specs.options import Options, Origin
from planner.specs.where import constraint


@dataclass(frozen=True)
class PlanToWrite:
    """A plan to write: our options by name, those that are left out being as the program does; the
    model; and what every node starts."""

    options: Mapping[str, Any]
    model: ModelSpec
    nodes: int
    gpus_per_node: int

    def get(self, name: str, default: Any = None) -> Any:
        return self.options.get(name, default)

    @property
    def replicas(self) -> int:
        """Data-parallel replicas."""
        ranks = self.options["gpus"]
        return int(ranks // (self.get("tp", 1) * self.get("pp", 1) * self.get("cp", 1)))

    @property
    def micro_batches(self) -> int:
        """Micro-batches of one replica in a step."""
        sequences = self.options["global_batch"] // self.replicas
        return int(sequences // self.options["micro_batch"])

    @property
    def steps(self) -> int:
        """Steps of the whole run; 1,000 if its length is not stated."""
        tokens = self.get("tokens")
        per_step = self.options["global_batch"] * self.options["seq_len"]
        return _UNSAID_STEPS if tokens is None else max(1, -(-int(tokens) // per_step))


_UNSAID_STEPS = 1000
# ZeRO stages of FSDP: weights stay gathered until backward, or do not
GATHERED, SHARDED = SHARDS_GRADIENTS, SHARDS_PARAMETERS


@dataclass(frozen=True)
class Target:
    """One framework whose files are written.

    kind: its word for --to; title: for people; stacks: its profiles, the one searched first in
    front. write: the files of a plan by name; comments stand at their heads. program: what torchrun
    starts, or with `per_node` one process of each node; arguments: lines of arguments that the
    launch script holds; environment: variables of it; checkout: of which program's repository it is
    started in, "" where that is installed; names: whether it loads a model by a name in its
    files, by default one of the Hub; starts: the program of a plan, where that chooses it.
    deals: it deals layers out to stages as its profile does, so that no file has to say how. where:
    by stack, conditions on layouts that its files can say. means: by stack, options that every file
    in bf16 means beside what it says. alone (on one GPU): its stack, "" for the first. lost: why an
    option cannot be said, by name. fill: placeholders that the user fills in.
    """

    kind: str
    title: str
    stacks: tuple[str, ...]
    program: str
    write: Callable[[PlanToWrite, tuple[str, ...]], Mapping[str, str]]
    arguments: Callable[[PlanToWrite], list[str]] = lambda request: []
    environment: Mapping[str, str] = field(default_factory=dict)
    checkout: str = ""
    names: Callable[[ModelSpec], bool] = lambda model: bool(model.hub)
    starts: Callable[[PlanToWrite], str] | None = None
    per_node: bool = False
    deals: bool = True
    where: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    means: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    alone: str = ""
    lost: Mapping[str, str] = field(default_factory=dict)
    fill: tuple[str, ...] = ()

    def request(self, options: Options) -> Options:
        """A request that its files can express: on its stack with defaults, other layouts left out
        of the search. Given options stay. Raises PlanError where the stack is another."""
        if options.stack is not None and options.stack not in self.stacks:
            remedy = f"is not what {self.title} is; leave it out, or give"
            raise PlanError("--stack", options.stack, f"{remedy} {' or '.join(self.stacks)}")
        usual = self.alone if self.alone and options.gpus == 1 else self.stacks[0]
        stack = options.stack or usual
        conditions = [
            text
            for text in self.where.get(stack, ())
            if any(getattr(options, part.name) is None for part in constraint(text).parts)
        ]
        given = options.given()
        bf16 = options.precision in (None, "bf16")
        means = {n: v for n, v in self.means.get(stack, {}).items() if bf16 and n not in given}
        where = tuple(dict.fromkeys((*options.where, *conditions)))
        why = Origin("default", f"files of {self.title}")
        given_by_files = {"stack": stack, "where": where, "stack_defaults": True, **means}
        return options.changed(why, for_target=None, **given_by_files)


def no_decoder(model: ModelSpec) -> str:
    """Why a trainer of causal language models cannot train a model; "" where it can."""
    named = " and ".join(tower.name for tower in model.towers)
    if model.convolutions or not model.vocab:
        return f"is a model of {model.samples}"
    if named:
        return f"is more than a decoder: it has a tower ({named}) beside the first"
    if any(getattr(part, "mask", "causal") == "full" for part, _ in parts_of(model)):
        return "is an encoder, whose tokens see those that follow"
    return ""


def theirs(table: Iterable[Argument], request: PlanToWrite) -> dict[str, Any]:
    """Arguments of options that map one to one in a table, in its order."""
    plan = {**request.options, **fields(request.model)}
    out = {}
    for row in table:
        if row.option in plan and plan[row.option] is not None:
            value = row.theirs(plan[row.option])
            if value is not None:
                out[row.name] = value
    return out


def fields(model: ModelSpec) -> dict[str, Any]:
    """The fields of a model by the names that tables have for them; none of one that is described
    by parts or towers, of which the widths of a plain decoder say nothing."""
    if decoder_of(model) is None:
        return {}
    values = stated(model)
    flat = {f"{MODEL}{name}": value for name, value in values.items()}
    for part in ("moe", "latent"):
        inside = values.get(part) or {}
        flat.update({f"{MODEL}{part}.{name}": value for name, value in inside.items()})
    return flat


def nested(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments with dots in their names as tables in tables."""
    out: dict[str, Any] = {}
    for name, value in arguments.items():
        *path, last = name.split(".")
        inner = out
        for key in path:
            inner = inner.setdefault(key, {})
        inner[last] = value
    return out


def as_comments(lines: Iterable[str]) -> str:
    """Lines of comment for the head of a file."""
    return "".join(f"# {line}".rstrip() + "\n" for line in lines)
