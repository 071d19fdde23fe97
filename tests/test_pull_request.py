"""The comment on a pull request: event files, a repository with two commits, and a server that
stands for GitHub."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import yaml
from command import ROOT

from dpplan import PlanError
from dpplan import pull_request as action

RECIPE = (ROOT / "docs" / "examples" / "train.sh").read_text()
SLOWER = re.sub(r"--micro-batch-size \S+", "--micro-batch-size 2", RECIPE)


def git(folder: Path, *words: str) -> str:
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
    command = ["git", "-C", str(folder), *identity, *words]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture
def event(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> action.Event:
    """A pull request that changes a recipe, adds one, adds a file that nothing reads, and one whose
    run would be noticed."""
    home = tmp_path / "work"
    home.mkdir()
    git(home, "init", "-q")
    (home / "train.sh").write_text(RECIPE)
    (home / "kept.sh").write_text(RECIPE)
    git(home, "add", ".")
    git(home, "commit", "-qm", "base")
    base = git(home, "rev-parse", "HEAD")
    (home / "train.sh").write_text(SLOWER + f"\ntouch {tmp_path}/ran\n")
    (home / "more").mkdir()
    (home / "more" / "a|b`@x.sh").write_text(RECIPE)
    (home / "notes.sh").write_text("echo <img src=x> @all\n")
    git(home, "add", ".")
    git(home, "commit", "-qm", "head")
    monkeypatch.chdir(home)
    return action.Event(7, base, git(home, "rev-parse", "HEAD"), "acme/models")


@pytest.fixture
def github() -> Iterator[tuple[str, list[tuple[str, str, Any]]]]:
    """Address of a server with one comment of ours and one of another, and what it was sent."""
    sent: list[tuple[str, str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length)) if length else None
            sent.append((self.command, self.path, body))
            comments = [{"id": 3, "body": "hello"}, {"id": 4, "body": f"{action.MARK} old"}]
            text = json.dumps(comments if self.command == "GET" else {}).encode()
            self.send_response(200)
            self.end_headers()
            self.wfile.write(text)

        do_GET = do_POST = do_PATCH = answer

        def log_message(self, *words: Any) -> None:
            """Print nothing."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", sent
    server.shutdown()
    server.server_close()


def document(event: action.Event) -> dict[str, Any]:
    return {
        "pull_request": {
            "number": event.number,
            "base": {"sha": event.base},
            "head": {"sha": event.head},
        },
        "repository": {"full_name": event.repository},
    }


def env_of(event: action.Event, folder: Path, **more: str) -> dict[str, str]:
    path = folder / "event.json"
    path.write_text(json.dumps(document(event)))
    return {
        "GITHUB_EVENT_PATH": str(path),
        "GITHUB_STEP_SUMMARY": str(folder / "summary.md"),
        "DPPLAN_FILES": "*.sh",
        "DPPLAN_OPTIONS": "--gpu h100 --gpus 64",
        "DPPLAN_FAIL_IF": "",
        **more,
    }


def test_a_pull_request_has_one_comment(
    event: action.Event,
    github: tuple[str, list[tuple[str, str, Any]]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    address, sent = github
    monkeypatch.setenv("GITHUB_API_URL", address)
    env = env_of(event, tmp_path, DPPLAN_TOKEN="t", DPPLAN_FAIL_IF="cost > 1")
    assert action.main(env) == 1
    assert [(method, path) for method, path, _ in sent] == [
        ("GET", "/repos/acme/models/issues/7/comments?per_page=100"),
        ("PATCH", "/repos/acme/models/issues/comments/4"),
    ]
    body = sent[-1][2]["body"]
    assert body == (tmp_path / "summary.md").read_text()
    rows = {line.split(" | ")[0]: line for line in body.splitlines() if line.startswith("| `")}
    assert set(rows) == {"| `train.sh`", "| `more/a_b_@x.sh`", "| `notes.sh`"}
    assert re.search(r"80 % band", body)
    assert re.search(r" s \([\d.]+ .. [\d.]+ s\) [+-]\d", rows["| `train.sh`"])  # against the base
    assert "USD" in rows["| `train.sh`"]
    assert "no estimate: " in rows["| `notes.sh`"]
    assert "<img" not in body
    assert all(line.count(" | ") == 4 for line in rows.values())
    assert "dpplan estimate --model" in body
    assert "**Gate:** `train.sh`: cost" in body
    assert not (tmp_path / "ran").exists()  # files are data
    assert "::error::`train.sh`: cost" in capsys.readouterr().out


def test_a_comment_that_is_not_taken_is_a_warning(
    event: action.Event, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setenv("GITHUB_API_URL", "http://127.0.0.1:9")
    env = env_of(event, tmp_path, DPPLAN_TOKEN="t", DPPLAN_FILES="train.sh")
    assert action.main(env) == 0
    assert "::warning::the comment was not taken" in capsys.readouterr().out


def test_no_changed_recipe_is_no_comment(event: action.Event, tmp_path: Path, capsys: Any) -> None:
    assert action.main(env_of(event, tmp_path, DPPLAN_FILES="kept.sh *.yaml")) == 0
    assert not (tmp_path / "summary.md").exists()
    assert "no changed file" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ({"DPPLAN_FAIL_IF": "price > 3"}, "must be NAME > NUMBER"),
        ({"DPPLAN_FAIL_IF": "cost > many"}, "must be NAME > NUMBER"),
        ({"DPPLAN_FAIL_IF": "cost > 1.2.3"}, "is not a number"),
        ({"DPPLAN_FAIL_IF": "__import__('os')"}, "must be NAME > NUMBER"),
        ({"DPPLAN_OPTIONS": "--gpuz h100"}, "has '--gpuz', which is not an option"),
    ],
)
def test_a_wrong_input_is_a_sentence(
    event: action.Event, tmp_path: Path, capsys: Any, more: dict[str, str], sentence: str
) -> None:
    assert action.main(env_of(event, tmp_path, **more)) == 2
    out = capsys.readouterr().out
    assert out.startswith("::error::")
    assert sentence in out
    assert out.count("\n") == 1


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"pull_request": {"number": "x"}}', "null", '{"pull_request": []}']
)
def test_another_event_is_refused(text: str) -> None:
    with pytest.raises(PlanError, match="run on pull_request"):
        action.event_of(text)


def test_a_commit_is_a_hash(event: action.Event) -> None:
    wrong = document(event)
    wrong["pull_request"]["head"]["sha"] = "--output=/tmp/x"
    with pytest.raises(PlanError, match="is not a commit"):
        action.event_of(json.dumps(wrong))
    assert action.event_of(json.dumps(document(event))) == event


def figures(**values: float) -> action.Figures:
    return action.Figures({"memory": 60.0, "chance": 99.0, "step": 2.0, **values}, "fits")


def test_gates() -> None:
    gate = action.gate_of("cost > 5,000 or step >= 2 or chance < 95 or does not fit")
    assert gate == [
        ("cost", ">", 5000.0),
        ("step", ">=", 2.0),
        ("chance", "<", 95.0),
        ("does not fit", "", 0.0),
    ]
    change = action.Change("a.sh", figures(cost=4000.0), None)
    assert action.failures([change], gate) == ["`a.sh`: step 2 s >= 2"]
    assert action.failures([change], action.gate_of("cost > 5000")) == []
    (unknown,) = action.failures([action.Change("a.sh", figures(), None)], gate[:1])
    assert "give --tokens" in unknown
    broken = action.Change("a.sh", action.Figures({}, error="x"), None)
    assert len(action.failures([broken], gate)) == 1
    full = action.Change("a.sh", action.Figures({"chance": 1.0}, "does not fit"), None)
    assert "`a.sh`: does not fit" in action.failures([full], gate[3:])


def test_the_action_passes_each_input_as_text() -> None:
    """Inputs are environment variables: none is put into a script, which would run it."""
    document = yaml.safe_load((ROOT / "action.yml").read_text())
    assert document["runs"]["using"] == "composite"
    used = set()
    for step in document["runs"]["steps"]:
        assert "${{" not in step["run"]
        used |= set(re.findall(r"inputs\.([\w-]+)", " ".join(step["env"].values())))
    assert used == set(document["inputs"])
