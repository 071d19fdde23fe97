"""Options of other tools and what they are called here, or that they are not modelled.

Sources of the names: Megatron-LM (arguments.py), DeepSpeed (config.json), transformers and
accelerate, torchrun, torchtitan, nanotron and Slurm.
"""

from __future__ import annotations

_MODEL_FILE = "belongs to the model: write it in a model TOML and give the path to --model"
_QUANTIZED = (
    "is of weights that are not trained: --lora 16 --base-precision nf4 (also int8, gptq, awq);"
    " --precision takes fp8, mxfp8 and nvfp4"
)
_NO_LOOP = (
    "changes neither memory nor time of a step, and is not looked at; leave it out (`dpplan batch`"
    " takes --learning-rate)"
)
_LENGTH = "is not looked at; give the tokens of the whole run: --tokens 300B"
_SERVING = "is of inference; `dpplan estimate --inference` tells what the trained model serves"

# what is said -> the names it is said of
_SAID: dict[str, tuple[str, ...]] = {
    "is --model here": (
        "m",
        "model-name",
        "model-name-or-path",
        "pretrained-model",
        "arch",
        "config",
    ),
    "is --gpu here": (
        "g",
        "gpu-type",
        "gpu-name",
        "device",
        "hardware",
        "accelerator",
        "instance-gpu",
    ),
    "is --gpus here": ("n", "num-gpus", "n-gpus", "ngpus", "ngpu", "gpu-count", "num-processes"),
    "is --gpus here, GPUs in all": ("world-size", "devices", "ntasks", "num-devices"),
    "is --nodes here": ("num-nodes", "nnodes", "n-nodes", "num-machines", "nnode", "hosts"),
    "is --gpus-per-node here": ("nproc-per-node", "ntasks-per-node", "gpu-per-node", "gpus-node"),
    "is --cluster here, a server or instance": ("instance", "instance-type", "server", "machine"),
    "is --inter-node here, and its speed --nic-bandwidth": ("network", "interconnect", "fabric"),
    "is --nic-bandwidth here, of one card": ("bandwidth", "network-bandwidth", "inter-node-bw"),
    "is --tp here": (
        "tensor-model-parallel-size",
        "tensor-parallel-size",
        "tensor-parallel-degree",
        "tensor-parallel",
        "tp-size",
        "tp-degree",
        "model-parallel-size",
    ),
    "is --pp here": (
        "pipeline-model-parallel-size",
        "pipeline-parallel-size",
        "pipeline-parallel-degree",
        "pipeline-parallel",
        "pp-size",
        "pp-degree",
        "num-stages",
    ),
    "is --vpp here, which counts chunks per rank: layers / (pp x layers per chunk)": (
        "num-layers-per-virtual-pipeline-stage",
    ),
    "is --vpp here": (
        "virtual-pipeline-model-parallel-size",
        "num-virtual-stages-per-pipeline-rank",
        "virtual-stages",
        "vp",
        "interleave",
    ),
    "is --cp here": (
        "context-parallel-size",
        "context-parallel-degree",
        "context-parallel",
        "cp-size",
        "sequence-parallel-size",
    ),
    "is --cp here, with --cp-comm-type": (
        "ring-attention",
        "ulysses",
        "ulysses-size",
        "ulysses-degree",
        "ring-degree",
        "hierarchical-context-parallel-sizes",
    ),
    "is --ep here": (
        "expert-model-parallel-size",
        "expert-parallel-size",
        "expert-parallel-degree",
        "expert-parallel",
        "ep-size",
    ),
    "is --etp here": (
        "expert-tensor-parallel-size",
        "expert-tensor-parallel-degree",
        "expert-tensor-parallel",
    ),
    "is --dispatcher here": (
        "moe-token-dispatcher-type",
        "moe-flex-dispatcher-backend",
        "moe-enable-deepep",
    ),
    "is --dispatcher-sms here": ("moe-deepep-num-sms", "moe-hybridep-num-sms"),
    "is --ep-overlap here": ("overlap-moe-expert-parallel-comm",),
    "is --shared-expert-overlap here": ("moe-shared-expert-overlap",),
    "is --capacity-factor here": ("moe-expert-capacity-factor",),
    "is --dp here": (
        "data-parallel-size",
        "data-parallel-degree",
        "data-parallel-replicate-degree",
        "data-parallel",
        "dp-size",
        "replicas",
    ),
    "is --zero here": ("zero-stage", "zero-optimization", "zero-optimization-stage", "stage"),
    "is --zero 3 here": ("fsdp", "fsdp2", "use-fsdp", "full-shard", "use-torch-fsdp2", "zero3"),
    "is --zero 2 here": ("zero2",),
    "is --zero 1 here": ("use-distributed-optimizer", "distributed-optimizer", "zero1"),
    "is --zero 0 here (and --stack pytorch-ddp)": ("ddp",),
    "is --shard-group here, the ranks that shard": (
        "hsdp",
        "hybrid-shard",
        "data-parallel-shard-degree",
        "zero-hpz-partition-size",
    ),
    "is --stack deepspeed here": ("deepspeed", "use-deepspeed"),
    "is --stack megatron-core here": ("megatron", "use-megatron"),
    "is --stack here": ("framework", "backend", "library", "distributed-backend", "trainer"),
    "is --sequence-parallel here": ("sp", "use-sequence-parallel"),
    "is --schedule here": ("pipeline-schedule", "pipeline-parallel-schedule", "pp-schedule"),
    "is --global-batch here, in sequences": (
        "global-batch-size",
        "train-batch-size",
        "gbs",
        "total-batch-size",
        "effective-batch-size",
        "batch-size-global",
    ),
    "is --micro-batch here, sequences per GPU and pass": (
        "micro-batch-size",
        "mbs",
        "train-micro-batch-size-per-gpu",
        "per-device-train-batch-size",
        "per-device-batch-size",
        "per-gpu-batch-size",
        "local-batch-size",
        "device-batch-size",
    ),
    "may be --global-batch (sequences per step of all GPUs) or --micro-batch (per GPU and pass)": (
        "batch-size",
        "batch",
        "bs",
        "b",
    ),
    "is --grad-accum here": (
        "gradient-accumulation-steps",
        "gradient-accumulation",
        "grad-accumulation",
        "grad-accum-steps",
        "accumulate-grad-batches",
        "accumulation-steps",
        "gas",
        "num-microbatches",
    ),
    "is --seq-len here": (
        "sequence-length",
        "seq-length",
        "seqlen",
        "seq",
        "max-seq-len",
        "max-seq-length",
        "max-length",
        "context",
        "context-length",
        "context-len",
        "ctx",
        "ctx-len",
        "block-size",
        "max-position-embeddings",
        "cutoff-len",
        "model-max-length",
    ),
    "is --precision bf16 here": ("bf16", "bfloat16"),
    "is --precision fp16 here": ("fp16", "half", "float16"),
    "is --precision fp8 here": ("fp8", "fp8-format", "fp8-hybrid", "float8"),
    "is --precision here, such as fp8-delayed, fp8-blockwise or mxfp8": (
        "fp8-recipe",
        "float8-recipe-name",
    ),
    "is --precision nvfp4 here": ("fp4-format", "fp4-recipe"),
    "is --low-precision weights here": (
        "fp8-param-gather",
        "fp4-param-gather",
        "fp8-primary-weights",
        "enable-fsdp-float8-all-gather",
    ),
    "is --low-precision attention here": ("fp8-dot-product-attention", "fp8-dpa"),
    "is --bf16-layers here, both ends together": (
        "first-last-layers-bf16",
        "num-layers-at-start-in-bf16",
        "num-layers-at-end-in-bf16",
    ),
    "is --precision tf32 here": ("tf32",),
    "is --precision fp32 here": ("fp32",),
    "is --precision here": ("dtype", "mixed-precision", "torch-dtype", "amp", "data-type"),
    "is --optimizer here": ("optim", "optimizer-name", "optimizer-type"),
    "is --recompute full here": (
        "gradient-checkpointing",
        "activation-checkpointing",
        "activation-checkpoint",
        "checkpoint-activations",
        "recompute-full",
    ),
    "is --recompute selective here": ("recompute-activations",),
    "is --recompute here": (
        "recompute-granularity",
        "recompute-method",
        "recompute-num-layers",
        "recompute-modules",
        "remat-policy",
        "remat",
        "ac",
        "ac-mode",
    ),
    "is --flash-attention here": ("flash-attn", "use-flash-attn", "flash-attention-2"),
    "is --attention here": ("fa2", "fa3", "attn-implementation", "attention-backend", "attn-impl"),
    "is --no-flash-attention here": ("no-flash-attn",),
    "is --offload optimizer here": ("cpu-offload", "offload-optimizer", "optimizer-offload"),
    "is --offload params here": ("offload-param", "offload-params", "fsdp-offload-params"),
    "is --offload activations here": ("offload-activations", "cpu-offloading", "fine-offload"),
    "is --tokens here": ("num-tokens", "train-tokens", "total-tokens", "n-tokens", "dataset-size"),
    "is --price here, US dollars per GPU-hour": (
        "cost",
        "gpu-price",
        "hourly-rate",
        "cost-per-hour",
        "price-per-hour",
        "gpu-cost",
        "usd",
    ),
    "is --loss-chunks here": ("chunked-loss", "fused-linear-cross-entropy", "liger"),
    "is --days or --budget of `dpplan recommend`": ("deadline", "max-days", "max-cost"),
    "is --json here": ("output", "format", "output-format"),
    "is --explain here": ("verbose", "debug", "details"),
    "is --goal, of `dpplan recommend`": ("cheapest", "fastest"),
    _MODEL_FILE: (
        "num-layers",
        "n-layers",
        "layers",
        "hidden-size",
        "hidden",
        "num-attention-heads",
        "num-query-groups",
        "heads",
        "ffn-hidden-size",
        "vocab-size",
        "padded-vocab-size",
        "num-experts",
        "params",
        "parameters",
        "model-size",
    ),
    "is --lora RANK here": ("peft", "lora-r", "lora-rank", "adapter", "use-peft", "use-lora"),
    "is --lora RANK --lora-method dora here": ("dora", "use-dora"),
    "is --lora RANK --lora-method rslora here": ("use-rslora", "rslora"),
    "is --lora-targets here": ("target-modules", "lora-target-modules", "lora-target"),
    "scales what adapters add, with neither memory nor time": ("lora-alpha",),
    _QUANTIZED: (
        "load-in-4bit",
        "load-in-8bit",
        "quantization",
        "quantize",
        "quant",
        "bnb",
        "int8",
    ),
    _NO_LOOP: (
        "lr",
        "min-lr",
        "weight-decay",
        "clip-grad",
        "max-grad-norm",
        "adam-beta1",
        "adam-beta2",
        "lr-scheduler-type",
        "lr-decay-style",
        "seed",
        "dropout",
    ),
    _LENGTH: (
        "epochs",
        "num-train-epochs",
        "max-steps",
        "train-iters",
        "train-steps",
        "train-samples",
        "steps",
    ),
    _SERVING: ("serve", "kv-cache", "max-new-tokens", "decode", "concurrency"),
}
# words that people type for a command, and what does that here
COMMANDS = {
    **dict.fromkeys(("plan", "run", "fit", "fits", "memory", "predict", "estimator"), "estimate"),
    **dict.fromkeys(("optimize", "optimise", "autotune", "layouts"), "search"),
    **dict.fromkeys(("finetune", "fine-tune", "sft", "lora", "qlora"), "tune"),
    **dict.fromkeys(("grpo", "ppo", "rlhf", "reinforce", "rollout"), "rl"),
    **dict.fromkeys(("sweep", "scaling", "vary"), "compare"),
    **dict.fromkeys(("cost", "price", "buy", "size", "advise", "suggest"), "recommend"),
    **dict.fromkeys(("benchmark", "bench", "measure", "profile"), "calibrate"),
    **dict.fromkeys(("web", "dashboard", "ui", "server"), "serve"),
    **dict.fromkeys(("gpus", "models", "networks", "stacks", "clusters", "hosts"), "list"),
    "version": "--version",
    "help": "--help",
}
_ANSWERS = {name: said for said, names in _SAID.items() for name in names}


def answer(option: str) -> str:
    """What an option of another tool is called here, "" for an unknown option: "--micro-batch-size"
    -> "is --micro-batch here, ..."."""
    name = option.lstrip("-").replace("_", "-").replace(".", "-").lower()
    return _ANSWERS.get(name, "")


def names() -> tuple[str, ...]:
    """Every name that is answered."""
    return tuple(_ANSWERS)
