"""A run as a row of a runs table, as `dpplan validate` reads it."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import numpy as np

from planner.estimate import Estimates
from planner.inputs import catalog
from planner.inputs.calibration import read_calibration
from planner.inputs.catalog import user_path
from planner.inputs.tables import csv_text
from planner.specs.base import PlanError
from planner.specs.decoder import decoder_of
from planner.specs.model import ModelSpec
from planner.specs.options import LAYOUT, Options, rows
from planner.studies.runs.cells import Row
from planner.studies.runs.table import written
from planner.studies.validate.rows import MAX_TABLE_BYTES, PLANNED, REQUIRED
from planner.studies.validate.scored import predict

COLUMNS = (
    *("run_id", "suite", "source", "source_ref", "gpu", "gpus", "gpus_per_node", "intra_node"),
    *("inter_node", "nics_per_node", "nic_gbps", "stack", "model", "layers", "hidden"),
    *("ffn_hidden", "heads", "kv_heads", "head_dim", "vocab", "mlp", "norm", "positions"),
    *("tied_embeddings", "experts", "experts_per_token", "moe_ffn_hidden", "shared_experts"),
    *("dense_layers", "seq_len", "precision", "tp", "pp", "vpp", "cp", "ep", "dp", "zero"),
    *("shard_group", "sequence_parallel", "recompute", "schedule", "micro_batch"),
    *("global_batch", "flash_attention", "optimizer_offload", "options", "step_s"),
    *("peak_memory_gib", "memory_kind", "outcome", "assumptions", "tier"),
)
_GBIT = 8e-9  # Gbit/s of a byte per second
_SAME = 0.01  # of the step: what a row predicts beside its recipe
_POSITIONS = {"rotary": "rope"}
_FIELD = "--append"
# groups of options that a step depends on; none of these belongs to the search, which is done
_STEP = ("cluster", "layout", "experts", "training", "adapters", "task", "ranks", "data", "stack")
_LEFT_OUT = (
    *("model", "calibration", "cluster", "nodes", "price", "tokens", "where", "headroom"),
    *("search_offload", "uneven_stages", "grad_accum", "flash_attention", "stack_defaults"),
)


def row_of(
    options: Options,
    estimates: Estimates,
    seconds: float | None,
    memory: dict[str, float],
    name: str,
    oom: bool,
) -> Row:
    """The cells of a run, one without any result to be filled in. options: its scenario; estimates:
    of its layout; memory: highest bytes, by kind."""
    kind = next((kind for kind in ("allocated", "reserved") if kind in memory), "")
    cells: dict[str, object] = {
        **written(_filled(options, estimates)),
        **_shape(estimates.plan.model),
        "gpus": estimates.plan.cluster.gpus,  # one is what the option is without, not the column
        "run_id": name,
        "suite": "own",
        "source": "dpplan check",
        "source_ref": name,
        "step_s": "" if oom or seconds is None else f"{seconds:.6g}",
        "peak_memory_gib": f"{memory[kind] / 2**30:.5g}" if kind and not oom else "",
        "memory_kind": "" if oom else kind,
        "outcome": "oom" if oom else "ok" if seconds or memory else PLANNED,
        "tier": "A",
    }
    row = {key: str(cells.get(key, "")) for key in COLUMNS}
    return {**row, "assumptions": _doubt(row, estimates, options.calibration)}


def _filled(options: Options, estimates: Estimates) -> Options:
    """The scenario with what its estimate made of it, and without what no step hangs on."""
    plan, layout = estimates.plan, estimates.table.layout(0)
    c, t, several = plan.cluster, plan.training, plan.cluster.nodes > 1
    table = rows(Options)
    out = {n: r.default for n, r in table.items() if r.group.name not in _STEP or n in _LEFT_OUT}
    group = max(layout.shard_group // layout.cp, 1) if layout.zero else None
    changes = {
        "gpu": c.gpu.id,
        "gpus": c.gpus,
        "gpus_per_node": c.gpus_per_node,
        "intra_node": c.intra_node.id,
        "inter_node": c.inter_node.id if several else None,
        "nics_per_node": c.nics_per_node if several else None,
        "nic_bandwidth": f"{float(c.nic_bandwidth) * _GBIT:g} Gbit/s" if several else None,
        "stack": options.stack or plan.stack.id,
        "seq_len": t.seq_len,
        "global_batch": t.global_batch,
        "precision": t.precision,
        "attention": t.attention,
        "mtp": plan.model.mtp or None,
        "length_sigma": plan.lengths.sigma if plan.lengths else None,
        "overlap": False if options.overlap is False else None,
        **{name: getattr(layout, name) for name in LAYOUT},
        "shard_group": group,
        "placement": options.placement,
        "offload": layout.offload if layout.offload != "none" else None,
    }
    if options.lora_precision == "fp32" and options.lora_autocast is None:
        changes["lora_autocast"] = True
    return options.changed(**{**out, "model": options.model, **changes, "spelled": ()})


def _shape(model: ModelSpec) -> dict[str, object]:
    """A model of the catalogue by its name, another by its numbers."""
    if model.name in catalog.ids("models"):
        return {"model": model.name}
    plain = decoder_of(model)
    moe = plain and plain.moe
    widths = ("heads", "ffn_hidden", "kv_heads", "head_dim")  # of a plain decoder
    return {
        "model": model.name,
        **{key: getattr(model, key) for key in ("layers", "hidden", "vocab", "norm")},
        **{key: getattr(plain, key) if plain else 0 for key in widths},
        "mlp": "swiglu" if model.gated else "gelu",
        "positions": _POSITIONS.get(model.positions, model.positions),
        "tied_embeddings": int(model.tied_embeddings),
        "experts": moe.experts if moe else "",
        "experts_per_token": moe.experts_per_token if moe else "",
        "moe_ffn_hidden": moe.ffn_hidden if moe else "",
        "shared_experts": moe.shared_ffn_hidden // moe.ffn_hidden if moe else "",
        "dense_layers": moe.dense_layers if moe else "",
    }


def _doubt(row: Row, estimates: Estimates, calibration: str | None) -> str:
    """How much of the recipe the columns do not hold; empty where they hold it."""
    try:
        again = predict(row, read_calibration(calibration) if calibration else None)
    except (PlanError, ValueError) as error:
        return f"the columns cannot hold this recipe: {' '.join(str(error).split())}"
    off = float(again.time.seconds[0]) / float(np.ravel(estimates.time.seconds)[0]) - 1
    if abs(off) <= _SAME:
        return ""
    return f"options of the recipe that no column holds: they change the prediction by {off:+.1%}"


def appended(name: str, row: Row) -> str:
    """The table of a file with this row below its others; or a new table. Raises PlanError for a
    file that is not a runs table."""
    path = user_path(name, _FIELD)
    content = _existing(path)
    if not content.strip():
        return csv_text(COLUMNS, [[row[key] for key in COLUMNS]])
    header = [cell.strip() for cell in next(csv.reader(io.StringIO(content)), [])]
    if missing := [key for key in REQUIRED if key not in header]:
        remedy = f"is not a runs table: it has no column {missing[0]!r}; name another file"
        raise PlanError(_FIELD, name, remedy)
    line = csv_text(header, [[row.get(key, "") for key in header]]).partition("\n")[2]
    return content + ("" if content.endswith("\n") else "\n") + line


def _existing(path: Path) -> str:
    """Contents of the file that rows are appended to, which is a result, not a source, of this
    request."""
    content = catalog.given(path)
    if content is None:
        try:
            with path.open("rb") as file:
                content = file.read(MAX_TABLE_BYTES + 1)
        except FileNotFoundError:
            return ""
        except OSError as error:
            raise PlanError(_FIELD, str(path), f"cannot be read: {error.strerror}") from None
    if len(content) > MAX_TABLE_BYTES:
        remedy = f"is larger than the {MAX_TABLE_BYTES:,} bytes of a runs table; begin another"
        raise PlanError(_FIELD, str(path), remedy)
    try:
        return content.decode("utf-8").removeprefix("\ufeff").replace("\r\n", "\n")
    except UnicodeDecodeError:
        raise PlanError(_FIELD, str(path), "is not UTF-8 text; name another file") from None
