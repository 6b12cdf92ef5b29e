# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Nodes of a fleet that hear nobody say so, where they looked, and where others are."""
from __future__ import annotations

from pathlib import Path
from typing import Any

from node_processes import LATCHED, nodes, Observer, own_domain, TIMEOUT
import pytest

from intradp_ros.msg import FleetState

MODEL = 'small_models:dense 1x3x64x96 uint8'
BOARD = {'roles': ['stages'], 'models': [MODEL], 'device_name': 'board1'}


def test_a_coordinator_in_another_namespace_than_its_devices_is_named(tmp_path: Path) -> None:
    """Topics of a fleet are relative; a name from the root brings its nodes together."""
    with own_domain(tmp_path), nodes(tmp_path / 'logs') as start:
        board = start.start('device_node', {**BOARD, 'fleet': 'hall'}, label='board1',
                            namespace='/board1')
        line = board.wait_for_line(
            r'WARN.*no coordinator of fleet hall is heard for 5 s: looked on /board1/hall/state, '
            r'/board1/hall/board1/coordinator/\.\.\. \(domain \d+, namespace /board1, .*\); '
            'start coordinator_node', TIMEOUT)
        assert line
        coordinator = start.start('coordinator_node', {
            'fleet': 'hall', 'model': MODEL, 'stages': 'board2', 'source': 'board2',
            'devices': ['board1', 'board2']})
        coordinator.wait_for_line(
            r'WARN.*no device of fleet hall is heard for 5 s: looked on /hall/devices, '
            r'/hall/board1/coordinator/\.\.\., /hall/board2/coordinator/\.\.\. \(.*\); a fleet of '
            'this name is on /board1/hall/devices, in another namespace', TIMEOUT)
        observer = Observer()
        states: list[Any] = []
        try:
            observer.wait(lambda: 'no device of fleet hall is heard' in observer.diagnostics.get(
                '/coordinator_node', ('', {}))[1].get('trouble', ''), 'diagnostics')
            observer.node.create_subscription(FleetState, '/hall/state', states.append, LATCHED)
            start.start('device_node', {**BOARD, 'device_name': 'board2', 'fleet': '/hall'},
                        label='board2', namespace='/board2')
            coordinator.wait_for_line('INFO.*device of fleet hall: there now', TIMEOUT)
            observer.wait(lambda: bool(states) and states[-1].plan != '', 'a plan')
            assert list(states[-1].alive) == ['board2']
        finally:
            observer.close()


@pytest.mark.parametrize('lost', [
    'coordinator', pytest.param('both', marks=pytest.mark.slow)])
def test_who_is_lost_from_a_plan_is_named_without_a_coordinator(lost: str, tmp_path: Path) -> None:
    with own_domain(tmp_path), nodes(tmp_path / 'logs') as start:
        children = {name: start.start('device_node', {**BOARD, 'device_name': name}, label=name,
                                      node=name)
                    for name in ('board1', 'board2')}
        coordinator = start.start('coordinator_node', {
            'model': MODEL, 'stages': 'board1,board2', 'source': 'board1',
            'devices': ['board1', 'board2']})
        observer = Observer()

        def trouble() -> str:
            return observer.diagnostics.get('/board1', ('', {}))[1].get('trouble', 'none yet')

        try:
            observer.wait(lambda: trouble() == '' and observer.diagnostics['/board1'][0]
                          == 'taking part', 'a plan')
            coordinator.kill()
            if lost == 'both':
                children['board2'].kill()
            observer.wait(lambda: 'no coordinator of fleet fleet is heard' in trouble(),
                          'the loss of the coordinator')
            assert ('board2 of the plan is not heard' in trouble()) == (lost == 'both')
        finally:
            observer.close()
