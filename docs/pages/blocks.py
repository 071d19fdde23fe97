"""Generated blocks inside hand-written pages: `<!-- begin: NAME -->` ... `<!-- end -->`."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Sequence

from pages import accuracy, advice, documents, keys, peers, serving, traffic, tuning, types
from pages.text import ROOT, code, run

_BLOCK = re.compile(r"<!-- begin: ([^>\n]+?) -->\n.*?<!-- end -->", re.DOTALL)

MAIN = "dpplan estimate --model llama-70b --gpus 2048 --gpu rtx4090"


def output(command: str, parts: Sequence[str] = (), lines: int = 0, each: int = 0) -> str:
    """A command and what it prints: whole, or the parts whose title starts with one of `parts`
    (the first `each` lines of them), or the first `lines`."""
    status, out, err = run(command)
    text = re.sub(
        r"evaluated in [\d.,]+ \w+", "evaluated in ... ms", (out + err).rstrip("\n")
    )  # differs from run to run
    blocks = text.split("\n\n")
    if parts:
        kept: list[str] = []
        for i, block in enumerate(blocks):
            if (i == 0 and parts[0] == "") or any(p and block.startswith(p) for p in parts):
                lines_of = block.splitlines()
                kept.append(
                    "\n".join([*lines_of[:each], "[...]"])
                    if each and len(lines_of) > each
                    else block
                )
            elif not kept or not kept[-1].endswith("[...]"):
                kept.append("[...]")
        text = "\n\n".join(kept)
    if lines and len(all_lines := text.splitlines()) > lines:
        text = "\n".join([*all_lines[:lines], "[...]"])
    note = f"\nExit status {status}.\n" if status else ""
    return code(command, "sh") + "\n" + code(text) + note


def file(path: str) -> str:
    """A file of the repository."""
    kind = {"toml": "toml", "py": "python", "csv": "text", "json": "json", "sh": "sh"}[
        path.rpartition(".")[2]
    ]
    return f"`{path}`:\n\n" + code((ROOT / path).read_text(encoding="utf-8"), kind)


def script(path: str) -> str:
    """A Python example and what it prints."""
    done = subprocess.run(
        [sys.executable, path], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60
    )
    return file(path) + "\n" + code(f"python {path}", "sh") + "\n" + code(done.stdout)


_HEAD = ("",)
_DP = "--model llama-2-7b --gpu h100 --gpus 64"

BLOCKS: dict[str, Callable[[], str]] = {
    "components of memory": documents.memory,
    "estimate": lambda: output(MAIN),
    "estimate head": lambda: output(MAIN, lines=8),
    "peers": lambda: peers.page(),
    "ten questions": lambda: tuning.ten(),
    "ten questions of peers": lambda: tuning.peers(),
    "fixed": lambda: output(
        "dpplan estimate --model llama-2-7b --cluster dgx-h100 --gpus 64 --tp 2 --pp 1 --zero 1"
        " --micro-batch 2 --recompute selective --global-batch 1024 --tokens 2T --full",
        parts=("", "Step time", "Communication"),
    ),
    "config": lambda: output(
        "dpplan estimate --model tests/configs/llama-3.1-8b.json --gpu h100 --gpus 16 --full",
        parts=("", "What this rests on"),
        each=14,
    ),
    "why-not": lambda: output(
        "dpplan estimate --model llama-2-7b --gpu rtx4090 --gpus 2 --seq-len 2048", lines=30
    ),
    "wrong": lambda: output("dpplan estimate --model llama-70b --gpu rtx4090 --gpus 16 --tp 3"),
    "json": lambda: output("dpplan estimate --model gpt2 --gpu a100 --gpus 8 --json", lines=12),
    "explain": lambda: output(
        "dpplan estimate --model gpt2 --gpu a100 --gpus 8 --tp 1 --micro-batch 8 --zero 0"
        " --explain",
        parts=("numbers of the machine", "estimate of the chosen layout"),
        each=14,
    ),
    "recommend cluster": lambda: output(
        "dpplan recommend --model llama-2-70b --tokens 2T --days 30 --gpu h100 --gpu a100 --gpu"
        " rtx4090"
    ),
    "recommend bandwidth": lambda: output(
        "dpplan recommend bandwidth --model llama-2-13b --gpu rtx4090 --gpus 64", lines=26
    ),
    "recommend batch": lambda: output(
        "dpplan recommend batch --model llama-2-7b --gpu h100 --gpus 64"
    ),
    "recommend model": lambda: output(
        "dpplan recommend model --model llama-2-7b --gpu a100 --gpus 8 --stack pytorch-fsdp",
        lines=18,
    ),
    "compare gpus": lambda: output(
        "dpplan compare --model llama-2-7b --gpus 256 --vary gpu=rtx4090,a100 --tokens 1T"
    ),
    "compare cost": lambda: output(
        "dpplan compare --model llama-2-7b --gpus 256 --vary gpu=rtx4090,a100,h100 --at cost"
        " --tokens 1T",
        parts=("Llama", "Against", "Notes"),
    ),
    "compare sweep": lambda: output(
        "dpplan compare --model llama-2-7b --gpu a100 --sweep gpus=8..4096"
    ),
    "search": lambda: output("dpplan search --model llama-2-7b --gpu a100 --gpus 64 --top 3"),
    "search where": lambda: output(
        "dpplan search --model llama-2-7b --gpu a100 --gpus 64 --top 2 --where 'tp <= 2' --where"
        " 'recompute = none,block' --objective memory",
        parts=("", "Best layouts", "Rejected"),
    ),
    "dp all": lambda: output(f"dpplan strategies {_DP}", parts=("", "Left out")),
    "dp ddp": lambda: output(
        "dpplan strategies --model gpt2-xl --gpu a100 --gpus 16 --seq-len 1024 --strategy ddp",
        parts=("PyTorch DDP", "Buckets"),
    ),
    "dp allreduce": lambda: output("dpplan allreduce --gpu h100 --gpus 64"),
    "dp top-k": lambda: output(
        "dpplan strategies --model gpt2-xl --gpu a100 --gpus 16 --seq-len 1024 --strategy top-k"
        " --explain",
        parts=("top-k",),
    ),
    "dp stragglers": lambda: (
        output(
            f"dpplan estimate {_DP} --jitter 0.5% --slow-hosts 0.5% --tokens 1T", parts=("Waiting",)
        )
        + "\nBy the size of the job:\n\n"
        + traffic.slowest()
    ),
    "dp mixed": lambda: "\n".join(
        output(
            f"dpplan estimate {_DP} --other-gpu a100 --other-share 25% --split {split}",
            parts=("", "Waiting"),
            each=7,
        )
        for split in ("equal", "proportional")
    ),
    "dp lengths": lambda: (
        output(f"dpplan estimate {_DP} --length-mean 800 --packing packed", parts=("Waiting",))
        + "\n"
        + output(f"dpplan estimate {_DP} --length-mean 800 --packing padded", parts=("Waiting",))
    ),
    "dp batchnorm": lambda: output("dpplan batchnorm --gpu a100 --gpus 64"),
    "dp images": lambda: output(
        "dpplan input --samples-per-s 14286 --gpus 8 --batch 400 --sample-bytes 114660"
        " --decoded-bytes 150528 --worker-rate 200 --data-storage nfs"
    ),
    "dp tokens": lambda: output(f"dpplan estimate {_DP} --data-storage nfs", parts=("Input",)),
    "server limits": serving.limits_of,
    "dp zero": lambda: traffic.zero_memory(),
    "dp volume": lambda: traffic.volumes(),
    "dp h": lambda: traffic.local_steps(),
    "dp batch": lambda: output(
        "dpplan batch --model llama-2-7b --gpu h100 --sweep gpus=64..4096 --global-batch 128"
        " --reference-batch 1024 --tokens 2T --learning-rate 3e-4 --warmup 8B"
    ),
    "dp noise": lambda: output(
        "dpplan batch --model gpt2-xl --gpu a100 --sweep gpus=8..128 --seq-len 1024 --global-batch"
        " 64 --tokens 100B --gradient-norm 8:1.5 --gradient-norm 512:0.4",
        parts=("GPT", "Were", "Notes"),
        each=8,
    ),
    "dp published": lambda: traffic.published(),
    "dp drives": lambda: output(
        "dpplan estimate --model llama-2-70b --gpu h100 --gpus 8 --offload params-nvme --full",
        parts=("", "Memory per GPU", "Step time"),
    ),
    "dp infinity": lambda: traffic.infinity(),
    "dp swap": lambda: output("dpplan recommend offload --model llama-2-7b --gpu a100 --gpus 8"),
    "dp links": lambda: traffic.swaps(),
    "list": lambda: output("dpplan list schedules"),
    "validate": lambda: output("dpplan validate docs/examples/runs.csv"),
    "advice": lambda: output(
        "dpplan estimate --model llama-2-7b --gpu a100 --gpus 8 --tp 1 --pp 1 --zero 1"
        " --micro-batch 4 --recompute none --stack megatron-core --advice 14 --full",
        parts=("What would", "Commands of"),
        each=20,
    ),
    "offload or recompute": advice.offload,
    "requirements": advice.requirements,
    "inference": lambda: output(
        "dpplan estimate --model llama-3.1-8b --gpu a100 --gpus 64 --inference",
        parts=("Inference",),
    ),
    "preflight": lambda: (
        file("docs/examples/preflight.toml")
        + "\n"
        + file("docs/examples/preflight.sh")
        + "\n"
        + output(
            "dpplan estimate --scenario docs/examples/preflight.toml", parts=("", "Requirements")
        )
    ),
    "status": accuracy.status,
    "flop convention": keys.convention,
    "optimizer traffic": keys.traffic,
    "run level": keys.run_level,
    "checkpoint storage": keys.checkpoint_storage,
    "schedules": keys.schedules,
    "clocks": keys.clocks,
    "model types": types.types,
    "extend gpu": lambda: (
        file("docs/examples/gpu.toml")
        + "\n"
        + output(
            "dpplan estimate --model llama-2-7b --gpu docs/examples/gpu.toml --gpus 8", parts=_HEAD
        )
    ),
    "extend network": lambda: (
        file("docs/examples/network.toml")
        + "\n"
        + output(
            "dpplan estimate --model llama-2-7b --gpu rtx4090 --gpus 32 --inter-node"
            " docs/examples/network.toml",
            parts=_HEAD,
        )
    ),
    "extend cluster": lambda: (
        file("docs/examples/cluster.toml")
        + "\n"
        + output(
            "dpplan estimate --model llama-2-7b --cluster docs/examples/cluster.toml --gpus 16"
            " --tokens 20B",
            parts=_HEAD,
        )
    ),
    "extend model": lambda: (
        file("docs/examples/model.toml")
        + "\n"
        + output(
            "dpplan estimate --model docs/examples/model.toml --gpu a100 --gpus 8", parts=_HEAD
        )
    ),
    "extend stack": lambda: (
        file("docs/examples/stack.toml")
        + "\n"
        + output(
            "dpplan estimate --model llama-2-7b --gpu a100 --gpus 8 --stack"
            " docs/examples/stack.toml",
            parts=_HEAD,
        )
    ),
    "extend calibration": lambda: (
        file("docs/examples/calibration.toml")
        + "\n"
        + output(
            "dpplan estimate --model llama-2-7b --gpu rtx4090 --gpus 16 --calibration"
            " docs/examples/calibration.toml",
            parts=_HEAD,
        )
    ),
    "extend scenario": lambda: (
        file("docs/examples/scenario.toml")
        + "\n"
        + output("dpplan estimate --scenario docs/examples/scenario.toml", parts=_HEAD)
    ),
    "extend schedule": lambda: script("docs/examples/schedule.py"),
    "extend mechanism": lambda: file("docs/examples/mechanism.py"),
    "extend plugin": lambda: "\n".join(
        file(f"docs/examples/plugin/{name}")
        for name in ("pyproject.toml", "dpplan_acme/format.py", "dpplan_acme/mechanism.py")
    ),
    "extend eager stack": lambda: file("docs/examples/eager.toml"),
    "extend formula": lambda: script("docs/examples/formula.py"),
    "runs file": lambda: code(
        "\n".join((ROOT / "docs/examples/runs.csv").read_text(encoding="utf-8").splitlines()[:3])
    ),
}


def generated(text: str) -> list[str]:
    """The generated blocks of a page."""
    return [match.group(0) for match in _BLOCK.finditer(text)]


def fill(text: str) -> str:
    """The page with every block written again.

    `keys MODULE:CLASS` is a block for any spec, `worth NAME; NAME` one for lines of the ablations.
    """

    def replaced(match: re.Match[str]) -> str:
        name = match.group(1).strip()
        if "<!-- begin: " in match.group(0)[1:]:  # what lies between would be lost
            raise ValueError(f"block {name!r} has no end before the next one begins")
        if name.startswith("keys "):
            body = keys.fields(name.removeprefix("keys "))
        elif name.startswith("worth "):
            body = accuracy.worth_of(name.removeprefix("worth "))
        elif name in BLOCKS:
            body = BLOCKS[name]()
        else:
            raise ValueError(f"unknown block {name!r}; known: {', '.join(BLOCKS)}")
        return f"<!-- begin: {match.group(1)} -->\n\n{body.strip()}\n\n<!-- end -->"

    return _BLOCK.sub(replaced, text)
