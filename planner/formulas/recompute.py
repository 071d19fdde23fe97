"""What recompute repeats, and what it leaves of the activations."""

from __future__ import annotations

from planner.ledger import Array, formula


@formula(
    unit="s",
    equation="r F + M",
    source=(
        "recompute repeats forward inside backward, collectives included: Korthikanti et al. 2022"
        " (arXiv 2205.05198) section 5; modules alone: Megatron-Core, recompute_modules of"
        " megatron/core/transformer/transformer_config.py; results that are kept: MaxText,"
        " get_remat_policy of layers/decoders.py"
    ),
)
def repeated_s(share: Array, layer_s: Array, alone_s: Array) -> Array:
    """Time that backward of a mean layer gains: a share r of the layers is repeated (F, without the
    results that they keep), and modules of layers are repeated alone (M)."""
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
    """What layers of a kind keep for backward beside the inputs of those that are repeated: n keep
    all (A) but what modules free that are repeated alone (S), r some results alone (K)."""
    return layers * (whole_bytes - freed_bytes) + repeated * results_bytes
