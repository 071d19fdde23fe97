"""Cost of one transformer layer and of the LM head for one micro-batch.

It depends on few columns of a layout (tensor, context and expert parallel, micro-batch, sequence
parallel), so it is evaluated on their distinct combinations only and gathered; see estimate.step.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planner.estimate import communicate, uneven
from planner.estimate.communicate import Group, place
from planner.estimate.machine import Machine
from planner.formulas import collectives, flops, kernels
from planner.ledger import Array, Ledger, section, total
from planner.specs.columns import ByName
from planner.specs.plan import Plan

KEY = ("tp", "cp", "ep", "micro_batch", "sequence_parallel")

# bytes moved per hidden element of the residual add (with bias and dropout where the recipe has
# them), per MLP element of an activation, per score element without flash attention: counted from
# the tensors each kernel reads and writes in 16 bit; fused Megatron kernels, Korthikanti et al.
# 2022 section 4. Norm, rotation and gate depend on the software: see machine
_ADD = (6.0, 6.0)  # two inputs and a sum; the two branches' gradients are added on the way back
_BIAS_DROPOUT_ADD = (7.0, 11.0)
_GELU = (4.0, 6.0)
_QKV_COPIES = (
    4.0,
    4.0,
)  # queries, keys and values laid out for the attention kernel, their gradients gathered again
_BIAS_GRADIENT = 2.0  # the output's gradient is read once more and summed over tokens
_SCORES = (9.0, 11.0)
_PERMUTE = (
    8.0,
    10.0,
)  # per routed token and hidden element: gather to experts, weighted scatter back
_EMBEDDING = 20.0
_FUSED_LOSS, _PLAIN_LOSS = (
    8.0,
    52.0,
)  # per logit: one kernel in 16 bit (6 counted, 8 assumed), or torch operators on an fp32 copy
_TAIL_OPERATORS = 2.0  # of forward behind the last saved tensor
_MOE_OPERATORS = 15.0  # router, permutation and their bookkeeping
# more for every local expert: grouped products are a loop over experts in the stacks validated
_EXPERT_OPERATORS = 4.0
# share of the matrix rate that a weight's products keep when a width is no multiple of 16 B: a
# vocabulary of 50257 in place of 50304 costs nanoGPT's 124M model about a quarter more time
# (Karpathy, 2023-02-03, recalled), the aligned head being a quarter of it; an RTX 3090 loses 4 %
# (RobertRiachi/nanoPALM#6)
_UNALIGNED_WEIGHT = 0.5
_EXPERT_OPERATORS_FP8 = 5.0  # and each expert's operands are cast and scaled


@dataclass(frozen=True)
class Collective:
    """A collective of one layer and micro-batch."""

    operation: str
    group: str
    what: str
    component: str
    tensor_bytes: Array
    seconds: Array  # one call
    forward: Array  # exposed calls (or shares of one) in forward
    backward: Array
    hidden_backward: Array  # calls in backward that overlap with compute
    issued: Array  # calls the CPU issues in one direction, hidden or not
    placed: Group


@dataclass(frozen=True)
class LayerCost:
    """Seconds of one layer (mean of dense and expert layers) and of the head; leaves sum to the
    GPU's busy time."""

    forward: Ledger
    backward: Ledger
    attention_core: Array  # forward of scores, softmax and weighted values
    # forward up to the last tensor that backward needs: without the MLP's second product and the
    # residual add
    repeat: Array
    kept_products: Array  # forward of the products that torchtitan's per-operator rule recomputes
    launch_forward: Array  # excess of the CPU over the GPU
    launch_backward: Array
    collectives: tuple[Collective, ...]
    head: Ledger
    forward_flop: Array  # per layer and micro-batch, full score matrix
    core_flop: Array


def layer_cost(plan: Plan, m: Machine, u: ByName) -> LayerCost:
    """Evaluate one layer on a table of distinct combinations."""
    work = _Layer(plan, m, u)
    with section("one layer, one micro-batch"):
        forward, backward, core, kept = work.compute()
        found = work.collectives(
            (core, backward["attention/core"]), total(forward), total(backward)
        )
    with section("language-model head"):
        head = work.head()
    launch = m.operator_launch
    calls = sum((np.where(c.placed.ranks > 1, c.issued, 0.0) for c in found), start=np.zeros(1))
    per_collective = m.operators_per_collective
    each = _EXPERT_OPERATORS_FP8 if work.fp8 else _EXPERT_OPERATORS
    extra = work.moe_share * (_MOE_OPERATORS + each * work.local_experts())
    if "expert_operators" in m.without:
        extra = 0.0 * extra
    busy_forward = total(forward) + sum(c.forward * c.seconds for c in found) + m.layer_idle
    busy_backward = total(backward) + sum(c.backward * c.seconds for c in found)
    operators = m.operators_forward + extra + per_collective * calls
    operators_back = m.operators_backward + 1.3 * extra + per_collective * calls
    return LayerCost(
        forward=forward,
        backward=backward,
        attention_core=core,
        repeat=kernels.launch_bound_s(
            busy_forward - work.tail(forward, found), operators - _TAIL_OPERATORS, launch
        ),
        kept_products=kept,
        launch_forward=kernels.launch_bound_s(busy_forward, operators, launch)
        - busy_forward
        + m.layer_idle,
        launch_backward=kernels.launch_bound_s(busy_backward, operators_back, launch)
        - busy_backward,
        collectives=tuple(found),
        head=head,
        forward_flop=work.flop,
        core_flop=work.core_flop,
    )


class _Layer:
    """Local widths of one table of combinations; methods return values, nothing else is kept."""

    def __init__(self, plan: Plan, m: Machine, u: ByName) -> None:
        model, training = plan.model, plan.training
        self.plan, self.m, self.u = plan, m, u
        self.domain = plan.cluster.nvlink_domain
        self.tp, self.cp, self.ep = u["tp"], u["cp"], u["ep"]
        self.tokens = u["micro_batch"] * training.seq_len / self.cp
        self.local_tokens = self.tokens / np.where(u["sequence_parallel"] > 0, self.tp, 1.0)
        self.fp8 = training.precision == "fp8"
        self.blocks = (
            1.0 if model.parallel_block else 2.0
        )  # attention and MLP in parallel share one exchange
        self.width = training.element_bytes
        self.gates = float(model.mlp_inputs)
        self.moe_share = model.expert_share
        self.attention = plan.attention
        self.flash = plan.flash_attention
        self.vocab = padded_vocab(plan, self.tp)
        qk, v = flops.head_widths(model)
        self.attended = uneven.attended_frac(
            plan
        )  # less than one where packed documents do not see each other
        pairs = (
            flops.mean_pairs(model, float(training.seq_len))
            * self.attended
            * u["micro_batch"]
            / self.cp
        )
        self.causal_flop = flops.attention_forward_flop(
            pairs, model.heads / self.tp, float(qk), float(v)
        )
        full = float(training.seq_len) ** 2 * u["micro_batch"] / self.cp
        self.core_flop = flops.attention_forward_flop(
            full, model.heads / self.tp, float(qk), float(v)
        )
        self.flop = self.core_flop * 0.0 + self.core_flop

    def local_experts(self) -> Array:
        """Routed experts on one rank."""
        moe = self.plan.model.moe
        return np.maximum(moe.experts / self.ep, 1.0) if moe is not None else 0.0 * self.ep

    # ----------------------------------------------------------------------------------------------

    def products(self) -> list[tuple[str, Array, Array, Array, Array, float, bool]]:
        """(name, rows, columns, inner width, batch, times per layer, fp8) of each weight product,
        forward."""
        model, t, T = self.plan.model, self.tp, self.tokens
        h, d = float(model.hidden), float(model.head_dim)
        ops: list[tuple[str, Array, Array, Array, Array, float, bool]] = []
        if model.latent is None:
            kv = np.maximum(model.kv_heads, t) * d / t
            if self.plan.stack.fusion.joint_qkv:
                ops.append(("qkv", T, model.heads * d / t + 2 * kv, h, 1.0, 1.0, True))
            else:
                ops.append(("q", T, model.heads * d / t, h, 1.0, 1.0, True))
                ops.append(("kv", T, kv, h, 1.0, 2.0, True))
            ops.append(("attention_out", T, h, model.heads * d / t, 1.0, 1.0, True))
        else:
            mla = model.latent
            q_width = float(mla.nope_head_dim + mla.rope_head_dim)
            if mla.query_rank is None:
                ops.append(("q", T, model.heads * q_width / t, h, 1.0, 1.0, True))
                ops.append(
                    (
                        "kv_down",
                        T,
                        float(mla.kv_rank + mla.rope_head_dim) + 0 * t,
                        h,
                        1.0,
                        1.0,
                        True,
                    )
                )
            else:
                down = float(mla.query_rank + mla.kv_rank + mla.rope_head_dim)
                ops.append(("q_kv_down", T, down + 0 * t, h, 1.0, 1.0, True))
                ops.append(
                    ("q_up", T, model.heads * q_width / t, float(mla.query_rank), 1.0, 1.0, True)
                )
            up = model.heads * float(mla.nope_head_dim + mla.value_head_dim)
            ops.append(("kv_up", T, up / t, float(mla.kv_rank), 1.0, 1.0, True))
            ops.append(
                ("attention_out", T, h, model.heads * float(mla.value_head_dim) / t, 1.0, 1.0, True)
            )
        dense = 1 - self.moe_share
        if dense > 0:
            f = model.ffn_hidden / t
            apart = (
                self.gates if not self.plan.stack.fusion.joint_gate else 1.0
            )  # products that share the input
            ops.append(("mlp_in", T, self.gates / apart * f, h, 1.0, apart * dense, True))
            ops.append(("mlp_out", T, h, f, 1.0, dense, True))
        if model.moe is not None and self.moe_share > 0:
            moe, share = model.moe, self.moe_share
            local = self.local_experts()
            rows = np.maximum(T * moe.experts_per_token / local, 1.0)
            f = moe.ffn_hidden / t
            ops.append(("expert_in", rows, self.gates * f, h, local, share, True))
            ops.append(("expert_out", rows, h, f, local, share, True))
            ops.append(("router", T, float(moe.experts) + 0 * t, h, 1.0, share, False))
            if moe.shared_ffn_hidden:
                f = moe.shared_ffn_hidden / t
                ops.append(("shared_in", T, self.gates * f, h, 1.0, share, True))
                ops.append(("shared_out", T, h, f, 1.0, share, True))
        return ops

    def gemm(
        self,
        rows: Array,
        columns: Array,
        inner: Array,
        batch: Array = 1.0,
        *,
        fp8: bool = False,
        extra: Array = 0.0,
        align: Array = 1.0,
        casts: Array = 1.0,
    ) -> Array:
        """One product on this machine. align: share of the rate that its widths leave; casts: share
        of the casts that is left."""
        m = self.m
        low = fp8 and self.fp8
        rate = m.dense_rate * m.fp8_frac if low else m.wide_rate
        if "alignment" in m.without:
            align = 1.0
        cast = 0.0
        if low:
            cast = kernels.elementwise_s(
                casts * m.cast_bytes * batch * rows * inner,
                0.0,
                memory_bytes_per_s=m.memory_bandwidth,
                elementwise_frac=m.elementwise_frac,
                gap_s=m.kernel_gap,
                limit_bytes_per_s=m.elementwise_limit,
            )
        return cast + kernels.gemm_s(
            rows,
            columns,
            inner,
            batch,
            extra,
            1.0 if low else self.width,
            align,
            rate_flop_per_s=rate * m.sustained_clock,
            compute_units=m.compute_units,
            efficiency=m.gemm_efficiency,
            tile_exponent=m.gemm_tile_exponent,
            tile_overhead_s=m.gemm_tile_overhead,
            wave_softness=m.gemm_wave_softness,
            launch_s=m.gemm_launch,
            memory_bytes_per_s=m.memory_bandwidth,
            memory_frac=m.gemm_memory_frac,
        )

    def weight_product(
        self, rows: Array, columns: Array, inner: Array, batch: Array, fp8: bool, casts: Array
    ) -> tuple[Array, Array]:
        """Forward and backward (input and weight gradient) of one weight product."""
        fused = self.plan.stack.fusion.gradient_accumulation_fp32
        accumulate = (
            (8.0 if fused else 0.0) * columns * inner * batch
        )  # read and write the fp32 buffer
        width = 1.0 if fp8 and self.fp8 else self.width
        align = kernels.alignment_frac(columns, inner, width, _UNALIGNED_WEIGHT)
        forward = self.gemm(rows, columns, inner, batch, fp8=fp8, align=align, casts=casts)
        backward = self.gemm(rows, inner, columns, batch, fp8=fp8, align=align, casts=casts)
        backward = backward + self.gemm(
            inner, columns, rows, batch, fp8=fp8, extra=accumulate, align=align, casts=casts
        )
        return forward, backward

    def stream(self, moved: Array, launches: float) -> Array:
        """Bandwidth-bound kernels; widths are counted for 16-bit elements and scale with the
        element."""
        m = self.m
        return kernels.elementwise_s(
            moved * self.width / 2,
            launches,
            memory_bytes_per_s=m.memory_bandwidth,
            elementwise_frac=m.elementwise_frac,
            gap_s=m.kernel_gap,
            limit_bytes_per_s=m.elementwise_limit,
        )

    def operator(
        self, elements: Array, bytes_each: Array, seconds_each: Array, launches: float
    ) -> Array:
        """Bandwidth-bound kernels over `elements`: measured where seconds_each is not 0, else
        counted in bytes."""
        return self.measured(
            elements, seconds_each, launches, self.stream(elements * bytes_each, launches)
        )

    def measured(
        self, elements: Array, seconds_each: Array, launches: float, counted_s: Array
    ) -> Array:
        """What was measured on this device in place of what is counted."""
        if not np.any(np.asarray(seconds_each) > 0):
            return counted_s
        return kernels.measured_operator_s(
            elements, launches, seconds_per_element=seconds_each, gap_s=self.m.kernel_gap
        )

    def copy(self, moved: Array) -> Array:
        """Kernels over whole weights or logits: tensors long enough for the bandwidth that a copy
        reaches."""
        return kernels.elementwise_s(
            moved,
            0.0,
            memory_bytes_per_s=self.m.memory_bandwidth,
            elementwise_frac=self.m.stream_frac,
            gap_s=self.m.kernel_gap,
        )

    def attention_shape(self) -> Array:
        """Share of the attention rate that sequence, window and head width leave: the mean over
        layers, weighted by time."""
        model, s = self.plan.model, float(self.plan.training.seq_len) * self.attended
        width = float(flops.head_widths(model)[1])
        share, window = flops.windowed_share(model), min(float(model.attention_window or s), s)
        measured = (self.m.attention_half_sequence, self.m.attention_width_exponent)
        short = share * flops.causal_pairs(s, window)
        long = (1 - share) * flops.causal_pairs(s, s)
        slow = short / kernels.attention_shape_frac(window, width, *measured)
        slow = slow + long / kernels.attention_shape_frac(s, width, *measured)
        return (short + long) / slow

    def core(self) -> tuple[Array, Array]:
        """Scores, softmax and weighted values: forward and backward."""
        m, plan = self.m, self.plan
        if self.flash:
            shape = 1.0 if "attention_shape" in m.without else self.attention_shape()
            rate = m.wide_rate * m.sustained_clock
            share = m.attention_version * shape
            forward = kernels.flash_attention_s(
                self.causal_flop,
                1.0,
                rate_flop_per_s=rate,
                attention_frac=m.attention_forward * share,
                gap_s=m.kernel_gap,
            )
            backward = kernels.flash_attention_s(
                2.5 * self.causal_flop,
                3.0,
                rate_flop_per_s=rate,
                attention_frac=m.attention_backward * share,
                gap_s=m.kernel_gap,
            )
            return forward, backward
        s, qk = float(plan.training.seq_len), float(flops.head_widths(plan.model)[0])
        batch = self.u["micro_batch"] * plan.model.heads / self.tp
        scores = batch * s * s / self.cp
        rows = s / self.cp
        align = kernels.alignment_frac(s, qk, self.width, m.vector_rate / m.wide_rate)
        product = self.gemm(rows, s, qk, batch, align=align) + self.gemm(
            rows, qk, s, batch, align=align
        )
        slower = (
            1.0 if self.attention == "fused_softmax" else 2.0
        )  # eager: scale, mask and softmax are kernels of their own
        forward = product + self.stream(_SCORES[0] * slower * scores, 2.0 * slower)
        return forward, 2 * product + self.stream(_SCORES[1] * slower * scores, 2.0 * slower)

    def bandwidth_bound(self) -> tuple[Ledger, Ledger]:
        """Norms, residual adds, activation, rotation and token permutation."""
        model, T, local, t, m = self.plan.model, self.tokens, self.local_tokens, self.tp, self.m
        h = float(model.hidden)
        norms = float(model.norms_per_layer)
        add = _BIAS_DROPOUT_ADD if model.dropout or model.bias_mlp else _ADD
        forward: Ledger = {
            "norm": self.operator(local * h * norms, m.norm_forward, m.norm_forward_s, norms),
            "residual": self.operator(local * h * 2, add[0], m.residual_forward_s, 2.0),
        }
        backward: Ledger = {
            "norm": self.operator(local * h * norms, m.norm_backward, m.norm_backward_s, 2 * norms),
            "residual": self.operator(local * h * 2, add[1], m.residual_backward_s, 2.0),
        }
        act = (m.gate_forward, m.gate_backward) if model.mlp == "gated" else _GELU
        dense, share = 1 - self.moe_share, self.moe_share
        if dense > 0:
            f = T * model.ffn_hidden / t
            forward["activation"] = dense * self.operator(
                f, act[0], m.activation_forward_s, self.gates
            )
            backward["activation"] = dense * self.operator(f, act[1], m.activation_backward_s, 2.0)
        if model.moe is not None and share > 0:
            routed = T * model.moe.experts_per_token
            widths = routed * model.moe.ffn_hidden / t + T * model.moe.shared_ffn_hidden / t
            left = m.expert_traffic
            forward["experts"] = share * self.stream(
                left * (widths * act[0] + routed * h * _PERMUTE[0]), 8.0
            )
            backward["experts"] = share * self.stream(
                left * (widths * act[1] + routed * h * _PERMUTE[1]), 10.0
            )
        qk, v = flops.head_widths(model)
        width = T * (model.heads * qk + model.kv_heads * (qk + v)) / t
        rotate = 1.0 if model.positions == "rotary" else 0.0
        each = (
            m.rotary_forward * rotate + _QKV_COPIES[0],
            m.rotary_backward * rotate + _QKV_COPIES[1],
        )
        forward["rotary"] = self.operator(width, each[0], m.rotary_forward_s, 1.0 + rotate)
        backward["rotary"] = self.operator(width, each[1], m.rotary_backward_s, 1.0 + rotate)
        biased = model.bias_qkv * width + T * (
            model.bias_attention_out * h + model.bias_mlp * (self.gates * model.ffn_hidden / t + h)
        )
        if np.any(biased > 0):
            backward["bias"] = self.stream(
                _BIAS_GRADIENT * biased, 2.0 * (model.bias_qkv + model.bias_mlp)
            )
        return forward, backward

    def weight_traffic(self) -> Array:
        """What the software moves per weight and micro-batch outside of products: accumulation,
        casts, communication buffers."""
        held = sum(
            share * columns * inner * batch
            for _, _, columns, inner, batch, share, _ in self.products()
        )
        return self.copy(held * self.m.weight_bytes_moved)

    def compute(self) -> tuple[Ledger, Ledger, Array, Array]:
        """Ledgers of GPU time forward and backward, forward time of the attention core and of
        re-run products."""
        forward: Ledger = {}
        backward: Ledger = {}
        kept: Array = 0.0
        for name, rows, columns, inner, batch, share, fp8 in self.products():
            with section(name):
                casts = self.m.expert_traffic if name.startswith("expert") else 1.0
                f, b = self.weight_product(rows, columns, inner, batch, fp8, casts)
            forward[f"matmul/{name}"], backward[f"matmul/{name}"] = share * f, share * b
            kept = kept + share * f
            self.flop = self.flop + share * 2 * rows * columns * inner * batch
        core, core_back = self.core()
        forward["attention/core"], backward["attention/core"] = core, core_back
        light, light_back = self.bandwidth_bound()
        forward.update({f"memory_bound/{k}": v for k, v in light.items()})
        backward.update({f"memory_bound/{k}": v for k, v in light_back.items()})
        backward["memory_bound/weights"] = self.weight_traffic()
        # torchtitan keeps attention and every second product, and repeats everything else
        kept = 0.5 * kept + sum(light.values())
        return forward, backward, core, kept

    def own_reductions(self) -> float:
        """More all-reduces of input gradients per layer where products that share an input do not
        share its reduction."""
        stack = self.plan.stack
        if not stack.overlap.reduce_each_product:
            return 0.0
        return 2.0 * (not stack.fusion.joint_qkv) + (self.gates - 1.0) * (
            not stack.fusion.joint_gate
        )

    def tail(self, forward: Ledger, found: list[Collective]) -> Array:
        """Forward time behind the last saved tensor, its exchange between tensor-parallel ranks
        included."""
        last = sum(
            (
                forward.get(f"matmul/{name}", 0.0)
                for name in ("mlp_out", "expert_out", "shared_out")
            ),
            start=np.zeros(1),
        )
        exchange = sum(
            c.forward * c.seconds
            for c in found
            if c.component == "tensor_parallel" and c.operation != "all_gather"
        )
        return last + forward["memory_bound/residual"] / 2 + exchange / self.blocks

    def head(self) -> Ledger:
        """Embedding, final norm, logits and loss of one micro-batch, forward and backward
        together."""
        h, T, columns = float(self.plan.model.hidden), self.tokens, self.vocab / self.tp
        fused = self.plan.training.fused_cross_entropy
        per_logit = (
            self.m.cross_entropy_bytes if fused is None else (_FUSED_LOSS if fused else _PLAIN_LOSS)
        )
        align = kernels.alignment_frac(columns, h, self.width, _UNALIGNED_WEIGHT)
        # chunks of the tokens one after the other, the weight's gradient of the next added to that
        # of the ones before
        chunks = np.minimum(float(self.plan.training.loss_chunks), T)
        rows, adds = T / chunks, self.width * h * columns * (chunks > 1)
        products = chunks * (
            self.gemm(rows, columns, h, align=align)
            + self.gemm(rows, h, columns, align=align)
            + self.gemm(h, columns, rows, extra=adds, align=align)
        )
        return {
            "matmul/logits": products,
            "memory_bound/loss": self.measured(
                T * columns, self.m.loss_s, 0.0, self.copy(T * columns * per_logit)
            ),
            "memory_bound/embedding": self.operator(
                self.local_tokens * h, _EMBEDDING, self.m.embedding_s, 0.0
            )
            + self.m.table_s * columns * h,
        }

    # ------------------------------------------------------------------------------------------- co

    def collectives(
        self, core: tuple[Array, Array], forward_s: Array, backward_s: Array
    ) -> list[Collective]:
        """Tensor, context and expert parallel communication of one layer, given the compute it can
        hide behind.

        core: attention forward and backward; forward_s, backward_s: all compute of the layer.
        """
        m, model, T, t = self.m, self.plan.model, self.tokens, self.tp
        found: list[Collective] = []
        zero = np.zeros_like(T)
        activation = self.width * T * model.hidden
        group = place(t, 1.0, self.domain)
        sequence = self.u["sequence_parallel"] > 0
        several = np.where(t > 1, 1.0, 0.0)
        hidden_share = m.tensor_hidden * sequence
        calls = several * (1.0 - hidden_share)
        blocks = self.blocks
        plain, halves = (
            np.where(sequence, 0.0, blocks),
            np.where(sequence, blocks, 0.0),
        )  # calls each way
        plain_back = np.where(sequence, 0.0, blocks + self.own_reductions())
        again = np.where(
            sequence & (t > 1), blocks, 0.0
        )  # inputs gathered again for weight gradients, beside compute

        def tensor(
            operation: str, seconds: Array, count: Array, hidden: Array, back: Array | None = None
        ) -> Collective:
            exposed, issued = count * calls, count * several
            behind = exposed if back is None else back * calls
            return Collective(
                operation,
                "tensor",
                "activations",
                "tensor_parallel",
                activation,
                seconds,
                exposed,
                behind,
                hidden,
                issued,
                group,
            )

        found.append(
            tensor(
                "all_reduce",
                communicate.all_reduce_s(m, activation, group),
                plain,
                zero,
                plain_back,
            )
        )
        found.append(
            tensor("all_gather", communicate.all_gather_s(m, activation, group), halves, again)
        )
        found.append(
            tensor(
                "reduce_scatter", communicate.reduce_scatter_s(m, activation, group), halves, zero
            )
        )

        if np.any(self.cp > 1):
            mla = model.latent
            per_token = (
                float(mla.kv_rank + mla.rope_head_dim)
                if mla
                else 2.0 * model.kv_heads * model.head_dim / t
            )
            keys = self.width * T * per_token * self.cp
            ring = place(self.cp, t, self.domain)
            each = communicate.all_gather_s(m, keys, ring)
            once = np.where(self.cp > 1, 1.0, 0.0)

            def exposed(
                beside_s: Array,
            ) -> Array:  # share of one pass that attention on the part at hand does not hide
                rest = np.maximum(each - _RING_HIDDEN * beside_s, 0.0) + m.slowdown * np.minimum(
                    each, beside_s
                )
                return once * rest / np.maximum(each, 1e-30)

            share, share_back = (
                exposed(core[0]),
                2 * exposed(core[1] / 2),
            )  # gradients travel with keys and values
            hidden = np.maximum(3 * once - share - share_back, 0.0)
            found.append(
                Collective(
                    "all_gather",
                    "context",
                    "keys and values",
                    "context_parallel",
                    keys,
                    each,
                    share,
                    share_back,
                    hidden,
                    once,
                    ring,
                )
            )

        if model.moe is not None and self.moe_share > 0 and np.any(self.ep > 1):
            moe = model.moe
            routed = self.width * T * moe.experts_per_token * model.hidden
            ring = place(self.ep, t, self.domain)
            remote = collectives.remote_copies_frac(
                ring.nodes, float(moe.experts_per_token), float(moe.group_limit or 1e9)
            )
            if "shared_copies" in m.without:
                remote = np.ones_like(remote)
            each = communicate.all_to_all_s(m, routed, ring, remote)
            calls = np.where(self.ep > 1, 2 * self.moe_share, 0.0)  # dispatch and combine, each way
            some = calls * each + 1e-30
            forward = calls * np.maximum(
                _EXPERT_EXPOSED, 1 - forward_s / some
            )  # no more hides than there is compute
            backward = calls * np.maximum(_EXPERT_EXPOSED, 1 - backward_s / some)
            found.append(
                Collective(
                    "all_to_all",
                    "expert",
                    "routed tokens",
                    "expert_parallel",
                    routed,
                    each,
                    forward,
                    backward,
                    2 * calls - forward - backward,
                    calls,
                    ring,
                )
            )
        return found


_RING_HIDDEN = 0.7  # share of attention that can hide the next keys and values; assumed
_EXPERT_EXPOSED = (
    0.15  # least share of dispatch and combine that nothing hides; assumed, over MoE runs
)


def padded_vocab(plan: Plan, tp: Array) -> Array:
    """Vocabulary after the padding of model and stack: a multiple of vocab_multiple * tp."""
    multiple = plan.stack.vocab_multiple * np.where(plan.stack.vocab_multiple > 1, tp, 1.0)
    return np.ceil(plan.model.padded_vocab / multiple) * multiple
