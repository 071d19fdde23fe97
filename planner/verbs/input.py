"""The verb `input`: what a stated rate of samples needs of storage, workers and host memory."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from planner.estimate import loading
from planner.inputs.options import read_without_model
from planner.inputs.workload import input_spec
from planner.specs.base import PlanError
from planner.specs.document import SCHEMA_VERSION
from planner.specs.documents.input import InputAnswer
from planner.specs.options.parallel import InputOptions


def answer(given: Mapping[str, Any], request: InputOptions) -> InputAnswer:
    """Needs of this many GPUs, one replica each. Raises PlanError naming the option.

    given: input options by name, sample_bytes among them.
    """
    batch, gpus = request.batch, request.gpus
    options = read_without_model(given, "input")
    if options.sample_bytes is None:
        raise PlanError(
            "--sample-bytes", None, "is needed: bytes read per sample, such as '115 kB'"
        )
    nodes = -(-gpus // request.gpus_per_node)
    spec = input_spec(options, nodes)
    assert spec is not None
    sample = loading.sample(spec, 1.0, 1)
    samples = float(batch * gpus)
    needs = loading.document(
        spec,
        sample,
        loading.times(spec, sample, samples, float(gpus), math.inf),
        samples=samples,
        step_s=samples / request.samples_per_s,
        replicas=float(gpus),
        nodes=nodes,
        batch=float(batch),
    )
    return InputAnswer(
        schema_version=SCHEMA_VERSION, gpus=gpus, nodes=nodes, batch=batch, input=needs
    )
