"""Somebody at the page in a real browser: clicks counted, numbers read, what axe has against
it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from axe_playwright_python.base import AXE_SCRIPT
from browser import chromium
from command import ROOT
from playwright.sync_api import Browser, Locator, Page, expect, sync_playwright

WAIT_MS = 30_000
expect.set_options(timeout=WAIT_MS)


@contextmanager
def launched() -> Iterator[Browser]:
    """Chromium, while the block runs."""
    with sync_playwright() as play:
        # root has no sandbox of its own to give away
        arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = play.chromium.launch(executable_path=chromium(), args=arguments)
        yield browser
        browser.close()


def violations(page: Page, part: Any = "html", rules: list[str] | None = None) -> list[str]:
    """Violations that axe reports in a part of a page, by all rules or some."""
    options: dict[str, Any] = {"resultTypes": ["violations"]}  # all else it finds is megabytes
    if rules:
        options["runOnly"] = rules
    if not page.evaluate("() => Boolean(window.axe)"):
        page.evaluate(AXE_SCRIPT)
    estimates = page.evaluate(
        "async asked => (await axe.run(...asked)).violations.flatMap(one => one.nodes.map(node =>"
        " `${one.id}: ${node.html.slice(0, 200)} ${node.any[0]?.message ?? ''}`))",
        [part, options],
    )
    return list(estimates)


def _counted() -> dict[int, int]:
    """Clicks of each journey, as the table of docs/dashboard.md says."""
    text = (ROOT / "docs" / "dashboard.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\d+) \|.*\| (\d+) \|$", text, re.MULTILINE)
    return {int(journey): int(clicks) for journey, clicks in rows}


CLICKS = _counted()


@dataclass
class Person:
    """Somebody at the page, whose clicks are counted: choosing from a list is two, a key none."""

    page: Page
    clicks: int = 0

    def did(self, journey: int) -> None:
        """The journey is at its end, after as many clicks as docs/dashboard.md says."""
        assert self.clicks == CLICKS[journey], f"journey {journey}: {self.clicks} clicks"
        self.clicks = 0

    def click(self, where: Locator | str) -> None:
        (self.page.locator(where) if isinstance(where, str) else where).click()
        self.clicks += 1

    def tab(self, lens: str, name: str) -> None:
        """A page of another lens opens below the name that is pointed at."""
        bar = self.page.locator(".tabs")
        bar.get_by_role("link", name=lens, exact=True).first.hover()
        self.click(bar.get_by_role("link", name=name, exact=True).last)

    def choose(self, label: str, value: str) -> None:
        self.page.get_by_label(label, exact=True).select_option(value)
        self.clicks += 2

    def search(self, label: str, words: str) -> None:
        field = self.page.get_by_role("searchbox", name=f"{label}: search the list")
        self.click(field)
        field.fill(words)
        field.press("Enter")

    def write(self, label: str, value: str) -> None:
        field = self.page.get_by_role("textbox", name=label, exact=True)
        self.click(field)
        field.fill(value)

    def type(self, label: str, value: str) -> None:
        field = self.page.get_by_role("textbox", name=label, exact=True)
        self.click(field)
        self.page.keyboard.type(value)  # in place of what stands there
        field.press("Enter")

    def download(self, where: Locator | str) -> Path:
        with self.page.expect_download() as result:
            self.click(where)
        return Path(result.value.path())


def go(page: Page, address: str, request: dict[str, str]) -> None:
    page.goto(f"{address}/?{urlencode(request)}")
    settled(page)


def settled(page: Page) -> None:
    """Wait until numbers and charts match the address."""
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
    estimates: dict[str, str] = page.evaluate(
        "Object.fromEntries([...document.querySelectorAll('.card a')].map(a => [a.dataset.key,"
        " a.querySelector('data').value]))"
    )
    return {key: float(value) for key, value in estimates.items() if value}


def state(page: Page) -> dict[str, str]:
    return dict(parse_qsl(urlsplit(page.url).query))
