"""Options: which weights are trained, all or adapters beside them."""

from dataclasses import dataclass
from typing import Annotated, ClassVar

from planner.specs.names import AdapterMethod, BaseName, GradientType, LisaStates, UpcastName
from planner.specs.options import aliases
from planner.specs.options.record import Record
from planner.specs.options.row import Group, Needs, beside, option
from planner.specs.options.verbs import METHODS, OF_METHODS, REQUESTS

_WHY_NOT = f"leaves weights frozen, and {OF_METHODS}"
_PARTLY = REQUESTS - {"strategies", "recommend offload"}
_OF_LORA = beside("is of low-rank adapters", "lora")
_OF_PARTS = beside("is of training a part of the weights", "lora", "trainable_layers")


@dataclass(frozen=True, kw_only=True)
class AdapterOptions(Record):
    GROUP: ClassVar = Group("adapters", "Adapters and frozen weights")
    VERBS: ClassVar = _PARTLY
    WHY_NOT: ClassVar = "leaves weights frozen, whose states are what is compared"

    lora: Annotated[
        int | None,
        option(
            "Train low-rank adapters (LoRA) of this rank beside frozen weights, which have neither"
            " gradients nor optimizer states",
            label="LoRA rank",
            least=1,
            most=65_536,
            example="16",
            unset="all weights are trained",
            verbs=_PARTLY - METHODS,
            why_not=_WHY_NOT,
            form="shown",
        ),
    ] = None
    lora_method: Annotated[
        AdapterMethod | None,
        option(
            "Adapters: lora, rslora (scaled by the square root of the rank) or dora (separate"
            " column magnitudes)",
            label="Adapter",
            example="dora",
            unset="lora",
            needs=_OF_LORA,
            form="folded",
        ),
    ] = None
    lora_targets: Annotated[
        str | None,
        option(
            "Adapted matrices, joined by +: all-linear, attention, mlp, experts (routed alone), or"
            " names such as q_proj+v_proj, qkv_proj, gate_up_proj, linear_qkv",
            label="Adapted matrices",
            example="q_proj+v_proj",
            unset="all-linear: every matrix of a layer",
            verbs=_PARTLY - METHODS,
            why_not=_WHY_NOT,
            needs=_OF_LORA,
            form="folded",
        ),
    ] = None
    lora_dropout: Annotated[
        float | None,
        option(
            "Dropout on the adapters' input",
            label="Adapter dropout",
            least=0,
            most=0.99,
            example="0.1",
            unset="0",
            needs=_OF_LORA,
            form="folded",
        ),
    ] = None
    lora_precision: Annotated[
        GradientType | None,
        option(
            "Type of adapters, of their gradients and moments: fp32 as PEFT casts them"
            " (autocast_adapter_dtype), bf16 as torchtune has them",
            label="Adapters in",
            example="fp32",
            unset="as the stack keeps what it trains",
            needs=_OF_LORA,
            form="folded",
        ),
    ] = None
    lora_autocast: Annotated[
        bool | None,
        option(
            "What adapters in fp32 read is cast back to 16 bit (torch.autocast); without, the copy"
            " that each keeps of its input is in fp32",
            label="Adapter inputs cast",
            example="false",
            unset="cast back",
            verbs=_PARTLY - {"batch"},
            why_not="changes memory alone: ask `dpplan estimate`",
            needs=Needs(
                lambda given: given.lora is not None and given.lora_precision == "fp32",
                "is of adapters in fp32: give --lora and --lora-precision fp32, too",
                "--lora-precision fp32",
            ),
            form="folded",
        ),
    ] = None
    base_precision: Annotated[
        BaseName | None,
        option(
            "How the frozen matrices of layers are kept: nf4 or fp4 (double: with quantised scales,"
            " as QLoRA), int8 (LLM.int8), gptq, gptq-8bit, awq, hqq, fp8, fp8-blockwise or mxfp4;"
            " embedding, head, norms and routers stay in 16 bit",
            label="Frozen weights in",
            aliases=aliases.BASES,
            example="nf4-double",
            unset="16 bit",
            verbs=_PARTLY - METHODS,
            why_not=_WHY_NOT,
            needs=_OF_LORA,
            form="shown",
        ),
    ] = None
    base_group: Annotated[
        int | None,
        option(
            "Weights that share a scale (group_size of GPTQ, AWQ and HQQ)",
            label="Group of a scale",
            least=8,
            most=65_536,
            example="64",
            unset="128, of hqq 64",
            verbs=_PARTLY - METHODS,
            why_not=_WHY_NOT,
            needs=Needs(
                lambda given: given.base_precision in ("gptq", "gptq-8bit", "awq", "hqq"),
                "is of formats with groups of any size: take --base-precision gptq, awq or hqq",
            ),
            form="folded",
        ),
    ] = None
    base_upcast: Annotated[
        UpcastName | None,
        option(
            "What is left in fp32 beside matrices of bitsandbytes, so that activations between"
            " them are too: norms (TRL before 0.27) or all (norms, embedding and head:"
            " prepare_model_for_kbit_training of PEFT)",
            label="In fp32 beside them",
            aliases=aliases.UPCASTS,
            example="norms",
            unset="nothing, as Axolotl, LLaMA-Factory, Unsloth and newer TRL",
            verbs=_PARTLY - METHODS,
            why_not=_WHY_NOT,
            needs=Needs(
                lambda given: (
                    given.base_precision in ("nf4", "nf4-double", "fp4", "fp4-double", "int8")
                ),
                "is of bitsandbytes: take --base-precision nf4-double or another of its formats",
            ),
            form="folded",
        ),
    ] = None
    lora_adapters: Annotated[
        int | None,
        option(
            "Adapters per matrix, held and trained at once: several runs on one base model;"
            " each token uses one of them",
            label="Adapters at once",
            least=1,
            most=10_000,
            example="4",
            unset="1",
            needs=_OF_LORA,
            form="folded",
        ),
    ] = None
    fused_lora: Annotated[
        bool,
        option(
            "Kernels that fuse an adapter's product into the GEMMs (fms-acceleration, Unsloth)",
            label="Fused adapters",
            needs=_OF_LORA,
            form="folded",
        ),
    ] = False
    trainable_layers: Annotated[
        int | None,
        option(
            "Train this many of the last layers, the final norm and an untied head; all below"
            " is frozen and has no backward pass",
            label="Trained layers",
            least=1,
            most=100_000,
            example="2",
            unset="all",
            verbs=_PARTLY - METHODS,
            why_not=_WHY_NOT,
            needs=Needs(
                lambda given: given.lora is None,
                "freezes what adapters of all layers need: leave it or --lora out",
            ),
            form="folded",
        ),
    ] = None
    lisa: Annotated[
        int | None,
        option(
            "LISA: train embedding, final norm, head and this many random layers at a time;"
            " the others are frozen, but gradients pass through them",
            label="Random trained layers",
            least=1,
            most=100_000,
            example="2",
            unset="all",
            verbs=_PARTLY - METHODS,
            why_not=_WHY_NOT,
            needs=Needs(
                lambda given: given.lora is None and given.trainable_layers is None,
                "trains whole layers in turn: leave it, or --lora and --trainable-layers out",
            ),
            form="folded",
        ),
    ] = None
    lisa_states: Annotated[
        LisaStates | None,
        option(
            "Layers whose optimizer states LISA keeps: active (dropped when others come, as the"
            " paper has it) or visited (LMFlow, Axolotl and ms-swift drop none)",
            label="States of LISA",
            example="visited",
            unset="active",
            verbs=_PARTLY - METHODS - {"batch"},
            why_not="changes memory alone: ask `dpplan estimate`",
            needs=beside("is of layers that are trained in turn", "lisa"),
            form="folded",
        ),
    ] = None
    train_embeddings: Annotated[
        bool,
        option(
            "Train embedding and head as well (modules_to_save of PEFT)",
            label="Train embedding and head",
            needs=_OF_PARTS,
            form="folded",
        ),
    ] = False
