"""Every English sentence of the page, by key (web/texts.toml). Sentences of the planner (rules,
help) come from the planner."""

from __future__ import annotations

from pathlib import Path

from planner.inputs.readers import read_toml

TEXTS: dict[str, str] = read_toml(
    Path(__file__).with_name("texts.toml").read_text(encoding="utf-8")
)


def text(key: str, **values: object) -> str:
    """A sentence with its values."""
    return TEXTS[key].format(**values) if values else TEXTS[key]
