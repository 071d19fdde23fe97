"""The programs whose logs are known; a new one is a file beside this and a name in this list."""

from __future__ import annotations

from planner.inputs.logs.deepspeed import DeepSpeed
from planner.inputs.logs.found import Reader
from planner.inputs.logs.huggingface import HuggingFace
from planner.inputs.logs.llama_factory import LlamaFactory
from planner.inputs.logs.maxtext import MaxText
from planner.inputs.logs.megatron import Megatron
from planner.inputs.logs.mlperf import Mlperf
from planner.inputs.logs.ms_swift import MsSwift
from planner.inputs.logs.nanotron import Nanotron
from planner.inputs.logs.nemo import Nemo
from planner.inputs.logs.nemo_automodel import NemoAutomodel
from planner.inputs.logs.nemo_rl import NemoRl
from planner.inputs.logs.tables import Table, TensorBoard, Wandb
from planner.inputs.logs.torch_memory import TorchMemory
from planner.inputs.logs.torchtitan import Torchtitan
from planner.inputs.logs.torchtune import Torchtune
from planner.inputs.logs.verl import Verl

TABLES: tuple[type[Table], ...] = (TensorBoard, Wandb)
# where several have steps, the most steps count, and of equal numbers the first
_READERS: tuple[type[Reader], ...] = (
    Megatron,
    Nemo,
    NemoAutomodel,
    NemoRl,
    Torchtitan,
    Nanotron,
    DeepSpeed,
    Mlperf,
    MaxText,
    Torchtune,
    LlamaFactory,
    MsSwift,
    Verl,
    HuggingFace,
    TorchMemory,
)


def readers() -> list[Reader]:
    """One of each, with nothing read."""
    return [reader() for reader in _READERS]


def titles() -> list[str]:
    """The programs, as people call them."""
    return [reader.TITLE for reader in _READERS if reader.TITLE] + [
        reader.TITLE for reader in TABLES
    ]
