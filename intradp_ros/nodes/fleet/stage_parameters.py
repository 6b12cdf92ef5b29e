# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Parameters of stages: of a device that runs them, and of who plans them."""
from __future__ import annotations

from intradp_ros.core.plain_file import check_file
from intradp_ros.nodes.common.device_parameter import DEFAULT_MODEL
from intradp_ros.nodes.common.parameters import Parameter

STAGE_PARAMETERS: tuple[Parameter, ...] = (
    Parameter('models', [DEFAULT_MODEL],
              'Catalogue: "package.module:factory shape dtype" or archive paths. May be empty '
              'where weights are fetched.'),
    Parameter('requests', False, 'Request inferences of the first model, of images that come.',
              formerly='asks'),
    Parameter('deadline_ms', 0.0, 'An image is of use for so long; 0 for ever.', 0.0, 60000.0),
    Parameter('queue_size', 4, 'Images that may wait; the late and the oldest make room.',
              1, 1000),
    Parameter('max_inflight', 0, 'Inferences in the pipeline at most; 0 for two a stage.', 0, 60,
              formerly='under_way'),
    Parameter('silence_ms', 600.0, 'Finish alone when a device was silent for so long.',
              100.0, 10000.0),
)
PLANNING_PARAMETERS: tuple[Parameter, ...] = (
    Parameter('model', DEFAULT_MODEL,
              'The model that is run: as in the catalogue of the devices.'),
    Parameter('source', 'device', 'The device that requests inferences.'),
    Parameter('stages', 'device', 'Stages in order: "a,b*2+c,d@30" are three, the second on '
              'b and c (b takes two samples of three), the third up to operator 30.'),
    Parameter('plan', '', 'A file with a plan of stages (JSON), in place of `stages`.',
              check=check_file),
    Parameter('qoe', '', 'A target, such as "latency=200ms,rate=5Hz", in place of `stages`: '
              'plan by it, and anew when rates or devices change.'),
    Parameter('plan_service', 'sealed', 'Whose ADAPT and HOLD the service plan_model takes where '
              'there is a key_file: "sealed", of requests that are sealed with it (intradp fleet '
              'ask); "open", of all. Without a key, and where SROS2 decides who calls, of all.'),
    Parameter('fleet_file', '', 'The fleet (fleet.yaml) that is planned for; with `qoe`.',
              check=check_file),
    Parameter('profile', '', 'File that `intradp profile -o` wrote on a device of speed 1; '
              'with `qoe`.', check=check_file),
)
