# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Robots on their docks compute for a site, vanish, come back, and cannot say what is wrong."""
from __future__ import annotations

from contextlib import contextmanager, suppress
import json
import os
import signal
import struct
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from waiting import wait_for

from intradp_ros.runtime.requests.infer_requests import InferFate, InferRequest
from intradp_ros.systems.serving.executor import emulated_answer, Opened
from intradp_ros.systems.serving.executor_messages import (
    answer_message,
    batch_of,
    BatchResult,
    json_message,
)
from intradp_ros.systems.serving.gateway import Gateway
from intradp_ros.systems.serving.local_site import LocalSite
from intradp_ros.systems.serving.service import parse_services
from intradp_ros.web.connections import PEERS, SPEAKS
from intradp_ros.web.serving_app import serve

websockets = pytest.importorskip('websockets.sync.client')
ConnectionClosed = pytest.importorskip('websockets.exceptions').ConnectionClosed
SERVICES = parse_services("""
services:
  policy:
    model: "some:model"
    deadline: 5 s
    inputs: {image: uint8 4}
    outputs: {actions: float32 3}
""")
SERVICE, = SERVICES
OPENED = Opened(SERVICE.inputs, SERVICE.outputs, (1, 2), (0.5, 0.6), (0.0, 0.0), digest='d' * 64)
SAID = {'said': 'opened', 'service': 7, 'sizes': [1, 2], 'seconds': [0.01, 0.01],
        'spread': [0.0, 0.0], 'digest': 'd' * 64, 'inputs': [['x', 'uint8', [4]]],
        'outputs': [['y', 'float32', [3]]], 'why': '', 'nbytes': 0, 'load_seconds': 1.0}


class Lane:
    """The site's own executor, which answers when a test says so."""

    def __init__(self, gateway):
        self.gateway, self.batches = gateway, []
        gateway.joined(0, self)
        gateway.opened(0, 0, OPENED)

    def run(self, number, service, rows):
        self.batches.append(BatchResult(number, 0.1, [emulated_answer(SERVICE, r) for r in rows],
                                        [''] * len(rows)))

    def finish(self):
        while self.batches:
            self.gateway.ended(0, self.batches.pop())


@contextmanager
def site(names=('any',)):
    gateway = Gateway('a', SERVICES, [(0,)], compiled=False)
    server = serve(gateway, '127.0.0.1', 0, docks=names)
    try:
        yield gateway, f'ws://127.0.0.1:{server.port}/docks'
    finally:
        server.close()
        gateway.close()


def dialled(uri, speaks=SPEAKS):
    return websockets.connect(uri, compression=None, additional_headers={PEERS: speaks})


class Robot:
    """A robot that shows signs of life and answers what it is asked, until it is told not to."""

    def __init__(self, uri, said=SAID):
        self.socket = dialled(uri)
        self.socket.send(json.dumps({'offers': {'policy': 7, 'other': 8}}))
        self.socket.send(json_message(**{**SAID, 'service': 8}))
        self.socket.send(json_message(**said))
        self.batches, self.silent, self.answers = [], False, True
        threading.Thread(target=self.hear, daemon=True).start()
        threading.Thread(target=self.live, daemon=True).start()

    def live(self):
        while not self.silent:
            try:
                self.socket.send(b'')
            except Exception:  # noqa: BLE001 - closed
                return
            time.sleep(0.1)

    def hear(self):
        with suppress(ConnectionClosed):
            for message in self.socket:
                if not isinstance(message, str):
                    self.batches.append(batch_of(bytearray(message)))
                    if self.answers:
                        self.answer()

    def answer(self, cut=0):
        batch = self.batches.pop()
        assert batch.service == 7
        rows = np.frombuffer(batch.message, np.uint8, 4 * batch.rows, batch.start).reshape(-1, 4)
        outputs = np.concatenate([emulated_answer(SERVICE, {'image': row})['actions']
                                  for row in rows])
        data = b''.join(answer_message(batch.number, 0.01, [''] * batch.rows, [outputs.tobytes()]))
        self.socket.send(data[:len(data) - cut])


def ask(gateway, ends, value=3, remaining=60.0):
    gateway.submit(InferRequest('policy', {'image': np.full(4, value, np.uint8)}, remaining),
                   ends.append)


def test_a_robot_docks_computes_vanishes_in_silence_and_comes_back():
    with site() as (gateway, uri):
        lane, ends = Lane(gateway), []
        for _ in range(2):
            robot = Robot(uri)
            wait_for(lambda: gateway.docked == {1: '127.0.0.1'})
            ask(gateway, ends)  # it is faster than the site
            end = wait_for(lambda: ends.pop() if ends else None)
            assert end.fate is InferFate.IN_TIME and not lane.batches
            assert end.tensors['actions'].tolist() == [12.0] * 3
            robot.answers = False
            ask(gateway, ends)
            wait_for(lambda robot=robot: robot.batches)
            robot.silent = True
            wait_for(lambda: lane.batches, 3.0)  # placed anew
            lane.finish()
            assert wait_for(lambda: ends.pop() if ends else None).fate is InferFate.IN_TIME
            assert not gateway.docked
        described = gateway.described()
        assert described['services']['policy']['lost'] == 0 and described['executors'] == 1
        assert len(gateway._arrays.alive) == 1


@pytest.mark.parametrize('change, why', [
    ({'digest': 'e' * 64}, 'not the model of this site'),
    ({'inputs': [['x', 'uint8', [5]]]}, 'not the model of this site'),
    ({'sizes': [1, 3]}, 'not those of this site'), ({'sizes': [[1], 2]}, 'not those'),
    ({'sizes': [2, 1]}, 'not those'), ({'sizes': [1]}, 'not those'),
    ({'seconds': [0.01, -1]}, 'seconds of a batch'), ({'seconds': ['a', 1]}, 'are not numbers'),
    ({'spread': [0.0, float('nan')]}, 'spread of a batch'), ({'inputs': 3}, 'does not say'),
    ({'said': 'failed', 'error': 'x'}, 'could load nothing')])
def test_what_a_robot_opens_must_be_what_the_site_has(change, why):
    with site() as (gateway, uri):
        Lane(gateway)
        with pytest.raises(ConnectionClosed) as error:
            robot = dialled(uri)
            robot.send(json.dumps({'offers': {'policy': 7}}))
            robot.send(json_message(**{**SAID, **change}))
            robot.recv(10)
        assert why in error.value.rcvd.reason
        assert wait_for(lambda: gateway.numbers.take() == 1)


@pytest.mark.parametrize('data', [
    '{"offers": {"policy": -1}}', '{"offers": {"policy": 1, "a": 1}}', '{"offers": {"none": 1}}',
    '[' * 9000, '{"offers": 3}', '{' + ' ' * 20000 + '}', b'J{}', b''])
def test_bad_offers_are_refused(data):
    with site() as (gateway, uri):
        Lane(gateway)
        with dialled(uri) as robot:
            robot.send(data)
            with pytest.raises(ConnectionClosed):
                robot.recv(10)


def test_who_is_not_named_cannot_dock_and_a_site_compares_with_what_it_has():
    for names, why in (((), 'may not dock here'), (('any',), 'later')):
        with site(names) as (_, uri), dialled(uri) as robot:
            with pytest.raises(ConnectionClosed) as error:
                robot.send('{"offers": {"policy": 1}}')
                robot.recv(10)
            assert why in error.value.rcvd.reason


@pytest.mark.parametrize('wrong', ['cut', 'number', 'rows', b'X', b'R', b'J[' + b'[' * 5000])
def test_a_wrong_answer_ends_the_robot_and_harms_no_request(wrong):
    with site() as (gateway, uri):
        lane, ends = Lane(gateway), []
        robot = Robot(uri)
        wait_for(lambda: gateway.docked)
        robot.answers = False
        ask(gateway, ends)
        wait_for(lambda: robot.batches)
        if wrong == 'cut':
            robot.answer(cut=1)
        else:
            number = robot.batches[0].number
            robot.socket.send(wrong if isinstance(wrong, bytes) else b''.join(answer_message(
                number + (wrong == 'number'), 0.1, [''] * (1 + (wrong == 'rows')),
                [struct.pack('<3f', 1, 2, 3) * (1 + (wrong == 'rows'))])))
        wait_for(lambda: lane.batches)
        lane.finish()
        end = wait_for(lambda: ends.pop() if ends else None)
        assert end.fate is InferFate.IN_TIME and end.tensors['actions'].tolist() == [12.0] * 3


@pytest.mark.slow
def test_a_robots_process_is_killed_stopped_and_comes_back(tmp_path, monkeypatch):
    (tmp_path / 'their_nets.py').write_text(
        'import torch\nfrom torch import nn\n\n\ndef net():\n    torch.manual_seed(0)\n'
        '    return nn.Linear(4, 2).eval()\n')
    (tmp_path / 'services.yaml').write_text(
        'services:\n  policy: {model: "their_nets:net 1x4", deadline: 10 s}\n')
    monkeypatch.chdir(tmp_path)
    local = LocalSite('a', parse_services((tmp_path / 'services.yaml').read_text()),
                      compiled=False)
    server = serve(local.gateway, '127.0.0.1', 0, docks=('any',))
    gateway, ends, asked = local.gateway, [], 0

    def robot():
        return subprocess.Popen(
            [sys.executable, '-m', 'intradp_ros.cli.main', 'serve', 'dock', '--site',
             f'127.0.0.1:{server.port}', '--services', 'services.yaml'],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    process = robot()
    try:
        for end_it in (signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM):
            wait_for(lambda: gateway.docked, 120)
            name = gateway.specs('policy').inputs[0].name
            end, gone = time.monotonic() + 3.0, False
            while time.monotonic() < end:
                if not gone and time.monotonic() > end - 1.5:
                    gone = not os.kill(process.pid, end_it)
                gateway.submit(InferRequest('policy', {name: np.ones(4, np.float32)}),
                               ends.append)
                asked += 1
                time.sleep(0.003)
            wait_for(lambda: not gateway.docked, 5.0)
            wait_for(lambda asked=asked: len(ends) == asked)
            process.kill()
            process.wait()
            process = robot()
        assert {one.fate for one in ends} == {InferFate.IN_TIME}, {one.reason for one in ends}
        assert len({one.tensors[name].tobytes() for one in ends for name in one.tensors}) == 1
        assert gateway.described()['services']['policy']['lost'] == 0
    finally:
        process.kill()
        process.wait()
        server.close()
        local.close()
