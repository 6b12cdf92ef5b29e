# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
An action whose goals run elsewhere, and its mirror as a service where there is one.

A goal has a `deadline` (seconds from its arrival, 0 for none), its result a
`fate` and a `reason`.  What does the work is a function that begins it and
returns at once; it reports feedback and the result from any thread.  A goal
ends exactly once: done, refused, cancelled by its client, or late.  The mirror
takes the goal's fields as a request and answers with the result's, for tools
that call services only.
"""
from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from copy import copy
from threading import BoundedSemaphore, Event, Lock, Timer
import time
from typing import Any, Protocol

from rclpy.action.server import ActionServer, CancelResponse, GoalResponse, ServerGoalHandle
from rclpy.callback_groups import ReentrantCallbackGroup
from rclpy.node import Node
from rclpy.qos import QoSProfile

from intradp_ros.core.owned_errors import ends_process, reason_of
from intradp_ros.nodes.common.call_seals import CallSeals, QOS, SealError, serve, size_of
from intradp_ros.runtime.requests.admission import Fate

#: Goals that one action has open; one more is refused.  Calls of its mirror that wait at once.
MAX_GOALS, MAX_CALLS = 64, 4
#: Seconds for which rclpy keeps a goal that has ended, with its result.  Goals that may come in
#: that time, and their bytes; as many bytes of so many that are refused with the reason: ROS
#: rejects without one, so that such a goal is accepted, and ends.
KEPT, MOST_KEPT, MOST_KEPT_BYTES, MOST_REFUSED = 10.0, 512, 64 << 20, 64
#: Requests for the result of one goal; in `KEPT` seconds those for goals that are not known.
#: What DDS keeps of the answers, which all clients hear: an end answers all who asked at once.
MOST_RESULTS, MOST_UNKNOWN, RESULTS = 64, 16, QoSProfile(depth=128)
#: Seconds after its deadline, or a cancel, at which a goal ends even if its work goes on.
GRACE = 2.0


class Begin(Protocol):
    """
    Begins the work for a goal; called on the executor's thread and must not block.

    `report` publishes a feedback message, `finish` ends the goal with a fate
    and a result message (a second call does nothing); both may be called from
    any thread.  Returns a function that ends the work early, with the fate
    that it then has.  Whatever it raises refuses the goal, with the reason.
    """

    def __call__(self, goal: Any, report: Callable[[Any], None],
                 finish: Callable[[Fate, Any], None]) -> Callable[[Fate], None]:
        """Begin."""
        ...


class _Work:
    """One goal, of an action or a call, until it has ended."""

    def __init__(self, result_type: Any, ended: Callable[[Fate, Any], None],
                 grace: float) -> None:
        self._result_type, self._ended, self._grace = result_type, ended, grace
        self._lock, self._over = Lock(), False
        self._timers: list[Timer] = []
        self._cancel: Callable[[Fate], None] = lambda fate: None
        self._stopped: Fate | None = None

    def start(self, begin: Begin, goal: Any, report: Callable[[Any], None]) -> None:
        """Begin the work, which may end at once."""
        try:
            cancel = begin(goal, report, self.finish)
        except BaseException as error:  # noqa: B902 - the goal's, not the executor's
            if ends_process(error):
                raise
            self.finish(Fate.REFUSED, self._result_type(reason=reason_of(error)))
        else:
            with self._lock:
                self._cancel, stopped = cancel, self._stopped
            if stopped:  # while it began
                self._end_early(stopped, cancel)
        if goal.deadline > 0:
            self._after(goal.deadline, lambda: self.stop(Fate.LATE))

    def stop(self, fate: Fate) -> None:
        """End the work early; what has not ended after the grace ends without it."""
        with self._lock:
            cancel, self._stopped = self._cancel, fate
        self._end_early(fate, cancel)
        self._after(self._grace, lambda: self.finish(fate, self._result_type(reason=fate.value)))

    def _end_early(self, fate: Fate, cancel: Callable[[Fate], None]) -> None:
        try:
            cancel(fate)
        except BaseException as error:  # noqa: B902 - of the work, which ends all the same
            if ends_process(error):
                raise
            self.finish(fate, self._result_type(reason=reason_of(error)))

    def finish(self, fate: Fate, result: Any) -> None:
        with self._lock:
            if self._over:
                return
            self._over = True
            for timer in self._timers:
                timer.cancel()
        result.fate = fate.value
        self._ended(fate, result)

    def _after(self, seconds: float, function: Callable[[], None]) -> None:
        timer = Timer(seconds, function)
        timer.daemon = True
        with self._lock:
            if self._over:
                return
            self._timers.append(timer)
            timer.start()


class _Recent:
    """Lets so many goals, and bytes of them, come in `KEPT` seconds."""

    def __init__(self, count: int, nbytes: int) -> None:
        self._count, self._room = count, nbytes
        self._taken = deque[tuple[float, int]]()

    def take(self, nbytes: int, now: float) -> bool:
        """Return whether one more may come."""
        while self._taken and now - self._taken[0][0] > KEPT:
            self._room += self._taken.popleft()[1]
        if len(self._taken) >= self._count or nbytes > self._room:
            return False
        self._taken.append((now, nbytes))
        self._room -= nbytes
        return True


class _Server(ActionServer[Any, Any, Any]):
    """An action server that keeps few requests for results: rclpy's keeps, and answers, all."""

    def __init__(self, *given: Any, **options: Any) -> None:
        self._asked, self._unknown = Counter[bytes](), _Recent(MOST_UNKNOWN, 0)
        super().__init__(*given, **options)

    async def _execute_get_result_request(self, taken: Any) -> None:
        goal = bytes(taken[1].goal_id.uuid)
        if goal in self._goal_handles:
            self._asked[goal] += 1
            if self._asked[goal] > MOST_RESULTS:
                return
        elif not self._unknown.take(0, time.monotonic()):
            return
        await super()._execute_get_result_request(taken)

    async def _execute_expire_goals(self, expired_goals: Any) -> None:
        for found in expired_goals:
            self._asked.pop(bytes(found.goal_id.uuid), None)
        await super()._execute_expire_goals(expired_goals)


class GoalServer:
    """Serves an action and its mirror until it is closed."""

    def __init__(self, node: Node, action: Any, service: Any | None, name: str, begin: Begin,
                 seals: CallSeals, grace: float = GRACE) -> None:
        """
        Serve `name` as an action and a service; the node needs `MAX_CALLS` further threads.

        Goal and request have equal fields, and result and response; both
        goals and results have those that the module names.  Without `service`
        there is no mirror, as for goals that take hours.  `seals` check who asks; where they
        refuse strangers nobody cancels a goal but by `end`: ROS's own request has no seal.
        """
        self._node, self._begin, self._action_type = node, begin, action
        self._name, self._seals, self._grace = name, seals, grace
        self._works: dict[bytes, _Work] = {}
        self._lock, self._closed = Lock(), False
        self._calls = BoundedSemaphore(MAX_CALLS)
        self._recent = _Recent(MOST_KEPT, MOST_KEPT_BYTES)
        self._refused = _Recent(MOST_REFUSED, MOST_KEPT_BYTES)
        self._reasons: dict[int, str] = {}
        self._action = _Server(
            node, action, name, self._no_execution, goal_callback=self._may_come,
            handle_accepted_callback=self._accepted, cancel_callback=self._cancelled,
            goal_service_qos_profile=QOS, result_service_qos_profile=RESULTS)
        self._service = service and serve(
            node, service, name, seals, lambda request: self._called(request, service.Response()),
            lambda reason: _copied(self._refusal(reason), service.Response()),
            callback_group=ReentrantCallbackGroup())

    def close(self) -> None:
        """Refuse what is open, and serve no more; a second call does nothing."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            works = tuple(self._works.values())
        for work in works:
            work.stop(Fate.REFUSED)
            work.finish(Fate.REFUSED, self._action_type.Result(reason='the node stops'))
        if self._service:
            self._node.destroy_service(self._service)
        self._action.destroy()

    def end(self, goal_id: bytes) -> bool:
        """End a goal as one that its client cancels; return whether it is open."""
        work = self._works.get(goal_id)
        if work is not None:
            work.stop(Fate.CANCELLED)
        return work is not None

    def _may_come(self, goal: Any) -> GoalResponse:
        """Accept a goal; one that is refused is, too, to be told why, unless that many are."""
        now, size = time.monotonic(), size_of(goal, MOST_KEPT_BYTES)
        self._reasons.pop(id(goal), None)  # of one that is gone
        try:
            _check_deadline(goal)
            self._seals.check(goal, self._name, now)
            if len(self._works) >= MAX_GOALS:
                raise SealError('open', f'{MAX_GOALS} goals of {self._name} are open: send it '
                                'again when one has ended')
            if not self._recent.take(size, now):
                raise SealError('flood', f'{self._name} takes {MOST_KEPT} goals of '
                                f'{MOST_KEPT_BYTES >> 20} MB in {KEPT:g} s: send it again later')
        except SealError as error:
            self._seals.refuse(error.cause or 'unsealed', str(error))
            if not self._refused.take(size, now):
                return GoalResponse.REJECT
            self._reasons[id(goal)] = str(error)
        return GoalResponse.ACCEPT

    def _refusal(self, reason: str) -> Any:
        return self._action_type.Result(fate=Fate.REFUSED.value, reason=reason)

    def _accepted(self, handle: ServerGoalHandle[Any, Any, Any]) -> None:
        name = bytes(handle.goal_id.uuid)

        def ended(fate: Fate, result: Any) -> None:
            self._works.pop(name, None)
            result = self._seals.sealed(copy(result), handle.request)

            def conclude(handle: ServerGoalHandle[Any, Any, Any]) -> Any:
                if fate in (Fate.DONE, Fate.RESUMED):
                    handle.succeed()
                elif handle.is_cancel_requested:
                    handle.canceled()
                else:
                    handle.abort()
                return result
            handle.execute(conclude)

        with self._lock:
            if self._closed:  # while its acceptance was sent: nobody would end its work
                return
            work = self._works[name] = _Work(self._action_type.Result, ended, self._grace)
        if reason := self._reasons.pop(id(handle.request), ''):
            work.finish(Fate.REFUSED, self._refusal(reason))
        else:
            work.start(self._begin, handle.request, handle.publish_feedback)

    def _no_execution(self, handle: ServerGoalHandle[Any, Any, Any]) -> Any:
        raise AssertionError('goals are concluded by their work')

    def _cancelled(self, handle: ServerGoalHandle[Any, Any, Any]) -> CancelResponse:
        work = self._works.get(bytes(handle.goal_id.uuid))
        if work is None:
            return CancelResponse.REJECT
        if self._seals.closed:
            self._seals.refuse('unsealed', f'a request to cancel a goal of {self._name}, which '
                               'has no seal')
            return CancelResponse.REJECT
        # once the state says so, which it does after this callback
        Timer(0.0, work.stop, (Fate.CANCELLED,)).start()
        return CancelResponse.ACCEPT

    def _called(self, request: Any, response: Any) -> Any:
        """Answer a call when its work has ended; ValueError refuses it."""
        over = Event()
        _check_deadline(request)
        if not self._calls.acquire(blocking=False):
            raise ValueError(f'{MAX_CALLS} calls wait already: use the action, or call again')

        def ended(fate: Fate, result: Any) -> None:
            _copied(result, response)
            over.set()
        try:
            _Work(self._action_type.Result, ended, self._grace).start(
                self._begin, _copied(request, self._action_type.Goal()), lambda feedback: None)
            over.wait()
        finally:
            self._calls.release()
        return response


def _check_deadline(goal: Any) -> None:
    if not 0 <= goal.deadline < 1e6:
        raise SealError('deadline', f'deadline must be within 0..1e6 s, not {goal.deadline:g}')


def _copied(source: Any, target: Any) -> Any:
    """Return `target` with all fields of `source`."""
    for name in source.get_fields_and_field_types():
        setattr(target, name, getattr(source, name))
    return target
