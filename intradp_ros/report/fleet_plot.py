# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Draw a fleet: its devices, and the networks that join them."""
from __future__ import annotations

from collections.abc import Mapping
import math
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
import networkx

from intradp_ros.cluster.device import Device
from intradp_ros.cluster.fleet_file import Fleet, Network
from intradp_ros.report.palette import GRID, INK
from intradp_ros.report.saved_picture import save_picture

Place = tuple[float, float]
_SITES = ('#dbe9f6', '#e3f1dc', '#fbe6d0', '#ece1f2', '#f6dfe2')


def rate_text(bytes_per_second: float) -> str:
    """Return a rate in bit/s with a unit that suits it."""
    power = min(3, max(0, int(math.log10(8 * bytes_per_second) // 3)))
    unit = ('bit/s', 'kbit/s', 'Mbit/s', 'Gbit/s')[power]
    return f'{8 * bytes_per_second / 1e3 ** power:.4g} {unit}'


def memory_text(nbytes: float) -> str:
    """Return an amount of memory; nothing where there is no limit."""
    return '' if math.isinf(nbytes) else f'{nbytes / 1e9:.3g} GB'


def draw_fleet(fleet: Fleet, path: Path, title: str,
               notes: Mapping[str, str] | None = None) -> None:
    """
    Write a picture (PNG, or what the suffix of `path` says).

    Dashes are air that all on it share, lines are wires.  A path of the file
    that is in no network is not drawn.
    """
    graph = networkx.Graph()
    graph.add_nodes_from(('device', d.name) for d in fleet.topology.devices)
    for network in fleet.networks:
        graph.add_edges_from(_edges(network))
    places = networkx.kamada_kawai_layout(graph)
    figure = Figure(figsize=(8, 5.2), dpi=150, layout='constrained')
    axes = figure.add_subplot()
    axes.set_axis_off()
    axes.margins(0.18)
    axes.set_title(title, color=INK, fontsize=11, parse_math=False)
    for network in fleet.networks:
        _draw_network(axes, network, places, notes or {})
    _draw_devices(axes, fleet, places, notes or {})
    save_picture(figure, path)


def _edges(network: Network) -> list[tuple[tuple[str, str], tuple[str, str]]]:
    members = [('device', name) for name in network.members]
    if network.kind == 'access point':
        return [(member, ('network', network.name)) for member in members]
    return list(zip(members, [*members[1:], members[0]][:len(members)]))


def _draw_network(axes: Axes, network: Network, places: Mapping[tuple[str, str], Place],
                  notes: Mapping[str, str]) -> None:
    for a, b in _edges(network):
        air = network.kind == 'access point' and a[1] not in network.wired
        (xa, ya), (xb, yb) = places[a], places[b]
        axes.plot([xa, xb], [ya, yb], color=INK, linewidth=1.2,
                  linestyle=(0, (4, 3)) if air else 'solid', zorder=1)
        if not air:
            rate = network.port if network.kind == 'access point' else network.rate
            axes.text((xa + xb) / 2, (ya + yb) / 2, rate_text(rate), fontsize=7, color=INK,
                      ha='center', va='center', zorder=2,
                      bbox={'facecolor': 'white', 'edgecolor': 'none', 'pad': 1})
    if network.kind == 'access point':
        delay = f', {1e3 * network.delay:g} ms' if network.delay else ''
        axes.text(*places['network', network.name],
                  f'{network.name}\n{rate_text(network.rate)}{delay}\nshared air'
                  + (f'\n{notes[network.name]}' if network.name in notes else ''), fontsize=8,
                  color=INK, ha='center', va='center', zorder=3, parse_math=False,
                  bbox={'boxstyle': 'round,pad=0.5,rounding_size=1', 'facecolor': 'white',
                        'edgecolor': INK, 'linestyle': '--'})


def _draw_devices(axes: Axes, fleet: Fleet, places: Mapping[tuple[str, str], Place],
                  notes: Mapping[str, str]) -> None:
    sites = list(dict.fromkeys(d.site for d in fleet.topology.devices))
    for device in fleet.topology.devices:
        colour = _SITES[sites.index(device.site) % len(_SITES)]
        label = '\n'.join([_label(device, fleet), *filter(None, [notes.get(device.name)])])
        axes.text(*places['device', device.name], label, fontsize=8, color=INK,
                  ha='center', va='center', zorder=3, linespacing=1.3, parse_math=False,
                  bbox={'boxstyle': 'round,pad=0.5', 'facecolor': colour, 'edgecolor': GRID})


def _label(device: Device, fleet: Fleet) -> str:
    speed = 'own profile' if device.name in fleet.profiles else f'speed {device.speed:g}'
    lines = [device.name, ', '.join(filter(None, (memory_text(device.memory_bytes), speed)))]
    if device.battery:
        lines.append(f'battery {device.battery.level:.0%}')
    return '\n'.join([*lines, *([device.site] if device.site else [])])
