# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The parameters of the node that asks gateways."""
from __future__ import annotations

from intradp_ros.core.plain_file import check_file
from intradp_ros.nodes.common.device_parameter import DEVICE
from intradp_ros.nodes.common.key_parameter import KEY_FILE
from intradp_ros.nodes.common.parameters import Parameter
from intradp_ros.nodes.sensors.intake import INTAKE
from intradp_ros.nodes.sensors.perception import PERCEPTION
from intradp_ros.runtime.requests.infer_requests import MAX_PRIORITY
from intradp_ros.systems.serving.service import KEEPS

STAMP, ARRIVAL = 'stamp', 'arrival'
GATEWAYS = Parameter(
    'gateways', ['gateway_node'], 'Whom to ask, the first that answers: gateway nodes by name, or '
    'addresses HOST:PORT. May be changed at any time, also by the topic ~/gateways.',
    read_only=False)
CLIENT_PARAMETERS = (
    Parameter('service', 'edges', 'The service that is asked.'),
    GATEWAYS,
    Parameter('model', '', "The robot's own model of the same inputs and outputs, which answers "
              'where no gateway does: "package.module:factory shape dtype" or an archive path. '
              'Empty: without a gateway there is no result.'),
    Parameter('deadline_ms', 1000.0, 'A frame is of use for so long.', 1.0, 3.6e6),
    Parameter('frame_age', STAMP, "From when on: the frame's stamp, by the clock of ROS; or its "
              'arrival, where clocks differ.', choices=(STAMP, ARRIVAL)),
    Parameter('priority', 0, 'Larger ones are served earlier.', -MAX_PRIORITY, MAX_PRIORITY),
    Parameter('keep', 'newest', 'Which frames wait: the newest, or all (64).', choices=KEEPS),
    Parameter('max_inflight', 2, 'Frames that are asked for at a time.', 1, 64),
    Parameter('gateway_timeout_ms', 1000.0, 'A gateway node that gives no sign of life for so '
              'long is silent: the next one is asked.', 100.0, 60000.0),
    Parameter('api_key', '', 'File of the key by which gateways at addresses know this robot.',
              check=check_file),
    KEY_FILE,
    *INTAKE,
    *PERCEPTION,
    DEVICE,
    Parameter('threads', 1, 'CPU threads of the own model.', 1, 256),
)
