# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What is said where the quality of service of a publisher and a subscription does not fit."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rclpy.event_handler import PublisherEventCallbacks, SubscriptionEventCallbacks
from rclpy.qos import qos_policy_name_from_kind

Report = Callable[[str], None]


def of_listeners(topic: str, report: Report) -> PublisherEventCallbacks:
    """Return what reports subscriptions to a topic that want more than its publisher offers."""
    return PublisherEventCallbacks(incompatible_qos=lambda event: report(
        f'a subscription to {topic} wants more than is offered: {_remedy(topic, event)}'))


def of_speakers(topic: str, report: Report) -> SubscriptionEventCallbacks:
    """Return what reports publishers on a topic that offer less than its subscription wants."""
    return SubscriptionEventCallbacks(incompatible_qos=lambda event: report(
        f'a publisher on {topic} offers less than is wanted: {_remedy(topic, event)}'))


def _remedy(topic: str, event: Any) -> str:
    policy = qos_policy_name_from_kind(event.last_policy_kind).lower()
    return (f'no message passes; make the {policy} of both alike '
            f'(ros2 topic info --verbose {topic}; qos_overrides)')
