"""The language model inside a model of several parts: its keys are nested, its head may be tied by
the keys around them."""

from __future__ import annotations

from planner.inputs.huggingface.document import Document
from planner.inputs.huggingface.others import LANGUAGE
from planner.inputs.huggingface.source import HIDDEN, LAYERS
from planner.inputs.huggingface.typed import defaults


def has_language_model(doc: Document) -> bool:
    """Whether a table of a language model is nested in the file."""
    return any(isinstance(doc.data.get(name), dict) for name in LANGUAGE)


def language_model(doc: Document, family: object) -> tuple[Document, object]:
    """The document of the language model and its type: the file itself, unless it nests one."""
    known = defaults().get(family, {}) if isinstance(family, str) else {}
    name = next((nested for nested in LANGUAGE if isinstance(doc.data.get(nested), dict)), None)
    if name is None:
        if "text" not in known:
            return doc, family
        if all(doc.data.get(key) is None for key in (*LAYERS, *HIDDEN)):
            raise doc.error("text_config", "is missing; the file must state it")
        # the first files of a type have the keys of its language model beside all others
        doc.notes.append("the language model is planned; its keys are beside those of other parts")
        return doc, known["text"]
    part = doc.part(name)
    tied = doc.data.get("tie_word_embeddings", known.get("keys", {}).get("tie_word_embeddings"))
    data = dict(part.data) if tied is None else {**part.data, "tie_word_embeddings": tied}
    inner = Document(part.where, data, part.prefix, part.notes)
    kind = inner.get("model_type") or known.get("text")
    doc.notes.append(f"the language model of {name} is planned")
    return inner, kind
