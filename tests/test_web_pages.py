"""Pages of the dashboard are complete without a script, escaped, and lead where they say."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
from html import unescape
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode

import pytest
from command import dpplan
from fastapi.testclient import TestClient
from web_pages import FIXED, QUICK, REQUEST, TUNED, Page
from web_pages import TABS as PAIRS

from planner import api
from planner.specs.documents import declared
from planner.specs.options import rows
from planner.units import span
from web import state, static_files, tasks
from web.render import streamed
from web.tabs import TABS, Tab


def test_the_page_is_complete_without_a_script(client: TestClient) -> None:
    answer = client.get("/", params={**FIXED, "wait": "1"})
    assert answer.status_code == 200
    text = answer.text
    assert "Llama 2 7B on 8 x NVIDIA A100" in text
    assert "What to change" in text
    assert '<p class="muted">Looking' not in text
    assert "on measured" in text  # what it rests on
    assert 'id="chart-memory-stages"' not in text  # one stage needs no chart of stages
    for name in ("memory-phases", "step-time"):
        assert f'id="chart-{name}"' in text
    assert text.count('class="drawn"') == 2
    assert text.count('<figure class="picture') == 3
    assert "plotly" not in text.replace("data-plotly", "").replace("vendor/plotly", "")
    assert text.count("<table") >= 5
    page = Page(text)
    names = {
        str(attributes.get("name"))
        for tag, attributes in page.tags
        if tag in ("select", "input", "textarea")
    }
    # the others shape the output only, or say in other words what the form has
    kept = {name for name, row in rows(api.Options).items() if row.says.form != "absent"}
    assert kept <= names
    assert {"model", "gpus", "headroom", "recompute"} <= kept
    assert (
        dict(parse_qsl(next(str(a["data-query"]) for _, a in page.tags if "data-query" in a)))
        == FIXED
    )


def test_the_answer_is_sent_while_the_rest_is_worked_on() -> None:
    async def sent() -> list[str]:
        ready = asyncio.Event()

        async def late() -> dict[str, str]:
            await ready.wait()
            return {
                "advice": "<p>change it</p>",
                "rests": "<p>on numbers</p>",
                "assumed": "",
                "tip": "",
            }

        async def form() -> str:
            return "<input>"

        shown: dict[str, Any] = {"title": "", "query": "", "fixed": "", "answer": "<p>fits</p>"}
        shown |= {"charts": [], "panels": (), "own_layout": (), "boot": {}}
        shown |= {"preset": "", "printed": ""}
        shown["navigation"] = {"own": "", "tabs": [], "path": "/", "chips": []}
        pieces = streamed("page.html", url=static_files.url, late=late, form=form, **shown)
        items = [await anext(pieces)]
        ready.set()
        return [*items, *[piece async for piece in pieces]]

    first, *others = asyncio.run(sent())
    assert "<p>fits</p>" in first
    assert "change it" not in first
    rest = "".join(others)
    assert rest.index("<p>change it</p>") < rest.index("<p>on numbers</p>") < rest.index("<input>")
    assert 'data-ready="yes"' in rest
    assert "<!--" not in first + rest


def test_illegal_values_are_shown_with_their_reason(client: TestClient) -> None:
    text = client.get("/", params={**FIXED, "wait": "1"}).text
    matches = re.findall(
        r'<option value="([^"]+)" data-label="[^"]*" data-reason="([^"]+)" disabled>(.*?)</option>',
        text,
    )
    assert matches
    assert all(label.endswith(f" – {reason}") for _, reason, label in matches)
    assert any(
        value == "8" and "does not divide the GPUs" in reason for value, reason, _ in matches
    )


def test_nothing_on_a_page_comes_from_elsewhere(client: TestClient) -> None:
    for path in (
        "/",
        "/reference",
        "/compare",
        f"/tune?{urlencode([*TUNED.items(), QUICK])}",
        f"/explain?{urlencode(FIXED)}",
        f"/export?{urlencode(FIXED)}",
    ):
        page = Page(client.get(path).text)
        items = [
            str(v)
            for _, a in page.tags
            for k, v in a.items()
            if k in ("src", "href", "action", "data", "srcset")
        ]
        assert items
        assert all(entry.startswith(("/", "#", "data:text/plain")) for entry in items), path
        assert not [
            tag
            for tag, a in page.tags
            if tag == "script" and not a.get("src") and a.get("type") != "application/json"
        ]
        assert not [a for _, a in page.tags if any(name.startswith("on") for name in a)]


def test_a_wrong_request_keeps_its_form(client: TestClient) -> None:
    answer = client.get("/", params={**REQUEST, "tp": "3"})
    assert answer.status_code == 422
    assert "take divisors of it" in answer.text
    assert '<option value="llama-2-7b" selected>' in answer.text
    assert client.get("/", params={**REQUEST, "nonsense": "1"}).status_code == 422


def test_text_from_the_address_is_escaped(client: TestClient) -> None:
    evil = "<script>alert(1)</script>"
    for path in ("/", "/explain", "/export", "/panel/pareto"):
        for changed in ({"model": evil}, {"price": evil}, {evil: "1"}, {"config": evil}):
            text = client.get(path, params={**REQUEST, **changed}).text
            assert "<script>alert" not in text
    for changed in ({"model": evil}, {"method": evil}, {evil: "1"}):
        answer = client.get("/tune", params={**TUNED, **changed})
        assert answer.status_code == 422
        assert "<script>alert" not in answer.text
    names = {"a": urlencode(FIXED), "b": urlencode(REQUEST), "a_name": evil}
    answer = client.get("/compare", params=names)
    assert answer.status_code == 200
    assert "<script>alert" not in answer.text


def test_a_line_of_fine_tuning_leads_to_its_estimate(client: TestClient) -> None:
    values = {**TUNED, "stack": "torchtitan"}
    answer = client.get("/tune", params=values)
    assert answer.status_code == 200
    assert '<option value="qwen2.5-0.5b" selected>' in answer.text
    document = client.get("/api/tune", params=values).json()
    links = {v for name, v in Page(answer.text).links.items() if name.startswith("Apply")}
    assert len(links) == len(document["methods"]) == 2  # of each row and of its command
    lora = next(method for method in document["methods"] if method["name"] == "lora")
    link = next(link for link in links if "lora=16" in link)
    result = client.get(f"/api/estimate{link[1:]}").json()
    assert result["memory"]["device_bytes"] == lora["memory"]["device_bytes"]
    assert result["run"]["days"] * 86400 == pytest.approx(lora["run_s"])


def test_every_tab_says_what_its_command_does(client: TestClient) -> None:
    """Page, document over HTTP and command line are one answer: the command that a page shows
    prints each cell of its tables and answers with the same document; each row leads to a page
    that is there."""
    schemas = client.get("/openapi.json").json()["paths"]
    tried = [tab for tab in TABS if isinstance(tab, Tab)]
    assert {tab.path for tab in tried} <= PAIRS.keys()
    for tab in tried:
        answer = client.get(tab.path, params=PAIRS[tab.path])
        assert answer.status_code == 200, (tab.path, answer.text)
        assert "<table" in answer.text, tab.path
        page = Page(answer.text)
        links = [v for name, v in page.links.items() if re.match("Apply|Draw|In full|Show", name)]
        for link in links[:1]:
            led = f"/api/estimate{link[1:]}" if link.startswith("/?") else link
            assert client.get(led).status_code == 200, link
        if not tab.documents:
            continue
        match = re.search(r'<pre class="command">dpplan (.*?)</pre>', answer.text)
        words = shlex.split(unescape(match.group(1))) if match else []
        assert words[0] == tab.verb
        if any("jobs" in rows(record) for record in tab.records) or tab.verb == "recommend":
            words += ["--jobs", "1"]  # processes take longer to start than these requests
        printed = re.sub(r"\s+", " ", dpplan(*words, columns=3000).stdout)
        cells = re.findall(r'<td class="n">([^<]+)</td>', answer.text.split('id="found"')[1])
        assert cells, tab.path
        assert [entry for entry in map(unescape, cells) if entry not in printed] == [], tab.path
        text = f"/api/{tab.address}"
        if tab.path == "/tune":  # whose document is held to its page above
            continue
        document = client.get(text, params=PAIRS[tab.path]).json()
        assert document == dpplan(*words, "--json").json(), tab.path
        schema = schemas[text]["get"]["responses"]["200"]["content"]["application/json"]["schema"]
        kinds = [entry["$ref"].rpartition("/")[2] for entry in schema.get("anyOf", [schema])]
        assert kinds == [declared(name).__name__ for name in tab.documents]


def test_a_tab_marks_the_knee_and_where_the_plan_is(client: TestClient) -> None:
    """A sweep shades the value from which on more brings little, and outlines the current one; its
    CSV has a line per value; a value in the form may also be swept."""
    items = [*PAIRS["/sweep"], ("micro_batch", "2")]
    text = client.get("/sweep", params=items).text
    matches = re.findall(r'<tr(?: class="(\w+)")?><th scope="row" class="n">([\d,]+)</th>', text)
    marks = {value: mark for mark, value in matches}
    curve = client.get("/api/sweep", params=items).json()["curves"][0]
    per_gpu = {f"{p['value']:,g}": p["tokens_per_s_per_gpu"] for p in curve["points"] if p["fits"]}
    best = max(per_gpu.values())
    knee = next(name for name, value in per_gpu.items() if value >= 0.95 * best)
    assert marks[knee] == "here"
    near = [name for name, value in per_gpu.items() if value >= 0.95 * best]
    last = "on" if near[-1] == list(per_gpu)[-1] else f"to {near[-1]}"
    where = f"from micro batch {knee} {last}" if last == "on" or len(near) > 1 else f"at {knee}"
    assert f"of the best throughput per GPU {where}" in text
    assert marks["2"] == ("here" if knee == "2" else "now")
    sheet = client.get("/sweep.csv", params=items)
    assert sheet.headers["content-type"].startswith("text/csv")
    assert len(sheet.text.strip().splitlines()) == 1 + len(curve["points"])
    led = client.get("/sweep", params={"model": "gpt2", "gpu": "a100", "gpus": "2"})
    assert led.status_code == 200  # as another tab leads there
    assert client.get("/api/input?batch=8").status_code == 422
    wrong = client.get("/sweep", params=[*PAIRS["/sweep"][:-3], ("values", "9..1")])
    assert wrong.status_code == 422
    assert "must go up" in wrong.text.split('data-field="values"')[1].split("data-field")[0]


def test_schedules_that_the_software_lacks_are_greyed(client: TestClient) -> None:
    """Greyed schedules are not called the shortest; a window draws only the passes inside it."""
    text = client.get("/schedule", params=PAIRS["/schedule"]).text
    greyed = re.findall(r'<tr class="no"><th scope="row">([\w-]+)</th>', text)
    assert "dualpipe" in greyed
    assert "1f1b" not in greyed
    match = re.search(r"that runs here: ([\w-]+)|none that runs here is shorter", text)
    assert match
    assert match.group(1) not in greyed
    boot = json.loads(text.split('id="boot">')[1].split("</script>")[0])
    low, high = boot["charts"][0]["figure"]["layout"]["xaxis"]["range"]
    assert low == 0.1
    for trace in boot["charts"][0]["figure"]["data"]:
        assert all(start < high for start in trace["base"])
        assert all(a + b > low for a, b in zip(trace["base"], trace["x"], strict=True))


def test_an_error_stands_beside_its_field_and_nothing_is_lost(client: TestClient) -> None:
    """The form keeps the typed values and shows the error beside the wrong one."""
    values = {**TUNED, "epochs": "-3", "examples": "52k", "rank": "8", "clock": "0.9"}
    answer = client.get("/tune", params=values)
    assert answer.status_code == 422
    at = answer.text.index('data-field="epochs"')
    beside = answer.text[at : answer.text.index("data-field", at + 1)]
    assert 'value="-3"' in beside
    assert re.search(r'role="alert">[^<]*must be', beside)
    for name in ("examples", "rank", "clock"):
        assert re.search(rf'name="{name}"[^>]*value="{values[name]}"', answer.text), name
    assert re.search(r'name="gpu" value="rtx4090" checked', answer.text)


def test_panels_compare_explain_and_export_are_pages_too(client: TestClient) -> None:
    for name in tasks.PANELS:
        answer = client.get(f"/panel/{name}", params={**FIXED, "pp": "2", "dp": "2"})
        assert answer.status_code == 200, name
        assert "<table" in answer.text
    assert client.get("/panel/nothing", params=FIXED).status_code == 422
    other = {**FIXED, "gpu": "h100-sxm5-80gb"}
    two = {"a": urlencode(FIXED), "b": urlencode(other)}
    document = client.get("/api/compare", params=two).json()
    assert [row["step"]["seconds"] for row in document["points"]] == [
        client.get("/api/estimate", params=p).json()["step"]["seconds"] for p in (FIXED, other)
    ]
    side = client.get("/compare", params={**two, "b_name": "on Hopper"}).text
    heads = ("Against A", "What makes the difference", "Most tokens/s: on Hopper")
    assert all(text in side for text in heads)  # as `dpplan compare` prints them
    led = {link for link in Page(side).links.values() if "h100" in link}
    step = client.get(f"/api/estimate{led.pop()[1:]}").json()["step"]["seconds"]
    assert step == document["points"][1]["step"]["seconds"]
    assert client.get("/api/compare", params={"a": urlencode(FIXED)}).status_code == 422
    assert "utilisation" in client.get("/explain", params=FIXED).text
    document = client.get("/api/explain", params=FIXED).json()
    figures = ["time", "memory", "throughput", "mfu", "days", "cost", "energy"]
    assert [part["key"] for part in document["parts"]] == figures


def test_every_figure_is_explained_by_its_own_formulas(client: TestClient) -> None:
    """Cost by GPU-seconds and price, days by tokens and goodput, energy by power: none shows
    another's, and every card of the answer leads to one that exists."""
    by_name = {**FIXED, "tokens": "1T"}
    parts = {p["key"]: p for p in client.get("/api/explain", params=by_name).json()["parts"]}
    values = {key: {call["name"] for call in part["calls"]} for key, part in parts.items()}
    assert {"run s", "goodput"} <= values["days"]
    assert values["cost"] == {"run s", "machines usd"}
    assert values["energy"] == {"run s", "drawn frac", "energy j"}
    assert values["mfu"] >= {"model flop", "utilisation"}
    assert values["throughput"] == {"tokens per s"}
    tags = Page(client.get("/", params=by_name).text).tags
    led = {match["data-part"] for tag, match in tags if tag == "a" and "data-part" in match}
    assert led == {"time", "throughput", "mfu", "memory", "days", "cost", "energy"} <= parts.keys()


def test_a_requirement_that_fails_is_said_in_red(client: TestClient) -> None:
    """A plan that fits but takes too long is not green; one that meets all is."""
    values = {**FIXED, "tokens": "10T"}
    late = client.get("/", params={**values, "require": ["fits", "days < 3"]}).text
    assert 'class="verdict no"' in late
    assert "1 of 2 requirements not met" in late
    assert "days &lt; 3 does not hold, here" in late
    fine = client.get("/", params={**values, "require": ["fits", "days > 3"]}).text
    assert 'class="verdict yes"' in fine
    assert "days &gt; 3 holds, here" in fine


def test_what_a_run_takes_has_a_band(client: TestClient) -> None:
    """Days, cost and energy show the ends that the document has."""
    values = {**FIXED, "tokens": "1T"}
    run = client.get("/api/estimate", params=values).json()["run"]
    page = client.get("/", params=values).text
    for value, unit in (("days", "days"), ("cost_usd", "USD"), ("energy_kwh", "kWh")):
        low, high = (run[value] * run[end] for end in ("low", "high"))
        assert f"80 % band {span(low, high, unit)}" in page, value


def test_advice_leads_to_what_it_promises(client: TestClient) -> None:
    values = {"model": "llama-2-7b", "gpu": "rtx4090", "gpus": "2", "seq_len": "2048"}
    values["stack"] = "pytorch-fsdp"
    document = client.get("/api/estimate", params=values).json()
    assert not document["memory"]["fits"]
    late = client.get("/page/late", params=values).json()
    links = [
        href for label, href in Page(late["advice"]).links.items() if label.startswith("Apply: ")
    ]
    assert len(links) == len(document["advice"]) > 2
    for link, entry in list(zip(links, document["advice"], strict=True))[:3]:
        led = client.get(f"/api/estimate{link[1:]}&advice=0").json()
        assert led["memory"]["fits"]
        assert led["step"]["seconds"] == pytest.approx(entry["step_seconds"], rel=1e-12)


def test_a_query_reads_back_as_its_state() -> None:
    request = state.of_mapping(
        {
            "model": "gpt2",
            "gpu": "a100",
            "gpus": 8,
            "flash_attention": False,
            "sequence_parallel": True,
            "tp": 2,
            "clock": 0.5,
            "power_limit": "250 W",
            "tokens": "1T",
            "price": 1.5,
            "nic_bandwidth": "200 Gbit/s",
        }
    )
    assert state.of_pairs(parse_qsl(request.query)).query == request.query


def test_an_address_quotes_as_browsers_do(client: TestClient) -> None:
    plain = "&".join(
        f"{k}={quote(v, safe='')}" for k, v in {**FIXED, "power_limit": "300 W"}.items()
    )
    assert (
        client.get(f"/api/estimate?{plain}").json()
        == client.get("/api/estimate", params={**FIXED, "power_limit": "300 W"}).json()
    )


def test_the_page_speaks_of_images(client: TestClient) -> None:
    """A model of samples is trained in those, on its card and in its explanation."""
    values = {"model": "resnet-50", "gpu": "a100-80gb", "gpus": "8"}
    page = client.get("/", params=values).text
    speed = client.get("/api/estimate", params=values).json()["throughput"]
    assert Page(page).figures["throughput.samples_per_s"] == speed["samples_per_s"]
    assert "images/s per GPU" in page
    assert "tokens/s per GPU" not in page
