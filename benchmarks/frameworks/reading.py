"""Host memory that a rank takes to read a model's weights, measured: anonymous pages of a process
that calls from_pretrained of transformers on a small model on disk, as each kind of launch does.

    python -m benchmarks.frameworks reading
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from typing import Any

from benchmarks.frameworks.setting import Setting, compact

# what decides who reads: variables that accelerate's launcher sets for its ranks
_FSDP = {"ACCELERATE_USE_FSDP": "true", "FSDP_CPU_RAM_EFFICIENT_LOADING": "true"}
_WIDE = {"DTYPE": "float32"}
LAUNCHES: dict[str, dict[str, str]] = {
    "each rank, as the file has it": {},
    "each rank, in fp32": _WIDE,
    "first rank of a host, in fp32": {**_FSDP, **_WIDE, "LOCAL_RANK": "0"},
    "another rank of it, in fp32": {**_FSDP, **_WIDE, "LOCAL_RANK": "1"},
}
_SHAPE = {"hidden_size": 1024, "intermediate_size": 2816, "num_hidden_layers": 12}
SETTING = Setting(
    "transformers",
    compact(
        {
            "model_type": "llama",
            "architectures": ["LlamaForCausalLM"],
            "num_attention_heads": 16,
            "num_key_value_heads": 8,
            "vocab_size": 32_000,
            **_SHAPE,
        }
    ),
    precision="bf16",
)
# pages that are not of a file, before and at the fullest moment of the call
_RUN = """
import os, sys, threading, time, torch, transformers
from torch.testing._internal.distributed.fake_pg import FakeStore
rank = int(os.environ.get("LOCAL_RANK", "0"))
torch.distributed.init_process_group("fake", store=FakeStore(), rank=rank, world_size=2)
def pages():
    for line in open("/proc/self/status"):
        if line.startswith("RssAnon"):
            return 1024 * int(line.split()[1])
from transformers.models.llama import modeling_llama  # imported before pages are counted
before, most, on = pages(), [0], [True]
def watch():
    while on[0]:
        most[0] = max(most[0], pages())
        time.sleep(0.002)
thread = threading.Thread(target=watch)
thread.start()
dtype = os.environ.get("DTYPE", "auto")
model = transformers.AutoModelForCausalLM.from_pretrained(sys.argv[1], dtype=dtype)
on[0] = False
thread.join()
print(most[0] - before, sum(p.numel() for p in model.parameters()))
"""


def measured(setting: Setting = SETTING) -> Iterator[tuple[str, float]]:
    """(launch, bytes per parameter that reading takes)."""
    from benchmarks.frameworks.transformers_step import model_of

    with tempfile.TemporaryDirectory() as folder:
        model: Any = model_of(setting)
        model.save_pretrained(folder)
        for name, variables in LAUNCHES.items():
            out = subprocess.run(
                [sys.executable, "-c", _RUN, folder],
                env={"PATH": "", "MALLOC_ARENA_MAX": "1", **variables},
                capture_output=True,
                text=True,
                check=True,
            )
            taken, parameters = map(int, out.stdout.split()[-2:])
            yield name, taken / parameters
