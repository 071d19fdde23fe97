"""Exported files by the frameworks' own parsers: `pip install -e '.[export-tests]'`; skipped where
they are missing.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib.util
import json
import os
import re
import shlex
import sys
import typing
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar
from unittest.mock import MagicMock

import pytest
import yaml
from hypothesis import given, settings
from test_export import TARGETS, exported, files_of, plans, tuned

from planner.formats.documents.export import Export
from planner.formats.target import PlanToWrite

NEEDS = "needs the extra export-tests, and the framework itself"
Files = Mapping[str, str]
PLANS = int(os.environ.get("EXPORT_PLANS", "25"))  # drawn for each parser

DENSE: dict[str, Any] = {
    **{"model": "llama-3.1-8b", "gpu": "h100", "gpus": 64, "global_batch": 256, "seq_len": 4096},
    **{"tp": 4, "pp": 2, "cp": 2, "recompute": "full", "micro_batch": 1},
}
EXPERTS: dict[str, Any] = {
    **{"model": "qwen3-30b-a3b", "gpu": "h100", "gpus": 64, "global_batch": 256, "seq_len": 4096},
    **{"tp": 2, "pp": 1, "cp": 1, "ep": 8, "etp": 1, "recompute": "full", "micro_batch": 1},
}


def text_of(export: Export, name: str) -> str:
    return next(file.text for file in export.files if file.name == name)


@pytest.mark.parametrize("given", [DENSE, EXPERTS], ids=["dense", "experts"])
def test_torchtitan_takes_its_toml(
    given: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = pytest.importorskip("torchtitan.config", reason="needs the extra export-tests")
    from torchtitan.distributed import ParallelDims

    export = exported(given, to="torchtitan")
    file = tmp_path / "train.toml"
    file.write_text(text_of(export, "train.toml"))
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
    arguments = {name.replace("-", "_"): value.value for name, value in FORMAT.parse(text).items()}
    known = {field.name for field in fields(core.TransformerConfig)}
    values = {_RENAMED.get(name, name): value for name, value in arguments.items()}
    config = core.TransformerConfig(
        **{name: value for name, value in values.items() if name in known and name != "fp8_recipe"},
        pipeline_dtype="bf16",
    )
    assert config.tensor_model_parallel_size == given["tp"]
    assert config.num_layers in (32, 48)
    assert {"recompute_granularity", "num_query_groups", "bf16"} <= set(values) & known


# What each parser makes of the files of one plan; it raises where it refuses them. `needs` are
# modules, or the names of checkouts in the folder that EXPORT_CHECKOUTS names, of programs that no
# package holds.


def arguments_of(files: Files) -> list[str]:
    """Words of the arguments that a launch script holds."""
    match = re.search(r"^ARGS=\(\n(.*?)\n\)", files["run.sh"], re.DOTALL | re.MULTILINE)
    assert match is not None
    return shlex.split(match[1])


def checkout(name: str) -> str:
    folder = Path(os.environ.get("EXPORT_CHECKOUTS", "")) / name
    if "EXPORT_CHECKOUTS" not in os.environ or not folder.is_dir():
        pytest.skip(f"EXPORT_CHECKOUTS names no folder with a checkout of {name}")
    return str(folder)


def megatron_lm(patch: pytest.MonkeyPatch, _: Path) -> Callable[[Files, PlanToWrite], Any]:
    """Its arguments.py, which no wheel holds, with the core beside it."""
    patch.syspath_prepend(checkout("Megatron-LM"))
    for name in [name for name in sys.modules if name.partition(".")[0] == "megatron"]:
        patch.delitem(sys.modules, name)
    extensions = pytest.importorskip("typing_extensions", reason=NEEDS)
    patch.setattr(typing, "override", extensions.override, raising=False)  # of Python 3.12
    cuda = pytest.importorskip("torch", reason=NEEDS).cuda
    patch.setattr(cuda, "get_device_capability", lambda *_: (9, 0))
    properties = SimpleNamespace(major=9, minor=0, name="H100")
    patch.setattr(cuda, "get_device_properties", lambda *_: properties)
    patch.setenv("CUDA_DEVICE_MAX_CONNECTIONS", "1")
    parser = importlib.import_module("megatron.training.arguments")

    def parse(files: Files, request: PlanToWrite) -> Any:
        stages = request.get("pp", 1) * request.get("vpp", 1)
        # the verb gives uneven plans a layout of stages; nvfp4 asks for Transformer Engine
        if request.model.layers % stages or request.get("precision") == "nvfp4":
            return None
        patch.setenv("RANK", "0")
        patch.setenv("WORLD_SIZE", str(request.options["gpus"]))
        patch.setattr(sys, "argv", ["pretrain_gpt.py", *arguments_of(files)])
        result = parser.validate_args(parser.parse_args())
        assert result.data_parallel_size == request.replicas
        assert result.tensor_model_parallel_size == request.get("tp")
        return result

    return parse


def nanotron(patch: pytest.MonkeyPatch, folder: Path) -> Callable[[Files, PlanToWrite], Any]:
    """Its config classes; kernels that it imports beside them are not called."""

    class Kernels(MagicMock):
        __path__: ClassVar[list[str]] = []
        __version__ = "2.7.0"
        __spec__ = importlib.machinery.ModuleSpec("kernels", None)

    patch.syspath_prepend(f"{checkout('nanotron')}/src")
    for name in (
        *("flash_attn", "flash_attn.flash_attn_interface", "flash_attn.bert_padding"),
        *("flash_attn.layers", "flash_attn.layers.rotary", "flash_attn.modules"),
        *("flash_attn.modules.mha", "flash_attn.ops", "flash_attn.ops.triton"),
        *("flash_attn.ops.triton.layer_norm", "flash_attn.ops.triton.rotary", "functorch.dim"),
    ):
        patch.setitem(sys.modules, name, Kernels())
    pytest.importorskip("nanotron.logging", reason=NEEDS)  # in this order: they import each other
    config = importlib.import_module("nanotron.config")

    def parse(files: Files, request: PlanToWrite) -> Any:
        path = folder / "config.yaml"
        path.write_text(files["config.yaml"])
        result = config.get_config_from_file(str(path))
        assert result.parallelism.tp == request.get("tp")
        return result

    return parse


def verl(patch: pytest.MonkeyPatch, _: Path) -> Callable[[Files, PlanToWrite], Any]:
    """Hydra composes its configuration with the overrides, and refuses keys that it lacks."""
    hydra = pytest.importorskip("hydra", reason=NEEDS)
    conf = pytest.importorskip("omegaconf", reason=NEEDS).OmegaConf
    where = importlib.util.find_spec("verl")
    if where is None or where.origin is None:
        pytest.skip(NEEDS)
    configs = str(Path(where.origin).parent / "trainer" / "config")

    def parse(files: Files, request: PlanToWrite) -> Any:
        with hydra.initialize_config_dir(configs, version_base=None):
            config = hydra.compose("sft_trainer_engine", overrides=arguments_of(files))
        conf.resolve(config)
        assert config.data.train_batch_size == request.get("global_batch")
        return config

    return parse


# said in their place: what only the user knows, and that this machine has no GPU
HERE = {"output_dir": "out", "use_cpu": True, "bf16": False, "tf32": None, "fp16": False}


def trl(patch: pytest.MonkeyPatch, folder: Path) -> Callable[[Files, PlanToWrite], Any]:
    """Its dataclasses; `accelerate` and `deepspeed` of dpplan write the same file."""
    module = pytest.importorskip("trl", reason=NEEDS)
    objectives = {
        **{"dpo": module.DPOConfig, "ipo": module.DPOConfig, "kto": module.KTOConfig},
        **{"reward": module.RewardConfig, "sft": module.SFTConfig},
        "orpo": importlib.import_module("trl.experimental.orpo").ORPOConfig,
        "simpo": importlib.import_module("trl.experimental.cpo").CPOConfig,
        "distil": importlib.import_module("trl.experimental.gkd").GKDConfig,
    }
    patch.chdir(folder)

    def parse(files: Files, request: PlanToWrite) -> Any:
        write_all(files, folder)
        config = objectives[request.get("task", "sft")]
        parser = module.TrlParser((module.ScriptArguments, config, module.ModelConfig))
        document = yaml.safe_load(files["train.yaml"]) | HERE | {"dataset_name": "some/data"}
        (folder / "train.yaml").write_text(yaml.safe_dump(document))
        _, result, _ = parser.parse_args_and_config(["--config", "train.yaml"])
        pairs = 1 if issubclass(config, (module.SFTConfig, module.KTOConfig)) else 2
        assert result.per_device_train_batch_size == request.get("micro_batch") // pairs
        assert result.max_length == request.get("seq_len")
        return result

    return parse


def write_all(files: Files, folder: Path) -> None:
    for name, text in files.items():
        (folder / name).write_text(text)


def hf_trainer(patch: pytest.MonkeyPatch, folder: Path) -> Callable[[Files, PlanToWrite], Any]:
    """TrainingArguments, and of run_clm.py's own arguments the names."""
    pytest.importorskip("accelerate", reason=NEEDS)  # its TrainingArguments ask for it
    module = pytest.importorskip("transformers", reason=NEEDS)
    parser = module.HfArgumentParser(module.TrainingArguments)
    known = {field.name for field in dataclasses.fields(module.TrainingArguments)}
    ours = {"model_name_or_path", "block_size", "attn_implementation", "torch_dtype", "dtype"}
    patch.chdir(folder)

    def parse(files: Files, request: PlanToWrite) -> Any:
        write_all(files, folder)
        document = json.loads(files["train.json"]) | HERE
        assert set(document) <= known | ours
        return parser.parse_dict(document, allow_extra_keys=True)

    return parse


def axolotl(patch: pytest.MonkeyPatch, _: Path) -> Callable[[Files, PlanToWrite], Any]:
    schema = pytest.importorskip("axolotl.utils.schemas.config", reason=NEEDS)
    distils = pytest.importorskip("axolotl.integrations.kd.args", reason=NEEDS).KDArgs
    gpu = {"bf16": True, "fp8": True, "tf32": True, "compute_capability": "sm_90"}

    def parse(files: Files, request: PlanToWrite) -> Any:
        document = yaml.safe_load(files["train.yaml"])
        document |= {"datasets": [{"path": "some/data", "type": "alpaca"}], "learning_rate": 1e-5}
        machine = gpu | {"n_gpu": request.get("gpus"), "n_node": request.nodes}
        values = {name: document.pop(name) for name in distils.model_fields if name in document}
        assert distils(**values).kd_trainer == values.get("kd_trainer")  # of a plugin
        result = schema.AxolotlConfigWCapabilities(
            **document, capabilities=machine, env_capabilities={"torch_version": "2.13.0"}
        )
        assert not result.model_extra
        assert set(document) <= set(schema.AxolotlConfigWCapabilities.model_fields)
        return result

    return parse


def llama_factory(patch: pytest.MonkeyPatch, folder: Path) -> Callable[[Files, PlanToWrite], Any]:
    patch.setenv("DISABLE_VERSION_CHECK", "1")  # of packages that its arguments do not use
    parser = pytest.importorskip("llamafactory.hparams.parser", reason=NEEDS)
    patch.chdir(folder)

    def parse(files: Files, request: PlanToWrite) -> Any:
        if request.get("lora") and request.get("optimizer") in ("galore", "apollo"):
            return None  # it refuses the plan, not the file
        write_all(files, folder)
        document = yaml.safe_load(files["train.yaml"]) | HERE
        return parser._parse_train_args(
            document | {"dataset": "alpaca_en_demo", "template": "qwen"}
        )

    return parse


def ms_swift(patch: pytest.MonkeyPatch, _: Path) -> Callable[[Files, PlanToWrite], Any]:
    module = pytest.importorskip("swift.arguments", reason=NEEDS)
    hf = pytest.importorskip("transformers", reason=NEEDS)
    sft, rlhf = (
        hf.HfArgumentParser(entry) for entry in (module.SftArguments, module.RLHFArguments)
    )

    def parse(files: Files, request: PlanToWrite) -> Any:
        words = arguments_of(files)
        parser = rlhf if "swift.cli.rlhf" in files["run.sh"] else sft
        result, unknown = argparse.ArgumentParser.parse_known_args(parser, words)
        assert unknown == []
        return result

    return parse


_QWEN3 = "torchtune.models.qwen3"


def torchtune(patch: pytest.MonkeyPatch, folder: Path) -> Callable[[Files, PlanToWrite], Any]:
    """Its components are imported, and their parameters compared with their signatures."""
    config = pytest.importorskip("torchtune.config", reason=NEEDS)
    conf = pytest.importorskip("omegaconf", reason=NEEDS).OmegaConf

    def parse(files: Files, request: PlanToWrite) -> Any:
        document = conf.create(yaml.safe_load(files["train.yaml"]))
        document.optimizer.lr = 1e-5
        if ".qwen3." in document.model._component_ and importlib.util.find_spec(_QWEN3) is None:
            document.pop("model")  # of releases behind 0.6
        if document.optimizer._component_.startswith("bitsandbytes."):
            return document  # which is not imported without a GPU
        return config.validate(document)

    return parse


def maxtext(patch: pytest.MonkeyPatch, _: Path) -> Callable[[Files, PlanToWrite], Any]:
    """Names of base.yml, which are all that pyconfig.py takes."""
    known = yaml.safe_load((Path(checkout("maxtext")) / "src/maxtext/configs/base.yml").read_text())

    def parse(files: Files, request: PlanToWrite) -> Any:
        document = yaml.safe_load(files["config.yml"])
        assert set(document) - {"base_config"} <= set(known)

    return parse


PARSERS = {
    "megatron": megatron_lm,
    "nanotron": nanotron,
    "verl": verl,
    "trl": trl,
    "accelerate": trl,
    "deepspeed": trl,
    "hf-trainer": hf_trainer,
    "axolotl": axolotl,
    "llama-factory": llama_factory,
    "ms-swift": ms_swift,
    "torchtune": torchtune,
    "maxtext": maxtext,
}


@pytest.mark.parametrize("kind", PARSERS)
def test_its_own_parser_takes_any_plan(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parse = PARSERS[kind](monkeypatch, tmp_path)

    @settings(max_examples=PLANS, deadline=None, derandomize=True, database=None)
    @given(plans(kind))
    def holds(request: PlanToWrite) -> None:
        parse(files_of(TARGETS[kind], request), request)

    holds()
    for query in tuned(kind):
        parse(files_of(TARGETS[kind], query), query)


def test_omegaconf_takes_overrides_of_verl() -> None:
    conf = pytest.importorskip("omegaconf", reason="needs the extra export-tests").OmegaConf
    export = exported({**DENSE, "tp": 1, "pp": 1, "cp": 1}, to="verl")
    text = text_of(export, "run.sh")
    lines = [line.strip() for line in text.splitlines() if line.startswith("  ") and "=" in line]
    whole = ("-", "engine=", "optim=")  # these choose a group of Hydra, whose keys follow
    kept = conf.from_dotlist([line for line in lines if not line.startswith(whole)])
    assert kept.engine.strategy == "fsdp2"
    assert kept.data.train_batch_size == 256


SMALL: dict[str, Any] = {
    **{"model": "qwen2.5-7b", "gpu": "h100", "gpus": 16, "global_batch": 64, "seq_len": 4096},
    **{"recompute": "full", "micro_batch": 1},
}


def test_deepspeed_takes_its_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = pytest.importorskip("deepspeed.runtime.config", reason="needs the extra export-tests")
    export = exported({**SMALL, "zero": 3, "offload": "optimizer"}, to="deepspeed")
    # it asks torch.distributed how many ranks there are, and checks the batch against them
    monkeypatch.setattr(config.dist, "get_rank", lambda *_: 0)
    monkeypatch.setattr(config.dist, "get_world_size", lambda *_: SMALL["gpus"])
    read = config.DeepSpeedConfig(json.loads(text_of(export, "ds_config.json")))
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
