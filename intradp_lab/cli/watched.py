# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""A demo that runs nodes of ROS, on the page of `intradp view` while it runs (`--watch`)."""
from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import Protocol

from intradp_ros.cli.command_errors import CommandError
from intradp_ros.cli.view_live import Live
from intradp_ros.core.extras import pip_install


class Place(Protocol):
    """Where processes run."""

    @property
    def prefix(self) -> Sequence[str]:
        """Return the words before a command."""

    @property
    def environment(self) -> Mapping[str, str]:
        """Return the variables of a command."""


def add_watch(parser: argparse.ArgumentParser) -> None:
    """Add the option."""
    parser.add_argument('--watch', action='store_true',
                        help='show it on a page while it runs; the address is printed')


@contextmanager
def watched(place: Place, wanted: bool, say: Callable[[str], None]) -> Iterator[None]:
    """Serve the page, if it is wanted, of what can be heard at a place."""
    if not wanted:
        yield
        return
    try:
        from intradp_ros.web.view_app import ViewServer
    except ModuleNotFoundError as error:
        raise CommandError(f'--watch needs {error.name}: {pip_install("view")}') from error
    with closing(Live(prefix=place.prefix, environment=place.environment)) as live, \
            closing(ViewServer(live, '127.0.0.1', 0)) as server:
        say(f'Open {server.url} in a browser, while the demo runs')
        yield
