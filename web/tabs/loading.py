"""The input pipeline: storage, workers and host memory for a rate of samples."""

from __future__ import annotations

from planner.specs.documents.input import InputAnswer
from planner.specs.options.parallel import InputOptions
from planner.units import show
from planner.verbs.input import answer
from planner.views.cells import Column
from planner.views.conditions import input_block
from planner.views.figures import BLUE, RED, Chart, axis, bars, figure, hline
from web.tabs.base import Asked, Found, Tab, Table


def _find(asked: Asked) -> InputAnswer:
    return answer(asked.given, asked.of(InputOptions))


def _show(found: InputAnswer, asked: Asked) -> Found:
    own = asked.of(InputOptions)
    block = input_block(
        found.input, f"Input of {found.gpus:,} GPUs, batches of {found.batch:,} each"
    )
    verdict, *block.text = block.text
    title, block.title = block.title, "What it takes"
    return Found(
        title=title,
        verdict=verdict[:1].upper() + verdict[1:],
        command=asked.command,
        mark="yes" if found.input.bound is None else "no",
        parts=(_chart(found, found.gpus * found.batch / own.samples_per_s), Table(block)),
    )


def _chart(found: InputAnswer, step_s: float) -> Chart:
    """Seconds of a step's samples by stage, against the step that consumes them."""
    seconds = found.input.seconds
    stages = {
        "storage bandwidth": seconds.storage,
        "storage requests": seconds.requests,
        "workers": seconds.workers,
        "copies to the GPU": seconds.copies,
    }
    data = bars(
        "time", list(stages), list(stages.values()), BLUE, [show(s, "s") for s in stages.values()]
    )
    return Chart(
        "input-stages",
        "A step's samples by stage",
        f"A step consumes its samples in {show(step_s, 's')}; the longest stage takes"
        f" {show(found.input.load_s, 's')}.",
        figure([data], axis(type="category"), axis("seconds"), shapes=[hline(step_s, RED)]),
        (Column("stage"), Column("time per step", "s")),
        [[name, value] for name, value in stages.items()],
        "Stages run beside each other; a bar above the line keeps the step waiting. A stage without"
        " a stated limit takes no time.",
        order="from storage to the GPU",
    )


TAB = Tab(
    path="/input",
    name="Input",
    title="Input pipeline",
    lead=(
        "Enter samples per second: what storage, data-loader workers and host memory must "
        "deliver, and which of them stalls the step."
    ),
    ask="Size it",
    verb="input",
    documents=("input",),
    records=(InputOptions,),
    shown=(
        "samples_per_s",
        "batch",
        "gpus",
        "sample_bytes",
        "data_storage",
        "worker_rate",
        "workers",
    ),
    folded=(
        "gpus_per_node",
        "decoded_bytes",
        "read_bytes",
        "data_iops",
        "read_latency",
        "prefetch",
    ),
    start=[
        ("samples_per_s", "20000"),
        ("batch", "128"),
        ("gpus", "8"),
        ("sample_bytes", "115 kB"),
        ("worker_rate", "300"),
        ("workers", "10"),
        ("data_storage", "4 GB/s"),
    ],
    usual=[("samples_per_s", "20000"), ("sample_bytes", "115 kB")],
    find=_find,
    show=_show,
    model=False,
)
