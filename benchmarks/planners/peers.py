"""Planners at the commits of docs/record/planners.csv: fetched, made ready, asked."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
import venv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).parent
RECORD = ROOT / "docs" / "record"
PLANNERS = RECORD / "planners.csv"
CACHE = Path(os.environ.get("DPPLAN_PLANNERS", Path.home() / ".cache" / "dpplan-planners"))
_ENTRY = "src/core/index.ts"  # of a planner in TypeScript, bundled into one file


@dataclass(frozen=True)
class Planner:
    """A line of planners.csv. needs: packages with versions, by pip or npm; adapter: a file of
    benchmarks/planners."""

    planner: str
    repository: str
    commit: str
    date: str
    needs: str
    adapter: str

    @property
    def clone(self) -> Path:
        return CACHE / self.planner / self.commit

    @property
    def tools(self) -> Path:
        return CACHE / self.planner / "tools"


def listed() -> list[Planner]:
    """The planners of the record."""
    with PLANNERS.open(encoding="utf-8", newline="") as lines:
        return [Planner(**row) for row in csv.DictReader(lines)]


def _run(*words: str | Path, cwd: Path | None = None) -> None:
    subprocess.run([str(word) for word in words], check=True, cwd=cwd, stdout=sys.stderr)


def fetch(planner: Planner, clones: Path | None) -> None:
    """The files of a planner at its commit, from a git directory in `clones`/OWNER+NAME/repo where
    there is one."""
    if planner.clone.exists():
        return
    source: str | Path = f"https://github.com/{planner.repository}"
    if clones is not None:
        source = clones / planner.repository.replace("/", "+") / "repo"
    part = planner.clone.with_suffix(".part")
    _run("git", "clone", "--quiet", "--no-checkout", source, part)
    _run("git", "-C", part, "checkout", "--quiet", "--detach", planner.commit)
    part.rename(planner.clone)


def command(planner: Planner) -> list[str]:
    """The command of a planner's adapter, after its packages are there."""
    needs, tools = planner.needs.split(), planner.tools
    adapter = str(HERE / planner.adapter)
    if adapter.endswith(".mjs"):
        bundle = planner.clone / "engine.mjs"
        if not bundle.exists():
            tools.mkdir(parents=True, exist_ok=True)
            _run("npm", "install", "--silent", "--prefix", tools, *needs)
            esbuild = tools / "node_modules" / ".bin" / "esbuild"
            shape = ("--bundle", "--platform=node", "--format=esm", f"--outfile={bundle}")
            _run(esbuild, _ENTRY, *shape, cwd=planner.clone)
        return ["node", adapter, str(bundle)]
    python = tools / "bin" / "python"
    if not python.exists():
        venv.create(tools, with_pip=True)
        if needs:
            _run(python, "-m", "pip", "install", "--quiet", *needs)
    return [str(python), adapter, str(planner.clone)]


def ask(planner: Planner, recipes: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """A planner's answers, `refused` where it has none."""
    lines = "".join(json.dumps(recipe) + "\n" for recipe in recipes)
    done = subprocess.run(command(planner), input=lines, capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]
