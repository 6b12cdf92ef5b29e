# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The parameter that says what operators run on, and the model that needs no file."""
from __future__ import annotations

from intradp_ros.nodes.common.parameters import Parameter
from intradp_ros.split.kernel_device import HOST

DEVICE = Parameter('device', HOST.name, 'What operators run on: cpu, a device of PyTorch with '
                   'memory of its own, such as cuda, or auto: cuda where there is one, else cpu.')
#: What nodes take unless they are given another model.
DEFAULT_MODEL = 'intradp_ros.perception.oriented_energy:oriented_energy 1x3x144x336 uint8'
