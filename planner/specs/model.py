"""What is trained: the shape of a model, as the counts and kernels see it.

A decoder whose layers are alike but for windows and experts is written flat: heads, widths, one
table for latent attention and one for experts. Any other is a stack of layers made of parts
(specs.parts); `specs.layers` gives the layers of both.
"""

from typing import Literal, Self

from pydantic import Field, model_validator

from planner.specs.base import Names
from planner.specs.layers import check, layers_of, of_samples, parts_of
from planner.specs.parts import Convolution, LatentAttention, Moe
from planner.specs.parts.base import MAX_POSITIONS, MaybeWidth
from planner.specs.published import Published
from planner.specs.shape import Experts, Shape

__all__ = ["MAX_POSITIONS", "NAMING", "Experts", "LatentAttention", "ModelSpec"]

FLAT = ("heads", "kv_heads", "head_dim", "ffn_hidden")  # what a plain decoder has to state
NAMING = {
    "aliases",
    "hub",
    "published",
    "sample",
    "joint",
    "holds",
}  # fields that are no shape but of the one that was trained


class ModelSpec(Shape):
    """A model. Widths are counts of elements; without a stack all layers share one attention
    shape."""

    name: str = Field(min_length=1, max_length=200)
    title: str = ""
    aliases: Names = ()
    hub: Names = ()  # ids of the same shape on the Hugging Face Hub
    source: str = ""
    sample: Literal["", "image", "pair"] = ""  # what it is trained on, where that is no text

    vocab: int = Field(ge=0, le=10_000_000)  # 0: neither a table of words nor a head of them
    pixels: int | None = Field(default=None, ge=1, le=100_000)  # of a side of a token of an image
    max_positions: int = Field(
        default=2048, ge=1, le=MAX_POSITIONS
    )  # tokens of context that it reads, before extension by rotary scaling

    norm: Literal["layernorm", "rmsnorm"] = "rmsnorm"
    norm_bias: bool = False
    norm_weight: bool = True  # False: nothing of a layer's norms is trained (adaLN)
    embedding_norm: bool = False
    final_norm: bool = True
    position_rows: int | None = Field(
        default=None, ge=1, le=MAX_POSITIONS
    )  # rows of a learned table, when not max_positions (OPT: +2)
    tied_embeddings: bool = False
    # width of what is made of a sample twice (image and text), whose products with that of every
    # other sample of the batch are the logits
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
    # what its published code does in training: it keeps keys and values of all layers until the
    # loss (use_cache), or hands logits to it in the type of its weights
    holds: tuple[Literal["cache", "narrow logits"], ...] = Field(default=(), strict=False)
    published: Published = Field(default_factory=Published)  # how its authors trained it

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if not self.stack:
            missing = [name for name in FLAT if not getattr(self, name)]
            if missing:
                raise ValueError(
                    f"{missing[0]} is needed: a model without a stack is a plain decoder"
                )
            if self.parts or self.towers:
                what = "parts" if self.parts else "towers"
                raise ValueError(
                    f"{what} are of a stack: add [[stack]] with the layers made of them"
                )
        if self.kv_heads and self.heads % self.kv_heads:
            raise ValueError(f"heads {self.heads} must be a multiple of kv_heads {self.kv_heads}")
        if self.moe and self.moe.dense_layers > self.layers:
            raise ValueError(f"dense_layers {self.moe.dense_layers} exceeds layers {self.layers}")
        if self.latent and (self.bias_qkv or self.qk_norm != "none"):
            raise ValueError("latent attention has no bias_qkv and no qk_norm; leave them out")
        if self.outputs and (self.tied_embeddings or not self.vocab):
            raise ValueError("outputs are of a head of its own beside words; leave them out")
        if not self.vocab and not self.sample:
            raise ValueError("vocab 0 is of models of images, which name their sample; give it")
        check(self)
        return self

    def __hash__(self) -> int:
        """Of a few fields: what is made of a model is looked up thousands of times."""
        return hash((self.name, self.layers, self.hidden, self.vocab))

    @property
    def routed(self) -> Moe | None:
        """The experts of its layers."""
        found = (part for part, _ in parts_of(self) if isinstance(part, Moe))
        return next(found, None)

    @property
    def moe_layers(self) -> int:
        """Number of layers with experts."""
        return sum(count for part, count in parts_of(self) if isinstance(part, Moe))

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
        parts = (part for kind in layers.order for part in layers.kinds[kind].parts)
        return [part for part in parts if isinstance(part, Convolution)]

    @property
    def samples(self) -> str:
        """What a batch counts, in words."""
        plain = "sample" if of_samples(self) else "sequence"
        return f"{self.sample or plain}s"

    @property
    def mlp_inputs(self) -> int:
        """Matrices of an MLP that read its input: up and gate, or up alone."""
        return 2 if self.mlp == "gated" else 1

    @property
    def padded_vocab(self) -> int:
        """Vocabulary after the model's own padding."""
        return -(-self.vocab // self.vocab_multiple) * self.vocab_multiple

    @property
    def head_rows(self) -> int:
        """Rows of the head: the padded vocabulary, or its outputs where it predicts no words."""
        return self.outputs or self.padded_vocab
