"""A log that grows is followed: a verdict once there are enough steps, and when it changes."""

from __future__ import annotations

from pathlib import Path

import pytest

from dpplan import follow

ROOT = Path(__file__).parents[1]
LOG, RECIPE = (ROOT / "docs" / "examples" / name for name in ("train.log", "train.sh"))


def test_a_growing_log_is_said_once_and_again_when_it_changes(tmp_path: Path) -> None:
    lines = LOG.read_text("utf-8").splitlines(keepends=True)
    slow = [line.replace("(ms): 8", "(ms): 18") for line in lines]
    parts = [lines[:3], lines[3:8], lines[8:], *[slow[4:]] * 2]
    log = tmp_path / "train.log"
    waited: list[float] = []

    def wait(seconds: float) -> None:
        waited.append(seconds)
        if parts:
            with log.open("a", encoding="utf-8") as file:
                file.writelines(parts.pop(0))

    words = [str(log), "--recipe", str(RECIPE), "--gpu", "h100", "--gpus", "64"]
    sentences = list(follow.follow(words, wait, idle_s=60))
    assert len(sentences) == 2
    assert sentences[0].startswith("11% slower than plan: 8.4")
    assert sentences[0].endswith("inside the band")
    assert sentences[1].endswith("outside the band")
    assert len(waited) >= 7


def test_a_wrong_request_ends_with_its_sentence() -> None:
    words = [str(LOG), "--recipe", str(RECIPE), "--gpu", "h1000"]
    with pytest.raises(SystemExit, match="did you mean"):
        list(follow.follow(words, lambda _: None, idle_s=0))
