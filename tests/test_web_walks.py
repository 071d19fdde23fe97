"""Random walks of a person over a plan and its tabs, over HTTP without a script: nothing
that was typed is lost, and every figure is the command line's. `test_web_browser.py` walks in
Chromium."""

from __future__ import annotations

import json
import random
import re
import shlex
from html import unescape
from typing import Any
from urllib.parse import parse_qsl, urlencode

import pytest
from command import dpplan
from fastapi import Request
from fastapi.testclient import TestClient
from web_pages import QUICK, Page, at, led_to, sent_by

from planner import api
from planner.specs.document import plain
from web import run
from web.state import PAGE, Pairs, filled, of_pairs

START = {"model": "gpt2", "gpu": "a100-sxm4-80gb", "gpus": "4", "pp": "1", "cp": "1"}
# what a person types, on whichever page has a field for it
WORDS = {
    "gpus": ("4", "8", "16"),
    "seq_len": ("512", "1024"),
    "global_batch": ("32", "64"),
    "price": ("2.5", "1.25"),
    "tp": ("1", "2"),
    "precision": ("bf16", "fp32"),
    "power_limit": ("300 W", "350 W"),
}
TABS = ("/strategies", "/sweep", "/tune", "/run", "/schedule", "/batch", "/recommend")
STEPS = 7


@pytest.fixture
def plans_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plans are answered and forms are made, without advice and without the answers of the verbs
    of tabs, which have tests of their own: the walk is about what forms and links carry."""
    wanted = run.answer
    none = dict.fromkeys(("advice", "families", "rests", "assumed", "tip"), "")

    async def answer(request: Request, name: str, *arguments: Any, **more: Any) -> bytes:
        if name == "late":
            return json.dumps(none).encode()
        if name == "tab":
            form = await wanted(request, "tab_form", *arguments, **more)
            return json.dumps({"ok": True, "answer": "", "charts": [], **json.loads(form)}).encode()
        return await wanted(request, name, *arguments, **more)

    monkeypatch.setattr(run, "answer", answer)


def replaced(pairs: Pairs, name: str, word: str) -> Pairs:
    return [(n, word if n == name else text) for n, text in pairs]


def typed(pairs: Pairs, chosen: dict[str, str], rng: random.Random) -> Pairs:
    """A form after a person has typed another value into one of its fields."""
    now = dict(pairs)
    one_of = [n for n in WORDS if [name for name, _ in pairs].count(n) == 1]
    name = rng.choice(sorted(one_of))
    chosen[name] = rng.choice([word for word in WORDS[name] if word != now[name]])
    return replaced(pairs, name, chosen[name])


@pytest.mark.usefixtures("plans_only")
@pytest.mark.parametrize(
    "seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 40))]
)
def test_a_walk_loses_nothing_and_shows_the_figures_of_the_command(
    client: TestClient, seed: int
) -> None:
    rng = random.Random(seed)
    chosen = {**START, **dict([QUICK])}
    page = client.get("/", params=chosen).text
    for _ in range(STEPS):
        if rng.random() < 0.5:  # the form of the plan
            sent = typed(sent_by(page, "id", "form"), chosen, rng)
        else:  # of one tab or two, then the plan by its link
            for path in rng.sample(TABS, k=rng.choice((1, 2))):
                tab = client.get(f"{path}?{urlencode(led_to(page)[path])}")
                assert tab.status_code == 200, tab.text
                sent = typed(sent_by(tab.text), chosen, rng)
                page = client.get(f"{path}?{urlencode(sent)}").text
            sent = led_to(page)["/"]
        answer = client.get(f"/?{urlencode(sent)}")
        page = answer.text
        assert answer.status_code == 200, re.findall(r'role="alert">(.*?)</p>', page, re.S)
        request = of_pairs(filled([*chosen.items()], PAGE))
        query = re.search(r'id="answer"[^>]* data-query="([^"]*)"', page)
        assert query
        shown_for = of_pairs(parse_qsl(unescape(query[1]), keep_blank_values=True))
        assert shown_for.given == request.given
        document = plain(api.estimate(request.options, brief=True))
        figures = Page(page).figures
        assert len(figures) > 5
        for key, value in figures.items():
            assert value == pytest.approx(at(document, key), rel=1e-12), key
    command = re.search(r'<code id="command">dpplan (.*?)</code>', page)
    assert command
    printed = dpplan(*shlex.split(unescape(command[1])), "--json").json()
    for key, value in Page(page).figures.items():
        assert value == pytest.approx(at(printed, key), rel=1e-12), key
