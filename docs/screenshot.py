"""Take the picture of the dashboard that README.md shows.

python docs/screenshot.py       writes docs/pictures/page.png, in a minute, with Chromium
"""

from __future__ import annotations

import sys
from pathlib import Path
from urllib.parse import urlencode

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from browser import served  # noqa: E402
from person import launched  # noqa: E402

PICTURE = ROOT / "docs" / "pictures" / "page.png"
ASKED = {"model": "llama-2-70b", "gpu": "h100-sxm5-80gb", "gpus": 512, "tokens": "2T"}
SIZE = {"width": 1200, "height": 700}


def main() -> None:
    with served() as address, launched() as browser:
        page = browser.new_page(viewport=SIZE, color_scheme="light")
        page.goto(f"{address}/?{urlencode(ASKED)}")
        page.wait_for_selector("body[data-late]")
        page.wait_for_timeout(500)
        PICTURE.parent.mkdir(exist_ok=True)
        page.screenshot(path=PICTURE)
    print(f"{PICTURE.relative_to(ROOT)}: {PICTURE.stat().st_size / 1e3:.0f} kB")


if __name__ == "__main__":
    main()
