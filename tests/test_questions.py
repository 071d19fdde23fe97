"""The page of questions: every command answers as it should, and the page is current."""

from __future__ import annotations

import pytest
from built import ROOT, again, all_again
from pages import questions

ALL = [question for chapter in questions.chapters() for question in chapter.question]


def test_there_are_eighty_different_questions() -> None:
    assert len(ALL) >= 80
    assert len({question.ask for question in ALL}) == len(ALL)


@pytest.mark.parametrize("question", again(ALL), ids=lambda q: q.ask[:60])
def test_the_answer_holds(question: questions.Question) -> None:
    assert question.holds
    for check in question.holds:
        bounds = (check.least, check.most, check.equals, check.contains)
        assert any(bound is not None for bound in bounds), check
        result = questions.broken(question, check)
        assert result is None, f"{result}: {check.why}"


@pytest.mark.skipif(not all_again(), reason="docs/questions is as it was built")
def test_the_pages_are_current() -> None:
    folder = ROOT / "docs" / "questions"
    have = {path.name: path.read_text(encoding="utf-8") for path in folder.iterdir()}
    assert have == questions.folder(), "docs/questions: run python docs/build.py"
