"""Parts against transformers itself: parameters of models on the meta device, FLOP of forward
passes on the CPU as torch's FlopCounterMode counts them, and what a module saves for backward."""

from __future__ import annotations

import functools

import pytest
import torch
import transformers
from part_models import MODELS, model_of
from torch.utils.flop_counter import FlopCounterMode
from transformers.models.lfm2.modeling_lfm2 import Lfm2ShortConv

from planner.formulas.flops import core_forward_flop, matmul_weights
from planner.formulas.params import parameter_count
from planner.ledger import total
from planner.specs.layers import attended_of, cores_of, parts_of
from planner.specs.model import ModelSpec
from planner.specs.parts import Scan, Stream
from planner.specs.parts.delta import CHUNK
from planner.specs.parts.hyper import HyperConnection
from planner.specs.parts.short_conv import ShortConv

pytestmark = pytest.mark.oracle

TOKENS = 256
GEMMS = ("aten.mm", "aten.addmm", "aten.baddbmm")  # of weights; scores and scans are aten.bmm


def built(model_type: str) -> transformers.PreTrainedModel:
    """The model in transformers."""
    config = transformers.AutoConfig.for_model(model_type, **MODELS[model_type][0])
    return transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager")


def counted(model_type: str) -> int:
    """Parameters in transformers."""
    with torch.device("meta"):
        model = built(model_type)
    return sum(weight.numel() for weight in model.parameters())


def test_parameters_are_those_of_transformers() -> None:
    assert {name: parameter_count(model_of(name)) for name in MODELS} == {
        name: counted(name) for name in MODELS
    }


@functools.cache
def flop_of(model_type: str) -> dict[str, int]:
    """FLOP of a forward pass by operator."""
    torch.manual_seed(0)
    model, words = built(model_type).eval(), torch.randint(0, 95, (1, TOKENS))
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        model(words, use_cache=False)
    return {str(name): n for name, n in counter.get_flop_counts()["Global"].items()}


def whole_scores(spec: ModelSpec) -> float:
    """FLOP of scores and values of whole score matrices, as eager attention computes them."""
    pairs = TOKENS**2
    return sum(
        n * 2 * pairs * core.heads * (core.query_width + core.value_width)
        for core, n in attended_of(spec)
    )


PLAIN = "deepseek_v32 gpt_oss jamba kimi_linear nemotron_h recurrent_gemma rwkv xlstm"


@pytest.mark.parametrize("name", PLAIN.split())
def test_gemms_are_those_of_transformers(name: str) -> None:
    """But for routed experts, whose products transformers groups in an operator that is not
    counted."""
    spec = model_of(name)
    weights = {leaf: n for leaf, n in matmul_weights(spec).items() if leaf != "moe/experts"}
    result = sum(n for operator, n in flop_of(name).items() if operator in GEMMS)
    assert result == 2 * TOKENS * total(weights)


def test_compressed_keys_are_those_of_transformers() -> None:
    """Eager attention scores all tokens and all entries, masked or not; the groups of the output
    and the lanes of the residual are products of batches too."""
    spec, seen = model_of("deepseek_v4"), flop_of("deepseek_v4")
    weights = {leaf: n for leaf, n in matmul_weights(spec).items() if leaf != "moe/experts"}
    groups = weights.pop("attention/out_down")
    assert seen["aten.mm"] == 2 * TOKENS * total(weights)
    mixed = sum(
        n * name.lanes**2
        for name, n in parts_of(spec)
        if isinstance(name, HyperConnection) and name.weights == "matrix"
    )
    met = sum(
        n
        * core.heads
        * (core.query_width + core.value_width)
        * (TOKENS // core.rate + TOKENS * (core.near > 0))
        for core, n in attended_of(spec)
    )
    assert seen["aten.bmm"] == 2 * TOKENS * (groups + met + mixed * spec.hidden)


@pytest.mark.parametrize("name", ["qwen3_next", "olmo_hybrid", "kimi_linear", "minimax", "xlstm"])
def test_recurrences_are_those_of_transformers(name: str) -> None:
    """Chunked delta rules, lightning attention and mLSTM; the delta rule solves for a triangle,
    which is not counted, where ours applies its inverse to keys and values."""
    spec = model_of(name)
    scans = [(core, n) for core, n in cores_of(spec) if isinstance(core, Scan)]
    ours = sum(n * float(core_forward_flop(core, float(TOKENS))) for core, n in scans)
    keys, values, heads = {
        "qwen3_next": (8, 6, 4),
        "olmo_hybrid": (8, 6, 2),
        "kimi_linear": (8, 8, 4),
        "minimax": (0, 0, 4),
        "xlstm": (0, 0, 2),
    }[name]
    ((_, layers),) = scans
    solved = layers * 2.0 * heads * CHUNK * (keys + values) * TOKENS
    assert flop_of(name)["aten.bmm"] - whole_scores(spec) == ours - solved


def test_a_short_convolution_keeps_what_torch_saves() -> None:
    """All but its input and its weights; torch pads the convolution's input by two tokens."""
    config = transformers.Lfm2Config(**MODELS["lfm2"][0])
    module = Lfm2ShortConv(config, 0)
    given = torch.randn(1, TOKENS, config.hidden_size, requires_grad=True)
    apart = {entry.untyped_storage().data_ptr() for entry in (*module.parameters(), given)}
    saved: dict[int, int] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in apart:
            saved[storage.data_ptr()] = storage.nbytes() // tensor.element_size()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        module(given)
    plan = Stream(config.hidden_size)
    ours = sum(float(entry.elements.local(1.0)) for entry in ShortConv().kept(plan))
    padded = (config.conv_L_cache - 1) * config.hidden_size
    assert sum(saved.values()) == TOKENS * ours + padded
