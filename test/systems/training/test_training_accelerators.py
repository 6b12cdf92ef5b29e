# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Stages on accelerators: what is trained is what CPUs train, also where only some have one."""
from __future__ import annotations

from imagined_accelerator import ACCELERATORS, kernels
import pytest
import torch
from training_fleet import adam, difference, make_task, sgd, shuffled, train
from training_models import train_alone_drawing

from intradp_ros.split.calls.accelerator import open_device
from intradp_ros.systems.training.layers.layer_capture import capture
from intradp_ros.systems.training.layers.layer_profiler import measure_layers
from intradp_ros.systems.training.plan.replanning import entering, layer_calls


@pytest.mark.parametrize('accelerator', ACCELERATORS)
@pytest.mark.parametrize(('seed', 'model', 'optimiser', 'faults'), [
    (1, 'cnn', adam, {}), (2, 'typed', sgd, {}), (3, 'small', adam, {'b': (5, 'F0')}),
    (4, 'transformer', adam, {}), (5, 'dropout', adam, {'a': (4, 'U')})])
def test_some_devices_compute_on_accelerators(seed, model, optimiser, faults, accelerator):
    task = make_task(model, optimiser, rounds=8)
    graph = capture(task)
    kernels.clear()
    trainer, state = train(task, 'abc', shuffled(seed, len(graph.layers), task), faults,
                           graph=graph, computes_on={'a': accelerator, 'b': accelerator})
    alone = train_alone_drawing(task)
    assert difference(state, alone) < 1e-10
    assert all(tensor.device.type == 'cpu' for tensor in state.values())
    for number in range(task.rounds):
        assert trainer.commit.figures[number]['loss'] == pytest.approx(
            alone.loss[number], rel=1e-10)
    if accelerator != 'cuda':
        assert any('addmm' in kernel or 'convolution' in kernel for kernel in kernels)


@pytest.mark.parametrize('accelerator', ACCELERATORS)
def test_layers_are_measured_where_they_are_trained(accelerator):
    task = make_task('cnn', sgd, rounds=1)
    graph, device = capture(task), open_device(accelerator)
    calls = layer_calls(graph, task, device)
    assert {p.device.type for call in calls for _, p in call.parameters} == {
        torch.device(device.name).type}
    table = measure_layers('here', calls, entering(graph, task, device), task.optimiser, 4,
                           repeats=1)
    assert all(seconds > 0 for seconds in table.times['here'].forward[-1])
