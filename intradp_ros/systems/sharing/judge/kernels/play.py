# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Programs in model time: every device runs its own, the link carries what they send."""
from __future__ import annotations

from intradp_ros.systems.sharing.judge.kernels.side_programs import COMPUTE, SEND
from intradp_ros.systems.sharing.judge.records import Charges, Clock, Programs


def play(programs: Programs, charges: Charges, clock: Clock, transfers: int) -> bool:
    """
    Run all programs to their ends; False if they wait for each other for ever.

    The device that is behind the others goes on first, so that transfers of
    several devices enter a shared lane in the order of time.
    """
    for d in range(2):
        clock.x[clock.place + d] = programs.x[programs.start + d]
        clock.y[clock.now + d] = clock.y[clock.busy + d] = 0.0
        clock.y[clock.sending + d] = clock.y[clock.free + d] = 0.0
        clock.x[clock.sent + d] = 0
    for transfer in range(transfers):
        clock.y[clock.arrived + transfer] = -1.0
    while True:
        chosen = -1
        finished = True
        for d in range(2):
            place = clock.x[clock.place + d]
            if place == programs.x[programs.stop + d]:
                continue
            finished = False
            waits = (programs.x[programs.kind + place] > SEND
                     and clock.y[clock.arrived + programs.x[programs.item + place]] < 0.0)
            if not waits and (chosen < 0 or clock.y[clock.now + d] < clock.y[clock.now + chosen]):
                chosen = d
        if chosen < 0:
            return finished
        place = clock.x[clock.place + chosen]
        clock.x[clock.place + chosen] = place + 1
        if programs.x[programs.kind + place] == COMPUTE:
            _compute(programs, charges, clock, chosen, place)
        else:
            _move(programs, charges, clock, chosen, place)


def _compute(programs: Programs, charges: Charges, clock: Clock, device: int, place: int) -> None:
    index, now = programs.x[programs.item + place], clock.y[clock.now + device]
    at = charges.x[charges.at + index] + programs.x[programs.rows + place]
    taken = charges.y[charges.compute + device * charges.total + at]
    clock.y[clock.began + place], clock.y[clock.ended + place] = now, now + taken
    clock.y[clock.now + device] = now + taken
    clock.y[clock.busy + device] += taken


def _move(programs: Programs, charges: Charges, clock: Clock, device: int, place: int) -> None:
    """Send, or receive what has been sent."""
    index, now = programs.x[programs.item + place], clock.y[clock.now + device]
    if programs.x[programs.kind + place] == SEND:
        _enter(charges, clock, device, index, now)
        end = now + charges.y[charges.send + index]
    else:  # what has come while the device computed has made it slower; or it waits
        now = max(now + charges.y[charges.receive + index], clock.y[clock.arrived + index])
        end = now
    clock.y[clock.began + place], clock.y[clock.ended + place] = now, end
    clock.y[clock.now + device] = end


def _enter(charges: Charges, clock: Clock, device: int, transfer: int, now: float) -> None:
    """Put a transfer on its lane."""
    lane, taken = charges.x[charges.lane + transfer], charges.y[charges.occupy + transfer]
    start = max(now + charges.y[charges.encode + transfer], clock.y[clock.free + lane])
    clock.y[clock.free + lane] = start + taken
    clock.y[clock.sending + device] += taken
    clock.x[clock.sent + device] += charges.x[charges.bytes + transfer]
    clock.y[clock.left + transfer] = start
    clock.y[clock.arrived + transfer] = start + taken + charges.y[charges.later + transfer]
