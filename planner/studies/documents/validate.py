"""The answer of `dpplan validate`: predicted against measured runs; an error of 5 % is 0.05."""

from __future__ import annotations

from typing import Annotated, Literal

from planner.specs.document import Document, key

Outcome = Literal["ok", "oom"]
Relation = Literal["=", "<", ">"]
Task = Literal[
    "pre-training",
    "full fine-tuning",
    "adapters",
    "adapters on a quantised base",
    "reinforcement learning",
]


class Need(Document):
    """Evidence of a run on the device memory it needed."""

    relation: Annotated[
        Relation,
        key("= a measured peak, < it ran: the capacity bounds its need, > it ran out of memory"),
    ]
    need_over_predicted: Annotated[
        float, key("the need that was measured, or the capacity, over the predicted need", "1")
    ]
    least_over_predicted: Annotated[
        float,
        key("of a measured peak the same without fragmentation, which a full device gives up", "1"),
    ]
    recompute: Annotated[str, key("rule of the layout")]
    sharded: Annotated[bool, key("ZeRO shards the parameters")]
    pipeline: Annotated[bool, key("several pipeline stages")]
    offload: Annotated[bool, key("something is offloaded")]
    adapters: Annotated[bool, key("adapters are trained beside frozen weights")]
    quantised: Annotated[bool, key("the frozen weights are in 4 or 8 bit")]


class Run(Document):
    """One measured run with its prediction."""

    run_id: Annotated[str, key("id of the row")]
    suite: Annotated[str, key("suite of runs it belongs to")]
    gpu: Annotated[str, key("profile id of the GPU")]
    gpus: Annotated[int, key("GPUs of the run")]
    stack: Annotated[str, key("stack, as the row names it")]
    model: Annotated[str, key("name of the model")]
    parameters: Annotated[int, key("of the model", "parameters")]
    tier: Annotated[str, key("how sure the recipe is: A or B")]
    architecture: Annotated[str, key("of the GPU")]
    family: Annotated[str, key("of the stack: megatron, deepspeed, fsdp, jax, native")]
    command: Annotated[
        str,
        key(
            "what a person would type for this run; it answers with the predicted step and memory,"
            " of reinforcement learning with those of the optimizer's step"
        ),
    ]
    precision: Annotated[str, key("number format of training")]
    experts: Annotated[int, key("0 for a dense model")]
    task: Annotated[Task, key("what is trained, as far as the row says it")]
    seq_len: Annotated[int, key("of one sequence", "tokens")]
    micro_batch_tokens: Annotated[float, key("of one micro-batch on one rank", "tokens")]
    predicted_step_s: Annotated[float, key("by the numbers that ship", "s")]
    mfu: Annotated[float, key("model FLOP/s utilisation of the predicted step", "1")]
    measured_step_s: Annotated[float | None, key("null where the source has none", "s")]
    time_error: Annotated[
        float | None,
        key("predicted over measured step time, minus one; null where it ran out of memory", "1"),
    ]
    low_step_s: Annotated[
        float,
        key(
            "fast end of the shipped 80 % band, of residuals without the run's suite where it is"
            " among them",
            "s",
        ),
    ]
    high_step_s: Annotated[float, key("slow end, likewise", "s")]
    features: Annotated[
        dict[str, float],
        key("what the band rests on: shares of the step by mechanism, and what tells runs apart"),
    ]
    repeat_deviation: Annotated[
        float | None,
        key(
            "measured step time over the median of all runs of this recipe, minus one; null where"
            " it was measured once",
            "1",
        ),
    ]
    components: Annotated[
        dict[str, float], key("parts of the predicted step, as `step.components` of a report", "s")
    ]
    phases: Annotated[
        dict[str, float],
        key(
            "phases of a step of reinforcement learning; `components` are the parts of its"
            " training phase; empty for a step of training",
            "s",
        ),
    ]
    gpu_busy_s: Annotated[float, key("of the predicted step, what the GPU computes", "s")]
    collectives: Annotated[
        float, key("calls of collectives and sends per step on the slowest rank")
    ]
    predicted_peak_gib: Annotated[float, key("the statistic of `memory_kind`", "GiB")]
    measured_peak_gib: Annotated[float | None, key("null where the source has none", "GiB")]
    memory_error: Annotated[float | None, key("predicted over measured peak, minus one", "1")]
    memory_kind: Annotated[str, key("what was measured: allocated, reserved, nvidia-smi")]
    not_expressed: Annotated[
        str, key("words of the `options` cell that the estimate leaves out; empty: none")
    ]
    not_printed: Annotated[
        str,
        key(
            "cells of the layout that the row leaves open, which were searched as an estimate does;"
            " empty: the recipe is complete"
        ),
    ]
    predicted_fits: Annotated[bool, key("predicted memory suffices")]
    fit_chance: Annotated[
        float, key("chance that the device memory suffices, as `memory.fit_chance`", "1")
    ]
    room: Annotated[float, key("capacity over predicted need of the device", "1")]
    need: Annotated[
        Need | None,
        key("null where it says nothing: recompute or ZeRO stage not printed, or far from full"),
    ]
    outcome: Annotated[Outcome, key("it ran, or ran out of memory")]
    group: Annotated[str, key("rows of one group differ in layout only")]
    layout: Annotated[str, key("the layout in the words of the row's cells")]
    notes: Annotated[dict[str, str], key("other columns of a table of recipes, as they stand")]


class Errors(Document):
    """Relative errors: predicted over measured, minus one."""

    n: Annotated[int, key("runs")]
    mape: Annotated[float | None, key("mean absolute error; null without runs", "1")]
    median_ape: Annotated[float | None, key("median absolute error", "1")]
    bias: Annotated[float | None, key("median signed error", "1")]
    worst: Annotated[float | None, key("the largest, with its sign", "1")]


class ErrorsOfSuites(Errors):
    """Errors over runs, and over their suites."""

    suites: Annotated[int, key("suites of these runs")]
    mape_of_suites: Annotated[float | None, key("mean over suites of their `mape`", "1")]
    mape_within_suites: Annotated[
        float | None,
        key(
            "`mape` once the predictions of each suite of three runs or more are divided by their"
            " median ratio: the error that no factor per suite could remove",
            "1",
        ),
    ]


class Right(Document):
    """Runs whose memory was called right."""

    n: Annotated[int, key("rows")]
    right: Annotated[
        int, key("of these, predicted to fit where they ran and not where they did not")
    ]


class Ranking(Document):
    """Whether the order of layouts is right, over groups of runs that differ in layout only."""

    groups: Annotated[int, key("groups of five or more layouts")]
    spearman: Annotated[float | None, key("correlation of ranks, mean over groups", "1")]
    pick_regret_mean: Annotated[float | None, key("mean of `groups[].pick_regret`", "1")]
    pick_regret_max: Annotated[float | None, key("the largest of them", "1")]
    ties: Annotated[
        int, key("groups in which other predictions lie within the noise floor of the pick")
    ]


class Noise(Document):
    """How far repeats of one recipe lie from their median: what no prediction can undercut."""

    n: Annotated[int, key("rows that repeat the recipe of another")]
    mean: Annotated[float | None, key("mean absolute deviation: the noise floor", "1")]
    median: Annotated[float | None, key("median absolute deviation", "1")]
    worst: Annotated[float | None, key("largest absolute deviation", "1")]


class Summary(Document):
    """Errors over some rows."""

    time: Annotated[Errors, key("of step time")]
    memory: Annotated[Errors, key("of peak memory")]
    oom: Annotated[Right, key("rows that ran out of memory")]
    ran: Annotated[Right, key("rows that ran")]
    ranking: Annotated[Ranking, key("order of layouts")]
    noise: Annotated[Noise, key("repeats of one recipe")]


class GroupRun(Document):
    """One run of a group."""

    run_id: Annotated[str, key("id of the row")]
    layout: Annotated[str, key("as `rows[].layout`")]
    predicted_step_s: Annotated[float, key("predicted step time", "s")]
    measured_step_s: Annotated[float, key("measured step time", "s")]


class Group(Document):
    """Five or more layouts of one model on one cluster."""

    group: Annotated[str, key("as `rows[].group`; the largest regret first")]
    suite: Annotated[str, key("suite of runs")]
    gpu: Annotated[str, key("profile id of the GPU")]
    gpus: Annotated[int, key("GPUs of the runs")]
    stack: Annotated[str, key("stack, as the rows name it")]
    model: Annotated[str, key("name of the model")]
    runs: Annotated[int, key("runs with a time")]
    layouts: Annotated[int, key("distinct layouts")]
    spearman: Annotated[float, key("correlation of predicted and measured ranks", "1")]
    pick_regret: Annotated[
        float, key("measured time of the pick over the best measured, minus one", "1")
    ]
    ties: Annotated[int, key("other predictions within the noise floor of the pick's")]
    worst_tie_regret: Annotated[float, key("the largest regret among pick and ties", "1")]
    pick: Annotated[GroupRun, key("the layout predicted fastest")]
    best: Annotated[GroupRun, key("the layout measured fastest")]


class Skipped(Document):
    """A row that cannot be expressed."""

    run_id: Annotated[str, key("id of the row")]
    suite: Annotated[str, key("suite of runs")]
    reason: Annotated[str, key("one sentence")]


class Apart(Document):
    """Rows that ran with options their estimate leaves out: no test of the estimate, and no part of
    the errors of the others."""

    rows: Annotated[int, key("such rows; `rows[].not_expressed` names the options of each")]
    options: Annotated[dict[str, int], key("rows with each of these options, most first")]
    summary: Annotated[Summary, key("errors over them")]
    suites: Annotated[dict[str, Summary], key("by suite")]


class NotPrinted(Document):
    """Rows that leave parts of their recipe open, each completed by the fastest layout that fits:
    they test the search with the estimate, and are not in the errors of other rows."""

    rows: Annotated[int, key("such rows; `rows[].not_printed` names the cells of each")]
    cells: Annotated[dict[str, int], key("rows that leave each of these cells open, most first")]
    summary: Annotated[Summary, key("errors over them")]
    suites: Annotated[dict[str, Summary], key("by suite")]


class Validation(Document):
    """The answer of `dpplan validate`."""

    schema_version: Annotated[int, key("1")]
    rows: Annotated[list[Run], key("rows that can be expressed")]
    summary: Annotated[Summary, key("over all rows but those `not_printed` and `apart`")]
    suites: Annotated[dict[str, Summary], key("by suite, of the same rows")]
    not_printed: Annotated[NotPrinted, key("rows whose recipe is not printed in full")]
    apart: Annotated[Apart, key("rows with options that the estimate leaves out")]
    kinds: Annotated[
        dict[str, ErrorsOfSuites],
        key("errors of step time of kinds of runs: all, tier A, mixture of experts, fp8, ..."),
    ]
    tasks: Annotated[
        dict[Task, Summary],
        key("errors of step time and memory by what is trained, of the rows of `summary`"),
    ]
    groups: Annotated[list[Group], key("runs that differ in layout only")]
    skipped: Annotated[list[Skipped], key("rows that cannot be expressed")]
