"""The process around a command: its streams, the signals that end it, and messages about either.

Imports only what Python has loaded or loads at once: Ctrl-C may come before anything else is.
"""

from __future__ import annotations

import io
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, NoReturn

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_OF_SIGNAL = 128  # exit statuses of what a signal ends begin here, as shells have it
_WRONG = 2  # exit status where the answer cannot be printed, as where a result cannot be written
_AGAIN_S = 0.05  # after which a signal comes again that met code that could not end; a choice


class Unprinted(Exception):
    """Stdout took no more. No OSError, which libraries that print would end on by themselves."""

    def __init__(self, error: OSError) -> None:
        super().__init__(error.strerror)
        self.reader_left = isinstance(error, BrokenPipeError)


class _Stdout(io.FileIO):
    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except OSError as error:
            raise Unprinted(error) from None


class _Stderr(io.FileIO):
    """Takes all: what cannot be said must not end a command that goes on."""

    def write(self, data: Any, /) -> int:
        with suppress(OSError):
            return super().write(data)
        return len(data)


@contextmanager
def contained() -> Iterator[None]:
    """Around a whole command: however it ends, it prints at most one sentence and sets the exit
    status."""
    ended_by: signal.Signals = signal.SIGINT

    def end(number: int, _: object) -> None:
        nonlocal ended_by
        ended_by = signal.Signals(number)
        _end_workers()
        raise KeyboardInterrupt

    def unraised(event: sys.UnraisableHookArgs) -> None:
        """A signal that met code which cannot raise, such as the end of an object, comes again."""
        if issubclass(event.exc_type, KeyboardInterrupt):
            from threading import Timer

            Timer(_AGAIN_S, os.kill, (os.getpid(), ended_by)).start()
        else:
            sys.__unraisablehook__(event)

    caught = [number for number in _ENDING if signal.getsignal(number) is not signal.SIG_IGN]
    _each(caught, end)
    sys.unraisablehook = unraised
    try:
        try:
            _own_streams()
            yield
        except SystemExit:
            sys.stdout.flush()
            raise
        finally:
            _each(caught, signal.SIG_IGN)  # what is left is to end
    except Unprinted as error:
        _unprinted(error)
    except KeyboardInterrupt:
        sentence = "interrupted" if ended_by == signal.SIGINT else f"ended by {ended_by.name}"
        print(f"{sentence}: files that were named are whole, or were not written", file=sys.stderr)
        raise SystemExit(_OF_SIGNAL + ended_by) from None


@contextmanager
def limited(seconds: float, error: Exception) -> Iterator[None]:
    """Raise this error where the body takes more CPU time than `seconds`. Nothing limits it without
    timers, as on Windows or beside the main thread."""

    def end(number: int, _: object) -> None:
        raise error

    try:
        before = signal.signal(signal.SIGPROF, end)
    except (AttributeError, ValueError):
        yield
        return
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def _each(signals: list[signal.Signals], handler: Callable[..., None] | signal.Handlers) -> None:
    for number in signals:
        signal.signal(number, handler)


def _end_workers() -> None:
    """End worker processes, which a signal to this process does not reach."""
    if (loaded := sys.modules.get("multiprocessing")) is not None:
        for worker in loaded.active_children():
            worker.terminate()


def _own_streams() -> None:
    """Stdout and stderr that are there, even closed ones, and print in any encoding."""
    for number, way in enumerate((os.O_RDONLY, os.O_RDONLY, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:  # closed: nothing else may take its number, and stdout takes nothing
            os.set_inheritable(os.open(os.devnull, way), True)
    sys.stdout = _stream(_Stdout, 1, sys.stdout)
    sys.stderr = _stream(_Stderr, 2, sys.stderr)


def _stream(kind: type[io.FileIO], number: int, given: io.TextIOBase | Any) -> io.TextIOWrapper:
    raw = kind(number, "w", closefd=False)
    return io.TextIOWrapper(
        io.BufferedWriter(raw),
        encoding=given.encoding if given is not None else "utf-8",
        errors="backslashreplace",
        line_buffering=kind is _Stderr or raw.isatty(),
    )


def _unprinted(error: Unprinted) -> NoReturn:
    """End when stdout cannot be written; silently if the reader has closed the pipe, as other tools
    do."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # takes what is left in the buffers
    if error.reader_left:
        raise SystemExit(_OF_SIGNAL + signal.SIGPIPE)
    print(f"error: stdout cannot be written: {error}; give it a file or a pipe", file=sys.stderr)
    raise SystemExit(_WRONG)
