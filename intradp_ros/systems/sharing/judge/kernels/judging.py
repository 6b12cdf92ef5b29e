# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""From a partition to its latency in one go, and what its transfers cost."""
from __future__ import annotations

from intradp_ros.systems.sharing.judge.kernels.bands import write_steps
from intradp_ros.systems.sharing.judge.kernels.play import play
from intradp_ros.systems.sharing.judge.kernels.rows import assign
from intradp_ros.systems.sharing.judge.kernels.side_programs import write_programs
from intradp_ros.systems.sharing.judge.kernels.transfers import write_transfers
from intradp_ros.systems.sharing.judge.records import (
    Charges,
    Clock,
    Layout,
    Programs,
    Tables,
    Toll,
    Work,
)


def plain_bytes(t: Tables, value: int, rows: int) -> int:
    """Return the bytes of some rows of a value; of one record if it is folded."""
    each, record = t.x[t.row_bytes + value], t.x[t.record_bytes + value]
    return each * rows + record  # type: ignore[no-any-return]


def charge(t: Tables, toll: Toll, charges: Charges, transfer: int, value: int, rows: int,
           source: int) -> None:
    """Fill what one transfer costs."""
    plain, at = plain_bytes(t, value, rows), source * t.values + value
    nbytes = round(plain * toll.y[toll.ratio + value])
    encode, decode = plain * toll.y[toll.encode + at], plain * toll.y[toll.decode + at]
    chunks = max(1, -(-plain // toll.chunk))
    charges.x[charges.lane + transfer] = toll.x[toll.lane + source]
    charges.x[charges.bytes + transfer] = nbytes
    charges.y[charges.encode + transfer] = encode
    charges.y[charges.occupy + transfer] = (
        toll.y[toll.overhead + source] + nbytes / toll.y[toll.rate + source])
    charges.y[charges.later + transfer] = toll.y[toll.delay + source] + decode
    send, receive = toll.send + 2 * source, toll.receive + 2 * source
    charges.y[charges.send + transfer] = (
        chunks * toll.y[send] + nbytes * toll.y[send + 1]
        + encode * toll.y[toll.encodes + source])
    charges.y[charges.receive + transfer] = (
        chunks * toll.y[receive] + nbytes * toll.y[receive + 1]
        + decode * toll.y[toll.decodes + source])


def write(t: Tables, p: Layout, w: Work) -> None:
    """Write the steps, transfers and programs of a partition."""
    for k in range(10):
        w.x[w.counts + k] = 0
    assign(t, p, w)
    write_steps(t, p, w, 0)
    write_steps(t, p, w, 1)
    write_transfers(t, p, w)
    write_programs(t, p, w)


def judge(t: Tables, p: Layout, w: Work, toll: Toll, charges: Charges, clock: Clock) -> None:
    """Write the programs of a partition and play them."""
    write(t, p, w)
    for k in range(w.x[w.counts + 2]):
        value, source = w.x[w.transfer_value + k], w.x[w.transfer_source + k]
        rows = w.x[w.transfer_hi + k] - w.x[w.transfer_lo + k]
        charge(t, toll, charges, k, value, rows, source)
    for side in range(2):
        w.x[w.counts + 6 + side] = side * w.entries
        w.x[w.counts + 8 + side] = side * w.entries + w.x[w.counts + 4 + side]
    programs = Programs(w.x, w.counts + 6, w.counts + 8, w.kind, w.item, w.rows)
    play(programs, charges, clock, w.x[w.counts + 2])
