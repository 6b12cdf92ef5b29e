# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""A side's profile: measured once, cached, published latched for the planner."""
from __future__ import annotations

from collections.abc import Callable, Sequence
import math
import threading
import time
from typing import Any

import torch

from intradp_ros.core.limits import MAX_DELAY, MAX_MODEL_TEXT, within
from intradp_ros.dds.transport_cost import with_transport_cost
from intradp_ros.graph.serialise import graph_from_json, graph_to_json
from intradp_ros.msg import OperatorProfile
from intradp_ros.nodes.common.announcement_seals import Announcer
from intradp_ros.power.power_sensors import find_sensor
from intradp_ros.profiling.cache import cached_profile
from intradp_ros.profiling.machine import release_memory
from intradp_ros.profiling.measure import measure_profile
from intradp_ros.profiling.profile import Profile
from intradp_ros.profiling.tune import Check, no_check
from intradp_ros.runtime.models.model import SharedModel
from intradp_ros.split.local_operator import SplitGraph
from intradp_ros.split.split_graph import split_received
from intradp_ros.wire.texts import packed, unpacked

PROFILE_TOPIC = 'operator_profiles'
BOOK_TOPIC = 'schedule_book'


def profile_model(model: SharedModel, inputs: Sequence[torch.Tensor],
                  log: Callable[[str], None], example: str = '', *, seconds: float = math.inf,
                  check: Check = no_check) -> Profile:
    """
    Return this device's profile of a model, measuring it only the first time.

    It is measured again for another `example` (from `example_key`), if given,
    within some `seconds` of a core; `check` is called often, and may raise.
    """

    def measure() -> Profile:
        log(f'profiling {len(model.split.operators)} operators, once for this model and device')
        return measure_profile(model.split, inputs, progress=_Progress(log),
                               sensor=find_sensor(), seconds=seconds, check=check)

    profile = cached_profile(model.digest, model.split.axis, measure, example=example,
                             device=model.split.device)
    release_memory()
    return with_transport_cost(profile)


class _Progress:
    """Logs how far a measurement is, every two seconds."""

    def __init__(self, log: Callable[[str], None]) -> None:
        self._log, self._next = log, time.monotonic() + 2.0

    def __call__(self, done: int, total: int) -> None:
        if time.monotonic() >= self._next or done == total:
            self._next = time.monotonic() + 2.0
            self._log(f'profiled {done} of {total} calls of operators')


def check_profile(message: OperatorProfile) -> None:
    """
    Check that a message holds a profile, and the graph that it was measured for.

    :raises ValueError: if it does not; the text says why.
    """
    if message.role not in ('robot', 'server'):
        raise ValueError(f'a profile of role {message.role!r}')
    profile = Profile.from_json(unpacked(message.profile, MAX_MODEL_TEXT))
    if profile.digest != message.digest:
        raise ValueError(f'a profile for model {profile.digest} in a message for {message.digest}')
    within('the delay', message.delay, 0.0, MAX_DELAY)
    operators = _operators_split(message, profile.axis)
    if operators != len(profile.timings):
        raise ValueError(f'{len(profile.timings)} timings for {operators} operators')


def _operators_split(message: OperatorProfile, axis: int) -> int:
    """Return how many operators the graph of a message has when it is split along an axis."""
    graph = graph_from_json(unpacked(message.graph, MAX_MODEL_TEXT))
    return len(split_received(graph, axis).operators)


def check_server_profile(message: OperatorProfile, split: SplitGraph) -> None:
    """
    Check that a message holds a profile of a graph that this side has itself.

    :raises ValueError: if it does not; the text says why.
    """
    profile = Profile.from_json(unpacked(message.profile, MAX_MODEL_TEXT))
    within('the delay', message.delay, 0.0, MAX_DELAY)
    if (profile.digest, profile.axis, len(profile.timings)) != (
            message.digest, split.axis, len(split.operators)):
        raise ValueError(f'a profile of {len(profile.timings)} operators of model '
                         f'{profile.digest} split along axis {profile.axis}, not of ours')


#: Seconds between two words against another that speaks in a side's name.
INSIST = 2.0


class ProfilePublisher:
    """
    Publishes a side's profile, and again when device or link have changed.

    The planner then plans anew.  The first time it is published by `begin`, or
    once the link's delay is known.  May be called from any thread.
    """

    def __init__(self, publisher: Any, role: str, model: SharedModel, profile: Profile,
                 log: Callable[[str], None], name: str = '',
                 announcer: Announcer | None = None) -> None:
        self._publisher, self._log = publisher, log
        self._announcer = announcer or Announcer()
        self._message = profile_message(role, model, profile, name)
        self._lock, self._begun = threading.Lock(), False
        self._said: set[str] = set()
        self._insisted, self._contradicted = -math.inf, False

    def begin(self) -> None:
        """Publish, if that was not done yet."""
        if not self._begun:
            self._publish()

    def again(self) -> None:
        """Publish once more, if that was begun: others may have displaced it on the way."""
        if self._begun:
            self._publish()

    def drifted(self, profile: Profile) -> None:
        """Publish what operators take by now."""
        self._log(f'operators take {profile.whole_seconds * 1e3:.1f} ms in all by now; '
                  'informing the planner')
        self._publish(profile=packed(profile.to_json()))

    def delayed(self, seconds: float) -> None:
        """Publish what the link's delay is by now."""
        if seconds != self._message.delay:
            self._log(f'the link delays by {seconds * 1e3:.2g} ms; informing the planner')
        elif self._begun:
            return
        self._publish(delay=seconds)

    def hear(self, message: OperatorProfile) -> None:
        """
        Take what anybody publishes; `insist` says it again if another speaks in this side's name.

        :raises ValueError: if another does: a planner takes the last word, unless there is a key.
        """
        own = self._message
        if (message.role, message.name, message.digest) != (own.role, own.name, own.digest) \
                or message.profile in self._said:
            return
        self._contradicted = True
        self.insist()
        raise ValueError(f'another publishes a profile in the name of {own.name}: are there two '
                         'nodes of this name, or strangers on the domain? Set key_file')

    def insist(self) -> None:
        """Say it again where another spoke in this side's name, once in `INSIST` seconds."""
        now = time.monotonic()
        if self._contradicted and now - self._insisted > INSIST:
            self._insisted, self._contradicted = now, False
            self.again()

    def _publish(self, **changes: Any) -> None:
        with self._lock:
            for name, value in changes.items():
                setattr(self._message, name, value)
            self._said.add(self._message.profile)
            self._announcer.announce(self._publisher, self._message)
            self._begun = True


def profile_message(role: str, model: SharedModel, profile: Profile, name: str = '',
                    ) -> OperatorProfile:
    """Return a profile as message, with the graph that the planner needs."""
    return OperatorProfile(role=role, name=name, digest=model.digest, device=profile.device,
                           graph=packed(graph_to_json(model.split.captured)),
                           profile=packed(profile.to_json()))
