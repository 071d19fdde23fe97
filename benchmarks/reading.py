"""How much of other people's configurations is read: the share of files parsed, of arguments
understood, and those that are not, over folders of files.

    python benchmarks/reading.py ~/Megatron-LM/tests/functional_tests ~/Primus/examples
    python benchmarks/reading.py --estimate h100:64 --most 20 FOLDER

Every file that some format has a part of is one recipe; of Python, every function that is one.
--estimate plans each as well, for GPUs of this kind where the file does not say how many.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from planner.formats import recipe as formats
from planner.formats.megatron_bridge import recipes_in
from planner.formats.plan import planned
from planner.formats.verbs.read import answer
from planner.specs.base import PlanError

SUFFIXES = (".sh", ".yaml", ".yml", ".json", ".toml", ".py", ".txt", ".sbatch", ".slurm")


@dataclass
class Tally:
    """Outcomes of reading the files of a folder."""

    files: int = 0
    read: int = 0
    with_model: int = 0
    estimated: int = 0
    uses: Counter[str] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)
    unknown: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)


def texts(folder: Path) -> Iterator[tuple[str, str]]:
    """Recipes of a folder that some format has a part of, by name."""
    paths = [folder] if folder.is_file() else sorted(folder.rglob("*"))
    for path in paths:
        if path.suffix not in SUFFIXES or not path.is_file():
            continue
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        if path.suffix == ".py":
            recipes = recipes_in(text) if "ConfigContainer" in text else {}
            yield from ((f"{path.name}:{name}", part) for name, part in recipes.items())
        elif formats.knows({path.name: text}):
            yield path.name, text


def tally(folder: Path, gpu: str, gpus: int, kind: str) -> Tally:
    out = Tally()
    for name, text in texts(folder):
        out.files += 1
        try:
            recipe = formats.read({name: text})
        except PlanError as error:
            out.refused[error.remedy[:90]] += 1
            continue
        if kind and recipe.kinds[0] != kind:
            out.files -= 1
            continue
        out.read += 1
        out.kinds[recipe.kinds[0]] += 1
        out.with_model += "model" in recipe.options
        out.uses.update(argument.use for argument in recipe.arguments.values())
        out.unknown.update(n for n, o in recipe.arguments.items() if o.use == "not understood")
        if gpu and "model" in recipe.options:
            out.estimated += _estimated(name, text, gpu, gpus, out)
    return out


def _estimated(name: str, text: str, gpu: str, gpus: int, out: Tally) -> bool:
    given = {"gpu": gpu, "gpus": gpus, "advice": 0}
    try:
        planned_recipe = answer(planned({name: text}, given))
    except PlanError as error:
        out.refused[str(error)[:90]] += 1
        return False
    if planned_recipe.refused:
        out.refused[planned_recipe.refused[:90]] += 1
    return planned_recipe.estimate is not None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--estimate", default="", metavar="GPU:COUNT")
    parser.add_argument("--kind", default="", help="only files of this format")
    parser.add_argument("--most", type=int, default=12, help="arguments listed")
    given = parser.parse_args()
    gpu, _, gpus = given.estimate.partition(":")
    for folder in given.folders:
        counts = tally(folder, gpu, int(gpus or 8), given.kind)
        total = sum(counts.uses.values())
        understood = 1 - counts.uses["not understood"] / total if total else 0.0
        print(
            f"{folder}: {counts.read} of {counts.files} files parsed, {counts.with_model} name or"
        )
        print(f"  state their model; {total:,} arguments, {understood:.1%} understood")
        print(f"  {dict(counts.kinds)} {dict(counts.uses)}")
        if gpu:
            print(f"  estimated: {counts.estimated}")
        for title, counted in (("not understood", counts.unknown), ("refused", counts.refused)):
            for name, count in counted.most_common(given.most):
                print(f"  {title:15} {count:5} {name}")


if __name__ == "__main__":
    main()
