"""Causal language models as transformers has them: defaults of their configuration classes,
and their parameters on the meta device.

python benchmarks/hf_types.py defaults   writes planner/data/hf_defaults.json
python benchmarks/hf_types.py counts     writes tests/data/hf_counts.json from hf_configs.json
python benchmarks/hf_types.py perturb [TYPE...]   changes one key at a time and compares the count

Needs the dev extra. The reader of config.json uses the defaults; the tests compare with the counts.
`perturb` takes 3 min of one core for all types; it fails where a file is read and miscounted.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"
ROOT = Path(__file__).parents[1]
DEFAULTS = ROOT / "planner" / "data" / "hf_defaults.json"
CONFIGS = ROOT / "tests" / "data" / "hf_configs.json"
COUNTS = ROOT / "tests" / "data" / "hf_counts.json"

# types of a nested language model without a causal language model class
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
        return all(plain(item) for item in value)
    return (
        value is None
        or isinstance(value, bool | int | str)
        or (isinstance(value, float) and value == value and abs(value) != float("inf"))
    )


def defaults() -> None:
    from transformers.configuration_utils import PreTrainedConfig
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    base = {field.name for field in dataclasses.fields(PreTrainedConfig)}
    rows: dict[str, Any] = {}
    waiting = sorted(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)
    while waiting:
        name = waiting.pop(0)
        if name in rows:
            continue
        cls = CONFIG_MAPPING[name]
        keys = {
            field.name: field.default
            for field in dataclasses.fields(cls)
            if field.name not in base and plain(field.default) and not skipped(field.name)
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
            tied = {field.name: field.default for field in dataclasses.fields(CONFIG_MAPPING[name])}
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
        field.name: field.default
        for field in dataclasses.fields(cls)
        if field.name not in base and plain(field.default) and not skipped(field.name)
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
        except ImportError:  # of an image library: only the language model is built
            model = AutoModelForCausalLM.from_config(config.get_text_config())
        except ValueError:  # no causal language model by itself
            model = AutoModelForImageTextToText.from_config(config)
    model.tie_weights()
    named = [
        (name, parameter.numel())
        for name, parameter in model.named_parameters()
        if parameter.requires_grad
    ]
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


# of keys that are null or words by default: a value that asks for something else
_INSTEAD = {
    "num_key_value_heads": 2,
    "head_dim": 64,
    "sliding_window": 512,
    "moe_latent_size": 256,
    "n_inner": 1000,
    "time_step_rank": 64,
}


# What transformers builds without: MPT's own code has them, and the reader follows it.
_OF_ITS_CODE = {("mpt", "expansion_ratio"), ("mpt", "no_bias")}


def changed(key: str, value: Any) -> Any:
    """Another value for a key; null where none is tried."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        index = key.endswith(("_idx", "index"))
        return None if value <= 0 or value == 1 or index else 2 * value
    return _INSTEAD.get(key)


def perturbations(family: str, stated: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The default configuration with one key changed or null. Types of the table are given what a
    file has to state and no more, so that what the reader assumes is compared too."""
    from planner.inputs.huggingface.source import HIDDEN, LAYERS
    from planner.inputs.huggingface.typed import TYPES, defaults

    keys = defaults()[family]["keys"]
    needed = (*LAYERS, *HIDDEN) if family in TYPES else tuple(keys)
    base = {**{key: keys[key] for key in needed if key in keys}, **stated}
    for key, value in keys.items():
        if (family, key) in _OF_ITS_CODE:
            continue
        if (other := changed(key, value)) is not None:
            yield f"{key}={other}", {**base, key: other}
        if value is not None:
            yield f"{key}=null", {**base, key: None}


def unused(config: Any) -> int:
    """Zero experts of LongCat, whose projections transformers allocates and never computes."""
    zero = getattr(config, "zero_expert_num", None) or 0
    return (
        zero * 2 * config.expert_ffn_hidden_size * config.hidden_size * config.num_layers
        if zero
        else 0
    )


def perturb() -> None:
    import transformers
    from transformers import AutoConfig
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    from planner.formulas.params import parameter_count
    from planner.inputs.huggingface import KNOWN, read_config
    from planner.inputs.huggingface.typed import defaults
    from planner.specs.base import PlanError

    warnings.filterwarnings("ignore")
    transformers.logging.set_verbosity_error()
    stated = json.loads(CONFIGS.read_text("utf-8"))["defaults"]
    tally = dict.fromkeys(("exact", "refused", "wrong"), 0)
    file = Path(tempfile.mkdtemp()) / "config.json"
    families = sys.argv[2:] or sorted(KNOWN & defaults().keys() & set(CONFIG_MAPPING.keys()))
    for family in families:
        for label, keys in perturbations(family, stated.get(family, {})):
            try:
                config = AutoConfig.for_model(family, **json.loads(json.dumps(keys)))
                want = count(config)[0] - unused(config)
            except Exception:  # transformers builds no such model: nothing to compare with
                continue
            file.write_text(json.dumps({**keys, "model_type": family}), "utf-8")
            try:
                got = parameter_count(read_config(file)[0])
            except PlanError as error:
                tally["refused"] += 1
                print(f"{family} {label}: refused, {str(error).split('config.json: ')[-1][:120]}")
                continue
            tally["exact" if got == want else "wrong"] += 1
            if got != want:
                print(f"{family} {label}: WRONG, {got} and not {want}, by {got - want}", flush=True)
    print(f"{len(families)} types, {sum(tally.values())} configurations: {tally}")
    sys.exit(tally["wrong"] > 0)


if __name__ == "__main__":
    {"defaults": defaults, "counts": counts, "perturb": perturb}[sys.argv[1]]()
