"""Blocks of text of ranks that wait for one another, and of loading."""

from __future__ import annotations

from planner.specs.components import WAITING
from planner.specs.documents.conditions import Input, Lengths
from planner.specs.documents.estimate import Report
from planner.units import percent, show
from planner.views.view import Block


def condition_blocks(r: Report) -> list[Block]:
    """Of a report: stragglers and input, where they were asked about."""
    return [*_straggler_blocks(r), *([] if r.input is None else [input_block(r.input)])]


def _straggler_blocks(r: Report) -> list[Block]:
    found = r.stragglers
    if found is None:
        return []
    step = r.step.seconds
    block = Block(
        "Waiting for the slowest rank",
        header=["reason", ">of the step", ">share", ">of the run"],
        order="longest first",
    )
    days = r.run.days
    for name, seconds in sorted(found.seconds.items(), key=lambda one: -one[1]):
        if seconds > 0:
            share = seconds / step
            block.rows.append(
                [
                    WAITING[name],
                    show(seconds, "s"),
                    percent(share, 2),
                    "-" if days is None else show(days * share, "days"),
                ]
            )
    block.text.append(
        f"chance of a slow host in the job {percent(found.slow_job_frac, 2)}; jitter of a rank "
        f"{percent(found.jitter_frac, 2)}, sigma sqrt(2 ln N) is {percent(found.bound_frac, 2)}"
    )
    mixed, lengths = found.mixed, found.lengths
    if mixed is not None:
        block.text.append(
            f"computing of a step: {show(mixed.own_s, 's')} on {r.cluster.gpu} alone,"
            f" {show(mixed.other_s, 's')} on {mixed.gpu} alone,"
            f" {show(mixed.together_s, 's')} together ({mixed.split} split,"
            f" {percent(mixed.share, 2)} of the other kind)"
        )
    if lengths is not None:
        block.text += _length_lines(lengths)
    return [block]


def _length_lines(found: Lengths) -> list[str]:
    return [
        (
            f"documents of {found.mean_tokens:,.0f} tokens after cutting, {found.packing}:"
            f" {percent(found.useful_frac, 2)} of the tokens are not padding,"
            f" {found.useful_tokens_per_s:,.0f} useful tokens/s"
        ),
        (
            f"no padding in {percent(found.padded_frac, 2)} padded to the sequence,"
            f" {percent(found.padded_to_longest_frac, 2)} padded to the longest of a micro-batch,"
            f" {percent(found.bucketed_frac, 2)} with like lengths together, 100 % packed;"
            f" attention {percent(found.attention_frac, 2)} of a full row's, the fullest replica"
            f" {percent(found.imbalance_frac, 2)} more"
        ),
    ]


def input_block(found: Input, title: str = "Input pipeline") -> Block:
    """What storage, workers and host memory have to provide."""
    block = Block(title, header=["what", ">needed", ">time per step"])
    block.order = "from storage to the GPU"
    seconds = found.seconds
    node = show(found.bytes_per_s_per_node, "B/s")
    block.rows = [
        [
            "samples",
            (f"{_count(found.samples_per_s)} per s, {show(found.sample_bytes, 'traffic')} each"),
            "",
        ],
        [
            "storage bandwidth",
            f"{show(found.bytes_per_s, 'B/s')}, {node} per node",
            _time(seconds.storage),
        ],
        [
            "storage reads",
            f"{_count(found.reads_per_s)} per s, {_count(found.reads_in_flight)} in flight",
            _time(seconds.requests),
        ],
        [
            "workers per replica",
            f"{found.workers_needed} ({_count(found.workers_busy)} busy)",
            _time(seconds.workers),
        ],
        [
            "copies to the GPU",
            f"{show(found.decoded_bytes, 'traffic')} per sample",
            _time(seconds.copies),
        ],
        ["host memory for prefetch", f"{show(found.host_bytes_per_node, 'B')} per node", ""],
    ]
    if found.bound is None:
        block.text.append(f"loading takes {show(found.load_s, 's')} of a step and hides beside it")
    else:
        block.text.append(
            f"INPUT-BOUND by {found.bound}: the step waits {show(found.wait_s, 's')};"
            f" {found.remedy}"
        )
    workers = found.workers or found.workers_needed
    block.text.append(
        f"workers ({workers}) x batches ahead ({found.prefetch}) cover a stall of"
        f" {show(found.covered_s, 's')}; at least {found.prefetch_needed} ahead per worker"
        " keep the GPUs busy"
    )
    return block


def _count(value: float) -> str:
    return show(value, "")


def _time(seconds: float) -> str:
    return show(seconds, "s") if seconds > 0 else "no limit given"
