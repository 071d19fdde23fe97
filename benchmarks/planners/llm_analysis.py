"""cli99/llm-analysis, as its `train` command runs: shipped GPUs, the efficiencies of its README and
its examples, as the default of 1 is the lower bound by its own words."""

from __future__ import annotations

import json
import logging
import sys
import tempfile
from pathlib import Path

from adapter import GIB, Recipe, chosen, dense_decoder, serve, want

sys.path.insert(0, sys.argv[1])

from llm_analysis.analysis import train

logging.disable(logging.CRITICAL)
_GPUS = {
    "a100-sxm4-80gb": "a100-sxm-80gb",
    "a100-sxm4-40gb": "a100-sxm-40gb",
    "h100-sxm5-80gb": "h100-sxm-80gb",
    "h100-pcie-80gb": "h100-pcie-80gb",
    "v100-sxm2-32gb": "v100-sxm-32gb",
    "v100-sxm2-16gb": "v100-sxm-16gb",
    "rtx-a6000-48gb": "a6000-48gb",
}
_RECOMPUTE = {"none": 0, "selective": 1, "full": 4}
_FLOPS_EFFICIENCY, _MEMORY_EFFICIENCY = 0.5, 0.9


def _model(recipe: Recipe) -> dict[str, object]:
    want(not recipe["shared_experts"] and not recipe["dense_layers"], "shared experts")
    want(recipe["head_dim"] * recipe["heads"] == recipe["hidden"], "head size")
    experts = recipe["experts"] > 1
    return {
        "name": recipe["run_id"],
        "num_layers": recipe["layers"],
        "n_head": recipe["heads"],
        "hidden_dim": recipe["hidden"],
        "vocab_size": recipe["vocab"],
        "max_seq_len": recipe["seq_len"],
        "num_key_value_heads": recipe["kv_heads"],
        "ffn_embed_dim": recipe["expert_ffn"] if experts else recipe["ffn"],
        "mlp_gated_linear_units": recipe["gated"],
        "moe_num_experts": recipe["experts"] or 1,
        "moe_top_k": recipe["experts_per_token"] or 1,
    }


def answer(recipe: Recipe) -> tuple[float, float]:
    dense_decoder(recipe)
    want(recipe["precision"] in ("bf16", "fp16"), recipe["precision"])
    want(recipe["cp"] == recipe["vpp"] == 1, "context parallelism, virtual stages")
    gpu = chosen(_GPUS, recipe["gpu"], "GPU")
    shards = recipe["shard_group"] if recipe["zero"] == 3 else recipe["dp"]
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "model.json"
        model.write_text(json.dumps(_model(recipe)), "utf-8")
        summary = train(
            model_name=str(model),
            gpu_name=gpu,
            log_level="CRITICAL",
            batch_size_per_gpu=recipe["micro_batch"],
            global_batch_size=recipe["global_batch"],
            seq_len=recipe["seq_len"],
            total_num_gpus=recipe["gpus"],
            dp_size=shards,
            tp_size=recipe["tp"],
            pp_size=recipe["pp"],
            sp_size=recipe["tp"] if recipe["sequence_parallel"] else 1,
            ep_size=recipe["ep"],
            activation_recomputation=chosen(_RECOMPUTE, recipe["recompute"], "recompute"),
            ds_zero=recipe["zero"],
            flash_attn=recipe["flash"],
            flops_efficiency=_FLOPS_EFFICIENCY,
            hbm_memory_efficiency=_MEMORY_EFFICIENCY,
            num_gpus_per_node=recipe["gpus_per_node"],
        )
    return summary["latency_per_iter"], summary["estimated_peak_memory_per_gpu"] / GIB


if __name__ == "__main__":
    serve(answer)
