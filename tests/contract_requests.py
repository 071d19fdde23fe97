"""Estimates that several tests of the contract read."""

from __future__ import annotations

from functools import cache

from command import Answer, dpplan

PLAIN = "--stack-defaults"  # kernels are searched for the first request
REQUESTS = {
    "dense, searched": "--model llama-70b --gpus 2048 --gpu rtx4090 --tokens 2T",
    "dense, fixed": (
        "--model llama-70b --gpus 64 --gpu a100 --tp 4 --pp 8 --vpp 2 --dp 2 --zero 1 --micro-batch"
        " 1 --recompute full --schedule interleaved --global-batch 64 --stack megatron-core"
        " --sequence-parallel"
    ),
    "experts": f"--model mixtral-8x7b --gpus 64 --gpu h100 --tokens 300B --price 1.99 {PLAIN}",
    "one GPU": f"--model gpt2 --gpus 1 --gpu rtx4090 {PLAIN}",
    "hybrid shard": (
        "--model llama-3-8b --gpus 32 --gpu h100 --stack pytorch-fsdp --zero 3 --shard-group 8"
        f" {PLAIN}"
    ),
    "offload": (
        "--model llama-2-13b --gpus 8 --gpu rtx4090 --stack deepspeed --zero 3 --offload optimizer"
        f" --recompute full {PLAIN}"
    ),
    "nothing fits": "--model llama-70b --gpus 8 --gpu rtx4090 --tp 8 --stack-defaults",
}


@cache
def estimate_of(name: str) -> Answer:
    return dpplan("estimate", *REQUESTS[name].split(), "--json")
