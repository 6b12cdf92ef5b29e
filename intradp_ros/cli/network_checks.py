# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Checks of the network, by what a node sees that looks around for some seconds."""
from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
import os
from typing import Any

from intradp_ros.cli.arguments import namespace, number
from intradp_ros.cli.finding import ERROR, Finding, OK, WARNING
from intradp_ros.cli.node_request import node_request, NodeRequestError
from intradp_ros.core.processes import Command, module_arguments
from intradp_ros.dds.transport_profile import transport_in_use

#: Seconds by which clocks may differ before stamps of sensors mislead other nodes.
_MOST_OFFSET = 1.0
_SHARED = 'the same model text, weights and version of torch'


def add_looking(parser: argparse.ArgumentParser, what: str) -> None:
    """Declare where, and for how long, a command looks around; `what` says it of the seconds."""
    parser.add_argument('--namespace', type=namespace, default='/',
                        help='of the nodes (default /)')
    parser.add_argument('--seconds', type=number(0.0, 1e4, above=True), default=3.0,
                        help=f'{what} (default 3)')


def look_around(namespace: str, seconds: float) -> Mapping[str, Any]:
    """Return what the probe of the domain sees, or {'failed': why, 'fix': what}."""
    command = Command('probe', module_arguments(
        'intradp_ros.nodes.sharing.domain_probe', namespace, str(seconds)))
    try:
        return node_request(command, seconds)
    except NodeRequestError as error:
        return {'failed': str(error), 'fix': error.fix}


def check_network(seen: Mapping[str, Any], environment: Mapping[str, str] = os.environ,
                  ) -> Iterator[Finding]:
    """Yield what is found in what was seen."""
    if 'failed' in seen:
        yield Finding('ROS 2', ERROR, seen['failed'], seen['fix'])
        return
    limited = environment.get('ROS_AUTOMATIC_DISCOVERY_RANGE', '')
    yield check_range(limited, seen['domain'])
    if limited != 'LOCALHOST':
        yield check_multicast(seen)
        yield from check_profile(seen, transport_in_use(environment).name)
    yield check_nodes(seen)
    yield from check_models(seen['profiles'])
    yield from check_clocks(seen['clock_offsets'])


def check_range(limited: str, domain: int) -> Finding:
    """Return how far this machine looks for others."""
    if limited in ('LOCALHOST', 'OFF'):
        return Finding('discovery range', WARNING, f'domain {domain}, {limited}: other machines '
                       'are not seen, and transport profiles are dropped',
                       'unset ROS_AUTOMATIC_DISCOVERY_RANGE')
    return Finding('discovery range', OK, f'domain {domain}, {limited or "SUBNET"}')


def check_multicast(seen: Mapping[str, Any]) -> Finding:
    """Return whether announcements are heard."""
    machines = {other['address'] for other in seen['others']}
    if seen['own'] is None:
        return Finding('multicast', ERROR, 'the own announcement is not heard',
                       'take an interface up that carries multicast (ip link set DEV multicast '
                       'on; ip route add 224.0.0.0/4 dev DEV), or set ROS_STATIC_PEERS')
    return Finding('multicast', OK, f'{len(seen["others"])} other participants announce '
                   f'themselves, from {len(machines)} addresses')


def check_profile(seen: Mapping[str, Any], chosen: str) -> Iterator[Finding]:
    """Yield whether the transport's profile took effect, and others that have another one."""
    if seen['own'] is not None and chosen != 'default':
        took = seen['own']['transport']
        yield Finding('transport profile', OK if took == chosen else ERROR,
                      f'announced as {took or "none"}',
                      '' if took == chosen else 'a variable or file of your own overrides it '
                      '(FASTDDS_DEFAULT_PROFILES_FILE, FASTRTPS_DEFAULT_PROFILES_FILE)')
    others = sorted({other['transport'] for other in seen['others']} - {'', chosen})
    if others:
        yield Finding('transport of others', WARNING, f'some nodes use {", ".join(others)}, '
                      f'this environment {chosen}', 'use the same on robot and server')


def check_nodes(seen: Mapping[str, Any]) -> Finding:
    """Return which nodes are discovered."""
    nodes = seen['nodes']
    shown = ', '.join(nodes[:8]) + (' ...' if len(nodes) > 8 else '')
    if not nodes and seen['others']:
        return Finding('discovery', ERROR, 'participants announce themselves, but none of their '
                       'nodes is seen', 'let UDP ports 7400 and above through the firewall, both '
                       'ways')
    return Finding('discovery', OK if nodes else WARNING, shown or 'no other node is seen',
                   '' if nodes else 'start the nodes, or compare ROS_DOMAIN_ID')


def check_models(profiles: list[list[str]]) -> Iterator[Finding]:
    """Yield which models robots and servers have in common."""
    have = {role: {digest: device for r, digest, device in profiles if r == role}
            for role in ('robot', 'server')}
    for digest, device in have['robot'].items():
        there = digest in have['server']
        yield Finding(
            f'model {digest[:12]}', OK if there else ERROR, f'robot on {device}, ' + (
                f'server on {have["server"][digest]}' if there else 'no server has it: there are '
                + (', '.join(d[:12] for d in have['server']) or 'none')),
            '' if there else f'give robot and server {_SHARED}')
    if not have['robot'] and not have['server']:
        yield Finding('models', WARNING, 'neither robot nor server publishes a profile',
                      'start them; with a namespace: intradp doctor --namespace NAME')


def check_clocks(offsets: Mapping[str, float]) -> Iterator[Finding]:
    """Yield how far the stamps of other nodes are from this machine's clock."""
    for node, offset in offsets.items():
        if abs(offset) > _MOST_OFFSET:
            yield Finding('clocks', WARNING, f'{node} is {offset:+.1f} s from this machine',
                          'synchronise the clocks (chrony), or use_sim_time everywhere')
    if offsets and all(abs(offset) <= _MOST_OFFSET for offset in offsets.values()):
        worst = max(map(abs, offsets.values()))
        yield Finding('clocks', OK, f'stamps within {1e3 * worst:.0f} ms of this machine')
