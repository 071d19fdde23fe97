"""Answers to fixed requests, recorded before a change and compared after it.

    python benchmarks/answers.py record before.json [--tree DIR] [--only TEXT] [--sample N]
    python benchmarks/answers.py compare before.json after.json [--all]

The requests are lines of tests/data/answers/requests.txt, so that an option added later leaves
them as they are. record runs each in process, in the folder of the tree whose code answers, and
keeps exit status, stdout (as a document where it is one), stderr and the files written. compare
allows numbers a relative difference of 1e-9 and everything else none; keys that were added or
removed are listed apart. It exits with status 1 where an answer differs.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import re
import shlex
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
REQUESTS = ROOT / "tests" / "data" / "answers" / "requests.txt"
OUT = "{out}"  # stands for an empty folder in a request and in its answer
TOLERANCE = 1e-9
SHOWN = 4  # requests and values printed per differing key


def requests() -> list[str]:
    lines = (line.strip() for line in REQUESTS.read_text().splitlines())
    return [line for line in lines if line and not line.startswith("#")]


def chosen(only: str, sample: int) -> list[str]:
    lines = [line for line in requests() if only in line]
    picked = set(random.Random(0).sample(lines, min(sample, len(lines)))) if sample else set(lines)
    return [line for line in lines if line in picked]


def record(file: Path, tree: Path, lines: list[str]) -> None:
    """Answers of the tree's code, by a process whose imports come from there."""
    code = f"import runpy; runpy.run_path({str(Path(__file__).resolve())!r})['work']({str(tree)!r})"
    environment = {**os.environ, "PYTHONPATH": str(tree), "COLUMNS": "100"}
    done = subprocess.run(
        [sys.executable, "-c", code],
        input="\n".join(lines),
        stdout=subprocess.PIPE,
        text=True,
        cwd=tree,
        env=environment,
        check=True,
    )
    file.write_text(done.stdout)


def work(tree: str) -> None:
    """Answer the lines of stdin; prints one JSON document."""
    import planner
    from planner.cli.app import app

    assert Path(planner.__file__).is_relative_to(tree), planner.__file__
    lines = sys.stdin.read().splitlines()
    answers = {}
    for number, line in enumerate(lines, 1):
        answers[line] = answered(app, line)
        if sys.stderr.isatty() or number % 50 == 0:
            print(f"{number} of {len(lines)}", file=sys.stderr)
    json.dump(answers, sys.stdout, indent=0)


def answered(app: Any, line: str) -> dict[str, Any]:
    from typer.testing import CliRunner

    with tempfile.TemporaryDirectory() as out:
        words = shlex.split(line.replace(OUT, out))
        started = time.perf_counter()
        result = CliRunner().invoke(app, words, env={"COLUMNS": "100"})
        seconds = time.perf_counter() - started
        crash = result.exception
        answer = {
            "status": result.exit_code,
            "stdout": document(result.stdout.replace(out, OUT)),
            "stderr": result.stderr.replace(out, OUT),
            "crash": repr(crash) if crash and not isinstance(crash, SystemExit) else "",
            "files": {
                str(path.relative_to(out)): document(path.read_text().replace(out, OUT))
                for path in sorted(Path(out).rglob("*"))
                if path.is_file()
            },
        }
    return {**answer, "seconds": round(seconds, 3)}


def document(text: str) -> Any:
    """Text as JSON without what is measured, or as lines."""
    try:
        return without_clock(json.loads(text))
    except ValueError:
        return re.sub(r"\b[\d.]+ m?s\b(?= of search)", "", text).splitlines()


def without_clock(value: Any) -> Any:
    """A document without the seconds that a search took."""
    if isinstance(value, dict):
        clock = {"seconds"} if "evaluated" in value else set()
        return {key: without_clock(each) for key, each in value.items() if key not in clock}
    return [without_clock(each) for each in value] if isinstance(value, list) else value


def differences(old: Any, new: Any, path: str = "") -> Iterator[tuple[str, str, Any, Any]]:
    """Kind (value, added, removed), path, and both values of what differs."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in [*old, *(key for key in new if key not in old)]:
            below = f"{path}.{key}" if path else key
            if key not in new:
                yield "removed", below, old[key], None
            elif key not in old:
                yield "added", below, None, new[key]
            else:
                yield from differences(old[key], new[key], below)
    elif isinstance(old, list) and isinstance(new, list):
        if len(old) != len(new):
            yield "value", f"{path}[] (length)", len(old), len(new)
        for before, other in zip(old, new, strict=False):
            yield from differences(before, other, f"{path}[]")
    elif not same(old, new):
        yield "value", path, old, new


def same(old: Any, new: Any) -> bool:
    if isinstance(old, float) and isinstance(new, int | float) and not isinstance(new, bool):
        return math.isclose(old, new, rel_tol=TOLERANCE)
    if isinstance(old, int) and isinstance(new, float) and not isinstance(old, bool):
        return math.isclose(old, new, rel_tol=TOLERANCE)
    return bool(type(old) is type(new) and old == new)


def compare(before: Path, after: Path, every: bool) -> int:
    old, new = json.loads(before.read_text()), json.loads(after.read_text())
    common = [line for line in old if line in new]
    groups: dict[tuple[str, str], list[tuple[str, Any, Any]]] = defaultdict(list)
    differing = set()
    for line in common:
        pair = [{k: v for k, v in side[line].items() if k != "seconds"} for side in (old, new)]
        for kind, path, before_value, other in differences(*pair):
            groups[kind, path].append((line, before_value, other))
            if kind == "value":
                differing.add(line)
    print(f"{len(differing)} of {len(common)} answers differ in a value")
    for kind in ("value", "removed", "added"):
        keys = [(path, hits) for (each, path), hits in groups.items() if each == kind]
        if keys:
            print(f"\n{kind}: {len(keys)} keys")
        for path, hits in sorted(keys, key=lambda key: -len(key[1])):
            print(f"  {path}: {len({line for line, *_ in hits})} requests")
            for line, before_value, other in (
                hits if every else hits[:SHOWN] if kind == "value" else ()
            ):
                print(f"    {short(before_value)} -> {short(other)}  | {line[:160]}")
    if differing:
        print("\nrequests that differ:")
    for line in common:
        if line in differing:
            print(f"  {line}")
    return bool(differing)


def short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 300 else f"{text[:297]}..."


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    verbs = parser.add_subparsers(dest="verb", required=True)
    recording = verbs.add_parser("record")
    recording.add_argument("file", type=Path)
    recording.add_argument("--tree", type=Path, default=ROOT, help="checkout whose code answers")
    recording.add_argument("--only", default="", help="only requests that contain this text")
    recording.add_argument("--sample", type=int, default=0, help="this many of them")
    comparing = verbs.add_parser("compare")
    comparing.add_argument("before", type=Path)
    comparing.add_argument("after", type=Path)
    comparing.add_argument("--all", action="store_true", help="print every difference")
    given = parser.parse_args()
    if given.verb == "compare":
        return compare(given.before, given.after, given.all)
    record(given.file, given.tree.resolve(), chosen(given.only, given.sample))
    return 0


if __name__ == "__main__":
    sys.exit(main())
