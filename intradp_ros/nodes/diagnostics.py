# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""diagnostic_msgs without diagnostic_updater, which has no wheel."""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus, KeyValue
from rclpy.node import Node


def diagnostics(node: Node, level: bytes, message: str, values: Mapping[str, Any],
                ) -> DiagnosticArray:
    """Return one status of a node with its values as text."""
    status = DiagnosticStatus(
        level=level, name=node.get_fully_qualified_name(), message=message,
        values=[KeyValue(key=key, value=str(value)) for key, value in values.items()])
    array = DiagnosticArray(status=[status])
    array.header.stamp = node.get_clock().now().to_msg()
    return array
