"""The answer of `dpplan tune`: methods of fine-tuning on given cards."""

from __future__ import annotations

from typing import Annotated, Any

from planner.specs.document import UNSET, Document, Doubted, Unset, key
from planner.specs.documents.batch import NamedModel, SizedModel
from planner.specs.documents.estimate import Merge
from planner.specs.documents.memory import Fit
from planner.specs.documents.plan import Layout
from planner.specs.names import ExcessLength, Packing


class TuneData(Document):
    """The examples, and the sequences that they fill."""

    examples: Annotated[int, key("of the data set")]
    epochs: Annotated[float, key("passes over it")]
    seq_len: Annotated[int, key("longest sequence; see `excess`", "tokens")]
    mean_tokens: Annotated[
        float | None, key("mean length of an example; null where all are full", "tokens")
    ]
    sigma: Annotated[float | None, key("of the log-normal lengths; null where all are full")]
    packing: Annotated[Packing | None, key("how examples become sequences; null likewise")]
    dropped_frac: Annotated[
        float,
        key("share of examples left out: longer than a sequence, or below --short-length", "1"),
    ]
    excess: Annotated[
        ExcessLength | None,
        key("what becomes of examples longer than a sequence; null where all are full"),
    ]
    sequences: Annotated[int, key("of an epoch", "sequences")]
    useful_tokens: Annotated[float, key("of an epoch, without padding", "tokens")]


class FittingModel(NamedModel):
    """The largest model of the catalogue with which a method fits these cards."""

    parameters: Annotated[int, key("exact number of parameters", "parameters")]
    command: Annotated[str, key("the command for it")]


class TuneLimits(Document):
    """Limits of the run; null: none."""

    days: Annotated[float | None, key("wall time at most", "days")]
    budget_usd: Annotated[float | None, key("cost at most", "USD")]
    max_gpus: Annotated[
        int | None,
        key("at most; `--gpus`, or 1, and its doubles are tried; null: one number", "GPUs"),
    ]
    sure: Annotated[bool, key("days and dollars hold at the slow end of the band")]


class TuneChoice(Document):
    """A method on a number of GPUs of one kind."""

    place: Annotated[int, key("of the card: 0 is this document, n is entry n - 1 of `others`")]
    gpus: Annotated[int, key("GPUs", "GPUs")]
    gpu_title: Annotated[str, key("name of the GPU for people")]
    method: Annotated[str, key("name of the method")]
    command: Annotated[str, key("the command for the run")]


class TuneAnswers(Document):
    """The best choices over all cards and methods that are as likely as not within the limits and
    fit, at 95 % where one does; null where none is."""

    cheapest: Annotated[TuneChoice | None, key("by cost of the run; null without a price, too")]
    smallest: Annotated[TuneChoice | None, key("by number of GPUs, then cost")]
    fastest: Annotated[TuneChoice | None, key("by time of the run")]


class TuneMethod(Document):
    """A method on these cards and data; null from `memory` on where no layout is allowed. Of more
    than four cards only the ones in `answers` have contexts and micro-batches."""

    name: Annotated[str, key("as `--method` takes it")]
    title: Annotated[str, key("the method in words")]
    options: Annotated[dict[str, Any], key("options of an estimate that it stands for")]
    fits: Annotated[bool, key("the requested run is expected to fit")]
    why: Annotated[str | None, key("why not; null where it fits")]
    memory: Annotated[Fit | None, key("memory per GPU")]
    stack: Annotated[str | None, key("profile id of the stack")]
    layout: Annotated[Layout | None, key("as `layout` of a report")]
    useful_frac: Annotated[
        float | None, key("share of the tokens computed that are not padding", "1")
    ]
    step_seconds: Annotated[float | None, key("expected time of a step", "s")]
    step_low: Annotated[float | None, key("fast end of its 80 % band", "s")]
    step_high: Annotated[float | None, key("slow end", "s")]
    before_s: Annotated[
        float | None,
        key("of `run_s`, passes of the reference over all examples before the run", "s"),
    ]
    run_s: Annotated[float | None, key("wall time of all epochs, failures included", "s")]
    run_low_s: Annotated[float | None, key("fast end of its 80 % band", "s")]
    run_high_s: Annotated[float | None, key("slow end", "s")]
    cost_usd: Annotated[float | None, key("of all epochs; null also without a price", "USD")]
    cost_low_usd: Annotated[float | None, key("cheap end of its 80 % band", "USD")]
    cost_high_usd: Annotated[float | None, key("dear end", "USD")]
    chance: Annotated[
        float | None,
        key("probability that the run is within days and budget; null without such limits", "1"),
    ]
    largest_micro_batch: Annotated[
        int | None,
        key(
            "largest power of two that fits with a chance of 95 % at this length; null where none"
            " does, or where it was given",
            "sequences",
        ),
    ]
    even_micro_batch: Annotated[
        int | None, key("the largest with an even chance to fit", "sequences")
    ]
    most_micro_batch: Annotated[
        int | None, key("the largest with a chance of 5 % to fit, likewise", "sequences")
    ]
    micro_batch_command: Annotated[str | None, key("the command that requests it")]
    longest_context: Annotated[
        int | None,
        key(
            "longest sequence that fits with a chance of 95 % with one per micro-batch, by steps of"
            " 9 %; null where none does",
            "tokens",
        ),
    ]
    even_context: Annotated[
        int | None, key("the longest with an even chance to fit, in the layout of that", "tokens")
    ]
    most_context: Annotated[
        int | None, key("the longest with a chance of 5 % to fit, likewise", "tokens")
    ]
    context_command: Annotated[str | None, key("the command that requests it")]
    largest_model: Annotated[
        FittingModel | None,
        key(
            "of the catalogue, with a chance of 95 % to fit at this length; null without"
            " `--largest`, or where none fits"
        ),
    ]
    even_model: Annotated[
        FittingModel | None, key("the largest with an even chance to fit, in the layout of that")
    ]
    most_model: Annotated[
        FittingModel | None, key("the largest with a chance of 5 % to fit, likewise")
    ]
    merge: Annotated[
        Merge | None, key("adapters merged into their base; null where a method has none")
    ]
    command: Annotated[str, key("the command for the run")]
    pick: Annotated[
        str | None, key("the command that estimates exactly the layout taken; null where none is")
    ]


class Tuning(Doubted):
    """Methods of fine-tuning a model on given cards."""

    schema_version: Annotated[int, key("1")]
    model: Annotated[SizedModel, key("the model that is trained further")]
    gpus: Annotated[int, key("GPUs", "GPUs")]
    gpu_title: Annotated[str, key("name of the GPU for people")]
    data: Annotated[TuneData, key("the examples")]
    global_batch: Annotated[
        int, key("sequences of a step, where a method can add up gradients of micro-batches")
    ]
    methods: Annotated[list[TuneMethod], key("in the order of docs/tuning.md")]
    fastest: Annotated[
        str | None, key("name of the fastest that fits, at 95 % where one does; null where none")
    ]
    on_trainer: Annotated[
        str | None,
        key(
            "that method, or of none the one that is the least short, on another stack: where TRL"
            " does not run it, or it does not fit there; else null"
        ),
    ]
    variant: Annotated[
        str | None,
        key(
            "where no requested method fits, the fastest that fits of those that do the same and"
            " more, such as offloading; else null"
        ),
    ]
    notes: Annotated[list[str], key("what all rests on, as sentences")]
    limits: Annotated[
        TuneLimits | Unset, key("absent for one card without a limit of days or dollars")
    ] = UNSET
    answers: Annotated[TuneAnswers | Unset, key("over all cards; absent likewise")] = UNSET
    others: Annotated[
        list[Tuning] | Unset,
        key("the same on the other kinds and numbers of GPUs; absent for one card"),
    ] = UNSET

    @property
    def cards(self) -> list[Tuning]:
        """The answers of all kinds of GPU, in the order of the request."""
        return [self, *(self.others or ())]
