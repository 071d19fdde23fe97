"""A step of diffusers' models as its training examples run it (examples/text_to_image,
dreambooth): autocast of accelerate over weights in fp32, or all in bf16, on one GPU."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import diffusers
import torch
from torch import nn
from torch.nn import functional

from benchmarks.frameworks import gpu_rules, stepping
from benchmarks.frameworks.live import LiveBytes, fake
from benchmarks.frameworks.setting import Counted, Setting

_SDXL = {
    "sample_size": 128,
    "block_out_channels": (320, 640, 1280),
    "down_block_types": ("DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"),
    "up_block_types": ("CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"),
    "transformer_layers_per_block": (1, 2, 10),
    "attention_head_dim": (5, 10, 20),
    "cross_attention_dim": 2048,
    "use_linear_projection": True,
    "addition_embed_type": "text_time",
    "addition_time_embed_dim": 256,
    "projection_class_embeddings_input_dim": 2816,
}
_SD3 = {
    "sample_size": 128,
    "in_channels": 16,
    "out_channels": 16,
    "joint_attention_dim": 4096,
    "pooled_projection_dim": 2048,
    "pos_embed_max_size": 192,
    "attention_head_dim": 64,
}
# names of planner/models, with the config.json of each
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "sd-1.5-unet": ("UNet2DConditionModel", {"cross_attention_dim": 768}),
    "sdxl-unet": ("UNet2DConditionModel", _SDXL),
    "sd3-medium": (
        "SD3Transformer2DModel",
        {**_SD3, "num_layers": 24, "num_attention_heads": 24, "caption_projection_dim": 1536},
    ),
    "sd3.5-large": (
        "SD3Transformer2DModel",
        {
            **_SD3,
            "num_layers": 38,
            "num_attention_heads": 38,
            "caption_projection_dim": 2432,
            "qk_norm": "rms_norm",
        },
    ),
    "flux-1-dev": ("FluxTransformer2DModel", {"guidance_embeds": True}),
    "wan-2.1-1.3b": (
        "WanTransformer3DModel",
        {"num_attention_heads": 12, "num_layers": 30, "ffn_dim": 8960},
    ),
}
_WORDS, _FLUX_WORDS, _SD3_WORDS = 77, 512, 154


def inputs(setting: Setting) -> dict[str, Any]:
    """Inputs of the model: noisy latents, steps, and encoded text."""
    name, samples = setting.config["model_type"], setting.micro_batch
    side = math.isqrt(setting.seq_len)
    dtype = torch.float32 if setting.base == "fp32" else torch.bfloat16

    def latents(*shape: int) -> torch.Tensor:
        return torch.zeros((samples, *shape), dtype=dtype)

    steps = torch.zeros(samples, dtype=torch.long)
    if name == "flux-1-dev":
        return {
            "hidden_states": latents(setting.seq_len, 64),
            "timestep": steps.to(dtype),
            "guidance": torch.zeros(samples),
            "pooled_projections": latents(768),
            "encoder_hidden_states": latents(_FLUX_WORDS, 4096),
            "txt_ids": torch.zeros(_FLUX_WORDS, 3),
            "img_ids": torch.zeros(setting.seq_len, 3),
        }
    if name.startswith("sd3"):
        return {
            "hidden_states": latents(16, 2 * side, 2 * side),
            "timestep": steps,
            "pooled_projections": latents(2048),
            "encoder_hidden_states": latents(_SD3_WORDS, 4096),
        }
    if name.startswith("wan"):
        # frames of 24 x 40 tokens
        frames = setting.seq_len // 960
        return {
            "hidden_states": latents(16, frames, 48, 80),
            "timestep": steps,
            "encoder_hidden_states": latents(512, 4096),
        }
    wide = name == "sdxl-unet"
    pixels = 4 if wide else 8  # of a token in latents
    given: dict[str, Any] = {
        "sample": latents(4, pixels * side, pixels * side),
        "timestep": steps,
        "encoder_hidden_states": latents(_WORDS, 2048 if wide else 768),
    }
    if wide:
        given["added_cond_kwargs"] = {"text_embeds": latents(1280), "time_ids": latents(6)}
    return given


def model_of(setting: Setting) -> nn.Module:
    """The model in training mode, its weights in the type of the setting."""
    kind, config = MODELS[setting.config["model_type"]]
    dtype = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32 if setting.base == "fp32" else torch.bfloat16)
    try:
        model: Any = getattr(diffusers, kind)(**config)
    finally:
        torch.set_default_dtype(dtype)
    if setting.recompute == "full":
        model.enable_gradient_checkpointing()
    trained: nn.Module = model.train()
    return trained


def step(
    setting: Setting,
    live: LiveBytes,
    model: Callable[..., Any],
    optimizer: torch.optim.Optimizer,
    labelled: Callable[[], None],
) -> None:
    """One step of train_text_to_image.py."""
    for _ in range(setting.accumulation):
        given = inputs(setting)
        tensors = [x for x in given.values() if isinstance(x, torch.Tensor)]
        live.label(tensors, "batch")
        live.phase("forward")
        with torch.autocast("cpu", torch.bfloat16, enabled=setting.precision == "mixed"):
            (noise,) = model(**given, return_dict=False)
        noise = noise.float()  # ConvertOutputsToFp32
        live.at_loss = dict(live.by_origin)
        live.phase("loss")
        loss = functional.mse_loss(noise, torch.zeros_like(noise))
        noise.register_hook(lambda gradient: live.phase("backward"))
        del noise
        (loss / setting.accumulation).backward()
        del loss
    labelled()
    live.phase("step")
    optimizer.step()
    labelled()
    optimizer.zero_grad()


def run(setting: Setting) -> Counted:
    """Two steps on fake tensors, of which the second is counted."""
    with gpu_rules.rules(), fake() as live:
        model = model_of(setting)
        optimizer = stepping.optimizer_of(setting, list(model.parameters()))

        def once(labelled: Callable[[], None]) -> None:
            step(setting, live, model, optimizer, labelled)

        return stepping.two_steps(live, model, optimizer, once)
