# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The coordinator of an emulated fleet with a language model, over DDS; see `device_process`."""
from __future__ import annotations

import json
from pathlib import Path
import sys
from typing import Any

from rclpy.context import Context

from intradp_ros.blobs.store import BlobStore
from intradp_ros.cluster.device import Device
from intradp_ros.cluster.topology import behind_access_point, Medium, Topology
from intradp_ros.dds.dds_peers import DdsPeers
from intradp_ros.lab.language.device_process import COORDINATOR, FLEET
from intradp_ros.runtime.member.fleet_coordinator import FleetCoordinator
from intradp_ros.systems.language.costs import LanguageCosts
from intradp_ros.systems.language.estimate import play
from intradp_ros.systems.language.live_planner import LanguagePlanner, MakePlan
from intradp_ros.systems.language.manifest import read_manifest
from intradp_ros.systems.language.planner import plain_pipeline, plan_language, Planned


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


def main(arguments: list[str] | None = None) -> None:
    """Run until standard input ends."""
    words = sys.argv[1:] if arguments is None else arguments
    settings = json.loads(Path(words[0]).read_text())
    context = Context()
    context.init()
    channel = DdsPeers(context, FLEET, COORDINATOR)

    def log(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    planner = LanguagePlanner(costs_of(settings), settings['head'], log, maker(settings['kind']))
    coordinator = FleetCoordinator(channel, planner, log,
                                   gathering=settings.get('gathering', 30.0))
    coordinator.expect([d['name'] for d in settings['devices']])
    try:
        for _ in sys.stdin:
            pass
    finally:
        coordinator.close()
        channel.close()
        context.shutdown()


if __name__ == '__main__':
    main()
