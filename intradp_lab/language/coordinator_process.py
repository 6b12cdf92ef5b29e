# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The coordinator of an emulated fleet with a language model, over DDS; see `device_process`."""
from __future__ import annotations

import json
from pathlib import Path
import sys

from rclpy.context import Context

from intradp_lab.language.settings import COORDINATOR, costs_of, FLEET, maker
from intradp_ros.dds.dds_peers import DdsPeers
from intradp_ros.runtime.member.fleet_coordinator import FleetCoordinator
from intradp_ros.systems.language.live_planner import LanguagePlanner


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
