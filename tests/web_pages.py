"""Requests to the dashboard's server, and a reader of its pages."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Any

REQUEST = {
    "model": "llama-2-7b",
    "gpu": "a100-sxm4-80gb",
    "gpus": "8",
    "zero": "3",
    "global_batch": "64",
}
TUNED = {"model": "qwen2.5-0.5b", "gpu": "rtx4090-24gb", "seq_len": "512", "method": "lora+full"}
FIXED = {
    **REQUEST,
    "tp": "2",
    "pp": "1",
    "zero": "1",
    "micro_batch": "1",
    "recompute": "selective",
    "stack": "megatron-core",
    "tokens": "1T",
}

QUICK = ("stack_defaults", "true")  # where many searches make one answer
# a small request of each tab, as the pairs of its address
_ONE = [("model", "gpt2"), ("gpu", "a100-sxm4-80gb")]
TABS: dict[str, Any] = {
    "/recommend": [
        *_ONE,
        ("gpu", "l40s"),
        ("tokens", "10B"),
        ("days", "2"),
        ("max_gpus", "16"),
        QUICK,
    ],
    "/batch": [*_ONE, ("tokens", "10B"), ("sweep", "gpus=2,8")],
    "/sweep": [
        *_ONE,
        ("gpus", "8"),
        ("over", "micro_batch"),
        ("values", "1..16"),
        ("pp", "1"),
        ("tokens", "10B"),
    ],
    "/strategies": [*_ONE, ("gpus", "8"), ("strategy", "zero-1")],
    "/allreduce": [("gpu", "a100-sxm4-80gb"), ("gpus", "16"), ("bytes", "1MiB,1GiB")],
    "/batchnorm": [("gpu", "a100-sxm4-80gb"), ("gpus", "16"), ("channels", "64,256x3")],
    "/tune": [*TUNED.items(), QUICK],
    "/rl": [*_ONE, ("gpus", "4"), ("prompts", "16"), ("response_length", "256")],
    "/schedule": [*_ONE, ("gpus", "4"), ("pp", "4"), ("stack", "megatron-core"), ("begin", "0.1")],
    "/input": [("samples_per_s", "900"), ("sample_bytes", "115 kB"), ("workers", "2")],
    "/run": [*_ONE, ("gpus", "8"), ("to", "megatron"), QUICK],
}


class Page(HTMLParser):
    """Numbers with their full value, links, scripts and what else a page holds."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.figures: dict[str, float] = {}
        self.links: dict[str, str] = {}
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self._key = self._href = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        result = dict(attrs)
        self.tags.append((tag, result))
        if tag == "a":
            self._key, self._href = str(result.get("data-key") or ""), str(result.get("href") or "")
            self.links[str(result.get("aria-label") or self._href)] = self._href
        if tag == "data" and self._key and result.get("value"):
            self.figures[self._key] = float(str(result["value"]))

    def handle_endtag(self, tag: str) -> None:
        if tag == "a":
            self._key = ""


def at(document: dict[str, Any], path: str) -> Any:
    for part in path.split("."):
        document = document[part]
    return document
