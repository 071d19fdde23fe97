"""Versions of dpplan follow from its changelog (semantic versioning 2.0.0):

    python packaging/release.py next          # the least version that the unreleased entries allow
    python packaging/release.py check v0.3.0  # before a release: tag, package and changelog agree

An entry that begins with `**Breaking:**` takes a key, an option, a value or a file format away, or
gives it another meaning. It demands a new major version, before 1.0 a new minor one.
"""

from __future__ import annotations

import argparse
import re
import sys
import tomllib
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
UNRELEASED = "Unreleased"
BREAKING = "- **Breaking:**"
_HEADING = re.compile(r"^## (.+)$", re.MULTILINE)
_VERSION = re.compile(r"(\d+)\.(\d+)\.(\d+)")

Version = tuple[int, int, int]
Section = tuple[str, str]  # heading and text


def version_of(text: str) -> Version:
    """A version as numbers. Raises ValueError for any other text."""
    match = _VERSION.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is no version; it needs three numbers such as 0.3.0")
    major, minor, patch = map(int, match.groups())
    return major, minor, patch


def shown(version: Version) -> str:
    """A version as text."""
    return ".".join(map(str, version))


def sections(changelog: str) -> list[Section]:
    """Sections of a changelog, newest first."""
    _, *parts = _HEADING.split(changelog)
    return list(zip(parts[::2], parts[1::2], strict=True))


def demanded(earlier: Version, entries: str) -> Version:
    """The least version after an earlier one with these entries."""
    major, minor, patch = earlier
    if f"\n{BREAKING}" not in entries:
        return (major, minor, patch + 1)
    return (major + 1, 0, 0) if major else (0, minor + 1, 0)


def next_version(changelog: str) -> Version:
    """The least version of the unreleased entries; the last one where there are none."""
    (heading, entries), *released = sections(changelog)
    if heading != UNRELEASED:
        return version_of(heading)
    last = version_of(released[0][0])
    return demanded(last, entries) if "\n- " in entries else last


def faults(changelog: str, package: str, tag: str) -> list[str]:
    """Why a tag is no release of this package and changelog; empty where it is one."""
    known = sections(changelog)
    reasons = []
    if tag != f"v{package}":
        reasons.append(f"the tag {tag} is not that of the package, v{package}")
    if known[0][0] == UNRELEASED and "\n- " in known[0][1]:
        reasons.append(f"the changelog has entries under {UNRELEASED}: move them under {package}")
    released = [section for section in known if section[0] != UNRELEASED]
    if released[0][0] != package:
        reasons.append(f"the newest section of the changelog is {released[0][0]}, not {package}")
    return reasons + too_small(released)


def too_small(released: Sequence[Section]) -> list[str]:
    """Versions that their own entries do not allow after the version before."""
    return [
        f"{newer} breaks what {older} had: {shown(least)} or later"
        for (newer, entries), (older, _) in pairwise(released)
        if version_of(newer) < (least := demanded(version_of(older), entries))
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("next")
    verbs.add_parser("check").add_argument("tag")
    given = parser.parse_args()
    changelog = (ROOT / "CHANGELOG.md").read_text("utf-8")
    if given.verb == "next":
        print(shown(next_version(changelog)))
        return
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    if wrong := faults(changelog, project["version"], given.tag):
        sys.exit("\n".join(wrong))


if __name__ == "__main__":
    main()
