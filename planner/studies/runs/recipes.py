"""Published recipes of a stack in the release that a row names, for tables that print only results.

`planner/studies/data/recipes.csv` has the mixtures of experts of Megatron-Bridge, evaluated from
its sources (scripts/performance/configs) at the tag of each container. A recipe belongs to a row
where model, GPU, precision, layout and micro-batch agree.
"""

from __future__ import annotations

import csv
import io
import re
from functools import cache
from pathlib import Path

from planner.inputs.catalog import read_text
from planner.studies.runs.cells import Row, options_of

_RECIPES = Path(__file__).parent.parent / "data" / "recipes.csv"
_STACKS = ("nemo", "nemo-26.06")
_LAYOUT = ("tp", "pp", "vpp", "ep", "micro_batch")
# formats of fp8, as tables name them; those that name none may be any
_FORMATS = {"fp8-mx": "mxfp8", "fp8-cs": "tensorwise"}
_FP8 = frozenset({"mxfp8", "tensorwise", "blockwise", "delayed"})
_WITHOUT_MTP = "w/o MTP"  # as NVIDIA's tables name runs that leave it out
_OTHERS = re.compile(r"[^a-z0-9]")
# words of configurations that a source names, where weights are not sharded: with no_peft_model of
# fms-acceleration TRL prepares the model, which casts norms to fp32 (trl 0.9 sft_trainer.py:
# peft_module_casting_to_bf16; neither where FSDP shards what is quantised)
_NAMED = {"baseline-peft-bnb": {"upcast": "norms"}}


def completed(row: Row) -> Row:
    """A row with the words of its recipe. Its own come first, unless it names the recipe of another
    release, from which they were read."""
    own = options_of(row)
    known = _words(row, own)
    if not known:
        return row
    words = own | known if "recipe" in own else known | own
    if _WITHOUT_MTP in row.get("model", ""):
        words.pop("mtp", None)
    # what it repeats are modules, and no whole layers
    usual = "selective" if "recompute_modules" in words else "none"
    repeats = {"recompute": row.get("recompute", "") or usual}
    return row | repeats | {"options": ";".join(f"{key}={value}" for key, value in words.items())}


def _words(row: Row, own: dict[str, str]) -> dict[str, str]:
    """Words of the recipe of a row's release; none where none is known, or several that differ."""
    named = _NAMED.get(own.get("framework_config", ""), {})
    if named and row.get("zero", "") in ("", "0"):
        return named
    if row.get("stack", "") not in _STACKS or "release" not in own:
        return {}
    wanted = _formats(row, own)
    name = _OTHERS.sub("", row.get("model", "").lower())
    cells = tuple((row.get(column, "") or "1").partition(".")[0] for column in _LAYOUT)
    found = {
        one["options"]
        for one in _recipes()
        if re.search(rf"{one['model']}(?!(?<=\d)\d)", name)  # a number ends where it does
        and row["gpu"].startswith(f"{one['gpu']}-")
        and wanted & set(one["precisions"].split("+"))
        and own["release"] in one["releases"].split("+")
        and cells == tuple(one[column] for column in _LAYOUT)
    }
    return dict(word.split("=", 1) for word in found.pop().split(";")) if len(found) == 1 else {}


def _formats(row: Row, own: dict[str, str]) -> frozenset[str]:
    precision = row.get("precision", "") or "bf16"
    if precision != "fp8":
        return frozenset({precision})
    said = own.get("fp8_recipe") or own.get("fp_recipe")
    return frozenset({_FORMATS.get(said, said)}) if said else _FP8


@cache
def _recipes() -> tuple[dict[str, str], ...]:
    text = read_text(_RECIPES, str(_RECIPES), 1_000_000)
    return tuple(csv.DictReader(io.StringIO(text)))
