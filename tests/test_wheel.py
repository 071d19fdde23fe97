"""The built wheel, installed in a clean environment, finds its data and answers as the checkout
does."""

from __future__ import annotations

import json
import os
import re
import runpy
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from importlib.util import find_spec
from pathlib import Path

import pytest
from command import ROOT, dpplan

from planner import __version__, api
from planner.plugins import PARTS
from planner.specs.document import plain
from planner.specs.names import KINDS

DOCKERFILE = ROOT / "docs" / "examples" / "team" / "Dockerfile"
COPIES = [
    entry.split() for entry in re.findall(r"^COPY (.+)$", DOCKERFILE.read_text(), re.MULTILINE)
]
_CACHES = shutil.ignore_patterns("__pycache__")
REQUEST = ["estimate", "--model", "llama-70b", "--gpus", "8", "--gpu", "a100", "--json"]


def run(*words: object, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a command elsewhere, without a way back to the checkout."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return subprocess.run(
        [str(w) for w in words],
        capture_output=True,
        text=True,
        cwd=folder,
        env=env,
        timeout=120,
        check=False,
    )


@pytest.fixture(scope="module")
def copied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that the Dockerfile of the team example installs from."""
    folder = tmp_path_factory.mktemp("copied")
    for *sources, target in COPIES:
        for source in sources:
            whole = ROOT / source
            if whole.is_dir():
                shutil.copytree(whole, folder / target, ignore=_CACHES)
            else:
                shutil.copy(whole, folder / target)
    return folder


def built(source: Path, out: Path) -> Path:
    """The wheel of a folder."""
    if find_spec("hatchling") and find_spec("build"):
        words = [
            *(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", out, source)
        ]
    else:
        words = [
            sys.executable,
            "-m",
            "pip",
            "wheel",
            "--quiet",
            "--no-deps",
            "--wheel-dir",
            out,
            source,
        ]
    done = run(*words, folder=out)
    assert done.returncode == 0, done.stderr
    (wheel,) = out.glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def wheel(copied: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built of what the Dockerfile copies: what it leaves out, no wheel needs."""
    return built(copied, tmp_path_factory.mktemp("wheel"))


def test_a_wheel_is_the_same_whenever_and_wherever_it_is_built(
    wheel: Path, copied: Path, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "elsewhere"
    shutil.copytree(copied, elsewhere, copy_function=shutil.copyfile, ignore=_CACHES)
    for path in elsewhere.rglob("*"):
        os.utime(path, (1e9, 1e9))
        path.chmod(path.stat().st_mode & ~0o077)
    assert built(elsewhere, tmp_path).read_bytes() == wheel.read_bytes()


def test_the_image_runs_as_nobody_and_holds_what_is_installed_alone() -> None:
    lines = DOCKERFILE.read_text().splitlines()
    words = [line.split() for line in lines if line and not line.startswith(("#", " "))]
    verbs = [word[0] for word in words]
    (user,) = (word[1] for word in words if word[0] == "USER")
    assert user in DOCKERFILE.read_text().partition("useradd ")[2].partition("\n")[0]
    assert verbs.index("RUN") < verbs.index("USER") < verbs.index("ENTRYPOINT")
    assert not {"ENV", "ARG", "ADD", "EXPOSE", "VOLUME"} & set(verbs)
    sources = {source for *several, _ in COPIES for source in several}
    ignored = (ROOT / ".dockerignore").read_text().split()
    assert ignored[0] == "*"
    assert {entry[1:] for entry in ignored if entry.startswith("!")} == sources
    built = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wheel = built["tool"]["hatch"]["build"]["targets"]["wheel"]
    project = built["project"]
    needed = {*wheel["packages"], *wheel["force-include"], project["readme"], "pyproject.toml"}
    assert needed | set(project["license-files"]) | {"constraints.txt"} == sources


def test_the_wheel_holds_all_that_is_needed_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    (page,) = (name for name in names if name.endswith(".data/data/share/man/man1/dpplan.1"))
    names.remove(page)
    assert {name.split("/")[0] for name in names} == {"planner", "web", "dpplan"}
    shipped = {
        path
        for path in (ROOT / "planner").rglob("*")
        if path.suffix in (".py", ".toml", ".csv", ".html", ".css") and path.is_file()
    }
    shipped |= set((ROOT / "hardware_profiles").rglob("*.toml"))
    expected = {
        str(path.relative_to(ROOT)).replace("hardware_profiles/", "planner/hardware_profiles/")
        for path in shipped
    }
    assert expected - names == set()
    web = [
        path
        for package in ("web", "dpplan")
        for path in (ROOT / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    ]
    assert {str(path.relative_to(ROOT)) for path in web} - names == set()
    assert "planner/data/residuals.csv" in names
    assert not [
        name for name in names if "test" in name or "__pycache__" in name or "benchmark" in name
    ]


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`dpplan` of a new environment that holds the wheel; what it depends on is borrowed from this
    environment."""
    folder = tmp_path_factory.mktemp("environment")
    answer = run(sys.executable, "-m", "venv", "--without-pip", folder, folder=folder)
    assert answer.returncode == 0, answer.stderr
    scripts = folder / ("Scripts" if os.name == "nt" else "bin")
    python = scripts / "python"
    install = [
        "install",
        "--quiet",
        "--no-deps",
        "--no-index",
        "--disable-pip-version-check",
        wheel,
    ]
    done = run(sys.executable, "-m", "pip", "--python", python, *install, folder=folder)
    assert done.returncode == 0, done.stderr
    site = next(folder.rglob("site-packages"))
    (site / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    return scripts / "dpplan"


def test_the_installed_command_answers_from_its_own_files(installed: Path, tmp_path: Path) -> None:
    where = run(
        installed.parent / "python",
        "-c",
        "import planner; print(planner.__file__)",
        folder=tmp_path,
    ).stdout
    assert Path(where.strip()).is_relative_to(installed.parent.parent)
    answer = run(installed, *REQUEST, folder=tmp_path)
    assert answer.stderr == ""
    ours = dpplan(*REQUEST)
    assert answer.returncode == ours.status
    assert json.loads(answer.stdout) == ours.json()


def test_the_installed_package_answers_in_python(installed: Path, tmp_path: Path) -> None:
    code = (
        "import dpplan; answer = dpplan.estimate(model='gpt2', gpu='a100');"
        " print(answer.fits, '<table>' in answer._repr_html_())"
    )
    answer = run(installed.parent / "python", "-c", code, folder=tmp_path)
    assert answer.stdout.split() == ["True", "True"], answer.stderr


def test_the_installed_catalogue_is_complete(installed: Path, tmp_path: Path) -> None:
    kinds = KINDS
    code = (
        "from planner import api; from planner.specs.document import to_json;"
        f" print(to_json({{k: api.list_catalog(k) for k in {kinds}}}))"
    )
    answer = run(installed.parent / "python", "-c", code, folder=tmp_path)
    assert answer.returncode == 0, answer.stderr
    assert json.loads(answer.stdout) == {kind: plain(api.list_catalog(kind)) for kind in kinds}


def test_wheels_of_the_core_and_its_parts_share_out_the_files(tmp_path: Path) -> None:
    wheels = runpy.run_path(str(ROOT / "packaging" / "wheels.py"))
    taken: list[str] = []
    for name in (wheels["CORE"], *PARTS):
        folder = tmp_path / name
        folder.mkdir()
        wheels["tree"](name, folder)
        project = tomllib.loads((folder / "pyproject.toml").read_text("utf-8"))["project"]
        assert project["name"] == f"dpplan-{name}"
        assert project["version"] == __version__
        taken += [
            path.relative_to(folder).as_posix()
            for path in folder.rglob("*")
            if path.is_file() and path.parent != folder
        ]
    assert len(taken) == len({*taken})
    whole = {
        path.relative_to(ROOT).as_posix()
        for room in ("planner", "web", "dpplan")
        for path in (ROOT / room).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    profiles = "planner/hardware_profiles/"
    assert {path for path in taken if not path.startswith(profiles)} == whole
