"""How fast kernels run that mix tokens otherwise than dense softmax attention: by operation and
architecture.

The matrices of chunked linear attention are small, so that tensor cores wait for the rest of the
GPU: a share of the matrix rate that fits an H100 is wrong by a factor of six on an H20, which has
its bandwidth and most of its units but a seventh of the matrix rate. Rates here are fractions of
the fp32 rate of the vector units, which goes with units and clock, beside the bandwidth of memory.
Fitted with benchmarks/fit_mixers.py; held-out errors are in docs/mechanisms/mixers.md.
"""

from __future__ import annotations

from dataclasses import dataclass

from planner.ledger import Kind, Sourced

_DATE = "2026-11"
_TABLES = "ai-dynamo/aiconfigurator@095f58a5 linear attention tables, forward, half of the rows: "
_GDN = _TABLES + "chunk_gated_delta_rule of TensorRT-LLM 1.3.0rc20"
_KDA = _TABLES + "chunk_kda of SGLang 0.5.16"
_CONV = _TABLES + "causal_conv1d_fn of TensorRT-LLM 1.3.0rc20, Mamba-2 shapes"
_SPARSE = "ai-dynamo/aiconfigurator@095f58a5 GLM-5 kernel tables of SGLang 0.5.14, half of the rows"
_A800 = "fla 0.5.2 on A800, docs/GDN_CHUNK.md of Leslie360/GDN-QSA-sm80"
_VLLM = "mamba-ssm's kernels on H100 from 4k tokens on, vllm-project/vllm#27299"
_FUSED = _TABLES + "fused kernel of TensorRT-LLM 1.3.0rc15 on B200, no table of mamba-ssm's there"
_QWEN = "fla 0.5.1 on H200 and GB200: 2.96 to 3.15, benchmark/ of QwenLM/FlashQLA"
_MOON = "fla's chunk_kda on RTX 5090: 3.27 and 3.33, BENCHMARK_TRAIN_RTX5090.md of FlashKDA"

_USUAL = "hopper"  # stands for architectures without a table


@dataclass(frozen=True)
class Chain:
    """A chain of kernels that is one operation, and its rates by architecture.

    share: counted FLOP over the FLOP that the vector units could do in fp32; above 1 where tensor
    cores do them. step: seconds of one chunk in the kernel that processes the chunks of a sequence
    sequentially. backward: backward over forward time. traffic: bytes that the kernels move over
    bytes of inputs and outputs, each tensor between two kernels written and read once; own count.
    ordered: share of the FLOP in the sequential kernel.
    """

    share: dict[str, Sourced]
    step: dict[str, Sourced]
    backward: Sourced
    traffic: float
    chunk: float  # tokens
    ordered: float
    kernels: float  # forward

    def on(self, architecture: str) -> tuple[Sourced, Sourced]:
        """Share and step on an architecture."""
        return _entry(self.share, architecture), _entry(self.step, architecture)


def _entry(table: dict[str, Sourced], architecture: str) -> Sourced:
    """The measured value of an architecture, or its substitute."""
    if architecture in table:
        return table[architecture]
    usual = table[_USUAL]
    source = f"no table of {architecture}: as {_USUAL}, {usual.source}"
    return Sourced(float(usual), usual.unit, "assumed", source, usual.date)


def _rates(
    source: str, unit: str = "1", kind: Kind = "measured", **by: float
) -> dict[str, Sourced]:
    """A table by architecture; `_` in a name stands for a hyphen."""
    return {
        name.replace("_", "-"): Sourced(value, unit, kind, source, _DATE)
        for name, value in by.items()
    }


def _assumed(value: float, source: str) -> Sourced:
    return Sourced(value, "1", "assumed", source, _DATE)


# for scans that are one kernel without matrices: exponentials and sums, of which no table is known
_SCAN = Chain(
    share=_rates(
        "exponential, multiplication and sum by element, no table", "1", "assumed", hopper=0.3
    ),
    step=_rates("no carried state in memory", "s", "assumed", hopper=0.0),
    backward=_assumed(2.5, "forward again, and two products of its gradient"),
    traffic=1.5,
    chunk=1.0,
    ordered=0.0,
    kernels=1.0,
)

CHAINS = {
    "gated_delta": Chain(
        share=_rates(_GDN, hopper=4.9, blackwell=2.7, ada=1.2, blackwell_geforce=6.0)
        | _rates(_A800, ampere=8.0),
        step=_rates(_GDN, "s", hopper=1.33e-6, blackwell=1.5e-6),
        backward=Sourced(3.05, "1", "measured", _QWEN, _DATE),
        traffic=6.0,
        chunk=64.0,
        ordered=0.2,
        kernels=8.0,
    ),
    "kda": Chain(
        share=_rates(_KDA, hopper=1.14, blackwell=1.06, ada=0.24, blackwell_geforce=0.53),
        step=_rates(_KDA, "s", hopper=2.0e-6, blackwell=2.8e-6, blackwell_geforce=2.2e-6),
        backward=Sourced(3.3, "1", "measured", _MOON, _DATE),
        traffic=5.4,
        chunk=64.0,
        ordered=0.2,
        kernels=14.0,
    ),
    "mamba2_scan": Chain(
        share=_rates(_VLLM, hopper=2.4) | _rates(_FUSED, blackwell=1.4),
        step=_rates("the kernel that passes states on is short", "s", "assumed", hopper=0.5e-6),
        backward=_assumed(3.0, "as of the chunked kernels of fla, which are Triton chains too"),
        traffic=3.0,
        chunk=256.0,
        ordered=0.0,
        kernels=6.0,
    ),
    "lightning": Chain(
        share=_rates("as the gated delta rule, whose products it has", "1", "assumed", hopper=4.9),
        step=_rates("as the gated delta rule, by its longer chunk", "s", "assumed", hopper=2e-6),
        backward=_assumed(2.5, "two products for each one forward, and the states again"),
        traffic=1.5,
        chunk=256.0,
        ordered=0.5,
        kernels=2.0,
    ),
}


def chain(operation: str) -> Chain:
    """The kernels of an operation."""
    return CHAINS.get(operation, _SCAN)


# share of the memory bandwidth that a short causal convolution reaches, which reads and writes once
SHORT_CONV = _rates(_CONV, hopper=0.64, blackwell=0.45, ada=0.74, blackwell_geforce=0.82)

# Share of the dense 16-bit rate that sparse attention over chosen keys reaches, for the work of all
# heads on latent keys: 2 (2 kv_rank + rope) FLOP per head and slot. A query pays for all its slots,
# the early ones of a sequence too.
SPARSE_ATTENTION = _rates(_SPARSE + " (flash_mla_sparse_fwd)", hopper=0.60, blackwell=0.27)
# share of the dense fp8 rate of an indexer's scores, beside 4 B per pair
SPARSE_INDEX = _rates(_SPARSE + " (deep_gemm.fp8_mqa_logits)", hopper=0.48, blackwell=0.40)
# share of the fp32 rate of choosing keys: one comparison per pair, and per query with more than k
# keys CHOICE_PASSES over those chosen
SPARSE_CHOICE = _rates(_SPARSE + " (fast_topk_transform_fused)", hopper=0.027, blackwell=0.028)
CHOICE_PASSES = 32.0


def share_of(table: dict[str, Sourced], architecture: str) -> Sourced:
    """A share on an architecture."""
    return _entry(table, architecture)
