"""Cost of hostile files: seconds of one core and peak memory of the command that reads each, made
in a temporary folder and removed.

    python benchmarks/hostile.py                 # 2 GB each, 5 GB of disk at most at once
    python benchmarks/hostile.py --bytes 20e6 --only trace

Wanted: an answer or one sentence, at most 20 s and 500 MB, nothing executed, no traceback.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import pickle
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

Writer = Callable[[Path, int], None]
SECONDS, MEGABYTES = 20.0, 500.0
_LINE = 100_000  # bytes written at once, at least
_ITERATION = (
    " [2026-11-20 10:00:07] iteration {i:8d}/ 100000 | consumed samples: {i:12d} | elapsed time per"
    " iteration (ms): 1500.{j} | throughput per GPU (TFLOP/s/GPU): 180.0 | learning rate: 3.0E-04 |"
    " global batch size:    64 | lm loss: 9.1E+00 | number of nan iterations:   0 |\n"
)


def megatron(i: int) -> str:
    return _ITERATION.format(i=i, j=i % 10)


def mllog(i: int) -> str:
    record = {"namespace": "", "time_ms": 1775725581000 + 1500 * i, "event_type": "POINT_IN_TIME"}
    record |= {"key": "train_loss", "value": 11.8, "metadata": {"samples_count": 64 * (i + 1)}}
    first = ':::MLLOG {"time_ms": 1, "key": "global_batch_size", "value": 64}\n' if not i else ""
    return f"{first}0: :::MLLOG {json.dumps(record)}\n"


def torchtitan(i: int) -> str:
    return (
        f"[titan] root - INFO - step: {i:2}  loss:  7.06123  memory: 47.31GiB(49.80%)  tps: 7,014 "
        " tflops: 406.21  mfu: 41.07%\n"
    )


def verl(i: int) -> str:
    parts = (f"timing_s/part_{j}:{0.37 * (i % 7 + j)}" for j in range(80))
    return f"(TaskRunner pid=41) step:{i} - {' - '.join(parts)} - timing_s/step:{60 + i % 10}.5\n"


def nemo_rl(i: int) -> str:
    parts = "".join(f"  \u2022 timer_{j}: {0.1 * j:.2f}s (1.0%)\n" for j in range(80))
    return f"{'=' * 25} Step {i}/100000 {'=' * 25}\n  \u2022 Total step time: 66.55s\n{parts}"


def history(i: int) -> str:
    entry = {"epoch": i / 1000, "loss": 2.0, "learning_rate": 1e-5, "step": i}
    return f"{',' if i else ''}{json.dumps(entry)}\n"


def kernel(i: int) -> str:
    event = {
        "ph": "X",
        "cat": "kernel",
        "name": f"sm90_xmma_gemm_{i % 500}",
        "ts": 10 * i,
        "dur": 8,
    }
    event |= {"pid": 0, "tid": 7, "args": {"device": 0, "stream": 7, "External id": i}}
    return f"{',' if i else ''}{json.dumps(event)}\n"


def of_lines(line: Callable[[int], str], head: str = "", tail: str = "") -> Writer:
    """A file of lines up to a size; the first megabytes are made, the rest repeats them."""

    def write(path: Path, size: int) -> None:
        parts = [line(i) for i in range(20_000)]
        first, again = "".join(parts), "".join(parts[10_000:])
        with path.open("w", encoding="utf-8") as file:
            file.write(head + first)
            for _ in range(max(0, size - len(first)) // len(again)):
                file.write(again)
            file.write(tail)

    return write


def of_bytes(piece: bytes, head: bytes = b"", tail: bytes = b"") -> Writer:
    """A file that repeats a piece up to a size."""

    def write(path: Path, size: int) -> None:
        many = piece * (_LINE // len(piece) + 1)
        with path.open("wb") as file:
            file.write(head)
            for _ in range(size // len(many)):
                file.write(many)
            file.write(tail)

    return write


def packed(path: Path, size: int) -> None:
    """Lines of a log that gzip makes a thousandth of."""
    many = b"x" * 79 + b"\n"
    with gzip.open(path, "wb", compresslevel=1) as file:
        for _ in range(size // 8_000_000):
            file.write(many * 100_000)


class Runs:
    """The file that a pickle would write if it were executed."""

    def __reduce__(self) -> tuple[object, ...]:
        return os.system, ("touch executed",)


def code(path: Path, size: int) -> None:
    path.write_bytes(pickle.dumps({"segments": [Runs()]}))


def frames(path: Path, size: int) -> None:
    """A snapshot as torch writes it: the same few frames a million times."""
    stack = [{"filename": f"/opt/model{i}.py", "line": i, "name": "forward"} for i in range(40)]
    entry = {"action": "alloc", "addr": 1, "size": 512, "stream": 0, "frames": stack}
    count = min(size, 150_000_000) // 60
    traces = [[{**entry, "addr": i} for i in range(count // 3)]]
    path.write_bytes(pickle.dumps({"segments": [], "device_traces": traces}))


def keys(path: Path, size: int) -> None:
    """A dictionary whose keys all have one hash: each is compared with those before it."""
    each = ((i * (2**61 - 1)).to_bytes(12, "little") for i in range(1, 200_000))
    path.write_bytes(b"\x80\x04}(" + b"".join(b"\x8a\x0c" + key + b"N" for key in each) + b"u.")


def aliases(depth: int) -> str:
    ten = ", ".join(["*a{0}"] * 10)
    lines = [f"a{i}: &a{i} [{ten.format(i - 1)}]" for i in range(1, depth)]
    return "\n".join(
        ["base_model: x", "a0: &a0 [x, x]", *lines, f"micro_batch_size: *a{depth - 1}"]
    )


def text(content: str) -> Writer:
    return lambda path, size: path.write_text(content, encoding="utf-8") and None


_MANY = 400_000  # characters of what is read whole: less than the most that is
_STATE = '{"best_metric": null, "global_step": 9, "log_history": ['
_RAN = ',{"step": 400, "train_runtime": 620.0}]}'
_TRACE = '{"schemaVersion": 1, "traceEvents": [\n'
_DIGITS = b"1" * 19_000
# name of a file, what makes it, and the verb that reads it
FILES: dict[str, tuple[str, Writer]] = {
    "megatron.log": ("check", of_lines(megatron)),
    "torchtitan.log": ("check", of_lines(torchtitan)),
    "verl.log": ("check", of_lines(verl)),
    "nemo-rl.log": ("check", of_lines(nemo_rl)),
    "names.log": ("check", of_bytes(b" - timing_s/step:" + b"a" * 19_000 + b"\n")),
    "bullets.log": ("check", of_bytes("\u2022 ".encode() + b"a/" * 9_500 + b"\n")),
    "mllog.log": ("check", of_lines(mllog)),
    "trainer_state.json": ("check", of_lines(history, _STATE, _RAN)),
    "history.csv": ("check", of_lines(lambda i: f"{i},{1.5 * i},2.5\n", "_step,_runtime,loss\n")),
    "trace.json": ("check", of_lines(kernel, _TRACE, "]}")),
    "no-line.log": ("check", of_bytes(b"elapsed time per iteration (ms): 1 |")),
    "zeros.log": ("check", of_bytes(b"\0")),
    "marks.log": ("check", of_bytes(b"tps: \n")),
    "digits.log": ("check", of_bytes(b"out of memory. Tried to allocate " + _DIGITS + b"\n")),
    "bar.log": ("check", of_bytes(b"| 1/2 [00:00<1," + _DIGITS + b" s/it\n")),
    "frames.log": ("check", of_bytes(b'File "' + b"/a" * 9000 + b", line 1\n")),
    "empty-lists.json": ("check", of_bytes(b"[],", b'{"log_history": [', b"{}]}")),
    "nested.json": ("check", of_bytes(b"[", b'{"log_history": [')),
    "numbers.json": ("check", of_bytes(b"1,", b'{"traceEvents": [', b"1]}")),
    "names.json": (
        "check",
        of_bytes(
            b'{"ph":"X","cat":"kernel","ts":1,"dur":1,"name":"' + b"n" * 3_000_000 + b'"},',
            b'{"traceEvents": [',
            b"{}]}",
        ),
    ),
    "wide.csv": ("check", of_bytes(b"1,", b"_step,_runtime\n")),
    "bomb.log.gz": ("check", packed),
    "code.pickle": ("check", code),
    "snapshot.pickle": ("check", frames),
    "memo.pickle": ("check", of_bytes(b"h\0", b"\x80\x04}\x94(", b"e.")),
    "numbers.pickle": ("check", of_bytes(b"M\x01\x02", b"\x80\x04](", b"e.")),
    "dictionaries.pickle": ("check", of_bytes(b"}", b"\x80\x04](", b"e.")),
    "keys.pickle": ("check", keys),
    "tuples.pickle": ("check", of_bytes(b"\x85", b"\x80\x04})", b"Ns.")),
    "recipe.yaml": ("read", of_lines(lambda i: f"key{i}: 1\n", "base_model: x\n")),
    "recipe.json": ("read", of_lines(lambda i: f'"k{i}": 1,\n', '{"zero_optimization": {}, ')),
    "script.sh": ("read", of_lines(lambda i: f"--option-{i} 1 \\\n", "torchrun pretrain_gpt.py ")),
    "aliases.yaml": ("read", text(aliases(12))),
    "deep.yaml": ("read", text("base_model: " + "[" * _MANY)),
    "deep.json": ("read", text('{"zero_optimization": ' + "[" * _MANY)),
    "deep.toml": ("read", text("[training]\nx = " + "[" * _MANY)),
    "anchors.yaml": (
        "read",
        text("base_model: x\n" + "".join(f"k{i}: &a {i}\n" for i in range(19_000))),
    ),
    "quotes.sh": ("read", text("torchrun pretrain_gpt.py --bf16 " + "$(" * (_MANY // 2))),
    "variables.sh": ("read", text("A=ab\n" + "A=$A$A\n" * 60 + "run --bf16 --num-layers $A")),
    "python.py": ("read", text("ConfigContainer\ncfg.a=" + "(" * _MANY)),
}


def cost(verb: str, path: Path) -> tuple[float, float, int, str]:
    """Seconds of one core, megabytes, exit status and the last line of the command that reads a
    file."""
    words = [sys.executable, "-c", "from planner.cli import main; main()", verb, str(path)]
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(words, stdout=output, stderr=subprocess.STDOUT, cwd=path.parent)
        _, status, used = os.wait4(process.pid, 0)
        seconds = used.ru_utime + used.ru_stime
        output.seek(0)
        lines = output.read().strip().splitlines()
    process.returncode = os.waitstatus_to_exitcode(status)
    return seconds, used.ru_maxrss / 1024, process.returncode, lines[-1] if lines else ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--bytes", type=float, default=2e9)
    parser.add_argument("--only", default="", help="files whose names contain this")
    given = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    worst = True
    print(f"{'file':24}{'MB':>8}{'s':>8}{'peak MB':>9}  status, end of what was said")
    for name, (verb, write) in FILES.items():
        if given.only not in name:
            continue
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / name
            write(path, int(given.bytes))
            seconds, megabytes, status, last = cost(verb, path)
            good = seconds <= SECONDS and megabytes <= MEGABYTES and status in (0, 2, 3)
            good = good and not (Path(folder) / "executed").exists()
            worst = worst and good
            size = path.stat().st_size / 1e6
        sign = "  " if good else " !"
        print(
            f"{name:24}{size:8.0f}{seconds:8.1f}{megabytes:9.0f}{sign}{status} {last[-70:]}",
            flush=True,
        )
    raise SystemExit(0 if worst else 1)


if __name__ == "__main__":
    main()
