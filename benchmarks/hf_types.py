"""What transformers says of its causal language models: defaults of their configuration classes,
and their parameters on the meta device.

python benchmarks/hf_types.py defaults   writes planner/data/hf_defaults.json
python benchmarks/hf_types.py counts     writes tests/data/hf_counts.json from hf_configs.json

Needs the dev extra. The reader of config.json uses the defaults; the tests compare with the counts.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
import warnings
from pathlib import Path
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"
ROOT = Path(__file__).parents[1]
DEFAULTS = ROOT / "planner" / "data" / "hf_defaults.json"
CONFIGS = ROOT / "tests" / "data" / "hf_configs.json"
COUNTS = ROOT / "tests" / "data" / "hf_counts.json"

# types of a nested language model that are no causal language model of their own
FOLLOWED = ("qwen2_vl_text", "qwen2_5_vl_text", "qwen3_vl_text", "qwen3_vl_moe_text")

# parts of a model beside its language model
OTHER = (
    "vision",
    "visual",
    "image",
    "audio",
    "projector",
    "embed_tokens_extend",
    "vqmodel",
    "connector",
    "embed_vision",
    "embed_audio",
)


def write(path: Path, rows: dict[str, Any]) -> None:
    """One line per entry, so that a change is read where it is."""
    body = ",\n".join(f"{json.dumps(key)}: {json.dumps(row)}" for key, row in rows.items())
    path.write_text("{\n" + body + "\n}\n", "utf-8")


def plain(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(plain(one) for one in value)
    return (
        value is None
        or isinstance(value, bool | int | str)
        or (isinstance(value, float) and value == value and abs(value) != float("inf"))
    )


def defaults() -> None:
    from transformers.configuration_utils import PreTrainedConfig
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    base = {one.name for one in dataclasses.fields(PreTrainedConfig)}
    rows: dict[str, Any] = {}
    waiting = sorted(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)
    while waiting:
        name = waiting.pop(0)
        if name in rows:
            continue
        cls = CONFIG_MAPPING[name]
        keys = {
            one.name: one.default
            for one in dataclasses.fields(cls)
            if one.name not in base and plain(one.default) and not skipped(one.name)
        }
        row: dict[str, Any] = {"keys": keys}
        if cls.attribute_map:
            row["alias"] = dict(cls.attribute_map)
        text = cls.sub_configs.get("text_config")
        if text is not None and hasattr(text, "model_type"):
            row["text"] = text.model_type
            rows_of_text(rows, text, base)
        rows[name] = row
    for name in CONFIG_MAPPING:  # of models of several parts: how they nest the language model
        text = CONFIG_MAPPING[name].sub_configs.get("text_config")
        if name not in rows and text is not None and hasattr(text, "model_type"):
            tied = {one.name: one.default for one in dataclasses.fields(CONFIG_MAPPING[name])}
            keys = {key: value for key, value in tied.items() if key == "tie_word_embeddings"}
            rows[name] = {"keys": keys, "text": text.model_type}
            if text.model_type in FOLLOWED:
                rows_of_text(rows, text, base)
    write(DEFAULTS, dict(sorted(rows.items())))


def rows_of_text(rows: dict[str, Any], cls: Any, base: set[str]) -> None:
    """The class of a nested text_config, which may be no type of its own."""
    if cls.model_type in rows:
        return
    keys = {
        one.name: one.default
        for one in dataclasses.fields(cls)
        if one.name not in base and plain(one.default) and not skipped(one.name)
    }
    rows[cls.model_type] = {
        "keys": keys,
        **({"alias": dict(cls.attribute_map)} if cls.attribute_map else {}),
    }


def skipped(key: str) -> bool:
    """Keys that no reader asks for: numerics, tokens, generation."""
    return key.endswith(
        ("_token_id", "_eps", "_std", "_coef", "_idx", "_index_id")
    ) or key.startswith(
        ("initializer", "summary", "mask_time", "mask_feature", "time_step_m", "time_step_f")
    )


def count(config: Any) -> tuple[int, int]:
    """Trainable parameters, tied ones once: of the language model, and of all."""
    import torch
    from transformers import AutoModelForCausalLM, AutoModelForImageTextToText

    with torch.device("meta"):
        try:
            model = AutoModelForCausalLM.from_config(config)
        except ImportError:  # of an image library: the language model is built alone
            model = AutoModelForCausalLM.from_config(config.get_text_config())
        except ValueError:  # no causal language model by itself
            model = AutoModelForImageTextToText.from_config(config)
    model.tie_weights()
    named = [(name, one.numel()) for name, one in model.named_parameters() if one.requires_grad]
    language = sum(n for name, n in named if not any(word in name for word in OTHER))
    return language, sum(n for _, n in named)


def counts() -> None:
    warnings.filterwarnings("ignore")
    import transformers
    from transformers import AutoConfig
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    transformers.logging.set_verbosity_error()
    configs = json.loads(CONFIGS.read_text("utf-8"))
    rows: dict[str, Any] = {}
    cases = [
        (name, "default", configs["defaults"].get(name, {}))
        for name in sorted(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)
    ]
    cases += [
        (
            row["config"]["model_type"],
            name,
            {k: v for k, v in row["config"].items() if k != "model_type"},
        )
        for name, row in configs["published"].items()
    ]
    for family, name, keys in cases:
        key = family if name == "default" else name
        try:
            config = AutoConfig.for_model(family, **json.loads(json.dumps(keys)))
            language, whole = count(config)
        except Exception as error:  # what fails in transformers is a fact of the table as well
            rows[key] = {"fails": f"{type(error).__name__}: {str(error).strip()[:120]}"}
            print(key, rows[key], flush=True)
            continue
        rows[key] = {"parameters": language, **({"whole": whole} if whole != language else {})}
        print(key, rows[key], flush=True)
    write(COUNTS, rows)


if __name__ == "__main__":
    {"defaults": defaults, "counts": counts}[sys.argv[1]]()
