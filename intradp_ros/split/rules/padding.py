# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Padding with a constant, by reflection, by the border row, or around."""
from __future__ import annotations

from functools import partial

import numpy as np

from intradp_ros.split.calls.copies import taking
from intradp_ros.split.calls.kernels import unread
from intradp_ros.split.calls.site import follow, Rule, rules, Site, Split
from intradp_ros.split.local_operator import Kernel, Kind, Parameters
from intradp_ros.split.regions.region import Ints, Region, RowMap


def split_pad(site: Site, argument: str, mode: str | None) -> Split | None:
    """
    Split padding along any dimension, padded or not.

    `argument` names the pad widths, from the last dimension backwards;
    `mode` is the way to pad, or None where the call says it.
    """
    lead = site.lead()
    if lead is None:
        return None
    operand, dim = lead
    widths = list(site.call.argument(argument))
    slot = 2 * (len(site.shape(operand)) - 1 - dim)
    if slot >= len(widths) or not any(widths[slot:slot + 2]):
        return follow(site, Kind.BLOCK, dim)
    mode = mode or site.call.argument('mode')
    input_rows, rows = site.shape(operand)[dim], site.output_shape[dim]
    source = _sources(mode, rows, widths[slot], input_rows)
    row_map = RowMap.copies(source, input_rows)

    def bind(region: Region, parameters: Parameters) -> Kernel:
        def pad(before: int, after: int) -> Kernel:
            around = [*widths[:slot], before, after, *widths[slot + 2:]]
            return site.call.replace(**{argument: around}).compile(parameters)

        handed = row_map(region)
        if region.rows == rows and handed.rows == input_rows:
            return site.call.compile(parameters)
        taken = source[slice(*region)] - handed.start
        if mode == 'constant':
            before = int((taken < 0).sum()) if handed else region.rows
            kernel = pad(before, region.rows - before - handed.rows)
            return kernel if handed else unread(kernel, site.no_rows(operand, dim))
        take, others = taking(dim, taken, handed.rows), pad(0, 0)
        return lambda x: others((take(x[0]),))

    return Split(Kind.BLOCK, dim, rows, site.maps(row_map, rows), bind)


def _sources(mode: str, rows: int, before: int, input_rows: int) -> Ints:
    """Return the input row that each output row copies; outside the input for the constant."""
    row = np.arange(rows, dtype=np.int64) - before
    last = input_rows - 1
    if mode == 'reflect':
        row = last - np.abs(last - np.abs(row))
    elif mode == 'replicate':
        row = row.clip(0, last)
    elif mode == 'circular':
        row %= input_rows
    return row


RULES: dict[str, Rule] = {
    'aten.pad.default': partial(split_pad, argument='pad', mode=None),
    'aten.constant_pad_nd.default': partial(split_pad, argument='pad', mode='constant'),
    **{
        target: rule
        for name, mode in (('reflection', 'reflect'), ('replication', 'replicate'))
        for target, rule in rules(
            partial(split_pad, argument='padding', mode=mode),
            (f'aten.{name}_pad{n}d.default' for n in (1, 2, 3))).items()},
}
