"""The callback with the real Lightning on the CPU, where it is installed."""

from __future__ import annotations

import logging
import warnings
from pathlib import Path
from typing import Any

import pytest

pl = pytest.importorskip("pytorch_lightning")
torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from dpplan.lightning import PlanCallback, _request  # noqa: E402
from dpplan.watch import MEASURED, WARM_UP  # noqa: E402

pytestmark = pytest.mark.oracle
LENGTH, BATCH, ACCUMULATED = 16, 2, 2
FIGURE = "dpplan/slower_percent"


class Small(pl.LightningModule):  # type: ignore[name-defined]
    """A model of two small layers."""

    def __init__(self) -> None:
        super().__init__()
        sizes = {"n_layer": 2, "n_embd": 32, "n_head": 2, "vocab_size": 64, "n_positions": 32}
        config = transformers.GPT2Config(bos_token_id=0, eos_token_id=0, **sizes)
        self.model = transformers.GPT2LMHeadModel(config)

    def training_step(self, batch: Any, _: int) -> Any:
        return self.model(input_ids=batch, labels=batch).loss

    def configure_optimizers(self) -> Any:
        return torch.optim.AdamW(self.parameters())


class Waits(pl.Callback):  # type: ignore[name-defined]
    """Wait for the prediction, which a run of milliseconds would else be over before."""

    def __init__(self, callback: PlanCallback) -> None:
        self.callback = callback

    def on_train_batch_start(self, *batch: Any) -> None:
        if self.callback.watch.thread is not None:
            self.callback.watch.thread.join()


class Kept(pl.loggers.logger.DummyLogger):  # type: ignore[name-defined]
    """A logger that keeps what it gets."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[tuple[int | None, dict[str, float]]] = []

    def log_metrics(self, metrics: Any, step: int | None = None) -> None:
        self.lines.append((step, dict(metrics)))


def trained(folder: Path, steps: int, callback: PlanCallback, logger: Any = False) -> Any:
    rows = [torch.arange(LENGTH) % 7 for _ in range(400)]
    trainer = pl.Trainer(
        accelerator="cpu",
        devices=1,
        max_steps=steps,
        accumulate_grad_batches=ACCUMULATED,
        default_root_dir=folder,
        callbacks=[callback, Waits(callback)],
        logger=logger,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of workers and GPUs that the test does without
        trainer.fit(Small(), torch.utils.data.DataLoader(rows, batch_size=BATCH))
    return trainer


def test_a_run_is_predicted_and_compared(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "dpplan")
    callback, logger = PlanCallback(gpu="a100", seq_len=LENGTH), Kept()
    trainer = trained(tmp_path, WARM_UP + MEASURED + 2, callback, logger)
    watch = callback.watch
    assert watch.prediction["verdict"] == "fits", watch.prediction
    for words in ("--precision fp32", f"--micro-batch {BATCH}", "--stack pytorch-ddp"):
        assert words in watch.prediction["command"]
    ((step, numbers),) = ((step, line) for step, line in logger.lines if FIGURE in line)
    assert step == WARM_UP + MEASURED
    assert numbers[FIGURE] == watch.compared["slower_percent"]
    assert "than plan" in caplog.text
    request = _request(trainer, trainer.lightning_module)
    assert (request["gpus"], request["grad_accum"], request["recompute"]) == (
        1,
        ACCUMULATED,
        "none",
    )


@pytest.mark.parametrize(
    ("options", "sentence"), [({}, "no GPU; give gpu="), ({"gpu": "a1000"}, "did you mean a100")]
)
def test_a_failure_is_a_line_and_the_training_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, options: dict[str, Any], sentence: str
) -> None:
    caplog.set_level(logging.INFO, "dpplan")
    callback = PlanCallback(**options)
    assert trained(tmp_path, 2, callback).global_step == 2
    assert sentence in caplog.text
    assert callback.watch.compared == {}
