"""The documentation is current, complete and true: generated pages, options, report keys, links,
commands, examples."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer

from planner.cli.app import app
from planner.inputs import catalog
from planner.ledger import FORMULAS
from planner.specs.model import ModelSpec
from planner.specs.training import TrainingSpec
from planner.verbs.validate.rows import REQUIRED

ROOT = Path(__file__).resolve().parents[1]

_SPEC = importlib.util.spec_from_file_location("docs_build", ROOT / "docs" / "build.py")
assert _SPEC is not None
assert _SPEC.loader is not None
build = importlib.util.module_from_spec(_SPEC)
sys.modules["docs_build"] = build
_SPEC.loader.exec_module(build)

from pages import blocks, formulas  # noqa: E402
from pages.text import run  # noqa: E402

PAGES = [*build.PAGES, *build.hand_written()]


@cache
def text(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


# ------------------------------------------------------------------------------------------------ g


def test_a_block_without_its_end_loses_nothing() -> None:
    with pytest.raises(ValueError, match="'first' has no end"):
        blocks.fill(
            "<!-- begin: first -->\n\ntext\n\n<!-- begin: second -->\n\ntext\n\n<!-- end -->\n"
        )


@pytest.mark.parametrize("name", PAGES)
def test_page_is_current(name: str) -> None:
    assert text(name) == build.current(name), f"{name} is not current; run: python docs/build.py"


def test_check_names_the_page_that_is_not_current(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(build, "hand_written", list)
    monkeypatch.setattr(build, "PAGES", {"docs/formulas.md": lambda: "something else\n"})
    assert build.main(["--check"]) == 1
    assert "docs/formulas.md" in capsys.readouterr().err
    monkeypatch.setattr(build, "PAGES", {"docs/formulas.md": formulas.page})
    assert build.main(["--check"]) == 0


def test_every_formula_is_documented() -> None:
    formulas.modules()
    page = text("docs/formulas.md")
    for one in FORMULAS.values():
        if one.module.startswith("formulas."):
            assert f"### {one.name}\n" in page
            assert one.equation in page
            assert f"source: {one.source}" in page


def test_every_profile_is_in_the_catalogue() -> None:
    page = text("docs/catalogue.md")
    for kind in ("gpus", "networks", "clusters", "models", "stacks"):
        missing = [name for name in catalog.ids(kind) if f"| `{name}` |" not in page]
        assert not missing, f"{kind}: {missing}"


# ------------------------------------------------------------------------------------------------ o


def test_every_option_is_documented() -> None:
    page = text("docs/contract.md")
    for name, command in typer.main.get_command(app).commands.items():  # type: ignore[attr-defined]
        assert f"dpplan {name}" in page
        for parameter in command.params:
            for flag in (*parameter.opts, *parameter.secondary_opts):
                if flag.startswith("--"):
                    assert f"`{flag}`" in page, f"dpplan {name} {flag}"


READERS = (
    "ablation",
    "models",
    "plans",
    "predict",
    "rows",
)  # modules that read cells of a runs table


def test_every_column_of_a_runs_table_is_documented() -> None:
    source = "".join(
        path.read_text(encoding="utf-8")
        for path in ((ROOT / "planner/verbs/validate" / f"{name}.py") for name in READERS)
    )
    read = set(re.findall(r'row(?:\.get\(|\[)"(\w+)"', source)) | set(
        re.findall(r'\b(?:whole|number|measured)\(row, "(\w+)"', source)
    )
    page = text("docs/validation.md")
    missing = sorted(name for name in read | set(REQUIRED) if f"`{name}`" not in page)
    assert read
    assert not missing


# ------------------------------------------------------------------------------------------------ r

_TYPES: dict[str, tuple[type, ...]] = {
    "int": (int,),
    "number": (int, float),
    "text": (str,),
    "bool": (bool,),
    "list": (list,),
    "object": (dict,),
}

# keys whose inner keys are documented elsewhere, or are names of things
_SAME_AS = {
    "memory.per_stage[].components": "memory.components",
    "memory.per_stage[].phases[].components": "memory.components",
    "alternatives[].layout": "layout",
    "advice[].layout": "layout",
    "summary.memory": "summary.time",
    "groups[].best": "groups[].pick",
}
_OPEN = {
    "model.shape",
    "training",
    "step.hidden",
    "step.operators",
    "search.rejected",
    "rejected",
    "explain",
    "suites",
    "top[]",
    "pareto[]",
    "families[]",
    "rows[].components",
    "kinds",
    "coverage.suites",
    "coverage.evidence",
    "cross_validation.kinds",
    "cross_validation.rows[].predicted_step_s",
    "advice[].changes",
}


@cache
def documented() -> dict[str, dict[str, str]]:
    """Documented keys with their types, by document: report, search, validate, error."""
    page = re.sub(r"<!-- begin: .*?<!-- end -->", "", text("docs/contract.md"), flags=re.DOTALL)
    starts = {
        "report": "## Report of",
        "search": "`search --json`:",
        "schedule": "`schedule --json`;",
        "validate": "`validate --json`;",
        "error": "A wrong request (exit",
    }
    at = {name: page.index(start) for name, start in starts.items()}
    ends = {
        "report": at["search"],
        "search": at["schedule"],
        "schedule": at["validate"],
        "validate": page.index("`calibrate --json`"),
        "error": page.index("`/api/compare`:"),
    }
    return {
        name: dict(
            re.findall(r"^\| `([^`]+)` \| ([a-z ]+) \|", page[at[name] : ends[name]], re.MULTILINE)
        )
        for name in starts
    }


def leaves(value: Any, path: str = "") -> list[tuple[str, Any]]:
    """Paths and values of a document, list items as [] and known names kept whole."""
    if path in _OPEN or path in _SAME_AS or not isinstance(value, dict | list):
        return [(path, value)]
    if isinstance(value, list):
        return [leaf for item in value for leaf in leaves(item, f"{path}[]")]
    return [
        leaf
        for key, item in value.items()
        for leaf in leaves(item, f"{path}.{key}" if path else key)
    ]


def check(document: Any, kind: str) -> set[str]:
    """Every key of the document is documented with the type it has; returns the keys seen."""
    seen = set()
    for path, value in leaves(document):
        declared = documented()[kind].get(path)
        if declared is None and path in ("explain",):
            continue
        assert declared is not None, f"docs/contract.md does not document `{path}` of the {kind}"
        seen.add(path)
        kinds = [
            t
            for word in declared.split(" or ")
            if word not in ("null", "any")
            for t in _TYPES[word]
        ]
        if declared == "any" or (value is None and "null" in declared):
            continue
        assert isinstance(value, tuple(kinds)), f"`{path}` is {value!r}, documented as {declared}"
        assert isinstance(value, bool) <= (bool in kinds), (
            f"`{path}` is {value!r}, documented as {declared}"
        )
    return seen


def answer(command: str) -> Any:
    _, out, _ = run(command + " --json")
    return json.loads(out)


REPORTS = (
    "dpplan estimate --model mixtral-8x7b --gpu h100 --gpus 64 --seq-len 8192 --ep 8 --tokens 1T",
    (
        "dpplan estimate --model llama-3.1-8b --gpu h100 --gpus 16 --seq-len 65536 --tp 2 --cp 2"
        " --pp 1"
    ),
    (
        "dpplan estimate --model llama-2-7b --gpu a100 --gpus 8 --zero 1 --recompute full"
        " --micro-batch 1 --require fits --require 'step > 1 s'"
    ),
    "dpplan estimate --model llama-2-7b --gpu rtx4090 --gpus 2 --seq-len 2048",
    "dpplan estimate --model gpt2 --gpu a100 --gpus 2 --offload params --zero 3",
    "dpplan estimate --model gpt2 --gpu h200 --gpus 8 --offload params-nvme",
    "dpplan estimate --model gpt2 --gpu a100 --gpus 2 --offload activations --stack megatron-core",
    "dpplan estimate --model gpt2 --gpu a100 --gpus 2 --jitter 0.5%",
    (
        "dpplan estimate --model gpt2 --gpu a100 --gpus 16 --jitter 0.5% --slow-hosts 1%"
        " --other-gpu h100 --other-share 50% --length-mean 300 --data-storage nfs --workers 2"
        " --worker-rate 1"
    ),
)


def test_every_report_key_is_documented_and_every_documented_key_exists() -> None:
    seen: set[str] = set()
    shapes, trainings = text("docs/extending.md"), text("docs/contract.md")
    for command in REPORTS:
        report = answer(command)
        seen |= check(report, "report")
        for entry in (*report["alternatives"], *report["advice"]):
            for name in entry["layout"]:
                assert f"layout.{name}" in documented()["report"]
        for stage in report["memory"]["per_stage"]:
            for name in (
                *stage["components"],
                *(n for phase in stage["phases"] for n in phase["components"]),
            ):
                assert f"memory.components.{name}" in documented()["report"]
        assert {f"step.components.{name}" for name in report["step"]["hidden"]} <= set(
            documented()["report"]
        )
        assert set(report["model"]["shape"]) <= set(ModelSpec.model_fields)
        assert set(report["training"]) <= set(TrainingSpec.model_fields)
        for name in report["model"]["shape"]:
            assert f"| `{name}` |" in shapes
        for name in report["training"]:
            assert f"| `{name}` |" in trainings
    promised = {
        path for path in documented()["report"] if not path.startswith(("explain", "offload"))
    }
    assert promised - seen == set(), "documented, but in no report"


def test_explain_keys_are_documented() -> None:
    report = answer("dpplan estimate --model gpt2 --gpu a100 --gpus 1 --micro-batch 8 --explain")
    leaving = answer(
        "dpplan estimate --model gpt2 --gpu a100 --gpus 2 --explain --stack megatron-core"
    )["offload"]
    assert check({"offload": leaving}, "report") == {
        path for path in documented()["report"] if path.startswith("offload.")
    }
    known = {
        path.removeprefix("explain.").removesuffix("[]")
        for path in documented()["report"]
        if path.startswith("explain.")
    }
    page = text("docs/contract.md")
    todo, found = [report["explain"]], set()
    while todo:
        call = todo.pop()
        found |= set(call)
        todo += call.get("calls", [])
        for given in call.get("inputs", {}).values():
            assert all(f"`{name}`" in page for name in given)
    assert found == known


def test_search_keys_are_documented() -> None:
    found = answer("dpplan search --model llama-2-7b --gpu a100 --gpus 8 --top 1")
    seen = check(
        {k: v for k, v in found.items() if k not in ("top", "pareto", "families")}, "search"
    )
    per_token = found["top"][0].pop("per_token")
    assert all(f"`{name}`" in text("docs/contract.md") for name in per_token)
    check(found["top"][0], "report")
    for entry in (*found["pareto"], *found["families"]):
        check(
            {
                "alternatives": [
                    {name: value for name, value in entry.items() if name not in per_token}
                ]
            },
            "report",
        )
    apart = {
        "top[]",
        "top[].per_token",
        "pareto[]",
        "families[]",
        "advice[]",
    }  # the last only where nothing fits
    assert seen | apart == set(documented()["search"])


def test_schedule_keys_are_documented() -> None:
    seen: set[str] = set()
    for command in (
        "dpplan schedule --schedule 1f1b --pp 4 --microbatches 6 --activation-bytes 1GiB",
        "dpplan schedule --schedule interleaved --pp 2 --vpp 2 --microbatches 4 --p2p-s 0.1",
    ):
        found = answer(command)
        for row in found["comparison"]:
            for name in ("busy_s", "peak_live_microbatches", "peak_live_bytes"):
                row[name] = row[name] and []
        found["peak_live_bytes"] = found["peak_live_bytes"] and []
        seen |= {path for path, _ in leaves({k: v for k, v in found.items() if k != "comparison"})}
        seen |= {
            f"comparison[].{path}"
            for row in found["comparison"]
            for path, _ in leaves(row)
            if not path.endswith("[]")
        }
        check(
            {k: v for k, v in found.items() if k not in ("comparison", "peak_live_bytes")},
            "schedule",
        )
    seen |= {
        f"comparison[].{name}" for name in ("busy_s", "peak_live_microbatches", "peak_live_bytes")
    } | {"peak_live_bytes"}
    assert seen == set(documented()["schedule"])


def test_validate_keys_are_documented(tmp_path: Path) -> None:
    lines = text("docs/examples/runs.csv").splitlines()
    bad = lines[1].replace("a100-sxm4-80gb", "no-such-gpu")
    path = tmp_path / "runs.csv"
    path.write_text("\n".join([*lines, bad]) + "\n", encoding="utf-8")
    shipped = " ".join(
        f"planner/data/runs/{suite}.csv" for suite in ("deepspeed-a800-gist", "zero-bubble")
    )
    document = answer(f"dpplan validate {path} {shipped} --coverage --ablations --cross-validate")
    seen = check(document, "validate")
    assert {name for entry in document["rows"] for name in entry["components"]} <= {
        key.rpartition(".")[2]
        for key in documented()["report"]
        if key.startswith("step.components.")
    }
    for line in (
        *document["coverage"]["suites"].values(),
        *document["coverage"]["evidence"].values(),
    ):
        assert set(line) == set(document["coverage"]["all"])
    for errors in document["kinds"].values():
        assert set(errors) == {*document["summary"]["time"], "suites", "mape_of_suites"}
    for kind in document["cross_validation"]["kinds"].values():
        assert set(kind) == {"meaning", "all", "tier_a", "suites", "ranking"}
        assert set(kind["all"]) == set(kind["tier_a"]) == set(document["kinds"]["all"])
        assert all(
            set(errors) == set(document["summary"]["time"]) for errors in kind["suites"].values()
        )
        assert set(kind["ranking"]) == set(document["summary"]["ranking"])
    for row in document["cross_validation"]["rows"]:
        assert set(row["predicted_step_s"]) == set(document["cross_validation"]["kinds"])
    for group in document["groups"]:
        assert set(group["best"]) == set(group["pick"])
    for summary in document["suites"].values():
        check({"summary": summary}, "validate")
    assert set(document["summary"]["memory"]) == set(document["summary"]["time"])
    assert seen == set(documented()["validate"])


def test_error_keys_are_documented() -> None:
    assert check(answer("dpplan estimate --model no-such-model"), "error") == set(
        documented()["error"]
    )


@pytest.mark.parametrize("kind", ["gpus", "models", "networks", "stacks", "clusters", "schedules"])
def test_list_keys_are_documented(kind: str) -> None:
    row = next(
        line for line in text("docs/contract.md").splitlines() if line.startswith(f"| {kind} |")
    )
    assert {name for entry in answer(f"dpplan list {kind}") for name in entry} == set(
        re.findall(r"`(\w+)`", row)
    )


# ------------------------------------------------------------------------------------------------ l

_SHOWN = [
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    *sorted(f"docs/{p.name}" for p in (ROOT / "docs").glob("*.md")),
]


def _anchors(name: str) -> set[str]:
    heads = re.findall(r"^#+ (.+)$", text(name), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


@pytest.mark.parametrize("name", _SHOWN)
def test_relative_links_resolve(name: str) -> None:
    prose = re.sub(r"```.*?```", "", text(name), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", prose):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = (ROOT / name).parent / path if path else ROOT / name
        assert file.exists(), f"{name} links to {target}"
        if anchor:
            assert anchor in _anchors(file.resolve().relative_to(ROOT).as_posix()), (
                f"{name} links to {target}"
            )


# what takes minutes of a node, and files that come from it
_MEASURES = re.compile(r"^dpplan (calibrate|serve)\b|my-node\.toml|cluster\.toml")


def _commands() -> list[tuple[str, int | None]]:
    """Commands in code blocks, with the exit status that the page states for them."""
    found: dict[str, int | None] = {}
    for name in _SHOWN:
        for block in re.finditer(r"```sh\n(.*?)```", text(name), re.DOTALL):
            after = text(name)[block.end() : text(name).find("<!-- end -->", block.end())]
            stated = re.search(r"^Exit status (\d)\.$", after, re.MULTILINE)
            for line in block.group(1).splitlines():
                if line.startswith("dpplan ") and not _MEASURES.search(line):
                    one = "\n".join(block.group(1).splitlines()) == line and stated
                    found[line] = int(stated.group(1)) if one and stated else None
    return list(found.items())


def test_readme_shows_commands() -> None:
    assert sum(command in text("README.md") for command, _ in _commands()) >= 8


@pytest.mark.parametrize(("command", "stated"), _commands())
def test_commands_run(command: str, stated: int | None) -> None:
    status, out, err = run(command)
    assert status in ((0, 3) if stated is None else (stated,)), err
    assert out or status == 2


@pytest.mark.parametrize(
    "command", re.findall(r"^dpplan .*$", text("docs/extending.md"), re.MULTILINE)
)
def test_examples_of_extending_are_answered(command: str) -> None:
    """An example file is there to be copied: one that the program refuses is no example, whatever
    the page states."""
    status, _, err = run(command)
    assert status == 0, err


def test_readme_tree_is_true() -> None:
    block = re.search(r"```text\n(planner/ .*?)```", text("README.md"), re.DOTALL)
    assert block is not None
    above, shown = "", set()
    for line in block.group(1).splitlines():
        name = line.split()[0]
        above = name if not line.startswith(" ") else above
        path = name if name == above else above + name
        shown.add(path)
        assert (ROOT / path).is_dir(), path
    have = {
        f"planner/{p.parent.name}/"
        for p in (ROOT / "planner").glob("*/*.*")
        if p.suffix in (".py", ".toml")
    }
    assert have <= shown


@pytest.mark.parametrize("name", _SHOWN)
def test_pages_speak_of_the_project_alone(name: str) -> None:
    for word in ("/work/", "/tmp/", "/root/", "/home/"):
        assert word not in text(name)
