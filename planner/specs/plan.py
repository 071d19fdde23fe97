"""A plan: what is trained x where x how x by which software, with the layout still partly open."""

from __future__ import annotations

from planner.specs.base import Spec
from planner.specs.cluster import ClusterSpec
from planner.specs.layout import LayoutRequest
from planner.specs.model import ModelSpec
from planner.specs.run import RunSpec
from planner.specs.stack import StackSpec
from planner.specs.training import TrainingSpec


class Plan(Spec):
    """Everything an estimate depends on besides the layouts it is asked about."""

    model: ModelSpec
    cluster: ClusterSpec
    training: TrainingSpec
    stack: StackSpec
    request: LayoutRequest = LayoutRequest()
    run: RunSpec = RunSpec()
