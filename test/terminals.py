# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Documents tried as a reader tries them: each block as it is printed, in a shell that knows nothing.

In the order of the page, in one folder: ``sh`` runs in bash and ``python`` as a program; ``yaml``
is written to the file that the text before it names.  In a block without a language each command
has a terminal of its own: a launch file or node goes on, and is ended behind the page; the others
end by themselves, or by Ctrl-C where they show what goes on.
"""
from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
import os
from pathlib import Path
import re
import shutil
import signal
import subprocess
import sys
import time

from node_processes import domain_of_process, TESTS

#: Seconds until a block has ended, and until a node is active.
TIMEOUT = 300.0
#: Commands that go on until they are ended: nodes, and what shows messages as they come.
LASTING = re.compile(r'ros2 (launch|run) |intradp node ')
SHOWING = re.compile(r'ros2 topic (hz|echo) (?!.*--once)')


def blocks(document: Path) -> Iterator[tuple[str, str, str]]:
    """Yield language, text and the file that the paragraph before names, of each block."""
    text = document.read_text()
    for match in re.finditer(r'^```(\w*)\n(.*?)^```', text, re.DOTALL | re.MULTILINE):
        before = text[:match.start()].rstrip().rpartition('\n\n')[2]
        named = re.findall(r'`([\w.]+\.yaml)`', before)
        yield match[1], match[2], named[0] if named else ''


def commands(block: str) -> list[str]:
    """Return the commands of a block without a language, continued lines as one."""
    lines = block.replace('\\\n', ' ').splitlines()
    return [line for line in (re.sub(r'\s+#.*$', '', line).strip() for line in lines) if line]


def clean_environment(folder: Path) -> dict[str, str]:
    """Return what a new terminal knows whose environment, or workspace, was just sourced."""
    programs = folder / 'programs'
    programs.mkdir()
    if not shutil.which('ros2'):
        verbs = programs / 'ros2'
        verbs.write_text(f'#!/bin/sh\nexec {sys.executable} {TESTS / "ros2_verbs.py"} "$@"\n')
        verbs.chmod(0o755)
    home = folder / 'home'
    home.mkdir()
    path = (programs, Path(sys.prefix, 'bin'), *os.environ['PATH'].split(os.pathsep))
    kept = {name: os.environ[name] for name in ('LANG', 'PYTHONPATH', 'VIRTUAL_ENV')
            if name in os.environ}
    return {**kept, 'HOME': str(home), 'PATH': os.pathsep.join(map(str, path)),
            'AMENT_PREFIX_PATH': sys.prefix, 'ROS_DOMAIN_ID': domain_of_process(),
            'ROS_AUTOMATIC_DISCOVERY_RANGE': 'LOCALHOST', 'OMP_NUM_THREADS': '1',
            'PYTHONUNBUFFERED': '1'}


#: A camera, as pages with robots take it for granted.
CAMERA = """
import sys, time
import numpy as np
import rclpy
from rclpy.signals import SignalHandlerOptions
from intradp_ros.nodes.sensors.image_messages import rgb_to_image

rclpy.init(signal_handler_options=SignalHandlerOptions.NO)
node = rclpy.create_node('camera')
from sensor_msgs.msg import Image
topics = [node.create_publisher(Image, topic, 10) for topic in sys.argv[1:]]
random = np.random.default_rng(0)
while True:
    message = rgb_to_image(random.integers(0, 256, (144, 336, 3), dtype=np.uint8))
    message.header.stamp = node.get_clock().now().to_msg()
    for topic in topics:
        topic.publish(message)
    time.sleep(0.5)
"""


class Reader:
    """Somebody with a folder and terminals who does what a page says."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self.folder, self._environment = folder, environment
        self._lasting: list[tuple[subprocess.Popen[bytes], Path]] = []
        self._camera: subprocess.Popen[bytes] | None = None

    def do(self, language: str, block: str, file: str = '') -> None:
        """Do what a block says."""
        if language == 'yaml':
            (self.folder / file).write_text(block)
        elif language == 'python':
            self._run([sys.executable, '-c', block], block)
        elif language == 'sh':
            self._run(['bash', '-euc', block], block)
        else:
            typed = commands(block)
            if not any(LASTING.match(command) or SHOWING.match(command) for command in typed):
                typed = [block]  # one terminal does
            for command in typed:
                self.type(command)

    def type(self, command: str) -> None:  # noqa: A003
        """Type a command into a terminal."""
        if LASTING.match(command):
            self._go_on(command)
        elif SHOWING.match(command):
            self._look_on(command)
        else:
            self._run(['bash', '-euc', command], command)

    def start_cameras(self, *topics: str) -> None:
        """Start a camera that publishes on some topics."""
        with (self.folder / '.camera').open('wb') as output:
            self._camera = subprocess.Popen(
                [sys.executable, '-c', CAMERA, *topics], cwd=self.folder, env=self._environment,
                stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT)

    def close(self) -> None:
        """End what goes on."""
        if self._camera:
            self._camera.kill()
            self._camera.wait()
        for process, _ in self._lasting:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGINT)
        for process, _ in self._lasting:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    def written(self) -> str:
        """Return what all that goes on has written."""
        return '\n'.join(log.read_text(errors='replace') for _, log in self._lasting)

    def _run(self, words: list[str], text: str) -> None:
        log = self.folder / '.output'
        with log.open('wb') as output:
            process = subprocess.Popen(words, cwd=self.folder, env=self._environment,
                                       stdin=subprocess.DEVNULL, stdout=output,
                                       stderr=subprocess.STDOUT, start_new_session=True)
            try:
                status = process.wait(TIMEOUT)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                status = process.wait()
        said = log.read_text(errors='replace')
        # The command status ends with 1 as long as it reports that something is not there yet.
        fine = (0, 1) if re.fullmatch(r'(ros2 )?intradp status\s*', text) else (0,)
        assert status in fine, f'{text}\nended with {status}:\n{said}\n{self.written()}'

    def _go_on(self, command: str) -> None:
        log = self.folder / f'.terminal{len(self._lasting)}'
        with log.open('wb') as output:
            process = subprocess.Popen(['bash', '-c', f'exec {command}'], cwd=self.folder,
                                       env=self._environment, stdin=subprocess.DEVNULL,
                                       stdout=output, stderr=subprocess.STDOUT,
                                       start_new_session=True)
        self._lasting.append((process, log))
        deadline = time.monotonic() + TIMEOUT
        while not re.search(r'\]: active$', log.read_text(errors='replace'), re.MULTILINE):
            assert process.poll() is None and time.monotonic() < deadline, (
                f'{command}\nis not active:\n{log.read_text(errors="replace")}')
            time.sleep(0.2)

    def _look_on(self, command: str) -> None:
        """Wait for the first line of what shows messages as they come, and press Ctrl-C."""
        log = self.folder / '.output'
        with log.open('wb') as output:
            process = subprocess.Popen(['bash', '-c', f'exec {command}'], cwd=self.folder,
                                       env=self._environment, stdin=subprocess.DEVNULL,
                                       stdout=output, stderr=subprocess.STDOUT,
                                       start_new_session=True)
        deadline = time.monotonic() + TIMEOUT
        try:
            while not log.read_text(errors='replace').strip():
                assert process.poll() is None and time.monotonic() < deadline, (
                    f'{command}\nshows nothing\n{self.written()}')
                time.sleep(0.2)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGINT)
            process.wait(20)


@contextmanager
def reader(folder: Path) -> Iterator[Reader]:
    """Yield a reader with a folder; what goes on is ended behind it."""
    environment = clean_environment(folder)
    work = folder / 'work'
    work.mkdir()
    made = Reader(work, environment)
    try:
        yield made
    finally:
        made.close()
