"""View of `dpplan check`."""

from __future__ import annotations

from planner.formats.views.read import change_block
from planner.specs.documents.estimate import Estimate
from planner.studies.documents.check import (
    Against,
    Check,
    Checked,
    Learned,
    NextRun,
    OutOfMemory,
    Phases,
    SnapshotBytes,
    StepTimes,
    TraceTimes,
)
from planner.units import percent, show, span
from planner.views.view import Block, Command, Mark, View, words

_MOST_REASONS = 5


INSIDE = "inside the band"


def view(r: Check) -> View:
    """The failure or the comparison of the step, then each file, the comparison with the
    prediction, and the learned numbers."""
    mark, verdict = _verdict(r)
    return View.of(
        [
            *(block for file in r.files for block in _file(file, r.out_of_memory)),
            *([_against(r.against)] if r.against else []),
            *(_out_of_memory(r.out_of_memory, r.prediction) if r.out_of_memory else []),
            *([_phases(r.reinforcement)] if r.reinforcement else []),
            *([_learned(r.learned)] if r.learned else []),
            *([_row(r.row)] if r.row else []),
            *([Block("Notes", list(r.notes))] if r.notes else []),
        ],
        verdict=verdict,
        mark=mark,
    )


def _verdict(r: Check) -> tuple[Mark, str]:
    """The first failure, else how the step compares."""
    short = [shortage for file in r.files for shortage in file.shortages]
    if r.out_of_memory:
        return "no", f"Memory ran out: {r.out_of_memory.says}"
    if short:
        return "no", f"Memory ran out: {short[0].why}"
    against = r.against or r.reinforcement
    if against is None:
        return "maybe", "Read, without a step time to compare"
    return (
        "yes" if against.verdict == INSIDE else "maybe",
        f"{against.verdict.capitalize()}: {show(against.measured_s, 's')} measured,"
        f" {show(against.predicted_s, 's')} predicted ({span(against.low, against.high, 's')})",
    )


def _file(file: Checked, explained: OutOfMemory | None) -> list[Block]:
    text = [f"of the file {file.partly} were read"] if file.partly else []
    if file.steps:
        text += _steps(file.steps)
    if file.tokens_per_s is not None:
        text.append(f"{'speed':<9}{file.tokens_per_s:,.0f} tokens/s")
    if file.flops:
        f = file.flops
        text.append(
            f"{'FLOP/s':<9}{f.tflops:,.1f} TFLOP/s per GPU as printed ({f.said or 'unspecified'});"
            f" nearest to the recipe's count with {f.nearest}: {f.ratio:.3f} of it"
        )
    if file.memory:
        peaks = ", ".join(f"{show(size, 'B')} {kind}" for kind, size in file.memory.items())
        text.append(f"{'memory':<9}at most {peaks}")
    for short in file.shortages:
        messages = f" ({short.gpus} messages)" if short.gpus > 1 else ""
        text.append(f"{'out of memory':<14}{short.why}{messages}")
        if explained is None or explained.cause in ("fragmentation", "unexplained"):
            text.append(f"{'try':<14}{short.remedy}")
    text += file.notes
    blocks = [Block(f"{file.name}: {file.program}", text)]
    if file.trace:
        blocks.append(_trace(file.trace))
    if file.snapshot:
        blocks.append(_snapshot(file.snapshot))
    return blocks


def _steps(s: StepTimes) -> list[str]:
    kinds = ("warm_up", "checkpoint", "evaluation", "stalled")
    counts = [f"{count:,} {words(kind)}" for kind in kinds if (count := getattr(s, kind))]
    apart = f"; apart: {', '.join(counts)}" if counts else ""
    out = [
        f"{'step':<9}{show(s.seconds, 's')}, the middle of {s.steady:,} of {s.lines:,} lines"
        f" (eight in ten {span(s.low, s.high, 's')}, spread {percent(s.spread_frac)}){apart}"
    ]
    if s.lost_frac > _MATTERS:
        out.append(f"{'':<9}{percent(s.lost_frac)} of the time went into longer steps")
    if abs(s.drift_frac) > max(_MATTERS, s.spread_frac):
        slower = "slower" if s.drift_frac > 0 else "faster"
        out.append(f"{'':<9}the last third is {percent(abs(s.drift_frac))} {slower} than the first")
    if s.phases:
        parts = ", ".join(f"{name} {show(seconds, 's')}" for name, seconds in s.phases.items())
        out.append(f"{'phases':<9}{parts}")
    if s.loading_s:
        out.append(f"{'loading':<9}{show(s.loading_s, 's')} of a step, as printed")
    return out


_MATTERS = 0.01  # share of the time above which it is reported


def _trace(t: TraceTimes) -> Block:
    text = [f"{t.steps} steps of {show(t.seconds, 's')}, {t.gaps:,} pauses between kernels each"]
    if t.first_wrong:
        text.append(f"the first line that is wrong: {words(t.first_wrong)}")
    times = ", ".join(f"{words(name)} {show(s, 's')}" for name, s in t.collectives.items())
    below = [f"collectives: {times}"] if times else []
    below += [f"{show(s, 's')}  {name}" for name, s in t.longest.items()]
    return Block(
        "Kernels of a step",
        text,
        ["part", "measured|s", "predicted|s", "ratio|.2f", "kernels|,", "", "what"],
        [
            [
                words(line.name),
                *(line.measured_s, line.predicted_s),
                line.measured_s / line.predicted_s if line.predicted_s else None,
                line.kernels,
                "wrong" if line.wrong else "",
                line.says,
            ]
            for line in t.lines
        ],
        drop=("what", "kernels"),
        below=below,
        part=True,
    )


def _snapshot(s: SnapshotBytes) -> Block:
    return Block(
        "Memory by component",
        [
            f"{show(s.reserved_bytes, 'B')} reserved in {s.segments:,} pieces,"
            f" {show(s.allocated_bytes, 'B')} of them held by tensors;"
            f" {show(s.reserved_free_bytes, 'B')} free, {show(s.largest_free_bytes, 'B')} in one"
            " piece",
            f"highest held in the recording: {show(s.peak_bytes, 'B')}",
        ],
        ["component", "held|B", "predicted at the peak|B"],
        [[words(line.name), line.measured_bytes, line.predicted_bytes] for line in s.held],
        order="largest first",
        part=True,
    )


def _out_of_memory(o: OutOfMemory, predicted: Estimate | None) -> list[Block]:
    """The parts of the need, and what makes it fit, in words of the files where there are some."""
    rows = [[words(term.name), term.bytes, term.share] for term in o.terms]
    blocks = [
        Block(
            "What the recipe needs",
            [f"{show(o.needed_bytes, 'B')} per GPU, {show(o.missing_bytes, 'B')} more than it has"]
            if o.missing_bytes
            else [f"{show(o.needed_bytes, 'B')} per GPU, which it has"],
            ["largest parts of the fullest GPU", "memory|B", "of it|%0"],
            rows,
            order="largest first",
        )
    ]
    if predicted is not None:
        blocks += [
            change_block(f"Change {number} that makes it fit", predicted, change)
            for number, change in enumerate(o.changes, 1)
        ]
    if o.card:
        price = (
            "" if o.card.usd_per_hour is None else f", {show(o.card.usd_per_hour, 'USD')} an hour"
        )
        sentence = (
            f"the smallest card that runs the recipe as it is: {o.card.title}{price},"
            f" {show(o.card.step_seconds, 's')} a step ({o.card.verdict})"
        )
        blocks.append(Block("A larger card", [sentence, Command(o.card.command)]))
    if o.elsewhere:
        sentence = (
            "neither a change nor a larger card runs this recipe; methods, kinds and numbers:"
        )
        blocks.append(Block("Other methods and cards", [sentence, Command(o.elsewhere)]))
    return blocks


def _against(a: Against) -> Block:
    ratios = [f"{kind} {percent(ratio)} of it" for kind, ratio in a.memory.items()]
    text = [
        f"{a.verdict.capitalize()}: {show(a.measured_s, 's')} measured,"
        f" {show(a.predicted_s, 's')} predicted (80 % band {span(a.low, a.high, 's')});"
        f" {percent(a.ratio)} of the prediction",
        *(
            [f"memory measured over predicted: {', '.join(ratios)}; {a.memory_verdict}"]
            if ratios
            else []
        ),
    ]
    causes = [
        reason for reason in a.reasons if reason.factor is not None or reason.name == "loading"
    ]
    shown = causes[:_MOST_REASONS]
    below = [f"measure next: {shown[0].measure}"] if shown else []
    return Block(
        "Against the prediction",
        text,
        [
            *("reason", "of the assumed|%0", "deviations|.1f", "in the step|s"),
            "what would explain it by itself",
        ],
        [
            [reason.name, reason.factor, reason.spreads, reason.component_s, reason.says]
            for reason in shown
        ],
        order="the most likely first",
        drop=("in the step", "deviations"),
        below=below,
    )


def _phases(p: Phases) -> Block:
    return Block(
        "Phases against the prediction",
        [
            f"{p.verdict.capitalize()}: {show(p.measured_s, 's')} measured,"
            f" {show(p.predicted_s, 's')} predicted (80 % band {span(p.low, p.high, 's')});"
            f" {percent(p.ratio)} of the prediction"
        ],
        ["phase", "measured|s", "predicted|s", "ratio|.2f", "band", ""],
        [
            [
                line.name,
                *(line.measured_s, line.predicted_s),
                line.measured_s / line.predicted_s
                if line.measured_s is not None and line.predicted_s
                else None,
                "-" if line.low is None or line.high is None else span(line.low, line.high, "s"),
                "outside" if line.inside is False else "",
            ]
            for line in p.lines
        ],
        order="as they run",
    )


def _learned(learned: Learned) -> Block:
    return Block(
        f"Learned of {learned.gpu} with {learned.stack}",
        [
            f"{learned.runs:,} run{'s' * (learned.runs != 1)}: error of their step"
            f" {percent(learned.before)} before, {percent(learned.after)} with the calibration"
        ],
        ["number", "of the profile|%", "+-|%", "before|%", "where"],
        [[n.name, n.factor, n.spread, n.prior, n.where] for n in learned.numbers],
        below=[*learned.notes, *_next_run(learned.next_run)],
    )


def _next_run(run: NextRun | None) -> list[str]:
    if run is None:
        return []
    return [
        f"Expected error of the fastest layouts of this model: {percent(run.error_now)}. The run"
        f" that tells most next, of {run.tells}, takes it to {percent(run.error_after)}; then give"
        " all of them, as rows of --append, to --save:",
        run.command,
    ]


def _row(cells: dict[str, str]) -> Block:
    doubt = cells["assumptions"]
    return Block(
        "Row of a runs table",
        [
            f"{cells['run_id']}: {cells['model']} on {cells['gpus']} x {cells['gpu']},"
            f" step {cells['step_s'] or '-'} s, {cells['peak_memory_gib'] or '-'} GiB",
            *([doubt] if doubt else []),
        ],
    )
