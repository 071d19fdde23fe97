"""Documents: declared keys, and answers that are as declared."""

from __future__ import annotations

import importlib
import pkgutil

import msgspec
import numpy as np
import pytest

from planner.specs import components, documents
from planner.specs.base import Spec
from planner.specs.document import Document, plain, read, to_json
from planner.specs.documents.run import Storage
from planner.specs.training import TrainingSpec


def _declared() -> list[type[Document]]:
    for found in pkgutil.iter_modules(documents.__path__):
        importlib.import_module(f"{documents.__name__}.{found.name}")
    out, waiting = [], [Document]
    while waiting:
        below = waiting.pop().__subclasses__()
        out += below
        waiting += below
    return out


@pytest.mark.parametrize("kind", _declared(), ids=lambda kind: kind.__name__)
def test_every_key_is_declared_with_a_sentence(kind: type[Document]) -> None:
    for field in msgspec.inspect.type_info(kind).fields:
        said = field.type
        assert isinstance(said, msgspec.inspect.Metadata), field.name
        assert (said.extra_json_schema or {}).get("description"), field.name


def test_a_document_comes_back_from_its_json() -> None:
    one = Storage("disk", np.float64(1e9), 2.0, float("inf"), 4.0, 0.5)
    text = to_json([one])
    assert '"stop_s":null' in text
    with pytest.raises(msgspec.ValidationError, match="stop_s"):
        read(text, list[Storage])
    whole = msgspec.structs.replace(one, stop_s=3.0)
    assert read(to_json([whole]), list[Storage]) == [whole]
    assert plain(whole)["bytes_per_s"] == 1e9


def test_a_spec_inside_a_document_has_the_keys_that_are_set() -> None:
    class Holder(Document):
        spec: TrainingSpec

    one = Holder(TrainingSpec(seq_len=1024, global_batch=8, tokens=1e9))
    assert isinstance(one.spec, Spec)
    assert "attention" not in plain(one)["spec"]
    assert read(to_json(one), Holder) == one


def test_every_component_and_bottleneck_has_its_sentence() -> None:
    kinds = {one.kind for one in components.STEP.values()}
    assert kinds == {*components.BOTTLENECKS, components.COMMUNICATION} - {*components.WIRES}
    assert all("{share}" in said for said in components.BOTTLENECKS.values())
    for one in (*(c.says for c in components.STEP.values()), *components.MEMORY.values()):
        assert one.strip()
