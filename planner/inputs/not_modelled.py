"""Recognised but unsupported names of models, GPUs and stacks, which get an explanation instead of
a near match."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Other:
    """A kind of thing that is not modelled.

    is_a: what it is, as in "X is ..."; remedy: the nearest thing that can be done; words: parts of
    names, and model types of transformers; read: its config.json is read, so that only a name which
    is not a file is answered.
    """

    is_a: str
    remedy: str
    words: frozenset[str]
    read: bool = False


def _other(is_a: str, remedy: str, words: str, read: bool = False) -> Other:
    return Other(is_a, remedy, frozenset(words.split()), read)


_NO_NEAR = "none of `dpplan list models` is near it"
_AS_ENCODER = (
    "a model TOML made of parts with full attention counts it; those of bert-large and"
    " roberta-large are nearest"
)
_CONFIG = (
    "the catalogue has none of this name, but its config.json is read: give org/name or its path"
)
_MODELS = (
    _other(
        "an adapter, and no model",
        "plan its base model, with --lora and the rank of the adapter",
        "lora qlora dora peft adapter ia3",
    ),
    _other(
        "a quantized copy",
        "give the model it was made from; beside adapters, --lora 16 --base-precision gptq, awq"
        " or nf4",
        "gptq awq gguf ggml exl2 4bit 8bit int4 int8 bnb nf4 nvfp4 mxfp4 q4 q8",
    ),
    _other(
        "an embedding or reranking model, which is not modelled",
        _AS_ENCODER,
        "bge gte e5 minilm mpnet sbert reranker rerank embed embedding embeddings colbert",
    ),
    _other(
        "an encoder, which is not modelled",
        _AS_ENCODER,
        "deberta distilbert modernbert albert electra esm longformer",
    ),
    _other(
        "an encoder-decoder that the catalogue has not",
        "it has t5-small to t5-11b and flan-t5-base to flan-t5-xxl; the config.json of T5's and of"
        " BART's kind is read: give org/name or its path",
        "t5 mt5 byt5 umt5 ul2 flan bart mbart",
        read=True,
    ),
    _other(
        "an encoder-decoder that the catalogue has not",
        "it has t5-small to t5-11b and flan-t5-base to flan-t5-xxl; a model TOML with a tower for"
        " the decoder counts another",
        "pegasus marian m2m m2m100 nllb prophetnet longt5",
    ),
    _other(
        "a speech model, which is not modelled",
        _NO_NEAR,
        "whisper wav2vec wav2vec2 hubert wavlm seamless bark musicgen encodec vits conformer",
    ),
    _other(
        "a vision transformer that the catalogue has not",
        "it has vit-b-16, vit-l-16 and vit-h-14; a model TOML made of parts counts another",
        "vit deit",
    ),
    _other(
        "a model of images and texts side by side that the catalogue has not",
        "it has clip-vit-b-32 and clip-vit-l-14; a model TOML with a tower for the text counts"
        " another",
        "clip openclip",
    ),
    _other(
        "a convolutional network that the catalogue has not",
        "it has resnet-50; a model TOML made of convolutions counts another",
        "resnet resnet18 resnet34 resnet101 resnet152 cnn",
    ),
    _other(
        "a vision model, which is not modelled",
        _NO_NEAR,
        "beit swin siglip dino dinov2 dinov3 sam sam2 convnext yolo"
        " detr efficientnet blip blip2 flamingo florence unet segformer",
    ),
    _other(
        "a diffusion transformer that the catalogue has not",
        "it has dit-xl-2, flux-1-dev, sd3-medium and sd3.5-large; a model TOML made of parts counts"
        " another",
        "dit flux sd3 pixart mmdit",
    ),
    _other(
        "a diffusion model, which is not modelled",
        _NO_NEAR,
        "diffusion sd sdxl wan cogvideo hunyuanvideo kandinsky imagen dalle",
    ),
    _other(
        "an encoder",
        _CONFIG,
        "bert roberta camembert xlm bigbird roformer biobert scibert finbert",
        read=True,
    ),
    _other(
        "a state-space or recurrent model",
        _CONFIG,
        "mamba mamba2 rwkv jamba griffin recurrentgemma falcon-mamba bamba xlstm",
        read=True,
    ),
    _other(
        "a vision-language model",
        f"{_CONFIG}, and its language model is planned",
        "llava idefics idefics2 internvl pixtral paligemma vl mllama vision",
        read=True,
    ),
    _other(
        "a recurrent model, which is not modelled",
        f"{_NO_NEAR}: its scans are not attention",
        "rwkv5 rwkv6 hyena retnet zamba lstm",
    ),
    _other(
        "a closed model",
        "its shape is not published; the largest open ones are in `dpplan list models`",
        "gpt4 gpt-4 gpt4o gpt-4o gpt-4-turbo gpt5 gpt-5 claude gemini",
    ),
    _other("no transformer, which is not modelled", _NO_NEAR, "dlrm gnn xgboost alphafold gan vae"),
)
_GPUS_ONLY = "only GPUs are modelled (`dpplan list gpus`); a chip of your own can be a GPU TOML"
_GPUS = (
    _other(
        "a TPU, which is not modelled",
        _GPUS_ONLY,
        "tpu tpuv4 tpuv5 tpuv5e tpuv5p tpuv6 trillium ironwood",
    ),
    _other(
        "an accelerator of another kind, which is not modelled",
        _GPUS_ONLY,
        "gaudi gaudi2 gaudi3 trainium trn1 trn2 ipu",
    ),
    _other("an Apple chip, which is not modelled", _GPUS_ONLY, "m1 m2 m3 m4 mps apple"),
    _other("a processor, which is not modelled", _GPUS_ONLY, "cpu xeon epyc"),
)
_STACKS = (
    _other(
        "a stack with its ZeRO stage",
        "give them apart, as in --stack deepspeed --zero 3",
        "zero0 zero1 zero2 zero3 stage1 stage2 stage3",
    ),
    _other(
        "a trainer over other stacks",
        "name the one it runs on: pytorch-ddp, hf-fsdp, hf-deepspeed or megatron-swift",
        "transformers accelerate trainer huggingface hf trl axolotl unsloth lightning swift",
    ),
    _other(
        "a server for inference",
        "training stacks are planned (`dpplan list stacks`)",
        "vllm sglang tgi tensorrt triton llama.cpp ollama",
    ),
)
_NETWORKS = (
    _other(
        "Ethernet, which carries RDMA or TCP",
        "name which, such as roce-100 or tcp-100 (`dpplan list networks`)",
        "10gbe 25gbe 50gbe 100gbe 200gbe 400gbe 800gbe",
    ),
)
_KINDS = {"networks": _NETWORKS, "models": _MODELS, "gpus": _GPUS, "stacks": _STACKS}
_WEIGHTS = (".gguf", ".safetensors", ".bin", ".pt", ".pth", ".onnx", ".ckpt", ".index")


def of_name(kind: str, name: str, fetched: bool = False) -> str:
    """What a name says it is, where that is not modelled, with the nearest thing to do; "" where it
    says nothing. A name is taken apart at its separators: no part of a word counts.

    fetched: the name is one whose config.json can be read.
    """
    if kind == "models" and name.lower().endswith(_WEIGHTS):
        return "is a file of weights; give the config.json beside it, or a catalogue name"
    words = name.lower().split()
    parts = {part for word in words for part in re.split(r"[-_/:.]", word)} | {name.lower()}
    kinds = [one for one in _KINDS.get(kind, ()) if not (fetched and one.read)]
    return next((_said(one) for one in kinds if one.words & parts), "")


def of_type(model_type: str) -> str:
    """The same of a model type of transformers, such as "bert" or "t5"."""
    whole = model_type.lower().replace("_", "-")
    parts = {whole, *whole.split("-")}
    return next((_said(one) for one in _MODELS if one.words & parts and not one.read), "")


def _said(one: Other) -> str:
    return f"is {one.is_a}: {one.remedy}"
