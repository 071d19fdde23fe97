"""Names of models, GPUs and stacks as people spell them; names that are not models are named as
such; names of the Hugging Face Hub with and without a network; short model files."""

from __future__ import annotations

import json
import socket
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from command import dpplan, refused

from planner.inputs import catalog, hub
from planner.inputs.model import model_spec
from planner.specs.base import PlanError
from planner.specs.layout import SCHEDULES


@pytest.mark.parametrize(
    ("kind", "spelled", "text"),
    [
        ("gpus", "A100 80GB", "a100-sxm4-80gb"),
        ("gpus", "a100_80_gb", "a100-sxm4-80gb"),
        ("gpus", "nvidia-a100-80gb", "a100-sxm4-80gb"),
        ("gpus", "H100 SXM", "h100-sxm5-80gb"),
        ("gpus", "4090", "rtx4090"),
        # as nvidia-smi and torch.cuda.get_device_name name them
        ("gpus", "NVIDIA A100-SXM4-80GB", "a100-sxm4-80gb"),
        ("gpus", "NVIDIA A100-PCIE-40GB", "a100-pcie-40gb"),
        ("gpus", "NVIDIA H100 80GB HBM3", "h100-sxm5-80gb"),
        ("gpus", "NVIDIA H100 PCIe", "h100-pcie-80gb"),
        ("gpus", "NVIDIA GeForce RTX 4090", "rtx4090"),
        ("gpus", "Tesla V100-SXM2-16GB", "v100-sxm2-16gb"),
        ("gpus", "AMD Instinct MI300X", "mi300x-192gb"),
        ("models", "Llama 3.1 8B", "llama-3.1-8b"),
        ("models", "llama3:8b", "llama-3-8b"),
        ("models", "Meta-Llama-3.1-8B-Instruct", "llama-3.1-8b"),
        ("models", "Qwen/Qwen3-8B", "qwen3-8b"),
        ("models", "deepseek v3", "deepseek-v3"),
        ("models", "BERT-large-uncased", "bert-large"),
        ("models", "ViT-L", "vit-l-16"),
        ("models", "DiT-XL", "dit-xl-2"),
        ("models", "FLUX.1-dev", "flux-1-dev"),
        ("models", "stable-diffusion-3-medium", "sd3-medium"),
        ("models", "ResNet50", "resnet-50"),
        ("models", "openai/clip-vit-large-patch14", "clip-vit-l-14"),
        ("models", "google/flan-t5-xxl", "flan-t5-xxl"),
        ("stacks", "Megatron-LM", "megatron-core"),
        ("stacks", "FSDP2", "pytorch-fsdp"),
        ("stacks", "accelerate-fsdp", "hf-fsdp"),
        ("stacks", "xtuner-deepspeed", "hf-deepspeed"),
        ("stacks", "Megatron-SWIFT", "megatron-core"),
        ("stacks", "Primus-torchtitan", "torchtitan"),
        ("clusters", "p5.48xlarge", "aws-p5"),
        ("clusters", "Standard_ND96isr_H100_v5", "azure-nd-h100-v5"),
        ("networks", "InfiniBand NDR", "ib-ndr"),
    ],
)
def test_names_however_they_are_spelled(kind: str, spelled: str, text: str) -> None:
    assert catalog.find(kind, spelled).stem == text


@pytest.mark.parametrize(
    ("kind", "name", "text"),
    [
        ("models", "camembert-tiny", "is an encoder: the catalogue has none of this name, but"),
        ("models", "xlm-roberta-tiny", "is an encoder"),
        ("models", "mt5-tiny", "is an encoder-decoder that the catalogue has not: it has t5-small"),
        ("models", "openai/whisper-tiny.en", "is a speech model"),
        ("models", "swin-large", "is a vision model"),
        ("models", "deit-base", "is a vision transformer that the catalogue has not: it has vit-b"),
        ("models", "DiT-S/2", "is a diffusion transformer that the catalogue has not"),
        ("models", "kandinsky-3", "is a diffusion model"),
        ("models", "mamba-2.8b", "is a state-space"),
        ("models", "TheBloke/Llama-2-7B-GPTQ", "is a quantized copy"),
        ("models", "tloen/alpaca-lora-7b", "is an adapter"),
        ("models", "bge-tiny-en", "is an embedding"),
        ("models", "llama.gguf", "config.json"),
        ("gpus", "tpu-v4", "is a TPU"),
        ("gpus", "gaudi2", "accelerator of another kind"),
        ("gpus", "8x RTX 4090", "--gpus 8 --gpu rtx-4090"),
        ("models", "gpt-4o", "is a closed model"),
        ("networks", "100GbE", "roce-100 or tcp-100"),
        ("stacks", "deepspeed-zero3", "--stack deepspeed --zero 3"),
        ("stacks", "accelerate", "hf-fsdp"),
        ("stacks", "lightning", "pytorch-ddp"),
        ("stacks", "vllm", "inference"),
    ],
)
def test_what_is_of_another_kind_is_named_as_such(kind: str, name: str, text: str) -> None:
    with pytest.raises(PlanError) as caught:
        model_spec(name) if kind == "models" else catalog.find(kind, name)
    assert text in caught.value.remedy
    assert "did you mean" not in caught.value.remedy


@pytest.mark.parametrize(
    ("kind", "name", "near"),
    [
        ("models", "lama-2-70b", ["llama-2-70b", "llama-3-70b", "llama-2-7b", "llama-1-7b"]),
        ("models", "aquila-34b", ["yi-34b"]),  # of that size
        ("models", "xyzzy-large", []),
        ("gpus", "rtx409", ["rtx4090"]),
        ("gpus", "m40", []),
        ("gpus", "a16", []),
        ("gpus", "a4400", []),
        ("gpus", "rtx-4090ti", ["rtx-4090"]),
        ("gpus", "amd-a100", []),
    ],
)
def test_near_names_are_of_the_same_family_or_size(kind: str, name: str, near: list[str]) -> None:
    with pytest.raises(PlanError) as caught:
        catalog.find(kind, name)
    remedy = caught.value.remedy
    assert all(entry in remedy for entry in near)
    assert bool(near) == ("did you mean" in remedy)


@pytest.mark.parametrize("name", ["no-org/no-model-9b", "hf:Qwen/Qwen3-8B"])
def test_without_a_network_the_answer_comes_at_once(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def hangs(*_: Any, **__: Any) -> Any:
        time.sleep(0.5)  # longer than is waited for
        raise OSError

    pytest.importorskip("huggingface_hub")
    monkeypatch.setattr("huggingface_hub.try_to_load_from_cache", lambda *_: None)
    monkeypatch.setattr(socket, "create_connection", hangs)
    monkeypatch.setattr(hub, "_REACH_S", 0.1)
    started = time.monotonic()
    sentence = refused(dpplan("estimate", "--model", name, "--gpu", "h100"), "is not reached")
    assert time.monotonic() - started < 5
    plain = name.removeprefix("hf:")
    assert f"download https://huggingface.co/{plain}/resolve/main/config.json" in sentence
    assert ("--model qwen3-8b" in sentence) == ("Qwen3" in name)


def test_a_copy_under_another_organisation_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "config_of", lambda request, *_: refuse(request))

    def refuse(text: str) -> Path:
        raise PlanError("--model", text, "is not reached")

    model, inferred = model_spec("unsloth/Qwen3-8B")
    assert model.name == "qwen3-8b"
    assert inferred[0].startswith(
        "--model: unsloth/Qwen3-8B is taken for qwen3-8b of the catalogue"
    )
    for name in ("hf:unsloth/Qwen3-8B", "someone/nothing-like-it"):
        with pytest.raises(PlanError, match="is not reached"):
            model_spec(name)
    with pytest.raises(PlanError, match="quantized copy"):
        model_spec("unsloth/llama-3-8b-bnb-4bit")


def test_the_cache_of_the_hub_is_read_first(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip("huggingface_hub")
    config = {"model_type": "gpt2", "n_layer": 2, "n_embd": 64, "n_head": 2, "n_positions": 128}
    file = tmp_path / "config.json"
    file.write_text(json.dumps({**config, "vocab_size": 1000}))
    monkeypatch.setattr("huggingface_hub.try_to_load_from_cache", lambda *_: str(file))
    assert model_spec("some/model")[0].layers == 2
    assert model_spec(str(tmp_path))[0].layers == 2, "a folder that holds a config.json"


def test_without_the_extra_the_answer_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(PlanError, match=r"install dpplan\[hub\], or download https://hugg"):
        model_spec("some/model")


def test_a_short_model_file_names_only_what_is_missing(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"

    def refusal_of(text: str) -> str:
        file.write_text(text)
        with pytest.raises(PlanError) as caught:
            model_spec(str(file))
        return str(caught.value)

    assert refusal_of("layers = 2\nhidden = 512").endswith(
        "needs heads and vocab, too; inferred: ffn_hidden 1536"
    )
    assert refusal_of("hidden = 512\nheads = 7\nlayers = 2\nvocab = 9").endswith(
        "needs head_dim, too; inferred: kv_heads 7, ffn_hidden 1536"
    )
    assert "unknown key; did you mean vocab?" in refusal_of("vocabb = 50\nlayers = 2")
    assert "unknown key; it is layers here" in refusal_of("num_hidden_layers = 2")


def test_what_is_standard_is_inferred_and_said(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text("layers = 2\nhidden = 4096\nheads = 32\nvocab = 32000\n")
    model, text = model_spec(str(file))
    like = model_spec("llama-2-7b")[0]
    assert (model.hidden, model.vocab, model.parts) == (like.hidden, like.vocab, like.parts)
    assert model.name == "mine"
    assert [entry.split(":")[1].split()[0] for entry in text] == [
        "kv_heads",
        "head_dim",
        "ffn_hidden",
    ]
    file.write_text('layers = 2\nhidden = 768\nheads = 12\nvocab = 50257\nmlp = "plain"\n')
    mlp = model_spec(str(file))[0].mlp_part
    assert mlp is not None
    assert mlp.ffn_hidden == 3072


def test_bare_list_and_version() -> None:
    document = dpplan("list", "--json").json()
    assert {entry["id"]: entry["count"] for entry in document}["schedules"] == len(SCHEDULES)
    for entry in document:
        assert entry["count"] == len(dpplan("list", entry["id"], "--json").json())
    assert dpplan("--version").stdout.startswith("dpplan ")
    assert dpplan("list", "GPU").status == 0
    assert "Usage" in dpplan("estimate", "-h").stdout


@pytest.mark.parametrize(
    ("typed", "text"),
    [
        ("plan --model gpt2", "did you mean `dpplan estimate`?"),
        ("estimat", "did you mean estimate?"),
        ("version", "dpplan --version"),
        ("estimate llama-3.1-8b", "a model is given as --model"),
        ("estimate --model gpt2 --recompute", "requires an argument"),
        ("estimate -m gpt2", "it is --model here"),
        (
            "estimate --model gpt2 --gpu a100 --grad-accum 7 --global-batch 128",
            "is not --grad-accum 7 = 7 times a whole number",
        ),
    ],
)
def test_slips_of_the_command_line_are_answered(typed: str, text: str) -> None:
    refused(dpplan(*typed.split()), text)
