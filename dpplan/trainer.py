"""A callback of Hugging Face's Trainer and of TRL's trainers: predicts the run from its live
arguments, warns if it will not fit, and compares the step with the prediction.

    from dpplan.trainer import attach

    attach(trainer, gpu="h100")     # before trainer.train()
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from transformers import TrainerCallback

from dpplan.watch import Numbers, Watch, adapters_of, gpu_of_this_process


def attach(trainer: Any, **options: Any) -> PlanCallback:
    """Add the callback to a trainer, whose own log then has the comparison, and so do its reporters
    (wandb, TensorBoard, MLflow). options: of the prediction, as of `dpplan.estimate`; gpu and gpus
    default to the machine of this process."""
    callback = PlanCallback(trainer, **options)
    trainer.add_callback(callback)
    return callback


class PlanCallback(TrainerCallback):
    """watch: the prediction and the comparison of the run."""

    def __init__(self, trainer: Any = None, **options: Any) -> None:
        self.watch = Watch(options, self._write)
        self._trainer = trainer
        self._state: Any = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """Start the prediction, on the first process only."""
        self._state = state
        if state.is_world_process_zero:
            model = more.get("model")
            self.watch.begin(
                Path(args.output_dir), lambda: _files(args, model), lambda: _request(args, model)
            )

    def on_step_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        self.watch.step(state.global_step)

    def on_log(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """Compare where the prediction came later than the measurement."""
        self.watch.compare()

    def on_evaluate(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        self.watch.interrupted()

    on_save = on_evaluate

    def on_train_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        self.watch.end()

    def _write(self, numbers: Numbers) -> None:
        if self._trainer is not None:
            self._trainer.log(numbers)
        else:
            self._state.log_history.append({**numbers, "step": self._state.global_step})


def _files(args: Any, model: Any) -> dict[str, str]:
    config = model.config.to_json_string(use_diff=False)
    return {"arguments.json": args.to_json_string(), "config.json": config}


def _request(args: Any, model: Any) -> dict[str, Any]:
    """GPUs of the run, and the precision of a model that no argument casts."""
    import torch

    out = gpu_of_this_process() | adapters_of(model)
    out["gpus"] = max(1, args.world_size, args.n_gpu if "gpu" in out else 1)
    if not (args.bf16 or args.fp16):
        dtype = next(model.parameters()).dtype
        full = "tf32" if getattr(args, "tf32", None) else "fp32"
        out["precision"] = {torch.bfloat16: "bf16", torch.float16: "fp16"}.get(dtype, full)
    return out
