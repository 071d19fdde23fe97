"""Sliders of a notebook, where ipywidgets is installed."""

from __future__ import annotations

import pytest

ipywidgets = pytest.importorskip("ipywidgets")

from dpplan.whatif import what_if  # noqa: E402


def test_a_moved_slider_is_another_answer() -> None:
    box = what_if(model="gpt2", gpu=["a100", "h100"], gpus=(2, 9), stack="pytorch-ddp")
    gpu, gpus, shown = box.children
    assert (gpu.description, gpu.options) == ("gpu", ("a100", "h100"))
    assert gpus.options == (2, 4, 8)
    assert "2 x NVIDIA A100" in shown.value
    gpus.value = 8
    assert "8 x NVIDIA A100" in shown.value
    gpu.value = "h100"
    assert "8 x NVIDIA H100" in shown.value


def test_a_wrong_value_is_its_sentence() -> None:
    *_, shown = what_if(model="gpt3 <b>", gpu="a100", gpus=(1, 2)).children
    assert "--model" in shown.value
    assert "<b>" not in shown.value


def test_a_pair_rises() -> None:
    with pytest.raises(ValueError, match="the first smaller"):
        what_if(model="gpt2", gpu="a100", gpus=(8, 8))
