"""Rows whose step is one of reinforcement learning: generation and passes over what it made, as
`dpplan rl` estimates them."""

from __future__ import annotations

import math
from dataclasses import dataclass

from planner.estimate.generation import Engine
from planner.estimate.reinforcement import Keeps, Pools, RlStep, mean_before_cut, rl_step
from planner.formats.runs.cells import Row, Skip, number, options_of, whole, with_options
from planner.inputs.calibration import Calibration
from planner.inputs.reinforcement import frameworks
from planner.specs.reinforcement import ALGORITHMS, HAS_CRITIC, FrameworkSpec, Job
from planner.verbs.validate.scored import Scored, scored

# columns beside those of a training step; all stand in a row that is estimated so
COLUMNS = (
    "max_seq_len",
    "mean_seq_len",
    "prompts_per_step",
    "generation_global_batch",
    "train_global_batch",
    "training_gpus",
    "generation_gpus",
    "generation_tp",
)
# words of options that are read here
_MEMORY, _MOVES = "vllm_memory", "optimizer_offload_between_phases"
_READ = (_MEMORY, _MOVES, "packing", "defer_fp32_logits")
_WEIGHT_BYTES = {"bf16": 2.0, "fp8": 1.0}
# assumed where a table prints one mean of both and no distribution: the share of prompts, and the
# spread of responses that `dpplan rl` assumes as well
_PROMPT_SHARE, _SIGMA = 0.05, 0.7
_ALONE = 0.9  # of the memory of a GPU that only generates


@dataclass(frozen=True)
class Phased:
    """A row's step as phases. training: the row of its optimizer step, and the estimate."""

    training: Row
    train: Scored
    step: RlStep


def is_phased(row: Row) -> bool:
    """Whether a row says what it generates, and where."""
    return row.get("algorithm", "") in ALGORITHMS and all(row.get(name, "") for name in COLUMNS)


def lacks(row: Row) -> str:
    """Why a row of reinforcement learning is not estimated, "" if it is, or if it states a training
    step."""
    missing = [name for name in COLUMNS if not row.get(name, "")]
    if not row.get("algorithm", "") or row.get("seq_len", "") or not (missing or _unknown(row)):
        return ""
    if _unknown(row):
        return f"algorithm is {row['algorithm']!r}; it must be one of {', '.join(ALGORITHMS)}"
    return f"{missing[0]} is empty"


def _unknown(row: Row) -> bool:
    return row.get("algorithm", "") not in ALGORITHMS


def phased(row: Row, calibration: Calibration | None = None) -> Phased:
    """The step of a row. Raises Skip, PlanError or ValueError where it cannot be expressed."""
    job, training = _job(row), training_row(row)
    mean = job.prompt + job.response
    before_cut = mean_before_cut(job.of_lengths(mean, number(training, "seq_len")))
    lengths = {"document_tokens": repr(before_cut), "document_sigma": repr(_SIGMA)}
    training = with_options(training, options_of(training) | lengths)
    train = scored(training, calibration)
    pools = Pools(
        whole(row, "training_gpus"), whole(row, "generation_gpus"), whole(row, "colocated", 1) == 1
    )
    framework = _framework(row)
    moves = framework.moves if _MOVES in options_of(row) or not pools.colocated else ()
    keeps = Keeps(framework.sleeps, moves)
    return Phased(
        training, train, rl_step(train.estimates, _engine(row, framework, pools), job, pools, keeps)
    )


def training_row(row: Row) -> Row:
    """The row of an optimizer step: packed rows as long as the longest sequence."""
    longest, dp = number(row, "max_seq_len"), whole(row, "dp", 1, minimum=1)
    tokens = number(row, "train_global_batch") * number(row, "mean_seq_len")
    words = {name: word for name, word in options_of(row).items() if name not in _READ}
    cells = {
        "algorithm": "",
        "seq_len": f"{longest:.0f}",
        "gpus": row["training_gpus"],
        "global_batch": f"{math.ceil(tokens / longest / dp) * dp}",
    }
    return with_options({**row, **cells}, words)


def _job(row: Row) -> Job:
    mean, longest = number(row, "mean_seq_len"), number(row, "max_seq_len")
    if not 0 < mean <= longest:
        raise Skip(f"mean_seq_len is {mean:g}; it must lie within max_seq_len {longest:g}")
    prompt, sequences = _PROMPT_SHARE * mean, number(row, "generation_global_batch")
    return Job(
        sequences=sequences,
        kept_frac=1.0,
        batch=min(number(row, "train_global_batch"), sequences),
        epochs=1.0,
        prompts=number(row, "prompts_per_step"),
        prompt=prompt,
        response=mean - prompt,
        sigma=_SIGMA,
        longest=longest - prompt,
        old_logprobs=True,
        reference=_framework(row).reference,
        critic=row["algorithm"] in HAS_CRITIC,
        reward_s=0.0,
        ahead=whole(row, "policy_lag", 0),
    )


def _framework(row: Row) -> FrameworkSpec:
    """The framework that trains with the row's stack."""
    for found in frameworks().frameworks.values():
        if row["stack"] in found.stacks:
            return found
    raise Skip(f"stack is {row['stack']!r}, with which no framework of `dpplan rl` trains")


def _engine(row: Row, framework: FrameworkSpec, pools: Pools) -> Engine:
    host, words = frameworks().engines[framework.engine], options_of(row)
    usual = framework.memory_frac if pools.colocated else _ALONE
    share = number({_MEMORY: words.get(_MEMORY, "")}, _MEMORY, usual)
    precision = row.get("generation_precision", "") or "bf16"
    if precision not in _WEIGHT_BYTES:
        raise Skip(f"generation_precision is {precision!r}; it must be bf16 or fp8")
    tp = whole(row, "generation_tp", minimum=1)
    if pools.generation % tp:
        raise Skip(f"generation_tp {tp} does not divide {pools.generation} generation_gpus")
    return Engine(
        tp=tp,
        weight_bytes=_WEIGHT_BYTES[precision],
        budget_frac=share,
        most_sequences=framework.most_sequences,
        step_s=float(host.step),
        sequence_s=float(host.sequence),
    )
