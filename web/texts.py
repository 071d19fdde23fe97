"""Every English sentence of the page, by key (texts.toml here, and of each part). Sentences of the
planner (rules, help) come from the planner."""

from __future__ import annotations

from pathlib import Path

from planner import plugins
from planner.inputs.readers import read_toml

TEXTS: dict[str, str] = {
    key: sentence
    for folder in (Path(__file__).parent, *plugins.folders("web"))
    if (folder / "texts.toml").is_file()
    for key, sentence in read_toml((folder / "texts.toml").read_text("utf-8")).items()
}


def text(key: str, **values: object) -> str:
    """A sentence with its values."""
    return TEXTS[key].format(**values) if values else TEXTS[key]
