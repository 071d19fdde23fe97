"""Configurations drawn at random over families of transformers, shapes, batches and options."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from benchmarks.frameworks.setting import Setting, compact

_DEPTHS = ("num_hidden_layers", "n_layer")
_TOKENS = (1024, 2048, 4096, 8192, 16384, 32768)  # of a micro-batch
_LENGTHS = (512, 1024, 2048, 4096, 8192)
_EAGER_LENGTH = 2048  # at most, with scores in memory
_VOCABULARIES = (32_000, 50_304, 65_536, 128_256, 151_936)

# family: the name of its class, and fields that differ from a decoder with grouped queries
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("LlamaForCausalLM", {}),
    "mistral": ("MistralForCausalLM", {"sliding_window": None}),
    "qwen2": ("Qwen2ForCausalLM", {}),
    "qwen3": ("Qwen3ForCausalLM", {}),
    "phi3": ("Phi3ForCausalLM", {"pad_token_id": 0, "sliding_window": None}),
    "olmo2": ("Olmo2ForCausalLM", {}),
    "gemma": ("GemmaForCausalLM", {}),
    # windows are as long as the longest sequence: through torch's kernels they have masks
    "gemma2": ("Gemma2ForCausalLM", {"sliding_window": 8192}),
    "gemma3_text": ("Gemma3ForCausalLM", {"sliding_window": 8192}),
    "granite": ("GraniteForCausalLM", {}),
    "starcoder2": ("Starcoder2ForCausalLM", {"sliding_window": None}),
    "gpt2": ("GPT2LMHeadModel", {}),
    "gpt_neox": ("GPTNeoXForCausalLM", {}),
    "phi": ("PhiForCausalLM", {}),
    "opt": ("OPTForCausalLM", {}),
    "mixtral": ("MixtralForCausalLM", {"num_local_experts": 8, "num_experts_per_tok": 2}),
    "qwen3_moe": ("Qwen3MoeForCausalLM", {"num_experts": 32, "num_experts_per_tok": 4}),
}
NO_DROPOUT = {
    "gpt2": ("resid_pdrop", "embd_pdrop", "attn_pdrop"),
    "gpt_neox": ("attention_dropout", "hidden_dropout"),
    "phi": ("resid_pdrop", "embd_pdrop", "attention_dropout"),
    "phi3": ("resid_pdrop", "embd_pdrop"),
    "opt": ("dropout", "attention_dropout", "activation_dropout"),
    "starcoder2": ("residual_dropout", "embedding_dropout", "attention_dropout"),
}


def config(rng: random.Random, family: str) -> dict[str, Any]:
    """A config.json of a family."""
    kind, more = FAMILIES[family]
    head_dim = rng.choice((64, 128))
    heads = rng.choice((8, 12, 16, 20, 24, 32, 40))
    hidden, layers = heads * head_dim, rng.choice((2, 3, 4, 6, 8, 12))
    ffn = 256 * round(hidden * rng.choice((2.67, 3.5, 4.0)) / 256)
    out: dict[str, Any] = {"model_type": family, "architectures": [kind]}
    out["vocab_size"] = rng.choice(_VOCABULARIES)
    out |= dict.fromkeys(NO_DROPOUT.get(family, ()), 0.0)
    if family == "gpt2":
        function = rng.choice(("gelu_new", "gelu"))
        shape = {"n_embd": hidden, "n_layer": layers, "n_head": heads, "n_positions": 8192}
        return {**out, **shape, "activation_function": function}
    out |= {"hidden_size": hidden, "num_hidden_layers": layers, "num_attention_heads": heads}
    out["max_position_embeddings"] = 8192
    if family == "opt":
        return {**out, "ffn_dim": 4 * hidden, "word_embed_proj_dim": hidden}
    out["intermediate_size"] = ffn
    if family == "gpt_neox":
        return {**out, "tie_word_embeddings": False}
    kv_heads = rng.choice([n for n in (1, 2, 4, 8, heads) if heads % n == 0])
    out |= {"num_key_value_heads": kv_heads, "tie_word_embeddings": rng.random() < 1 / 2}
    if family.startswith(("gemma", "qwen3", "qwen3_moe")):
        out["head_dim"] = rng.choice((head_dim, 128))
    if family in ("mixtral", "qwen3_moe"):
        out["num_hidden_layers"] = min(layers, 4)
        out["intermediate_size"] = 512 * rng.choice((1, 2, 4))
        out["moe_intermediate_size"] = out["intermediate_size"]
    return {**out, **more}


def _batch(rng: random.Random) -> tuple[int, int]:
    tokens = rng.choice(_TOKENS)
    length = rng.choice([n for n in _LENGTHS if n <= tokens])
    return tokens // length, length


def transformers(rng: random.Random, family: str | None = None) -> Setting:
    """A step of one of its models."""
    family = family or rng.choice(list(FAMILIES))
    micro_batch, length = _batch(rng)
    eager = rng.random() < 1 / 8 or family == "gemma2"  # which has no other
    if eager and length > _EAGER_LENGTH:
        micro_batch, length = min(micro_batch * length // _EAGER_LENGTH, 4), _EAGER_LENGTH
    attention = "eager" if eager else "sdpa"
    return Setting(
        "transformers",
        compact(config(rng, family)),
        micro_batch,
        length,
        accumulation=rng.choice((1, 1, 2)),
        precision=rng.choice(("mixed", "bf16")),
        recompute=rng.choice(("none", "none", "full")),
        attention=attention,
    )


def peft(rng: random.Random, family: str | None = None) -> Setting:
    """A step of transformers with adapters on all linear layers."""
    dense = ("llama", "mistral", "qwen2", "qwen3", "phi3", "olmo2", "gemma2", "gpt_neox", "phi")
    setting = transformers(rng, family or rng.choice(dense))
    return replace(setting, framework="peft", lora=rng.choice((8, 16, 64)))


def accelerate(rng: random.Random, family: str | None = None) -> Setting:
    """Shards of a model without experts on several ranks."""
    dense = ("llama", "mistral", "qwen2", "qwen3", "phi3", "olmo2", "gpt2", "gpt_neox", "granite")
    setting = transformers(rng, family or rng.choice(dense))
    chosen: dict[str, Any] = {"framework": "accelerate", "precision": "mixed"}
    chosen |= {"ranks": rng.choice((2, 4, 8, 64)), "zero": rng.choice((2, 3, 3))}
    return replace(setting, **chosen)


def fsdp1(rng: random.Random, family: str | None = None) -> Setting:
    """A step of Accelerate with FSDP 1."""
    return replace(accelerate(rng, family), framework="fsdp1")


def grpo(rng: random.Random, family: str | None = None) -> Setting:
    """Reinforcement learning on completions as long as their prompts."""
    return replace(trl(rng, family), framework="grpo", task="grpo")


def trl(rng: random.Random, family: str | None = None) -> Setting:
    """Supervised fine-tuning, or DPO with a reference model."""
    dense = ("llama", "mistral", "qwen2", "qwen3", "phi3", "olmo2", "granite", "gemma2")
    setting = transformers(rng, family or rng.choice(dense))
    return replace(setting, framework="trl", task=rng.choice(("sft", "sft", "dpo")))


_SMALL = {"hidden_size": 256, "num_attention_heads": 4, "head_dim": 64}


def ddp(rng: random.Random, family: str | None = None) -> Setting:
    """Replicas of a small model, whose tensors are real."""
    dense = ("llama", "mistral", "qwen2", "qwen3", "phi3", "olmo2", "granite", "gpt_neox")
    setting = transformers(rng, family or rng.choice(dense))
    small = {**_SMALL, "num_key_value_heads": rng.choice((2, 4))}
    small |= {"num_hidden_layers": rng.choice((4, 8)), "vocab_size": rng.choice((2048, 16384))}
    small["intermediate_size"] = rng.choice((704, 1024, 2048))
    config = {name: small.get(name, value) for name, value in setting.config.items()}
    chosen: dict[str, Any] = {"micro_batch": rng.choice((1, 2, 4)), "attention": "sdpa"}
    chosen |= {"seq_len": rng.choice((64, 128, 256)), "precision": rng.choice(("mixed", "bf16"))}
    chosen |= {"framework": "ddp", "model": compact(config), "ranks": rng.choice((2, 8))}
    return replace(setting, **chosen)


def zero1(rng: random.Random, family: str | None = None) -> Setting:
    """A step of DDP whose optimizer's states are sharded (ZeRO 1)."""
    return replace(ddp(rng, family), zero=1, ranks=rng.choice((2, 4, 8, 16)))


_GPUS = 8  # of a node, over which tensors are split


def torchtitan(rng: random.Random, family: str | None = None) -> Setting:
    """Shards, tensor-parallel ranks, or stages of a model of its own."""
    setting = transformers(rng, family or rng.choice(("llama", "llama", "qwen3")))
    fields = setting.config | {"tie_word_embeddings": False}
    fields["intermediate_size"] = 512 * rng.choice((6, 11, 16, 28))
    tensor, pipeline = rng.choice(((1, 1), (1, 1), (2, 1), (4, 1), (1, 2), (1, 4), (1, 8)))
    if tensor > 1:
        fields["num_attention_heads"] = rng.choice((8, 16, 32))
        fields["num_key_value_heads"] = rng.choice((4, 8))
        fields["hidden_size"] = 128 * fields["num_attention_heads"]
        fields |= {"head_dim": 128} if fields["model_type"] == "qwen3" else {}
    chosen: dict[str, Any] = {"framework": "torchtitan", "precision": "mixed", "attention": "sdpa"}
    chosen |= {"zero": rng.choice((2, 3, 3)), "ranks": tensor * rng.choice((4, _GPUS, 32))}
    chosen |= {"recompute": rng.choice(("none", "selective", "full")), "tensor": tensor}
    if pipeline > 1:
        # of as many layers as stages, embedding and head for one each
        fields["num_hidden_layers"] = pipeline * rng.choice((2, 3)) - 2
        chosen |= {"zero": 2, "ranks": pipeline * rng.choice((4, _GPUS)), "pipeline": pipeline}
        chosen |= {"stage": rng.choice((0, 0, 1, pipeline - 1)), "accumulation": 2 * pipeline}
        chosen |= {"schedule": rng.choice(("1f1b", "1f1b", "gpipe"))}
        chosen |= {"micro_batch": 1, "seq_len": min(setting.seq_len, 4096)}
    chosen["model"] = compact(fields)
    return replace(setting, **chosen)


_SOFTMAX_LENGTH = 4096  # at most of the causal kernel
_FILLED = (32_768, 50_176, 65_536, 131_072)  # vocabularies that ranks divide without padding


def megatron(rng: random.Random, family: str | None = None) -> Setting:
    """Replicas of tensor-parallel ranks, with the distributed optimizer or without."""
    setting, tensor = transformers(rng, "llama"), rng.choice((1, 1, 2, 4, 8))
    fields = setting.config | {"vocab_size": rng.choice(_FILLED)}
    fields["num_attention_heads"] = rng.choice((8, 16, 32, 40))
    fields["num_key_value_heads"] = rng.choice((8, fields["num_attention_heads"]))
    fields["hidden_size"] = fields["num_attention_heads"] * rng.choice((64, 128))
    fields["intermediate_size"] = 512 * rng.choice((6, 11, 16, 28))
    length = min(setting.seq_len, rng.choice((1024, 2048, _SOFTMAX_LENGTH)))
    chosen: dict[str, Any] = {"framework": "megatron", "precision": "mixed", "tensor": tensor}
    chosen |= {"attention": "softmax", "zero": rng.choice((0, 1, 1)), "seq_len": length}
    chosen |= {"micro_batch": 4 if length <= _SOFTMAX_LENGTH // 4 else rng.choice((1, 2))}
    chosen |= {"ranks": tensor * rng.choice((1, 4, 8, 32)), "model": compact(fields)}
    return replace(setting, recompute=rng.choice(("none", "selective", "full")), **chosen)


def deepspeed(rng: random.Random, family: str | None = None) -> Setting:
    """Stages of ZeRO of a small model, whose tensors are real."""
    chosen: dict[str, Any] = {"framework": "deepspeed", "precision": "bf16", "accumulation": 1}
    chosen |= {"ranks": rng.choice((2, 8, 16)), "zero": rng.choice((1, 2, 3))}
    return replace(ddp(rng, family), **chosen)


def _of_framework(rng: random.Random, families: tuple[str, ...], framework: str) -> Setting:
    """A step of a framework's own model of one of these families."""
    setting = transformers(rng, rng.choice(families))
    fields = setting.config | {"tie_word_embeddings": False}
    fields["head_dim"] = fields["hidden_size"] // fields["num_attention_heads"]
    chosen: dict[str, Any] = {"framework": framework, "attention": "sdpa", "recompute": "none"}
    if rng.random() < 1 / 2:
        chosen |= {"ranks": rng.choice((2, 8, 64)), "zero": rng.choice((2, 3, 3))}
        chosen["recompute"] = rng.choice(("none", "full", "full"))
    elif rng.random() < 1 / 3:
        chosen |= {"lora": rng.choice((8, 16, 64)), "precision": "bf16"}
    return replace(setting, model=compact(fields), **chosen)


def litgpt(rng: random.Random, family: str | None = None) -> Setting:
    """Fine-tuning of all weights, sharded or not, or of adapters on one GPU."""
    families = ("llama", "llama", "qwen2", "qwen3", "gpt_neox")
    setting = _of_framework(rng, (family,) if family else families, "litgpt")
    return replace(setting, optimizer="foreach")


def torchtune(rng: random.Random, family: str | None = None) -> Setting:
    """Fine-tuning as `litgpt` draws it, in bf16, with recomputation on one GPU, too."""
    setting = _of_framework(rng, (family,) if family else ("llama", "llama", "qwen2"), "torchtune")
    return replace(setting, precision="bf16", recompute=rng.choice(("none", "full")))


def nanotron(rng: random.Random, family: str | None = None) -> Setting:
    """Replicas of tensor-parallel ranks of a small Llama, whose tensors are real."""
    setting, tensor = ddp(rng, "llama"), rng.choice((1, 1, 2, 4))
    chosen: dict[str, Any] = {"framework": "nanotron", "precision": "mixed", "recompute": "none"}
    chosen |= {"tensor": tensor, "zero": rng.choice((0, 1)), "accumulation": rng.choice((1, 2))}
    chosen["ranks"] = tensor * (rng.choice((2, 4)) if chosen["zero"] else 1)
    fields = setting.config | {"num_key_value_heads": 4}
    return replace(setting, model=compact(fields), **chosen)


_TOKEN_SIDES = {"sd-1.5-unet": (4, 8, 12), "sdxl-unet": (8, 16, 24, 32)}  # 64 and 32 pixels each
_CLIPS = (1920, 3840, 7680)  # tokens of frames of 960


def diffusers(rng: random.Random, family: str | None = None) -> Setting:
    """Denoising of images and clips."""
    models = ("sd-1.5-unet", "sd-1.5-unet", "sdxl-unet", "sd3-medium", "wan-2.1-1.3b", "flux-1-dev")
    name = family or rng.choice(models)
    sides = _TOKEN_SIDES.get(name, (16, 32, 64))
    tokens = rng.choice(_CLIPS) if name.startswith("wan") else rng.choice(sides) ** 2
    return Setting(
        "diffusers",
        compact({"model_type": name}),
        micro_batch=rng.choice((1, 2, 4, 8, 16)),
        seq_len=tokens,
        accumulation=rng.choice((1, 1, 2)),
        precision=rng.choice(("mixed", "bf16")),
        recompute=rng.choice(("none", "none", "full")),
        optimizer="foreach",
    )


DRAWS = {
    "transformers": transformers,
    "peft": peft,
    "accelerate": accelerate,
    "fsdp1": fsdp1,
    "trl": trl,
    "grpo": grpo,
    "ddp": ddp,
    "zero1": zero1,
    "torchtitan": torchtitan,
    "megatron": megatron,
    "deepspeed": deepspeed,
    "litgpt": litgpt,
    "torchtune": torchtune,
    "nanotron": nanotron,
    "diffusers": diffusers,
}


def drawn(
    kind: str, count: int, seed: int, family: str | None = None, layers: int = 12
) -> Iterator[Setting]:
    """So many settings of a kind, the same for the same seed; families in turn. layers: most of a
    model."""
    rng = random.Random(f"{kind} {seed}")
    turns = list(FAMILIES) if kind == "transformers" and family is None else [family]
    for i in range(count):
        setting = DRAWS[kind](rng, turns[i % len(turns)])
        yield setting if setting.pipeline > 1 else shallow(setting, layers)


def shallow(setting: Setting, layers: int) -> Setting:
    """The setting with at most `layers` layers."""
    fields = setting.config
    for name in _DEPTHS:
        if fields.get(name, 0) > layers:
            fields[name] = 1 + fields[name] % layers
    return replace(setting, model=compact(fields))
