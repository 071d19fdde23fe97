"""Wheels of the core and of each part that may be left out (planner/plugins.py):

    python packaging/wheels.py --out dist            # dpplan-core, dpplan-formats, ...
    python packaging/wheels.py --out dist core rl    # some of them

Each has the files of its own alone, in one package `planner`: installed side by side they are what
`pip install .` installs as dpplan, which declares them all. Needs `build` and `hatchling`.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Any

import tomli_w

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from planner.plugins import PARTS  # noqa: E402

CORE = "core"
# requirements of a part alone, by the names of extras of the whole
_EXTRAS = {"calibrate": ("calibrate",), "agents": ("mcp",), "prices": ("prices",)}


def project(name: str) -> dict[str, Any]:
    """The pyproject of one distribution."""
    whole = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    own = {key: whole["project"][key] for key in ("version", "requires-python", "license")}
    extras = whole["project"]["optional-dependencies"]
    if name == CORE:
        about = whole["project"]["description"]
        own |= {key: whole["project"][key] for key in ("dependencies", "scripts")}
        own["optional-dependencies"] = {
            key: extras[key] for key in ("web", "hub", "dask", "pandas")
        }
    else:
        part = PARTS[name]
        about = f"Part of dpplan: {part.holds}."
        beside = [f"dpplan-{other}=={own['version']}" for other in (CORE, *part.needs)]
        more = [need for extra in _EXTRAS.get(name, ()) for need in extras[extra]]
        own["dependencies"] = [*beside, *more]
    return {
        "build-system": whole["build-system"],
        "project": {"name": f"dpplan-{name}", "description": about, **own},
        "tool": {"hatch": {"build": {"targets": {"wheel": _wheel(name, whole)}}}},
    }


def _wheel(name: str, whole: dict[str, Any]) -> dict[str, Any]:
    packages = {"packages": _packages(name)}
    if name != CORE:
        return packages
    target = whole["tool"]["hatch"]["build"]["targets"]["wheel"]
    return packages | {"shared-data": target["shared-data"]}


def _packages(name: str) -> list[str]:
    return ["planner", "web", "dpplan"] if name == CORE else ["planner"]


def tree(name: str, folder: Path) -> None:
    """The files of one distribution, with its pyproject."""
    no_caches = shutil.ignore_patterns("__pycache__")
    if name == CORE:
        for package in _packages(name):
            shutil.copytree(ROOT / package, folder / package, ignore=no_caches)
        shutil.copytree(ROOT / "hardware_profiles", folder / "planner" / "hardware_profiles")
        for part in PARTS:
            shutil.rmtree(folder / "planner" / part)
    else:
        shutil.copytree(ROOT / "planner" / name, folder / "planner" / name, ignore=no_caches)
    (folder / "pyproject.toml").write_text(tomli_w.dumps(project(name)), "utf-8")


def build(name: str, out: Path) -> None:
    """Write the wheel of one distribution into a folder."""
    with tempfile.TemporaryDirectory() as folder:
        tree(name, Path(folder))
        words = ["-m", "build", "--wheel", "--no-isolation", "--outdir", str(out.resolve()), folder]
        subprocess.run([sys.executable, *words], check=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", default=[CORE, *PARTS], help="core and parts")
    parser.add_argument("--out", type=Path, default=Path("dist"), help="folder of the wheels")
    asked = parser.parse_args()
    for each in asked.names:
        build(each, asked.out)
