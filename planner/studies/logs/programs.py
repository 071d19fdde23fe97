"""The programs whose logs are known; a new one is a file beside this and a name in this list."""

from __future__ import annotations

from planner.studies.logs.contents import Reader
from planner.studies.logs.deepspeed import DeepSpeed
from planner.studies.logs.huggingface import HuggingFace
from planner.studies.logs.litgpt import LitGpt
from planner.studies.logs.llama_factory import LlamaFactory
from planner.studies.logs.maxtext import MaxText
from planner.studies.logs.megatron import Megatron
from planner.studies.logs.mlperf import Mlperf
from planner.studies.logs.ms_swift import MsSwift
from planner.studies.logs.nanogpt import NanoGpt
from planner.studies.logs.nanotron import Nanotron
from planner.studies.logs.nemo import Nemo
from planner.studies.logs.nemo_automodel import NemoAutomodel
from planner.studies.logs.nemo_rl import NemoRl
from planner.studies.logs.olmo import Olmo
from planner.studies.logs.tables import Table, TensorBoard, Wandb
from planner.studies.logs.torch_memory import TorchMemory
from planner.studies.logs.torchtitan import Torchtitan
from planner.studies.logs.torchtune import Torchtune
from planner.studies.logs.verl import Verl

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
    NanoGpt,
    LitGpt,
    Olmo,
    HuggingFace,
    TorchMemory,
)


def readers() -> list[Reader]:
    """One of each, with nothing read."""
    return [reader() for reader in _READERS]


def titles() -> list[str]:
    """The programs, as people call them."""
    return [program.TITLE for program in _READERS if program.TITLE] + [
        table.TITLE for table in TABLES
    ]
