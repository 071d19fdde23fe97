"""Predictions of requests whose results are not known, and later what was measured.

python -m benchmarks.record predict     # requests of docs/record/requests.toml without one
python -m benchmarks.record verify      # that no prediction was changed
python -m benchmarks.record measure ID --step-s 4.21 --peak-gib 61.3 --source ADDRESS
python -m benchmarks.record page        # docs/record/predictions.md
"""

from __future__ import annotations

import argparse
import tomllib
from typing import Any

import dpplan
from benchmarks.record import entries
from benchmarks.record.entries import RECORD, Measurement, Scored
from planner.error import PlanError
from planner.units import percent, show

REQUESTS = RECORD / "requests.toml"
PAGE = RECORD / "predictions.md"
_GIB = 2**30


def requests() -> dict[str, dict[str, Any]]:
    """Options of `dpplan estimate` by id of the request."""
    return tomllib.loads(REQUESTS.read_text("utf-8"))


def prediction(name: str, options: dict[str, Any]) -> dict[str, Any]:
    """The answer to a request: its layout, its step with the 80 % band, memory, chance to fit."""
    answer = dpplan.estimate(**options)
    document = answer.document
    step, memory = document.step, document.memory
    layout = {key: str(value) for key, value in answer.to_dict()["layout"].items()}
    return {
        "id": name,
        "request": {key: str(value) for key, value in options.items()},
        "command": answer.command,
        "stack": document.stack.id,
        "layout": layout,
        "step_s": f"{step.seconds:.6g}",
        "low_s": f"{step.low:.6g}",
        "high_s": f"{step.high:.6g}",
        "peak_gib": f"{memory.peak_bytes / _GIB:.6g}",
        "reserved_gib": f"{memory.reserved_bytes / _GIB:.6g}",
        "fit_chance": f"{memory.fit_chance:.4g}",
    }


def predict() -> str:
    """Predict what has no prediction."""
    known = {entry["id"] for content in entries.contents() for entry in content["predictions"]}
    new = {name: options for name, options in requests().items() if name not in known}
    if not new:
        return "every request of docs/record/requests.toml has a prediction"
    predictions = [prediction(*item) for item in new.items()]
    path = entries.add(predictions, entries.today(), entries.version())
    return f"{len(new)} predictions: {path} {entries.read(path)['sha256']}"


def verify() -> str:
    """Check every hash."""
    written = entries.contents()
    total = sum(len(content["predictions"]) for content in written)
    last = written[-1]["sha256"] if written else ""
    return f"{total} predictions in {len(written)} files are as they were written; last {last}"


def sentence_of(scored: Scored) -> str:
    """A measurement against its prediction, in a sentence."""
    parts = []
    if scored.error is not None:
        band = "inside" if scored.held else "outside of"
        low, high = (show(float(scored.prediction[name]), "s") for name in ("low_s", "high_s"))
        parts.append(f"step {scored.error:+.1%}, {band} the 80 % band {low} .. {high}")
    if scored.peak_error is not None:
        parts.append(f"peak memory {scored.peak_error:+.1%}")
    return f"{scored.prediction['id']}: {'; '.join(parts)}"


def _line(scored: Scored) -> str:
    entry, measured = scored.prediction, scored.measurement
    result = "not known"
    if measured is not None:
        result = f"[{sentence_of(scored).partition(': ')[2]}]({measured.source}), {measured.date}"
    low, step, high = (show(float(entry[name]), "s") for name in ("low_s", "step_s", "high_s"))
    cells = (
        f"`{entry['id']}`",
        f"{scored.date}, {scored.version}",
        f"{step} ({low} .. {high})",
        f"{float(entry['peak_gib']):.1f} GiB",
        result,
    )
    return f"| {' | '.join(cells)} |"


def page() -> str:
    """Every prediction and its result."""
    every = entries.scores(entries.measurements(), entries.contents())
    judged = [scored for scored in every if scored.held is not None]
    inside = sum(bool(scored.held) for scored in judged)
    share = f", {percent(inside / len(judged))} of them inside their bands" if judged else ""
    lines = "\n".join(map(_line, every))
    return f"""# Predictions

{len(every)} predictions, of which {len(judged)} have a measured step{share}. Written by
`python -m benchmarks.record page`; requests, layouts and hashes are in
[the files](index.md#predictions).

| request | predicted, version | step (80 % band) | peak per GPU | measured |
| --- | --- | ---: | ---: | --- |
{lines}
"""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    verbs = parser.add_subparsers(dest="verb", required=True)
    for name in ("predict", "verify", "page"):
        verbs.add_parser(name)
    measure = verbs.add_parser("measure")
    measure.add_argument("id")
    measure.add_argument("--step-s", default="", help="seconds per step")
    measure.add_argument("--peak-gib", default="", help="peak allocated memory of the fullest GPU")
    measure.add_argument("--source", required=True, help="address of the log or the report")
    measure.add_argument("--date", default="", help="of the measurement; today")
    given = parser.parse_args()
    try:
        if given.verb == "measure":
            date = given.date or entries.today()
            line = Measurement(given.id, date, given.step_s, given.peak_gib, given.source)
            print(sentence_of(entries.attach(line)))
        elif given.verb != "page":
            print({"predict": predict, "verify": verify}[given.verb]())
        PAGE.write_text(page(), "utf-8")
    except PlanError as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
