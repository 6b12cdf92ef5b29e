# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Whether somebody else publishes what only a node itself should: results, figures, events."""
from __future__ import annotations

from collections import Counter

from intradp_ros.nodes.common.lifecycle import ManagedNode

#: What many publish on.
_COMMON = {'/rosout', '/parameter_events'}


class SolePublisher:
    """
    Looks for other publishers on a node's topics, and warns of each topic once.

    Listeners cannot know whose message they take, and no field of a standard
    message could say: a stranger, or a second robot of the same names, is
    taken for the node.
    """

    def __init__(self, node: ManagedNode, *common: str) -> None:
        self._node = node
        self._common = _COMMON | {node.resolve_topic_name(topic) for topic in common}
        self._reported: set[str] = set()

    def others(self) -> int:
        """Return how many other publishers the node's topics have together."""
        own = Counter(publisher.topic_name for publisher in self._node.publishers)
        others = {topic: self._node.count_publishers(topic) - count
                  for topic, count in own.items() if topic not in self._common}
        present = {topic for topic, count in others.items() if count > 0}
        for topic in sorted(present - self._reported):
            self._node.warn(f'another publishes on {topic}, too: who listens there cannot know '
                            'which messages are of this node')
        self._reported = present
        return sum(others[topic] for topic in present)
