"""Every term of the page in a sentence. The texts come from elsewhere: inputs from the option
table, figures and layouts from the documents, parts of a step and of memory from the components."""

from __future__ import annotations

from functools import cache
from typing import Any, get_type_hints

from msgspec import Meta

from planner import api
from planner.specs.components import MEMORY, STEP
from planner.specs.document import Document
from planner.specs.documents.estimate import Provenance, Step, Throughput
from planner.specs.documents.memory import Memory
from planner.specs.documents.run import Run
from planner.specs.options import rows

# figures of the answer: the name they have on the page, and their key of a document
_FIGURES: tuple[tuple[str, type[Document], str], ...] = (
    ("Step", Step, "seconds"),
    ("80 % band, fast end", Step, "low"),
    ("80 % band, slow end", Step, "high"),
    ("What the band rests on", Step, "confidence"),
    ("Bottleneck", Step, "bottleneck"),
    ("Throughput", Throughput, "tokens_per_s"),
    ("MFU", Throughput, "mfu"),
    ("HFU", Throughput, "hfu"),
    ("Memory per GPU", Memory, "device_bytes"),
    ("Chance to fit", Memory, "fit_chance"),
    ("Verdict", Memory, "verdict"),
    ("Headroom", Memory, "headroom_bytes"),
    ("Training time", Run, "days"),
    ("Goodput", Run, "goodput"),
    ("Cost", Run, "cost_usd"),
    ("Energy", Run, "energy_kwh"),
    ("Assumed share", Provenance, "assumed_frac"),
)


@cache
def glossary() -> list[dict[str, Any]]:
    """Groups of terms, each with its name, its sentence and its other names."""
    inputs = [
        {"id": row.name, "term": row.says.label, "says": row.says.help, "also": row.flag}
        for row in rows(api.Options).values()
        if row.says.form != "absent"
    ]
    figures = [
        {
            "id": f"{document.__name__.lower()}-{key}",
            "term": term,
            "says": _says(document, key),
            "also": "",
        }
        for term, document, key in _FIGURES
    ]
    parts = [
        {"id": f"step-{name}", "term": name.replace("_", " "), "says": component.says, "also": ""}
        for name, component in STEP.items()
    ]
    memory = [
        {"id": f"memory-{name}", "term": name.replace("_", " "), "says": text, "also": ""}
        for name, text in MEMORY.items()
    ]
    return [
        {"key": "glossary_figures", "terms": figures},
        {
            "key": "glossary_inputs",
            "terms": sorted(inputs, key=lambda entry: entry["term"].lower()),
        },
        {"key": "glossary_step", "terms": parts},
        {"key": "glossary_memory", "terms": memory},
    ]


def _says(document: type[Document], key: str) -> str:
    """The description of a key, as a sentence begins."""
    notes = get_type_hints(document, include_extras=True)[key].__metadata__
    text = next(str(note.description) for note in notes if isinstance(note, Meta))
    return text[:1].upper() + text[1:]
