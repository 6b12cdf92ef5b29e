# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What keeps a node from an answer is said as it is, with a fix that fits."""
from __future__ import annotations

import json
import sys
import tempfile

import pytest

from intradp_ros.cli import node_request as requests
from intradp_ros.cli.main import main
from intradp_ros.cli.network_checks import check_network
from intradp_ros.cli.node_request import node_request, NodeRequestError
from intradp_ros.core.processes import Command


def asked(code: str, share: float = 1.0) -> object:
    return node_request(Command('probe', [sys.executable, '-I', '-c', code]), 0.0, lambda: share)


def test_the_last_line_is_the_answer() -> None:
    assert asked('print("a library prints"); print(\'{"nodes": []}\')') == {'nodes': []}


def test_an_answer_needs_no_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is full is a reason to ask how nodes do."""
    monkeypatch.setattr(tempfile, 'tempdir', '/nowhere')
    assert asked('print(\'{"nodes": []}\')') == {'nodes': []}


def test_what_a_node_waits_for_is_said_before_the_answer() -> None:
    said = list[str]()
    answer = node_request(Command('probe', [sys.executable, '-I', '-c', (
        'import time; print("a library prints")\nprint(\'{"waiting": "x: no node\', end=""); '
        'print(\' so far"}\', flush=True); time.sleep(1.5); print(\'{"ok": true}\')')]),
        0.0, lambda: 1.0, warn=said.append)
    assert said == ['x: no node so far'] and answer == {'ok': True}


@pytest.mark.parametrize(('code', 'says', 'fix'), [
    ('import rclpy_that_is_not_there', "a node cannot start: ModuleNotFoundError: No module named "
     "'rclpy_that_is_not_there'", 'source the setup file'),
    ('raise SystemExit("no RMW")', 'the node that asks ended with code 1: no RMW', ''),
    ('import os; os.kill(os.getpid(), 9)', 'the node that asks was killed (SIGKILL)', ''),
    ('print("done")', 'the node that asks ended with code 0', '')])
def test_a_setup_file_is_the_fix_only_where_something_cannot_be_imported(
        code: str, says: str, fix: str) -> None:
    with pytest.raises(NodeRequestError) as caught:
        asked(code)
    assert str(caught.value) == says
    assert caught.value.fix.startswith(fix) and bool(caught.value.fix) == bool(fix)


@pytest.mark.parametrize(('share', 'says', 'fix'), [
    (0.2, 'this machine is busy: about', 'when there is less of it'),
    (1.0, 'on a machine with time for it', 'shared memory')])
def test_a_busy_machine_is_not_taken_for_a_hang(
        share: float, says: str, fix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, 'STARTING', 0.3)
    with pytest.raises(NodeRequestError, match=says) as caught:
        asked('import time; time.sleep(600)', share)
    assert fix in caught.value.fix and 'source' not in caught.value.fix
    [finding] = check_network({'failed': str(caught.value), 'fix': caught.value.fix})
    assert 'source' not in finding.fix and finding.found == str(caught.value)


def test_status_says_the_cause_and_the_fix_once(
        monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(requests, 'STARTING', -1.0)
    monkeypatch.setattr(requests, 'share_of_core', lambda: 0.1)
    monkeypatch.setattr(requests.node_request, '__defaults__', (lambda: 0.1,))
    assert main(['status', '--seconds', '0.1', '--json']) == 2
    said = capsys.readouterr()
    assert said.out == '' and said.err.count('busy') == 1 and 'source' not in said.err
    assert json.dumps(said.err).count('try again') == 1
