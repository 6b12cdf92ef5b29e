# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Phase 3: what to do when rates change and devices come and go (Dora, section 4.3).

A state machine over (observation, time) without clocks, threads or a network
of its own.  It keeps the plans of the front.  Each observation is judged by
the simulator: if the plan in use meets the target, it stays.  If not, another
plan of the front is taken that meets it; devices are ready for these.  If none
does and the change is small, only the transfers are ordered anew; if it is
large, or lasts, a new plan is made.  A device that is gone ends its plans at
once.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

from intradp_ros.cluster.topology import Topology
from intradp_ros.planning.fleet_costs import FleetCosts
from intradp_ros.systems.fleet.partitioner import NothingFits, reference_scale
from intradp_ros.systems.fleet.planner import FleetPlan, FleetPlans, judge, OURS, plan_fleet, QUICK


class Act(str, Enum):
    """What is to be done."""

    STAY = 'stay'
    REORDER = 'order transfers anew'
    SWITCH = 'switch to a plan of the front'
    REPLAN = 'switch to a new plan'
    WAIT = 'wait: nothing fits'


@dataclass(frozen=True)
class Patience:
    """
    When a change is large, and when it lasts.

    `small` is the paper's 10 %: rates that moved by no more are answered by
    ordering transfers.  A larger change must last for `seconds` before
    weights are moved, so that a burst that is over soon moves none; one that
    makes the plan late by more than `urgent` times the target is not waited
    for.
    """

    small: float = 0.10
    seconds: float = 0.5
    urgent: float = 0.5
    retry: float = 5.0


@dataclass(frozen=True)
class Observed:
    """
    What is known at a time.

    Rates of media in bytes per second, devices that are gone, and the bytes
    that devices say plans may use of them.
    """

    rates: Mapping[str, float] = field(default_factory=dict)
    gone: frozenset[str] = frozenset()
    memory: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Decision:
    """What is done, and the plan from now on, on the devices that `costs` has, or why none."""

    act: Act
    plan: FleetPlan | None
    costs: FleetCosts
    why: str = ''


@dataclass(frozen=True)
class AdapterState:
    """
    The plan in use and what it was made for.

    `devices` names, for every node of the model, who runs it with how many
    samples; so a plan outlives that devices are numbered anew.  `late_since`
    is when the target was first missed, `planned` when plans were last made.
    """

    costs: FleetCosts
    plan: FleetPlan | None
    front: tuple[Assignment, ...]
    observed: Observed = Observed()
    late_since: float | None = None
    planned: float = float('-inf')


Assignment = tuple[tuple[tuple[str, int], ...], ...]
"""For every node the devices that run it, with their samples."""

Planner = Callable[[FleetCosts], FleetPlans]


def begin(costs: FleetCosts, now: float, planner: Planner = plan_fleet) -> AdapterState:
    """Return the state after planning for the fleet as it is declared."""
    plans = planner(costs)
    return AdapterState(costs, plans.best, _front(costs, plans), planned=now)


def observe(state: AdapterState, declared: FleetCosts, observed: Observed, now: float,
            patience: Patience = Patience(), planner: Planner = plan_fleet,
            ) -> tuple[AdapterState, Decision]:
    """
    Return the state after an observation, and what is to be done.

    `declared` is the whole fleet at its full rates.  Time must not go back.

    :raises ValueError: if the source is gone.
    """
    if declared.source in observed.gone:
        raise ValueError(f'the source {declared.source} is gone: nobody asks')
    costs = as_observed(declared, observed)
    current = numbered(costs, assignment_of(state.costs, state.plan.placement)) \
        if state.plan else None
    if current is None:
        return _replacement(state, costs, observed, now, patience, planner)
    kept = _judged(costs, current)
    if kept.beyond:
        return _replacement(state, costs, observed, now, patience, planner)
    if kept.meets:
        same = kept.order.discipline == state.plan.order.discipline if state.plan else False
        unchanged = same and observed == state.observed
        return (replace(state, costs=costs, plan=kept, observed=observed, late_since=None),
                Decision(Act.STAY if unchanged or same else Act.REORDER, kept, costs))
    since = now if state.late_since is None else state.late_since
    waiting = replace(state, costs=costs, plan=kept, observed=observed, late_since=since)
    if (ready := _best_of_front(state, costs)) is not None and ready.meets:
        return (replace(waiting, plan=ready, late_since=None),
                Decision(Act.SWITCH, ready, costs))
    if _tolerates(kept, costs, observed, declared, patience) and now - since < patience.seconds:
        return waiting, Decision(Act.REORDER, kept, costs)
    # What was observed before goes along: plans are made anew at once where it is another.
    return _replacement(replace(waiting, observed=state.observed), costs, observed, now, patience,
                        planner)


def as_observed(declared: FleetCosts, observed: Observed) -> FleetCosts:
    """Return the costs of the devices that are there, with media at their observed rates."""
    fleet = declared.topology.without(observed.gone)
    media = tuple(replace(m, bytes_per_second=observed.rates.get(m.name, m.bytes_per_second))
                  for m in fleet.media)
    devices = tuple(replace(d, memory_bytes=min(
        d.memory_bytes, observed.memory.get(d.name, d.memory_bytes))) for d in fleet.devices)
    return replace(declared, topology=Topology(devices, media, fleet.paths))


def _tolerates(plan: FleetPlan, costs: FleetCosts, observed: Observed, declared: FleetCosts,
               patience: Patience) -> bool:
    """Return whether a plan that misses its target may do so for a while."""
    late = plan.latency / costs.quality.latency - 1
    small = all(abs(rate / declared.topology.medium(name).bytes_per_second - 1) <= patience.small
                for name, rate in observed.rates.items())
    return small or late <= patience.urgent


def _replacement(state: AdapterState, costs: FleetCosts, observed: Observed, now: float,
                 patience: Patience, planner: Planner) -> tuple[AdapterState, Decision]:
    """Take the best plan of the front if it meets the target, else plan anew."""
    best = _best_of_front(state, costs)
    recent = now - state.planned < patience.retry and observed == state.observed
    if best is not None and (best.meets or recent):
        same = state.plan and state.costs.topology.names == costs.topology.names \
            and best.placement == state.plan.placement
        act = Act.STAY if same else Act.SWITCH
        late = None if best.meets else state.late_since
        return (replace(state, costs=costs, plan=best, observed=observed, late_since=late),
                Decision(act, best, costs))
    try:
        plans = planner(costs)
    except NothingFits as error:
        return (replace(state, costs=costs, plan=None, observed=observed, planned=now),
                Decision(Act.WAIT, None, costs, str(error)))
    front = tuple(dict.fromkeys([*_front(costs, plans), *state.front]))[:_MOST_KEPT]
    late = None if plans.best.meets else now
    return (AdapterState(costs, plans.best, front, observed, late, now),
            Decision(Act.REPLAN, plans.best, costs))


_MOST_KEPT = 16


def _best_of_front(state: AdapterState, costs: FleetCosts) -> FleetPlan | None:
    """Return the best plan that is known and fits, None where a device of each is gone."""
    options = [_judged(costs, groups) for groups in
               (numbered(costs, assignment) for assignment in state.front) if groups is not None]
    return min((plan for plan in options
                if not plan.beyond and set(plan.memory) <= set(costs.topology.names)),
               key=lambda plan: plan.score, default=None)


def _judged(costs: FleetCosts, groups: tuple[int, ...]) -> FleetPlan:
    return judge(costs, reference_scale(costs), OURS, groups, QUICK)


def _front(costs: FleetCosts, plans: FleetPlans) -> tuple[Assignment, ...]:
    return tuple(assignment_of(costs, plan.placement) for plan in (plans.best, *plans.front))


def assignment_of(costs: FleetCosts, placement: tuple[int, ...]) -> Assignment:
    """Return who runs each node of a placement, by name."""
    names = costs.topology.names
    return tuple(tuple((name, int(share)) for name, share in zip(names, costs.groups[group])
                       if share) for group in placement)


def numbered(costs: FleetCosts, assignment: Assignment) -> tuple[int, ...] | None:
    """Return the groups of an assignment, None if a device of it is gone."""
    names = costs.topology.names
    known = {tuple((name, int(share)) for name, share in zip(names, shares) if share): group
             for group, shares in enumerate(costs.groups)}
    groups = tuple(known.get(shares, -1) for shares in assignment)
    return None if -1 in groups else groups
