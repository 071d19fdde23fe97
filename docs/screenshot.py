"""Take the pictures of the documentation in Chromium: of the dashboard, and of dpplan in an agent,
a trainer, a pull request, a terminal.

python docs/screenshot.py            writes docs/pictures/*.png, in two minutes, with Chromium
python docs/screenshot.py prices     only this one
"""

from __future__ import annotations

import html
import json
import logging
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlencode

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(ROOT / "docs")]

from browser import served  # noqa: E402
from markdown_it import MarkdownIt  # noqa: E402
from pages.text import run  # noqa: E402
from person import launched  # noqa: E402

if TYPE_CHECKING:
    from playwright.sync_api import Page

PICTURES = ROOT / "docs" / "pictures"
REQUEST = {"model": "llama-2-70b", "gpu": "h100-sxm5-80gb", "gpus": 512, "tokens": "2T"}
SIZE = {"width": 1200, "height": 700}
RECIPE = ROOT / "docs" / "examples" / "train.sh"
STEPS, LENGTH, PAUSE_S = 40, 32, 0.3  # of a run of a trainer, in which the data are waited for
_CSS = (
    "body{margin:0;padding:16px;width:max-content;max-width:1000px;background:#fff;"
    "font:14px system-ui,sans-serif}pre{margin:0;padding:14px;background:#16191d;color:#d6dae0;"
    "font:13px 'DejaVu Sans Mono',monospace;border-radius:8px;white-space:pre-wrap}"
    "table{border-collapse:collapse}td,th{border:1px solid #ccc;padding:4px 8px;text-align:left}"
)


@contextmanager
def opened(body: str) -> Iterator[Page]:
    """A page with this body."""
    with launched() as browser:
        page = browser.new_page(viewport=SIZE, color_scheme="light")
        page.set_content(f"<!doctype html><style>{_CSS}</style><body>{body}</body>")
        yield page


def shown(name: str, body: str) -> Path:
    path = PICTURES / f"{name}.png"
    with opened(body) as page:
        page.locator("body").screenshot(path=path)
    return path


def terminal(name: str, command: str, answer: str, lines: int = 24) -> Path:
    """A command and the beginning of its answer."""
    rows = answer.rstrip().splitlines()
    text = "\n".join([f"$ {command}", *rows[:lines], *(["[...]"] if len(rows) > lines else [])])
    return shown(name, f"<pre>{html.escape(text)}</pre>")


def dashboard() -> Path:
    path = PICTURES / "page.png"
    with served() as address, launched() as browser:
        page = browser.new_page(viewport=SIZE, color_scheme="light")
        page.goto(f"{address}/?{urlencode(REQUEST)}")
        page.wait_for_selector("body[data-late]")
        page.wait_for_timeout(500)
        page.screenshot(path=path)
    return path


def prices() -> Path:
    command = "dpplan prices h100"
    return terminal("prices", command, run(command)[1])


def preflight() -> Path:
    """Of this machine, with GPUs or without."""
    command = "dpplan preflight --model gpt2 --gpu h100 --gpus 8"
    return terminal("preflight", command, run(command)[1])


def agents() -> Path:
    """A call of a tool by the protocol's own client."""
    from test_agents import ask

    given = {"model": "llama-3.1-8b", "gpu": "h100", "gpus": 64}
    return terminal("agents", f"tools/call estimate {json.dumps(given)}", ask("estimate", given)[0])


def pull_request() -> Path:
    """The comment on a change of a recipe's micro-batch, as GitHub's Markdown shows it."""
    from dpplan import pull_request as action

    base = RECIPE.read_text("utf-8")
    head = base.replace("--micro-batch-size 1", "--micro-batch-size 2")
    known = {"gpu": "h100", "gpus": 64, "tokens": "1T"}
    before, after = (action.figures("train.sh", text, known) for text in (base, head))
    change = action.Change("train.sh", after, before)
    failed = action.failures([change], action.gate_of("cost > 50000"))
    markdown = MarkdownIt("gfm-like", {"linkify": False})
    return shown("pull-request", markdown.render(action.comment([change], failed)))


def trainer() -> Path:
    """The lines of a run of the real Trainer on this machine, with a GPT-2 of two layers whose data
    are waited for."""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

    from dpplan.trainer import attach

    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("dpplan").addHandler(handler)
    logging.getLogger("dpplan").setLevel(logging.INFO)

    def collate(rows: list[dict[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
        time.sleep(PAUSE_S)
        return {name: torch.stack([row[name] for row in rows]) for name in rows[0]}

    model = GPT2LMHeadModel(GPT2Config(n_layer=2, n_embd=64, n_head=2, vocab_size=512))
    row = {name: torch.ones(LENGTH, dtype=torch.long) for name in ("input_ids", "labels")}
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder, max_steps=STEPS, per_device_train_batch_size=2, report_to=[], disable_tqdm=True
        )
        data = [row] * (2 * STEPS)
        worker = Trainer(model, arguments, data_collator=collate, train_dataset=data)
        attach(worker, gpu="h100", seq_len=LENGTH)
        worker.train()
    text = "\n".join(lines).replace(folder, "output")
    return terminal("trainer", "python train.py", text)


def record() -> Path:
    """The table of planners on the same rows."""
    text = (ROOT / "docs" / "record" / "leaderboard.md").read_text("utf-8")
    body = MarkdownIt("gfm-like", {"linkify": False}).render("\n## ".join(text.split("\n## ")[:2]))
    return shown("record", body)


TAKEN: dict[str, Callable[[], Path]] = {
    each.__name__.replace("_", "-"): each
    for each in (dashboard, prices, preflight, agents, pull_request, trainer, record)
}


def main(names: list[str]) -> None:
    PICTURES.mkdir(exist_ok=True)
    for name in names or TAKEN:
        path = TAKEN[name]()
        print(f"{path.relative_to(ROOT)}: {path.stat().st_size / 1e3:.0f} kB")


if __name__ == "__main__":
    main(sys.argv[1:])
