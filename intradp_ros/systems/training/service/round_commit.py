# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
The trainer's decisions, as a state machine over reports and time: no thread, no socket.

A round counts when every device of the plan has stepped it.  When a device is lost, or one
reports that its plan has ended, all are given the time that their waits take to end; then the
newest tag of which those left hold every layer is where the next plan begins, or the trainer's
checkpoint where that is newer.

Who cannot be reached by others is left out, and tried again after a time that doubles each time:
else a device behind a link that is cut would stop the others again and again.  So is who is lost
again and again before a new round is reached, such as over a link that the training itself fills.
"""
from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
import enum
from math import inf
from typing import Any

from intradp_ros.cluster.plan_id import PlanError, PlanId
from intradp_ros.systems.training.plan.training_plan import DataGoneError, Planner, TrainingPlan
from intradp_ros.systems.training.run.plan_run import SETTLED
from intradp_ros.systems.training.run.snapshots import INITIAL, Move, moves, rollback_tag

#: Beyond so many strikes the time for which a device is left out doubles no more.
MOST_STRIKES = 8
#: Rounds that a device may need to leave its plan: it stops after the one after the next, and a
#: wait may last for some.
ENDING_ROUNDS = 8
#: Times that a device may be lost before a later round than ever is reached.
MOST_LOSSES = 3
#: Failures after which training ends, where no round was reached that is later than all before;
#: and plans in a row that may come to nothing.
MOST_FUTILE, MOST_FRUITLESS = 10, 4
#: What is kept of the report of each round.
FIGURES = ('loss', 'norm', 'samples', 'seconds', 'validation')


class Phase(enum.Enum):
    """Where training stands."""

    TRAINING = 'training'
    ENDING = 'ending'  # of a plan: those of it that are there have not all left it
    PAUSED = 'paused'
    DONE = 'done'
    FAILED = 'failed'


@dataclass(frozen=True)
class Order:
    """What a device is to do."""

    device: str
    body: Mapping[str, Any]


@dataclass
class Recovery:
    """One loss: when it was noticed and when it was over (s), and what it cost."""

    lost: tuple[str, ...]
    noticed: float
    tag: int = 0
    reached: int = 0
    planned: float = 0.0
    ready: float = 0.0
    caught_up: float = 0.0
    moved: tuple[Move, ...] = ()

    def parts(self, since: float) -> tuple[float, float, float]:
        """Return the seconds until all had left the plan, layers were there, it was over."""
        return (self.planned - since, self.ready - self.planned,
                max(0.0, self.caught_up - self.ready))


@dataclass
class _Course:
    """
    How the plan in use goes; `plan` is None before the first one.

    `within` are those that have not left it, and that are waited for when it ends, since `since`:
    one that died and has come back is not among them.  `idle` has the reports of those that have
    left, `stepped` and `replicated` the rounds and copies of each, `safe` what all have copied.
    """

    number: PlanId
    plan: TrainingPlan | None = None
    safe: int = 0
    since: float = 0.0
    stepped: dict[str, int] = field(default_factory=dict)
    replicated: dict[str, int] = field(default_factory=dict)
    within: set[str] = field(default_factory=set)
    ready: set[str] = field(default_factory=set)
    idle: dict[str, Mapping[str, Any]] = field(default_factory=dict)


@dataclass
class _Away:
    """
    Devices that do not take part: left out until a time, after so many strikes, or silent.

    `silent` has what they held; `until` is when a plan waits no more for those that hold what is
    lacking.
    """

    left_out: dict[str, float] = field(default_factory=dict)
    strikes: dict[str, int] = field(default_factory=dict)
    silent: dict[str, dict[int, list[int]]] = field(default_factory=dict)
    until: float = inf

    def leave_out(self, device: str, now: float, patience: float) -> None:
        """Leave a device out for a time."""
        self.strikes[device] = strikes = self.strikes.get(device, 0) + 1
        self.left_out[device] = now + patience * 2 ** min(strikes + 1, MOST_STRIKES)


@dataclass
class _Failures:
    """
    What failed since `furthest`, the latest round that was ever reached.

    That is `futile` times, the last of them `failed`; `fruitless` plans in a row came to nothing.
    `faults` has the devices whose own part failed, and by what: others go on without them, but
    what fails on all, such as a sample that cannot be read, ends the training.  `losses` counts
    how often a device was lost; `diverged` says how training went wrong in all of them.
    """

    furthest: int = 0
    futile: int = 0
    failed: str = ''
    fruitless: int = 0
    faults: dict[str, str] = field(default_factory=dict)
    losses: dict[str, int] = field(default_factory=dict)
    diverged: str = ''

    def note(self, failed: str) -> None:
        """Note a failure."""
        self.failed, self.futile = failed, self.futile + 1

    def done(self, number: int) -> None:
        """Note that so many rounds are done; what failed before a later one is of the past."""
        if number > self.furthest:
            self.furthest, self.futile = number, 0
            self.losses.clear()
            self.faults.clear()

    def hopeless(self) -> str:
        """Return why nothing more is tried, '' while there is hope."""
        return '' if self.futile <= MOST_FUTILE else \
            f'no round after {self.furthest} could be trained, {self.futile} times something ' \
            f'failed before; the last was {self.failed}'


@dataclass
class RoundCommit:
    """
    Rounds, tags and plans of one training.

    `sizes` are the bytes of the parameters of each layer.  `make_plan` makes a plan for devices,
    from the plan before where there is one; None if there is none, or a PlanError with the reason.
    `patience` is the longest that a device needs to leave a plan whose rounds take no time (s).
    `base` is the round of the checkpoint that the trainer has; 0: what the task makes.  With
    `waits` it is paused, not failed, while no device is there, or one on which data lie is not.
    With `rescues` it pauses where only the faulty still have the newest state, of the tag
    `rescue`, so that it can be collected before others go on.  A validation takes as long as
    `validated` rounds.
    """

    rounds: int
    sizes: tuple[float, ...]
    make_plan: Planner
    patience: float
    waits: bool = False
    validated: int = 0
    phase: Phase = Phase.PAUSED
    why: str = ''
    alive: set[str] = field(default_factory=set)
    held: dict[str, dict[int, list[int]]] = field(default_factory=dict)
    figures: dict[int, Mapping[str, Any]] = field(default_factory=dict)
    recoveries: list[Recovery] = field(default_factory=list)
    committed: int = 0
    base: int = INITIAL
    paused: bool = False
    rescues: bool = False
    rescue: int | None = None
    course: _Course = field(default_factory=lambda: _Course(PlanId(1, 0)))
    away: _Away = field(default_factory=_Away)
    failures: _Failures = field(default_factory=_Failures)

    @property
    def plan(self) -> TrainingPlan | None:
        """The plan in use, None before the first one."""
        return self.course.plan

    @property
    def number(self) -> PlanId:
        """The number of the plan in use."""
        return self.course.number

    @property
    def layers(self) -> int:
        """How many layers there are."""
        return len(self.sizes)

    def joined(self, device: str, now: float,
               held: Mapping[int, Collection[int]] | None = None,
               anew: bool = False) -> list[Order]:
        """
        Take in a device that is there; it gets a part when all have left the plan.

        One that counts as there has begun anew: what it was before is lost.  `held` has the
        layers that it holds by tag, where it was trained with before; one that was silent, and
        says nothing of it, holds what it held.  `anew`: it is another process, of which no fault
        is known.
        """
        orders = self.lost(device, now) if device in self.alive else []
        if anew and device in self.failures.faults:
            del self.failures.faults[device]
            self.away.left_out.pop(device, None)
        if held is None and device not in self.held:
            held = self.away.silent.pop(device, None)
        if held is not None:
            self.held[device] = {tag: list(layers) for tag, layers in held.items()
                                 if tag <= self.rounds}
        most = 1 if device in self.away.strikes else MOST_LOSSES  # it has not done its part since
        waits = self.phase is Phase.PAUSED and self.plan is not None and not self.paused
        if waits and device not in self.failures.faults:  # better with it than not at all
            self.away.left_out.pop(device, None)
        elif device not in self.away.left_out and self.alive and \
                self.failures.losses.get(device, 0) >= most:
            self.away.leave_out(device, now, self.patience)
        if device in self.away.left_out:
            return orders  # its time will come
        self.alive.add(device)
        self.held.setdefault(device, {})
        if waits:
            if self._newest_is_there():
                return orders + self._plan_anew(now)
            self.away.until = min(self.away.until, now + self.patience)  # for who holds the rest
            return orders
        return orders + self._stop(now)

    def pause(self, now: float) -> list[Order]:
        """Let all leave the plan at a round that none has begun; nothing is lost."""
        self.paused = True
        return self._stop(now)

    def resume(self, now: float) -> list[Order]:
        """Go on where it was paused, or begin; or play again what was lost before it was saved."""
        self.paused, self.rescue = False, None
        return self._plan_anew(now) if self.phase in (Phase.PAUSED, Phase.DONE) else []

    def lost(self, device: str, now: float, silent: bool = False) -> list[Order]:
        """Take notice that a device is gone; one that is only silent may come back as it was."""
        self.away.left_out.pop(device, None)
        self.away.silent.pop(device, None)
        if silent and device in self.held:
            self.away.silent[device] = self.held[device]
        for known in (self.course.idle, self.held):  # also what came after it was lost
            known.pop(device, None)
        there = device in self.alive
        self.alive.discard(device)
        self.course.within.discard(device)
        if not there or self.plan is None or device not in self.plan.participants or \
                self.phase not in (Phase.TRAINING, Phase.ENDING):
            return []
        self.recoveries.append(Recovery((device,), now, reached=self.committed))
        self.failures.losses[device] = self.failures.losses.get(device, 0) + 1
        self._ends(now)
        return self._ended(now)

    def reported(self, device: str, report: Mapping[str, Any], now: float) -> list[Order]:
        """
        Take a device's report.

        Those of plans before say what it holds, and of rounds what is true in any plan.
        """
        kind = report['report']
        if kind == 'fault':
            self.failures.note(f'{device}: {report["error"]}')
            self.why = self.why or self.failures.failed
            return self.lost(device, now)
        if kind == 'idle':
            known = self.course.safe if PlanId(*report['plan']) == self.number else INITIAL
            self.held[device] = {int(tag): layers for tag, layers in report['held'].items()
                                 if known <= int(tag) <= self.rounds}  # older ones go by an order
        if kind == 'round' and 0 <= int(report['round']) < self.rounds:
            self.figures[int(report['round'])] = {name: report.get(name) for name in FIGURES}
        if PlanId(*report['plan']) != self.number or device not in self.alive:
            return []
        if kind == 'ready':
            self.course.ready.add(device)
            self._mark_ready(now)
        elif kind == 'round':
            self.course.stepped[device] = int(report['round']) + 1
            self._commit(now)
        elif kind == 'replicated':
            return self._replicated(device, int(report['tag']))
        elif kind == 'idle':
            return self._left(device, report, now)
        return []

    def tick(self, now: float) -> list[Order]:
        """Let time pass: who does not leave its plan in time counts as lost."""
        back = [device for device, until in self.away.left_out.items()
                if now >= until and device not in self.failures.faults]
        for device in back:
            del self.away.left_out[device]
        if back:
            return [order for device in back for order in self.joined(device, now)]
        if now >= self.away.until:
            self.away.until = inf
            if self.phase is Phase.PAUSED and not self.paused:
                return self._plan_anew(now)
        if self.phase is not Phase.ENDING or self.plan is None or \
                now - self.course.since < self.patience + (
                    ENDING_ROUNDS + self.validated) * self._round_seconds():
            return []
        for device in sorted(self.course.within):
            self.held.pop(device, None)
            self._leave_out(device, now)
        self.course.within.clear()
        return self._ended(now)

    def _round_seconds(self) -> float:
        """Return what a round takes at most: as expected, and as the longest of the last ones."""
        assert self.plan is not None
        last = [float(self.figures[k]['seconds']) for k in range(self.committed - 3,
                                                                 self.committed + 3)
                if k in self.figures]
        return max([self.plan.seconds, *last])

    def _commit(self, now: float) -> None:
        assert self.plan is not None
        done = min(self.course.stepped.get(device, 0) for device in self.plan.participants)
        if done > self.committed:
            self.committed, self.failures.fruitless = done, 0
        self.failures.done(done)
        for recovery in self.recoveries:
            if not recovery.caught_up and recovery.planned and done >= recovery.reached:
                recovery.caught_up = now

    def _mark_ready(self, now: float) -> None:
        if self.plan and self.course.ready >= set(self.plan.participants):
            for recovery in self.recoveries:
                recovery.ready = recovery.ready or now

    def _replicated(self, device: str, tag: int) -> list[Order]:
        """Note a tag's copies; when all have them, older ones may go."""
        assert self.plan is not None
        course = self.course
        course.replicated[device] = tag
        safe = min(course.replicated.get(name, 0) for name in self.plan.participants)
        if safe <= course.safe or self.phase is not Phase.TRAINING:  # what is held is reported
            return []
        course.safe = safe
        for name in self.plan.participants:
            self.away.strikes.pop(name, None)  # it does its part
        return [Order(name, {'order': 'committed', 'tag': safe})
                for name in self.plan.participants]

    def _left(self, device: str, report: Mapping[str, Any], now: float) -> list[Order]:
        self.course.idle[device] = report
        self.course.within.discard(device)
        if report.get('fate') == 'diverged':
            self.failures.diverged = report['error']
        if report.get('fate') == SETTLED and not report['error']:
            self.rounds = min(self.rounds, int(report['round']))
        self._ends(now)
        return self._ended(now)

    def _ends(self, now: float) -> bool:
        """Let the plan end, if it has not begun to; return whether it had not."""
        if begins := self.phase is Phase.TRAINING:
            self.phase, self.course.since = Phase.ENDING, now
        return begins

    def _stop(self, now: float) -> list[Order]:
        """Order all to leave; they agree on the round, since orders and reports may be late."""
        return [Order(name, {'order': 'stop'}) for name in sorted(self.course.within)] \
            if self._ends(now) else []

    def _ended(self, now: float) -> list[Order]:
        """Plan anew when all that are left have left the plan."""
        assert self.plan is not None
        idle = self.course.idle
        if self.course.within:
            return []
        if set(idle) >= set(self.plan.participants) and all(
                report['round'] >= self.rounds and not report['error']
                for report in idle.values()):
            self.phase = Phase.DONE
            return []
        if self.failures.diverged:
            return self._fail(self.failures.diverged)
        if self.paused:
            self.phase = Phase.PAUSED
            return []
        return self._plan_anew(now)

    @property
    def reached(self) -> int | None:
        """The round at which all devices of the plan that was left stand; None if they do not."""
        reports = [self.course.idle.get(name)
                   for name in (self.plan.participants if self.plan else ())]
        ends = {None if report is None or report['error'] else int(report['round'])
                for report in reports}
        return ends.pop() if len(ends) == 1 else None

    def whole_tags(self) -> list[int]:
        """Return the tags of which devices, left out or not, hold every layer; newest first."""
        found: dict[int, set[int]] = {}
        for tags in self.held.values():
            for tag, layers in tags.items():
                found.setdefault(int(tag), set()).update(layers)
        return sorted((tag for tag, layers in found.items()
                       if layers >= set(range(self.layers))), reverse=True)

    def holders(self, tag: int) -> dict[str, list[int]]:
        """Return who gives which layers of a tag, each by one; those of a stage by few."""
        found, missing = dict[str, list[int]](), set(range(self.layers))
        while missing:
            name = max(sorted(self.held), default='', key=lambda d: len(missing & set(
                self.held[d].get(tag, ()))))
            has = missing & set(self.held.get(name, {}).get(tag, ()))
            if not has:
                raise KeyError(f'layers {sorted(missing)} of round {tag} are nowhere')
            found[name] = sorted(has)
            missing -= has
        return found

    def _newest_is_there(self) -> bool:
        """Whether those that are there hold all of the newest state, as far as is known."""
        assert self.plan is not None
        if self.alive >= set(self.plan.participants):
            return True
        held = {device: self.held.get(device, {}) for device in self.alive}
        newest = max((tag for tags in held.values() for tag in tags), default=INITIAL)
        return max(self.base, rollback_tag(held, self.layers)) >= max(newest, self.course.safe)

    def _plan_anew(self, now: float) -> list[Order]:
        self.away.until = inf
        own = self._note_faults(now)
        if own and self.rescues and (newest := max(self.whole_tags(), default=INITIAL)) > max(
                self.base, rollback_tag({d: self.held[d] for d in self.alive if d in self.held},
                                        self.layers)):
            self.phase, self.paused, self.rescue = Phase.PAUSED, True, newest
            return []
        failures = self.failures
        errors = [f'{d}: {r["error"]}' for d, r in self.course.idle.items() if r['error']]
        if errors and not own:
            failures.fruitless += 1
            failures.note(errors[0])
            self._suspect(now)
        if hopeless := failures.hopeless():
            return self._fail(hopeless)
        if failures.fruitless > MOST_FRUITLESS:
            return self._fail(f'{failures.fruitless} plans in a row came to nothing: '
                              + '; '.join(errors))
        made, reason, lies_elsewhere = self._made()
        if made is None and (more := self.away.left_out.keys() - failures.faults.keys()):
            self.alive |= more  # better with them than not at all
            for device in more:
                del self.away.left_out[device]
            made, reason, lies_elsewhere = self._made()
        if made is None and failures.faults:
            return self._fail('; '.join(failures.faults.values()))
        if made is None and self.waits and (
                not self.alive or lies_elsewhere and self.plan is not None):
            self.phase = Phase.PAUSED
            return []
        if made is None:
            return self._fail(self.why or reason)
        tag = max(self.base, rollback_tag(
            {d: self.held.get(d, {}) for d in made.participants}, self.layers))
        self.held = {d: {t: has for t, has in tags.items() if t <= tag}
                     for d, tags in self.held.items()}
        moved = moves(self.held, tag, made, self.sizes)
        for recovery in self.recoveries:
            if not recovery.planned:
                recovery.planned, recovery.tag, recovery.moved = now, tag, moved
        self.committed = tag if self.plan is None else min(self.committed, tag)
        self.phase, self.course = Phase.TRAINING, _Course(
            PlanId(self.number.term, self.number.epoch + 1), made, min(self.course.safe, tag),
            now, dict.fromkeys(made.participants, tag), within=set(made.participants))
        return [Order(name, {'order': 'plan', 'plan': self.number, 'tag': tag,
                             'what': made.to_json(),
                             'moves': [[m.source, m.target, m.layers] for m in moved]})
                for name in made.participants]

    def _note_faults(self, now: float) -> bool:
        """Leave out the devices whose own part has failed; return whether there are some."""
        own = {d: r['error'] for d, r in self.course.idle.items() if r.get('fate') == 'failed'}
        for device, error in own.items():
            self.course.idle.pop(device)
            self.failures.faults[device] = f'{device}: {error}'
            self._leave_out(device, now)
        return bool(own)

    def _made(self) -> tuple[TrainingPlan | None, str, bool]:
        """Return a plan for who is there, or the reason; and whether data are elsewhere."""
        try:
            made = self.make_plan(tuple(sorted(self.alive)), self.plan) if self.alive else None
            return made, 'no device is left that the network fits on', False
        except PlanError as error:
            return None, str(error), isinstance(error, DataGoneError)

    def _suspect(self, now: float) -> None:
        """
        Leave out those that others cannot reach, one end of each link that is cut.

        Where all links are there, it is the one that most waited for in vain, at the second time.
        """
        idle = self.course.idle
        cut = {frozenset((device, other)) for device, report in idle.items()
               for other in report.get('cut', ()) if other in self.alive and device in self.alive}
        if not cut and self.failures.fruitless >= 2:
            cut = {frozenset((device, report['peer'])) for device, report in idle.items()
                   if report['error'] and report['peer'] in self.alive}
        while cut and len(self.alive) > 1:
            ends = [end for pair in sorted(map(sorted, cut)) for end in pair]
            out = max(ends, key=lambda end: (ends.count(end), self.away.strikes.get(end, 0),
                                             self._tag_without(end)))
            cut = {pair for pair in cut if out not in pair}
            self._leave_out(out, now)

    def _leave_out(self, device: str, now: float) -> None:
        """Have a device take no part for a time: that is a loss."""
        self.alive.discard(device)
        self.away.leave_out(device, now, self.patience)
        self.recoveries.append(Recovery((device,), now, reached=self.committed))

    def _tag_without(self, device: str) -> int:
        return rollback_tag({d: self.held.get(d, {}) for d in self.alive - {device}}, self.layers)

    def _fail(self, why: str) -> list[Order]:
        self.phase, self.why = Phase.FAILED, why
        return []
