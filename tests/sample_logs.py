"""Logs as training programs print them, with known numbers: written by these few lines, format by
format, after the print statements that each reader names."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

STEPS = 40
STAMP = "[2026-11-20 10:00:07]"


def wobble(i: int) -> float:
    """Steps are within 0.4 % of their middle."""
    return 1 + 0.002 * ((i * 7) % 5 - 2)


def times(middle: float, checkpoint: int = 25) -> list[float]:
    """Seconds of steps: two of warm-up, one behind a checkpoint."""
    items = [middle * wobble(i) for i in range(STEPS)]
    items[0], items[1], items[checkpoint] = 6 * middle, 1.4 * middle, 2.2 * middle
    return items


def megatron(middle: float = 1.5) -> str:
    lines = [
        "------------------------ arguments ------------------------",
        "  global_batch_size ............................... 64",
        "  seq_length ...................................... 2048",
        "  world_size ...................................... 8",
    ]
    for i, s in enumerate(times(middle)):
        if i == 25:
            lines.append("saving checkpoint at iteration      25 to /checkpoints in torch_dist")
        lines.append(
            f" {STAMP} iteration {i + 1:8d}/   10000 | consumed samples: {64 * (i + 1):12d} |"
            f" elapsed time per iteration (ms): {1e3 * s:.1f} | throughput per GPU (TFLOP/s/GPU):"
            f" {180 * middle / s:.1f} | learning rate: 3.000000E-04 | global batch size:    64 |"
            " lm loss: 9.114214E+00 | loss scale: 1.0 | grad norm: 1.042 | number of skipped"
            " iterations:   0 | number of nan iterations:   0 |"
        )
        if i == 1:
            lines.append(
                "[Rank 0] (after 2 iterations) memory (MB) | allocated: 18021.5 | max allocated:"
                " 20480.0 | reserved: 22528.0 | max reserved: 22528.0"
            )
    return "\n".join(lines) + "\n"


BRIDGE_MEMORY = (
    "train/0 [Rank 1] (after 2 iterations) memory (GB) | mem-allocated-gigabytes: 63.66 |"
    " mem-reserved-gigabytes: 182.2 | mem-max-allocated-gigabytes: 153.4 |"
    " mem-max-reserved-gigabytes: 182.24 | mem-alloc-retires: 0\n"
)


def bridge() -> str:
    return BRIDGE_MEMORY + "".join(
        f"train/0 Step Time : {s:.2f}s GPU utilization: {663.5 * 1.5 / s:.1f}MODEL_TFLOP/s/GPU\n"
        f"train/0  {STAMP} iteration {i + 1:8d}/      50 | consumed samples:        25600 |"
        f" elapsed time per iteration (ms): {1e3 * s:.1f} | learning rate: 3.000000E-05 | global"
        f" batch size:   512 | lm loss: 8.1E+00 | grad norm: 0.042 |\n"
        for i, s in enumerate(times(1.5))
    )


def nemo() -> str:
    return "".join(
        f"Training epoch 0, iteration {i}/249 | lr: 1.961e-06 | global_batch_size: 8 |"
        f" global_step: {i} | max_memory_reserved: 57466159104 | max_memory_allocated: 53930270720"
        f" | reduced_train_loss: 1.315 | train_step_timing in s: {s:.4g} |"
        f" consumed_samples: {8 * (i + 1)}\n"
        for i, s in enumerate(times(1.5))
    )


def torchtitan() -> str:
    """131,072 tokens of a step on 8 GPUs."""
    return "".join(
        f"[rank0]:[titan] 2026-11-20 10:00:{i:02d},1 - root - INFO - \x1b[31mstep: {i + 1:2} "
        f" \x1b[32mloss:  7.06123  \x1b[38;2;180;60;0mgrad_norm:  2.3110  \x1b[36mmemory:"
        f" 47.31GiB(49.80%)  \x1b[34mtps: {round(131072 / 8 / s):,}  \x1b[36mtflops: 406.21 "
        " \x1b[35mmfu: 41.07%\x1b[39m\n"
        for i, s in enumerate(times(1.5))
    )


def nanotron() -> str:
    return "".join(
        f"[default0]:11/20/2026 10:00:07 [INFO|DP=0|PP=0|TP=0|nid001]: iteration: {i + 1} / 100 |"
        f" consumed_tokens: 5.24M | elapsed_time_per_iteration_ms: {s:.3g}K | tokens_per_sec: 87.4K"
        " | tokens_per_sec_per_gpu: 10.9K | global_batch_size: 64 | lm_loss: 7.1 | lr: 0.0003 |"
        " model_tflops_per_gpu: 180 | hardware_tflops_per_gpu: 180 | grad_norm: 1.2\n"
        "[default0]:11/20/2026 10:00:07 [INFO|DP=0|PP=0|TP=0|nid001]:  Memory usage: 3221.27MiB."
        " Peak allocated 5703.86MiB. Peak reserved: 6688.00MiB\n"
        for i, s in enumerate(times(1.5))
    )


def deepspeed() -> str:
    return "".join(
        f"[2026-11-20 10:00:07,714] [INFO] [timer.py:260:stop] epoch=0/micro_step={4 * i + 4}/"
        f"global_step={i + 1}, RunningAvgSamplesPerSec=41.9, CurrSamplesPerSec={64 / s},"
        " MemAllocated=4.32GB, MaxMemAllocated=38.49GB\n"
        for i, s in enumerate(times(1.5))
    )


def maxtext() -> str:
    return "".join(
        f"I0131 11:17:{i:02d}.1 136759033735168 metric_logger.py:226] completed step: {i}, seconds:"
        f" {s:.3f}, TFLOP/s/device: {346.9 * 1.5 / s:.3f}, Tokens/s/device: {16384 / s:.3f},"
        " total_weights: 1572864, loss: 12.979\n"
        for i, s in enumerate(times(1.5))
    )


def torchtune() -> str:
    return "".join(
        f"Step {i + 1} | loss:1.2 lr:2e-05 tokens_per_second_per_gpu:{131072 / 8 / s}"
        " peak_memory_active:28.2 peak_memory_alloc:27.5 peak_memory_reserved:44.75 \n"
        for i, s in enumerate(times(1.5))
    )


def nanogpt() -> str:
    return "".join(
        f"iter {i}: loss 4.1234, time {s * 1000:.2f}ms, mfu 38.10%\n"
        for i, s in enumerate(times(1.5))
    )


def litgpt() -> str:
    """Two micro-batches of half of the time for each step."""
    return "".join(
        f"Epoch 1 | iter {2 * i + part} step {i - (part == 0) + part} | loss train: 1.234, val: n/a"
        f" | iter time: {s * 500:.2f} ms{' (step)' if part else ''} remaining time: 0:10:00\n"
        for i, s in enumerate(times(1.5))
        for part in (0, 1)
    )


def olmo() -> str:
    return "".join(
        f"2024-02-01T10:00:00.123 host:0 olmo.train:902 INFO [step={i}/739328,epoch=0]\n"
        f"    train/CrossEntropyLoss=2.500\n    throughput/total_tokens={i * 131072:,d}\n"
        f"    throughput/device/tokens_per_second={int(131072 / 8 / s):,d}\n"
        f"    throughput/device/batches_per_second={1 / s:.4f}\n"
        for i, s in enumerate(times(1.5))
    )


def old_deepspeed() -> str:
    return "".join(
        f"[2021-03-01 10:00:00,200] [INFO] [timer.py:157:stop] 0/{10 * i}, SamplesPerSec={64 / s}\n"
        for i, s in enumerate(times(1.5))
    )


def llama_factory() -> str:
    """Fifteen lines of ten steps each, the first slower."""
    return "".join(
        f'{{"current_steps": {10 * i}, "total_steps": 150, "loss": 1.2, "lr": 1e-06, "epoch": 0.1,'
        f' "percentage": 1.0, "elapsed_time": "0:{now // 60:02d}:{now % 60:02d}",'
        ' "remaining_time": "0:33:29"}\n'
        for i in range(1, 16)
        for now in [15 * i + 40]
    )


def ms_swift() -> str:
    """The speed is a mean since a slow start."""
    return "".join(
        f'{{"loss": 1.85, "acc": 0.5, "memory(GiB)": 15.75, "train_speed(iter/s)":'
        f' {i / (1.5 * i + 30):.9f}, "epoch": 0.1, "global_step/max_steps": "{i}/61"}}\n'
        for i in range(1, 61, 4)
    )


def verl_step(seconds: float) -> dict[str, Any]:
    """Metrics of a step of GRPO: 16 responses of 1,024 tokens, 8 GPUs, a third of it generation."""
    parts = {"gen": 0.35, "old_log_prob": 0.1, "ref": 0.1, "adv": 0.01, "update_actor": 0.4}
    times = {f"timing_s/{name}": share * seconds for name, share in parts.items()}
    return {
        "actor/pg_loss": -0.0125,
        "perf/max_memory_allocated_gb": 61.25,
        "perf/max_memory_reserved_gb": 70.5,
        "response_length/mean": 1024.0,
        "prompt_length/mean": 128.0,
        "timing_s/agent_loop/generate_sequences/max": 0.3 * seconds,
        **times,
        "timing_s/update_weights": 0.04 * seconds,
        "timing_s/step": seconds,
        "timing_per_token_ms/gen": 0.01,
        "perf/total_num_tokens": 18432,
        "perf/time_per_step": seconds,
        "perf/throughput": 18432 / seconds / 8,
    }


def verl() -> str:
    """One line of the terminal has only validation; some values are NumPy scalars."""
    lines = ["(TaskRunner pid=41) step:0 - val-core/openai/gsm8k/reward/mean@1:0.25"]
    for i, s in enumerate(times(1.5)):
        items = [f"step:{i + 1}", *(f"{name}:{value!r}" for name, value in verl_step(s).items())]
        line = " - ".join(items).replace(f"step:{s!r}", f"step:np.float64({s!r})")
        lines.append(f"\x1b[36m(TaskRunner pid=41)\x1b[0m {line}")
    return "\n".join(lines) + "\n"


def verl_file() -> str:
    """Its file logger, whose JSON has no blanks."""
    items = [{"step": i + 1, "data": verl_step(s)} for i, s in enumerate(times(1.5))]
    return "".join(json.dumps(entry, separators=(",", ":")) + "\n" for entry in items)


def verl_sft() -> str:
    return "".join(
        f"step:{i + 1} - train/loss:1.2045 - train/lr(1e-3):0.0095 - train/time(s):{s}\n"
        for i, s in enumerate(times(1.5))
    )


def verl_history() -> str:
    """Its export from Weights & Biases."""
    rows = [verl_step(s) for s in times(1.5)]
    lines = [",".join(map(str, (i, 10 * i, *row.values()))) for i, row in enumerate(rows)]
    return "\n".join([",".join(("_step", "_runtime", *rows[0])), *lines]) + "\n"


def nemo_rl() -> str:
    """A step of GRPO, its timers sorted by time, and what is printed of speeds."""
    parts = {"policy_training": 0.4, "generation": 0.35, "policy_and_reference_logprobs": 0.2}
    parts |= {"prepare_for_generation/total": 0.02, "data_processing": 0.02, "training_prep": 0.01}
    parts["prepare_for_generation/transfer_and_update_weights"] = 0.01
    lines = []
    for i, s in enumerate(times(1.5)):
        lines += [f"\n{'=' * 25} Step {i + 1}/100 {'=' * 25}", "▶ Preparing batch..."]
        lines += ["\n📊 Training Results:", "  • Loss: 0.0123", "  • Avg Reward: 0.3486"]
        lines += ["\n⏱️  Timing:", f"  • Total step time: {s:.2f}s"]
        lines += [f"  • {name}: {f * s:.2f}s ({100 * f:.1f}%)" for name, f in parts.items()]
        lines += ["  • Throughputs (per GPU):", f"    - E2E (Tokens/sec/gpu): {2304 / s:.2f}"]
        lines += ["  • Throughputs (per Group):", f"    - E2E (Tokens/sec): {18432 / s:.2f}"]
        lines += ["  • Training FLOPS: 1234.50 TFLOPS (154.31 TFLOPS per rank)"]
    return "\n".join(lines) + "\n"


def nemo_automodel() -> str:
    return "".join(
        f"2026-11-20 10:00:{i:02d} | INFO | root | step {i} | epoch 0 | loss 1.2045 | grad_norm"
        f" 0.9120 | lr 1.00e-05 | mem 41.25 GiB | tps {131072 / s:.2f}({131072 / s / 8:.2f}/gpu) |"
        " num_label_tokens 40960\n"
        for i, s in enumerate(times(1.5))
    )


def nemo_automodel_file() -> str:
    """training.jsonl, of steps with fewer tokens each."""
    items = [
        {"step": i, "epoch": 0, "timestamp": "2026-11-20T10:00:00.000Z", "loss": 1.2, "mem": 41.25}
        | {"tps": (130_000 - i) / s, "mfu": None, "num_tokens_per_step": 130_000 - i}
        for i, s in enumerate(times(1.5))
    ]
    return "".join(json.dumps(entry) + "\n" for entry in items)


def nemo_automodel_benchmark() -> str:
    return "".join(
        f"INFO:root:Rank 0 | Iteration {i} | num_label_tokens=131072 | Max Memory Allocated: 41.25"
        f" GB | loss=1.2045\nINFO:root:Max iter time: {s:.6f} seconds\nINFO:root:MFU: 41.2%\n"
        for i, s in enumerate(times(1.5))
    )


def huggingface() -> str:
    bar = "".join(
        f"\r{i:3d}%|#         | {i}/400 [00:{i:02d}<05:12,  1.50s/it]" for i in range(1, 30)
    )
    return (
        f"{bar}\n{{'loss': 1.2, 'grad_norm': 0.9, 'learning_rate': 2e-05, 'epoch': 0.1}}\n"
        "{'loss': '0.7', 'memory/max_active (GiB)': '3.1', 'memory/max_allocated (GiB)': '2.5',"
        " 'memory/device_reserved (GiB)': '4.25', 'epoch': '0.1'}\n"
        "{'eval_loss': 1.1, 'eval_runtime': 20.0, 'eval_steps_per_second': 2.0, 'epoch': 0.1}\n"
    )


def trainer_dictionary() -> str:
    """400 steps in 620 s, 20 s of them evaluation."""
    return (
        "{'eval_loss': 1.1, 'eval_runtime': 20.0, 'epoch': 0.1}\n{'train_runtime': 620.0,"
        " 'train_samples_per_second': 41.3, 'train_steps_per_second': 0.6451612903, 'train_loss':"
        " 1.2, 'epoch': 1.0}\n"
    )


def trainer_state() -> str:
    history = [
        *({"epoch": i / 40, "loss": 2.0, "learning_rate": 1e-5, "step": 10 * i} for i in range(40)),
        {"epoch": 1.0, "eval_loss": 1.1, "eval_runtime": 20.0, "step": 400},
        {"epoch": 1.0, "step": 400, "total_flos": 1e18, "train_loss": 1.2, "train_runtime": 620.0},
    ]
    return json.dumps({"best_metric": None, "global_step": 400, "log_history": history}, indent=2)


def mlperf() -> str:
    def line(now: float, key: str, value: Any, **meta: Any) -> str:
        values = {"namespace": "", "time_ms": int(1e3 * now), "event_type": "POINT_IN_TIME"}
        values |= {
            "key": key,
            "value": value,
            "metadata": {"file": "train.py", "lineno": 66, **meta},
        }
        return f"0: :::MLLOG {json.dumps(values)}\n"

    now = 1775725581.0
    lines = [line(now, "global_batch_size", 64), line(now, "max_sequence_length", 2048)]
    for i, s in enumerate(times(1.5)):
        now += s
        if i == 30:  # an evaluation does not count as a step
            lines.append(line(now, "eval_start", None))
            now += 30.0
        lines.append(line(now, "train_loss", 11.8, samples_count=64 * i))
    return "".join(lines)


def wandb_chart() -> str:
    head = '"Step","warm-sun-3 - time_metrics/end_to_end(s)","warm-sun-3 - x__MIN"\n'
    return head + "".join(f'"{i}","{s}","{s}"\n' for i, s in enumerate(times(1.5)))


def wandb_history() -> str:
    """Nothing but the clock tells the time of a step."""
    now, lines = 100.0, ["_step,_runtime,train/loss"]
    for i, s in enumerate(times(1.5)):
        now += 10 * s
        lines.append(f"{10 * i},{now},2.5")
    return "\n".join(lines) + "\n"


def tensorboard() -> str:
    head = "Wall time,Step,Value\n"
    return head + "".join(f"{1.7e9 + i},{i},{s}\n" for i, s in enumerate(times(1.5)))


# name of a file, its text, the program that it shows
LOGS: dict[str, tuple[Callable[[], str], str]] = {
    "megatron.log": (megatron, "Megatron-LM"),
    "bridge.log": (bridge, "Megatron Bridge"),
    "nemo.log": (nemo, "NeMo"),
    "torchtitan.log": (torchtitan, "torchtitan"),
    "nanotron.log": (nanotron, "nanotron"),
    "deepspeed.log": (deepspeed, "DeepSpeed"),
    "deepspeed-0.3.log": (old_deepspeed, "DeepSpeed"),
    "nanogpt.log": (nanogpt, "nanoGPT"),
    "litgpt.log": (litgpt, "LitGPT"),
    "olmo.log": (olmo, "OLMo"),
    "maxtext.log": (maxtext, "MaxText"),
    "torchtune.log": (torchtune, "torchtune"),
    "trainer_log.jsonl": (llama_factory, "LLaMA-Factory"),
    "logging.jsonl": (ms_swift, "ms-swift"),
    "verl.log": (verl, "verl"),
    "verl.jsonl": (verl_file, "verl"),
    "verl-sft.log": (verl_sft, "verl"),
    "nemo-rl.log": (nemo_rl, "NeMo RL"),
    "automodel.log": (nemo_automodel, "NeMo AutoModel"),
    "training.jsonl": (nemo_automodel_file, "NeMo AutoModel"),
    "benchmark.log": (nemo_automodel_benchmark, "NeMo AutoModel"),
    "huggingface.log": (huggingface, "Hugging Face Trainer"),
    "dictionary.log": (trainer_dictionary, "Hugging Face Trainer"),
    "trainer_state.json": (trainer_state, "Hugging Face Trainer"),
    "mlperf.log": (mlperf, "MLPerf mllog"),
    "chart.csv": (wandb_chart, "Weights & Biases CSV"),
    "history.csv": (wandb_history, "Weights & Biases CSV"),
    "verl.csv": (verl_history, "Weights & Biases CSV"),
    "run-a-tag-iteration-time.csv": (tensorboard, "TensorBoard CSV"),
}

OUT_OF_MEMORY = """Traceback (most recent call last):
  File "/opt/train.py", line 41, in train
    loss.backward()
  File "/opt/torch/_tensor.py", line 581, in backward
    torch.autograd.backward(
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 4.00 GiB. GPU 3 has a total capacity\
 of 79.15 GiB of which 1.50 GiB is free. Process 412 has 77.65 GiB memory in use. Of the allocated\
 memory 70.25 GiB is allocated by PyTorch, and 6.00 GiB is reserved by PyTorch but unallocated. If\
 reserved but unallocated memory is large try setting PYTORCH_CUDA_ALLOC_CONF=\
expandable_segments:True to avoid fragmentation.
"""
# a script that a 24 GB card is too small for, and what it prints
SCRIPT = """
from peft import LoraConfig
from transformers import AutoModelForCausalLM
from trl import SFTConfig, SFTTrainer

model = AutoModelForCausalLM.from_pretrained("meta-llama/Llama-3.1-8B", torch_dtype="bfloat16")
args = SFTConfig(
    output_dir="out",
    per_device_train_batch_size={micro},
    gradient_accumulation_steps=4,
    max_length=2048,
    bf16=True,
    gradient_checkpointing={recompute},
)
peft = LoraConfig(r=16, target_modules="all-linear")
SFTTrainer(model=model, args=args, train_dataset=data, peft_config=peft).train()
"""
TRACEBACK = """Traceback (most recent call last):
  File "/srv/train.py", line 17, in <module>
  File "/opt/transformers/models/llama/modeling_llama.py", line 176, in forward
"""
CARD_IS_FULL = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 224.00 MiB. GPU 0 has a total"
    " capacity of 23.52 GiB of which {free} is free. Including non-PyTorch memory, this process has"
    " {process} memory in use. Of the allocated memory {allocated} is allocated by PyTorch, and"
    " 372.45 MiB is reserved by PyTorch but unallocated.\n"
)
FULL_CARD = {"free": "92.00 MiB", "process": "23.42 GiB", "allocated": "22.60 GiB"}
OLD_OUT_OF_MEMORY = (
    "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 31.75 GiB total capacity;"
    " 28.00 GiB already allocated; 0.50 GiB free; 28.25 GiB reserved in total by PyTorch)\n"
)


# what has no traceback of torch's allocator: XLA's, the driver's and NCCL's
XLA_OUT_OF_MEMORY = (
    "jax.errors.JaxRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate"
    " 60.91GiB.\n"
)
OUTSIDE = (
    "RuntimeError: CUDA error: out of memory\n",
    "nid1:412 [3] transport/net.cc:118 NCCL WARN Cuda failure 2 'out of memory'\n",
    "torch.distributed.DistBackendError: NCCL error: Failed to CUDA calloc async 608 bytes\n",
)


def trace(steps: int = 2) -> str:
    """A step of 100 ms: 50 of GEMMs, 10 of attention, 20 of all-reduce half beside them, the rest
    idle."""
    events: list[dict[str, Any]] = [{"ph": "M", "name": "process_name", "pid": 0, "args": {}}]
    for i in range(steps):
        at = 1e6 + i * 100_000
        events.append(
            {"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{i}", "ts": at, "dur": 9e4}
        )
        for name, start, length in (
            ("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n", 0, 50_000),
            ("void flash::flash_bwd_kernel<128>(flash::Params)", 50_000, 10_000),
            ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgs)", 50_000, 20_000),
            ("void at::native::vectorized_elementwise_kernel<4>", 95_000, 5_000),
        ):
            events.append(
                {"ph": "X", "cat": "kernel", "name": name, "ts": at + start, "dur": length}
                | {"pid": 0, "tid": 7, "args": {"device": 0, "stream": 7}}
            )
    return json.dumps({"schemaVersion": 1, "deviceProperties": [], "traceEvents": events}, indent=1)


def snapshot() -> dict[str, Any]:
    """12 GiB reserved, 8 of them allocated: 6 of activations and 2 without a known stack."""
    gib = 2**30
    stack = [{"filename": "/opt/model.py", "line": 3, "name": "forward"}]
    blocks = [
        {"size": 6 * gib, "requested_size": 6 * gib, "address": 1, "state": "active_allocated"}
        | {"frames": stack},
        {"size": 2 * gib, "requested_size": 2 * gib, "address": 2, "state": "active_allocated"}
        | {"frames": []},
        {"size": 4 * gib, "requested_size": 0, "address": 3, "state": "inactive", "frames": []},
    ]
    segment = {"device": 0, "address": 1, "total_size": 12 * gib, "stream": 0, "blocks": blocks}
    events = [
        {"action": "alloc", "addr": 1, "size": 6 * gib, "stream": 0, "frames": stack},
        {"action": "alloc", "addr": 2, "size": 2 * gib, "stream": 0, "frames": []},
        {"action": "alloc", "addr": 3, "size": 3 * gib, "stream": 0, "frames": stack},
        {"action": "free_completed", "addr": 3, "size": 3 * gib, "stream": 0, "frames": []},
        {"action": "oom", "size": 5 * gib, "device_free": gib, "stream": 0, "frames": stack},
    ]
    return {"segments": [segment], "device_traces": [events], "allocator_settings": {}}


def write(folder: Path, name: str) -> Path:
    """One of LOGS, the trace, or the snapshot, in a folder."""
    path = folder / name
    if name.endswith(".pickle"):
        path.write_bytes(pickle.dumps(snapshot()))
    else:
        text = trace() if name == "trace.json" else LOGS[name][0]()
        path.write_text(text, encoding="utf-8", newline="")
    return path
