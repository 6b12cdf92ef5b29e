# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""A device node that waits long for weights it has asked for: ``python -m patient_device``."""
from __future__ import annotations

from functools import partial

from intradp_ros.blobs.fetch_state import FetchTimes
from intradp_ros.nodes.common import weight_parameters
from intradp_ros.nodes.fleet.device_node import main
from intradp_ros.runtime.weights.exchange import WeightPolicy

if __name__ == '__main__':
    vars(weight_parameters)['WeightPolicy'] = partial(
        WeightPolicy, times=FetchTimes(patience=20.0))
    main()
