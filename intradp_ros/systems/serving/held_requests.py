# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The requests that a gateway keeps, each until its one end; who has them calls under a lock."""
from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
import heapq
import math

from intradp_ros.runtime.requests.infer_requests import (
    DEADLY,
    InferEnd,
    InferFate,
    InferRequest,
)
from intradp_ros.systems.serving.executor import Opened
from intradp_ros.systems.serving.fates import ServiceFates
from intradp_ros.systems.serving.service import Service
from intradp_ros.systems.serving.site_kernels.seats import ROUNDING
from intradp_ros.systems.serving.streams import Stream, StreamError

#: Requests that one client may have in flight; streams that are remembered.
PER_CLIENT, MOST_STREAMS = 256, 4096
#: Seconds of the longest deadline of a request.
LONGEST = 3600.0
WAITED = 'late: its time was over before earlier frames of its stream had their ends'

Heard = Callable[[InferEnd], None]


@dataclass(eq=False)
class Held:
    """A request that a gateway keeps; times are of the gateway's clock."""

    serial: int
    request: InferRequest
    heard: Heard
    service: int
    came: float
    deadline: float
    priority: int
    path: tuple[str, ...]
    forwarded: bool
    row: int = -1
    away: str = ''
    withdraw: Callable[[], None] | None = None
    predicted: float = math.nan
    began: float = math.nan
    hops: int = 0
    #: Executors that died while they computed it, at all sites.
    deaths: int = 0
    #: What the service took when the tensors were checked.
    opened: Opened | None = None
    #: What it joined; its end is handed out after those of earlier frames.
    stream: Stream[Held] | None = None
    end: InferEnd | None = None
    #: Where another site refused, when it would take it.
    retry: float = math.inf

    @property
    def over(self) -> bool:
        """Return whether it has its end, though that may wait for earlier frames."""
        return self.end is not None

    @property
    def chance(self) -> int:
        """Return the number that random draws follow from."""
        return self.request.number or self.serial

    def started(self) -> None:
        """Note that it is being computed, or under way: no newer frame replaces it."""
        if self.stream is not None:
            self.stream.started(self.request.frame)

    def taken_back(self, fate: InferFate, reason: str) -> None:
        """Hand out its answer no more, if its end is one."""
        if self.end is not None and self.end.fate is InferFate.IN_TIME:
            self.end = replace(self.end, fate=fate, reason=reason, tensors={})


class HeldRequests:
    """
    All that a gateway holds, by serial number (`all`) and by row of its site (`rows`).

    `counts` has what became of those of each service.
    """

    def __init__(self, services: Sequence[Service]) -> None:
        self.all: dict[int, Held] = {}
        self.rows: dict[int, Held] = {}
        self.counts = [ServiceFates() for _ in services]
        self._services, self._serial = services, 0
        self._deadlines: list[tuple[float, int]] = []
        self._clients: Counter[str] = Counter()
        self._streams: dict[tuple[str, str, int], Stream[Held]] = {}

    def number(self) -> int:
        """Return a number that nothing else of this gateway has."""
        self._serial += 1
        return self._serial

    @property
    def due(self) -> float:
        """Return the earliest time at which one may be late."""
        return self._deadlines[0][0] if self._deadlines else math.inf

    def in_flight(self) -> list[int]:
        """Return, by service, how many that came in here have no end yet."""
        found = Counter(held.service for held in self.all.values() if not held.forwarded)
        return [found[service] for service in range(len(self._services))]

    def refused(self, service: int) -> None:
        """Count a request that is refused before it is held."""
        self.counts[service].asked += 1
        self.counts[service].counts[InferFate.REFUSED] += 1

    def hold(self, request: InferRequest, heard: Heard, service: int, path: tuple[str, ...],
             forwarded: bool, now: float) -> Held:
        """Return a request that is held from now on."""
        declared = self._services[service]
        remaining = declared.deadline if math.isinf(request.remaining) else request.remaining
        held = Held(self.number(), request, heard, service, now, now + min(remaining, LONGEST),
                    2 * (request.priority + declared.priority), path, forwarded,
                    deaths=request.deaths)
        self.all[held.serial] = held
        self.counts[service].asked += not forwarded
        self._clients[request.client] += 1
        heapq.heappush(self._deadlines, (held.deadline, held.serial))
        return held

    def enter(self, held: Held, now: float) -> tuple[str, list[Held]]:
        """Let one join its stream; say why it is not taken, or '', and which ones it replaces."""
        request, declared = held.request, self._services[held.service]
        if self._clients[request.client] > PER_CLIENT:
            return f'{PER_CLIENT} requests of this client are in flight', []
        if not request.stream or held.forwarded:
            return '', []
        key = request.client, request.stream, held.service
        if key not in self._streams:
            if len(self._streams) >= MOST_STREAMS:
                self._streams = {k: one for k, one in self._streams.items() if not one.idle}
            if len(self._streams) >= MOST_STREAMS:
                return f'{MOST_STREAMS} streams are open', []
            self._streams[key] = Stream(declared.keep, declared.rate)
        stream = self._streams[key]
        try:
            replaced, above = stream.came(request.frame, now)
        except StreamError as error:
            return str(error), []
        held.stream = stream
        held.priority -= above
        return '', [other for other in self.all.values() if other.stream is stream
                    and other.request.frame in replaced and not other.over] if replaced else []

    def of_rows(self, rows: Iterable[int]) -> list[Held]:
        """Return the requests of rows that have none from now on."""
        found = [held for row in rows if (held := self.rows.pop(row, None)) is not None]
        for held in found:
            held.row = -1
        return found

    def late(self, now: float) -> list[Held]:
        """Return those that are past their deadline, once."""
        found = []
        while self.due < now:
            held = self.all.get(heapq.heappop(self._deadlines)[1])
            if held is not None:
                found.append(held)
        return found

    def end(self, held: Held, end: InferEnd, now: float) -> list[tuple[Heard, InferEnd]]:
        """Give a request its one end; return what is handed out now, and to whom."""
        if held.over:
            return []
        held.end = end
        ready = [held] if held.stream is None else [
            other for _, other in held.stream.ended(held.request.frame, held)]
        return [(other.heard, self._released(other, now)) for other in ready]

    def _released(self, held: Held, now: float) -> InferEnd:
        """Count an end, and return it: nothing holds the request any more."""
        if now > held.deadline + ROUNDING:
            held.taken_back(InferFate.LATE, WAITED)
        end = held.end
        assert end is not None
        del self.all[held.serial]
        self._clients[held.request.client] -= 1
        if not self._clients[held.request.client]:
            del self._clients[held.request.client]
        if len(self._deadlines) > 2 * len(self.all) + 64:
            self._deadlines = [(one.deadline, serial) for serial, one in self.all.items()]
            heapq.heapify(self._deadlines)
        if not held.forwarded:
            counts = self.counts[held.service]
            counts.counts[end.fate] += 1
            counts.transfers += held.hops
            if end.fate is InferFate.IN_TIME:
                counts.seconds.append(now - held.came)
                counts.promised += int(now <= held.predicted + 1e-3)
            else:
                counts.wasted += held.hops
        dies = held.deaths and end.fate in (InferFate.REFUSED, InferFate.LATE) \
            and not end.reason.startswith(DEADLY)
        return replace(end, reason=f'{DEADLY}: {end.reason}' if dies else end.reason,
                       finished=now - held.came, predicted=held.predicted - held.came,
                       path=tuple(dict.fromkeys((*held.path, *end.path))), deaths=held.deaths)
