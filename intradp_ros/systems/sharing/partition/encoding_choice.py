# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Choosing the encoding in which each value crosses a link, by measured ratios and speeds."""
from __future__ import annotations

from dataclasses import replace

from intradp_ros.schedule.cost import CostModel, LinkModel, WireCost
from intradp_ros.schedule.schedule import SIDES
from intradp_ros.split.local_operator import SplitGraph
from intradp_ros.systems.sharing.partition.lowering import lower
from intradp_ros.systems.sharing.partition.partition import Encodings, Partition
from intradp_ros.wire.codecs.names import LOSSLESS, NONE

#: An encoding must save this fraction of the time that a value takes to cross.
GAIN = 0.02


def best_encodings(cost: CostModel, link: LinkModel, lossy: str = '') -> Encodings:
    """
    Choose for each value the encoding in which its bytes cross fastest.

    The seconds of a byte are those of encoding, crossing and decoding, one
    after another, on the way up and on the way down.  Values that no
    encoding makes faster by `GAIN` are left out and cross plain.

    :param cost, link: what encodings do to values, and the rates at which bytes cross.
    :param lossy: a lossy encoding that the user allows; it is preferred for every value that it
        makes faster than the lossless ones do.
    """
    allowed = {*LOSSLESS, lossy} - {''}
    best: dict[int, tuple[float, str]] = {}
    plain = _seconds(WireCost(), link) * (1 - GAIN)
    for (value, name), wire in sorted(cost.wire.items()):
        seconds = _seconds(wire, link)
        if name in allowed and seconds < min(plain, best.get(value, (plain, ''))[0]):
            best[value] = seconds, name
    return tuple((value, name) for value, (_, name) in sorted(best.items()))


def assuming(cost: CostModel, encodings: Encodings) -> CostModel:
    """
    Return the costs if values cross in these encodings wherever no other is named.

    The choice depends on the link alone, so a search need not know of it.
    """
    return replace(cost, wire={**cost.wire, **{
        (value, NONE): cost.wire[value, name] for value, name in encodings}})


def encoded(split: SplitGraph, partition: Partition, encodings: Encodings) -> Partition:
    """Return the partition with the encodings of those values that cross in it."""
    crossing = {t.value for t in lower(split, partition).transfers}
    return replace(partition, encodings=tuple(e for e in encodings if e[0] in crossing))


def _seconds(wire: WireCost, link: LinkModel) -> float:
    """Return what a plain byte takes up and down."""
    crossing = wire.ratio / link.up + wire.ratio / link.down
    return crossing + sum(wire.encode.get(side, 0.0) + wire.decode.get(side, 0.0)
                          for side in SIDES)
