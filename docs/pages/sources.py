"""docs/against-our-sources.md: the tables of the source material beside what the planner's own
functions say."""

from __future__ import annotations

import json
from typing import Any

from msgspec import structs

from pages.text import NOTICE, code, percent, run, table
from planner.estimate.memory import state_ledger
from planner.formulas.data_parallel import ring_volume_bytes, shard_count
from planner.formulas.memory import state_bytes
from planner.formulas.optimizers import OPTIMIZERS
from planner.inputs import catalog
from planner.inputs.calibration import stack_spec
from planner.inputs.cluster import cluster_spec
from planner.inputs.model import model_spec
from planner.specs.capabilities import values
from planner.specs.document import read
from planner.specs.documents.estimate import Estimate
from planner.specs.documents.plan import describe
from planner.specs.hardware import GpuSpec
from planner.specs.options import Options
from planner.specs.plan import Plan
from planner.specs.stack import StackSpec
from planner.specs.training import TrainingSpec
from planner.units import show

_PARAMETERS, _GPUS = 70e9, 8.0
_STAGES = ("DDP", "ZeRO-1", "ZeRO-2", "ZeRO-3")
_SAID = {"DDP": 840.0, "ZeRO-1": 350.0, "ZeRO-2": 210.0, "ZeRO-3": 105.0}
_LEVELS = {
    "parameters": 3.0,
    "gradients": 2.0,
    "optimizer": 1.0,
}  # ZeRO stage from which a state is sharded


def _states_gb(ledger: dict[str, float], zero: int) -> float:
    """GB (1e9 bytes) of model states on one of eight GPUs."""
    parts = (
        state_bytes(_PARAMETERS, ledger[name], shard_count(zero, level, _GPUS))
        for name, level in _LEVELS.items()
    )
    return float(sum(parts)) / 1e9


def plan_of(stack: StackSpec, **training_of: Any) -> Plan:
    """Llama-70B on eight A100 of 80 GB with this stack."""
    cluster, _ = cluster_spec(Options(model="llama-70b", gpu="a100-sxm4-80gb", gpus=8))
    training = TrainingSpec(seq_len=4096, global_batch=8, **training_of)
    return Plan(model=model_spec("llama-70b")[0], cluster=cluster, training=training, stack=stack)


def _memory() -> str:
    eight, twelve = ({"parameters": 2.0, "gradients": 2.0, "optimizer": o} for o in (8.0, 12.0))
    rows = [
        [stage, f"{_SAID[stage]:g}", f"{_states_gb(eight, z):g}", f"{_states_gb(twelve, z):,g}"]
        for z, stage in enumerate(_STAGES)
    ]
    per_stack = []
    for stack in catalog.load_all("stacks", StackSpec):
        ledger = state_ledger(plan_of(stack))
        cells = [
            f"{_states_gb(ledger, z):,.1f}" if z in values(stack, "zero") else "-" for z in range(4)
        ]
        per_stack.append(
            [
                f"`{stack.id}`",
                " + ".join(f"{v:g}" for v in ledger.values()),
                f"{sum(ledger.values()):g}",
                *cells,
            ]
        )
    command = "dpplan search --model llama-70b --gpu a100 --gpus 8 --json"
    families = json.loads(run(command)[1])["families"]
    whole = [
        [f["family"], f"`{f['stack']}`", show(f["device_bytes"], "B"), "yes" if f["fits"] else "no"]
        for f in families
    ]
    gib = _states_gb(twelve, 0) * 1e9
    return (
        "## A 70B model on 8 GPUs: bytes of model states\n\n70e9 parameters, GB (1e9 bytes) per"
        " GPU. The sources count 2 B of parameter, 2 B of gradient and 8 B of Adam state per"
        " parameter; the right-hand column counts 12 B of Adam state, with the fp32 master"
        " copy.\n\n"
        + table(["states", ">sources", ">dpplan, 2 + 2 + 8", ">dpplan, 2 + 2 + 12"], rows)
        + "\n- ZeRO-2 at 210 GB leaves the sharded gradients out altogether: 2 B of parameters and"
        " an eighth of 8 B. By the "
        "sources' own accounting an eighth of the 2 B of gradients stays on each GPU, which gives"
        f" {_states_gb(eight, 2):g} GB.\n"
        "- 8 B of Adam state are the two fp32 moments. Training in 16-bit with fp32 accuracy also"
        " keeps an fp32 master copy of "
        f"the parameters, 4 B more: {_states_gb(twelve, 0):,g} GB for DDP,"
        f" {_states_gb(twelve, 2):g} GB for ZeRO-2 and "
        f"{_states_gb(twelve, 3):g} GB for ZeRO-3.\n"
        f'- GB are not GiB: {_states_gb(twelve, 0):,g} GB are {gib / 2**30:,.0f} GiB, and an "80'
        ' GB" card holds 80 GiB, less '
        "what the driver keeps.\n\n"
        "Real stacks differ again, because they keep gradients in fp32, or the parameters"
        " themselves. Bytes per parameter are "
        "parameter + gradient + optimizer (master copy and moments); a dash marks a ZeRO stage the"
        " stack does not run.\n\n"
        + table(["stack", "ledger", ">B", *(f">{s}" for s in _STAGES)], per_stack)
        + "\nStates are not the peak. Activations, the loss, buffers, temporaries and the CUDA"
        " context come on top; this is what the whole device needs for Llama 2 70B, as the search"
        " reports each family:\n\n"
        + code(command, "sh")
        + "\n"
        + table(["family", "stack", ">on the device", "fits 8 x A100 80 GB"], whole)
    )


def _traffic() -> str:
    statements = {"DDP": "2D", "ZeRO-1": "2D + D", "ZeRO-2": "D + D", "ZeRO-3": '"3x"'}
    passes = {z: float(ring_volume_bytes(1.0, z, 1e15, 1.0)) for z in range(4)}
    rows = []
    for z, stage in enumerate(_STAGES):
        volumes = [float(ring_volume_bytes(_PARAMETERS, z, d, 2.0)) / 1e9 for d in (8.0, 2048.0)]
        rows.append(
            [
                stage,
                statements[stage],
                f"{passes[z]:g}D",
                f"{passes[z] / passes[0]:g}x",
                *(f"{v:.1f}" for v in volumes),
                (
                    "every micro-batch"
                    if z == 3
                    else "every step"
                    if z < 2
                    else "every step, or every micro-batch (see below)"
                ),
            ]
        )
    slow = [
        f"`{s.id}`" for s in catalog.load_all("stacks", StackSpec) if s.overlap.sharded_all_reduce
    ]
    exception = (
        "The sources' 2D + D is right for a stack that reduces with an all-reduce and then"
        f" gathers; here: {', '.join(slow)}.\n"
        if slow
        else (
            "No shipped stack does it the other way, a full all-reduce and then a gather (2D +"
            " D).\n"
        )
    )
    return (
        "## Communication of data parallelism\n\nD is the bytes of all parameters, or of all"
        " gradients of the same width. A ring over d ranks sends (d-1)/d of D for an all-gather or"
        " a reduce-scatter, and twice that for an all-reduce; the right-hand columns are GB that"
        " each rank sends for 70e9 parameters in 16 bit.\n\n"
        + table(
            ["", "sources", ">dpplan", ">of DDP", ">GB, d = 8", ">GB, d = 2,048", "how often"], rows
        )
        + "\n- ZeRO-1 replaces the all-reduce by its two halves: a reduce-scatter of gradients"
        " (D), the optimizer on the own shard, an all-gather of parameters (D). That is 2D, as"
        f" for DDP. {exception}- ZeRO-2 moves 2D as well, but gradients must be reduced as soon"
        " as they appear, since no rank keeps them whole: with gradient accumulation the"
        " reduce-scatter is repeated for every micro-batch.\n- ZeRO-3 gathers parameters for"
        " forward and again for backward, and reduce-scatters gradients: 3D, which is"
        f" {passes[3] / passes[0]:g} times DDP and not three times. All of it is repeated for"
        " every micro-batch, which is what makes it expensive on a slow network.\n- Bytes are"
        " not time. Most of this traffic runs beside compute; `dpplan estimate --full` prints for"
        " each collective the time and how much of it is hidden.\n"
    )


def _rates() -> str:
    rtx, a100 = (
        catalog.load("gpus", GpuSpec, "rtx4090"),
        catalog.load("gpus", GpuSpec, "a100-sxm4-80gb"),
    )
    half = rtx.dense_fp16_accumulate
    if (
        half is None
        or half.fp16 is None
        or rtx.dense.bf16 is None
        or a100.dense.bf16 is None
        or rtx.dense.fp16 is None
    ):
        raise ValueError("the profile of rtx4090 or a100-sxm4-80gb lacks a rate this page compares")

    def row(title: str, statement: str, number: Any) -> list[str]:
        return [
            title,
            statement,
            f"{float(number) / 1e12:g}",
            number.kind,
            f"{number.source}, {number.date}",
        ]

    return (
        "## RTX 4090 against A100\n\nDense TFLOP/s of the matrix units. The sources set 330 beside"
        " 312.\n\n"
        + table(
            ["", ">sources", ">profile", "kind", "source of the profile"],
            [
                row("RTX 4090, fp16 with fp16 accumulation", "330", half.fp16),
                row("RTX 4090, fp16 or bf16 with fp32 accumulation", "", rtx.dense.bf16),
                row("A100 SXM 80 GB, fp16 or bf16 with fp32 accumulation", "312", a100.dense.bf16),
            ],
        )
        + "\nThe 330 of the RTX 4090 is the rate with fp16 accumulation. Training accumulates in"
        f" fp32, and there the card runs at half: {float(rtx.dense.bf16) / 1e12:g} TFLOP/s,"
        f" {float(rtx.dense.bf16) / float(a100.dense.bf16):.0%} of an A100, which has one rate"
        " for both. The planner uses rates with fp32 accumulation only; the other is kept in the"
        " profile under its own name so that the two are not confused.\n\nTwo more differences"
        f" decide: memory bandwidth ({show(float(rtx.memory_bandwidth), 'B/s')} against"
        f" {show(float(a100.memory_bandwidth), 'B/s')}) and links. The RTX 4090 has no NVLink and"
        f" its driver disables peer-to-peer copies; its usual node is {rtx.node.gpus_per_node}"
        f" cards on `{rtx.node.intra_node}` with {rtx.node.nics_per_node} x"
        f" {float(rtx.node.nic_bandwidth) * 8 / 1e9:g} Gbit/s, an A100 node has"
        f" `{a100.node.intra_node}` with {a100.node.nics_per_node} x"
        f" {float(a100.node.nic_bandwidth) * 8 / 1e9:g} Gbit/s.\n"
    )


def _adam() -> str:
    stack = stack_spec("megatron-core")
    master, rows = stack.state.master, []
    for name in OPTIMIZERS:
        kept = state_ledger(plan_of(stack, optimizer=name))["optimizer"]
        rows.append([f"`{name}`", f"{master:g}", f"{kept - master:.3g}", f"{kept:.3g}"])
    return (
        '## Optimizer state\n\n"Adam needs 8 bytes per parameter" counts the two fp32 moments. In'
        " 16-bit training the optimizer also owns the fp32 master copy. `--optimizer` and the bytes"
        " it keeps per parameter, for a stack that keeps the master copy in the optimizer"
        " (`megatron-core`):\n\n"
        + table(["optimizer", ">master copy", ">moments", ">sum"], rows)
        + "\nStacks of the FSDP kind hold the parameters themselves in fp32 and need no further"
        " copy: the 4 B appear under parameters, not under the optimizer. The"
        " [catalogue](catalogue/index.md) has the ledger of every stack.\n"
    )


def _limits(r: Estimate) -> str:
    step = r.step
    parts = sorted(step.components.items(), key=lambda x: -x[1])[:4]
    largest = ", ".join(
        f"{name.replace('_', ' ')} {percent(value / step.seconds)}" for name, value in parts
    )
    waiting = sum(
        step.components.get(f"{name}_parallel", 0.0)
        for name in ("tensor", "data", "context", "expert")
    )
    waiting += step.components.get("pipeline_transfer", 0.0)
    bubble, hidden = step.components.get("bubble", 0.0), sum(step.hidden.values())
    return (
        f"limited by {step.bottleneck}. Largest parts: {largest}. Exposed communication is"
        f" {percent(waiting / step.seconds)} of the step and the pipeline bubble"
        f" {percent(bubble / step.seconds)}; {show(hidden, 's')} of communication per step are"
        " hidden beside compute."
    )


def _clusters() -> str:
    commands = {
        "RTX 4090": "dpplan estimate --model llama-70b --gpus 2048 --gpu rtx4090 --tokens 2T",
        "A100 80 GB SXM": (
            "dpplan estimate --model llama-70b --gpus 2048 --gpu a100-sxm4-80gb --tokens 2T"
        ),
    }
    got = {name: read(run(f"{command} --json")[1], Estimate) for name, command in commands.items()}

    def line(title: str, cell: Any) -> list[str]:
        return [title, *(cell(r) for r in got.values())]

    def cost(r: Estimate) -> str:
        usd, price = r.run.cost_usd, r.cluster.usd_per_gpu_hour
        return (
            r.cluster.price
            if usd is None
            else f"{usd:,.0f} at {price:.2f} per GPU-hour ({r.cluster.price_source})"
        )

    rows = [
        line("fits", lambda r: "yes" if r.memory.fits else "no"),
        line("layout", lambda r: f"{describe(r.layout)} [{r.stack.title}]"),
        line(
            "memory per GPU",
            lambda r: " of ".join(
                show(size, "B") for size in (r.memory.device_bytes, r.memory.capacity_bytes)
            ),
        ),
        line("step", lambda r: show(r.step.seconds, "s")),
        line(
            "band",
            lambda r: (
                " .. ".join(show(end, "s") for end in (r.step.low, r.step.high))
                + f" ({r.step.confidence})"
            ),
        ),
        line("tokens/s", lambda r: f"{r.throughput.tokens_per_s:,.0f}"),
        line("tokens/s per GPU", lambda r: f"{r.throughput.tokens_per_s_per_gpu:,.0f}"),
        line("model TFLOP/s per GPU", lambda r: f"{r.throughput.model_tflops_per_gpu:.1f}"),
        line("MFU / HFU", lambda r: f"{percent(r.throughput.mfu)} / {percent(r.throughput.hfu)}"),
        line("days for 2T tokens", lambda r: f"{r.run.days:,.1f}"),
        line("GPU-hours", lambda r: f"{r.run.gpu_hours:,.0f}"),
        line("cost, USD", cost),
        line("energy, kWh", lambda r: f"{r.run.energy_kwh:,.0f}"),
        line("bottleneck", lambda r: r.step.bottleneck),
        line(
            "step time rests on",
            lambda r: ", ".join(
                f"{percent(v)} {k.removesuffix('_frac')}"
                for k, v in structs.asdict(r.provenance).items()
            ),
        ),
    ]
    families: dict[str, dict[str, str]] = {}
    for name, r in got.items():
        for a in r.alternatives:
            if a.family:
                text = (
                    show(a.step_seconds, "s")
                    if a.fits
                    else f"does not fit ({show(a.device_bytes, 'B')})"
                )
                families.setdefault(a.family, {})[name] = text
    small, large = got["RTX 4090"], got["A100 80 GB SXM"]
    ratio = large.throughput.tokens_per_s / small.throughput.tokens_per_s
    same = small.cluster.gpus / ratio
    price = ""
    if small.run.cost_usd and large.run.cost_usd:
        times = large.run.cost_usd / small.run.cost_usd
        price = f" At the list prices above, the run on A100s costs {times:.2f} times as much."
    return (
        "## 2,048 RTX 4090s for LLaMA 70B\n\nCan it be done, and what would the same number of"
        " A100s do? Nothing but the model, the cards and the tokens is given; layout and stack"
        " are searched, the rest are stated defaults.\n\n"
        + code("\n".join(commands.values()), "sh")
        + "\n"
        + table(["", *got], rows)
        + "".join(f"\n- {name}: {_limits(r)}" for name, r in got.items())
        + f"\n- Throughput: the A100 cluster is {ratio:.2f} times as fast. By its rate per GPU,"
        f" about {same:,.0f} A100s do what 2,048 RTX 4090s do.{price} The cost is that of"
        " GPU-hours at the list price; whether anyone rents 2,048 RTX 4090s in one place, on"
        " such a network, is another question.\n\nWhat each family of layouts can do, as step"
        " time. With 24 GB a card, only what shards parameters fits:\n\n"
        + table(
            ["family", *got],
            [[name, *(cells.get(g, "-") for g in got)] for name, cells in families.items()],
        )
    )


def page() -> str:
    head = (
        NOTICE
        + "# Against our sources\n\nThe project began from tables that circulate about training"
        " large models. This page sets each beside what the planner's own functions say, and"
        " explains where they differ. Every number under `dpplan` is computed when this page is"
        " built. What else these sources claim is checked one by one, with the command of each, in"
        " [learn](learn/coverage.md).\n"
    )
    return "\n".join([head, _memory(), _traffic(), _rates(), _adam(), _clusters()])
