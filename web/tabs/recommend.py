"""Find a cluster: deadline, budget and kinds of GPU in, ranked clusters out; and the other
questions that are asked backwards."""

from __future__ import annotations

from collections.abc import Sequence

from planner.specs.documents.recommend import (
    BandwidthSweep,
    LargestModel,
    Recommendation,
    SaturatingBatch,
    SmallestCluster,
)
from planner.specs.options import refuse
from planner.specs.options.recommend import Limits, QuestionOptions
from planner.verbs import recommend
from planner.views.recommend import recommend_blocks
from planner.views.view import Block, Fixed
from web.tabs.base import Asked, Found, Mark, Tab, Table


def _find(asked: Asked) -> Recommendation:
    question, limits = asked.of(QuestionOptions).question, asked.of(Limits)
    refuse(limits, f"recommend {question}")
    return recommend.ask(question, asked.given, limits, jobs=1)


def _show(found: Recommendation, asked: Asked) -> Found:
    head, *rest = recommend_blocks(found)
    if isinstance(found, SmallestCluster):
        parts = _clusters(found, head, rest)
    else:
        commands = _commands(found)
        parts = [
            Table(block, commands=commands) if len(block.rows) == len(commands) else Table(block)
            for block in [Block("", *head_of(head)), *rest]
        ]
    return Found(
        title=head.title,
        verdict=_verdict(found, head),
        command=asked.command,
        mark="yes" if recommend.answered(found) else "no",
        parts=tuple(parts),
    )


def head_of(head: Block) -> tuple[list[str], list[str], list[list[str]]]:
    """Sentences and table of a block, without the sentence that the verdict says."""
    return head.text[1:], head.header, head.rows


def _verdict(found: Recommendation, head: Block) -> str:
    if not isinstance(found, SmallestCluster):
        return head.text[0] if head.text else ""
    row = found.answers.by_goal[found.goal]
    if row is None and not found.tried:
        return f"No cluster was tried: {found.types[0].reason}"
    if row is None:
        return f"No cluster of {found.tried:,} tried is within the limits"
    line = next(line for line in head.text if line.startswith(found.goal))
    return f"{found.goal.capitalize()}: {line.removeprefix(found.goal).strip()}"


def _clusters(found: SmallestCluster, head: Block, rest: Sequence[Block]) -> list[Table]:
    """The best of all kinds, then a row per kind, ranked, each with the way to its plan."""
    rows = found.answers.by_goal
    text = {line.partition("  ")[0]: line.partition("  ")[2].strip() for line in head.text}
    best = Block(
        "The best of all kinds",
        [line for line in head.text if not isinstance(line, Fixed) and line.split()[0] not in rows],
        ["goal", "cluster"],
        [[goal, text.get(goal, "none")] for goal in rows],
    )
    parts = [Table(best, commands=tuple(row.command if row else None for row in rows.values()))]
    commands = [kind.answer.command for kind in found.types if kind.answer is not None]
    for block in rest:
        if len(block.rows) == len(commands) and block.header[:1] == ["kind"]:
            block.order = "best first"
            marks: list[Mark] = ["here" if i == 0 else "" for i in range(len(commands))]
            parts.append(Table(block, commands=tuple(commands), marks=tuple(marks)))
            commands = []
        else:
            parts.append(Table(block))
    return parts


def _commands(found: Recommendation) -> tuple[str | None, ...]:
    """The command of each row of the longest table, where its rows are requests."""
    match found:
        case SaturatingBatch():
            return tuple(row.command for row in found.rows)
        case BandwidthSweep():
            return tuple(row.command for row in found.searched)
        case LargestModel():
            return ()
    return ()


TAB = Tab(
    path="/recommend",
    name="Find a cluster",
    title="Find a cluster",
    lead=(
        "Enter a model, the training tokens, and limits on time, budget or power: the cheapest,"
        " smallest and fastest cluster, by kind of GPU. Each row opens its plan. The other "
        "questions are about one given cluster."
    ),
    ask="Find clusters",
    verb="recommend",
    documents=(
        "recommend cluster",
        "recommend bandwidth",
        "recommend batch",
        "recommend model",
        "recommend offload",
    ),
    records=(QuestionOptions, Limits),
    shown=("model", "tokens", "days", "budget", "gpu", "goal"),
    folded=(
        "question",
        "max_gpus",
        "power_kw",
        "sure",
        "market",
        "seq_len",
        "global_batch",
        "precision",
        "gpus",
    ),
    start=[
        ("model", "llama-3.1-8b"),
        ("tokens", "1T"),
        ("days", "30"),
        ("gpu", "h100-sxm5-80gb"),
        ("gpu", "a100-sxm4-80gb"),
        ("max_gpus", "1024"),
    ],
    question="question",
    # all kinds take longer than a page may
    usual=[
        ("tokens", "1T"),
        ("gpu", "h100-sxm5-80gb"),
        ("gpu", "h200-sxm-141gb"),
        ("gpu", "a100-sxm4-80gb"),
    ],
    find=_find,
    show=_show,
)
