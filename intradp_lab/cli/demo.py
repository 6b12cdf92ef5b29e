# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
`intradp demo`: real nodes, real DDS, a shaped link, a real video, two real networks.

As root, robot and server live in two network namespaces with a shaped link,
and the robot is made the slower side.  Otherwise they share this machine's
loopback and speed, and the report says so.
"""
from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from functools import partial
import json
from pathlib import Path
import platform
import statistics
from typing import Any

import numpy as np
from rich.console import Console
import torch

from intradp_lab.answer_check import exact
from intradp_lab.cli.claimed_folder import claim_folder
from intradp_lab.cli.watched import add_watch, watched
from intradp_lab.emulation import network
from intradp_lab.emulation.emulated_pair import emulated_pair, EmulatedPair, Side
from intradp_lab.emulation.processes import Child, ChildError
from intradp_lab.emulation.transport_choice import CHOICES
from intradp_lab.report import captioned_image as images
from intradp_lab.report.medians import median_interval, paired_ratio
from intradp_lab.report.rows_plot import rows_figure
from intradp_lab.report.sharing_page import killed_text, said, shared_frame
from intradp_lab.zoo.video import frames
import intradp_ros
from intradp_ros.cli.arguments import number, whole
from intradp_ros.cli.command_errors import CommandError
from intradp_ros.cli.output_paths import result_folder
from intradp_ros.report.result_tables import mode_table, write_json
from intradp_ros.report.saved_picture import save_picture
from intradp_ros.report.timeline_plot import draw_timeline
from intradp_ros.report.view.standing_page import write_page
from intradp_ros.runtime.models.catalogue import ModelSpec
from intradp_ros.split.calls.accelerator import open_device
from intradp_ros.split.kernel_device import HOST
from intradp_ros.systems.sharing.strategies import (
    SHARED,
)

MODELS = {'hed': 'intradp_lab.zoo.hed:hed 1x3x144x336 uint8',
          'mobilenet_v2': 'intradp_lab.zoo.mobilenet_v2:mobilenet_v2 1x3x224x224 uint8'}
#: What each is called on the page.
TITLES = {'hed': 'HED: the edges of a picture',
          'mobilenet_v2': 'MobileNetV2: what a picture shows'}
#: Everything that is written into the folder.
RESULTS = ('report.json', 'page.html', 'logs', *MODELS, *(f'{name}.png' for name in MODELS),
           'timeline.png', *(f'{kind}_{name}.png' for name in MODELS
                             for kind in ('timeline', 'rows')))
PLAYER, PLANNER = 'intradp_lab.player_node', 'intradp_ros.nodes.sharing.planner_node'
SERVER = 'intradp_ros.nodes.sharing.offload_node'
ROBOT = 'intradp_ros.nodes.sharing.inference_node'
SETUP_TIMEOUT = 480.0
PLAY_TIMEOUT = 600.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the demo's options."""
    parser.description = (
        'Share inferences of two real networks (HED edges, MobileNetV2) on a real video between '
        'a robot process and a server process over DDS; compare with local, offload and the best '
        'single cut; kill the server in the middle. Writes report.json, timeline.png and '
        'pictures.')
    parser.add_argument('--rate', type=number(0.0, 1e6, above=True), default=20.0, metavar='MBPS',
                        help='rate of the emulated link each way (default %(default)s)')
    parser.add_argument('--frames', type=whole(1, 10_000), default=30, help='frames in every mode')
    parser.add_argument('--models', nargs='+', choices=list(MODELS), default=list(MODELS),
                        help='which models to play')
    parser.add_argument('--transport', choices=CHOICES, default='udp',
                        help='DDS transport profile (default %(default)s, as nodes have it); '
                        'auto takes large_data, which costs less CPU, where the kernel grants its '
                        'buffers, else udp')
    parser.add_argument('--device', default=HOST.name, metavar='NAME',
                        help='what the server computes on: cpu (default), or a device of PyTorch '
                        'with memory of its own, such as cuda')
    parser.add_argument('--out', type=result_folder, default='out/demo',
                        help='folder to write to: an empty one, or one of an earlier demo')
    add_watch(parser)


def run(args: argparse.Namespace) -> int:
    """Run the demo; return the exit code."""
    console = Console()
    try:
        hardware = open_device(args.device).hardware
        claim_folder(args.out, 'intradp_demo', RESULTS)
    except ValueError as error:
        raise CommandError(str(error)) from error
    report: dict[str, Any] = {'versions': _versions(), 'models': {}}
    try:
        say = partial(console.print, highlight=False)
        with emulated_pair(args.rate, args.transport, args.out / 'logs', say) as pair, \
                watched(pair.server, args.watch, say):
            report['link'] = pair.link
            report['server'] = hardware or args.device
            for name in args.models:
                try:
                    report['models'][name] = _play(pair, name, args, console)
                except (ChildError, OSError) as error:  # what others gave is kept
                    report['models'][name] = {'failed': str(error)}
                    console.print(f'[red]{name} failed:[/red] {error}', highlight=False,
                                  markup=True)
    except network.NetworkError as error:
        raise CommandError(str(error)) from error
    report['said'] = said(report, TITLES, _all_well(report, Console(quiet=True)))
    write_json(args.out / 'report.json', report)
    write_page(args.out)
    console.print(f'Wrote {args.out}/report.json, page.html and pictures', highlight=False)
    return 0 if _all_well(report, console) else 1


def _versions() -> dict[str, str]:
    return {'intradp_ros': intradp_ros.__version__, 'torch': torch.__version__,
            'python': platform.python_version(), 'system': platform.platform()}


def _play(pair: EmulatedPair, name: str, args: argparse.Namespace, console: Console,
          ) -> dict[str, Any]:
    """Play one model through all modes; return its part of the report."""
    spec, folder = MODELS[name], args.out / name
    console.print(f'[bold]{name}[/bold]: running the unsplit model', highlight=False)
    everywhere = Side(pair.robot.prefix, (), pair.server.environment)
    player = pair.node(everywhere, PLAYER, {
        'model': spec, 'frames': args.frames, 'kill_after': args.frames // 3,
        'output': str(folder)})
    # Before the nodes start: it must not disturb their profiling.
    player.wait_for_line('^phase waiting for robot and server$', SETUP_TIMEOUT)
    console.print(f'[bold]{name}[/bold]: starting planner, server and robot', highlight=False)
    serve = partial(pair.node, pair.server, SERVER, {'models': [spec], 'device': args.device})
    server = serve()
    planner = pair.node(Side(pair.server.prefix, (), pair.server.environment), PLANNER,
                         {})
    robot = pair.node(pair.robot, ROBOT, {
        'model': spec, 'queue_size': 64, 'example': str(_example(spec, folder))})
    children = [server, planner, robot, player]
    try:
        _watch(serve, children, console)
    finally:
        for child in children:
            child.stop()
    return _evaluate(folder, name, args.out, console)


def _example(spec: str, folder: Path) -> Path:
    """Write a frame by which the robot sees what encodings make of such pictures."""
    height, width = ModelSpec.parse(spec).shape[2:]
    path = folder / 'example.png'
    images.save(path, next(frames(1, (width, height))))
    return path


def _watch(serve: Callable[[], Child], children: list[Child], console: Console) -> None:
    """Follow the player's phases; kill and restart the server when it says so."""
    player, since, killed = children[-1], 0, 0
    phase = ''
    while phase != 'done':
        timeout = PLAY_TIMEOUT if phase else SETUP_TIMEOUT
        match = player.wait_for_line(r'^phase (.*)$', timeout, since, children[killed:-1])
        since = player.output().index(match.group(0), since) + len(match.group(0))
        phase = match.group(1).strip()
        console.print(f'  {phase}', highlight=False)
        if phase == 'kill':
            children[0].kill()
            killed = 1
        elif phase == 'restart':
            children[0], killed = serve(), 0


def _evaluate(folder: Path, name: str, out: Path, console: Console) -> dict[str, Any]:
    seen = json.loads((folder / 'player.json').read_text())
    phases = {mode: _counted(phase) if mode == SHARED else phase
              for mode, phase in seen['modes'].items()}
    modes = {mode: _summary(phase) for mode, phase in phases.items()}
    console.print(mode_table(name, modes))
    part: dict[str, Any] = {'modes': modes, 'books': seen['books'],
                            'shared_against': compared(phases)}
    _report(part, console)
    killed, again = seen.get('server_killed'), seen.get('after_restart')
    if killed:
        part['server_killed'] = {
            **{key: killed[key] for key in ('frames', 'lost', 'recovered', 'max_rel_diff',
                                            'top5_equal')},
            'shared_after_restart': again['shared'], 'frames_after_restart': again['frames'],
            'back_s': seen['back_s']}
        console.print(f'  {killed_text(part)}', highlight=False)
    _draw(folder, name, out, modes)
    return part


def _counted(phase: Mapping[str, Any]) -> dict[str, Any]:
    """
    Return what counts of mode `shared`: the frames shared by rows, if most of them are.

    The robot may share otherwise, or not at all, where that is faster.
    """
    chosen = phase['by_rows']
    if 2 * sum(chosen) < len(chosen) or not chosen:
        return dict(phase)
    return {key: [item for item, taken in zip(value, chosen) if taken]
            if isinstance(value, list) else value for key, value in phase.items()}


def compared(phases: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return how many times as long as each other mode `shared` takes, frame by frame."""
    def by_frame(mode: str) -> dict[int, float]:
        return dict(zip(phases[mode]['frame'], phases[mode]['latency_ms']))

    ours = by_frame(SHARED)
    found = {}
    for mode in phases:
        both = sorted(ours.keys() & by_frame(mode).keys())
        if mode != SHARED and both:
            ratio = paired_ratio([ours[f] for f in both], [by_frame(mode)[f] for f in both])
            found[mode] = {'ratio': ratio.median, 'low': ratio.low, 'high': ratio.high,
                           'significant': ratio.high < 1 or ratio.low > 1}
    return found


def _report(part: Mapping[str, Any], console: Console) -> None:
    """Say which differences are significant, and how many frames were shared by rows."""
    shared = part['modes'][SHARED]
    console.print('  medians with 95 % intervals: ' + ', '.join(
        f'{mode} {row["median_ms"]:.0f} ({row["median_low_ms"]:.0f} to '
        f'{row["median_high_ms"]:.0f}) ms' for mode, row in part['modes'].items()
        if row['median_ms'] is not None), highlight=False)
    for mode, ratio in part['shared_against'].items():
        verdict = 'significant' if ratio['significant'] else 'not significant'
        console.print(f'  shared takes {ratio["ratio"]:.2f} times as long as {mode} '
                      f'({ratio["low"]:.2f} to {ratio["high"]:.2f}, frame by frame: {verdict})',
                      highlight=False)
    console.print(f'  {shared["by_rows"]} of {shared["frames"]} frames in mode shared were shared '
                  f'by rows; schedule tables: {part["books"]}', highlight=False)


def _summary(phase: Mapping[str, Any]) -> dict[str, Any]:
    """Condense one mode's frames into the figures of the report."""
    latency = sorted(phase['latency_ms'])
    if not latency:  # every frame was lost
        return {'frames': phase['frames'], 'lost': phase['lost'], 'shared': 0, 'recovered': 0,
                'by_rows': 0, 'max_rel_diff': 0.0, 'top5_equal': True, **dict.fromkeys((
                    'median_ms', 'median_low_ms', 'median_high_ms', 'p95_ms', 'answer_median_ms',
                    'bytes_up', 'bytes_down', 'energy_j', 'predicted_ms'))}
    middle = median_interval(latency)

    def mean(key: str) -> float:
        return statistics.fmean(phase[key]) if phase[key] else 0.0

    return {
        'frames': phase['frames'], 'lost': phase['lost'], 'shared': phase['shared'],
        'recovered': phase['recovered'], 'median_ms': middle.median,
        'median_low_ms': middle.low, 'median_high_ms': middle.high,
        'p95_ms': latency[min(len(latency) - 1, int(0.95 * len(latency)))],
        'answer_median_ms': statistics.median(phase['answer_ms']),
        'bytes_up': round(mean('bytes_up')), 'bytes_down': round(mean('bytes_down')),
        'energy_j': mean('energy_j'), 'energy_source': 'modelled',
        'max_rel_diff': phase['max_rel_diff'], 'top5_equal': phase['top5_equal'],
        'predicted_ms': statistics.median(phase['predicted_ms']),
        'predicted_rate_mbps': statistics.median(phase['rate_mbps']),
        'by_rows': sum(phase['by_rows'])}


def _draw(folder: Path, name: str, out: Path, modes: Mapping[str, Mapping[str, Any]]) -> None:
    """Draw timeline and rows of the shared frame of median length, and the last result."""
    if one := shared_frame(folder):
        path = out / ('timeline.png' if name == 'hed' else f'timeline_{name}.png')
        draw_timeline(one.spans, path, f'One shared inference of {name}, measured')
        if one.stages:
            save_picture(rows_figure(one.stages, f'{name}: which rows came from whom'),
                         out / f'rows_{name}.png')
    last = np.load(folder / 'last.npz')
    if last['output'].ndim == 4 and modes['shared']['median_ms'] and modes['local']['median_ms']:
        caption = [f'{name}: shared {modes["shared"]["median_ms"]:.0f} ms, '
                   f'local {modes["local"]["median_ms"]:.0f} ms, '
                   f'difference {modes["shared"]["max_rel_diff"]:.0e}']
        result = images.grey_map(last['output'][0, 0])
        images.save(out / f'{name}.png', images.side_by_side(
            [('frame', last['picture']), ('result', result)], caption))


def _all_well(report: Mapping[str, Any], console: Console) -> bool:
    """Check what the product promises: no frame lost, every result the unsplit model's."""
    well = True
    for name, part in report['models'].items():
        if part.get('failed'):
            well = False
            continue
        for mode, row in [*part['modes'].items(), ('server_killed', part.get('server_killed'))]:
            if row and not (row['lost'] == 0 and exact(row['max_rel_diff']) and row['top5_equal']):
                console.print(f'[red]{name} {mode}: {row["lost"]} frames lost, difference '
                              f'{row["max_rel_diff"]:.1e}, the largest scores are '
                              f'{"" if row["top5_equal"] else "not "}the same[/red]',
                              highlight=False)
                well = False
    return well
