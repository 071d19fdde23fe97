"""Requests to the dashboard's server, and a reader of its pages."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Any
from urllib.parse import parse_qsl, urlsplit

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


class _Form(HTMLParser):
    """Fields that the first form of a page with this attribute sends unchanged, as a browser
    without a script does; empty fields are sent, too."""

    def __init__(self, text: str, key: str, value: str) -> None:
        super().__init__()
        self.pairs: list[tuple[str, str]] = []
        self._wanted, self._inside, self._ended = (key, value), False, False
        self._select = ""
        self._options: list[tuple[str, bool]] = []
        self._area: tuple[str, str] | None = None
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        key, value = self._wanted
        entry = {name: text or "" for name, text in attrs}
        if tag == "form" and not self._ended:
            self._inside = value in entry.get(key, "").split()
        if not self._inside:
            return
        name, text = entry.get("name", ""), entry.get("value", "")
        if tag == "input" and name:
            is_box, kind = entry.get("type") == "checkbox", entry.get("type")
            if kind != "file" and (not is_box or "checked" in entry):
                self.pairs.append((name, text))
        elif tag == "select":
            self._select, self._options = name, []
        elif tag == "option":
            self._options.append((text, "selected" in entry))
        elif tag == "textarea":
            self._area = (name, "")

    def handle_data(self, data: str) -> None:
        if self._area is not None:
            self._area = (self._area[0], self._area[1] + data)

    def handle_endtag(self, tag: str) -> None:
        if tag == "form" and self._inside:
            self._inside, self._ended = False, True
        if tag == "select" and self._inside and self._options:
            chosen = [text for text, selected in self._options if selected]
            self.pairs.append((self._select, (chosen or [self._options[0][0]])[0]))
        if tag == "textarea" and self._area is not None:
            self.pairs.append(self._area)
            self._area = None


def sent_by(page: str, key: str = "class", value: str = "tab-form") -> list[tuple[str, str]]:
    """Fields of a form of a page: of a tab, or of another form by an attribute."""
    return _Form(page, key, value).pairs


def led_to(page: str) -> dict[str, list[tuple[str, str]]]:
    """The request of each link in the bar of tabs, by path."""
    out = {}
    for tag, entry in Page(page).tags:
        if tag == "a" and entry.get("data-path"):
            out[str(entry["data-path"])] = parse_qsl(urlsplit(str(entry["href"])).query)
    return out
