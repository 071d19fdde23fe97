"""Time of kernels on one GPU: matrix multiplications, attention, bandwidth-bound operators, and the
launch floor.

All inputs are float64 scalars or arrays of one value per layout; all times are seconds.
"""

from __future__ import annotations

import numpy as np

from planner.ledger import Array, Sourced, formula

# what a vendor GEMM library chooses from: thread-block tiles (rows, columns), and into how many
# parts it splits the inner width. Other shapes (256 x 64) and splits (2, 8) lie between these and
# change no held-out error by more than half a point.
_TILES = np.array([(256, 128), (128, 256), (128, 128), (128, 64), (64, 128), (64, 64)], dtype=float)
_SPLITS = np.array([1.0, 4.0, 16.0])
_LARGEST_TILE = 256.0 * 128.0
_K_STEP = 32.0  # inner dimension is processed in steps of this many elements
_PARTIAL_BYTES = 4.0  # partial sums are kept in fp32

# constants that no GEMM changes: every table of layouts needs them some 20 times
_ROWS, _COLUMNS = np.ascontiguousarray(_TILES.T)
_PER_K = 2 * _ROWS * _COLUMNS  # FLOP of a tile per inner element
_OF_LARGEST = _ROWS * _COLUMNS / _LARGEST_TILE
_PARTS = _SPLITS[:, None]
_STEPS = _PARTS * _K_STEP
_SUMS = np.where(_SPLITS > 1, _PARTIAL_BYTES * (_SPLITS + 1), 0.0)  # bytes of sums per result
# widest load of one thread; rows that do not start on it cannot feed tensor cores at full speed
_LOAD_BYTES = 16.0


@formula(
    unit="1",
    equation="unaligned where 16 B do not divide n or k elements, else 1",
    source=(
        "16-byte rule: NVIDIA/cutlass#75 and NVIDIA matrix multiplication background guide 2.2; the"
        " guide's finer rule for A100 (128 B, recalled) shows in no GEMM table (n, k = 32) and no"
        " run (head widths 104 to 224), docs/mechanisms/gemms.md"
    ),
)
def alignment_frac(n: Array, k: Array, element_bytes: float, unaligned_frac: Array) -> Array:
    """Share of the matrix rate that the widths of a GEMM leave.

    n, k: the two widths that are contiguous in memory, elements (the weight's, in all three
    GEMMs of a weight).
    unaligned_frac: share left by rows that do not start on 16 B. Dimensionless result.
    """
    odd = (np.mod(np.asarray(n) * element_bytes, _LOAD_BYTES) != 0) | (
        np.mod(np.asarray(k) * element_bytes, _LOAD_BYTES) != 0
    )
    return np.where(odd, unaligned_frac, 1.0)


@formula(
    unit="s",
    equation=(
        "( (min over tiles, q of W (2 bm bn k/q / (rate/units eta (bm bn/32768)^gamma) + tau) +"
        " R)^4 + (bytes/(frac HBM))^4 )^(1/4) + t0; W = soft max(N/units, 1) + (1-soft)"
        " ceil(N/units), N = ceil(m/bm) ceil(n/bn) q batch; R = (4 q + 4) m n batch/(frac HBM)"
        " where q > 1"
    ),
    source=(
        "wave quantisation: NVIDIA matrix multiplication background guide; split k: Osama et al."
        " 2023 (Stream-K, arXiv 2301.03598); fitted per GPU on aiconfigurator GEMM tables"
    ),
)
def gemm_s(
    m: Array,
    n: Array,
    k: Array,
    batch: Array = 1.0,
    extra_bytes: Array = 0.0,
    input_bytes: Array = 2.0,
    alignment: Array = 1.0,
    *,
    rate_flop_per_s: Array,
    compute_units: Array,
    efficiency: Array,
    tile_exponent: Array,
    tile_overhead_s: Array,
    wave_softness: Array,
    launch_s: Array,
    memory_bytes_per_s: Array,
    memory_frac: Array,
) -> Array:
    """Time of `batch` independent GEMMs (m x k) (k x n), with a 16-bit result, one of a stream
    of kernels.

    extra_bytes: traffic beyond operands and result (an fp32 accumulation buffer); input_bytes: per
    operand element;
    alignment: share of the rate left by odd widths. The library picks the fastest tile shape, and
    splits the inner width into q parts where the result has too few tiles for all units (weight
    gradients of small layers); the parts' sums are written in fp32 and added up. Arithmetic and
    memory traffic overlap except near their balance (smooth maximum, +19 % where equal). launch_s
    holds the gap to the next kernel of a stream: the tables time several GEMMs back to back.
    """
    m, n, k, batch = (np.asarray(x, float) for x in (m, n, k, batch))
    bandwidth = np.asarray(memory_bytes_per_s * memory_frac, float)

    def wide(x: Array) -> Array:  # adds axes for parts and tiles behind the axes of GEMMs
        return x[..., None, None] if np.ndim(x) else x

    units, soft = wide(compute_units), wide(wave_softness)
    unit_rate = wide(rate_flop_per_s * efficiency * alignment) / units
    flop_s = _PER_K / (unit_rate * np.power(_OF_LARGEST, wide(tile_exponent)))  # per inner element
    tiles = wide(batch) * np.ceil(wide(m) / _ROWS) * np.ceil(wide(n) / _COLUMNS)
    full = tiles * _PARTS / units  # whole tiles are divided last: exact where they fill the units
    waves = soft * np.maximum(full, 1.0) + (1 - soft) * np.ceil(full)
    inner = np.ceil(wide(k) / _STEPS) * _K_STEP
    split = (waves * (inner * flop_s + wide(tile_overhead_s))).min(axis=-1)
    compute = (split + _SUMS * (batch * m * n / bandwidth)[..., None]).min(axis=-1)
    memory = (batch * (input_bytes * (m * k + n * k) + 2.0 * m * n) + extra_bytes) / bandwidth
    return np.sqrt(np.sqrt(np.square(np.square(compute)) + np.square(np.square(memory)))) + launch_s


@formula(
    unit="B/s",
    equation="1 / ((1 - f) / memory + f / cache), f = clip(2 - 4 w / size, 0, 1)",
    source=(
        "own derivation: a kernel finds what the one before it wrote where both fit, in the half of"
        " the cache that weights and copies of its other partition leave"
    ),
)
def cached_bytes_per_s(
    working_bytes: Array, *, cache_bytes: Array, cache_bytes_per_s: Array, memory_bytes_per_s: Array
) -> Array:
    """Bandwidth of kernels that read and write `working_bytes` each: of the cache up to a quarter
    of its size, of memory from half of it on."""
    size = np.maximum(cache_bytes, 1e-9)
    inside = np.clip(2 - 4 * np.asarray(working_bytes, float) / size, 0.0, 1.0)
    return 1 / ((1 - inside) / memory_bytes_per_s + inside / cache_bytes_per_s)


@formula(
    unit="s",
    equation="bytes (1 / (HBM frac) + 1 / limit) + kernels gap",
    source=(
        "roofline for operators other than GEMMs, Williams et al. 2009; limit: Little's law,"
        " bytes in flight / latency"
    ),
)
def elementwise_s(
    moved_bytes: Array,
    kernels: Array,
    *,
    memory_bytes_per_s: Array,
    elementwise_frac: Array,
    gap_s: Array,
    limit_bytes_per_s: Array = np.inf,
) -> Array:
    """Time of bandwidth-bound kernels that move `moved_bytes` in all, in `kernels` launches.

    limit_bytes_per_s: rate at which the kernels would run on a memory of unlimited bandwidth; the
    faster the memory, the less of it kernels reach that keep few bytes in flight.
    """
    return (
        moved_bytes * (1 / (memory_bytes_per_s * elementwise_frac) + 1 / limit_bytes_per_s)
        + kernels * gap_s
    )


_ATTENTION_HALF_SEQUENCE = (
    500.0  # tokens at which the causal kernel reaches half of its long-sequence rate
)
_ATTENTION_FULL_WIDTH = 128.0  # head width that fills the tensor cores
_ATTENTION_WIDTH_EXPONENT = 0.15


@formula(
    unit="1",
    equation="s / (s + 500) * min(1, d / 128)^0.15",
    source=(
        "Dao 2023 (arXiv 2307.08691) figures 4 to 6, causal, A100: 91 to 189 TFLOP/s 512 to 16k"
        " tokens; width 64 10 % less"
    ),
)
def attention_shape_frac(
    keys: Array, head_width: Array, half_sequence: Array = 0.0, width_exponent: Array = 0.0
) -> Array:
    """Share of the attention rate that short sequences and narrow heads leave. keys: tokens a query
    can see.

    half_sequence, tokens, and width_exponent replace the numbers of the equation where a device was
    measured; 0: not measured.
    """
    half = np.where(np.asarray(half_sequence) > 0, half_sequence, _ATTENTION_HALF_SEQUENCE)
    exponent = np.where(np.asarray(width_exponent) > 0, width_exponent, _ATTENTION_WIDTH_EXPONENT)
    return keys / (keys + half) * np.minimum(1.0, head_width / _ATTENTION_FULL_WIDTH) ** exponent


# queries of a thread block of the kernels of flash-attention 2 (flash_fwd_launch_template.h)
_QUERY_TILE = 128.0


@formula(
    unit="1",
    equation="min(1, n ceil(s / (128 c)) / units) min(s / c, 128) / min(s, 128)",
    source=(
        "Dao 2023 (arXiv 2307.08691) section 3.2: a thread block takes the queries of a tile, of"
        " one head and sequence. Own derivation"
    ),
)
def filled_frac(pieces: Array, tokens: Array, ranks: Array, compute_units: Array) -> Array:
    """Share of a device that an attention kernel keeps busy with the queries of its rank, over that
    of a kernel with many whole sequences, whose rate is known by their length.

    pieces: sequences times heads, of `tokens` shared out over `ranks`; compute_units: streaming
    multiprocessors. A first wave that is not full is counted; the last of many is in the rate.
    """
    queries = tokens / ranks
    tiles = pieces * np.ceil(queries / _QUERY_TILE)
    useful = np.minimum(queries, _QUERY_TILE) / np.minimum(tokens, _QUERY_TILE)
    return np.minimum(1.0, tiles / compute_units) * useful


@formula(
    unit="s",
    equation="elements seconds + kernels gap",
    source="measured on this device by dpplan calibrate",
)
def measured_operator_s(
    elements: Array, kernels: Array, *, seconds_per_element: Array, gap_s: Array
) -> Array:
    """Time of an operator without GEMMs whose time per element was measured."""
    return elements * seconds_per_element + kernels * gap_s


@formula(
    unit="s",
    equation="flop / (rate frac) + kernels gap",
    source=(
        "Dao 2023 (FlashAttention-2, arXiv 2307.08691) section 4: achieved share of the dense rate"
        " on causal FLOP"
    ),
)
def flash_attention_s(
    flop: Array, kernels: Array, *, rate_flop_per_s: Array, attention_frac: Array, gap_s: Array
) -> Array:
    """Time of fused attention that performs `flop` (causal FLOP: half of the full score matrix)."""
    return flop / (rate_flop_per_s * attention_frac) + kernels * gap_s


@formula(
    unit="s",
    equation="flop / rate + bytes / bandwidth",
    source=(
        "a chain of kernels, some bound by units and some by memory, none of which hides another;"
        " fitted per architecture on aiconfigurator tables of linear attention,"
        " docs/mechanisms/mixers.md"
    ),
)
def mixer_work_s(
    flop: Array, moved_bytes: Array, flop_per_s: Array, memory_bytes_per_s: Array
) -> Array:
    """Time of the work of a mixer of tokens, at the rates that its kernels reach."""
    return flop / flop_per_s + moved_bytes / memory_bytes_per_s


@formula(
    unit="s",
    equation="(1 - o) W + ((o W)^4 + waiting^4)^(1/4) + kernels gap",
    source=(
        "the kernel that takes the chunks of a sequence in turn is bound by its work or by waiting"
        " for the chunk before; smooth maximum as of gemm_s; fitted as mixer_work_s"
    ),
)
def mixer_s(
    work_s: Array, waiting_s: Array, kernels: Array, *, ordered_frac: Array, gap_s: Array
) -> Array:
    """Time of a sequence mixer that is a chain of kernels.

    waiting_s: chunks of the longest sequence times the time of one chunk; ordered_frac: share of
    the work in the kernel that processes chunks in sequence. With few heads and sequences it does
    not fill the GPU; with many it is bound by its work like the others.
    """
    ordered = ordered_frac * np.asarray(work_s, float)
    fourth = np.square(np.square(ordered)) + np.square(np.square(waiting_s))
    return (1 - ordered_frac) * work_s + np.sqrt(np.sqrt(fourth)) + kernels * gap_s


@formula(
    unit="s",
    equation="(gpu^6 + cpu^6)^(1/6)",
    source=(
        "smooth maximum of two queues that wait for each other; exponent assumed, differs from max"
        " by at most 12 %"
    ),
)
def launch_bound_s(gpu_s: Array, operators: Array, operator_launch_s: Array) -> Array:
    """Time of a stretch of work that takes `gpu_s` on the GPU and that the CPU needs operators *
    launch to issue."""
    gpu, cpu = np.asarray(gpu_s, float), np.asarray(operators * operator_launch_s, float)
    largest = np.maximum(np.maximum(gpu, cpu), 1e-300)
    return largest * ((gpu / largest) ** 6 + (cpu / largest) ** 6) ** (1 / 6)


@formula(
    unit="s",
    equation="gpu + operators x launch",
    source=(
        "CUDA_LAUNCH_BLOCKING=1 returns from a launch when the kernel has ended, CUDA C programming"
        " guide; BigScience's tr11 chronicle: 91.0 beside 97.2 TFLOP/s on 80 A100"
    ),
)
def blocked_launch_s(gpu_s: Array, operators: Array, operator_launch_s: Array) -> Array:
    """Time of a stretch of work whose operators the CPU issues one by one, each when the GPU has
    ended the one before."""
    return np.asarray(gpu_s, float) + np.asarray(operators * operator_launch_s, float)


# What the whole board draws per FLOP of a 16-bit GEMM at the full tensor clock. One
# number per generation of tensor cores: the one for which the law below gives the clocks that
# validated runs need.
_FITTED = (
    "one number per generation, from the clocks of validated runs on its parts by"
    " power_limited_clock_frac; docs/mechanisms/clock.md"
)
ENERGY_PER_FLOP = {
    "volta": Sourced(5.0e-12, "J", "assumed", _FITTED, "2026-11"),
    "turing": Sourced(5.0e-12, "J", "assumed", "as Volta, of the same process", "2026-11"),
    "ampere": Sourced(2.05e-12, "J", "assumed", _FITTED, "2026-11"),
    "hopper": Sourced(1.2e-12, "J", "assumed", _FITTED, "2026-11"),
    "ada": Sourced(1.2e-12, "J", "assumed", _FITTED, "2026-11"),
    "blackwell": Sourced(1.4e-12, "J", "assumed", _FITTED, "2026-11"),
    "blackwell-geforce": Sourced(1.2e-12, "J", "assumed", _FITTED, "2026-11"),
}


@formula(
    unit="1",
    equation="min(1, (P / (e rate))^(1/3))",
    source=(
        "dynamic power of CMOS P ~ C V^2 f, Chandrakasan et al. 1992 (IEEE JSSC 27:473); V ~ f near"
        " the limit, so P ~ f^3"
    ),
)
def power_limited_clock_frac(
    power_w: Array, dense_rate_flop_per_s: Array, energy_j_per_flop: Array
) -> Array:
    """Tensor clock that a board's power sustains, over the clock of its dense rate.

    power_w: board power, W; dense_rate_flop_per_s: 16-bit, at the full clock; energy_j_per_flop:
    drawn by the whole board per FLOP at that clock. A board with power to spare runs at its clock:
    the result is never above 1.
    """
    return np.minimum(1.0, np.cbrt(power_w / (energy_j_per_flop * dense_rate_flop_per_s)))
