"""Every English sentence of the page, by key (texts.toml here, and of each part). Sentences of the
planner (rules, help) come from the planner."""

from __future__ import annotations

from pathlib import Path

from planner import plugins
from planner.inputs.readers import read_toml


def _read(folder: Path) -> dict[str, str]:
    file = folder / "texts.toml"
    return read_toml(file.read_text("utf-8")) if file.is_file() else {}


_PAGE = dict(_read(Path(__file__).parent))
SCRIPT_TEXTS: dict[str, str] = _PAGE.pop("script")  # type: ignore[assignment]
TEXTS: dict[str, str] = {**_PAGE, **SCRIPT_TEXTS}
for folder in plugins.folders("web"):
    TEXTS |= _read(folder)


def text(key: str, **values: object) -> str:
    """A sentence with its values."""
    return TEXTS[key].format(**values) if values else TEXTS[key]
