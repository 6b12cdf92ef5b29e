# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What the policy files for SROS2 allow, and what running nodes do."""
from __future__ import annotations

from pathlib import Path
from typing import Any
from xml.etree import ElementTree

FOLDER = Path(__file__).parents[1] / 'config' / 'security'
WAYS = {('topics', 'publish'): 'get_publisher_names_and_types_by_node',
        ('topics', 'subscribe'): 'get_subscriber_names_and_types_by_node',
        ('services', 'reply'): 'get_service_names_and_types_by_node',
        ('services', 'request'): 'get_client_names_and_types_by_node'}


#: What an action that a node executes is made of.
OF_ACTION = {('topics', 'publish'): ('feedback', 'status'),
             ('services', 'reply'): ('send_goal', 'cancel_goal', 'get_result')}


def profiles(policy: str) -> dict[str, ElementTree.Element]:
    """Return the profiles of a policy by the names of their nodes."""
    root = ElementTree.parse(FOLDER / f'{policy}.policy.xml').getroot()
    return {profile.get('node', ''): profile for profile in root.iter('profile')}


def names_of(profile: ElementTree.Element, kind: str, way: str) -> set[str]:
    """Return the full names of what a profile allows a node of the root namespace."""
    names = {item.text or '' for group in profile.iter(kind) if group.get(way) for item in group}
    names |= {f'{item.text}/_action/{end}' for group in profile.iter('actions')
              if group.get('execute') for item in group for end in OF_ACTION.get((kind, way), ())}
    whole = {name.replace('~', f'/{profile.get("node")}') for name in names}
    return {name if name.startswith('/') else f'/{name}' for name in whole}


def check_policy(policy: str, graph: Any, without: tuple[str, ...] = ()) -> None:
    """
    See that a policy has a profile for each node of a process, and allows all that it does.

    :param without: nodes that do not run in this case.
    """
    for node, profile in profiles(policy).items():
        if node in without:
            continue
        for (kind, way), ask in WAYS.items():
            seen = {name for name, _ in getattr(graph, ask)(node, '/')}
            assert seen <= names_of(profile, kind, way), (policy, node, way)
            assert seen or way != 'publish', f'{node} does not run'
