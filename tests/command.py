"""The command line as tests use it: in this process for speed, or as a process of its own."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from typer.testing import CliRunner

from planner.cli.app import app
from planner.specs import document

ROOT = Path(__file__).parent.parent
T = TypeVar("T")
WIDE = 600  # characters of a line, so that sentences are looked for whole


@dataclass(frozen=True)
class Answer:
    """Result of a command: status, stdout and stderr."""

    status: int
    stdout: str
    stderr: str

    def json(self) -> Any:
        """Stdout as one JSON document: strictly, so that NaN, Infinity or a second document
        fail."""

        def refuse(word: str) -> None:
            raise ValueError(f"{word} is not JSON")

        return json.loads(self.stdout, parse_constant=refuse)

    def read(self, kind: type[T]) -> T:
        """Stdout as a document that is exactly as declared: no key too many, none too few."""
        recipe = document.read(self.stdout, kind)
        assert (
            json.loads(json.dumps(document.plain(recipe))) == self.json()
        )  # tuples are lists there
        return recipe


def dpplan(*words: object, columns: int = WIDE) -> Answer:
    """Run `dpplan WORDS...` in this process; anything but a clean exit is raised."""
    result = CliRunner().invoke(app, [str(word) for word in words], env={"COLUMNS": str(columns)})
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return Answer(result.exit_code, result.stdout, result.stderr)


def argv(line: str) -> tuple[str, ...]:
    """Words of a line as a shell makes them."""
    return tuple(shlex.split(line))


def python(
    code: str, *arguments: object, folder: Path = ROOT, timeout: float = 60, **environment: str
) -> Answer:
    """Run code in a fresh interpreter."""
    words = [sys.executable, "-c", code, *map(str, arguments)]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "120", **environment}
    done = subprocess.run(
        words, capture_output=True, text=True, cwd=folder, env=env, timeout=timeout, check=False
    )
    return Answer(done.returncode, done.stdout, done.stderr)


def dpplan_process(*words: object, timeout_s: float = 60, **environment: str) -> Answer:
    """Run `dpplan WORDS...` as a process of its own, its output piped."""
    code = "import sys; from planner.cli import main; sys.argv[0] = 'dpplan'; main()"
    return python(code, *words, folder=ROOT, timeout=timeout_s, **environment)


def refused(answer: Answer, *message: str) -> str:
    """Check that the request was refused as the contract says, naming what `said` lists; returns
    the sentence."""
    assert answer.status == 2, answer
    assert "Traceback" not in answer.stderr
    sentence = answer.stderr.strip()
    assert sentence.startswith("error: "), answer.stderr
    assert "\n" not in sentence
    assert len(sentence) < 2000
    for text in message:
        assert text in sentence, (text, sentence)
    return sentence
