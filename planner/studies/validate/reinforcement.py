"""Rows whose step is one of reinforcement learning, as requests of `dpplan rl`: generation, and
passes over what it made."""

from __future__ import annotations

from dataclasses import dataclass

from planner.inputs.calibration import Calibration
from planner.rl import request
from planner.rl import verb as rl
from planner.rl.frameworks import frameworks
from planner.rl.options import RlOptions
from planner.rl.specs import ALGORITHMS
from planner.rl.step import RlStep
from planner.specs.options import Options
from planner.studies.runs.cells import Row, Skip, number, options_of, whole, with_options
from planner.studies.runs.read import Run, read
from planner.studies.validate.scored import Scored

# columns besides a training step's; a row of reinforcement learning states all of them
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
_IN_FLIGHT = "in_flight_updates"
_READ = (_MEMORY, _IN_FLIGHT, "packing", "defer_fp32_logits")
# assumed where a table prints one mean of both: the share of prompts
_PROMPT_SHARE = 0.05
_OF_JOB = ("seq_len", "global_batch")  # that `dpplan rl` fills in


@dataclass(frozen=True)
class Requested:
    """A row as a request of `dpplan rl`. row: of its optimizer step; run: what that row says."""

    row: Row
    run: Run
    own: RlOptions
    options: Options

    @property
    def command(self) -> str:
        """The command for this run."""
        return request.command_of(self.own, self.options)


@dataclass(frozen=True)
class Phased:
    """A row's step as phases, and the estimate of its optimizer step."""

    request: Requested
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
    request = requested(row, calibration)
    step = rl.step_of(request.own, request.options)
    return Phased(request, Scored(request.run, step.training.estimates), step.step)


def requested(row: Row, calibration: Calibration | None = None) -> Requested:
    """The request of a row. Raises the same."""
    rl_options, training = _rl_options(row), _training_row(row)
    run = read(training, calibration)
    options = run.options.changed(**dict.fromkeys(_OF_JOB), gpus=whole(row, "gpus"))
    return Requested(training, run, rl_options, options)


def _training_row(row: Row) -> Row:
    """The row of an optimizer step, whose length and batch follow from the job."""
    cells = {
        "algorithm": "",
        "seq_len": row["max_seq_len"],
        "gpus": row["training_gpus"],
        "global_batch": row["train_global_batch"],
    }
    words = {name: word for name, word in options_of(row).items() if name not in _READ}
    if words.get(_MOVES) == "1":  # as every framework that trains with the stacks of such rows
        del words[_MOVES]
    return with_options({**row, **cells}, words)


def _rl_options(row: Row) -> RlOptions:
    mean, longest = number(row, "mean_seq_len"), number(row, "max_seq_len")
    if not 0 < mean <= longest:
        raise Skip(f"mean_seq_len is {mean:g}; it must lie within max_seq_len {longest:g}")
    prompts = whole(row, "prompts_per_step", minimum=1)
    responses, left = divmod(whole(row, "generation_global_batch", minimum=1), prompts)
    if left:
        raise Skip(f"prompts_per_step {prompts} does not divide generation_global_batch")
    prompt = max(1, round(_PROMPT_SHARE * mean))
    memory = options_of(row).get(_MEMORY)
    return RlOptions(
        algorithm=row["algorithm"],  # type: ignore[arg-type]  # checked, as every option is
        framework=_framework(row),
        prompts=prompts,
        responses=responses,
        prompt_length=prompt,
        response_length=max(1, round(mean) - prompt),
        response_max=max(1, int(longest) - prompt),
        update_batch=min(whole(row, "train_global_batch", minimum=1), prompts * responses),
        ahead=whole(row, "policy_lag", 0),
        partial_rollout=options_of(row).get(_IN_FLIGHT) == "1",
        generation_gpus=None if _shared(row) else whole(row, "generation_gpus", minimum=1),
        generation_tp=whole(row, "generation_tp", minimum=1),
        generation_precision=row.get("generation_precision") or "bf16",  # type: ignore[arg-type]
        generation_memory=None if memory is None else number({_MEMORY: memory}, _MEMORY),
    )


def _shared(row: Row) -> bool:
    """Whether all GPUs generate and train in turn."""
    return whole(row, "colocated", 1) == 1


def _framework(row: Row) -> str:
    """The framework that trains with the row's stack."""
    for name, framework in frameworks().frameworks.items():
        if row["stack"] in framework.stacks and (framework.colocated or not _shared(row)):
            return name
    raise Skip(f"stack is {row['stack']!r}, with which no framework of `dpplan rl` trains so")
