"""How the readers do on the corpus: whether the plan has each value whose
truth is known, says that it is undecided, leaves it open (no file says it), or contradicts it.

    python -m benchmarks.corpus.score
    python -m benchmarks.corpus.score --wrong --unknown 20 --program megatron

A file that trains and is not read counts its values as unread. Of files that train nothing it is
counted how many are planned nevertheless.
"""

from __future__ import annotations

import argparse
import csv
import time
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from benchmarks.corpus.fetch import HERE, File, listed
from planner.formats.plan import Planned, planned
from planner.inputs.model import model_spec
from planner.specs.base import PlanError

STATES = ("right", "undecided", "open", "wrong", "unread")
_BITS = {"nf4": 4, "fp4": 4, "hqq": 4, "int8": 8}


@dataclass
class Tally:
    """Counts of one program."""

    files: int = 0
    read: int = 0
    planned: int = 0  # of files that train nothing
    arguments: int = 0
    understood: int = 0
    values: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    unknown: Counter[str] = field(default_factory=Counter)
    refused: list[str] = field(default_factory=list)
    seconds: float = 0.0


def truths() -> dict[tuple[str, str], list[tuple[str, str]]]:
    out: dict[tuple[str, str], list[tuple[str, str]]] = defaultdict(list)
    with (HERE / "truths.csv").open(encoding="utf-8", newline="") as lines:
        for row in csv.DictReader(lines):
            out[row["repository"], row["path"]].append((row["option"], row["value"]))
    return out


def _model(name: str) -> str:
    """The catalogue's name of a model, of a copy of it too; else its own."""
    for known in (name, name.rpartition("/")[2]):
        try:
            return model_spec(known)[0].name
        except PlanError:
            continue
    return name.rpartition("/")[2].lower()


def _shape(model: str, name: str) -> Any:
    """A field of a model, of its first layer where layers have it."""
    spec = model_spec(model)[0]
    if name == "mlp":
        gated = {bool(part.gated) for part in spec.parts if hasattr(part, "gated")}
        return "gated" if gated == {True} else "plain" if gated == {False} else None
    holders = [spec, *(part for part in spec.parts if hasattr(part, name))]
    return next((getattr(part, name) for part in holders if hasattr(part, name)), None)


def state(plan: Planned, left: Mapping[str, object], option: str, truth: str) -> tuple[str, Any]:
    """The state of one value, and what the plan has."""
    options = plan.options
    key = {"frozen_bits": "base_precision"}.get(option, option.partition(".")[0])
    if key in left or (key == "base_precision" and "lora" in left):
        return "undecided", None
    value = options.get(key)
    if option.startswith("model.") and value is not None:
        try:
            value = _shape(str(value), option.partition(".")[2])
        except PlanError:
            return "open", None
    elif option == "frozen_bits":
        value = _BITS.get(str(value).partition("-")[0], 16) if options.get("lora") else None
    elif option == "lora":
        value = value or 0
    elif option == "task":
        value = value or "sft"
    elif option == "model" and value is not None:
        value, truth = _model(str(value)), _model(str(truth))
    if value is None:
        return "open", None
    if option == "recompute" and truth == "selective" and str(value).startswith("selective"):
        return "right", value
    same = str(value) == str(truth)
    return ("right" if same else "wrong"), value


def score(file: File, known: list[tuple[str, str]], tally: Tally) -> None:
    text = file.cached.read_text("utf-8", "replace")
    tally.files += 1
    began = time.perf_counter()
    try:
        plan = planned({file.path.rpartition("/")[2]: text}, {})
    except PlanError as error:
        tally.values["unread"] += len(known)
        tally.refused.append(f"{file.repository} {file.path}: {error}"[:200])
        return
    finally:
        tally.seconds = max(tally.seconds, time.perf_counter() - began)
    arguments = plan.recipe.arguments
    trains = plan.recipe.kinds != ("launcher",)
    tally.read += trains
    tally.planned += trains and file.program == "none"
    tally.arguments += len(arguments)
    unknown = [name for name, used in arguments.items() if used.use == "not understood"]
    tally.understood += len(arguments) - len(unknown)
    tally.unknown.update(unknown)
    left = plan.options.undecided
    for option, truth in known:
        result, value = state(plan, left, option, truth)
        if not trains:
            result = "unread"
        tally.values[result] += 1
        if result == "wrong":
            tally.wrong.append(f"{file.repository} {file.path}: {option} is {truth}, read {value}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--wrong", action="store_true", help="list contradicted values")
    parser.add_argument("--refused", action="store_true", help="list files that are not read")
    parser.add_argument("--unknown", type=int, default=0, help="arguments listed per program")
    parser.add_argument("--program", default="")
    given = parser.parse_args()
    tallies: dict[str, Tally] = defaultdict(Tally)
    known = truths()
    for file in listed():
        if given.program in ("", file.program):
            score(file, known[file.repository, file.path], tallies[file.program])
    print("| program | files | read | arguments | understood |", " | ".join(STATES), "|")
    print("| --- |", " | ".join(["---:"] * (4 + len(STATES))), "|")
    rows = [*tallies.items(), ("all that train", _sum(tallies))]
    for name, tally in rows:
        share = f"{tally.understood / tally.arguments:.1%}" if tally.arguments else ""
        counts = " | ".join(str(tally.values[state]) for state in STATES)
        print(
            f"| {name} | {tally.files} | {tally.read} | {tally.arguments:,} | {share} | {counts} |"
        )
    print(
        f"planned though they train nothing: {tallies['none'].planned} of {tallies['none'].files}"
    )
    print(f"longest: {max(tally.seconds for tally in tallies.values()):.2f} s")
    for name, tally in tallies.items():
        for line in [*tally.wrong * given.wrong, *tally.refused * given.refused]:
            print(f"{name}: {line}")
        for argument, count in tally.unknown.most_common(given.unknown):
            print(f"{name}: {count} {argument}")


def _sum(tallies: dict[str, Tally]) -> Tally:
    out = Tally()
    for name, tally in tallies.items():
        if name != "none":
            out.files += tally.files
            out.read += tally.read
            out.arguments += tally.arguments
            out.understood += tally.understood
            out.values.update(tally.values)
    return out


if __name__ == "__main__":
    main()
