"""Models that can be traced, and how exactly their files count.

    python -m benchmarks.traced_coverage [--group causal vlm ...] [--only llama ...] [--every 4]
    python -m benchmarks.traced_coverage --out docs/data/traced.csv
    python -m benchmarks.traced_coverage --out docs/data/traced.csv --table

With --out each row is written at once, and models of that file are not traced again;
--table prints their summary as Markdown and traces nothing.

Every type of transformers with a class of a group, in a drawn order, as its configuration class
builds it but with few layers, and a drawn set of timm, torchvision and diffusers. Per model, at a
batch and a length that were not traced: FLOP forward by torch's FlopCounterMode, and bytes that
autograd saves by saved_tensors_hooks, against the traced file. Where a rule reads the
configuration as well: its parameters less the class's, and its FLOP against the file's.
Seconds on one core.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import datetime
import importlib
import json
import logging
import os
import random
import re
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode, conv_flop_count

from benchmarks.traced_configs import STATED
from benchmarks.traced_models import rule_over_file
from planner.error import PlanError
from planner.formulas.params import parameter_count
from planner.inputs import catalog, huggingface
from planner.specs.layers import layers_of
from planner.specs.model import ModelSpec
from planner.specs.parts import Traced
from planner.trace import kernels, libraries, targets, verb, worker
from planner.trace.aggregate import TraceError
from planner.trace.autocast import as_on_cuda
from planner.trace.options import TraceOptions
from planner.trace.target import Target

_SECONDS, _BYTES = 60, 6_000_000_000  # of a model
_DEPTH, _DEEPEST = 2, 8  # layers of a uniform stack, and of one whose layers differ
_DEPTHS = (
    "num_hidden_layers",
    "num_layers",
    "n_layer",
    "n_layers",
    "num_encoder_layers",
    "num_decoder_layers",
    "encoder_layers",
    "decoder_layers",
    "depth",
    "num_blocks",
    "encoder_num_hidden_layers",
    "decoder_num_hidden_layers",
    "text_encoder_layers",
)
GROUPS = {
    "causal": ("MODEL_FOR_CAUSAL_LM_MAPPING_NAMES",),
    "masked": ("MODEL_FOR_MASKED_LM_MAPPING_NAMES",),
    "seq2seq": ("MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES",),
    "vlm": ("MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES",),
    "audio": (
        "MODEL_FOR_CTC_MAPPING_NAMES",
        "MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING_NAMES",
        "MODEL_FOR_AUDIO_CLASSIFICATION_MAPPING_NAMES",
    ),
    "vision": (
        "MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES",
        "MODEL_FOR_IMAGE_MAPPING_NAMES",
        "MODEL_FOR_VIDEO_CLASSIFICATION_MAPPING_NAMES",
    ),
}
_LETTERS = 32  # words of a classifier of sounds
_SEED = 38
_DRAWN = {"timm": 30, "torchvision": 18}  # models drawn of a library, with a fixed seed


def shrunk(config: Any) -> Any:
    """A configuration with few layers, one of every kind among them, and its towers'."""
    lists = [x for x in vars(config).values() if isinstance(x, list) and len(x) > _DEPTH]
    depths = {vars(config).get(name) for name in _DEPTHS}
    named = [x for x in lists if len(x) in depths and all(isinstance(y, str) for y in x)]
    firsts = [x.index(kind) + 1 for x in named for kind in set(x)]
    depth = min(max([_DEPTH, *firsts]), _DEEPEST)
    if getattr(config, "num_kv_shared_layers", 0):  # the last ones read what others wrote
        config.num_kv_shared_layers, depth = depth, 2 * depth
    for key, value in vars(config).items():
        if key in _DEPTHS and isinstance(value, int) and value > depth:
            setattr(config, key, depth)
        elif isinstance(value, list) and len(value) in depths and len(value) > depth:
            setattr(config, key, value[:depth])
        elif hasattr(value, "sub_configs"):
            shrunk(value)
    return config


def agreed(config: Any) -> Any:
    """A tower that hands on what the language model takes, which default fields need not."""
    text = getattr(getattr(config, "text_config", None), "hidden_size", None)
    vision, audio = (getattr(config, name, None) for name in ("vision_config", "audio_config"))
    if text is not None and audio is not None and hasattr(audio, "output_dim"):
        audio.output_dim = text
    adapter = getattr(config, "adapter_config", None)
    if text is not None and adapter is not None and hasattr(adapter, "text_hidden_size"):
        adapter.text_hidden_size = text
    if text is None or vision is None:
        return config
    if hasattr(vision, "out_hidden_size"):
        vision.out_hidden_size = text
    elif config.model_type == "janus":
        vision.projection_dim = text
    elif config.model_type == "qwen2_vl":
        vision.hidden_size = text
    elif config.model_type == "ovis2":
        config.hidden_size = text
    return config


def types(group: str) -> dict[str, str]:
    """Class by type of a group."""
    from transformers.models.auto import modeling_auto

    out: dict[str, str] = {}
    for table in GROUPS[group]:
        for kind, name in getattr(modeling_auto, table).items():
            out.setdefault(kind, name if isinstance(name, str) else name[0])
    return out


def config_of(kind: str, name: str) -> Any:
    """The configuration of a class of transformers."""
    import transformers

    stated = json.loads((Path(__file__).parents[1] / "tests/data/hf_configs.json").read_text())
    causal = stated["defaults"].get(kind, {}) if name.endswith("ForCausalLM") else {}
    fields = {**causal, **STATED.get(kind, {})}
    config = agreed(shrunk(transformers.AutoConfig.for_model(kind, **fields)))
    if getattr(config, "vocab_size", 0) is None:  # of a tower that is trained to give words
        config.vocab_size = _LETTERS
    config.architectures = [name]
    return config


def of_type(kind: str, name: str) -> Target:
    """The target of a class of transformers."""
    return targets.of_config(config_of(kind, name))


def of_rule(kind: str, name: str, trained: int, file: ModelSpec, tokens: int) -> dict[str, float]:
    """Counts of the rule of a type: parameters less the trained ones of the class, and FLOP of
    tokens over the file's; empty where no rule reads the configuration. Both count the experts per
    token that the class computes."""
    keys = json.loads(json.dumps(config_of(kind, name).to_dict(), default=str))
    if keys.get("is_encoder_decoder"):
        return {}  # rules state the lengths of both sequences, traces have them equal
    try:
        rule, _ = huggingface.read_keys({**keys, "model_type": kind}, "config.json", kind)
    except PlanError:
        return {}
    flop = rule_over_file(rule, file, tokens) - 1
    return {"rule": parameter_count(rule) - trained, "rule_flop": flop}


def file_counts(model: ModelSpec, batch: int, tokens: int) -> tuple[float, float]:
    """FLOP forward, and bytes that autograd saves, of a traced file."""
    b, s = float(batch), float(tokens)
    head = model.head_rows * model.hidden if model.vocab else 0
    flop = 2.0 * b * s * head
    saved = 2.0 * b * s * model.hidden * bool(head)
    layers = layers_of(model)
    for kind, count in zip(layers.kinds, layers.counts, strict=True):
        for part in kind.parts:
            assert isinstance(part, Traced)
            each = sum(2.0 * g.rows.at(b, s) * g.k * g.n * g.times for g in part.gemms)
            each += sum(
                2.0 * m.batch.at(b, s) * m.m.at(b, s) * m.k.at(b, s) * m.n.at(b, s)
                for m in part.multiplied
            )
            for a in part.attention:
                pairs = a.queries.at(b, s) * a.keys.at(b, s) * a.groups.at(b, s) * b
                each += 2.0 * pairs * a.heads * (a.head_dim + (a.value_dim or a.head_dim)) * a.times
            flop += count * float(each)
            saved += count * float(2 * part.saved.at(b, s) + part.saved_bytes.at(b, s))
    return flop, saved


def _convolution(image: Any, weight: Any, bias: Any, *args: Any, out_val: Any, **words: Any) -> int:
    """FLOP of a convolution."""
    return int(conv_flop_count(image.shape, weight.shape, out_val.shape, transposed=args[3]))


def _grouped(left: Any, right: Any, *args: Any, out_val: Any, **words: Any) -> int:
    """FLOP of a GEMM of experts side by side, which torch does not count."""
    return int(2 * left.shape[-1] * out_val.numel())


for formula in (_convolution, _grouped):
    setattr(formula, "_get_raw", True)  # noqa: B010


def counted(target: Target, batch: int, tokens: int, autocast: bool) -> tuple[float, float]:
    """FLOP forward, and bytes that autograd saves, of a module by torch's own counter and hooks."""
    module, inputs = target.build(batch, tokens)
    dtype = kernels.dtype_of(autocast)
    module = worker._cast(module, dtype).train()
    weights = {x.untyped_storage()._cdata for x in module.parameters()}
    shapes = {shape for x in module.parameters() for shape in (x.shape, x.shape[::-1])}
    bytes_of: dict[int, tuple[int, Any]] = {}

    def pack(x: torch.Tensor) -> torch.Tensor:
        storage = x.untyped_storage()
        copied = autocast and x.shape in shapes  # of a weight, not an activation
        if storage._cdata not in weights and not copied:
            wide = x.dtype == torch.bfloat16
            size = storage.nbytes() if not wide else 2 * (storage.nbytes() // x.element_size())
            bytes_of.setdefault(storage._cdata, (size, storage))
        return x

    mapping = {torch.ops.aten.convolution: _convolution, torch.ops.aten._grouped_mm: _grouped}
    if hasattr(torch.ops.transformers, "grouped_mm_fallback"):
        mapping[torch.ops.transformers.grouped_mm_fallback] = _grouped
    counter = FlopCounterMode(display=False, custom_mapping=mapping)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x), counter:
        run = worker._call(module, worker._with_dtype(inputs, dtype))
        output = (as_on_cuda()(run) if autocast else run)()
    del output
    return float(counter.get_total_flops()), float(sum(size for size, _ in bytes_of.values()))


_MIXED = re.compile("scalar type|Unsupported dtype")  # code that does not run in 16 bit


def compared(make: Callable[[], Target], name: str) -> dict[str, Any]:
    """Printed figures of a model, in 16 bit, or in the types of autocast where it needs them."""
    try:
        return compared_in(make, name, False)
    except RuntimeError as error:
        if not _MIXED.search(str(error)):
            raise
    return compared_in(make, name, True)


def compared_in(make: Callable[[], Target], name: str, autocast: bool) -> dict[str, Any]:
    """Trace and torch compared, with or without autocast."""
    began = time.process_time()
    with kernels.without_data(autocast):
        target = make()
        answer = worker.trace(target, autocast, frozen=False)
        if target.otherwise is not None and "pixels" not in answer["model"]:
            target = target.otherwise
        seconds = time.process_time() - began
        keys = verb._keys(TraceOptions(target=name, name="traced"), answer)
        model = catalog.build(ModelSpec, keys, "TARGET", "traced")
        verb._check(TraceOptions(target=name), model, answer)
        batch, tokens = 7, 1
        if target.length is not None:
            first, second, *_, last = worker.lengths(target)
            step = second - first
            tokens = first - step // 2 if target.stride is None else last + step
        flop, saved = file_counts(model, batch, tokens)
        flop_of_torch, saved_of_torch = counted(target, batch, tokens, autocast)
        module, _ = target.build(batch, tokens)
    trained = sum(x.numel() for x in module.parameters() if x.requires_grad)
    kind, _, class_name = name.partition(" ")
    words = class_name and answer["length"] is not None
    rule = of_rule(kind, class_name, trained, model, answer["length"]) if words else {}
    return {
        "parameters": answer["parameters"],
        "flop": flop / flop_of_torch - 1 if flop_of_torch else float(flop > 0),
        "saved": saved / saved_of_torch - 1 if saved_of_torch else float(saved > 0),
        "seconds": seconds,
        "class": answer["title"],
        "bytes": len(json.dumps(keys)),
        "least": target.least,
        "types": "autocast" if autocast else "",
        **rule,
    }


def apart(make: Callable[[], Target], name: str) -> dict[str, Any]:
    """A row from a process of its own, with limits."""
    with tempfile.TemporaryFile("w+") as file:
        child = os.fork()
        if not child:
            try:
                worker.limit(_BYTES, _SECONDS)
                sys.stderr = sys.stdout = open(os.devnull, "w")  # noqa: SIM115
                answer = compared(make, name)
            except TraceError as error:
                answer = {"error": str(error)}
            except BaseException as error:
                answer = {"error": f"{type(error).__name__}: {targets._line(error)}"}
            file.write(json.dumps(answer))
            file.flush()
            os._exit(0)
        os.waitpid(child, 0)
        file.seek(0)
        text = file.read()
    return json.loads(text) if text else {"error": f"took more than {_SECONDS} s"}


def drawn() -> Iterator[tuple[str, Callable[[], Target]]]:
    """A drawn set of timm and torchvision, and the models of diffusers that are trained."""
    import timm
    import torchvision

    lists = {
        "timm": sorted(timm.list_models()),
        "torchvision": sorted(torchvision.models.list_models()),
    }
    for library, count in _DRAWN.items():
        for name in sorted(random.Random(_SEED).sample(lists[library], count)):
            text = f"{library}:{name}"
            yield text, partial(targets.target, text, False)
    for name in libraries.DIFFUSERS:
        fields = STATED.get(name, {})
        yield f"diffusers:{name}", partial(libraries.of_diffusers, name, fields)


COLUMNS = (
    *("group", "name", "date", "parameters", "flop", "saved", "bytes", "seconds"),
    *("rule", "rule_flop", "types", "refused"),
)


def cases_of(group: str) -> list[tuple[str, Callable[[], Target]]]:
    """Models of a group, in a drawn order: a run that is ended has a drawn set of it."""
    if group == "libraries":
        cases = list(drawn())
    else:
        cases = [
            (f"{kind} {name}", partial(of_type, kind, name))
            for kind, name in sorted(types(group).items())
        ]
    random.Random(_SEED).shuffle(cases)
    return cases


def known(path: Path) -> list[dict[str, str]]:
    """Rows of a file of results, empty before the file exists."""
    if not path.exists():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def summary(rows: Sequence[dict[str, str]]) -> str:
    """Markdown: a line per group, and why models were refused."""
    lines = [
        "| group | models | accepted, parameters exact | FLOP within 1 % | saved bytes within 2 % |"
        " worst FLOP | worst saved | median s of a core |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for group in dict.fromkeys(row["group"] for row in rows):
        of_group = [row for row in rows if row["group"] == group]
        fine = [row for row in of_group if not row["refused"]]
        flop, saved = ([abs(float(row[x])) for row in fine] for x in ("flop", "saved"))
        seconds = statistics.median(float(row["seconds"]) for row in fine)
        lines.append(
            f"| {group} | {len(of_group)} | {len(fine)} | {sum(x <= 0.01 for x in flop)}"
            f" | {sum(x <= 0.02 for x in saved)} | {100 * max(flop):.2f} %"
            f" | {100 * max(saved):.2f} % | {seconds:.0f} |"
        )
    return "\n".join(lines)


def written(answer: dict[str, Any], group: str, name: str) -> dict[str, Any]:
    """A row of a file of results."""
    today = datetime.date.today().isoformat()
    out: dict[str, Any] = {"group": group, "name": name, "date": today}
    if "error" in answer:
        return out | {"refused": answer["error"][:200]}
    rounded = {x: f"{answer[x]:.5f}" for x in ("flop", "saved", "rule_flop") if x in answer}
    others = {x: answer[x] for x in ("parameters", "bytes", "rule", "types") if x in answer}
    return out | others | rounded | {"seconds": f"{answer['seconds']:.1f}"}


def line(row: dict[str, Any]) -> str:
    """A row as it is printed."""
    start = f"{row['group']:8s} {row['name']:60s}"
    if row.get("refused"):
        return f"{start} refused: {row['refused']}"
    return (
        f"{start} {row['parameters']:14,} exact  FLOP {100 * float(row['flop']):+7.2f} %"
        f"  saved {100 * float(row['saved']):+7.2f} %  {row['bytes'] / 1e3:5.0f} kB"
        f" {row['seconds']:>5s} s"
    )


def main() -> None:
    """Print rows as they are known, and write them to a file."""
    warnings.filterwarnings("ignore")
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--group", nargs="*", default=[*GROUPS, "libraries"])
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--every", type=int, default=1, help="every N-th type of a group")
    parser.add_argument("--out", type=Path, help="a CSV of results to add to")
    parser.add_argument("--table", action="store_true", help="only print the summary of --out")
    options = parser.parse_args()
    rows = known(options.out) if options.out else []
    if options.table:
        print(summary(rows))
        return
    import transformers

    # what every child needs is imported once
    for name in ("torch._dynamo", "transformers.modeling_utils", "transformers.generation.utils"):
        importlib.import_module(name)
    transformers.logging.set_verbosity_error()
    logging.disable()
    done = {(row["group"], row["name"]) for row in rows}
    with contextlib.ExitStack() as stack:
        file = writer = None
        if options.out:
            file = stack.enter_context(options.out.open("a", newline="", encoding="utf-8"))
            writer = csv.DictWriter(file, COLUMNS, restval="", lineterminator="\n")
            if not rows:
                writer.writeheader()
        for group in options.group:
            for name, make in cases_of(group)[:: options.every]:
                if (group, name) in done or (options.only and name.split()[0] not in options.only):
                    continue
                row = written(apart(make, name), group, name)
                print(line(row), flush=True)
                if file is not None and writer is not None:
                    writer.writerow(row)
                    file.flush()


if __name__ == "__main__":
    main()
