"""From kinds and parts to the fields of a ModelSpec: every layer in words, repeated ones as one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

Part = dict[str, Any]
Blocks = list[list[Part]]

_PERIOD = 64  # layers after which a pattern is looked for to repeat
_PREFIX = 16  # layers before it that may be others
_SUFFIX = 2  # and after it


def stacked(layers: Sequence[Blocks]) -> dict[str, Any]:
    """Parts by name and the stack of layers made of them.

    A layer is a list of blocks, a block a list of parts that read the same input. Parts that are
    alike are one; those of one type that differ are numbered.
    """
    names: dict[str, str] = {}
    taken: dict[str, int] = {}
    parts: list[Part] = []

    def named(part: Part) -> str:
        body = {key: value for key, value in part.items() if value is not None}
        key = repr(sorted(body.items(), key=lambda item: item[0]))
        if key not in names:
            base = str(body.pop("name", body["type"]))
            taken[base] = taken.get(base, 0) + 1
            names[key] = base if taken[base] == 1 else f"{base}-{taken[base]}"
            parts.append({**body, "name": names[key]})
        return names[key]

    words = [" + ".join(" & ".join(map(named, block)) for block in layer) for layer in layers]
    return {"parts": parts, "stack": _repeats(words)}


def _repeats(words: list[str]) -> list[dict[str, Any]]:
    """The shortest way to say the words: a few first ones, a pattern that repeats, and a few last
    ones, which may differ by what only they have."""
    if (found := _pattern(words)) is not None:
        first, period = found
        return [*_runs(words[:first]), {"layers": words[first : first + period]}]
    for last in range(1, min(_SUFFIX, len(words) - 1) + 1):
        if (found := _pattern(words[:-last])) is not None:
            first, period = found
            times = (len(words) - last - first) // period
            rest = words[first + times * period :]
            layers = words[first : first + period]
            return [*_runs(words[:first]), {"layers": layers, "times": times}, *_runs(rest)]
    return _runs(words)


def _pattern(words: list[str]) -> tuple[int, int] | None:
    """Where a pattern begins that repeats to the end, and its length."""
    n = len(words)
    for first in range(min(_PREFIX, n)):
        rest = words[first:]
        for period in range(1, min(_PERIOD, len(rest) // 2) + 1):
            if rest[period:] == rest[:-period]:
                return first, period
    return None


def _runs(words: list[str]) -> list[dict[str, Any]]:
    """Consecutive layers that are alike, as one entry each."""
    runs: list[tuple[str, int]] = []
    for word in words:
        if runs and runs[-1][0] == word:
            runs[-1] = (word, runs[-1][1] + 1)
        else:
            runs.append((word, 1))
    return [{"layers": [word], "times": times} for word, times in runs]


_PLAIN = {
    "attention": {
        *("type", "name", "heads", "kv_heads", "head_dim", "qk_norm", "bias_qkv", "bias_out"),
        *("window", "rotary"),
    },
    "mlp": {"type", "name", "ffn_hidden", "gated", "activation", "bias"},
}


def flattened(shape: dict[str, Any]) -> dict[str, Any]:
    """The same model as a plain decoder, where all its layers are one attention and one MLP that
    the flat fields express; else as it is."""
    parts = {part["type"]: part for part in shape["parts"]}
    words = {word for repeat in shape["stack"] for word in repeat["layers"]}
    if len(shape["parts"]) != len(parts) or set(parts) != set(_PLAIN) or len(words) != 1:
        return shape
    if any(_said(parts[name]) - known for name, known in _PLAIN.items()):
        return shape
    attention, mlp = parts["attention"], parts["mlp"]
    parallel = "&" in words.pop()
    norms = shape["norms_per_block"] * (1 if parallel else len(_PLAIN))
    if not norms or attention["rotary"] != (shape["positions"] == "rotary"):
        return shape
    flat = {key: shape[key] for key in shape if key not in ("parts", "stack", "norms_per_block")}
    return {
        **flat,
        **{key: attention[key] for key in ("heads", "kv_heads", "head_dim", "qk_norm", "bias_qkv")},
        "bias_attention_out": attention["bias_out"],
        "attention_window": attention.get("window"),
        "ffn_hidden": mlp["ffn_hidden"],
        "mlp": "gated" if mlp["gated"] else "plain",
        "activation": mlp["activation"],
        "bias_mlp": mlp["bias"],
        "norms_per_layer": norms,
        "parallel_block": parallel,
    }


def _said(part: Part) -> set[str]:
    """Fields that say something: those that are off or as in any decoder do not."""
    return {key for key, value in part.items() if value not in (None, False, "none", "causal")}
