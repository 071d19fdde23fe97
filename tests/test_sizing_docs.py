"""docs/sizing.md names every key of the documents of recommend and compare, and no others."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from command import dpplan

PAGE = (Path(__file__).resolve().parents[1] / "docs" / "sizing.md").read_text(encoding="utf-8")
CONTRACT = (Path(__file__).resolve().parents[1] / "docs" / "contract.md").read_text(
    encoding="utf-8"
)

# whose inner keys are those of the report, names of things, or what was asked
_KNOWN = {
    "cluster",
    "layout",
    "memory",
    "step",
    "throughput",
    "run",
    "shape",
    "values",
    "free",
    "searched_free",
    "saturates",
}
_NAMES = {"components", "change_frac"}

SMALL = ("--model", "gpt2", "--seq-len", 512, "--stack", "megatron-core")
DOCUMENTS = (
    (
        "recommend",
        *SMALL,
        "--gpu",
        "a100",
        "--gpu",
        "gb200-186gb",
        "--max-gpus",
        16,
        "--tokens",
        "1B",
        "--days",
        10,
    ),
    ("recommend", "bandwidth", *SMALL, "--gpu", "a100", "--gpus", 16, "--micro-batch", 1),
    ("recommend", "batch", *SMALL, "--gpu", "a100", "--gpus", 8, "--micro-batch", 1),
    ("recommend", "model", *SMALL, "--gpu", "rtx5060ti-16gb", "--gpus", 1, "--global-batch", 4),
    ("recommend", "offload", *SMALL, "--gpu", "a100", "--gpus", 8),
    ("compare", *SMALL, "--vary", "gpu=a100,h100", "--gpus", 8),
    ("compare", *SMALL, "--gpu", "a100", "--sweep", "gpus=7,8,16,32", "--global-batch", 64),
)


def keys(value: Any) -> set[str]:
    """Names of keys at every depth, without those whose keys are names of things."""
    if isinstance(value, list):
        return {name for item in value for name in keys(item)}
    if not isinstance(value, dict):
        return set()
    out = set(value)
    for name, inner in value.items():
        if name in _NAMES and isinstance(inner, dict):
            out |= {k for one in inner.values() for k in keys(one)}
        elif name not in _KNOWN:
            out |= keys(inner)
    return out


def test_every_key_is_documented_and_every_documented_key_exists() -> None:
    written = PAGE[PAGE.index("## Document of `recommend --json`") :]
    texts = [text for text in re.findall(r"`([^`]+)`", written) if "--" not in text]
    named = {text for text in texts if " " in text} | {
        w for text in texts if " " not in text for w in re.findall(r"\w+", text)
    }
    seen: set[str] = set()
    for words in DOCUMENTS:
        answer = dpplan(*words, "--json")
        assert answer.status == 0, answer.stderr
        seen |= keys(answer.json())
    assert seen - named == set()
    of_the_report = {
        "components",
        "hidden",
        "exposed",
        "low",
        "high",
        "seconds",
        "bottleneck",
        "device_bytes",
        "capacity_bytes",
    }
    commands = {"compare"}
    assert named - seen - of_the_report - commands == set()
    for name in ("throughput", "run", "cluster", "layout"):
        assert f"`{name}." in CONTRACT
