"""Requests that are to be refused, by options and by files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from command import Answer, dpplan, refused

REQUEST = {"model": "llama-2-7b", "gpus": "16", "gpu": "a100"}


def estimate(**changes: Any) -> Answer:
    values = {k: v for k, v in {**REQUEST, **changes}.items() if v is not None}
    return dpplan(
        "estimate", *(f"--{name.replace('_', '-')}={value}" for name, value in values.items())
    )


FILES = ("model", "config", "gpu", "cluster", "stack", "calibration", "scenario")
SUFFIX = {"config": ".json"}


def ask(kind: str, file: object) -> Answer:
    """A request that reads this file as that kind of file."""
    option = {"config": "model"}.get(kind, kind)
    beside: dict[str, Any] = {"cluster": {"gpu": None}, "host": {"offload": "optimizer"}}
    return estimate(**beside.get(kind, {}), **{option: file})


def file_refused(kind: str, file: Path, *text: str) -> str:
    option = {"config": "model"}.get(kind, kind)
    return refused(ask(kind, file), f"--{option}", *text)
