"""The Slurm script and the JobSet manifest that ship: checked by Slurm itself where it is
installed, and by JobSet's own schema.

tests/data/jobset-v1alpha2.json.gz is the schema of kubernetes-sigs/jobset@08dfbdfd (2026-08-18,
Apache-2.0), config/components/crd/bases/jobset.x-k8s.io_jobsets.yaml, version v1alpha2,
descriptions left out.
"""

from __future__ import annotations

import copy
import gzip
import json
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from command import ROOT

from planner.calibrate.command import under_torchrun

JOBS = ROOT / "planner" / "calibrate" / "jobs"
SCRIPT = JOBS / "calibrate.sbatch"

# what sbatch 22.05 must know to check a script without a cluster
SLURM_CONF = """
ClusterName=test
SlurmctldHost=localhost
AuthType=auth/none
CredType=cred/none
GresTypes=gpu
PartitionName=all Nodes=ALL Default=YES
"""


@cache
def schema() -> dict[str, Any]:
    """JobSet's schema, made strict: a key that it does not know is an error, as with kubectl's
    server-side validation."""
    packed = Path(__file__).parent / "data" / "jobset-v1alpha2.json.gz"
    return strict(json.loads(gzip.decompress(packed.read_bytes())), top=True)


def strict(node: Any, top: bool = False) -> Any:
    if isinstance(node, list):
        return [strict(x) for x in node]
    if not isinstance(node, dict):
        return node
    out = {key: strict(value) for key, value in node.items()}
    free = node.get("x-kubernetes-preserve-unknown-fields") or "additionalProperties" in node
    if node.get("type") == "object" and "properties" in node and not free:
        out["additionalProperties"] = False
    if node.get("x-kubernetes-int-or-string"):
        out.pop("pattern", None)
    if top:  # metadata is checked by the API server, not by the schema of the kind
        out["properties"]["metadata"] = {"type": "object", "required": ["name"]}
    return out


def manifest() -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load((JOBS / "jobset.yaml").read_text(encoding="utf-8"))
    return document


def errors(document: dict[str, Any]) -> list[str]:
    jsonschema = pytest.importorskip("jsonschema")
    return [
        error.message for error in jsonschema.Draft202012Validator(schema()).iter_errors(document)
    ]


def test_the_manifest_is_a_jobset() -> None:
    assert errors(manifest()) == []


@pytest.mark.parametrize(
    ("path", "key"),
    [
        (("spec",), "failurePolici"),
        (("spec", "replicatedJobs", 0), "replica"),
        (("spec", "replicatedJobs", 0, "template", "spec"), "parallel"),
        (
            ("spec", "replicatedJobs", 0, "template", "spec", "template", "spec", "containers", 0),
            "volumeMount",
        ),
    ],
)
def test_the_schema_sees_a_wrong_key(path: tuple[Any, ...], key: str) -> None:
    document = copy.deepcopy(manifest())
    at: Any = document
    for part in path:
        at = at[part]
    at[key] = 1
    assert any(key in message for message in errors(document))


def arguments(words: list[str]) -> list[str]:
    """Arguments that a torchrun command passes to planner.calibrate."""
    return words[words.index("planner.calibrate") + 1 :]


def test_both_give_options_that_the_module_knows(tmp_path: Path) -> None:
    container = manifest()["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"][
        "containers"
    ][0]
    words = [word.replace("/results", str(tmp_path)) for word in arguments(container["command"])]
    settings = under_torchrun(words)
    assert not isinstance(settings, int)
    assert settings.out == str(tmp_path / "node.toml")
    assert int(container["resources"]["limits"]["nvidia.com/gpu"]) == int(
        next(w for w in container["command"] if w.startswith("--nproc-per-node")).partition("=")[2]
    )
    assert '--module planner.calibrate --out "$out" "$@"' in SCRIPT.read_text(encoding="utf-8")


def test_the_rendezvous_of_the_manifest_is_its_first_pod() -> None:
    """JobSet names pods NAME-JOB-REPLICA-INDEX under a service named as the set."""
    document = manifest()
    name, job = document["metadata"]["name"], document["spec"]["replicatedJobs"][0]["name"]
    command = " ".join(
        document["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["containers"][
            0
        ]["command"]
    )
    assert f"--rdzv-endpoint={name}-{job}-0-0.{name}:" in command


def test_bash_parses_the_script() -> None:
    done = subprocess.run(["bash", "-n", str(SCRIPT)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    options = re.findall(r"^#SBATCH --([a-z-]+)", SCRIPT.read_text(encoding="utf-8"), re.MULTILINE)
    assert set(options) == {
        "job-name",
        "nodes",
        "ntasks-per-node",
        "gpus-per-node",
        "exclusive",
        "time",
        "output",
    }


@pytest.mark.parametrize(
    ("old", "new", "fine"),
    [
        ("", "", True),
        ("--gpus-per-node=8", "--gpu-per-node=8", False),
        ("--time=00:30:00", "--time=soon", False),
    ],
)
def test_slurm_takes_the_script(old: str, new: str, fine: bool, tmp_path: Path) -> None:
    """sbatch reads every option before it looks for its controller, which is not there."""
    sbatch = shutil.which("sbatch")
    if sbatch is None:
        pytest.skip("sbatch is not installed (apt-get install slurm-client)")
    (tmp_path / "slurm.conf").write_text(SLURM_CONF, encoding="utf-8")
    script = tmp_path / "calibrate.sbatch"
    script.write_text(SCRIPT.read_text(encoding="utf-8").replace(old, new), encoding="utf-8")
    try:
        done = subprocess.run(
            [sbatch, "--test-only", str(script), "node.toml"],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            env={"SLURM_CONF": str(tmp_path / "slurm.conf"), "PATH": "/usr/bin:/bin"},
        )
    except subprocess.TimeoutExpired:
        text = "Unable to contact"  # options were taken; it goes on looking for a controller
    else:
        text = done.stderr
    assert ("Unable to contact" in text or "allocation failure" in text) == fine, text
