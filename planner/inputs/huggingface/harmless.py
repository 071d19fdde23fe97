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
# generation. No pattern may match a key that shapes a tensor: `python benchmarks/hf_types.py
# perturb` changes every key of the types' classes.
_NUMERIC = re.compile(
    r"""
    .*_(coefs?|coefficient|std|eps|epsilon|scaling_factor|softcapping|soft_cap|token_id
      |dropout|pdrop|dropout_prob|jitter_noise|lower_bound)
    | (attention_(in_|out_)?|ssm_(in_|out_)?|embedding_|key_|lm_head_|mlp_|residual_)multipliers?
    | .*rope_(?!.*dim).* | .*rotary_.* | rotary | mrope_interleaved | mup_enabled
    | (initializer|init|summary|swiglu)_.* | lambda_std_dev | kda_(lower_bound|safe_gate)
    | time_step_(?!rank).* | (linear|full)_attn_(alpha|beta)_factor | mlp_(alpha|beta)_factor
    | linear_(a_log|dt)_.* | .*dt_(min|max|limit)
    | (logits?|embedding|routed?|router|attention|attn|floor)_(scale|scaling|scaling_factor)
    | (q|res)_scale
    | scale_(emb|depth|embedding|attn_.*|attention_softmax_in_fp32) | query_pre_attn_scalar
    | attn_temperature_tuning | output_router_logits | norm_topk_prob | moe_renormalize
    | moe_norm_min | topk_method | scoring_func | moe_router_.*(dtype|softcapping|score_func.*)
    | expert_selection_fn | shared_expert_combination_strategy | moe_shared_expert_overlap
    | num_logits_to_keep | use_(mambapy|falcon_mambapy|associative_scan|mamba_kernels)
    | use_(expert_bias|routing_bias|cache|mem_eff_path) | residual_in_fp32
    | rescale_(prenorm_residual|every) | enable_moe_fp32_combine | mamba_norm_before_gate
    | mamba_ssm_(cache_)?dtype | mamba_hidden_act | hidden_mamba_act
    | clip_qkv | n_ctx | layerdrop | reorder_and_upcast_attn | .*softmax_in_fp32
    | w_init_variance_scale | final_w_init_variance_scale | keep_window_size
    | classifier_activation | ep_size | seq_aux | mla_use_nope | quantization_config | expert_dtype
    | moe_apply_router_weight_on_input | dim_model_base | attention_value_scale | bias_update_.*
    | aux_loss_alpha | hc_sinkhorn_iters | for_llm_compressor | use_grouped_mm
    """,
    re.VERBOSE,
)

# Modules that predict further tokens, which transformers leaves out and the planner does not count.
_FURTHER = re.compile(r"mtp_.* | num_(mtp|nextn)_.* | use_mtp | index_share_for_mtp_.*", re.VERBOSE)

# Rules of an order of layers, which say nothing where the file lists the layers.
_ORDER = re.compile(
    r"""
    full_attention_interval | global_attn_every_n_layers | _?sliding_window_pattern
    | max_window_layers | attention_layers | no_rope_layers?.*
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


def is_further(key: str) -> bool:
    """Whether a key is about modules that predict further tokens."""
    return len(key) <= _LONGEST and _FURTHER.fullmatch(key) is not None


def is_order(key: str) -> bool:
    """Whether a key says by a rule what kind the layers are of."""
    return len(key) <= _LONGEST and _ORDER.fullmatch(key) is not None
