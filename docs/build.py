"""Write the generated pages and blocks of the documentation, or check that they are current.

    python docs/build.py            write what has changed
    python docs/build.py --check    write nothing; exit 1 and name every page that is not current

Written first, because every band and every chance to fit comes from them:
planner/data/residuals.csv with band_widths.csv, and memory_residuals.csv. Whole folders, where a
page that nothing writes any more is removed: docs/accuracy, docs/catalogue, docs/formulas,
docs/questions, docs/reference. Whole files: docs/against-our-sources.md, docs/log/index.md,
docs/pictures/terminal.svg, docs/scenario.schema.json, dpplan/__init__.pyi, dpplan/dpplan.1. Blocks
between `<!-- begin: NAME -->` and `<!-- end -->`: README.md and the hand-written pages of docs/.

Written last: docs/built.sha256, of everything that generated text and commands are made of. Before
that, every command of a page has to be answered with the status that the page states, and every
check of a question to hold. While the digest holds, the tests take the documentation as it was
built, and make a drawn part of it again; once a file under it has changed they make all of it.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
for folder in (ROOT, ROOT / "docs"):
    if str(folder) not in sys.path:
        sys.path.append(str(folder))
os.environ["DPPLAN_PRICES"] = os.devnull  # shipped prices, whatever this machine has fetched

from pages import (  # noqa: E402
    accuracy,
    blocks,
    catalogue,
    commands,
    formulas,
    journal,
    lessons,
    options,
    questions,
    reference,
    sources,
    terminal,
)

from benchmarks.studies import widths  # noqa: E402
from dpplan import manual, stub  # noqa: E402
from planner.evidence import band as uncertainty  # noqa: E402
from planner.evidence import memory  # noqa: E402

RESIDUALS = uncertainty.RESIDUALS.relative_to(ROOT).as_posix()
MEMORY = memory.OBSERVED.relative_to(ROOT).as_posix()

PAGES: dict[str, Callable[[], str]] = {
    RESIDUALS: accuracy.recorded,
    MEMORY: accuracy.recorded_memory,
    "docs/against-our-sources.md": sources.page,
    **lessons.pages(),
    "docs/log/index.md": journal.page,
    "docs/scenario.schema.json": options.schema,
    "docs/pictures/terminal.svg": terminal.picture,
    "dpplan/__init__.pyi": stub.text,
    "dpplan/dpplan.1": manual.text,
}
FOLDERS: dict[str, Callable[[], dict[str, str]]] = {
    "docs/accuracy": accuracy.folder,
    "docs/catalogue": catalogue.folder,
    "docs/formulas": formulas.folder,
    "docs/questions": questions.folder,
    "docs/reference": reference.folder,
}

_STUDY = re.compile(r"^<!-- begin: (status|worth .*) -->$", re.MULTILINE)
STAMP = ROOT / "docs" / "built.sha256"
_MADE_OF = (
    *(
        "planner/**/*",
        "web/**/*",
        "dpplan/*.py",
        "hardware_profiles/**/*",
        "benchmarks/studies/*.py",
    ),
    *("docs/pages/*.py", "docs/build.py", "docs/questions.toml", "docs/data/*", "docs/log/*.md"),
    *("benchmarks/planners/*.py", "docs/record/*.csv"),
    *("docs/examples/**/*", "tests/configs/*", "tests/data/hf_*.json"),
)


def studies() -> list[str]:
    """Pages that take minutes: with errors of held-out suites, ablations or coverage."""
    with_studies = (n for n in hand_written() if _STUDY.search((ROOT / n).read_text("utf-8")))
    return [RESIDUALS, MEMORY, "docs/accuracy", *with_studies]


def digest() -> str:
    """SHA-256 of what the documentation is made of, of its generated text and of its commands."""
    files = {path for pattern in _MADE_OF for path in ROOT.glob(pattern) if path.is_file()}
    files |= {ROOT / name for name in PAGES if (ROOT / name).exists()}
    files |= {path for name in FOLDERS for path in (ROOT / name).glob("*")}
    whole = hashlib.sha256()
    for path in sorted(files):
        if "__pycache__" not in path.parts:
            whole.update(path.relative_to(ROOT).as_posix().encode() + b"\0")
            whole.update(hashlib.sha256(path.read_bytes()).digest())
    for name in hand_written():
        texts = blocks.generated((ROOT / name).read_text(encoding="utf-8"))
        whole.update("\0".join((name, *texts)).encode())
    whole.update(repr(commands.shown(ROOT)).encode())
    return whole.hexdigest()


def unchanged() -> bool:
    """Whether nothing has changed since the documentation was built."""
    return STAMP.exists() and STAMP.read_text(encoding="utf-8").strip() == digest()


def hand_written() -> list[str]:
    """Pages that may hold generated blocks."""
    return [
        name
        for name in commands.pages(ROOT)
        if (ROOT / name).exists()
        and name not in PAGES
        and not any(name.startswith(f"{folder}/") for folder in FOLDERS)
    ]


def current(name: str) -> dict[str, str]:
    """Current text of a page, or of the pages of a folder, by name."""
    if name in FOLDERS:
        return {f"{name}/{page}": text for page, text in FOLDERS[name]().items()}
    if name in PAGES:
        return {name: PAGES[name]()}
    return {name: blocks.fill((ROOT / name).read_text(encoding="utf-8"))}


def stale(names: Iterable[str] = ()) -> dict[str, str | None]:
    """Pages that are not current, with what they should be, or None where one should not be; of
    these, or of all."""
    out: dict[str, str | None] = {}
    for name in names or (*FOLDERS, *PAGES, *hand_written()):
        wanted = current(name)
        for page, text in wanted.items():
            path = ROOT / page
            if not path.exists() or path.read_text(encoding="utf-8") != text:
                out[page] = text
        if name in FOLDERS:
            have = {path.relative_to(ROOT).as_posix() for path in (ROOT / name).iterdir()}
            out |= dict.fromkeys(have - set(wanted))
    return out


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description="Write the generated documentation, or check that it is current."
    )
    parser.add_argument(
        "--check", action="store_true", help="write nothing; exit 1 when a page is not current"
    )
    given = parser.parse_args(arguments)
    for name, forget in ((RESIDUALS, uncertainty.forget), (MEMORY, memory.forget)):
        if not given.check and name in PAGES and (new := stale([name])):
            _write(new)
            forget()
            if name == RESIDUALS:
                widths.write()
                forget()
    outdated = stale()
    if given.check:
        for name in outdated:
            print(f"{name} is not current; run: python docs/build.py", file=sys.stderr)
        return 1 if outdated else 0
    _write(outdated)
    if RESIDUALS not in PAGES:
        return 0
    wrong = [*commands.not_as_stated(commands.shown(ROOT)), *questions.all_broken()]
    for line in wrong:
        print(line, file=sys.stderr)
    if wrong:
        return 1
    STAMP.write_text(digest() + "\n", encoding="utf-8")
    return 0


def _write(pages: dict[str, str | None]) -> None:
    for name, text in pages.items():
        path = ROOT / name
        if text is None:
            path.unlink()
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        print(f"{'removed' if text is None else 'wrote'} {name}")


if __name__ == "__main__":
    raise SystemExit(main())
