"""Processes that write one result at the same time, some of them killed: who looks sees one whole
result or the other, and nothing else is left."""

from __future__ import annotations

import multiprocessing
import os
import random
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from hypothesis import given
from hypothesis import strategies as st

from fuzz.case import Took
from fuzz.short import few
from planner.inputs import files

_TIMES = 4  # that each writes
_BESIDE = ("page.html.partial", ".page.html.swp", "page.html.tmp")
OLD, NAME = "what was there", "page.html"
Target = Literal["none", "file", "link", "hard link", "private"]
TARGETS: tuple[Target, ...] = ("none", "file", "link", "hard link", "private")


@dataclass(frozen=True)
class Case:
    """Sizes of what each writer writes, what is there before, and how many are killed after how
    long."""

    sizes: tuple[int, ...]
    target: Target
    killed: int
    after_s: float

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def of_json(cls, values: dict[str, Any]) -> Case:
        return cls(**{**values, "sizes": tuple(values["sizes"])})


CASES = st.builds(
    Case,
    st.lists(st.sampled_from((0, 1, 5_000, 300_000, 3_000_000)), min_size=2, max_size=5).map(tuple),
    st.sampled_from(TARGETS),
    st.integers(0, 2),
    st.sampled_from((0.0, 0.001, 0.01, 0.03)),
)
CASE, TOOK = Case, Took()


def content(size: int, number: int) -> str:
    """A result that names its writer in every line, so that a torn one shows."""
    line = f"<p>{number}</p>\n"
    return line * (size // len(line)) + f"<!-- {number} -->"


def _write(path: Path, text: str, seed: int) -> None:
    wait = random.Random(seed)
    for _ in range(_TIMES):
        time.sleep(wait.random() * 0.002)
        files.write_text(path, "--html", text)


def fuzz(case: Case) -> None:
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="fuzz") as name:
        folder = Path(name)
        path, kept = folder / NAME, _prepared(folder, case.target)
        texts = [content(size, i) for i, size in enumerate(case.sizes)]
        whole = {OLD, *texts}
        context = multiprocessing.get_context("fork")
        writers = [
            context.Process(target=_write, args=(path, text, i)) for i, text in enumerate(texts)
        ]
        for writer in writers:
            writer.start()
        time.sleep(case.after_s)
        for writer in writers[: case.killed]:
            writer.kill()
        while any(writer.is_alive() for writer in writers):
            # what has several names is written in place, one writer after the other
            if case.target != "hard link" and path.exists():
                assert path.read_text() in whole, "a result is seen half written"
        for writer in writers:
            writer.join()
        failed = [writer.exitcode for writer in writers[case.killed :] if writer.exitcode]
        assert not failed, f"{len(failed)} writers fail"
        _left(case, folder, whole, kept)
    TOOK.add("writers killed" if case.killed else "all end", time.monotonic() - began)


def _prepared(folder: Path, target: Target) -> dict[str, str]:
    """Make what is there before; files beside it, which are to stay."""
    kept = dict.fromkeys(_BESIDE, "of the user")
    for name, text in kept.items():
        (folder / name).write_text(text)
    path = folder / NAME
    if target in ("link", "hard link"):
        (folder / "other.html").write_text(OLD)
        if target == "link":
            path.symlink_to("other.html")
        else:
            path.hardlink_to(folder / "other.html")
    elif target != "none":
        path.write_text(OLD)
        path.chmod(0o600 if target == "private" else 0o644)
    return kept


def _left(case: Case, folder: Path, whole: set[str], kept: dict[str, str]) -> None:
    path = folder / NAME
    # one that is killed while it writes in place may leave a part; others write it whole again
    if case.killed < len(case.sizes):
        assert path.read_text() in whole - {OLD}, "the result that is left is not a whole one"
    for name, text in kept.items():
        assert (folder / name).read_text() == text, f"{name} of the user is changed"
    names = {NAME, *kept, *({"other.html"} if "link" in case.target else ())}
    more = {entry for entry in os.listdir(folder) if entry not in names}
    assert len(more) <= case.killed, f"leaves {sorted(more)}"  # of those that could not clean up
    assert path.is_symlink() == (case.target == "link")
    if case.target == "private":
        assert path.stat().st_mode & 0o777 == 0o600
    if case.target == "hard link":
        assert path.stat().st_nlink == 2


@few(8)
@given(case=CASES)
def test_writers_at_once_leave_one_whole_result(case: Case) -> None:
    fuzz(case)
