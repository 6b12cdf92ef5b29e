# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""``intradp view``: one live page for all systems, or a recording of them."""
from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
import time
from typing import Any

from intradp_ros.cli.arguments import file_of, looked_at, whole
from intradp_ros.cli.command_errors import CommandError
from intradp_ros.cli.output import output
from intradp_ros.cli.output_paths import result_file
from intradp_ros.cli.view_bag import Bag, opened
from intradp_ros.cli.view_live import Live
from intradp_ros.cluster.device import gateway_place
from intradp_ros.core.extras import pip_install
from intradp_ros.report.view.observed import OPTIONS
from intradp_ros.report.view.recorded import Recorded
from intradp_ros.web.access import ApiKeys, check_address, own_key

DESCRIPTION = """\
Show a page of what runs in this ROS domain, from what nodes publish anyway: who computes what,
who is out and why, what crosses, whether targets are met. Or, with a demo's folder or a bag, the
same page with a slider. It only shows; nothing is subscribed to while nobody looks."""

EPILOG = """\
examples:
  intradp view
  intradp view out/demo-fleet
  ros2 bag record -a -o today && intradp view today
  intradp view out/demo --rerun demo.rrd
  intradp view --address 0.0.0.0 --api-keys view.keys"""
PORT = 8790


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command line of the subcommand."""
    parser.description, parser.epilog = DESCRIPTION, EPILOG
    parser.add_argument('recording', nargs='?', type=Path, metavar='RECORDING',
                        help="a demo's folder, or a bag (default: live)")
    parser.add_argument('--address', default='127.0.0.1', metavar='ADDRESS',
                        help='where to listen (default %(default)s)')
    parser.add_argument('--port', type=whole(0, 65535), default=PORT, metavar='N',
                        help='TCP port, 0 for a free one (default %(default)s)')
    parser.add_argument('--rerun', type=result_file, metavar='FILE.rrd',
                        help='in place of a page write a recording for Rerun: all of RECORDING, '
                        'or what comes until Ctrl-C')
    parser.add_argument('--gateway', action='append', default=[], metavar='HOST:PORT',
                        type=looked_at(gateway_place),
                        help='of a site of `intradp serve up`, to be shown too')
    parser.add_argument('--key', type=file_of(own_key), metavar='FILE',
                        help='an API key of the gateways')
    parser.add_argument('--api-keys', type=file_of(ApiKeys.load), metavar='FILE',
                        help='lines "NAME KEY"; needed where other machines may look')


def run(args: argparse.Namespace) -> int:
    """Serve until the command is ended."""
    if args.rerun:
        return _write_rerun(args)
    try:
        from intradp_ros.web.view_app import ViewServer
    except ModuleNotFoundError as error:
        raise CommandError(f'the page needs {error.name}: {pip_install("view")}') from error
    try:
        keys = ApiKeys.load(args.api_keys) if args.api_keys else None
        check_address(args.address, keys)
        source = _source(args)
        server = ViewServer(source, args.address, args.port, keys)
    except ValueError as error:
        raise CommandError(str(error)) from error
    except OSError as error:
        if error.filename:
            raise
        raise CommandError(f'port {args.port} of {args.address}: {error.strerror}; choose '
                           'another one by --port') from error
    with output(False) as out:
        out.announce(f'Open {server.url} in a browser; Ctrl-C ends it')
        try:
            while True:
                time.sleep(3600)
        finally:
            server.close()
            source.close()


def _write_rerun(args: argparse.Namespace) -> int:
    """Write a recording for Rerun."""
    try:
        from intradp_ros.report.view.rerun_file import write_rerun
    except ModuleNotFoundError as error:
        raise CommandError(f'--rerun needs {error.name}: {pip_install("rerun")}') from error
    try:
        source = _source(args)
    except ValueError as error:
        raise CommandError(str(error)) from error
    with output(False) as out, closing(source):
        out.show(f'Writing {args.rerun}; Ctrl-C ends it' if isinstance(source, Live) else
                 f'Writing {args.rerun}')
        count = write_rerun(args.rerun, _views(source), source.picture)
        out.show(f'{count} views in {args.rerun}: open it with rerun {args.rerun}')
    return 0


def _views(source: Replay | Live) -> Iterator[tuple[float, Mapping[str, Any]]]:
    """Yield all views of a recording, or one a second of what is live, with their times."""
    if isinstance(source, Live):
        begun = time.monotonic()
        with source.look(dict.fromkeys(OPTIONS, '1')) as view:
            while True:
                time.sleep(1.0)
                yield time.monotonic() - begun, view()
        return
    for step in range(source.recorded.length):
        yield source.recorded.seconds(step), source.recorded.view(step)


def _source(args: argparse.Namespace) -> Replay | Live:
    """Return what is looked at."""
    if args.recording is None:
        return Live(args.gateway, own_key(args.key))
    return Replay(opened(args.recording))


class Replay:
    """A recording, as the page looks at it."""

    def __init__(self, recorded: Recorded | Bag) -> None:
        self.recorded, self.picture = recorded, recorded.picture

    @contextmanager
    def look(self, query: Mapping[str, str]) -> Iterator[Callable[[], Mapping[str, Any]]]:
        """Return what gives the view of the step that a query names."""
        at = query.get('at', '0')
        yield partial(self.recorded.view, int(at) if at.isdecimal() else 0, query)

    def close(self) -> None:
        """Do nothing: nobody listens."""
