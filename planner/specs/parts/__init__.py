"""Parts of a layer, one file each: its shape, its tensors, its GEMMs and its core operators."""

from typing import Annotated

from pydantic import Field

from planner.specs.parts.attention import Attention
from planner.specs.parts.base import (
    Attended,
    Batched,
    Core,
    Part,
    Pieces,
    Product,
    Scan,
    Stream,
    Tensor,
)
from planner.specs.parts.compressed import Compressed
from planner.specs.parts.convolution import Convolution, Pooling
from planner.specs.parts.cross import CrossAttention
from planner.specs.parts.delta import GatedDelta
from planner.specs.parts.extra import Extra, Projection
from planner.specs.parts.hyper import HyperConnection
from planner.specs.parts.kda import KimiDelta
from planner.specs.parts.latent import Latent, LatentAttention, SparseIndex
from planner.specs.parts.layer_embedding import LayerEmbedding
from planner.specs.parts.lightning import Lightning
from planner.specs.parts.mamba import Mamba
from planner.specs.parts.mamba2 import Mamba2
from planner.specs.parts.mlp import ChannelMix, Mlp
from planner.specs.parts.mlstm import Mlstm
from planner.specs.parts.modulation import Modulation
from planner.specs.parts.moe import Moe, Routing
from planner.specs.parts.rg_lru import RgLru
from planner.specs.parts.rwkv import Rwkv
from planner.specs.parts.short_conv import ShortConv
from planner.specs.parts.traced import Traced, routed_of

__all__ = [
    "AnyPart",
    "Attended",
    "Attention",
    "Batched",
    "Convolution",
    "Core",
    "CrossAttention",
    "Latent",
    "LatentAttention",
    "LayerEmbedding",
    "Mlp",
    "Moe",
    "Part",
    "Pieces",
    "Product",
    "Routing",
    "Scan",
    "SparseIndex",
    "Stream",
    "Tensor",
    "Traced",
    "routed_of",
]

AnyPart = Annotated[
    Attention
    | ChannelMix
    | Compressed
    | Convolution
    | CrossAttention
    | Extra
    | Projection
    | GatedDelta
    | HyperConnection
    | KimiDelta
    | Latent
    | LayerEmbedding
    | Lightning
    | Mamba
    | Mamba2
    | Mlp
    | Mlstm
    | Modulation
    | Moe
    | Pooling
    | RgLru
    | Rwkv
    | ShortConv
    | Traced,
    Field(discriminator="type"),
]
