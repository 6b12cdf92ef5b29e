# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""ONNX's Pad in all its modes, as `F.pad` is exported: by what the operators are defined to do."""
from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from torch import nn

pytest.importorskip('onnx')
if find_spec('onnx2torch') is None:
    pytest.skip('onnx2torch is not installed', allow_module_level=True)

import numpy as np  # noqa: E402
from odd_files import node, number, onnx_of  # noqa: E402
from onnx import TensorProto  # noqa: E402

from intradp_ros.core.torchvision_import import torchvision  # noqa: E402
from intradp_ros.importers.onnx_file import converted, open_onnx  # noqa: E402
from intradp_ros.runtime.models.model import share_module  # noqa: E402

MODES = {'reflect': 'reflect', 'edge': 'replicate', 'constant': 'constant'}


@pytest.mark.parametrize('mode', MODES)
def test_pads_that_stand_in_constants(mode: str, tmp_path: Path) -> None:
    """They are captured with what reads them, and split."""
    torchvision()
    pads, value = [0, 0, 1, 2, 0, 0, 3, 0], 2.5 if mode == 'constant' else 0.0
    onnx_of([node('Cast', ['pads'], ['whole'], to=7),
             node('Pad', ['x', 'whole', *(['value'] if value else [])], mode=mode)],
            dims=(1, 3, 8, 8), weights=[number('pads', pads, np.int32),
                                        *([number('value', value, np.float32)] if value else [])],
            )(tmp_path / 'net.onnx')
    module = converted(open_onnx(str(tmp_path / 'net.onnx')), (1, 3, 8, 8))
    x = torch.randn(1, 3, 8, 8)
    wanted = nn.functional.pad(x, (2, 0, 1, 3), MODES[mode], value)
    assert torch.equal(module(x), wanted)
    assert len(share_module(module, (x,)).split.operators) >= 1


@pytest.mark.parametrize('largest', [0, 1])
def test_of_equal_elements_the_lower_place_comes_first(largest: int, tmp_path: Path) -> None:
    """As TopK is defined; pictures have many equal numbers."""
    torchvision()
    onnx_of([node('TopK', ['x', 'count'], ['values', 'places'], axis=2, largest=largest),
             node('Cast', ['values'], ['whole'], to=7), node('Add', ['whole', 'places'])],
            dims=(1, 3, 40, 8), weights=[number('count', [5], np.int64)],
            out=TensorProto.INT64)(tmp_path / 'net.onnx')
    module = converted(open_onnx(str(tmp_path / 'net.onnx')), (1, 3, 40, 8))
    x = torch.randint(0, 4, (1, 3, 40, 8)).float()
    wanted = np.argsort(-x.numpy() if largest else x.numpy(), axis=2, kind='stable')[:, :, :5]
    assert np.array_equal(module(x), wanted + np.take_along_axis(x.numpy(), wanted, 2))
