"""Memory of a plan: device, host and drives, by pipeline stage and phase of the step."""

from __future__ import annotations

from typing import Annotated

from planner.specs.document import Document, key
from planner.specs.names import Verdict


class Outside(Document):
    """Device memory beyond what tensors hold."""

    fragmentation: Annotated[float, key("reserved by the allocator beyond its peak", "B")]
    context: Annotated[
        float, float, key("context of the driver and its libraries, and captured CUDA graphs", "B")
    ]
    communicators: Annotated[float, key("buffers of the communicators", "B")]


class Phase(Document):
    """One phase of the step on one pipeline stage."""

    name: Annotated[str, key("name of the phase, as `memory.worst_phase`")]
    bytes: Annotated[float, key("fullest moment of the phase, the sum of its components", "B")]
    components: Annotated[dict[str, float], key("parts of `bytes`, as `memory.components`", "B")]


class Stage(Document):
    """One pipeline stage."""

    stage: Annotated[int, key("number of the stage, from 0")]
    layers: Annotated[float, key("layers it holds")]
    holds: Annotated[
        str,
        key(
            "its chunks: E embedding, t layer, m multi-token prediction, L head, with bars between"
        ),
    ]
    pass_seconds: Annotated[
        float, key("forward and backward of one micro-batch, its messages apart", "s")
    ]
    peak_bytes: Annotated[float, key("allocated in its worst phase", "B")]
    reserved_bytes: Annotated[float, key("the same with fragmentation", "B")]
    worst_phase: Annotated[str, key("phase of the peak")]
    components: Annotated[dict[str, float], key("parts of `peak_bytes`", "B")]
    phases: Annotated[list[Phase], key("every phase of the step")]


class LayerActivation(Document):
    """Activations that one operator keeps for backward."""

    name: Annotated[str, key("operator")]
    bytes: Annotated[
        float, key("that one mean layer and micro-batch keeps for backward without recompute", "B")
    ]


_VERDICTS = (
    "fits: from a chance of 95 % on; may not fit: expected to fit, at a lower chance; probably does"
    " not fit: expected to need more than there is, at a chance of 5 % and more; does not fit"
)


class Chance(Document):
    """Whether it fits, and how sure that is."""

    fits: Annotated[
        bool, key("the expected device memory, host memory and drives suffice; see `fit_chance`")
    ]
    fit_chance: Annotated[
        float,
        key(
            "chance that device memory suffices, from measured runs; 0 where the host's does not",
            "1",
        ),
    ]
    verdict: Annotated[Verdict, key(_VERDICTS)]


class Fit(Chance):
    """Device memory against what there is."""

    device_bytes: Annotated[
        float, key("what nvidia-smi shows: reserved, context, communicators", "B")
    ]
    capacity_bytes: Annotated[float, key("what a framework can allocate on this GPU", "B")]
    headroom_bytes: Annotated[float, key("capacity minus device bytes; negative when short", "B")]


class Memory(Fit):
    """Memory per GPU, of the fullest rank."""

    peak_bytes: Annotated[float, key("allocated on the worst rank; sum of `components`", "B")]
    reserved_bytes: Annotated[float, key("with fragmentation", "B")]
    fit_evidence: Annotated[str, key("what `fit_chance` rests on")]
    reserved_high_bytes: Annotated[
        float,
        key("with twice the fragmentation that was measured; without any it is `peak_bytes`", "B"),
    ]
    nominal_bytes: Annotated[float, key("memory of the GPU as sold", "B")]
    worst_stage: Annotated[int, key("pipeline stage of the peak")]
    worst_phase: Annotated[
        str,
        key(
            "phase of the peak: load, forward, loss, backward, end of backward, gradient"
            " synchronisation, optimizer step"
        ),
    ]
    components: Annotated[dict[str, float], key("parts of `peak_bytes`; names below", "B")]
    outside: Annotated[Outside, key("what the peak of tensors does not hold")]
    host_bytes: Annotated[float, key("offloaded to host memory, per GPU", "B")]
    host_saving_bytes: Annotated[
        float, key("host memory per GPU that saving a checkpoint from a host copy takes", "B")
    ]
    host_loading_bytes: Annotated[
        float,
        key(
            "host memory per GPU that loading a checkpoint takes at most: the shard of a rank, or"
            " all that the file has for its layers",
            "B",
        ),
    ]
    host_pretrained_bytes: Annotated[
        float,
        key(
            "host memory per GPU while the weights are read that training begins with: whole copies"
            " of `--weight-readers`, shared out over the GPUs of a host",
            "B",
        ),
    ]
    host_room_bytes: Annotated[
        float | None, key("host memory of a node per GPU, null where it is not known", "B")
    ]
    host_fits: Annotated[bool, key("true where the size of host memory is not known")]
    nvme_bytes: Annotated[float, key("offloaded to NVMe drives, per GPU", "B")]
    nvme_fits: Annotated[bool, key("true where the size of the drives is not known")]
    best_recompute_group: Annotated[
        int,
        key(
            "layers per kept input with the smallest activation memory of the first stage, over the"
            " micro-batches in flight; groups save memory and never time"
        ),
    ]
    layer_activations: Annotated[list[LayerActivation], key("by operator, in order")]
    per_stage: Annotated[list[Stage], key("every pipeline stage")]
