"""Ranks on this machine, started and watched as `torchrun --standalone` does; more machines start
torchrun themselves.

torchrun's agent starts the ranks, meets them, ends them all when one ends early and says which was
first. What it does not see is a rank that hangs: the others name it (run.Ranks.lost), and where
rank 0 itself falls silent an alarm ends the run. Progress of rank 0 comes from its output, one JSON
object a line.
"""

from __future__ import annotations

import contextlib
import logging
import signal
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from torch.distributed.elastic.multiprocessing import LogsDest, LogsSpecs, SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure
from torch.distributed.elastic.multiprocessing.tail_log import TailLog
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from planner.calibrate.settings import LOST, Failed, Progress, Result, Settings
from planner.error import PlanError

_M = TypeVar("_M", Progress, Result)
_POLL_S = 0.2  # between looks of the agent at its ranks; a choice
_STOP_S = 5  # that a rank has to end before it is killed; a choice

# whoever started the ranks reports the failure, once: torchrun's own account goes nowhere
_torchrun = logging.getLogger("torch.distributed.elastic")
_torchrun.addHandler(logging.NullHandler())
_torchrun.propagate = False


def run(settings: Settings, processes: int, report: Callable[[Progress], None]) -> dict[str, Any]:
    """Run `processes` ranks to their end; returns the measurements of rank 0.

    report: callback for the progress of rank 0, called in a thread of its own. Raises Failed naming
    the rank that was lost, or the PlanError of a rank.
    """
    with tempfile.TemporaryDirectory(prefix="dpplan-calibrate-") as folder:
        request = Path(folder) / "settings.json"
        request.write_text(settings.text(), encoding="utf-8")
        printed: Any = _Progress(report, settings)  # stands for the file that torch writes to
        progress = TailLog("", {0: _output(folder, 0)}, printed, {0: ""})
        progress.start()
        usual = signal.getsignal(signal.SIGTERM)
        signal.alarm(settings.patience_s)
        try:
            elastic_launch(_config(folder, processes), sys.executable)(
                "-m", "planner.calibrate", "--settings", str(request)
            )
        except ChildFailedError as error:
            raise _cause(*error.get_first_failure(), folder, settings) from None
        except SignalException as error:
            if error.sigval == signal.SIGALRM:
                how = f"rank 0 hangs: no sign of life for {settings.patience_s} s"
                raise Failed(_sentence(how, folder, settings)) from None
            signal.signal(signal.SIGTERM, usual)
            signal.raise_signal(error.sigval)  # the ranks have ended: now as anywhere else
        finally:
            signal.alarm(0)
            progress.stop()
        results = _messages(folder, Result)
    if not results:
        raise Failed("the ranks ended without a result")
    return results[-1].result


def _config(folder: str, processes: int) -> LaunchConfig:
    return LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=processes,
        run_id="calibrate",
        role="rank",
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        local_addr="127.0.0.1",  # names of hosts do not always resolve
        max_restarts=0,
        monitor_interval=_POLL_S,
        shutdown_timeout=_STOP_S,
        signals_to_handle="SIGTERM,SIGALRM",
        logs_specs=_Logs(folder),
    )


def _output(folder: str, rank: int) -> str:
    return f"{folder}/{rank}.out"


class _Logs(LogsSpecs):
    """Output and exit causes of ranks, in a folder with names known before they start."""

    @property
    def root_log_dir(self) -> str:
        return str(self._root_log_dir)

    def reify(self, envs: dict[int, dict[str, str]]) -> LogsDest:
        folder = self.root_log_dir
        for rank, environment in envs.items():
            environment["TORCHELASTIC_ERROR_FILE"] = f"{folder}/{rank}.json"
        return LogsDest(
            stdouts={rank: _output(folder, rank) for rank in envs},
            stderrs={rank: f"{folder}/{rank}.err" for rank in envs},
            error_files={rank: f"{folder}/{rank}.json" for rank in envs},
        )


@dataclass(frozen=True)
class _Progress:
    """Takes lines of rank 0 as a file would; each is a sign of life."""

    report: Callable[[Progress], None]
    settings: Settings

    def write(self, line: str) -> None:
        signal.alarm(self.settings.patience_s)
        with contextlib.suppress(ValueError):  # what libraries print, or the result
            self.report(msgspec.json.decode(line, type=Progress))


def _messages(folder: str, kind: type[_M]) -> list[_M]:
    """Messages of a kind that rank 0 left, oldest first."""
    output = Path(_output(folder, 0))
    lines = output.read_text("utf-8", errors="replace").splitlines() if output.exists() else []
    messages = []
    for line in lines:
        with contextlib.suppress(ValueError):
            messages.append(msgspec.json.decode(line, type=kind))
    return messages


def _cause(rank: int, failure: ProcessFailure, folder: str, settings: Settings) -> Exception:
    """Why the first rank that ended did so."""
    data = failure.error_file_data
    if "field" in data:
        return PlanError(data["field"], data["value"], data["remedy"])
    if failure.exitcode == LOST:
        return Failed(str(failure.message))
    if failure.exitcode < 0:
        hint = " (out of memory?)" if failure.exitcode == -signal.SIGKILL else ""
        how = f"rank {rank} was ended by {failure.signal_name()}{hint}"
        return Failed(_sentence(how, folder, settings))
    errors = Path(folder, f"{failure.local_rank}.err").read_text("utf-8", errors="replace")
    last = (errors.strip().splitlines() or ["no message"])[-1]
    how = f"rank {rank} ended with status {failure.exitcode}"
    return Failed(_sentence(how, folder, settings, f": {last}"))


def _sentence(how: str, folder: str, settings: Settings, why: str = "") -> str:
    messages = _messages(folder, Progress)
    return (
        f"{how} while measuring {messages[-1].stage if messages else 'the start'}{why}; what was"
        f" measured until now is kept in {settings.records}, run the same command to go on"
    )
