"""Peaks of fitcheck-llm (PyPI), run by the Python that has it: requests as JSON on the input, MiB
or null on the output."""

import json
import sys

from fitcheck import config_parser, estimator, gpu_db  # type: ignore[import-not-found]


def peak_mib(request):  # type: ignore[no-untyped-def]
    model = config_parser.ModelConfig(**request["model"])
    training = estimator.TrainingConfig(**request["training"])
    gpu = gpu_db.get_gpu(vram_mib=request["vram_mib"])
    return estimator.estimate(model, training, gpu).total_mib


if __name__ == "__main__":
    out = []
    for request in json.load(sys.stdin):
        try:
            out.append(peak_mib(request))
        except (TypeError, ValueError) as error:
            print(error, file=sys.stderr)
            out.append(None)
    json.dump(out, sys.stdout)
