# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What an emulated link is like besides its rate: options of the command line."""
from __future__ import annotations

import argparse

from intradp_lab.emulation.settings import (
    ACCESS_POINT,
    DUPLEX,
    LinkSettings,
    SENDER,
    SHARED_MEDIUM,
)
from intradp_ros.cli.arguments import number
from intradp_ros.cli.command_errors import CommandError
from intradp_ros.cli.plan_model import LONGEST_MS
from intradp_ros.link.delay import ASSUMED_OVERHEAD, OWN_DELAY


def add_emulated_link(parser: argparse.ArgumentParser) -> None:
    """Declare the options, of which plans know some."""
    parser.add_argument(
        '--delay', type=number(0.0, LONGEST_MS), metavar='MS',
        help='one-way delay of the link, which plans know of (default: the link adds none, and '
             f'plans assume the {1e3 * OWN_DELAY:g} ms of the middleware)')
    parser.add_argument('--jitter', type=number(0.0, LONGEST_MS), default=0.0, metavar='MS',
                        help='a packet takes up to so much longer (default 0)')
    parser.add_argument('--loss', type=number(0.0, 0.99), default=0.0, metavar='SHARE',
                        help='probability that a packet is lost (default 0)')
    parser.add_argument('--medium', choices=[DUPLEX, SHARED_MEDIUM], default=DUPLEX,
                        help='whether each way has the rate for itself, or both share it as on '
                             'Wi-Fi, which plans know of (default %(default)s)')
    parser.add_argument('--bottleneck', choices=[SENDER, ACCESS_POINT],
                        help=f'where packets queue (default {SENDER}; of a shared medium, '
                             f'{ACCESS_POINT})')
    parser.add_argument('--overhead', type=number(0.0, LONGEST_MS),
                        default=1e3 * ASSUMED_OVERHEAD, metavar='MS',
                        help='time that plans assume a transfer to take beyond its bytes '
                             '(default %(default)g ms)')


def link_settings(args: argparse.Namespace) -> LinkSettings:
    """
    Return the link of a command line, with the greatest rate of the trace `args.link`.

    :raises CommandError: if no link can be like that.
    """
    bottleneck = args.bottleneck or (ACCESS_POINT if args.medium == SHARED_MEDIUM else SENDER)
    try:
        return LinkSettings(max(args.link.mbps), args.delay or 0.0, args.jitter, args.loss,
                            args.medium, bottleneck)
    except ValueError as error:
        raise CommandError(str(error)) from error


def planned_delay(args: argparse.Namespace) -> float:
    """Return the seconds of delay that plans shall assume."""
    # A transfer ends with its last packet, which comes after all others: jitter adds up to it.
    return OWN_DELAY + (float(args.delay or 0.0) + float(args.jitter)) / 1e3
