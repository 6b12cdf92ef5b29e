# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Planner, offload and inference node as processes over DDS: exact in every mode and fault."""
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
import math
import signal
import threading

from node_processes import (
    DENSE,
    LATCHED,
    Nodes,
    nodes,
    Observer,
    own_domain,
    PATIENT,
    picture,
    QUICK_PLANNER,
    relative_difference,
    unsplit,
)
import numpy as np
import pytest
import small_models
from torch import nn

from intradp_lab.emulation.processes import Child
from intradp_ros.msg import InferenceResult, InferenceStats, SharingEvent, TensorChunk
from intradp_ros.power.power_sensors import find_sensor


@dataclass
class System:
    """The three nodes, and who watches them."""

    nodes: Nodes
    observer: Observer
    model: nn.Module
    planner: Child
    server: Child
    robot: Child

    def start_server(self) -> None:
        self.server = self.nodes.start('offload_node', {'models': [DENSE]})

    def start_robot(self) -> None:
        self.robot = self.nodes.start('inference_node', {'model': DENSE, **PATIENT})

    def shares(self) -> bool:
        """Wait until inferences in the mode `offload` are shared."""
        assert self.observer.set_mode('offload')[0]
        return self.observer.infer_until(picture(0), self.model, lambda s: s.shared).shared


@pytest.fixture(scope='module')
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    folder = tmp_path_factory.mktemp('sharing')
    with own_domain(folder), nodes(folder / 'logs') as running:
        observer = Observer()
        planner = running.start('planner_node', {**QUICK_PLANNER, 'grid.points': 3})
        server = running.start('offload_node', {'models': [DENSE]})
        robot = running.start('inference_node', {'model': DENSE, **PATIENT})
        system = System(running, observer, small_models.dense(), planner, server, robot)
        yield system
        observer.close()


@pytest.mark.parametrize('mode', ['local', 'offload', 'cut', 'shared'])
def test_every_mode_gives_the_unsplit_result(system: System, mode: str) -> None:
    """
    The mode changes at run time; headers are copied; in offload the server takes part.

    In shared mode the book may find that everything is best kept on the robot.
    """
    assert system.shares()
    assert system.observer.set_mode(mode) == (True, '')
    for seed in range(4):
        pixels = picture(seed)
        number = system.observer.publish(pixels)
        result, stats = system.observer.answer(number)
        assert relative_difference(result, unsplit(system.model, pixels)) <= 1e-4
        for message in (result, stats):
            stamp = message.header.stamp
            assert (stamp.sec, stamp.nanosec) == (number, number + 7)
            assert message.header.frame_id == f'camera {number}'
        assert stats.strategy in {'shared': ('shared', 'uneven', 'local')}.get(mode, (mode,))
        assert not stats.recovered and stats.latency_ms > 0 and stats.rejected == 0
        assert math.isnan(stats.energy_drawn_j) == (find_sensor() is None)
        if mode in ('local', 'offload'):
            assert stats.shared == (mode == 'offload')
            assert (stats.bytes_up > 0) == (stats.bytes_down > 0) == stats.shared
        system.observer.wait(lambda n=number: n in system.observer.maps, 'the map')
        dense = system.observer.maps[number]
        assert (dense.encoding, dense.header.frame_id) == ('32FC1', f'camera {number}')
        assert bytes(dense.data) == bytes(result.outputs[0].data)


def test_an_unknown_mode_is_refused(system: System) -> None:
    """The reason names the modes; the mode stays."""
    assert system.observer.set_mode('local')[0]
    taken, reason = system.observer.set_mode('magic')
    assert not taken and 'magic' in reason and 'shared, local, offload, cut' in reason
    assert system.observer.infer(picture(1))[1].strategy == 'local'


def test_images_of_other_sizes_and_encodings(system: System) -> None:
    """A larger image is resized; one without pixels is counted, and the next one answered."""
    result, _ = system.observer.infer(picture(2, 128, 192))
    assert list(result.outputs[0].shape) == [1, 1, 64, 96]
    before = system.observer.infer(picture(3))[1].rejected
    system.observer.publish(np.empty((0, 4, 3), np.uint8))
    assert system.observer.infer(picture(3))[1].rejected == before + 1


def test_the_server_is_killed_in_mid_inference(system: System) -> None:
    """
    The frame in flight arrives, exact; so do those after it; a new server is used again.

    Anyone who watches sees when it went, and when it was back.
    """
    assert system.shares()
    events: list[SharingEvent] = []
    before = int(system.observer.status('inference_node')['outages'])
    with system.observer.listening(
            SharingEvent, 'inference_node/events', events.append, LATCHED):
        kill_in_mid_inference(system)
        stats = system.observer.infer(picture(4))[1]
        assert not stats.shared and stats.alone_ms > 0
        system.start_server()
        assert system.shares()
        system.observer.wait(lambda: {'outage', 'return', 'session'} <= {
            e.kind for e in events}, 'the events')
    went = next(e for e in events if e.kind == 'outage')
    back = next(e for e in events if e.kind == 'return' and e.inference > went.inference)
    assert back.seconds > 0
    system.observer.wait(lambda: int(
        system.observer.status('inference_node')['outages']) == before + 1, 'the count')


def kill_in_mid_inference(system: System) -> None:
    """Stop the server, let the rows of a frame be on their way, and kill it."""
    pixels, inflight = picture(5), threading.Event()

    def hear(chunk: TensorChunk) -> None:
        if chunk.inference:
            inflight.set()

    with system.observer.listening(TensorChunk, 'offload/chunks_up', hear, 100):
        system.observer.infer_until(pixels, system.model, lambda s: inflight.is_set())
        for _ in range(5):  # a robot whose last frame was late may keep one to itself
            system.server.signal(signal.SIGSTOP)
            inflight.clear()
            number = system.observer.publish(pixels)
            if inflight.wait(5.0):
                break
            system.server.signal(signal.SIGCONT)
            system.observer.infer_until(pixels, system.model, lambda s: s.shared)
        else:
            pytest.fail('no frame went to the server while it was stopped')
        system.server.kill()
    result, stats = system.observer.answer(number)
    assert stats.recovered and not stats.shared
    assert relative_difference(result, unsplit(system.model, pixels)) <= 1e-4


def test_the_robot_is_restarted(system: System) -> None:
    """Killed and started again it shares, with the book that the planner has kept for it."""
    assert system.shares()
    system.robot.kill()
    system.start_robot()
    assert system.shares()


def test_planner_and_robot_are_restarted(system: System) -> None:
    """Without a planner sharing goes on; a new one finds the profiles and brings the book."""
    assert system.shares()
    system.planner.kill()
    assert system.observer.infer(picture(6))[1].shared
    system.robot.kill()
    system.start_robot()
    system.planner = system.nodes.start('planner_node', QUICK_PLANNER)
    system.planner.wait_for_line('published schedule table 1', 60)
    assert system.shares()


def test_several_frames_in_flight(system: System) -> None:
    """With three in flight a burst of frames is answered exactly, in order, by the server."""
    system.robot.kill()
    system.robot = system.nodes.start('inference_node', {
        'model': DENSE, 'max_inflight': 3, 'queue_size': 20, **PATIENT})
    assert system.shares()
    system.observer.wait(lambda: int(
        system.observer.status('offload_node').get('sessions', 0)) >= 3, 'three sessions')
    system.observer.results.clear()
    numbers, answers = list[int](), list[tuple[InferenceResult, InferenceStats]]()
    for burst in range(0, 12, 4):  # what a subscription of sensors keeps
        numbers += [system.observer.publish(picture(seed)) for seed in range(burst, burst + 4)]
        answers += [system.observer.answer(number) for number in numbers[burst:]]
    assert list(system.observer.results) == numbers
    for seed, (result, stats) in enumerate(answers):
        assert relative_difference(result, unsplit(system.model, picture(seed))) <= 1e-4
        assert stats.rejected == 0
    counted = [stats.inference for _, stats in answers]
    assert counted == list(range(counted[0], counted[0] + 12))
    assert sum(stats.shared for _, stats in answers) >= 6


def test_all_end_in_order(system: System) -> None:
    """Asked to end, as by Ctrl-C, every node leaves with status 0 and no trace of an error."""
    assert system.shares()
    assert system.server.stop() == 0
    assert not system.observer.infer(picture(7))[1].shared
    for child in (system.robot, system.planner):
        assert child.stop() == 0
    for child in (system.server, system.robot, system.planner):
        assert 'Traceback' not in child.output()
