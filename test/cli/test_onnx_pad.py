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
