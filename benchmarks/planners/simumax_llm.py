"""MooreThreads/SimuMax, with its shipped systems and their measured efficiencies.

Its A100 has only PCIe: for SXM its documentation says to replace `networks`, which here are those
of its documented template with the bandwidth of NVLink and of the run's network.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from adapter import GIB, Recipe, chosen, dense_decoder, serve, want

CLONE = Path(sys.argv[1])
sys.path.insert(0, str(CLONE))

from simumax.core.config import ModelConfig, StrategyConfig, SystemConfig  # noqa: E402
from simumax.core.perf_llm import PerfLLM  # noqa: E402

_SYSTEMS = {
    "a100-sxm4-80gb": "a100_pcie",
    "a100-pcie-80gb": "a100_pcie",
    "b200-sxm-180gb": "b200_bf16_ceperm",
}
_EFFICIENCY = 0.5  # of links, of its documented template
_LATENCY_US = {"node": 10, "across": 30}  # likewise
_SCALES = {"all_reduce": 2, "all_gather": 1, "reduce_scatter": 1, "p2p": 1, "all2all": 1}
_UNITS = {"B": 1, "KB": 2**10, "MB": 2**20, "GB": 2**30, "TB": 2**40}
_SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0}


def _link(gb_per_s: float, latency_us: float) -> dict[str, object]:
    ops = {
        name: {"scale": scale, "offset": 0 if name == "p2p" else -1}
        for name, scale in _SCALES.items()
    }
    band = {"efficient_factor": _EFFICIENCY, "gbps": gb_per_s, "latency_us": latency_us}
    return {"processor_usage": 0.0, "bandwidth": band, "op": ops}


def _system(recipe: Recipe) -> SystemConfig:
    name = chosen(_SYSTEMS, recipe["gpu"], "GPU")
    system = json.loads((CLONE / "configs" / "system" / f"{name}.json").read_text("utf-8"))
    if recipe["gpu"] == "a100-sxm4-80gb":
        node = _link(recipe["node_gb_per_s"], _LATENCY_US["node"])
        # of all cards of a node: its sends between stages take a part of it
        node_across = recipe["across_gb_per_s"] * recipe["gpus_per_node"]
        across = _link(node_across, _LATENCY_US["across"])
        system["networks"] = {
            "intra_with_pcie": False,
            "low_intra_node": node,
            "high_intra_node": node,
            "inter_node": across,
        }
    system["num_per_node"] = recipe["gpus_per_node"]
    return SystemConfig.init_from_dict(system)


def _recompute(recipe: Recipe) -> dict[str, object]:
    layers = -(-recipe["layers"] // recipe["pp"])
    if recipe["recompute"] == "none":
        return {"enable_recompute": False}
    if recipe["recompute"] == "full":
        return {
            "enable_recompute": True,
            "recompute_granularity": "full_block",
            "recompute_layer_num": layers,
        }
    want(recipe["recompute"] == "selective", f"recompute {recipe['recompute']}")
    if recipe["flash"]:  # scores are not stored anyway
        return {"enable_recompute": False}
    return {
        "enable_recompute": True,
        "recompute_granularity": "sdp_only",
        "recompute_layer_num": layers,
    }


def _strategy(recipe: Recipe) -> StrategyConfig:
    micro = recipe["global_batch"] // (recipe["dp"] * recipe["micro_batch"])
    return StrategyConfig.init_from_dict(
        {
            "seq_len": recipe["seq_len"],
            "micro_batch_size": recipe["micro_batch"],
            "micro_batch_num": micro,
            "dtype": "bf16",
            "world_size": recipe["gpus"],
            "tp_size": recipe["tp"],
            "pp_size": recipe["pp"],
            "cp_size": recipe["cp"],
            "ep_size": recipe["ep"],
            "etp_size": 1,
            "enable_sequence_parallel": recipe["sequence_parallel"] and recipe["tp"] > 1,
            "interleaving_size": recipe["vpp"],
            "zero_state": recipe["zero"],
            "use_flash_sdp": recipe["flash"],
            "use_math_sdp": not recipe["flash"],
            **_recompute(recipe),
        }
    )


def _model(recipe: Recipe) -> ModelConfig:
    model = {
        "model_type": "dense",
        "model_name": recipe["run_id"],
        "hidden_size": recipe["hidden"],
        "head_num": recipe["heads"],
        "kv_head_num": recipe["kv_heads"],
        "head_size": recipe["head_dim"],
        "intermediate_size": recipe["ffn"],
        "layer_num": recipe["layers"],
        "vocab_size": recipe["vocab"],
        "use_swiglu": recipe["gated"],
    }
    if recipe["experts"] > 1:
        model |= {
            "model_type": "moe",
            "expert_num": recipe["experts"],
            "topk": recipe["experts_per_token"],
            "moe_ffn_hidden_size": recipe["expert_ffn"],
            "dense_layers": recipe["dense_layers"],
        }
        if recipe["shared_experts"]:
            shared = recipe["shared_experts"] * recipe["expert_ffn"]
            model["moe_shared_expert_intermediate_size"] = shared
    return ModelConfig.init_from_dict(model)


def _number(text: str | float, units: dict[str, float]) -> float:
    """Bytes or seconds of a text such as `12.5 GB`."""
    if isinstance(text, int | float):
        return float(text)
    value, unit = text.split()
    return float(value) * units[unit]


def _peaks(result: object) -> list[float]:
    """Peaks in bytes of all stages in its result."""
    if isinstance(result, dict):
        peaks = [peak for value in result.values() for peak in _peaks(value)]
        whole = [_number(result["peak_mem"], _UNITS)] if "peak_mem" in result else []
        return [*whole, *peaks]
    return []


def answer(recipe: Recipe) -> tuple[float, float]:
    dense_decoder(recipe)
    want(recipe["precision"] in ("bf16", "fp16"), recipe["precision"])
    want(recipe["zero"] <= 1, "sharded gradients or weights")
    model = PerfLLM()
    model.configure(
        strategy_config=_strategy(recipe),
        model_config=_model(recipe),
        system_config=_system(recipe),
    )
    model.run_estimate()
    cost = json.loads(str(model.analysis_cost()))
    memory = json.loads(str(model.analysis_mem()))
    return _number(cost["duration_time_per_iter"], _SECONDS), max(_peaks(memory)) / GIB


if __name__ == "__main__":
    serve(answer)
