"""Time that recomputation adds, and activations that it leaves."""

from __future__ import annotations

from planner.ledger import Array, formula


@formula(
    unit="s",
    equation="r F + M",
    source=(
        "recompute repeats forward inside backward, collectives included: Korthikanti et al. 2022"
        " (arXiv 2205.05198) section 5; single modules: Megatron-Core, recompute_modules of"
        " megatron/core/transformer/transformer_config.py; results that are kept: MaxText,"
        " get_remat_policy of layers/decoders.py"
    ),
)
def repeated_s(share: Array, layer_s: Array, alone_s: Array) -> Array:
    """Time added to the backward pass of a mean layer: a share r of the layers is recomputed (F,
    without the results that they keep), elsewhere only some modules (M)."""
    return share * layer_s + alone_s


@formula(
    unit="B",
    equation="n (A - S) + r K",
    source=(
        "definition; what each module frees: Megatron-Core, transformer_layer.py,"
        " multi_latent_attention.py, moe/experts.py and moe/moe_layer.py of"
        " megatron/core/transformer"
    ),
)
def kept_bytes(
    layers: Array, whole_bytes: Array, freed_bytes: Array, repeated: Array, results_bytes: Array
) -> Array:
    """Activations that layers of a kind keep for backward, beside the inputs of recomputed ones: n
    layers keep all (A) except for modules recomputed by themselves (S), r layers keep only some
    results (K)."""
    return layers * (whole_bytes - freed_bytes) + repeated * results_bytes
