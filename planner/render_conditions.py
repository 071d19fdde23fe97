"""Blocks of text of ranks that wait for one another, of loading, and of synchronised batch norm."""

from __future__ import annotations

from planner.render import Block, Report
from planner.units import show

_REASONS = {
    "jitter": "jitter of equal ranks", "slow_hosts": "slow hosts", "lengths": "unequal documents of replicas",
}  # fmt: skip


def _percent(value: float) -> str:
    return f"{100 * value:.2f} %"


def condition_blocks(r: Report) -> list[Block]:
    """Of a report: stragglers and input, where they were asked about."""
    return [*_straggler_blocks(r), *([] if r["input"] is None else [input_block(r["input"])])]


def _straggler_blocks(r: Report) -> list[Block]:
    found = r["stragglers"]
    if found is None:
        return []
    step = r["step"]["seconds"]
    block = Block("Waiting for the slowest rank", header=["reason", ">of the step", ">share", ">of the run"])
    days = r["run"]["days"]
    for name, seconds in found["seconds"].items():
        if seconds > 0:
            share = seconds / step
            block.rows.append(
                [_REASONS[name], show(seconds, "s"), _percent(share), "-" if days is None else f"{days * share:,.2f} days"]
            )
    block.text.append(
        f"chance of a slow host in the job {_percent(found['slow_job_frac'])}; jitter {_percent(found['jitter_frac'])}, of which "
        f"the bound sigma sqrt(2 ln N) makes {_percent(found['bound_frac'])}"
    )
    mixed, lengths = found["mixed"], found["lengths"]
    if mixed is not None:
        block.text.append(
            f"computing of a step: {show(mixed['own_s'], 's')} on {r['cluster']['gpu']} alone, {show(mixed['other_s'], 's')} on "
            f"{mixed['gpu']} alone, {show(mixed['together_s'], 's')} together ({mixed['split']} split, {_percent(mixed['share'])} "
            "of the other kind)"
        )
    if lengths is not None:
        block.text += _length_lines(lengths)
    return [block]


def _length_lines(found: Report) -> list[str]:
    return [
        f"documents of {found['mean_tokens']:,.0f} tokens after cutting, {found['packing']}: {_percent(found['useful_frac'])} of the "
        f"tokens are no padding, {found['useful_tokens_per_s']:,.0f} useful tokens/s",
        f"no padding in {_percent(found['padded_frac'])} padded to the sequence, {_percent(found['padded_to_longest_frac'])} padded to "
        f"the longest of a micro-batch, 100 % packed; attention {_percent(found['attention_frac'])} of a full row's, the fullest "
        f"replica {_percent(found['imbalance_frac'])} more",
    ]


def input_block(found: Report, title: str = "Input pipeline") -> Block:
    """What storage, workers and host memory have to provide."""
    block = Block(title, header=["what", ">needed", ">time per step"])
    seconds = found["seconds"]
    node = show(found["bytes_per_s_per_node"], "B/s")
    block.rows = [
        ["samples", f"{found['samples_per_s']:,.4g} per s, {show(found['sample_bytes'], 'traffic')} each", ""],
        ["storage bandwidth", f"{show(found['bytes_per_s'], 'B/s')}, {node} per node", _time(seconds["storage"])],
        ["storage reads", f"{found['reads_per_s']:,.4g} per s, {found['reads_in_flight']:,.3g} in flight", _time(seconds["requests"])],
        ["workers per replica", f"{found['workers_needed']} ({found['workers_busy']:,.3g} busy)", _time(seconds["workers"])],
        ["copies to the GPU", f"{show(found['decoded_bytes'], 'traffic')} per sample", _time(seconds["copies"])],
        ["host memory for prefetch", f"{show(found['host_bytes_per_node'], 'B')} per node", ""],
    ]  # fmt: skip
    workers = found["workers"] or found["workers_needed"]
    block.text.append(
        f"{workers} workers x {found['prefetch']} batches ahead cover a stall of {show(found['covered_s'], 's')}; at least "
        f"{found['prefetch_needed']} ahead per worker keep the GPUs busy"
    )
    if found["bound"] is None:
        block.text.append(f"loading takes {show(found['load_s'], 's')} of a step and hides beside it")
    else:
        block.text.append(f"INPUT-BOUND by {found['bound']}: the step waits {show(found['wait_s'], 's')}; {found['remedy']}")
    return block


def _time(seconds: float) -> str:
    return show(seconds, "s") if seconds > 0 else "no limit given"


def batch_norm_blocks(r: Report) -> list[Block]:
    """Synchronised batch norm of one training step."""
    c = r["cluster"]
    block = Block(f"Synchronised batch norm over {c['gpus']} x {c['gpu']}: {c['nodes']} nodes",
                  header=["pass", "operation", ">calls", ">bytes per rank", ">time"])  # fmt: skip
    block.text.append(f"{r['layers']} layers, {r['channels']:,} channels in all; every layer waits for its statistics")
    for way, operation in (("forward", "all_gather"), ("backward", "all_reduce")):
        block.rows.append([way, operation, str(r["layers"]), show(r[way]["bytes"], "traffic"), show(r[way]["seconds"], "s")])
    block.rows.append(["step", "", str(2 * r["layers"]), show(r["bytes"], "traffic"), show(r["seconds"], "s")])
    return [block]
