# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Which services each executor of each site runs, as a file: format ``placement/1``."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
import json
from pathlib import Path
from typing import Any

from intradp_ros.core.atomic_write import write_atomically
from intradp_ros.core.json_text import read_json

FORMAT = 'placement/1'
MAX_BYTES, MAX_SITES, MAX_EXECUTORS = 1 << 20, 256, 64


class PlacementError(ValueError):
    """A file of a placement that cannot be used; the text names cause and fix."""


@dataclass(frozen=True)
class PlacementPlan:
    """`sites[name]`: for each executor of that site the names of its services."""

    sites: Mapping[str, tuple[tuple[str, ...], ...]]

    def write(self, path: Path) -> None:
        """Write it as `read_placement` reads it."""
        write_atomically(path, json.dumps(self.to_json(), indent=1) + '\n')

    def to_json(self) -> dict[str, Any]:
        """Return what is written."""
        return {'format': FORMAT, 'sites': {site: [list(names) for names in executors]
                                            for site, executors in self.sites.items()}}

    def lanes(self, site: str, services: Sequence[str]) -> tuple[tuple[int, ...], ...]:
        """
        Return the numbers of the services of each executor of a site.

        :raises PlacementError: if the plan has no such site, or names a service that is not among
            `services`.
        """
        if site not in self.sites:
            raise PlacementError(f'the plan has no site {site!r}; it has '
                                 f'{", ".join(self.sites)}: plan anew with this fleet file')
        number = {name: k for k, name in enumerate(services)}
        for name in (name for names in self.sites[site] for name in names):
            if name not in number:
                raise PlacementError(f'the plan places {name!r} at {site}, which the file of '
                                     'services does not have: plan anew with it')
        return tuple(tuple(number[name] for name in names) for names in self.sites[site])


def read_placement(path: Path) -> PlacementPlan:
    """
    Read a plan that was written.

    :raises PlacementError: if it cannot be read or used; the text names the file.
    """
    try:
        return parse_placement(read_json(path, MAX_BYTES))
    except (OSError, ValueError) as error:
        raise PlacementError(f'{path}: {error}; write one with intradp serve plan -o') from None


def parse_placement(content: Any) -> PlacementPlan:
    """Return the plan that a decoded file holds; PlacementError if it is none."""
    if not isinstance(content, dict) or content.get('format') != FORMAT:
        raise PlacementError(f'is not a placement: its "format" must be "{FORMAT}"')
    sites = content.get('sites')
    if not isinstance(sites, dict) or not 0 < len(sites) <= MAX_SITES:
        raise PlacementError(f'"sites" must map 1 to {MAX_SITES} names to lists of executors')
    return PlacementPlan({site: tuple(_names(site, names) for names in _listed(site, executors))
                          for site, executors in sites.items()})


def _listed(site: str, executors: Any) -> list[Any]:
    if not isinstance(executors, list) or len(executors) > MAX_EXECUTORS:
        raise PlacementError(f'site {site}: write a list of at most {MAX_EXECUTORS} executors')
    return executors


def _names(site: str, names: Any) -> tuple[str, ...]:
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names) \
            or len(set(names)) < len(names):
        raise PlacementError(f'site {site}: an executor is a list of names of services, each once')
    return tuple(names)
