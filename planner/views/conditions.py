"""Ranks that wait for one another, and loading: blocks of an estimate, and the view of
`dpplan input`."""

from __future__ import annotations

from dataclasses import replace

from planner.specs.components import WAITING
from planner.specs.documents.conditions import Input, Lengths
from planner.specs.documents.estimate import Report
from planner.specs.documents.input import InputAnswer
from planner.units import percent, show
from planner.views.chart import Chart
from planner.views.figures import BLUE, RED, axis, bars, figure, hline
from planner.views.view import Block, View


def condition_blocks(r: Report) -> list[Block]:
    """Blocks of a report: stragglers and input, if requested."""
    return [*_straggler_blocks(r), *([] if r.input is None else [input_block(r.input)])]


def _straggler_blocks(r: Report) -> list[Block]:
    stragglers = r.stragglers
    if stragglers is None:
        return []
    step, days = r.step.seconds, r.run.days
    block = Block(
        "Waiting for the slowest rank",
        header=["reason", "of the step|s", "share|%2", "of the run|days"],
        rows=[
            [WAITING[name], seconds, seconds / step, days and days * seconds / step]
            for name, seconds in sorted(stragglers.seconds.items(), key=lambda pair: -pair[1])
            if seconds > 0
        ],
        order="longest first",
    )
    block.text.append(
        f"chance of a slow host in the job {percent(stragglers.slow_job_frac, 2)}; jitter of a rank"
        " "
        f"{percent(stragglers.jitter_frac, 2)}, sigma sqrt(2 ln N) is"
        f" {percent(stragglers.bound_frac, 2)}"
    )
    mixed, lengths = stragglers.mixed, stragglers.lengths
    if mixed is not None:
        block.text.append(
            f"computing of a step: {show(mixed.own_s, 's')} on {r.cluster.gpu} only,"
            f" {show(mixed.other_s, 's')} on {mixed.gpu} only,"
            f" {show(mixed.together_s, 's')} together ({mixed.split} split,"
            f" {percent(mixed.share, 2)} of the other kind)"
        )
    if lengths is not None:
        block.text += _length_lines(lengths)
    return [block]


def _length_lines(lengths: Lengths) -> list[str]:
    dropped = lengths.dropped_frac
    excess = f"leaving out {percent(dropped, 2)}" if dropped else "cutting"
    return [
        (
            f"documents of {lengths.mean_tokens:,.0f} tokens after {excess}, {lengths.packing}:"
            f" {percent(lengths.useful_frac, 2)} of the tokens are not padding,"
            f" {lengths.useful_tokens_per_s:,.0f} useful tokens/s"
        ),
        (
            f"no padding in {percent(lengths.padded_frac, 2)} padded to the sequence,"
            f" {percent(lengths.padded_to_longest_frac, 2)} padded to the longest of a micro-batch,"
            f" {percent(lengths.bucketed_frac, 2)} with like lengths together, 100 % packed;"
            f" attention {percent(lengths.attention_frac, 2)} of a full row's, the fullest replica"
            f" {percent(lengths.imbalance_frac, 2)} more"
        ),
    ]


def view(document: InputAnswer) -> View:
    """Storage, workers and host memory that a rate of samples needs."""
    block = input_block(document.input, "What it takes")
    verdict, *block.text = block.text
    consumed = document.gpus * document.batch / document.input.samples_per_s
    block = replace(block, lead=True, chart=_stages(document.input, consumed))
    return View(
        f"Input of {document.gpus} GPUs, batches of {document.batch} each",
        verdict,
        "yes" if document.input.bound is None else "no",
        parts=(block,),
    )


def input_block(document: Input, title: str = "Input pipeline") -> Block:
    """Storage, workers and host memory that the input pipeline needs."""
    seconds = document.seconds
    node = show(document.bytes_per_s_per_node, "B/s")
    if document.bound is None:
        sentence = f"loading takes {show(document.load_s, 's')} of a step and hides beside it"
    else:
        sentence = (
            f"INPUT-BOUND by {document.bound}: the step waits {show(document.wait_s, 's')};"
            f" {document.remedy}"
        )
    workers = document.workers or document.workers_needed
    return Block(
        title,
        [
            sentence,
            f"workers ({workers}) x batches ahead ({document.prefetch}) cover a stall of"
            f" {show(document.covered_s, 's')}; at least {document.prefetch_needed} ahead per"
            " worker"
            " keep the GPUs busy",
        ],
        ["what", ">needed", "time per step|s"],
        [
            [
                "samples",
                f"{_count(document.samples_per_s)} per s, {show(document.sample_bytes, 'traffic')}"
                " each",
                "",
            ],
            [
                "storage bandwidth",
                f"{show(document.bytes_per_s, 'B/s')}, {node} per node",
                _time(seconds.storage),
            ],
            [
                "storage reads",
                f"{_count(document.reads_per_s)} per s, {_count(document.reads_in_flight)} in"
                " flight",
                _time(seconds.requests),
            ],
            [
                "workers per replica",
                f"{document.workers_needed} ({_count(document.workers_busy)} busy)",
                _time(seconds.workers),
            ],
            [
                "copies to the GPU",
                f"{show(document.decoded_bytes, 'traffic')} per sample",
                _time(seconds.copies),
            ],
            ["host memory for prefetch", f"{show(document.host_bytes_per_node, 'B')} per node", ""],
        ],
        order="from storage to the GPU",
    )


def _stages(document: Input, step_s: float) -> Chart:
    """Seconds of a step's samples by stage, against the step that consumes them."""
    seconds = document.seconds
    stages = {
        "storage bandwidth": seconds.storage,
        "storage requests": seconds.requests,
        "workers": seconds.workers,
        "copies to the GPU": seconds.copies,
    }
    texts = [show(value, "s") for value in stages.values()]
    data = bars("time", list(stages), list(stages.values()), BLUE, texts)
    return Chart(
        "input-stages",
        "A step's samples by stage",
        f"A step consumes its samples in {show(step_s, 's')}; the longest stage takes"
        f" {show(document.load_s, 's')}.",
        figure([data], axis(type="category"), axis("seconds"), shapes=[hline(step_s, RED)]),
        caption="Stages run beside each other; a bar above the line keeps the step waiting. A stage"
        " without a stated limit takes no time.",
    )


def _count(value: float) -> str:
    return show(value, "")


def _time(seconds: float) -> float | str:
    return seconds if seconds > 0 else "no limit given"
