# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What the three nodes share: lifecycle with reported errors, autostart, main functions."""
from __future__ import annotations

from collections.abc import Callable
import traceback
from typing import Any

import rclpy
from rclpy.executors import ExternalShutdownException
from rclpy.lifecycle import LifecycleNode, LifecycleState, TransitionCallbackReturn
from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy

from intradp_ros.nodes.parameters import declare, Parameter, read

LATCHED = QoSProfile(depth=10, durability=DurabilityPolicy.TRANSIENT_LOCAL,
                     reliability=ReliabilityPolicy.RELIABLE)

AUTOSTART = Parameter(
    'autostart', True, 'Configure and activate at once; false waits for a lifecycle manager.')


class ManagedNode(LifecycleNode):
    """
    A lifecycle node whose configuration errors are said plainly.

    Subclasses implement `setup` (may raise ValueError with a message for the
    user) and `teardown`, which must cope with a half-done `setup`.
    """

    PARAMETERS: tuple[Parameter, ...] = ()

    def __init__(self, name: str, **kwargs: Any) -> None:
        super().__init__(name, **kwargs)
        declare(self, (*self.PARAMETERS, AUTOSTART))

    def setup(self, parameters: dict[str, Any]) -> None:
        """Acquire everything that the node needs."""
        raise NotImplementedError

    def teardown(self) -> None:
        """Release everything."""
        raise NotImplementedError

    def on_configure(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Run `setup`; refuse to configure where it raises."""
        try:
            self.setup(read(self, self.PARAMETERS))
        except (ValueError, RuntimeError, OSError) as error:
            self.get_logger().error(f'cannot configure: {error}')
            self.get_logger().debug(traceback.format_exc())
            self.teardown()
            return TransitionCallbackReturn.FAILURE
        return super().on_configure(state)

    def on_cleanup(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Run `teardown`."""
        self.teardown()
        return super().on_cleanup(state)

    def on_shutdown(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Run `teardown`."""
        self.teardown()
        return super().on_shutdown(state)

    def info(self, text: str) -> None:
        """Log one line; safe to hand to the core as its log function."""
        self.get_logger().info(text)


def run_node(make: Callable[[], ManagedNode], args: list[str] | None = None) -> None:
    """Create a node, start it if it wants that, and spin until it is told to stop."""
    rclpy.init(args=args)
    node = make()
    try:
        if node.get_parameter(AUTOSTART.name).value:
            _start(node)
        rclpy.spin(node)
    except (KeyboardInterrupt, ExternalShutdownException):
        pass
    finally:
        node.teardown()
        node.destroy_node()
        rclpy.try_shutdown()


def _start(node: ManagedNode) -> None:
    if node.trigger_configure() != TransitionCallbackReturn.SUCCESS:
        raise SystemExit(1)
    if node.trigger_activate() != TransitionCallbackReturn.SUCCESS:
        raise SystemExit(1)
    node.get_logger().info('active')
