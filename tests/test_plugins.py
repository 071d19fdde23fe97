"""Plug-ins of other distributions: installed into a folder of their own, used by commands."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

import pytest
from command import ROOT, Answer, dpplan_process, refused

from planner import plugins

EXAMPLE = ROOT / "docs" / "examples" / "plugin"
FILE = "docs/examples/plugin/pretrain.yaml"
GPT2 = ("--model", "gpt2", "--gpu", "h100", "--gpus", "8", "--stack-defaults")


def install(site: Path, name: str, points: Mapping[str, Mapping[str, str]], **files: str) -> Path:
    """A distribution as an installer leaves it: metadata, and modules by name."""
    metadata = site / f"{name.replace('-', '_')}-0.1.0.dist-info"
    metadata.mkdir(parents=True)
    head = f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.1.0\n"
    (metadata / "METADATA").write_text(head, "utf-8")
    lines = [
        line
        for group, point in points.items()
        for line in (f"[{group}]", *(f"{key} = {value}" for key, value in point.items()))
    ]
    (metadata / "entry_points.txt").write_text("\n".join(lines), "utf-8")
    for module, text in files.items():
        (site / f"{module}.py").write_text(text, "utf-8")
    return site


def run(site: Path, *words: str, DPPLAN_PLUGINS: str = "on") -> Answer:
    path = os.pathsep.join((str(ROOT), str(site)))
    return dpplan_process(*words, PYTHONPATH=path, DPPLAN_PLUGINS=DPPLAN_PLUGINS)


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example, built by its own backend where that is installed, else as that leaves it."""
    site = tmp_path_factory.mktemp("site")
    if find_spec("hatchling"):
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
        words = [*pip, "--no-build-isolation", "--target", str(site), str(EXAMPLE)]
        subprocess.run(words, check=True, timeout=120)
        return site
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text("utf-8"))["project"]
    (site / "dpplan_acme").symlink_to(EXAMPLE / "dpplan_acme")
    return install(site, project["name"], project["entry-points"])


def test_the_format_of_the_example_is_read(example: Path) -> None:
    words = ("read", FILE, "--gpu", "h100", "--advice", "0", "--stack-defaults", "--json")
    document = run(example, *words).json()
    assert document["kinds"] == ["acme"]
    assert document["counts"]["not understood"] == 0
    assert document["options"]["global_batch"] == 512
    assert document["options"]["tokens"] == 3e12
    assert document["estimate"]["layout"]["zero"] == 3
    without = run(example, *words, DPPLAN_PLUGINS="off")
    assert "acme" not in without.stdout


def test_the_mechanism_of_the_example_acts(example: Path) -> None:
    words = "estimate --gpu h100 --advice 0 --stack-defaults --json --recipe"
    given = (*words.split(), FILE)
    off = run(example, *given).json()
    tenth, each = (
        run(example, *given, "--staged-checkpoint", every).json() for every in ("10", "1")
    )
    assert "staged_checkpoint" not in off["step"]["components"]
    seconds = [entry["step"]["components"]["staged_checkpoint"] for entry in (tenth, each)]
    assert seconds[1] == pytest.approx(10 * seconds[0])
    copied = 12 * off["model"]["parameters"] / 8
    items = [entry["memory"]["host_bytes"] for entry in (off, each)]
    assert items[1] - items[0] == pytest.approx(copied, rel=0.01)


def test_without_plugins_the_option_is_unknown(example: Path) -> None:
    words = ("estimate", *GPT2, "--staged-checkpoint", "10")
    refused(run(example, *words, DPPLAN_PLUGINS="off"), "--staged-checkpoint")


BROKEN = {group: {f"broken-{group}": "broken"} for group in ("verbs", "mechanisms", "schedules")}


def test_a_broken_plugin_is_one_sentence_and_the_rest_works(tmp_path: Path) -> None:
    points = {f"dpplan.{group}": value for group, value in BROKEN.items()}
    points["dpplan.formats"] = {"empty": "empty"}
    points["dpplan.models"] = {"nowhere": "nowhere.at.all"}
    install(tmp_path, "clumsy", points, broken="import nothing_of_that_name", empty="")
    answer = run(tmp_path, "search", *GPT2, "--stack", "megatron-core", "--top", "1")
    assert answer.status == 0
    assert answer.stdout.startswith("Layouts of GPT-2")
    text = answer.stderr.splitlines()
    for group in ("mechanisms", "schedules"):
        line = f"warning: left out a plug-in, dpplan.{group} 'broken-{group}' of clumsy: "
        assert sum(entry.startswith(line) for entry in text) == 1
    assert all("clumsy" in entry for entry in text)
    assert "Traceback" not in answer.stderr
    listed = run(tmp_path, "--help")
    assert listed.status == 0
    assert "estimate" in listed.stdout
    assert "dpplan.verbs 'broken-verbs' of clumsy" in listed.stderr
    read = run(tmp_path, "read", "tests/data/recipes/megatron.sh")
    assert read.status == 0
    assert "dpplan.formats 'empty' of clumsy: AttributeError: empty declares no FORMAT" in (
        read.stderr
    )


@pytest.mark.parametrize(
    ("group", "name"), [("mechanisms", "ema"), ("schedules", "1f1b"), ("verbs", "estimate")]
)
def test_a_name_that_is_taken_is_an_error_with_both(tmp_path: Path, group: str, name: str) -> None:
    install(tmp_path, "greedy", {f"dpplan.{group}": {name: "planner.mechanisms.ema"}})
    refused(run(tmp_path, "--version"), name, "dpplan", "greedy", "DPPLAN_PLUGINS=off")
    assert run(tmp_path, "--version", DPPLAN_PLUGINS="off").status == 0


OWN_MECHANISM = """
from dataclasses import dataclass
from typing import Annotated, ClassVar
from planner.specs.mechanism import Mechanism
from planner.specs.options.record import Record
from planner.specs.options.row import option
from planner.specs.options.training import TrainingOptions
from planner.specs.options.verbs import REQUESTS

@dataclass(frozen=True, kw_only=True)
class GreedyOptions(Record):
    GROUP: ClassVar = TrainingOptions.GROUP
    VERBS: ClassVar = REQUESTS

    {option}: Annotated[bool, option("Something else of this name", label="Else")] = False

class MECHANISM(Mechanism):
    NAME = OFF = SOURCE = "greedy"
    OPTIONS = GreedyOptions

    @classmethod
    def of(cls, options):
        return None
"""


@pytest.mark.parametrize(
    ("option", "module"),
    [
        ("ema", "planner.mechanisms.ema"),
        ("micro_batch", "planner.specs.options.layout"),
        ("explain", "planner.specs.options.own"),
    ],
)
def test_an_option_that_is_there_is_an_error_with_both(
    tmp_path: Path, option: str, module: str
) -> None:
    """The option belongs to another mechanism, to the request, or to a verb."""
    text = OWN_MECHANISM.replace("{option}", option)
    install(tmp_path, "greedy", {"dpplan.mechanisms": {"greedy": "greedy_code"}}, greedy_code=text)
    flag = f"--{option.replace('_', '-')}"
    sentence = (flag, f"{module} of dpplan", "greedy_code of greedy", "DPPLAN_PLUGINS=off")
    refused(run(tmp_path, "estimate", *GPT2), *sentence)
    answer = run(tmp_path, "estimate", *GPT2, "--advice", "0", DPPLAN_PLUGINS="off")
    assert answer.status == 0


def test_two_mechanisms_with_one_option_are_both_named(tmp_path: Path) -> None:
    for name in ("first", "second"):
        points = {"dpplan.mechanisms": {name: f"{name}_code"}}
        text = OWN_MECHANISM.replace("{option}", "everything")
        install(tmp_path, name, points, **{f"{name}_code": text})
    sentence = ("--everything", "first_code of first", "second_code of second")
    refused(run(tmp_path, "estimate", *GPT2), *sentence)


def test_two_distributions_with_one_name_are_both_named(tmp_path: Path) -> None:
    for name in ("first", "second"):
        install(tmp_path, name, {"dpplan.verbs": {"hello": "planner.cli.commands.schema"}})
    refused(run(tmp_path, "hello"), "hello", "first", "second")


VERB = '''
from planner.cli.finish import Answer
from planner.specs.options.own import Output

def command(out: Output) -> Answer:
    """Say hello."""
    print("hello")
    raise SystemExit(0)
'''


def test_verbs_models_stacks_and_schedules_come_from_outside(tmp_path: Path) -> None:
    points = {
        "dpplan.verbs": {"hello": "hello_verb"},
        "dpplan.models": {"own": "own_models"},
        "dpplan.stacks": {"own": "own_stacks"},
        "dpplan.schedules": {"1f1b-eager": "eager_schedule"},
    }
    schedule = (ROOT / "docs/examples/schedule.py").read_text("utf-8")
    install(tmp_path, "whole", points, hello_verb=VERB, eager_schedule=schedule)
    for package, file, name in (
        ("own_models", "docs/examples/model.toml", "my-model"),
        ("own_stacks", "docs/examples/eager.toml", "my-stack"),
    ):
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").write_text("", "utf-8")
        text = (ROOT / file).read_text("utf-8")
        named = re.sub(r"(?m)^(id|name) = .*", rf'\1 = "{name}"', text)
        (tmp_path / package / f"{name}.toml").write_text(named, "utf-8")
    assert run(tmp_path, "hello").stdout == "hello\n"
    words: tuple[str, ...] = (
        "--model",
        "my-model",
        "--stack",
        "my-stack",
        "--schedule",
        "1f1b-eager",
        "--pp",
        "4",
    )
    words += ("--stack-defaults", "--advice", "0")
    document = run(tmp_path, "estimate", *words, "--gpu", "h100", "--gpus", "32", "--json").json()
    assert document["layout"]["schedule"] == "1f1b-eager"
    assert document["stack"]["id"] == "my-stack"
    assert "my-model" in run(tmp_path, "list", "models").stdout


def test_shipped_plugins_are_files() -> None:
    assert "estimate" in plugins.names("verbs")
    assert {"rl", "learn", "validate", "read", "calibrate"} <= {*plugins.names("verbs")}
    assert [*plugins.names("schedules")] == sorted(plugins.names("schedules"))
    assert plugins.owner("mechanisms", "ema") == "dpplan"
    for name, part in plugins.PARTS.items():
        assert {plugins.part_of(verb) for verb in part.verbs} == {name}
