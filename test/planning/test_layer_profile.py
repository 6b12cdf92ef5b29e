# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Layer profiles of the PipeDream kind; the text below is made up, its form is theirs."""
import pytest

from intradp_ros.planning.layer_profile import read_layer_profile
from intradp_ros.planning.planning_model import Flow, SOURCE


def line(key, name, forward, size, weights=0):
    return (f'{key} -- {name} -- forward_compute_time={forward:.3f}, backward_compute_time=1.000, '
            f'activation_size={size}, parameter_size={weights:.3f}')


PROFILE = '\n'.join([
    line('node3', 'Add', 0.5, '64.0'),
    line('node1', 'Input0', 600.0, '128.0'),
    line('node2', 'LSTM(2, 3)', 4.0, '[64.0; 16.0; 16.0]', 1000),
    line('node4', 'Linear(in_features=4, out_features=2, bias=True)', 2.0, '8.0', 40),
    '\tnode1 -- node2', '\tnode2 -- node3', '\tnode1 -- node3', '\tnode3 -- node4'])


def test_layers_edges_and_units_are_read():
    model = read_layer_profile(PROFILE, 'small', batch=4)
    assert [n.name[:4] for n in model.nodes] == ['LSTM', 'Add', 'Line']
    assert [n.seconds for n in model.nodes] == pytest.approx([1e-3, 0.125e-3, 0.5e-3])
    assert [n.weight_bytes for n in model.nodes] == [1000, 0, 40]
    assert set(model.flows) == {Flow(SOURCE, (0, 1), 32.0), Flow(0, (1,), 24.0),
                                Flow(1, (2,), 16.0), Flow(2, (SOURCE,), 2.0)}


@pytest.mark.parametrize('text, message', [
    ('', '1 to'),
    ('hello', 'line 1 describes neither'),
    (PROFILE + '\n\tnode4 -- node9', "line 9: an edge names 'node9'"),
    (PROFILE + '\n\tnode4 -- node2', 'circle'),
    (line('a', 'x', 1.0, '[1; two]'), 'line 1: times and sizes must be numbers'),
    (line('a', 'x', -1.0, '1'), 'line 1: times and sizes must be 0 or more'),
    (line('a', 'x', 1.0, 'nan'), 'line 1: times and sizes must be 0 or more'),
])
def test_bad_profiles_are_refused_by_line(text, message):
    with pytest.raises(ValueError, match=message):
        read_layer_profile(text, 'bad')


DAPPLE = """node1 -- Input -- forward_compute_time=0.00, backward_compute_time=0.00, \
activation_size=[400; 100], parameter_size=0
node2 -- stem -- forward_compute_time=2, backward_compute_time=5, \
activation_size=[300; 200], parameter_size=64
node3 -- cell -- forward_compute_time=1, backward_compute_time=3, activation_size=40, \
parameter_size=8
node4 -- loss -- forward_compute_time=0, backward_compute_time=0, activation_size=0, \
parameter_size=0
 \tnode1 -- node2
  node1 -- node4
\tnode2 -- node3
\tnode2 -- node4
\tnode3 -- node4
"""


def test_a_size_for_each_edge_goes_along_that_edge():
    model = read_layer_profile(DAPPLE, 'dapple', 2, by_edge=True)
    flows = {(flow.maker, flow.readers): flow.nbytes for flow in model.flows}
    assert flows[-1, (0,)] == 200 and flows[-1, (2,)] == 50
    assert flows[0, (1,)] == 150 and flows[0, (2,)] == 100
    whole = read_layer_profile(DAPPLE, 'dapple', 2)
    assert {flow.nbytes for flow in whole.flows if flow.maker == 0} == {250}
