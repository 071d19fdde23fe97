"""Exported files by the frameworks' own parsers: `pip install -e '.[export-tests]'`; skipped where
they are missing."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from test_export import exported

from planner.specs.documents.export import Export

DENSE: dict[str, Any] = {
    **{"model": "llama-3.1-8b", "gpu": "h100", "gpus": 64, "global_batch": 256, "seq_len": 4096},
    **{"tp": 4, "pp": 2, "cp": 2, "recompute": "full", "micro_batch": 1},
}
EXPERTS: dict[str, Any] = {
    **{"model": "qwen3-30b-a3b", "gpu": "h100", "gpus": 64, "global_batch": 256, "seq_len": 4096},
    **{"tp": 2, "pp": 1, "cp": 1, "ep": 8, "etp": 1, "recompute": "full", "micro_batch": 1},
}


def text_of(found: Export, name: str) -> str:
    return next(one.text for one in found.files if one.name == name)


@pytest.mark.parametrize("given", [DENSE, EXPERTS], ids=["dense", "experts"])
def test_torchtitan_takes_its_toml(
    given: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = pytest.importorskip("torchtitan.config", reason="needs the extra export-tests")
    from torchtitan.distributed import ParallelDims

    found = exported(given, to="torchtitan")
    file = tmp_path / "train.toml"
    file.write_text(text_of(found, "train.toml"))
    job = config.ConfigManager().parse_args([f"--job.config_file={file}"])
    p = job.parallelism
    dims = ParallelDims(
        dp_replicate=p.data_parallel_replicate_degree,
        dp_shard=p.data_parallel_shard_degree,
        cp=p.context_parallel_degree,
        tp=p.tensor_parallel_degree,
        pp=p.pipeline_parallel_degree,
        ep=p.expert_parallel_degree,
        etp=p.expert_tensor_parallel_degree,
        world_size=given["gpus"],
    )
    assert dims.tp == given["tp"]
    assert job.training.seq_len == given["seq_len"]
    assert (job.model.name, job.activation_checkpoint.mode) != ("", "none")
    file.write_text(file.read_text().replace("tensor_parallel_degree", "tensor_parallel_degre"))
    with pytest.raises(ValueError):  # it would refuse a name that it does not know
        config.ConfigManager().parse_args([f"--job.config_file={file}"])


# of TransformerConfig by the flags of Megatron-LM that its arguments are named after
_RENAMED = {
    "seq_length": None,
    "num_experts": "num_moe_experts",
    "multi_latent_attention": None,
    "squared_relu": None,
    "moe_flex_dispatcher_backend": "moe_flex_dispatcher_backend",
}


@pytest.mark.parametrize("given", [DENSE, EXPERTS], ids=["dense", "experts"])
def test_megatron_core_takes_the_arguments(given: dict[str, Any]) -> None:
    core = pytest.importorskip("megatron.core.transformer", reason="needs the extra export-tests")
    from dataclasses import fields

    from planner.formats.megatron import FORMAT

    text = text_of(exported(given, to="megatron"), "run.sh")
    arguments = {name.replace("-", "_"): one.value for name, one in FORMAT.parse(text).items()}
    known = {one.name for one in fields(core.TransformerConfig)}
    said = {_RENAMED.get(name, name): value for name, value in arguments.items()}
    config = core.TransformerConfig(
        **{name: value for name, value in said.items() if name in known and name != "fp8_recipe"},
        pipeline_dtype="bf16",
    )
    assert config.tensor_model_parallel_size == given["tp"]
    assert config.num_layers in (32, 48)
    assert {"recompute_granularity", "num_query_groups", "bf16"} <= set(said) & known


def test_omegaconf_takes_overrides_of_verl() -> None:
    conf = pytest.importorskip("omegaconf", reason="needs the extra export-tests").OmegaConf
    found = exported({**DENSE, "tp": 1, "pp": 1, "cp": 1}, to="verl")
    text = text_of(found, "run.sh")
    lines = [line.strip() for line in text.splitlines() if line.startswith("  ") and "=" in line]
    whole = ("-", "engine=", "optim=")  # these choose a group of Hydra, whose keys follow
    held = conf.from_dotlist([line for line in lines if not line.startswith(whole)])
    assert held.engine.strategy == "fsdp2"
    assert held.data.train_batch_size == 256


SMALL: dict[str, Any] = {
    **{"model": "qwen2.5-7b", "gpu": "h100", "gpus": 16, "global_batch": 64, "seq_len": 4096},
    **{"recompute": "full", "micro_batch": 1},
}


def test_deepspeed_takes_its_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = pytest.importorskip("deepspeed.runtime.config", reason="needs the extra export-tests")
    found = exported({**SMALL, "zero": 3, "offload": "optimizer"}, to="deepspeed")
    # it asks torch.distributed how many ranks there are, and checks the batch against them
    monkeypatch.setattr(config.dist, "get_rank", lambda *_: 0)
    monkeypatch.setattr(config.dist, "get_world_size", lambda *_: SMALL["gpus"])
    read = config.DeepSpeedConfig(json.loads(text_of(found, "ds_config.json")))
    assert read.zero_optimization_stage == 3
    assert read.train_batch_size == SMALL["global_batch"]
    assert read.zero_config.offload_optimizer.device == "cpu"


def test_accelerate_takes_its_yaml(tmp_path: Path) -> None:
    args = pytest.importorskip(
        "accelerate.commands.config.config_args", reason="needs the extra export-tests"
    )
    file = tmp_path / "accelerate.yaml"
    file.write_text(text_of(exported({**SMALL, "zero": 3}, to="accelerate"), "accelerate.yaml"))
    read = args.load_config_from_file(str(file))
    assert (read.num_processes, read.num_machines) == (16, 2)
    assert read.fsdp_config["fsdp_reshard_after_forward"] is True


def test_the_jobset_is_of_its_schema() -> None:
    """JOBSET_CRD names jobset.x-k8s.io_jobsets.yaml of kubernetes-sigs/jobset, which is 0.8 MB."""
    file = os.environ.get("JOBSET_CRD")
    if not file:
        pytest.skip("JOBSET_CRD does not name the schema of JobSets")
    jsonschema = pytest.importorskip("jsonschema")
    versions = yaml.safe_load(Path(file).read_text())["spec"]["versions"]
    schema = next(one for one in versions if one["name"] == "v1alpha2")["schema"]
    whole = strict(schema["openAPIV3Schema"])
    whole["properties"]["metadata"] = {"type": "object"}
    document = yaml.safe_load(text_of(exported(DENSE, to="megatron"), "jobset.yaml"))
    checker = jsonschema.Draft202012Validator(whole)
    assert [one.message for one in checker.iter_errors(document)] == []
    document["spec"]["replicatedJobs"][0]["template"]["spec"]["paralelism"] = 1
    assert list(checker.iter_errors(document))


def strict(schema: Any) -> Any:
    """A schema of Kubernetes that refuses keys it does not name."""
    if isinstance(schema, list):
        return [strict(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    out = {name: strict(one) for name, one in schema.items()}
    if out.get("type") == "object" and "properties" in out:
        out.setdefault("additionalProperties", False)
    if out.get("x-kubernetes-int-or-string"):
        out.pop("type", None)
    return out


def test_sbatch_takes_the_script(tmp_path: Path) -> None:
    if shutil.which("sbatch") is None:
        pytest.skip("sbatch is not installed")
    file = tmp_path / "job.sbatch"
    file.write_text(text_of(exported(DENSE, to="megatron"), "job.sbatch"))
    said = subprocess.run(
        ["sbatch", "--test-only", str(file)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "invalid" not in said.stderr.lower()
    assert "unrecognized" not in said.stderr.lower()
