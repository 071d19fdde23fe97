"""The inputs as a person thinks of them: model, cluster, training, layout, software. Plain fields;
sliders are made of them."""

from __future__ import annotations

from functools import cache
from typing import Any, get_args

from planner import api
from planner.specs.data import Packing
from planner.specs.hardware import Precision
from planner.specs.layout import PLACEMENTS
from planner.specs.options import Options, rows
from planner.specs.ranks import Split
from planner.specs.run import CheckpointWriter
from planner.specs.training import OptimizerName
from web.panels.legal import Choice
from web.state import SEPARATOR, State, catalogue_id
from web.texts import LABELS, PLACEHOLDERS, TEXTS, text

# (group, fields in order, folded fields); a folded field opens by itself when it is set
_GROUPS: tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...] = (
    ("model", ("model",), ()),
    (
        "cluster",
        ("gpu", "gpus", "price"),
        (
            "cluster",
            "gpus_per_node",
            "intra_node",
            "inter_node",
            "nics_per_node",
            "nic_bandwidth",
            "host_link",
            "nvme_read",
            "nvme_write",
            "nvme_capacity",
            "market",
            "clock",
            "power_limit",
        ),
    ),
    (
        "training",
        ("tokens", "global_batch", "seq_len", "precision", "optimizer"),
        ("flash_attention", "loss_chunks"),
    ),
    (
        "layout",
        ("tp", "pp", "dp", "micro_batch", "zero", "recompute"),
        (
            "cp",
            "ep",
            "vpp",
            "schedule",
            "sequence_parallel",
            "shard_group",
            "offload",
            "placement",
            "search_offload",
            "uneven_stages",
            "where",
        ),
    ),
    ("stack", ("stack",), ()),
    (
        "run",
        ("storage", "spare_nodes", "require"),
        (
            "mtbf",
            "checkpoint",
            "checkpoint_interval",
            "restart",
            "capex",
            "lifetime",
            "use",
            "electricity",
            "pue",
            "grid",
        ),
    ),
    (
        "conditions",
        ("jitter", "slow_hosts", "length_mean", "data_storage"),
        (
            "slow_factor",
            "other_gpu",
            "other_share",
            "split",
            "length_sigma",
            "packing",
            "sample_bytes",
            "token_bytes",
            "decoded_bytes",
            "read_bytes",
            "data_iops",
            "read_latency",
            "worker_rate",
            "workers",
            "prefetch",
        ),
    ),
)
SLIDERS = ("gpus", "global_batch", "seq_len", "tp", "pp", "dp", "cp", "ep", "vpp", "micro_batch")
_WORDS = {
    "zero": {
        0: "0: replicated",
        1: "1: optimizer",
        2: "2: and gradients",
        3: "3: and parameters (FSDP)",
    }
}
_KIND = {
    "model": "models",
    "gpu": "gpus",
    "cluster": "clusters",
    "stack": "stacks",
    "other_gpu": "gpus",
}
_LINKS = ("intra_node", "inter_node", "host_link")
_DETERMINED = ("gpus", "seq_len", "global_batch")


@cache
def _listed(name: str) -> tuple[tuple[str, str], ...]:
    """(id, title) of every entry of the catalogue that an input offers."""
    if name in _KIND:
        return tuple((entry.id, entry.title) for entry in api.list_catalog(_KIND[name]))
    scope = "inter_node" if name == "inter_node" else "intra_node"
    return tuple((n["id"], n["title"]) for n in api.list_catalog("networks") if n["scope"] == scope)


def form(
    state: State, choices: dict[str, list[Choice]], layout: dict[str, Any]
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """(groups of fields for the template, choices by field for the script)."""
    groups: list[dict[str, Any]] = []
    for name, shown, folded in _GROUPS:
        more = [_field(field, state, choices, layout) for field in folded]
        groups.append(
            {
                "name": name,
                "title": TEXTS[f"group_{name}"],
                "hint": TEXTS.get(f"group_{name}_hint", ""),
                "fields": [_field(field, state, choices, layout) for field in shown],
                "more": more,
                "open": any(field["value"] != "" for field in more),
            }
        )
    fields: list[dict[str, Any]] = [
        field for group in groups for field in [*group["fields"], *group["more"]]
    ]
    return groups, {field["name"]: field["choices"] for field in fields if field["choices"]}


def _field(
    name: str, state: State, choices: dict[str, list[Choice]], layout: dict[str, Any]
) -> dict[str, Any]:
    value = getattr(state.options, name)
    default = rows(Options)[name].default
    out: dict[str, Any] = {
        "name": name,
        "label": LABELS[name],
        "help": rows(Options)[name].says.help,
        "kind": "text",
        "choices": [],
        "slider": name in SLIDERS,
        "value": ""
        if value is None or (value == default and name not in _DETERMINED)
        else _text(value),
        "placeholder": PLACEHOLDERS.get(name, ""),
        "auto": "",
    }
    if name in _KIND or name in _LINKS:
        return out | _listed_field(name, state, value)
    offered = choices.get(name)
    if name == "precision":
        offered = [Choice(p, None) for p in get_args(Precision)]
    elif name == "optimizer":
        offered = [Choice(o, None) for o in get_args(OptimizerName)]
        out["value"] = _text(value)
    elif name == "placement":
        offered = [Choice(p, None) for p in PLACEMENTS]
    elif name == "checkpoint":
        offered = [Choice(c, None) for c in get_args(CheckpointWriter)]
    elif name == "split":
        offered = [Choice(s, None) for s in get_args(Split)]
    elif name == "packing":
        offered = [Choice(p, None) for p in get_args(Packing)]
    elif name in ("flash_attention", "search_offload", "uneven_stages"):
        offered = [Choice(True, None), Choice(False, None)]
    if offered is None:
        return out
    out["kind"] = "select"
    out["choices"] = [
        {"value": _text(c.value), "label": _label(name, c.value), "reason": c.reason}
        for c in offered
    ]
    out["auto"] = "" if name in ("gpus", "optimizer") else _auto(name, layout)
    if out["value"] and out["value"] not in [c["value"] for c in out["choices"]]:
        out["choices"].append({"value": out["value"], "label": out["value"], "reason": None})
    return out


def _listed_field(name: str, state: State, value: str | None) -> dict[str, Any]:
    found = [
        {"value": i, "label": title if title == i else f"{title}", "reason": None}
        for i, title in _listed(name)
    ]
    chosen = catalogue_id(name, value) if value is not None else None
    shown = "" if value is None else chosen or ("" if name == "model" and state.config else value)
    if shown and shown not in [c["value"] for c in found]:
        found.insert(0, {"value": shown, "label": shown, "reason": None})
    auto = text("config_chosen") if name == "model" and state.config else text("usual")
    optional = (
        name not in ("model", "gpu")
        or (name == "model" and state.config)
        or (name == "gpu" and value is None)
    )
    return {"kind": "select", "choices": found, "value": shown, "auto": auto if optional else ""}


def _auto(name: str, layout: dict[str, Any]) -> str:
    """What "auto" is called: with what the search chose, where it is known."""
    if name not in layout or layout[name] is None:
        return text("auto")
    return text("auto_is", value=_label(name, layout[name]))


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return SEPARATOR.join(value) if isinstance(value, tuple) else str(value)


def _label(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return text("yes") if value else text("no")
    if name in _WORDS:
        return _WORDS[name].get(value, str(value))
    return f"{value:,}" if isinstance(value, int) else str(value)
