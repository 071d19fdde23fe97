"""A callback of Hugging Face's Trainer and of TRL's trainers: predicts the run from its live
arguments, warns if it will not fit, and compares the step with the prediction.

    from dpplan.trainer import attach

    attach(trainer, gpu="h100")     # before trainer.train()

It refuses nothing and stops nothing: the prediction is made by another process, any failure is one
line of the log, and the hooks only read a clock.
"""

from __future__ import annotations

import csv
import json
import logging
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from transformers import TrainerCallback

log = logging.getLogger("dpplan")

WARM_UP = 5  # steps before the clock starts: compilation, caches, the allocator
MEASURED = 20  # steps that are compared with the prediction
FOLDER = "dpplan"  # in the output folder: arguments, model, prediction and row of the run
_LONGEST_S = 300.0  # after which a prediction is given up


def attach(trainer: Any, **options: Any) -> PlanCallback:
    """Add the callback to a trainer, whose own log then has the comparison, and so do its reporters
    (wandb, TensorBoard, MLflow). options: of the prediction, as of `dpplan.estimate`; gpu and gpus
    default to the machine of this process."""
    callback = PlanCallback(trainer, **options)
    trainer.add_callback(callback)
    return callback


class PlanCallback(TrainerCallback):
    """prediction: what was predicted, once it is there; compared: the comparison, once it is made;
    both are dicts."""

    def __init__(self, trainer: Any = None, **options: Any) -> None:
        self.prediction: dict[str, Any] = {}
        self.compared: dict[str, Any] = {}
        self._trainer = trainer
        self._options = options
        self._thread: threading.Thread | None = None
        self._began = (0, 0.0)  # step and time
        self._done = True
        self._seconds = 0.0  # of a step, once measured

    def on_train_begin(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """Start the prediction, on the first process only."""
        if not state.is_world_process_zero:
            return
        self._began, self._done, self._seconds = (0, 0.0), False, 0.0
        self.prediction, self.compared = {}, {}
        self._thread = threading.Thread(
            target=self._predict, args=(args, more.get("model")), name="dpplan", daemon=True
        )
        self._thread.start()

    def on_step_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """Read the clock after the first steps, and again after those that are measured."""
        if self._done:
            return
        step, since = self._began
        if not step:
            if state.global_step >= WARM_UP:
                _wait_for_gpu()
                self._began = (state.global_step, time.perf_counter())
        elif state.global_step >= step + MEASURED:
            _wait_for_gpu()
            self._done = True
            self._seconds = (time.perf_counter() - since) / (state.global_step - step)
            self._compare(state)

    def on_log(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """Compare where the prediction came later than the measurement."""
        self._compare(state)

    def on_evaluate(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """Measure from here: an evaluation or a checkpoint takes time beside the steps."""
        self._began = (0, 0.0)

    on_save = on_evaluate

    def on_train_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """Compare at last; a run that was too short is not compared."""
        self._done = True
        self._compare(state)

    def _predict(self, args: Any, model: Any) -> None:
        """Ask another process, so that the training keeps this one's interpreter."""
        try:
            folder = Path(args.output_dir) / FOLDER
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "arguments.json").write_text(args.to_json_string(), "utf-8")
            config = model.config.to_json_string(use_diff=False)
            (folder / "config.json").write_text(config, "utf-8")
            request = {**_machine(args, model), **self._options}
            if "gpu" not in request:
                log.info("dpplan: no prediction: this machine has no GPU; give gpu=...")
                return
            done = subprocess.run(
                [sys.executable, "-m", "dpplan.predicted", str(folder)],
                input=json.dumps(request),
                capture_output=True,
                text=True,
                timeout=_LONGEST_S,
                check=False,
            )
            if done.returncode:
                raise RuntimeError(done.stderr.strip().rpartition("\n")[2])
            self.prediction = json.loads(done.stdout)
            self._say_prediction()
        except Exception as error:
            log.warning("dpplan: no prediction: %s", error)

    def _say_prediction(self) -> None:
        report = self.prediction
        if "error" in report:
            log.warning("dpplan: no prediction: %s", report["error"])
        else:
            level = logging.INFO if report["verdict"] == "fits" else logging.WARNING
            log.log(level, "dpplan: %s", report["sentence"])

    def _compare(self, state: Any) -> None:
        """Say and log once how the measured step compares; never raise."""
        report, seconds = self.prediction, self._seconds
        if self.compared or not seconds or "seconds" not in report:
            return
        try:
            self.compared = compared(seconds, report)
            log.warning("dpplan: %s", self.compared["sentence"])
            numbers = {
                "dpplan/step_s": seconds,
                "dpplan/predicted_step_s": report["seconds"],
                "dpplan/slower_percent": self.compared["slower_percent"],
            }
            if self._trainer is not None:
                self._trainer.log(numbers)
            else:
                state.log_history.append({**numbers, "step": state.global_step})
            _fill_row(Path(report["row"]), seconds)
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


def _machine(args: Any, model: Any) -> dict[str, Any]:
    """GPUs of the run, and the precision of a model that no argument casts."""
    import torch

    out: dict[str, Any] = {"gpus": max(1, args.world_size)}
    if torch.cuda.is_available():
        out["gpu"] = torch.cuda.get_device_name()
        out["gpus"] = max(out["gpus"], args.n_gpu)
    if not (args.bf16 or args.fp16):
        dtype = next(model.parameters()).dtype
        full = "tf32" if getattr(args, "tf32", None) else "fp32"
        out["precision"] = {torch.bfloat16: "bf16", torch.float16: "fp16"}.get(dtype, full)
    for adapter in getattr(model, "peft_config", {}).values():
        if getattr(adapter, "r", None):
            out["lora"] = adapter.r
    return out


def _wait_for_gpu() -> None:
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
