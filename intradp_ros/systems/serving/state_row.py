# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What a site says of itself to the others: some bytes for each service that it has."""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from intradp_ros.core.limits import MAX_SECONDS, within

#: Services of a row, and characters of a name.
MAX_SERVICES, MAX_NAME = 64, 64


@dataclass(frozen=True)
class StateRow:
    """
    By service: seconds until one more request would end, by which each delays the next, of one.

    :raises ValueError: if a name or a number is out of its limits.
    """

    services: Mapping[str, tuple[float, float, float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Look at all limits: rows come from the network."""
        within('services of a row', len(self.services), 0, MAX_SERVICES)
        for name, numbers in self.services.items():
            within('characters of a service', len(name), 1, MAX_NAME)
            for number in numbers:
                within(f'seconds of {name}', number, 0.0, MAX_SECONDS)
