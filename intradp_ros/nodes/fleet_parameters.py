# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What devices and coordinators of a fleet both name."""
from __future__ import annotations

from intradp_ros.nodes.parameters import Parameter

#: Devices say here what they offer, below the name of their fleet.
DEVICES_TOPIC = 'devices'
FLEET = Parameter('fleet', 'fleet', 'Name of the fleet; the same on all its machines.')
