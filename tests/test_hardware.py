"""Shipped hardware profiles: complete, sourced, plausible, exact by id; a user's own file is
checked as strictly."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from planner.api import estimate, read_options
from planner.inputs import catalog
from planner.inputs.cluster import cluster_spec
from planner.ledger import Sourced
from planner.specs.base import PlanError, Spec
from planner.specs.cluster import ClusterTemplate
from planner.specs.hardware import CURVE_SHAPE, GpuSpec, LinkSpec
from planner.specs.host import HostSpec
from planner.specs.options import Options

KINDS: dict[str, type[Spec]] = {
    "gpus": GpuSpec,
    "networks": LinkSpec,
    "clusters": ClusterTemplate,
    "hosts": HostSpec,
}
PROFILES = [(kind, name) for kind in KINDS for name in catalog.ids(kind)]

OLD = ("volta", "turing")  # before tensor cores of bf16

# every id that the published runs and collective tables used for validation name
VALIDATED_GPUS = [
    "a100-sxm4-40gb",
    "a100-sxm4-80gb",
    "a800-sxm4-80gb",
    "b200-sxm-180gb",
    "b300-sxm-270gb",
    "gb200-186gb",
    "gb300-279gb",
    "gh200-96gb",
    "h100-sxm5-80gb",
    "h100-sxm5-96gb",
    "h200-sxm-141gb",
    "h800-sxm5-80gb",
    "l40s",
    "mi300x-192gb",
    "mi355x-288gb",
    "rtx-pro-6000",
    "rtx4090",
    "rtx5060ti-16gb",
    "rtx5090",
    "v100-sxm2-16gb",
    "v100-sxm2-32gb",
    "v100-sxm3-32gb",
]
VALIDATED_INTRA = ["infinity-fabric", "nvlink2", "nvlink3", "nvlink4", "nvlink5", "pcie4", "pcie5"]
VALIDATED_INTER = ["efa", "ethernet", "ib-hdr", "ib-ndr", "ib-xdr", "opa", "roce"]


def gpu(name: str) -> GpuSpec:
    return catalog.load("gpus", GpuSpec, name)


def link(name: str) -> LinkSpec:
    return catalog.load("networks", LinkSpec, name)


def raw(kind: str, name: str) -> dict:
    return tomllib.loads((catalog.folder(kind) / f"{name}.toml").read_text(encoding="utf-8"))


def numbers(spec: object, path: str = "") -> Iterator[tuple[str, Sourced]]:
    """Every sourced number of a spec with its path."""
    if isinstance(spec, Sourced):
        yield path, spec
    elif isinstance(spec, Spec):
        for name in type(spec).model_fields:
            yield from numbers(getattr(spec, name), f"{path}.{name}")
    elif isinstance(spec, dict):
        for name, value in spec.items():
            yield from numbers(value, f"{path}.{name}")


@pytest.mark.parametrize(("kind", "name"), PROFILES)
def test_profile_loads_under_its_file_name_and_every_number_is_sourced(
    kind: str, name: str
) -> None:
    spec: Any = catalog.load(kind, KINDS[kind], name)
    assert spec.id == name
    listed = list(numbers(spec))
    assert listed
    for path, number in listed:
        where = f"{kind}/{name}{path}"
        assert number.kind in ("vendor", "measured", "assumed"), where
        assert len(number.source) > 2, where
        assert number.source != "given without a source", where
        assert re.fullmatch(r"20[12]\d-(0[1-9]|1[0-2])(-[0-3]\d)?", number.date), where
        assert not number.source.startswith("/"), where


@pytest.mark.parametrize("kind", KINDS)
def test_names_are_lower_case_and_unambiguous(kind: str) -> None:
    owner: dict[str, str] = {}
    for name in catalog.ids(kind):
        for label in (name, *raw(kind, name).get("aliases", [])):
            assert label == label.lower(), label
            assert label not in owner, f"{label} names {owner.get(label)} and {name}"
            owner[label] = name
    for label, name in owner.items():
        assert catalog.find(kind, label).stem == name


def test_everything_that_validation_names_has_a_profile() -> None:
    assert set(VALIDATED_GPUS) <= set(catalog.ids("gpus"))
    for name in VALIDATED_INTRA:
        assert link(name).scope == "intra_node", name
    for name in VALIDATED_INTER:
        assert link(name).scope == "inter_node", name


@pytest.mark.parametrize("name", catalog.ids("gpus"))
def test_gpu_is_plausible(name: str) -> None:
    g = gpu(name)
    assert g.context_memory < g.usable_memory <= g.memory
    with_the_host = g.node.host == "gb10"  # one memory for both
    assert g.memory - g.usable_memory < (0.25 if with_the_host else 0.1) * g.memory
    assert 100e9 < g.memory_bandwidth < 20e12
    assert 50 < g.power < 2000
    dense = g.dense
    sixteen = dense.bf16 or dense.fp16
    assert sixteen is not None
    assert dense.fp32 <= sixteen
    if dense.bf16 is not None and dense.fp16 is not None:
        assert dense.bf16 == dense.fp16
    if dense.tf32 is not None:
        assert dense.fp32 <= dense.tf32 <= sixteen
    if dense.fp8 is not None:
        assert sixteen < dense.fp8 <= 2.05 * sixteen
    if (
        g.dense_fp16_accumulate is not None
        and g.dense_fp16_accumulate.fp16 is not None
        and dense.fp16 is not None
    ):
        assert g.dense_fp16_accumulate.fp16 == pytest.approx(2 * dense.fp16, rel=0.01)
    # achieved memory and matrix rates stay below the vendor's
    # cards that power does not limit run a tenth above the advertised boost clock
    assert g.kernels.gemm_efficiency * g.kernels.sustained_clock < (
        1.15 if "geforce" in g.title.lower() else 1.0
    )
    assert g.kernels.memory_frac < 1.0
    assert 0.0 <= g.kernels.gemm_wave_softness <= 1.0
    assert g.kernels.attention_backward <= g.kernels.attention_forward


@pytest.mark.parametrize(
    ("name", "bf16_tflops"),
    [
        ("a100-sxm4-80gb", 312),
        ("a100-pcie-40gb", 312),
        ("h100-sxm5-80gb", 989),
        ("h100-pcie-80gb", 756),
        ("h200-sxm-141gb", 989),
        ("h20-96gb", 148),
        ("b200-sxm-180gb", 2250),
        ("gb200-186gb", 2500),
        ("l40s", 362.05),
        ("rtx4090", 165.2),
        ("rtx5090", 209.5),
        ("rtx3090", 71.2),
        ("rtx-a6000-48gb", 154.8),
        ("l4-24gb", 121),
        ("a10g-24gb", 70),
        ("a40-48gb", 149.7),
        ("rtx3090ti", 80.0),
        ("mi300x-192gb", 1307.4),
        ("mi250x-128gb", 191.5),
    ],
)
def test_dense_rates_are_without_sparsity_and_with_fp32_accumulation(
    name: str, bf16_tflops: float
) -> None:
    assert gpu(name).rate("bf16") == pytest.approx(bf16_tflops * 1e12)


def test_fp16_accumulation_of_geforce_is_named_as_such() -> None:
    card = gpu("rtx4090")
    assert card.dense.fp16 == pytest.approx(165.2e12)
    assert card.dense_fp16_accumulate is not None
    assert card.dense_fp16_accumulate.fp16 == pytest.approx(330.3e12)


def test_volta_and_turing_have_neither_bf16_nor_tf32() -> None:
    old = [first for name in catalog.ids("gpus") if (first := gpu(name)).architecture in OLD]
    assert {entry.architecture for entry in old} == set(OLD)
    for entry in old:
        assert entry.rate("bf16") is None
        assert entry.rate("tf32") is None
        assert entry.rate("fp16") is not None


def test_a_card_without_a_table_has_the_shape_of_the_curve_of_another() -> None:
    kernels, other = gpu("l4-24gb").kernels, gpu("l40s").kernels
    for name in CURVE_SHAPE:
        mine, theirs = getattr(kernels, name), getattr(other, name)
        assert mine == theirs
        assert mine.kind == "assumed"
        assert mine.source == "no GEMM table: as l40s"
    assert kernels.sustained_clock < other.sustained_clock  # 72 W and not 350


def test_what_a_card_states_beside_another_is_its_own(tmp_path: Path) -> None:
    text = (catalog.folder("gpus") / "l4-24gb.toml").read_text(encoding="utf-8")
    path = tmp_path / "mine.toml"
    path.write_text(text.replace('like = "l40s"', 'like = "l40s"\nkernel_gap = "9 us"'))
    kernels = gpu(str(path)).kernels
    assert kernels.kernel_gap == pytest.approx(9e-6)
    assert kernels.gemm_launch == gpu("l40s").kernels.gemm_launch
    path.write_text(text.replace('like = "l40s"', 'like = "l40x"'))
    with pytest.raises(PlanError, match=r"kernels\.like: 'l40x' - unknown; did you mean l40"):
        gpu(str(path))


def test_link_bandwidths_are_one_way() -> None:
    one_way = {
        "nvlink2": 150,
        "nvlink3": 300,
        "nvlink4": 450,
        "nvlink5": 900,
        "infinity-fabric": 448,
        "pcie3": 15.75,
        "pcie4": 31.5,
        "pcie5": 63,
        "ib-edr": 12.5,
        "ib-hdr": 25,
        "ib-ndr": 50,
        "ib-xdr": 100,
        "opa": 12.5,
    }
    for name, gigabytes in one_way.items():
        assert link(name).bandwidth == pytest.approx(gigabytes * 1e9), name
    assert gpu("a800-sxm4-80gb").links["nvlink3"] == pytest.approx(200e9)
    assert gpu("h800-sxm5-80gb").links["nvlink4"] == pytest.approx(200e9)


@pytest.mark.parametrize("name", catalog.ids("networks"))
def test_link_is_plausible(name: str) -> None:
    spec = link(name)
    for frac in (
        spec.all_reduce_frac,
        spec.all_gather_frac,
        spec.reduce_scatter_frac,
        spec.send_recv_frac,
    ):
        assert 0.02 < frac <= 1.0
    assert spec.latency < (20e-6 if spec.scope == "intra_node" else 1e-3)
    assert (
        (spec.switch_all_reduce_frac is None)
        == (spec.switch_minimum_ranks is None)
        == (spec.switch_latency is None)
    )
    # the links of a torus join the slice or the server, other meshes a number of GPUs that is known
    assert (spec.mesh is None) == (spec.mesh_ranks is None) or name in ("tpu-ici", "neuronlink")
    assert spec.peer_to_peer == (not name.endswith("no-p2p"))
    if name.endswith("-no-p2p"):
        assert spec.bandwidth == link(name.removesuffix("-no-p2p")).bandwidth


@pytest.mark.parametrize(("kind", "name"), [p for p in PROFILES if p[0] in ("gpus", "clusters")])
def test_links_that_a_node_names_exist_in_the_right_scope(kind: str, name: str) -> None:
    spec = catalog.load(kind, KINDS[kind], name)
    assert isinstance(spec, GpuSpec | ClusterTemplate)
    node = spec.node if isinstance(spec, GpuSpec) else spec
    assert link(node.intra_node).scope == "intra_node"
    assert link(node.host_link).scope == "intra_node"
    assert link(node.inter_node).scope == "inter_node"
    # exact ids, not aliases, so that a profile can be read by eye
    for used in (node.intra_node, node.host_link, node.inter_node):
        assert used in catalog.ids("networks")
    assert node.nvlink_domain is None or node.nvlink_domain % node.gpus_per_node == 0
    if isinstance(spec, GpuSpec):
        for override, bandwidth in spec.links.items():
            assert bandwidth != link(override).bandwidth or override == "nvlink-bridge"
    else:
        assert spec.gpu in catalog.ids("gpus")


@pytest.mark.parametrize(
    ("alias", "name"),
    [
        ("4090", "rtx4090"),
        ("rtx-4090", "rtx4090"),
        ("a100", "a100-sxm4-80gb"),
        ("A100", "a100-sxm4-80gb"),
        ("h100", "h100-sxm5-80gb"),
        ("h200", "h200-sxm-141gb"),
        ("b200", "b200-sxm-180gb"),
        ("gb200", "gb200-186gb"),
        ("v100", "v100-sxm2-32gb"),
        ("h20", "h20-96gb"),
        ("l40s", "l40s"),
        ("mi300x", "mi300x-192gb"),
    ],
)
def test_familiar_names_are_exact_aliases(alias: str, name: str) -> None:
    assert gpu(alias).id == name


@pytest.mark.parametrize("name", ["b20", "200", "h2", "gb", "100", "rtx", "a100-sxm4", "nvidia"])
def test_no_name_is_matched_by_a_part_of_it(name: str) -> None:
    if name == "a100-sxm4":
        assert gpu(name).id == "a100-sxm4-80gb"  # declared, not guessed
        return
    with pytest.raises(PlanError):
        catalog.find("gpus", name)


def test_unknown_id_answers_with_near_matches() -> None:
    with pytest.raises(PlanError, match=r"did you mean .*h100") as caught:
        catalog.find("gpus", "h1000")
    assert caught.value.field == "--gpu"
    assert "h1000" in str(caught.value)
    with pytest.raises(PlanError, match="nvlink"):
        catalog.find("networks", "nvlink9")


def test_own_file_by_path(tmp_path: Path) -> None:
    text = (catalog.folder("gpus") / "rtx4090.toml").read_text(encoding="utf-8")
    path = tmp_path / "mine.toml"
    path.write_text(
        text.replace('id = "rtx4090"', 'id = "my-card"').replace('"24 GiB"', '"48 GiB"'),
        encoding="utf-8",
    )
    mine = gpu(str(path))
    assert mine.id == "my-card"
    assert mine.memory == 48 * 2**30
    assert mine.dense.bf16 == gpu("rtx4090").dense.bf16


HOSTILE = {
    "unknown key": (
        'title = "',
        'memroy = "24 GiB"\ntitle = "',
        ["memroy", "unknown key", "memory_bandwidth"],
    ),
    "unknown key in a table": ("[dense]", '[dense]\nfp64 = "1 TFLOP/s"', ["fp64", "unknown key"]),
    "negative": ('"1008 GB/s"', '"-1008 GB/s"', ["memory_bandwidth", "-1008"]),
    "zero": ('"24 GiB"', '"0 GiB"', ["memory", "0 GiB"]),
    "not a number": ('value = "450 W"', "value = nan", ["power", "finite"]),
    "too large": ('"1008 GB/s"', '"1e400 GB/s"', ["memory_bandwidth"]),
    "infinite": ('value = "450 W"', "value = inf", ["power", "finite"]),
    "unit of another dimension": (
        '"1008 GB/s"',
        '"1008 GB"',
        ["memory_bandwidth", "1008 GB", "B/s"],
    ),
    "unknown unit": ('"1008 GB/s"', '"1008 gb/s"', ["memory_bandwidth", "gb/s", "Gbit"]),
    "wrong type": ("compute_units = 128", 'compute_units = "many"', ["compute_units", "many"]),
    "no source": (
        ', source = "total capacity in a torch out-of-memory message, ali-vilab/VGen#104"',
        "",
        ["usable_memory"],
    ),
    "unknown kind": (
        'kind = "measured"',
        'kind = "guessed"',
        ["usable_memory", "guessed", "assumed"],
    ),
    "beyond any machine": (
        "efficiency = { value = 0.97",
        "efficiency = { value = 97",
        ["gemm_efficiency"],
    ),
    "not TOML": ("[dense]", "[dense", ["not valid TOML", "line"]),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_bad_profile_is_refused_with_field_and_value(case: str, tmp_path: Path) -> None:
    old, new, expected = HOSTILE[case]
    text = (catalog.folder("gpus") / "rtx4090.toml").read_text(encoding="utf-8")
    assert old in text, "the shipped profile changed: adapt the test"
    path = tmp_path / "mine.toml"
    path.write_text(text.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(PlanError) as caught:
        gpu(str(path))
    for word in expected:
        assert word in str(caught.value), str(caught.value)
    assert "\n" not in str(caught.value)


def test_missing_file_and_folder_are_plain_sentences(tmp_path: Path) -> None:
    for path in (tmp_path / "none.toml", tmp_path):
        with pytest.raises(PlanError) as caught:
            gpu(f"{path}/" if path.is_dir() else str(path))
        assert caught.value.field == "--gpu"
    binary = tmp_path / "binary.toml"
    binary.write_bytes(b"\xff\xfe\x00id")
    with pytest.raises(PlanError, match="UTF-8"):
        gpu(str(binary))


def test_bandwidth_of_a_link_given_in_bits() -> None:
    """Gbit/s of a network and GB/s of a link are different words."""
    assert link("ib-ndr").bandwidth == pytest.approx(400e9 / 8)
    assert gpu("h100").node.nic_bandwidth == pytest.approx(50e9)


GENERIC = [name for name in catalog.ids("networks") if link(name).takes_speed_of_cards]


def test_kinds_of_fabric() -> None:
    assert {"infiniband", "roce", "ethernet", "efa"} <= set(GENERIC)


@pytest.mark.parametrize("kind", GENERIC)
@pytest.mark.parametrize("name", catalog.ids("gpus"))
def test_naming_a_kind_of_fabric_keeps_the_cards_of_the_node(name: str, kind: str) -> None:
    """Only cards that are slower than any of the kind are replaced, and the assumption is listed;
    the node's own kind changes nothing."""
    node, fabric = gpu(name).node, link(kind)
    options = Options(model="gpt2", gpu=name, gpus=2 * node.gpus_per_node)
    usual, before = cluster_spec(options)
    named, after = cluster_spec(options.changed(inter_node=kind))
    if link(node.inter_node).fabric == kind:
        assert (named, after) == (usual, before)
        return
    assert named.inter_node.id == kind
    assert named.nic_bandwidth == max(float(node.nic_bandwidth), float(fabric.bandwidth))
    assert any("names no speed" in line for line in after)
    stated, text = cluster_spec(options.changed(inter_node=kind, nic_bandwidth="123 Gbit/s"))
    assert float(stated.nic_bandwidth) == pytest.approx(123e9 / 8)
    assert not any("names no speed" in line for line in text)


def test_a_fabric_whose_name_is_a_speed_has_it() -> None:
    options = Options(model="gpt2", gpu="h100", gpus=16, inter_node="roce-100")
    assert float(cluster_spec(options)[0].nic_bandwidth) == pytest.approx(12.5e9)


def test_tpus_run_what_runs_there() -> None:
    """Without a stack MaxText is taken, and a stack of torch is refused."""
    given = {"model": "llama-3-8b", "gpu": "tpu-v6e", "gpus": 16, "zero": 3, "global_batch": 48}
    report = estimate(read_options({**given, "seq_len": 8192, "recompute": "full", "tp": 1}))
    assert report.stack.id == "maxtext"
    # 3.39 s printed, AI-Hypercomputer/tpu-recipes@c8cfe2f training/trillium/Llama3.1-8B-MaxText
    assert report.step.seconds == pytest.approx(3.39, rel=0.15)
    with pytest.raises(PlanError, match=r"does not run on Google TPU v6e.*take --stack maxtext"):
        estimate(read_options({**given, "stack": "megatron-core"}))


def test_cores_of_trainium_run_what_runs_there() -> None:
    """Without a stack NeuronX Distributed is taken; it and stacks of GPUs refuse each other's."""
    given = {"model": "llama-3.1-70b", "gpu": "trn1", "gpus": 1024, "tp": 32, "pp": 8, "zero": 1}
    ran = {"micro_batch": 1, "recompute": "core_attn+mlp", "vpp": 1, "stack_defaults": True}
    report = estimate(read_options({**given, **ran, "global_batch": 1024, "seq_len": 8192}))
    assert report.stack.id == "neuronx-distributed"
    # 7.5 to 8 sequences/s printed, aws-neuron/aws-neuron-sdk general/benchmarks/trn1
    assert report.step.seconds == pytest.approx(1024 / 7.75, rel=0.15)
    with pytest.raises(PlanError, match=r"NeuronCore-v2.*take --stack neuronx-distributed"):
        estimate(read_options({**given, "stack": "megatron-core"}))
    with pytest.raises(PlanError, match=r"does not run on NVIDIA H100.*take --stack megatron-core"):
        estimate(read_options({**given, "gpu": "h100", "stack": "neuronx-distributed"}))


@pytest.mark.parametrize(
    ("name", "ranks", "shares"),
    [("tpu-ici", 256, {2: 0.25, 16: 0.5, 256: 1.0}), ("neuronlink", 32, {8: 0.5, 32: 1.0})],
)
def test_a_slice_uses_all_links_of_a_torus_and_a_row_its_own(
    name: str, ranks: int, shares: dict[int, float]
) -> None:
    """Two neighbours share one link of four, a row of 16 two of four: the law of a torus."""
    mesh = link(name).mesh
    assert mesh is not None
    share = [((k - 1) / (ranks - 1)) ** float(mesh) for k in shares]
    assert share == pytest.approx(list(shares.values()), rel=0.03)
