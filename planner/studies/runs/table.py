"""The table of runs tables: each column and each word of the cell `options`, and the option of
`dpplan estimate` that it is; read for `dpplan validate`, written by `dpplan check`.

A word that stands here in no entry is understood where it is the name of an option.
"""

from __future__ import annotations

from typing import Any

from planner.formats.megatron_table import CONTEXT_WAY_WORDS
from planner.formats.record import Argument
from planner.specs.names import GRAPH_SCOPES, OPTIMIZER_NAMES
from planner.specs.options import Options
from planner.specs.options.aliases import words
from planner.specs.quantised import BASES

WORD = "options."  # before a word of the cell `options`, as the key of a file in a table of it
_BUCKET_BYTES = 2  # of an element of a bucket, as DeepSpeed counts them
_SWITCH = {"1": True, "0": False}
_ON = {"1": True}

_OPTIMIZERS: dict[str, str] = {
    **{name: name for name in OPTIMIZER_NAMES},
    **words("optimizers", "runs"),
}
# "nf4" of runs is bitsandbytes with double quantisation, as QLoRA has it
_BASES: dict[str, str] = {**{name: name for name in BASES}, **words("bases", "runs")}


def _scopes(value: Any) -> str:
    """Scopes of CUDA graphs in one order."""
    names = str(value).split("+")
    if not set(names) <= set(GRAPH_SCOPES):
        raise ValueError(f"is not one of {', '.join(GRAPH_SCOPES)}")
    return "+".join(scope for scope in GRAPH_SCOPES if scope in names)


def _bandwidth(value: Any) -> str:
    return f"{float(value)} Gbit/s"


def _gbit(value: Any) -> str:
    return str(value).removesuffix(" Gbit/s")


def _column(name: str, option: str = "", **rest: Any) -> Argument:
    return Argument(name, option or name, **rest)


def _word(name: str, option: str = "", **rest: Any) -> Argument:
    return Argument(WORD + name, option or name, **rest)


COLUMNS = (
    *(_column(name) for name in ("gpu", "gpus", "gpus_per_node", "intra_node", "inter_node")),
    _column("nics_per_node"),
    _column("nic_gbps", "nic_bandwidth", meaning=_bandwidth, writes=_gbit),
    *(_column(name) for name in ("stack", "seq_len")),
    _column("precision", meaning=lambda text: {"fp4": "nvfp4"}.get(text, text)),
    *(_column(name) for name in ("tp", "pp", "vpp", "cp", "ep", "dp", "zero", "shard_group")),
    _column("sequence_parallel", words=_SWITCH),
    *(_column(name) for name in ("recompute", "schedule", "micro_batch", "global_batch")),
    _column("flash_attention", words=_SWITCH),
    _column("optimizer_offload", "offload", words={"0": "none", "1": "optimizer"}),
)
WORDS = (
    _word("cp_comm_type", words=CONTEXT_WAY_WORDS),
    _word("norm", "fused_norm", words={"fused": True, "eager": False}),
    _word("grad_reduce", "grad_reduce_precision", words={"bf16": "bf16", "fp32": "fp32"}),
    _word("async_tp", "tp_overlap", words={"1": "async"}),
    _word("tp_overlap", words={"1": "user-buffers", "0": "none"}),
    _word("cuda_graph", "cuda_graphs", meaning=_scopes),
    _word("fp_recipe", "precision", words=words("precisions", "runs")),
    _word("fp8_recipe", "precision", words=words("precisions", "runs")),
    _word("selective", words={"per_op": "per-op"}),
    _word("loss", "loss_kernel", words=words("loss_kernels", "runs")),
    _word("fused_cross_entropy", "loss_kernel", words={"1": "fused"}),
    _word("liger", "loss_kernel", words={"fused_linear_ce": "fused-linear"}),
    _word("optimizer_in_bwd", "optimizer_in_backward", words=_ON),
    _word("rank", "lora"),
    _word("quant", "base_precision", words=_BASES),
    _word("upcast", "base_upcast"),
    _word("targets", "lora_targets"),
    _word("adapters", "lora_adapters"),
    _word("adapter_dtype", "lora_precision", words={"fp32": "fp32", "bf16": "bf16"}),
    _word("overlap", words={"none": False}),
    _word("bucket_elements", "dp_bucket", factor=_BUCKET_BYTES),
    _word("optimizer", words=_OPTIMIZERS),
    _word("adam_moments", "moments_precision", words={"bf16": "bf16", "fp32": None}),
    _word("moments_dtype", "moments_precision"),
    _word("pp_layout", "pipeline_layout"),
    _word("document_tokens", "length_mean"),
    _word("document_sigma", "length_sigma"),
)
TABLE = (*COLUMNS, *WORDS)

# words that say what every estimate assumes
ASSUMED: dict[str, frozenset[str]] = {
    "activation_offload": frozenset({"none"}),
    "dispatcher": frozenset({"none"}),  # every rank has all experts
    "force_balance": frozenset({"1"}),  # experts get equally many tokens
    "permute_fusion": frozenset({"1"}),  # tokens are copied to experts by one kernel
    "fsdp": frozenset({"1", "torch-fsdp2", "megatron-fsdp"}),  # the stage stands in `zero`
    "optimizer_instances": frozenset({"1"}),
    "packing": frozenset({"concat"}),  # samples joined to full length
    "padding_free": frozenset({"1"}),
    "peft": frozenset({"none"}),
    "pp_algorithm": frozenset({"1f1b", "1f1b-interleaved"}),  # stands in `schedule`
}
# who ran it and under which name, and results printed beside the step
NEUTRAL = frozenset(
    {
        "cuda_graph_impl",  # who captures
        "framework_config",
        "hbm_percent",
        "measured_by",
        "offloaded_gb",
        "recipe",
        "task",  # fine-tuning of all parameters computes what pre-training does
        "trainer",
    }
)
# of kernels only: nothing where the row has no time
OF_TIME = frozenset({"deterministic", "no_wgrad_fusion", "delay_wgrad", "router_fusion"})


def written(options: Options) -> dict[str, str]:
    """The cells that say these options, by column; words joined in `options`. The model, and what
    measured the run, are the caller's."""
    cells: dict[str, str] = {}
    words: dict[str, str] = {}
    for name, value in options.given().items():
        if name == "model":
            continue
        pairs = ((column, column.theirs(value)) for column in TABLE if column.option == name)
        argument, theirs = next((pair for pair in pairs if pair[1] is not None), (None, value))
        if argument is None or argument.name.startswith(WORD):
            words[argument.name.removeprefix(WORD) if argument else name] = _text(theirs)
        else:
            cells[argument.name] = _text(theirs)
    return {**cells, "options": ";".join(f"{name}={value}" for name, value in words.items())}


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(int(value))
    return repr(value) if isinstance(value, float) else str(value)
