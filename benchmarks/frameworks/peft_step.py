"""A step of transformers' models with adapters of PEFT on all linear layers."""

from __future__ import annotations

from peft import LoraConfig, get_peft_model
from torch import nn

from benchmarks.frameworks import gpu_rules, stepping, transformers_step
from benchmarks.frameworks.live import fake
from benchmarks.frameworks.setting import Counted, Setting


def adapted(setting: Setting, model: nn.Module) -> nn.Module:
    """The model with adapters; its own weights are frozen."""
    config = LoraConfig(
        r=setting.lora, lora_alpha=setting.lora, target_modules="all-linear", task_type="CAUSAL_LM"
    )
    apply = nn.Module._apply
    nn.Module._apply = stepping.moved
    try:
        # which are in fp32 unless asked otherwise, and cast what they read where nothing else does
        return get_peft_model(model, config, autocast_adapter_dtype=setting.precision == "mixed")
    finally:
        nn.Module._apply = apply


def run(setting: Setting) -> Counted:
    """Two steps on fake tensors, of which the second is counted."""
    with gpu_rules.rules(), transformers_step.traced(), fake() as live:
        return transformers_step.train(setting, live, adapted)
