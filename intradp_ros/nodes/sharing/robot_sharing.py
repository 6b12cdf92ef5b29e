# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What a robot's node shares by: the channel to its server, profile, books and inferences."""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
import threading
import time
from typing import Any

import torch

from intradp_ros.core.shared_key import SharedKey
from intradp_ros.dds.dds_channel import DdsChannel
from intradp_ros.link.delay import DELAY_PATIENCE
from intradp_ros.link.predictor import make_predictor
from intradp_ros.msg import OperatorProfile
from intradp_ros.nodes.common.announcement_seals import AnnouncementCheck, Announcer
from intradp_ros.nodes.common.diagnostics import added
from intradp_ros.nodes.common.lifecycle import LATCHED, ManagedNode
from intradp_ros.nodes.common.lossy_parameter import allowed, report_difference
from intradp_ros.nodes.common.receiving import Receiver
from intradp_ros.nodes.sharing.book_intake import BookIntake
from intradp_ros.nodes.sharing.profile_publisher import PROFILE_TOPIC, ProfilePublisher
from intradp_ros.power.meter import open_meter
from intradp_ros.profiling.drift import BEYOND_BOOKS, DriftMeter
from intradp_ros.profiling.profile import Profile
from intradp_ros.runtime.models.model import SharedModel
from intradp_ros.runtime.requests.outcome import Outcome
from intradp_ros.runtime.transport.channel import Channel
from intradp_ros.runtime.transport.session_channels import SessionChannels
from intradp_ros.runtime.transport.timeline import Event
from intradp_ros.systems.sharing.book.book import ScheduleBook
from intradp_ros.systems.sharing.book.latency_calibration import LatencyCalibration
from intradp_ros.systems.sharing.book.watch import DelayWatch, DriftWatch
from intradp_ros.systems.sharing.policy.local_times import check_book
from intradp_ros.systems.sharing.policy.patience import PatiencePolicy
from intradp_ros.systems.sharing.session.robot import RobotClient
from intradp_ros.systems.sharing.session.stream import InferenceStream
from intradp_ros.wire.frames import Stamp

#: Seconds between two requests for a book that does not come.
ASK_AGAIN = 10.0
#: Longest wait for a server to take a session with new weights, before they are used.
SERVER_PATIENCE = 5.0


class RobotSharing:
    """
    Shares the inferences of one model until the node cleans up; looks for the server at once.

    `given` are the node's parameters, `example` are inputs of the model.  `client` is the first of
    the stream of inferences in use: one of other weights may take its place (`switch`).
    """

    def __init__(self, node: ManagedNode, receiver: Receiver, given: Mapping[str, Any],
                 key: SharedKey | None, model: SharedModel, profile: Profile,
                 example: Sequence[torch.Tensor]) -> None:
        self._node, self._given, self._example, self.profile = node, given, example, profile
        self._profiles = node.publish_on(OperatorProfile, PROFILE_TOPIC, LATCHED)
        self.channel = DdsChannel(node.context, given['server'], 'robot',
                                  namespace=node.get_namespace(),
                                  chunk_bytes=given['chunk_bytes'], key=key)
        node.until_cleanup.callback(self.channel.close)
        self._announcer = Announcer(key)
        self._announcer.answer_on(node, receiver, OperatorProfile, PROFILE_TOPIC)
        self._asked = time.monotonic()
        self._deadline = given['deadline_ms'] / 1e3
        self._switching = threading.Lock()
        self._stream: InferenceStream | None
        stream, self._published = self._stream_of(model, profile, self.channel)
        self._stream, self.client = stream, stream.clients[0]
        self.channel.only(stream.numbers.__contains__)
        node.until_cleanup.callback(self._close)
        self.client.meter = open_meter()
        node.call_every(DELAY_PATIENCE, self._begin, node.until_cleanup)
        self._books = BookIntake(node, receiver, AnnouncementCheck(key), model.digest,
                                 self._use_book)

    def submit(self, inputs: Sequence[torch.Tensor], deliver: Callable[[Future[Outcome]], None],
               *, strategy: str, stamp: Stamp) -> None:
        """Begin an inference, and wait until another may begin."""
        with self._switching:
            stream = self._open
            stream.submit(inputs, deliver, strategy=strategy, stamp=stamp)
        stream.wait_for_room()

    def wait(self) -> None:
        """Wait until all inferences have been delivered."""
        with self._switching:
            if self._stream is not None:
                self._stream.wait()

    def timeline(self, outcome: Outcome) -> tuple[Event, ...]:
        """Return what was measured in an inference that is being delivered."""
        return self._open.timeline(outcome)

    def set_deadline(self, seconds: float) -> None:
        """Finish inferences alone after this time from now on; 0 for no deadline."""
        self._deadline = seconds
        for client in self._stream.clients if self._stream else ():
            client.patience = replace(client.patience, deadline=seconds)

    def ask_for_book(self) -> None:
        """
        Publish the profile again where no book comes.

        A reader keeps a few messages of all latched writers together: those of
        many robots, or of a stranger, displace a profile or a book before a
        node that has just started takes it.
        """
        if (now := time.monotonic()) - self._asked > ASK_AGAIN:
            self._asked = now
            self._published.again()

    def rejected(self) -> dict[str, int]:
        """Count what was rejected on the way from the server, by cause."""
        overtaken = {'overtaken': n} if (n := self._books.dropped) else {}
        return added(overtaken, *(client.rejections.by_cause() for client in self._open.clients),
                     self.channel.rejected)

    @property
    def foreign(self) -> int:
        """Frames that came for other sessions."""
        return self._open.foreign + self.channel.foreign

    @property
    def _open(self) -> InferenceStream:
        if self._stream is None:
            raise RuntimeError('the node stops')
        return self._stream

    def _stream_of(self, model: SharedModel, profile: Profile, channel: Channel | SessionChannels,
                   ) -> tuple[InferenceStream, ProfilePublisher]:
        """Return a stream of inferences of a model, and what publishes its profile."""
        given, node = self._given, self._node
        published = ProfilePublisher(self._profiles, 'robot', model, profile, node.info,
                                     node.get_fully_qualified_name(), self._announcer)
        watch = DriftWatch(model.split, profile, published.drifted, DriftMeter(step=BEYOND_BOOKS))
        delay_watch = DelayWatch(published.delayed)
        patience = PatiencePolicy(silence=given['server_timeout_ms'] / 1e3,
                                  deadline=self._deadline)

        def client(way: Channel, stream: int) -> RobotClient:
            return RobotClient(
                model, way, make_predictor(given['predictor']), node.info, patience=patience,
                power=profile.power, lossy=allowed(given), watch=watch, delay_watch=delay_watch,
                experience=LatencyCalibration(), stream=stream)

        return InferenceStream(channel, given['max_inflight'], client), published

    def _close(self) -> None:
        with self._switching:
            stream, self._stream = self._stream, None
        if stream is not None:
            stream.close()

    def _begin(self) -> None:
        """Publish the profile without the link's delay if no server answers."""
        if not self.client.connection.answers:
            self._published.begin()

    def _use_book(self, book: ScheduleBook) -> None:
        """Compile a book's schedules, which may take a while, and share by them."""
        check_book(book, self.client.own_seconds, self.profile.whole_seconds)
        self._open.use_book(book)
        report_difference(self.client.model, book, self._example, self._node.warn)

    def switch(self, model: SharedModel, profile: Profile) -> str:
        """
        Let a model of other weights answer from the next input on; say how.

        Its session begins during the old one, with the same schedules, so that sharing goes on
        where the server has the weights, too.

        :raises ValueError: if the node stops meanwhile.
        """
        old = self._open
        was = old.clients[0].connection
        stream, published = self._stream_of(model, profile, old.channels)
        self.channel.only((old.numbers | stream.numbers).__contains__)
        sharing, refusal = was.agreement is not None, ''
        try:
            if was.book is not None:
                stream.use_book(replace(was.book, digest=model.digest))
            end = time.monotonic() + SERVER_PATIENCE
            while sharing and time.monotonic() < end and not refusal and not all(
                    client.connection.agreement for client in stream.clients):
                time.sleep(0.02)
                refusal = stream.clients[0].connection.refusal
        except Exception:
            stream.close()
            self.channel.only(old.numbers.__contains__)
            raise
        for client, before in zip(stream.clients, old.clients):
            client.sent, client.received = before.sent, before.received
        with self._switching:  # no input begins
            if self._stream is not old:
                stream.close()
                raise ValueError('the node stops')
            old.wait()
            meter, old.clients[0].meter = old.clients[0].meter, None
            self._stream, self.client, self.profile = stream, stream.clients[0], profile
            self._published, self.client.meter = published, meter
            self._books.follow(model.digest)
        old.close()
        self.channel.only(stream.numbers.__contains__)
        published.begin()
        shared = all(client.connection.agreement for client in stream.clients)
        return f'model {model.digest[:12]} is in use' + (
            ', shared as before' if shared else '' if not sharing else
            '; the server does not have these weights: load them there, too; until then the '
            f'robot computes alone{": " * bool(refusal)}{refusal}')
