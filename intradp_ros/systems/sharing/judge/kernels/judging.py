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
    Clock,
    Layout,
    LinkCost,
    Programs,
    StepCosts,
    Tables,
    Work,
)


def plain_bytes(t: Tables, value: int, rows: int) -> int:
    """Return the bytes of some rows of a value; of one record if it is folded."""
    each, record = t.value[value].row_bytes, t.value[value].record_bytes
    return each * rows + record  # type: ignore[no-any-return]


def charge(t: Tables, link_cost: LinkCost, costs: StepCosts, transfer: int, value: int, rows: int,
           source: int) -> None:
    """Fill what one transfer costs."""
    plain, way = plain_bytes(t, value, rows), link_cost.way[source]
    nbytes = round(plain * link_cost.ratio[value])
    encode = plain * link_cost.coding[source * t.values + value].encode
    decode = plain * link_cost.coding[source * t.values + value].decode
    chunks = max(1, -(-plain // link_cost.chunk[value]))
    cost = costs.transfer[transfer]
    cost.lane, cost.nbytes, cost.encode = way.lane, nbytes, encode
    cost.occupy = way.overhead + nbytes / way.rate
    cost.later = way.delay + decode
    cost.send = chunks * way.send_chunk + nbytes * way.send_byte + encode * way.encodes
    cost.receive = chunks * way.receive_chunk + nbytes * way.receive_byte + decode * way.decodes


def write(t: Tables, p: Layout, w: Work) -> None:
    """Write the steps, transfers and programs of a partition."""
    w.count[0].transfers = w.count[0].inputs = 0
    for side in range(2):
        w.side[side].steps = w.side[side].entries = 0
    assign(t, p, w)
    write_steps(t, p, w, 0)
    write_steps(t, p, w, 1)
    write_transfers(t, p, w)
    write_programs(t, p, w)
    for side in range(2):
        w.side[side].start = side * w.entries
        w.side[side].stop = side * w.entries + w.side[side].entries


def judge(t: Tables, p: Layout, w: Work, link_cost: LinkCost,
          costs: StepCosts, clock: Clock) -> None:
    """Write the programs of a partition and play them."""
    write(t, p, w)
    for k in range(w.count[0].transfers):
        transfer = w.transfer[k]
        charge(t, link_cost, costs, k, transfer.value, transfer.hi - transfer.lo, transfer.source)
    play(Programs(w.side, w.entry), costs, clock, w.count[0].transfers)
