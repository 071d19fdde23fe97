"""The kind of each layer: as the file lists them, else by the rule of the type's class in
transformers."""

from __future__ import annotations

from collections.abc import Callable

from planner.inputs.huggingface.source import EXPERTS, MAX_LAYERS, Source

FULL, SLIDING, LINEAR, CHUNKED = (
    "full_attention",
    "sliding_attention",
    "linear_attention",
    "chunked_attention",
)
Kinds = Callable[[Source], list[str]]
Sparse = Callable[[Source], list[bool]]

# words of earlier releases
SYNONYMS = {
    "deepseek_sparse_attention": "indexed_attention",
    "attention": FULL,
    "global": FULL,
    "local": SLIDING,
    "mamba": LINEAR,
    "recurrent": "recurrent",
    "mamba2": LINEAR,
}


def same(kind: str = FULL) -> Kinds:
    """All layers alike."""
    return lambda s: [kind] * s.layers


def full(s: Source) -> list[str]:
    """Full attention in all layers."""
    return [FULL] * s.layers


def every(step: int | str, often: str = SLIDING, rare: str = FULL, default: int = 4) -> Kinds:
    """The last layer of each period has the rare kind; a key may state the period."""

    def rule(s: Source) -> list[str]:
        n = step if isinstance(step, int) else s.doc.optional_count(step, minimum=0)
        n = default if n is None else n
        return [rare if n and (i + 1) % n == 0 else often for i in range(s.layers)]

    return rule


def first_of(step: int, rare: str = FULL, often: str = SLIDING) -> Kinds:
    """The first layer of each period has the rare kind."""
    return lambda s: [often if i % step else rare for i in range(s.layers)]


def when(rule: Callable[[int, int], bool], yes: str = FULL, no: str = SLIDING) -> Kinds:
    """Kinds by a rule on the index of a layer and the number of layers."""
    return lambda s: [yes if rule(i, s.layers) else no for i in range(s.layers)]


def last_full(kinds: list[str]) -> list[str]:
    """Gemma 4: the last layer attends to all, whatever is listed."""
    return [*kinds[:-1], FULL]


def late_windows(s: Source) -> list[str]:
    """Qwen: windows from a layer on, where they are used at all."""
    used = "use_sliding_window" not in s.doc.data or s.flag("use_sliding_window")
    first = s.doc.count("max_window_layers", minimum=0)
    windowed = used and s.window is not None
    return [SLIDING if windowed and i >= first else FULL for i in range(s.layers)]


def windowed_if_stated(s: Source) -> list[str]:
    """All layers have the window, where there is one."""
    return [SLIDING if s.window else FULL] * s.layers


def exaone(s: Source) -> list[str]:
    """EXAONE 4: a window in all but every n-th layer, where there is one."""
    if s.window is None:
        return [FULL] * s.layers
    return every("sliding_window_pattern")(s)


def chunks(s: Source) -> list[str]:
    """Llama 4: layers with rotary positions attend in chunks."""
    listed = s.doc.listed("no_rope_layers", int, None)
    step = s.doc.count("no_rope_layer_interval", default=4)
    rotary = listed or [int((i + 1) % step != 0) for i in range(s.layers)]
    if len(rotary) != s.layers:
        raise s.error("no_rope_layers", f"must list one per layer, {s.layers} in all")
    return [CHUNKED if rotates else FULL for rotates in rotary]


def unrotated(s: Source) -> list[str]:
    """SmolLM3: only the layers without rotary positions have a window, if any."""
    s.doc.ignore("no_rope_layers", "no_rope_layer_interval")
    if not s.flag("use_sliding_window") or s.window is None:
        return [FULL] * s.layers
    return [SLIDING if kind == FULL else FULL for kind in chunks(s)]


def listed_places(key: str, at: str, others: str, default: tuple[int, ...] = ()) -> Kinds:
    """One kind at the places that a key lists."""

    def rule(s: Source) -> list[str]:
        places = set(s.doc.listed(key, int) or default)
        return [at if i in places else others for i in range(s.layers)]

    return rule


def lfm2(s: Source) -> list[str]:
    if s.value("full_attn_idxs") is None:
        return [FULL] * s.layers
    return listed_places("full_attn_idxs", FULL, "conv")(s)


def jamba(s: Source) -> list[str]:
    period = s.doc.count("attn_layer_period")
    offset = s.doc.count("attn_layer_offset", minimum=0)
    return [FULL if i % period == offset else LINEAR for i in range(s.layers)]


def zamba(s: Source) -> list[str]:
    period = s.doc.count("attn_layer_period")
    offset = s.doc.count("attn_layer_offset", minimum=0)
    rest = [i % period == offset for i in range(max(s.layers - 3, 0))]
    return [LINEAR, LINEAR, "hybrid", *("hybrid" if hybrid else LINEAR for hybrid in rest)][
        : s.layers
    ]


def zamba2(s: Source) -> list[str]:
    six = [*[LINEAR] * 5, "hybrid"]
    tail = [*[LINEAR] * 4, "hybrid", *[LINEAR] * 3, "hybrid", LINEAR, LINEAR]
    return [LINEAR, *six * 7, *tail]


def griffin(s: Source) -> list[str]:
    pattern = s.doc.listed("block_types", str) or []
    if not pattern:
        raise s.error("block_types", "must list the kinds of the layers that repeat")
    return (pattern * (s.layers // len(pattern) + 1))[: s.layers]


def gpt_neo(s: Source) -> list[str]:
    """Pairs of a pattern and how often it repeats."""
    given = s.value("attention_types") or [[["global", "local"], 12]]
    s.doc.ignore("attention_layers")
    out: list[str] = []
    for pair in given if isinstance(given, list) else [given]:
        if not (
            isinstance(pair, list)
            and [type(kind) for kind in pair] == [list, int]
            and 0 < len(pair[0]) * pair[1] <= MAX_LAYERS
        ):
            raise s.error("attention_types", "must be pairs of a list of kinds and a number")
        out += pair[0] * pair[1]
    if len(out) != s.layers:
        raise s.error("attention_types", f"makes {len(out)} layers, but there are {s.layers}")
    return [str(kind) for kind in out]


def kimi(s: Source) -> list[str]:
    """Kimi Linear: layers by number in linear_attn_config, from 1; else every fourth is full."""
    table = s.doc.part("linear_attn_config")
    full, kda = table.listed("full_attn_layers", int), table.listed("kda_layers", int)
    if full is None or kda is None:
        return [FULL if i and i % 4 == 0 else LINEAR for i in range(s.layers)]
    if sorted({*full, *kda}) != list(range(1, s.layers + 1)):
        raise table.error("full_attn_layers", f"must name, with kda_layers, layers 1 to {s.layers}")
    return [FULL if i + 1 in full else LINEAR for i in range(s.layers)]


def olmo_hybrid(s: Source) -> list[str]:
    kinds = every(4, LINEAR)(s)
    return kinds if FULL in kinds else [*kinds[:-1], FULL]


# --- which layers have experts ---


def all_sparse(s: Source) -> list[bool]:
    return [True] * s.layers


def dense_first(key: str = "first_k_dense_replace", default: int = 1, freq: str = "") -> Sparse:
    """The first layers have a dense MLP: by mlp_layer_types if given, else a number of layers."""

    def rule(s: Source) -> list[bool]:
        kinds = s.doc.listed("mlp_layer_types", str, s.layers)
        first = s.doc.optional_count(key, minimum=0)
        step = s.value(freq) if freq else None
        if kinds is not None:
            known = ("dense", "sparse", "moe", "hash_moe")
            for kind in kinds:
                if kind not in known:
                    raise s.error("mlp_layer_types", f"{kind!r:.40} not understood; known: {known}")
            return [kind != "dense" for kind in kinds]
        if isinstance(step, list):
            return [bool(routed) for routed in s.doc.listed(freq, int, s.layers) or ()]
        each = s.doc.count(freq, default=1) if freq else 1
        start = default if first is None else first
        if first is not None and first > s.layers:
            raise s.error(key, f"{first} exceeds the {s.layers} layers")
        return [i >= start and i % each == 0 for i in range(s.layers)]

    return rule


def qwen(s: Source) -> list[bool]:
    """Qwen: every step-th layer, except for those listed as dense."""
    step = s.doc.count("decoder_sparse_step", default=1)
    dense = set(s.doc.listed("mlp_only_layers", int) or ())
    return [i not in dense and (i + 1) % step == 0 for i in range(s.layers)]


def flint(s: Source) -> list[bool]:
    if s.value("mlp_only_layers") is None:
        return [i > 1 for i in range(s.layers)]
    return qwen(s)


def jamba_experts(s: Source) -> list[bool]:
    period = s.doc.count("expert_layer_period")
    offset = s.doc.count("expert_layer_offset", minimum=0)
    several = s.count(EXPERTS) > 1
    return [several and i % period == offset for i in range(s.layers)]


def llama4(s: Source) -> list[bool]:
    step = s.doc.count("interleave_moe_layer_step", default=1)
    listed = s.doc.listed("moe_layers", int)
    places = range(step - 1, s.layers, step) if listed is None else set(listed)
    return [i in places for i in range(s.layers)]


def ernie(s: Source) -> list[bool]:
    start = s.doc.count("moe_layer_start_index", minimum=0)
    end = s.doc.optional_count("moe_layer_end_index", minimum=-1)
    last = s.layers - 1 if end in (None, -1) else end
    step = s.doc.count("moe_layer_interval", default=1)
    assert last is not None
    return [start <= i <= last and (i + 1) % step == 0 for i in range(s.layers)]


def minimax_m3(s: Source) -> list[bool]:
    listed = s.doc.listed("moe_layer_freq", int, s.layers)
    if s.value("mlp_layer_types") is None and listed is not None:
        return [bool(routed) for routed in listed]
    return dense_first("", 0)(s)


def if_experts(s: Source) -> list[bool]:
    """Experts in all layers, where their number is above 0."""
    return [s.count(EXPERTS, minimum=0, default=0) > 0] * s.layers


def if_flag(key: str) -> Sparse:
    return lambda s: [s.flag(key)] * s.layers


def never(s: Source) -> list[bool]:
    return [False] * s.layers
