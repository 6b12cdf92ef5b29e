# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""``intradp fleet show``: what a fleet file says, as a table and a picture."""
from __future__ import annotations

import argparse
from collections.abc import Iterator
import math
from pathlib import Path
from typing import Any

from intradp_ros.cli.arguments import existing_file
from intradp_ros.cli.command_errors import CommandError
from intradp_ros.cli.fleet_argument import check_profiles, fleet_of
from intradp_ros.cli.output import add_json, Output, output, plain, table
from intradp_ros.cli.output_paths import result_picture
from intradp_ros.cluster.fleet_file import Fleet
from intradp_ros.cluster.topology import Topology
from intradp_ros.report.fleet_plot import draw_fleet, memory_text, rate_text

DESCRIPTION = """\
Check a fleet file, and show its devices, its media, and what a transfer between two devices gets
alone."""

EPILOG = """\
examples:
  intradp fleet show config/fleet.yaml --picture fleet.png
  intradp fleet show config/fleet.yaml --json"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command line of the verb."""
    parser.description, parser.epilog = DESCRIPTION, EPILOG
    parser.add_argument('fleet', type=existing_file, metavar='FLEET.yaml',
                        help='file to check and show')
    parser.add_argument('--picture', type=result_picture, metavar='FILE',
                        help='draw the fleet here (.png or .svg)')
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Run the verb."""
    with output(args.json) as out:
        fleet = fleet_of(args.fleet)
        check_profiles(fleet)
        if args.picture:
            _draw(fleet, args.picture, args.fleet.name)
        _show(fleet, out)
        out.result(_data(fleet))
    return 0


def _draw(fleet: Fleet, path: Path, title: str) -> None:
    if path.suffix not in ('.png', '.svg'):
        raise CommandError(f'{path}: pictures are .png or .svg: choose one of them')
    try:
        draw_fleet(fleet, path, title)
    except OSError as error:
        raise CommandError(f'{path}: cannot be written: {error}') from None


def _show(fleet: Fleet, out: Output) -> None:
    devices = table('Devices', 'device', 'memory', 'speed', 'threads', 'disk', 'watts', 'battery',
                    'site')
    for d in fleet.topology.devices:
        disk = fleet.topology.medium(d.disk).bytes_per_second if d.disk else 0.0
        devices.add_row(
            plain(d.name), memory_text(d.memory_bytes),
            'own profile' if d.name in fleet.profiles else f'{d.speed:g}', str(d.threads),
            f'{disk / 1e6:g} MB/s' if disk else '',
            f'{d.power.compute:g} ({d.power.idle:g} idle)' if d.power else '',
            f'{d.battery.level:.0%} of {d.battery.capacity / 3600:.3g} Wh' if d.battery else '',
            plain(d.site))
    media = table('Media', 'medium', 'rate', 'delay')
    for m in fleet.topology.media:
        media.add_row(plain(m.name), rate_text(m.bytes_per_second), f'{1e3 * m.delay:g} ms')
    out.show(devices, media, *(_paths(fleet.topology) if fleet.topology.paths else ()))


def _paths(topology: Topology) -> Iterator[Any]:
    found = table('Paths', 'from', 'to', 'through', 'alone', 'delay')
    for (source, target), path in topology.paths.items():
        found.add_row(plain(source), plain(target), plain(', '.join(path)),
                      rate_text(topology.rate(source, target)),
                      f'{1e3 * topology.delay(source, target):g} ms')
    yield found


def _data(fleet: Fleet) -> dict[str, Any]:
    topology = fleet.topology
    return {
        'devices': [{
            'name': d.name, 'memory_bytes': None if math.isinf(d.memory_bytes) else d.memory_bytes,
            'speed': d.speed, 'threads': d.threads, 'disk': d.disk or None, 'site': d.site,
            'profile': str(fleet.profiles[d.name]) if d.name in fleet.profiles else None,
            'battery_joules': d.battery.charge if d.battery else None}
            for d in topology.devices],
        'media': [{'name': m.name, 'bytes_per_second': m.bytes_per_second, 'delay': m.delay}
                  for m in topology.media],
        'paths': [{'source': a, 'target': b, 'media': list(path),
                   'bytes_per_second': topology.rate(a, b), 'delay': topology.delay(a, b)}
                  for (a, b), path in topology.paths.items()]}
