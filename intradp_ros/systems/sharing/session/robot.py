# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The robot's side: every inference is answered, shared with the server where that pays."""
from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median
import time

import torch

from intradp_ros.graph.operator_graph import Value
from intradp_ros.link.predictor import RatePredictor
from intradp_ros.power.meter import EnergyMeter
from intradp_ros.profiling.profile import PowerStates, XAVIER_NX
from intradp_ros.runtime.arrivals import Arrivals
from intradp_ros.runtime.channel import Channel
from intradp_ros.runtime.interpreter import Execution
from intradp_ros.runtime.link_rate import LinkRate
from intradp_ros.runtime.mailbox import InferenceAbandonedError, Mailbox
from intradp_ros.runtime.model import SharedModel
from intradp_ros.runtime.outcome import (
    compute_and_wait,
    InferenceStats,
    Outcome,
)
from intradp_ros.runtime.recovery import finish_alone, held_pieces
from intradp_ros.runtime.sending import describe_transfers, expected_transfer, SendContext, Sender
from intradp_ros.runtime.serial_executor import SerialExecutor
from intradp_ros.runtime.timeline import Event, Recorder, total, with_send_times
from intradp_ros.runtime.traffic import Traffic
from intradp_ros.schedule.schedule import ROBOT, SERVER, SIDES
from intradp_ros.systems.sharing.baselines import LOCAL, LOSS, STRATEGIES
from intradp_ros.systems.sharing.book.book import Entry, ScheduleBook
from intradp_ros.systems.sharing.book.choice import ScheduleChoice
from intradp_ros.systems.sharing.book.latency_calibration import LatencyCalibration
from intradp_ros.systems.sharing.book.program_cache import Compiled, ProgramCache
from intradp_ros.systems.sharing.partition.partition import local
from intradp_ros.systems.sharing.session.connection import Connection
from intradp_ros.systems.sharing.session.patience import believable, PatiencePolicy
from intradp_ros.systems.sharing.session.watch import DelayWatch, DriftWatch
from intradp_ros.wire.chunking import ExpectedTransfer, Reassembler, TAMPERED
from intradp_ros.wire.frames import Chunk, Control, ControlKind, Frame, MalformedFrameError, Stamp
from intradp_ros.wire.quoting import quoted
from intradp_ros.wire.rejections import Rejections

Log = Callable[[str], None]
_REMEMBERED = 7  # inferences alone whose median is what the robot takes by itself


class TamperedError(RuntimeError):
    """Rows that came from outside cannot be trusted, nor anything computed from them."""


@dataclass(frozen=True)
class _Choice:
    """
    A schedule of the book that both sides have, and the seconds it should take by the book.

    `faster` tells that it was chosen because it takes less than the robot alone.
    """

    epoch: int
    index: int
    entry: Entry
    predicted: float
    faster: bool = False


@dataclass
class _Inference:
    """The shared inference at hand."""

    id: int
    choice: _Choice
    compiled: Compiled
    arrivals: Arrivals
    start: float
    report: list[Event] = field(default_factory=list)
    tampered: bool = False


class RobotClient:
    """
    Runs inferences of one model, with the server where a schedule says so.

    One inference at a time; `infer` may be called from any one thread, while
    the channel's receive thread delivers.  Whatever the server does, `infer`
    returns the unsplit model's result; unless `lossy` names a lossy encoding
    that books may use.
    """

    def __init__(self, model: SharedModel, channel: Channel, predictor: RatePredictor, log: Log, *,
                 patience: PatiencePolicy = PatiencePolicy(), power: PowerStates = XAVIER_NX,
                 lossy: str = '', watch: DriftWatch | None = None,
                 delay_watch: DelayWatch | None = None,
                 experience: LatencyCalibration | None = None) -> None:
        self.model, self.channel, self.predictor, self.log = model, channel, predictor, log
        self.patience, self.power, self.lossy = patience, power, lossy
        self.choice = ScheduleChoice(experience)
        self.rejections = Rejections()
        self.foreign = 0
        self.cache = ProgramCache(model, ROBOT, watch)
        self.connection = Connection(model, channel, log, delay_watch)
        self.sent, self.received = Traffic(), Traffic()
        self._link = LinkRate(channel, predictor)
        self._executor = SerialExecutor('robot-executor')
        self.reassembler = Reassembler(self._expected, max_inferences=1)
        self._local = self.cache.get(local(len(model.split.operators)))
        graph = model.split.graph
        self._wanted = _kinds([graph.values[v] for v in graph.inputs])
        self._current: _Inference | None = None
        self._count = 0
        self._rate = 0.0
        self._took_alone: deque[float] = deque(maxlen=_REMEMBERED)
        #: Tells what the board draws, where somebody has a sensor; closed with the session.
        self.meter: EnergyMeter | None = None
        channel.listen(self.handle)
        self.connection.start()

    def close(self) -> None:
        """End the session."""
        self.connection.close()
        self._executor.close()
        self.channel.close()
        if self.meter:
            self.meter.close()

    def use_book(self, book: ScheduleBook) -> None:
        """
        Take a new schedule book.

        Raises
        ------
        ValueError
            If it is for another model, does not fit, or has lossy encodings
            that were not asked for.

        """
        if book.lossy not in ('', self.lossy):
            raise ValueError(f'values would cross as {book.lossy}, which changes the result: set '
                             f'lossy to {book.lossy!r} on the robot too, or plan without')
        versions = self.connection.versions
        self.cache.prepare(book, *versions.books, gently=versions.used is not None)
        self.connection.offer(book, self.cache.fingerprint(book))

    @property
    def own_seconds(self) -> float:
        """Seconds of an inference alone, by own measurements only; 0 if there are none yet."""
        took = median(self._took_alone) if self._took_alone else 0.0
        return max(self._local.seconds, took)

    @property
    def predicted_rate(self) -> float:
        """Bytes per second that the link is expected to carry up now; 0 if unknown."""
        return self._link.predicted(self._down_ratio)

    @property
    def _down_ratio(self) -> float:
        return self.connection.book.down_ratio if self.connection.book else 1.0

    def infer(self, inputs: Sequence[torch.Tensor], *, strategy: str = LOSS,
              stamp: Stamp = Stamp()) -> Outcome:
        """
        Run one inference.

        Parameters
        ----------
        inputs :
            One tensor for each graph input, of the captured shapes and dtypes.
        strategy :
            Which of the book's schedules to use; ``local`` needs no server.
        stamp :
            Time and frame of the sensor message, carried with every chunk.

        Raises
        ------
        ValueError
            If the inputs are not what the model was captured with, or there
            is no such strategy.

        """
        self._check(inputs)
        if strategy not in STRATEGIES:
            raise ValueError(f'no strategy {strategy!r}; there are {", ".join(STRATEGIES)}')
        self._count += 1
        self.connection.newest = self._count
        choice = self._choose(strategy)
        if choice is None:
            return self._infer_alone(inputs)
        try:
            return self._infer_shared(inputs, choice, stamp)
        except Exception as error:  # noqa: B902 - of rows that came, say: answer all the same
            return self._infer_anew(inputs, error)

    def timeline(self, outcome: Outcome, timeout: float = 0.5) -> tuple[Event, ...]:
        """
        Return what both sides measured in the newest inference, ordered by start.

        Times are seconds from its start, the server's by the clock offset of
        the heartbeat.  The server's part is empty if its report does not
        come in time.
        """
        server = self._server_events(timeout) if outcome.stats.shared else ()
        return tuple(with_send_times((*outcome.events, *server)))

    def _server_events(self, timeout: float) -> tuple[Event, ...]:
        current, end = self._current, time.monotonic() + timeout
        while current and not current.report and time.monotonic() < end:
            time.sleep(0.005)
        return tuple(e.shift(-current.start) for e in current.report) if current else ()

    def handle(self, frame: Frame) -> None:
        """Take one frame from the receive thread; what is malformed is counted and dropped."""
        if frame.session != self.connection.session:
            self.foreign += 1
            return
        try:
            if isinstance(frame, Chunk):
                self._chunk(frame)
            elif frame.kind in (ControlKind.FAILED, ControlKind.REPORT):
                if frame.server != self.connection.followed.number:
                    raise MalformedFrameError(f'a {frame.kind.name} of another server', 'server')
                (self._failed if frame.kind is ControlKind.FAILED else self._report)(frame)
            else:
                self.connection.handle(frame)
        except MalformedFrameError as error:
            self.reject(error.cause, str(error))
            if error.cause == TAMPERED:
                self._tampered()

    def _tampered(self) -> None:
        """Finish the inference at hand from own rows; if it is over, at least stop sharing."""
        current = self._current
        if current:
            current.tampered = True
            current.arrivals.mailbox.fail('rows came in two versions')
        self.connection.lost('rows came in two versions: somebody speaks as the server')

    def reject(self, cause: str, text: str) -> None:
        """Count what is rejected; log each cause at most once per second."""
        if self.rejections.count(cause, time.monotonic()):
            self.log(f'rejected ({cause}): {quoted(text)}')

    def takes(self, inputs: Sequence[torch.Tensor]) -> bool:
        """Tell whether inputs have the captured shapes and dtypes."""
        return _kinds(inputs) == self._wanted

    def _check(self, inputs: Sequence[torch.Tensor]) -> None:
        if not self.takes(inputs):
            raise ValueError(f'the model was captured with inputs {self._wanted}, '
                             f'got {_kinds(inputs)}')

    def _choose(self, strategy: str) -> _Choice | None:
        """Return the schedule to share by; None to stay alone, also where choosing fails."""
        try:
            return self._best(strategy)
        except Exception as error:  # noqa: B902 - whatever a book says, the robot answers
            self.reject('choice', f'{type(error).__name__}: {error}')
            return None

    def _best(self, strategy: str) -> _Choice | None:
        agreement = self.connection.agreement
        if strategy == LOCAL or agreement is None:
            return None
        rate = self.predicted_rate
        if rate <= 0:
            return None
        self._rate = rate
        book = agreement.book
        index = self.choice.choose(agreement.epoch, book, rate / 125e3, strategy,
                                   self.predictor.spread)
        if index is None:
            return None
        entry = book.entries[index]
        shared = self.cache.get(entry.partition).schedule.transfers
        predicted = self.choice.predicted(book, index, rate / 125e3)
        faster = strategy == LOSS and book.objective == 'latency'
        return _Choice(agreement.epoch, index, entry, predicted, faster) if shared else None

    def _infer_anew(self, inputs: Sequence[torch.Tensor], error: Exception) -> Outcome:
        """Run alone what went wrong in a way that nobody foresaw."""
        reason = f'{type(error).__name__}: {error}'
        self._current = None
        self.reject('shared', reason)
        self.connection.lost(quoted(reason))
        return self._infer_alone(inputs, reason)

    def _infer_alone(self, inputs: Sequence[torch.Tensor], reason: str = '') -> Outcome:
        recorder, start = Recorder(ROBOT), time.monotonic()
        execution = Execution(self._local.program, recorder)
        values = execution.run(dict(zip(self.model.split.graph.inputs, inputs)))
        self.cache.ran(self._local, recorder.events)
        self._note_speed(ROBOT, self._alone().entry, recorder.events)
        self._took_alone.append(time.monotonic() - start)
        return self._outcome(values, recorder.events, start, self._alone(), None, reason)

    def _infer_shared(self, inputs: Sequence[torch.Tensor], choice: _Choice, stamp: Stamp,
                      ) -> Outcome:
        compiled = self.cache.get(choice.entry.partition)
        start = time.monotonic()
        self.connection.heard = max(self.connection.heard, start)
        names = describe_transfers(self.model.split, compiled.schedule)
        arrivals = Arrivals(Mailbox(self._patience(start, choice)),
                            self.reassembler, 'downlink', names, self.received)
        sender = Sender(self._way(), compiled.schedule, choice.epoch, self._count, choice.index,
                        stamp, 'uplink', names, arrivals.mailbox.fail)
        recorder = Recorder(ROBOT)
        execution = Execution(compiled.program, recorder, arrivals.mailbox, sender)
        named = dict(zip(self.model.split.graph.inputs, inputs))
        self._current, reason = _Inference(self._count, choice, compiled, arrivals, start), ''
        try:
            values = execution.run(named)
            self._check_rows()
            self.cache.ran(compiled, recorder.events)
            self._note_speed(ROBOT, choice.entry, recorder.events, compiled.moving)
            self.connection.succeeded()
        except InferenceAbandonedError as error:
            reason = str(error)
            sender.stop()
            self._check_rows()
            self.cache.ran(compiled, recorder.events, complete=False)
            values = self._finish(execution, compiled, named, reason, recorder)
        events = [*recorder.events, *arrivals.events, *sender.events]
        return self._outcome(values, events, start, choice, (sender, arrivals), reason)

    def _check_rows(self) -> None:
        """Raise TamperedError if rows of the inference at hand came in two versions."""
        if self._current and self._current.tampered:
            raise TamperedError('rows came in two versions, of which one is false')

    def _way(self) -> SendContext:
        return SendContext(self.channel, self.connection.session, self._executor, self.sent,
                   self.connection.encodings, self.connection.followed.number)

    def _finish(self, execution: Execution, compiled: Compiled, inputs: dict[int, torch.Tensor],
                reason: str, recorder: Recorder) -> dict[int, torch.Tensor]:
        """Finish an abandoned inference from the rows at hand; tell the server to stop."""
        self._current = None
        self.channel.send(Control(ControlKind.CANCEL, self.connection.session,
                                  self.connection.epoch, self._count, {},
                                  self.connection.followed.number))
        self.connection.lost(reason)
        split = self.model.split
        begin = time.monotonic()
        held = [(v, split.whole(v), t) for v, t in inputs.items()] + held_pieces(execution)
        transfers = compiled.schedule.transfers
        held += [(transfers[i].value, transfers[i].region, t)
                 for i, t in execution.mailbox.left().items()]
        values = finish_alone(split, held, self.model.parameters)
        recorder.events.append(Event(ROBOT, 'compute', 'recovery', begin, time.monotonic()))
        return values

    def _patience(self, start: float, choice: _Choice) -> Callable[[float], str | None]:
        report = self.channel.report()
        rate, alone = max(self._rate, 1.0), self.own_seconds or self._seconds_alone()
        predicted = believable(choice.predicted, self.own_seconds, faster=choice.faster)

        def decide(_waited: float) -> str | None:
            if self.connection.agreement is None:
                return 'the server no longer knows this session'
            now = time.monotonic()
            return self.patience.reason_to_stop(
                elapsed=now - start, predicted=predicted, alone=alone,
                quiet=now - self.connection.heard, round_trip=report.round_trip,
                chunk_time=self.channel.chunk_bytes / rate)
        return decide

    def _outcome(self, values: dict[int, torch.Tensor], events: list[Event], start: float,
                 choice: _Choice, shared: tuple[Sender, Arrivals] | None, reason: str,
                 ) -> Outcome:
        entry, stop = choice.entry, time.monotonic()
        latency = stop - start
        expected = self.choice.corrected(entry, choice.predicted)
        self.choice.note(entry, latency, choice.predicted, start)
        sent = shared[0].nbytes if shared else 0
        received = shared[1].nbytes if shared else 0
        if shared:
            self._link.crossed(sent, received, self._down_ratio)
        compute, waiting = compute_and_wait(events)
        sending, receiving = (n / self._rate if self._rate > 0 else 0.0
                              for n in (sent, received / self._down_ratio))
        stats = InferenceStats(
            self._count, entry.strategy, choice.index, shared is not None and not reason,
            bool(reason), reason, latency, expected, compute, waiting, sent, received,
            self.power.joules(latency, compute, min(sending, latency), min(receiving, latency)),
            self.meter.drawn(start, stop) if self.meter else None)
        return Outcome(self.model.results(values), stats, tuple(e.shift(-start) for e in events))

    def _note_speed(self, side: str, entry: Entry, events: Sequence[Event],
                    moving: float = 0.0) -> None:
        """Learn how fast a device is; `moving` seconds at most are no fault of its operators."""
        if entry.anywhere is None:
            return
        profiled = entry.anywhere.busy[SIDES.index(side)]
        measured = total(events, side, 'compute')
        measured = max(measured - moving, min(measured, profiled))
        whole = self.connection.book.most_busy[SIDES.index(side)] if self.connection.book else 0.0
        self.choice.speeds.note(side, measured, profiled, whole, time.monotonic())

    def _alone(self) -> _Choice:
        """Return what the book says of the robot alone."""
        entry = self._local_entry() or Entry(
            0.0, LOCAL, 0.0, local(len(self.model.split.operators)))
        return _Choice(0, 0, entry, self.choice.seconds(entry, 1.0))

    def _seconds_alone(self) -> float:
        """Return what the book predicts of the robot alone, 0 if it says nothing."""
        entry = self._local_entry()
        return entry.predicted if entry else 0.0

    def _local_entry(self) -> Entry | None:
        entries = self.connection.book.entries if self.connection.book else ()
        return next((e for e in entries if e.strategy == LOCAL), None)

    def _expected(self, chunk: Chunk) -> ExpectedTransfer | None:
        current = self._current
        if current is None or chunk.inference != current.id or \
                (chunk.epoch, chunk.schedule) != (current.choice.epoch, current.choice.index):
            return None
        return expected_transfer(self.model.split, current.compiled.schedule, chunk.transfer,
                                 ROBOT)

    def _chunk(self, chunk: Chunk) -> None:
        if chunk.server != self.connection.followed.number:
            raise MalformedFrameError(f'a chunk of another server, {chunk.server:#x}', 'server')
        self.connection.hear()
        if not chunk.inference:
            return  # the echo of a probe: the channel has measured it
        self._at_hand(chunk).arrivals.add(chunk)

    def _failed(self, frame: Control) -> None:
        if not self._too_late(frame):
            reason, current = quoted(frame.body.get('reason')), self._at_hand(frame)
            current.tampered |= frame.body.get('tampered') is True
            current.arrivals.mailbox.fail(f'server: {reason}')

    def _report(self, frame: Control) -> None:
        """Keep the server's events of the newest inference, moved to the robot's clock."""
        if self._too_late(frame):
            return
        current = self._at_hand(frame)
        try:
            events = [Event.from_list(e).shift(-self.connection.clock.offset)
                      for e in frame.body.get('events', ())]
        except (TypeError, ValueError) as error:
            raise MalformedFrameError(f'bad report: {error}', 'report') from error
        current.report = events
        self._note_speed(SERVER, current.choice.entry, events)

    def _too_late(self, frame: Control) -> bool:
        """Tell whether the robot had finished the inference before the server said this."""
        current = self._current
        return frame.inference <= self._count and (
            current is None or frame.inference != current.id)

    def _at_hand(self, frame: Chunk | Control) -> _Inference:
        """Return the shared inference at hand if the frame belongs to it."""
        current = self._current
        if current is None or frame.inference != current.id:
            raise MalformedFrameError(f'inference {frame.inference} is over', 'stale')
        return current


def _kinds(tensors: Sequence[torch.Tensor | Value]) -> list[tuple[tuple[int, ...], torch.dtype]]:
    return [(tuple(t.shape), t.dtype) for t in tensors]
