# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""ONNX's Resize in all its forms: by the definition, and as `torch.onnx.export` writes it."""
from __future__ import annotations

from importlib.util import find_spec
from itertools import product
from pathlib import Path
from typing import Any
import warnings

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

pytest.importorskip('onnx')
if find_spec('onnx2torch') is None:
    pytest.skip('onnx2torch is not installed', allow_module_level=True)

from odd_files import node, number, onnx_of  # noqa: E402
from onnx import helper, TensorProto  # noqa: E402
from onnx.reference import ReferenceEvaluator  # noqa: E402
from onnx.reference.ops.op_resize import Resize as OnnxResize  # noqa: E402

from intradp_ros.graph.reference_evaluation import run_graph  # noqa: E402
from intradp_ros.graph.serialise import load_graph  # noqa: E402
from intradp_ros.importers.onnx_resize import Resize, resized, ResizeError  # noqa: E402

SHAPE = (1, 2, 5, 6)
X = torch.randn(SHAPE, generator=torch.Generator().manual_seed(1))
ROI = [0.0, 0.0, 0.125, -0.25, 1.0, 1.0, 0.75, 1.25]
MODES = ('nearest', 'linear', 'cubic')
COORDINATES = ('half_pixel', 'half_pixel_symmetric', 'pytorch_half_pixel', 'align_corners',
               'asymmetric', 'tf_crop_and_resize')


class Whole(OnnxResize):
    """ONNX's own Resize; lengths after a resize are whole numbers, axes may count from the end."""

    op_domain = ''

    def _run(self, x: Any, roi: Any = None, scales: Any = None, sizes: Any = None, **said: Any):
        if said.get('axes') is not None:
            said['axes'] = [axis % x.ndim for axis in said['axes']]
        elif scales is not None and said['coordinate_transformation_mode'] in (
                'align_corners', 'tf_crop_and_resize'):
            scales, sizes = None, np.floor(scales * np.array(x.shape)).astype(np.int64)
        return super()._run(x, roi, scales, sizes, **said)


Whole.__name__ = 'Resize'


def defined(said: dict[str, Any], **inputs: list[float]) -> np.ndarray:
    """Return what ONNX's own evaluator makes of X."""
    kinds = {'roi': np.float32, 'scales': np.float32, 'sizes': np.int64}
    names = [name if name in inputs else '' for name in kinds]
    while not names[-1]:
        names.pop()
    weights = [number(name, held, kinds[name]) for name, held in inputs.items()]
    graph = helper.make_graph(
        [node('Resize', ['x', *names], **said)], 'net',
        [helper.make_tensor_value_info('x', TensorProto.FLOAT, SHAPE)],
        [helper.make_tensor_value_info('y', TensorProto.FLOAT, None)], weights)
    made = helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid('', 19)])
    return ReferenceEvaluator(made, new_ops=[Whole]).run(None, {'x': X.numpy()})[0]


def ours(said: dict[str, Any], **inputs: list[float]) -> np.ndarray:
    single = {name: tuple(int(n) if name == 'sizes' else float(np.float32(n)) for n in held)
              for name, held in inputs.items()}
    return resized(Resize(SHAPE, **single, **said))(X).numpy()


@pytest.mark.parametrize(('mode', 'coordinates'), [*product(MODES, COORDINATES)])
def test_every_form_is_as_defined(mode: str, coordinates: str) -> None:
    forms: list[dict[str, Any]] = [{}, {'exclude_outside': 1}, {'antialias': 1},
                                   {'antialias': 1, 'exclude_outside': 1}]
    if mode == 'nearest':
        forms = [{'nearest_mode': way} for way in (
            'round_prefer_floor', 'round_prefer_ceil', 'floor', 'ceil')]
    elif mode == 'cubic':
        forms.append({'cubic_coeff_a': -0.5})
    given: list[dict[str, list[float]]] = [
        {'scales': [1, 1, 2, 2]}, {'scales': [1, 1, 2, 1.75]},
        {'scales': [1, 1, 0.625 if mode == 'nearest' else 0.6, 0.5]},
        {'sizes': [1, 2, 9, 4]}, {'sizes': [1, 3, 10, 12]}]
    for form, sizes in product(forms, given):
        said = {'mode': mode, 'coordinate_transformation_mode': coordinates, **form}
        if coordinates == 'tf_crop_and_resize':
            said['extrapolation_value'] = 7.0
            sizes = {'roi': ROI, **sizes}
        wanted, got = defined(said, **sizes), ours(said, **sizes)
        assert wanted.shape == got.shape and np.abs(wanted - got).max() < 1e-5, (said, sizes)


@pytest.mark.parametrize('policy', ['stretch', 'not_larger', 'not_smaller'])
@pytest.mark.parametrize('axes', [(2, 3), (3, 2), (-1,), (-2, -1)])
def test_axes_and_what_keeps_the_form(axes: tuple[int, ...], policy: str) -> None:
    said = {'mode': 'linear', 'axes': axes, 'keep_aspect_ratio_policy': policy}
    sizes = {'sizes': [9, 8][:len(axes)]}
    np.testing.assert_allclose(ours(said, **sizes), defined(said, **sizes), atol=1e-5)


@pytest.mark.parametrize(('said', 'says'), [
    ({'mode': 'magic'}, 'nearest, linear, cubic'), ({'scales': ()}, 'neither'),
    ({'scales': (2.0,)}, '1 scales'), ({'scales': (1.0, 1.0, 0.0, 1.0)}, 'above 0'),
    ({'coordinate_transformation_mode': 'x'}, 'none of half_pixel'),
    ({'coordinate_transformation_mode': 'tf_crop_and_resize'}, 'roi of 8'),
    ({'antialias': 1}, 'no antialias')])
def test_forms_that_are_none_are_refused(said: dict[str, Any], says: str) -> None:
    with pytest.raises(ResizeError, match=says):
        Resize(SHAPE, **{'scales': (1.0, 1.0, 2.0, 2.0), **said})


def test_whole_numbers_are_not_interpolated() -> None:
    with pytest.raises(ResizeError, match='whole numbers'):
        resized(Resize(SHAPE, scales=(1, 1, 2, 2), mode='linear'), floating=False)
    x = torch.arange(60).reshape(SHAPE)
    got = resized(Resize(SHAPE, scales=(1, 1, 2, 2)), floating=False)(x)
    assert torch.equal(got, x.repeat_interleave(2, 2).repeat_interleave(2, 3))


class Up(nn.Module):
    """A convolution, made larger or smaller."""

    def __init__(self, **said: Any) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv, self.said = nn.Conv2d(3, 4, 3, padding=1), said

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.conv(x)
        if 'like' in self.said:  # a size that is computed from another value's
            size = (y.shape[2] * 2, y.shape[3] * 2)
            return F.interpolate(y, size=size, mode=self.said['like'])
        return F.interpolate(y, **self.said)


@pytest.mark.parametrize('opset', [11, 13, 18])
@pytest.mark.parametrize('said', [
    {'scale_factor': 2}, {'scale_factor': 2, 'mode': 'bilinear', 'align_corners': False},
    {'scale_factor': 1.7, 'mode': 'bilinear', 'align_corners': True}, {'like': 'nearest'},
    {'size': (20, 30), 'mode': 'bilinear', 'align_corners': True}, {'scale_factor': 1.7},
    {'size': (7, 30), 'mode': 'bicubic', 'align_corners': False}, {'like': 'bilinear'},
    {'scale_factor': 0.5, 'mode': 'bicubic', 'align_corners': True}],
    ids=lambda said: '-'.join(map(str, said.values())) if isinstance(said, dict) else None)
def test_what_pytorch_exports(intradp, tmp_path: Path, said: dict[str, Any], opset: int) -> None:
    model, path, out = Up(**said).eval(), tmp_path / 'm.onnx', tmp_path / 'a.graph'
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')
        torch.onnx.export(model, (torch.zeros(1, 3, 16, 24),), str(path), dynamo=False,
                          opset_version=opset)
    result = intradp('model', 'add', path, '--out', out)
    assert result.status == 0, result.err
    pixels = torch.randint(0, 256, (1, 3, 16, 24), dtype=torch.uint8)
    (got,) = run_graph(load_graph(out), [pixels])
    with torch.inference_mode():
        torch.testing.assert_close(got, model(pixels / 255), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(('opset', 'kind', 'said'), [
    (9, 'Upsample', {}), (9, 'Upsample', {'mode': 'linear'}), (10, 'Resize', {}),
    (7, 'Upsample', {'scales': [1.0, 1.0, 2.0, 2.0]})])
def test_older_forms(intradp, tmp_path: Path, opset: int, kind: str, said: dict[str, Any]) -> None:
    path, out = tmp_path / 'm.onnx', tmp_path / 'a.graph'
    inputs = ['x'] if opset < 9 else ['x', 's']
    onnx_of([node(kind, inputs, **said)], opset=opset, weights=[] if opset < 9 else [
        number('s', [1, 1, 2, 2], np.float32)])(path)
    result = intradp('model', 'add', path, '--out', out)
    assert result.status == 0, result.err
    pixels = torch.randint(0, 256, (1, 3, 8, 8), dtype=torch.uint8)
    (got,) = run_graph(load_graph(out), [pixels])
    if 'mode' not in said:
        wanted = (pixels / 255).repeat_interleave(2, 2).repeat_interleave(2, 3)
        torch.testing.assert_close(got, wanted)


class Twice(Up):
    """Made larger twice, by scales that are not whole; the first one is a result, too."""

    def forward(self, x: torch.Tensor) -> Any:
        first = F.interpolate(self.conv(x), scale_factor=1.4)
        second = F.interpolate(first, scale_factor=1.8)
        return first, torch.cat([second, F.interpolate(first, size=second.shape[2:])], 1)


@pytest.mark.parametrize('opset', [9, 13])
def test_sizes_are_those_of_pytorch(intradp, tmp_path: Path, opset: int) -> None:
    """5 times 1.4 is 7, though in single precision 1.4 is a little less."""
    model, path, out = Twice().eval(), tmp_path / 'm.onnx', tmp_path / 'a.graph'
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')
        torch.onnx.export(model, (torch.zeros(1, 3, 5, 10),), str(path), dynamo=False,
                          opset_version=opset)
    assert (result := intradp('model', 'add', path, '--out', out)).status == 0, result.err
    pixels = torch.randint(0, 256, (1, 3, 5, 10), dtype=torch.uint8)
    with torch.inference_mode():
        torch.testing.assert_close(run_graph(load_graph(out), [pixels]),
                                   [*model(pixels / 255)], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(('size', 'scale', 'coordinates', 'rounding', 'places'), [
    (5, 1.4, 'asymmetric', 'floor', [0, 0, 1, 2, 2, 3, 4]),
    (30, 0.7, 'half_pixel', 'ceil', [1, 2, 4, 5, 6, 8, 9, 11, 12, 14, 15, 16, 18, 19, 21, 22, 24,
                                     25, 26, 28, 29]),
    (20, 0.7, 'align_corners', 'round_prefer_ceil', [0, 1, 3, 4, 6, 7, 9, 10, 12, 13, 15, 16, 18,
                                                     19])])
def test_the_nearest_is_that_of_runtimes(size: int, scale: float, coordinates: str, rounding: str,
                                         places: list[int]) -> None:
    """What onnxruntime 1.32 chooses where scales are rounded and coordinates lie between two."""
    made = resized(Resize((1, 1, 1, size), scales=(1, 1, 1, float(np.float32(scale))),
                          coordinate_transformation_mode=coordinates, nearest_mode=rounding))
    assert made(torch.arange(size)[None, None, None].float()).flatten().tolist() == places
