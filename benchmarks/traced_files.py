"""Writes model files of the catalogue that are traced from the code of transformers, diffusers and
timm.

    python -m benchmarks.traced_files [NAME ...]

Needs these libraries. Each entry has its keys of a published config.json beside the defaults of its
class, and where they are from, as copies in public repositories have them. What they give is
checked by the number of parameters, which equals the published weights.
"""

from __future__ import annotations

import sys
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tomli_w

from planner.inputs import catalog
from planner.specs.model import ModelSpec
from planner.trace import kernels, libraries, targets, verb, worker
from planner.trace.options import TraceOptions
from planner.trace.target import Target

MODELS = Path(__file__).parents[1] / "planner" / "models"
_TEXT_7B = {
    "vocab_size": 152064,
    "hidden_size": 3584,
    "intermediate_size": 18944,
    "num_hidden_layers": 28,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "max_position_embeddings": 128000,
}
_TEXT_3B = {
    "vocab_size": 151936,
    "hidden_size": 2048,
    "intermediate_size": 11008,
    "num_hidden_layers": 36,
    "num_attention_heads": 16,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128000,
    "tie_word_embeddings": True,
}
_QWEN25_VISION = {"depth": 32, "hidden_size": 1280, "intermediate_size": 3420, "num_heads": 16}
_QWEN3_TEXT = {
    "vocab_size": 151936,
    "hidden_size": 2560,
    "intermediate_size": 9728,
    "num_hidden_layers": 36,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "max_position_embeddings": 262144,
    "tie_word_embeddings": True,
}
_QWEN3_VISION = {
    "depth": 24,
    "hidden_size": 1024,
    "intermediate_size": 4096,
    "num_heads": 16,
    "out_hidden_size": 2560,
    "deepstack_visual_indexes": [5, 11, 17],
    "num_position_embeddings": 2304,
    "patch_size": 16,
}
_GEMMA3_TEXT = {
    "hidden_size": 2560,
    "intermediate_size": 10240,
    "num_hidden_layers": 34,
    "sliding_window": 1024,
}
_SIGLIP_SO400M = {
    "hidden_size": 1152,
    "image_size": 896,
    "intermediate_size": 4304,
    "num_attention_heads": 16,
    "num_hidden_layers": 27,
    "patch_size": 14,
    "vision_use_head": False,
}
_WHISPER_SMALL = {
    "d_model": 768,
    "encoder_layers": 12,
    "decoder_layers": 12,
    "encoder_attention_heads": 12,
    "decoder_attention_heads": 12,
    "encoder_ffn_dim": 3072,
    "decoder_ffn_dim": 3072,
}
_WHISPER_MEDIUM = {
    "d_model": 1024,
    "encoder_layers": 24,
    "decoder_layers": 24,
    "encoder_attention_heads": 16,
    "decoder_attention_heads": 16,
    "encoder_ffn_dim": 4096,
    "decoder_ffn_dim": 4096,
}
_MODERNBERT_LARGE = {
    "hidden_size": 1024,
    "intermediate_size": 2624,
    "num_attention_heads": 16,
    "num_hidden_layers": 28,
}
_SDXL = {
    "sample_size": 128,
    "block_out_channels": [320, 640, 1280],
    "down_block_types": ["DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"],
    "up_block_types": ["CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"],
    "attention_head_dim": [5, 10, 20],
    "cross_attention_dim": 2048,
    "transformer_layers_per_block": [1, 2, 10],
    "use_linear_projection": True,
    "addition_embed_type": "text_time",
    "addition_time_embed_dim": 256,
    "projection_class_embeddings_input_dim": 2816,
}
_DEFAULTS = "the defaults of its class"
# trained by scripts that run autocast over weights in fp32 (--mixed_precision of diffusers)
UNDER_AUTOCAST = ("UNet2DConditionModel", "WanTransformer3DModel")


@dataclass(frozen=True)
class Shipped:
    """A file. kind: `timm:NAME`, a class of diffusers, or a type and class of transformers."""

    title: str
    kind: str
    config: dict[str, Any] = field(default_factory=dict)
    read: str = _DEFAULTS  # where the keys are from
    hub: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    length: int | None = None  # tokens of a sequence in training; None: as the trace has it


FILES = {
    "sd-1.5-unet": Shipped(
        "Stable Diffusion 1.5, UNet (512 x 512)",
        "UNet2DConditionModel",
        {"sample_size": 64, "cross_attention_dim": 768},
        "stable-diffusion-v1-5 unet/config.json",
        ("stable-diffusion-v1-5/stable-diffusion-v1-5",),
        ("sd1.5", "sd-1.5", "stable-diffusion-1.5"),
    ),
    "sdxl-unet": Shipped(
        "SDXL base 1.0, UNet (1,024 x 1,024)",
        "UNet2DConditionModel",
        _SDXL,
        "stabilityai/stable-diffusion-xl-base-1.0 unet/config.json",
        ("stabilityai/stable-diffusion-xl-base-1.0",),
        ("sdxl", "sdxl-base", "stable-diffusion-xl"),
    ),
    "flux-1-schnell": Shipped(
        "FLUX.1 schnell (1,024 x 1,024)",
        "FluxTransformer2DModel",
        {"guidance_embeds": False},
        hub=("black-forest-labs/FLUX.1-schnell",),
        aliases=("flux.1-schnell", "flux-schnell"),
    ),
    "wan-2.1-1.3b": Shipped(
        "Wan 2.1 T2V 1.3B (81 frames of 480 x 832)",
        "WanTransformer3DModel",
        {"num_attention_heads": 12, "ffn_dim": 8960, "num_layers": 30},
        "Wan-AI/Wan2.1-T2V-1.3B-Diffusers transformer/config.json",
        ("Wan-AI/Wan2.1-T2V-1.3B-Diffusers", "Wan-AI/Wan2.1-T2V-1.3B"),
        ("wan2.1-1.3b",),
    ),
    "wan-2.1-14b": Shipped(
        "Wan 2.1 T2V 14B (81 frames of 480 x 832)",
        "WanTransformer3DModel",
        hub=("Wan-AI/Wan2.1-T2V-14B-Diffusers", "Wan-AI/Wan2.1-T2V-14B"),
        aliases=("wan2.1", "wan-2.1", "wan2.1-14b"),
    ),
    "hunyuanvideo": Shipped(
        "HunyuanVideo (129 frames of 720 x 1,280)",
        "HunyuanVideoTransformer3DModel",
        hub=("hunyuanvideo-community/HunyuanVideo", "tencent/HunyuanVideo"),
        aliases=("hunyuan-video",),
    ),
    "ltx-video": Shipped(
        "LTX-Video 2B (161 frames of 512 x 768)",
        "LTXVideoTransformer3DModel",
        hub=("Lightricks/LTX-Video",),
    ),
    "convnext-base": Shipped(
        "ConvNeXt-B (224 x 224)",
        "timm:convnext_base",
        hub=("timm/convnext_base.fb_in1k", "facebook/convnext-base-224"),
    ),
    "efficientnet-b0": Shipped(
        "EfficientNet-B0 (224 x 224)", "timm:efficientnet_b0", hub=("timm/efficientnet_b0.ra_in1k",)
    ),
    "dinov2-large": Shipped(
        "DINOv2 ViT-L/14 (518 x 518)",
        "timm:vit_large_patch14_dinov2",
        hub=("facebook/dinov2-large", "timm/vit_large_patch14_dinov2.lvd142m"),
        aliases=("dinov2",),
    ),
    "modernbert-base": Shipped(
        "ModernBERT base",
        "modernbert ModernBertForMaskedLM",
        hub=("answerdotai/ModernBERT-base",),
        aliases=("modernbert",),
        length=1024,
    ),
    "modernbert-large": Shipped(
        "ModernBERT large",
        "modernbert ModernBertForMaskedLM",
        _MODERNBERT_LARGE,
        "arXiv 2412.13663 table 3",
        ("answerdotai/ModernBERT-large",),
        length=1024,
    ),
    "whisper-medium": Shipped(
        "Whisper medium (30 s of sound, 448 tokens)",
        "whisper WhisperForConditionalGeneration",
        _WHISPER_MEDIUM,
        "arXiv 2212.04356 table 1",
        ("openai/whisper-medium",),
    ),
    "whisper-small": Shipped(
        "Whisper small (30 s of sound, 448 tokens)",
        "whisper WhisperForConditionalGeneration",
        _WHISPER_SMALL,
        "arXiv 2212.04356 table 1",
        ("openai/whisper-small",),
    ),
    "wav2vec2-base": Shipped(
        "wav2vec 2.0 base (10 s of sound)",
        "wav2vec2 Wav2Vec2ForCTC",
        hub=("facebook/wav2vec2-base", "facebook/wav2vec2-base-960h"),
    ),
    "gemma-3-4b-vl": Shipped(
        "Gemma 3 4B with its tower (images of 896 x 896)",
        "gemma3 Gemma3ForConditionalGeneration",
        {"text_config": _GEMMA3_TEXT, "vision_config": _SIGLIP_SO400M},
        "google/gemma-3-4b-it config.json (sophgo/LLM-TPU@d581e7b), its tower as in mlc-ai/mlc-llm"
        " gemma3v_model.py",
        aliases=("gemma3-4b-vl",),
    ),
    "got-ocr2": Shipped(
        "GOT-OCR 2.0 (images of 1,024 x 1,024)",
        "got_ocr2 GotOcr2ForConditionalGeneration",
        hub=("stepfun-ai/GOT-OCR-2.0-hf",),
        aliases=("got-ocr-2.0",),
    ),
    "qwen2.5-vl-3b": Shipped(
        "Qwen2.5-VL 3B (images of 448 x 448)",
        "qwen2_5_vl Qwen2_5_VLForConditionalGeneration",
        {"text_config": _TEXT_3B, "vision_config": {**_QWEN25_VISION, "out_hidden_size": 2048}}
        | {"tie_word_embeddings": True},
        "Qwen/Qwen2.5-VL-3B-Instruct config.json",
        ("Qwen/Qwen2.5-VL-3B-Instruct",),
    ),
    "qwen2.5-vl-7b": Shipped(
        "Qwen2.5-VL 7B (images of 448 x 448)",
        "qwen2_5_vl Qwen2_5_VLForConditionalGeneration",
        {"text_config": _TEXT_7B, "vision_config": {**_QWEN25_VISION, "out_hidden_size": 3584}},
        "Qwen/Qwen2.5-VL-7B-Instruct config.json",
        ("Qwen/Qwen2.5-VL-7B-Instruct",),
        ("qwen2.5-vl",),
    ),
    "qwen3-vl-4b": Shipped(
        "Qwen3-VL 4B (images of 448 x 448)",
        "qwen3_vl Qwen3VLForConditionalGeneration",
        {"text_config": _QWEN3_TEXT, "vision_config": _QWEN3_VISION, "tie_word_embeddings": True},
        "Qwen/Qwen3-VL-4B-Instruct config.json",
        ("Qwen/Qwen3-VL-4B-Instruct",),
        ("qwen3-vl",),
    ),
}
with Path(__file__).with_name("traced_hub.toml").open("rb") as _file:
    FILES |= {name: Shipped(**row) for name, row in tomllib.load(_file).items()}


def target_of(entry: Shipped) -> Target:
    """The target of an entry."""
    if entry.kind.startswith("timm:"):
        return targets.target(entry.kind, False)
    if " " not in entry.kind:
        return libraries.of_diffusers(entry.kind, entry.config)
    import transformers

    kind, name = entry.kind.split()
    config = transformers.AutoConfig.for_model(kind, **entry.config)
    config.architectures = [name]
    return targets.of_config(config)


def text_of(name: str) -> tuple[str, dict[str, Any]]:
    """A model file, and what was traced."""
    entry = FILES[name]
    with kernels.without_data():
        answer = worker.trace(target_of(entry))
    if entry.kind in UNDER_AUTOCAST:
        with kernels.without_data(autocast=True):
            _cast(answer["parts"], worker.trace(target_of(entry), True, frozen=False)["parts"])
    keys = verb._keys(TraceOptions(target=name, name=name), answer)
    named = f", {entry.kind.split()[1]}" if " " in entry.kind else ""
    keyed = "" if entry.kind.startswith("timm:") else f"; keys: {entry.read}"
    source = f"{answer['source']}{named}{keyed}"
    first: dict[str, Any] = {"name": name, "title": entry.title}
    first |= {"aliases": [*entry.aliases], "hub": [*entry.hub], "source": source}
    keys = first | {key: value for key, value in keys.items() if key not in first}
    if entry.length is not None:
        keys["published"]["sequence"] = {"tokens": entry.length, "source": "its pre-training"}
    model = catalog.build(ModelSpec, keys, "MODEL", "traced")
    verb._check(TraceOptions(target=name), model, answer)
    return tomli_w.dumps(keys), answer


def _cast(parts: list[dict[str, Any]], wide: list[dict[str, Any]]) -> None:
    """Write into blocks what the same blocks save where autocast runs over weights in fp32."""
    if [part["name"] for part in parts] != [part["name"] for part in wide]:
        raise SystemExit("autocast runs other blocks: trace it as a file of its own")
    for part, other in zip(parts, wide, strict=True):
        part["cast_saved"] = other.get("saved", "0")
        if "saved_bytes" in other:
            part["cast_saved_bytes"] = other["saved_bytes"]


def main() -> None:
    """Write the files that are named, or all."""
    for name in sys.argv[1:] or FILES:
        text, answer = text_of(name)
        (MODELS / f"{name}.toml").write_text(text, encoding="utf-8")
        print(f"{name:20s} {answer['parameters']:15,} {len(text):7,} bytes", flush=True)


if __name__ == "__main__":
    main()
