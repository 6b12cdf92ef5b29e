# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What processes of an emulated fleet with a language model are started with; no ROS."""
from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
import threading
import time
from typing import Any

from intradp_ros.blobs.store import BlobStore
from intradp_ros.cluster.device import Device
from intradp_ros.cluster.topology import behind_access_point, Medium, Topology
from intradp_ros.systems.language.costs import LanguageCosts
from intradp_ros.systems.language.drafts import DRAFTS
from intradp_ros.systems.language.estimate import play
from intradp_ros.systems.language.live_planner import MakePlan
from intradp_ros.systems.language.manifest import read_manifest
from intradp_ros.systems.language.planner import (
    build,
    Choice,
    NoPlanError,
    plain_pipeline,
    plan_language,
    Planned,
    ring_order,
    share,
)
from intradp_ros.systems.language.segment_plan import SegmentPlan

FLEET, COORDINATOR = 'language', 'coordinator'
#: Ways to plan, each with what is said of its plan.
KINDS = {'language': '', 'plain': 'a plain pipeline with offloading',
         'even': 'layers in equal parts', 'last step': 'room for all tokens at once'}


@dataclass(frozen=True)
class DeviceSettings:
    """What a device process is started with; `memory` in bytes, for plans."""

    name: str
    store: str
    memory: int = 0
    threads: int = 1
    chunk: int = 128
    patience: float = 10.0
    drafts: int = DRAFTS


def costs_of(settings: dict[str, Any]) -> LanguageCosts:
    """Return the costs that settings describe: the same for coordinator and report."""
    store = BlobStore(Path(settings['store']), 1 << 44)
    text = store.load(settings['model'])
    assert text is not None
    manifest = read_manifest(bytes(text.numpy().data).decode(), settings['model'])
    devices = tuple(Device(d['name'], memory_bytes=d['memory'], speed=d.get('speed', 1.0),
                           disk=f'disk of {d["name"]}') for d in settings['devices'])
    disks = tuple(Medium(f'disk of {d["name"]}', d['disk']) for d in settings['devices'])
    plain = tuple(Device(d.name) for d in devices)
    joined = behind_access_point(plain, settings['mbit'] * 125e3) if len(plain) > 1 else \
        Topology(plain, (), {})
    return LanguageCosts(
        manifest, Topology(devices, joined.media + disks, joined.paths), settings['attention'],
        settings['mlp'], settings['head_seconds'], settings['hop'], settings['tokens'],
        settings['lane'], tuple(settings.get('blocks', ())))


def maker(kind: str) -> MakePlan:
    """
    Return what plans, by its name in `KINDS`.

    Two are ours with something left out: "even" divides the layers evenly over all devices,
    "last step" has room for keys and values of all tokens from the beginning.
    """
    if kind == 'language':
        return plan_language

    def make(costs: LanguageCosts, head: str, devices: frozenset[str]) -> Planned:
        if kind == 'plain':
            plan = plain_pipeline(costs, head, devices)
        elif kind == 'even':
            plan = even_plan(costs, head, devices)
        else:
            ours = plan_language(costs, head, devices).plan
            plan = ours.at(len(ours.steps))
        return Planned(plan, play(plan, costs).seconds, KINDS[kind])
    return make


def even_plan(costs: LanguageCosts, head: str, devices: frozenset[str]) -> SegmentPlan:
    """
    Return the fastest plan that gives each device as many layers as the others.

    :raises NoPlanError: if there is none.
    """
    names, layers = ring_order(devices, head), costs.manifest.layers
    counts = {n: (k + 1) * layers // len(names) - k * layers // len(names)
              for k, n in enumerate(names)}
    made = []
    for segments in range(1, min(counts.values()) + 1):
        shares = {n: share(costs, head, n, counts[n], segments) for n in names}
        if all(shares.values()):
            plan = build(costs, head, Choice(0.0, segments, {
                n: s for n, s in shares.items() if s}))
            made.append((play(plan, costs).seconds, segments, plan))
    if not made:
        raise NoPlanError(f'{costs.manifest.name} does not fit in equal parts')
    return min(made, key=lambda each: each[:2])[-1]


class PeakMemory:
    """The most memory that this process had to itself (no files), looked at ten times a second."""

    def __init__(self) -> None:
        self.nbytes = 0
        threading.Thread(target=self._look, name='peak-memory', daemon=True).start()

    def _look(self) -> None:
        while True:
            found = sum(1024 * int(line.split()[1])
                        for line in Path('/proc/self/status').read_text().splitlines()
                        if line.startswith(('RssAnon', 'RssShmem')))
            self.nbytes = max(self.nbytes, found)
            time.sleep(0.1)
