"""The documentation is current, complete and true: generated pages, options, report keys, links,
commands, examples."""

from __future__ import annotations

import re
import shlex
from functools import cache
from pathlib import Path

import pytest
import typer
from built import ROOT, again, build
from command import dpplan
from pages import blocks, commands, formulas, sheets
from pages.commands import EXAMPLE, LOG, QUESTIONS

import planner
from planner.cli.app import app
from planner.cli.group import COMMANDS
from planner.inputs import catalog
from planner.ledger import FORMULAS
from planner.specs import components
from planner.specs.documents.training import Training
from planner.specs.model import ModelSpec
from planner.studies.runs.table import COLUMNS
from planner.studies.validate.rows import REQUIRED

MOST_LINES = 300
MOST_PICTURE_BYTES = 150_000

SHOWN = commands.pages(ROOT)
COMMANDS_SHOWN = commands.shown(ROOT)
# they evaluate many requests: left to the build of the documentation, and to runs of all commands
MANY = ("dpplan batch", "dpplan recommend", "dpplan tune", "dpplan validate")
SLOW = [item for item in COMMANDS_SHOWN.items() if item[0].startswith(MANY)]


@cache
def text(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


@cache
def folder(name: str) -> str:
    """All pages of a folder."""
    return "\n".join(text(page) for page in SHOWN if page.startswith(f"{name}/"))


def test_a_block_without_its_end_loses_nothing() -> None:
    with pytest.raises(ValueError, match="'first' has no end"):
        blocks.fill(
            "<!-- begin: first -->\n\ntext\n\n<!-- begin: second -->\n\ntext\n\n<!-- end -->\n"
        )


def test_a_text_becomes_pages_whose_links_follow() -> None:
    long = (
        "# Long\n\nHead, see [two](#two), [deep](#below) and [other](other.md#x).\n\n## One\n\n"
        "As [above](#two).\n\n```sh\n## no heading\n```\n\n## Two\n\n### Below\n\n"
        "[one](long.md#one)\n\n## Three\n\nlast\n"
    )
    pages = sheets.sheets(long, "long", {"Two": "Rest", "Three": "Rest"})
    assert set(pages) == {"index.md", "one.md", "rest.md"}
    assert (
        "[two](rest.md#two), [deep](rest.md#below) and [other](../other.md#x)" in pages["index.md"]
    )
    assert "- [One](one.md)\n- [Rest](rest.md)\n" in pages["index.md"]
    assert "# One\n\nAs [above](rest.md#two).\n\n```sh\n## no heading\n```\n" in pages["one.md"]
    assert pages["rest.md"].count("\n## ") == 2
    assert "[one](one.md)" in pages["rest.md"]


GENERATED = [
    *(name for name in (*build.FOLDERS, *build.PAGES) if name != QUESTIONS),
    *(name for name in build.hand_written() if "<!-- begin" in text(name)),
]


# pages with blocks of such commands take as long
SLOW_PAGES = [
    name
    for name in build.hand_written()
    if re.search(r"^dpplan (batch|compare|tune) ", text(name), re.MULTILINE)
]


@pytest.mark.parametrize("name", again(GENERATED, [*build.studies(), *SLOW_PAGES]))
def test_generated_text_is_current(name: str) -> None:
    assert not build.stale([name]), "run: python docs/build.py"


def test_the_documentation_is_made_again_after_any_change_it_rests_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page, code = "docs/mechanisms/clock.md", "planner/estimate/step.py"
    names = (build.RESIDUALS, build.MEMORY, "docs/accuracy/bands.md", page, "README.md")
    monkeypatch.setattr(build, "ROOT", tmp_path)
    monkeypatch.setattr(build, "STAMP", tmp_path / "docs" / "built.sha256")

    def write(name: str, content: str) -> None:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content, encoding="utf-8")

    block = "<!-- begin: worth overlap -->\n\n%s\n\n<!-- end -->\n"
    before = {name: name for name in (*names, code, "hardware_profiles/gpus/rtx4090.toml")}
    before |= {page: f"text\n\n{block % 1}", "README.md": "```sh\ndpplan list models\n```\n"}
    for name, content in before.items():
        write(name, content)
    assert set(build.studies()) == {build.RESIDUALS, build.MEMORY, "docs/accuracy", page}
    assert not build.unchanged()
    write("docs/built.sha256", build.digest())
    write(page, f"other words\n\n{block % 1}")
    assert build.unchanged()
    changed = {name: f"{content}other" for name, content in before.items()}
    changed |= {page: f"text\n\n{block % 2}", "README.md": "```sh\ndpplan list gpus\n```\n"}
    changed["planner/estimate/new.py"] = ""
    for name, content in changed.items():
        write("docs/built.sha256", build.digest())
        assert build.unchanged()
        write(name, content)
        assert not build.unchanged(), name


def test_check_names_the_page_that_is_not_current_or_not_written_any_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(build, "ROOT", tmp_path)
    monkeypatch.setattr(build, "hand_written", list)
    monkeypatch.setattr(build, "FOLDERS", {"made": lambda: {"one.md": "something else\n"}})
    monkeypatch.setattr(build, "PAGES", {})
    (tmp_path / "made").mkdir()
    (tmp_path / "made" / "old.md").write_text("gone\n", encoding="utf-8")
    assert build.main(["--check"]) == 1
    err = capsys.readouterr().err
    assert "made/one.md" in err
    assert "made/old.md" in err
    assert build.main([]) == 0
    assert [path.name for path in (tmp_path / "made").iterdir()] == ["one.md"]
    assert build.main(["--check"]) == 0


def test_pages_are_short() -> None:
    long = {name: n for name in SHOWN if (n := len(text(name).splitlines())) > MOST_LINES}
    assert not long, f"split these by subject, {MOST_LINES} lines at most: {long}"


def test_every_formula_is_documented() -> None:
    formulas.modules()
    page = folder("docs/formulas")
    for formula in FORMULAS.values():
        if formula.module.startswith("formulas."):
            assert f"## {formula.name}\n" in page
            assert formula.equation in page
            assert f"source: {formula.source}" in page


def test_every_profile_is_in_the_catalogue() -> None:
    page = folder("docs/catalogue")
    for kind in ("gpus", "networks", "clusters", "hosts", "models", "stacks"):
        missing = [name for name in catalog.ids(kind) if f"| `{name}` |" not in page]
        assert not missing, f"{kind}: {missing}"


def test_every_option_is_documented() -> None:
    page = text("docs/reference/options.md")
    group = typer.main.get_command(app)
    for name in COMMANDS:
        command = group.get_command(None, name)  # type: ignore[attr-defined]
        assert f"dpplan {name}" in text("docs/contract.md")
        both = page + text(f"docs/reference/{name}.md")
        for parameter in command.params:
            for flag in (*parameter.opts, *parameter.secondary_opts):
                if flag.startswith("--"):
                    assert f"`{flag}`" in both, f"dpplan {name} {flag}"


READERS = ("planner/studies/runs", "planner/studies/validate")  # read cells of a runs table


def test_every_column_of_a_runs_table_is_documented() -> None:
    source = "".join(
        path.read_text(encoding="utf-8")
        for folder in READERS
        for path in sorted((ROOT / folder).glob("*.py"))
    )
    read = set(re.findall(r'row(?:\.get\(|\[)"(\w+)"', source)) | set(
        re.findall(r'\b(?:whole|number|measured)\(row, "(\w+)"', source)
    )
    page = text("docs/validation.md")
    table = {column.name for column in COLUMNS}
    missing = sorted(name for name in read | table | set(REQUIRED) if f"`{name}`" not in page)
    assert read
    assert not missing


def test_every_name_in_a_document_is_documented() -> None:
    page, memory = folder("docs/reference"), text("docs/mechanisms/memory.md")
    for name in (*components.STEP, *components.BOTTLENECKS, *components.WAITING):
        assert name in page
    for name in components.MEMORY:
        assert f"| `{name}` |" in memory
    for name in ModelSpec.model_fields:
        assert f"| `{name}` |" in text("docs/extending/model.md")
    for name in Training.model_fields:
        assert f"| `{name}` |" in text("docs/contract.md")


@cache
def _anchors(name: str) -> set[str]:
    heads = re.findall(r"^#+ (.+)$", text(name), re.MULTILINE)
    return {sheets.anchor(head) for head in heads}


def test_a_page_of_the_log_is_a_table_of_what_was_tried() -> None:
    for path in (ROOT / LOG).glob("*.md"):
        if path.name != "index.md":
            assert "| tried | measured | outcome | date |" in path.read_text("utf-8"), path.name


def test_relative_links_resolve() -> None:
    wrong = []
    for name in SHOWN:
        prose = re.sub(r"```.*?```", "", text(name), flags=re.DOTALL)
        for target in re.findall(r"\]\(([^)\s]+)\)", prose):
            if re.match(r"[a-z]+:", target):
                continue
            path, _, at = target.partition("#")
            file = (ROOT / name).parent / path if path else ROOT / name
            if not file.exists() or (
                at and at not in _anchors(file.resolve().relative_to(ROOT).as_posix())
            ):
                wrong.append(f"{name} links to {target}")
    assert not wrong


def test_readme_shows_commands_and_is_short() -> None:
    assert sum(command in text("README.md") for command in COMMANDS_SHOWN) >= 8
    assert len(text("README.md").splitlines()) <= 120
    shown = re.findall(r"!\[[^]]+\]\(([^)]+)\)", text("README.md"))
    assert len(shown) == 2
    assert all((ROOT / name).stat().st_size <= MOST_PICTURE_BYTES for name in shown)


@pytest.mark.parametrize(("command", "stated"), again(COMMANDS_SHOWN.items(), SLOW))
def test_commands_run(command: str, stated: int | None) -> None:
    assert commands.wrong(command, stated) is None


@pytest.mark.parametrize(
    ("command", "stated"),
    [
        ("dpplan list models", 3),  # ends well
        ("dpplan list nothing", None),
        ("dpplan estimate --model gpt9 --gpu h100 --gpus 8", 0),
    ],
)
def test_a_command_that_is_not_answered_as_stated_is_named(
    command: str, stated: int | None
) -> None:
    (line,) = commands.not_as_stated({command: stated, "dpplan list gpus": 0})
    assert command in line


def test_the_worked_example_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its commands one after the other, in a folder with only the examples; every number of a
    paragraph is printed by the commands before it."""
    (tmp_path / "docs").symlink_to(ROOT / "docs")
    monkeypatch.chdir(tmp_path)
    printed, count = "", 0
    for prose, block in re.findall(r"(.*?)(?:```sh\n(.*?)```|\Z)", text(EXAMPLE), re.DOTALL):
        for number in re.findall(r"\*\*(.*?)\*\*", prose.replace("\n", " ")):
            assert number in printed, number
            count += 1
        for command in block.splitlines():
            answer = dpplan(*shlex.split(command)[1:])
            assert answer.status == 0, (command, answer.stderr)
            printed += re.sub(r"\s+", " ", answer.stdout)
    assert count > 10


def test_the_tree_is_true() -> None:
    block = re.search(r"```text\n(planner/ .*?)```", text("CONTRIBUTING.md"), re.DOTALL)
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


def test_pages_speak_of_the_project_alone() -> None:
    for name in SHOWN:
        for word in ("/work/", "/tmp/", "/root/", "/home/"):
            assert word not in text(name), name


def test_the_version_is_stated_once_more_for_citations() -> None:
    cited = re.search(r"^version: (.+)$", text("CITATION.cff"), re.MULTILINE)
    assert cited is not None
    assert cited.group(1) == planner.__version__
