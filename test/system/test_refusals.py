# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""A server with other weights, a lifecycle manager's calls, and parameters that cannot be."""
from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
import subprocess
import sys
import threading
from typing import Any

from lifecycle_msgs.msg import Transition
from lifecycle_msgs.srv import ChangeState, GetState
from node_processes import (
    DENSE,
    HEIGHT,
    Nodes,
    nodes,
    Observer,
    own_domain,
    picture,
    relative_difference,
    TIMEOUT,
    unsplit,
    WIDTH,
)
import pytest
import small_models
import torch

from intradp_ros.runtime.models.model import share_module, SharedModel

OTHER = f'small_models:other_weights 1x3x{HEIGHT}x{WIDTH} uint8'


@pytest.fixture(scope='module')
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    folder = tmp_path_factory.mktemp('refusals')
    with own_domain(folder), nodes(folder / 'logs') as running:
        yield running


def shared(factory: Any) -> SharedModel:
    return share_module(factory(), (torch.zeros(1, 3, HEIGHT, WIDTH, dtype=torch.uint8),))


class Manager:
    """Calls the lifecycle services of a node, as a lifecycle manager does."""

    def __init__(self, observer: Observer, node: str) -> None:
        self._change: Any = observer.node.create_client(ChangeState, f'{node}/change_state')
        self._state: Any = observer.node.create_client(GetState, f'{node}/get_state')

    def change(self, transition: int) -> bool:
        request = ChangeState.Request(transition=Transition(id=transition))
        return bool(self._call(self._change, request).success)

    def state(self) -> str:
        # An answer is lost if the node has not yet discovered who asks, so ask again.
        for _ in range(round(TIMEOUT / 5)):
            if answer := self._call(self._state, GetState.Request(), 5.0):
                return str(answer.current_state.label)
        raise TimeoutError('the node does not tell its state')

    @staticmethod
    def _call(client: Any, request: Any, timeout: float = TIMEOUT) -> Any:
        assert client.wait_for_service(TIMEOUT)
        done, future = threading.Event(), client.call_async(request)
        future.add_done_callback(lambda _: done.set())
        return future.result() if done.wait(timeout) else None


def test_a_server_with_other_weights_refuses(running: Nodes) -> None:
    """Both models are named; the robot answers alone; a lifecycle manager is obeyed."""
    running.start('offload_node', {'models': [OTHER]})
    robot = running.start('inference_node', {'model': DENSE, 'autostart': False}, ready='')
    ours, theirs = shared(small_models.dense).digest, shared(small_models.other_weights).digest
    assert ours != theirs
    observer = Observer()
    try:
        manager = Manager(observer, 'inference_node')
        assert manager.state() == 'unconfigured'
        assert manager.change(Transition.TRANSITION_CONFIGURE)
        assert manager.state() == 'inactive'
        assert manager.change(Transition.TRANSITION_ACTIVATE)
        observer.wait(lambda: observer.status('inference_node').get('refusal'), 'a refusal')
        refusal = observer.status('inference_node')['refusal']
        assert ours[:12] in refusal and f'{OTHER} ({theirs[:12]})' in refusal
        robot.wait_for_line(f'WARN.*the server refuses model {DENSE} .*{theirs[:12]}', TIMEOUT)
        observer.wait(lambda: DENSE in observer.diagnostics['/inference_node'][0], 'its name')
        assert observer.diagnostics['/inference_node'][0].startswith('refused by the server')
        for seed in range(3):
            result, stats = observer.infer(picture(seed))
            wanted = unsplit(small_models.dense(), picture(seed))
            assert relative_difference(result, wanted) <= 1e-4
            assert not stats.shared and not stats.recovered
        observer.wait(lambda: int(observer.status('offload_node')['rejected_refused']) > 0,
                      'the count of refusals')
        assert manager.change(Transition.TRANSITION_DEACTIVATE)
        observer.publish(picture(9))
        assert manager.change(Transition.TRANSITION_CLEANUP)
        assert manager.state() == 'unconfigured'
        assert observer.sent not in observer.results
        assert manager.change(Transition.TRANSITION_UNCONFIGURED_SHUTDOWN)
        assert manager.state() == 'finalized'
    finally:
        observer.close()


@pytest.mark.parametrize(('parameters', 'says'), [
    ({'grid.low_mbps': 9.0, 'grid.high_mbps': 3.0}, 'cannot configure: grid.low_mbps is above'),
    ({'grid.points': 0}, 'cannot start: .*grid.points'),
    ({'seed': 'some'}, 'cannot start: .*seed')])
def test_impossible_parameters_end_the_process(
        running: Nodes, parameters: dict[str, Any], says: str) -> None:
    """With status 1 and one line that names the cause."""
    planner = running.start('planner_node', parameters, ready=says)
    assert planner.wait(TIMEOUT) == 1
    assert 'Traceback' not in planner.output()


def test_a_parameter_file_that_cannot_be_read_ends_the_process(tmp_path: Path) -> None:
    """With one line, too, where ROS itself reads it and refuses."""
    file = tmp_path / 'robot.yaml'
    file.write_text('inference_node: {mode: local}\n')  # nothing below ros__parameters
    done = subprocess.run(
        [sys.executable, '-m', 'intradp_ros.nodes.sharing.planner_node', '--ros-args',
         '--params-file', str(file)],
        cwd=tmp_path, capture_output=True, text=True, timeout=TIMEOUT)
    assert done.returncode == 1 and 'Traceback' not in done.stderr
    assert 'cannot start' in done.stderr and str(file) in done.stderr
