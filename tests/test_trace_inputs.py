"""Inputs of traces: lengths of sequences, and images, sounds and words of classes of
transformers."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from planner.trace import inputs, kernels, processors, targets, worker  # noqa: E402
from planner.trace.aggregate import TraceError  # noqa: E402
from planner.trace.target import Target  # noqa: E402

pytestmark = pytest.mark.oracle


@pytest.mark.parametrize(
    ("given", "lengths"),
    [
        ({"length": 2048}, [512, 1024, 1536, 2048]),
        ({"length": 448}, [64, 128, 192, 256]),  # chunks of 64 where 256 have no room
        ({"length": 77}, [19, 38, 57, 76]),
        ({"length": 2048, "least": 196}, [512, 768, 1024, 1280]),
        ({"length": 2048, "least": 196, "chunk": 64}, [704, 1152, 1600, 2048]),
        ({"length": 2048, "least": 196, "stride": 64}, [384, 448, 512, 576]),
        ({"length": 2048, "stride": 8}, [16, 24, 32, 40]),
    ],
)
def test_lengths_are_whole_chunks(given: dict[str, Any], lengths: list[int]) -> None:
    assert worker.lengths(Target(lambda b, s: None, **given)) == lengths  # type: ignore[arg-type,return-value]


def test_images_need_room_beside_them() -> None:
    target = Target(lambda b, s: None, length=2048, least=2928)  # type: ignore[arg-type,return-value]
    with pytest.raises(TraceError, match="have 2,928 tokens, and the model 2,048 positions"):
        worker.lengths(target)


def _steps(each: int) -> Callable[..., Any]:
    """A forward pass that runs an operator for each stride of tokens."""

    def forward(self: Any, x: Any) -> Any:
        state = x[:, 0]
        for start in range(0, x.shape[1], each):
            state = state + x[:, start]
        return state

    return forward


@pytest.mark.parametrize(("each", "stride"), [(1, 8), (64, 64), (1024, None)])
def test_a_loop_over_the_sequence_is_seen_in_its_operators(each: int, stride: int | None) -> None:
    module = type("Loop", (torch.nn.Module,), {"forward": _steps(each)})()
    with kernels.without_data():
        assert inputs._stride(module, lambda b, s: {"x": torch.randn(b, s, 4)}, 100) == stride


def test_values_of_masks_are_followed_and_written() -> None:
    with kernels.without_data():
        mask = torch.where(torch.ones(2, 8) > 0, 0.0, torch.finfo(torch.bfloat16).min)
        assert (mask < 0).any().item() is False
        assert f"expert_{torch.arange(4)[3]}" == "expert_3"


def test_silence_as_a_processor_makes_it() -> None:
    from transformers import WhisperConfig

    with kernels.without_data():
        given = processors.of_sound(WhisperConfig(), {"input_features"})(3)
        assert {name: tuple(x.shape) for name, x in given.items()} == {
            "input_features": (3, 80, 3000)
        }
        assert given["input_features"].dtype is torch.bfloat16


def test_whole_numbers_of_a_processor_are_kept_by_their_names() -> None:
    processed = {"pixel_values": torch.zeros(2, 4), "grid": torch.tensor([[1, 2]]), "other": [3]}
    processed["attention_mask"] = torch.ones(2, 5, dtype=torch.bool)
    names = {"pixel_values", "grid", "other", "input_features_mask"}
    with kernels.without_data():
        given = processors._without_data(lambda batch: processed, names, 2)
        assert set(given) == {"pixel_values", "grid", "input_features_mask"}
        assert given["grid"].tolist() == [[1, 2]]


class _Tower(torch.nn.Module):  # type: ignore[name-defined]
    """A tower of sounds with a rule of its tokens."""

    def _get_feat_extract_output_lengths(self, lengths: Any) -> tuple[Any, Any]:
        return lengths // 2, lengths // 4


class _Sounds(torch.nn.Module):  # type: ignore[name-defined]
    """A model of words and sounds, whose features are found with its words."""

    def __init__(self) -> None:
        super().__init__()
        self.audio_tower = _Tower()

    def get_audio_features(self, input_features: Any, input_ids: Any) -> Any:
        raise AssertionError("has no words yet")


def test_tokens_of_a_sound_by_the_rule_of_its_tower() -> None:
    config = SimpleNamespace(audio_token_id=7, audio_start_token_id=5)
    with kernels.without_data():
        sound = {"input_features": torch.randn(1, 80, 40)}
        sound["feature_attention_mask"] = torch.ones(1, 40, dtype=torch.long)
        for framed, row in ((False, [7] * 10), (True, [5, *[7] * 10, 0])):
            places = inputs._places(_Sounds(), config, lambda b: dict(sound), framed)
            make = inputs._with_words(
                config, set(), lambda b: dict(sound), inputs._words, False, places
            )
            assert make(1, len(places) + 1)["input_ids"].tolist() == [[*row, 0]]


def test_a_spectrum_is_as_long_as_a_text_whose_tokens_it_is_added_to() -> None:
    given = {"input_features": torch.zeros(1, 80, 1000)}
    for config, frames in ((SimpleNamespace(audio_length_per_tok=8), 8 * 64), (None, 1000)):
        long = inputs._as_long(config, given, 3, 64)
        assert long["input_features"].shape[-1] == frames


def test_parts_of_a_model_keep_no_cache() -> None:
    from transformers import Qwen2VLConfig

    config = Qwen2VLConfig()
    targets._for_training(config)
    assert config.text_config.use_cache is False


@pytest.mark.parametrize("name", ["image_size", "img_size", "input_size"])
def test_sides_of_an_image_are_read_by_each_name_that_configurations_have(name: str) -> None:
    assert inputs._sides(SimpleNamespace(**{name: 224})) == (224, 224)
