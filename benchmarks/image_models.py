"""Models of published rows that no library has by one name: functions for `dpplan trace`.

planner/studies/data/images has what it writes; needs timm, torchvision and diffusers.
"""

from __future__ import annotations

from typing import Any

import timm
import torch
import torchvision
from diffusers import DiTTransformer2DModel, FluxTransformer2DModel, UNet2DConditionModel
from torch import nn
from torchvision.models.detection.backbone_utils import _resnet_fpn_extractor
from torchvision.models.detection.retinanet import RetinaNetHead
from torchvision.ops import FrozenBatchNorm2d
from torchvision.ops.feature_pyramid_network import LastLevelP6P7


class Detector(nn.Module):
    """RetinaNet without its anchors and loss, which depend on what is in an image."""

    def __init__(self, backbone: str, classes: int, trained_layers: int = 3) -> None:
        super().__init__()
        body = getattr(torchvision.models, backbone)(weights=None, norm_layer=FrozenBatchNorm2d)
        self.body = _resnet_fpn_extractor(
            body, trained_layers, returned_layers=[2, 3, 4], extra_blocks=LastLevelP6P7(256, 256)
        )
        self.head = RetinaNetHead(256, 9, classes)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(self.head([*self.body(x).values()]).values())


def _images(module: nn.Module, side: int) -> tuple[nn.Module, tuple[torch.Tensor]]:
    return module, (torch.zeros(1, 3, side, side),)


def retinanet_mlperf() -> Any:
    """MLPerf's RetinaNet: 264 classes of OpenImages."""
    return _images(Detector("resnext50_32x4d", 264), 800)


def efficientnet_b4_380() -> Any:
    return _images(timm.create_model("efficientnet_b4"), 380)


def efficientnet_v2_s_300() -> Any:
    return _images(torchvision.models.efficientnet_v2_s(), 300)


def mobilenet_v2() -> Any:
    return _images(torchvision.models.mobilenet_v2(), 224)


def _stable_diffusion(side: int) -> Any:
    """The UNet of Stable Diffusion 2 base, on latents."""
    module = UNet2DConditionModel(
        sample_size=side,
        in_channels=4,
        out_channels=4,
        cross_attention_dim=1024,
        attention_head_dim=[5, 10, 20, 20],
        use_linear_projection=True,
    )
    return module, {
        "sample": torch.zeros(1, 4, side, side),
        "timestep": torch.zeros(1, dtype=torch.long),
        "encoder_hidden_states": torch.zeros(1, 77, 1024),
    }


def sd2_256() -> Any:
    return _stable_diffusion(32)


def sd2_512() -> Any:
    return _stable_diffusion(64)


def dit_xl_2() -> Any:
    """DiT-XL/2 on latents of 256 pixels."""
    module = DiTTransformer2DModel(
        num_attention_heads=16,
        attention_head_dim=72,
        in_channels=4,
        out_channels=8,
        num_layers=28,
        sample_size=32,
        patch_size=2,
        num_embeds_ada_norm=1000,
        attention_bias=True,
        activation_fn="gelu-approximate",
        norm_type="ada_norm_zero",
        norm_elementwise_affine=False,
    )
    return module, {
        "hidden_states": torch.zeros(1, 4, 32, 32),
        "timestep": torch.zeros(1, dtype=torch.long),
        "class_labels": torch.zeros(1, dtype=torch.long),
    }


def flux_256(batch: int = 1) -> Any:
    """FLUX.1-schnell on latents of 256 pixels and 256 words, as MLPerf Training 5.1 has it."""
    words, tokens = 256, 256
    return FluxTransformer2DModel(guidance_embeds=False), {
        "hidden_states": torch.zeros(batch, tokens, 64),
        "encoder_hidden_states": torch.zeros(batch, words, 4096),
        "pooled_projections": torch.zeros(batch, 768),
        "timestep": torch.zeros(batch),
        "img_ids": torch.zeros(tokens, 3),
        "txt_ids": torch.zeros(words, 3),
    }
