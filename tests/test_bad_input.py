"""Wrong and hostile requests: exit status 2, one clear sentence, no traceback, nothing written,
within seconds.

Long: its tables of wrong values and hostile files share one set of fixtures.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from command import Answer, dpplan, dpplan_process, refused
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from planner import api
from planner.inputs import catalog
from planner.specs.base import PlanError
from planner.specs.options import Options, rows

REQUEST = {"model": "llama-2-7b", "gpus": "16", "gpu": "a100"}
SECONDS = 10.0  # a limit against endless work, not a benchmark
MANY = 6  # times as long for a property, which asks many times


@pytest.fixture(autouse=True)
def _within_seconds_and_nothing_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[None]:
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    started = time.monotonic()
    yield
    assert time.monotonic() - started < SECONDS * (
        MANY if request.node.get_closest_marker("hypothesis") else 1
    )
    assert os.listdir(here) == []


def estimate(**changes: Any) -> Answer:
    asked = {k: v for k, v in {**REQUEST, **changes}.items() if v is not None}
    return dpplan(
        "estimate", *(f"--{name.replace('_', '-')}={value}" for name, value in asked.items())
    )


# -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("option", "value", "near"),
    [
        ("model", "lama-2-70b", "llama-2-70b"),
        ("model", "mixtral-8x7", "mixtral-8x7b"),
        ("model", "qwen3-235b", "qwen3-235b-a22b"),
        ("gpu", "rtx409", "rtx4090"),
        ("gpu", "a100-sxm4-80", "a100-sxm4-80gb"),
        ("gpu", "h100-sxm5-80g", "h100-sxm5-80gb"),
        ("cluster", "dgx-a10", "dgx-a100"),
        ("stack", "megatron-cor", "megatron-core"),
        ("stack", "deepsped", "deepspeed"),
        ("intra_node", "nvlink-4", "nvlink4"),
        ("inter_node", "ib-hd", "ib-hdr"),
    ],
)
def test_an_unknown_id_answers_with_near_matches(option: str, value: str, near: str) -> None:
    changes = {"gpu": None} if option == "cluster" else {}
    flag = "--" + option.replace("_", "-")
    refused(estimate(**{**changes, option: value}), f"{flag}: '{value}'", "did you mean", near)


@pytest.mark.parametrize(
    ("option", "value"),
    [("schedule", "1f2b"), ("precision", "fp12"), ("optimizer", "adamw"), ("offload", "disk")],
)
def test_an_unknown_word_answers_with_the_known_ones(option: str, value: str) -> None:
    sentence = refused(estimate(**{option: value}), f"--{option}: '{value}'")
    assert len(re.findall(r"'[a-z0-9-]+'", sentence)) >= 3


def test_a_name_that_is_like_nothing_says_where_to_look() -> None:
    for option, kind in (
        ("model", "models"),
        ("gpu", "gpus"),
        ("stack", "stacks"),
        ("intra_node", "networks"),
    ):
        refused(estimate(**{option: "xyzzy"}), f"dpplan list {kind}")
    refused(estimate(gpu=None, cluster="xyzzy"), "dpplan list clusters")
    refused(dpplan("list", "xyzzy"), "xyzzy", "gpus", "models")


def test_gpu_and_cluster_must_agree() -> None:
    refused(estimate(cluster="dgx-a100", gpu="h100"), "--gpu: 'h100'", "dgx-a100")
    refused(estimate(gpu=None), "--gpu", "--cluster")
    refused(estimate(intra_node="ib-ndr"), "--intra-node: 'ib-ndr'")
    refused(estimate(inter_node="nvlink4"), "--inter-node: 'nvlink4'")
    refused(estimate(gpus=12), "--gpus: 12", "8", "16")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"tp": 3}, ["3", "16 GPUs"]),
        ({"tp": 4, "pp": 8}, ["32", "16 GPUs"]),
        ({"tp": 2, "pp": 2, "dp": 2}, ["= 8", "16 GPUs"]),
        ({"dp": 32}, ["32", "16 GPUs"]),
        ({"tp": 24, "gpus": 24}, ["--tp", "32 heads"]),
        ({"pp": 3, "gpus": 24}, ["--pp", "32 layers"]),
        ({"pp": 4, "vpp": 16, "schedule": "interleaved"}, ["--pp/--vpp", "32 layers", "64"]),
        ({"global_batch": 17, "dp": 16}, ["--global-batch", "17"]),
        ({"global_batch": 16, "micro_batch": 3, "dp": 4, "tp": 4}, ["16", "micro-batch 3"]),
        ({"global_batch": 64, "micro_batch": 64, "dp": 2, "tp": 8}, ["micro-batch 64", "= 128"]),
        ({"ep": 4}, ["--ep", "experts"]),
        ({"model": "mixtral-8x7b", "ep": 3}, ["--ep", "8 experts"]),
        ({"zero": 3, "stack": "megatron-core"}, ["--zero", "Megatron"]),
        ({"tp": 2, "stack": "pytorch-ddp"}, ["--stack"]),
        ({"pp": 2, "stack": "pytorch-fsdp"}, ["--stack"]),
        ({"shard_group": 3, "zero": 3}, ["--shard-group", "3"]),
        ({"schedule": "interleaved", "pp": 4, "vpp": 1}, ["interleaved"]),
        ({"schedule": "1f1b", "pp": 4, "vpp": 2}, ["1f1b"]),
        ({"recompute": "block:99", "pp": 4}, ["--recompute", "block:99"]),
        ({"recompute": "block:0"}, ["--recompute: 'block:0'", "block:N"]),
        ({"recompute": "often"}, ["--recompute: 'often'", "selective"]),
        ({"precision": "fp8"}, ["--precision: 'fp8'", "A100", "bf16"]),
        ({"precision": "bf16", "gpu": "v100-sxm2-32gb"}, ["--precision: 'bf16'", "V100", "fp16"]),
        ({"model": "gpt2", "seq_len": 2048}, ["--seq-len: 2048", "1024"]),
        ({"cp": 3, "gpus": 24}, ["--seq-len", "cp 3"]),
    ],
)
def test_an_impossible_layout_names_the_rule_it_breaks(
    changes: dict[str, Any], said: list[str]
) -> None:
    refused(estimate(**changes), *said)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"gpus": 0}, ["--gpus: 0", "1"]),
        ({"gpus": -8}, ["--gpus: -8"]),
        ({"gpus": 10**18}, ["--gpus: 1000000000000000000", "1000000"]),
        ({"gpus": 10**400}, ["--gpus"]),
        ({"gpus": "8.5"}, ["--gpus", "8.5"]),
        ({"gpus": "NaN"}, ["--gpus", "NaN"]),
        ({"gpus": ""}, ["--gpus"]),
        ({"gpus_per_node": 10**9}, ["--gpus-per-node: 1000000000"]),
        ({"nics_per_node": 0}, ["--nics-per-node: 0"]),
        ({"seq_len": 10**12}, ["--seq-len: 1000000000000"]),
        ({"seq_len": 0}, ["--seq-len: 0"]),
        ({"global_batch": 10**12}, ["--global-batch: 1000000000000"]),
        ({"tp": 10**9}, ["--tp: 1000000000"]),
        ({"tp": -1}, ["--tp: -1"]),
        ({"zero": 4}, ["--zero: 4", "3"]),
        ({"micro_batch": 0}, ["--micro-batch: 0"]),
        ({"top": 0}, ["--top: 0"]),
        ({"top": 10**6}, ["--top: 1000000"]),
        ({"tokens": "many"}, ["--tokens: 'many'", "15T"]),
        ({"tokens": "nan"}, ["--tokens: 'nan'"]),
        ({"tokens": "1e400"}, ["--tokens: '1e400'", "finite"]),
        ({"tokens": "-5B"}, ["--tokens: '-5B'", "between 1"]),
        ({"tokens": "0"}, ["--tokens: '0'", "between 1"]),
        ({"tokens": "15X"}, ["--tokens: '15X'"]),
        ({"price": "free"}, ["--price: 'free'"]),
        ({"price": "-1"}, ["--price: '-1'", "negative"]),
        ({"price": "inf"}, ["--price: 'inf'"]),
        ({"price": "1e999"}, ["--price: '1e999'"]),
        ({"nic_bandwidth": "fast"}, ["--nic-bandwidth: 'fast'", "200 Gbit/s"]),
        ({"nic_bandwidth": "0 Gbit/s"}, ["--nic-bandwidth: '0 Gbit/s'", "positive"]),
        ({"nic_bandwidth": "-1 GB/s"}, ["--nic-bandwidth: '-1 GB/s'"]),
        ({"nic_bandwidth": "10 GB"}, ["--nic-bandwidth: '10 GB'"]),
        ({"nic_bandwidth": "1e400 GB/s"}, ["--nic-bandwidth: '1e400 GB/s'"]),
        ({"model": ""}, ["--model: ''"]),
        ({"model": "x" * 5000}, ["--model", "4096"]),
        ({"model": "llama\n\x1b[31m-2-7b"}, ["--model"]),
        ({"model": "\ud800"}, ["--model"]),
        ({"model": None}, ["--model", "dpplan list models"]),
        ({"model": "hf:"}, ["--model: 'hf:'"]),
    ],
)
def test_a_value_out_of_range_is_named_with_its_limits(
    changes: dict[str, Any], said: list[str]
) -> None:
    sentence = refused(estimate(**changes), *said)
    assert sentence.isprintable()


def test_the_most_that_is_allowed_is_answered() -> None:
    for changes in (
        {"gpus": 1_000_000},
        {"gpus": 983_040},
        {"seq_len": 100_000_000},
        {"global_batch": 1_000_000_000, "dp": 16},
        {"tokens": "1e18", "price": 1e9},
        {"nic_bandwidth": "1 B/s"},
        {"nic_bandwidth": "1e300 B/s"},
        {"top": 1000},
    ):
        answer = estimate(**changes)
        assert answer.status in (0, 2, 3), changes
        if answer.status == 2:
            refused(answer)


def test_endless_searches_are_refused(tmp_path: Path) -> None:
    """A model and a cluster with as many divisors as can be: millions of layouts."""
    file = tmp_path / "model.toml"
    file.write_text(
        'name = "round"\nlayers = 720\nhidden = 10080\nheads = 720\nkv_heads = 720\nhead_dim = 14\n'
        "ffn_hidden = 10080\nvocab = 10080\n"
        "[moe]\nexperts = 5040\nexperts_per_token = 4\nffn_hidden = 5040\n"
    )
    refused(
        estimate(model=file, gpus=5040, gpu="h100", global_batch=5040 * 16, seq_len=65536),
        "layout",
        "--tp",
    )


# -------------------------------------------------------------------------------------------------

FILES = ("model", "config", "gpu", "cluster", "stack", "calibration", "scenario")
SUFFIX = {"config": ".json"}


def ask(kind: str, file: object) -> Answer:
    """A request that reads this file as that kind of file."""
    option = {"config": "model"}.get(kind, kind)
    return estimate(**({"gpu": None} if kind == "cluster" else {}), **{option: file})


def file_refused(kind: str, file: Path, *said: str) -> str:
    option = {"config": "model"}.get(kind, kind)
    return refused(ask(kind, file), f"--{option}", *said)


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
    "no JSON": b"{]",
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
    ("content", "said"),
    [
        ({"tpp": 2}, ["tpp", "no option", "tp"]),
        ({"gpus": "16"}, ["--gpus", "'16'"]),
        ({"gpus": 16.0}, ["--gpus", "16.0"]),
        ({"gpus": True}, ["--gpus", "True"]),
        ({"gpus": [16]}, ["gpus", "one value"]),
        ({"gpus": {"count": 16}}, ["gpus", "one value"]),
        ({"gpus": -16}, ["--gpus", "-16"]),
        ({"flash-attention": "yes"}, ["--flash-attention", "'yes'"]),
        ({"flash-attention": 1}, ["--flash-attention", "1"]),
        ({"model": 7}, ["--model", "7"]),
        ({"price": True}, ["--price", "True"]),
        ({"tokens": False}, ["--tokens", "False"]),
        ({"scenario": "other.json"}, ["scenario", "no option"]),
        ({"": 1}, ["no option"]),
        ({"json": True}, ["json", "no option"]),
    ],
)
@pytest.mark.parametrize("suffix", [".json", ".toml", ".yaml"])
def test_a_scenario_with_wrong_values_names_them(
    content: dict[str, Any], said: list[str], suffix: str, tmp_path: Path
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
    refused(dpplan("estimate", "--scenario", file), *said)


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


# -------------------------------------------------------------------------------------------------

PROFILES = {
    "model": ("models", "llama-2-7b"),
    "gpu": ("gpus", "a100-sxm4-80gb"),
    "stack": ("stacks", "megatron-core"),
    "cluster": ("clusters", "dgx-a100"),
}
WRONG_VALUES = {
    "text": '"many"',
    "negative": "-1",
    "zero": "0",
    "NaN": "nan",
    "inf": "inf",
    "list": "[1]",
    "date": "2026-11-01",
    "table": "{a = 1}",
    "huge": "1e400",
    "bool": "true",
}
PLACES = {
    "model": ("layers", "hidden", "heads", "vocab"),
    "gpu": ("memory", "memory_bandwidth", "compute_units", "power"),
    "stack": ("network_frac", "fragmentation_frac", "cpu_adam"),
    "cluster": ("gpus_per_node", "nics_per_node", "nic_bandwidth"),
}
MAY_BE_ZERO = {"fragmentation_frac"}  # an allocator without slack is possible


@pytest.mark.parametrize(
    ("kind", "key", "value"),
    [
        (kind, key, value)
        for kind, keys in PLACES.items()
        for key in keys
        for value in WRONG_VALUES
        if value != "zero" or key not in MAY_BE_ZERO
    ],
)
def test_a_profile_with_one_wrong_value_names_it(
    kind: str, key: str, value: str, tmp_path: Path
) -> None:
    text = (catalog.folder(PROFILES[kind][0]) / f"{PROFILES[kind][1]}.toml").read_text(
        encoding="utf-8"
    )
    changed, count = re.subn(
        rf"^{key} *= *(\{{.*\}}|.*)$", f"{key} = {WRONG_VALUES[value]}", text, flags=re.MULTILINE
    )
    if count == 0:  # the number is a table of its own
        changed, count = re.subn(rf"^\[{key}\]\n(?:(?!\[).*\n)*", "", text, flags=re.MULTILINE)
        changed = f"{key} = {WRONG_VALUES[value]}\n" + changed
    assert count == 1
    file = tmp_path / "given.toml"
    file.write_text(changed, encoding="utf-8")
    file_refused(kind, file, str(file), key)


@pytest.mark.parametrize("kind", PROFILES)
def test_a_profile_with_an_unknown_key_or_without_a_needed_one_names_it(
    kind: str, tmp_path: Path
) -> None:
    text = (catalog.folder(PROFILES[kind][0]) / f"{PROFILES[kind][1]}.toml").read_text(
        encoding="utf-8"
    )
    file = tmp_path / "given.toml"
    file.write_text("no_such_key = 1\n" + text, encoding="utf-8")
    file_refused(kind, file, "no_such_key", "unknown key")
    needed = {"model": "layers", "gpu": "architecture", "stack": "title", "cluster": "title"}[kind]
    shorter, count = re.subn(rf"^{needed} *=.*\n", "", text, count=1, flags=re.MULTILINE)
    assert count == 1
    file.write_text(shorter, encoding="utf-8")
    file_refused(kind, file, needed)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("schema_version = 2", ["schema_version", "2"]),
        ('schema_version = "1"\ngpu = "a100-sxm4-80gb"', ["schema_version"]),
        ("schema_version = true\ngpu = 'a100-sxm4-80gb'", ["schema_version"]),
        ("schema_version = 1", ["gpu"]),
        ("schema_version = 1\ngpu = 7", ["gpu"]),
        ("schema_version = 1\ngpu = 'no-such-gpu'", ["no-such-gpu"]),
        ("schema_version = 1\ngpu = 'a100-sxm4-80gb'\noverlay = 3", ["overlay"]),
        ("schema_version = 1\ngpu = 'a100-sxm4-80gb'\nextra = 3", ["extra", "unknown key"]),
        (
            "schema_version = 1\ngpu = 'a100-sxm4-80gb'\n[overlay]\nno_such = 1",
            ["no_such", "unknown key"],
        ),
        (
            "schema_version = 1\ngpu = 'a100-sxm4-80gb'\n[overlay]\nmemory = '-3 GB'",
            ["memory", "-3 GB"],
        ),
        ("schema_version = 1\ngpu = 'a100-sxm4-80gb'\n[overlay]\nkernels = 3", ["kernels", "3"]),
        (
            "schema_version = 1\ngpu = 'a100-sxm4-80gb'\n[overlay.kernels]\ngemm_efficiency = 'x'",
            ["gemm_efficiency", "x"],
        ),
        ("schema_version = 1\ngpu = 'a100-sxm4-80gb'\n[links]\nnvlink3 = 3", ["nvlink3"]),
        (
            "schema_version = 1\ngpu = 'a100-sxm4-80gb'\n[links.nvlink3]\nbandwidth = 'fast'",
            ["bandwidth", "fast"],
        ),
        (
            (
                "schema_version = 1\ngpu = 'a100-sxm4-80gb'\n[links.no-such-link]\nbandwidth = '1"
                " GB/s'"
            ),
            ["no-such-link"],
        ),
    ],
)
def test_a_wrong_calibration_names_what_is_wrong(
    content: str, said: list[str], tmp_path: Path
) -> None:
    file = tmp_path / "node.toml"
    file.write_text(content)
    refused(ask("calibration", file), *said)


# -------------------------------------------------------------------------------------------------

BOUNDED = settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    derandomize=True,
    database=None,
)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "model": st.sampled_from(
        ["gpt2", "llama-2-7b", "mixtral-8x7b", "deepseek-v2-lite", "no-model"]
    ),
    "gpu": st.sampled_from(["a100", "rtx4090", "v100-sxm2-16gb", "mi300x", "x"]),
    "gpus": st.sampled_from([1, 8, 16, 64, 96]) | st.integers(-1, 4096),
    "gpus_per_node": st.integers(0, 64),
    "nics_per_node": st.integers(0, 16),
    "intra_node": st.sampled_from(["nvlink3", "pcie4", "ib-hdr", ""]),
    "inter_node": st.sampled_from(["ib-hdr", "tcp-10", "pcie4"]),
    "nic_bandwidth": st.sampled_from(["1 bit/s", "200 Gbit/s", "9e99 TB/s", "3", 0.0]),
    "price": st.floats() | st.text(max_size=5),
    **{
        name: st.sampled_from([1, 2, 4, 8]) | st.integers(-1, 20)
        for name in ("tp", "pp", "vpp", "dp", "cp", "ep", "shard_group", "micro_batch")
    },
    "zero": st.integers(-1, 4),
    "sequence_parallel": st.booleans(),
    "flash_attention": st.booleans(),
    "schedule": st.sampled_from(
        ["1f1b", "gpipe", "interleaved", "zb-1p", "zb-2p", "dualpipe", "none"]
    ),
    "recompute": st.sampled_from(
        ["none", "selective", "full", "block:1", "block:99999", "group:3", "group:"]
    ),
    "offload": st.sampled_from(["none", "optimizer", "params", "all"]),
    "seq_len": st.integers(-1, 200_000),
    "global_batch": st.integers(-1, 5000),
    "precision": st.sampled_from(["fp32", "tf32", "fp16", "bf16", "fp8", "fp4"]),
    "optimizer": st.sampled_from(["adam", "adam8bit", "adafactor", "sgd", "sgd-momentum", "lion"]),
    "tokens": st.floats() | st.text(max_size=5),
    "top": st.integers(0, 3),
    "stack": st.sampled_from([*catalog.ids("stacks"), "no-stack"]),
}


WHERE = ("model", "gpu", "gpus")
SOME = st.sets(st.sampled_from(sorted(set(VALUES) - set(WHERE))), max_size=4)


@BOUNDED
@given(
    asked=SOME.flatmap(
        lambda names: st.fixed_dictionaries(
            {name: VALUES[name] for name in (*WHERE, *sorted(names))}
        )
    )
)
def test_any_options_are_answered_or_refused(asked: dict[str, Any]) -> None:
    assert set(VALUES) <= set(rows(Options))
    try:
        report = api.estimate(api.read_options(asked))
    except PlanError:
        return
    assert report["step"]["seconds"] > 0
    assert sum(report["step"]["components"].values()) == pytest.approx(report["step"]["seconds"])
    assert sum(report["memory"]["components"].values()) == pytest.approx(
        report["memory"]["peak_bytes"]
    )
    for name in (
        "tp",
        "pp",
        "vpp",
        "dp",
        "cp",
        "ep",
        "zero",
        "shard_group",
        "micro_batch",
        "recompute",
        "schedule",
    ):
        assert name not in asked or report["layout"][name] == asked[name]


@BOUNDED
@given(
    content=st.binary(max_size=300)
    | st.text(max_size=300).map(lambda t: t.encode("utf-8", "surrogatepass")),
    kind=st.sampled_from(FILES),
)
def test_any_bytes_are_refused_as_a_file(content: bytes, kind: str, tmp_path: Path) -> None:
    for suffix in (
        (".toml", ".json", ".yaml") if kind == "scenario" else (SUFFIX.get(kind, ".toml"),)
    ):
        file = tmp_path / f"random{suffix}"
        file.write_bytes(content)
        answer = ask(kind, file)
        if answer.status == 2:
            refused(answer)
        else:
            assert kind == "scenario"


JSON_VALUE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3)
    ),
    max_leaves=8,
)


MIXTRAL = json.loads(
    (Path(__file__).parent / "configs" / "mixtral-8x7b.json").read_text(encoding="utf-8")
)


@BOUNDED
@given(
    changed=st.dictionaries(st.sampled_from(sorted(MIXTRAL)), JSON_VALUE, min_size=1, max_size=3)
)
def test_a_config_json_with_any_values_is_answered_or_refused(
    changed: dict[str, Any], tmp_path: Path
) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps(MIXTRAL | changed))
    answer = estimate(
        model=file, stack="pytorch-fsdp", zero=3, shard_group=16, micro_batch=1, recompute="full"
    )
    if answer.status == 2:
        refused(answer)


@BOUNDED
@given(
    content=st.dictionaries(
        st.sampled_from(sorted(rows(Options))) | st.text(max_size=8), JSON_VALUE, max_size=4
    )
)
def test_a_scenario_with_any_values_is_answered_or_refused(
    content: dict[str, Any], tmp_path: Path
) -> None:
    file = tmp_path / "scenario.json"
    file.write_text(json.dumps({"model": "gpt2", "gpu": "a100"} | content))
    answer = dpplan("estimate", "--scenario", file)
    if answer.status == 2:
        refused(answer)


# -------------------------------------------------------------------------------------------------


def test_a_process_says_one_sentence(tmp_path: Path) -> None:
    """What the tests above see in this process also holds where an uncaught error would end the
    program."""
    deep = tmp_path / "deep.yaml"
    deep.write_bytes(HOSTILE_YAML["nested"])
    for words in (
        ["estimate", "--model", "gpt2", "--gpus", "8", "--gpu", "a100", "--tp", "5"],
        ["estimate", "--scenario", deep],
        ["validate", deep],
        ["estimate", "--model", "Größe", "--gpus", "8", "--gpu", "a100"],
    ):
        refused(dpplan_process(*words, PYTHONIOENCODING="ascii"))
