"""Models traced from transformers' own code against rules that read a config.json.

    python -m benchmarks.traced_models [--only llama bert]

For each type: parameters of the class, of the traced file and of the rule; FLOP forward of the
traced file over the rule's; step time and peak memory of both on one H100 with Hugging Face
Trainer, weights in bf16, operator by operator, and with FSDP compiled. Types without a rule are
planned by themselves.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
import transformers

from planner.api import Options, estimate
from planner.error import PlanError
from planner.formulas import flops
from planner.formulas.params import parameter_count
from planner.inputs import catalog
from planner.inputs.model import model_spec
from planner.ledger import total
from planner.specs.layers import layers_of
from planner.specs.model import ModelSpec
from planner.specs.parts.traced import routed_of
from planner.trace.options import TraceOptions
from planner.trace.targets import of_config
from planner.trace.verb import traced

_WIDE: dict[str, Any] = {
    "hidden_size": 2048,
    "intermediate_size": 5632,
    "num_hidden_layers": 4,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
    "vocab_size": 32000,
    "max_position_embeddings": 2048,
    "tie_word_embeddings": False,
}
_BERT = {"num_hidden_layers": 4, "architectures": ["BertForMaskedLM"]}
# types with a rule, each with fields beside its defaults
RULED: dict[str, dict[str, Any]] = {
    "llama": _WIDE,
    "mistral": {**_WIDE, "sliding_window": 1024},
    "qwen2": {**_WIDE, "tie_word_embeddings": True},
    "qwen3": {**_WIDE, "head_dim": 128},
    "gemma": {**_WIDE, "head_dim": 128, "tie_word_embeddings": True},
    "phi3": {**_WIDE, "pad_token_id": 0},
    "olmo2": _WIDE,
    "gpt_neox": {**_WIDE, "intermediate_size": 8192, "num_key_value_heads": 16},
    "gpt2": {"n_layer": 4, "n_embd": 1024, "n_head": 16, "n_positions": 1024},
    "bert": _BERT,
    "t5": {"num_layers": 4, "num_decoder_layers": 4, "d_model": 512},
    "mixtral": {**_WIDE, "intermediate_size": 2816, "num_local_experts": 8},
}
# types of images and sound, which no rule reads
UNRULED: dict[str, dict[str, Any]] = {
    "vit": {"architectures": ["ViTForImageClassification"]},
    "clip_vision_model": {"architectures": ["CLIPVisionModel"]},
    "siglip_vision_model": {"architectures": ["SiglipVisionModel"]},
    "swin": {"architectures": ["SwinForImageClassification"]},
    "convnext": {"architectures": ["ConvNextForImageClassification"]},
    "resnet": {"architectures": ["ResNetForImageClassification"]},
    "whisper": {"architectures": ["WhisperForConditionalGeneration"]},
    "wav2vec2": {"architectures": ["Wav2Vec2ForCTC"]},
    "dinov2": {"architectures": ["Dinov2Model"]},
    "detr": {"architectures": ["DetrForObjectDetection"]},
}
_EAGER = "hf-trainer", {"state_precision": "bf16", "compile": False, "zero": 0}
_FUSED = "pytorch-fsdp", {"compile": True, "zero": 3}


def step_of(
    model: str, stack: str, more: dict[str, Any], length: int | None
) -> tuple[float, float]:
    """(seconds, peak bytes) of a step on one GPU."""
    given = {"gpus": 1, "micro_batch": 4, "global_batch": 16, "recompute": "none"}
    given |= {} if length is None else {"seq_len": length}
    options = Options(model=model, gpu="h100", stack=stack, **given, **more)
    answer = estimate(options, brief=True)
    return answer.step.seconds, answer.memory.peak_bytes


def flop_per_token(model: ModelSpec, length: int) -> float:
    """Forward FLOP per token, whole score matrices among them, as eager attention and kernels with
    a mask tensor compute them: the convention of PaLM for all."""
    weights = total(flops.matmul_weights(model, length))
    attended = flops.attended_elements(model, length, flops.PALM)
    return float(2 * weights + 2 * attended + flops.scanned_flop(model))


def rule_over_file(rule: ModelSpec, file: ModelSpec, length: int) -> float:
    """Forward FLOP of a rule over a traced file's, both with the experts per token that the class
    computes."""
    if every := _computes_all(file):
        rule = _with_experts(rule, every)
    return flop_per_token(rule, length) / flop_per_token(file, length)


def _computes_all(file: ModelSpec) -> int:
    """Experts of a class that lets every token meet all of them; 0 for others."""
    parts = (part for kind in layers_of(file).kinds for part in kind.parts)
    experts = [moe for part in parts if (moe := routed_of(part, file.hidden))]
    every = {moe.experts for moe in experts if moe.experts_per_token == moe.experts}
    return every.pop() if len(every) == 1 else 0


def _with_experts(model: ModelSpec, per_token: int) -> ModelSpec:
    """The model with another number of experts per token."""

    def change(x: Any) -> Any:
        if isinstance(x, dict):
            wide = {"experts_per_token": per_token} if x.get("experts_per_token") else {}
            return {name: change(value) for name, value in x.items()} | wide
        return [change(each) for each in x] if isinstance(x, list | tuple) else x

    return catalog.build(ModelSpec, change(model.model_dump(exclude_none=True)), "TYPE", "rule")


def class_parameters(fields: dict[str, Any]) -> int:
    """Parameters of the class of transformers."""
    with torch.device("meta"):
        config = transformers.AutoConfig.for_model(**fields)
        module, _ = of_config(config).build(1, 8)
    return sum(weight.numel() for weight in module.parameters())


def row(name: str, fields: dict[str, Any], folder: Path, ruled: bool) -> str:
    """One line of the table."""
    config = folder / name / "config.json"
    config.parent.mkdir(parents=True, exist_ok=True)
    config_of_class = transformers.AutoConfig.for_model(name, **fields)
    fields = {**config_of_class.to_dict(), "model_type": name}
    config.write_text(json.dumps(fields), encoding="utf-8")
    out, began = folder / f"{name}.toml", time.monotonic()
    result = traced(TraceOptions(target=str(config), out=str(out)))
    took = time.monotonic() - began
    out.write_text(result.text, encoding="utf-8")
    length = result.counted["length"]
    cells = [f"{name:20s}", f"{took:5.1f} s", f"{parameter_count(result.model):13,}"]
    cells.append("exact" if class_parameters(fields) == parameter_count(result.model) else "WRONG")
    rule = model_spec(str(config))[0] if ruled else None
    if rule is not None:
        ratio = 1 / rule_over_file(rule, result.model, length)
        same = parameter_count(rule) == parameter_count(result.model)
        cells += [f"rule {'exact' if same else 'other':5s}", f"FLOP {100 * (ratio - 1):+6.2f} %"]
    for stack, more in (_EAGER, _FUSED):
        seconds, peak = step_of(str(out), stack, more, length)
        if rule is None:
            cells.append(f"{stack} {1e3 * seconds:7.1f} ms {peak / 2**30:6.2f} GiB")
            continue
        other_s, other_bytes = step_of(str(config), stack, more, length)
        cells.append(
            f"{stack} {100 * (seconds / other_s - 1):+6.1f} % s"
            f" {100 * (peak / other_bytes - 1):+6.1f} % B"
        )
    return "  ".join(cells)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", default=[], help="types of transformers")
    names = parser.parse_args().only or [*RULED, *UNRULED]
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            fields = RULED.get(name, UNRULED.get(name, {}))
            try:
                print(row(name, fields, Path(folder), name in RULED), flush=True)
            except PlanError as error:
                print(f"{name:20s}  refused: {error}", flush=True)


if __name__ == "__main__":
    main()
