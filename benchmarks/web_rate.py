"""How fast the dashboard is: server time of a what-if, slider to painted numbers and charts, first
numbers, many users, memory.

    python benchmarks/web_rate.py            # everything, about four minutes
    python benchmarks/web_rate.py --no-browser

Targets on a machine of two cores: a what-if with the layout given p50 15 ms, p99 50 ms; with the
full search on 2,048 GPUs p50 150 ms; slider to painted numbers p50 60 ms, p95 120 ms, with the
layout given and on the default page, which searches; first numbers 250 ms and all charts 1 s after
the address is opened; 50 users, each of whom drags a slider every ten seconds, beside two searches
that never end: a what-if with the layout given p99 200 ms; each Python process at most 300 MB. The
load of the machine is printed: a busy one measures itself.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import os
import statistics
import sys
import time
import urllib.request
from pathlib import Path
from urllib.parse import urlencode

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from browser import chromium, served  # noqa: E402

FIXED = {
    "model": "llama-2-70b",
    "gpu": "h100-sxm5-80gb",
    "gpus": 64,
    "tp": 8,
    "pp": 4,
    "vpp": 1,
    "zero": 1,
    "micro_batch": 1,
    "recompute": "selective",
    "schedule": "1f1b",
    "stack": "megatron-core",
    "tokens": "2T",
}
SEARCH = {"model": "llama-2-70b", "gpu": "rtx4090", "gpus": 2048}
DEFAULT = {"model": "llama-3-8b", "gpu": "h100-sxm5-80gb", "gpus": 64, "tokens": "1T"}
SMALL = {"model": "llama-3.1-8b", "gpu": "h100-sxm5-80gb", "gpus": 64}
USERS, THINK_S, LONG_S, DRAG = 50, 10.0, 60.0, 5


def of(values: list[float], target: str = "") -> str:
    """Percentiles in milliseconds."""
    ordered = sorted(values)
    p95, p99 = (ordered[round(share * (len(ordered) - 1))] for share in (0.95, 0.99))
    text = (
        f"p50 {1e3 * statistics.median(ordered):7.1f} ms   p95 {1e3 * p95:7.1f} ms   p99"
        f" {1e3 * p99:7.1f} ms   n {len(ordered)}"
    )
    return f"{text}   (target {target})" if target else text


def timed(address: str) -> float:
    started = time.perf_counter()
    with urllib.request.urlopen(address, timeout=60) as answer:
        answer.read()
    return time.perf_counter() - started


def different(request: dict[str, object], i: int) -> str:
    """The request with another global batch, so that no answer is one that was kept."""
    return (
        urlencode({**request, "global_batch": 256 * (4 + i)})
        if request is not SEARCH
        else urlencode({**request, "global_batch": 2048 * (1 + i)})
    )


def server(address: str) -> None:
    """Server time, one request after the other."""
    for name, request, count, target in (
        ("layout given", FIXED, 200, "15 / 50"),
        ("search on 2,048 GPUs", SEARCH, 40, "150"),
    ):
        for i in range(3):
            timed(f"{address}/page/view?{different(request, 1000 + i)}")
        times = [timed(f"{address}/page/view?{different(request, i)}") for i in range(count)]
        print(f"what-if, {name:<22} {of(times, target)}")


async def get(address: str, path: str) -> tuple[int, float]:
    """Status and seconds of one request over a connection of its own."""
    host, port = address.removeprefix("http://").split(":")
    started = time.perf_counter()
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
    await writer.drain()
    head = await reader.read()
    while await reader.read():
        pass
    writer.close()
    return int(head.split(b" ", 2)[1]), time.perf_counter() - started


Spent = dict[str, list[tuple[int, float]]]


async def crowd(address: str, users: int) -> tuple[Spent, list[int]]:
    """Users beside two searches without end: each opens the page, thinks, drags a slider over
    a few values, and gets the form and the advice of the last one. One in five lets the layout be
    searched. Answers by kind, and the largest process each second."""
    spent: Spent = {}
    sizes: list[int] = []
    until = time.perf_counter() + LONG_S

    async def ask(kind: str, path: str) -> None:
        spent.setdefault(kind, []).append(await get(address, path))

    async def user(number: int) -> None:
        request, kind = (SMALL, "searched") if number % 5 == 0 else (FIXED, "layout given")
        await asyncio.sleep(THINK_S * number / users)
        step = 100 * number
        await ask("page", f"/?{different(request, step)}")
        while time.perf_counter() < until:
            await asyncio.sleep(THINK_S)
            for _ in range(DRAG):
                step += 1
                await ask(f"what-if, {kind}", f"/page/view?{different(request, step)}")
            state = different(request, step)
            await asyncio.gather(
                ask("form", f"/page/form?{state}"), ask("advice", f"/page/late?{state}")
            )

    async def searching(number: int) -> None:
        i = 500 * (number + 1)
        while time.perf_counter() < until:
            i += 1
            await ask("search on 2,048 GPUs", f"/api/search?{different(SEARCH, i)}&top=1")

    async def watching() -> None:
        while time.perf_counter() < until:
            sizes.append(max(processes()))
            await asyncio.sleep(1)

    await asyncio.gather(
        *(user(i) for i in range(users)), *(searching(i) for i in range(2)), watching()
    )
    return spent, sizes


def tell(spent: Spent, sizes: list[int]) -> None:
    """One line for each kind of request; those that were refused apart."""
    print(f"two searches beside, {LONG_S:g} s; largest process {max(sizes) / 1e6:.0f} MB")
    for kind, outcomes in spent.items():
        answered = [seconds for status, seconds in outcomes if status == 200]
        refused = [status for status, _ in outcomes if status != 200]
        counts = ", ".join(f"{refused.count(status)} x {status}" for status in sorted(set(refused)))
        print(
            f"  {kind:<22} {of(answered)}  max {max(answered):.2f} s  refused: {counts or 'none'}"
        )


def processes() -> list[int]:
    """Resident bytes of the server's processes: descendants of this program."""
    by_pid: dict[int, tuple[int, int, str]] = {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            fields = dict(
                line.split(":", 1)
                for line in (path / "status").read_text().splitlines()
                if ":" in line
            )
            size = int(fields.get("VmRSS", "0 kB").split()[0]) * 1024
            by_pid[int(path.name)] = (
                int(fields["PPid"]),
                size,
                (path / "cmdline").read_text().replace("\0", " "),
            )
        except (OSError, KeyError, ValueError):
            continue
    mine = {os.getpid()}
    for _ in range(4):
        mine |= {pid for pid, (parent, _, _) in by_pid.items() if parent in mine}
    return [
        size
        for pid, (_, size, words) in by_pid.items()
        if pid in mine and pid != os.getpid() and "python" in words
    ]


def memory() -> str:
    """Memory of the server's processes now."""
    sizes = processes()
    return (
        f"largest {max(sizes) / 1e6:.0f} MB, {len(sizes)} processes, {sum(sizes) / 1e6:.0f} MB"
        " counted with what they share"
    )


# no state is requested twice, whose answer would have been kept: each round has other tokens
_MOVE = """async ([name, count, round]) => {
  const {tokens} = document.getElementById('form').elements;
  const slider = document.querySelector(`input[type=range][data-for=${name}]`);
  const options = [...document.getElementById(`f-${name}`).options];
  const steps = options.map((o, i) => (o.value && !o.dataset.reason ? i : -1)).filter((i) => i > 0);
  const marks = ['numbers', 'seen'], out = Object.fromEntries(marks.map((m) => [m, []]));
  const frame = () => new Promise(requestAnimationFrame);
  const many = (mark) => performance.getEntriesByName(mark).length;
  let long = 0;
  const observer = new PerformanceObserver((list) => (long += list.getEntries().length));
  observer.observe({type: 'longtask'});
  for (let i = 0; i < count; i++) {
    const before = Object.fromEntries(marks.map((m) => [m, many(m)]));
    const started = performance.now();
    tokens.value = `${1000 + 50 * round + Math.floor(i / steps.length)}B`;
    slider.value = String(steps[i % steps.length]);
    slider.dispatchEvent(new Event('input', {bubbles: true}));
    for (const mark of marks) {
      while (many(mark) === before[mark] && performance.now() - started < 5000) await frame();
      await frame();
      out[mark].push((performance.now() - started) / 1000);
    }
    await new Promise(resolve => setTimeout(resolve, 40)); // a hand that goes on
  }
  const ended = performance.now(), drawn = () => document.body.dataset.painted;
  while (drawn() !== location.search.slice(1) && performance.now() - ended < 5000) await frame();
  out.painted = [(performance.now() - ended) / 1000];
  observer.disconnect();
  return [out, long / count];
}"""

# as people move the page that they open: with the layout given, and the one that searches
MOVES = (
    ("layout given, batch", FIXED, "global_batch", 90),
    ("default page, GPUs", {}, "gpus", 30),
    ("default page, sequence", {}, "seq_len", 30),
    ("default page, batch", {}, "global_batch", 30),
)
_MARKS = {
    "numbers": ("slider to painted numbers", "60 / 120"),
    "seen": ("to the charts in sight", ""),
    "painted": ("end of a drag to all charts", ""),
}
_LOADED = """[performance.getEntriesByType('paint').find(
  e => e.name === 'first-contentful-paint').startTime,
  ...['wired', 'painted'].map(name => performance.getEntriesByName(name)[0].startTime)]"""


def in_browser(address: str, loads: int = 7) -> None:
    """Slider to paint, and how soon the page shows numbers and charts."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        browser = play.chromium.launch(
            executable_path=chromium(), args=["--no-sandbox"] if os.geteuid() == 0 else []
        )
        page = browser.new_page(viewport={"width": 1440, "height": 900})
        for name, request in (("layout given", FIXED), ("default page", DEFAULT)):
            rows: list[list[float]] = []
            for i in range(loads):
                page.context.clear_cookies()
                page.goto(f"{address}/?{different(request, 50 + i)}")
                page.wait_for_selector("body[data-painted]")
                rows.append([ms / 1e3 for ms in page.evaluate(_LOADED)])
            numbers, wired, charts = map(list, zip(*rows, strict=True))
            print(f"{name}: first numbers on screen   {of(numbers, '250')}")
            print(f"{name}: inputs answer             {of(wired)}")
            print(f"{name}: all charts                {of(charts, '1000')}")
        rounds = itertools.count()
        for top, where in (("answer", "top of the page"), ("charts", "scrolled to the charts")):
            for name, request, slider, count in MOVES:
                if top == "charts" and request:
                    continue
                page.goto(f"{address}/?{urlencode(request)}")
                page.wait_for_selector("body[data-painted]")
                page.evaluate(f"document.getElementById('{top}').scrollIntoView()")
                page.wait_for_timeout(1500)
                page.evaluate(_MOVE, [slider, 8, next(rounds)])
                times, long = page.evaluate(_MOVE, [slider, count, next(rounds)])
                for mark, (label, target) in _MARKS.items():
                    print(f"{name}, {where}: {label:<26} {of(times[mark], target)}")
                print(f"{name}, {where}: long tasks for each move {long:.1f}")
        browser.close()


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure the dashboard.")
    parser.add_argument("--no-browser", action="store_true", help="only the server")
    parser.add_argument("--only-crowd", action="store_true", help="only the many users")
    parser.add_argument("--users", type=int, default=USERS, help="how many users at once")
    parsed = parser.parse_args()
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} before")
    with served() as address:
        if not parsed.only_crowd:
            server(address)
        if not (parsed.no_browser or parsed.only_crowd):
            in_browser(address)
        print(f"{parsed.users} users, ", end="")
        tell(*asyncio.run(crowd(address, parsed.users)))
        print(f"memory of the server             {memory()}   (target 300 MB)")
    print(f"load {os.getloadavg()[0]:.1f} after")


if __name__ == "__main__":
    main()
