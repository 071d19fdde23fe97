"""Models traced from their own code: polynomials, parts, the trace, and what is refused."""

from __future__ import annotations

import json
import subprocess
import sys
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import plans
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner import api
from planner.estimate import evaluate
from planner.estimate.memory import PHASES
from planner.formulas.flops import attended_elements, matmul_weights
from planner.formulas.params import parameter_count
from planner.inputs import catalog, model_file
from planner.inputs.model_tree import model_tree
from planner.inputs.training import sequence_length
from planner.ledger import total
from planner.specs.base import PlanError
from planner.specs.model import ModelSpec
from planner.specs.options import Options
from planner.specs.polynomial import Polynomial, parse
from planner.trace import fit
from planner.trace.options import TraceOptions

TOY = "docs/examples/toy-model.toml"
GIVEN: dict[str, Any] = {"model": TOY, "gpu": "a100-80gb", "gpus": 8, "advice": 0}


def _model(**keys: Any) -> ModelSpec:
    """Two traced blocks of these keys, and nothing else."""
    data = {
        "name": "traced",
        "layers": 2,
        "hidden": 64,
        "vocab": 0,
        "sample": "sample",
        "max_positions": 128,
        "norms_per_block": 0,
        "final_norm": False,
        "positions": "none",
        "tied_embeddings": True,
        "parts": [{"type": "traced", "name": "block", **keys}],
        "stack": [{"layers": ["block"], "times": 2}],
    }
    return catalog.build(ModelSpec, data, "--model", "test")


def _time(model: ModelSpec, micro_batch: int = 2, **change: Any) -> Any:
    plan = plans.plan(
        model, software="pytorch-fsdp", seq_len=128, global_batch=micro_batch, gpus=1, **change
    )
    return evaluate(plan, plans.rows(1, {"micro_batch": micro_batch, "zero": 0}))


# ----------------------------------------------------------------------------------- polynomials

COEFFICIENTS = st.dictionaries(
    st.tuples(st.integers(0, 2), st.integers(0, 3)),
    st.fractions(-1000, 1000, max_denominator=16).filter(bool),
    max_size=6,
)


@given(COEFFICIENTS)
def test_a_polynomial_is_read_as_it_is_written(coefficients: dict[Any, Fraction]) -> None:
    polynomial = Polynomial.of(coefficients)
    assert parse(str(polynomial)) == polynomial


@pytest.mark.parametrize("text", ["", "b b", "x", "1/0*b", "b+", "b - - s", "b^9", "b + b"])
def test_other_texts_are_no_polynomials(text: str) -> None:
    with pytest.raises(ValueError, match="polynomial of b and s"):
        parse(text)


def test_a_polynomial_of_columns() -> None:
    values = parse("2*b*s^2 - 1/2*s + 3").at(np.array([1.0, 2.0]), np.array([2.0, 4.0]))
    assert values.tolist() == [10.0, 65.0]


@given(COEFFICIENTS)
def test_counts_at_few_sizes_decide_a_polynomial(coefficients: dict[Any, Fraction]) -> None:
    powers = tuple(fit.powers_of(4, 3))
    sizes = [(b, s) for b in (2, 3, 5) for s in (8, 16, 24, 32)] + [(7, 40)]
    whole = {key: Fraction(int(value * 16)) for key, value in coefficients.items()}
    counts = tuple(int(sum(c * b**i * s**j for (i, j), c in whole.items())) for b, s in sizes)
    assert fit.fitted(counts, tuple(sizes), powers) == Polynomial.of(whole)
    with pytest.raises(fit.NotPolynomial):
        fit.fitted((*counts[:-1], counts[-1] + 1), tuple(sizes), powers)


# ----------------------------------------------------------------------------------------- parts


def test_flop_and_parameters_of_a_block_worked_by_hand() -> None:
    """Two blocks: a product of 100 rows a sample, one of its tokens that is shared by two calls,
    and attention of 4 windows of 16 tokens."""
    model = _model(
        parameters=64 * 64 + 64 * 256 + 7,
        gemms=[
            {"name": "up", "k": 64, "n": 256, "rows": "100*b"},
            {"name": "both", "k": 64, "n": 64, "times": 2, "shared": 1},
        ],
        attention=[
            {
                "heads": 2,
                "kv_heads": 2,
                "head_dim": 32,
                "mask": "full",
                "groups": "4",
                "queries": "16",
                "keys": "16",
            }
        ],
    )
    assert parameter_count(model) == 2 * (64 * 64 + 64 * 256 + 7)
    by_hand = 2 * (2 * 64 * 256 * 100 + 2 * 2 * 64 * 64 * 128)
    assert 2 * 128 * total(matmul_weights(model, 128)) == pytest.approx(by_hand)
    pairs = 4 * 16 * 16
    assert 2 * 128 * attended_elements(model, 128) == pytest.approx(2 * 2 * pairs * 2 * 64)
    tree = model_tree(model, 128)
    assert tree.blocks[0].forward_flop == pytest.approx((by_hand + 4 * pairs * 2 * 64) / 2)


def test_bytes_take_their_time_and_fused_ones_where_compiled() -> None:
    """Moved bytes over the bandwidth that such kernels reach; twice the bytes take twice as long
    except for the gaps between kernels."""
    row = {"operators": "elementwise", "forward": "1000000000*b", "backward": "3000000000*b"}
    fused = {"fused_forward": "250000000*b", "fused_backward": "750000000*b"}

    def memory_s(compiled: bool, blocks: int = 1) -> float:
        result = _time(_model(moves=[{**row, **fused}] * blocks), compile=compiled)
        return float(result.time.components["memory_bound"][0])

    assert memory_s(False, 2) == pytest.approx(2 * memory_s(False), rel=0.01)
    assert 3 < memory_s(False) / memory_s(True) < 6  # compiled kernels reach another share


def test_saved_bytes_are_the_activations() -> None:
    keys = {"enters": "100*b*s", "issued": 9.0, "saved": "500*b*s", "saved_bytes": "24*b"}
    for micro_batch in (2, 8):
        result = _time(_model(**keys), micro_batch)
        kept = float(result.memory.timeline[0][PHASES.index("forward")]["activations"][0])
        assert kept == pytest.approx(2 * (2 * 500 * 128 + 24) * micro_batch, rel=0.01)


def test_a_traced_model_is_planned_without_torch() -> None:
    script = (
        "import sys; from planner import api\n"
        f"a = api.estimate(api.Options(model={TOY!r}, gpu='a100-80gb', gpus=8))\n"
        "assert a.memory.fits and 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_what_divides_a_traced_model() -> None:
    stages = api.estimate(api.Options(**GIVEN, stack="torchtitan", pp=4))
    assert stages.layout.pp == 4
    again = api.estimate(api.Options(**GIVEN, stack="pytorch-fsdp", zero=3, recompute="full"))
    assert again.memory.fits
    for change, says in (
        ({"tp": 2, "stack": "torchtitan"}, "block 'Block'.*by tp 2: it has convolutions"),
        ({"cp": 2, "stack": "torchtitan"}, "by cp 2: convolution of mix acts along the tokens"),
        ({"ep": 2, "stack": "torchtitan"}, "block 'Block' .* no GEMM whose rows are tokens"),
        ({"stack": "megatron-core"}, "no module of torch, such as the traced blocks of toy_model"),
    ):
        with pytest.raises(PlanError, match=says):
            api.estimate(api.Options(**{**GIVEN, **change}))


# ----------------------------------------------------------------------------------------- trace


def traced_by_hand(tmp_path: Path, body: str, function: str = "build", **options: Any) -> Any:
    """The trace of a function whose file has this text, in this process."""
    pytest.importorskip("torch")
    from planner.trace import kernels, targets, worker

    path = tmp_path / "model.py"
    path.write_text(f"import torch\nfrom torch import nn\n{body}", encoding="utf-8")
    with kernels.without_data(**options):
        return worker.trace(targets.target(f"{path}:{function}", trust=False), **options)


MLP = """
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(32, 128), nn.Linear(128, 32)
    def forward(self, x):
        return x + self.down(torch.relu(self.up(x)))
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(5))
    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x.sum()
def build(batch=2, length=64):
    return Model(), torch.randn(batch, length, 32)
"""


@pytest.mark.oracle
def test_blocks_of_a_module_worked_by_hand(tmp_path: Path) -> None:
    answer = traced_by_hand(tmp_path, MLP)
    (block,) = [part for part in answer["parts"] if part["name"] == "Block"]
    assert block["parameters"] == 32 * 128 + 128 + 128 * 32 + 32
    assert block["gemms"] == [
        {"name": "up", "k": 32, "n": 128, "split": "columns"},
        {"name": "down", "k": 128, "n": 32, "split": "rows"},
    ]
    # ranks of tensor parallelism share what is between both; of tokens what is outside, and what
    # the first product reads
    assert [(row["ranks"], row["saved"]) for row in block["shares"]] == [
        ("divided", "128*b*s"),
        ("input", "32*b*s"),
    ]
    # the input of the block, and of the second product what relu keeps, too
    assert (block["enters"], block["saved"]) == ("32*b*s", "160*b*s")
    moves = {row["ranks"]: row for row in block["moves"] if row["operators"] == "elementwise"}
    # relu reads and writes 128 elements, the sum reads twice 32 and writes them
    assert moves["divided"]["forward"] == f"{2 * 2 * 128}*b*s"
    assert moves["tokens"]["forward"] == f"{2 * 3 * 32}*b*s"
    assert answer["forward_flop"] == f"{5 * 2 * 2 * 32 * 128}*b*s"
    assert answer["backward_flop"] == f"{2 * 5 * 2 * 2 * 32 * 128 - 2 * 32 * 128}*b*s"
    assert len(answer["words"]) == 5


IMAGES = """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.norm = nn.Conv2d(3, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16)
        self.deep = nn.Conv2d(16, 16, 3, padding=1, groups=16, bias=False)
        self.head = nn.Conv2d(16, 8, 1, bias=False)
    def forward(self, x):
        x = self.deep(self.norm(self.stem(x)))
        return self.head(x).sum() + self.head(x[:, :, ::2, ::2]).sum()
def build(batch=2):
    return Model(), torch.randn(batch, 3, 8, 8)
"""


@pytest.mark.oracle
def test_convolutions_and_their_norm_worked_by_hand(tmp_path: Path) -> None:
    answer = traced_by_hand(tmp_path, IMAGES)
    (part,) = answer["parts"]
    stem, deep, whole, quarter = part["gemms"]
    assert (stem["k"], stem["n"], stem["taps"], stem["rows"]) == (27, 16, 9, "64*b")
    assert stem["input_gradient"] is False
    assert (deep["k"], deep["n"], deep["groups"], deep["rows"]) == (9, 1, 16, f"{16 * 64}*b")
    assert "input_gradient" not in deep
    assert (whole["rows"], quarter["rows"], quarter["shared"]) == ("64*b", "16*b", 1)
    (norm,) = (row for row in part["moves"] if row["operators"] == "normalisation")
    # 16-bit elements are read for their sums, and again; backward their gradients, too
    sums = 16 * 64 * 2
    assert norm["again"].startswith(f"{sums}*b")
    assert norm["again_backward"].startswith(f"{2 * sums}*b")
    assert norm["forward"].startswith(f"{3 * sums}*b")


@pytest.mark.oracle
def test_autocast_widens_norms_and_casts_what_products_read(tmp_path: Path) -> None:
    body = MLP.replace("self.up(x)", "self.up(torch.layer_norm(x, (32,)))")
    plain, cast = (traced_by_hand(tmp_path, body, autocast=value) for value in (False, True))
    (narrow,), (wide,) = (
        [part for part in answer["parts"] if part["name"] == "Block"] for answer in (plain, cast)
    )
    assert wide["gemms"] == narrow["gemms"]
    assert plain["parameters"] == cast["parameters"]
    before, after = (
        {row["operators"]: row for row in block["moves"] if row.get("ranks") == "tokens"}
        for block in (narrow, wide)
    )
    # the stream is in 32 bit, as a norm reads and writes it, beside a mean and a deviation of each
    # token; the product reads a copy in 16
    assert before["normalisation"]["forward"] == f"{2 * (2 * 32 + 2)}*b*s"
    assert after["normalisation"]["forward"] == f"{4 * (2 * 32 + 2)}*b*s"
    assert "copy" not in before
    casts = (4 + 2) * 32
    assert after["copy"]["forward"] == f"{casts}*b*s"


@pytest.mark.oracle
@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("def build():\n    return 3", "must return a module and its inputs"),
        ("def build(width):\n    return nn.Linear(4, 4), torch.randn(2, 4)", "needs 'width'"),
        (
            "class M(nn.Linear):\n    def forward(self, x):\n        x = x[:, :40]"
            "\n        return super().forward(x)"
            "\ndef build(batch=2, length=64):\n    return M(8, 8), torch.randn(batch, length, 8)",
            "(is not polynomial|depends on sizes)",
        ),
    ],
)
def test_what_cannot_be_traced_says_why(tmp_path: Path, body: str, says: str) -> None:
    from planner.trace.aggregate import TraceError

    with pytest.raises(TraceError, match=says):
        traced_by_hand(tmp_path, body)


@pytest.mark.oracle
def test_the_verb_writes_what_the_planner_reads(tmp_path: Path) -> None:
    """In a process of its own; the shipped example is what its function gives."""
    pytest.importorskip("torch")
    from planner.trace.verb import traced

    result = traced(TraceOptions(target="docs/examples/toy_model.py:build"))
    path = tmp_path / "toy.toml"
    path.write_text(result.text, encoding="utf-8")
    again, _ = model_file.read(path)
    shipped, _ = model_file.read(Path(TOY))
    assert again.parts == shipped.parts
    assert again.stack == shipped.stack


@pytest.mark.oracle
@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("import urllib.request as r; r.urlopen('http://127.0.0.1:9')", "asks for the network"),
        ("bytearray(5 * 10**9)", "more than 4 GB"),
    ],
)
def test_a_trace_has_limits(tmp_path: Path, line: str, says: str) -> None:
    pytest.importorskip("torch")
    from planner.trace.verb import traced

    (tmp_path / "model.py").write_text(f"def build():\n    {line}\n", encoding="utf-8")
    with pytest.raises(PlanError, match=says):
        traced(TraceOptions(target=f"{tmp_path / 'model.py'}:build"))


def test_blocks_are_listed() -> None:
    from planner.inputs.listing import tree_of

    tree = tree_of("models", TOY)
    assert [row.times for row in tree.blocks if not row.name.startswith(" ")] == [1, 11, 1]
    assert json.loads(json.dumps(tree.parameters)) == sum(
        row.parameters * row.times for row in tree.blocks if not row.name.startswith(" ")
    )
    with pytest.raises(PlanError, match="blocks can be listed of models"):
        tree_of("gpus", "h100")


# ------------------------------------------------------- values, loops over samples, resolutions

VALUED = """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.router = nn.Embedding(50, 16), nn.Linear(16, 4)
        self.experts = nn.ModuleList(nn.Sequential(nn.Linear(16, 16), nn.ReLU()) for _ in range(4))
    def forward(self, ids):
        x = self.words(ids)
        image = ids == 7                         # placeholders, known by value
        if int(image.sum()) != 8 * ids.shape[0]:
            raise ValueError("8 tokens of an image in a sample")
        x[image] = x[image] * 2
        x = x.flatten(0, 1)
        chosen = self.router(x).topk(2, -1)[1]   # what a router chooses is balanced
        out = torch.zeros_like(x)
        for i, expert in enumerate(self.experts):
            rows, _ = torch.where(chosen == i)
            out = out.index_add(0, rows, expert(x[rows]))
        return out.sum()
def build(batch=2, length=64):
    return Model(), torch.tensor([[7] * 8 + [0] * (length - 8)] * batch)
"""


@pytest.mark.oracle
def test_small_values_are_known_and_routers_balanced(tmp_path: Path) -> None:
    answer = traced_by_hand(tmp_path, VALUED)
    rows = [gemm for part in answer["parts"] for gemm in part.get("gemms", ())]
    experts = [gemm for gemm in rows if gemm["k"] == gemm["n"] == 16]
    # 2 choices of b*s tokens over 4 experts
    assert {(gemm["rows"], gemm["groups"]) for gemm in experts} == {("2*b*s", 4)}
    assert answer["forward_flop"] == f"{2 * 16 * 4 + 2 * 2 * 16 * 16}*b*s"


@pytest.mark.oracle
def test_a_loop_over_samples_counts_as_a_batch(tmp_path: Path) -> None:
    body = MLP.replace("x = block(x)", "x = torch.stack([block(each) for each in x])")
    looped, plain = traced_by_hand(tmp_path, body), traced_by_hand(tmp_path, MLP)
    for name in ("forward_flop", "backward_flop", "parameters"):
        assert looped[name] == plain[name]
    (block,) = [part for part in plain["parts"] if part["name"] == "Block"]
    gemms = [part["gemms"] for part in looped["parts"] if part["name"] == "Block"]
    assert gemms == [block["gemms"]]
    # one loop leaves chains of the other blocks where they are
    once = "torch.stack([block(y) for y in x]) if block is self.blocks[0] else block(x)"
    mixed = traced_by_hand(tmp_path, MLP.replace("x = block(x)", f"x = {once}"))
    assert mixed["forward_flop"] == plain["forward_flop"]


@pytest.mark.oracle
def test_a_loop_over_chunks_counts_as_the_sequence(tmp_path: Path) -> None:
    """Chunks of 16 tokens, as many as the length has, each with products of two widths."""
    inner = "torch.cat([c @ c.transpose(1, 2) @ c for c in x.split(16, 1)], 1)"
    body = MLP.replace("return x + self.down(", f"x = {inner}\n        return x + self.down(")
    looped, plain = traced_by_hand(tmp_path, body), traced_by_hand(tmp_path, MLP)
    before, after = (int(each["forward_flop"].split("*")[0]) for each in (plain, looped))
    assert after - before == 5 * 2 * (2 * 16 * 32)


WORDS = """
class Words(Model):
    def __init__(self):
        super().__init__()
        self.table, self.head = nn.Embedding(1024, 32), nn.Linear(32, 1024, bias=False)
    def forward(self, ids):
        x = self.table(ids)
        for block in self.blocks:
            x = block(x)
        return self.head(x)
def words(batch=2, length=64):
    return Words(), torch.zeros(batch, length, dtype=torch.long)
"""


@pytest.mark.oracle
def test_a_head_takes_nothing_out_of_blocks(tmp_path: Path) -> None:
    """The stream of two samples of 16 tokens has as many elements as the table has words."""
    answer = traced_by_hand(tmp_path, MLP + WORDS, "words")
    assert answer["model"]["vocab"] == 1024
    (block,) = [part for part in answer["parts"] if part["name"] == "Block"]
    (plain,) = [part for part in traced_by_hand(tmp_path, MLP)["parts"] if part["name"] == "Block"]
    # but the gradient of the block's input, which a table needs, is a sum of two
    more, less = (
        next(row for row in each["moves"] if row["ranks"] == "tokens") for each in (block, plain)
    )
    assert more.pop("backward") == f"{2 * 3 * 32}*b*s"
    assert "backward" not in less
    fused = "fused_backward", "kernels_backward"
    assert _without(block, *fused) == _without(plain, *fused)


def _without(block: dict[str, Any], *names: str) -> dict[str, Any]:
    moves = [{k: v for k, v in row.items() if k not in names} for row in block["moves"]]
    return block | {"moves": moves}


def _sized(**keys: Any) -> ModelSpec:
    return _model().model_copy(update={"sample": "image", "pixels": 16} | keys)


@pytest.mark.parametrize(
    ("given", "keys", "tokens"),
    [
        ({"resolution": "512"}, {}, 32 * 32),
        ({"resolution": "832x480"}, {}, 52 * 30),
        ({"resolution": "832x480", "frames": 81}, {"frames": 4}, 21 * 52 * 30),
    ],
)
def test_tokens_of_a_resolution(given: dict[str, Any], keys: dict[str, Any], tokens: int) -> None:
    assert sequence_length(Options(model="traced", gpu="h100", **given), _sized(**keys)) == tokens


@pytest.mark.parametrize(
    ("given", "keys", "says"),
    [
        ({"resolution": "500"}, {}, "16 pixels wide"),
        ({"resolution": "large"}, {}, "width x height"),
        ({"resolution": "512", "seq_len": 64}, {}, "leave one out"),
        ({"resolution": "512", "frames": 5}, {}, "counts no frames"),
        ({"resolution": "512"}, {"frames": 4}, "give --frames"),
        ({"resolution": "512", "frames": 80}, {"frames": 4}, "4 frames after the first"),
        ({"frames": 81}, {"frames": 4}, "--resolution beside it"),
        ({"resolution": "512"}, {"pixels": None}, "counts tokens"),
        ({"frames": 8}, {"pixels": None}, "counts tokens"),
    ],
)
def test_a_resolution_that_a_model_has_not(
    given: dict[str, Any], keys: dict[str, Any], says: str
) -> None:
    with pytest.raises(PlanError, match=says):
        sequence_length(Options(model="traced", gpu="h100", **given), _sized(**keys))
