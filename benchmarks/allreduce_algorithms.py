"""All-reduce algorithms really run, beside what the formulas say: ring, double binary tree,
recursive doubling, halving and doubling, parameter server, and a ring of 16-bit codes, with
torch.distributed's gloo send and receive among processes.

    python benchmarks/allreduce_algorithms.py                      processes on the loopback device
    python benchmarks/allreduce_algorithms.py --rate 200mbit       each in a network namespace of
    its own (as root, Linux)

The start of a message and the time per byte are fitted to the smallest and the largest message of
three kinds: one at a time between two processes; all processes exchanging in pairs (gloo has one
connection for both directions); all sending to their right neighbour. What a start takes is the
work of processors, which all processes share, so it is measured with as many of them at work as the
algorithm has. The formulas of planner/formulas get these numbers and nothing else. Printed: seconds
measured and predicted, both rankings, and where algorithms overtake each other.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.append(str(Path(__file__).resolve().parents[1]))

from planner.formulas.all_reduce import halving_doubling_s, parameter_server_s, recursive_doubling_s
from planner.formulas.collectives import ring_inter_s, tree_inter_s

SIZES = [2**power for power in (10, 14, 15, 16, 17, 18, 20, 22)]  # bytes of fp32 gradients
PINGS = [2**10, 2**22]
CHUNK = 2**20  # bytes that a tree passes on at a time, as formulas.collectives has it
SUBNET = "10.77.0"


def ring(x: Any, rank: int, n: int) -> None:
    """n-1 steps of reduce-scatter, n-1 of all-gather."""
    import torch

    parts = list(x.chunk(n))
    to, back = (rank + 1) % n, (rank - 1) % n
    for phase in range(2):
        for step in range(n - 1):
            out = parts[(rank - step + phase) % n]
            at = (rank - step - 1 + phase) % n
            into = torch.empty_like(parts[at])
            exchange(out, to, into, back)
            if phase == 0:
                parts[at] += into
            else:
                parts[at].copy_(into)


def exchange(out: Any, to: int, into: Any, source: int) -> None:
    import torch.distributed as dist

    sent = dist.isend(out, to)
    dist.irecv(into, source).wait()
    sent.wait()


def doubling(x: Any, rank: int, n: int) -> None:
    import torch

    distance = 1
    while distance < n:
        into = torch.empty_like(x)
        exchange(x.clone(), rank ^ distance, into, rank ^ distance)
        x += into
        distance *= 2


def halving(x: Any, rank: int, n: int) -> None:
    import torch

    low, high, distance, halves = 0, x.numel(), 1, []
    while distance < n:
        middle = (low + high) // 2
        halves.append((low, high))
        mine, other = (
            ((low, middle), (middle, high))
            if not rank & distance
            else ((middle, high), (low, middle))
        )
        into = torch.empty(mine[1] - mine[0])
        exchange(x[other[0] : other[1]], rank ^ distance, into, rank ^ distance)
        x[mine[0] : mine[1]] += into
        low, high = mine
        distance *= 2
    while distance > 1:
        distance //= 2
        first, last = halves.pop()
        other = (first, low) if low > first else (high, last)
        into = torch.empty(other[1] - other[0])
        exchange(x[low:high], rank ^ distance, into, rank ^ distance)
        x[other[0] : other[1]] = into
        low, high = first, last


def in_order(first: int, last: int, parent: int, out: dict[int, tuple[int, list[int]]]) -> int:
    """A binary tree over ranks first to last, its leaves every other rank; returns its root."""
    if first == last:
        out[first] = (parent, [])
        return first
    size = last - first + 1
    root = first + 2 ** ((size).bit_length() - 1) - 1
    children = [
        in_order(a, b, root, out) for a, b in ((first, root - 1), (root + 1, last)) if a <= b
    ]
    out[root] = (parent, children)
    return root


def tree(x: Any, rank: int, n: int) -> None:
    """Two trees, the second mirrored, each with half of the tensor, chunk after chunk."""
    import torch
    import torch.distributed as dist

    nodes: dict[int, tuple[int, list[int]]] = {}
    in_order(0, n - 1, -1, nodes)
    other = {
        n - 1 - r: (n - 1 - p if p >= 0 else -1, [n - 1 - c for c in cs])
        for r, (p, cs) in nodes.items()
    }
    places = [
        (nodes[rank], half.split(max(CHUNK // 4, 1)))
        for nodes, half in zip((nodes, other), x.chunk(2), strict=True)
    ]
    up, down, sent = {}, {}, []
    for t, ((parent, children), chunks) in enumerate(places):
        for k, chunk in enumerate(chunks):
            for child in children:
                into = torch.empty_like(chunk)
                up[t, k, child] = into, dist.irecv(into, child, tag=4 * k + 2 * t)
            if parent >= 0:
                into = torch.empty_like(chunk)
                down[t, k] = into, dist.irecv(into, parent, tag=4 * k + 2 * t + 1)
    for k in range(max(len(chunks) for _, chunks in places)):
        for t, ((parent, children), chunks) in enumerate(places):
            if k >= len(chunks):
                continue
            for child in children:
                into, work = up[t, k, child]
                work.wait()
                chunks[k].add_(into)
            if parent >= 0:
                sent.append(dist.isend(chunks[k].clone(), parent, tag=4 * k + 2 * t))
            else:
                sent += [dist.isend(chunks[k], child, tag=4 * k + 2 * t + 1) for child in children]
    for (t, k), (into, work) in down.items():
        (_, children), chunks = places[t]
        work.wait()
        chunks[k].copy_(into)
        sent += [dist.isend(chunks[k], child, tag=4 * k + 2 * t + 1) for child in children]
    for work in sent:
        work.wait()


def server(x: Any, rank: int, n: int) -> None:
    """Rank n, which has no gradients of its own, adds what n workers push and sends the sum to
    all."""
    import torch
    import torch.distributed as dist

    if rank < n:
        dist.isend(x, n).wait()
        dist.irecv(x, n).wait()
        return
    waiting = [
        (buffer, dist.irecv(buffer, r)) for r in range(n) for buffer in (torch.empty_like(x),)
    ]
    for buffer, work in waiting:
        work.wait()
        x += buffer
    for work in [dist.isend(x, r) for r in range(n)]:
        work.wait()


def half_ring(x: Any, rank: int, n: int) -> None:
    code = x.half()
    ring(code, rank, n)
    x.copy_(code)


ALGORITHMS: dict[str, Callable[[Any, int, int], None]] = {
    "ring": ring,
    "tree": tree,
    "doubling": doubling,
    "halving": halving,
    "server": server,
    "ring 16 bit": half_ring,
}


def one_rank(rank: int, n: int, repeats: int) -> dict[str, Any]:
    """Seconds of every algorithm and size on this rank, the median of repeats; and of messages from
    rank 0 to rank 1."""
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo", rank=rank, world_size=n + 1)
    torch.set_num_threads(1)

    def timed(work: Callable[[], None], check: Callable[[], None] | None = None) -> float:
        taken = []
        for i in range(repeats + 1):
            dist.barrier()
            started = time.perf_counter()
            work()
            if i:  # the first opens connections
                taken.append(time.perf_counter() - started)
            if check is not None and i == 0:
                check()
        return statistics.median(taken)

    def ping(size: int) -> Callable[[], None]:
        x = torch.zeros(size // 4)

        def there_and_back() -> None:
            if rank == 0:
                dist.send(x, 1)
                dist.recv(x, 1)
            elif rank == 1:
                dist.recv(x, 0)
                dist.send(x, 0)

        return there_and_back

    def both_ways(size: int) -> Callable[[], None]:
        x, y = torch.zeros(size // 4), torch.zeros(size // 4)

        def twice() -> None:
            for _ in range(2 if rank < n else 0):
                exchange(x, rank ^ 1, y, rank ^ 1)

        return twice

    def around(size: int) -> Callable[[], None]:
        x, y = torch.zeros(size // 4), torch.zeros(size // 4)

        def twice() -> None:
            for _ in range(2 if rank < n else 0):
                exchange(x, (rank + 1) % n, y, (rank - 1) % n)

        return twice

    seconds: dict[str, Any] = {
        name: [timed(call(size)) / 2 for size in PINGS]
        for name, call in (("pings", ping), ("exchanges", both_ways), ("shifts", around))
    }
    for name, run in ALGORITHMS.items():
        seconds[name] = []
        for size in SIZES:
            x = torch.zeros(size // 4)

            def work(
                run: Callable[[Any, int, int], None] = run, x: Any = x, name: str = name
            ) -> None:
                x.fill_(float(rank + 1) if rank < n else 0.0)
                if rank < n or name == "server":
                    run(x, rank, n)

            def check(x: Any = x, name: str = name) -> None:
                if rank < n and not bool((x == n * (n + 1) / 2).all()):
                    raise SystemExit(f"{name}: wrong sum")

            seconds[name].append(timed(work, check))
    dist.barrier()
    dist.destroy_process_group()
    return seconds


Link = tuple[float, float]  # start of a message in seconds, bytes per second


def predicted(name: str, size: float, n: int, way: Link, pair: Link, shift: Link) -> float:
    """Seconds by the formulas for `n` ranks, each behind a link of its own.

    way: of one message at a time; pair: of all ranks exchanging in pairs; shift: of all sending to
    their right neighbour.
    """
    start_s, bytes_per_s = way
    link = {"base_s": 0.0, "latency_s": 2 * start_s, "hop_s": start_s}
    exchanged = {
        "base_s": 0.0,
        "latency_s": 2 * pair[0],
        "hop_s": pair[0],
        "pair_bytes_per_s": pair[1],
        "card_bytes_per_s": pair[1],
        "ramp": 0.0,
    }
    if name in ("ring", "ring 16 bit"):
        size = size / 2 if name == "ring 16 bit" else size
        ring_link = {"base_s": 0.0, "latency_s": 2 * shift[0], "hop_s": shift[0]}
        return float(ring_inter_s(size, n, n, 2.0, node_bytes_per_s=shift[1], **ring_link))
    if name == "tree":
        return float(tree_inter_s(size, n, 1.0, node_bytes_per_s=bytes_per_s, **link))
    if name == "doubling":
        return float(recursive_doubling_s(size, n, 1.0, **exchanged))
    if name == "halving":
        return float(halving_doubling_s(size, n, 1.0, **exchanged))
    return float(
        parameter_server_s(
            size,
            n,
            1.0,
            base_s=0.0,
            hop_s=start_s,
            worker_bytes_per_s=bytes_per_s,
            server_bytes_per_s=bytes_per_s,
        )
    )


def fitted(taken: list[float]) -> Link:
    """(start of a message, bytes per second): what the smallest message takes, and what the largest
    takes longer."""
    return taken[0], (PINGS[-1] - PINGS[0]) / (taken[-1] - taken[0])


def crossing(sizes: list[int], below: list[float], above: list[float]) -> float | None:
    """Size at which `above` becomes the faster of two, between sizes by straight lines in
    logarithms."""
    ratio = np.log(np.array(below) / np.array(above))
    for i in range(len(sizes) - 1):
        if ratio[i] < 0 <= ratio[i + 1]:
            share = -ratio[i] / (ratio[i + 1] - ratio[i])
            return float(sizes[i] * (sizes[i + 1] / sizes[i]) ** share)
    return None


def report(measured: dict[str, list[float]], links: tuple[Link, Link, Link], n: int) -> None:
    for place, (start, rate) in zip(
        ("one at a time", "all in pairs", "all to the right"), links, strict=True
    ):
        print(f"{n} ranks; messages, {place}: start {start * 1e6:.0f} us, {rate / 1e6:.1f} MB/s")
    print("seconds measured / predicted, in ms")
    print(
        f"{'bytes':>9}  "
        + "  ".join(f"{name:>17}" for name in measured)
        + "  fastest measured, predicted"
    )
    forecast = {name: [predicted(name, size, n, *links) for size in SIZES] for name in measured}
    same, concordant, pairs = 0, 0, 0
    for i, size in enumerate(SIZES):
        cells = [
            f"{1e3 * measured[name][i]:8.2f} {1e3 * forecast[name][i]:8.2f}" for name in measured
        ]
        exact = [name for name in measured if name != "ring 16 bit"]
        best, guess = (
            min(exact, key=lambda name, t=table, i=i: t[name][i]) for table in (measured, forecast)
        )  # type: ignore[misc]
        same += best == guess
        for j, first_name in enumerate(exact):
            for other in exact[j + 1 :]:
                a, b = (
                    measured[first_name][i] / measured[other][i],
                    forecast[first_name][i] / forecast[other][i],
                )
                if abs(np.log(b)) > np.log(1.15):  # predicted to differ by more than 15 %
                    pairs += 1
                    concordant += (a > 1) == (b > 1)
        print(f"{size:9}  " + "  ".join(f"{cell:>17}" for cell in cells) + f"  {best}, {guess}")
    errors = {
        name: [p / m - 1 for p, m in zip(forecast[name], measured[name], strict=True)]
        for name in measured
    }
    print(
        "median error  "
        + "  ".join(f"{name} {100 * statistics.median(e):+.0f} %" for name, e in errors.items())
    )
    print(
        f"fastest of the exact ones right in {same} of {len(SIZES)} sizes; {concordant} of {pairs}"
        " pairs that should differ by more than 15 % are in the predicted order"
    )
    for first_name, other in (("doubling", "halving"), ("doubling", "ring"), ("tree", "ring")):
        real, ours = (
            crossing(SIZES, table[first_name], table[other]) for table in (measured, forecast)
        )
        shown = [f"{x / 1024:.0f} KiB" if x else "none" for x in (real, ours)]
        print(f"{other} overtakes {first_name} from: measured {shown[0]}, predicted {shown[1]}")


def shell(words: str) -> None:
    subprocess.run(words.split(), check=True, capture_output=True)


def namespaces(count: int, rate: str) -> list[str]:
    """Network namespaces on one bridge, each behind a link of `rate` in both directions."""
    shell("ip link add dpplan-br type bridge")
    shell("ip link set dpplan-br up")
    names = []
    for i in range(count):
        name = f"dpplan{i}"
        shell(f"ip netns add {name}")
        names.append(name)
        shell(f"ip link add dpv{i} type veth peer name eth0 netns {name}")
        shell(f"ip link set dpv{i} master dpplan-br up")
        shell(f"ip -n {name} addr add {SUBNET}.{i + 1}/24 dev eth0")
        shell(f"ip -n {name} link set eth0 up")
        shell(f"ip -n {name} link set lo up")
        limit = f"tbf rate {rate} burst 16kb latency 10s"
        shell(f"ip netns exec {name} tc qdisc add dev eth0 root {limit}")
        # a receiver takes no more than its own link either: what arrives is shaped on the bridge's
        # side
        shell(f"tc qdisc add dev dpv{i} root {limit}")
    return names


def clear(count: int) -> None:
    for i in range(count):
        subprocess.run(["ip", "netns", "del", f"dpplan{i}"], capture_output=True)
        subprocess.run(["ip", "link", "del", f"dpv{i}"], capture_output=True)
    subprocess.run(["ip", "link", "del", "dpplan-br"], capture_output=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ranks", type=int, default=4, choices=(2, 4, 8))
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--rate", help="link of each rank, as tc writes it: 100mbit; needs root")
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.rank is not None:
        print(json.dumps(one_rank(given.rank, given.ranks, given.repeats)))
        return
    count = given.ranks + 1  # and the parameter server
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    where = f"{SUBNET}.1" if given.rate else "127.0.0.1"
    try:
        names = namespaces(count, given.rate) if given.rate else []
        running = []
        for rank in range(count):
            inside = ["ip", "netns", "exec", names[rank]] if names else []
            words = [
                *inside,
                sys.executable,
                __file__,
                "--rank",
                str(rank),
                "--ranks",
                str(given.ranks),
                "--repeats",
                str(given.repeats),
            ]
            device = {
                "GLOO_SOCKET_IFNAME": "eth0" if names else "lo",
                "TORCH_CPP_LOG_LEVEL": "ERROR",
            }
            environment = os.environ | device | {"MASTER_ADDR": where, "MASTER_PORT": str(port)}
            running.append(
                subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=environment)
            )
        out = [process.communicate(timeout=900)[0] for process in running]
        if any(process.returncode for process in running):
            raise SystemExit("a rank failed; see above")
    finally:
        if given.rate:
            clear(count)
    outputs = [json.loads(text.splitlines()[-1]) for text in out]
    slowest = {
        name: [max(output[name][i] for output in outputs[: given.ranks]) for i in range(len(SIZES))]
        for name in ALGORITHMS
    }
    together = (
        [
            max(each)
            for each in zip(*(output[name] for output in outputs[: given.ranks]), strict=True)
        ]
        for name in ("exchanges", "shifts")
    )
    pair, shift = (fitted(taken) for taken in together)
    report(slowest, (fitted(outputs[0]["pings"]), pair, shift), given.ranks)


if __name__ == "__main__":
    main()
