"""The runs of `dpplan batch`: every number of GPUs with every batch between the kept and the grown
one."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from planner.formulas.params import active_parameter_count
from planner.inputs.batch import default_batch
from planner.inputs.model import model_spec
from planner.inputs.options import read_options
from planner.inputs.scenario import searched
from planner.inputs.training import sequence_length
from planner.specs.base import PlanError
from planner.specs.cluster import MAX_GPUS
from planner.specs.model import ModelSpec
from planner.specs.options import Options, flag, refuse, rows
from planner.specs.options.numbers import number
from planner.specs.options.own import BatchOptions
from planner.verbs.batch.critical import Target, read
from planner.verbs.compare.dimensions import swept
from planner.verbs.requests import Point, answer
from planner.verbs.workers import Progress

_COUNTS = 7  # of GPUs where no sweep is given, each twice the one before: a choice
_MOST_COUNTS = 100  # a choice; each has as many batches as it has doublings
_ROUNDING = 1e-12  # by which a number of steps may be above a whole one


@dataclass(frozen=True)
class Question:
    """The question: the request, the numbers of GPUs, and the run that reaches its target.

    first_batch: sequences of a step at the first count.
    """

    options: Options
    model: ModelSpec
    counts: tuple[int, ...]
    seq_len: int
    first_batch: int
    target: Target
    assumptions: tuple[str, ...] = ()


@dataclass(frozen=True)
class Run:
    """A number of GPUs with a batch: what the run takes to the target, and its answer."""

    gpus: int
    batch: int
    steps: int
    tokens: int
    point: Point

    @property
    def tokens_per_step(self) -> float:
        return self.tokens / self.steps


def read_question(own: BatchOptions, given: Mapping[str, Any]) -> Question:
    """The question. Raises PlanError naming the option that is wrong."""
    options = read_options(given)
    refuse(options, "batch")
    if options.packing in ("longest", "bucketed"):
        raise PlanError(
            "--packing",
            options.packing,
            "has steps of other lengths in every layout, whose number this verb does not count;"
            " take padded or packed",
        )
    if options.tokens is None:
        raise PlanError(
            "--tokens",
            None,
            "is needed: the tokens with which the run reaches its target at the reference batch,"
            " such as 2T",
        )
    counts = _counts(own.sweep, options, given)
    model, _ = model_spec(options.model)
    seq_len = sequence_length(options, model)
    assumptions = searched(options)
    first = options.global_batch
    if first is None:
        default = default_batch(options.changed(gpus=counts[0]), model, seq_len)
        first = default.sequences
        assumptions.append(f"{default.sentence}, at the first count")
    target = _target(own, options, model, seq_len, first)
    return Question(options, model, tuple(counts), seq_len, first, target, tuple(assumptions))


def _counts(sweep: str | None, options: Options, given: Mapping[str, Any]) -> list[int]:
    """The numbers of GPUs, ascending."""
    if sweep is None:
        doubled = (options.gpus * 2**k for k in range(_COUNTS))
        return [gpus for gpus in doubled if gpus <= MAX_GPUS]
    for name in ("gpus", "nodes"):
        if given.get(name) is not None:
            raise PlanError(flag(name), given[name], "and --sweep both say how many; give one")
    dimension = swept(sweep)
    if dimension.name != "gpus":
        raise PlanError("--sweep", dimension.name, "must be gpus here, as in --sweep gpus=64..4096")
    counts = sorted(int(value.update["gpus"]) for value in dimension.values)
    if not 2 <= len(counts) <= _MOST_COUNTS:
        raise PlanError("--sweep", sweep, f"must name from 2 to {_MOST_COUNTS} numbers of GPUs")
    return counts


def _target(
    own: BatchOptions, options: Options, model: ModelSpec, seq_len: int, first: int
) -> Target:
    tokens = number(options, "tokens")
    assert tokens is not None
    critical = read(
        own, seq_len=seq_len, parameters=float(active_parameter_count(model)), tokens=tokens
    )
    reference = float((own.reference_batch or first) * seq_len)
    if reference > tokens:
        raise PlanError(
            "--tokens",
            options.tokens,
            f"are fewer than the {reference:,.0f} of one step; give those of the whole run",
        )
    return Target(critical, reference, tokens)


def batches_of(first_batch: int, first_gpus: int, gpus: int) -> list[int]:
    """Batches from the batch of the first count to the one grown in proportion: doublings, and the
    grown one last."""
    grown, rest = divmod(first_batch * gpus, first_gpus)
    if rest:
        raise PlanError(
            "--global-batch",
            first_batch,
            f"of {first_gpus} GPUs is not a whole batch on {gpus}; give a multiple of "
            f"{first_gpus // math.gcd(gpus, first_gpus)}",
        )
    most = rows(Options)["global_batch"].says.most
    if most is not None and grown > most:
        raise PlanError(
            "--global-batch",
            first_batch,
            f"of {first_gpus:,} GPUs grows to {grown:,} on {gpus:,}, more than {most:,}; give"
            " fewer, or fewer GPUs in --sweep",
        )
    between = [first_batch * 2**k for k in range((grown // first_batch).bit_length())]
    return [*(batch for batch in between if batch < grown), grown]


def answered_runs(question: Question, jobs: int, progress: Progress | None) -> list[Run]:
    """Every count with every batch, each evaluated as `dpplan estimate` would with the tokens that
    its batch needs."""
    lines = []
    for gpus in question.counts:
        for batch in batches_of(question.first_batch, question.counts[0], gpus):
            batch_tokens = batch * question.seq_len
            steps = math.ceil(question.target.steps(float(batch_tokens)) * (1 - _ROUNDING))
            lines.append((gpus, batch, steps, steps * batch_tokens))
    requests = [
        question.options.changed(gpus=gpus, global_batch=batch, tokens=tokens)
        for gpus, batch, _, tokens in lines
    ]
    points = answer(requests, jobs=jobs, progress=progress)
    return [Run(*line, point) for line, point in zip(lines, points, strict=True)]
