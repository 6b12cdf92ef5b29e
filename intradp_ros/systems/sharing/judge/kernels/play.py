# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Programs in model time: every device runs its own, the link carries what they send."""
from __future__ import annotations

from intradp_ros.systems.sharing.judge.kernels.side_programs import COMPUTE, SEND
from intradp_ros.systems.sharing.judge.records import Clock, Programs, StepCosts


def play(programs: Programs, costs: StepCosts, clock: Clock, transfers: int) -> bool:
    """
    Run all programs to their ends; False if they wait for each other for ever.

    The device that is behind the others goes on first, so that transfers of
    several devices enter a shared lane in the order of time.
    """
    for d in range(2):
        device = clock.device[d]
        device.place, device.sent = programs.side[d].start, 0
        device.now = device.busy = device.slowed = device.owed = device.sending = 0.0
        clock.free[d] = 0.0
    for transfer in range(transfers):
        clock.transfer[transfer].arrived = -1.0
    while True:
        chosen = -1
        finished = True
        for d in range(2):
            place = clock.device[d].place
            if place == programs.side[d].stop:
                continue
            finished = False
            waits = (programs.entry[place].kind > SEND
                     and clock.transfer[programs.entry[place].item].arrived < 0.0)
            if not waits and (chosen < 0 or clock.device[d].now < clock.device[chosen].now):
                chosen = d
        if chosen < 0:
            return finished
        place = clock.device[chosen].place
        clock.device[chosen].place = place + 1
        if programs.entry[place].kind == COMPUTE:
            _compute(programs, costs, clock, chosen, place)
        else:
            _move(programs, costs, clock, chosen, place)


def _compute(programs: Programs, costs: StepCosts, clock: Clock, device: int, place: int) -> None:
    entry, now = programs.entry[place], clock.device[device].now
    taken = costs.compute[device * costs.total + costs.first[entry.item] + entry.rows]
    taken += entry.joins * costs.join[device].once + entry.joined * costs.join[device].byte
    clock.entry[place].began, clock.entry[place].ended = now, now + taken
    clock.device[device].now = now + taken
    clock.device[device].busy += taken
    clock.device[device].slowed += clock.device[device].owed
    clock.device[device].owed = 0.0


def _move(programs: Programs, costs: StepCosts, clock: Clock, device: int, place: int) -> None:
    """Send, or receive what has been sent."""
    index, now = programs.entry[place].item, clock.device[device].now
    if programs.entry[place].kind == SEND:
        _enter(costs, clock, device, index, now)
        end = now + costs.transfer[index].send
        clock.device[device].owed += costs.transfer[index].send
    else:  # what has come while the device computed has made it slower; or it waits
        arrived = clock.transfer[index].arrived
        end = max(now + costs.transfer[index].receive, arrived)
        clock.device[device].slowed += end - max(now, arrived)
        clock.device[device].owed = max(0.0, clock.device[device].owed - max(0.0, arrived - now))
        now = end
    clock.entry[place].began, clock.entry[place].ended = now, end
    clock.device[device].now = end


def _enter(costs: StepCosts, clock: Clock, device: int, transfer: int, now: float) -> None:
    """Put a transfer on its lane."""
    cost = costs.transfer[transfer]
    start = max(now + cost.encode, clock.free[cost.lane])
    clock.free[cost.lane] = start + cost.occupy
    clock.device[device].sending += cost.occupy
    clock.device[device].sent += cost.nbytes
    clock.transfer[transfer].left = start
    clock.transfer[transfer].arrived = start + cost.occupy + cost.later
