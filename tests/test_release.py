"""Releases: versions follow from the changelog, what a release is made of, and how it is run."""

from __future__ import annotations

import re
import runpy
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

import planner
from dpplan import manual
from planner.cli.group import COMMANDS
from planner.specs.options import Options, rows

ROOT = Path(__file__).parents[1]
TEAM = ROOT / "docs" / "examples" / "team"
release = runpy.run_path(str(ROOT / "packaging" / "release.py"))
ENTRY, BREAKING = "- A new option.\n", "- **Breaking:** an option is gone.\n"


def changelog(*parts: tuple[str, str]) -> str:
    return "# Changes\n\n" + "\n".join(f"## {head}\n\n{text}" for head, text in parts)


@pytest.mark.parametrize(
    ("last", "entries", "least"),
    [
        ("0.2.0", "", (0, 2, 0)),
        ("0.2.0", ENTRY, (0, 2, 1)),
        ("0.2.0", ENTRY + BREAKING, (0, 3, 0)),
        ("1.2.3", ENTRY, (1, 2, 4)),
        ("1.2.3", BREAKING, (2, 0, 0)),
    ],
)
def test_a_version_follows_from_its_entries(
    last: str, entries: str, least: tuple[int, int, int]
) -> None:
    assert release["next_version"](changelog(("Unreleased", entries), (last, ENTRY))) == least


@pytest.mark.parametrize(
    ("parts", "package", "tag", "says"),
    [
        ([("0.3.0", BREAKING), ("0.2.0", ENTRY)], "0.3.0", "v0.3.0", []),
        ([("0.2.1", BREAKING), ("0.2.0", ENTRY)], "0.2.1", "v0.2.1", ["0.3.0 or later"]),
        ([("0.2.1", ENTRY), ("0.2.0", ENTRY)], "0.2.1", "v0.3.0", ["not that of the package"]),
        ([("Unreleased", ENTRY), ("0.2.0", ENTRY)], "0.2.0", "v0.2.0", ["under Unreleased"]),
        ([("0.2.0", ENTRY)], "0.3.0", "v0.3.0", ["newest section"]),
    ],
)
def test_a_tag_is_a_release_of_what_the_changelog_says(
    parts: list[tuple[str, str]], package: str, tag: str, says: list[str]
) -> None:
    sentences = release["faults"](changelog(*parts), package, tag)
    assert len(sentences) == len(says)
    assert all(word in sentence for word, sentence in zip(says, sentences, strict=True))


def test_the_shipped_changelog_allows_the_version() -> None:
    text = (ROOT / "CHANGELOG.md").read_text("utf-8")
    released = [part for part in release["sections"](text) if part[0] != release["UNRELEASED"]]
    assert release["too_small"](released) == []
    least = release["next_version"](text)
    version = release["version_of"](planner.__version__)
    assert version == release["version_of"](released[0][0]) or version >= least
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert project["version"] == planner.__version__


def test_the_manual_is_that_of_the_commands_and_options() -> None:
    text = manual.FILE.read_text("utf-8")
    assert text == manual.text()
    assert all(f"\\fBdpplan {name}\\fR" in text for name in COMMANDS)
    assert all(manual.roff(row.flag) in text for row in rows(Options).values())
    assert not [line for line in text.splitlines() if re.match(r"\.(?!TH|SH|SS|TP|B|I\b)", line)]


@pytest.mark.skipif(shutil.which("groff") is None, reason="groff is not installed")
def test_the_manual_is_set_without_a_warning() -> None:
    words = ["groff", "-man", "-Tutf8", "-ww", str(manual.FILE)]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    assert "--global-batch" in re.sub("\x1b\\[[0-9;]*m|.\b", "", done.stdout)


def workflow() -> dict[str, Any]:
    text = (ROOT / ".github" / "workflows" / "release.yml").read_text("utf-8")
    return dict(yaml.safe_load(text))


def steps() -> list[dict[str, Any]]:
    return [step for job in workflow()["jobs"].values() for step in job["steps"]]


def test_a_release_pins_what_it_runs_and_gives_no_more_rights_than_needed() -> None:
    assert workflow()["permissions"] == {}
    actions = [step["uses"] for step in steps() if "uses" in step]
    assert all(re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", action) for action in actions)
    names = {action.partition("@")[0] for action in actions}
    assert {"actions/attest-build-provenance", "actions/attest-sbom"} <= names
    scripts = [step["run"] for step in steps() if "run" in step]
    assert not [script for script in scripts if "${{" in script]  # nothing becomes a part of one
    installs = [word for script in scripts for word in re.findall(r"install[^\n]*", script)]
    assert all("==" in install or "-c constraints.txt" in install for install in installs)


def test_a_release_is_checked_built_twice_and_compared() -> None:
    scripts = "\n".join(step.get("run", "") for step in steps())
    assert "release.py check" in scripts
    assert "SOURCE_DATE_EPOCH" in scripts
    assert scripts.count("build --no-isolation") == 2
    assert "sha256sum --check" in scripts
    assert "cyclonedx-py environment" in scripts


def test_the_manifest_for_kubernetes_runs_what_compose_runs() -> None:
    deployment, service, policy = yaml.safe_load_all((TEAM / "kubernetes.yaml").read_text("utf-8"))
    compose = yaml.safe_load((TEAM / "compose.yaml").read_text("utf-8"))["services"]["dpplan"]
    pod = deployment["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["args"][:-1] == compose["command"][:-1]
    (port,) = container["ports"]
    assert [str(port["containerPort"])] == compose["expose"]
    assert container["securityContext"]["readOnlyRootFilesystem"] == compose["read_only"]
    assert container["securityContext"]["capabilities"]["drop"] == compose["cap_drop"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert container["resources"]["limits"]["cpu"] == str(compose["cpus"])
    assert [mount["mountPath"] for mount in container["volumeMounts"]] == compose["tmpfs"]
    host = container["readinessProbe"]["httpGet"]["httpHeaders"][0]["value"]
    assert host == container["args"][-1]  # another name is refused, by the probe, too
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    for selector in (
        deployment["spec"]["selector"]["matchLabels"],
        service["spec"]["selector"],
        policy["spec"]["podSelector"]["matchLabels"],
    ):
        assert selector.items() <= labels.items()
    assert service["spec"]["ports"][0]["targetPort"] == port["name"]
    assert policy["spec"]["egress"] == []
