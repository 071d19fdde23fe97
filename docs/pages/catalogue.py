"""docs/catalogue: GPUs, networks, clusters, models, stacks and prices from the profiles, with
sources, a page per kind."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pages.sheets import sheets
from pages.text import NOTICE, table
from planner.formulas.optimizers import OPTIMIZERS
from planner.formulas.params import active_parameter_count, parameter_count
from planner.inputs import catalog
from planner.inputs.cluster import price_of
from planner.inputs.prices import prices
from planner.inputs.run import storages
from planner.ledger import Sourced
from planner.specs.base import Spec
from planner.specs.capabilities import has, values
from planner.specs.cluster import ClusterTemplate
from planner.specs.hardware import PRECISIONS, GpuSpec, LinkSpec
from planner.specs.host import HostSpec
from planner.specs.model import ModelSpec
from planner.specs.options import Options
from planner.specs.stack import StackSpec
from planner.units import in_unit, percent, show


def _number(value: Any, unit: str) -> str:
    """A number with the first letter of its kind: v vendor, m measured, a assumed."""
    if value is None:
        return "-"
    text = show(float(value), unit)
    return f"{text} {value.kind[0]}" if isinstance(value, Sourced) else text


def sources(spec: Spec) -> list[str]:
    """Distinct sources of all numbers of a profile, in order of appearance."""
    return list(
        dict.fromkeys(
            f"{n.source}{f', {n.date}' if n.date else ''}" for n in _numbers(spec) if n.source
        )
    )


def _numbers(value: object) -> Iterator[Sourced]:
    if isinstance(value, Sourced):
        yield value
    elif isinstance(value, Spec):
        for name in type(value).model_fields:
            yield from _numbers(getattr(value, name))
    elif isinstance(value, dict):
        for inner in value.values():
            yield from _numbers(inner)


def _heads(model: ModelSpec) -> str:
    """Heads of queries, and of keys and values."""
    part = model.attention
    return f"{part.heads}/{getattr(part, 'kv_heads', part.heads)}" if part else "0/0"


def _aliases(spec: Any) -> str:
    return ", ".join(f"`{name}`" for name in spec.aliases)


def _gpus() -> str:
    cards = catalog.load_all("gpus", GpuSpec)
    rates = table(
        [
            "id",
            "title",
            "aliases",
            ">memory",
            ">usable",
            ">bandwidth",
            *(f">{p}" for p in PRECISIONS),
            ">power",
            "typical node",
        ],
        [
            [
                f"`{g.id}`",
                g.title,
                _aliases(g),
                _number(g.memory, "B"),
                _number(g.usable_memory, "B"),
                _number(g.memory_bandwidth, "B/s"),
                *(_number(g.rate(p), "FLOP/s") for p in PRECISIONS),
                _number(g.power, "W"),
                (
                    f"{g.node.gpus_per_node} x, {g.node.intra_node}, {g.node.nics_per_node} x "
                    f"{show(float(g.node.nic_bandwidth), 'B/s')} {g.node.inter_node}"
                ),
            ]
            for g in cards
        ],
    )
    half = [g for g in cards if g.dense_fp16_accumulate is not None]
    accumulate = table(
        [
            "id",
            ">fp16, fp32 accumulation",
            ">fp16, fp16 accumulation",
            ">fp8, fp32 accumulation",
            ">fp8, fp16 accumulation",
        ],
        [
            [
                f"`{g.id}`",
                _number(g.dense.fp16, "FLOP/s"),
                _number(a.fp16, "FLOP/s"),
                _number(g.dense.fp8, "FLOP/s"),
                _number(a.fp8, "FLOP/s"),
            ]
            for g in half
            if (a := g.dense_fp16_accumulate) is not None
        ],
    )
    curves = table(
        [
            "id",
            ">GEMM efficiency",
            ">sustained clock",
            ">GEMM share of memory bandwidth",
            ">attention forward",
            ">backward",
        ],
        [
            [
                f"`{g.id}`",
                *(
                    _number(x, "1")
                    for x in (
                        g.kernels.gemm_efficiency,
                        g.kernels.sustained_clock,
                        g.kernels.memory_frac,
                        g.kernels.attention_forward,
                        g.kernels.attention_backward,
                    )
                ),
            ]
            for g in cards
        ],
    )
    where = table(
        ["id", "sources of its numbers"], [[f"`{g.id}`", "; ".join(sources(g))] for g in cards]
    )
    return (
        f"## GPUs\n\n{len(cards)} exact variants. Rates are dense, with fp32 accumulation, which is"
        " what training uses; a dash means the card does not have the precision. `usable` is what"
        " the driver leaves to a framework.\n\n"
        + rates
        + "\nCards whose vendor also quotes a rate with fp16 accumulation; the planner never uses"
        " that rate:\n\n"
        + accumulate
        + "\nHow fast kernels run, as shares (see `planner/specs/hardware.py` for each word):\n\n"
        + curves
        + "\nWhere the numbers were read:\n\n"
        + where
    )


def _networks() -> str:
    links = catalog.load_all("networks", LinkSpec)
    rows = [
        [
            f"`{n.id}`",
            n.title,
            "inside a node" if n.scope == "intra_node" else "between nodes",
            "the cards'" if n.takes_speed_of_cards else _number(n.bandwidth, "B/s"),
            _number(n.base_latency, "s") if n.base_latency is not None else "",
            _number(n.latency, "s"),
            _number(n.host_bandwidth, "B/s") if n.host_bandwidth is not None else "",
            _number(n.all_reduce_frac, "1"),
            _number(n.all_gather_frac, "1"),
            _number(n.reduce_scatter_frac, "1"),
            _number(n.send_recv_frac, "1"),
            "yes" if n.peer_to_peer else "no",
            "; ".join(sources(n)),
        ]
        for n in links
    ]
    header = [
        "id",
        "title",
        "where",
        ">one way",
        ">per call",
        ">latency",
        ">host in all",
        ">all-reduce",
        ">all-gather",
        ">reduce-scatter",
        ">send",
        "peer to peer",
        "sources",
    ]
    return (
        f"## Networks\n\n{len(links)} links. Bandwidth is one way: per GPU inside a node, per card"
        " between nodes. Latency is two steps of a ring inside a node, one step from node to node"
        " between them. The four shares are what a collective reaches of the bandwidth; on PCIe"
        " all GPUs of a host share what its bridges carry in all.\n\n" + table(header, rows)
    )


def _clusters() -> str:
    kinds = catalog.load_all("clusters", ClusterTemplate)
    rows = [
        [
            f"`{c.id}`",
            c.title,
            _aliases(c),
            f"`{c.gpu}`",
            c.gpus_per_node,
            f"`{c.intra_node}`",
            f"{c.nics_per_node} x {_number(c.nic_bandwidth, 'B/s')} `{c.inter_node}`",
            c.nvlink_domain or "-",
            price_of(Options(model="none", cluster=c.id)).sentence,
            c.source,
        ]
        for c in kinds
    ]
    header = [
        "id",
        "title",
        "aliases",
        "gpu",
        ">GPUs",
        "inside",
        "between, one way",
        ">NVLink domain",
        "price",
        "source",
    ]
    return f"## Clusters\n\n{len(kinds)} kinds of node, for `--cluster`.\n\n" + table(header, rows)


def _hosts() -> str:
    hosts = catalog.load_all("hosts", HostSpec)
    rows = [
        [
            f"`{h.id}`",
            h.title,
            _aliases(h),
            h.sockets,
            h.cores,
            _number(h.memory_bandwidth, "B/s"),
            percent(h.stream_frac),
            _number(h.core_bandwidth, "B/s"),
            h.source,
        ]
        for h in hosts
    ]
    header = ["id", "title", "aliases", ">sockets", ">cores"]
    header += [">memory", ">of it by all cores", ">one core", "source"]
    return (
        f"## Hosts\n\n{len(hosts)} kinds of processors and memory, for `--host`: what updates an"
        " optimizer that is offloaded.\n\n" + table(header, rows)
    )


def _prices() -> str:
    shipped = prices()
    markets = [
        [f"`{market.id}`", ", ".join(f"`{a}`" for a in market.aliases), market.title]
        for market in shipped.market
    ]
    rows = [
        [f"`{gpu}`", f"{in_unit(float(usd), 'USD/h'):g}", price.market, price.title, price.date]
        for gpu in catalog.ids("gpus")
        for price in shipped.list
        if (usd := price.usd_per_gpu_hour.get(gpu)) is not None
    ]
    sources = {
        f"{price.title}, {price.market}, {price.date}": price.source for price in shipped.list
    }
    return (
        "## Prices\n\nUS dollars for one GPU and one hour, by kind of price. Every answer takes one"
        " kind, on-demand unless `--market` names another, a provider or a TOML file of your own"
        " quotes; a GPU without such a price has none and is never the cheapest. Of several lists"
        " of a kind the first below is taken, and a cluster of a provider has that provider's price"
        " or none. Lists move weekly: set `--price` before deciding.\n\n"
        + table(["market", "also called", "what it is"], markets)
        + "\n"
        + table(["gpu", ">USD/h", "market", "provider", "date"], rows)
        + "\nWhere they were read:\n\n"
        + "".join(f"- {name}: {source}.\n" for name, source in sources.items())
    )


def _trained(m: ModelSpec) -> str:
    """Published batch, sequence and precision of its training, with sources."""
    batch, sequence, precision = m.published.batch, m.published.sequence, m.published.precision
    parts = [
        *([f"{sequence.tokens:,} tokens a sequence ({sequence.source})"] if sequence else []),
        *(
            [f"{show(m.published.batch_tokens, 'count')} tokens a step ({batch.source})"]
            if batch
            else []
        ),
        *([f"{precision.name} ({precision.source})"] if precision else []),
    ]
    return "; ".join(parts)


def _models() -> str:
    models = catalog.load_all("models", ModelSpec)
    rows = [
        [
            f"`{m.name}`",
            m.title or m.name,
            _aliases(m),
            f"{parameter_count(m):,}",
            f"{n:,}" if (n := active_parameter_count(m)) != parameter_count(m) else "",
            m.layers,
            m.hidden,
            _heads(m),
            f"{m.vocab:,}",
            f"{m.max_positions:,}",
            _trained(m),
            m.source,
        ]
        for m in models
    ]
    header = [
        "name",
        "title",
        "aliases",
        ">parameters",
        ">active",
        ">layers",
        ">hidden",
        ">heads/kv",
        ">vocabulary",
        ">context",
        "trained with",
        "source",
    ]
    head = (
        f"## Models\n\n{len(models)} shapes. Parameter counts are exact; `active` is what one token"
        " uses; `trained with` is the default sequence length and global batch.\n\n"
    )
    return head + table(header, rows)


def _storages() -> str:
    rows = []
    for storage in storages():
        speed = storage.per_node or storage.whole
        rows.append(
            [
                f"`{storage.id}`",
                storage.title,
                _number(storage.per_node, "B/s") if storage.per_node else "",
                _number(storage.whole, "B/s") if storage.whole else "",
                speed.source if speed else "",
            ]
        )
    return "## Checkpoint storage\n\n" + table(
        ["id", "title", ">writes per node", ">writes in all", "source"], rows
    )


def _stacks() -> str:
    stacks = catalog.load_all("stacks", StackSpec)
    moments = OPTIMIZERS["adam"].moment_bytes()
    ledger = [
        [
            f"`{s.id}`",
            s.title,
            _aliases(s),
            f"{s.state.parameter:g}",
            f"{s.state.gradient:g}",
            f"{s.state.master:g}",
            f"{moments:g}",
            f"**{s.state.parameter + s.state.gradient + s.state.master + moments:g}**",
            f"{s.state.optimizer_temporary:g}",
            f"{s.state.gradient_wire:g}",
            s.source,
        ]
        for s in stacks
    ]
    words = (
        ("tp", "tp"),
        ("sequence_parallel", "sp"),
        ("pp", "pp"),
        ("cp", "cp"),
        ("ep", "ep"),
        ("shard_group", "hybrid shard"),
    )
    runs = [
        [
            f"`{s.id}`",
            ", ".join(map(str, values(s, "zero"))),
            ", ".join(short for name, short in words if has(s, name)) or "-",
            ", ".join(values(s, "schedule")) if has(s, "pp") else "-",
            ", ".join(values(s, "recompute")),
            ", ".join(values(s, "offload")),
            s.fusion.attention,
        ]
        for s in stacks
    ]
    speed = [
        [
            f"`{s.id}`",
            *(_number(x, "1") for x in (s.network_frac, s.fragmentation_frac, s.overlap.slowdown)),
            _number(s.launch.operator, "s"),
            _number(s.launch.step_overhead, "s"),
            ", ".join(
                name.replace("_", " ")
                for name in (
                    "gradient_sync",
                    "sharded_sync",
                    "pipeline_send",
                    "scatter_gather",
                    "interleaved_window",
                )
                if getattr(s.overlap, name)
            )
            or "nothing",
        ]
        for s in stacks
    ]
    return (
        f"## Stacks\n\n{len(stacks)} training stacks. Bytes per parameter in 16-bit mixed precision"
        " with Adam, before any sharding; `temporaries` exist during the optimizer step, `wire` is"
        " the type in which gradients are reduced.\n\n"
        + table(
            [
                "id",
                "title",
                "aliases",
                ">parameter",
                ">gradient",
                ">master",
                ">moments",
                ">sum",
                ">temporaries",
                ">wire",
                "source",
            ],
            ledger,
        )
        + "\nWhat each can run; the search proposes nothing else:\n\n"
        + table(
            ["id", "ZeRO", "parallelism", "schedules", "recompute", "offload", "attention"], runs
        )
        + "\nNumbers that decide its speed:\n\n"
        + table(
            [
                "id",
                ">share of fabric",
                ">fragmentation",
                ">slow-down beside a collective",
                ">time per operator",
                ">time per step",
                "overlaps",
            ],
            speed,
        )
    )


def folder() -> dict[str, str]:
    """Pages of docs/catalogue by name."""
    head = (
        NOTICE
        + "# Catalogue\n\nWhat ships with the planner. The letter after a number tells what it"
        " rests on: v a vendor's figure, m measured, a assumed. `dpplan list gpus` and its"
        " siblings print the same entries. To add your own, see [extending](extending/index.md).\n"
    )
    text = "\n".join(
        [
            head,
            _gpus(),
            _networks(),
            _clusters(),
            _hosts(),
            _prices(),
            _storages(),
            _models(),
            _stacks(),
        ]
    )
    return sheets(text, "catalogue")
