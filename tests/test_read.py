"""Files of other programs as requests: every argument is accounted for, and nothing is run."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from command import dpplan, refused
from fastapi.testclient import TestClient
from not_none import not_none
from recipes import RECIPES, stated

from planner.formats import recipe as formats
from planner.formats.plan import planned, texts
from planner.formats.shell import script
from planner.formats.verbs.read import answer
from planner.formats.verbs.read import read as read_files
from planner.formats.views.read import view
from planner.specs.base import PlanError
from planner.specs.document import to_json
from planner.studies.validate.predict import validate_rows
from planner.studies.validate.rows import read_tables


def read(*names: str) -> formats.Recipe:
    return formats.read({name: (RECIPES / name).read_text() for name in names})


def test_a_script_of_megatron_is_read() -> None:
    recipe = read("megatron.sh")
    assert "megatron" in recipe.kinds
    expected = {
        "model": "qwen3-30b-a3b",
        "stack": "megatron-core",
        "tp": 2,
        "pp": 2,
        "vpp": 4,
        "cp": 1,
        "ep": 8,
        "zero": 1,
        "sequence_parallel": True,
        "schedule": "interleaved",
        "micro_batch": 1,
        "global_batch": 512,
        "seq_len": 4096,
        "precision": "fp8-blockwise",
        "recompute": "core_attn+moe_act",
        "dispatcher": "deepep",
        "expert_kernels": "grouped",
        "expandable_segments": True,
        "tokens": 1000 * 512 * 4096,
    }
    assert {name: recipe.options[name] for name in expected} == expected


def test_every_argument_is_accounted_for() -> None:
    used = read("megatron.sh").arguments
    assert used["tensor-model-parallel-size"].use == "read"
    assert used["overlap-grad-reduce"].use == "read"
    assert used["context-parallel-size"].use == "implied"  # not in the file: the default
    assert used["lr"].use == used["eval-iters"].use == "irrelevant"
    assert used["frobnicate"].use == "not understood"
    assert {algorithm.use for algorithm in used.values()} <= {
        "read",
        "implied",
        "irrelevant",
        "not understood",
    }


def test_neither_secrets_nor_paths_are_repeated() -> None:
    text = repr(read("megatron.sh"))
    assert "lustre" not in text
    assert "someone" not in text
    assert "0123456789abcdef" not in text


SECRETS = {  # arguments that no format knows, by the option they resemble
    "hf_abcdefghijklmnopqrstuvwxyz": "micro",
    "sk-proj-abcdefgh12345678": "seed",
    "https://bob:hunter2@git.example.org": "project",
    "HF_TOKEN=swordfish": "name",
    "/home/alice/data": "model",
    "C:/Users/alice/data": "notes",
}
_TRAINER = "per_device_train_batch_size: {micro}\nmodel_name_or_path: {model}\nmax_length: 1\n"
_SPOILT = {
    "a.yaml": _TRAINER + "seed: {seed}\nunheard_of: {notes}\nhub_token: {name}\nx_{seed}: 1\n",
    "b.sh": "export {name}\ntorchrun pretrain_gpt.py --micro-batch-size {micro} --bf16"
    " --num-layers $(cat {model} {name}) --wandb-project {project} --odd {notes} --api-key hunter2",
    "c.yaml": "base_model: {model}\nmicro_batch_size: {micro}\noptimizer: {project}\nx: {seed}\n",
    "d.json": '{{"zero_optimization": {{"stage": "{micro}"}}, "{seed}": "{model}", "b": "{name}"}}',
    "e.toml": "[training]\nlocal_batch_size = '{micro}'\n[model]\nname = '{model}'\nx='{name}'\n",
    "f.yaml": _TRAINER + "seed: *{seed}\n",
    "g.json": '{{"zero_optimization": {{"{seed}": NaN}}}}',
    "i.yml": "base_emb_dim: {micro}\nbase_num_decoder_layers: 2\nbase_num_query_heads: {seed}",
    "h.sh": "torchrun pretrain_gpt.py --bf16 --micro-batch-size 1 --model-name {project} '{name}",
}


def test_no_answer_and_no_error_tells_a_secret_of_a_file() -> None:
    words = {where: text for text, where in SECRETS.items()}
    parts = ("abcdefgh", "hunter2", "swordfish", "alice")
    for name, text in _SPOILT.items():
        for gpu in ({}, {"gpu": "h100", "gpus": 8, "advice": 0}):
            try:
                document = answer(planned({name: text.format(**words)}, gpu))
                sentence = to_json(document) + repr(view(document, full=True))
            except PlanError as error:
                sentence = f"{error} {error.field} {error.value}"
            assert not [part for part in parts if part in sentence], (name, sentence)


def test_a_yaml_of_megatron_arguments() -> None:
    recipe = read("megatron.yaml").options
    assert recipe["pp"] == 4
    assert recipe["zero"] == 0
    assert recipe["recompute"] == "block:1"
    assert recipe["precision"] == "bf16"
    assert '"layers": 12' in recipe["model"]


def test_two_files_that_contradict_each_other_are_refused() -> None:
    text, two = "A=1; train.py --micro-batch-size 1 --bf16", "train.py --micro-batch-size 2"
    with pytest.raises(PlanError, match=r"b\.sh, line 1.*a\.sh, line 1"):
        formats.read({"a.sh": text, "b.sh": two})


WORDS = {  # of the command `run`, bars between them
    "A=(1 '2 3')\nrun ${A[@]}": "1|2|3",
    "A=(1 '2 3')\nrun \"${A[@]}\"": "1|2 3",
    "A=${B:-4}; A=$((A * (2 + 1) % 7)); run $A": "5",
    "run a \\\n  b # c\n": "a|b",
    "if [ $X -gt 3 ]; then A=1; fi\nX=4\nif [[ $X -gt 3 && a == a ]]; then A=2; fi\nrun $A": "2",
    "f() {\n local A=7\n run --x=$A >log 2>&1\n}": "--x=7",
    "cat <<EOF\n'never closed\nEOF\nrun here": "here",
    'Z=3; bash -c "run $Z"': "3",
    "A='-1'; A+=' -2'; run $A": "-1|-2",
    "for N in 8 16; do run $N; done": "8",
    "case 7 in 6) A=1 ;; 7|8) A=2 ;; *) A=3 ;; esac; run $A": "2",
}


def test_words_of_a_shell_script() -> None:
    for text, words in WORDS.items():
        result = next(
            command for command in script(text).commands if command.words[0].text == "run"
        )
        assert [word.text for word in result.words[1:]] == words.split("|"), text


def test_what_only_running_a_script_tells_is_unknown() -> None:
    result = script("A=$(rm -rf x); B=`date`; run $A $B $C ${D:-$E}").commands[-1]
    assert [word.unknown for word in result.words[1:]] == [
        ("$(rm -rf x)",),
        ("`date`",),
        ("C",),
        ("E",),
    ]


def test_broken_and_hostile_scripts_end_in_one_sentence() -> None:
    with pytest.raises(PlanError, match=r"line 2, column 5"):
        formats.read({"a.sh": "x --bf16\nrun 'never closed --micro-batch-size 1"})
    doubling = "A=aaaaaaaaaa\n" + "A=$A$A$A$A\n" * 40
    with pytest.raises(PlanError, match="grows beyond"):
        formats.read({"a.sh": doubling + "run --micro-batch-size $A"})
    with pytest.raises(PlanError, match="unsupported file type"):
        formats.read({"a.txt": "hello"})


def test_read_answers_with_the_plan_and_its_estimate() -> None:
    words = ["read", RECIPES / "megatron.sh", "--gpu", "h100", "--gpus", 32, "--advice", 0]
    document = dpplan(*words, "--json").json()
    assert document["kind"] == "megatron"
    assert document["missing"] == []
    assert document["options"]["tp"] == document["estimate"]["layout"]["tp"] == 2
    assert document["arguments"]["lr"] == {"value": 3e-4, "use": "irrelevant", "note": ""}
    assert sum(document["counts"].values()) == len(document["arguments"])
    other = dpplan(*words, "--tp", 4, "--json").json()  # what is typed wins
    assert other["estimate"]["layout"]["tp"] == 4
    command = shlex.split(document["command"])[1:]
    assert dpplan(*command, "--json").json()["step"] == document["estimate"]["step"]


def test_without_a_gpu_the_arguments_are_read_all_the_same() -> None:
    document = dpplan("read", RECIPES / "megatron.yaml", "--json").json()
    assert document["missing"] == ["gpu", "gpus"]
    assert document["estimate"] is None
    text = dpplan("read", RECIPES / "megatron.yaml").stdout
    assert "the files do not say --gpu and --gpus; give them" in text


def test_a_recipe_goes_where_a_scenario_goes() -> None:
    typed = ("--gpu", "h100", "--gpus", 32, "--advice", 0, "--json")
    recipe = ("--recipe", RECIPES / "megatron.sh")
    estimate = dpplan("estimate", *recipe, *typed).json()
    assert estimate["layout"]["vpp"] == 4
    document = dpplan("compare", *recipe, "--gpu", "h100", "--vary", "gpus=32,64", "--json").json()
    assert len(document["points"]) == 2


def test_a_plan_that_its_own_arguments_contradict_is_an_answer() -> None:
    text = "train.py --num-layers 8 --hidden-size 512 --num-attention-heads 8 --seq-length 512" + (
        " --max-position-embeddings 512 --micro-batch-size 4 --global-batch-size 6 --bf16"
    )
    recipe = read_files({"a.sh": text}, {"gpu": "h100", "gpus": 8})
    assert recipe.estimate is None
    assert "batch" in not_none(recipe.refused)


def test_hybrid_shards_of_gathered_weights() -> None:
    """FSDP that keeps weights gathered shards in groups, too: torchtitan's replicas of 8 shards,
    never resharded, on 128 GPUs."""
    recipe = read_files(
        {"torchtitan.toml": (RECIPES / "torchtitan.toml").read_text()},
        {"gpu": "h100", "gpus": 128, "advice": 0},
    )
    assert recipe.estimate is not None, recipe.refused
    layout = recipe.estimate.layout
    assert (layout.zero, layout.shard_group, layout.dp, layout.pp) == (2, 8, 16, 2)
    whole = read_files(
        {"torchtitan.toml": (RECIPES / "torchtitan.toml").read_text()},
        {"gpu": "h100", "gpus": 128, "advice": 0, "shard_group": 16},
    ).estimate
    assert whole is not None
    states = [entry.memory.components["optimizer"] for entry in (recipe.estimate, whole)]
    assert states[0] == pytest.approx(2 * states[1])


def test_what_follows_and_is_refused_by_the_model_is_said() -> None:
    """TRL pads rows to the longest by default, for which sparse attention has no time model."""
    text = "model_name_or_path: deepseek-ai/DeepSeek-V3.2\nbf16: true\nmax_length: 4096\n"
    given = {"gpu": "h100", "gpus": 64, "seq_len": 4096}
    *_, note = planned({"train.yaml": text}, {**given, "length_mean": 500}).recipe.notes
    assert note.startswith("left out: --packing: 'longest'")
    of_no_lengths = planned({"train.yaml": text}, given).recipe.notes
    assert not [note for note in of_no_lengths if note.startswith("left out")]


def test_a_recipe_becomes_a_row_without_a_result(tmp_path: Path) -> None:
    """Validation lists it, and scores it once its result is filled in."""
    table = tmp_path / "runs.csv"
    recipe = (RECIPES / "megatron.yaml", "--gpu", "a100", "--gpus", "8", "--advice", "0")
    for _ in range(2):
        answer = dpplan("read", *recipe, "--append", table)
        assert answer.status in (0, 3), answer.stderr
    first, second = read_tables([table])
    assert first == second
    assert (first["outcome"], first["step_s"], first["source"]) == ("planned", "", "dpplan read")
    done = {**second, "step_s": "10"}
    document = validate_rows([first, done, {**first, "outcome": "oom"}])
    assert [row.outcome for row in document.rows] == ["ok", "oom"]
    assert document.summary.ran.n == 1
    assert document.skipped[0].reason.startswith("no result yet")
    refused(dpplan("read", RECIPES / "megatron.yaml", "--append", table), "--append")


def test_the_same_over_http(client: TestClient) -> None:
    text = (RECIPES / "megatron.yaml").read_text()
    values = {"files": {"model_config.yaml": text}, "gpu": "a100", "gpus": 8, "advice": 0}
    document = client.post("/api/read", json=values).json()
    assert document["kind"] == "megatron"
    assert document["estimate"]["layout"]["pp"] == 4
    assert client.post("/api/read", json={"gpu": "a100"}).status_code == 422
    wrong = client.post("/api/read", json={"files": {"a.yaml": "MODEL_ARGS: [1"}})
    assert "line 1" in wrong.text


# recipe -> some of the options that it says
SAID = stated("megatron")


def test_recipes_around_megatron() -> None:
    for name, expected in SAID.items():
        plan = planned(texts((str(RECIPES / name),)), {})
        options = plan.recipe.options
        assert {entry: options.get(entry) for entry in expected} == expected, name
        assert "/shared" not in repr(plan.recipe.arguments), name


def test_a_recipe_of_python_is_named_and_never_run() -> None:
    path = str(RECIPES / "bridge.py")
    with pytest.raises(PlanError, match="holds 2 recipes"):
        planned(texts((path,)), {})
    with pytest.raises(PlanError, match="no recipe of this name; it has small_pretrain"):
        texts((f"{path}:other",))
    recipe = formats.read(texts((f"{path}:llama3_70b_pretrain_config",)))
    assert recipe.options["model"] == "llama-3-70b"
    assert recipe.arguments["__import__"].use == "not understood"
    with pytest.raises(PlanError, match=r"line 1, column 5"):
        formats.read({"a.py": "cfg.(ConfigContainer)"})


def test_what_does_not_act_is_left_out_and_said() -> None:
    text = (RECIPES / "bridge.yaml").read_text() + "peft:\n  dim: 16\n"
    plan = planned({"a.yaml": text}, {"gpu": "h100", "gpus": 16})
    assert plan.options["lora"] == 16
    wide = text.replace("seq_length: 8192", "seq_length: 8192\n  cp_comm_type: p2p")
    plan = planned({"a.yaml": wide}, {"gpu": "h100", "gpus": 16})
    assert "cp_comm_type" not in plan.options
    assert plan.recipe.arguments["cp-comm-type"].use == "not understood"
    assert any(note.startswith("left out: --cp-comm-type") for note in plan.recipe.notes)
    again = text.replace(
        "seq_length: 8192", "seq_length: 8192\n  disable_parameter_transpose_cache: true"
    )
    plan = planned({"a.yaml": again}, {"gpu": "b200", "gpus": 16})
    assert "transpose_weights" not in plan.options
    assert any(note.startswith("left out: --transpose-weights") for note in plan.recipe.notes)


def test_a_format_reads_what_it_writes() -> None:
    """Both ways of every argument that is one to one."""
    for entry in formats.formats():
        for argument in entry.table:
            for word, ours in argument.words.items():
                if ours is not None:
                    assert argument.ours(argument.theirs(ours)) == ours, (entry.kind, word)


def test_hostile_files_are_read_or_refused_at_once() -> None:
    ten = ", ".join(["*a{0}"] * 10)
    lists = "a0: &a0 [x, x]\n" + "".join(
        f"a{i}: &a{i} [{ten.format(i - 1)}]\n" for i in range(1, 12)
    )
    merged = "m0: &m0 {a: 1}\n" + "".join(
        f"m{i}: &m{i} {{<<: [*m{i - 1}, *m{i - 1}], k{i}: 1}}\n" for i in range(1, 40)
    )
    refused = {
        "a.yaml": lists + "MODEL_ARGS: {--num-layers: *a11}\n",
        "b.sh": "x --micro-batch-size " + "$(" * 20_000,
        "c.py": "ConfigContainer\ncfg.a=" + "(" * 90_000,
    }
    for name, text in refused.items():
        with pytest.raises(PlanError):
            formats.read({name: text})
    assert formats.read({"a.yaml": merged + "MODEL_ARGS: {<<: *m39, --num-layers: 1}\n"})
    assert formats.read({"b.sh": "run --micro-batch-size $((" + "9*" * 30_000 + "9))"})


def test_broken_files_are_one_sentence_with_their_place() -> None:
    """For every syntax, the place where it breaks; for impossible names and widths, the value."""
    broken = {
        "a.yaml": ("base_model: x\nlist: [1, 2\nseed: {", "line 3, column"),
        "b.yaml": ("base_model: x\nseed: \x00", "line 2, column 7"),
        "c.yaml": ("base_model: x\n  seed: 1\n\tlr: 2", "line 2, column"),
        "d.json": ('{"zero_optimization": {"stage": 3,}}', "line 1, column"),
        "e.toml": ("[model]\nname = \n[training]\nlocal_batch_size = 1", "line 2, column"),
        "g.yml": (
            "base_emb_dim: wide\nbase_num_decoder_layers: 2\nbase_num_query_heads: 2",
            "hidden",
        ),
    }
    for name, (text, where) in broken.items():
        with pytest.raises(PlanError) as error:
            planned({name: text}, {})
        assert where in error.value.remedy, (name, error.value.remedy)
        assert "\n" not in str(error.value)
        assert len(error.value.remedy) < 300


def test_numbers_and_names_that_are_none_are_faults_of_the_file() -> None:
    trainer = "per_device_train_batch_size: {}\nmodel_name_or_path: {}\nmax_length: 128\n"
    recipe = formats.read({"a.yaml": trainer.format("1e999999", "gpt2")})
    assert recipe.arguments["per_device_train_batch_size"].use == "not understood"
    endless = "base_emb_dim: 8\nper_device_batch_size: 1.0e+308\nici_tensor_parallelism: 64\n"
    assert "micro_batch" not in formats.read({"a.yml": endless}).options
    named = planned({"a.yaml": trainer.format(1, "Qwen/Qwen3--1B")}, {"gpu": "h100", "gpus": 8})
    assert "not a name of the Hub" in named.refused
