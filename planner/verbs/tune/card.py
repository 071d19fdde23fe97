"""One card of `dpplan tune`: the request that its GPUs get, and each method as requests of its
sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from planner.inputs.cluster import cluster_spec
from planner.inputs.fine_tuning import each_of, replicas
from planner.inputs.model import model_spec
from planner.inputs.options import read_options
from planner.inputs.scenario import active
from planner.specs.base import PlanError
from planner.specs.model import ModelSpec
from planner.specs.options import Options, refuse, rows
from planner.specs.options.adapters import AdapterOptions
from planner.specs.options.tune import TuneOptions
from planner.verbs.tune import sizes
from planner.verbs.tune.data import Data, data_of, sized, with_longest
from planner.verbs.tune.methods import Method, methods_named

# of sequences whose memory is looked for, whatever the lengths of the examples are
_WHOLE_ROWS = {"excess_length": None, "short_length": None}
_ANY_LENGTH = {"longest_row": None, **_WHOLE_ROWS}


@dataclass(frozen=True)
class Card:
    """A number of GPUs of one kind with the request on them. sentences: what was assumed."""

    base: Options
    model: ModelSpec
    data: Data
    gpu_title: str
    methods: Sequence[Method]
    sentences: Sequence[str]

    def attempts(self, methods: Sequence[Method] | None = None) -> list[Attempt]:
        """Every method on these GPUs, by default those that are requested."""
        methods = self.methods if methods is None else methods
        return [Attempt(method, _for(method, self.base), self.data) for method in methods]


def card_of(request: TuneOptions, given: Mapping[str, Any]) -> Card:
    """The card of a request for one kind of GPU. Raises PlanError."""
    base = read_options(given)
    methods = methods_named(request.method, request.rank)
    adapted = any(method.has_adapters for method in methods)
    refuse(base.changed(lora=request.rank) if adapted else base, "tune", "lora" if adapted else "")
    model, _ = model_spec(base.model)
    if model.sample:
        why = f"learns from {model.sample}s, which have no lengths; ask `dpplan estimate`"
        raise PlanError("--model", base.model, why)
    active(base, model)  # what is wrong with a teacher is wrong for every method
    base, sentences = sized(request, base, model)
    base, more = with_longest(request, base, model)
    cluster, _ = cluster_spec(base)
    data = data_of(request, base, model)
    return Card(base, model, data, cluster.gpu.title, methods, [*sentences, *more])


def _for(method: Method, base: Options) -> Options:
    """The request without options of adapters, where a method has none."""
    if method.has_adapters:
        return base
    return base.changed(**{name: row.default for name, row in rows(AdapterOptions).items()})


@dataclass(frozen=True)
class Attempt:
    """A method on the model, cards and data of the request, as requests of its sizes."""

    method: Method
    base: Options
    data: Data

    def _alone(self, micro_batch: int, **more: Any) -> Options:
        """One micro-batch a step, on every replica."""
        batch = replicas(self.base) * micro_batch
        fixed = {"global_batch": batch, "micro_batch": micro_batch, "grad_accum": None}
        return self.base.changed(**{**self.method.pairs, **fixed, **more})

    def with_context(self, tokens: int) -> Options:
        return self._alone(each_of(self.base), seq_len=tokens, **_ANY_LENGTH)

    def with_micro(self, micro_batch: int) -> Options:
        return self._alone(micro_batch * each_of(self.base))

    def with_model(self, model: ModelSpec) -> Options:
        longest = min(self.data.seq_len, model.max_positions)
        changes = {"model": model.name, "seq_len": longest, **_WHOLE_ROWS}
        return self._alone(each_of(self.base), **changes)

    def run(self, most: sizes.Rung | None) -> Options:
        """The step of the run, with the largest micro-batch that fits where a step has but one."""
        batch, known = self.base.global_batch or 1, not self.data.is_of_micro_batches
        tokens = {"tokens": self.data.tokens(1)} if known else {}
        if self.method.accumulates:
            return self.base.changed(**self.method.pairs, **tokens)
        fits = self.base.micro_batch or each_of(self.base) * (1 if most is None else most.size)
        return self._alone(min(fits, max(1, batch // replicas(self.base))), **tokens)
