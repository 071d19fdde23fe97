"""Keys of a config.json that change neither a tensor nor an operation counted here."""

from __future__ import annotations

import re

# Keys that change neither a tensor nor an operation: origin, numerics, generation, storage, other
# heads.
_HARMLESS = frozenset(
    {
        "_name_or_path",
        "auto_map",
        "transformers_version",
        "unsloth_fixed",
        "unsloth_version",
        "tokenizer_class",
        "tokenizer_name",
        "torch_dtype",
        "dtype",
        "use_bfloat16",
        "attn_implementation",
        "_attn_implementation",
        "_attn_implementation_autoset",
        "_flash_attn_2_enabled",
        "use_cache",
        "tie_encoder_decoder",
        "cache_implementation",
        "gradient_checkpointing",
        "torchscript",
        "tf_legacy_loss",
        "return_dict",
        "output_attentions",
        "output_hidden_states",
        "chunk_size_feed_forward",
        "is_decoder",
        "remove_invalid_values",
        "pretraining_tp",
        "bad_words_ids",
        "initializer_range",
        "init_std",
        "rms_norm_eps",
        "layer_norm_eps",
        "layer_norm_epsilon",
        "norm_eps",
        "id2label",
        "label2id",
        "num_labels",
        "problem_type",
        "finetuning_task",
        "task_specific_params",
        "classifier_dropout",
        "prefix",
        "max_length",
        "min_length",
        "do_sample",
        "early_stopping",
        "num_beams",
        "num_beam_groups",
        "diversity_penalty",
        "temperature",
        "top_k",
        "top_p",
        "typical_p",
        "repetition_penalty",
        "length_penalty",
        "no_repeat_ngram_size",
        "encoder_no_repeat_ngram_size",
        "num_return_sequences",
        "output_scores",
        "return_dict_in_generate",
        "suppress_tokens",
        "begin_suppress_tokens",
        "exponential_decay_length_penalty",
        "max_sequence_length",
    }
)

# The same for types of the table, by what their names say: scales and constants inside an
# operation, starting values, losses, routing that moves no weight, caches, rotary settings,
# generation.
_NUMERIC = re.compile(
    r"""
    .*_(multipliers?|coefs?|std|eps|epsilon|scaling|scaling_factor|softcapping|soft_cap|token_id
      |dropout|pdrop|dropout_prob|jitter_noise|lower_bound|enabled|interleaved?|overlap|coefficient)
    | .*rope_.* | .*rotary_.* | (initializer|init|time_step|summary|swiglu|lambda_std|kda|mtp)_.*
    | (linear|full|mlp)_.*(alpha|beta)_factor | linear_(a_log|dt)_.* | .*dt_(min|max|limit).*
    | (logit|logits|embedding|route|router|attention|attn|floor|res|q|moe)_.*(scale|scaling|factor)
    | scale_(emb|depth|embedding|attn_.*) | query_pre_attn_scalar | attn_temperature_tuning
    | output_router_logits | norm_topk_prob | moe_renormalize | moe_norm_min | topk_method
    | scoring_func | moe_router_.* | expert_selection_fn | shared_expert_combination_strategy
    | num_logits_to_keep | use_(mambapy|falcon_mambapy|associative_scan|mamba_kernels)
    | use_(expert_bias|routing_bias|mtp|mla|cache|mem_eff_path) | residual_in_fp32
    | rescale_(prenorm_residual|every) | enable_moe_fp32_combine | mamba_norm_before_gate
    | mamba_ssm_(cache_)?dtype | mamba_hidden_act | hidden_mamba_act | num_(mtp|nextn)_.*
    | clip_qkv | n_ctx | layerdrop | reorder_and_upcast_attn | .*softmax_in_fp32 | attention_layers
    | (final_)?w_init_variance_scale | keep_window_size | classifier_activation | pad_.* | ep_size
    | seq_aux | mla_use_nope | moe_apply_.* | quantization_config | expert_dtype
    | dim_model_base | attention_value_scale
    | index_(share|skip|topk_(freq|pattern)|rope).*
    | (full_attention|global_attn)_.*(interval|layers)
    | (_)?sliding_window_pattern | first_k_dense_replace | max_window_layers | bias_update_.*
    """,
    re.VERBOSE,
)


_LONGEST = 100  # characters of a key that is looked at


def is_harmless(key: str) -> bool:
    """Whether a key changes nothing for any type."""
    return key in _HARMLESS or key.endswith("_token_id")


def is_numeric(key: str) -> bool:
    """Whether the name of a key of a type of the table says that it changes nothing."""
    return len(key) <= _LONGEST and _NUMERIC.fullmatch(key) is not None
