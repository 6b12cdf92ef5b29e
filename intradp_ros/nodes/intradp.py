# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
The three-line API: an existing program's model, shared with a server (paper, Figure 5).

    from intradp_ros import IntraDP
    idp = IntraDP(server='offload')
    idp.start_client(model=vgg19)   # afterwards vgg19(x) runs on robot and server
"""
from __future__ import annotations

import atexit
from collections.abc import Callable
from copy import deepcopy
import math
import queue
import threading
import time
from typing import Any
import warnings

import rclpy
from rclpy.exceptions import InvalidNamespaceException
from rclpy.executors import ExternalShutdownException, SingleThreadedExecutor
from rclpy.validate_namespace import validate_namespace
import torch
from torch.utils import _pytree as pytree

from intradp_ros.core.limits import MAX_MODEL_TEXT
from intradp_ros.dds.dds_channel import check_server_name, DdsChannel
from intradp_ros.dds.tensor_context import warn_of_unfinished_ports
from intradp_ros.graph.graph_errors import CaptureError
from intradp_ros.graph.serialise import graph_to_json
from intradp_ros.link.delay import ASSUMED_DELAY, ASSUMED_OVERHEAD, DELAY_PATIENCE
from intradp_ros.link.predictor import make_predictor
from intradp_ros.msg import OperatorProfile
from intradp_ros.nodes.announcement_seals import AnnouncementCheck, MAX_BYTES
from intradp_ros.nodes.key_parameter import open_key
from intradp_ros.nodes.lifecycle import LATCHED
from intradp_ros.nodes.lossy_parameter import tell_difference
from intradp_ros.nodes.profile_publisher import (
    check_server_profile,
    profile_model,
    PROFILE_TOPIC,
)
from intradp_ros.nodes.receiving import Receiver
from intradp_ros.power.meter import open_meter
from intradp_ros.profiling.drift import BEYOND_BOOKS, DriftMeter
from intradp_ros.profiling.kept_memory import KeptMemory
from intradp_ros.profiling.profile import Profile
from intradp_ros.runtime.model import share_module
from intradp_ros.runtime.outcome import Outcome
from intradp_ros.split.calls.accelerator import open_device
from intradp_ros.split.calls.kernel_device import HOST
from intradp_ros.split.local_operator import SplitGraph
from intradp_ros.systems.sharing.book.book_keeper import BookKeeper
from intradp_ros.systems.sharing.book.latency_calibration import LatencyCalibration
from intradp_ros.systems.sharing.book.plan_from_profiles import PlanRequest
from intradp_ros.systems.sharing.book.plan_process import PlanningError
from intradp_ros.systems.sharing.policy.patience import PatiencePolicy
from intradp_ros.systems.sharing.session.robot import RobotClient
from intradp_ros.systems.sharing.session.watch import DelayWatch, DriftWatch
from intradp_ros.wire.codecs.names import LOSSY
from intradp_ros.wire.texts import unpacked


class IntraDP:
    """
    Shares the inferences of one model with an offload node.

    Parameters
    ----------
    server :
        Name of the offload node's server.
    namespace :
        ROS namespace of the server's topics.
    predictor, patience :
        How the bandwidth is predicted; when the robot goes on alone.
    lossy :
        ``fp16`` or ``int8`` to let values cross the link with less precision
        where that is faster; what it does to the outputs on the first call's
        inputs is logged.  By default results are exact.
    device :
        What operators run on: ``cpu``, or a device of PyTorch with memory of
        its own such as ``cuda``.  By default that which the model is on.
    key_file :
        File with the key that robots and servers share (``intradp key``).
    log :
        Where progress is written.

    Raises
    ------
    ValueError
        If a name, the encoding, the predictor or the key file is none.

    """

    def __init__(self, server: str = 'offload', *, namespace: str = '/',
                 predictor: str = 'ewma', patience: PatiencePolicy = PatiencePolicy(),
                 lossy: str = '', device: str = '', key_file: str = '',
                 log: Callable[[str], None] = lambda text: None) -> None:
        check_server_name(server)
        _check_namespace(namespace)
        self.server, self.namespace, self.patience, self.log = server, namespace, patience, log
        self.key = open_key(key_file, lambda text: warnings.warn(text, RuntimeWarning,
                                                                 stacklevel=4))
        if lossy not in ('', *LOSSY):
            raise ValueError(f'lossy must be one of {", ".join(LOSSY)}, got {lossy!r}')
        self.lossy, self.device = lossy, device
        self._predictor = make_predictor(predictor)
        self._shared: _SharedForward | None = None
        self.last: Outcome | None = None

    def start_client(self, model: torch.nn.Module) -> None:
        """
        Replace the model's forward by one that shares its inferences.

        The first call captures and profiles the model for the shapes it is
        given, and runs as before; the following ones are shared as soon as
        the server agrees and the schedules are made.  Other shapes run as
        before.
        """
        if self._shared:
            raise RuntimeError('this IntraDP already has a model: call stop() first')
        self._shared = _SharedForward(self, model)
        atexit.register(self.stop)  # the middleware's threads must end before the program does

    def stop(self) -> None:
        """Restore the model and end the session."""
        if self._shared:
            atexit.unregister(self.stop)
            self._shared.restore()
            self._shared = None

    def wait_ready(self, timeout: float = 60.0) -> bool:
        """Wait until calls are shared; return whether they are. Needs one call before."""
        client = self._shared.client if self._shared else None
        return client is not None and client.connection.wait_ready(timeout)


def _check_namespace(namespace: str) -> None:
    try:
        validate_namespace(namespace)
    except InvalidNamespaceException as error:
        raise ValueError(f'namespace {namespace!r}: {error}') from error


class _SharedForward:
    """Stands in for a model's forward."""

    def __init__(self, owner: IntraDP, model: torch.nn.Module) -> None:
        self.owner, self.model, self.plain = owner, model, model.forward
        self.client: RobotClient | None = None
        self.planner: _ServerWatch | None = None
        self._own = vars(model).get('forward')  # if somebody else has put it there
        self._training = {module: module.training for module in model.modules()}
        self._tried = False
        self._warned: set[str] = set()
        self._memory = KeptMemory()
        self._lock = threading.Lock()
        model.eval()
        model.forward = self

    def restore(self) -> None:
        """Put the model's own forward and modes back and close the session."""
        self._put_back()
        for module, training in self._training.items():
            module.training = training
        if self.client:
            self.client.close()
        if self.planner:
            self.planner.close()

    def _put_back(self) -> None:
        del self.model.forward
        if self._own is not None:
            self.model.forward = self._own

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        with self._lock:  # the runtime has one inference at a time
            return self._call(args, kwargs)

    def _call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        tensors = [a for a in args if isinstance(a, torch.Tensor)]
        if kwargs or len(tensors) != len(args) or not tensors or torch.is_grad_enabled() and any(
                t.requires_grad for t in tensors):
            return self.plain(*args, **kwargs)
        if not self._tried:
            self._tried = True
            return self._begin(tensors)
        if self.client is None:
            return self.plain(*args)
        return self._infer(self.client, tensors)

    def _begin(self, tensors: list[torch.Tensor]) -> Any:
        """Capture, profile and connect; answer this call as before."""
        with torch.no_grad():
            result = self.plain(*tensors)
        self._put_back()  # the capture must see the model's own forward
        given = [t.cpu() for t in tensors]
        try:
            device = open_device(self.owner.device or _device_of(self.model, tensors))
            shared = share_module(_on_host(self.model), given).on(device)
            profile = profile_model(shared, given, self.owner.log)
        except (CaptureError, ValueError, RuntimeError) as error:  # a full device is one
            self._warn(f'this model cannot be shared and runs locally: {error}')
            return result
        finally:
            self.model.forward = self
        watch = _ServerWatch(self.owner, shared.split, profile, given)
        channel = DdsChannel(watch.context, self.owner.server, 'robot',
                             namespace=self.owner.namespace, key=self.owner.key)
        self.client = RobotClient(
            shared.tuned(profile.tuning), channel, self.owner._predictor, self.owner.log,
            patience=self.owner.patience, power=profile.power, lossy=self.owner.lossy,
            watch=DriftWatch(shared.split, profile, watch.drifted,
                             DriftMeter(step=BEYOND_BOOKS)),
            delay_watch=DelayWatch(watch.delayed), experience=LatencyCalibration())
        channel.only(self.client.connection.session.__eq__)
        self.client.meter = open_meter()
        self.planner = watch
        watch.start(self.client)
        return result

    def _infer(self, client: RobotClient, tensors: list[torch.Tensor]) -> Any:
        if not client.takes(tensors):
            self._warn('inputs of other shapes or dtypes than those of the first call run as '
                       'before')
            return self.plain(*tensors)
        outcome = client.infer([t.cpu() for t in tensors])
        if not outcome.stats.shared and client.connection.heard == float('-inf'):
            self._warn(f'no server {self.owner.server!r} answers: running locally until one does')
        self.owner.last = outcome
        self._memory.look(usual=not outcome.own_work)
        # As from any module: tensors of the inference mode could not be changed in place.
        return pytree.tree_map_only(
            torch.Tensor, lambda t: t.to(tensors[0].device, copy=True), outcome.outputs)

    def _warn(self, text: str) -> None:
        if text not in self._warned:
            self._warned.add(text)
            warnings.warn(text, RuntimeWarning, stacklevel=7)


def _on_host(model: torch.nn.Module) -> torch.nn.Module:
    """Return a model with all tensors in the host's memory: itself, or a copy."""
    tensors = (*model.parameters(), *model.buffers())
    if all(t.device.type == HOST.name for t in tensors):
        return model
    copies: dict[int, Any] = {id(t): t.detach().cpu() for t in tensors}
    copies |= {id(p): torch.nn.Parameter(copies[id(p)], p.requires_grad)
               for p in model.parameters()}
    return deepcopy(model, copies)


def _device_of(model: torch.nn.Module, inputs: list[torch.Tensor]) -> str:
    return str(next(model.parameters(), inputs[0]).device)


class _ServerWatch:
    """
    Waits for the server's profile, plans, and hands the book to the client.

    Where a side's profile or the link's delay changes, another book may follow.
    """

    def __init__(self, owner: IntraDP, split: SplitGraph, profile: Profile,
                 example: list[torch.Tensor]) -> None:
        self.split, self.graph = split, graph_to_json(split.captured)
        self.profile, self.example = profile, example
        self._check = AnnouncementCheck(owner.key)
        self.log, self.lossy = owner.log, owner.lossy
        self.context = rclpy.Context()
        warn_of_unfinished_ports()
        rclpy.init(context=self.context)
        self.node = rclpy.create_node('intradp', context=self.context, namespace=owner.namespace,
                                      start_parameter_services=False)
        Receiver(self.node).subscribe(OperatorProfile, PROFILE_TOPIC, self._take, LATCHED,
                                      'profile', MAX_BYTES[OperatorProfile])
        self.node.create_timer(0.2, self._poll)
        self.executor = SingleThreadedExecutor(context=self.context)
        self.executor.add_node(self.node)
        self.keeper = BookKeeper(self.log)
        self.client: RobotClient | None = None
        self.server_profile = ''
        self.delay: float | None = None
        self._plan_at = math.inf
        self._news: queue.SimpleQueue[Profile | float] = queue.SimpleQueue()
        self.thread = threading.Thread(target=self._spin, name='intradp', daemon=True)

    def start(self, client: RobotClient) -> None:
        """Begin to listen."""
        self.client = client
        self.thread.start()

    def close(self) -> None:
        """Stop listening and planning."""
        self.keeper.close()
        self.executor.shutdown()
        self.thread.join(timeout=2.0)
        self.node.destroy_node()
        rclpy.try_shutdown(context=self.context)

    def _spin(self) -> None:
        try:
            self.executor.spin()
        except ExternalShutdownException:
            return

    def _take(self, message: OperatorProfile) -> None:
        if message.role != 'server' or message.digest != self.profile.digest:
            return
        self._check(message)
        check_server_profile(message, self.split)
        self.server_profile = unpacked(message.profile, MAX_MODEL_TEXT)
        self._plan_at = time.monotonic() + (DELAY_PATIENCE if self.delay is None else 0.0)

    def drifted(self, profile: Profile) -> None:
        """Take what this device's profile is now, from whichever thread runs inferences."""
        self._news.put(profile)

    def delayed(self, seconds: float) -> None:
        """Take what the link's delay is now, from the thread that receives."""
        self._news.put(seconds)

    def _plan(self) -> None:
        delay = ASSUMED_DELAY if self.delay is None else self.delay
        self.keeper.want(PlanRequest(
            self.graph, self.profile.to_json(), self.server_profile, delay=delay,
            overhead=ASSUMED_OVERHEAD, lossy=self.lossy))

    def _take_news(self) -> None:
        """Take what has changed on this side, and plan with it."""
        while not self._news.empty():
            news = self._news.get()
            if isinstance(news, Profile):
                self.profile = news
                self.log(f'operators take {news.whole_seconds * 1e3:.1f} ms in all by now; '
                         'telling the planner')
            else:
                self.delay = news
                self.log(f'the link delays by {news * 1e3:.2g} ms')
            self._plan_at = 0.0

    def _poll(self) -> None:
        self._take_news()
        if self.server_profile and time.monotonic() >= self._plan_at:
            self._plan_at = math.inf
            self._plan()
        if self.client is None:
            return
        try:
            book = self.keeper.poll()
            if book:
                self.client.use_book(book)
                tell_difference(self.client.model, book, self.example, self.log)
        except (PlanningError, ValueError) as error:
            self.log(f'planning failed: {error}')
