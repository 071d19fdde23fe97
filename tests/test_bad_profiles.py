"""Profiles and calibrations with wrong values: refused in one sentence that names them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from bad_requests import ask, file_refused
from command import refused

from planner.inputs import catalog

pytestmark = pytest.mark.usefixtures("within_seconds_and_nothing_written")


PROFILES = {
    "model": ("models", "llama-2-7b"),
    "gpu": ("gpus", "a100-sxm4-80gb"),
    "stack": ("stacks", "megatron-core"),
    "cluster": ("clusters", "dgx-a100"),
    "host": ("hosts", "epyc-7742"),
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
    "stack": ("network_frac", "fragmentation_frac"),
    "cluster": ("gpus_per_node", "nics_per_node", "nic_bandwidth"),
    "host": ("cores", "memory_bandwidth", "stream_frac", "core_bandwidth"),
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
    needed = {"model": "layers", "gpu": "architecture"}.get(kind, "title")
    shorter, count = re.subn(rf"^{needed} *=.*\n", "", text, count=1, flags=re.MULTILINE)
    assert count == 1
    file.write_text(shorter, encoding="utf-8")
    file_refused(kind, file, needed)


@pytest.mark.parametrize(
    ("content", "words"),
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
    content: str, words: list[str], tmp_path: Path
) -> None:
    file = tmp_path / "node.toml"
    file.write_text(content)
    refused(ask("calibration", file), *words)
