"""The page of a run: a script, its plan, what makes it fit, launch files, a log, a calibration; one
address, in which nothing that was said on the way is lost. Without a script of the browser."""

from __future__ import annotations

import re
from html import unescape
from urllib.parse import parse_qsl, unquote, urlsplit

import pytest
from command import ROOT, dpplan
from fastapi.testclient import TestClient
from web_pages import QUICK, sent_by

from planner.units import show
from web.tabs import STEPS

EXAMPLES = ROOT / "docs" / "examples"
SMALL = {
    "model": "gpt2",
    "gpu": "a100-sxm4-80gb",
    "gpus": "8",
    "tokens": "10B",
    "recompute": "full",
}
WAY = ["script", "plan", "fit", "launch", "log", "calibration", "measured", "export"]


def steps(page: str) -> dict[str, str]:
    """The markup of each step by its anchor."""
    sections = page.split('<section class="panel step')[1:]
    shown = {part.split('id="')[1].split('"')[0]: part.split("</section>")[0] for part in sections}
    return {name: part for name, part in shown.items() if not name.startswith("first-")}


def written(step: str) -> dict[str, str]:
    """Files to take along, by name."""
    links = re.findall(r'href="data:[^,"]*,([^"]*)" download="([^"]*)"', step)
    return {name: unquote(unescape(text)) for text, name in links}


def test_one_page_has_every_step_with_the_figures_of_the_commands(client: TestClient) -> None:
    page = client.get("/run", params={**SMALL, "to": "torchtitan"}).text
    shown = steps(page)
    assert list(shown) == WAY
    assert re.findall(r'<li[^>]*><a href="#(\w+)">', page)[-len(WAY) :] == WAY
    words = [word for name, value in SMALL.items() for word in (f"--{name}", value)]
    estimate = dpplan("estimate", *words, "--json").json()
    assert show(estimate["step"]["seconds"], "s") in shown["plan"]
    first = estimate["advice"][0]
    assert show(first["step_seconds"], "s") in shown["fit"]
    recipe = dpplan("export", *words, "--to", "torchtitan", "--json").json()
    assert written(shown["launch"]) == {file["name"]: file["text"] for file in recipe["files"]}
    # a change is applied on the page itself, which keeps the framework
    link = re.search(r'href="(/run\?[^"]*)"[^>]*>Apply', shown["fit"])
    assert link
    applied = unescape(link[1])
    assert applied.endswith("#plan")
    assert "to=torchtitan" in applied
    again = steps(client.get(applied).text)
    assert show(first["step_seconds"], "s") in again["plan"]


@pytest.mark.parametrize("page", STEPS, ids=lambda page: page.path)
def test_old_addresses_lead_to_their_step(client: TestClient, page: object) -> None:
    path = page.path  # type: ignore[attr-defined]
    answer = client.get(path, params={"model": "gpt2"}, follow_redirects=False)
    target = urlsplit(answer.headers["location"])
    assert (target.path, target.query) == ("/run", "model=gpt2")
    assert target.fragment in WAY


def test_a_script_is_still_there_when_its_log_comes(client: TestClient) -> None:
    """Sent one after the other by a form without a script: the second knows the plan of the
    first."""
    script = {"files": ("first.sh", (EXAMPLES / "first.sh").read_bytes(), "text/plain")}
    first = client.post("/run", data={"gpu": "h100", **dict([QUICK])}, files=script)
    assert first.status_code == 200
    sent = dict(sent_by(first.text))
    marked = {name for name in sent if sent.get(f"from.{name}", "").startswith("file|first.sh")}
    assert {"model", "tp"} <= marked
    before = steps(first.text)
    assert "first.sh" in before["script"], sorted(before)
    log = {"files": ("train.log", (EXAMPLES / "train.log").read_bytes(), "text/plain")}
    second = client.post("/run", data=sent, files=log)
    assert second.status_code == 200
    after = steps(second.text)
    assert "measured" in after["log"]
    assert "predicted" in after["log"]
    assert "Read before" in after["script"]
    seconds = re.compile(r"step-verdict\">([\d.]+ \w+) per step")
    assert seconds.findall(before["plan"]) == seconds.findall(after["plan"]) != []
    assert "my-cluster.toml" in second.text
    calibrated = re.search(r'href="(/run\?[^"]*)">Apply, as calibrated', after["calibration"])
    assert calibrated
    query = dict(parse_qsl(urlsplit(unescape(calibrated[1])).query))
    assert "calibration" in query
    assert (
        "What the calibration changes"
        in steps(client.get("/run", params=query).text)["calibration"]
    )


def test_a_log_alone_is_compared_with_no_default(client: TestClient) -> None:
    """The model that the page of a plan begins with was not chosen."""
    log = {"files": ("train.log", (EXAMPLES / "train.log").read_bytes(), "text/plain")}
    for given in ({}, dict(sent_by(client.get("/run").text))):
        page = client.post("/run", data=given, files=log).text
        assert "drop the recipe beside it" in page
        assert list(steps(page)) == ["script", "plan", "log", "calibration"]
