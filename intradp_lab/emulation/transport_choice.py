# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The transport of what runs on one machine: the one that is named, or the best that works."""
from __future__ import annotations

from collections.abc import Mapping
import os
from pathlib import Path

from intradp_ros.dds.transport_profile import transport_environment, TransportError, TRANSPORTS

#: Leaves the choice to `usable_environment`.
AUTO = 'auto'
CHOICES = (AUTO, *TRANSPORTS)


def usable_environment(
    name: str, environment: Mapping[str, str] = os.environ, limits: Path | None = None,
) -> tuple[dict[str, str], str]:
    """
    Return what `transport_environment` does; of `AUTO` for the best one that works here.

    That is large_data, which costs less CPU, or else udp; then the second
    item says why, and is '' otherwise.

    :raises ValueError, TransportError: as `transport_environment` does, if a transport is named.
    """
    if name != AUTO:
        return transport_environment(name, environment, limits), ''
    try:
        return transport_environment('large_data', environment, limits), ''
    except TransportError as error:
        return transport_environment('udp', environment, limits), str(error)
