# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The real nodes as processes, on this machine only, and a node that talks to them."""
from __future__ import annotations

import atexit
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
import os
from pathlib import Path
import queue
from tempfile import TemporaryDirectory
import threading
import time
from typing import Any

from diagnostic_msgs.msg import DiagnosticArray
import numpy as np
import pytest
from rcl_interfaces.srv import SetParameters
import rclpy
from rclpy.event_handler import PublisherEventCallbacks, SubscriptionEventCallbacks
from rclpy.executors import ExternalShutdownException, SingleThreadedExecutor
from rclpy.parameter import Parameter
from rclpy.qos import DurabilityPolicy, QoSProfile
from sensor_msgs.msg import Image
import torch
from torch import nn

from intradp_lab.emulation.processes import Child, ros_arguments, starter
from intradp_ros.core.patience import Patience
from intradp_ros.core.processes import Command
from intradp_ros.dds.transport_profile import transport_environment
from intradp_ros.msg import InferenceResult, InferenceStats, LinkState
from intradp_ros.nodes import node_modules
from intradp_ros.nodes.sensors.image_messages import rgb_to_image

TESTS = Path(__file__).parent
TIMEOUT = 90.0
HEIGHT, WIDTH = 64, 96
DENSE = f'small_models:dense 1x3x{HEIGHT}x{WIDTH} uint8'
SCENE = 'small_models:scene 1x1x24x8x32 bool'
LATCHED = QoSProfile(depth=10, durability=DurabilityPolicy.TRANSIENT_LOCAL)
#: For one bandwidth a plan is made in seconds.
QUICK_PLANNER = {'grid.points': 1, 'grid.low_mbps': 20.0, 'grid.high_mbps': 2000.0,
                 'link.delay_ms': 0.0, 'link.overhead_ms': 0.0}
#: A busy machine must look like neither a silent server nor a fast camera.
PATIENT = {'server_timeout_ms': 5000.0, 'queue_size': 64}


def domain_of_process() -> str:
    """Return a ROS domain that other test processes hardly have."""
    return str(1 + (os.getpid() * 13 + 50) % 100)


@cache
def _profiles() -> TemporaryDirectory[str]:
    """Return where profiles are kept from test to test: to measure one takes a node seconds."""
    return TemporaryDirectory()


@contextmanager
def own_domain(tmp_path: Path, transport: str = '', local: bool = False, anew: bool = False,
               ) -> Iterator[None]:
    """
    Give this process and its children a ROS domain and a cache of their own.

    What one test has measured of a model the next one takes, unless all is measured `anew`.

    A transport that ships asks for a network namespace, as all in the domain hear one another, or
    for this machine alone (`local`).
    """
    kept = tmp_path / 'cache'
    kept.mkdir(parents=True, exist_ok=True)
    if not anew and not (kept / 'profiles').exists():
        (kept / 'profiles').symlink_to(_profiles().name)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv('ROS_DOMAIN_ID', domain_of_process())
        patch.delenv('INTRADP_TRANSPORT', raising=False)
        patch.delenv('ROS_AUTOMATIC_DISCOVERY_RANGE', raising=False)
        if transport:
            for name, value in transport_environment(transport).items():
                patch.setenv(name, value)
        if local or not transport:
            patch.setenv('ROS_AUTOMATIC_DISCOVERY_RANGE', 'LOCALHOST')
        patch.setenv('INTRADP_CACHE', str(kept))
        patch.setenv('ROS_LOG_DIR', str(tmp_path / 'ros'))
        patch.setenv('OMP_NUM_THREADS', '1')
        patch.setenv('PYTHONPATH', str(TESTS), prepend=os.pathsep)
        yield


def end_of(future: Any, seconds: float) -> Any:
    """Return what a future that another thread spins ends with."""
    over = threading.Event()
    future.add_done_callback(lambda _: over.set())
    assert over.wait(seconds), 'no end'
    return future.result()


class Observer:
    """
    A node that publishes images and keeps what the others publish, by the image's number.

    What is destroyed while it spins has no events: rclpy's executor waits for them without
    asking whether they are still there, and would end.
    """

    def __init__(self, name: str = 'observer', robot: str = 'inference_node') -> None:
        self.context = rclpy.Context()
        rclpy.init(context=self.context)
        self.node = rclpy.create_node(name, context=self.context)
        self.results: dict[int, InferenceResult] = {}
        self.maps: dict[int, Image] = {}
        self.stats: dict[int, InferenceStats] = {}
        self.diagnostics: dict[str, tuple[str, dict[str, str]]] = {}
        self.link = LinkState()
        self.changed = threading.Condition()
        self.sent = 0
        self.images = self.node.create_publisher(Image, 'image', 10)
        for kind, topic, store in ((InferenceResult, 'result', self.results),
                                   (Image, 'result_image', self.maps),
                                   (InferenceStats, f'{robot}/stats', self.stats)):
            self.node.create_subscription(
                kind, topic, lambda m, store=store: self._keep(store, m), 10)
        self.node.create_subscription(LinkState, f'{robot}/link', self._take_link, 10)
        self.node.create_subscription(DiagnosticArray, 'diagnostics', self._take_status, 10)
        self.set_parameters: Any = self.node.create_client(
            SetParameters, f'{robot}/set_parameters')
        self._executor = SingleThreadedExecutor(context=self.context)
        self._executor.add_node(self.node)
        self._thread = threading.Thread(target=self._spin, daemon=True)
        self._thread.start()
        atexit.register(self.close)  # a thread that waits in C++ at the end aborts the process

    def close(self) -> None:
        """Stop."""
        atexit.unregister(self.close)
        self._executor.shutdown()
        self._thread.join()
        self.node.destroy_node()
        self.context.try_shutdown()

    def wait(self, condition: Callable[[], Any], what: str, timeout: float = TIMEOUT) -> None:
        """Wait for what messages bring about; `timeout` as `Patience` counts it."""
        patience = Patience(timeout)
        with self.changed:
            while not self.changed.wait_for(condition, 0.1):
                assert not patience.over, f'waited in vain for {what}'

    @contextmanager
    def listening(self, kind: type, topic: str, heard: Callable[[Any], None],
                  qos: QoSProfile | int) -> Iterator[None]:
        """Hear what is published on another topic."""
        subscription = self.node.create_subscription(
            kind, topic, heard, qos,
            event_callbacks=SubscriptionEventCallbacks(use_default_callbacks=False))
        try:
            yield
        finally:
            self.node.destroy_subscription(subscription)

    @contextmanager
    def publishing(self, kind: type, topic: str) -> Iterator[None]:
        """Be one more publisher of a topic."""
        publisher = self.node.create_publisher(
            kind, topic, 10, event_callbacks=PublisherEventCallbacks(use_default_callbacks=False))
        try:
            yield
        finally:
            self.node.destroy_publisher(publisher)

    def meet_robot(self, pixels: np.ndarray) -> None:
        """Publish images until one is answered: what is sent before discovery is lost."""
        patience = Patience(TIMEOUT)
        with self.changed:
            while not patience.over:
                number = self.publish(pixels)
                if self.changed.wait_for(lambda n=number: n in self.results, 1.0):
                    return
        raise AssertionError('the robot answers no image')

    def publish(self, pixels: np.ndarray) -> int:
        """Publish an image and return its number."""
        self.sent += 1
        message = rgb_to_image(pixels)
        message.header.stamp.sec, message.header.stamp.nanosec = self.sent, self.sent + 7
        message.header.frame_id = f'camera {self.sent}'
        self.images.publish(message)
        return self.sent

    def answer(self, number: int) -> tuple[InferenceResult, InferenceStats]:
        """Return result and figures of an image."""
        self.wait(lambda: number in self.results and number in self.stats, f'image {number}')
        return self.results[number], self.stats[number]

    def infer(self, pixels: np.ndarray) -> tuple[InferenceResult, InferenceStats]:
        """Publish an image and return its answer."""
        return self.answer(self.publish(pixels))

    def infer_until(self, pixels: np.ndarray, model: nn.Module,
                    condition: Callable[[InferenceStats], bool]) -> InferenceStats:
        """Publish images, comparing every result, until the figures are as wanted."""
        self.meet_robot(pixels)
        patience, wanted = Patience(TIMEOUT), unsplit(model, pixels)
        while not patience.over:
            result, stats = self.infer(pixels)
            assert relative_difference(result, wanted) <= 1e-4
            if condition(stats):
                return stats
            time.sleep(0.1)
        raise AssertionError(f'not within {TIMEOUT:g} s; the last was {stats}; {self.diagnostics}')

    def set_mode(self, mode: str) -> tuple[bool, str]:
        """Set the robot's parameter; return whether it was taken, and why not."""
        assert self.set_parameters.wait_for_service(TIMEOUT)
        request = SetParameters.Request(
            parameters=[Parameter('mode', value=mode).to_parameter_msg()])
        answers: queue.SimpleQueue[SetParameters.Response] = queue.SimpleQueue()
        answered: list[SetParameters.Response] = []
        end = time.monotonic() + TIMEOUT
        while not answered:  # what goes to a robot that was killed is lost
            assert time.monotonic() < end, 'the robot does not answer'
            self.set_parameters.call_async(request).add_done_callback(
                lambda future: answers.put(future.result()))
            with suppress(queue.Empty):
                answered.append(answers.get(timeout=10.0))
        (result,) = answered[0].results
        return result.successful, result.reason

    def status(self, node: str) -> dict[str, str]:
        """Return the values of a node's last diagnostics."""
        return self.diagnostics[f'/{node}'][1] if f'/{node}' in self.diagnostics else {}

    def rejected(self, node: str) -> int:
        """Return how many messages a node has rejected."""
        return sum(int(n) for key, n in self.status(node).items() if key.startswith('rejected_'))

    def _spin(self) -> None:
        try:
            self._executor.spin()
        except ExternalShutdownException:
            return

    def _keep(self, store: dict[int, Any], message: Any) -> None:
        with self.changed:
            store[message.header.stamp.sec] = message
            self.changed.notify_all()

    def _take_link(self, message: LinkState) -> None:
        with self.changed:
            self.link = message
            self.changed.notify_all()

    def _take_status(self, message: DiagnosticArray) -> None:
        with self.changed:
            for status in message.status:
                self.diagnostics[status.name] = (
                    status.message, {v.key: v.value for v in status.values})
            self.changed.notify_all()


class Nodes:
    """Starts nodes; all have ended when the context is left."""

    def __init__(self, start: Callable[[Command], Child]) -> None:
        self._start = start

    def start(self, name: str, parameters: Mapping[str, Any], label: str = '',
              ready: str = r': active$', node: str = '', namespace: str = '') -> Child:
        """Start one of the package's nodes, as `node`; wait for a line of its log."""
        child = self._start(Command(label or name, ros_arguments(
            node_modules()[name], node=node, namespace=namespace, parameters=parameters)))
        if ready:
            child.wait_for_line(ready, TIMEOUT)
        return child


@contextmanager
def nodes(folder: Path) -> Iterator[Nodes]:
    """Yield what starts nodes."""
    with starter(folder) as start:
        yield Nodes(start)


def picture(seed: int, height: int = HEIGHT, width: int = WIDTH) -> np.ndarray:
    """Return random RGB pixels."""
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)


def unsplit(model: nn.Module, pixels: np.ndarray) -> torch.Tensor:
    """Return what the unsplit model says of an image of its own size."""
    with torch.no_grad():
        return model(torch.from_numpy(pixels.transpose(2, 0, 1).copy())[None])


def relative_difference(result: InferenceResult, wanted: torch.Tensor) -> float:
    """Return the largest difference to the only output, relative to its spread."""
    (output,) = result.outputs
    assert (output.dtype_code, output.dtype_bits) == (2, 32)
    got = np.frombuffer(output.data, np.float32).reshape(output.shape)
    spread = (wanted.max() - wanted.min()).item()
    return float(np.abs(got - wanted.numpy()).max()) / spread
