"""However its streams are and whatever ends it, a command says one sentence at most, and its exit
status tells which."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from command import ROOT

DPPLAN = "from planner.cli import main; import sys; sys.argv[0] = 'dpplan'; main()"
# the same process around an empty command
SMALL = "from planner.cli.process import contained\nwith contained():\n    {}"
SPEAKS = SMALL.format("print('é' * 10)\n    raise SystemExit(3)")


def shell(line: str, code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """A line of bash in which $DPPLAN is a process that runs the code."""
    return subprocess.run(
        ["bash", "-c", line.replace("$DPPLAN", f'"{sys.executable}" -c "$CODE"')],
        env={**os.environ, "PYTHONPATH": str(ROOT), "CODE": code, **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize(
    ("line", "status", "out", "err"),
    [
        ("$DPPLAN", 3, "é" * 10 + "\n", ""),
        ("$DPPLAN >/dev/full", 2, "", "error: stdout cannot be written: No space left"),
        ("$DPPLAN >&-", 2, "", "error: stdout cannot be written: Bad file descriptor"),
        ("$DPPLAN <&- >&- 2>&-", 2, "", ""),
        ("$DPPLAN 2>/dev/full >/dev/full", 2, "", ""),
        ("set -o pipefail; $DPPLAN | true", 141, "", ""),
        ("PYTHONIOENCODING=ascii $DPPLAN", 3, "\\xe9" * 10 + "\n", ""),
    ],
)
def test_stdout_and_stderr_of_any_kind(line: str, status: int, out: str, err: str) -> None:
    code = (
        SPEAKS.replace("print", "import time; time.sleep(.2); print")
        if "| true" in line
        else SPEAKS
    )
    answer = shell(line, code)
    assert (answer.returncode, answer.stdout) == (status, out)
    assert answer.stderr.startswith(err)
    assert len(answer.stderr.splitlines()) == bool(err)


def test_a_command_whose_answer_nobody_can_read_says_so() -> None:
    answer = shell("$DPPLAN list gpus >/dev/full; echo $? >&2; $DPPLAN list none 2>&-", DPPLAN)
    text, status = answer.stderr.splitlines()
    assert text.startswith("error: stdout cannot be written")
    assert status == "2"
    assert answer.stdout == ""  # closed stderr does not become stdout
    assert answer.returncode == 2


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (signal.SIGINT, "interrupted"),
        (signal.SIGTERM, "ended by SIGTERM"),
        (signal.SIGHUP, "ended by SIGHUP"),
    ],
)
def test_a_signal_ends_it_with_one_sentence(number: signal.Signals, text: str) -> None:
    """Also one that meets the end of an object, where Python only reports what is raised."""
    code = (
        "import os, signal, time\n"
        f"if signal.getsignal({number:d}) == signal.SIG_IGN:  # as nohup leaves it to all below\n"
        f"    signal.signal({number:d}, signal.SIG_DFL)\n"
        f"class Ends:\n    def __del__(self): os.kill(os.getpid(), {number:d})\n"
        + SMALL.format("Ends(); time.sleep(20)")
    )
    answer = shell("$DPPLAN", code)
    assert answer.returncode == 128 + number
    assert answer.stderr == f"{text}: files that were named are whole, or were not written\n"


def test_a_signal_leaves_no_unfinished_file(tmp_path: Path) -> None:
    path = tmp_path / "there"
    path.write_text("what was there")
    code = SMALL.format(
        "import os, signal, time; from pathlib import Path; from planner.inputs import files\n"
        "    os.fsync = lambda _: os.kill(os.getpid(), signal.SIGTERM)\n"
        f"    files.write_text(Path({str(path)!r}), '--html', 'new')"
    )
    assert shell("$DPPLAN", code).returncode == 143
    assert os.listdir(tmp_path) == ["there"]
    assert path.read_text() == "what was there"
