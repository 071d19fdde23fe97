"""A calibration file of a measured node, and a stack with what it measured."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from planner.inputs import catalog
from planner.specs.base import PlanError
from planner.specs.cluster import Verified
from planner.specs.hardware import GpuSpec, LinkSpec, StorageSpec
from planner.specs.host import HostSpec
from planner.specs.stack import StackSpec

FILE_VERSION = 1  # of calibration files; raised when older files cannot be read


def stack_spec(name: str, calibration: Calibration | None = None) -> StackSpec:
    """A stack by id, alias or path, with what a calibration measured of it."""
    stack = catalog.load("stacks", StackSpec, name)
    if calibration is None or stack.id not in calibration.stacks:
        return stack
    return catalog.load_overlaid(
        "stacks", StackSpec, name, calibration.stacks[stack.id], "stacks." + stack.id
    )


def read_calibration(name: str) -> Calibration:
    """A calibration file: `gpu` names the profile it corrects, `overlay`, `links.<id>` and
    `stacks.<id>` the corrected fields.

    A device that has no shipped profile is a whole one in `device`, its own links whole ones in
    `links.<id>`.
    """
    path = catalog.user_path(name, "--calibration")
    data = catalog.read_toml(path, "--calibration")
    known = {
        "schema_version",
        "gpu",
        "date",
        "source",
        "overlay",
        "device",
        "links",
        "stacks",
        "storage",
        "host",
        "verified",
        "node",
    }
    for key in data:
        if key not in known:
            raise PlanError(
                "--calibration",
                str(path),
                f"unknown key {key!r}; known keys: {', '.join(sorted(known))}",
            )
    if type(data.get("schema_version")) is not int or data["schema_version"] != FILE_VERSION:
        raise PlanError(
            "--calibration",
            str(path),
            f"schema_version is {data.get('schema_version')!r}; this version reads {FILE_VERSION}",
        )
    gpu, overlay, links, stacks = (
        data.get("gpu"),
        *(data.get(key, {}) for key in ("overlay", "links", "stacks")),
    )
    if not isinstance(gpu, str) or not all(
        isinstance(table, dict) for table in (overlay, links, stacks)
    ):
        raise PlanError(
            "--calibration",
            str(path),
            'needs gpu = "<id>" and tables [overlay], [links.<id>] and [stacks.<id>]',
        )
    for kind, tables in (("links", links), ("stacks", stacks)):
        for key, fields in tables.items():
            if not isinstance(fields, dict):
                raise PlanError(
                    "--calibration", str(path), f"{kind}.{key} must be a table of fields"
                )
    device, numbers = None, {}
    if "device" in data:
        device = catalog.build(GpuSpec, data["device"], "--calibration", f"{path} [device]")
        if device.id != gpu:
            raise PlanError(
                "--calibration",
                str(path),
                f"gpu is {gpu!r} and [device] is {device.id!r}; they must be the same",
            )
        if overlay:
            raise PlanError(
                "--calibration",
                str(path),
                "has both [device] and [overlay]; a whole device needs no overlay",
            )
    for link, fields in links.items():
        if link in catalog.ids("networks"):
            catalog.load_overlaid("networks", LinkSpec, link, fields, f"{path} [links.{link}]")
            continue
        if "id" not in fields or device is None:
            raise PlanError(
                "--calibration", str(path), f"[links.{link}]: {catalog.near('networks', link)}"
            )
        numbers[link] = catalog.build(LinkSpec, fields, "--calibration", f"{path} [links.{link}]")
    for stack in stacks:
        if stack not in catalog.ids("stacks"):
            raise PlanError(
                "--calibration", str(path), f"[stacks.{stack}]: {catalog.near('stacks', stack)}"
            )
        catalog.load_overlaid("stacks", StackSpec, stack, stacks[stack], f"{path} [stacks.{stack}]")
    storage = (
        catalog.build(StorageSpec, data["storage"], "--calibration", f"{path} [storage]")
        if "storage" in data
        else None
    )
    host = (
        catalog.build(HostSpec, data["host"], "--calibration", f"{path} [host]")
        if "host" in data
        else None
    )
    verified = (
        catalog.build(Verified, data["verified"], "--calibration", f"{path} [verified]")
        if "verified" in data
        else None
    )
    return Calibration(
        str(path), gpu, overlay, links, stacks, device, numbers, storage, host, verified
    )


@dataclass(frozen=True)
class Calibration:
    """Measured fields that replace fields of shipped profiles when hardware is loaded; formulas
    read profiles and calibrations alike."""

    path: str
    gpu: str
    overlay: dict[str, Any]
    links: dict[str, Any]
    stacks: dict[str, Any] = dataclasses.field(default_factory=dict)
    device: GpuSpec | None = None  # a device of its own, where no shipped profile is corrected
    own_links: dict[str, LinkSpec] = dataclasses.field(default_factory=dict)
    storage: StorageSpec | None = None  # what a node wrote and read
    host: HostSpec | None = None  # its processors and memory, as an offloaded optimizer finds them
    verified: Verified | None = None  # how near its estimates came
