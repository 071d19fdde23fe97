"""Published runs that the dashboard offers as presets: planner/data/presets.csv, made of the rows
of planner/studies/data/runs.

    python benchmarks/presets.py --write    # about a minute

A row becomes a preset where the options of an estimate say all that it says: the model is one of
the catalogue, the one that the row names where it has its shape, and the estimate of these options
equals the row's. Of each publication, model and
GPU the run on most GPUs is taken.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from planner import api
from planner.evidence.band import RESIDUALS
from planner.inputs import catalog
from planner.specs.base import PlanError
from planner.specs.documents.estimate import Estimate
from planner.specs.model import ModelSpec, stated
from planner.specs.options import LAYOUT, Options, rows
from planner.specs.options.checked import from_text
from planner.specs.training import TrainingSpec
from planner.studies.runs.cells import Row
from planner.studies.validate.files import read_all
from planner.studies.validate.scored import scored

PRESETS = Path(api.__file__).parent / "data" / "presets.csv"
FIELDS = ("run_id", "title", "query", "step_s", "source", "source_ref")
_SHAPE = ("layers", "hidden", "heads", "kv_heads", "head_dim", "ffn_hidden")
_SAME = 0.02  # of a step: padding of the vocabulary, and positions that the catalogue has
_CLUSTER = ("gpus_per_node", "intra_node", "inter_node", "nics_per_node")


def candidates() -> Iterator[Row]:
    """Well stated rows with a time, of each publication, model and GPU those on most GPUs first."""
    stated = [r for r in read_all(()) if r.get("tier") == "A" and r.get("step_s")]
    yield from sorted(stated, key=lambda r: -int(float(r["gpus"])))


Shapes = dict[tuple[Any, ...], list[str]]


def models() -> Shapes:
    """Ids of the catalogue by shape."""
    by_shape: Shapes = {}
    for entry in api.list_catalog("models"):
        spec = catalog.load("models", ModelSpec, entry.id)
        by_shape.setdefault(_shape(spec), []).append(entry.id)
    return by_shape


def _shape(spec: ModelSpec) -> tuple[Any, ...]:
    keys = stated(spec)
    return tuple(keys.get(name) for name in _SHAPE)


def options(row: Row, known: Shapes) -> Iterator[dict[str, Any]]:
    """The options that may say what the row says, of each model of its shape."""
    try:
        estimated = scored(row)
        plan, layout = estimated.plan, estimated.estimates.table.layout(0)
    except (PlanError, ValueError):
        return
    table, usual = rows(Options), TrainingSpec(seq_len=1, global_batch=1)
    given: dict[str, Any] = {"gpu": row["gpu"], "gpus": plan.cluster.gpus}
    given |= {name: from_text(table[name], row[name]) for name in _CLUSTER if row.get(name)}
    if row.get("nic_gbps"):
        given["nic_bandwidth"] = f"{float(row['nic_gbps']):g} Gbit/s"
    for name in TrainingSpec.model_fields:
        value = getattr(plan.training, name)
        if name in table and value != getattr(usual, name):
            given[name] = value
    given |= {**{name: getattr(layout, name) for name in LAYOUT}, "stack": plan.stack.id}
    for model in known.get(_shape(plan.model), []):
        yield {"model": model, **given}


def answered(row: Row, known: Shapes, predicted: float) -> tuple[Options, Estimate] | None:
    """The options whose answer is nearest to the row's; None where none is near."""
    answers = []
    for given in options(row, known):
        try:
            request = api.read_options(given)
            answers.append((request, api.estimate(request, brief=True)))
        except (PlanError, ValueError):
            continue

    def off(answer: tuple[Options, Estimate]) -> float:
        return abs(answer[1].step.seconds / predicted - 1)

    near = [answer for answer in answers if off(answer) <= _SAME]
    named = _named(row["model"])
    return min(near, key=lambda answer: (answer[0].model != named, off(answer)), default=None)


def _named(model: str) -> str:
    """Id of the catalogue that a row's name of its model means; empty where it means none."""
    try:
        return catalog.find("models", model).stem
    except PlanError:
        return ""


def presets() -> list[dict[str, Any]]:
    """Every preset, by publication."""
    with RESIDUALS.open(encoding="utf-8", newline="") as file:
        ratio = {row["run_id"]: float(row["measured_over_default"]) for row in csv.DictReader(file)}
    known = models()
    by_name: dict[tuple[str, str, str], dict[str, Any]] = {}
    for row in candidates():
        key = row["suite"], row["model"], row["gpu"]
        if key in by_name or row["run_id"] not in ratio:
            continue
        predicted = float(row["step_s"]) / ratio[row["run_id"]]
        best = answered(row, known, predicted)
        if best is None:
            continue
        chosen, answer = best
        cluster = answer.cluster
        by_name[key] = {
            "run_id": row["run_id"],
            "title": f"{row['model']} on {cluster.gpus:,} x {cluster.gpu_title}",
            "query": urlencode([(n, _text(v)) for n, v in chosen.given().items()]),
            "step_s": row["step_s"],
            "source": row["source"],
            "source_ref": row["source_ref"],
        }
    return sorted(by_name.values(), key=lambda preset: preset["run_id"])


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def main() -> None:
    """Print the presets, or write them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true")
    every = presets()
    if parser.parse_args().write:
        with PRESETS.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
            writer.writeheader()
            writer.writerows(every)
    for preset in every:
        print(preset["run_id"], preset["title"], preset["step_s"])


if __name__ == "__main__":
    main()
