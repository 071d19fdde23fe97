"""Files of trainers around transformers and of torchtune as requests, and plans as their files."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from recipes import RECIPES, stated

from planner.formats import (
    accelerate,
    axolotl,
    deepspeed,
    hf_trainer,
    launch,
    llama_factory,
    ms_swift,
    trl,
)
from planner.formats import recipe as formats
from planner.formats.plan import planned
from planner.formats.target import PlanToWrite
from planner.formats.verbs.read import read as read_files
from planner.inputs import catalog
from planner.specs.base import PlanError
from planner.specs.hardware import GpuSpec
from planner.specs.model import ModelSpec


def read(*names: str) -> formats.Recipe:
    return formats.read({name: (RECIPES / name).read_text() for name in names})


def of(options: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: options.get(name) for name in names}


# what each file says, or several together
SAYS = stated("trainers")


# of arguments of adapters
ADAPTED = stated("adapted")


TASKS = stated("tasks")


def test_fine_tuning_whose_files_name_no_number_of_gpus_is_on_one() -> None:
    text = "swift sft --model Qwen/Qwen2.5-7B-Instruct --tuner_type lora --max_length 2048"
    plan = planned({"a.sh": text}, {"gpu": "rtx4090"})
    assert not plan.missing
    assert plan.options["gpus"] == 1
    assert "packing" not in plan.options  # which acts only beside lengths
    assert planned({"a.sh": text}, {"gpu": "rtx4090", "gpus": 2}).options["gpus"] == 2
    whole = text.replace("lora", "full")
    assert planned({"a.sh": whole}, {"gpu": "rtx4090"}).missing == ("gpus",)


def test_objectives_of_preferences() -> None:
    for text, says in TASKS.items():
        recipe = formats.read({"a.yaml": text})
        assert of(dict(recipe.options), *says) == says, text


def test_what_is_trained() -> None:
    for text, says in ADAPTED.items():
        recipe = formats.read({"a.yaml": text})
        assert of(dict(recipe.options), *says) == says, text


def test_what_files_say() -> None:
    for names, says in SAYS.items():
        assert of(dict(read(*names.split()).options), *says) == says, names


def test_every_argument_is_accounted_for() -> None:
    used = read("trl.yaml", "accelerate.yaml").arguments
    assert used["frobnicate"].use == "not understood"
    assert used["learning_rate"].use == used["fsdp_config.fsdp_state_dict_type"].use == "irrelevant"
    assert used["packing"].use == "implied"
    assert used["max_length"].use == used["distributed_type"].use == "read"
    used = read("axolotl.yaml").arguments
    assert "its name says zero 3" in used["deepspeed"].note
    assert not [name for name, algorithm in used.items() if algorithm.use == "not understood"]


def test_neither_secrets_nor_paths_are_repeated() -> None:
    text = repr([read(name).arguments for name in ("trl.yaml", "torchtune.yaml", "axolotl.yaml")])
    for hidden in ("someone", "hf_0123", "/tmp", "deepspeed_configs"):
        assert hidden not in text


def test_two_files_that_contradict_each_other_are_refused() -> None:
    text = "distributed_type: MULTI_GPU\nmixed_precision: fp16\nnum_processes: 8\n"
    two = "per_device_train_batch_size: 1\nbf16: true\n"
    with pytest.raises(PlanError, match=r"fp16.*mixed_precision|bf16.*mixed_precision"):
        formats.read({"a.yaml": text, "b.yaml": two})


BROKEN = stated("broken")


def test_values_that_mean_nothing_are_not_understood() -> None:
    for text, name in BROKEN.items():
        kind = "a.json" if text.startswith("{") else "a.yaml"
        used = formats.read({kind: text}).arguments[name]
        assert used.use == "not understood", (name, used)


TRAINERS = {
    "hf-trainer": hf_trainer,
    "trl": trl,
    "axolotl": axolotl,
    "llama-factory": llama_factory,
    "ms-swift": ms_swift,
}
STACKS = ("hf-trainer", "hf-fsdp", "hf-deepspeed")
_trained = st.fixed_dictionaries(
    {
        "model": st.sampled_from(["llama-3.1-8b", "qwen3-8b"]),
        "stack": st.sampled_from(STACKS),
        "micro_batch": st.integers(1, 64),
        "grad_accum": st.integers(1, 64),
        "seq_len": st.sampled_from([512, 4096, 131072]),
        "optimizer": st.sampled_from(["adam", "adam8bit", "paged-adam8bit", "adafactor", "lion"]),
        "attention": st.sampled_from(["flash2", "flash3", "eager"]),
        "recompute": st.sampled_from(["none", "full"]),
        "compile": st.booleans(),
        "gpus": st.sampled_from([8, 16, 64]),
    }
)


def _sharded(drawn: dict[str, Any], stage: int, offload: str) -> dict[str, Any]:
    """A plan with a stage and offloading that its stack has."""
    stack = drawn["stack"]
    stage = 0 if stack == "hf-trainer" else max(2, stage) if stack == "hf-fsdp" else stage
    away = {
        "hf-trainer": None,
        "hf-fsdp": "params" if offload == "params" else None,
        "hf-deepspeed": offload if stage == 3 or offload == "optimizer" else None,
    }[stack]
    out = drawn | {"zero": stage, "precision": "bf16", "gpus_per_node": 8}
    return out | ({"offload": away} if away else {})


_adapters = st.fixed_dictionaries(
    {"lora": st.integers(1, 256), "lora_targets": st.sampled_from(["all-linear", "q_proj+mlp"])},
    optional={
        "lora_method": st.sampled_from(["dora", "rslora"]),
        "lora_dropout": st.sampled_from([0.05, 0.1]),
        "train_embeddings": st.just(True),
    },
)


@settings(max_examples=30, deadline=None)
@given(_trained, _adapters)
def test_adapters_that_are_written_read_the_same(drawn: dict, adapters: dict) -> None:
    plan = drawn | adapters | {"zero": 0, "stack": "hf-trainer", "precision": "bf16"}
    for kind in ("trl", "axolotl", "llama-factory", "ms-swift"):
        name = "a.sh" if kind == "ms-swift" else "a.yaml"
        recipe = formats.read({name: TRAINERS[kind].write(plan)})
        same = set(adapters) | {"micro_batch", "grad_accum", "seq_len"}
        assert of(dict(recipe.options), *same) == of(plan, *same), kind


def test_llama_factory_leaves_norms_in_fp32_and_sends_checkpoints_to_the_host() -> None:
    plan = {"model": "llama-3.1-8b", "stack": "hf-trainer", "lora": 16, "precision": "bf16"}
    plan |= {"base_precision": "nf4-double", "base_upcast": "norms", "offload": "activations"}
    recipe = formats.read({"a.yaml": llama_factory.write(plan | {"micro_batch": 1})})
    same = ("base_precision", "base_upcast", "offload", "recompute")
    assert of(dict(recipe.options), *same) == of(plan | {"recompute": "full"}, *same)
    whole = formats.read({"a.yaml": llama_factory.write({**plan, "base_precision": None})})
    assert "base_upcast" not in whole.options  # what follows casts back


@settings(max_examples=60, deadline=None)
@given(
    _trained,
    st.integers(0, 3),
    st.sampled_from(["optimizer", "params", "optimizer-nvme", "params-nvme"]),
)
def test_a_plan_that_is_written_reads_the_same(drawn: dict, stage: int, offload: str) -> None:
    """Arguments, accelerate's YAML and DeepSpeed's JSON say together what was written."""
    plan = _sharded(drawn, stage, offload)
    for kind in ("hf-trainer", "trl", "axolotl"):
        files = {"train.yaml": TRAINERS[kind].write(plan), "launch.yaml": accelerate.write(plan)}
        if plan["stack"] == "hf-deepspeed":
            files["ds_config.json"] = deepspeed.write(plan)
        recipe = formats.read(files)
        assert kind in recipe.kinds
        same = [name for name in plan if name != "gpus_per_node" or plan["gpus"] > 8]
        assert of(dict(recipe.options), *same) == of(plan, *same), (kind, files)
        assert not [
            n for n, argument in recipe.arguments.items() if argument.use == "not understood"
        ], kind


WRITTEN = {"hf-trainer", "trl", "ms-swift", "torchtune"}


def test_files_to_start_a_plan_say_it() -> None:
    """Files of every trainer on each of its stacks, with run.sh where that states the GPUs."""
    gpu = catalog.load("gpus", GpuSpec, "h100")
    model = catalog.load("models", ModelSpec, "llama-3.1-8b")
    targets = {target.kind: target for target in formats.targets()}
    assert set(targets) >= WRITTEN
    usual = {"gpus": 16, "seq_len": 8192, "precision": "bf16", "optimizer": "adam"}
    usual |= {"micro_batch": 2, "recompute": "full"}
    for kind in sorted(WRITTEN):
        target = targets[kind]
        for stack in target.stacks:
            stages = {"hf-trainer": [0], "torchtune": [3]}.get(stack, [2, 3])
            for zero in stages[1:] if (kind, stack) == ("ms-swift", "hf-fsdp") else stages:
                plan = {**usual, "model": "llama-3.1-8b", "stack": stack, "zero": zero}
                request = PlanToWrite(plan | {"global_batch": 128}, model, 2, 8)
                write = dict(target.write(request, ("PREDICTED",)))
                files = write | launch.scripts(target, request, gpu, (), "dpplan preflight")
                without = (*launch.LAUNCHERS, *([launch.RUN] if target.per_node else []))
                texts = {name: text for name, text in files.items() if name not in without}
                options = dict(formats.read(texts).options)
                named = catalog.load("models", ModelSpec, options["model"])
                assert named.name == model.name, kind
                same = [entry for entry in plan if entry not in ("model", "stack")]
                assert of(options, *same) == of(plan, *same), (kind, stack, zero)
                accumulated = options["grad_accum"] * options["micro_batch"] * options["gpus"]
                assert accumulated == 128, (kind, stack)
                assert options["stack"] in (stack, "deepspeed"), (kind, stack)


# recipe and what is put in it -> how documents become rows
ROWS = {
    ("trl.yaml", "packing: false"): "longest",
    ("trl.yaml", "packing: true"): "packed",
    ("trl.yaml", "packing: true\npacking_strategy: wrapped"): None,
    ("trl.yaml", "group_by_length: true"): "bucketed",
    ("axolotl.yaml", "sample_packing: true\npad_to_sequence_len: true"): "packed",
    ("axolotl.yaml", "sample_packing: false\npad_to_sequence_len: true"): "padded",
    ("llama_factory.yaml", "packing: true\nneat_packing: true"): "packed",
    ("llama_factory.yaml", "packing: true"): None,
    ("llama_factory.yaml", ""): "longest",
}


def test_how_documents_become_rows() -> None:
    ours = re.compile(r"^(packing|sample_packing|pad_to_sequence_len|group_by_length):.*\n", re.M)
    for (name, more), way in ROWS.items():
        text = ours.sub("", (RECIPES / name).read_text()) + f"\n{more}\n"
        assert formats.read({name: text}).options.get("packing") == way, (name, more)
    text = ours.sub("", (RECIPES / "trl.yaml").read_text())
    seconds = {}
    for way in ("packing: false", "group_by_length: true", "packing: true"):
        given = {"gpu": "h100", "gpus": 8, "advice": 0, "length_mean": 500}
        recipe = read_files({"a.yaml": f"{text}\n{way}\n"}, given)
        assert recipe.estimate is not None
        seconds[way] = recipe.estimate.step.seconds
        without = read_files(
            {"a.yaml": f"{text}\n{way}\n"}, {"gpu": "h100", "gpus": 8, "advice": 0}
        )
        assert "packing" not in without.options  # every sequence is full: it does nothing
    assert seconds["group_by_length: true"] < seconds["packing: false"] < seconds["packing: true"]


def test_adapters_without_a_dtype_keep_their_base_in_fp32() -> None:
    """dtype of TRL's ModelConfig is float32: 7.6e9 weights are 28.4 GiB, not 14.2."""
    text = (
        "model_name_or_path: Qwen/Qwen2.5-7B-Instruct\nuse_peft: true\nlora_r: 16\n"
        "per_device_train_batch_size: 1\nmax_length: 1024\ndataset_name: x\nbf16: true\n"
    )
    given = {"gpu": "a100-80gb", "gpus": 1, "advice": 0}
    wide = read_files({"a.yaml": text}, given)
    narrow = read_files({"a.yaml": f"{text}dtype: bfloat16\n"}, given)
    assert (wide.options["base_precision"], narrow.options.get("base_precision")) == ("fp32", None)
    assert wide.estimate is not None
    assert narrow.estimate is not None
    weights = [e.estimate.memory.components["parameters"] for e in (wide, narrow) if e.estimate]
    assert weights[0] == pytest.approx(28.4 * 2**30, rel=0.01)
    assert weights[1] == pytest.approx(14.2 * 2**30, rel=0.01)


def test_deepspeed_converts_what_is_loaded() -> None:
    text = "use_peft: true\nper_device_train_batch_size: 1\ndataset_name: x\nbf16: true\n"
    options = formats.read({"a.yaml": f"{text}deepspeed: zero3.json\n"}).options
    assert "base_precision" not in options
