# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What a node of a fleet says where it hears nobody: where it looked, and who is elsewhere."""
from __future__ import annotations

from collections.abc import Iterable
from functools import partial
import time

from intradp_ros.nodes.common.lifecycle import ManagedNode
from intradp_ros.nodes.common.silence import Awaited, network_of, SilenceWatch
from intradp_ros.nodes.fleet.fleet_parameters import DEVICES_TOPIC, FleetPlace, STATE_TOPIC

#: Who may be awaited: the topic on which they say that they are there, its type, what to try.
_AWAITED = {
    'device': (DEVICES_TOPIC, 'intradp_ros/msg/DeviceState', 'start device_node or language_node'),
    'coordinator': (STATE_TOPIC, 'intradp_ros/msg/FleetState', 'start coordinator_node')}
#: Topics that a line names at most.
_MOST = 3


class FleetSilence:
    """
    Watches whether a node hears a "device", or a "coordinator", of a fleet (`wanted`).

    Logs it once when nobody was heard for some seconds, and when somebody is.
    """

    def __init__(self, node: ManagedNode, place: FleetPlace, wanted: str) -> None:
        self._node, self._place, self._wanted = node, place, wanted
        self._watch = SilenceWatch()

    def look(self, present: bool, ways: Iterable[str]) -> str:
        """
        Log what is to be said now; return in short what is wrong, '' if nothing is.

        :param present: whether one of the wanted is heard.
        :param ways: the topics on which this node listens to them, without what they end with.
        """
        who = f'{self._wanted} of fleet {self._place.name}'
        silent, text = self._watch.look(Awaited(
            who, present, f'no {who} is heard', partial(self._explain, tuple(ways))),
            time.monotonic())
        if text:
            (self._node.info if present else self._node.warn)(text)
        return f'no {who} is heard' if silent else ''

    def _explain(self, ways: tuple[str, ...]) -> str:
        topic, kind, fix = _AWAITED[self._wanted]
        own = self._node.resolve_topic_name(self._place.topic(topic))
        looked = [own, *(f'{self._node.resolve_topic_name(self._place.topic(way))}/...'
                         for way in ways)]
        more = f' and {len(looked) - _MOST} more' if len(looked) > _MOST else ''
        return (f'looked on {", ".join(looked[:_MOST])}{more} ({network_of(self._node)}); '
                + (self._not_met(own) or self._elsewhere(own, kind) or
                   f'{fix} with the same parameter fleet in the same domain, namespace and '
                   'transport; is multicast blocked between the machines? Run: intradp doctor'))

    def _not_met(self, own: str) -> str:
        """Return what to try where somebody announces itself, and does not answer; else ''."""
        ends = self._node.get_publishers_info_by_topic(own)
        if not ends:
            return ''
        who = ', '.join(sorted({f'{end.node_namespace.rstrip("/")}/{end.node_name}'
                                for end in ends})[:_MOST])
        named = 'is its name among the parameter coordinators' if self._wanted == 'coordinator' \
            else 'is this node among its coordinators'
        return (f'{who} is there, but does not answer: {named}, has it the same key_file, and the '
                'same transport?')

    def _elsewhere(self, own: str, kind: str) -> str:
        """Return where else fleets are, and what to try; '' if none is seen."""
        seen = sorted(name for name, kinds in self._node.get_topic_names_and_types()
                      if kind in kinds and name != own and self._node.count_publishers(name))
        alike = [name for name in seen if name.split('/')[-2] == self._place.name]
        if alike:
            return (f'a fleet of this name is on {", ".join(alike[:_MOST])}, in another '
                    'namespace: start all of its nodes in one, or give all of them the parameter '
                    f'fleet as /{self._place.name}')
        return (f'another fleet is on {", ".join(seen[:_MOST])}: give all nodes of a fleet the '
                'same parameter fleet') if seen else ''
