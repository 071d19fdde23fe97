"""The requests of a comparison: every combination of what varies, with one batch for all."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

from planner import plugins
from planner.inputs.batch import Batch, default_batches
from planner.inputs.model import model_spec
from planner.inputs.options import read_options
from planner.inputs.scenario_file import read
from planner.inputs.training import sequence_length
from planner.specs.base import PlanError
from planner.specs.options import Options, flag, refuse_of_all
from planner.specs.options.own import CompareOptions
from planner.verbs.compare.dimensions import Dimension, Value, product, swept, varied

_MOST_SIDE_BY_SIDE = 200  # requests; a choice: more are a sweep


@dataclass(frozen=True)
class Combinations:
    """Varied and swept options of a comparison, and every combination of their values."""

    sides: tuple[Dimension, ...]
    sweeps: tuple[Dimension, ...]
    rows: tuple[tuple[Value, ...], ...]  # one value per dimension

    @property
    def dimensions(self) -> tuple[Dimension, ...]:
        """Sides first."""
        return self.sides + self.sweeps


def combinations(request: CompareOptions) -> Combinations:
    """Every combination, the last dimension running fastest. Raises PlanError naming the option."""
    if len(request.sweep) > 2:
        raise PlanError(
            "--sweep", len(request.sweep), "sweeps are too many; two at most, others with --vary"
        )
    sides, sweeps = [varied(text) for text in request.vary], [swept(text) for text in request.sweep]
    _check_names([side.name for side in sides], [sweep.name for sweep in sweeps], request)
    if request.files:
        files = tuple(Value(name, _of_file(name)) for name in request.files)
        sides.insert(0, Dimension("scenario", files))
    sizes = [len(dimension.values) for dimension in (*sides, *sweeps)]
    if math.prod(sizes) < 2:
        raise PlanError(
            "compare",
            None,
            "needs two requests: two files, --vary gpu=rtx4090,a100 or --sweep gpus=8..512",
        )
    if not sweeps and math.prod(sizes) > _MOST_SIDE_BY_SIDE:
        raise PlanError(
            "--vary",
            " x ".join(map(str, sizes)),
            f"are more than {_MOST_SIDE_BY_SIDE} requests side by side; sweep a number with"
            " --sweep",
        )
    return Combinations(tuple(sides), tuple(sweeps), tuple(product([*sides, *sweeps])))


def _of_file(name: str) -> dict[str, Any]:
    """Options of a scenario file, or of a recipe of another program."""
    if plugins.has("formats"):
        formats = plugins.load("formats.recipe", "FILE")
        text = plugins.load("formats.plan", "FILE").texts((name,))
        if formats.knows(text):
            return dict(formats.read(text).options)
    return read(name)


def _check_names(sides: Sequence[str], sweeps: Sequence[str], request: CompareOptions) -> None:
    names = [*sides, *sweeps]
    if request.at != "count" and "gpus" in names:
        raise PlanError(
            "--at", request.at, "chooses the number of GPUs; leave gpus out of --sweep and --vary"
        )
    if request.scaling == "weak" and "gpus" not in sweeps:
        raise PlanError(
            "--scaling", "weak", "keeps the batch per GPU over --sweep gpus=...; give that"
        )
    if request.scaling == "weak" and "global_batch" in names:
        raise PlanError(
            "--scaling",
            "weak",
            "chooses the global batch; leave global_batch out of --sweep and --vary",
        )


def requests_of(
    combined: Combinations, request: CompareOptions, given: Mapping[str, Any]
) -> tuple[list[Options], list[str]]:
    """One request per combination, and the choices made for them as notes.

    given: options common to all, stronger than options of scenario files.
    """
    requests = [_options(row, bool(request.files), given) for row in combined.rows]
    refuse_of_all(requests, "compare")
    return (_weak if request.scaling == "weak" else _one_batch)(requests)


def refuse_varied(combined: Combinations, given: Mapping[str, Any], typed: Set[str]) -> None:
    """Reject an option given both directly and through --vary or --sweep."""
    others = (
        dimension for dimension in combined.dimensions if dimension.name != "scenario"
    )  # files are weaker
    for dimension in others:
        for name in typed & set.intersection(*(set(value.update) for value in dimension.values)):
            raise PlanError(
                flag(name),
                given[name],
                f"is varied, too, by {dimension.name}=...: leave one of them out",
            )


def _options(values: Sequence[Value], files: bool, given: Mapping[str, Any]) -> Options:
    """A scenario file first, over it the options of the command line, over them what is varied."""
    file, varied_values = (values[0].update, values[1:]) if files else ({}, values)
    merged = {**file, **given}
    for value in varied_values:
        merged.update(value.update)
    return read_options(merged)


def _defaults(requests: Sequence[Options]) -> dict[int, Batch]:
    """The global batch of each request that names none, by its index: the same for all of one model
    and sequence length, as far as layouts on all their GPUs allow."""
    alike: dict[tuple[str, int | None], list[int]] = {}
    for i, options in enumerate(requests):
        if options.global_batch is None and options.grad_accum is None:
            alike.setdefault((options.model, options.seq_len), []).append(i)
    out: dict[int, Batch] = {}
    for indices in alike.values():
        some = [requests[i] for i in indices]
        model, _ = model_spec(some[0].model)
        batches = default_batches(some, model, sequence_length(some[0], model))
        out.update(zip(indices, batches, strict=True))
    return out


def _one_batch(requests: Sequence[Options]) -> tuple[list[Options], list[str]]:
    """One global batch for all requests that name none, and no accumulation that sets it."""
    batches = _defaults(requests)
    changed = [
        options.changed(global_batch=batches[i].sequences) if i in batches else options
        for i, options in enumerate(requests)
    ]
    return changed, list(dict.fromkeys(batch.sentence for batch in batches.values()))


def _weak(requests: Sequence[Options]) -> tuple[list[Options], list[str]]:
    """The batch per GPU of the fewest GPUs for all."""
    fewest = min(options.gpus for options in requests)
    defaults = _defaults([options.changed(gpus=fewest, grad_accum=None) for options in requests])
    batches = []
    for i, options in enumerate(requests):
        first = options.global_batch or defaults[i].sequences
        batch, rest = divmod(first * options.gpus, fewest)
        if rest:
            raise PlanError(
                "--global-batch",
                first,
                f"of {fewest} GPUs is not a whole batch on {options.gpus}; give a multiple of"
                f" {fewest}",
            )
        batches.append(batch)
    note = (
        f"weak scaling: {batches[0]:,} sequences on {fewest:,} GPUs, and as many per GPU on the"
        " others"
    )
    sentences = dict.fromkeys(batch.sentence for batch in defaults.values())
    changed = [
        options.changed(global_batch=batch)
        for options, batch in zip(requests, batches, strict=True)
    ]
    return changed, [note, *sentences]
