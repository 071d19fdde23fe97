"""The verbs that take options: commands, and the questions of `dpplan recommend`."""

from __future__ import annotations

PARTS = frozenset({"schedule", "recommend offload"})  # about a part of a step
REQUESTS = PARTS | {
    "estimate",
    "search",
    "recommend cluster",
    "recommend bandwidth",
    "recommend batch",
    "recommend model",
    "compare",
    "batch",
    "tune",
    "rl",
    "strategies",
    "check",
}
PHASES = frozenset({"rl"})  # whose steps of training are one phase among others
WHOLE_STEPS = REQUESTS - PARTS - PHASES
RUNS = REQUESTS - PHASES - {"schedule", "strategies", "recommend offload"}  # about the whole run
SEARCHES = REQUESTS - {"strategies"}  # whose layout is searched
LINKS = frozenset({"allreduce", "batchnorm"})  # about links only
INPUT = frozenset({"input"})  # about loading only
METHODS = frozenset({"tune"})  # that sets what its methods of fine-tuning differ in
OF_METHODS = "is set by each method (--method); ask `dpplan estimate` for another"
# verbs that take what another takes, since they ask it
ALIKE = dict.fromkeys(("read", "export", "preflight"), "estimate")
OF_SEQUENCES = "follows from prompts, responses and their lengths"
NOT_OF_RUNS = "applies to the whole run, which this verb does not look at"
PARTLY = REQUESTS - {"strategies", "recommend offload"}  # that may train a part of the weights
OF_FROZEN = f"leaves weights frozen, and {OF_METHODS}"
UPDATES = REQUESTS - METHODS - {"strategies", "recommend offload"}
NO_UPDATE = "applies to the update on the host, which this verb does not look at"
NO_READING = "applies to the host while weights are read, which this verb does not look at"
TWO_KINDS = WHOLE_STEPS - {"recommend cluster"}
ONE_KIND = "applies to a second GPU type, which this verb does not look at"
LOADS = WHOLE_STEPS - {"strategies"} | INPUT
# verbs that print only the wait for data; others also the throughput that the input sustains
WAITS = LOADS - {"estimate", "search"} - INPUT
