# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Recurrent layers: global along the sequence, local along the batch."""
from __future__ import annotations

from intradp_ros.split.calls.aligned import operands_of
from intradp_ros.split.calls.labelled import Label, labelled_split
from intradp_ros.split.calls.site import Rule, rules, Site, Split

_STATE: tuple[Label, ...] = ('layer', 'batch', 'feature')


def split_recurrent(site: Site) -> Split | None:
    """Split an LSTM, a GRU or a plain recurrent layer along the batch of its sequences."""
    if len(site.output_shape) < 3 or not site.only_first_output():
        return None
    sequence: list[Label] = ['time', 'batch', 'feature']
    output: list[Label] = ['step', 'batch', 'output']
    if site.call.argument('batch_first'):
        sequence, output = ['batch', 'time', 'feature'], ['batch', 'step', 'output']
    states = site.call.argument('hx')
    count = len(states) if isinstance(states, (list, tuple)) else 1
    weights = len(operands_of(site)) - 1 - count
    return labelled_split(site, [sequence, *[_STATE] * count, *[[]] * weights], output)


RULES: dict[str, Rule] = rules(split_recurrent, (
    'aten.gru.input', 'aten.lstm.input', 'aten.rnn_relu.input', 'aten.rnn_tanh.input'))
