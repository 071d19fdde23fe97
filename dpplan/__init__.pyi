# Written by `python -m dpplan.stub` from the option table: do not edit.
from collections.abc import Sequence
from os import PathLike
from typing import Any, Literal, TypedDict, Unpack

from planner.formats.documents.export import Export
from planner.formats.documents.read import Read
from planner.preflight.documents import Preflight
from planner.prices.documents import ListedPrices
from planner.rl.documents import Reinforcement
from planner.specs.documents.allreduce import AllReduce
from planner.specs.documents.batch import TimeToTarget
from planner.specs.documents.batchnorm import BatchNorm
from planner.specs.documents.compare import Comparison
from planner.specs.documents.estimate import Estimate
from planner.specs.documents.input import InputAnswer
from planner.specs.documents.schedule import Schedule
from planner.specs.documents.search import Search
from planner.specs.documents.strategies import Strategies
from planner.specs.documents.tune import Tuning
from planner.studies.documents.check import Check
from planner.studies.documents.validate import Validation
from planner.trace.documents import ModelTree
from dpplan.answer import Answer as Answer
from planner.error import PlanError as PlanError

__version__: str

class _ModelAndLike(TypedDict, total=False):
    model: str | None
    clock: float | None
    power_limit: float | str | None
    host_link: str | None
    recompute: str | None
    micro_batch: int | None
    ema: Literal['none', 'device', 'host'] | None
    cuda_graphs: str | None
    precision: Literal['fp32', 'tf32', 'fp16', 'bf16', 'fp8', 'fp8-delayed', 'fp8-tensorwise', 'fp8-rowwise', 'fp8-blockwise', 'mxfp8', 'nvfp4'] | None
    low_precision: str | None
    bf16_layers: int | None
    flash_attention: bool | None
    attention: Literal['cudnn', 'flash4', 'flash3', 'flash2', 'flash1', 'fused_softmax', 'eager'] | None
    compile: bool | None
    fused_kernels: bool | None
    fused_norm: bool | None
    overlap: bool | None
    loss_kernel: Literal['torch', 'fused', 'fused-linear', 'chunked', 'tiled'] | None
    loss_chunks: int | None
    loss_share: float | str | None
    mtp: int | None

class _GpuAndLike(TypedDict, total=False):
    gpu: str | None
    gpus: int | None
    nodes: int | None
    cluster: str | None
    gpus_per_node: int | None
    intra_node: str | None
    inter_node: str | None
    nics_per_node: int | None
    nic_bandwidth: float | str | None
    island_nodes: int | None
    oversubscription: float | None
    calibration: str | PathLike[str] | None

class _PriceAndLike(TypedDict, total=False):
    price: float | str | None
    headroom: float | str | None
    teacher: str | None
    teacher_precision: Literal['fp32', 'nf4', 'nf4-double', 'fp4', 'fp4-double', 'int8', 'gptq', 'gptq-8bit', 'awq', 'hqq', 'fp8', 'fp8-blockwise', 'mxfp4'] | None
    teacher_gpus: int | None
    teacher_top_k: int | None
    divergence: Literal['forward', 'reverse', 'jsd'] | None
    task: Literal['sft', 'dpo', 'kto', 'orpo', 'simpo', 'reward', 'distil'] | None
    market: str | None
    price_day: str | None

class _HostAndLike(TypedDict, total=False):
    host: str | None
    host_threads: int | None
    cpu_optimizer: Literal['deepspeed', 'torch-fused', 'torch-eager'] | None
    offload: Literal['none', 'optimizer', 'params', 'activations', 'optimizer-nvme', 'params-optimizer-nvme', 'params-nvme'] | None
    search_offload: bool | None
    dp_bucket: float | str | None
    zeropp: str | None
    transpose_weights: bool | None
    offload_modules: str | None
    nvme_read: float | str | None
    nvme_write: float | str | None
    lisa: int | None
    trainable_layers: int | None
    hpz: int | None
    freeze: str | None
    fp8_mlp_input: bool | None
    cpu_update: Literal['after', 'overlapped', 'delayed'] | None
    gradient_precision: Literal['fp32', 'bf16'] | None
    sub_group_size: float | None
    lora: int | None
    lora_targets: str | None
    base_precision: Literal['fp32', 'nf4', 'nf4-double', 'fp4', 'fp4-double', 'int8', 'gptq', 'gptq-8bit', 'awq', 'hqq', 'fp8', 'fp8-blockwise', 'mxfp4'] | None
    base_group: int | None
    base_upcast: Literal['none', 'norms', 'all'] | None

class _TpAndLike(TypedDict, total=False):
    tp: int | None
    pp: int | None
    vpp: int | None
    dp: int | None
    cp: int | None
    ep: int | None
    zero: int | None
    shard_group: int | None
    sequence_parallel: bool | None
    schedule: Literal['1f1b', 'breadth-first', 'dualpipe', 'dualpipev', 'gpipe', 'interleaved', 'sequential', 'zb-1p', 'zb-2p', 'zb-h1', 'zb-h2', 'zb-v'] | None
    placement: Literal['tp-cp-dp-pp', 'tp-cp-pp-dp'] | None
    etp: int | None
    expert_kernels: Literal['loop', 'grouped', 'fused'] | None
    dispatcher: Literal['alltoall', 'allgather', 'deepep', 'hybridep'] | None
    expert_load: float | None
    expert_spread: float | None
    capacity_factor: float | None
    cp_comm_type: Literal['ring', 'all-gather', 'ulysses', 'hybrid'] | None
    selective: Literal['attention', 'per-op', 'products'] | None
    where: str | Sequence[str] | None
    stack_defaults: bool | None
    uneven_stages: bool | None
    pipeline_layout: str | None
    dp_overlap: str | None
    tp_overlap: Literal['none', 'async', 'user-buffers'] | None
    shared_expert_overlap: bool | None
    paged_stash: float | None
    ep_overlap: bool | None
    dispatcher_sms: int | None
    grad_reduce_precision: Literal['fp32', 'bf16'] | None
    gradient_sync: Literal['each', 'last'] | None
    lora_method: Literal['lora', 'rslora', 'dora'] | None
    lora_dropout: float | None
    lora_precision: Literal['fp32', 'bf16'] | None
    lora_adapters: int | None
    fused_lora: bool | None
    train_embeddings: bool | None
    stack: str | None

class _GradAccumAndLike(TypedDict, total=False):
    grad_accum: int | None

class _OptimizerInBackwardAndLike(TypedDict, total=False):
    optimizer_in_backward: bool | None
    optimizer: Literal['adam', 'paged-adam', 'adam8bit', 'paged-adam8bit', 'adafactor', 'lion', 'muon', 'shampoo', 'soap', 'galore', 'galore8bit', 'apollo', 'apollo-mini', 'sgd', 'sgd-momentum'] | None
    optimizer_rank: int | None
    state_precision: Literal['bf16'] | None
    moments_precision: Literal['fp32', 'bf16', 'fp16', 'fp8'] | None
    master_precision: Literal['fp32', 'fp16', 'remainder', 'none'] | None

class _NvmeCapacityAndLike(TypedDict, total=False):
    nvme_capacity: float | str | None
    weight_readers: Literal['each-rank', 'each-host', 'one-host', 'in-parts'] | None

class _LisaStatesAndLike(TypedDict, total=False):
    lisa_states: Literal['active', 'visited'] | None

class _ObjectiveAndLike(TypedDict, total=False):
    objective: Literal['time', 'memory', 'cost', 'energy', 'tokens-per-dollar'] | None

class _SeqLenAndLike(TypedDict, total=False):
    seq_len: int | str | None
    resolution: str | None
    frames: int | None
    images_per_sample: float | None
    global_batch: int | None
    lengths: str | None
    length_mean: float | str | None
    length_sigma: float | None
    excess_length: Literal['truncate', 'drop', 'split'] | None
    short_length: int | str | None
    packing: Literal['padded', 'longest', 'bucketed', 'packed'] | None

class _ExpandableSegmentsAndLike(TypedDict, total=False):
    expandable_segments: bool | None

class _ChannelsLastAndLike(TypedDict, total=False):
    channels_last: bool | None

class _TokensAndLike(TypedDict, total=False):
    tokens: int | float | str | None

class _SamplesAndLike(TypedDict, total=False):
    samples: int | str | None
    grid: float | str | None
    longest_row: int | str | None

class _LoraAutocastAndLike(TypedDict, total=False):
    lora_autocast: bool | None

class _ReferenceAndLike(TypedDict, total=False):
    reference: Literal['held', 'shared', 'precomputed'] | None
    capex: float | str | None
    lifetime: float | str | None
    use: float | str | None
    electricity: float | str | None
    pue: float | None
    mtbf: float | str | None
    checkpoint: Literal['async', 'sync'] | None
    checkpoint_interval: float | str | None
    storage: float | str | None
    restart: float | str | None
    spare_nodes: int | None
    failure_stops: Literal['job', 'replica'] | None
    run_as: Literal['plan', 'project'] | None
    token_bytes: float | None

class _JitterAndLike(TypedDict, total=False):
    jitter: float | str | None
    slow_hosts: float | str | None
    slow_factor: float | None
    other_gpu: str | None
    other_share: float | str | None
    split: Literal['equal', 'proportional'] | None

class _SampleBytesAndLike(TypedDict, total=False):
    sample_bytes: float | str | None
    decoded_bytes: float | str | None
    read_bytes: float | str | None
    data_storage: float | str | None
    data_iops: float | None
    read_latency: float | str | None
    worker_rate: float | None
    workers: int | None

class _PrefetchAndLike(TypedDict, total=False):
    prefetch: int | None

class _ForTargetAndLike(TypedDict, total=False):
    for_target: Literal['megatron', 'torchtitan', 'nanotron', 'maxtext', 'verl', 'deepspeed', 'accelerate', 'axolotl', 'llama-factory', 'hf-trainer', 'trl', 'ms-swift', 'torchtune'] | None
    top: int | None

class _AllowIdleAndLike(TypedDict, total=False):
    allow_idle: bool | None
    advice: int | None
    require: str | Sequence[str] | None

class _EstimateOptions(
    _ModelAndLike,
    _GpuAndLike,
    _PriceAndLike,
    _HostAndLike,
    _TpAndLike,
    _GradAccumAndLike,
    _OptimizerInBackwardAndLike,
    _NvmeCapacityAndLike,
    _LisaStatesAndLike,
    _SeqLenAndLike,
    _ExpandableSegmentsAndLike,
    _ChannelsLastAndLike,
    _TokensAndLike,
    _SamplesAndLike,
    _LoraAutocastAndLike,
    _ReferenceAndLike,
    _JitterAndLike,
    _SampleBytesAndLike,
    _PrefetchAndLike,
    _ForTargetAndLike,
    _AllowIdleAndLike,
    total=False,
): ...

def estimate(
    part: Literal['memory', 'time'] | None = ...,
    *,
    explain: bool | None = ...,
    trace: str | PathLike[str] | None = ...,
    full: bool | None = ...,
    inference: bool | None = ...,
    chart: Literal['roofline', 'crossover'] | None = ...,
    html: str | PathLike[str] | None = ...,
    scenario: str | PathLike[str] | None = ...,
    recipe: str | Sequence[str] | None = ...,
    **request: Unpack[_EstimateOptions],
) -> Answer[Estimate]:
    """Estimate memory, step time and cost; what is left out of the layout is searched."""

class _SearchOptions(
    _ModelAndLike,
    _GpuAndLike,
    _PriceAndLike,
    _HostAndLike,
    _TpAndLike,
    _GradAccumAndLike,
    _OptimizerInBackwardAndLike,
    _NvmeCapacityAndLike,
    _LisaStatesAndLike,
    _ObjectiveAndLike,
    _SeqLenAndLike,
    _ExpandableSegmentsAndLike,
    _ChannelsLastAndLike,
    _TokensAndLike,
    _SamplesAndLike,
    _LoraAutocastAndLike,
    _ReferenceAndLike,
    _JitterAndLike,
    _SampleBytesAndLike,
    _PrefetchAndLike,
    _ForTargetAndLike,
    total=False,
): ...

def search(
    *,
    full: bool | None = ...,
    csv: str | PathLike[str] | None = ...,
    html: str | PathLike[str] | None = ...,
    scenario: str | PathLike[str] | None = ...,
    recipe: str | Sequence[str] | None = ...,
    **request: Unpack[_SearchOptions],
) -> Answer[Search]:
    """Evaluate every valid layout: the best that fit, the Pareto front of time against memory, and why others fail."""

class _RecommendOptions(
    _ModelAndLike,
    _GpuAndLike,
    _PriceAndLike,
    _HostAndLike,
    _TpAndLike,
    _GradAccumAndLike,
    _OptimizerInBackwardAndLike,
    _NvmeCapacityAndLike,
    _LisaStatesAndLike,
    _SeqLenAndLike,
    _ExpandableSegmentsAndLike,
    _ChannelsLastAndLike,
    _TokensAndLike,
    _SamplesAndLike,
    _LoraAutocastAndLike,
    _ReferenceAndLike,
    _JitterAndLike,
    _SampleBytesAndLike,
    total=False,
): ...

def recommend(
    question: Literal['cluster', 'bandwidth', 'batch', 'model', 'offload'] | None = ...,
    *,
    days: float | str | None = ...,
    budget: float | str | None = ...,
    max_gpus: int | None = ...,
    power_kw: float | str | None = ...,
    sure: bool | None = ...,
    goal: Literal['cheapest', 'smallest', 'fastest'] | None = ...,
    jobs: int | None = ...,
    dask: str | None = ...,
    model_out: str | PathLike[str] | None = ...,
    examples: int | str | None = ...,
    html: str | PathLike[str] | None = ...,
    scenario: str | PathLike[str] | None = ...,
    recipe: str | Sequence[str] | None = ...,
    **request: Unpack[_RecommendOptions],
) -> Answer[Any]:
    """Ask backwards: the cluster for a model, the bandwidth, batch or host link for a cluster, the model for a cluster."""

class _ExportOptions(
    _ModelAndLike,
    _GpuAndLike,
    _PriceAndLike,
    _HostAndLike,
    _TpAndLike,
    _GradAccumAndLike,
    _OptimizerInBackwardAndLike,
    _NvmeCapacityAndLike,
    _LisaStatesAndLike,
    _SeqLenAndLike,
    _ExpandableSegmentsAndLike,
    _ChannelsLastAndLike,
    _TokensAndLike,
    _SamplesAndLike,
    _LoraAutocastAndLike,
    _ReferenceAndLike,
    _JitterAndLike,
    _SampleBytesAndLike,
    _PrefetchAndLike,
    _ForTargetAndLike,
    _AllowIdleAndLike,
    total=False,
): ...

def export(
    answer: str | PathLike[str] | None = ...,
    *,
    to: Literal['megatron', 'torchtitan', 'nanotron', 'maxtext', 'verl', 'deepspeed', 'accelerate', 'axolotl', 'llama-factory', 'hf-trainer', 'trl', 'ms-swift', 'torchtune'] | None = ...,
    rank: int | None = ...,
    out: str | PathLike[str] | None = ...,
    html: str | PathLike[str] | None = ...,
    scenario: str | PathLike[str] | None = ...,
    recipe: str | Sequence[str] | None = ...,
    **request: Unpack[_ExportOptions],
) -> Answer[Export]:
    """Write the chosen layout as the files of a framework, with scripts for torchrun, Slurm, Kubernetes and SkyPilot; what is left out of the layout is searched."""

class _CompareOptions(
    _ModelAndLike,
    _GpuAndLike,
    _PriceAndLike,
    _HostAndLike,
    _TpAndLike,
    _GradAccumAndLike,
    _OptimizerInBackwardAndLike,
    _NvmeCapacityAndLike,
    _LisaStatesAndLike,
    _SeqLenAndLike,
    _ExpandableSegmentsAndLike,
    _ChannelsLastAndLike,
    _TokensAndLike,
    _SamplesAndLike,
    _LoraAutocastAndLike,
    _ReferenceAndLike,
    _JitterAndLike,
    _SampleBytesAndLike,
    total=False,
): ...

def compare(
    *files: str | PathLike[str],
    jobs: int | None = ...,
    dask: str | None = ...,
    vary: str | Sequence[str] | None = ...,
    sweep: str | Sequence[str] | None = ...,
    at: Literal['count', 'cost', 'power'] | None = ...,
    scaling: Literal['strong', 'weak'] | None = ...,
    stop_below: float | None = ...,
    csv: str | PathLike[str] | None = ...,
    html: str | PathLike[str] | None = ...,
    scenario: str | PathLike[str] | None = ...,
    recipe: str | Sequence[str] | None = ...,
    **request: Unpack[_CompareOptions],
) -> Answer[Comparison]:
    """Compare clusters, models or layouts side by side with what makes the difference, or sweep any number."""

class _BatchOptions(
    _ModelAndLike,
    _GpuAndLike,
    _PriceAndLike,
    _HostAndLike,
    _TpAndLike,
    _GradAccumAndLike,
    _OptimizerInBackwardAndLike,
    _NvmeCapacityAndLike,
    _SeqLenAndLike,
    _ChannelsLastAndLike,
    _TokensAndLike,
    _ReferenceAndLike,
    _JitterAndLike,
    _SampleBytesAndLike,
    total=False,
): ...

def batch(
    *,
    jobs: int | None = ...,
    dask: str | None = ...,
    sweep: str | None = ...,
    critical_batch: float | str | None = ...,
    target_loss: float | None = ...,
    gradient_norm: str | Sequence[str] | None = ...,
    reference_batch: int | None = ...,
    learning_rate: float | None = ...,
    warmup: float | str | None = ...,
    stop_below: float | None = ...,
    csv: str | PathLike[str] | None = ...,
    html: str | PathLike[str] | None = ...,
    scenario: str | PathLike[str] | None = ...,
    recipe: str | Sequence[str] | None = ...,
    **request: Unpack[_BatchOptions],
) -> Answer[TimeToTarget]:
    """Days, cost and learning rate to the same loss over GPUs: batch kept, grown with them, or best; and why it saturates."""

class _TuneOptions(
    _ModelAndLike,
    _GpuAndLike,
    _PriceAndLike,
    _TpAndLike,
    _GradAccumAndLike,
    _SeqLenAndLike,
    _ExpandableSegmentsAndLike,
    _LoraAutocastAndLike,
    _ReferenceAndLike,
    _JitterAndLike,
    _SampleBytesAndLike,
    total=False,
): ...

def tune(
    *,
    jobs: int | None = ...,
    dask: str | None = ...,
    method: str | None = ...,
    rank: int | None = ...,
    examples: int | str | None = ...,
    epochs: float | None = ...,
    length_max: int | str | None = ...,
    largest: bool | None = ...,
    csv: str | PathLike[str] | None = ...,
    days: float | str | None = ...,
    budget: float | str | None = ...,
    max_gpus: int | None = ...,
    sure: bool | None = ...,
    html: str | PathLike[str] | None = ...,
    scenario: str | PathLike[str] | None = ...,
    recipe: str | Sequence[str] | None = ...,
    **request: Unpack[_TuneOptions],
) -> Answer[Tuning]:
    """Fine-tune a model on given cards: which methods fit, to which context and micro-batch, in what time, for how much. Several --gpu (or any) and numbers up to --max-gpus are compared."""

class _ReadOptions(
    _ModelAndLike,
    _GpuAndLike,
    _PriceAndLike,
    _HostAndLike,
    _TpAndLike,
    _GradAccumAndLike,
    _OptimizerInBackwardAndLike,
    _NvmeCapacityAndLike,
    _LisaStatesAndLike,
    _SeqLenAndLike,
    _ExpandableSegmentsAndLike,
    _ChannelsLastAndLike,
    _TokensAndLike,
    _SamplesAndLike,
    _LoraAutocastAndLike,
    _ReferenceAndLike,
    _JitterAndLike,
    _SampleBytesAndLike,
    _PrefetchAndLike,
    _ForTargetAndLike,
    _AllowIdleAndLike,
    total=False,
): ...

def read(
    *files: str | PathLike[str],
    full: bool | None = ...,
    append: str | PathLike[str] | None = ...,
    html: str | PathLike[str] | None = ...,
    **request: Unpack[_ReadOptions],
) -> Answer[Read]:
    """Read launch scripts and configurations of other programs: every argument, the plan in options of `dpplan estimate`, and its estimate."""

class _RlOptions(
    _ModelAndLike,
    _GpuAndLike,
    _PriceAndLike,
    _HostAndLike,
    _TpAndLike,
    _OptimizerInBackwardAndLike,
    _NvmeCapacityAndLike,
    _LisaStatesAndLike,
    _ExpandableSegmentsAndLike,
    _LoraAutocastAndLike,
    total=False,
): ...

def rl(
    *,
    algorithm: Literal['ppo', 'grpo', 'dapo', 'rloo'] | None = ...,
    framework: str | None = ...,
    prompts: int | None = ...,
    responses: int | None = ...,
    prompt_length: int | str | None = ...,
    response_length: int | str | None = ...,
    response_max: int | str | None = ...,
    response_sigma: float | None = ...,
    update_batch: int | None = ...,
    updates: int | None = ...,
    kept: float | str | None = ...,
    reference: Literal['yes', 'no'] | None = ...,
    old_logprobs: Literal['yes', 'no'] | None = ...,
    partial_rollout: bool | None = ...,
    stream: int | None = ...,
    reward_model: str | None = ...,
    scoring_gpus: int | None = ...,
    reward_time: float | str | None = ...,
    ahead: int | None = ...,
    generation_engine: Literal['vllm', 'sglang', 'transformers'] | None = ...,
    generation_gpus: int | None = ...,
    generation_tp: int | None = ...,
    generation_precision: Literal['bf16', 'fp8'] | None = ...,
    generation_memory: float | str | None = ...,
    generation_offload: Literal['none', 'parameters', 'optimizer', 'both'] | None = ...,
    explain: bool | None = ...,
    html: str | PathLike[str] | None = ...,
    scenario: str | PathLike[str] | None = ...,
    recipe: str | Sequence[str] | None = ...,
    **request: Unpack[_RlOptions],
) -> Answer[Reinforcement]:
    """Estimate a step of PPO, GRPO, DAPO or RLOO: phases, memory, split of the GPUs and cost."""

class _ScheduleOptions(
    _ModelAndLike,
    _GpuAndLike,
    _HostAndLike,
    _TpAndLike,
    _GradAccumAndLike,
    _OptimizerInBackwardAndLike,
    _LisaStatesAndLike,
    _SeqLenAndLike,
    _ExpandableSegmentsAndLike,
    _ChannelsLastAndLike,
    _LoraAutocastAndLike,
    total=False,
): ...

def schedule(
    *,
    microbatches: int | None = ...,
    forward_s: str | None = ...,
    backward_s: str | None = ...,
    weight_s: str | None = ...,
    p2p_s: str | None = ...,
    optimizer_s: str | None = ...,
    activation_bytes: str | None = ...,
    straggler: str | None = ...,
    blocking_sends: bool | None = ...,
    file: str | PathLike[str] | None = ...,
    sends: bool | None = ...,
    trace: str | PathLike[str] | None = ...,
    html: str | PathLike[str] | None = ...,
    scenario: str | PathLike[str] | None = ...,
    recipe: str | Sequence[str] | None = ...,
    **request: Unpack[_ScheduleOptions],
) -> Answer[Schedule]:
    """Time a pipeline schedule, count what its ranks keep, draw it, and compare all schedules at the same size."""

class _StrategiesOptions(
    _ModelAndLike,
    _GpuAndLike,
    _OptimizerInBackwardAndLike,
    _SeqLenAndLike,
    _ExpandableSegmentsAndLike,
    _ChannelsLastAndLike,
    _JitterAndLike,
    total=False,
): ...

def strategies(
    *,
    strategy: str | None = ...,
    explain: bool | None = ...,
    local_steps: int | None = ...,
    rank: int | None = ...,
    density: float | None = ...,
    servers: int | None = ...,
    server_copies: int | None = ...,
    slack: int | None = ...,
    backups: int | None = ...,
    bucket: float | str | None = ...,
    steps_factor: float | None = ...,
    html: str | PathLike[str] | None = ...,
    scenario: str | PathLike[str] | None = ...,
    recipe: str | Sequence[str] | None = ...,
    **request: Unpack[_StrategiesOptions],
) -> Answer[Strategies]:
    """Compare every way of keeping replicas in step: memory, time, bytes sent, and time to the same loss."""

class _AllreduceOptions(
    _GpuAndLike,
    total=False,
): ...

def allreduce(
    *,
    bytes: str | None = ...,
    servers: int | None = ...,
    html: str | PathLike[str] | None = ...,
    **request: Unpack[_AllreduceOptions],
) -> Answer[AllReduce]:
    """Compare all-reduce algorithms: seconds by size, the fastest by size and number of ranks, and where they change."""

class _BatchnormOptions(
    _GpuAndLike,
    total=False,
): ...

def batchnorm(
    *,
    channels: str | None = ...,
    html: str | PathLike[str] | None = ...,
    **request: Unpack[_BatchnormOptions],
) -> Answer[BatchNorm]:
    """Bytes and time of synchronized batch norm in one training step."""

class _InputOptions(
    _SampleBytesAndLike,
    _PrefetchAndLike,
    total=False,
): ...

def input(
    *,
    samples_per_s: float | None = ...,
    batch: int | None = ...,
    gpus: int | None = ...,
    gpus_per_node: int | None = ...,
    html: str | PathLike[str] | None = ...,
    **request: Unpack[_InputOptions],
) -> Answer[InputAnswer]:
    """Size storage, data-loader workers and host memory for a rate of samples; models of tokens: the same options of `dpplan estimate`."""

def list(
    kind: Literal['gpus', 'models', 'networks', 'stacks', 'clusters', 'hosts', 'schedules'] | None = ...,
    entry: str | None = ...,
    *,
    html: str | PathLike[str] | None = ...,
) -> Answer[Any]:
    """List the shipped GPUs, models, networks, stacks, clusters or schedules; without KIND what can be listed, with models NAME the blocks of one model, shipped or a file."""

def validate(
    *runs: str | PathLike[str],
    jobs: int | None = ...,
    dask: str | None = ...,
    suite: str | Sequence[str] | None = ...,
    calibration: str | PathLike[str] | None = ...,
    csv: str | PathLike[str] | None = ...,
    plot: str | PathLike[str] | None = ...,
    html: str | PathLike[str] | None = ...,
) -> Answer[Validation]:
    """Estimate every measured run from its row and report the error per row, suite and in all."""

class _CheckOptions(
    _ModelAndLike,
    _GpuAndLike,
    _PriceAndLike,
    _HostAndLike,
    _TpAndLike,
    _GradAccumAndLike,
    _OptimizerInBackwardAndLike,
    _NvmeCapacityAndLike,
    _LisaStatesAndLike,
    _SeqLenAndLike,
    _ExpandableSegmentsAndLike,
    _ChannelsLastAndLike,
    _TokensAndLike,
    _SamplesAndLike,
    _LoraAutocastAndLike,
    _ReferenceAndLike,
    _JitterAndLike,
    _SampleBytesAndLike,
    total=False,
): ...

def check(
    *logs: str | PathLike[str],
    save: str | PathLike[str] | None = ...,
    append: str | PathLike[str] | None = ...,
    html: str | PathLike[str] | None = ...,
    scenario: str | PathLike[str] | None = ...,
    recipe: str | Sequence[str] | None = ...,
    **request: Unpack[_CheckOptions],
) -> Answer[Check]:
    """Read the log of a run, or a recording of its step or memory, and compare it with what was predicted of its recipe."""

def learn(
    lesson: str | None = ...,
    *,
    set: str | Sequence[str] | None = ...,
    html: str | PathLike[str] | None = ...,
) -> Answer[Any]:
    """Read a lesson of ten minutes whose figures are computed, with inputs of your own; without LESSON the list of them, with `coverage` all claims of our sources that they check."""

def calibrate(
    *,
    out: str | PathLike[str] | None = ...,
    quick: bool | None = ...,
    thorough: bool | None = ...,
    processes: int | None = ...,
    threads: int | None = ...,
    timeout: float | None = ...,
    storage: str | PathLike[str] | None = ...,
    verify: bool | None = ...,
    calibration: str | PathLike[str] | None = ...,
    tolerance: float | None = ...,
    case: str | Sequence[str] | None = ...,
    precision: Literal['fp32', 'bf16', 'fp16'] | None = ...,
    report: str | PathLike[str] | None = ...,
    diff: tuple[str, str] | None = ...,
    merge: str | Sequence[str] | None = ...,
    html: str | PathLike[str] | None = ...,
) -> Answer[Any]:
    """Measure what estimates rest on, on this node, and write it for --calibration; with --verify, prove it on real training."""

class _PreflightOptions(
    _ModelAndLike,
    _GpuAndLike,
    _PriceAndLike,
    _HostAndLike,
    _TpAndLike,
    _GradAccumAndLike,
    _OptimizerInBackwardAndLike,
    _NvmeCapacityAndLike,
    _LisaStatesAndLike,
    _SeqLenAndLike,
    _ExpandableSegmentsAndLike,
    _ChannelsLastAndLike,
    _TokensAndLike,
    _SamplesAndLike,
    _LoraAutocastAndLike,
    _ReferenceAndLike,
    _JitterAndLike,
    _SampleBytesAndLike,
    _PrefetchAndLike,
    _ForTargetAndLike,
    _AllowIdleAndLike,
    total=False,
): ...

def preflight(
    *,
    folder: str | None = ...,
    html: str | PathLike[str] | None = ...,
    scenario: str | PathLike[str] | None = ...,
    recipe: str | Sequence[str] | None = ...,
    **request: Unpack[_PreflightOptions],
) -> Answer[Preflight]:
    """Check this node against a plan before it runs: GPUs, their free memory and power limits, host memory, shared memory, disk and network cards."""

def prices(
    gpu: str | None = ...,
    *,
    update: bool | None = ...,
    feed: str | PathLike[str] | None = ...,
    html: str | PathLike[str] | None = ...,
) -> Answer[ListedPrices]:
    """List the prices of GPUs by market and provider with what is on offer; --update fetches today's, which every cost rests on from then on (--price-day chooses another day)."""

def trace(
    target: str | None = ...,
    *,
    out: str | PathLike[str] | None = ...,
    name: str | None = ...,
    length: int | None = ...,
    sample: Literal['image', 'pair', 'clip', 'sample'] | None = ...,
    autocast: bool | None = ...,
    trust_remote_code: bool | None = ...,
    html: str | PathLike[str] | None = ...,
) -> Answer[ModelTree]:
    """Run a model's own code on tensors without data, forward and backward, and write what it computes as a model file for --model: blocks, with products, attention and bytes moved."""
