"""Modules of packages that need CUDA, which nanotron imports, made of functions that a caller
gives; and the CPU in place of every device."""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

import torch
from torch.overrides import TorchFunctionMode


def unused(*_: Any, **__: Any) -> Any:
    """A kernel of GPUs that no step here calls."""
    raise NotImplementedError("a kernel of GPUs that no step here calls")


def install(attention: Any, packed_attention: Any, rotary: Any, norm: Any) -> None:
    """flash_attn's attention over rows and over packed sequences, its rotary embedding and its
    RMSNorm; grouped_gemm, which only experts use, is an empty module."""
    kernels: dict[str, dict[str, Any]] = {
        "flash_attn": {},
        "flash_attn.flash_attn_interface": {
            "flash_attn_varlen_func": attention,
            **dict.fromkeys(("flash_attn_func", "flash_attn_with_kvcache"), unused),
            **dict.fromkeys(("_flash_attn_varlen_forward", "_flash_attn_varlen_backward"), unused),
        },
        "flash_attn.bert_padding": {},
        "flash_attn.layers": {},
        "flash_attn.layers.rotary": {"RotaryEmbedding": rotary, "apply_rotary_emb": unused},
        "flash_attn.modules": {},
        "flash_attn.modules.mha": {"flash_attn_varlen_kvpacked_func": packed_attention},
        "flash_attn.ops": {},
        "flash_attn.ops.triton": {},
        "flash_attn.ops.triton.layer_norm": {"layer_norm_fn": norm},
        "grouped_gemm": {},
        "grouped_gemm.ops": {},
        "functorch.dim": {"tree_map": torch.utils._pytree.tree_map},  # of PyTorch before 2.9
    }
    for name, members in kernels.items():
        module = ModuleType(name)
        module.__dict__.update(members, __path__=[], __version__="2.7.0")
        module.__spec__ = ModuleSpec(name, None)
        sys.modules[name] = module
        parent, _, last = name.rpartition(".")
        if parent in kernels:
            setattr(sys.modules[parent], last, module)


class OnCpu(TorchFunctionMode):
    """Every device is the CPU."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        here = {name: _here(value) for name, value in (kwargs or {}).items()}
        return func(*map(_here, args), **here)


def _here(value: Any) -> Any:
    if isinstance(value, torch.device) and value.type == "cuda":
        return torch.device("cpu")
    return "cpu" if isinstance(value, str) and value.partition(":")[0] == "cuda" else value
