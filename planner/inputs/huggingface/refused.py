"""Types that are not read: which of their parts are not modelled, and the fields of the file that a
model TOML can start from."""

from __future__ import annotations

import difflib
from collections.abc import Collection
from typing import Any

from planner.inputs.huggingface.document import Document
from planner.inputs.huggingface.harmless import missing
from planner.inputs.huggingface.source import EXPERTS, FFN, HEADS, HIDDEN, LAYERS, MAX_LAYERS

_SEQ2SEQ = "a decoder whose layers attend to an encoder, and the encoder"
_FILLED = (("layers", LAYERS), ("hidden", HIDDEN), ("heads", HEADS), ("ffn_hidden", FFN))

# keys that ask for a part, whatever the type
_ASKED = {
    "latent": ("kv_lora_rank",),
    "moe": EXPERTS,
    "mamba2": ("mamba_n_heads", "mamba_num_heads", "mamba_d_state", "ssm_state_size"),
    "gated_delta": ("linear_num_value_heads",),
    "kimi_delta": ("linear_attn_config",),
    "lightning": ("attn_type_list",),
    "short_conv": ("conv_L_cache",),
    "hyper": ("hc_mult",),
    "cross_attention": ("cross_attention_layers",),
}


def lacks_parts(family: object) -> bool:
    """Whether a type is a decoder that only parts are missing for, which are named."""
    return isinstance(family, str) and missing().get(family, _SEQ2SEQ) != _SEQ2SEQ


def sentence(doc: Document, family: object, known: Collection[str]) -> str:
    """Why a type is not read and what to do, as the rest of a sentence."""
    start = _start(doc)
    code = "is its own code (auto_map), which is not run; " if doc.data.get("auto_map") else ""
    if family is None:
        return f"is missing; {len(known)} types are known, such as llama; {start}"
    name = str(family)[:100]
    if why := missing().get(name):
        return f"is not read: missing here is {why}; {start}"
    close = difflib.get_close_matches(name.lower(), sorted(known), n=3, cutoff=0.6)
    near = f"did you mean {', '.join(close)}? " if close else ""
    return (
        f"unknown; {near}{code}{len(known)} types are known (docs/mechanisms/model-types.md), and"
        f" this is not one of them: its attention and MLP are not guessed; {start}"
    )


def _start(doc: Document) -> str:
    """The beginning of a model TOML, from the keys that most files share."""
    start: dict[str, Any] = {}
    for ours, names in (*_FILLED, ("vocab", ("vocab_size",))):
        value = next((doc.data[name] for name in names if name in doc.data), None)
        if isinstance(value, int) and not isinstance(value, bool) and 0 < value <= 10**7:
            start[ours] = value
    if start.get("layers", 0) > MAX_LAYERS:
        del start["layers"]
    filled = ", ".join(f"{key} = {value}" for key, value in start.items())
    begun = f" that begins with {filled}" if filled else ""
    wanted = [part for part, names in _ASKED.items() if any(map(doc.data.get, names))]
    parts = f" and has parts of type {', '.join(wanted)}" if wanted else ""
    return (
        "count it by its own code, dpplan trace config.json --out model.toml (docs/trace.md), or"
        f" write its layers as a model TOML{begun}{parts} (docs/extending: parts and stack)"
    )
