"""Prices of the day: by gpuhunt's own client and from SkyPilot's files, kept by date, and nothing
lost where a feed is away."""

from __future__ import annotations

import datetime
import functools
import io
import threading
import zipfile
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from command import dpplan, refused

from planner.inputs import catalog
from planner.prices import feeds

TODAY = datetime.datetime.now(datetime.UTC).date().isoformat()
HEADER = (
    "instance_name,location,price,cpu,memory,gpu_count,gpu_name,gpu_memory,spot,disk_size,"
    "gpu_vendor,flags,cpu_arch,provider_data\n"
)
CATALOGUES = {
    "lambdalabs": "gpu_8x_h100_sxm5,us-east-1,24.0,208,1800,8,H100,80,False,,nvidia,,x86,{}\n"
    "gpu_8x_h100_sxm5,us-west-2,25.6,208,1800,8,H100,80,False,,nvidia,,x86,{}\n"
    "gpu_1x_h100_sxm5,us-west-2,2.0,26,225,1,H100,80,False,,nvidia,,x86,{}\n",
    "runpod": "NVIDIA H100 80GB HBM3,US-1,40.0,160,1600,8,H100,80,False,,nvidia,,x86,"
    '"{""pod_counts"": [2, 8]}"\n'
    "NVIDIA H100 80GB HBM3,SE,16.0,160,1600,8,H100,80,False,,nvidia,,x86,{}\n"
    "NVIDIA K80,US-1,0.4,8,60,1,K80,12,False,,nvidia,,x86,{}\n"
    "mangled,US-1,not a price,8,60,1,T4,16,False,,nvidia,,x86,{}\n",
    "gcp": "a3-highgpu-8g,us-central1,88.0,208,1872,8,H100,80,False,,nvidia,,x86,{}\n"
    "a3-highgpu-8g,us-central1,32.0,208,1872,8,H100,80,True,,nvidia,,x86,{}\n",
}
PLAN: tuple[object, ...] = (
    "estimate",
    "--model",
    "gpt2",
    "--gpu",
    "h100",
    "--gpus",
    8,
    "--tokens",
    "1B",
)
PLAN += ("--advice", 0, "--stack-defaults")
SKYPILOT = (
    "InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB,GpuInfo,Price,SpotPrice,Region,"
    "AvailabilityZone\n"
    "p5.48xlarge,H100,8.0,192,2048,,55.04,20.8,us-east-1,us-east-1a\n"
    "p5.48xlarge,H100,8.0,192,2048,,55.04,,us-east-1,us-east-1b\n"
    "m5.large,,,2,8,,0.096,0.04,us-east-1,us-east-1a\n"
)


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *words: object) -> None:
        pass


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An empty folder of fetched prices."""
    folder = tmp_path / "prices"
    monkeypatch.setenv("DPPLAN_PRICES", str(folder))
    return folder


@pytest.fixture(scope="module")
def catalogue(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of a catalogue as gpuhunt publishes it."""
    folder = tmp_path_factory.mktemp("catalogue")
    from gpuhunt._internal.catalog import OFFLINE_PROVIDERS

    for provider in OFFLINE_PROVIDERS:
        place = folder / provider
        (place / "1").mkdir(parents=True)
        (place / "version").write_text("1\n")
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w") as archive:
            archive.writestr(f"{provider}.csv", HEADER + CATALOGUES.get(provider, ""))
        (place / "1" / "catalog.zip").write_bytes(packed.getvalue())
    handler = functools.partial(Quiet, directory=str(folder))
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def cost(*words: object) -> tuple[float, str]:
    run = dpplan(*PLAN, *words, "--json").json()["cluster"]
    return run["usd_per_gpu_hour"], run["price_source"]


def test_a_fetch_is_kept_by_date_and_every_cost_rests_on_it(
    kept: Path, catalogue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shipped = cost()
    monkeypatch.setenv("GPUHUNT_CATALOG_URL", catalogue)
    answer = dpplan("prices", "--update", "--json").json()
    assert answer["days"] == ["shipped", answer["day"]] == ["shipped", TODAY]
    assert Path(answer["file"]) == kept / f"{TODAY}.toml"
    prices = {
        (row["provider"], row["market"]): row
        for row in answer["prices"]
        if row["gpu"] == "h100-sxm5-80gb"
    }
    # whole nodes of 8, the lowest region: 24 / 8, although a node of one is at 2.00
    assert prices["Lambda", "on-demand"]["usd_per_gpu_hour"] == pytest.approx(3.0)
    assert prices["Lambda", "on-demand"]["offers"] == {"1": 1, "8": 2}
    assert prices["Google Cloud spot", "hyperscaler-spot"]["usd_per_gpu_hour"] == pytest.approx(4)
    runpod = prices["RunPod Secure Cloud", "on-demand"]
    assert runpod["offers"] == {"16": 1, "64": 1}  # clusters of 2 and 8 such machines
    # a machine of a country, not of a data center, is a private host's
    community = prices["RunPod Community Cloud", "community"]
    assert community["usd_per_gpu_hour"] == pytest.approx(2.0)
    assert community["offers"] == {"8": 1}
    assert answer["left_out"] == {"K80 12gb: no profile": 1}
    # RunPod is the first seller of the shipped lists, and stays so
    usd, source = cost()
    assert usd == pytest.approx(5.0)
    assert source == f"on-demand, RunPod Secure Cloud, {TODAY}, 1 offer of 64 GPUs"
    assert cost("--market", "lambda")[0] == pytest.approx(3.0)
    assert cost("--price-day", TODAY) == (usd, source)
    assert cost("--price-day", "shipped") == shipped
    # what no provider of the feed sells is priced as shipped
    machine = ("--model", "gpt2", "--gpu", "rtx4090", "--gpus", 1, "--json")
    assert dpplan("estimate", *machine).json()["cluster"]["price_source"].endswith("2026-09-29")
    # a request over HTTP reads no files, but the server's own prices
    with catalog.only_given({}):
        assert cost()[0] == pytest.approx(5.0)
    lines = dpplan("prices", "h100").stdout
    for word in ("RunPod Secure Cloud", TODAY, "2026-10-10"):
        assert word in lines


def test_a_feed_that_is_away_leaves_what_was_kept(
    kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept.mkdir()
    before = kept / "2026-11-01.toml"
    before.write_text(
        '[[list]]\nprovider = "lambda"\ntitle = "Lambda"\nmarket = "on-demand"\n'
        'date = "2026-11-01"\nsource = "test"\n'
        '[list.usd_per_gpu_hour]\nh100-sxm5-80gb = "1 USD/h"\n'
    )
    monkeypatch.setenv("GPUHUNT_CATALOG_URL", "http://127.0.0.1:9")
    error = refused(dpplan("prices", "--update"))
    assert "cannot be fetched" in error
    assert "stay as they are" in error
    assert [file.name for file in kept.iterdir()] == [before.name]
    assert cost() == (pytest.approx(1.0), "on-demand, Lambda, 2026-11-01")


@pytest.mark.parametrize("text", ["[[list", "[[list]]\nprovider = 3\n", "prices = 1\n"])
def test_a_malformed_file_of_a_day_is_said_with_the_remedy(kept: Path, text: str) -> None:
    kept.mkdir()
    (kept / "2026-11-02.toml").write_text(text)
    assert "2026-11-02.toml" in refused(dpplan(*PLAN))
    other = refused(dpplan(*PLAN, "--price-day", "2026-01-01"))
    assert "days with prices are shipped, 2026-11-02" in other
    assert cost("--price-day", "shipped")[0] > 0


def test_files_of_skypilot_are_read_by_cloud(kept: Path, tmp_path: Path) -> None:
    file = tmp_path / "aws" / "vms.csv"
    file.parent.mkdir()
    file.write_text(SKYPILOT)
    rows = dpplan("prices", "--update", "--feed", file, "--json").json()["prices"]
    assert [(row["market"], row["usd_per_gpu_hour"], row["offers"]) for row in rows] == [
        ("hyperscaler", pytest.approx(6.88), {"8": 2}),
        ("hyperscaler-spot", pytest.approx(2.6), {"8": 1}),
    ]
    assert cost("--market", "hyperscaler")[0] == pytest.approx(6.88)
    file.write_text(SKYPILOT.replace("55.04", "dear"))
    update = ("prices", "--update", "--feed", file)
    refused(dpplan(*update), "line 2")
    file.write_text("a,b\n1,2\n")
    refused(dpplan(*update), "without column AcceleratorCount")
    assert "--update" in refused(dpplan("prices", "--feed", file))
    assert cost("--market", "hyperscaler")[0] == pytest.approx(6.88)


@pytest.mark.parametrize(
    ("gpu", "gpus", "memory_gb", "machine", "profile"),
    [
        ("H100", 8, 80, "p5.48xlarge", "h100-sxm5-80gb"),
        ("H100", 1, 80, "1x H100-PCIe-80GB", "h100-pcie-80gb"),
        ("H100", 1, 80, "vm", None),  # SXM or PCIe
        ("A100", 8, 40, "p4d.24xlarge", "a100-sxm4-40gb"),
        ("A100-80GB", 8, None, "p4de.24xlarge", "a100-sxm4-80gb"),
        ("RTX6000Ada", 1, 48, "vm", "rtx6000-ada"),
        ("L40S", 8, 48, "vm", "l40s"),
        ("MI300X", 8, 192, "vm", "mi300x-192gb"),
        ("V100", 1, 12, "vm", None),  # a memory that no GPU has
        ("K80", 1, 12, "vm", None),
    ],
)
def test_names_of_gpus(
    gpu: str, gpus: int, memory_gb: float | None, machine: str, profile: str | None
) -> None:
    offer = feeds.Offer("aws", machine, "here", gpu, gpus, memory_gb, 1.0, spot=False)
    assert feeds.profile_of(offer)[0] == profile
