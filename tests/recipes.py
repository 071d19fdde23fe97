"""Launch files of other programs, and what is read from them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

RECIPES = Path(__file__).parent / "data" / "recipes"


def stated(table: str) -> dict[str, Any]:
    """A table of data/recipes_said.json: names or texts of files, and options that they state."""
    text = (RECIPES.parent / "recipes_said.json").read_text(encoding="utf-8")
    document: dict[str, Any] = json.loads(text)[table]
    return document
