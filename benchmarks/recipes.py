"""How much of public recipes is read: shares of files and of their arguments, and what is left.

python benchmarks/recipes.py FOLDER... [--left 40]

FOLDER: a checkout of a repository with recipes; files of no known kind (documents, data) are
counted apart, by the reason. What is printed stands in docs/reading.md.
"""

from __future__ import annotations

import argparse
from collections import Counter, defaultdict
from pathlib import Path

from planner import formats
from planner.specs.base import PlanError

_KINDS = (".yaml", ".yml", ".json", ".toml", ".sh", ".slurm", ".sbatch")
_SHOWN = 100  # characters of a reason


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--left", type=int, default=20, help="arguments listed, 0 for none")
    asked = parser.parse_args()
    for folder in asked.folders:
        _score(folder, asked.left)


def _score(folder: Path, left: int) -> None:
    files = sorted(one for one in folder.rglob("*") if one.suffix in _KINDS and one.is_file())
    uses: Counter[str] = Counter()
    others: Counter[str] = Counter()
    unknown: dict[str, Counter[str]] = defaultdict(Counter)
    read = whole = 0
    for path in files:
        try:
            found = formats.read({path.name: path.read_text(encoding="utf-8", errors="replace")})
        except PlanError as error:
            others[error.remedy[:_SHOWN]] += 1
            continue
        read += 1
        missed = [name for name, one in found.arguments.items() if one.use == "not understood"]
        uses.update(one.use for one in found.arguments.values())
        whole += not missed
        for name in missed:
            unknown[name][found.arguments[name].note] += 1
    every = sum(uses.values()) or 1
    shares = ", ".join(f"{use} {count / every:.1%}" for use, count in uses.most_common())
    print(
        f"{folder}: {len(files)} files, {read} read, {whole} of them wholly; {every:,} arguments:"
    )
    print(f"  {shares}")
    for reason, count in others.most_common(5):
        print(f"  {count} others: {reason}")
    for name, notes in sorted(unknown.items(), key=lambda one: -sum(one[1].values()))[:left]:
        print(f"  {sum(notes.values()):5} {name}: {next(iter(notes)) or 'nobody here knows it'}")


if __name__ == "__main__":
    main()
