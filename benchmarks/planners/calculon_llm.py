"""calculon-ai/calculon, as its `llm` command runs: shipped systems.

Its block has an MLP of two matrices and every head of its own keys, and stores scores of attention:
a gated MLP and grouped heads are refused, and attention on chip is its recompute of attention.
"""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path

from adapter import GIB, Recipe, chosen, dense_decoder, serve, want

CLONE = Path(sys.argv[1])
sys.path.insert(0, str(CLONE))

from calculon.llm.llm import Llm  # noqa: E402
from calculon.system import System  # noqa: E402

_SYSTEMS = {"a100-sxm4-80gb": "a100_80g", "h100-sxm5-80gb": "h100_80g_nvl8"}
_RECOMPUTE = {"none": "none", "selective": "attn_only", "full": "full"}
_NODE, _ACROSS = 0, 1  # networks of its systems
_LOG = logging.getLogger("calculon")


def _net(recipe: Recipe, span: int) -> int:
    return _ACROSS if span > recipe["gpus_per_node"] else _NODE


def _execution(recipe: Recipe) -> Llm.Execution:
    recompute = chosen(_RECOMPUTE, recipe["recompute"], "recompute")
    if recompute == "none" and recipe["flash"]:
        recompute = "attn_only"
    return Llm.Execution.from_json(
        {
            "num_procs": recipe["gpus"],
            "tensor_par": recipe["tp"],
            "pipeline_par": recipe["pp"],
            "data_par": recipe["dp"],
            "tensor_par_net": _net(recipe, recipe["tp"]),
            "data_par_net": _net(recipe, recipe["tp"] * recipe["dp"]),
            "pipeline_par_net": _net(recipe, recipe["gpus"]),
            "batch_size": recipe["global_batch"],
            "microbatch_size": recipe["micro_batch"],
            "datatype": "float16",
            "fused_activation": True,
            "attention_type": "multihead",
            "activation_recompute": recompute,
            "pipeline_interleaving": recipe["vpp"],
            "optimizer_sharding": recipe["zero"] == 1 and recipe["dp"] > 1,
            "tensor_par_comm_type": "rs_ag" if recipe["sequence_parallel"] else "ar",
            "tensor_par_overlap": "none",
            "seq_par_ag_redo": False,
            "data_par_overlap": False,
            "weight_offload": False,
            "activations_offload": False,
            "optimizer_offload": False,
            "training": True,
        }
    )


def answer(recipe: Recipe) -> tuple[float, float]:
    dense_decoder(recipe)
    want(recipe["precision"] in ("bf16", "fp16"), recipe["precision"])
    want(recipe["experts"] <= 1, "experts")
    want(not recipe["gated"], "gated MLP")
    want(recipe["kv_heads"] == recipe["heads"], "grouped heads")
    want(recipe["cp"] == 1, "context parallelism")
    want(recipe["zero"] <= 1, "sharded gradients or weights")
    system = chosen(_SYSTEMS, recipe["gpu"], "GPU")
    model = Llm(
        Llm.Application(
            {
                "hidden": recipe["hidden"],
                "feedforward": recipe["ffn"],
                "seq_size": recipe["seq_len"],
                "attn_heads": recipe["heads"],
                "attn_size": recipe["head_dim"],
                "num_blocks": recipe["layers"],
            }
        ),
        _LOG,
    )
    machine = System(json.loads((CLONE / "systems" / f"{system}.json").read_text("utf-8")))
    model.compile(machine, _execution(recipe))
    model.run(machine)
    return model.get_total_time(), model.get_mem_tier1_cap_req() / GIB


if __name__ == "__main__":
    serve(answer)
