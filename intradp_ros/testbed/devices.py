# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What of a profile holds for a device whose values mean nothing."""
from __future__ import annotations

from dataclasses import replace

from intradp_ros.profiling.profile import Profile
from intradp_ros.wire.codecs.names import BITS


def without_compression(profile: Profile) -> Profile:
    """
    Return a profile that offers only encodings whose size does not depend on numbers.

    The values of emulated devices mean nothing: how far they could be
    compressed would say nothing of real ones.
    """
    return replace(profile, encodings=tuple(
        {name: timing for name, timing in found.items() if name == BITS}
        for found in profile.encodings))
