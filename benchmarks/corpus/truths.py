"""Truths of the corpus: what each file plans, worked out from the file by its own program's rules,
without the readers of this project.

    python -m benchmarks.corpus.truths

Shell scripts are run by bash itself in a jail (sandbox.py) and their commands taken apart; YAML and
TOML are loaded by PyYAML and tomllib. What a file leaves out is the default of the program at the
commit that `sources` names. Written to truths.csv: repository, path, option, value, why.

The rules of a program are a function of fine_tuning.py, pre_training.py, reinforcement.py or
more_programs.py.
"""

from __future__ import annotations

import csv
from collections.abc import Callable

from benchmarks.corpus import fine_tuning as tuning
from benchmarks.corpus import more_programs as more
from benchmarks.corpus import pre_training as training
from benchmarks.corpus import reinforcement as rl
from benchmarks.corpus.fetch import HERE, File, listed
from benchmarks.corpus.given import Truth

PROGRAMS: dict[str, Callable[[File], list[Truth]]] = {
    "megatron": training.megatron,
    "megatron-deepspeed": training.megatron,
    "gpt-neox": training.gpt_neox,
    "litgpt": training.litgpt,
    "trl": tuning.trl,
    "openrlhf": tuning.openrlhf,
    "open-instruct": tuning.open_instruct,
    "lmflow": tuning.lmflow,
    "llm-foundry": training.llm_foundry,
    "olmo": training.olmo,
    "oumi": tuning.oumi,
    "verl": training.verl,
    "axolotl": tuning.axolotl,
    "llama-factory": tuning.llama_factory,
    "torchtune": tuning.torchtune,
    "nanotron": training.nanotron,
    "kempnerforge": training.kempnerforge,
    "nemo-aligner": training.nemo,
    "ms-swift": tuning.ms_swift,
    "hf-trainer": tuning.hf_trainer,
    "deepspeed-chat": tuning.deepspeed_chat,
    "maxtext": training.maxtext,
    "olmo-core": more.olmo_core,
    "xtuner": more.xtuner,
    "nanogpt": more.nanogpt,
    "internevo": more.internevo,
    "notebook": more.notebook,
    "levanter": more.levanter,
    "automodel": more.automodel,
    "primus": more.primus,
    "picotron": more.picotron,
    "colossalai": more.colossalai,
    "firefly": more.firefly,
    "deepspeed": more.deepspeed,
    "accelerate": more.accelerate,
    "primus-torchtitan": more.primus,
    "primus-maxtext": more.primus,
    "nemo": training.nemo,
    "nemo-rl": rl.nemo_rl,
    "slime": rl.slime,
    "roll": rl.roll,
    "areal": rl.areal,
    "skyrl": rl.skyrl,
    "prime-rl": rl.prime_rl,
}


def main() -> None:
    counts: dict[str, int] = {}
    with (HERE / "truths.csv").open("w", encoding="utf-8", newline="") as out:
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(["repository", "path", "option", "value", "why"])
        for file in listed():
            truths = PROGRAMS[file.program](file) if file.program in PROGRAMS else []
            counts[file.program] = counts.get(file.program, 0) + len(truths)
            for option, value, why in truths:
                writer.writerow([file.repository, file.path, option, value, why])
    print(counts, sum(counts.values()))


if __name__ == "__main__":
    main()
