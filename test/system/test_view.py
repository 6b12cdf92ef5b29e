# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""`intradp view` over real nodes: who is out, when it listens, a publisher that floods."""
from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
import json
import os
from pathlib import Path
import re
import signal
import subprocess
import sys
import threading
import time
from typing import Any

from browser import browser
from node_processes import LATCHED, nodes, own_domain, TIMEOUT
import pytest
import rclpy
from rclpy.executors import SingleThreadedExecutor

from intradp_ros.cli.view_live import LINGER, Live
from intradp_ros.msg import FleetState, InferenceStats, InferenceTimeline
from intradp_ros.web.view_app import ViewServer

pytestmark = pytest.mark.slow
MODEL = 'small_models:dense 1x3x64x96 uint8'
FLOOD = """
import rclpy
from intradp_ros.msg import InferenceStats
rclpy.init()
node = rclpy.create_node('flood')
publisher = node.create_publisher(InferenceStats, '~/stats', 10)
message = InferenceStats(strategy='x' * 2000, latency_ms=1.0)
while True:
    publisher.publish(message)
"""
#: Keeps when a page first shows that a device is out, in ms since 1970.
NOTE = """window.noted = 0; new MutationObserver((_, seen) => {
    if (document.body.innerText.includes('1 of 2 devices are there')) {
        window.noted = Date.now(); seen.disconnect(); }
}).observe(document.body, {subtree: true, childList: true, characterData: true}); 0"""


class Said:
    """What a coordinator says, and when it does by its own clock."""

    def __enter__(self) -> Said:
        self._context = rclpy.Context()
        rclpy.init(context=self._context)
        self._node = rclpy.create_node('said', context=self._context)
        self._heard: list[FleetState] = []
        self._node.create_subscription(FleetState, '/fleet/state', self._heard.append, LATCHED)
        self._executor = SingleThreadedExecutor(context=self._context)
        self._executor.add_node(self._node)
        return self

    def out(self, since: float) -> float:
        """Return when it first said after a time (s) that one device of two is there."""
        end = time.monotonic() + TIMEOUT
        while not (found := [when for each in self._heard if len(each.alive) == 1 and since < (
                when := each.header.stamp.sec + 1e-9 * each.header.stamp.nanosec)]):
            assert time.monotonic() < end, self._heard
            self._executor.spin_once(0.05)
        return min(found)

    def __exit__(self, *_: object) -> None:
        self._executor.shutdown()
        self._node.destroy_node()
        self._context.try_shutdown()


class Looking:
    """Somebody who looks, without a browser."""

    def __init__(self, live: Live, **query: str) -> None:
        self._look = live.look(query)
        self.view = self._look.__enter__()

    def until(self, done: Callable[[str], Any], seconds: float = TIMEOUT) -> str:
        end = time.monotonic() + seconds
        while not done(text := json.dumps(self.view())):
            assert time.monotonic() < end, text[:3000]
            time.sleep(0.05)
        return text

    def close(self) -> None:
        self._look.__exit__(None, None, None)


def cpu_seconds(pid: int) -> float:
    fields = Path(f'/proc/{pid}/stat').read_text().rpartition(')')[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf('SC_CLK_TCK')


def test_a_device_that_is_killed_is_out_on_the_page(tmp_path: Path) -> None:
    with own_domain(tmp_path), nodes(tmp_path / 'logs') as start:
        boards = {name: start.start('device_node', {
            'roles': ['stages'], 'models': [MODEL], 'device_name': name}, label=name, node=name)
            for name in ('board1', 'board2')}
        start.start('coordinator_node', {
            'model': MODEL, 'stages': 'board1,board2', 'source': 'board1',
            'devices': ['board1', 'board2']})
        live = Live()
        with closing(live), closing(ViewServer(live, '127.0.0.1', 0)) as server, \
                browser(tmp_path / 'browser') as page:
            assert live.pid is None
            page.open(server.url)
            page.until("document.body.innerText.includes('2 of 2 devices are there')")
            for each in ('/board1 device well', '/coordinator_node coordinator well', 'board1',
                         'without a key', 'load', 'GB', '1. board1: operators'):
                page.until(f'document.body.innerText.includes({json.dumps(each)})')
            with Said() as said:  # a device that is stopped is out, and back when it goes on
                delays = []
                for _ in range(3):
                    page.run(NOTE)
                    stopped = time.time()
                    boards['board2'].signal(signal.SIGSTOP)
                    delays.append(page.until('window.noted') / 1e3 - said.out(stopped))
                    boards['board2'].signal(signal.SIGCONT)
                    page.until("document.body.innerText.includes('2 of 2 devices are there')")
            assert min(delays) < 0.5, delays  # the least: others compute on this machine, too
            boards['board2'].kill()
            page.until("document.body.innerText.includes('1 of 2 devices are there')")
            assert 'board2 device out' in page.text() and 'out for' in page.text()
            assert 'its heartbeats do not come' in page.text()
            page.open(server.url, width=400)
            page.until("document.body.innerText.includes('1 of 2 devices are there')")
            assert page.run('document.documentElement.scrollWidth') <= 400
            pid = live.pid
            page.open('about:blank')
            end = time.monotonic() + LINGER + TIMEOUT
            while live.pid is not None:
                assert time.monotonic() < end
                time.sleep(0.1)
            assert not Path(f'/proc/{pid}').exists()
        assert page.errors == []


class Robot:
    """A node that publishes what an inference node does, until it is closed."""

    def __init__(self) -> None:
        self.context = rclpy.Context()
        rclpy.init(context=self.context)
        self.node = rclpy.create_node('robot', context=self.context)
        self.stats = self.node.create_publisher(InferenceStats, '~/stats', 10)
        self.timelines = self.node.create_publisher(InferenceTimeline, '~/timeline', 10)
        self.number, self.measured, self._ended = 0, 0, threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._ended.wait(0.1):
            self.number += 1
            self.stats.publish(InferenceStats(
                inference=self.number, strategy='shared', shared=True,
                latency_ms=1000.0 + self.number, compute_ms=20.0))
            if self.timelines.get_subscription_count():
                self.measured += 1
                self.timelines.publish(InferenceTimeline(
                    inference=self.number, lane=['robot'], kind=['compute'],
                    name=['conv' + 'x' * 30_000], start=[0.0], stop=[0.02]))

    def close(self) -> None:
        self._ended.set()
        self._thread.join()
        self.node.destroy_node()
        self.context.try_shutdown()


def test_timelines_are_measured_on_a_wish_only_and_rarely(tmp_path: Path) -> None:
    with own_domain(tmp_path), closing(Robot()) as robot, closing(Live()) as live:
        with closing(Looking(live)) as looking:
            looking.until(lambda text: 'Sharing: /robot' in text)
            assert '"gantt"' not in json.dumps(looking.view())
        assert robot.measured == 0
        with closing(Looking(live, timelines='1')) as looking:
            looking.until(lambda text: '"gantt"' in text)
            begun, before = time.monotonic(), robot.measured
            time.sleep(12.0)
            measured, seconds = robot.measured - before, time.monotonic() - begun
            # 30 kB are three seconds' worth, and some may be on the way when it is left again
            assert 1 <= measured <= 2 * seconds / 3.0, (measured, seconds)


def test_a_flooding_publisher_costs_a_tenth_of_a_core_and_hides_nobody(tmp_path: Path) -> None:
    with own_domain(tmp_path), closing(Robot()) as robot, closing(Live()) as live, \
            closing(Looking(live)) as looking:
        looking.until(lambda text: 'Sharing: /robot' in text)
        flood = subprocess.Popen([sys.executable, '-c', FLOOD], cwd=tmp_path)
        try:
            looking.until(lambda text: 'Sharing: /flood' in text)
            time.sleep(5.0)  # until it is noticed, where the machine is not too busy to flood
            assert live.pid
            begun, before = time.monotonic(), cpu_seconds(live.pid)
            time.sleep(40.0)  # it is listened to again meanwhile
            share = (cpu_seconds(live.pid) - before) / (time.monotonic() - begun)
            assert share <= 0.1
            newest = robot.number
            looking.until(lambda text: max(map(int, re.findall(r'"frame (\d+)"', text)), default=0)
                          >= newest)
        finally:
            flood.kill()
            flood.wait()
