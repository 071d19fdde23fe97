"""Optimizers: what each keeps of a tensor and what it computes on it. One entry of OPTIMIZERS per
optimizer; memory, time, refusals and documentation derive from the entries."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from planner.ledger import Array, formula, rowwise
from planner.specs.names import OptimizerName, StateType

TYPE_BYTES: dict[StateType, float] = {"fp32": 4.0, "bf16": 2.0, "fp16": 2.0, "fp8": 1.0}
_SCALE = TYPE_BYTES["fp32"]  # bytes of the scale of a block

NEWTON_SCHULZ_STEPS = 5.0  # Muon: Jordan 2024; Moonlight, arXiv 2502.16982; torch.optim.Muon
# steps between decompositions, and the widest side that has a factor: precondition_frequency and
# max_precond_dim of nikhilvyas/SOAP
_SOAP_EVERY, _SOAP_WIDEST = 10.0, 10_000.0
# precondition_frequency and max_preconditioner_dim of Meta's Distributed Shampoo, assumed: its own
# defaults are 1 and 1,024, with which large models are not run
_SHAMPOO_EVERY, _SHAMPOO_BLOCK = 100.0, 8192.0
_UNBROKEN = 1e9  # a block that holds every matrix
_SUBSPACE_EVERY = 200.0  # steps, update_proj_gap of jiaweizzhao/GaLore
# FLOP over s^3 of an eigendecomposition of a symmetric matrix with its vectors (Golub and Van Loan,
# 8.3: 9 n^3), and of a QR decomposition with its Q (5.2: 4/3 n^3 twice)
_EIGEN, _QR = 9.0, 8.0 / 3.0


@formula(
    unit="FLOP",
    equation="K (4 s^2 l + 2 s^3); s and l the shorter and the longer side",
    source=(
        "Newton-Schulz of Muon, Jordan 2024: A = X X^T, B = b A + c A A, X = a X + B X in each of K"
        " iterations; as torch's FlopCounterMode counts torch.optim.Muon"
    ),
)
def newton_schulz_flop(rows: Array, columns: Array, iterations: Array) -> Array:
    """FLOP to orthogonalise one matrix."""
    short, long = np.minimum(rows, columns), np.maximum(rows, columns)
    return iterations * (4 * np.square(short) * long + 2 * short**3)


@formula(
    unit="1",
    equation="r + c",
    source="Adafactor, Shazeer and Stern 2018 (arXiv 1804.04235) section 3: row and column means",
)
def factored_elements(rows: Array, columns: Array) -> Array:
    """Elements of the factored second moment of a matrix."""
    return 1.0 * rows + columns


@formula(
    unit="1",
    equation="2 k l; k = min(rank, s), s and l the shorter and the longer side",
    source=(
        "GaLore, Zhao et al. 2024 (arXiv 2403.03507) algorithm 2; APOLLO, Zhu et al. 2024 (arXiv"
        " 2412.05270) algorithm 1: both moments of a gradient projected along its shorter side"
    ),
)
def projected_elements(rows: Array, columns: Array, rank: Array) -> Array:
    """Elements of the moments of a matrix in a subspace."""
    short, long = np.minimum(rows, columns), np.maximum(rows, columns)
    return 2 * np.minimum(rank, short) * long


@formula(
    unit="FLOP",
    equation="(4 l s^2 + 22 s^3) / T; s and l the shorter and the longer side",
    source=(
        "Golub and Van Loan, Matrix Computations, 8.6: an SVD with its singular vectors; GaLore,"
        " arXiv 2403.03507: a new subspace every T = 200 steps"
    ),
)
def subspace_flop(rows: Array, columns: Array, steps: Array) -> Array:
    """FLOP per step to find the subspace of a matrix, a mean over steps."""
    short, long = np.minimum(rows, columns), np.maximum(rows, columns)
    return (4 * long * np.square(short) + 22 * short**3) / steps


@formula(
    unit="1",
    equation=(
        "2 blocks (min(r, b)^2 + min(c, b)^2), blocks = ceil(r/b) ceil(c/b); no factor of a side"
        " above the widest"
    ),
    source=(
        "Shampoo, Gupta et al. 2018 (arXiv 1802.09568): a factor per side, with its root or its"
        " eigenvectors; blocks: Shi et al. 2023 (arXiv 2309.06497) section 3.1; SOAP, Vyas et al."
        " 2024 (arXiv 2409.11321) section 4: sides above the widest have no factor"
    ),
)
def preconditioner_elements(rows: Array, columns: Array, block: Array, widest: Array) -> Array:
    """Elements of the factors of a matrix and of their roots, one pair per block of at most
    `block` elements a side."""

    blocks = np.ceil(rows / block) * np.ceil(columns / block)
    sides = (np.where(w <= widest, np.square(np.minimum(w, block)), 0.0) for w in (rows, columns))
    return 2 * blocks * sum(sides, start=0.0 * blocks)


@formula(
    unit="B",
    equation="g passes + 2 s + c",
    source=(
        "own count: gradient read in each pass, states and weight read and written, copy written"
    ),
)
def update_traffic_bytes(
    gradient_bytes: Array, state_bytes: Array, copy_bytes: Array, passes: Array
) -> Array:
    """Bytes that a step moves per parameter.

    state_bytes: of the weight that is updated (the master copy where there is one), of moments, and
    of buffers that are written and read once; copy_bytes: of the weight that kernels read, beside a
    master copy; passes: over the gradient: the update itself, and unscaling (two), norm and zeroing
    where all gradients are looked at first.
    """
    return gradient_bytes * passes + 2 * state_bytes + copy_bytes


@formula(
    unit="s",
    equation="2 P / link",
    source=(
        "unified memory: pages that were evicted come back for the update and leave again;"
        " bitsandbytes, paged optimizers (QLoRA, Dettmers et al. 2023, arXiv 2305.14314 section 3)"
    ),
)
def paging_s(paged_bytes: Array, host_bytes_per_s: Array) -> Array:
    """Time of the states that do not fit beside the activations to come and go, once a step."""
    return 2 * paged_bytes / host_bytes_per_s


@dataclass(frozen=True)
class Gemm:
    """Matrix products (m x k) (k x n) of the update of one matrix, per step."""

    m: Array
    n: Array
    k: Array
    times: float = 1.0


@dataclass(frozen=True)
class Work:
    """Compute of the update of one matrix beyond streaming its states."""

    gemms: tuple[Gemm, ...]
    wide: bool  # in fp32 (TF32 where there is), else in bf16
    decomposed_flop: Array  # of eigen- and QR-decompositions, a mean over steps
    moved_bytes: Array
    launches: float  # kernels, one after the other
    temporary_bytes: Array  # alive at once


def _muon(rows: Array, columns: Array) -> Work:
    short, long = np.minimum(rows, columns), np.maximum(rows, columns)
    elements, square = short * long, np.square(short)
    k = NEWTON_SCHULZ_STEPS
    return Work(
        gemms=(
            Gemm(short, short, long, k),
            Gemm(short, short, short, k),
            Gemm(short, long, short, k),
        ),
        wide=False,
        decomposed_flop=0.0 * elements,
        # momentum and Nesterov's step in fp32 (16), cast and norm in bf16 (10), scaled update (6);
        # the products' own traffic is in their time
        moved_bytes=32.0 * elements,
        launches=3 * k + 10,
        # the update in fp32, X and its product in bf16; A, its square and B
        temporary_bytes=8.0 * elements + 6.0 * square,
    )


def _rotated(every: float, block: float, widest: float, flop: float) -> Callable[..., Work]:
    """Work of an optimizer with a factor per side: factors each step, products with both sides."""

    def work(rows: Array, columns: Array) -> Work:
        r, c = np.minimum(rows, block), np.minimum(columns, block)
        blocks = np.ceil(rows / block) * np.ceil(columns / block)
        left, right = (1.0 * (rows <= widest), 1.0 * (columns <= widest))
        both = blocks * (left * r**3 + right * c**3)
        projected = 3.0 if flop == _QR else 1.0  # gradient, momentum and update; or the gradient
        return Work(
            gemms=(
                Gemm(r * left, r * left, c, 1.0),
                Gemm(c * right, c * right, r, 1.0),
                Gemm(r * left, c, r * left, projected),
                Gemm(r, c * right, c * right, projected),
            ),
            wide=True,
            decomposed_flop=both * flop / every,
            moved_bytes=16.0 * rows * columns + 12.0 * blocks * (np.square(r) + np.square(c)),
            launches=20.0 + 40.0 / every,
            temporary_bytes=8.0 * rows * columns + 12.0 * np.square(np.maximum(r, c)),
        )

    return work


def _projected(rank: float, by_svd: bool) -> Callable[[Array, Array], Work]:
    """Work in a subspace. by_svd: by an SVD of the gradient, and the update projected back; else at
    random, and the gradient scaled."""

    def work(rows: Array, columns: Array) -> Work:
        short, long = np.minimum(rows, columns), np.maximum(rows, columns)
        k, elements = np.minimum(rank, short), 1.0 * rows * columns
        into, back = Gemm(long, k, short), Gemm(long, short, k)
        # GaLore: every 200 steps an fp32 copy that the SVD works on, and both of its factors
        decomposed = 12.0 * elements + 4.0 * np.square(short) if by_svd else 0.0
        return Work(
            gemms=(into, back) if by_svd else (into,),
            wide=False,
            decomposed_flop=subspace_flop(rows, columns, _SUBSPACE_EVERY) * by_svd,
            # the update made and scaled, and weights; moments in fp32, read and written
            moved_bytes=24.0 * elements + 8.0 * projected_elements(rows, columns, rank),
            launches=20.0,
            temporary_bytes=np.maximum(8.0 * elements, decomposed),
        )

    return work


@dataclass(frozen=True)
class Optimizer:
    """States per tensor and work per update.

    Where `rest` names another optimizer, this one updates the matrices of layers, routers and
    experts among them, and the other embeddings, head, norms and biases.
    """

    title: str
    source: str
    moments: int = 0  # states as large as the tensor
    element: float = TYPE_BYTES["fp32"]  # bytes of each by default
    typed: bool = True  # whether they follow the type of the weights, or a requested type
    block: int = 0  # elements that share a scale, where states are quantised
    smallest: int = 0  # tensors with fewer elements keep fp32 states
    paged: bool = False  # states lie in memory that the driver pages to the host
    rank: int = 0  # of the subspace in which moments are, of a matrix; 0: none
    found: bool = False  # by the gradient's own singular vectors, in place of a random one
    factored: bool = False  # a second moment as means of rows and columns; of vectors it is whole
    # elements beyond the moments that a matrix of this many rows and columns keeps in fp32
    kept: Callable[[Array, Array], Array] | None = None
    work: Callable[[Array, Array], Work] | None = None
    rest: OptimizerName | None = None

    @property
    def whole(self) -> bool:
        """Whether it needs matrices whole: cut out of a flat buffer they are vectors to it."""
        return self.factored or self.work is not None

    def moment_bytes(self, type_bytes: float | None = None) -> float:
        """Bytes per element of the moments. type_bytes: of their type, where it is not the
        optimizer's own."""
        each = self.element if type_bytes is None or not self.typed else type_bytes
        return self.moments * (each + (_SCALE / self.block if self.block else 0.0))

    def matrix_bytes(self, rows: Array, columns: Array, type_bytes: float | None = None) -> Array:
        """Bytes that it keeps of one matrix."""
        kept = 0.0 if self.kept is None else rowwise(self.kept, rows, columns)
        if self.rank:  # and the projection, in the type of the gradient
            each = TYPE_BYTES["fp32"] if type_bytes is None else type_bytes
            size = each if self.typed else self.element + _SCALE / self.block
            short = np.minimum(rows, columns)
            moments = projected_elements(rows, columns, self.rank)
            return size * moments + each * short * np.minimum(self.rank, short)
        if self.factored:
            each = self.element if type_bytes is None else type_bytes
            return each * factored_elements(rows, columns)
        return self.moment_bytes(type_bytes) * rows * columns + TYPE_BYTES["fp32"] * kept

    def temporary_bytes(self, rows: Array, columns: Array) -> Array:
        """Bytes alive while one matrix is updated, by an optimizer that has `work`."""
        return rowwise(self._temporary_bytes, rows, columns)

    def _temporary_bytes(self, rows: Array, columns: Array) -> Array:
        assert self.work is not None
        return self.work(rows, columns).temporary_bytes


def optimizer_of(name: OptimizerName, rank: int | None = None) -> Optimizer:
    """An optimizer, in a subspace of this rank where it has one and it is stated."""
    named = OPTIMIZERS[name]
    if rank is None or not named.rank:
        return named
    return replace(named, rank=rank, work=_projected(float(rank), named.found))


def _in_subspace(title: str, source: str, rank: int, by_svd: bool, eight: bool) -> Optimizer:
    return Optimizer(
        title,
        source,
        element=1.0 if eight else TYPE_BYTES["fp32"],
        typed=not eight,
        block=256 if eight else 0,
        rank=rank,
        found=by_svd,
        work=_projected(float(rank), by_svd),
        rest="adam8bit" if eight else "adam",
    )


_GALORE = "GaLore, arXiv 2403.03507; jiaweizzhao/GaLore: rank 128 of its README, 200 steps"
_APOLLO = "APOLLO, arXiv 2412.05270; zhuhanqing/APOLLO: "
_ADAM8 = "Dettmers et al. 2021, arXiv 2110.02861; bitsandbytes and torchao: blocks of 256, tensors"
OPTIMIZERS: dict[OptimizerName, Optimizer] = {
    "adam": Optimizer("Adam, AdamW", "Kingma and Ba 2014, arXiv 1412.6980", moments=2),
    "paged-adam": Optimizer(
        "paged Adam",
        "bitsandbytes PagedAdamW; QLoRA, arXiv 2305.14314",
        moments=2,
        typed=False,
        paged=True,
    ),
    "adam8bit": Optimizer(
        "8-bit Adam",
        _ADAM8 + " below 4,096 elements stay fp32",
        moments=2,
        element=1.0,
        typed=False,
        block=256,
        smallest=4096,
    ),
    "paged-adam8bit": Optimizer(
        "paged 8-bit Adam",
        _ADAM8 + " below 4,096 elements stay fp32; QLoRA, arXiv 2305.14314",
        moments=2,
        element=1.0,
        typed=False,
        block=256,
        smallest=4096,
        paged=True,
    ),
    "adafactor": Optimizer(
        "Adafactor, without a first moment",
        "Shazeer and Stern 2018, arXiv 1804.04235; torch.optim.Adafactor",
        factored=True,
    ),
    "lion": Optimizer("Lion", "Chen et al. 2023, arXiv 2302.06675", moments=1),
    "muon": Optimizer(
        "Muon",
        "Jordan 2024; Moonlight, arXiv 2502.16982; torch.optim.Muon; Megatron-LM"
        " core/optimizer/emerging_optimizers.py",
        moments=1,
        work=_muon,
        rest="adam",
    ),
    "shampoo": Optimizer(
        "Shampoo, grafted on Adam",
        "Gupta et al. 2018, arXiv 1802.09568; Shi et al. 2023, arXiv 2309.06497",
        moments=2,  # the filtered gradient, and the second moment that is grafted
        kept=lambda rows, columns: preconditioner_elements(rows, columns, _SHAMPOO_BLOCK, np.inf),
        work=_rotated(_SHAMPOO_EVERY, _SHAMPOO_BLOCK, np.inf, _EIGEN),
        rest="adam",
    ),
    "soap": Optimizer(
        "SOAP",
        "Vyas et al. 2024, arXiv 2409.11321",
        moments=2,
        kept=lambda rows, columns: preconditioner_elements(rows, columns, _UNBROKEN, _SOAP_WIDEST),
        work=_rotated(_SOAP_EVERY, _UNBROKEN, _SOAP_WIDEST, _QR),
        rest="adam",
    ),
    "galore": _in_subspace("GaLore", _GALORE, 128, True, False),
    "galore8bit": _in_subspace("8-bit GaLore", _GALORE, 128, True, True),
    "apollo": _in_subspace("APOLLO", _APOLLO + "rank 256", 256, False, False),
    "apollo-mini": _in_subspace("APOLLO-Mini", _APOLLO + "rank 1", 1, False, False),
    "sgd": Optimizer("SGD", "Robbins and Monro 1951"),
    "sgd-momentum": Optimizer("SGD with momentum", "Polyak 1964", moments=1),
}
