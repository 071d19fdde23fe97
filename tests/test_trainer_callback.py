"""The callback with the real Trainer on the CPU, and a model of two small layers."""

from __future__ import annotations

import csv
import logging
import time
from pathlib import Path
from typing import Any

import pytest
from command import dpplan

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytest.importorskip("accelerate")

from dpplan.trainer import PlanCallback, attach  # noqa: E402
from dpplan.watch import MEASURED, WARM_UP, Watch, compared  # noqa: E402

pytestmark = pytest.mark.oracle
LENGTH = 16


class Tokens(torch.utils.data.Dataset):  # type: ignore[name-defined]
    def __len__(self) -> int:
        return 400

    def __getitem__(self, index: int) -> dict[str, Any]:
        tokens = torch.arange(LENGTH) % 7
        return {"input_ids": tokens, "labels": tokens}


class Waits(transformers.TrainerCallback):  # type: ignore[name-defined]
    """Wait for the prediction, which a run of milliseconds would else be over before."""

    def __init__(self, callback: PlanCallback) -> None:
        self.callback = callback

    def on_step_begin(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        if state.global_step == 1 and self.callback.watch.thread is not None:
            self.callback.watch.thread.join()


def trainer_of(folder: Path, steps: int, **more: Any) -> Any:
    config = transformers.GPT2Config(
        n_layer=2,
        n_embd=32,
        n_head=2,
        vocab_size=64,
        n_positions=32,
        bos_token_id=0,
        eos_token_id=0,
    )
    arguments = transformers.TrainingArguments(
        output_dir=str(folder),
        per_device_train_batch_size=2,
        max_steps=steps,
        report_to=[],
        save_strategy="no",
        disable_tqdm=True,
        use_cpu=True,
        **more,
    )
    model = transformers.GPT2LMHeadModel(config)
    return transformers.Trainer(model=model, args=arguments, train_dataset=Tokens())


def test_a_run_is_predicted_compared_and_written(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "dpplan")
    trainer = trainer_of(tmp_path, 30)
    callback = attach(trainer, gpu="a100", seq_len=LENGTH)
    trainer.add_callback(Waits(callback))
    trainer.train()
    assert callback.watch.prediction["verdict"] == "fits"
    assert "--precision fp32" in callback.watch.prediction["command"]
    assert f"--seq-len {LENGTH}" in callback.watch.prediction["command"]
    (logged,) = (e for e in trainer.state.log_history if "dpplan/slower_percent" in e)
    assert logged["step"] == WARM_UP + MEASURED
    assert logged["dpplan/slower_percent"] == callback.watch.compared["slower_percent"]
    assert "than plan" in caplog.text
    table = tmp_path / "dpplan" / "runs.csv"
    with table.open(newline="") as file:
        (row,) = csv.DictReader(file)
    assert float(row["step_s"]) == pytest.approx(logged["dpplan/step_s"], rel=1e-5)
    assert (row["outcome"], row["seq_len"], row["layers"]) == ("ok", str(LENGTH), "2")
    assert dpplan("validate", table).status == 0


def test_it_costs_a_training_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Under 5 ms at the start, and a step a look at the clock."""
    monkeypatch.setattr(Watch, "_predict", lambda *arguments: None)
    trainer = trainer_of(tmp_path, 1)
    callback = attach(trainer, gpu="a100")
    begun = []
    for _ in range(5):
        start = time.perf_counter()
        callback.on_train_begin(trainer.args, trainer.state, trainer.control, model=trainer.model)
        begun.append(time.perf_counter() - start)
    assert min(begun) < 5e-3
    callback.watch.done = True
    start = time.perf_counter()
    for _ in range(10_000):
        callback.on_step_end(trainer.args, trainer.state, trainer.control)
    assert time.perf_counter() - start < 0.1  # 10 us each, of which it takes a tenth


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({}, "no GPU; give gpu="),
        ({"gpu": "a1000"}, "did you mean a100"),
        ({"gpu": "a100", "sequence": 4}, "is not an option"),
    ],
)
def test_a_failure_is_a_line_and_the_training_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, options: dict[str, Any], sentence: str
) -> None:
    caplog.set_level(logging.INFO, "dpplan")
    trainer = trainer_of(tmp_path, 2)
    callback = attach(trainer, **options)
    trainer.add_callback(Waits(callback))
    trainer.train()
    assert trainer.state.global_step == 2
    assert sentence in caplog.text
    assert callback.watch.compared == {}


def test_what_does_not_fit_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    callback = PlanCallback()
    callback.watch.prediction = {"verdict": "does not fit", "sentence": "does not fit (1%)"}
    callback.watch.say_prediction()
    assert [record.levelname for record in caplog.records] == ["WARNING"]


def test_a_comparison_names_the_band() -> None:
    report = {"seconds": 1.0, "low": 0.9, "high": 1.2}
    slower = compared(1.38, report)
    assert slower["sentence"].startswith("38% slower than plan: 1.38 s per step measured, 1 s pred")
    assert slower["sentence"].endswith("outside the band")
    assert compared(0.95, report)["inside_band"]
    assert compared(0.95, report)["slower_percent"] == pytest.approx(-5)


def test_an_evaluation_is_no_step() -> None:
    class State:
        is_world_process_zero = True
        global_step = WARM_UP

    callback, state = PlanCallback(), State()
    callback.watch.done = False
    callback.on_step_end(None, state, None)
    callback.on_evaluate(None, state, None)
    state.global_step += MEASURED
    callback.on_step_end(None, state, None)
    assert not callback.watch.done
    state.global_step += MEASURED
    callback.on_step_end(None, state, None)
    assert callback.watch.done
    assert callback.watch.seconds > 0
