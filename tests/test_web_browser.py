"""The dashboard in a real browser: what people come to do, with their clicks counted (the numbers
in brackets: journeys of docs/dashboard.md), no script, no network, accessibility.

Long: one server and one browser, which take seconds to start, are shared by all.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qsl, urlencode, urlsplit

import pytest
from browser import served
from command import ROOT
from person import CLICKS, WAIT_MS, Person, figures, go, launched, settled, state, violations
from playwright.sync_api import Browser, ConsoleMessage, Locator, Page, Request, Route, expect
from web_pages import TABS as PAIRS
from web_pages import at

from planner import api
from planner.specs.document import plain
from planner.specs.options import pairs_of_command
from planner.units import percent, show
from web.presets import presets
from web.state import PAGE, filled, of_pairs
from web.tabs import BY_PATH, TABS, Tab

pytestmark = pytest.mark.browser

FIXED = {
    "model": "llama-2-7b",
    "gpu": "a100-sxm4-80gb",
    "gpus": "8",
    "tp": "2",
    "pp": "1",
    "zero": "1",
    "recompute": "selective",
    "micro_batch": "1",
    "global_batch": "64",
    "tokens": "1T",
    "stack": "megatron-core",
}
SHORT = {"model": "llama-2-7b", "gpu": "rtx4090", "gpus": "2", "seq_len": "2048"}


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with served() as result:
        yield result


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with launched() as result:
        yield result


@dataclass
class Watched:
    """The one page of all tests, and what went wrong on it."""

    page: Page
    wrong: list[str]


@pytest.fixture(scope="module")
def watched(browser: Browser, address: str) -> Watched:
    context = browser.new_context(accept_downloads=True)
    context.set_default_timeout(WAIT_MS)
    result = Watched(context.new_page(), [])

    def note_error(message: ConsoleMessage) -> None:
        if message.type == "error" and "422" not in message.text:
            result.wrong.append(message.text)

    def note_request(request: Request) -> None:
        if not request.url.startswith((address, "data:", "blob:")):
            result.wrong.append(f"asked {request.url}")

    result.page.on("pageerror", lambda error: result.wrong.append(error.stack or str(error)))
    result.page.on("console", note_error)
    result.page.on("request", note_request)
    return result


@pytest.fixture
def page(watched: Watched) -> Iterator[Page]:
    """A page that fails the test when a script fails, when anything is refused by the policy, or
    when it asks elsewhere. The next test finds nothing that this one kept."""
    watched.wrong.clear()
    result = watched.page
    result.set_viewport_size({"width": 1360, "height": 900})
    result.emulate_media(media="null", color_scheme="null", reduced_motion="null")
    yield result
    result.unroute_all(behavior="ignoreErrors")
    result.evaluate("() => localStorage.clear()")
    assert watched.wrong == []


def read(request: dict[str, str]) -> api.Options:
    """The options of an address: tests of the server compare those with the command."""
    return of_pairs(list(request.items())).options


def test_journeys_on_one_plan(page: Page, address: str) -> None:
    """The numbers of the command line (journey 9), their formulas (8), a link (5), numbers that no
    list has (17), a batch in tokens, and figures before and after: one load of the page."""
    go(page, address, FIXED)
    person, estimate = Person(page), api.estimate(read(FIXED))
    result = figures(page)
    assert result["step.seconds"] == estimate.step.seconds
    assert result["memory.device_bytes"] == estimate.memory.device_bytes
    assert result["run.cost_usd"] == estimate.run.cost_usd
    expect(page.locator("#answer .picture svg")).to_have_count(3)  # in sight, and drawn
    expect(page.locator("#answer .picture svg").last).to_be_in_viewport()
    for name in ("memory-phases", "step-time"):  # a single stage has no chart of stages
        expect(page.locator(f"#chart-{name} .drawn")).to_be_visible()
    expect(page.locator("#assumed")).to_contain_text("% of what moves the step time is assumed")
    chart = page.locator("#chart-step-time")
    for kind, start in (("csv", b"part,time (s)"), ("png", b"\x89PNG"), ("svg", b"<svg")):
        content = person.download(chart.locator(f"[data-kind={kind}]")).read_bytes()
        person.did(9)
        assert content.startswith(start)
        if kind == "csv":
            assert float(content.decode().splitlines()[-1].split(",")[1]) == result["step.seconds"]

    assert not page.evaluate("'Plotly' in window")  # which only a chart opened large loads
    chart.locator("[data-kind=large]").click()
    expect(page.locator(".large-plot .main-svg").first).to_be_visible()
    page.keyboard.press("Escape")

    drawer, shown = page.locator("#drawer"), {}
    for part in ("cost", "days", "energy", "mfu"):  # each is explained by its own formulas
        person.click(f".card a[data-part={part}]")
        person.did(8)
        expect(drawer.locator(f"[data-part={part}]")).to_be_visible()
        shown[part] = drawer.locator(f"[data-part={part}]").inner_text()
        page.keyboard.press("Escape")
    assert len(set(shown.values())) == len(shown)
    assert "machines usd" in shown["cost"]

    page.evaluate("() => { navigator.clipboard.writeText = async (x) => { window.copied = x } }")
    person.click("#share")
    person.did(5)
    expect(page.locator(".toast")).to_contain_text("It works on this machine only")
    assert page.evaluate("window.copied") == page.url
    page.evaluate("() => { navigator.clipboard.writeText = () => Promise.reject(Error()) }")
    with page.expect_event("dialog") as request:
        page.once("dialog", lambda dialog: dialog.dismiss())
        person.click("#share")
    assert request.value.default_value == page.url

    person.clicks = 0
    person.type("Global batch size", "1.475M tokens")
    person.did(17)
    expect(page).to_have_url(re.compile("global_batch=360"))  # of 4,096 tokens: 360.1
    person.type("Number of GPUs", "24")
    person.did(17)
    expect(page).to_have_url(re.compile("gpus=24"))
    settled(page)
    expect(page.locator("#f-gpus option").first).not_to_have_text(re.compile("auto"))
    expect(page.locator("#f-dp option").first).to_have_text("auto (12)")
    expect(page.locator("h1")).to_contain_text("24 x")
    expect(page.locator("[data-field=global_batch] .note")).to_contain_text("360 x 4,096 = 1.47M")
    line = page.locator(".against")
    expect(line).to_contain_text("Number of GPUs 8 → 24; Global batch size 64 → 360")
    was = page.locator(".card a[data-key='step.seconds'] .was")
    change = figures(page)["step.seconds"] / result["step.seconds"] - 1
    shown_before = show(result["step.seconds"], "s")
    expect(was).to_contain_text(f"was {shown_before}, {percent(change, 1, sign=True)}")
    person.click("#pin")
    expect(was).to_have_count(0)
    person.click("#unpin")
    page.go_back()
    settled(page)
    page.mouse.wheel(0, 2000)
    expect(page.locator(".bar")).to_be_visible()
    for key, unit in (("step.seconds", "s"), ("run.days", "days"), ("run.cost_usd", "USD")):
        expect(page.locator(".bar")).to_contain_text(show(figures(page)[key], unit))


def test_what_is_taken_along_is_read_back(page: Page, address: str, tmp_path: Path) -> None:
    """A report, a picture, an answer as JSON and a scenario file (9, 13); the theme (16): paper is
    light, and says date, version, inputs and assumptions."""
    values = {**FIXED, "price": "2.25", "power_limit": "300 W", "flash_attention": "false"}
    go(page, address, values)
    result, person = figures(page), Person(page)
    person.click("#export")
    command = page.locator("#drawer pre.command").first
    expect(command).to_contain_text("dpplan estimate --model llama-2-7b")
    given = pairs_of_command(command.inner_text(), api.Options, "estimate")
    assert api.estimate(of_pairs(given).options).step.seconds == result["step.seconds"]
    picture = person.download("[data-card=svg]")
    person.did(13)
    assert person.download("[data-card=png]").read_bytes().startswith(b"\x89PNG")
    report = person.download(page.get_by_role("link", name="Report (HTML)"))
    answer = person.download(page.get_by_role("link", name="JSON document"))
    page.keyboard.press("Escape")
    Person(page).type("Number of GPUs", "16")
    expect(page).to_have_url(re.compile("gpus=16"))
    for first, name in ((report, "report.html"), (picture, "answer.svg"), (answer, "answer.json")):
        file = tmp_path / name
        file.write_bytes(first.read_bytes())
        page.locator("#scenario-file").set_input_files(file)
        expect(page).to_have_url(re.compile("gpus=8"))
        settled(page)
        assert figures(page) == result, name
        page.go_back()
        settled(page)
    assert figures(page) != result
    button = page.locator("#theme")
    button.click()
    button.click()
    expect(button).to_contain_text("Theme: dark")
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.reload()
    settled(page)
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == dark
    expect(page.get_by_label("Power limit", exact=True)).to_have_value("300 W")
    expect(page.get_by_label("FlashAttention", exact=True)).to_have_value("false")
    tick = page.locator("#chart-step-time .axis text").first
    on_screen = tick.evaluate("one => getComputedStyle(one).fill")
    page.evaluate("window.print = () => dispatchEvent(new Event('beforeprint'))")
    person.clicks = 0
    person.click("#print")
    person.did(16)
    page.emulate_media(media="print")
    expect(tick).not_to_have_css("fill", on_screen)  # paper is light, and so are charts on it
    expect(page.locator("#inputs")).to_be_hidden()
    expect(page.locator(".paper")).to_have_text(re.compile(r"dpplan \d+\.\d+\.\d+, \d{4}-"))
    expect(page.locator("#command")).to_be_visible()  # every input
    expect(page.locator("#answer details li").first).to_be_visible()
    expect(page.locator("[data-panel] .wait").first).to_be_hidden()  # nothing that asks for a click


def test_each_kind_of_input_changes_the_answer_and_back_undoes_it(page: Page, address: str) -> None:
    """Another model, then another GPU (1); a slider, a text."""
    go(page, address, FIXED)
    person, first = Person(page), figures(page)
    person.search("Model", "llama 2 13")  # a list, by search
    expect(page).to_have_url(re.compile("model=llama-2-13b"))
    settled(page)
    second = figures(page)
    assert second["step.seconds"] > first["step.seconds"]
    person.search("GPU", "h100 sxm")
    person.did(1)
    expect(page).to_have_url(re.compile("gpu=h100-sxm5-80gb"))
    settled(page)
    faster = figures(page)
    assert faster["step.seconds"] < second["step.seconds"]
    slider = page.get_by_role("slider", name="Global batch")  # a slider, by keyboard
    slider.focus()
    slider.press("ArrowRight")
    settled(page)
    assert state(page)["global_batch"] == "128"
    third = figures(page)
    assert third["step.seconds"] > 1.5 * faster["step.seconds"]
    price = page.get_by_label("Price per GPU-hour (USD)")  # a text
    price.fill("1.5")
    price.press("Enter")
    settled(page)
    assert state(page)["price"] == "1.5"
    assert figures(page)["run.cost_usd"] != third["run.cost_usd"]
    for before in (third, faster, second, first):
        page.go_back()
        settled(page)
        assert figures(page) == before
    expect(slider).to_have_attribute("aria-valuetext", "64")
    expect(page.get_by_label("Model", exact=True)).to_have_value("llama-2-7b")
    slider = page.get_by_role("slider", name="Pipeline parallel")  # an impossible step says why
    slider.focus()
    for _ in range(6):
        slider.press("ArrowRight")
    settled(page)  # an answer that arrives late would take back what End says
    slider.press("End")
    expect(page.locator("[data-field=pp] .hint.bad")).to_be_visible()
    expect(slider).to_have_attribute("aria-valuetext", re.compile("not possible"))
    settled(page)
    assert state(page).get("pp") in ("1", "2", "4")  # what was passed on the way and is possible


def test_an_answer_that_arrives_while_somebody_types_takes_nothing_back(
    page: Page, address: str
) -> None:
    """The choices of the form come a moment after a change, perhaps between two keys of the next
    field: what is typed stays until Enter, and Escape or leaving brings back what holds."""
    go(page, address, FIXED)
    person = Person(page)
    person.type("Global batch size", "128")
    field = page.get_by_role("textbox", name="Number of GPUs", exact=True)
    field.click()
    with page.expect_response(lambda response: "/page/form?" in response.url):
        page.keyboard.type("1")
    settled(page)
    page.keyboard.type("6")
    expect(field).to_have_value("16")
    field.press("Enter")
    expect(page).to_have_url(re.compile("gpus=16"))
    settled(page)
    page.keyboard.type("7")
    field.press("Escape")
    expect(field).to_have_value("16")


def test_advice_is_applied_by_a_click_unless_it_is_of_before(page: Page, address: str) -> None:
    """Why it does not fit, and what helps (2). While newer figures are on their way the old ones
    are marked, and Apply on old advice undoes nothing."""
    go(page, address, SHORT)
    person = Person(page)
    expect(page.locator(".badge")).to_contain_text("It does not fit")
    button = page.get_by_role("link", name=re.compile("^Apply: 4x the GPUs")).first
    expect(button).to_be_visible()
    items: list[Route] = []
    page.route(re.compile("/page/(view|late)"), lambda route: items.append(route))
    Person(page).type("Sequence length", "1024")
    expect(page.locator("#answer")).to_have_attribute("aria-busy", "true")
    changed = page.url
    assert "seq_len=1024" in changed
    button.dispatch_event("click")  # Playwright waits for what is disabled, people do not
    expect(page.locator(".toast")).to_contain_text("previous figures")
    assert page.url == changed
    for entry in items:
        entry.continue_()
    page.unroute_all(behavior="ignoreErrors")
    settled(page)
    expect(page.locator("#answer")).to_have_attribute("aria-busy", "false")
    page.go_back()
    settled(page)
    person.clicks = 0
    expect(button).to_be_visible()
    expect(page.locator("#advice")).to_have_attribute("aria-busy", "false")
    person.click(button)
    settled(page)
    person.did(2)
    assert state(page)["gpus"] == "8"
    expect(page.locator(".badge")).to_contain_text("It fits")
    expect(page.locator(".against")).to_contain_text("Number of GPUs 2 → 8")
    page.go_back()
    settled(page)
    expect(page.locator(".badge")).to_contain_text("It does not fit")
    person.click(page.locator("[data-group=run] summary", has_text="More"))  # a requirement
    page.locator("#f-require").fill("step < 1 s; fits")
    page.locator("#f-require").press("Enter")
    expect(page.locator(".badge")).to_contain_text("requirements not met")


def test_every_panel_is_drawn_and_from_there_tabs_go_on(page: Page, address: str) -> None:
    """A point of the front fixes its layout (18); the pipeline, in a window of time (10); which
    batch and number of GPUs pay (7); the cheapest cluster for 30 days (3)."""
    values = {
        "model": "gpt2",
        "gpu": "a100-sxm4-80gb",
        "gpus": "4",
        "global_batch": "16",
        "pp": "2",
    }
    go(page, address, {**values, "schedule": "1f1b", "stack": "megatron-core"})
    person = Person(page)
    for name in ("scaling", "roofline", "schedule", "crossover", "measured", "pareto"):
        # in one step: a panel above that arrives meanwhile replaces what stood there
        page.evaluate(
            "panel => document.querySelector(panel).scrollIntoView()",
            f"[data-panel={name}] section",
        )
        expect(page.locator(f"#chart-{name} .drawn")).to_be_visible()
        expect(page.locator(f"#chart-{name} .summary")).not_to_be_empty()
    chart = page.locator("#chart-pareto")
    chart.locator("summary").click()
    rows = chart.locator("tbody tr")
    expect(rows.first).to_be_visible()
    slowest = rows.last.locator("a").inner_text()
    person.click(chart.locator(".drawn a").last)
    person.did(18)
    expect(page).to_have_url(re.compile("micro_batch="))
    settled(page)
    assert show(figures(page)["step.seconds"], "s") == slowest
    filled = {name for name in state(page) if f"from.{name}" in state(page)}
    text = page.locator(".against").inner_text()
    more = re.search(r"and (\d+) more", text)
    assert text.count("→") + int(more[1] if more else 0) == len(filled) > 0
    expect(page.locator("#chart-heat-map")).to_be_attached()

    result = page.locator("#found")
    person.tab("Plan", "Schedule")
    whole = page.locator(".verdict-line").inner_text()
    person.click(page.get_by_role("link", name="Zoom in"))
    person.did(10)
    assert page.locator(".verdict-line").inner_text() == whole
    expect(page.locator("#f-begin")).not_to_have_value("")
    anyone_reads(page, "/schedule")
    person.tab("Sweep", "Batch")
    person.did(7)
    expect(result.locator("tr.here").first).to_be_visible()
    anyone_reads(page, "/batch")
    person.tab("Cluster", "Find a cluster")
    person.write("Training tokens", "100B")
    person.write("Within days", "30")
    page.keyboard.press("Enter")
    expect(page.locator(".verdict-line")).to_contain_text("Cheapest")
    anyone_reads(page, "/recommend")
    person.click(result.locator("tr.here a"))
    person.did(3)
    settled(page)
    expect(page.locator(".badge")).to_contain_text("It fits")
    assert figures(page)["run.days"] <= 30


WALKED = {"/schedule", "/batch", "/recommend"}  # to which journeys lead


def anyone_reads(page: Page, path: str) -> None:
    """On the page of a tab at the width of a phone: its name in the bar is marked and in sight,
    charts are drawn, nothing is cut, and axe finds nothing."""
    wide = page.viewport_size
    page.set_viewport_size({"width": 390, "height": 844})
    page.emulate_media(reduced_motion="reduce")
    tab = BY_PATH[path]
    assert isinstance(tab, Tab)
    expect(page.locator("h1")).to_have_text(tab.title)
    current = page.locator(".tabs [aria-current=page]")
    expect(current).to_have_text(tab.name)
    expect(page.locator(".meanwhile, #found.old, [aria-busy=true]")).to_have_count(0)
    page.wait_for_timeout(300)  # a page at rest, with nothing on its way in or out
    for plot in page.locator("#found .plot").all():
        expect(plot.locator(".drawn")).to_be_visible()
    page.wait_for_function("() => document.documentElement.scrollWidth <= innerWidth")
    assert violations(page) == [], path
    if wide:
        page.set_viewport_size(wide)


def test_scenarios_are_compared_saved_and_loaded(page: Page, address: str) -> None:
    """Layouts side by side (4), a scenario saved and loaded (13)."""
    go(page, address, FIXED)
    person = Person(page)
    person.click("#add")
    page.get_by_label("Name of the scenario", exact=True).fill("base")
    person.click(page.get_by_role("button", name="Save scenario").last)
    person.choose("GPU", "h100-sxm5-80gb")
    settled(page)
    second = figures(page)
    person.click("#add")
    person.click(page.get_by_role("link", name="base", exact=True))
    settled(page)
    assert state(page) == FIXED
    first = figures(page)
    person.click(page.get_by_role("link", name="Compare 2"))
    table = page.get_by_role("group", name=re.compile("by scenario"))
    expect(table.locator("tbody tr")).to_have_count(2)
    for row, answer in zip(table.locator("tbody tr").all(), (first, second), strict=True):
        expect(row).to_contain_text(show(answer["step.seconds"], "s"))
    person.did(4)
    assert len(set(table.get_by_role("rowheader").all_inner_texts())) == 2
    expect(page.locator("#chart-parts .drawn")).to_be_visible()


def test_a_config_and_a_calibration_are_pasted_and_uploaded(page: Page, address: str) -> None:
    """A config.json is pasted and answered at once (6); the chosen model comes back when it is
    cleared; a calibration is a file (11)."""
    fixed = {"tp": "2", "pp": "1", "zero": "1", "recompute": "full", "global_batch": "64"}
    go(page, address, {"model": "gpt2", "gpu": "rtx4090", "gpus": "4", "seq_len": "1024", **fixed})
    text = (ROOT / "tests" / "configs" / "llama-3.1-8b.json").read_text(encoding="utf-8")
    person = Person(page)
    person.click(page.get_by_text("Paste a config.json or a model TOML").first)
    field = page.locator("#f-config")
    person.click(field)
    field.evaluate(
        "(one, text) => { one.value = text; one.dispatchEvent(new ClipboardEvent('paste')) }", text
    )
    expect(page.locator("h1")).to_contain_text("llama model of model.json")
    person.did(6)
    expect(page.get_by_label("Model", exact=True)).to_have_value("")
    settled(page)
    before = figures(page)["step.seconds"]
    person.click(page.get_by_text("Paste a calibration file").first)
    page.locator("#calibration-file").set_input_files(
        ROOT / "docs" / "examples" / "calibration.toml"
    )
    person.did(11)
    settled(page)
    expect(page.locator("#rests")).to_contain_text("What the calibration changes")
    assert figures(page)["step.seconds"] > before
    assert json.loads(state(page)["config"])["model_type"] == "llama"
    page.get_by_label("Model", exact=True).select_option("gpt2")
    expect(page.locator("h1")).to_contain_text("GPT-2")
    assert "config" not in state(page)


def test_files_of_a_run_are_dropped(page: Page, browser: Browser, address: str) -> None:
    """A log is dropped beside its script; options change what is predicted while the files stay;
    the calibration is taken along. On a phone, too, and without a script."""
    page.set_viewport_size({"width": 390, "height": 844})
    page.emulate_media(reduced_motion="reduce")
    page.goto(f"{address}/run")
    files = [ROOT / "docs" / "examples" / name for name in ("train.sh", "train.log")]
    page.locator("#f-files").set_input_files(files[:1])
    verdict = page.locator(".verdict-line")
    expect(verdict).to_contain_text("do not say --gpu")
    page.get_by_label("GPU", exact=True).select_option("h100-sxm5-80gb")
    texts = {file.name: file.read_text(encoding="utf-8") for file in files}
    page.evaluate(
        "texts => { const dataTransfer = new DataTransfer(); for (const [name, text] of"
        " Object.entries(texts)) dataTransfer.items.add(new File([text], name));"
        " document.body.dispatchEvent(new DragEvent('drop', { bubbles: true, dataTransfer })); }",
        texts,
    )
    expect(verdict).to_contain_text("8.42 s measured")
    before = verdict.inner_text()
    expect(page.locator("#found")).to_contain_text("Llama 3 8B on 64 x NVIDIA H100")
    page.get_by_label("GPU", exact=True).select_option("a100-sxm4-80gb")
    page.get_by_role("button", name="Read and check").click()
    expect(verdict).to_contain_text("Faster than the band")
    assert verdict.inner_text() != before
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
    assert violations(page) == []
    saved = Person(page).download(page.get_by_role("link", name="my-cluster.toml", exact=True))
    assert "sustained_clock" in saved.read_text(encoding="utf-8")
    page.get_by_role("link", name="Open on the page of plans").click()
    expect(page.locator("h1")).to_contain_text("Llama 3 8B on 64")
    context = browser.new_context(java_script_enabled=False)
    plain = context.new_page()
    plain.goto(f"{address}/run?gpu=h100-sxm5-80gb")
    plain.locator("#f-files").set_input_files(files)
    plain.get_by_role("button", name="Read and check").click()
    expect(plain.locator(".verdict-line")).to_have_text(before)
    context.close()


def test_by_keyboard_alone(page: Page, address: str) -> None:
    """Two keys lead to the inputs (14); shortcuts are listed, and can be switched off; a published
    run leads to the next."""
    first, second = list(presets())[:2]
    page.goto(f"{address}/?preset={first}")
    expect(page.locator(".preset")).to_contain_text(presets()[first].measured)
    expect(page.locator("body[data-late]")).to_be_attached()
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")  # past the heading of the first group, which folds
    page.keyboard.press("Tab")
    expect(page.get_by_role("searchbox", name="Model: search the list")).to_be_focused()
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("?")
    expect(page.locator("#drawer kbd")).to_have_count(12)
    assert violations(page, "#drawer") == []
    page.get_by_label("Turn them off, except ?").check()
    page.keyboard.press("Escape")
    page.keyboard.press("]")
    page.keyboard.press("?")
    page.get_by_label("Turn them off, except ?").uncheck()
    page.keyboard.press("Escape")
    assert f"preset={first}" in page.url
    page.keyboard.press("]")
    expect(page).to_have_url(re.compile(f"preset={second}"))


def test_without_a_script_it_is_a_form(browser: Browser, address: str) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(f"{address}/?{urlencode({**FIXED, 'wait': '1'})}")
    step = float(str(page.locator(".card a[data-key='step.seconds'] data").get_attribute("value")))
    assert step == api.estimate(read(FIXED)).step.seconds
    expect(page.locator("#advice-body")).not_to_contain_text("Looking for")
    page.get_by_label("Recompute", exact=True).select_option("full")
    page.get_by_role("button", name="Estimate").click()
    assert state(page)["recompute"] == "full"
    slower = float(
        str(page.locator(".card a[data-key='step.seconds'] data").get_attribute("value"))
    )
    assert slower > step
    expect(page.locator("#chart-memory-phases .drawn")).to_be_visible()  # charts, too
    page.locator("#chart-memory-phases summary").click()
    expect(page.locator("#chart-memory-phases tbody tr").first).to_be_visible()
    page.locator("[data-panel=scaling] a.compute").click()
    expect(page.locator("h1")).to_have_text("Scaling over GPUs")
    page.goto(f"{address}/?{urlencode({**FIXED, 'tp': '3'})}")
    expect(page.get_by_role("alert")).to_contain_text("take divisors of it")
    context.close()


def test_no_width_cuts_anything_and_a_phone_has_it_in_sight(page: Page, address: str) -> None:
    """On a phone the answer comes first and stays in sight, inputs follow and fold (12)."""
    page.set_viewport_size({"width": 390, "height": 844})
    go(page, address, FIXED)
    person = Person(page)
    bar = page.locator(".bar")
    for entry in (page.locator(".badge"), page.locator(".card").first, bar):
        expect(entry).to_be_in_viewport()
    assert page.locator("#form details.group[open]").count() == 2
    expect(bar).to_contain_text(show(figures(page)["step.seconds"], "s"))
    person.choose("GPU", "h100-sxm5-80gb")
    person.did(12)
    settled(page)
    expect(bar).to_contain_text(show(figures(page)["step.seconds"], "s"))
    expect(bar).to_be_in_viewport()
    bar.click()
    expect(page.locator("h1")).to_be_in_viewport()
    paths = (f"/explain?{urlencode(FIXED)}", f"/compare?{urlencode(COMPARED)}")
    for path in ("", *paths, "/reference", "/presets", "/glossary"):
        if path:
            page.goto(f"{address}{path}")
        for width in (360, 768, 3840):
            page.set_viewport_size({"width": width, "height": 900})
            page.wait_for_function("w => document.documentElement.scrollWidth <= w", arg=width)


def test_every_tab_is_reached_by_keys_and_read_by_anyone(page: Page, address: str) -> None:
    """On a phone: a tab opens with Enter and takes model and GPUs along."""
    page.set_viewport_size({"width": 390, "height": 844})
    values = {"model": "gpt2", "gpu": "a100-sxm4-80gb", "gpus": "8"}
    page.goto(f"{address}/export?{urlencode(values)}")
    page.locator(".tabs a[data-path='/strategies']").focus()
    page.keyboard.press("Enter")
    expect(page.locator(".tabs [aria-current=page]")).to_have_text("Strategies")
    assert dict(parse_qsl(urlsplit(page.url).query)) == values
    paths = {tab.path for tab in TABS if isinstance(tab, Tab)}
    for path in sorted(paths - WALKED):
        page.goto(f"{address}{path}?{urlencode(PAIRS[path])}")
        anyone_reads(page, path)
        expect(page.locator(".tabs [aria-current=page]")).to_be_in_viewport()


# thousands of marks and labels, which axe reads one by one and whose contrast it cannot tell
PLAIN = {"exclude": [[".drawn"]]}
COMPARED = {"a": urlencode(FIXED), "b": urlencode(SHORT)}


def test_nothing_stands_in_anyones_way(page: Page, address: str) -> None:
    """axe finds no violation on any page, with its drawer open, nor where a request is wrong."""
    page.emulate_media(reduced_motion="reduce")
    request = urlencode({**FIXED, "pp": "2", "vpp": "1", "schedule": "1f1b"})
    page.goto(f"{address}/?{request}")
    settled(page)
    page.locator("[data-panel=pareto] section").first.scroll_into_view_if_needed()
    expect(page.locator("#chart-heat-map .drawn")).to_be_visible()
    expect(page.locator("#rests-body details").first).to_be_attached()
    page.get_by_label("GPU", exact=True).select_option("h100-sxm5-80gb")  # before and after
    settled(page)
    expect(page.locator(".was").first).to_be_visible()
    page.evaluate(  # of the tables beside charts, which are alike, one
        "document.querySelectorAll('details:not(.twin), #chart-heat-map details')"
        ".forEach(one => one.open = true)"
    )
    page.wait_for_timeout(200)
    # the structure is the same in both schemes; colours are on the first page and on the comparison
    assert violations(page, PLAIN) == []
    page.emulate_media(color_scheme="dark")
    page.wait_for_timeout(200)
    assert violations(page, PLAIN, ["color-contrast"]) == []
    page.locator(".card a").first.click()
    expect(page.locator("#drawer-body [data-part=time]")).to_be_visible()
    assert violations(page, "#drawer") == []
    for path in (
        f"/compare?{urlencode(COMPARED)}",
        f"/?{urlencode({**FIXED, 'tp': '3'})}",
        f"/explain?{request}",
        f"/export?{request}",
        f"/report?{request}",
        f"/panel/roofline?{request}",
        "/compare",
        "/reference",
        "/presets",
        "/glossary",
    ):
        page.goto(f"{address}{path}")
        assert violations(page) == [], path
        page.emulate_media(color_scheme="light")


def test_a_lesson_follows_its_inputs(page: Page, address: str) -> None:
    """A slider moves the text, a formula, a chart and the address; an answer stays open."""
    page.goto(f"{address}/learn/zero")
    page.locator("details.question").first.click()
    expect(page.locator("main")).to_contain_text("245 GB")  # 2 x 140 GB x 7/8
    bar = page.locator(".bar-track").nth(3).locator("i").first
    before = bar.bounding_box()
    page.locator("[data-for=in-ranks]").fill("4")
    expect(page.locator("#in-ranks")).to_have_value("64")
    expect(page.locator("main")).to_contain_text("276 GB")
    expect(page.locator(".equation-box").first).to_contain_text("shard_ranks 64")
    after = bar.bounding_box()
    assert before
    assert after
    assert after["width"] < before["width"] / 4  # parameters under ZeRO-3: 1/64 in place of 1/8
    expect(page).to_have_url(re.compile("ranks=64"))
    expect(page.locator("details.question").first).to_have_attribute("open", "")
    page.locator("#in-billions").fill("7")
    expect(page.locator("main")).to_contain_text("27.6 GB")


# ------------------------------------------------------------------------------ more journeys


def answered(page: Page) -> Locator:
    """The answer of a tab, where none is on its way."""
    expect(page.locator(".tab-form")).not_to_have_attribute("aria-busy", "true")
    expect(page.locator("#found .verdict-line")).to_be_visible()
    return page.locator("#found")


def opened(page: Page, url: str) -> None:
    """A page whose answer comes in parts, for which the tests wait by what it says."""
    page.goto(url, wait_until="commit")


QUICK = {"stack_defaults": "true"}  # kernels are not searched, which takes most of the time
SMALL = {"model": "gpt2", "gpu": "a100-sxm4-80gb", "gpus": "4"}


def test_plans_side_by_side_are_a_link_that_begins_with_what_differs(
    page: Page, address: str
) -> None:
    """Two clusters side by side as a link (19); two pages at once (27)."""
    go(page, address, FIXED)
    person = Person(page)
    person.click("#add")
    person.choose("GPU", "h100-sxm5-80gb")
    settled(page)
    person.click("#add")
    person.click(page.get_by_role("link", name="Compare 2"))
    person.did(19)
    expect(page.get_by_role("heading", name="Inputs that differ")).to_be_visible()
    expect(page.get_by_role("row", name=re.compile("^GPU "))).to_contain_text("h100-sxm5-80gb")
    first = page.locator("main table").all_inner_texts()
    other = page.context.new_page()
    other.goto(page.url)
    assert other.locator("main table").all_inner_texts() == first
    go(page, address, FIXED)
    other.goto(f"{address}/?{urlencode({**FIXED, 'gpus': '16'})}")
    settled(other)
    person.clicks = 0
    person.type("Number of GPUs", "32")
    person.did(27)
    settled(page)
    assert (state(page)["gpus"], state(other)["gpus"]) == ("32", "16")
    expect(other.locator("h1")).to_contain_text("16 x")
    other.close()


def test_a_script_is_cured_and_written(page: Page, address: str, tmp_path: Path) -> None:
    """Script in, what makes it fit, launch files out (20), on one page; each step is a link."""
    script = tmp_path / "train.sh"
    script.write_text(
        "torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 24 --hidden-size 2048"
        " --num-attention-heads 16 --ffn-hidden-size 8192 --seq-length 2048"
        " --max-position-embeddings 2048 --micro-batch-size 16 --global-batch-size 128 --bf16"
        " --vocab-size 50304 --use-flash-attn\n"
    )
    page.goto(f"{address}/run?{urlencode({'gpu': 'rtx4090', **QUICK})}")
    person = Person(page)
    page.locator("#f-files").set_input_files(script)
    expect(page.get_by_role("link", name="Apply what makes it fit")).to_be_visible()
    expect(answered(page)).to_contain_text("DOES NOT FIT")
    person.click(page.get_by_role("link", name="Apply what makes it fit"))
    expect(page.locator("#plan")).to_contain_text("fits")
    saved = person.download(page.locator("#launch a[download]").first)
    person.did(20)
    assert "pretrain_gpt" in saved.read_text(encoding="utf-8")
    page.goto(page.url.replace("#plan", "#launch"))  # a link
    expect(answered(page).locator("#launch a[download]").first).to_be_in_viewport()


def test_kinds_and_cards_are_chosen_where_the_answer_stands(page: Page, address: str) -> None:
    """The cheapest of three kinds (21), which card for a model (22), a network and its knee (24):
    a choice is answered on the page, with undo and redo (26)."""
    person = Person(page)
    opened(page, f"{address}/recommend?{urlencode(PAIRS['/recommend'])}")
    expect(answered(page)).to_contain_text("of 2 kinds")
    person.click(page.locator(".several summary").first)
    person.click(page.get_by_role("checkbox", name="NVIDIA H100 SXM5 80 GB", exact=True))
    expect(page.locator("#found")).to_contain_text("of 3 kinds")
    assert page.url.count("gpu=") >= 3
    expect(page.locator("#chart-recommend-kinds .drawn a")).to_have_count(3)
    person.click(answered(page).locator("tr.here a"))
    person.did(21)
    settled(page)
    expect(page.locator(".badge")).to_contain_text("It fits")

    given = {"gpu": "rtx4090", "seq_len": "256", "method": "full", "micro_batch": "1", **QUICK}
    opened(page, f"{address}/tune?{urlencode({'model': 'gpt2', 'recompute': 'none', **given})}")
    expect(answered(page)).to_contain_text("Fine-tuning of")
    person.click(page.locator(".several summary").first)
    person.click(page.get_by_role("checkbox", name="NVIDIA GeForce RTX 3090", exact=True))
    expect(page.locator("#found")).to_contain_text("1 of each of 2 cards")
    expect(page.locator("#chart-tune-cards .drawn a").first).to_be_visible()
    person.click(answered(page).locator("tbody a").first)
    person.did(22)
    settled(page)
    expect(page.locator(".badge")).to_contain_text("It fits")

    layout = {"tp": "1", "pp": "1", "zero": "1", "micro_batch": "8", "recompute": "none"}
    given = {**SMALL, "gpus": "16", **layout, **QUICK, "over": "gpus", "values": "8,16"}
    opened(page, f"{address}/sweep?{urlencode(given)}")
    before = answered(page).locator(".verdict-line").inner_text()
    page.locator("#f-values").fill("")
    person.choose("Sweep", "nic_bandwidth")
    verdict = page.locator("#found .verdict-line")
    expect(verdict).to_contain_text("the current 200 has")
    person.did(24)
    expect(answered(page).locator("tr.now").first).to_contain_text("200")
    after = verdict.inner_text()
    person.click("#undo")
    expect(verdict).to_have_text(before)
    person.click("#redo")
    expect(verdict).to_have_text(after)
    person.did(26)


def test_a_config_goes_through_every_lens(page: Page, address: str) -> None:
    """A pasted model is named on each page (23), and the schedule of its pipeline is read (25)."""
    text = (ROOT / "tests" / "configs" / "llama-3.1-8b.json").read_text(encoding="utf-8")
    given = {**FIXED, "pp": "2", "config": text, "seq_len": "2048"}
    del given["model"]
    go(page, address, given)
    person = Person(page)
    for lens in ("Cluster", "Sweep", "Tune", "Run", "Plan"):
        person.click(page.locator(".tabs").get_by_role("link", name=lens, exact=True).first)
        expect(page.locator(".tabs .lens[aria-current]")).to_have_text(lens)
        expect(page.locator("#strip")).to_contain_text("Config")
    person.did(23)
    settled(page)
    expect(page.locator("h1")).to_contain_text("llama model of model.json")
    person.tab("Plan", "Schedule")
    person.did(25)
    expect(answered(page)).to_contain_text("idle")
    expect(page.locator("#chart-schedule .drawn")).to_contain_text("forward")


def test_a_slow_answer_comes_in_parts_and_is_cancelled(page: Page, address: str) -> None:
    """The first part of a long answer is there while the rest is computed (29)."""
    opened(page, f"{address}/tune?{urlencode(PAIRS['/tune'])}")
    answered(page)
    person = Person(page)
    page.locator("#f-method").fill("")
    page.locator("#f-method").press("Enter")
    expect(page.locator(".meanwhile table").first).to_be_visible()
    person.click(page.get_by_role("button", name="Cancel"))
    person.did(29)
    expect(page.get_by_role("alert")).to_contain_text("Cancelled")
    expect(page.locator(".tab-form")).not_to_have_attribute("aria-busy", "true")


def test_a_link_outlives_the_server_and_its_absence_is_said(page: Page, watched: Watched) -> None:
    """A link opens on a server that has started again (28); without one the page says so, and an
    error names its remedy (30)."""
    person = Person(page)
    with served() as again:
        page.goto(f"{again}/strategies?{urlencode([*PAIRS['/strategies'], ('gpus', '0')][1:])}")
        page.goto(f"{again}/?{urlencode(FIXED)}")
        settled(page)
        assert figures(page)["step.seconds"] == api.estimate(read(FIXED)).step.seconds
        person.did(28)
        page.get_by_label("Recompute", exact=True).focus()
    person.click(page.locator(".tabs").get_by_role("link", name="Tune", exact=True).first)
    expect(page.locator(".away")).to_contain_text("The server does not answer")
    person.did(30)
    expect(page.locator("#answer .value").first).to_be_visible()  # nothing is lost
    watched.wrong.clear()  # the browser's own words for a server that is away


def test_an_answer_stands_in_a_page_of_others(page: Page, browser: Browser, address: str) -> None:
    """`?embed=1` shows only the answer, and only it may stand in a frame."""
    context = browser.new_context()
    outside = context.new_page()
    query = urlencode(FIXED).replace("&", "&amp;")
    frames = [f"<iframe src='{address}/?{query}{more}'></iframe>" for more in ("&amp;embed=1", "")]
    outside.set_content("".join(frames))
    embedded = outside.frame_locator("iframe").first
    expect(embedded.locator(".card .value").first).to_be_visible()
    expect(embedded.locator(".tabs")).to_be_hidden()
    expect(embedded.locator("#inputs")).to_be_hidden()
    expect(outside.frame_locator("iframe").last.locator(".card")).to_have_count(0)
    context.close()


# ----------------------------------------------------------------------------------- random walks

# what a person types on the page of a plan, and what each lens has a field for
TYPED = {
    "Number of GPUs": ("gpus", ("4", "8", "16")),
    "Sequence length": ("seq_len", ("512", "1024")),
    "Global batch size": ("global_batch", ("32", "64")),
    "Price per GPU-hour (USD)": ("price", ("2.5", "1.25")),
    "Tensor parallel": ("tp", ("1", "2")),
}
IN_TABS = {("Tune", "/tune"): "gpus", ("Sweep", "/sweep"): "gpus", ("Plan", "/strategies"): "gpus"}
_SEEDS = [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 40))]


@pytest.mark.parametrize("seed", _SEEDS)
def test_a_walk_ends_with_the_figures_of_the_command(page: Page, address: str, seed: int) -> None:
    """Values typed on the plan and on tabs, in any order: at every plan on the way each figure
    belongs to the typed options."""
    rng = random.Random(seed)
    chosen = {**SMALL, **QUICK, "pp": "1", "cp": "1"}
    go(page, address, chosen)
    for _ in range(6):
        label = rng.choice(sorted(TYPED))
        name, words = TYPED[label]
        word = rng.choice([word for word in words if word != chosen.get(name)])
        field = page.get_by_role("textbox", name=label, exact=True)
        field.fill(word)
        field.press("Enter")
        chosen[name] = word
        expect(page).to_have_url(re.compile(f"{name}={re.escape(word)}"))
        settled(page)
        if rng.random() < 0.4:
            (lens, path), name = rng.choice(sorted(IN_TABS.items()))
            page.locator(f".tabs a[data-path='{path}']").first.evaluate("one => one.click()")
            expect(page.locator(".tabs .lens[aria-current]")).to_have_text(lens)
            field = page.locator(f".tab-form [name={name}]")
            expect(field).to_have_value(chosen[name])
            chosen[name] = rng.choice(("4", "8", "16"))
            field.fill(chosen[name])
            field.press("Enter")
            expect(page).to_have_url(re.compile(f"{path}.*{name}={chosen[name]}"))
            page.locator(".tabs").get_by_role("link", name="Plan", exact=True).first.click()
            expect(page.locator("#form")).to_be_attached()
            settled(page)
        shown = figures(page)
        document = plain(api.estimate(of_pairs(filled([*chosen.items()], PAGE)).options))
        assert shown == {key: pytest.approx(at(document, key), rel=1e-12) for key in shown}
        assert len(shown) > 5


def test_every_journey_of_the_table_is_counted_here() -> None:
    told_by = Path(__file__).read_text(encoding="utf-8")
    assert {int(number) for number in re.findall(r"\.did\((\d+)\)", told_by)} == set(CLICKS)
