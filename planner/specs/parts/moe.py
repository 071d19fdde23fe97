"""A mixture of experts in place of the MLP: a router, routed experts, shared ones."""

from collections.abc import Iterator
from typing import Literal, Self

from pydantic import Field, model_validator

from planner.specs.base import Spec
from planner.specs.parts.base import (
    Kept,
    MaybeWidth,
    Part,
    Pieces,
    Product,
    Stream,
    Streamed,
    Tensor,
    Width,
    activated,
    replicated,
)
from planner.specs.parts.mlp import Activation


class Routing(Spec):
    """Experts and how tokens reach them."""

    experts: int = Field(ge=2, le=100_000)
    experts_per_token: int = Field(ge=1, le=100_000)
    ffn_hidden: int = Width  # width of one routed expert
    shared_ffn_hidden: int = Field(
        default=0, ge=0, le=10_000_000
    )  # total width of the shared experts
    shared_gate: bool = False  # a learned sigmoid gate on the shared expert (Qwen2-MoE)
    group_limit: int | None = Field(
        default=None, ge=1, le=100_000
    )  # nodes (groups) a token may reach, DeepSeek-V2/V3
    router_bias: bool = (
        False  # a trained one (gpt-oss); biases that balance loads are not parameters
    )
    zero_experts: int = Field(
        default=0, ge=0, le=100_000
    )  # experts that pass a token on unchanged, beside the others (LongCat)
    latent: int | None = MaybeWidth  # width that routed experts read and write, not hidden

    @model_validator(mode="after")
    def _few_enough(self) -> Self:
        if self.experts_per_token > self.experts + self.zero_experts:
            raise ValueError(
                f"experts_per_token {self.experts_per_token} exceeds experts {self.experts}"
            )
        return self


class Moe(Routing, Part):
    """The experts of a layer."""

    type: Literal["moe"] = "moe"
    gated: bool = True
    activation: Activation = "silu"
    clamped: bool = False  # what the activation reads is clamped first (gpt-oss)
    bias: bool = False

    mixes = False

    @property
    def inputs(self) -> int:
        """Matrices that read an expert's input: up and gate, or only up."""
        return 2 if self.gated else 1

    @property
    def per_token(self) -> float:
        """Experts that compute for a token, on average."""
        whole, some = self.active_frac[1], self.experts_per_token * self.experts
        return some / whole

    def read(self, hidden: int) -> int:
        """Width of what a routed expert reads and writes."""
        return self.latent or hidden

    @property
    def active_frac(self) -> tuple[int, int]:
        """Share of the routed experts' weights that a token uses; zero experts take their part."""
        return self.experts_per_token, self.experts + self.zero_experts

    def tensors(self, stream: Stream) -> Iterator[Tensor]:
        h, matrices = stream.hidden, self.inputs + 1
        read = self.read(h)
        yield Tensor("moe/router", h * (self.experts + self.zero_experts), "replicated")
        yield replicated("moe/router_bias", (self.experts + self.zero_experts) * self.router_bias)
        yield Tensor("moe/latent", 2 * h * (self.latent or 0), "replicated")
        sizes = (read * self.ffn_hidden,) * matrices
        yield Tensor(
            "moe/experts",
            self.experts * sum(sizes),
            "expert",
            active_frac=self.active_frac,
            sizes=sizes,
            join="gate",
            experts=self.experts,
        )
        bias_in, bias_out = self.inputs * self.bias, self.bias
        biases = self.experts * (bias_in * self.ffn_hidden + bias_out * read)
        yield Tensor("moe/experts_bias", biases, "expert", False, self.active_frac)
        sizes = (h * self.shared_ffn_hidden,) * matrices
        yield Tensor("moe/shared", sum(sizes), sizes=sizes, join="gate")
        if self.shared_ffn_hidden:
            yield Tensor("moe/shared_bias_in", bias_in * self.shared_ffn_hidden, matmul=False)
            yield replicated("moe/shared_bias_out", bias_out * h)
        yield Tensor("moe/shared_gate", h * self.shared_gate, "replicated")

    def products(self, stream: Stream) -> Iterator[Product]:
        h, f = stream.hidden, self.shared_ffn_hidden
        experts = Pieces(self.experts + self.zero_experts, 1)
        yield Product("router", h, experts, "none", low=False)
        if self.latent:
            yield Product("latent_in", h, Pieces(self.latent, 1), "none")
            yield Product("latent_out", self.latent, Pieces(h, 1), "none")
        if f:
            yield Product("shared_in", h, Pieces(f * self.inputs, f))
            yield Product("shared_out", f, Pieces(h, 1), "rows")
        if self.shared_gate:
            yield Product("shared_gate", h, Pieces(1, 1), "none", low=False)

    def streams(self, stream: Stream) -> tuple[Streamed, ...]:
        # the output of shared experts times a gate per token
        whole = Pieces(stream.hidden, 1)
        return (activated("moe/shared_gate", whole),) if self.shared_gate else ()

    def kept(self, stream: Stream) -> tuple[Kept, ...]:
        whole = Pieces(stream.hidden, 1)  # the output, for the gradient of its gate
        return (Kept("moe/shared_gate", whole),) if self.shared_gate else ()
