# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Weights that no file brings are the same on every processor."""
from __future__ import annotations

from collections.abc import Callable
import hashlib
import importlib
import os
import subprocess
import sys

import pytest
import torch
from torch import nn

from intradp_lab.emulation.slow_device import slow_environment
from intradp_lab.zoo.seeding import seeded
from intradp_ros.perception.oriented_energy import oriented_energy

FACTORIES = ('intradp_ros.perception.oriented_energy:oriented_energy',
             'intradp_lab.zoo.dense:depth', 'intradp_lab.zoo.dense:segmenter',
             'intradp_lab.zoo.scene_completion:scene_completion',
             'intradp_lab.zoo.yolo:detector_s',
             'intradp_lab.zoo.classifiers.mobilenet_v3:mobilenet_v3_small')


def weights_digest(model: nn.Module) -> str:
    """Return a digest of all weights and buffers."""
    return hashlib.sha256(b''.join(
        value.numpy().tobytes() for value in model.state_dict().values())).hexdigest()


def digests() -> list[str]:
    """Return the digests of some networks."""
    found = []
    for source in FACTORIES:
        module, factory = source.split(':')
        make: Callable[[], nn.Module] = getattr(
            importlib.import_module(module), factory)
        found.append(weights_digest(make()))
    return found


def test_a_processor_without_vector_instructions_draws_the_same_weights() -> None:
    """Where this one has none either, it shows that processes agree."""
    plain = subprocess.run([sys.executable, __file__], check=True, capture_output=True, text=True,
                           env={**os.environ, **slow_environment()}, timeout=120)
    assert plain.stdout.split() == digests()


def test_weights_are_as_large_as_those_that_pytorch_draws() -> None:
    torch.manual_seed(1)
    plain, drawn = nn.Linear(100, 400), seeded(lambda: nn.Linear(100, 400))()
    for own, other in zip(plain.parameters(), drawn.parameters()):
        assert other.abs().max() <= 0.1
        assert float(other.detach().std()) == pytest.approx(float(own.detach().std()), rel=0.1)


def test_what_cannot_be_drawn_is_refused() -> None:
    with pytest.raises(ValueError, match='GRU: no linear layer'):
        seeded(lambda: nn.GRU(3, 4))()


def test_filters_have_no_negative_zeros() -> None:
    """Zero and minus zero are equal and have different digests."""
    weight = oriented_energy().answers.weight
    assert not (torch.signbit(weight) & (weight == 0)).any()


if __name__ == '__main__':
    print(*digests())
