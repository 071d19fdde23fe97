"""A config.json read by the table of types: its sizes, under the names its class has for them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from planner.inputs.huggingface.document import Document

LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "decoder_layers", "num_blocks")
HIDDEN = ("hidden_size", "n_embd", "d_model", "emb_dim")
HEADS = (
    "num_attention_heads",
    "n_head",
    "n_heads",
    "num_heads",
    "attention_heads",
    "decoder_attention_heads",
)
HEAD_DIM = ("head_dim", "kv_channels", "attention_head_dim", "dim_head")
FFN = (
    "intermediate_size",
    "ffn_dim",
    "decoder_ffn_dim",
    "n_inner",
    "ffn_hidden_size",
    "dff",
    "dim_ff",
    "moe_intermediate_size",
)
POSITIONS = (
    "max_position_embeddings",
    "n_positions",
    "max_seq_len",
    "context_length",
    "model_max_length",
    "max_target_positions",
    "seq_length",
)
ACTIVATION = ("hidden_act", "hidden_activation", "activation_function", "mlp_hidden_act", "afn")
EXPERTS = ("n_routed_experts", "num_local_experts", "num_experts", "moe_num_experts")
CHOSEN = ("num_experts_per_tok", "moe_topk", "moe_k", "num_experts_per_token", "top_k_experts")
EXPERT_FFN = ("moe_intermediate_size", "expert_ffn_hidden_size", "intermediate_size")
SHARED = ("n_shared_experts", "num_shared_experts", "moe_num_shared_experts")
SHARED_FFN = (
    "moe_shared_expert_intermediate_size",
    "shared_expert_intermediate_size",
    "shared_experts_intermediate_size",
    "shared_intermediate_size",
)
GROUPS = ("n_group", "num_expert_group")
WINDOW = ("sliding_window", "attention_window_size", "sliding_window_size", "window_size")
KINDS = ("layer_types", "layers_block_type")

# keys whose parts a model may lack, so that nothing asks for them
SIZES = frozenset(
    {
        *HEADS,
        *HEAD_DIM,
        *FFN,
        *EXPERTS,
        *CHOSEN,
        *EXPERT_FFN,
        *SHARED,
        *SHARED_FFN,
        *GROUPS,
        *WINDOW,
        "num_key_value_heads",
        "topk_group",
        "sliding_window_pattern",
        "use_sliding_window",
        "max_window_layers",
        "qk_head_dim",
        "intermediate_size_mlp",
        "attention_chunk_size",
    }
)
MAX_LAYERS = 10_000
MAX_POSITIONS = 1_000_000_000
_WIDEST = 100  # of factors of a width
ACTIVATIONS = {
    **dict.fromkeys(
        ("gelu", "gelu_new", "gelu_fast", "gelu_python", "gelu_pytorch_tanh", "quick_gelu"), "gelu"
    ),
    **dict.fromkeys(("silu", "swish"), "silu"),
    "relu": "relu",
    "relu2": "relu2",
}


@dataclass(frozen=True)
class Source:
    """Sizes that nearly every type has, and the document for all other keys."""

    doc: Document
    layers: int
    hidden: int

    def count(self, names: tuple[str, ...], minimum: int = 1, default: int | None = None) -> int:
        """A whole number under whichever of the names the class has for it."""
        name = self.doc.first(names)
        if default is not None:
            value = self.doc.optional_count(name, minimum=minimum)
            return default if value is None else value
        return self.doc.count(name, minimum=minimum)

    def maybe(self, *names: str, minimum: int = 1) -> int | None:
        """A value for which null or absent has a meaning."""
        return self.doc.optional_count(self.doc.first(names), minimum=minimum)

    def flag(self, key: str) -> bool:
        """true or false; absent or null is false."""
        value = self.doc.get(key)
        if value is not None and not isinstance(value, bool):
            raise self.doc.error(key, "must be true or false")
        return bool(value)

    def on(self, flag: bool | str) -> bool:
        """A trait: always, never, or as a key says; "!key" is the opposite."""
        if isinstance(flag, bool):
            return flag
        return not self.flag(flag[1:]) if flag.startswith("!") else self.flag(flag)

    def factor(self, key: str) -> float:
        """A number above 0 that a width is multiplied with."""
        value = self.doc.get(key)
        known = isinstance(value, int | float) and not isinstance(value, bool)
        if not known or not 0 < value < _WIDEST:
            raise self.doc.error(key, f"must be a number above 0 and below {_WIDEST}")
        return float(value)

    @property
    def heads(self) -> int:
        return self.count(HEADS)

    @property
    def kv_heads(self) -> int:
        given = self.maybe("num_key_value_heads")
        if given is None and "num_key_value_heads" in self.doc.data:
            self.note(f"num_key_value_heads not given: {self.heads}, as num_attention_heads")
        return given or self.heads

    @property
    def head_dim(self) -> int:
        """Width of a head: as stated, else the hidden width divided evenly."""
        given, even = self.maybe(*HEAD_DIM), self.even(self.hidden, self.heads)
        if given is None and "head_dim" in self.doc.data:
            self.note(f"head_dim not given: {even}, hidden_size / num_attention_heads")
        return given or even

    def heads_divide(self) -> None:
        """Refuses a width that does not split evenly into heads whose own width is not stated."""
        if not self.maybe(*HEAD_DIM) and self.hidden % self.heads:
            raise self.error(self.doc.first(HEADS), f"must divide the width {self.hidden}")

    def even(self, width: int, by: int) -> int:
        """A width divided by heads, as transformers divides it: the rest is dropped."""
        if width < by:
            raise self.doc.error(self.doc.first(HEADS), f"must not exceed the width {width}")
        return width // by

    @property
    def ffn(self) -> int:
        """Width of the dense MLP; four times the hidden width where it is null."""
        stated, wide = self.maybe(*FFN), 4 * self.hidden
        if stated is None:
            self.note(f"{self.doc.first(FFN)} not given: {wide}, 4 x hidden width")
        return stated or wide

    @property
    def window(self) -> int | None:
        return self.doc.optional_count(self.doc.first(WINDOW), minimum=0, maximum=MAX_POSITIONS)

    def activation(self, also: Mapping[str, str]) -> str:
        """The activation of the MLP; also: words of the type's class beside the usual ones."""
        name = self.doc.first(ACTIVATION)
        if name not in self.doc.data:
            return "silu"
        return self.doc.word(name, {**ACTIVATIONS, **also}, "silu")

    def kinds(self) -> list[str] | None:
        """Kinds of the layers as the file lists them."""
        return self.doc.listed(self.doc.first(KINDS), str, self.layers)

    def note(self, text: str) -> None:
        """Something that was inferred."""
        if text not in self.doc.notes:
            self.doc.notes.append(text)

    def rates(self) -> list[str]:
        """Rates of dropout that are above zero."""
        harmless = ("classifier", "summary", "_last")
        rates = [key for key in self.doc.data if "dropout" in key or key.endswith("_pdrop")]
        used = [key for key in rates if not any(word in key for word in harmless)]
        return [key for key in used if (self.doc.rate(key) or 0) > 0]

    def error(self, key: str, remedy: str) -> Exception:
        return self.doc.error(key, remedy)

    def value(self, key: str) -> Any:
        return self.doc.get(key)
