# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Transitions of the nodes, and what they refuse to be configured with."""
from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
import re
import subprocess
import sys
import threading
from typing import Any, TypeVar
import warnings

from imagined_accelerator import ACCELERATORS
from node_processes import DENSE, Observer, picture, relative_difference, SCENE, unsplit
import pytest
import rclpy
from rclpy.exceptions import InvalidParameterTypeException, InvalidParameterValueException
from rclpy.executors import SingleThreadedExecutor
from rclpy.lifecycle import TransitionCallbackReturn
from rclpy.parameter import Parameter
import small_models
import torch
from waiting import wait_for

from intradp_ros.nodes.common.lifecycle import log_warning, ManagedNode
from intradp_ros.nodes.fleet.coordinator_node import CoordinatorNode
from intradp_ros.nodes.fleet.device_node import DeviceNode
from intradp_ros.nodes.serving.client_node import ClientNode
from intradp_ros.nodes.serving.gateway_node import GatewayNode
from intradp_ros.nodes.sharing.inference_node import InferenceNode
from intradp_ros.nodes.sharing.offload_node import OffloadNode
from intradp_ros.nodes.sharing.planner_node import PlannerNode
from intradp_ros.nodes.training.trainer_node import TrainerNode

SUCCESS, FAILURE = TransitionCallbackReturn.SUCCESS, TransitionCallbackReturn.FAILURE
TIMEOUT = 60.0
N = TypeVar('N', bound=ManagedNode)
GOOD: dict[type[ManagedNode], dict[str, Any]] = {
    InferenceNode: {'model': DENSE}, OffloadNode: {'models': [DENSE]}, PlannerNode: {},
    GatewayNode: {}, ClientNode: {}}
TRAIN = {'system': 'training', 'tasks': ['night.py:task']}
BAD = [
    (InferenceNode, {'model': 'no.such.package:net 1x3x8x8'}, "No module named 'no'"),
    (InferenceNode, {'model': 'small_models:nothing 1x3x8x8'}, "no attribute 'nothing'"),
    (InferenceNode, {'model': 'small_models:UNet 1x3x64'}, '3'),
    (InferenceNode, {'model': 'small_models:UNet'}, 'needs an input shape'),
    (InferenceNode, {'model': 'small_models:UNet big'}, 'not an input shape'),
    (InferenceNode, {'model': 'small_models:UNet 1x3x8x8 uint9'}, 'not a dtype'),
    (InferenceNode, {'model': 'small_models:seeded 1x3x8x8'}, "missing 1 required .*'make'"),
    (InferenceNode, {'model': 'math:pi 1x3x8x8'}, 'not callable'),
    (InferenceNode, {'model': '/no/such.archive'}, '/no/such.archive'),
    (InferenceNode, {'model': 'torch.nn:ReLU 2x3x8x8'}, 'batch 1'),
    (InferenceNode, {'model': 'torch.nn:ReLU 1x4x8x8'}, '1 x 3 x height x width'),
    (InferenceNode, {'model': SCENE}, 'set sensor to points'),
    (InferenceNode, {'model': SCENE, 'sensor': 'radar'}, 'one of image, points'),
    (InferenceNode, {'model': 'torch.nn:ReLU 2x4x8x8', 'sensor': 'points'}, 'batch 1'),
    (InferenceNode, {'model': SCENE, 'sensor': 'points', 'voxels.axes': 'xyw'}, "'xyw'"),
    (InferenceNode, {'model': SCENE, 'sensor': 'points', 'voxels.origin_m': [0.0, 1.0]},
     r'x, y and z, got \[0.0, 1.0\]'),
    (InferenceNode, {'model': SCENE, 'sensor': 'points', 'example': '/no/scan.npy'}, 'scan.npy'),
    (InferenceNode, {'model': DENSE, 'axis': 0}, 'axis 0 .* one row only'),
    (InferenceNode, {'model': DENSE, 'axis': 4}, 'axis 4 is not a dimension'),
    (InferenceNode, {'model': DENSE, 'predictor': 'oracle'}, 'one of last, ewma, cautious'),
    (InferenceNode, {'model': DENSE, 'mode': 'magic'}, 'one of shared, local, offload, cut'),
    (InferenceNode, {'model': DENSE, 'server': 'not a name'}, 'not a name'),
    (InferenceNode, {'model': DENSE, 'device': 'cuda:77'}, "no device 'cuda:77'"),
    (OffloadNode, {'models': [DENSE], 'device': 'gpu'}, "no device 'gpu' .* or take 'cpu'"),
    (OffloadNode, {'models': ['']}, 'models is empty'),
    (OffloadNode, {'models': ['small_models:nothing 1x3x8x8']}, "no attribute 'nothing'"),
    (PlannerNode, {'grid.low_mbps': 50.0, 'grid.high_mbps': 5.0}, 'grid.low_mbps'),
    (CoordinatorNode, {**TRAIN, 'tasks': ['']}, 'parameter tasks is empty'),
    (CoordinatorNode, {**TRAIN, 'tasks': ['night.py']}, "'night.py' names no task: write "),
    (CoordinatorNode, {**TRAIN, 'images': ['a=half']}, 'parameter images: .*DEVICE=SHARE'),
    (CoordinatorNode, {**TRAIN, 'images': ['a=nan']}, 'parameter images: .*DEVICE=SHARE'),
    (CoordinatorNode, {**TRAIN, 'images': ['a=-600']}, 'parameter images: .*DEVICE=SHARE'),
    (CoordinatorNode, {**TRAIN, 'images': ['a=0.5', 'b=0.6']}, 'on a, b add up to 1.1, not to 1'),
    (CoordinatorNode, {**TRAIN, 'folder': '/dev/null/night'}, 'parameter folder: /dev/null/night'),
    (CoordinatorNode, {**TRAIN, 'training_address': 'robot'}, 'parameter training_address: '),
    (CoordinatorNode, {**TRAIN, 'fleet_file': '/no/fleet.yaml'}, '/no/fleet.yaml'),
    (DeviceNode, {'roles': ['training']}, 'parameter tasks is empty'),
    (DeviceNode, {'roles': ['training'], 'tasks': ['night:']}, "'night:' names no task"),
    (DeviceNode, {'roles': ['training'], 'tasks': ['night:go'], 'training_address': '10.0.0'},
     'parameter training_address: '),
    (DeviceNode, {'roles': ['training', 'training@other']}, 'names a system twice'),
    (GatewayNode, {'services_file': '/no/services.yaml'}, '/no/services.yaml: No such file'),
    (GatewayNode, {'fleet_file': '/no/fleet.yaml'}, '/no/fleet.yaml'),
    (GatewayNode, {'plan_file': __file__}, 'name their fleet_file'),
    (GatewayNode, {'grpc_port': 4000}, 'name their fleet_file'),
    (GatewayNode, {'key_file': '/no/fleet.key'}, '/no/fleet.key'),
    (ClientNode, {'gateways': ['']}, 'gateways'),
    (ClientNode, {'gateways': ['a b']}, 'a b'),
    (ClientNode, {'service': ''}, 'service'),
    (ClientNode, {'model': 'small_models:nothing 1x3x8x8'}, "no attribute 'nothing'"),
    (ClientNode, {'api_key': '/no/robot.key'}, '/no/robot.key'),
    (ClientNode, {'frame_age': 'never'}, 'one of stamp, arrival'),
    (TrainerNode, {'tasks': ['night:go'], 'processes': 2, 'images': ['a=1']},
     'parameter images: there is no device a; there are process1, process2'),
]


@contextmanager
def made(kind: Callable[..., N], context: rclpy.Context, **parameters: Any) -> Iterator[N]:
    """Make a node; release and destroy it at the end."""
    node = kind(context=context, parameter_overrides=[
        Parameter(name, value=value) for name, value in parameters.items()])
    try:
        yield node
    finally:
        node.release()
        node.destroy_node()


def threads() -> set[str]:
    """Name what runs, save for what libraries of the survey of architectures leave behind."""
    return {t.name for t in threading.enumerate()} - {'tqdm_monitor'}


@pytest.mark.parametrize(('kind', 'parameters', 'cause'), BAD, ids=lambda x: None)
def test_bad_parameters_are_refused_with_the_cause(
        context: rclpy.Context, capfd: pytest.CaptureFixture[str], kind: type[ManagedNode],
        parameters: dict[str, Any], cause: str) -> None:
    """The node stays unconfigured and leaves nothing behind."""
    before = threads()
    with made(kind, context, **parameters) as node:
        assert node.trigger_configure() == FAILURE
        said = capfd.readouterr().err
        assert re.search(f'cannot configure: .*{cause}', said), said
        assert 'Traceback' not in said
        assert threads() == before
        assert not [t for t, _ in node.get_topic_names_and_types() if t.startswith('/result')]


def test_a_device_that_no_node_can_be_is_found_at_the_start(
        context: rclpy.Context, capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / 'fleet.yaml').write_text(
        'devices: {robot-1: {memory: 1 GB, speed: 1}, b: {memory: 1 GB, speed: 1}}\n'
        'networks: {site: {access point: 8 Mbit/s, devices: [robot-1, b]}}')
    with made(CoordinatorNode, context, **TRAIN, fleet_file=str(tmp_path / 'fleet.yaml')) as node:
        assert node.trigger_configure() == FAILURE
        said = capfd.readouterr().err
        assert 'parameter fleet_file: ' in said and "'robot-1': use at most" in said, said


@pytest.mark.parametrize(('kind', 'parameters'), [
    (InferenceNode, {'queue_size': 0}), (InferenceNode, {'deadline_ms': -1.0}),
    (InferenceNode, {'server_timeout_ms': 1e9}), (InferenceNode, {'threads': 1000}),
    (OffloadNode, {'chunk_bytes': 10**6}), (PlannerNode, {'grid.points': 0})])
def test_ranges_are_enforced(context: rclpy.Context, kind: Callable[..., ManagedNode],
                             parameters: dict[str, Any]) -> None:
    """The error names the parameter."""
    with pytest.raises(InvalidParameterValueException, match=next(iter(parameters))):
        kind(context=context, parameter_overrides=[
            Parameter(name, value=value) for name, value in parameters.items()])


def test_types_are_enforced(context: rclpy.Context) -> None:
    with pytest.raises(InvalidParameterTypeException, match='threads'):
        OffloadNode(context=context, parameter_overrides=[Parameter('threads', value='many')])


def test_parameters_have_their_former_names_too(context: rclpy.Context,
                                                capfd: pytest.CaptureFixture[str]) -> None:
    """With one warning; the name of now counts where both are given."""
    with made(InferenceNode, context, score=0.5, fit='crop', resize='stretch') as node:
        assert node.get_parameter('score_threshold').value == 0.5
        assert node.get_parameter('resize').value == 'stretch'
        assert not node.has_parameter('score') and not node.has_parameter('fit')
    said = capfd.readouterr().err
    assert said.count('parameter score is now called score_threshold') == 1


@pytest.mark.parametrize('kind', GOOD)
def test_parameters_explain_themselves(context: rclpy.Context, kind: type[ManagedNode]) -> None:
    """Each has a description; all but three are fixed; numbers have ranges."""
    with made(kind, context) as node:
        for parameter in (*kind.PARAMETERS,):
            descriptor = node.describe_parameter(parameter.name)
            assert descriptor.description
            changes = parameter.name in {InferenceNode: ('mode', 'deadline_ms'),
                                         ClientNode: ('gateways',)}.get(kind, ())
            assert descriptor.read_only != changes
            if isinstance(parameter.default, (int, float)) and \
                    not isinstance(parameter.default, bool):
                assert descriptor.integer_range or descriptor.floating_point_range


def test_the_deadline_may_change(context: rclpy.Context) -> None:
    """At once, for the next inference; not to a value out of its range."""
    with made(InferenceNode, context, model=DENSE) as node:
        assert node.trigger_configure() == SUCCESS
        for deadline, taken in ((250.0, True), (-1.0, False)):
            [answer] = node.set_parameters([Parameter('deadline_ms', value=deadline)])
            assert answer.successful == taken
        assert node.client.patience.deadline == 0.25
        node.release()


@pytest.mark.parametrize(('kind', 'other'), [
    *((kind, {}) for kind in GOOD),
    (InferenceNode, {'model': SCENE, 'sensor': 'points'})])
def test_all_transitions_twice(context: rclpy.Context, kind: type[ManagedNode],
                               other: dict[str, str]) -> None:
    """Cleaning up leaves no thread and no topic, and the node can begin anew."""
    all_transitions_twice(context, kind, other)


@pytest.mark.parametrize('kind', [InferenceNode, OffloadNode])
@pytest.mark.parametrize('device', ACCELERATORS)
def test_all_transitions_twice_on_an_accelerator(context: rclpy.Context, device: str,
                                                 kind: type[ManagedNode]) -> None:
    if device == 'cuda':
        torch.zeros(1, device=device)  # the driver's threads stay
    all_transitions_twice(context, kind, {'device': device})


def all_transitions_twice(context: rclpy.Context, kind: type[ManagedNode],
                          other: dict[str, str]) -> None:
    before = threads()
    with made(kind, context, **{**GOOD[kind], **other}) as node:
        publishers, subscriptions = len(list(node.publishers)), len(list(node.subscriptions))
        for _ in range(2):
            assert node.trigger_configure() == SUCCESS
            for _ in range(2):
                assert node.trigger_activate() == SUCCESS
                assert node.trigger_deactivate() == SUCCESS
            assert node.trigger_cleanup() == SUCCESS
            wait_for(lambda: threads() == before)
            assert len(list(node.publishers)) == publishers
            assert len(list(node.subscriptions)) == subscriptions
        assert node.trigger_configure() == SUCCESS
        assert node.trigger_activate() == SUCCESS
        assert node.trigger_shutdown() == SUCCESS
        wait_for(lambda: threads() == before)
        assert len(list(node.publishers)) == publishers


@contextmanager
def spinning(node: ManagedNode, context: rclpy.Context) -> Iterator[None]:
    """Let a node's callbacks run, on another thread."""
    executor = SingleThreadedExecutor(context=context)
    executor.add_node(node)
    thread = threading.Thread(target=executor.spin)
    thread.start()
    try:
        yield
    finally:
        executor.shutdown()
        thread.join()


def test_an_inactive_robot_publishes_no_results(context: rclpy.Context) -> None:
    """Images are answered while the node is active, again after each activation."""
    pixels = picture(1)
    wanted = unsplit(small_models.dense(), pixels)
    with closing(Observer()) as observer, made(InferenceNode, context, model=DENSE) as node:
        assert node.trigger_configure() == SUCCESS
        with spinning(node, context):
            ignored = []
            for _ in range(2):
                wait_for(lambda: observer.images.get_subscription_count() == 0)
                ignored.append(observer.publish(pixels))
                assert node.trigger_activate() == SUCCESS
                wait_for(lambda: observer.images.get_subscription_count() == 1)
                result, stats = observer.infer(pixels)
                assert relative_difference(result, wanted) <= 1e-4
                assert not stats.shared
                assert node.trigger_deactivate() == SUCCESS
            answered = set(observer.results)
            ignored.append(observer.publish(pixels))
            observer.wait(lambda: observer.status('inference_node'), 'diagnostics')
        assert set(observer.results) == answered
        assert not answered & set(ignored)


@pytest.mark.parametrize('kind', GOOD)
def test_a_simulation_that_stands_still_silences_no_node(context: rclpy.Context,
                                                         kind: type[ManagedNode]) -> None:
    """With use_sim_time and no /clock, or a paused one, diagnostics go on by the real time."""
    with closing(Observer()) as observer, made(
            kind, context, use_sim_time=True, **GOOD[kind]) as node:
        assert node.trigger_configure() == SUCCESS
        with spinning(node, context):
            assert node.trigger_activate() == SUCCESS
            observer.wait(lambda: observer.status(node.get_name()), 'diagnostics', TIMEOUT)


def test_warnings_of_the_package_are_logged_others_shown_as_ever(
        capfd: pytest.CaptureFixture[str]) -> None:
    shown = list[str]()
    with warnings.catch_warnings():
        warnings.simplefilter('always')
        warnings.showwarning = partial(log_warning, lambda text, *place: shown.append(str(text)))
        warnings.warn_explicit('cannot be kept', UserWarning, log_warning.__code__.co_filename, 7)
        warnings.warn('of a library', stacklevel=1)
    [line] = capfd.readouterr().err.splitlines()
    assert '[WARN]' in line and line.endswith('cannot be kept') and '.py' not in line
    assert shown == ['of a library']


HANGS = """
import ctypes
from intradp_ros.nodes.common import lifecycle
from intradp_ros.nodes.sharing.planner_node import PlannerNode
lifecycle.LAST = 0.5
lifecycle.EndingSignals.spin = lambda *given: None
lifecycle.ManagedNode.destroy_node = lambda node: ctypes.PyDLL(None).sleep(100)
lifecycle.run_node(PlannerNode)
"""


def test_a_node_ends_though_the_middleware_does_not(tmp_path: Path) -> None:
    ended = subprocess.run([sys.executable, '-c', HANGS], capture_output=True, text=True,
                           cwd=tmp_path, timeout=TIMEOUT)
    assert ended.returncode == 1 and 'in run_node' in ended.stderr, ended.stderr
