# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What kind of node a status in diagnostics is of, and what is shown of it."""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any

#: What each kind of node is known by, and what is shown of it.
KINDS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    'device': ('weight_bytes_served', ('plan', 'inferences', 'trouble')),
    'robot': ('inferences', ('mode', 'processing_time_ms', 'inferences', 'inferences_shared',
                             'inferences_recovered', 'outages', 'schedule_switches',
                             'inputs_dropped', 'refusal')),
    'server': ('sessions', ('sessions', 'max_sessions', 'sessions_computing')),
    'coordinator': ('missing', ('plan', 'alive', 'missing', 'trouble')),
    'planner': ('books_made', ('profiles', 'books')),
    'trainer': ('last_goal', ('task', 'round', 'loss', 'trouble')),
}


def kind_of(values: Mapping[str, Any]) -> str:
    """Return the kind of node that says these values; '' for one of another package."""
    return next((kind for kind, (mark, _) in KINDS.items() if mark in values), '')


def known(status: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return the nodes of this package by name, in order, with what is shown of each."""
    return {name: {'kind': kind, 'well': node['well'], 'message': node['message'], 'figures': {
        key: node['values'][key] for key in KINDS[kind][1] if key in node['values']}}
        for name, node in sorted(status.items()) if (kind := kind_of(node['values']))}
