"""Files of public repositories at pinned commits, in a cache outside of the project.

    python -m benchmarks.corpus.fetch
    python -m benchmarks.corpus.fetch --clones FOLDER

files.csv lists them. With --clones they come from git directories in FOLDER/OWNER+NAME/repo that
hold the commit, else from raw.githubusercontent.com. Nothing of them is copied into the project.
"""

from __future__ import annotations

import argparse
import csv
import os
import subprocess
import urllib.request
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
CACHE = Path(os.environ.get("DPPLAN_CORPUS", Path.home() / ".cache" / "dpplan-corpus"))
_RAW = "https://raw.githubusercontent.com"
_SECONDS = 30


@dataclass(frozen=True)
class File:
    """A file of a repository at a commit; program: what it is written for, "none" where it trains
    nothing."""

    repository: str
    commit: str
    path: str
    program: str

    @property
    def cached(self) -> Path:
        return CACHE / self.repository.replace("/", "+") / self.commit[:12] / self.path


def listed() -> list[File]:
    """The files of the corpus."""
    with (HERE / "files.csv").open(encoding="utf-8", newline="") as lines:
        return [File(**row) for row in csv.DictReader(lines)]


def content(file: File, clones: Path | None) -> bytes:
    """The bytes of a file. Raises OSError or CalledProcessError where they cannot be had."""
    if clones is not None:
        folder = clones / file.repository.replace("/", "+") / "repo"
        if folder.exists():
            show = ["git", "--git-dir", str(folder), "show", f"{file.commit}:{file.path}"]
            return subprocess.run(show, capture_output=True, check=True).stdout
    address = f"{_RAW}/{file.repository}/{file.commit}/{urllib.request.quote(file.path)}"
    with urllib.request.urlopen(address, timeout=_SECONDS) as response:
        return bytes(response.read())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--clones", type=Path, help="folder of git directories")
    given = parser.parse_args()
    files = listed()
    for file in files:
        if not file.cached.exists():
            text = content(file, given.clones)
            file.cached.parent.mkdir(parents=True, exist_ok=True)
            file.cached.write_bytes(text)
    print(f"{len(files)} files of {len({file.repository for file in files})} repositories: {CACHE}")


if __name__ == "__main__":
    main()
