"""NeMo RL: what grpo.py, ppo.py, sft.py, dpo.py of nemo_rl/algorithms print after each step, with
the timers of nemo_rl/utils/timer.py (7ea279a, 2026-08)."""

from __future__ import annotations

import re
from typing import Any, ClassVar

from planner.studies.logs.contents import NUMBER, WHOLE, Event, Reader, Step, plain, positive

_AT = re.compile(rf"= Step ({WHOLE})/")
_TOTAL = re.compile(rf"Total step time: ({NUMBER})s")
_TIMED = re.compile(rf"(?<![\w/])([\w/]{{1,100}}+): ({NUMBER})s \(")
_RATE = re.compile(rf"E2E \(Tokens/sec\): ({NUMBER})")
# its timers, and phases of `dpplan rl`; other times keep their names
PHASES = {
    "prepare_for_generation/total": "moves + refit",
    "generation": "generation",
    "reward_calculation": "reward",
    "policy_and_reference_logprobs": "old log-probabilities + reference log-probabilities",
    "value_inference": "values",
    "logprob_inference_prep": "moves + refit",
    "training_prep": "moves + refit",
    "policy_training": "training",
    "value_training": "training of the critic",
    "weight_sync": "moves + refit",
}
_LOADING = "data_processing"
TIME = "timing/train/"  # before the name of a timer in a history of Weights & Biases


class NemoRl(Reader):
    """`===== Step 3/100 =====`, then `Total step time: 66.55s` and below it, after a bullet each,
    `policy_training: 25.05s (37.6%)` and `E2E (Tokens/sec): 43118.20`."""

    TITLE = "NeMo RL"
    MARKS: ClassVar = (
        *(b"= Step ", "\u2022 ".encode(), b"E2E (Tokens/sec):", b"Total validation time:"),
    )

    def __init__(self) -> None:
        super().__init__()
        self._at: int | None = None
        self._times: dict[str, float] = {}

    def line(self, text: str) -> None:
        text = plain(text)
        if at := _AT.search(text):
            self._at = int(at[1])
        elif total := _TOTAL.search(text):
            self.finish()
            self.log.steps.append(Step(number=self._at, seconds=positive(total[1])))
        elif "Total validation time" in text:
            self.event("evaluation")
        elif self.log.steps and (rate := _RATE.search(text)):
            self._more(tokens_per_s=positive(rate[1]))
        elif self.log.steps and (match := _TIMED.search(text)):
            self._time(match[1], positive(match[2]))

    def _time(self, name: str, seconds: float | None) -> None:
        """A timer of the step whose time was printed last."""
        if seconds is None:
            return
        if name == "checkpointing":
            self.log.events.append(Event(len(self.log.steps) - 1, "checkpoint", seconds))
        elif name == _LOADING:
            self._more(loading_s=seconds)
        elif name in PHASES or "/" not in name:  # with a slash they are parts of others
            self._times[name] = seconds

    def finish(self) -> None:
        """The timers of a step are whole."""
        if self._times:
            self._more(phases=self.phases(self._times, PHASES))
            self._times = {}

    def _more(self, **values: Any) -> None:
        self.log.steps[-1] = self.log.steps[-1]._replace(**values)
