# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""``intradp bench transport``: what DDS makes of a link, compared with a plain TCP socket."""
from __future__ import annotations

import argparse
from typing import Any

from intradp_lab.emulation.network import available, LinkSettings, NetworkError
from intradp_lab.emulation.processes import ChildError
from intradp_lab.emulation.settings import ACCESS_POINT, DUPLEX, SENDER, SHARED_MEDIUM
from intradp_lab.testbed.transport_bench import (
    congestion_control,
    Job,
    run_job,
    targets_missed,
    TCP,
)
from intradp_ros.cli.arguments import number, whole
from intradp_ros.cli.command_errors import CommandError
from intradp_ros.cli.output import add_json, output, percent, table
from intradp_ros.cli.output_paths import result_folder
from intradp_ros.cli.plan_model import LONGEST_MS
from intradp_ros.core.limits import MAX_MBPS
from intradp_ros.dds.transport_profile import TRANSPORTS
from intradp_ros.link.chunk_size import LEAST_CHUNK_BYTES
from intradp_ros.report.result_tables import write_json

CARRIERS = (*TRANSPORTS, TCP)
DESCRIPTION = """\
Measure goodput and added time of the transport on emulated links, next to a plain TCP socket.

Two processes at the ends of a shaped link (network namespaces: Linux, as root) send tensors over
the channel that robot and server use, and over a socket.  `added` is by how much a single tensor
takes longer than its bytes on the wire and the link's delay explain."""

EPILOG = """\
examples:
  intradp bench transport
  intradp bench transport --mbit 93 --loss 0 0.01 --delay 3 --carriers udp tcp
  intradp bench transport --mbit 40 --medium shared --bottleneck access_point"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command line of the subcommand."""
    parser.description, parser.epilog = DESCRIPTION, EPILOG
    parser.add_argument('--mbit', type=number(0.0, MAX_MBPS, above=True), nargs='+',
                        default=[20.0, 93.0, 400.0],
                        help='rates of the link, Mbit/s (default: 20 93 400)')
    parser.add_argument('--loss', type=number(0.0, 0.99), nargs='+', default=[0.0, 0.01],
                        help='probabilities that a packet is lost (default: 0 and 0.01)')
    parser.add_argument('--delay', type=number(0.0, LONGEST_MS), default=0.0,
                        help='ms one way (default 0)')
    parser.add_argument('--jitter', type=number(0.0, LONGEST_MS), default=0.0,
                        help='ms at most (default 0)')
    parser.add_argument('--medium', choices=[DUPLEX, SHARED_MEDIUM], default=DUPLEX,
                        help='whether both directions share the rate')
    parser.add_argument('--bottleneck', choices=[SENDER, ACCESS_POINT], default=SENDER,
                        help='where packets queue')
    parser.add_argument('--carriers', nargs='+', choices=CARRIERS,
                        default=['udp', 'large_data', 'tcp'], help='DDS transports, and tcp')
    parser.add_argument('--chunk-bytes', type=whole(1, 1 << 24), default=LEAST_CHUNK_BYTES,
                        help='least bytes of a chunk; fast links get larger ones '
                             f'(default {LEAST_CHUNK_BYTES})')
    parser.add_argument('--repeat', type=whole(1, 100_000), default=10,
                        help='tensors of each size')
    parser.add_argument('--seconds', type=number(0.0, 1e6, above=True), default=3.0,
                        help='of the stream')
    parser.add_argument('--out', type=result_folder, default='out/bench/transport',
                        help='folder to write to')
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Run the subcommand."""
    try:
        links = [LinkSettings(mbit, args.delay, args.jitter, loss, args.medium, args.bottleneck)
                 for mbit in args.mbit for loss in args.loss]
    except ValueError as error:
        raise CommandError(str(error)) from error
    if reason := available():
        raise CommandError(f'no emulated link: {reason}')
    rows: list[dict[str, Any]] = []
    with output(args.json) as out:
        try:
            with out.steps() as step:
                for link in links:
                    for kind in args.carriers:
                        step(f'{kind} at {link.mbit:g} Mbit/s, loss {percent(link.loss)}')
                        job = Job(kind, link.mbit, link.delay_ms, repeat=args.repeat,
                                  seconds=args.seconds, chunk_bytes=args.chunk_bytes)
                        found = run_job(job, link, args.out / 'logs')
                        rows.append({'mbit': link.mbit, 'loss': link.loss, 'carrier': kind,
                                     **found, 'missed': targets_missed(found, link.loss)})
        except (NetworkError, ChildError, ValueError) as error:
            raise CommandError(str(error)) from error
        result = {'tcp_congestion_control': congestion_control(), 'delay_ms': args.delay,
                  'jitter_ms': args.jitter, 'medium': args.medium,
                  'bottleneck': args.bottleneck, 'rows': rows}
        write_json(args.out / 'transport.json', result)
        out.show(_table(rows), f'TCP, and large_data, with {congestion_control()}; wrote '
                 f'{args.out}/transport.json')
        out.result(result)
    return 0


def _table(rows: list[dict[str, Any]]) -> Any:
    shown = table('goodput and added time', 'carrier', 'Mbit/s', 'loss', 'goodput', 'share',
                  'wire', 'added ms', 'misses')
    for row in rows:
        shown.add_row(row['carrier'], f'{row["mbit"]:g}', percent(row['loss']),
                      f'{row["goodput"]:.1f}', percent(row['share']), f'{row["wire"]:.3f}',
                      f'{row["added_ms"]:.1f}', '; '.join(row['missed']))
    return shown
