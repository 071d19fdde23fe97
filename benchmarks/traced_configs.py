"""Fields without which a configuration class of transformers builds what its model class cannot
run, and the public files that state them."""

from __future__ import annotations

from typing import Any

# google/gemma-3-4b-it: mlc-ai/mlc-llm, python/mlc_llm/model/gemma3/gemma3v_model.py
_SIGLIP = {"vision_config": {"image_size": 896, "patch_size": 14}}
# zai-org/GLM-4.1V-9B-Thinking: sophgo/LLM-TPU@a79a728, models/GLM4V/config/config.json
_GLM: dict[str, Any] = {
    "text_config": {"rope_parameters": {"rope_theta": 10000.0, "partial_rotary_factor": 0.5}}
}
_GLM["text_config"]["rope_parameters"] |= {"rope_type": "default", "mrope_section": [8, 12, 12]}
# ModernVBERT/modernvbert: vllm-project/vllm@029329a, transformers_utils/configs/colmodernvbert.py;
# the towers of HuggingFaceTB/SmolVLM are the same and its factor is 4
_IDEFICS = {"vision_config": {"image_size": 512, "patch_size": 16}}
# llava-hf/llava-v1.6-vicuna-7b-hf: images of five parts have 2,928 tokens; Vicuna reads 4,096
_VICUNA = {"text_config": {"model_type": "llama", "max_position_embeddings": 4096}}
# experts of which few are traced, each in a loop of Python; even shares, as of 12 from 512 + 256
_FEW = {"n_routed_experts": 8, "zero_expert_num": 4, "moe_topk": 3}
# names of an image's codes, as convert_img2bpe of modeling_chameleon.py reads them
_CODES = {"IMGIMG" + "".join(chr(65 + int(x)) for x in str(i)) + "Z": 4 + i for i in range(8192)}
_CODES["<image>"] = 8711
STATED: dict[str, dict[str, Any]] = {
    "gemma3": _SIGLIP,
    "shieldgemma2": _SIGLIP,
    "glm4v": _GLM,
    "glm46v": _GLM,
    "glmga": _GLM,
    "llava_next": _VICUNA,
    "llava_next_video": _VICUNA,
    "idefics3": {**_IDEFICS, "scale_factor": 4},
    "smolvlm": {**_IDEFICS, "scale_factor": 4},
    "modernvbert": _IDEFICS,
    "ultravbert": _IDEFICS,
    "llama4": {
        "vision_config": {
            "hidden_size": 1408,
            "image_size": 336,
            "patch_size": 14,
            "vision_output_dim": 4096,
        }
    },
    "gemma4": {"vision_config": {}},
    "gemma4_unified": {"vision_config": {}},
    "t5gemma2": {"encoder": _SIGLIP},
    "longcat_flash": _FEW,
    # 128 queries for 35 x 35 patches (AriaConfig of transformers), images of 490 (its processor)
    "aria": {"vision_config": {"image_size": 490, "patch_size": 14}},
    # images of DepthProImageProcessor; layers by number, of those that are left
    "depth_pro": {"image_size": 1536, "intermediate_hook_ids": [1, 0]},
    "timm_backbone": {"backbone": "resnet50"},  # the example of TimmBackboneConfig
    "mllama": {"vision_config": {"intermediate_layers_indices": [0, 1, 0, 1, 0]}},
    # layers by number, of those that are left
    "vipllava": {"vision_feature_layers": [-1, -2, -1, -2, 1]},
    "molmo2": {"adapter_config": {"vision_feature_layer": [-1, -2]}},
    # ibm-granite/granite-vision-4.1-4b: docling_mlx, test of granite_vision_engine
    "granite4_vision": {
        "deepstack_layer_map": [[-2, 1], [-1, 0]],
        "downsample_rate": "4/8",
        "spatial_target_layers": [0, 1, 0, 1],
        "vision_feature_select_strategy": "full",
        "vision_config": {"model_type": "siglip_vision_model", "image_size": 384, "patch_size": 16},
        "image_grid_pinpoints": [[384, 768], [768, 384], [768, 768]],
    },
    # Qwen2_5OmniThinkerConfig of transformers
    "qwen3_omni_moe_thinker": {
        "vision_start_token_id": 151652,
        "audio_start_token_id": 151647,
        # Qwen3-30B-A3B, whose shape it has
        "text_config": {"num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128},
    },
    # tencent/HunyuanOCR: candle and ncnn ports of it (xdrope_section, head_dim)
    "hunyuan_vl": {
        "text_config": {
            "head_dim": 128,
            "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}
            | {"xdrope_section": [16, 16, 16, 16]},
        }
    },
    "chameleon": {"vocabulary_map": _CODES},
    "moonshine_streaming": {"num_key_value_heads": 8},  # as its encoder has by default
    "gemma4_assistant": {  # as its class demands
        "text_config": {"hidden_size_per_layer_input": 0, "vocab_size_per_layer_input": 0}
    },
    # scripts/convert_pixart_alpha_to_diffusers.py of diffusers
    "PixArtTransformer2DModel": {"caption_channels": 4096},
    "xmod": {"default_language": "en_XX"},  # the one of XmodConfig's `languages`
    # get_default_vocab_list of configuration_esm.py: 33 words, the second one <pad>
    "esm": {"pad_token_id": 1, "vocab_size": 33},
    "granite_speech": {"projector_config": {"encoder_hidden_size": 1024}},
    "granite_speech_plus": {"projector_config": {"encoder_hidden_size": 1024}},
}
