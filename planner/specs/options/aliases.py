"""Other words for the values of an option, as people of other tools type them, and words of theirs
that are not modelled. Case, spaces and underscores make no difference.

Sources of the spellings: arguments.py of Megatron-LM, config.json of DeepSpeed, TrainingArguments
and OptimizerNames of transformers, the schedules of torch.distributed.pipelining, ShardingStrategy
of torch.distributed.fsdp.
"""

from __future__ import annotations

from planner.specs.options.row import Alias


def same(value: object, *words: str, note: str = "") -> tuple[Alias, ...]:
    """Words that mean a value; note: the part of the word's meaning that is not modelled, or why
    they are the same."""
    return tuple(Alias(word, value, note) for word in words)


def refused(why: str, *words: str) -> tuple[Alias, ...]:
    """Words that are understood and not modelled, with what to take instead."""
    return tuple(Alias(word, None, why) for word in words)


_DECAY = "decoupled weight decay takes no memory and no time of its own"
_QUANTIZED = (
    "is a precision of stored weights: beside adapters, --lora 16 --base-precision nf4; of training"
    " take bf16, fp8 or nvfp4"
)

PRECISIONS = (
    *same("bf16", "bfloat16", "bf16-mixed"),
    *same("fp16", "float16", "half", "fp16-mixed"),
    *same("fp32", "float32", "single"),
    *same("tf32", "tensorfloat32"),
    *same("fp8", "float8", "fp8-hybrid", "e4m3"),
    *same("fp8-delayed", "fp8-ds", "delayed"),
    *same("fp8-tensorwise", "fp8-cs", "fp8-current", "tensorwise"),
    *same("fp8-rowwise", "rowwise"),
    *same("fp8-blockwise", "fp8-sc", "blockwise"),
    *same("mxfp8", "fp8-mx"),
    *same("nvfp4", "fp4"),
    *refused(_QUANTIZED, "int8", "int4", "nf4", "mxfp4", "4bit", "8bit"),
    *refused("says not which: take bf16 or fp16", "mixed", "amp", "16"),
)
BASES = (
    *same("nf4", "4bit", "load-in-4bit", "bnb-nf4"),
    *same("nf4-double", "nf4-dq", "qlora", "double-quant", "bnb-4bit-use-double-quant"),
    *same("int8", "8bit", "load-in-8bit", "llm-int8"),
    *same("gptq", "gptq-4bit", "gptq-int4"),
    *same("gptq-8bit", "gptq-int8"),
    *same("awq", "awq-4bit", "awq-int4"),
    *same("hqq", "hqq-4bit"),
    *same("fp8", "float8", "fp8-tensorwise"),
)
UPCASTS = (
    *same("norms", "upcast-layernorm", "layernorm"),
    *same("all", "kbit", "prepare-model-for-kbit-training"),
)
TASKS = (
    *same("sft", "finetune", "fine-tune", "instruct", "instruction-tuning"),
    *same("reward", "rm", "reward-model", "reward-modeling"),
    *same("distil", "distill", "distillation", "kd", "gkd"),
    *refused(
        "is reinforcement learning, whose steps generate, too: `dpplan rl` plans them",
        *("grpo", "ppo", "dapo", "rloo", "rlhf", "gspo"),
    ),
)
LOSS_KERNELS = (
    *same("torch", "eager"),
    *same("fused", "fast-ce", "cross-entropy-loss-fusion"),
    *same("fused-linear", "liger", "fused-linear-ce", "fused-linear-cross-entropy"),
    *same("chunked", "chunked-ce", "chunked-output"),
)
OPTIMIZERS = (
    *same("adam", "adamw", "fused-adam", "adamw-torch", "adamw-torch-fused", note=_DECAY),
    *same("adam8bit", "adamw8bit", "adam-8bit", "adamw-8bit", "adamw-bnb-8bit"),
    *same("paged-adam8bit", "paged-adamw8bit", "paged-adamw-8bit", "paged-adam-8bit"),
    *same("paged-adam", "paged-adamw", "paged-adamw-32bit"),
    *same("lion", "lion-32bit"),
    *same("galore", "galore-adamw", "galore-adamw-layerwise"),
    *same("galore8bit", "galore-adamw-8bit", "galore-adamw-8bit-layerwise"),
    *same("apollo", "apollo-adamw", "apollo-adamw-layerwise"),
    *same("muon", "dist-muon", note="--zero 1 deals matrices out to ranks"),
    *same("shampoo", "distributed-shampoo"),
    *same("sgd-momentum", "sgdm", "momentum"),
    *refused("is adam with --offload optimizer", "cpu-adam", "deepspeed-cpu-adam"),
    *refused(
        "is not modelled; it keeps one state per parameter, as lion does: take that for its memory",
        "adagrad",
        "rmsprop",
    ),
    *refused(
        "is not modelled; it keeps two states per parameter, as adam does: take that for its"
        " memory",
        "lamb",
        "nadam",
        "radam",
        "adan",
    ),
    *refused(
        "is not modelled, neither its memory nor its time",
        "sophia",
        "lion-8bit",
        "paged-lion-8bit",
        "adaptive-muon",
    ),
)
SCHEDULES = (
    *same("1f1b", "one-f-one-b", "schedule1f1b", "pipedream-flush", "non-interleaved"),
    *same("gpipe", "schedulegpipe", "afab", "all-forward-all-backward"),
    *same("interleaved", "interleaved-1f1b", "interleaved1f1b", "scheduleinterleaved1f1b"),
    *same("zb-1p", "zb1p"),
    *same("zb-2p", "zb2p"),
    *same("zb-h1", "zbh1"),
    *same("zb-h2", "zbh2"),
    *same("zb-v", "zbv", "zbvzerobubble", "schedulezbvzerobubble"),
    *same("dualpipe", "dual-pipe"),
    *same("dualpipev", "dualpipe-v", "scheduledualpipev"),
    *same("breadth-first", "bfs", "looped-bfs", "scheduleloopedbfs"),
    *refused(
        "is several schedules: zb-h1, zb-h2, zb-1p, zb-2p and zb-v; `dpplan list schedules` tells"
        " them apart",
        "zb",
        "zero-bubble",
        "zerobubble",
    ),
    *refused("is asynchronous and not modelled; 1f1b is its synchronous form", "pipedream"),
)
RECOMPUTE = (
    *same("full", "true", "yes", "on", "checkpointing", "gradient-checkpointing"),
    *same("full", "activation-checkpointing"),
    *same("none", "false", "no", "off"),
    *same("selective", "core-attn", "core-attention"),
    *refused("needs a number of layers: group:N keeps one input per N layers", "uniform", "group"),
    *refused("needs a number of layers: block:N recomputes N layers of each stage", "block"),
)
ZERO = (
    *(
        one
        for n in range(4)
        for one in same(n, f"stage{n}", f"stage-{n}", f"zero{n}", f"zero-{n}", f"z{n}")
    ),
    *same(0, "ddp", "no-shard"),
    *same(1, "distributed-optimizer"),
    *same(2, "shard-grad-op"),
    *same(3, "fsdp", "fsdp2", "full-shard"),
    *refused("is --zero 3 with --shard-group, the ranks that shard", "hsdp", "hybrid-shard", "hpz"),
    *refused("is --zero 3 with --offload params-optimizer-nvme", "infinity", "zero-infinity"),
)
OFFLOADS = (
    *same("optimizer", "optim", "optimizer-cpu", "cpu-optimizer"),
    *same("params", "param", "parameters"),
    *same("activations", "activation"),
    *same("none", "no", "false", "off"),
    *refused(
        "says where to, not what: optimizer, params or activations to host memory,"
        " optimizer-nvme or params-nvme to drives",
        "cpu",
        "host",
        "nvme",
        "true",
        "yes",
        "on",
        "all",
    ),
)
ATTENTIONS = (
    *same("cudnn", "te", "transformer-engine", "fused"),
    *same("flash4", "fa4", "flash-attention-4"),
    *same("flash3", "fa3", "flash-attention-3"),
    *same("flash2", "fa2", "flash-attention-2"),
    *same("flash1", "fa1", "flash-attention-1"),
    *same("fused_softmax", "fused-softmax"),
    *same("eager", "unfused", "math"),
    *refused("says not which version: take flash2, flash3, flash4 or cudnn", "flash", "sdpa"),
)
CONTEXT_WAYS = (
    *same("ring", "p2p", "ring-attention"),
    *same("all-gather", "allgather"),
    *same("ulysses", "a2a", "all-to-all", "alltoall"),
    *same("hybrid", "a2a+p2p", "usp"),
)
LISTED = (
    *same("gpus", "gpu", "cards"),
    *same("models", "model"),
    *same("networks", "network", "links", "interconnects"),
    *same("stacks", "stack", "frameworks"),
    *same("clusters", "cluster", "instances", "servers"),
    *same("hosts", "host", "cpus"),
    *same("schedules", "schedule"),
)
