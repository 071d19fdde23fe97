"""Results as files: whole or not at all, special files stay as they are, and nothing that a request
reads is replaced."""

from __future__ import annotations

import csv
import io
import os
import pickle
import stat
import threading
from pathlib import Path
from typing import Any

import pytest
from command import dpplan, refused

from planner.error import PlanError
from planner.inputs import catalog, files, tables
from planner.specs.options import Options
from planner.verbs import requests

OLD, NEW = "what was there\n", "the result\n"


def wrote(path: Path) -> None:
    files.write_text(path, "--html", NEW)
    assert path.read_text() == NEW
    assert not [name for name in os.listdir(path.parent) if name.startswith(".dpplan")]


def test_mode_and_owner_stay_and_a_new_file_has_those_of_any_other(tmp_path: Path) -> None:
    path = tmp_path / "there"
    path.write_text(OLD)
    path.chmod(0o604)
    if os.geteuid() == 0:
        os.chown(path, 65534, 65534)
    before = path.stat()
    wrote(path)
    now = path.stat()
    assert (now.st_mode, now.st_uid, now.st_gid) == (before.st_mode, before.st_uid, before.st_gid)
    assert now.st_ino != before.st_ino  # replaced, not written over
    usual = os.umask(0o027)
    try:
        wrote(tmp_path / "new")
    finally:
        os.umask(usual)
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o640


def test_links_stay_links(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    path = tmp_path / "folder" / "there"
    path.write_text(OLD)
    for name, target in (("near", "folder/there"), ("far", "near"), ("dangling", "folder/new")):
        link = tmp_path / name
        link.symlink_to(target)
        wrote(link)
        assert os.readlink(link) == target
    assert path.read_text() == (tmp_path / "folder" / "new").read_text() == NEW
    twin = tmp_path / "twin"
    os.link(path, twin)
    path.write_text(OLD * 100)
    wrote(twin)
    assert os.path.samefile(path, twin)
    loop = tmp_path / "loop"
    loop.symlink_to("loop")
    with pytest.raises(PlanError, match="symbolic links"):
        files.write_text(loop, "--html", NEW)


def test_a_device_or_a_pipe_is_written_through(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    read, write = os.pipe()
    for path in (tmp_path / "pipe", Path(f"/dev/fd/{write}"), Path(f"/proc/self/fd/{write}")):
        end = os.open(path, os.O_RDONLY | os.O_NONBLOCK) if path.name == "pipe" else read
        files.write_text(path, "--html", NEW)
        assert os.read(end, 100) == NEW.encode()
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)
    files.write_text(Path("/dev/null"), "--html", NEW)
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)
    with pytest.raises(PlanError, match="No space left"):
        files.write_text(Path("/dev/full"), "--html", NEW)
    # a file that is open is written on, as the process that opened it would
    with (tmp_path / "open").open("w") as file:
        file.write("before\n")
        file.flush()
        files.write_text(Path(f"/dev/fd/{file.fileno()}"), "--html", NEW)
    assert (tmp_path / "open").read_text() == f"before\n{NEW}"


@pytest.mark.parametrize("way", ["replace", "in place"])
@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_what_fails_leaves_what_was_there(
    way: str, error: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "there"
    path.write_text(OLD)
    if way == "in place":
        os.link(path, tmp_path / "twin")
    names = sorted(os.listdir(tmp_path))

    def fails(*_: object) -> None:
        raise error

    monkeypatch.setattr(os, "fsync" if way == "replace" else "posix_fallocate", fails)
    with pytest.raises((PlanError, KeyboardInterrupt)):
        files.write_text(path, "--html", NEW * 1000)
    assert path.read_text() == OLD
    assert sorted(os.listdir(tmp_path)) == names


def test_a_folder_that_takes_no_new_name_still_has_files_that_can_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, make = tmp_path / "there", os.open

    def closed(path: Any, flags: int, *mode: int) -> int:
        if flags & os.O_CREAT:
            raise PermissionError(13, "Permission denied")
        return make(path, flags, *mode)

    target.write_text(OLD * 10)
    monkeypatch.setattr(os, "open", closed)  # the superuser may write everywhere
    wrote(target)
    with pytest.raises(PlanError, match="Permission denied"):
        files.write_text(tmp_path / "new", "--html", NEW)


def test_writers_at_once_leave_one_whole_result(tmp_path: Path) -> None:
    path, failed = tmp_path / "there", []
    texts = [str(i) * 100_000 for i in range(4)]
    (tmp_path / "there.partial").write_text(OLD)

    def write(text: str) -> None:
        try:
            for _ in range(5):
                files.write_text(path, "--html", text)
        except PlanError as error:
            failed.append(error)

    writers = [threading.Thread(target=write, args=(text,)) for text in texts]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert failed == []
    assert path.read_text() in texts
    assert (tmp_path / "there.partial").read_text() == OLD
    assert sorted(os.listdir(tmp_path)) == ["there", "there.partial"]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("folder", "is a folder"),
        ("new/", "is a folder"),
        ("no/folder", "missing folder"),
        ("x" * 400, "too long"),
        ("a\0b", "null"),
        ("loop", "symbolic links"),
        ("file/x", "missing folder"),
        ("~nobody-of-this-name/x", "missing folder"),
    ],
)
def test_a_name_that_cannot_be_written_is_refused_before_anything_is_computed(
    name: str, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    os.symlink("loop", "loop")
    os.mkdir("folder")
    Path("file").write_text(OLD)
    refused(dpplan("estimate", "--model", "no-such-model", "--html", name), "--html", text)


def test_the_longest_name_can_be_written(tmp_path: Path) -> None:
    wrote(tmp_path / ("x" * 255))


MODEL = """name = "own"
layers = 4
hidden = 256
heads = 4
vocab = 1000
max_positions = 512
"""


def test_no_result_replaces_a_file_that_the_request_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("a.toml", "b.toml"):
        Path(name).write_text(MODEL)
    Path("asked.toml").write_text('model = "a.toml"\ngpu = "a100"\ngpus = 1\n')
    os.symlink("a.toml", "link")
    os.link("a.toml", "twin")
    shape = ("--schedule", "1f1b", "--pp", "2", "--microbatches", "2")
    Path("rows.csv").write_text("0F0,0B0\n0F0,0B0\n")
    common = ("--gpu", "a100", "--gpus", "1", "--jobs", "1")
    for words in (
        ("estimate", "--model", "a.toml", "--gpu", "a100", "--html", "link"),
        ("estimate", "--scenario", "asked.toml", "--html", "twin"),
        ("estimate", "--scenario", "asked.toml", "--trace", "asked.toml"),
        ("compare", "--vary", "model=b.toml,a.toml", *common, "--csv", "a.toml"),
        ("compare", "asked.toml", "--vary", "gpus=1,2", "--jobs", "1", "--html", "a.toml"),
        ("search", "--scenario", "asked.toml", "--csv", "a.toml"),
        ("schedule", *shape, "--file", "rows.csv", "--html", "rows.csv"),
    ):
        refused(dpplan(*words), words[-2], "this request reads")
    assert Path("a.toml").read_text() == Path("b.toml").read_text() == MODEL
    refused(
        dpplan("estimate", "--scenario", "asked.toml", "--html", "x", "--trace", "./x"),
        "named twice",
    )


def test_no_result_replaces_a_profile_that_the_request_reads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    catalog._shipped.cache_clear()
    profile = catalog.folder("gpus") / "a100-sxm4-80gb.toml"
    before = profile.read_text()
    answer = dpplan(
        "estimate", "--model", "gpt2", "--gpu", "a100", "--gpus", "1", "--html", profile
    )
    refused(answer, "this request reads")
    assert profile.read_text() == before


def test_what_worker_processes_read_comes_back_with_their_answers(tmp_path: Path) -> None:
    model = tmp_path / "own.toml"
    model.write_text(MODEL)
    options = Options(model=str(model), gpu="a100", gpus=1)
    answered = pickle.loads(
        pickle.dumps(requests._answered(requests._Unit([options], [None], True)))
    )
    with files.remembered():
        files.note(answered.read)
        with pytest.raises(PlanError, match="this request reads"):
            files.write_text(model, "--csv", NEW)
    assert model.read_text() == MODEL


@pytest.mark.parametrize(
    "text",
    [
        "=1+1",
        "+1+1",
        "-1+1",
        "@SUM(A1)",
        "\tx",
        "\nx",
        "  =1",
        '"=1"',
        "'=1",
        "\uff1d1+1",
        '=HYPERLINK("http://x","y")',
        "-nan",
    ],
)
def test_text_of_a_table_is_no_formula_of_a_spreadsheet(text: str) -> None:
    written = tables.csv_text([text, "b"], [[text, 1]])
    ((header, _), (cell, _)) = csv.reader(io.StringIO(written, newline=""))
    assert header == cell == f"'{text}"


def test_numbers_of_a_table_stay_numbers() -> None:
    line: Any = [-1.5, "-1.5", "+3e-4", 7, "a-b", "8 x h100; --tp 2", "=", True, None, float("inf")]
    ((*cells,),) = csv.reader(io.StringIO(tables.csv_text(line, []).splitlines(keepends=True)[0]))
    assert cells == ["-1.5", "-1.5", "+3e-4", "7", "a-b", "8 x h100; --tp 2", "=", "True", "", ""]
    assert tables.csv_text(["a\r=1"], []) == '"a\n\'=1"\n'  # one cell, and no second line begins
    assert tables.csv_text(["x;=1"], []) == "x;'=1\n"  # two cells where `;` separates them


def test_a_table_that_a_command_writes_is_safe(tmp_path: Path) -> None:
    runs = tmp_path / "runs.csv"
    runs.write_text(
        "run_id,suite,gpu,gpus,stack,layers,hidden,heads,seq_len,tp,pp,dp,global_batch\n"
        "=1+1,@x,h100-sxm5-80gb,8,megatron-core,4,512,8,512,1,1,8,8\n"
    )
    out = tmp_path / "out.csv"
    assert dpplan("validate", runs, "--csv", out).status == 0
    assert out.read_text().splitlines()[1].startswith("'=1+1,'@x,")
