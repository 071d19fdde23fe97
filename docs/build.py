"""Write the generated pages and blocks of the documentation, or check that they are current.

    python docs/build.py            write what has changed
    python docs/build.py --check    write nothing; exit 1 and name every page that is not current

Written first, because every band and every chance to fit comes from them:
planner/data/residuals.csv and planner/data/memory_residuals.csv. Whole pages:
docs/formulas.md, docs/documents.md, docs/catalogue.md, docs/against-our-sources.md,
docs/accuracy.md, docs/questions.md, docs/scenario.schema.json. Blocks between
`<!-- begin: NAME -->` and `<!-- end -->`: README.md and the hand-written pages of docs/.

Written last: docs/built.sha256, of everything the pages with the studies of `dpplan validate`
(minutes of a core) were made of. While it holds, the tests take these pages as they are; once a
file under it has changed they are made again.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
for folder in (ROOT, ROOT / "docs"):
    if str(folder) not in sys.path:
        sys.path.append(str(folder))

from pages import (  # noqa: E402  # noqa: E402
    accuracy,
    blocks,
    catalogue,
    documents,
    formulas,
    lessons,
    options,
    questions,
    sources,
)

from planner.evidence import band as uncertainty  # noqa: E402
from planner.evidence import memory  # noqa: E402

RESIDUALS = uncertainty.RESIDUALS.relative_to(ROOT).as_posix()
MEMORY = memory.OBSERVED.relative_to(ROOT).as_posix()

PAGES: dict[str, Callable[[], str]] = {
    RESIDUALS: accuracy.recorded,
    MEMORY: accuracy.recorded_memory,
    "docs/formulas.md": formulas.page,
    "docs/documents.md": documents.page,
    "docs/catalogue.md": catalogue.page,
    "docs/against-our-sources.md": sources.page,
    "docs/accuracy.md": accuracy.page,
    "docs/questions.md": questions.page,
    **lessons.pages(),
    "docs/scenario.schema.json": options.schema,
}

# pages with errors of held-out suites, ablations or coverage
STUDIES = (RESIDUALS, MEMORY, "docs/accuracy.md", "docs/models.md", "README.md")
STAMP = ROOT / "docs" / "built.sha256"
_MADE_OF = ("planner/**/*", "hardware_profiles/**/*", "docs/pages/*.py", "docs/build.py")


def digest() -> str:
    """SHA-256 of what the pages with studies are made of, and of these pages."""
    files = {path for pattern in _MADE_OF for path in ROOT.glob(pattern) if path.is_file()}
    files |= {ROOT / name for name in STUDIES}
    whole = hashlib.sha256()
    for path in sorted(files):
        if path.suffix != ".pyc":
            whole.update(path.relative_to(ROOT).as_posix().encode() + b"\0")
            whole.update(hashlib.sha256(path.read_bytes()).digest())
    return whole.hexdigest()


def unchanged() -> bool:
    """Whether nothing has changed since the pages with studies were written."""
    return STAMP.exists() and STAMP.read_text(encoding="utf-8").strip() == digest()


def hand_written() -> list[str]:
    """Pages that may hold generated blocks."""
    found = [
        ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
    ] + sorted((ROOT / "docs").glob("*.md"))
    return [
        name
        for path in found
        if path.exists() and (name := path.relative_to(ROOT).as_posix()) not in PAGES
    ]


def current(name: str) -> str:
    """What the page should be now."""
    if name in PAGES:
        return PAGES[name]()
    return blocks.fill((ROOT / name).read_text(encoding="utf-8"))


def stale() -> dict[str, str]:
    """Pages that are not current, with what they should be."""
    out = {}
    for name in (*PAGES, *hand_written()):
        path, wanted = ROOT / name, current(name)
        if not path.exists() or path.read_text(encoding="utf-8") != wanted:
            out[name] = wanted
    return out


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description="Write the generated documentation, or check that it is current."
    )
    parser.add_argument(
        "--check", action="store_true", help="write nothing; exit 1 when a page is not current"
    )
    asked = parser.parse_args(arguments)
    for name, forget in ((RESIDUALS, uncertainty.forget), (MEMORY, memory.forget)):
        if (
            not asked.check
            and name in PAGES
            and (wanted := current(name)) != (ROOT / name).read_text("utf-8")
        ):
            (ROOT / name).write_text(wanted, encoding="utf-8")
            forget()
            print(f"wrote {name}")
    found = stale()
    for name, text in found.items():
        if asked.check:
            print(f"{name} is not current; run: python docs/build.py", file=sys.stderr)
        else:
            (ROOT / name).write_text(text, encoding="utf-8")
            print(f"wrote {name}")
    if not asked.check and set(STUDIES) <= {*PAGES, *hand_written()}:
        STAMP.write_text(digest() + "\n", encoding="utf-8")
    return 1 if asked.check and found else 0


if __name__ == "__main__":
    raise SystemExit(main())
