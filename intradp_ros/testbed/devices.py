# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What of a profile holds for an emulated device."""
from __future__ import annotations

from dataclasses import replace

from intradp_ros.profiling.profile import Profile
from intradp_ros.wire.codecs.names import BITS


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
