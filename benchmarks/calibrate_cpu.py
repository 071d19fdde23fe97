"""How near `dpplan calibrate` comes on this CPU: calibrate, then verify on decoders that no fit has
seen, and hold it to the bar.

    python benchmarks/calibrate_cpu.py FOLDER [--only one,two,ranks]
        [--steps calibrate,verify] [--wait 600]

one: one process, one thread; two: one process, two threads; ranks: two processes with gloo, DDP,
FSDP2 and tensor parallelism. Each calibrates into FOLDER (seven minutes at most; what a run that
was ended has measured there counts) and trains its decoders (five at most); on a quiet machine it
takes about half. --steps verify trains again beside a calibration of an earlier run: another moment
of the same machine. Waits for a quiet machine first, up to --wait
seconds, and says of each part whether the machine stayed quiet: a noisy part that misses its bar is
reported as skipped.

Exit status: 0 every part passed, 1 a part missed its bar, 3 nothing missed and something was
skipped.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from planner.calibrate.others import Others  # noqa: E402

QUIET_CORES = 0.15  # CPU seconds per second that others may use
DISTURBED_CASES = (
    1 / 3
)  # a part with more decoders than this measured in disturbed moments is skipped
COLLECTIVES_BAR = 0.15  # median error of held-out sizes


class Part(NamedTuple):
    """Options of one part, and its bar: mean and worst error over decoders of these
    parallelisms."""

    options: tuple[str, ...]
    parallel: tuple[str, ...]
    mean: float
    worst: float


PARTS = {
    "one": Part(("--threads", "1"), ("single",), 0.05, 0.10),
    "two": Part(("--threads", "2"), ("single",), 0.08, float("inf")),
    "ranks": Part(
        ("--processes", "2", "--threads", "1"),
        ("ddp", "fsdp", "fsdp-noreshard", "tensor"),
        0.12,
        float("inf"),
    ),
}


def dpplan(*words: str) -> tuple[int, dict[str, Any]]:
    """Run a command of its own; its JSON."""
    code = "from planner.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, *words, "--json"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    return done.returncode, json.loads(done.stdout) if done.stdout else {}


def wait_for_quiet(seconds: float) -> bool:
    """Whether other processes left the cores alone within this many seconds."""
    start = time.monotonic()
    while True:
        others = Others()
        time.sleep(3.0)
        if others.share() < QUIET_CORES:
            return True
        if time.monotonic() - start > seconds:
            return False


def run_part(name: str, part: Part, folder: Path, steps: list[str]) -> tuple[str, str]:
    """(passed, missed or skipped; what happened)."""
    out, answer = folder / f"{name}.toml", folder / f"{name}.json"
    start = time.monotonic()
    if "calibrate" in steps:
        status, document = dpplan("calibrate", "--out", str(out), *part.options)
        if status:
            return "missed", f"calibrate ended with status {status}: {document.get('error')}"
        answer.write_text(json.dumps(document), encoding="utf-8")
    elif not answer.exists():
        return "missed", f"{answer} does not exist: add calibrate to --steps"
    document = json.loads(answer.read_text(encoding="utf-8"))
    if "verify" not in steps:
        return "passed", f"{document['quiet']} of {document['cases']} cases quiet"
    calibrated_s, start = time.monotonic() - start, time.monotonic()
    status, verified = dpplan(
        "calibrate",
        "--verify",
        "--calibration",
        str(out),
        "--report",
        str(folder / name),
        *part.options,
    )
    if status not in (0, 3):
        return "missed", f"verify ended with status {status}: {verified.get('error')}"
    rows = [row for row in verified["cases"] if row["case"]["parallel"] in part.parallel]
    errors = [abs(row["error"]) for row in rows]
    mean, worst = sum(errors) / len(errors), max(errors)
    disturbed = sum(not row["quiet"] for row in rows) / len(rows)
    medians = {
        curve: f["held_out_median"]
        for curve, f in document["fits"].items()
        if f["held_out_median"] is not None
    }
    remarks = [
        (
            f"calibrate {calibrated_s:.0f} s ({document['quiet']} of {document['cases']} cases"
            f" quiet), verify {time.monotonic() - start:.0f} s"
        ),
        (
            f"{len(rows)} decoders: mean {mean:.1%} (bar {part.mean:.0%}), worst {worst:.1%};"
            f" {disturbed:.0%} of them disturbed"
        ),
        (
            f"bytes of states {'exact' if verified['summary']['states_exact'] else 'DIFFER'}; "
            f"speed {verified['speed']:.2f} of that at calibration"
        ),
        f"steadiness: {verified['summary']['steadiness']}",
        "held-out medians: "
        + ", ".join(f"{curve} {value:.1%}" for curve, value in medians.items()),
        *(
            f"  {row['name']}: {row['predicted_step_s']:.4g} s, measured"
            f" {row['measured_step_s']:.4g} s, {row['error']:+.1%}"
            for row in verified["cases"]
        ),
    ]
    links = [value for curve, value in medians.items() if curve.startswith("link ")]
    good = (
        mean <= part.mean
        and worst <= part.worst
        and verified["summary"]["states_exact"]
        and max(links, default=0) <= COLLECTIVES_BAR
    )
    verdict = "passed" if good else "skipped" if disturbed > DISTURBED_CASES else "missed"
    return verdict, "\n    ".join(remarks)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", default=",".join(PARTS))
    parser.add_argument("--steps", default="calibrate,verify")
    parser.add_argument("--wait", type=float, default=600.0)
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    verdicts = []
    for name in given.only.split(","):
        quiet = wait_for_quiet(given.wait)
        print(
            f"{name}: {'quiet' if quiet else 'other processes use the cores'} at the start",
            flush=True,
        )
        verdict, remarks = run_part(name, PARTS[name], given.folder, given.steps.split(","))
        verdicts.append(verdict)
        print(f"  {verdict}\n    {remarks}", flush=True)
    return 1 if "missed" in verdicts else 3 if "skipped" in verdicts else 0


if __name__ == "__main__":
    raise SystemExit(main())
