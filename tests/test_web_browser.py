"""The dashboard in a real browser: every kind of input, links, keyboards, no script, no network,
accessibility."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import pytest
from axe_playwright_python.sync_playwright import Axe
from browser import chromium, served
from command import ROOT, dpplan
from playwright.sync_api import Browser, BrowserContext, Page, Request, expect, sync_playwright
from web_pages import TUNED

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
WAIT_MS = 30_000
expect.set_options(timeout=WAIT_MS)


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with served() as found:
        yield found


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    import os

    with sync_playwright() as play:
        # root has no sandbox of its own to give away
        made = play.chromium.launch(
            executable_path=chromium(), args=["--no-sandbox"] if os.geteuid() == 0 else []
        )
        yield made
        made.close()


def context_of(browser: Browser, **options: Any) -> BrowserContext:
    context = browser.new_context(
        viewport=options.pop("viewport", {"width": 1360, "height": 900}), **options
    )
    context.set_default_timeout(WAIT_MS)
    return context


@pytest.fixture
def page(browser: Browser, address: str) -> Iterator[Page]:
    """A page that fails the test when a script fails, when anything is refused by the policy, or
    when it asks elsewhere."""
    context = context_of(browser, accept_downloads=True)
    made = context.new_page()
    wrong: list[str] = []
    made.on("pageerror", lambda error: wrong.append(str(error)))
    made.on(
        "console",
        lambda message: (
            wrong.append(message.text)
            if message.type == "error" and "422" not in message.text
            else None
        ),
    )

    def asked(request: Request) -> None:
        if not request.url.startswith((address, "data:", "blob:")):
            wrong.append(f"asked {request.url}")

    made.on("request", asked)
    yield made
    context.close()
    assert wrong == []


def go(page: Page, address: str, asked: dict[str, str]) -> None:
    page.goto(f"{address}/?{urlencode(asked)}")
    settled(page)


def settled(page: Page) -> None:
    """Numbers and charts are those of the address."""
    expect(page.locator("body[data-painted]")).to_be_attached(timeout=WAIT_MS)
    query = urlsplit(page.url).query
    page.wait_for_timeout(30)
    if query:
        expect(page.locator("#answer")).to_have_attribute(
            "data-query", re.compile(".+"), timeout=WAIT_MS
        )
        expect(page.locator("body")).to_have_attribute("data-painted", query, timeout=WAIT_MS)


def figures(page: Page) -> dict[str, float]:
    """The numbers of the answer with every digit."""
    found: dict[str, str] = page.evaluate(
        "Object.fromEntries([...document.querySelectorAll('.card a')].map(a => [a.dataset.key,"
        " a.querySelector('data').value]))"
    )
    return {key: float(value) for key, value in found.items() if value}


def state(page: Page) -> dict[str, str]:
    return dict(parse_qsl(urlsplit(page.url).query))


def said_by_command_line(asked: dict[str, str]) -> dict[str, Any]:
    words = [word for key, value in asked.items() for word in (f"--{key.replace('_', '-')}", value)]
    found: dict[str, Any] = dpplan("estimate", *words, "--json").json()
    return found


def test_it_loads_and_says_what_the_command_line_says(page: Page, address: str) -> None:
    go(page, address, FIXED)
    said = said_by_command_line(FIXED)
    found = figures(page)
    assert found["step.seconds"] == said["step"]["seconds"]
    assert found["memory.device_bytes"] == said["memory"]["device_bytes"]
    assert found["run.cost_usd"] == said["run"]["cost_usd"]
    for name in ("memory-stages", "memory-phases", "step-time"):
        expect(page.locator(f"#chart-{name} .main-svg").first).to_be_visible()
    assert page.locator("#advice-body").inner_text() != ""


def test_each_kind_of_input_changes_the_answer_and_back_undoes_it(page: Page, address: str) -> None:
    go(page, address, FIXED)
    first = figures(page)
    page.get_by_label("Model", exact=True).select_option("llama-2-13b")  # a list
    settled(page)
    assert state(page)["model"] == "llama-2-13b"
    second = figures(page)
    assert second["step.seconds"] > first["step.seconds"]
    slider = page.get_by_role("slider", name="Global batch")  # a slider, by keyboard
    slider.focus()
    slider.press("ArrowRight")
    settled(page)
    assert state(page)["global_batch"] == "128"
    third = figures(page)
    assert third["step.seconds"] > 1.5 * second["step.seconds"]
    price = page.get_by_label("Price per GPU-hour (USD)")  # a text
    price.fill("1.5")
    price.press("Enter")
    settled(page)
    assert state(page)["price"] == "1.5"
    assert figures(page)["run.cost_usd"] != third["run.cost_usd"]
    page.go_back()
    settled(page)
    assert figures(page) == third
    page.go_back()
    settled(page)
    assert figures(page) == second
    expect(page.get_by_role("slider", name="Global batch")).to_have_attribute(
        "aria-valuetext", "64"
    )
    page.go_back()
    settled(page)
    assert figures(page) == first
    expect(page.get_by_label("Model", exact=True)).to_have_value("llama-2-7b")
    page.go_forward()
    settled(page)
    assert figures(page) == second


def test_an_impossible_step_of_a_slider_says_why_and_changes_nothing(
    page: Page, address: str
) -> None:
    go(page, address, FIXED)
    before, query = figures(page), page.url
    slider = page.get_by_role("slider", name="Pipeline parallel")
    slider.focus()
    for _ in range(6):
        slider.press("ArrowRight")
    hint = page.locator("[data-field=pp] .hint.bad")
    settled(page)  # an answer that arrives late would take back what End says
    slider.press("End")
    expect(hint).to_be_visible()
    expect(slider).to_have_attribute("aria-valuetext", re.compile("not possible"))
    settled(page)
    assert state(page).get("pp") in ("1", "2", "4")  # what was passed on the way and is possible
    page.goto(query)
    settled(page)
    assert figures(page) == before


def test_a_link_takes_everything_along(page: Page, browser: Browser, address: str) -> None:
    go(
        page,
        address,
        {**FIXED, "price": "2.25", "power_limit": "300 W", "flash_attention": "false"},
    )
    found = figures(page)
    other = context_of(browser)
    again = other.new_page()
    again.goto(page.url)
    settled(again)
    assert figures(again) == found
    expect(again.get_by_label("Power limit", exact=True)).to_have_value("300 W")
    expect(again.get_by_label("FlashAttention", exact=True)).to_have_value("false")
    other.close()


def test_advice_is_applied_by_a_click(page: Page, address: str) -> None:
    go(page, address, SHORT)
    expect(page.locator(".badge")).to_contain_text("It does not fit")
    button = page.get_by_role("link", name=re.compile("^Apply: 4x the GPUs")).first
    button.click()
    settled(page)
    assert state(page)["gpus"] == "8"
    expect(page.locator(".badge")).to_contain_text("It fits")
    page.go_back()
    settled(page)
    expect(page.locator(".badge")).to_contain_text("It does not fit")


def test_a_point_of_the_front_fixes_its_layout(page: Page, address: str) -> None:
    go(
        page,
        address,
        {
            "model": "gpt2",
            "gpu": "a100-sxm4-80gb",
            "gpus": "4",
            "global_batch": "16",
            "stack": "megatron-core",
        },
    )
    page.locator("[data-panel=pareto]").scroll_into_view_if_needed()
    chart = page.locator("#chart-pareto")
    expect(chart.locator(".main-svg").first).to_be_visible()
    table = page.evaluate("document.querySelector('#chart-pareto .plot').data[1].x")
    chart.scroll_into_view_if_needed()
    page.evaluate("document.querySelector('#chart-pareto .plot').scrollIntoView({block: 'center'})")
    point = page.evaluate(
        "(() => { const b = document.querySelectorAll('#chart-pareto .scatterlayer"
        " .trace')[1].querySelectorAll('path.point');const r = b[b.length -"
        " 1].getBoundingClientRect(); return [r.x + r.width / 2, r.y + r.height / 2]; })()"
    )
    page.mouse.move(*point)
    page.mouse.click(*point)
    expect(page).to_have_url(re.compile("micro_batch="))
    settled(page)
    assert figures(page)["step.seconds"] == pytest.approx(table[-1], rel=1e-12)
    chart.locator("summary").click()
    expect(chart.locator("tbody tr").first).to_be_visible()
    expect(page.locator("#chart-heat-map")).to_be_attached()


def test_every_panel_is_drawn(page: Page, address: str) -> None:
    go(page, address, {**FIXED, "pp": "2", "vpp": "1", "schedule": "1f1b"})
    for name, chart in (
        ("scaling", "scaling"),
        ("roofline", "roofline"),
        ("schedule", "schedule"),
        ("crossover", "crossover"),
        ("measured", "measured"),
    ):
        # in one step: a panel above that arrives meanwhile replaces what stood there
        page.evaluate(
            "panel => document.querySelector(panel).scrollIntoView()",
            f"[data-panel={name}] section",
        )
        expect(page.locator(f"#chart-{chart} .main-svg").first).to_be_visible()
        expect(page.locator(f"#chart-{chart} .summary")).not_to_be_empty()


def test_charts_are_downloaded_as_table_and_pictures(
    page: Page, address: str, tmp_path: Path
) -> None:
    go(page, address, FIXED)
    chart = page.locator("#chart-step-time")
    for kind, start in (("csv", b"part,time (s)"), ("png", b"\x89PNG"), ("svg", b"<svg")):
        with page.expect_download() as found:
            chart.locator(f"[data-kind={kind}]").click()
        target = tmp_path / found.value.suggested_filename
        found.value.save_as(target)
        assert target.suffix == f".{kind}"
        assert target.read_bytes().startswith(start)
    lines = (tmp_path / "step-time.csv").read_text(encoding="utf-8").splitlines()
    assert float(lines[-1].split(",")[1]) == figures(page)["step.seconds"]


def test_scenarios_are_compared_saved_and_loaded(page: Page, address: str, tmp_path: Path) -> None:
    go(page, address, FIXED)
    page.get_by_role("button", name="Add to comparison").click()
    page.get_by_label("Name of the scenario", exact=True).fill("base")
    page.get_by_role("button", name="Save scenario").last.click()
    page.get_by_label("GPU", exact=True).select_option("h100-sxm5-80gb")
    settled(page)
    second = figures(page)
    page.get_by_role("button", name="Add to comparison").click()
    page.get_by_role("link", name="base", exact=True).click()
    settled(page)
    assert state(page) == FIXED
    first = figures(page)
    page.get_by_role("link", name="Compare 2").click()
    steps = page.locator(
        "table.compare tr", has=page.get_by_role("rowheader", name="step", exact=True)
    ).locator("data")
    assert [float(str(steps.nth(i).get_attribute("value"))) for i in range(2)] == [
        first["step.seconds"],
        second["step.seconds"],
    ]
    expect(page.locator("#chart-compare-step .main-svg").first).to_be_visible()
    file = tmp_path / "scenario.toml"
    file.write_text('model = "gpt2"\ngpu = "a100"\ngpus = 4\n', encoding="utf-8")
    go(page, address, FIXED)
    page.get_by_label("Load a scenario file", exact=True).set_input_files(file)
    expect(page).to_have_url(re.compile("model=gpt2"))
    settled(page)
    assert state(page) == {"model": "gpt2", "gpu": "a100", "gpus": "4"}


def test_a_link_is_copied_or_shown(page: Page, address: str) -> None:
    """Nothing is said to be copied that is not: without a clipboard the link itself is shown."""
    go(page, address, FIXED)
    page.evaluate("() => { navigator.clipboard.writeText = async (x) => { window.copied = x } }")
    page.get_by_role("button", name="Copy link").click()
    expect(page.locator(".toast")).to_contain_text("it works on this machine alone")
    assert page.evaluate("window.copied") == page.url
    page.evaluate("() => { navigator.clipboard.writeText = () => Promise.reject(Error()) }")
    with page.expect_event("dialog") as shown:
        page.once("dialog", lambda dialog: dialog.dismiss())
        page.get_by_role("button", name="Copy link").click()
    assert shown.value.default_value == page.url


def test_any_number_can_be_typed(page: Page, address: str) -> None:
    """24 GPUs are in no list: typed in its place, by pointer or keys; Escape leaves what was."""
    go(page, address, {**FIXED, "global_batch": "384"})
    page.get_by_role("button", name="Number of GPUs: type any number").click()
    field = page.get_by_role("textbox", name="Number of GPUs: type any number")
    field.fill("1,024")
    field.press("Escape")
    assert state(page)["gpus"] == "8"
    page.get_by_role("button", name="Number of GPUs: type any number").click()
    field.fill("24")
    field.press("Enter")
    expect(page).to_have_url(re.compile("gpus=24"))
    settled(page)
    expect(page.locator("h1")).to_contain_text("24 x")
    expect(page.locator("#f-gpus")).to_be_focused()


def test_any_number_is_explained_and_the_state_exported(page: Page, address: str) -> None:
    go(page, address, FIXED)
    page.locator(".card a[data-key='throughput.mfu']").click()
    drawer = page.locator("#drawer")
    expect(drawer).to_be_visible()
    expect(drawer.get_by_text("utilisation").first).to_be_visible()
    expect(drawer.locator("[data-part=memory]")).to_be_hidden()
    page.keyboard.press("Escape")
    expect(drawer).to_be_hidden()
    page.get_by_role("link", name="Export", exact=True).click()
    command = drawer.locator("pre.command").first
    expect(command).to_contain_text("dpplan estimate --model llama-2-7b")
    said = dpplan(*command.inner_text().split()[1:], "--json").json()
    assert said["step"]["seconds"] == figures(page)["step.seconds"]


def test_a_config_and_a_calibration_are_uploaded(page: Page, address: str) -> None:
    go(page, address, {"model": "gpt2", "gpu": "rtx4090", "gpus": "4", "seq_len": "1024"})
    page.get_by_text("Paste a config.json or a model TOML").first.click()
    page.locator("#config-file").set_input_files(ROOT / "tests" / "configs" / "llama-3.1-8b.json")
    expect(page.locator("h1")).to_contain_text("llama model of model.json")
    settled(page)
    before = figures(page)["step.seconds"]
    page.get_by_text("Paste a calibration file").first.click()
    page.locator("#calibration-file").set_input_files(
        ROOT / "docs" / "examples" / "calibration.toml"
    )
    settled(page)
    expect(page.locator("#rests")).to_contain_text("What the calibration changes")
    assert figures(page)["step.seconds"] > before
    assert json.loads(state(page)["config"])["model_type"] == "llama"


def test_without_a_script_it_is_a_form(browser: Browser, address: str) -> None:
    context = context_of(browser, java_script_enabled=False)
    page = context.new_page()
    page.goto(f"{address}/?{urlencode({**FIXED, 'wait': '1'})}")
    step = float(str(page.locator(".card a[data-key='step.seconds'] data").get_attribute("value")))
    assert step == said_by_command_line(FIXED)["step"]["seconds"]
    expect(page.locator("#advice-body")).not_to_contain_text("Looking for")
    page.get_by_label("Recompute", exact=True).select_option("full")
    page.get_by_role("button", name="Estimate").click()
    assert state(page)["recompute"] == "full"
    slower = float(
        str(page.locator(".card a[data-key='step.seconds'] data").get_attribute("value"))
    )
    assert slower > step
    page.locator("#chart-memory-stages summary").click()
    expect(page.locator("#chart-memory-stages tbody tr").first).to_be_visible()
    page.locator("[data-panel=scaling] a.compute").click()
    expect(page.locator("h1")).to_have_text("Scaling over GPUs")
    page.goto(f"{address}/?{urlencode({**FIXED, 'tp': '3'})}")
    expect(page.get_by_role("alert")).to_contain_text("take divisors of it")
    context.close()


@pytest.mark.parametrize("width", [360, 768, 3840])
def test_no_width_scrolls_sideways(browser: Browser, address: str, width: int) -> None:
    context = context_of(browser, viewport={"width": width, "height": 900})
    page = context.new_page()
    for path in (
        f"/?{urlencode(FIXED)}",
        f"/explain?{urlencode(FIXED)}",
        f"/compare?{urlencode(COMPARED)}",
        f"/tune?{urlencode(TUNED)}",
        "/reference",
    ):
        page.goto(f"{address}{path}")
        if path.startswith("/?"):
            settled(page)
        assert page.evaluate("document.documentElement.scrollWidth") <= width, path
    context.close()


COMPARED = {"a": urlencode(FIXED), "b": urlencode(SHORT)}


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_stands_in_anyones_way(browser: Browser, address: str, scheme: Any) -> None:
    """axe finds no violation on any page, with its drawer open, nor where a request is wrong."""
    context = context_of(browser, color_scheme=scheme, reduced_motion="reduce")
    page = context.new_page()
    asked = urlencode({**FIXED, "pp": "2", "vpp": "1", "schedule": "1f1b"})
    paths = (
        f"/?{asked}",
        f"/?{urlencode({**FIXED, 'tp': '3'})}",
        f"/explain?{asked}",
        f"/export?{asked}",
        f"/compare?{urlencode(COMPARED)}",
        "/compare",
        f"/tune?{urlencode(TUNED)}",
        f"/panel/roofline?{asked}",
        "/reference",
    )
    # the structure is the same in both schemes; colours are on the first page and on the comparison
    for path in paths if scheme == "light" else (paths[0], f"/compare?{urlencode(COMPARED)}"):
        page.goto(f"{address}{path}")
        if path == paths[0]:
            settled(page)
            page.locator("[data-panel=pareto] section").first.scroll_into_view_if_needed()
            expect(page.locator("#chart-heat-map .main-svg").first).to_be_visible()
            expect(page.locator("#rests-body details").first).to_be_attached()
            page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
            page.wait_for_timeout(200)
        assert told(page) == [], path
    page.goto(f"{address}/?{asked}")
    settled(page)
    page.locator(".card a").first.click()
    expect(page.locator("#drawer-body [data-part=time]")).to_be_visible()
    assert told(page) == []
    context.close()


def told(page: Page) -> list[str]:
    found = Axe().run(page).response["violations"]
    return [
        f"{one['id']}: {node['html'][:200]} {node['any'][0]['message'] if node['any'] else ''}"
        for one in found
        for node in one["nodes"]
    ]


def test_the_theme_is_chosen_and_remembered(page: Page, address: str) -> None:
    go(page, address, FIXED)
    button = page.locator("#theme")
    button.click()
    button.click()
    expect(button).to_contain_text("Theme: dark")
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.reload()
    settled(page)
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == dark
    tick = page.locator("#chart-step-time .xtick text").first
    on_screen = tick.evaluate("one => getComputedStyle(one).fill")
    page.emulate_media(media="print")
    expect(tick).not_to_have_css("fill", on_screen)  # paper is light, and so are charts on it
    expect(page.locator("#inputs")).to_be_hidden()
    expect(page.locator("#answer")).to_be_visible()
