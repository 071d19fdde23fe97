"""verl: what its loggers write of a step (verl at b178a3cd, 2026-01): `concat_dict_to_str` of
verl/utils/logger/aggregate_logger.py on the terminal, `FileLogger` of verl/utils/tracking.py as
JSON lines. Names of times: `marked_timer` in verl/trainer/ppo/ray_trainer.py, and
verl/trainer/fsdp_sft_trainer.py."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import ClassVar

import numpy as np

from planner.studies.logs.contents import GIB, WHOLE, EventKind, MemoryKind, Reader, Step, positive

_AT = re.compile(rf'\bstep"?:\s*({WHOLE})')
TIME = "timing_s/"  # before the name of a timer, as also in a history of Weights & Biases
_STEP, _SFT = f"{TIME}step", "train/time(s)"
# of `timing_s/`, and phases of `dpplan rl`; other times keep their names
PHASES = {
    "gen": "generation",
    "reward": "reward",
    "old_log_prob": "old log-probabilities",
    "ref": "reference log-probabilities",
    "values": "values",
    "update_actor": "training",
    "update_critic": "training of the critic",
    "update_weights": "moves + refit",
    "sync_rollout_weights": "moves + refit",
}
_BESIDE: dict[str, EventKind] = {"testing": "evaluation", "save_checkpoint": "checkpoint"}
_NO_PHASES = {"step", "start_profile", "stop_profile", *_BESIDE}
_HELD: dict[str, MemoryKind] = {
    "perf/max_memory_allocated_gb": "allocated",
    "perf/max_memory_reserved_gb": "reserved",
}
# what a recipe of `dpplan rl` needs and no launch file says
_LENGTHS = {"prompt_length/mean": "--prompt-length", "response_length/mean": "--response-length"}
_READ = (TIME, _SFT, "perf/", *_LENGTHS)
_FEW = (_STEP, *(TIME + name for name in _BESIDE), *_READ[1:])  # where phases are not
_LONGEST = 100  # characters of a name


class Verl(Reader):
    """`step:12 - actor/pg_loss:0.01 - perf/max_memory_allocated_gb:61.2 - timing_s/gen:54.1 -
    timing_s/update_actor:47.2 - timing_s/step:116.4 - perf/throughput:912.5`, and in its file
    `{"step":12,"data":{"timing_s/gen":54.1}}`: the highest bytes of a rank in 2^30, tokens of
    prompts and responses per second of one GPU."""

    TITLE = "verl"
    MARKS: ClassVar = tuple(
        pattern % name.encode() for name in (_STEP, _SFT) for pattern in (b" - %s:", b'"%s":')
    )

    def __init__(self) -> None:
        super().__init__()
        self._lengths: dict[str, list[float]] = {}

    def line(self, text: str) -> None:
        at = _AT.search(text)
        if at is None:
            return
        metrics = dict(_numbers_in(text, _FEW if self.phased else _READ))
        seconds = metrics.get(_STEP, metrics.get(_SFT))
        if seconds is None:
            return
        for name, kind in _HELD.items():
            if name in metrics:
                self.log.keep_peak(kind, metrics[name] * GIB)
        for name in _LENGTHS:
            if name in metrics:
                self._lengths.setdefault(name, []).append(metrics[name])
        for name, event in _BESIDE.items():
            if TIME + name in metrics:
                self.event(event, metrics[TIME + name])
        self.log.steps.append(
            Step(
                number=int(at[1]),
                seconds=seconds,
                tokens_per_s=self._rate(metrics),
                phases=self.phases(_times(metrics), PHASES),
            )
        )

    def _rate(self, metrics: Mapping[str, float]) -> float | None:
        tokens, seconds = metrics.get("perf/total_num_tokens"), metrics.get("perf/time_per_step")
        if tokens is None or seconds is None:
            return None
        if each := metrics.get("perf/throughput"):
            self.state("gpus", float(round(tokens / seconds / each)))
        return tokens / seconds

    def finish(self) -> None:
        lengths = [
            f"{flag} {np.median(self._lengths[name]):,.0f}"
            for name, flag in _LENGTHS.items()
            if name in self._lengths
        ]
        if lengths:
            self.log.notes.append(
                f"its prompts and responses, for `dpplan rl`: {' '.join(lengths)}"
            )


def _numbers_in(text: str, wanted: tuple[str, ...]) -> Iterator[tuple[str, float]]:
    """Numbers of a step that are read: `name:1.5` between blanks and hyphens, np.float64(1.5) since
    NumPy 2, or `"name":1.5` of JSON."""
    as_json = '"data":' in text
    for part in text.split("," if as_json else " - "):
        name, _, value = part.rpartition(":")
        name = name.rstrip('"').rpartition('"')[2] if as_json else name
        if name.startswith(wanted) and len(name) <= _LONGEST:
            number = positive(value.rpartition("(")[2].rstrip(")}\r "))
            if number is not None:
                yield name, number


def _times(metrics: Mapping[str, float]) -> dict[str, float]:
    """Phases of a step by their names there; with a slash they are parts of one, or of what runs
    beside it."""
    times = {n.removeprefix(TIME): s for n, s in metrics.items() if n.startswith(TIME)}
    return {n: s for n, s in times.items() if n.isidentifier() and n not in _NO_PHASES}
