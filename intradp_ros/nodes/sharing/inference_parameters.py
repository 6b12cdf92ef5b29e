# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The parameters of the robot's node."""
from __future__ import annotations

from intradp_ros.core.plain_file import check_file
from intradp_ros.link.chunk_size import LEAST_CHUNK_BYTES, MAX_CHUNK_BYTES
from intradp_ros.link.predictor import PREDICTORS
from intradp_ros.nodes.common.device_parameter import DEFAULT_MODEL, DEVICE
from intradp_ros.nodes.common.key_parameter import KEY_FILE
from intradp_ros.nodes.common.lossy_parameter import LOSSY_PARAMETER
from intradp_ros.nodes.common.parameters import check_topic, Parameter
from intradp_ros.nodes.sensors.intake import INTAKE
from intradp_ros.nodes.sensors.perception import PERCEPTION
from intradp_ros.nodes.sharing.weight_loading import WEIGHTS, WEIGHTS_FOLDER
from intradp_ros.systems.sharing.session.stream import MAX_INFLIGHT
from intradp_ros.systems.sharing.strategies import CUT, LOCAL, OFFLOAD, SHARED

MODES = (SHARED, LOCAL, OFFLOAD, CUT)
MODE = Parameter('mode', 'shared', 'How inferences run; may be changed at any time.',
                 choices=MODES, read_only=False)
DEADLINE = Parameter('deadline_ms', 0.0, 'Finish alone after this time; 0 for no deadline. May be '
                     'changed at any time.', 0.0, 60000.0, read_only=False)
INFERENCE_PARAMETERS = (
    Parameter('model', DEFAULT_MODEL,
              'The model: "package.module:factory shape dtype" or an archive path.'),
    Parameter('server', 'offload', 'Name of the server to share with.', check=check_topic),
    MODE,
    *INTAKE,
    Parameter('axis', -1, 'Split axis of the input; -1 takes the best one.', -1, 4),
    Parameter('predictor', 'ewma', 'How the bandwidth is predicted.',
              choices=tuple(PREDICTORS)),
    DEADLINE,
    Parameter('server_timeout_ms', 300.0,
              'A server that was not heard for this long is silent: from half of it on the '
              'robot works by itself while it waits; after 2 s, or this if it is more, it no '
              'longer waits.',
              20.0, 10000.0),
    LOSSY_PARAMETER,
    Parameter('example', '', 'A file like what the sensor gives (an image; an array of points '
              'of NumPy, .npy), by which encodings are chosen; empty for a made-up picture '
              '(noise where the input is not a picture).', check=check_file),
    *PERCEPTION,
    Parameter('queue_size', 1, 'Messages of the sensor that may wait.', 1, 1000),
    Parameter('max_inflight', 1, 'Inferences in flight at a time: 1 for the least latency, '
              'more for frames per second.', 1, MAX_INFLIGHT),
    DEVICE,
    KEY_FILE,
    Parameter('threads', 1, 'CPU threads for operators.', 1, 256),
    Parameter('chunk_bytes', LEAST_CHUNK_BYTES,
              'Least payload bytes of a chunk; fast links get larger ones.', 1024,
              MAX_CHUNK_BYTES),
    Parameter('max_allowed_processing_time_ms', 1000.0,
              'Diagnostics warn when an inference takes longer.', 0.0, 60000.0),
    WEIGHTS,
    WEIGHTS_FOLDER,
)
