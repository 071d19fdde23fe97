"""Exported files by the schedulers that start them: the JobSet of Kubernetes and Slurm's sbatch;
skipped where these are missing."""

from __future__ import annotations

import getpass
import os
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from test_export import exported
from test_export_parsers import DENSE, text_of


def test_the_jobset_is_of_its_schema() -> None:
    """JOBSET_CRD names jobset.x-k8s.io_jobsets.yaml of kubernetes-sigs/jobset, which is 0.8 MB."""
    file = os.environ.get("JOBSET_CRD")
    if not file:
        pytest.skip("JOBSET_CRD does not name the schema of JobSets")
    jsonschema = pytest.importorskip("jsonschema")
    versions = yaml.safe_load(Path(file).read_text())["spec"]["versions"]
    schema = next(version for version in versions if version["name"] == "v1alpha2")["schema"]
    whole = strict(schema["openAPIV3Schema"])
    whole["properties"]["metadata"] = {"type": "object"}
    document = yaml.safe_load(text_of(exported(DENSE, to="megatron"), "jobset.yaml"))
    checker = jsonschema.Draft202012Validator(whole)
    assert [iter_error.message for iter_error in checker.iter_errors(document)] == []
    document["spec"]["replicatedJobs"][0]["template"]["spec"]["paralelism"] = 1
    assert list(checker.iter_errors(document))


def strict(schema: Any) -> Any:
    """A schema of Kubernetes that refuses keys it does not name."""
    if isinstance(schema, list):
        return [strict(entry) for entry in schema]
    if not isinstance(schema, dict):
        return schema
    out = {name: strict(value) for name, value in schema.items()}
    if out.get("type") == "object" and "properties" in out:
        out.setdefault("additionalProperties", False)
    if out.get("x-kubernetes-int-or-string"):
        out.pop("type", None)
    return out


# a cluster of 64 nodes with 8 GPUs each that a controller promises, without any that runs
SLURM = """ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser={user}
AuthType=auth/none
CredType=cred/none
SlurmctldPidFile={folder}/pid
StateSaveLocation={folder}
SelectType=select/cons_tres
ProctrackType=proctrack/pgid
GresTypes=gpu
SuspendProgram=/bin/true
ResumeProgram=/bin/true
SuspendTime=60
NodeName=n[1-64] CPUs=8 Gres=gpu:8 State=CLOUD
PartitionName=all Nodes=ALL Default=YES State=UP
"""


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    if shutil.which("sbatch") is None or shutil.which("slurmctld") is None:
        pytest.skip("sbatch and slurmctld are not installed (Debian: slurm-client, slurmctld)")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    host = socket.gethostname().partition(".")[0]
    file = tmp_path / "slurm.conf"
    file.write_text(SLURM.format(host=host, port=port, user=getpass.getuser(), folder=tmp_path))
    monkeypatch.setenv("SLURM_CONF", str(file))
    with (tmp_path / "log").open("w") as log:
        controller = subprocess.Popen(["slurmctld", "-D", "-c"], stdout=log, stderr=log)
    try:
        for _ in range(100):
            answer = subprocess.run(["scontrol", "ping"], capture_output=True, check=False)
            if b"UP" in answer.stdout:
                break
            time.sleep(0.1)
        else:
            pytest.skip(f"slurmctld does not start: {(tmp_path / 'log').read_text()[-300:]}")
        yield
    finally:
        controller.kill()
        controller.wait()


@pytest.mark.usefixtures("cluster")
def test_sbatch_takes_the_script(tmp_path: Path) -> None:
    def sbatch_errors(text: str) -> str:
        file = tmp_path / "job.sbatch"
        file.write_text(text)
        words = ["sbatch", "--test-only", str(file)]
        return subprocess.run(words, capture_output=True, text=True, check=False).stderr

    text = text_of(exported(DENSE, to="megatron"), "job.sbatch")
    assert re.search(r"to start at \S+ using \d+ processors on nodes n\[1-8\]", sbatch_errors(text))
    assert "not available" in sbatch_errors(text.replace("gpus-per-node=8", "gpus-per-node=9"))
    assert "unrecognized option" in sbatch_errors(text.replace("--nodes=", "--node-count="))
