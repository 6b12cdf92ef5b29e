# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The robot's side: every inference is answered, shared with the server where that pays."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
import time

import torch

from intradp_ros.graph.operator_graph import Value
from intradp_ros.link.predictor import RatePredictor
from intradp_ros.power.meter import EnergyMeter
from intradp_ros.power.power_states import PowerStates, XAVIER_NX
from intradp_ros.runtime.execution.interpreter import Execution
from intradp_ros.runtime.execution.processor import Turns
from intradp_ros.runtime.models.model import SharedModel
from intradp_ros.runtime.requests.outcome import Outcome
from intradp_ros.runtime.transport.channel import Channel
from intradp_ros.runtime.transport.link_rate import LinkRate
from intradp_ros.runtime.transport.mailbox import InferenceAbandonedError
from intradp_ros.runtime.transport.sending import SendContext
from intradp_ros.runtime.transport.serial_executor import SerialExecutor
from intradp_ros.runtime.transport.timeline import Event, Recorder, total, with_send_times
from intradp_ros.runtime.transport.traffic import Traffic
from intradp_ros.schedule.schedule import ROBOT, SERVER
from intradp_ros.systems.sharing.book.book import Entry, ScheduleBook
from intradp_ros.systems.sharing.book.choice import Forecast, ScheduleChoice
from intradp_ros.systems.sharing.book.latency_calibration import LatencyCalibration
from intradp_ros.systems.sharing.book.program_cache import ProgramCache
from intradp_ros.systems.sharing.book.watch import DelayWatch, DriftWatch
from intradp_ros.systems.sharing.inference.answer_intake import AnswerIntake
from intradp_ros.systems.sharing.inference.inference_record import InferenceRecord, note_speed
from intradp_ros.systems.sharing.inference.shared_run import Paths, SharedRun, Values
from intradp_ros.systems.sharing.partition.partition import local
from intradp_ros.systems.sharing.policy.local_times import LocalTimes
from intradp_ros.systems.sharing.policy.patience import (
    clamped_prediction,
    PatiencePolicy,
    ServerStatus,
    WaitPolicy,
)
from intradp_ros.systems.sharing.policy.schedule_decision import (
    Conditions,
    ScheduleDecision,
    select,
)
from intradp_ros.systems.sharing.session.connection import Connection
from intradp_ros.systems.sharing.strategies import LOCAL, OFFLOAD, SHARED, STRATEGIES
from intradp_ros.wire.chunking import TAMPERED
from intradp_ros.wire.frames import Chunk, Control, ControlKind, Frame, MalformedFrameError, Stamp
from intradp_ros.wire.rejections import Rejections
from intradp_ros.wire.sanitise import quoted

Log = Callable[[str], None]
#: From this load on what an inference takes is the server's other sessions' doing, more than its
#: schedule's: loads change within seconds, and what was learned of a schedule stays for a minute.
MAX_LEARNING_LOAD = 1.1


@dataclass(frozen=True)
class Concurrency:
    """
    Up to how many inferences are in flight with this one, and how it shares the processor.

    `follow` waits for those that were asked for before it, and says whether
    there were any.
    """

    inflight: int = 1
    turns: Turns | None = None
    follow: Callable[[], bool] = lambda: False


ALONE = Concurrency()


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
                 experience: LatencyCalibration | None = None, stream: int = 0) -> None:
        self.model, self.channel, self.log = model, channel, log
        self.link = LinkRate(channel, predictor)
        self.patience, self.power, self.lossy = patience, power, lossy
        self.choice = ScheduleChoice(experience)
        self.rejections = Rejections()
        self.foreign = 0
        self.cache = ProgramCache(model, ROBOT, watch)
        self.connection = Connection(model, channel, log, delay_watch, stream)
        self.sent, self.received = Traffic(), Traffic()
        self._sending = SendContext(channel, 0, SerialExecutor('robot-executor'), self.sent)
        self._current = AnswerIntake()
        operators = len(model.split.operators)
        self._own = LocalTimes(self.cache.get(local(operators)), operators)
        graph = model.split.graph
        self._wanted = _kinds([graph.values[v] for v in graph.inputs])
        self._concurrency = ALONE
        #: Tells what the board draws, where somebody has a sensor; closed with the session.
        self.meter: EnergyMeter | None = None
        channel.listen(self.handle)
        self.connection.start()

    def close(self) -> None:
        """End the session."""
        self.connection.close()
        self._sending.executor.close()
        self.channel.close()
        if self.meter:
            self.meter.close()

    def use_book(self, book: ScheduleBook) -> None:
        """
        Take a new schedule book.

        :raises ValueError: if it is for another model, does not fit, or has lossy encodings that
            were not asked for.
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
        return self._own.measured

    @property
    def predicted_rate(self) -> float:
        """Bytes per second that the link is expected to carry up now; 0 if unknown."""
        return self.link.predicted(self._down_ratio)

    @property
    def _down_ratio(self) -> float:
        return self.connection.book.down_ratio if self.connection.book else 1.0

    def infer(self, inputs: Sequence[torch.Tensor], *, strategy: str = SHARED,
              stamp: Stamp = Stamp(), among: Concurrency = ALONE) -> Outcome:
        """
        Run one inference.

        :param inputs: one tensor for each graph input, of the captured shapes and dtypes.
        :param strategy: which of the book's schedules to use; ``local`` needs no server.
        :param stamp: time and frame of the sensor message, carried with every chunk.
        :param among: what others are in flight with it, by other clients of the robot.
        :raises ValueError: if the inputs are not what the model was captured with, or the strategy
            is not known.
        """
        self._check(inputs)
        book = self.connection.book
        if strategy not in (known := (*STRATEGIES, *(book.others if book else ()))):
            raise ValueError(f'no strategy {strategy!r}; there are {", ".join(known)}')
        self._concurrency = among
        self._current.newest += 1
        self.connection.newest = self._current.newest
        selection = self._choose(strategy)
        if selection and selection.in_turn:
            self._concurrency = replace(among, inflight=1)
            if among.follow():
                selection = self._choose(strategy)  # it may be another by now
        if selection is None:
            return self._infer_alone(inputs)
        try:
            return self._infer_shared(inputs, selection, stamp)
        except Exception as error:  # noqa: B902 - of rows that came, say: answer all the same
            return self._infer_anew(inputs, error)

    def timeline(self, outcome: Outcome, timeout: float = 0.5) -> tuple[Event, ...]:
        """
        Return what both sides measured in the newest inference, ordered by start.

        Times are seconds from its start, the server's by the clock offset of
        the heartbeat.  The server's part is empty if its report does not
        come in time.
        """
        server = self._current.report(timeout) if outcome.stats.shared else ()
        return tuple(with_send_times((*outcome.events, *server)))

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
                (self._current.failed if frame.kind is ControlKind.FAILED else self._report)(frame)
            else:
                self.connection.handle(frame)
        except MalformedFrameError as error:
            self.reject(error.cause, str(error))
            if error.cause == TAMPERED:
                self._tampered()

    def _tampered(self) -> None:
        """Finish the inference at hand from own rows; if it is over, at least stop sharing."""
        self._current.tampered()
        self.connection.lost('rows came in two versions: somebody speaks as the server')

    def reject(self, cause: str, text: str) -> None:
        """Count what is rejected; log each cause at most once per second."""
        if self.rejections.count(cause, time.monotonic()):
            self.log(f'rejected ({cause}): {quoted(text)}')

    def takes(self, inputs: Sequence[torch.Tensor]) -> bool:
        """Return whether inputs have the captured shapes and dtypes."""
        return _kinds(inputs) == self._wanted

    def _check(self, inputs: Sequence[torch.Tensor]) -> None:
        if not self.takes(inputs):
            raise ValueError(f'the model was captured with inputs {self._wanted}, '
                             f'got {_kinds(inputs)}')

    def _choose(self, strategy: str) -> ScheduleDecision | None:
        """Return the schedule to share by; None to stay alone, also where choosing fails."""
        try:
            return self._best(strategy)
        except Exception as error:  # noqa: B902 - whatever a book says, the robot answers
            self.reject('choice', f'{type(error).__name__}: {error}')
            return None

    def _best(self, strategy: str) -> ScheduleDecision | None:
        agreement = self.connection.agreement
        if strategy == LOCAL or agreement is None:
            return None
        report = self.channel.report()
        rate = self.link.predicted(self._down_ratio, report)
        delays = report.round_trip, self.channel.chunk_bytes / max(rate, 1.0)
        if rate <= 0 or self._away(delays):
            return None
        own, patience = self.own_seconds, self.patience
        ahead = Forecast(
            lambda seconds: self.link.outlook(seconds, rate),
            lambda predicted: patience.lateness(clamped_prediction(predicted, own, faster=True),
                                                own).ran)
        if strategy == SHARED and OFFLOAD in agreement.book.strategies and self._silent(delays):
            strategy = OFFLOAD  # so that the robot computes all of it in one piece meanwhile
        return select(self.choice, self.cache, agreement, strategy, Conditions(
            rate, self.link.predictor.spread, ahead, self.connection.clock.load,
            self._concurrency.inflight))

    def _silent(self, delays: tuple[float, float]) -> bool:
        """Return whether the server is silent; a ping that is late does not make it so."""
        return self.connection.quiet > self.patience.silent_after(*delays)

    def _away(self, delays: tuple[float, float]) -> bool:
        """Return whether the server has said nothing for so long that it is not counted on."""
        quiet = self.connection.quiet
        if quiet <= self.patience.away_after(*delays):
            return False
        self.connection.lost(f'server silent for {quiet * 1e3:.0f} ms')
        return True

    def _delays(self, rate: float) -> tuple[float, float]:
        """Return the link's round trip and the time of a chunk at a rate, in seconds."""
        return self.channel.report().round_trip, self.channel.chunk_bytes / max(rate, 1.0)

    def _infer_anew(self, inputs: Sequence[torch.Tensor], error: Exception) -> Outcome:
        """Run alone what went wrong in a way that nobody foresaw."""
        reason = f'{type(error).__name__}: {error}'
        self._current.drop()
        self.reject('shared', reason)
        self.connection.lost(quoted(reason))
        return self._infer_alone(inputs, reason)

    def _infer_alone(self, inputs: Sequence[torch.Tensor], reason: str = '') -> Outcome:
        recorder, start = Recorder(ROBOT), time.monotonic()
        execution = Execution(self._own.compiled.program, recorder, turns=self._concurrency.turns)
        values = execution.run(dict(zip(self.model.split.graph.inputs, inputs)))
        self.cache.ran(self._own.compiled, recorder.events)
        self._note_speed(ROBOT, self._own.entry(self.connection.book), recorder.events)
        self._own.took(time.monotonic() - start - total(recorder.events, ROBOT, 'wait'))
        return self._outcome(values, InferenceRecord(self._current.newest, self._alone(),
                                                     recorder.events, start, time.monotonic(),
                                                     reason=reason))

    def _infer_shared(self, inputs: Sequence[torch.Tensor], selection: ScheduleDecision,
                      stamp: Stamp) -> Outcome:
        compiled = self.cache.get(selection.entry.partition)
        run = SharedRun(self._current.newest, selection, compiled, self.model.split,
                        Paths(self._way(), self._current.reassembler, self.received),
                        self._wait_policy(selection), stamp, self._concurrency.turns)
        named, reason = dict(zip(self.model.split.graph.inputs, inputs)), ''
        self._current.begin(run)
        try:
            values, reason = run.run(named), run.overtaken
            self.cache.ran(compiled, run.recorder.events, complete=not reason)
            self._learn_from(run)
        except InferenceAbandonedError as error:
            reason = str(error)
            values = self._finish(run, named, reason)
        return self._outcome(values, InferenceRecord(run.id, selection, run.events, run.start,
                                                     time.monotonic(), run.crossed, reason))

    def _learn_from(self, run: SharedRun) -> None:
        """Learn from an inference that ended by plan, or before the rows came."""
        if run.overtaken or run.met:
            run.stop()
            self._cancel()
        if run.overtaken:
            away = self._away(self._delays(run.selection.rate))
            if not (away or run.selection.at_once or self.connection.silent):
                self.connection.lost(run.overtaken, overtaken=True)
        else:
            self._note_speed(ROBOT, run.selection.entry, run.recorder.events)
            self.connection.succeeded()

    def _finish(self, run: SharedRun, inputs: Values, reason: str) -> Values:
        """Finish an abandoned inference from the rows at hand; make the server stop."""
        run.stop()
        run.check_rows()
        self.cache.ran(run.compiled, run.recorder.events, complete=False)
        self._cancel()
        self.connection.lost(reason)
        return run.finish(inputs, self.model.parameters)

    def _way(self) -> SendContext:
        return replace(self._sending, session=self.connection.session, traffic=self.sent,
                       encodings=self.connection.encodings,
                       server=self.connection.followed.number)

    def _cancel(self) -> None:
        self._current.drop(given_up=True)
        self.channel.send(Control(ControlKind.CANCEL, self.connection.session,
                                  self.connection.epoch, self._current.newest, {},
                                  self.connection.followed.number))

    def _wait_policy(self, selection: ScheduleDecision) -> WaitPolicy:
        start, delays = time.monotonic(), self._delays(selection.rate)
        alone = self._own.local_entry(self.connection.book)
        predicted = clamped_prediction(selection.predicted, self.own_seconds,
                                       faster=selection.faster)
        return WaitPolicy(self._server_status, start, self.connection.awake, predicted,
                          self.own_seconds or (alone.predicted if alone else 0.0),
                          delays[0], max(selection.rate, 1.0), selection.at_once,
                          self._silent(delays))

    def _server_status(self) -> ServerStatus:
        connection = self.connection
        return ServerStatus(self.patience, connection.agreement is not None, connection.awake,
                            connection.quiet, self.channel.chunk_bytes)

    def _outcome(self, values: Values, ended: InferenceRecord) -> Outcome:
        """Return what an inference gave, after learning from what it took."""
        selection, load = ended.selection, max(self.choice.load, self.connection.clock.load)
        expected = self.choice.corrected(selection.entry, selection.expected_s)
        if self._concurrency.inflight == 1 and (
                ended.crossed is None or load <= MAX_LEARNING_LOAD):
            self.choice.note(selection.entry, ended.took)
        if ended.crossed:
            self.link.crossed(*ended.crossed, self._down_ratio)
        drawn = self.meter.drawn(ended.start, ended.stop) if self.meter else None
        stats = ended.stats(self.power, self._down_ratio, expected=expected,
                            alone=self._expected_alone(), drawn=drawn)
        return Outcome(self.model.results(values), stats,
                       tuple(e.shift(-ended.start) for e in ended.events))

    def _note_speed(self, side: str, entry: Entry, events: Sequence[Event]) -> None:
        note_speed(self.choice.speeds, side, entry, self.connection.book, events)

    def _alone(self) -> ScheduleDecision:
        """Return what the book says of the robot alone."""
        entry = self._own.entry(self.connection.book)
        return ScheduleDecision(0, 0, entry, self.choice.seconds(entry, 1.0))

    def _expected_alone(self) -> float:
        """Return the seconds that the robot by itself should take now, 0 if nothing is known."""
        alone = self._alone()
        return self.choice.corrected(alone.entry, alone.predicted) or self.own_seconds

    def _chunk(self, chunk: Chunk) -> None:
        if chunk.server != self.connection.followed.number:
            raise MalformedFrameError(f'a chunk of another server, {chunk.server:#x}', 'server')
        self.connection.hear()
        if not chunk.inference:
            return  # the echo of a probe: the channel has measured it
        self._current.chunk(chunk)

    def _report(self, frame: Control) -> None:
        run = self._current.reported(frame, self.connection.clock.offset)
        if run:
            self._note_speed(SERVER, run.selection.entry, run.report)


def _kinds(tensors: Sequence[torch.Tensor | Value]) -> list[tuple[tuple[int, ...], torch.dtype]]:
    return [(tuple(t.shape), t.dtype) for t in tensors]
