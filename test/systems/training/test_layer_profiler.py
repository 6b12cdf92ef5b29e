# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What the profiler of layers finds on real ones."""
import pytest
import torch
from torch import nn

from intradp_ros.systems.training.layers.layer_profiler import (
    cached_table,
    joined,
    LayerCall,
    measure_layers,
)
from intradp_ros.systems.training.layers.layer_table import TableError


def calls():
    modules = [nn.Linear(8, 16), nn.Sigmoid(), nn.Linear(16, 4)]
    return [LayerCall(f'l{k}', lambda xs, m=m: (m(xs[0]),), tuple(m.named_parameters()))
            for k, m in enumerate(modules)]


def inputs(samples):
    return (torch.randn(samples, 8),)


def adam(parameters):
    return torch.optim.Adam([p for _, p in parameters])


def test_bytes_and_seconds_of_layers_are_measured():
    table = measure_layers('here', calls(), inputs, adam, 8, repeats=1)
    assert table.times['here'].batches == (1, 2, 4, 8)
    assert table.weight_bytes == (4 * 144, 0, 4 * 68)
    assert table.border_bytes == (32, 64, 64, 16)
    assert table.gradient_bytes == (0, 64, 64, 16)
    # two moments of each number, and the counter of steps of each parameter
    assert table.optimiser_bytes == (2 * 4 * 144 + 8, 0, 2 * 4 * 68 + 8)
    assert table.activation_bytes[1] == 128  # what enters it, and what it returns
    assert all(s > 0 for row in table.times['here'].forward for s in row)
    assert all(s > 0 for row in table.times['here'].backward for s in row)


def test_batches_end_where_memory_does():
    whole = 2 * 4 * 212 + 2 * 4 * 212 + 16
    table = measure_layers('here', calls(), inputs, adam, 64, whole + 900, repeats=1)
    assert table.times['here'].batches == (1, 2, 4)
    with pytest.raises(TableError, match='not even one sample'):
        measure_layers('here', calls(), inputs, adam, 64, whole, repeats=1)

    def runs_out(samples):
        if samples > 2:
            raise MemoryError
        return inputs(samples)

    assert measure_layers('here', calls(), runs_out, adam).times['here'].batches == (1, 2)


def test_other_errors_are_not_taken_for_the_end_of_memory():
    with pytest.raises(RuntimeError, match='shapes'):
        measure_layers('here', calls(), lambda n: (torch.randn(n, 9),), adam)


def test_a_table_is_measured_once_and_tables_of_devices_join(tmp_path):
    made = []

    def measure():
        made.append(measure_layers('a', calls(), inputs, adam, 2, repeats=1))
        return made[-1]

    first = cached_table('d' * 64, 'a', measure, tmp_path)
    assert cached_table('d' * 64, 'a', measure, tmp_path) == first and len(made) == 1
    next(tmp_path.rglob('*.json')).write_text('{')
    cached_table('d' * 64, 'a', measure, tmp_path)
    assert len(made) == 2
    other = measure_layers('b', calls(), inputs, adam, 2, repeats=1)
    assert set(joined([first, other]).times) == {'a', 'b'}
    with pytest.raises(TableError, match='same layers'):
        joined([first, measure_layers('b', calls()[:1], inputs, adam, 1, repeats=1)])
