"""Measured runs against predictions: read the columns of a runs table, estimate each row from the row alone, report errors."""

from __future__ import annotations

import csv
import io
import math
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import ValidationError

from planner import request
from planner.catalog import read_text
from planner.estimate import Estimates, evaluate
from planner.estimate.table import to_table
from planner.ledger import Array
from planner.specs.base import PlanError
from planner.specs.layout import Layout, LayoutRequest
from planner.specs.model import Experts, LatentAttention, ModelSpec
from planner.specs.plan import Plan
from planner.specs.training import TrainingSpec

Row = dict[str, str]

REQUIRED = (
    "run_id",
    "suite",
    "gpu",
    "gpus",
    "stack",
    "layers",
    "hidden",
    "heads",
    "seq_len",
    "tp",
    "pp",
    "dp",
    "global_batch",
)

OUTCOMES = ("ok", "oom")
MAX_TABLE_BYTES = 8_000_000

# what a stack does where a recipe is not printed
_SHARDED = ("composer-fsdp", "fms-fsdp", "torchtitan", "lightning-fsdp", "pytorch-fsdp")
_DISTRIBUTED_OPTIMIZER = ("megatron-core", "nemo", "meta-llama3", "hai-llm")
_ALWAYS_RECOMPUTES = ("megatron-lm-2021", "megatron-deepspeed", "bmtrain")

# latent attention is not in the columns; the families that have it share these ranks (their public configs)
_LATENT = {
    "deepseek": (1536, 512, 128, 64, 128),
    "kimi": (1536, 512, 128, 64, 128),
    "moonlight": (None, 512, 128, 64, 128),
}


def read_rows(path: Path) -> list[Row]:
    """Rows of a runs table. Raises PlanError for a file that is none."""
    field, name = "RUNS.csv", str(path)
    text = read_text(path, field, MAX_TABLE_BYTES).removeprefix("\ufeff")
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        header = [cell.strip() for cell in next(reader, [])]
        for needed in REQUIRED:
            if needed not in header:
                raise PlanError(field, name, f"has no column {needed!r}; the columns are in docs/validation.md")
        for column in header:
            if header.count(column) > 1:
                raise PlanError(field, name, f"has the column {column!r} twice")
        rows = []
        for cells in reader:
            if len(cells) > len(header):
                raise PlanError(field, name, f"line {reader.line_num} has more cells than the header")
            if cells:
                rows.append(dict(zip(header, [c.strip() for c in cells] + [""] * (len(header) - len(cells)), strict=True)))
        return rows
    except csv.Error as error:
        raise PlanError(field, name, f"is no readable CSV (line {reader.line_num}: {error})") from None


class _Skip(ValueError):
    """A row that cannot be expressed, with the reason."""


def _number(row: Row, name: str, default: float | None = None) -> float:
    text = row.get(name, "")
    if text == "":
        if default is None:
            raise _Skip(f"{name} is empty")
        return default
    try:
        value = float(text)
    except ValueError:
        raise _Skip(f"{name} is {text!r}, no number") from None
    if not math.isfinite(value) or value < 0:
        raise _Skip(f"{name} is {text!r}, out of range")
    return value


def _whole(row: Row, name: str, default: float | None = None, minimum: int = 0) -> int:
    value = _number(row, name, default)
    if value != int(value):
        raise _Skip(f"{name} is {value}, no whole number")
    if value < minimum:
        raise _Skip(f"{name} is {value:g}; it must be at least {minimum}")
    return int(value)


def _measured(row: Row, name: str) -> float | None:
    value = _number(row, name, 0.0)
    if value == 0 and row.get(name, ""):
        raise _Skip(f"{name} is {row[name]!r}; a measurement is positive, and what is not known is left empty")
    return value or None


def _options(row: Row) -> dict[str, str]:
    pairs = (part.partition("=") for part in row.get("options", "").split(";") if part)
    return {key.strip(): value.strip() or "1" for key, _, value in pairs}


def row_model(row: Row) -> ModelSpec:
    """Transformer shape of a row."""
    heads = _whole(row, "heads", minimum=1)
    hidden = _whole(row, "hidden")
    head_dim = _whole(row, "head_dim", hidden // heads)
    name = row.get("model", "") or "model"
    gated = row.get("mlp", "") in ("swiglu", "geglu", "")
    layers = _whole(row, "layers")
    norm = "layernorm" if row.get("norm", "") == "layernorm" else "rmsnorm"
    moe = None
    experts = _whole(row, "experts", 0)
    latent = None
    if experts > 1:
        width = _whole(row, "moe_ffn_hidden")
        family = next((f for f in _LATENT if f in name.lower()), None)
        moe = Experts(
            experts=experts, experts_per_token=_whole(row, "experts_per_token"), ffn_hidden=width,
            shared_ffn_hidden=width * _whole(row, "shared_experts", 0), dense_layers=_whole(row, "dense_layers", 0),
            group_limit=4 if family == "deepseek" else None,
        )  # fmt: skip
        if family and head_dim == 128:
            q, kv, nope, rope, value = _LATENT[family]
            latent = LatentAttention(
                query_rank=q,
                kv_rank=kv or 1,
                nope_head_dim=nope or 1,
                rope_head_dim=rope or 1,
                value_head_dim=value or 1,
            )
    positions = {"rope": "rotary", "learned": "learned", "alibi": "alibi"}.get(row.get("positions", ""), "none")
    mpt = name.lower().startswith("mpt")
    return ModelSpec(
        name=name, layers=layers, hidden=hidden, heads=heads, kv_heads=_whole(row, "kv_heads", heads) or heads,
        head_dim=head_dim, ffn_hidden=_whole(row, "ffn_hidden", 4 * hidden) or 4 * hidden,
        vocab=_whole(row, "vocab", 51200), max_positions=_whole(row, "seq_len", minimum=1),
        mlp="gated" if gated else "plain", activation="silu" if gated else "gelu",
        norm=norm, norm_bias=norm == "layernorm" and not mpt,  # type: ignore[arg-type]
        positions=positions,  # type: ignore[arg-type]
        tied_embeddings=row.get("tied_embeddings", "") == "1",
        bias_qkv=not gated and not mpt, bias_attention_out=not gated and not mpt, bias_mlp=not gated and not mpt,
        dropout=_legacy_gpt(row["stack"], row), latent=latent, moe=moe,
    )  # fmt: skip


def _legacy_gpt(stack: str, row: Row) -> bool:
    """Megatron's own defaults for a GPT with learned positions: dropout 0.1, attention without the flash switch."""
    return stack == "megatron-core" and row.get("positions") == "learned" and row.get("flash_attention", "") == ""


def row_plan(row: Row, calibration: request.Calibration | None = None) -> tuple[Plan, Layout]:
    """Plan and layout of a row; raises _Skip where it cannot be expressed."""
    stack = request.stack_spec(row["stack"])
    options = _options(row)
    model = row_model(row)
    gpus = _whole(row, "gpus")
    nics, speed = row.get("nics_per_node", ""), row.get("nic_gbps", "")
    cluster, _ = request.cluster_spec(
        gpu=row["gpu"], gpus=gpus, gpus_per_node=_whole(row, "gpus_per_node", 0) or None,
        intra_node=row.get("intra_node") or None, inter_node=row.get("inter_node") or None,
        nics_per_node=int(_number(row, "nics_per_node")) if nics else None,
        nic_bandwidth=f"{_number(row, 'nic_gbps')} Gbit/s" if speed else None,
        calibration=calibration if calibration and calibration.gpu == row["gpu"] else None,
    )  # fmt: skip
    tp, pp, cp, dp = (_whole(row, name, 1, minimum=1) for name in ("tp", "pp", "cp", "dp"))
    if tp * pp * cp * dp != gpus:
        raise _Skip(f"tp {tp} x pp {pp} x cp {cp} x dp {dp} = {tp * pp * cp * dp}, but gpus is {gpus}")
    vpp = _whole(row, "vpp", 1) or 1
    default_zero = 3 if stack.id in _SHARDED else 1 if stack.id in _DISTRIBUTED_OPTIMIZER else 0
    offloaded = row.get("optimizer_offload", "") == "1" or "offload" in options.get("flags", "")
    zero = _whole(row, "zero", 3 if offloaded and 3 in stack.supports.zero else default_zero)  # offloading is a ZeRO feature
    micro_batch = _whole(row, "micro_batch", 1) or 1
    global_batch = _whole(row, "global_batch")
    if global_batch % (dp * micro_batch):
        raise _Skip(f"global_batch {global_batch} is no multiple of dp {dp} x micro_batch {micro_batch}")
    recompute = row.get("recompute", "") or ("full" if stack.id in _ALWAYS_RECOMPUTES else "none")
    sequence = row.get("sequence_parallel", "")
    schedule = row.get("schedule", "") or ("interleaved" if vpp > 1 else "1f1b")
    if schedule == "1f1b" and vpp > 1:
        schedule = "interleaved"
    shard = _whole(row, "shard_group", 0)
    offload = "none"
    if offloaded:
        offload = "params" if "parameters" in options.get("flags", "") else "optimizer"
    layout = Layout(
        tp=tp, pp=pp, vpp=vpp, dp=dp, cp=cp, ep=_whole(row, "ep", 1) or 1, zero=zero,
        shard_group=min(shard * cp, dp * cp) if shard else dp * cp,
        sequence_parallel=sequence == "1" or (sequence == "" and tp > 1 and stack.id in ("nemo", "megatron-core")),
        recompute=recompute, schedule=schedule, micro_batch=micro_batch, offload=offload,  # type: ignore[arg-type]
    )  # fmt: skip
    attention = options.get("attention")
    if attention is None and row.get("flash_attention", "") in ("0", "1"):
        wants = row["flash_attention"] == "1"
        has = stack.fusion.attention.startswith("flash")
        attention = None if wants == has else "flash2" if wants else "fused_softmax"
    elif attention is None and _legacy_gpt(stack.id, row):
        attention = "fused_softmax"
    recipe = options.get("fp8_recipe", "")
    training = TrainingSpec(
        seq_len=_whole(row, "seq_len"), global_batch=global_batch,
        precision=row.get("precision", "") or "bf16",  # type: ignore[arg-type]
        attention=attention,  # type: ignore[arg-type]
        fused_norm={"fused": True, "eager": False}.get(options.get("norm", "")),
        fused_cross_entropy=True if "fused_cross_entropy" in options else None,
        compile=True if "compile" in options else None,
        async_tensor_parallel="async_tp" in options,
        fp8_recipe={"rowwise": "rowwise", "tensorwise": "tensorwise"}.get(recipe),  # type: ignore[arg-type]
        selective="per_op" if options.get("selective") == "per_op" else "attention",
        gradient_reduce=options.get("grad_reduce"),  # type: ignore[arg-type]
        overlap=False if options.get("overlap") == "none" else None,
        moment_bytes=4.0 if options.get("adam_moments") == "bf16" else None,
    )  # fmt: skip
    if cluster.gpu.rate(training.precision) is None:
        raise _Skip(f"precision is {training.precision}, which {cluster.gpu.title} does not have")
    uneven = model.layers % (pp * vpp) != 0
    plan = Plan(model=model, cluster=cluster, training=training, stack=stack, request=LayoutRequest(uneven_stages=uneven))
    return plan, layout


# ------------------------------------------------------------------------------------------------------ results

_LAYOUT = (
    "tp",
    "pp",
    "vpp",
    "cp",
    "ep",
    "dp",
    "zero",
    "shard_group",
    "sequence_parallel",
    "recompute",
    "schedule",
    "micro_batch",
)
_SAME = (
    "suite", "stack", "gpu", "gpus", "layers", "hidden", "ffn_hidden", "heads", "kv_heads", "head_dim", "vocab", "mlp", "experts",
    "experts_per_token", "moe_ffn_hidden", "seq_len", "precision", "global_batch",
)  # fmt: skip
_LAYOUT_OPTIONS = ("selective",)  # the part of `options` that is layout
_SMALLEST_GROUP = 5
# words of the `options` cell that change an estimate, or that name a release and change none
_KNOWN_OPTIONS = {
    "attention", "norm", "grad_reduce", "compile", "async_tp", "fp8_recipe", "selective", "fused_cross_entropy", "overlap",
    "adam_moments", "flags", "release", "transformer_engine",
}  # fmt: skip


def predict(row: Row, calibration: request.Calibration | None = None) -> Estimates:
    """Estimate of one row from the row alone. Raises PlanError or ValueError with the reason where it cannot be expressed."""
    plan, layout = row_plan(row, calibration)
    return evaluate(plan, to_table([layout]))


def _peak_bytes(one: Estimates, kind: str) -> float:
    """The statistic the source measured: torch's counters, or what nvidia-smi shows."""
    m = one.memory
    printed = 0 if one.plan.stack.peak_of == "first stage" else int(np.argmax(m.stage_reserved[:, 0]))
    outside = float(m.context[0] + m.communicators[0]) if kind == "nvidia-smi" else 0.0
    statistic: Array = m.stage_reserved if kind in ("reserved", "nvidia-smi") else m.stage_peaks
    return float(statistic[printed, 0]) + outside


def validate_rows(rows: list[Row], calibration: request.Calibration | None = None) -> dict[str, Any]:
    """Predicted against measured for every row: the document of `dpplan validate --json`."""
    done: list[dict[str, Any]] = []
    skipped: list[dict[str, str]] = []
    for row in rows:
        try:
            outcome = row.get("outcome", "") or "ok"
            if outcome not in OUTCOMES:
                raise _Skip(f"outcome is {outcome!r}; it must be one of {', '.join(OUTCOMES)}")
            measured_s, measured_gib = _measured(row, "step_s"), _measured(row, "peak_memory_gib")
            one = predict(row, calibration)
        except (PlanError, ValueError) as error:
            skipped.append({"run_id": row.get("run_id", ""), "suite": row.get("suite", ""), "reason": _reason(error)})
            continue
        done.append({
            "run_id": row["run_id"], "suite": row["suite"], "gpu": row["gpu"], "gpus": one.plan.cluster.gpus,
            "stack": row["stack"], "tier": row.get("tier", ""),
            "predicted_step_s": float(one.time.seconds[0]),
            "measured_step_s": measured_s,
            "predicted_peak_gib": _peak_bytes(one, row.get("memory_kind", "")) / 2**30,
            "measured_peak_gib": measured_gib,
            "memory_kind": row.get("memory_kind", ""),
            "not_expressed": ";".join(sorted(set(_options(row)) - _KNOWN_OPTIONS)),
            "predicted_fits": bool(one.fits[0]),
            "outcome": outcome,
            "group": _group(row),
            "layout": "/".join(row.get(name, "") for name in _LAYOUT) + "/" + row.get("options", ""),
        })  # fmt: skip
    suites: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for entry in done:
        suites[entry["suite"]].append(entry)
    return {
        "schema_version": 1,
        "rows": done,
        "summary": summarise(done),
        "suites": {name: summarise(entries) for name, entries in sorted(suites.items())},
        "skipped": skipped,
    }


def _reason(error: Exception) -> str:
    """One sentence why a row is skipped."""
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False, include_context=False)[0]
        key = ".".join(str(part) for part in first["loc"])
        message = first["msg"].removeprefix("Value error, ")
        return f"{key} is {str(first['input'])[:80]!r}: {message}" if key else message
    return " ".join(str(error).split())


def _group(row: Row) -> str:
    rest = sorted(part for part in row.get("options", "").split(";") if part.partition("=")[0] not in _LAYOUT_OPTIONS)
    return "|".join([*(row.get(name, "") for name in _SAME), ";".join(rest)])


def summarise(entries: list[dict[str, Any]]) -> dict[str, Any]:
    """Errors of step time and memory, out-of-memory rows called right, and ranking over groups."""
    ran = [e for e in entries if e["outcome"] != "oom"]
    times = [e["predicted_step_s"] / e["measured_step_s"] - 1 for e in ran if e["measured_step_s"]]
    peaks = [e["predicted_peak_gib"] / e["measured_peak_gib"] - 1 for e in ran if e["measured_peak_gib"]]
    oom = [e for e in entries if e["outcome"] == "oom"]
    return {
        "time": _errors(times),
        "memory": _errors(peaks),
        "oom": {"n": len(oom), "right": sum(not e["predicted_fits"] for e in oom)},
        "ran": {"n": len(ran), "right": sum(e["predicted_fits"] for e in ran)},
        "ranking": _ranking(ran),
    }


def _errors(relative: list[float]) -> dict[str, Any]:
    """n, mean and median absolute percentage error, bias (median signed error) and the worst, all as fractions."""
    if not relative:
        return {"n": 0, "mape": None, "median_ape": None, "bias": None, "worst": None}
    absolute = sorted(abs(x) for x in relative)
    return {
        "n": len(relative),
        "mape": sum(absolute) / len(absolute),
        "median_ape": _median(absolute),
        "bias": _median(sorted(relative)),
        "worst": max(relative, key=abs),
    }


def _median(ordered: list[float]) -> float:
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def _ranking(entries: list[dict[str, Any]]) -> dict[str, Any]:
    """Spearman correlation and pick-regret, means over groups of rows that differ only in layout."""
    groups: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for entry in entries:
        if entry["measured_step_s"]:
            groups[entry["group"]].append(entry)
    correlations, regrets = [], []
    for members in groups.values():
        if len({e["layout"] for e in members}) < _SMALLEST_GROUP:
            continue
        predicted, measured = [e["predicted_step_s"] for e in members], [e["measured_step_s"] for e in members]
        correlations.append(_spearman(predicted, measured))
        regrets.append(measured[predicted.index(min(predicted))] / min(measured) - 1)
    if not regrets:
        return {"groups": 0, "spearman": None, "pick_regret_mean": None, "pick_regret_max": None}
    return {
        "groups": len(regrets),
        "spearman": sum(correlations) / len(correlations),
        "pick_regret_mean": sum(regrets) / len(regrets),
        "pick_regret_max": max(regrets),
    }


def _ranks(values: list[float]) -> list[float]:
    """Ranks with ties averaged."""
    order = sorted(range(len(values)), key=values.__getitem__)
    ranks = [0.0] * len(values)
    start = 0
    while start < len(order):
        end = start
        while end + 1 < len(order) and values[order[end + 1]] == values[order[start]]:
            end += 1
        for i in order[start : end + 1]:
            ranks[i] = (start + end) / 2
        start = end + 1
    return ranks


def _spearman(a: list[float], b: list[float]) -> float:
    """Correlation of ranks; 0 where one side has no order at all."""
    ra, rb = _ranks(a), _ranks(b)
    mean = (len(a) - 1) / 2
    covariance = sum((x - mean) * (y - mean) for x, y in zip(ra, rb, strict=True))
    spread = math.sqrt(sum((x - mean) ** 2 for x in ra) * sum((y - mean) ** 2 for y in rb))
    return covariance / spread if spread > 0 else 0.0


def residual_lines(document: dict[str, Any]) -> str:
    """CSV of measured over predicted step time per run, the basis of `planner.uncertainty`."""
    out = io.StringIO()
    lines = csv.writer(out, lineterminator="\n")
    lines.writerow(["run_id", "gpu", "stack", "gpus", "measured_over_predicted"])
    for entry in document["rows"]:
        if entry["measured_step_s"] and entry["outcome"] != "oom":
            ratio = entry["measured_step_s"] / entry["predicted_step_s"]
            lines.writerow([entry["run_id"], entry["gpu"], entry["stack"], entry["gpus"], f"{ratio:.4f}"])
    return out.getvalue()
