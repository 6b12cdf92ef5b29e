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
from collections.abc import Callable, Sequence
from copy import deepcopy
import os
import sys
import threading
import time
from typing import Any
import warnings

from rclpy.exceptions import InvalidNamespaceException
from rclpy.validate_namespace import validate_namespace
import torch
from torch.utils import _pytree as pytree

from intradp_ros.dds.dds_channel import check_server_name, DdsChannel
from intradp_ros.graph.call_context import call_context, CONTEXT, Context, is_plain, is_watched
from intradp_ros.graph.capture import capture, global_hooks
from intradp_ros.graph.compare import explained_by_rounding
from intradp_ros.graph.graph_errors import CaptureError
from intradp_ros.graph.model_watch import ModelWatch
from intradp_ros.graph.module_parts import check_hashable
from intradp_ros.graph.operator_graph import OperatorGraph
from intradp_ros.graph.reference_evaluation import run_graph
from intradp_ros.graph.trial_run import own_forward
from intradp_ros.link.predictor import make_predictor
from intradp_ros.nodes.common.key_parameter import open_key
from intradp_ros.nodes.sharing.profile_publisher import profile_model
from intradp_ros.nodes.sharing.server_watch import ServerWatch
from intradp_ros.power.meter import open_meter
from intradp_ros.profiling.drift import BEYOND_BOOKS, DriftMeter
from intradp_ros.profiling.kept_memory import KeptMemory
from intradp_ros.profiling.profile import Profile
from intradp_ros.runtime.models.forked_capture import ForkedCapture
from intradp_ros.runtime.models.late_gradients import with_gradients
from intradp_ros.runtime.models.model import AS_GRAPH, share_graph, SharedModel
from intradp_ros.runtime.models.results import Results
from intradp_ros.runtime.models.stand_in import StandIn, standing_in
from intradp_ros.runtime.requests.outcome import Outcome
from intradp_ros.split.calls.accelerator import open_device
from intradp_ros.split.kernel_device import HOST, KernelDevice
from intradp_ros.systems.sharing.book.latency_calibration import LatencyCalibration
from intradp_ros.systems.sharing.book.watch import DelayWatch, DriftWatch
from intradp_ros.systems.sharing.policy.patience import PatiencePolicy
from intradp_ros.systems.sharing.session.robot import RobotClient
from intradp_ros.wire.codecs.names import LOSSY

#: Seconds of one core that kernels are chosen and profiled for (more where a network takes more
#: than a hundredth of that: some runs are always made).
PREPARE_SECONDS = 10.0
#: Seconds that `IntraDP.stop` waits for a preparation that has begun; it looks at each operator.
STOP_SECONDS = 30.0


class IntraDP:
    """
    Shares the inferences of one model with an offload node.

    :param server: name of the offload node's server.
    :param namespace: ROS namespace of the server's topics.
    :param predictor, patience: how the bandwidth is predicted; when the robot goes on alone.
    :param lossy: ``fp16`` or ``int8`` to let values cross the link with less precision where that
        is faster; what it does to the outputs on the first call's inputs is logged.  By default
        results are exact.
    :param device: what operators run on: ``cpu``, or a device of PyTorch with memory of its own
        such as ``cuda``.  By default that which the model is on.
    :param key_file: file with the key that robots and servers share (``intradp key``).
    :param log: where progress is written.
    :raises ValueError: if a name, the encoding, the predictor or the key file is none.
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
        self._process = os.getpid()
        self.last: Outcome | None = None

    def start_client(self, model: torch.nn.Module) -> None:
        """
        Replace the model's forward by one that shares its inferences.

        The first call runs as before.  Meanwhile the model is captured, for
        the shapes of that call, in a forked process, and then profiled by a
        thread (`PREPARE_SECONDS` of a core); calls are shared as soon as the
        server agrees and the schedules are made.  Other shapes run as before.
        Where it cannot be shared, one of the next calls warns, once.  An
        IntraDP that shared the model before ends.
        """
        if self._shared:
            raise RuntimeError('this IntraDP already has a model: call stop() first')
        if isinstance(other := standing_in(model), _SharedForward):
            warnings.warn('the model was shared by another IntraDP, which ends now',
                          RuntimeWarning, stacklevel=2)
            other.owner.stop()
        try:
            check_hashable(model)
        except CaptureError as error:  # nothing of PyTorch's that is needed here takes it
            warnings.warn(f'{_REFUSED}{error}', RuntimeWarning, stacklevel=2)
            return
        self._shared = _SharedForward(self, model)
        atexit.register(self.stop)  # the middleware's threads must end before the program does

    @property
    def forked(self) -> bool:
        """Whether this is a fork of the program: it has none of its threads, and is alone."""
        return os.getpid() != self._process

    def stop(self) -> None:
        """Restore the model and end the session."""
        if self._shared:
            atexit.unregister(self.stop)
            self._shared.restore()
            self._shared = None

    def wait_prepared(self, timeout: float = 60.0) -> bool:
        """Wait until the model is captured and profiled; return whether it is. Needs one call."""
        return self._shared is not None and self._shared.prepared(timeout) is not None

    def wait_ready(self, timeout: float = 60.0) -> bool:
        """Wait until calls are shared; return whether they are. Needs one call before."""
        end = time.monotonic() + timeout
        client = self._shared.prepared(timeout) if self._shared else None
        return client is not None and client.connection.wait_ready(
            max(0.0, end - time.monotonic()))


def _check_namespace(namespace: str) -> None:
    try:
        validate_namespace(namespace)
    except InvalidNamespaceException as error:
        raise ValueError(f'namespace {namespace!r}: {error}') from error


class _Stopped(Exception):
    """Ends the preparation of a model that is no longer to be shared."""


class _SharedForward:
    """
    Stands in for a model's forward.

    After the first call a thread prepares: it waits for the capture,
    profiles, and connects.  Until it has, calls run as before.
    """

    def __init__(self, owner: IntraDP, model: torch.nn.Module) -> None:
        self.owner, self.model = owner, model
        self.client: RobotClient | None = None
        self.planner: ServerWatch | None = None
        # Frozen modules of TorchScript have no such attribute.
        self._training = {module: module.training for module in model.modules()
                          if hasattr(module, 'training')}
        self._tried = False
        self._watch: ModelWatch | None = None
        self._context: Context = ()
        self._results: dict[Layout, Results | None] = {}
        self._device = torch.device('cpu')
        self._flags: dict[tuple[int, ...], list[bool]] = {}
        self._warned: set[str] = set()
        self._memory = KeptMemory()
        self._lock = threading.RLock()
        self._inside = False
        self._preparing: threading.Thread | None = None
        self._stopping, self._refused = threading.Event(), ''
        try:
            model.eval()
        except Exception as error:  # noqa: B902 - such as of a program that torch.export made
            self._tried, self._refused = True, f'eval() fails: {_cause(error)}'
        for name in ('__call__', '_call_impl'):
            if not getattr(getattr(type(model), name), '__module__', 'torch').startswith('torch'):
                self._tried, self._refused = True, (
                    f'{type(model).__name__} defines {name}, which would run beside the shared '
                    'forward: move what it does to forward')
        self.place = StandIn(model, self)
        self.plain = self.place.plain

    def restore(self) -> None:
        """Put the model's own forward and modes back and close the session."""
        self.place.end()
        for module, training in self._training.items():
            module.training = training
        if self.owner.forked:
            return
        self._stopping.set()
        if self._preparing:
            self._preparing.join(STOP_SECONDS)
        if self.client:
            self.client.close()
        if self.planner:
            self.planner.close()

    def prepared(self, timeout: float) -> RobotClient | None:
        """Wait until the model is prepared; return who shares it, if it can be shared."""
        if self._preparing:
            self._preparing.join(timeout)
        self._warn_of_refusal()
        return self.client

    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Answer a call of the model."""
        if is_watched() or self.owner.forked:
            return self.plain(*args, **kwargs)
        with self._lock:  # the runtime has one inference at a time
            if self._inside:  # the model calls itself
                return self.plain(*args, **kwargs)
            self._inside = True
            try:
                return self._call(args, kwargs)
            finally:
                self._inside = False

    def _call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        taken = args and not kwargs and all(map(is_plain, args))
        if not taken or torch.is_grad_enabled() and any(t.requires_grad for t in args):
            return self._as_before(args, kwargs)
        if not self._tried:
            return self._begin(args)
        self._warn_of_refusal()
        if self.client is None or not self._is_as_captured(self.client, args):
            return self._as_before(args, kwargs)
        return self._infer(self.client, args)

    def _as_before(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Let the model answer; what it leaves in itself for a next call is not a change of it."""
        if self._watch is None or self._watch.changed():
            return self.plain(*args, **kwargs)
        result = self.plain(*args, **kwargs)
        self._watch.accept()
        return result

    def _begin(self, tensors: Sequence[torch.Tensor]) -> Any:
        """Answer this call as before, and begin to prepare the model as it is now."""
        if any(getattr(module, 'training', False) for module in self.model.modules()):
            self._warn('the model is in training mode: calls run as before until eval()')
            return self.plain(*tensors)
        given, versions = [t.detach().cpu().clone() for t in tensors], _versions(tensors)
        context, result = call_context(), self.plain(*tensors)
        self._tried = True
        try:
            if versions != _versions(tensors):
                raise CaptureError('it writes to its input, which callers would not see')
            device = open_device(
                self.owner.device or str(next(self.model.parameters(), tensors[0]).device))
            watch = ModelWatch(self.model)
            results = Results.of(result, tensors, watch.tensors)
            capturing = self._capture(own_forward(_on_host(self.model)), given)
        except Exception as error:  # noqa: B902 - whatever a model does, the program goes on
            self._refused = _cause(error)
            self._warn_of_refusal()
            return result
        self._context, self._watch, self._device = context, watch, results.device
        if _layout(given) == _layout(tensors):  # else results are tried first, as of any other
            self._results[_layout(given)] = results
        self._preparing = threading.Thread(
            target=self._prepare, args=(capturing, given, device, results),
            name='intradp-prepare', daemon=True)
        self._preparing.start()
        self.owner.log(f'capturing {type(self.model).__name__}; calls run as before until it is '
                       'prepared')
        return result

    def _capture(self, model: torch.nn.Module, given: list[torch.Tensor]) -> Capture:
        """Begin to capture in another process; in this call, where there can be no other."""
        name = type(self.model).__name__
        try:
            return ForkedCapture(model, given, effects=True, name=name).graph
        except (OSError, ValueError, AssertionError) as error:
            self._warn('the first call captures the model itself, as this process cannot be '
                       f'forked: {_cause(error)}')
        with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
            warnings.filterwarnings('ignore', f'.* {_NO_TEXT}')  # it is kept
            graph = capture(model, tuple(given), methods=AS_GRAPH, effects=True, name=name)
        return lambda check: (graph, [])

    def _prepare(self, capturing: Capture, given: list[torch.Tensor], device: KernelDevice,
                 results: Results) -> None:
        """Wait for the capture, profile and connect, in a thread of its own."""
        log = self.owner.log
        try:
            graph, warned = capturing(self._check)
            results.check(graph.outputs)
            for text in warned:
                if _NO_TEXT not in text:  # results are of the model's classes
                    log(text)
            shared = share_graph(graph).on(device)
            self._check()
            profile = profile_model(shared, given, log, seconds=PREPARE_SECONDS,
                                    check=self._check)
            self._check()
            self._connect(shared, profile, given)
        except _Stopped:
            return
        except Exception as error:  # noqa: B902 - whatever a model does, the program goes on
            self._refused = _cause(error)
            log(_REFUSED + self._refused)
            with self._lock:
                self._watch = None

    def _check(self) -> None:
        if self._stopping.is_set():
            raise _Stopped

    def _warn_of_refusal(self) -> None:
        if self._refused:
            self._warn(_REFUSED + self._refused)

    def _connect(self, shared: SharedModel, profile: Profile, given: list[torch.Tensor]) -> None:
        watch = ServerWatch(shared.split, profile, given, namespace=self.owner.namespace,
                            key=self.owner.key, lossy=self.owner.lossy, log=self.owner.log)
        channel = DdsChannel(watch.context, self.owner.server, 'robot',
                             namespace=self.owner.namespace, key=self.owner.key)
        client = RobotClient(
            shared.tuned(profile.tuning), channel, self.owner._predictor, self.owner.log,
            patience=self.owner.patience, power=profile.power, lossy=self.owner.lossy,
            watch=DriftWatch(shared.split, profile, watch.drifted,
                             DriftMeter(step=BEYOND_BOOKS)),
            delay_watch=DelayWatch(watch.delayed), experience=LatencyCalibration())
        channel.only(client.connection.session.__eq__)
        client.meter = open_meter()
        watch.start(client)
        with self._lock:
            self.client, self.planner = client, watch

    def _is_as_captured(self, client: RobotClient, tensors: Sequence[torch.Tensor]) -> bool:
        """Return whether inputs, model and context are those of the capture; warn if not."""
        assert self._watch is not None
        if not client.takes(tensors) or any(t.device != self._device for t in tensors):
            self._warn('inputs of other shapes or dtypes than those of the first call run as '
                       'before')
            return False
        if any(type(t) is torch.Tensor and vars(t) for t in tensors):
            self._warn('inputs with attributes, which the model may read, run as before')
            return False
        context = call_context()
        if context != self._context:
            other = next(name for name, a, b in zip(CONTEXT, context, self._context) if a != b)
            self._warn(f'calls run as before while {other} is not as at the first call')
            return False
        if any(global_hooks()):
            self._warn('calls run as before while hooks on all modules are registered')
            return False
        changed = self._watch.changed()
        if changed:
            self._warn('the model is no longer what was captured: calls run as before unless it '
                       'becomes that again; to share it as it is now call stop() and '
                       f'start_client() (changed: {changed})', 'changed')
        return not changed

    def _infer(self, client: RobotClient, tensors: Sequence[torch.Tensor]) -> Any:
        assert self._watch is not None
        results = self._results.get(_layout(tensors))
        if results is None:  # how results lie in memory may depend on how inputs do
            result = self._as_before(tuple(tensors), {})
            if len(self._results) < _LAYOUTS and _layout(tensors) not in self._results:
                self._results[_layout(tensors)] = self._tried_on(client, tensors, result)
            return result
        sources = [t for t in self._watch.tensors if t.requires_grad] \
            if torch.is_grad_enabled() else []
        kinds = tuple(map(id, sources))
        if sources and (kinds not in self._flags or any(
                t._backward_hooks for t in sources)):
            result = self._as_before(tuple(tensors), {})
            self._flags[kinds] = [x.requires_grad for x in pytree.tree_leaves(result)
                                  if isinstance(x, torch.Tensor)]
            return result
        with torch.autocast('cpu', enabled=False):  # the graph itself says how it computes
            outcome = client.infer([t.detach().cpu() for t in tensors])
        if not outcome.stats.shared and client.connection.heard == float('-inf'):
            self._warn(f'no server {self.owner.server!r} answers: running locally until one does')
        self.owner.last = outcome
        self._memory.look(usual=not outcome.local_catch_up)
        leaves = results.copies(outcome.outputs)
        if sources and any(self._flags[kinds]):
            places = [k for k, x in enumerate(leaves) if isinstance(x, torch.Tensor)]
            made = with_gradients([leaves[k] for k in places], self._flags[kinds], sources,
                                  self.plain, tensors)
            for k, x in zip(places, made):
                leaves[k] = x
        return results.rebuilt(leaves, tensors)

    def _tried_on(self, client: RobotClient, tensors: Sequence[torch.Tensor], result: Any,
                  ) -> Results | None:
        """Return the form of a result; None if the graph has another one for these inputs."""
        assert self._watch is not None
        with torch.autocast('cpu', enabled=False):
            made = run_graph(client.model.split.captured, [t.detach().cpu() for t in tensors])
        own = [x.detach().cpu() if isinstance(x, torch.Tensor) else x
               for x in pytree.tree_leaves(result)]
        if explained_by_rounding(own, made):
            return Results.of(result, tensors, self._watch.tensors)
        self._warn('the model returns something else for inputs that lie in memory in another way '
                   'than the first ones, or need gradients: such calls run as before')
        return None

    def _warn(self, text: str, kind: str = '') -> None:
        if (kind or text) not in self._warned:
            self._warned.add(kind or text)
            warnings.warn(text, RuntimeWarning, stacklevel=_outside())


#: Waits for a graph, calling meanwhile what it is given; returns texts of warnings as well.
Capture = Callable[[Callable[[], None]], tuple[OperatorGraph, list[str]]]
_NO_TEXT = 'cannot be written as text'
_LAYOUTS = 8  # of inputs, by which that of results is known
_REFUSED = 'this model cannot be shared and runs locally: '


def _cause(error: Exception) -> str:
    return ' '.join(str(error).split()) or type(error).__name__


def _outside() -> int:
    """Return the stack level, for a caller's caller, of the user's code."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back and frame.f_globals.get('__name__', '').partition('.')[0] in (
            'intradp_ros', 'torch'):
        level, frame = level + 1, frame.f_back
    return level


Layout = tuple[tuple[Any, ...], ...]


def _layout(tensors: Sequence[torch.Tensor]) -> Layout:
    """Return what code may ask of tensors besides their numbers: how they lie in memory, say."""
    return tuple((t.stride(), t.requires_grad, t.is_leaf, t.is_inference(), t._is_view(),
                  t.storage_offset() > 0) for t in tensors)


def _versions(tensors: Sequence[torch.Tensor]) -> list[int]:
    return [-1 if t.is_inference() else t._version for t in tensors]


def _on_host(model: torch.nn.Module) -> torch.nn.Module:
    """Return a model with all tensors in the host's memory: itself, or a copy."""
    tensors = (*model.parameters(), *model.buffers())
    if all(t.device.type == HOST.name for t in tensors):
        return model
    copies: dict[int, Any] = {id(t): t.detach().cpu() for t in tensors}
    copies |= {id(p): torch.nn.Parameter(copies[id(p)], p.requires_grad)
               for p in model.parameters()}
    for tensor in tensors:  # what they hold besides numbers
        vars(copies[id(tensor)]).update(deepcopy(vars(tensor), copies))
    return deepcopy(model, copies)
