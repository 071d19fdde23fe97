"""Files that a request writes: each whole or not at all, never over a file that the request read.

A file that is there is replaced by renaming a finished one over it. What a rename would not keep (a
device or a pipe, another name of the same file, an owner who may not be set, a folder where nothing
new may be made) is written into instead, once the room for it is there.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from io import BufferedIOBase
from pathlib import Path

from planner.error import PlanError

FileId = tuple[int, int]  # device and inode: one file, whatever its names
Place = FileId | str  # or the path of one that is not there yet

IS_READ = "is a file that this request reads; give the result a file of its own"
_MOST_LINKS = 40  # that lead from one name to another, as in Linux (path_resolution(7))
_DESCRIPTORS = re.compile(r"/dev/fd|/proc/(\d+)(?:/task/\d+)?/fd")
_NO_RENAME = (errno.EROFS, errno.EBUSY, errno.EXDEV)
_PRIVATE, _USUAL = 0o600, 0o666  # before the mode of the file that is replaced; before the umask

# one per thread and task; None outside of a request of the command line
_read: ContextVar[set[FileId] | None] = ContextVar("files that were read", default=None)


@contextmanager
def remembered() -> Iterator[set[FileId]]:
    """Inside the block, files that are read are remembered: no result may replace them."""
    seen: set[FileId] = set()
    token = _read.set(seen)
    try:
        yield seen
    finally:
        _read.reset(token)


def note(files: Iterable[FileId]) -> None:
    """Remember files that were read, here or in another process."""
    if (known := _read.get()) is not None:
        known.update(files)


def note_open(file: BufferedIOBase) -> None:
    """Remember a file that is being read."""
    if _read.get() is not None:
        now = os.fstat(file.fileno())
        if stat.S_ISREG(now.st_mode):
            note([_id(now)])


def result(name: str, field: str) -> Path:
    """The path of a result, refused before anything is computed where nothing could be written.

    Raises PlanError naming the field.
    """
    try:
        path = os.path.expanduser(name)
        target, now = _place(path)
        if not name:
            raise PlanError(field, name, "names no file; give the file to write")
        if name.endswith("/") or (now and stat.S_ISDIR(now.st_mode)):
            raise PlanError(field, name, "cannot be written: it is a folder")
        folder = os.path.dirname(target)
        if now is None and not os.path.isdir(folder):
            raise PlanError(field, name, f"cannot be written: missing folder {folder}")
        parent = folder if now is None else target
        if not _is_descriptor(target) and not os.access(parent, os.W_OK):
            raise PlanError(field, name, "cannot be written: Permission denied")
        _not_read(now, name, field)
    except (OSError, ValueError) as error:
        raise _unwritten(error, name, field) from None
    return Path(path)


def folder(name: str, field: str, names: Iterable[str] = ()) -> list[Path]:
    """The paths of results of these names in a folder, which is made where names are given; refused
    if none could be written. Raises PlanError naming the field."""
    try:
        path = os.path.expanduser(name)
        target, now = _place(path)
        if not name:
            raise PlanError(field, name, "names no folder; give the one to write into")
        if now is not None and not stat.S_ISDIR(now.st_mode):
            raise PlanError(field, name, "cannot be written into: it is a file; give a folder")
        if now is None and not os.path.isdir(os.path.dirname(target.rstrip("/"))):
            above = os.path.dirname(target.rstrip("/"))
            raise PlanError(field, name, f"cannot be written: missing folder {above}")
        wanted = list(names)
        if wanted:
            os.makedirs(path, exist_ok=True)
        for file in wanted:
            result(os.path.join(path, file), field)
    except (OSError, ValueError) as error:
        raise _unwritten(error, name, field) from None
    return [Path(path) / file for file in wanted]


def places(path: str) -> set[Place]:
    """Identity of a path: the existing file, the place of a new one, or an open descriptor."""
    with suppress(OSError, ValueError):
        target, now = _place(os.path.expanduser(path))
        return {target if now is None or _is_descriptor(target) else _id(now)}
    return set()


def write_text(path: Path, field: str, text: str) -> None:
    """Write a result as UTF-8. Raises PlanError naming the field where it cannot be written; what
    was there is then as it was."""
    data = text.encode(
        "utf-8", "backslashreplace"
    )  # names of files may hold bytes that are not UTF-8
    try:
        target, now = _place(str(path))
        _not_read(now, str(path), field)
        if now is None:
            _renamed(target, data, None)
        elif not stat.S_ISREG(now.st_mode) or _is_descriptor(target):
            _into_open(target, data)
        elif now.st_nlink > 1 or not _could_rename(target, data, now):
            _in_place(target, data)
    except (OSError, ValueError) as error:
        raise _unwritten(error, str(path), field) from None


def _unwritten(error: OSError | ValueError, name: str, field: str) -> PlanError:
    if isinstance(error, PlanError):
        return error
    why = (error.strerror if isinstance(error, OSError) else None) or error
    return PlanError(field, name, f"cannot be written: {why}")


def _not_read(now: os.stat_result | None, name: str, field: str) -> None:
    if now is not None and _id(now) in (_read.get() or ()):
        raise PlanError(field, name, IS_READ)


def _id(now: os.stat_result) -> FileId:
    return now.st_dev, now.st_ino


def _place(path: str) -> tuple[str, os.stat_result | None]:
    """The path that links lead to, and what is there. Raises OSError for links in a loop and for
    what cannot be looked at."""
    target = path
    for _ in range(_MOST_LINKS):
        folder, name = os.path.split(target)
        target = os.path.join(os.path.realpath(folder), name)
        if _is_descriptor(target) or not os.path.islink(target):
            break
        target = os.path.join(os.path.dirname(target), os.readlink(target))
    try:
        return target, os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return target, None


def _is_descriptor(target: str) -> bool:
    """Whether it is a file that a process holds open, which a rename would leave behind."""
    return bool(_DESCRIPTORS.fullmatch(os.path.dirname(target)))


def _into_open(target: str, data: bytes) -> None:
    """Write into a device, a pipe, or a file that is open: after what was written there."""
    folder, name = os.path.split(target)
    match = _DESCRIPTORS.fullmatch(folder)
    ours = match is not None and match[1] in (None, str(os.getpid()))
    flags = os.O_WRONLY | os.O_APPEND | os.O_NOCTTY
    with open(os.dup(int(name)) if ours else os.open(target, flags), "wb") as file:
        file.write(data)


def _could_rename(target: str, data: bytes, now: os.stat_result) -> bool:
    """Replace a file; False where the folder or the owner stands against it."""
    try:
        _renamed(target, data, now)
    except PermissionError:
        return False
    except OSError as error:  # a folder that is mounted read-only, or a file that is a mount
        if error.errno not in _NO_RENAME:
            raise
        return False
    return True


def _renamed(target: str, data: bytes, now: os.stat_result | None) -> None:
    """Write a new file in the same folder, with the mode and owner of the one that is there, and
    rename it."""
    import shutil

    folder = os.path.dirname(target)
    partial = os.path.join(folder, f".dpplan-{os.urandom(8).hex()}")
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
        with open(os.open(partial, flags, _USUAL if now is None else _PRIVATE), "wb") as file:
            if now is not None:
                created = os.fstat(file.fileno())
                if (created.st_uid, created.st_gid) != (now.st_uid, now.st_gid):
                    os.chown(file.fileno(), now.st_uid, now.st_gid)
                shutil.copystat(target, partial)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, target)
    finally:
        with suppress(FileNotFoundError):
            os.unlink(partial)
    _keep(folder)


def _keep(folder: str) -> None:
    """Have the system keep the new name of a file. What cannot do so is left: the file is whole."""
    with suppress(OSError):
        opened = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(opened)
        finally:
            os.close(opened)


def _in_place(target: str, data: bytes) -> None:
    """Write over what a file holds, one writer after the other, once there is room for it all."""
    import fcntl

    with open(target, "r+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        size = os.fstat(file.fileno()).st_size
        try:
            if data:
                os.posix_fallocate(file.fileno(), 0, len(data))
        except OSError:
            os.ftruncate(file.fileno(), size)
            raise
        try:
            file.write(data)
            file.flush()
        finally:
            os.ftruncate(file.fileno(), len(data))
        os.fsync(file.fileno())
