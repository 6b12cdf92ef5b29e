# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Figures of placements: machine code against numpy, in inference and in training."""
from dataclasses import replace

import numpy as np
import pytest
from random_fleets import random_case

from intradp_ros.planning.estimate import estimate
from intradp_ros.planning.estimate_plain import plain_figures
from intradp_ros.planning.training import Training, with_backward


@pytest.mark.parametrize('training', [None, Training()])
@pytest.mark.parametrize('seed', range(12))
def test_machine_code_and_numpy_agree(seed, training):
    rng = np.random.default_rng(seed)
    costs = random_case(rng, int(rng.integers(2, 12)), int(rng.integers(2, 5)),
                        int(rng.integers(1, 5)))
    model = with_backward(costs.model, 1.7)
    model = replace(model, nodes=tuple(replace(node, kept_bytes=3 * node.working_bytes)
                                       for node in model.nodes))
    costs = replace(costs, model=model, training=training, batches=1 + seed % 4,
                    contended=seed % 3 > 0)
    placements = rng.integers(len(costs.groups), size=(40, len(model.nodes)))
    for nodes in (1, len(model.nodes)):  # the first ones, and all
        placed = np.ascontiguousarray(np.sort(placements[:, :nodes], axis=0))
        found = estimate(costs, placed)
        plain = plain_figures(costs, placed)
        for name, figures in zip(('latency', 'period', 'joules', 'memory', 'busy', 'media'),
                                 plain):
            assert getattr(found, name) == pytest.approx(figures), name


def test_training_takes_more_of_everything():
    costs = random_case(np.random.default_rng(4), 8, 3, 2)
    costs = replace(costs, model=with_backward(costs.model), batches=4)
    trained = replace(costs, training=Training())
    placements = np.random.default_rng(1).integers(len(costs.groups), size=(30, 8))
    for name in ('latency', 'memory', 'busy'):
        more, less = (getattr(estimate(c, placements), name) for c in (trained, costs))
        assert (more >= less).all() and (more > less).any(), name
