# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Plays a real video through an inference node and compares every result with the unsplit model.

The next frame is published when the result of the one before is there, so
that latencies are those of single inferences.  Every frame is played in all
modes in turn, in an order that changes from frame to frame, so that a machine
that changes is not taken for a mode that differs.  It begins once a frame that does
not count was answered: what is sent before the nodes have found each other is lost.
Seconds of waiting are those of a machine that has time (`Patience`).  What was seen is written
as JSON; lines that begin with ``phase`` and ``frame`` on standard output inform a
program that watches where the run is.
"""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
import json
from pathlib import Path
import time
from typing import Any

import numpy as np
from rcl_interfaces.srv import SetParameters
import rclpy
from rclpy.executors import ExternalShutdownException
from rclpy.node import Node
from rclpy.parameter import Parameter as RclParameter
from sensor_msgs.msg import Image
import torch
from torch.utils import _pytree as pytree

from intradp_lab.answer_check import check
from intradp_lab.zoo.video import frames
from intradp_ros.core.atomic_write import replacing, write_atomically
from intradp_ros.core.limits import MAX_BOOK_TEXT
from intradp_ros.core.patience import Patience
from intradp_ros.msg import InferenceResult, InferenceStats, InferenceTimeline, LinkState
from intradp_ros.msg import ScheduleBook as ScheduleBookMessage
from intradp_ros.nodes.common.lifecycle import LATCHED
from intradp_ros.nodes.common.parameters import declare, Parameter, read
from intradp_ros.nodes.sensors.image_messages import rgb_to_image, to_input
from intradp_ros.nodes.sharing.profile_publisher import BOOK_TOPIC
from intradp_ros.runtime.models.catalogue import ModelSpec
from intradp_ros.systems.sharing.book.book import ScheduleBook
from intradp_ros.wire.dtypes import decode_dtype
from intradp_ros.wire.texts import unpacked

FRAME_TIMEOUT = 20.0   # seconds after which a frame counts as lost
READY_TIMEOUT = 420.0  # seconds that profiles and book may take
MEET_TIMEOUT = 120.0   # seconds until a first frame is answered, or a mode is set
#: Seconds in which a robot notices that its server is gone (`PatiencePolicy.away` is 2).
MISSED_WITHIN = 10.0
WARM_UP = 2
KILLED = 'server_killed'

PARAMETERS = (
    Parameter('model', 'intradp_lab.zoo.hed:hed 1x3x144x336 uint8',
              'The model that the inference node runs.'),
    Parameter('node', 'inference_node', 'Name of the inference node.'),
    Parameter('frames', 30, 'Frames in every mode.', 1, 100000),
    Parameter('every', 8, 'Take each n-th frame of the video.', 1, 1000),
    Parameter('modes', ['local', 'offload', 'cut', 'shared'], 'Modes, in order.'),
    Parameter('kill_after', 10, 'Ask for the server to be killed during this frame of a further '
              'shared run, and restarted after as many again; 0 for no such run.', 0, 100000),
    Parameter('output', 'out/player', 'Folder for report, picture and timeline.'),
)


@dataclass
class Phase:
    """
    What was seen in one mode; milliseconds, bytes and joules for each frame.

    Lists have no place for frames that were lost: `frame` says which ones
    they are of.  `by_rows` says whether both sides computed rows of the same
    operators, and the server's part came.
    """

    frames: int = 0
    lost: int = 0
    shared: int = 0
    recovered: int = 0
    latency_ms: list[float] = field(default_factory=list)
    answer_ms: list[float] = field(default_factory=list)
    predicted_ms: list[float] = field(default_factory=list)
    bytes_up: list[int] = field(default_factory=list)
    bytes_down: list[int] = field(default_factory=list)
    energy_j: list[float] = field(default_factory=list)
    rate_mbps: list[float] = field(default_factory=list)
    by_rows: list[bool] = field(default_factory=list)
    frame: list[int] = field(default_factory=list)
    schedule: list[int] = field(default_factory=list)
    max_rel_diff: float = 0.0
    top5_equal: bool = True


class Player(Node):
    """Publishes frames and waits for results."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__('player_node', **kwargs)
        declare(self, PARAMETERS)
        settings = read(self, PARAMETERS)
        self.settings = settings
        self.folder = Path(settings['output'])
        self.folder.mkdir(parents=True, exist_ok=True)
        spec = ModelSpec.parse(settings['model'])
        size = (spec.shape[3], spec.shape[2])
        self.pictures = list(frames(settings['frames'], size, settings['every']))
        self.expected = self._references(spec)
        self.results: dict[int, InferenceResult] = {}
        self.stats: dict[int, InferenceStats] = {}
        self.timelines: dict[int, InferenceTimeline] = {}
        self.books: list[ScheduleBook] = []
        self.link = LinkState()
        self.missed = False
        self.back_s = 0.0
        self.count = 0
        self._open_topics(settings['node'])

    def _references(self, spec: ModelSpec) -> list[list[torch.Tensor]]:
        """Run the unsplit model on every frame."""
        model = spec.module()
        with torch.inference_mode():
            return [pytree.tree_leaves(model(to_input(p, spec.shape, spec.dtype)))
                    for p in self.pictures]

    def _open_topics(self, node: str) -> None:
        self.images = self.create_publisher(Image, 'image', 10)
        self.create_subscription(
            InferenceResult, 'result', lambda m: self._keep(self.results, m), 10)
        self.create_subscription(
            InferenceStats, f'{node}/stats', lambda m: self._keep(self.stats, m), 10)
        self.create_subscription(LinkState, f'{node}/link', self._take_link, 10)
        self.create_subscription(ScheduleBookMessage, BOOK_TOPIC, self._take_book, LATCHED)
        self.node_name = node
        self.modes: Any = self.create_client(SetParameters, f'{node}/set_parameters')

    def listen_to_timelines(self) -> None:
        """Ask the inference node for timelines by listening to them."""
        self.create_subscription(InferenceTimeline, f'{self.node_name}/timeline',
                                 lambda m: self._keep(self.timelines, m), 10)

    def _keep(self, store: dict[int, Any], message: Any) -> None:
        store[message.header.stamp.nanosec] = message

    def _take_link(self, message: LinkState) -> None:
        self.link = message
        self.missed |= not message.connected

    def _take_book(self, message: ScheduleBookMessage) -> None:
        book = ScheduleBook.from_json(unpacked(message.book, MAX_BOOK_TEXT))
        if book not in self.books:  # one is published again for a robot that comes back
            self.books.append(book)

    def say(self, text: str) -> None:
        """Inform those who watch."""
        print(f'phase {text}', flush=True)

    def spin_until(self, condition: Any, timeout: float) -> bool:
        """Take messages until the condition holds; return whether it does."""
        patience = Patience(timeout)
        while not condition():
            if patience.over:
                return False
            rclpy.spin_once(self, timeout_sec=0.05)
        return True

    def wait_ready(self) -> None:
        """Wait until the inference node shares with the server and knows the link."""
        ready = self.spin_until(lambda: self.link.connected and self.link.predicted_rate > 0,
                                READY_TIMEOUT)
        if not ready:
            raise RuntimeError('the inference node does not share with the server: '
                               'look at the logs of planner, server and robot')

    def meet(self) -> None:
        """Play a frame that does not count until it was answered, and its figures came."""
        patience = Patience(MEET_TIMEOUT)
        while not patience.over:
            self.count += 1
            key = self._publish(0)
            if self.spin_until(lambda k=key: k in self.results and k in self.stats, 1.0):
                return
        raise RuntimeError('the inference node answers no image: look at its log')

    def set_mode(self, mode: str) -> None:
        """Set the inference node's mode."""
        value = RclParameter('mode', value=mode).to_parameter_msg()
        if not self.spin_until(self.modes.service_is_ready, MEET_TIMEOUT):
            raise RuntimeError('the inference node has no service for its parameters')
        future = self.modes.call_async(SetParameters.Request(parameters=[value]))
        self.spin_until(future.done, MEET_TIMEOUT)
        answer = future.result()
        if answer is None or not answer.results[0].successful:
            raise RuntimeError(f'the inference node does not take mode {mode!r}: {answer}')

    def _publish(self, index: int) -> int:
        """Publish a frame; return what its answers are known by."""
        message = rgb_to_image(self.pictures[index])
        message.header.stamp.sec, message.header.stamp.nanosec = int(time.time()), self.count
        message.header.frame_id = 'camera'
        self.images.publish(message)
        return self.count

    def play(self, index: int, phase: Phase, during: str = '') -> None:
        """Publish one frame, wait for its result, and note what was seen."""
        self.count += 1
        start = time.monotonic()
        key = self._publish(index)
        if during:
            self.say(during)
        phase.frames += 1
        if not self.spin_until(lambda: key in self.results and key in self.stats, FRAME_TIMEOUT):
            phase.lost += 1
            return
        phase.answer_ms.append((time.monotonic() - start) * 1e3)
        self._note(phase, index, self.stats.pop(key))
        self._compare(self.results.pop(key), index, phase)

    def _compare(self, message: InferenceResult, index: int, phase: Phase) -> None:
        """Compare a result with the unsplit model's."""
        given = [torch.frombuffer(bytearray(t.data), dtype=decode_dtype(
            t.dtype_code, t.dtype_bits)).view(*t.shape) for t in message.outputs]
        found = check(given, self.expected[index])
        phase.max_rel_diff = max(phase.max_rel_diff, found.difference)
        phase.top5_equal &= found.same_top
        self.last = (self.pictures[index], given[-1].numpy())

    def _note(self, phase: Phase, index: int, stats: InferenceStats) -> None:
        phase.frame.append(index)
        phase.by_rows.append(stats.by_rows)
        phase.schedule.append(stats.schedule)
        phase.shared += stats.shared
        phase.recovered += stats.recovered
        phase.latency_ms.append(stats.latency_ms)
        phase.predicted_ms.append(stats.predicted_ms)
        phase.bytes_up.append(stats.bytes_up)
        phase.bytes_down.append(stats.bytes_down)
        phase.energy_j.append(stats.energy_j)
        phase.rate_mbps.append(self.link.predicted_rate * 8e-6)

    def run_modes(self, modes: Sequence[str]) -> dict[str, Phase]:
        """Play every frame in all modes, after a few that do not count."""
        phases = {mode: Phase() for mode in modes}
        self.say(f'{", ".join(modes)} in turn')
        for index in range(-WARM_UP, len(self.pictures)):
            if index >= 0:
                print(f'frame {index}', flush=True)
            for mode in rotated(modes, index):
                self.set_mode(mode)
                self.play(max(index, 0), phases[mode] if index >= 0 else Phase())
        return phases

    def run_killed(self, kill_after: int) -> tuple[Phase, Phase]:
        """Play while the server is killed and started again; then see it share again."""
        self.set_mode('shared')
        phase, again, self.missed = Phase(), Phase(), False
        restart = min(2 * kill_after, len(self.pictures) - 1)
        for index in range(len(self.pictures)):
            during = {kill_after: 'kill', restart: 'restart'}.get(index, '')
            self.play(index, phase, during)
        self.say('waiting for the server')
        start = time.monotonic()
        # Frames of milliseconds are through before the robot gives the old server up.
        self.spin_until(lambda: self.missed, MISSED_WITHIN)
        self.wait_ready()
        self.back_s = time.monotonic() - start
        for index in range(min(5, len(self.pictures))):
            self.play(index, again)
        return phase, again

    def record_timeline(self) -> None:
        """Play a few frames more, and keep the timelines of those that were shared by rows."""
        self.listen_to_timelines()
        phase, patience = Phase(), Patience(MEET_TIMEOUT)
        stages: dict[int, list[tuple[int, float]]] = {}
        while not self.timelines and not patience.over:
            self.play(0, phase)
            self.spin_until(lambda: bool(self.timelines), 1.0)
        self.timelines.clear()
        by_rows: dict[int, bool] = {}
        for index in range(min(5, len(self.pictures))):
            self.play(index, phase)
            by_rows[self.count] = phase.by_rows[-1:] == [True]
            stages[self.count] = self._stages(phase)
        self.spin_until(lambda: self.count in self.timelines, FRAME_TIMEOUT)
        events = [{'spans': [list(row) for row in zip(t.lane, t.kind, t.name, t.start, t.stop)],
                   'stages': stages[key]}
                  for key, t in self.timelines.items() if by_rows.get(key)]
        write_atomically(self.folder / 'timelines.json', json.dumps(events))

    def _stages(self, phase: Phase) -> list[tuple[int, float]]:
        """Return the stages of the last frame's schedule: where each ends, the robot's share."""
        number = phase.schedule[-1] if phase.schedule else -1
        if not self.books or not 0 <= number < len(self.books[-1].entries):
            return []
        return [(stage.stop, stage.share)
                for stage in self.books[-1].entries[number].partition.stages]

    def save(self, report: dict[str, Any]) -> None:
        """Write the report, and the last frame with its result."""
        picture, output = self.last
        with replacing(self.folder / 'last.npz') as part, part.open('wb') as stream:
            np.savez(stream, picture=picture, output=output)
        write_atomically(self.folder / 'player.json', json.dumps(report))


def rotated(modes: Sequence[str], turn: int) -> list[str]:
    """Return the modes in the order of a turn: each begins equally often."""
    first = turn % len(modes)
    return [*modes[first:], *modes[:first]]


def run(player: Player) -> None:
    """Play every mode, and the run with the killed server."""
    player.say('waiting for robot and server')
    player.wait_ready()
    player.say('profiles and schedules are there')
    player.meet()
    phases = player.run_modes(player.settings['modes'])
    report: dict[str, Any] = {'modes': {mode: asdict(p) for mode, p in phases.items()}}
    player.set_mode('shared')
    player.record_timeline()
    if player.settings['kill_after']:
        killed, again = player.run_killed(player.settings['kill_after'])
        report |= {KILLED: asdict(killed), 'after_restart': asdict(again),
                   'back_s': player.back_s}
    player.save(report | {'books': len(player.books)})
    player.say('done')


def main(args: list[str] | None = None) -> None:
    """Run the player."""
    rclpy.init(args=args)
    player = Player()
    try:
        run(player)
    except (KeyboardInterrupt, ExternalShutdownException):
        pass
    finally:
        player.destroy_node()
        rclpy.try_shutdown()


if __name__ == '__main__':
    main()
