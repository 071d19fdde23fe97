"""Text on the screen: what fits the line, what is never broken, how numbers are written."""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
from command import WIDE, dpplan

from planner.cli.group import COMMANDS
from planner.specs.document import changed
from planner.specs.documents.recommend import LargestModel
from planner.specs.names import KINDS
from planner.views import text as show_text
from planner.views.cells import column
from planner.views.recommend import view
from planner.views.text import ascii_of, atoms, block_lines, show_blocks, wrapped
from planner.views.view import Block, Fixed

RUNS = Path(__file__).parent.parent / "docs" / "examples" / "runs.csv"
LOG = Path(__file__).parent / "data" / "train.log"
PLAIN = "--stack megatron-core --stack-defaults"  # kernels are searched for one request
LAYOUT = "--tp 2 --pp 2 --zero 1 --micro-batch 1 --global-batch 64 --recompute none --schedule 1f1b"
FIXED = f"--model gpt2 --gpu a100 --gpus 16 {LAYOUT}"
EVERY = "--tokens 1B --jitter 0.5% --data-storage nfs --require fits"
REQUESTS = {
    "estimate": f"estimate {FIXED} {EVERY} --inference {PLAIN}",
    "estimate, all": f"estimate {FIXED} {EVERY} --full --explain {PLAIN}",
    "estimate, roofline": f"estimate {FIXED} --chart roofline --stack-defaults",
    "estimate, crossover": f"estimate {FIXED} --chart crossover --stack-defaults",
    "estimate, searched": "estimate --model llama-70b --gpus 2048 --gpu rtx4090",
    "estimate, too large": "estimate --model llama-2-7b --gpus 1 --gpu rtx4090 --stack"
    " pytorch-ddp --seq-len 512 --global-batch 8 --stack-defaults",
    "search": f"search --model llama-2-7b --gpu a100 --gpus 16 --full {PLAIN}",
    "search, nothing": "search --model llama-2-7b --gpu rtx4090 --gpus 2 --stack pytorch-fsdp"
    " --stack-defaults",
    "compare": f"compare --model gpt2 --gpus 16 {LAYOUT} --tokens 1B"
    f" --vary gpu=a100,h100,rtx4090 --jobs 1 {PLAIN}",
    "compare, swept": f"compare --model gpt2 --gpu a100 {LAYOUT} --tokens 1B"
    f" --sweep gpus=8,16,64 --jobs 1 {PLAIN}",
    "recommend": "recommend --model gpt2 --tokens 1B --days 1 --gpu h100 --gpu l40s --jobs 1"
    f" --max-gpus 16 {PLAIN}",
    "recommend bandwidth": f"recommend bandwidth {FIXED} --jobs 1 --stack-defaults",
    "recommend batch": f"recommend batch --model gpt2 --gpu a100 --gpus 8 --jobs 1 {PLAIN}",
    "recommend model": f"recommend model --model gpt2 --gpu rtx4090 --gpus 1 --jobs 1 {PLAIN}",
    "recommend offload": f"recommend offload --model gpt2 --gpu a100 --gpus 8 {PLAIN}",
    "batch": "batch --model gpt2 --gpu a100 --sweep gpus=8,16 --global-batch 64 --tokens 1B"
    f" --learning-rate 3e-4 --warmup 8M --jobs 1 {PLAIN}",
    "tune": "tune --model qwen2.5-0.5b --gpu rtx4090 --length-mean 300 --jobs 1"
    " --method qlora-offloaded+full-paged --stack-defaults --stack hf-trainer",
    "read": "read tests/data/recipes/megatron.sh --gpu h100 --gpus 32 --full",
    "rl": "rl --model qwen2.5-0.5b --gpu h100 --gpus 4 --ahead 1 --algorithm ppo --stack-defaults",
    "rl, nothing": "rl --model llama-2-70b --gpu rtx4090 --gpus 2",
    "schedule": "schedule --schedule zb-h1 --pp 4 --microbatches 8",
    "strategies": "strategies --model gpt2 --gpu a100 --gpus 16 --seq-len 512",
    "strategies, one": "strategies --model gpt2 --gpu a100 --gpus 16 --strategy ddp",
    "allreduce": "allreduce --gpu h100 --gpus 64",
    "export": "export --to torchtitan --model gpt2 --gpu h100 --gpus 8",
    "batchnorm": "batchnorm --gpu a100 --gpus 64",
    "input": "input --samples-per-s 1000 --sample-bytes 1MB --data-storage nfs --gpus 16",
    "learn": "learn zero",
    "learn, list": "learn",
    "check": f"check {LOG} {FIXED}",
    "validate": f"validate {RUNS}",
    "prices": "prices",
    **{f"list {kind}": f"list {kind}" for kind in KINDS},
}
WIDTHS = (80, 100, 120)
# what no line says: exponents of a quantity, no number, zero with a sign, thousands of per cent
ABSURD = re.compile(
    r"\de[-+]\d+ (?:ns|us|ms|s|B|[kMGTP]i?B|days|h|USD)\b|(?<=\s)(?:nan|-?inf)\b"
    r"|(?<![\d.,])-0(?:\.0+)? |\b0\.0 days|\d{4,}\.\d %|[-+]\d,\d{3}\.\d %",
    re.IGNORECASE,
)
ELAPSED = re.compile(r"evaluated in [\d.,]+ \w+")  # differs from run to run
RULE = re.compile(r"[-\s]*-[-\s]*")


@dataclass(frozen=True)
class Printed:
    """Lines that a command passes to the screen."""

    blocks: Sequence[Block]
    after: Sequence[str]

    def text(self, width: int) -> str:
        lines = [line for block in self.blocks for line in [*block_lines(block, width), ""]]
        lines += [line for sentence in self.after for line in wrapped(sentence, width)]
        return ELAPSED.sub("evaluated in", "\n".join(lines))


@cache
def printed(name: str) -> Printed:
    """The blocks of a command, which runs once for all widths."""
    items: list[Printed] = []

    def keep(blocks: Sequence[Block], plain: bool, after: Sequence[str] = ()) -> None:
        items.append(Printed([ascii_of(block) for block in blocks], after))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(show_text, "show_blocks", keep)
        answer = dpplan(*REQUESTS[name].split(), columns=min(WIDTHS))
    assert answer.status in (0, 3), answer.stderr
    return items[0]


def tokens(text: str) -> set[str]:
    """Words and numbers of all lines except commands and rules."""
    lines = [line for line in text.splitlines() if "dpplan " not in line]
    return {word for line in lines if not RULE.fullmatch(line) for word in line.split()}


@pytest.mark.parametrize("name", REQUESTS)
def test_lines_fit_and_break_nothing(name: str) -> None:
    """At every width: no line is wider but a command, and every word and number is one of the
    widest text; what is left out is named."""
    wide = printed(name).text(WIDE)
    known = tokens(wide) | {"left", "out", "at", "this", "width:", "(--json", "has", "all)"}
    known |= {f"{word}," for word in known}
    assert not ABSURD.findall(wide)
    for width in WIDTHS:
        text = printed(name).text(width)
        for line in text.splitlines():
            assert len(line) <= width or "dpplan " in line, line
        assert tokens(text) <= known, tokens(text) - known


def test_every_verb_that_prints_is_looked_at() -> None:
    looked = {words.split()[0] for words in REQUESTS.values()}
    # measures, JSON, servers, and what tests of their own look at
    unprinted = {"calibrate", "schema", "serve", "mcp", "trace", "preflight"}
    assert set(COMMANDS) - looked == unprinted


def test_an_estimate_is_one_screen() -> None:
    """About thirty lines at 100 columns, in the order in which people ask."""
    text = printed("estimate, searched").text(100)
    lines = text.rstrip().splitlines()
    assert lines[2].startswith("Fits")
    assert len(lines) <= 39
    parts = ("layout ", "memory ", "speed ", "run ", "Where time", "What would help", "How sure")
    assert [text.index(part) for part in parts] == sorted(text.index(part) for part in parts)
    assert printed("estimate, too large").text(100).splitlines()[2].startswith("DOES NOT FIT")
    assert len(printed("estimate, all").text(100).splitlines()) > 3 * len(lines)


def test_why_the_next_larger_size_is_not_the_answer() -> None:
    document = dpplan(*REQUESTS["recommend model"].split(), "--json").read(LargestModel)
    family = document.family
    assert family
    assert family.above
    for update, why in (
        ({"fits": False}, "does not fit"),
        ({"fits": True, "days": 3.0}, "takes 3.00 days"),
        ({"fits": True, "days": None}, "fits with too little room"),
    ):
        above = changed(family.above, refused=None, **update)
        shown = view(changed(document, family=changed(family, above=above)))
        lines = [str(line) for part in shown.parts if isinstance(part, Block) for line in part.text]
        assert any(line.strip().startswith("the next, ") and why in line for line in lines), why


def test_what_is_not_searched_is_named_by_its_option() -> None:
    """Whole sentences are for --full. Free options of the stack are searched with every layout but
    a stated one."""
    request = "estimate --model gpt2 --gpu a100 --gpus 8 --stack megatron-core --advice 0"
    stated = f"{request} --tp 1 --pp 1 --cp 1 --zero 1 --micro-batch 1 --recompute none"
    for words, whole in ((request, False), (stated, True)):
        document = dpplan(*words.split(), "--json").json()
        sentences = document["search"]["not_searched"]
        (line,) = [
            line
            for line in dpplan(*words.split(), "--plain").stdout.splitlines()
            if line.startswith("not tried ")
        ]
        for sentence in sentences:
            option = re.search(r"--[a-z-]+", sentence)
            assert (option[0] if option else sentence) in line
        assert ("since the layout is stated whole" in line) == whole
        assert bool(document["search"]["software"]) != whole


def test_commands_stay_on_one_line() -> None:
    def commands(width: int) -> list[str]:
        lines = printed("estimate, searched").text(width).splitlines()
        return [line for line in lines if "dpplan " in line]

    assert any("--tp" in line for line in commands(WIDE))
    assert all(commands(width) == commands(WIDE) for width in WIDTHS)


@pytest.mark.parametrize("name", REQUESTS)
def test_every_list_says_its_order(name: str) -> None:
    blocks = printed(name).blocks
    assert [block.title for block in blocks if len(block.rows) > 1 and not block.order] == []
    for block in blocks:
        names = [column(heading).title for heading in block.header]
        assert len(set(names)) == len(names)  # as records they are names
        assert set(block.drop) <= set(names)


TABLE = Block(
    "Layouts",
    header=["name", ">step", "stack", "layout"],
    rows=[
        ["first", "28.9 s", "megatron-core", "tp 2, pp 16, vpp 5, micro-batch 1 x 32"],
        ["second", "1,290 s", "pytorch-fsdp", "dp 2048, zero 3 over 512"],
    ],
    order="fastest first",
    drop=("stack",),
)


def test_a_wide_table_is_whole() -> None:
    lines = block_lines(TABLE, 100)
    assert lines[0] == "Layouts, fastest first"
    assert lines[4] == "first    28.9 s  megatron-core  tp 2, pp 16, vpp 5, micro-batch 1 x 32"


def test_a_narrow_table_leaves_out_what_it_may() -> None:
    lines = block_lines(TABLE, 46)
    assert lines[4] == "first    28.9 s  tp 2, pp 16, vpp 5,"
    assert lines[-1] == "left out at this width: stack (--json has all)"


def test_prose_goes_on_below_itself() -> None:
    lines = block_lines(TABLE, 64)
    assert lines[4] == "first    28.9 s  megatron-core  tp 2, pp 16, vpp 5,"
    assert lines[5] == "                                micro-batch 1 x 32"


def test_a_table_that_cannot_fit_becomes_records() -> None:
    lines = block_lines(TABLE, 30)
    assert lines[2] == "name first"
    assert "  step    28.9 s" in lines
    assert "  stack   megatron-core" in lines  # there is room for all of it
    assert all(len(line) <= 30 for line in lines)


def test_a_column_without_numbers_is_not_drawn() -> None:
    block = Block("T", header=["a", ">b"], rows=[["x", "-"], ["y", ""]])
    assert block_lines(block, 80)[2:] == ["a", "-", "x", "y"]


def test_a_number_stays_with_its_unit() -> None:
    assert atoms("takes 28.9 s of 18.7 GiB (80 % band)") == [
        *("takes", "28.9 s", "of", "18.7 GiB", "(80 %", "band)")
    ]
    assert atoms("say `dpplan list gpus`, then") == ["say", "`dpplan list gpus`,", "then"]


def test_a_label_keeps_its_text_to_its_right() -> None:
    assert wrapped("memory  one two three four", 20) == ["memory  one two", "        three four"]
    assert wrapped("one two three four", 12) == ["one two", "  three four"]
    assert wrapped(Fixed("dpplan estimate --model gpt2"), 12) == ["dpplan estimate --model gpt2"]


class Terminal(io.StringIO):
    """A stdout that people watch."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("width", WIDTHS)
def test_a_terminal_says_what_is_piped(monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    """In color or without, the same lines; a command is one line, which the terminal may wrap."""
    command = Fixed("1: dpplan estimate " + "--model llama-70b " * 9)
    blocks = [TABLE, Block("Commands", [command])]
    piped, watched = io.StringIO(), Terminal()
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setattr(sys, "stdout", piped)
    show_blocks(blocks, plain=True)
    monkeypatch.setattr(sys, "stdout", watched)
    assert show_text.width_of(plain=False) == width
    show_blocks(blocks, plain=False)
    plain = re.sub(r"\x1b\[[\d;]*m", "", watched.getvalue())
    assert plain.rstrip() == piped.getvalue().rstrip()
    assert command in plain
