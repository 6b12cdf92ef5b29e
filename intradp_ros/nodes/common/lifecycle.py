# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What the three nodes share: lifecycle with reported errors, autostart, main functions."""
from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
import faulthandler
from functools import partial
from pathlib import Path
import sys
import time
import traceback
from typing import Any
import warnings

from diagnostic_msgs.msg import DiagnosticArray
import rclpy
from rclpy.clock import Clock, ClockType  # as in all releases
from rclpy.exceptions import InvalidParameterTypeException, InvalidParameterValueException
from rclpy.executors import ExternalShutdownException
from rclpy.lifecycle import LifecycleNode, LifecycleState, TransitionCallbackReturn
from rclpy.publisher import Publisher
from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy
from rclpy.qos_overriding_options import QoSOverridingOptions
from rclpy.signals import SignalHandlerOptions

from intradp_ros.core.processes import (
    NO_DIRECTORY,
    open_standard_streams,
    search_working_directory,
    working_directory,
)
from intradp_ros.core.steady import Steady
from intradp_ros.dds.tensor_context import prepare
from intradp_ros.nodes.common.bond import Bond, bond_messages, BOND_PERIOD, MISSING
from intradp_ros.nodes.common.diagnostics import Diagnostics, Status
from intradp_ros.nodes.common.ending_signals import EndingSignals
from intradp_ros.nodes.common.parameters import declare, naming, Parameter, read
from intradp_ros.nodes.common.prometheus import METRICS, Metrics, open_metrics
from intradp_ros.nodes.common.qos_mismatch import of_listeners
from intradp_ros.nodes.common.transport_check import listening_for_profile, report_profile
from intradp_ros.nodes.common.unused_overrides import (
    check_arguments,
    plain_words,
    unused_overrides,
)
from intradp_ros.wire.rejections import Rejections
from intradp_ros.wire.sanitise import quoted

#: Seconds that the middleware has to end a node, after which its process ends.
LAST = 60.0
LATCHED = QoSProfile(depth=10, durability=DurabilityPolicy.TRANSIENT_LOCAL,
                     reliability=ReliabilityPolicy.RELIABLE)
RELIABLE = QoSProfile(depth=10)
#: Anyone who starts a node may set other qualities of service for these topics.
CHANGEABLE = QoSOverridingOptions.with_default_policies()

AUTOSTART = Parameter(
    'autostart', True, 'Configure and activate at once; false waits for a lifecycle manager.')


class ManagedNode(LifecycleNode):
    """
    A lifecycle node whose errors are said plainly.

    Subclasses implement `setup`, which acquires what the node needs, and
    `start`, which begins to work with it; both may raise with a message for
    the user.  They put what undoes each of their steps into the stacks
    `until_cleanup` and `until_deactivated`.
    """

    PARAMETERS: tuple[Parameter, ...] = ()

    def __init__(self, name: str, **kwargs: Any) -> None:
        super().__init__(name, **kwargs)
        self.until_cleanup, self.until_deactivated = ExitStack(), ExitStack()
        #: What was asked by services and actions, and refused.
        self.refused = Rejections()
        self.metrics: Metrics | None = None
        self._diagnostics = Diagnostics(self)
        declare(self, (*self.PARAMETERS, *METRICS, AUTOSTART, BOND_PERIOD))

    @property
    def callback_threads(self) -> int:
        """Return the threads of its executor: more than 1 for callbacks that take long."""
        return 1

    def setup(self, parameters: dict[str, Any]) -> None:
        """Acquire everything that the node needs."""
        raise NotImplementedError

    def start(self) -> None:
        """Begin to work."""
        raise NotImplementedError

    def release(self) -> None:
        """Stop working and release everything."""
        self.until_deactivated.close()
        self.until_cleanup.close()

    def on_configure(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Run `setup`; refuse to configure where it raises."""
        if not self._done('configure', self._set_up):
            self.release()
            return TransitionCallbackReturn.FAILURE
        return super().on_configure(state)

    def on_activate(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Run `start`; stay inactive where it raises."""
        if not self._done('activate', self._start_bonded):
            self.until_deactivated.close()
            return TransitionCallbackReturn.FAILURE
        return super().on_activate(state)

    def on_deactivate(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Undo `start`."""
        self._report_call('deactivated')
        self.until_deactivated.close()
        return super().on_deactivate(state)

    def on_cleanup(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Undo `setup`."""
        self.release()
        return super().on_cleanup(state)

    def on_shutdown(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Undo whatever was done."""
        self._report_call('shut down')
        self.release()
        return super().on_shutdown(state)

    def info(self, text: str) -> None:
        """Log one line; safe to hand to the core as its log function."""
        self.get_logger().info(text)

    def warn(self, text: str) -> None:
        """Log one line as a warning."""
        self.get_logger().warning(text)

    def refuse(self, cause: str, text: str) -> None:
        """Count what is asked and refused; a cause that goes on is logged after growing times."""
        if self.refused.count(cause, time.monotonic()):
            self.warn(f'refused ({cause}): {quoted(text)}')

    def mismatched(self, text: str) -> None:
        """Report that the quality of service of another node does not fit."""
        self.warn(text)

    def publish_on(self, kind: type, topic: str, qos: QoSProfile | int, **options: Any,
                   ) -> Publisher[Any]:
        """Create a publisher that lasts until cleanup; those that it does not fit are warned."""
        listeners = of_listeners(self.resolve_topic_name(topic), self.mismatched)
        publisher = self.create_publisher(kind, topic, qos, event_callbacks=listeners, **options)
        self.until_cleanup.callback(self.destroy_publisher, publisher)
        return publisher

    def call_every(self, seconds: float, function: Callable[[], None], stack: ExitStack) -> None:
        """
        Call a function regularly until `stack` is closed.

        By the real time: a simulation that is paused must not silence a node.  What it raises
        is logged.
        """
        steady = Steady(getattr(function, '__name__', 'a timer').strip('_'),
                        self.get_logger().error)
        stack.callback(self.destroy_timer, self.create_timer(
            seconds, lambda: steady.do(function, None),
            clock=Clock(clock_type=ClockType.STEADY_TIME)))

    def diagnose(self, look: Callable[[], Status | None]) -> None:
        """Publish what `look` returns on `diagnostics`, every second until cleanup."""
        publisher = self.publish_on(DiagnosticArray, 'diagnostics', 10)

        def diagnose() -> None:
            if status := look():
                publisher.publish(self._diagnostics.message(status))

        self.call_every(1.0, diagnose, self.until_cleanup)

    def _report_call(self, what: str) -> None:
        """Report a change of state, which a service asks for: the node itself never does."""
        managed = not self.get_parameter(AUTOSTART.name).value
        (self.info if managed else self.warn)(
            f'{what} by a call of change_state, which is open to all without SROS2')

    def _set_up(self) -> None:
        """Open a port for Prometheus where one is wanted, and run `setup`."""
        given = read(self, METRICS)
        if port := given['metrics_port']:
            self.metrics = open_metrics(given['metrics_address'], port,
                                        self.get_fully_qualified_name())
            self.until_cleanup.callback(self._close_metrics, self.metrics)
        values = read(self, self.PARAMETERS)
        try:
            self.setup(values)
        except (OSError, ValueError) as error:
            kind = '' if isinstance(error, ValueError) else f'{type(error).__name__}: '
            raise ValueError(naming(f'{kind}{error}', self.PARAMETERS, values)) from error

    def _close_metrics(self, metrics: Metrics) -> None:
        self.metrics = None
        metrics.close()

    def _start_bonded(self) -> None:
        """Run `start`, and say to a lifecycle manager that the node lives."""
        self.start()
        period = self.get_parameter(BOND_PERIOD.name).value
        if self.get_parameter(AUTOSTART.name).value or not period:
            return  # nobody manages it, or not by a bond
        messages = bond_messages()
        if messages is None:
            self.warn(MISSING)
        else:
            Bond(self, messages, period)

    def _done(self, name: str, step: Callable[[], None]) -> bool:
        try:
            step()
        except Exception as error:  # whatever it is: the lifecycle would swallow it
            kind = '' if isinstance(error, ValueError) else f'{type(error).__name__}: '
            self.get_logger().error(f'cannot {name}: {kind}{error}')
            self.get_logger().debug(traceback.format_exc())
            return False
        return True


def run_node(make: Callable[[], ManagedNode], args: list[str] | None = None, threads: int = 1,
             ) -> None:
    """
    Create a node, start it if it wants that, and spin until it is stopped.

    More than one of its callbacks run at once only where they are in groups
    that allow it, and the executor has several threads.
    """
    open_standard_streams()
    if not working_directory():  # MKL would end the process, with other words
        raise _cannot_start(NO_DIRECTORY)
    search_working_directory()  # parameters may name a module of it
    ending = EndingSignals()  # rclpy's own would end the context before the node can say good-bye
    node = _made(make, args)
    warnings.showwarning = partial(log_warning, warnings.showwarning)
    try:
        if node.get_parameter(AUTOSTART.name).value:
            _start(node)
        ending.spin(node, max(threads, node.callback_threads))
    except (KeyboardInterrupt, ExternalShutdownException):
        pass
    finally:
        node.release()
        # Fast DDS was seen to wait, with Python's lock, for a callback that was over.
        faulthandler.dump_traceback_later(LAST, exit=True, file=2)
        node.destroy_node()
        rclpy.try_shutdown()
        faulthandler.cancel_dump_traceback_later()


def log_warning(otherwise: Callable[..., None], message: Warning | str, category: type[Warning],
                file: str, *place: Any) -> None:
    """Log a warning of this package as nodes log theirs, without its line; others as they are."""
    if str(Path(__file__).parents[2]) in file:
        rclpy.logging.get_logger('intradp_ros').warning(str(message))
    else:
        otherwise(message, category, file, *place)


def _made(make: Callable[[], ManagedNode], args: list[str] | None) -> ManagedNode:
    """Create a node; report what it was given in vain: a transport's profile, parameters."""
    prepare()
    with listening_for_profile() as listening:
        try:
            check_arguments(sys.argv if args is None else args)
            rclpy.init(args=args, signal_handler_options=SignalHandlerOptions.NO)
        except (RuntimeError, ValueError) as error:  # arguments, or a file that cannot be read
            raise _cannot_start(error) from None
        try:
            node = make()
        except (InvalidParameterTypeException, InvalidParameterValueException) as error:
            rclpy.try_shutdown()
            raise _cannot_start(error) from None
        report_profile(node, listening)
    for text in unused_overrides(sys.argv if args is None else args,
                                 node.get_fully_qualified_name(),
                                 [*node.get_parameters_by_prefix(''),
                                  *(p.formerly for p in node.PARAMETERS if p.formerly)]):
        node.get_logger().warning(text)
    return node


def _cannot_start(error: Exception | str) -> SystemExit:
    rclpy.logging.get_logger('intradp_ros').fatal(f'cannot start: {plain_words(error)}')
    return SystemExit(1)


def _start(node: ManagedNode) -> None:
    if node.trigger_configure() != TransitionCallbackReturn.SUCCESS:
        raise SystemExit(1)
    if node.trigger_activate() != TransitionCallbackReturn.SUCCESS:
        raise SystemExit(1)
    node.get_logger().info('active')
