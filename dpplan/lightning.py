"""A callback of Lightning: predicts the run from its live trainer, warns if it will not fit, and
compares the step with the prediction.

    from dpplan.lightning import PlanCallback

    Trainer(callbacks=[PlanCallback(seq_len=4096)], ...)
"""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from dpplan.watch import Numbers, Watch, adapters_of, gpu_of_this_process

# Lightning is published under two names, whose callbacks are not of one class
_NAMES = ("lightning.pytorch", "pytorch_lightning")
_LIGHTNING: Any = import_module(next((n for n in _NAMES if n in sys.modules), _NAMES[1]))
_PRECISIONS = {"bf16": "bf16", "16": "fp16", "32": "fp32"}
# stack and ZeRO stage by the class of the strategy
_STACKS: dict[str, dict[str, Any]] = {
    "SingleDeviceStrategy": {"stack": "pytorch-ddp"},
    "DDPStrategy": {"stack": "pytorch-ddp"},
    "FSDPStrategy": {"stack": "pytorch-fsdp", "zero": 3},
    "DeepSpeedStrategy": {"stack": "deepspeed"},
}

# of models of transformers, from version 5.x on and before
_CHECKPOINTING = ("is_activation_checkpointing", "is_gradient_checkpointing")


class PlanCallback(_LIGHTNING.Callback):
    """watch: the prediction and the comparison of the run. options: of `dpplan.estimate`, which win
    over what the trainer says; `model` where no part of the module has a `config` of
    transformers."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.watch = Watch(options, self._write)
        self._trainer: Any = None

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Start the prediction, on the first process only."""
        self._trainer = trainer
        if trainer.is_global_zero:
            self.watch.begin(
                Path(trainer.default_root_dir),
                lambda: _files(pl_module),
                lambda: _request(trainer, pl_module),
            )

    def on_train_batch_end(self, trainer: Any, *batch: Any) -> None:
        self.watch.step(trainer.global_step)

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        self.watch.interrupted()

    def on_save_checkpoint(self, *checkpoint: Any) -> None:
        self.watch.interrupted()

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        self.watch.end()

    def _write(self, numbers: Numbers) -> None:
        for logger in self._trainer.loggers:
            logger.log_metrics(numbers, step=self._trainer.global_step)


def _model(module: Any) -> Any:
    """The part of a module that has a configuration of transformers; None without one."""
    parts = (part for part in module.modules() if hasattr(part, "config"))
    return next((part for part in parts if hasattr(part.config, "to_json_string")), None)


def _files(module: Any) -> dict[str, str]:
    model = _model(module)
    return {} if model is None else {"config.json": model.config.to_json_string(use_diff=False)}


def _request(trainer: Any, module: Any) -> dict[str, Any]:
    """The layout of the run: GPUs, batch, precision, strategy, checkpointing."""
    model = _model(module)
    out = gpu_of_this_process() | adapters_of(model)
    out |= {"gpus": trainer.world_size, "tp": 1, "pp": 1, "stack_defaults": True}
    out |= _STACKS.get(type(trainer.strategy).__name__, {})
    stage = getattr(trainer.strategy, "config", None)
    if isinstance(stage, dict) and "zero_optimization" in stage:
        out["zero"] = stage["zero_optimization"].get("stage", 0)
    out["precision"] = _PRECISIONS.get(str(trainer.precision).partition("-")[0], "fp32")
    out["grad_accum"] = trainer.accumulate_grad_batches
    if batch := getattr(trainer.train_dataloader, "batch_size", None):
        out["micro_batch"] = batch
    named = next((name for name in _CHECKPOINTING if hasattr(type(model), name)), "")
    recompute = getattr(model, named, False)
    return out | {"recompute": "full" if recompute else "none"}
