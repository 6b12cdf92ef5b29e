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
    LinkCost,
    Programs,
    Tables,
    Work,
)


def plain_bytes(t: Tables, value: int, rows: int) -> int:
    """Return the bytes of some rows of a value; of one record if it is folded."""
    each, record = t.x[t.row_bytes + value], t.x[t.record_bytes + value]
    return each * rows + record  # type: ignore[no-any-return]


def charge(t: Tables, link_cost: LinkCost, charges: Charges, transfer: int, value: int, rows: int,
           source: int) -> None:
    """Fill what one transfer costs."""
    plain, at = plain_bytes(t, value, rows), source * t.values + value
    nbytes = round(plain * link_cost.y[link_cost.ratio + value])
    encode = plain * link_cost.y[link_cost.encode + at]
    decode = plain * link_cost.y[link_cost.decode + at]
    chunks = max(1, -(-plain // link_cost.chunk))
    charges.x[charges.lane + transfer] = link_cost.x[link_cost.lane + source]
    charges.x[charges.bytes + transfer] = nbytes
    charges.y[charges.encode + transfer] = encode
    charges.y[charges.occupy + transfer] = (
        link_cost.y[link_cost.overhead + source] + nbytes / link_cost.y[link_cost.rate + source])
    charges.y[charges.later + transfer] = link_cost.y[link_cost.delay + source] + decode
    send, receive = link_cost.send + 2 * source, link_cost.receive + 2 * source
    charges.y[charges.send + transfer] = (
        chunks * link_cost.y[send] + nbytes * link_cost.y[send + 1]
        + encode * link_cost.y[link_cost.encodes + source])
    charges.y[charges.receive + transfer] = (
        chunks * link_cost.y[receive] + nbytes * link_cost.y[receive + 1]
        + decode * link_cost.y[link_cost.decodes + source])


def write(t: Tables, p: Layout, w: Work) -> None:
    """Write the steps, transfers and programs of a partition."""
    for k in range(10):
        w.x[w.counts + k] = 0
    assign(t, p, w)
    write_steps(t, p, w, 0)
    write_steps(t, p, w, 1)
    write_transfers(t, p, w)
    write_programs(t, p, w)


def judge(t: Tables, p: Layout, w: Work, link_cost: LinkCost,
          charges: Charges, clock: Clock) -> None:
    """Write the programs of a partition and play them."""
    write(t, p, w)
    for k in range(w.x[w.counts + 2]):
        value, source = w.x[w.transfer_value + k], w.x[w.transfer_source + k]
        rows = w.x[w.transfer_hi + k] - w.x[w.transfer_lo + k]
        charge(t, link_cost, charges, k, value, rows, source)
    for side in range(2):
        w.x[w.counts + 6 + side] = side * w.entries
        w.x[w.counts + 8 + side] = side * w.entries + w.x[w.counts + 4 + side]
    programs = Programs(w.x, w.counts + 6, w.counts + 8, w.kind, w.item, w.rows)
    play(programs, charges, clock, w.x[w.counts + 2])
