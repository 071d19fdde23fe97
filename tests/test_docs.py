"""The documentation is current, complete and true: generated pages, options, report keys, links,
commands, examples."""

from __future__ import annotations

import importlib.util
import re
import shlex
import sys
from functools import cache
from pathlib import Path

import pytest
import typer
from command import dpplan

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

ROOT = Path(__file__).resolve().parents[1]

_SPEC = importlib.util.spec_from_file_location("docs_build", ROOT / "docs" / "build.py")
assert _SPEC is not None
assert _SPEC.loader is not None
build = importlib.util.module_from_spec(_SPEC)
sys.modules["docs_build"] = build
_SPEC.loader.exec_module(build)

from pages import blocks, formulas, sheets  # noqa: E402
from pages.text import run  # noqa: E402

QUESTIONS = "docs/questions"  # tests/test_questions.py runs its commands, and makes it again
LOG = "docs/log"
EXTENDING = "docs/extending/"
EXAMPLE = "docs/worked-example.md"  # whose commands read what those before them wrote
MOST_LINES = 300
MOST_PICTURE_BYTES = 150_000

SHOWN = [
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    *sorted(p.relative_to(ROOT).as_posix() for p in (ROOT / "docs").rglob("*.md")),
]


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


def held(names: list[str]) -> list[str]:
    """Without the pages that minutes of held-out fits would write again of these very files."""
    skipped = set(build.studies()) if build.unchanged() else set()
    return [name for name in names if name not in skipped]


@pytest.mark.parametrize(
    "name", [name for name in (*build.FOLDERS, *build.PAGES) if name != QUESTIONS]
)
def test_generated_pages_are_current(name: str) -> None:
    if name == "docs/accuracy" and build.unchanged():
        return
    if held([name]):
        assert not build.stale([name]), "run: python docs/build.py"


def test_blocks_are_current() -> None:
    wrong = build.stale([name for name in held(build.hand_written()) if "<!-- begin" in text(name)])
    assert not wrong, f"{', '.join(wrong)} not current; run: python docs/build.py"


def test_a_page_with_studies_is_made_again_after_any_change_it_rests_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    worth = "docs/mechanisms/clock.md"
    names = (build.RESIDUALS, build.MEMORY, "docs/accuracy/bands.md", worth, "README.md")
    for name in (*names, "planner/estimate/step.py", "hardware_profiles/gpus/rtx4090.toml"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        study = "<!-- begin: worth overlap -->\n\n<!-- end -->\n"
        (tmp_path / name).write_text(study if name in (worth, "README.md") else name, "utf-8")
    monkeypatch.setattr(build, "ROOT", tmp_path)
    monkeypatch.setattr(build, "STAMP", tmp_path / "docs" / "built.sha256")
    assert set(build.studies()) == set(names)
    assert not build.unchanged()
    for name in ("docs/accuracy/bands.md", worth, "planner/estimate/step.py", build.RESIDUALS):
        build.STAMP.write_text(build.digest(), encoding="utf-8")
        assert build.unchanged()
        whole = (tmp_path / name).read_text("utf-8")
        (tmp_path / name).write_text(whole + "other", encoding="utf-8")
        assert not build.unchanged(), name
    build.STAMP.write_text(build.digest(), encoding="utf-8")
    (tmp_path / "planner" / "estimate" / "new.py").write_text("", encoding="utf-8")
    assert not build.unchanged()


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


# what takes minutes of a node, and files that come from it
_MEASURES = re.compile(r"^dpplan (calibrate|serve)\b|my-node\.toml|cluster\.toml")


# where a page of docs/extending first changes the package
_STEP = re.compile(r"^```(?:diff\n|sh\ncp \S+ planner/)", re.MULTILINE)


def _as_shipped(name: str) -> str:
    """A page, one of docs/extending up to its first step: what follows that is answered in a
    changed copy alone, in which tests/test_extending.py follows the page."""
    step = _STEP.search(text(name)) if name.startswith(EXTENDING) else None
    return text(name)[: step.start()] if step else text(name)


def _commands() -> list[tuple[str, int | None]]:
    """Commands in code blocks, with the exit status that the page states for them."""
    values: dict[str, int | None] = {}
    for name in SHOWN:
        if name.startswith((QUESTIONS, LOG, EXAMPLE)):  # the log keeps what was run then
            continue
        page = _as_shipped(name)
        for block in re.finditer(r"```sh\n(.*?)```", page, re.DOTALL):
            after = page[block.end() : page.find("<!-- end -->", block.end())]
            stated = re.search(r"^Exit status (\d)\.$", after, re.MULTILINE)
            for line in block.group(1).splitlines():
                if line.startswith("dpplan ") and not _MEASURES.search(line):
                    text = "\n".join(block.group(1).splitlines()) == line and stated
                    values[line] = int(stated.group(1)) if text and stated else None
    return list(values.items())


def test_readme_shows_commands_and_is_short() -> None:
    assert sum(command in text("README.md") for command, _ in _commands()) >= 8
    assert len(text("README.md").splitlines()) <= 120
    shown = re.findall(r"!\[[^]]+\]\(([^)]+)\)", text("README.md"))
    assert len(shown) == 2
    assert all((ROOT / name).stat().st_size <= MOST_PICTURE_BYTES for name in shown)


@pytest.mark.parametrize(("command", "stated"), _commands())
def test_commands_run(command: str, stated: int | None) -> None:
    status, out, err = run(command)
    assert status in ((0, 3) if stated is None else (stated,)), err
    assert out or status == 2


def test_the_worked_example_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its commands one after the other, in a folder with the examples alone; every number of a
    paragraph is printed by the commands before it."""
    (tmp_path / "docs").symlink_to(ROOT / "docs")
    monkeypatch.chdir(tmp_path)
    printed, count = "", 0
    for prose, commands in re.findall(r"(.*?)(?:```sh\n(.*?)```|\Z)", text(EXAMPLE), re.DOTALL):
        for number in re.findall(r"\*\*(.*?)\*\*", prose.replace("\n", " ")):
            assert number in printed, number
            count += 1
        for command in commands.splitlines():
            answer = dpplan(*shlex.split(command)[1:])
            assert answer.status == 0, (command, answer.stderr)
            printed += re.sub(r"\s+", " ", answer.stdout)
    assert count > 10


@pytest.mark.parametrize(
    "command",
    [
        command
        for name in SHOWN
        if name.startswith(EXTENDING)
        for command in re.findall(r"^dpplan .*$", _as_shipped(name), re.MULTILINE)
    ],
)
def test_examples_of_extending_are_answered(command: str) -> None:
    """An example file is there to be copied: one that the program refuses is no example, whatever
    the page states."""
    status, _, err = run(command)
    assert status == 0, err


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
