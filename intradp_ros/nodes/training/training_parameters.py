# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Parameters of training: of what serves goals, and of a device that takes part."""
from __future__ import annotations

from intradp_ros.core.plain_file import check_folder
from intradp_ros.nodes.common.parameters import Parameter

TASKS = Parameter(
    'tasks', [''], 'What may be trained: "file.py:function" or "package.module:function", of '
    'functions that return a TrainingTask. Goals name one of them. All machines of a fleet list '
    'it by the same text.')
GOAL_PARAMETERS: tuple[Parameter, ...] = (
    Parameter('images', [''], 'Where the data of tasks lie: "DEVICE=SHARE" or "DEVICE=SAMPLES", '
              'the first samples on the device that is named first; others get from it what they '
              'need. Empty: every device can read all.'),
    Parameter('folder', '', 'Where checkpoints of trainings are kept; empty for the cache '
              'folder.', check=check_folder),
    Parameter('save_every', 200, 'Rounds of training after which what was reached is saved; 0: '
              'only at pauses and at the end.', 0, 1 << 30),
    Parameter('timeout_s', 3.0, 'Longest wait of a device that trains for another one, which '
              'counts as lost then.', 0.2, 600.0),
)
TRAINING_ADDRESS = Parameter(
    'training_address', '', 'IP address at which this machine listens for the others of a '
    'training. What goes there is neither authenticated nor encrypted: name an interface of the '
    "site's own network. Empty: a device takes the interface that leads to the coordinator, the "
    'coordinator that of its default route; without a network the loopback.')
DEVICE_PARAMETERS: tuple[Parameter, ...] = (TASKS, TRAINING_ADDRESS)
COORDINATOR_PARAMETERS: tuple[Parameter, ...] = (TASKS, *GOAL_PARAMETERS, TRAINING_ADDRESS)
