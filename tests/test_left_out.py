"""The planner without each of its parts: what is left works, and says what is not there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from command import ROOT

from planner.plugins import PARTS

# several commands and the page in one process: what each prints, and its status
CODE = """
import json, sys
from typer.testing import CliRunner
from planner.cli.app import app

def command(words):
    done = CliRunner().invoke(app, words)
    return [done.exit_code, done.stdout, done.stderr]

def page():
    from web import tasks
    from web.app import app
    from web.state import PAGE, filled
    from web.tabs import TABS, Tab
    pairs = filled(json.loads(sys.argv[2]), PAGE)
    tasks.panel(pairs, "roofline")
    for tab in TABS:
        if isinstance(tab, Tab):
            tasks.tab_form([], tab.path)
    return {
        "answer": json.loads(tasks.what_if(pairs))["answer"],
        "tabs": [tab.path for tab in TABS],
        "panels": list(tasks.panels()),
        "addresses": list(app.openapi()["paths"]),
    }

json.dump([[command(words) for words in json.loads(sys.argv[1])], page()], sys.stdout)
"""
GPT2 = ["--model", "gpt2", "--gpu", "a100", "--gpus", "2", "--stack", "pytorch-ddp"]
GPT2 += ["--stack-defaults"]  # kernels are not searched, which takes most of the time
ON_PAGE = {"model": "gpt2", "gpu": "a100", "gpus": "2", "stack": "pytorch-ddp"}
ON_PAGE |= {"stack_defaults": "true"}
ADDRESSES = {
    "formats": {"/api/read"},
    "calibrate": set[str](),
    "lessons": {"/api/learn", "/api/learn/{name}"},
    "rl": {"/api/rl"},
    "studies": {"/api/check"},
}
TABS = {"lessons": {"/learn"}, "rl": {"/rl"}, "studies": {"/run"}}


def answers(folder: Path, left_out: set[str], words: list[list[str]]) -> tuple[Any, Any]:
    """Answers of a tree without these parts, whose other files are links."""
    (folder / "planner").mkdir()
    for path in (ROOT / "planner").iterdir():
        if path.name not in left_out:
            (folder / "planner" / path.name).symlink_to(path)
    for name in ("web", "hardware_profiles"):
        (folder / name).symlink_to(ROOT / name)
    done = subprocess.run(
        [sys.executable, "-c", CODE, json.dumps(words), json.dumps([*ON_PAGE.items()])],
        env={**os.environ, "PYTHONPATH": str(folder)},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    commands, page = json.loads(done.stdout)
    return commands, page


@pytest.mark.parametrize("named", [*PARTS, "all"])
def test_the_rest_works_and_says_what_is_left_out(tmp_path: Path, named: str) -> None:
    left_out = {*PARTS} if named == "all" else {named}
    gone = {name for name, part in PARTS.items() if left_out & {name, *part.needs}}
    verbs = [(verb, part) for part in sorted(gone) for verb in PARTS[part].verbs]
    usual = [["--help"], ["estimate", *GPT2], ["search", *GPT2, "--top", "1", "--json"]]
    result, page = answers(tmp_path, left_out, [*usual, *([verb, "--help"] for verb, _ in verbs)])
    assert [status for status, _, _ in result[: len(usual)]] == [0] * len(usual), result
    offered = {line.split()[0] for line in result[0][1].splitlines() if line.startswith("  ")}
    assert {"estimate", "search", "serve"} <= offered
    assert not offered & {verb for verb, _ in verbs}
    assert result[1][1].startswith("GPT-2")
    for (verb, part), (status, _, sentence) in zip(verbs, result[len(usual) :], strict=True):
        assert status == 2
        assert sentence.startswith(f"error: command: {verb!r} - is part of dpplan-{part}, which ")
        missing = [f"dpplan-{name}" for name in (part, *PARTS[part].needs) if name in left_out]
        assert f"pip install {' '.join(missing)}" in sentence
    assert "GPUs" in page["answer"]
    items = {tab for part, tabs in TABS.items() if part not in gone for tab in tabs}
    assert {*page["tabs"]} & {tab for tabs in TABS.values() for tab in tabs} == items
    assert ("measured" in page["panels"]) == ("studies" not in gone)
    for part, addresses in ADDRESSES.items():
        assert addresses & {*page["addresses"]} == (set() if part in gone else addresses)
