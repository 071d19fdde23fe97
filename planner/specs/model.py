"""The model: layers made of parts, and the embedding, norms and head around them."""

from collections.abc import Iterable
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from planner.specs.base import Names
from planner.specs.decoder import FLAT, Experts, Positional, decoder_of, expanded
from planner.specs.layers import check, experts_of, layers_of, of_samples, parts_of
from planner.specs.parts import Attention, Convolution, Latent, LatentAttention, Mlp, Moe, Traced
from planner.specs.parts.base import MAX_POSITIONS, MaybeWidth
from planner.specs.published import Published
from planner.specs.shape import Shape

__all__ = ["MAX_POSITIONS", "NAMING", "Experts", "LatentAttention", "ModelSpec"]

# what the published code of a model does in training:
# - it keeps keys and values of all layers until the loss (use_cache)
# - it hands logits to the loss in the type of its weights
# - an RMSNorm multiplies by its weight in fp32 and casts after it
# - rotary embeddings rotate a part of a head, joined with the rest: queries and keys lie head by
#   head, and the output of attention is copied to lie token by token again
# - the activation function is a chain of operators (gelu_new)
# - scores in memory take a softmax in their own type
# - scores, or logits, are capped by a tanh
Held = Literal[
    "cache",
    "narrow logits",
    "wide norm",
    "joined rotary",
    "composed gelu",
    "narrow softmax",
    "capped scores",
    "capped logits",
]

NAMING = {
    "aliases",
    "hub",
    "published",
    "sample",
    "joint",
    "holds",
}  # fields that describe the published run, not the shape


class ModelSpec(Shape):
    """A model. Widths are counts of elements. A plain decoder may be stated flat (Decoder)."""

    name: str = Field(min_length=1, max_length=200)
    title: str = ""
    aliases: Names = ()
    hub: Names = ()  # ids of the same shape on the Hugging Face Hub
    source: str = ""
    sample: Literal["", "image", "pair", "clip", "sample"] = (
        ""  # training data, where it is not text
    )

    vocab: int = Field(ge=0, le=10_000_000)  # 0: neither a table of words nor a head of them
    pixels: int | None = Field(default=None, ge=1, le=100_000)  # of a side of a token of an image
    frames: int | None = Field(default=None, ge=1, le=1000)  # of a token of a clip, after the first
    # of an image of a sample that is text beside it
    image_tokens: int | None = Field(default=None, ge=0, le=MAX_POSITIONS)
    max_positions: int = Field(
        default=2048, ge=1, le=MAX_POSITIONS
    )  # tokens of context that it reads, before extension by rotary scaling

    norm: Literal["layernorm", "rmsnorm"] = "rmsnorm"
    norm_bias: bool = False
    norm_weight: bool = True  # False: norms have no trained weight (adaLN)
    embedding_norm: bool = False
    final_norm: bool = True
    positions: Positional = "rotary"
    position_rows: int | None = Field(
        default=None, ge=1, le=MAX_POSITIONS
    )  # rows of a learned table, when not max_positions (OPT: +2)
    tied_embeddings: bool = False
    # width of the two embeddings of a sample (image, text), whose products over the batch are the
    # logits
    contrast: int | None = MaybeWidth
    # rows of a head of its own that predicts no words: 1 of a reward model; None: the vocabulary
    outputs: int | None = MaybeWidth
    bias_head: bool = False
    dropout: bool = False  # whether the published recipe trains with dropout
    # of scores, of hidden elements (the embedding, what attention and MLP add), or of all
    dropout_of: Literal["all", "attention", "hidden"] = "all"

    vocab_multiple: int = Field(
        default=1, ge=1, le=1_000_000
    )  # the model's own padding of the vocabulary

    # matrices that its published code keeps as one each: an adapter of them is one, too
    joint: tuple[Literal["qkv", "gate"], ...] = Field(default=(), strict=False)
    holds: tuple[Held, ...] = Field(default=(), strict=False)  # what its published code does
    left_out: str = Field(default="", max_length=500)  # of what it was read from, as a sentence
    published: Published = Field(default_factory=Published)  # how its authors trained it

    @classmethod
    def stated_keys(cls) -> Iterable[str]:
        """Its fields, and the keys that state a plain decoder."""
        return (*cls.model_fields, *FLAT)

    @model_validator(mode="before")
    @classmethod
    def _read_flat(cls, data: Any) -> Any:
        """Keys that state a decoder flat become parts and a stack."""
        if not isinstance(data, dict):
            return data
        needed = [name for name, field in cls.model_fields.items() if field.is_required()]
        return expanded(data, needed, [*cls.model_fields])

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.outputs and (self.tied_embeddings or not self.vocab):
            raise ValueError("outputs need a head other than the vocabulary's; leave them out")
        if not self.vocab and not self.sample and not self.traced:
            raise ValueError("vocab 0 means a model of images, which needs a sample; give it")
        check(self)
        return self

    def __hash__(self) -> int:
        """Hash of a few fields: models are cache keys and are looked up thousands of times."""
        return hash((self.name, self.layers, self.hidden, self.vocab))

    @property
    def routed(self) -> Moe | None:
        """The experts of its layers."""
        return experts_of(self)[0]

    @property
    def attention(self) -> Attention | Latent | None:
        """The first attention by heads of its layers."""
        parts = (part for part, _ in parts_of(self))
        return next((part for part in parts if isinstance(part, Attention | Latent)), None)

    @property
    def mlp_part(self) -> Mlp | Moe | None:
        """The dense MLP of its layers, else their experts."""
        parts = (part for part, _ in parts_of(self))
        return next((part for part in parts if isinstance(part, Mlp)), self.routed)

    @property
    def gated(self) -> bool:
        """Whether its MLPs, if it has any, are gated."""
        return self.mlp_part is None or self.mlp_part.gated

    @property
    def moe_layers(self) -> int:
        """Number of layers with experts."""
        return experts_of(self)[1]

    @property
    def dense_layers(self) -> int:
        """Number of layers without experts."""
        return self.layers - self.moe_layers

    @property
    def expert_share(self) -> float:
        """Share of layers with experts."""
        return self.moe_layers / self.layers

    @property
    def convolutions(self) -> list[Convolution]:
        """Its convolutions, in the order of the forward pass."""
        layers = layers_of(self)
        of_kind = [[p for p in kind.parts if isinstance(p, Convolution)] for kind in layers.kinds]
        return [part for kind in layers.order for part in of_kind[kind]] if any(of_kind) else []

    @property
    def convolves(self) -> bool:
        """Whether it has convolutions over images."""
        traced = any(gemm.read is not None for part in self.traced for gemm in part.gemms)
        return traced or bool(self.convolutions)

    @property
    def traced(self) -> list[Traced]:
        """Its blocks that were counted while its own code ran."""
        return [part for part, _ in parts_of(self) if isinstance(part, Traced)]

    @property
    def samples(self) -> str:
        """Name of the unit of a batch: sequences, images."""
        plain = "sample" if of_samples(self) else "sequence"
        return f"{self.sample or plain}s"

    @property
    def padded_vocab(self) -> int:
        """Vocabulary after the model's own padding."""
        return -(-self.vocab // self.vocab_multiple) * self.vocab_multiple

    @property
    def head_rows(self) -> int:
        """Rows of the head: the padded vocabulary, or its outputs where it predicts no words."""
        return self.outputs or self.padded_vocab


def stated(model: ModelSpec, **dumped: Any) -> dict[str, Any]:
    """The keys of a model TOML that state it: flat where it is a plain decoder."""
    dumped_fields, plain = model.model_dump(mode="json", **dumped), decoder_of(model)
    if plain is None:
        # what tells parts apart is a default of each, too
        pairs = zip(model.parts, dumped_fields["parts"], strict=True)
        return dumped_fields | {"parts": [{"type": part.type, **fields} for part, fields in pairs]}
    layers = ("parts", "stack", "norms_per_block")
    flat = plain.model_dump(mode="json", include={*FLAT}, **dumped)
    return {name: value for name, value in dumped_fields.items() if name not in layers} | flat
