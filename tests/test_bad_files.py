"""Hostile files: exit status 2, one clear sentence, no traceback, nothing written, within
seconds."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from bad_requests import FILES, SUFFIX, ask, file_refused
from command import dpplan, dpplan_process, refused

pytestmark = pytest.mark.usefixtures("within_seconds_and_nothing_written")


NESTED = 100_000
HOSTILE_TOML: dict[str, bytes] = {
    "empty": b"",
    "blank": b" \n\n",
    "no TOML": b"{]",
    "unclosed string": b'name = "x',
    "key twice": b'name = "a"\nname = "b"\n',
    "table twice": b"[a]\n[a]\n",
    "nested lists": b"x = " + b"[" * NESTED + b"]" * NESTED,
    "nested tables": b"x = " + b"{a=" * NESTED + b"1" + b"}" * NESTED,
    "nested keys": b".".join([b"a"] * NESTED) + b" = 1",
    "fairly nested": b"x = " + b"[" * 40 + b"]" * 40,
    "10 MB": b"# " + b"x" * 10_000_000,
    "10 MB of keys": b"".join(b"k%d = 1\n" % i for i in range(800_000)),
    "many keys": b"".join(b"k%d = 1\n" % i for i in range(30_000)),
    "Latin-1": 'name = "Müller"'.encode("latin-1"),
    "UTF-16": 'name = "x"'.encode("utf-16"),
    "binary": bytes(range(256)) * 16,
    "NUL": b'name = "a\0b"',
    "unknown key": b"no_such_key = 1\n",
    "digits": b"layers = " + b"9" * 5000,
    "date": b"layers = 2026-11-01\n",
    "infinite": b"layers = inf\n",
    "NaN": b"layers = nan\n",
}


@pytest.mark.parametrize(
    ("kind", "content"),
    [
        (kind, content)
        for kind in FILES
        if kind != "config"
        for content in HOSTILE_TOML
        if kind != "scenario"
        or content not in ("empty", "blank")  # a scenario that says nothing is fine
    ],
)
def test_a_hostile_toml_file_is_refused(kind: str, content: str, tmp_path: Path) -> None:
    file = tmp_path / "given.toml"
    file.write_bytes(HOSTILE_TOML[content])
    if kind == "scenario" and content in (
        "unknown key",
        "many keys",
        "digits",
        "date",
        "infinite",
        "NaN",
    ):
        refused(ask(kind, file))  # well-formed; the key is what is wrong
    else:
        file_refused(kind, file, str(file))
    assert sorted(os.listdir(tmp_path)) == ["given.toml", "here"]


HOSTILE_JSON: dict[str, bytes] = {
    "empty": b"",
    "not JSON": b"{]",
    "a list": b"[1, 2]",
    "a number": b"7",
    "null": b"null",
    "two documents": b"{}{}",
    "key twice": b'{"model_type": "llama", "model_type": "gpt2"}',
    "nested lists": b'{"x": ' + b"[" * NESTED + b"]" * NESTED + b"}",
    "nested objects": b'{"a":' * NESTED + b"1" + b"}" * NESTED,
    "10 MB": b'{"x": "' + b"x" * 10_000_000 + b'"}',
    "Latin-1": '{"model_type": "Müller"}'.encode("latin-1"),
    "byte order mark": b'\xef\xbb\xbf{"model_type": "llama"}',
    "binary": bytes(range(256)) * 16,
    "NaN": b'{"model_type": NaN, "gpus": NaN}',
    "beyond floats": b'{"model_type": "llama", "price": 1e400, "hidden_size": 1e400}',
    "digits": (
        b'{"model_type": "llama", "hidden_size": '
        + b"9" * 5000
        + b', "gpus": '
        + b"9" * 5000
        + b"}"
    ),
    "lone surrogate": b'{"\\ud800": "\\udfff"}',
    "unknown key": b'{"no_such_key": 1}',
}


@pytest.mark.parametrize("content", HOSTILE_JSON)
@pytest.mark.parametrize("kind", ["config", "scenario"])
def test_a_hostile_json_file_is_refused(kind: str, content: str, tmp_path: Path) -> None:
    file = tmp_path / "given.json"
    file.write_bytes(HOSTILE_JSON[content])
    refused(ask(kind, file))


HOSTILE_YAML: dict[str, bytes] = {
    "no mapping": b"- tp\n- pp\n",
    "a word": b"tp",
    "no YAML": b"tp: [1",
    "tab": b"tp:\n\t- 1\n",
    "two documents": b"tp: 1\n---\ntp: 2\n",
    "key twice": b"tp: 1\ntp: 2\n",
    "key spelled twice": b"micro-batch: 1\nmicro_batch: 2\n",
    "bomb": (
        b"a: &a [x, x, x, x, x, x, x, x, x, x]\n"
        + b"".join(
            b"%c: &%c [%s]\n" % (98 + i, 98 + i, b", ".join([b"*%c" % (97 + i)] * 10))
            for i in range(12)
        )
    ),
    "merge bomb": b"a: &a {x: 1}\nb: &b {<<: [*a, *a]}\n" + b"c: {<<: [*b, *b]}\n",
    "itself": b"a: &a [*a]\n",
    "undefined alias": b"tp: *nothing\n",
    "python object": b"tp: !!python/object/apply:os.system ['touch here/owned']\n",
    "python name": b"tp: !!python/name:os.system\n",
    "unknown tag": b"tp: !thing 1\n",
    "binary": b"tp: !!binary aGVsbG8=\n",
    "set": b"tp: !!set {a, b}\n",
    "date": b"tp: 2026-11-01\n",
    "impossible date": b"tp: 2026-99-99\n",
    "infinite": b"gpus: .inf\n",
    "NaN": b"price: .nan\n",
    "list as key": b"? [a, b]\n: 1\n",
    "number as key": b"1: 2\n",
    "words": b"gpus: eight\n",
    "yes": b"gpus: yes\n",
    "nested": b"tp: " + b"[" * NESTED + b"]" * NESTED,
    "nested lines": b"".join(b" " * i + b"a:\n" for i in range(300)),
    "10 MB": b"# " + b"x" * 10_000_000,
    "NUL": b"tp: 1\0",
    "Latin-1": "model: Müller".encode("latin-1"),
    "control": b"model: \x07\n",
}


@pytest.mark.parametrize("content", HOSTILE_YAML)
def test_a_hostile_yaml_file_is_refused(content: str, tmp_path: Path) -> None:
    file = tmp_path / "given.yaml"
    file.write_bytes(HOSTILE_YAML[content])
    answer = dpplan("estimate", "--scenario", file)
    sentence = refused(answer)
    assert len(sentence) < 600


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({"tpp": 2}, ["tpp", "not an option", "tp"]),
        ({"gpus": "16"}, ["--gpus", "'16'"]),
        ({"gpus": 16.5}, ["--gpus", "16.5"]),
        ({"gpus": True}, ["--gpus", "True"]),
        ({"gpus": [16]}, ["gpus", "one value"]),
        ({"gpus": {"count": 16}}, ["gpus", "one value"]),
        ({"gpus": -16}, ["--gpus", "-16"]),
        ({"flash-attention": "yes"}, ["--flash-attention", "'yes'"]),
        ({"flash-attention": 1}, ["--flash-attention", "1"]),
        ({"model": 7}, ["--model", "7"]),
        ({"price": True}, ["--price", "True"]),
        ({"tokens": False}, ["--tokens", "False"]),
        ({"scenario": "other.json"}, ["scenario", "not an option"]),
        ({"": 1}, ["not an option"]),
        ({"json": True}, ["json", "not an option"]),
    ],
)
@pytest.mark.parametrize("suffix", [".json", ".toml", ".yaml"])
def test_a_scenario_with_wrong_values_names_them(
    content: dict[str, Any], words: list[str], suffix: str, tmp_path: Path
) -> None:
    file = tmp_path / f"scenario{suffix}"
    whole = {"model": "gpt2", "gpu": "a100"} | content
    if suffix == ".toml":
        table = {"count": "{count = 16}"}
        lines = (
            f"{json.dumps(k)} = {table['count'] if isinstance(v, dict) else json.dumps(v)}\n"
            for k, v in whole.items()
        )
        file.write_text("".join(lines))
    else:
        file.write_text(json.dumps(whole))  # JSON is YAML
    refused(dpplan("estimate", "--scenario", file), *words)


@pytest.mark.parametrize("kind", FILES)
def test_what_is_no_file_is_refused(kind: str, tmp_path: Path) -> None:
    suffix = SUFFIX.get(kind, ".toml")
    file_refused(kind, tmp_path / f"missing{suffix}", "missing", "No such file")
    folder = tmp_path / f"folder{suffix}"
    folder.mkdir()
    file_refused(kind, folder, "folder", "is a folder")
    file_refused(kind, Path(f"{'x' * 1000}/{'y' * 300}{suffix}"), "cannot be read")
    refused(ask(kind, f"~nobody-of-this-name/file{suffix}"), "~nobody-of-this-name")
    refused(ask(kind, f"a\0b{suffix}"))
    loop = tmp_path / f"loop{suffix}"
    loop.symlink_to(loop)
    file_refused(kind, loop, "loop", "cannot be read")


@pytest.mark.skipif(not os.path.exists("/dev/zero"), reason="no endless file on this system")
def test_an_endless_file_is_not_read_to_its_end(tmp_path: Path) -> None:
    for kind in FILES:
        endless = tmp_path / f"{kind}{SUFFIX.get(kind, '.toml')}"
        endless.symlink_to("/dev/zero")
        file_refused(kind, endless, "larger than")


def test_a_file_that_may_not_be_read_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def closed(self: Path, *arguments: Any) -> Any:
        raise PermissionError(13, "Permission denied")

    file = tmp_path / "closed.toml"
    file.write_text("")
    monkeypatch.setattr(
        Path, "open", closed
    )  # the superuser, who may run the tests, reads everything
    file_refused("calibration", file, "Permission denied")


def test_a_scenario_of_another_kind_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "scenario.ini"
    file.write_text("[a]")
    refused(dpplan("estimate", "--scenario", file), "--scenario", ".toml, .yaml or .json")


def test_a_process_says_one_sentence(tmp_path: Path) -> None:
    """The tests above, in a process that an uncaught error would end."""
    deep = tmp_path / "deep.yaml"
    deep.write_bytes(HOSTILE_YAML["nested"])
    for words in (
        ["estimate", "--model", "gpt2", "--gpus", "8", "--gpu", "a100", "--tp", "5"],
        ["estimate", "--scenario", deep],
        ["validate", deep],
        ["estimate", "--model", "Größe", "--gpus", "8", "--gpu", "a100"],
    ):
        refused(dpplan_process(*words, PYTHONIOENCODING="ascii"))
