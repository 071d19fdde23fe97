"""Shared by callbacks of trainers: the prediction of a run by another process, the clock of its
steps, and the comparison of both. It refuses nothing and never raises."""

from __future__ import annotations

import csv
import json
import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

log = logging.getLogger("dpplan")

WARM_UP = 5  # steps before the clock starts: compilation, caches, the allocator
MEASURED = 20  # steps that are compared with the prediction
FOLDER = "dpplan"  # in the output folder: arguments, model, prediction and row of the run
_LONGEST_S = 300.0  # after which a prediction is given up

Numbers = dict[str, float]


class Watch:
    """One run. prediction: what was predicted, once it is there; compared: the comparison, once it
    is made; both are dicts."""

    def __init__(self, options: Mapping[str, Any], write: Callable[[Numbers], None]) -> None:
        """options: of the prediction, which win over what the trainer says; write: takes the
        numbers of the comparison to the trainer's own log."""
        self.prediction: dict[str, Any] = {}
        self.compared: dict[str, Any] = {}
        self.seconds = 0.0  # of a step, once measured
        self.done = True
        self.thread: threading.Thread | None = None
        self._options = options
        self._write = write
        self._began = (0, 0.0)  # step and time

    def begin(
        self, output: Path, files: Callable[[], dict[str, str]], request: Callable[[], Any]
    ) -> None:
        """Start the prediction and wait for the first steps. files: texts for the folder of the
        prediction, by name; request: options of the prediction. Both are asked beside the run."""
        self._began, self.done, self.seconds = (0, 0.0), False, 0.0
        self.prediction, self.compared = {}, {}
        self.thread = threading.Thread(
            target=self._predict, args=(output / FOLDER, files, request), name="dpplan", daemon=True
        )
        self.thread.start()

    def step(self, step: int) -> None:
        """Read the clock after the first steps, and again after those that are measured."""
        if self.done:
            return
        first, since = self._began
        if not first:
            if step >= WARM_UP:
                wait_for_gpu()
                self._began = (step, time.perf_counter())
        elif step >= first + MEASURED:
            wait_for_gpu()
            self.done = True
            self.seconds = (time.perf_counter() - since) / (step - first)
            self.compare()

    def interrupted(self) -> None:
        """Measure from here: an evaluation or a checkpoint takes time beside the steps."""
        self._began = (0, 0.0)

    def end(self) -> None:
        """Compare at last; a run that was too short is not compared."""
        self.done = True
        self.compare()

    def _predict(self, folder: Path, files: Any, request: Any) -> None:
        """Ask another process, so that the training keeps this one's interpreter."""
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for name, text in files().items():
                (folder / name).write_text(text, "utf-8")
            options = {**request(), **self._options}
            if "gpu" not in options:
                log.info("dpplan: no prediction: this machine has no GPU; give gpu=...")
                return
            done = subprocess.run(
                [sys.executable, "-m", "dpplan.predicted", str(folder)],
                input=json.dumps(options),
                # a notebook may have found dpplan by a path of its own
                env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
                capture_output=True,
                text=True,
                timeout=_LONGEST_S,
                check=False,
            )
            if done.returncode:
                raise RuntimeError(done.stderr.strip().rpartition("\n")[2])
            self.prediction = json.loads(done.stdout)
            self.say_prediction()
        except Exception as error:
            log.warning("dpplan: no prediction: %s", error)

    def say_prediction(self) -> None:
        """Log the prediction: a warning where the run may not fit."""
        report = self.prediction
        if "error" in report:
            log.warning("dpplan: no prediction: %s", report["error"])
        else:
            level = logging.INFO if report["verdict"] == "fits" else logging.WARNING
            log.log(level, "dpplan: %s", report["sentence"])

    def compare(self) -> None:
        """Say and log once how the measured step compares."""
        report = self.prediction
        if self.compared or not self.seconds or "seconds" not in report:
            return
        try:
            self.compared = compared(self.seconds, report)
            log.warning("dpplan: %s", self.compared["sentence"])
            self._write(
                {
                    "dpplan/step_s": self.seconds,
                    "dpplan/predicted_step_s": report["seconds"],
                    "dpplan/slower_percent": self.compared["slower_percent"],
                }
            )
            if "row" in report:
                _fill_row(Path(report["row"]), self.seconds)
        except Exception as error:
            log.warning("dpplan: no comparison: %s", error)


def compared(seconds: float, report: Mapping[str, Any]) -> dict[str, Any]:
    """A measured step (s) beside its prediction: seconds, low and high of the 80 % band."""
    share = seconds / report["seconds"] - 1
    word = "slower" if share > 0 else "faster"
    inside = report["low"] <= seconds <= report["high"]
    band = f"80 % band {report['low']:.3g} to {report['high']:.3g} s"
    return {
        "slower_percent": 100 * share,
        "inside_band": inside,
        "sentence": f"{abs(share):.0%} {word} than plan: {seconds:.3g} s per step measured,"
        f" {report['seconds']:.3g} s predicted ({band}), {'inside' if inside else 'outside'} the"
        " band",
    }


def gpu_of_this_process() -> dict[str, Any]:
    """The GPU of this process, as an option; nothing without one."""
    import torch

    return {"gpu": torch.cuda.get_device_name()} if torch.cuda.is_available() else {}


def adapters_of(model: Any) -> dict[str, Any]:
    """The rank of the adapters of a model, as an option."""
    ranks = [getattr(adapter, "r", None) for adapter in getattr(model, "peft_config", {}).values()]
    return {"lora": ranks[-1]} if ranks and ranks[-1] else {}


def wait_for_gpu() -> None:
    """Wait for what is queued, so that the clock counts whole steps; twice in a run."""
    import torch

    if torch.cuda.is_available() and torch.cuda.is_initialized():
        torch.cuda.synchronize()


def _fill_row(table: Path, seconds: float) -> None:
    """Write the measured step into the row of the run."""
    with table.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    rows[-1] |= {"step_s": f"{seconds:.6g}", "outcome": "ok"}
    with table.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[-1]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
