# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What of a profile holds for an emulated device, and what profiles do not say of it."""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from intradp_ros.profiling.profile import Profile
from intradp_ros.schedule.schedule import ROBOT, SERVER
from intradp_ros.wire.codecs.names import BITS

#: Seconds for each byte that is copied where pieces are put together, of devices whose profiles
#: do not say; an assumption: two thirds of what the memory of a Jetson Xavier NX can read and
#: write at once (60 GB/s), and of a GPU of a server (750 GB/s).
COPIES: Mapping[str, float] = {ROBOT: 1 / 20e9, SERVER: 1 / 250e9}


def as_emulated(profile: Profile) -> Profile:
    """
    Return a profile of what an emulated device does.

    It offers only encodings whose size does not depend on numbers: its values
    mean nothing, and how far they could be compressed would say nothing of
    real ones.  Moving bytes takes no time from its operators, which sleep.
    """
    return replace(profile, cores=0, encodings=tuple(
        {name: timing for name, timing in found.items() if name == BITS}
        for found in profile.encodings))
