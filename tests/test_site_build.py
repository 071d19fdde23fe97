"""The site and the distributions as they are published: `DOCS_TESTS=1 ./check`, or `pip install -e
'.[docs]'`; skipped where these tools are missing."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
NEEDS = "needs the extra docs"


def run(*words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", *map(str, words)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("material", reason=NEEDS)
    out = tmp_path_factory.mktemp("site")
    done = run("mkdocs", "build", "--strict", "--quiet", "--site-dir", out)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    return out


def test_the_strict_build_asks_nothing_of_the_network(site: Path) -> None:
    """Scripts, styles, fonts and pictures; links of the text may lead elsewhere."""
    for page in site.rglob("*.html"):
        text = page.read_text("utf-8")
        matches = re.findall(r'<(?:script|img|iframe)[^>]*src="?(https?:)?//', text)
        matches += re.findall(r'<link[^>]*rel="?(?:stylesheet|preconnect)[^>]*https?:', text)
        assert not matches, page
    assert len(list(site.rglob("*.html"))) > 150


def test_equations_are_mathml(site: Path) -> None:
    pages = [page.read_text("utf-8") for page in (site / "mechanisms").glob("*.html")]
    assert sum("<math" in page for page in pages) >= 10
    assert not any("\\[" in page or "$$" in page for page in pages)


def test_pages_opened_as_files_are_searched(site: Path) -> None:
    playwright = pytest.importorskip("playwright.sync_api", reason="needs the extra dev")
    path = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    if path is None:
        pytest.skip("needs Chromium")
    with playwright.sync_playwright() as play:
        browser = play.chromium.launch(executable_path=path, args=["--no-sandbox"])
        page = browser.new_context(offline=True, color_scheme="dark").new_page()
        wrong: list[str] = []
        page.on("requestfailed", lambda request: wrong.append(request.url))
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.goto((site / "mechanisms" / "clock.html").as_uri())
        assert page.locator("body").get_attribute("data-md-color-scheme") == "slate"
        page.keyboard.press("/")
        page.keyboard.type("critical batch")
        page.get_by_text(re.compile("[0-9]+ matching documents")).wait_for()
        assert "batch" in page.locator(".md-search-result__link").first.inner_text().lower()
        assert not wrong
        browser.close()


def test_distributions_are_as_the_registry_wants_them(tmp_path: Path) -> None:
    pytest.importorskip("twine", reason=NEEDS)
    answer = run("build", "--no-isolation", "--outdir", tmp_path, ROOT)
    assert answer.returncode == 0, answer.stderr
    (wheel,), (source,) = tmp_path.glob("*.whl"), tmp_path.glob("*.tar.gz")
    done = run("twine", "check", "--strict", wheel, source)
    assert done.returncode == 0, done.stdout
    with tarfile.open(source) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"README.md", "LICENSE", "CITATION.cff", "SECURITY.md", "docs/start.md"} <= names
    assert not [name for name in names if name.startswith((".venv", "site/", "build/"))]
