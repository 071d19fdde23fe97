"""A comment on the recipes that a pull request changes: whether they fit, step time, cost, and the
difference to the base branch, with a gate.

Run by action.yml as `python -m dpplan.pull_request`. Its inputs are environment variables:
DPPLAN_FILES (patterns), DPPLAN_OPTIONS (as on the command line), DPPLAN_FAIL_IF, DPPLAN_TOKEN, and
what GitHub sets. Files of the pull request are read with git and parsed, never run.

Exit status: 0 commented, 1 the gate does not hold, 2 an input is wrong.
"""

from __future__ import annotations

import json
import operator
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.error import URLError
from urllib.request import Request, urlopen

import dpplan
from planner.error import PlanError, short
from planner.specs.options import Options, options_of_command
from planner.units import show, span

MARK = "<!-- dpplan: recipes -->"  # by which its own comment is found again
_MOST_FILES = 20  # recipes that are estimated; a comment is read by people
_TIMEOUT_S = 30
_COMMIT = re.compile(r"[0-9a-f]{40,64}")
_CONDITION = re.compile(r"\s*(\w+)\s*(>=|<=|>|<)\s*([\d_,.]+)\s*")
_COMPARE = {">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le}
# what a gate may name: key of the figures, and its unit
NAMES = {
    "cost": "USD",
    "days": "days",
    "step": "s",
    "memory": "GiB per GPU",
    "chance": "percent to fit",
}
_NOT_FITTING = "does not fit"
_EVEN = 50.0  # percent to fit, below which a recipe does not fit
_GIB = 2.0**30


@dataclass(frozen=True)
class Figures:
    """One recipe, estimated. values: by the names of a gate; error: what prevents an estimate."""

    values: Mapping[str, float]
    verdict: str = ""
    bands: Mapping[str, tuple[float, float]] | None = None
    command: str = ""
    error: str = ""


@dataclass(frozen=True)
class Change:
    """A recipe on the head of the pull request, and on its base where it was there."""

    path: str
    head: Figures
    base: Figures | None


# ------------------------------------------------------------------------------------------ inputs


@dataclass(frozen=True)
class Event:
    """A pull request: number, commits and repository."""

    number: int
    base: str
    head: str
    repository: str


def event_of(text: str) -> Event:
    """A pull request from the text of its event file. Raises PlanError."""
    try:
        document = json.loads(text)
        pull = document["pull_request"]
        event = Event(
            number=int(pull["number"]),
            base=str(pull["base"]["sha"]),
            head=str(pull["head"]["sha"]),
            repository=str(document["repository"]["full_name"]),
        )
    except (ValueError, KeyError, TypeError) as error:
        remedy = f"is not of a pull request ({type(error).__name__}: {error}); run on pull_request"
        raise PlanError("GITHUB_EVENT_PATH", None, remedy) from None
    for sha in (event.base, event.head):
        if not _COMMIT.fullmatch(sha):
            raise PlanError("GITHUB_EVENT_PATH", sha, "is not a commit")
    return event


def options_of(text: str) -> dict[str, Any]:
    """Options as on the command line ("--gpu h100 --gpus 64"). Raises PlanError."""
    try:
        return options_of_command(f"dpplan estimate {text}", Options, "estimate")
    except ValueError as error:
        raise PlanError("options", text, str(error)) from None


def gate_of(text: str) -> list[tuple[str, str, float]]:
    """Conditions of a gate, any of which fails it: "cost > 5000 or does not fit". Raises
    PlanError."""
    conditions = []
    for part in filter(None, (part.strip() for part in re.split(r"\bor\b|\n", text))):
        if part == _NOT_FITTING:
            conditions.append((_NOT_FITTING, "", 0.0))
            continue
        match = _CONDITION.fullmatch(part)
        if match is None or match[1] not in NAMES:
            known = ", ".join(f"{name} ({unit})" for name, unit in NAMES.items())
            remedy = f"must be NAME > NUMBER, joined by or, of {known}; or {_NOT_FITTING!r}"
            raise PlanError("fail-if", part, remedy)
        try:
            limit = float(match[3].replace(",", "").replace("_", ""))
        except ValueError:
            raise PlanError("fail-if", part, f"{match[3]} is not a number") from None
        conditions.append((match[1], match[2], limit))
    return conditions


# ------------------------------------------------------------------------------------------- files


def changed(event: Event, patterns: Sequence[str]) -> list[str]:
    """Paths that the pull request adds or changes and that a pattern names."""
    _have(event.base)
    names = _git("diff", "-z", "--name-only", "--diff-filter=AMR", event.base, event.head)
    paths = [path for path in names.split("\0") if path]
    return sorted(path for path in paths if any(fnmatch(path, pattern) for pattern in patterns))


def _have(commit: str) -> None:
    """Fetch a commit that a shallow checkout lacks."""
    known = subprocess.run(
        ["git", "cat-file", "-e", f"{commit}^{{commit}}"], capture_output=True, check=False
    )
    if known.returncode:
        _git("fetch", "--quiet", "--depth=1", "origin", commit)


def text_at(commit: str, path: str) -> str | None:
    """The text of a file in a commit; None where it is not there or no text."""
    try:
        return _git("show", f"{commit}:{path}")
    except (PlanError, UnicodeDecodeError):
        return None


def _git(*words: str) -> str:
    done = subprocess.run(["git", *words], capture_output=True, check=False)
    if done.returncode:
        why = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        raise PlanError("git", words[0], f"{why}; check the repository out with fetch-depth: 0")
    return done.stdout.decode()


# --------------------------------------------------------------------------------------- estimates


def figures(path: str, text: str, options: Mapping[str, Any]) -> Figures:
    """The estimate of a recipe."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / PurePosixPath(path).name
        file.write_text(text, "utf-8")
        try:
            document = dpplan.read(file, **{"advice": 0, **options}).document
        except PlanError as error:
            return Figures({}, error=" ".join(str(error).split()).replace(f"{folder}/", ""))
    report = document.estimate
    if report is None:
        missing = " and ".join(f"--{name}" for name in document.missing)
        return Figures({}, error=document.refused or f"needs {missing} in `options`")
    memory, step, run = report.memory, report.step, report.run
    values: dict[str, float] = {
        "memory": memory.device_bytes / _GIB,
        "chance": 100 * (memory.fits if memory.fit_chance is None else memory.fit_chance),
        "step": step.seconds,
    }
    bands = {"step": (step.low, step.high)}
    if run is not None and run.cost_usd and run.days:
        values |= {"days": run.days, "cost": run.cost_usd}
        bands["cost"] = (run.cost_usd * run.low, run.cost_usd * run.high)
    return Figures(values, memory.verdict, bands, report.command.replace(str(file), path))


def failures(changes: Sequence[Change], gate: Sequence[tuple[str, str, float]]) -> list[str]:
    """A sentence for each condition of the gate that a recipe meets, or that cannot be answered."""
    out = []
    for change in changes:
        head = change.head
        for name, sign, limit in gate:
            if head.error:
                out.append(f"{_code(change.path)}: has no estimate to check")
                break
            if name == _NOT_FITTING:
                if head.values["chance"] < _EVEN:
                    out.append(f"{_code(change.path)}: {head.verdict}")
            elif name not in head.values:
                why = "its tokens are not known: give --tokens in `options`"
                out.append(f"{_code(change.path)}: no {name}, {why}")
            elif _COMPARE[sign](head.values[name], limit):
                value = f"{head.values[name]:,.6g} {NAMES[name]}"
                out.append(f"{_code(change.path)}: {name} {value} {sign} {limit:,.6g}")
    return out


# ----------------------------------------------------------------------------------------- comment


def comment(changes: Sequence[Change], failed: Sequence[str], left: int = 0) -> str:
    """The comment, in Markdown."""
    lines = [MARK, "### dpplan: changed recipes", ""]
    lines += [f"**Gate:** {sentence}" for sentence in failed] + [""] * bool(failed)
    head = "| recipe | verdict | memory per GPU | step (80 % band) | cost (80 % band) |"
    lines += [head, "| --- | --- | --- | --- | --- |"]
    for change in changes:
        lines.append(f"| {' | '.join([_code(change.path), *_cells(change)])} |")
    lines += [""] * bool(left) + [f"{left} more recipes are not shown."] * bool(left)
    commands = [change.head.command for change in changes if change.head.command]
    if commands:
        lines += ["", "<details><summary>Commands that repeat this</summary>", ""]
        lines += ["```sh", *(command.replace("```", "") for command in commands), "```", ""]
        lines += ["</details>"]
    return "\n".join(lines) + "\n"


def _cells(change: Change) -> list[str]:
    head = change.head
    if head.error:
        return [f"no estimate: {_plain(head.error)}", "", "", ""]
    base = change.base.values if change.base else {}
    was = change.base.verdict if change.base and change.base.verdict != head.verdict else ""
    verdict = f"{head.verdict} ({head.values['chance']:.0f} %)" + (f", was: {was}" if was else "")
    cells = [verdict]
    for name, unit, scale in (("memory", "B", _GIB), ("step", "s", 1.0), ("cost", "USD", 1.0)):
        if name not in head.values:
            cells.append("no tokens given" if name == "cost" else "")
            continue
        value = head.values[name]
        text = f"{value:,.0f} USD" if unit == "USD" else show(value * scale, unit)
        if head.bands and name in head.bands:
            low, high = head.bands[name]
            band = f"{low:,.0f} .. {high:,.0f}" if unit == "USD" else span(low, high, unit)
            text += f" ({band})"
        if base.get(name):
            share = value / base[name] - 1
            text += f" {share:+.1%}" if abs(share) >= 5e-4 else " ±0"
        cells.append(text)
    return cells


def _code(path: str) -> str:
    """A path in a cell of a table; nothing in it is markup."""
    return "`" + re.sub(r"[`|\r\n]", "_", short(path, 120)) + "`"


def _plain(text: str) -> str:
    """A sentence with its markup escaped: links, images, mentions and HTML."""
    return re.sub(r"([\\`*_{}\[\]<>()#|!@~])", r"\\\1", short(" ".join(text.split()), 160))


def post(event: Event, body: str, token: str) -> None:
    """Write the comment, over an earlier one. Raises OSError where GitHub does not take it."""
    api = os.environ.get("GITHUB_API_URL", "https://api.github.com")
    issues = f"{api}/repos/{event.repository}/issues"
    comments = _request("GET", f"{issues}/{event.number}/comments?per_page=100", token)
    earlier = [entry["id"] for entry in comments if str(entry.get("body", "")).startswith(MARK)]
    if earlier:
        _request("PATCH", f"{issues}/comments/{earlier[0]}", token, {"body": body})
    else:
        _request("POST", f"{issues}/{event.number}/comments", token, {"body": body})


def _request(method: str, url: str, token: str, document: Any = None) -> Any:
    data = None if document is None else json.dumps(document).encode()
    headers = {"Authorization": f"Bearer {token}", "Accept": "application/vnd.github+json"}
    with urlopen(Request(url, data, headers, method=method), timeout=_TIMEOUT_S) as answer:
        return json.load(answer)


# -------------------------------------------------------------------------------------------- main


def main(env: Mapping[str, str]) -> int:
    """Comment on the pull request of an event; the exit status."""
    try:
        event = event_of(Path(env["GITHUB_EVENT_PATH"]).read_text("utf-8"))
        options, gate = options_of(env.get("DPPLAN_OPTIONS", "")), gate_of(env["DPPLAN_FAIL_IF"])
        paths = changed(event, env["DPPLAN_FILES"].split())
    except PlanError as error:
        print(f"::error::{' '.join(str(error).split())}")
        return 2
    changes = []
    for path in paths[:_MOST_FILES]:
        text, before = text_at(event.head, path), text_at(event.base, path)
        if text is not None:
            base = None if before is None else figures(path, before, options)
            changes.append(Change(path, figures(path, text, options), base))
    if not changes:
        print(f"no changed file is one of {env['DPPLAN_FILES']}")
        return 0
    failed = failures(changes, gate)
    body = comment(changes, failed, len(paths) - len(changes))
    if summary := env.get("GITHUB_STEP_SUMMARY"):
        with open(summary, "a", encoding="utf-8") as file:
            file.write(body)
    if token := env.get("DPPLAN_TOKEN"):
        try:
            post(event, body, token)
        except (URLError, OSError) as error:  # such as a fork, whose token only reads
            print(f"::warning::the comment was not taken ({error}); it is in the step's summary")
    for sentence in failed:
        print(f"::error::{sentence}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(os.environ))
