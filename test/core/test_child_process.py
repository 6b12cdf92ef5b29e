# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""A child with byte messages: order, size, signs of life, and causes of death."""
from __future__ import annotations

import os
import queue
import signal

import pytest

from intradp_ros.core.child_process import ChildProcess

MODULE = """
import os, signal, sys, threading, time
from intradp_ros.core.child_process import ChildSide
if sys.argv[1] == 'broken':
    raise RuntimeError('no such model')
if sys.argv[1] == 'slow':
    time.sleep(2.5)
done = threading.Event()
def heard(message):
    if message == b'print':
        print('into the log')
    elif message == b'die':
        os._exit(7)
    elif message == b'stop':
        os.kill(os.getpid(), signal.SIGSTOP)
    side.send(b'<', message, b'>')
side = ChildSide()
side.listen(heard)
done.wait()
"""


@pytest.fixture
def start(tmp_path, monkeypatch):
    (tmp_path / 'a_child_of_a_test.py').write_text(MODULE)
    children = []

    def begin(*words, silence=10.0):
        said, gone = queue.Queue(), queue.Queue()
        path = os.pathsep.join(filter(None, (str(tmp_path), os.environ.get('PYTHONPATH'))))
        children.append(ChildProcess(
            'child', 'a_child_of_a_test', words, said.put, gone.put, log=tmp_path / 'log',
            environment={'PYTHONPATH': path}, silence=silence))
        return children[-1], said, gone
    yield begin
    for child in children:
        child.kill()


def test_messages_of_any_size_come_back_in_order(start):
    child, said, gone = start('echo')
    large = os.urandom(5 << 20)
    child.send(b'a', b'b')
    child.send(large)
    child.send(b'print')
    assert said.get(timeout=60) == b'<ab>'
    assert said.get(timeout=60) == b'<' + large + b'>'
    assert said.get(timeout=60) == b'<print>'
    child.close()
    assert gone.get(timeout=60) == 'ended with code 0'


def test_a_log_that_cannot_be_written_is_done_without(start, tmp_path, caplog):
    """A site would not get another executor for one that died."""
    (tmp_path / 'log').mkdir()
    child, said, gone = start('echo')
    child.send(b'print')
    assert said.get(timeout=60) == b'<print>'
    assert f'{tmp_path}/log cannot be written' in caplog.text


def test_it_says_by_what_it_ended(start):
    child, said, gone = start('echo')
    child.send(b'die')
    assert gone.get(timeout=60) == 'ended with code 7'
    child.send(b'to nobody')
    child, said, gone = start('echo')
    child.send(b'x')
    said.get(timeout=60)
    os.kill(child.pid, signal.SIGSEGV)
    assert gone.get(timeout=60) == 'was ended by SIGSEGV'
    child, said, gone = start('broken')
    assert gone.get(timeout=60) == 'ended with code 1: RuntimeError: no such model'


def test_a_child_has_longer_to_start(start):
    child, said, gone = start('slow', silence=1.5)
    child.send(b'a')
    assert said.get(timeout=60) == b'<a>' and gone.empty()


def test_a_silent_child_is_killed(start):
    child, said, gone = start('echo', silence=3.0)
    child.send(b'x')
    said.get(timeout=60)
    child.send(b'stop')
    assert gone.get(timeout=60) == 'was silent for 3 s'
