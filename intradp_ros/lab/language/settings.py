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
from intradp_ros.systems.language.estimate import play
from intradp_ros.systems.language.live_planner import MakePlan
from intradp_ros.systems.language.manifest import read_manifest
from intradp_ros.systems.language.planner import plain_pipeline, plan_language, Planned

FLEET, COORDINATOR = 'language', 'coordinator'


@dataclass(frozen=True)
class DeviceSettings:
    """What a device process is started with; `memory` in bytes, for plans."""

    name: str
    store: str
    memory: int = 0
    threads: int = 1
    chunk: int = 128
    patience: float = 10.0


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
        settings['lane'])


def maker(kind: str) -> MakePlan:
    """Return what plans: "language" for ours, "plain" for a pipeline with offloading."""
    if kind == 'language':
        return plan_language

    def plain(costs: LanguageCosts, head: str, devices: frozenset[str]) -> Planned:
        plan = plain_pipeline(costs, head, devices)
        return Planned(plan, play(plan, costs).seconds, 'a plain pipeline with offloading')
    return plain


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
