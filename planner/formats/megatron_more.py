"""Arguments of Megatron-LM that act together: shape of the model, precision, states, recompute,
batch, experts, graphs."""

from __future__ import annotations

import re
from collections.abc import Mapping

from planner.formats import megatron_deepspeed
from planner.formats import megatron_table as names
from planner.formats.launcher import expandable
from planner.formats.megatron_experts import experts, latent
from planner.formats.megatron_hybrid import hybrid
from planner.formats.record import Answer, Value
from planner.specs.names import GRAPH_SCOPES, OFFLOAD_MODULES, is_recompute, recompute_name
from planner.specs.pipeline_layout import Chunk, layout_text

_GROUPED, _LATENT_DEFAULT = 1, 128
# key-value heads in Megatron-DeepSpeed, epfLLM's and Alibaba's forks
_KEY_HEADS = ("num-key-value-heads", "num-attention-heads-kv", "n-head-kv")
# --glu-activation of BigScience's, BigCode's and epfLLM's forks, with our activation
_GLU = {"swiglu": None, "geglu": "gelu", "reglu": "relu"}
_FP8 = {
    "delayed": "fp8-delayed",
    "tensorwise": "fp8-tensorwise",
    "blockwise": "fp8-blockwise",
    "mxfp8": "mxfp8",
}
_SHARDING = {"no_shard": 0, "optim": 1, "optim_grads": 2, "optim_grads_params": 3}
_GATED_MULTIPLE = 64  # of the width of a gated MLP that is not given (arguments.py)
_ENDS_IN_BF16 = 1  # layers at each end of --first-last-layers-bf16 without counts
_WINDOW_EVERY = 1
# vocabularies of tokenizers that their name settles
_VOCABULARIES = {"GPT2BPETokenizer": 50257, "Llama2Tokenizer": 32000}
_DROPOUT = 0.1  # where --attention-dropout and --hidden-dropout are not given


def read_more(values: Mapping[str, Value], answer: Answer) -> None:
    """Everything that is not one to one."""
    _stack(answer)
    _model(answer)
    _vocabulary(answer)
    experts(answer)
    latent(answer)
    hybrid(answer)
    _layout(answer)
    _precision(answer)
    _states(answer)
    _recompute(answer)
    _batch(answer)
    _graphs(answer)
    _environment(values, answer)
    _actor(answer)


def _actor(answer: Answer) -> None:
    """GPUs of the policy under slime."""
    nodes, each = "actor-num-nodes", "actor-num-gpus-per-node"
    if isinstance(answer.get(each), int) and isinstance(answer.get(nodes, 1), int):
        gpus = answer.get(nodes, 1) * answer.get(each)
        answer.imply("gpus", gpus, "nodes x GPUs of the policy", nodes, each)


def _stack(answer: Answer) -> None:
    """The stack, its sharding of states, and its overlap with compute."""
    if megatron_deepspeed.is_deepspeed(answer):
        megatron_deepspeed.stack(answer)
        return
    fsdp = next((n for n in ("use-megatron-fsdp", "use-torch-fsdp2") if answer.get(n)), None)
    distributed = bool(answer.get("use-distributed-optimizer"))
    if fsdp:
        answer.state("stack", "megatron-fsdp", fsdp)
        how = "data-parallel-sharding-strategy"
        stage = 3 if fsdp == "use-torch-fsdp2" else _SHARDING.get(str(answer.get(how, "no_shard")))
        answer.state("zero", stage, how if how in answer.values else fsdp)
        answer.mark("use-distributed-optimizer", "implied", f"{fsdp} shards states")
        if fsdp == "use-megatron-fsdp":
            _overlap(answer)
        return
    answer.imply("stack", "megatron-core", "Megatron-LM")
    answer.mark("data-parallel-sharding-strategy", "irrelevant", "acts with --use-megatron-fsdp")
    if "use-distributed-optimizer" in answer.values:
        answer.state("zero", int(distributed), "use-distributed-optimizer")
    else:
        answer.imply("zero", 0, "no --use-distributed-optimizer")
    instances = "num-distributed-optimizer-instances"
    if answer.get(instances) == 1:
        answer.mark(instances, "irrelevant")
    _overlap(answer)


def _overlap(answer: Answer) -> None:
    """Overlap of data-parallel communication: off by default; if all that the ZeRO stage allows is
    on, as in the stack."""
    stage = answer.option("zero") or 0
    switches = {"overlap-grad-reduce": ("reduce",), "overlap-param-gather": ("forward", "backward")}
    has = ("reduce", "forward", "backward")[: (1, 2, 2, 3)[stage]]
    on = [
        part
        for name, parts in switches.items()
        if answer.get(name)
        for part in parts
        if part in has
    ]
    given = [name for name in switches if name in answer.values]
    for name in given:
        answer.mark(name, "read")
    if given and len(on) == len(has):
        answer.leave("dp_overlap", given[0])
    elif given:
        answer.state("dp_overlap", "+".join(on) or "none", given[0])
    else:
        note = "no --overlap-grad-reduce: gradients are reduced after the backward pass"
        answer.imply("dp_overlap", "none", note)


def _model(answer: Answer) -> None:
    """Widths and switches of layers."""
    get = answer.get
    heads = get("num-attention-heads")
    if "num-query-groups" in answer.values and get("group-query-attention", True):
        answer.state("model.kv_heads", get("num-query-groups"), "num-query-groups")
    elif get("group-query-attention"):
        answer.imply("model.kv_heads", _GROUPED, "one query group by default")
    elif name := next((name for name in _KEY_HEADS if name in answer.values), ""):
        answer.state("model.kv_heads", get(name), name)
    elif get("attention-head-type") == "multiquery":
        answer.state("model.kv_heads", 1, "attention-head-type")
    elif heads:
        answer.imply("model.kv_heads", heads, "no --group-query-attention")
    _gates(answer)
    _biases(answer)
    norm = str(get("normalization", "LayerNorm")).lower()
    answer.imply("model.norm_bias", norm == "layernorm", "LayerNorm has a bias")
    if get("use-rotary-position-embeddings"):
        answer.state("model.positions", "rotary", "use-rotary-position-embeddings")
    _dropout(answer)
    left = re.search(r"\d+", str(get("window-size", "")))
    if left:
        answer.state("model.attention_window", int(left[0]) + 1, "window-size")
        every = get("window-attn-skip-freq", _WINDOW_EVERY)
        if isinstance(every, int):
            answer.imply("model.window_every", every, "", "window-attn-skip-freq")


def _gates(answer: Answer) -> None:
    """Activation and width of the MLP."""
    get = answer.get
    if get("squared-relu"):
        answer.state("model.activation", "relu2", "squared-relu")
    elif get("quick-geglu"):
        answer.state("model.mlp", "gated", "quick-geglu")
    elif get("glu-activation") in _GLU:
        answer.state("model.mlp", "gated", "glu-activation")
        answer.imply("model.activation", _GLU[get("glu-activation")], "", "glu-activation")
    elif not get("swiglu"):
        answer.imply("model.activation", "gelu", "no --swiglu")
    hidden = get("hidden-size")
    if "ffn-hidden-size" not in answer.values and isinstance(hidden, int):
        third = 4 * hidden * 2 // 3 // _GATED_MULTIPLE * _GATED_MULTIPLE
        wide = third if get("swiglu") or get("quick-geglu") else 4 * hidden
        answer.imply("model.ffn_hidden", wide, "no --ffn-hidden-size: 4 times the hidden size")


def _biases(answer: Answer) -> None:
    """Biases of linear layers, on by default."""
    get = answer.get
    name = "disable-bias-linear" if "disable-bias-linear" in answer.values else "add-bias-linear"
    plain = bool(get("disable-bias-linear")) or get("add-bias-linear") is False
    answer.mark(name, "read")
    for key in ("bias_qkv", "bias_attention_out", "bias_mlp"):
        answer.imply(f"model.{key}", not plain, "biases of linear layers", name)
    if get("add-qkv-bias"):
        answer.state("model.bias_qkv", True, "add-qkv-bias")


def _dropout(answer: Answer) -> None:
    """Dropout of scores and of hidden elements, either of which may be off."""
    shares = {
        "attention": answer.get("attention-dropout", _DROPOUT),
        "hidden": answer.get("hidden-dropout", _DROPOUT),
    }
    on = [name for name, share in shares.items() if share]
    given = [f"{name}-dropout" for name in shares]
    for name in given:
        answer.mark(name, "read")
    note = "dropout is 0.1 by default"
    stated = [name for name in given if name in answer.values]
    answer.imply("model.dropout", bool(on), note, *stated)
    if len(on) == 1:
        answer.imply("model.dropout_of", on[0], note, *stated)


def _vocabulary(answer: Answer) -> None:
    """Tokens of the vocabulary: as given, or as the tokenizer has them."""
    for name in ("padded-vocab-size", "pad-vocab-size-to", "vocab-size"):
        if name in answer.values:
            answer.state("model.vocab", answer.get(name), name)
            return
    known = _VOCABULARIES.get(str(answer.get("tokenizer-type", "")))
    if known is None and "merge-file" in answer.values:
        known = _VOCABULARIES["GPT2BPETokenizer"]
    if known:
        answer.imply("model.vocab", known, "of the tokenizer", "tokenizer-type", "merge-file")
    elif isinstance(answer.get("tokenizer-model"), str):
        answer.imply("model.vocab_of", answer.get("tokenizer-model"), "", "tokenizer-model")


def _layout(answer: Answer) -> None:
    """Sequence parallelism, and the layers of each stage."""
    tp, pp, layers = answer.get("tensor-model-parallel-size", 1), _stages(answer), None
    switch = "sequence-parallel"
    if tp == 1:
        answer.mark(switch, "implied", "acts only with tensor parallelism")
        answer.imply("sequence_parallel", False, "there is no tensor parallelism")
    elif switch in answer.values:
        answer.state("sequence_parallel", bool(answer.get(switch)), switch)
    else:
        answer.imply("sequence_parallel", False, "no --sequence-parallel")
    layers = answer.get("num-layers")
    ends = [f"account-for-{name}-in-pipeline-split" for name in ("embedding", "loss")]
    both = megatron_deepspeed.ends_count(answer)
    first, last = (bool(answer.get(end)) or both for end in ends)
    each = "num-layers-per-virtual-pipeline-stage"
    vpp = answer.option("vpp")
    if isinstance(answer.get(each), int) and isinstance(layers, int) and pp > 1:
        vpp = max(1, (layers + first + last) // (pp * answer.get(each)))
        answer.state("vpp", vpp, each)
    if answer.get("pipeline-model-parallel-layout"):
        return
    if pp > 1 and vpp is None:
        answer.imply("vpp", 1, "no virtual stages")
        answer.imply("schedule", "1f1b", "no virtual stages")
    elif pp > 1:
        answer.imply("schedule", "interleaved" if vpp > 1 else "1f1b", "virtual stages", each)
    if isinstance(layers, int) and pp > 1:
        _uneven(answer, layers, pp, vpp or 1, first, last)


def _stages(answer: Answer) -> int:
    pp = answer.get("pipeline-model-parallel-size", 1)
    return pp if isinstance(pp, int) and pp > 0 else 1


def _uneven(answer: Answer, layers: int, pp: int, vpp: int, first: bool, last: bool) -> None:
    """A layout of stages that differ: those at the ends have a number of layers of their own, or
    count embedding and loss as a layer."""
    stated = {
        place: next(
            (
                n
                for n in (
                    f"decoder-{place}-pipeline-num-layers",
                    f"num-layers-in-{place}-pipeline-stage",
                )
                if n in answer.values
            ),
            None,
        )
        for place in ("first", "last")
    }
    counts = {place: answer.get(name) if name else None for place, name in stated.items()}
    if not any(counts.values()) and not (first or last):
        return
    chunks = pp * vpp
    if any(counts.values()):
        inner = pp - sum(count is not None for count in counts.values())
        rest = layers - sum(count or 0 for count in counts.values())
        if not inner or rest % inner:
            return
        each = [rest // inner] * pp
        each[0], each[-1] = counts["first"] or each[0], counts["last"] or each[-1]
        if any(n % vpp for n in each):
            return
        layers_of = [each[i % pp] // vpp for i in range(chunks)]
    else:
        total = layers + first + last
        if total % chunks:
            return
        layers_of = [total // chunks] * chunks
        layers_of[0] -= first
        layers_of[-1] -= last
    mtp, end = answer.option("mtp") or 0, chunks - 1
    plan = [Chunk(i == 0, n, mtp * (i == end), i == end) for i, n in enumerate(layers_of)]
    named = [stated_end for stated_end in stated.values() if stated_end]
    named += [f"account-for-{name}-in-pipeline-split" for name in ("embedding", "loss")]
    answer.imply(
        "pipeline_layout",
        layout_text(tuple(plan)),
        "layers of the first and last stage",
        *(name for name in named if name in answer.values),
    )


def _precision(answer: Answer) -> None:
    """Number format of compute, by the narrowest that is named."""
    get = answer.get
    formats = [name for name in ("fp8-format", "fp8") if get(name)]
    base = next((name for name in ("bf16", "fp16") if get(name)), None)
    if get("fp4-format"):
        answer.state("precision", "nvfp4", "fp4-format")
        answer.mark("fp4-recipe", "read")
    elif formats:
        recipe = str(get("fp8-recipe", "delayed"))
        name = "fp8-recipe" if "fp8-recipe" in answer.values else formats[0]
        if recipe in _FP8:
            answer.state("precision", _FP8[recipe], name)
    elif base:
        answer.state("precision", base, base)
    else:
        answer.imply("precision", "fp32", "neither --bf16 nor --fp16")
    for entry in ("bf16", "fp16", *formats):
        answer.mark(entry, "read")
    if formats or get("fp4-format"):
        _kept_in_low_precision(answer)


def _kept_in_low_precision(answer: Answer) -> None:
    """Weights that are gathered in 8 bit, and layers that stay in 16."""
    for key in ("fp8-param-gather", "fp8-param"):
        if answer.get(key):
            answer.state("low_precision", "weights", key)
    if answer.get("first-last-layers-bf16"):
        ends = [f"num-layers-at-{name}-in-bf16" for name in ("start", "end")]
        count = sum(answer.get(end, _ENDS_IN_BF16) for end in ends)
        answer.state("bf16_layers", count, "first-last-layers-bf16")
        for key in ends:
            answer.mark(key, "read")


def _states(answer: Answer) -> None:
    """Types of optimizer states, which act with the precision-aware optimizer, and where they
    live."""
    get = answer.get
    kinds = ("main-grads-dtype", "main-params-dtype", "exp-avg-dtype", "exp-avg-sq-dtype")
    if get("use-precision-aware-optimizer"):
        answer.mark("use-precision-aware-optimizer", "read")
        moments = str(get("exp-avg-dtype", "fp32"))
        if moments != "fp32" and moments in names.STATE_TYPES:
            answer.state("moments_precision", moments, "exp-avg-dtype")
        gradients = str(get("main-grads-dtype", "fp32"))
        if gradients == "bf16":
            answer.state("gradient_precision", "bf16", "main-grads-dtype")
        master = str(get("main-params-dtype", "fp32"))
        if master == "fp16":
            answer.state("master_precision", "fp16", "main-params-dtype")
        elif str(answer.option("precision")) == "bf16":
            answer.imply(
                "master_precision",
                "remainder",
                "the precision-aware optimizer keeps the 16 bits that bf16 lacks",
                "use-precision-aware-optimizer",
            )
        for kind in kinds:
            answer.mark(kind, "read")
    for kind in kinds:
        answer.mark(kind, "irrelevant", "acts with --use-precision-aware-optimizer")
    offloaded = "optimizer-cpu-offload"
    if get(offloaded):
        answer.mark(
            offloaded, "not understood", "this stack has no offloaded optimizer here; see --stack"
        )
    _loss(answer)
    answer.mark("grad-reduce-in-bf16", "read")
    answer.mark("accumulate-allreduce-grads-in-fp32", "implied", "as the stack does")


def _loss(answer: Answer) -> None:
    """The kernel of the loss."""
    get = answer.get
    if get("cross-entropy-loss-fusion"):  # Transformer Engine's leaves the gradient in the logits
        if get("cross-entropy-fusion-impl") == "te":
            answer.state("loss_kernel", "fused", "cross-entropy-fusion-impl")
        for name in ("cross-entropy-loss-fusion", "cross-entropy-fusion-impl"):
            answer.mark(name, "implied", "as the stack does")
    else:
        answer.mark("cross-entropy-fusion-impl", "irrelevant", "acts with the fusion of the loss")


def _recompute(answer: Answer) -> None:
    get = answer.get
    kind, modules = get("recompute-granularity"), get("recompute-modules")
    if kind is None and megatron_deepspeed.old_recompute(answer):
        return
    if get("recompute-activations") and kind is None:
        answer.state("recompute", "selective", "recompute-activations")
        return
    if kind == "selective":
        listed = modules if isinstance(modules, list) else str(modules or "").split()
        text = "+".join(str(module) for module in listed)
        if modules and is_recompute(text):
            answer.state("recompute", recompute_name(text), "recompute-modules")
            answer.mark("recompute-granularity", "read")
        elif not modules:
            answer.state("recompute", "selective", "recompute-granularity")
    elif kind == "full":
        _whole_layers(answer)
        answer.mark("recompute-modules", "irrelevant", "acts with selective recompute")
    elif "recompute-granularity" not in answer.values or kind is None:
        answer.imply("recompute", "none", "no --recompute-granularity")
        answer.mark("recompute-granularity", "read")
        for name in ("recompute-modules", "recompute-method", "recompute-num-layers"):
            answer.mark(name, "irrelevant", "acts with --recompute-granularity")


def _whole_layers(answer: Answer) -> None:
    """Full recompute: of some layers of a chunk, or of groups of layers."""
    method, count = answer.get("recompute-method", "uniform"), answer.get("recompute-num-layers", 1)
    if method == "block":
        text = f"block:{count}" if count else "none"
    else:
        text = "full" if count in (1, None) else f"group:{count}"
    answer.state("recompute", text, "recompute-granularity")
    for name in ("recompute-method", "recompute-num-layers"):
        answer.mark(name, "read")


def _batch(answer: Answer) -> None:
    """The batch, and the tokens of the run."""
    get = answer.get
    steps = "step-batch-size-schedule"
    batch = get("global-batch-size")
    if batch is None and isinstance(get(steps), str):
        last = re.search(r":(\d{1,9})\s*$", get(steps))
        if last:
            batch = int(last[1])
            answer.state("global_batch", batch, steps, "the last batch of the schedule")
    if batch is None and "global-batch-size" not in answer.values:
        answer.imply("grad_accum", 1, "no --global-batch-size: one micro-batch of each replica")
    length = answer.option("seq_len")
    for name, sequences in (("train-samples", 1), ("train-iters", batch)):
        count = get(name)
        if isinstance(count, int) and count > 0 and sequences and length:
            answer.state("tokens", count * sequences * length, name)
            return


def _graphs(answer: Answer) -> None:
    """CUDA graphs: which implementation captures, and what."""
    get = answer.get
    kind = get("cuda-graph-impl", "none")
    old = next((n for n in ("enable-cuda-graph", "external-cuda-graph") if get(n)), None)
    scope = next(
        (n for n in ("cuda-graph-scope", "cuda-graph-modules") if n in answer.values), None
    )
    if kind == "none" and old is None:
        for name in ("cuda-graph-impl", "cuda-graph-scope", "cuda-graph-modules"):
            answer.mark(name, "irrelevant", "no graph is captured")
        answer.imply("cuda_graphs", "none", "no --cuda-graph-impl")
        return
    stated = get(scope) if scope else "full"
    words = stated if isinstance(stated, list) else re.findall(r"\w+", str(stated))
    listed = [
        {"full": "layer", "full_iteration": "full"}.get(str(word), str(word)) for word in words
    ]
    known = [scope for scope in GRAPH_SCOPES if scope in listed]
    if len(known) == len(listed):
        answer.state("cuda_graphs", "+".join(known) or "layer", scope or old or "cuda-graph-impl")
        for name in ("cuda-graph-impl", old or ""):
            answer.mark(name, "read")


def _environment(values: Mapping[str, Value], answer: Answer) -> None:
    """Variables of the environment: of the allocator and of attention."""
    for name, value in values.items():
        if not name.startswith("env "):
            continue
        if "ALLOC_CONF" in name and (on := expandable(value.value)) is not None:
            answer.state("expandable_segments", on, name)
        elif name == "env NVTE_FUSED_ATTN" and str(value.value) == "1":
            answer.imply("attention", "cudnn", "fused attention of Transformer Engine", name)
        answer.mark(name, "irrelevant")
    flash = "use-flash-attn"
    if answer.get(flash) and answer.option("attention") is None:
        answer.state("flash_attention", True, flash)
    else:
        answer.mark(flash, "implied", "the attention kernel is named")
    modules = answer.get("offload-modules")
    if answer.get("fine-grained-activation-offloading") and modules:
        listed = modules if isinstance(modules, list) else str(modules).split()
        if set(listed) <= set(OFFLOAD_MODULES):
            answer.state("offload", "activations", "fine-grained-activation-offloading")
            text = "+".join(module for module in OFFLOAD_MODULES if module in listed)
            answer.state("offload_modules", text, "offload-modules")
