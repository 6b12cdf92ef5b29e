# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Models that `intradp model add` once blamed for what was not their fault, or took wrongly."""
from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from intradp_ros.graph.capture import capture
from intradp_ros.graph.graph_errors import CaptureError
from intradp_ros.graph.reference_evaluation import run_graph
from intradp_ros.graph.serialise import load_graph

onnx = pytest.importorskip('onnx')
if find_spec('onnx2torch') is None:
    pytest.skip('onnx2torch is not installed', allow_module_level=True)

from odd_files import Brighter, KERNEL, Net, node, number, onnx_of, program  # noqa: E402

PIXELS = torch.randint(0, 256, (1, 3, 8, 8), generator=torch.Generator().manual_seed(3),
                       dtype=torch.uint8)


def added(intradp: Callable[..., Any], path: Path | str, tmp_path: Path, *options: object,
          ) -> list[torch.Tensor]:
    """Return what the archive of a model computes of some pixels."""
    out = tmp_path / 'a.graph'
    result = intradp('model', 'add', path, '--input', '1x3x8x8', *options, '--out', out)
    assert result.status == 0, result.err
    return run_graph(load_graph(out), [PIXELS])


def test_half_precision(intradp, tmp_path: Path) -> None:
    """Of a factory, a program and ONNX: computed as it is, single precision in and out."""
    wanted = Net().eval().half()((PIXELS / 255).half()).float()
    path = tmp_path / 'half.pt2'
    program(dtype=torch.float16, model=Net())(path)
    (got,) = added(intradp, path, tmp_path)
    torch.testing.assert_close(got, wanted, rtol=1e-2, atol=1e-2)
    assert got.dtype is torch.float32
    (got,) = added(intradp, 'example_models:half', tmp_path)
    assert got.dtype is torch.float32
    half = onnx.numpy_helper.from_array(np.ones((2, 3, 1, 1), np.float16) / 3, 'w')
    onnx_of([node('Conv', ['x', 'w'])], kind=onnx.TensorProto.FLOAT16, weights=[half],
            out=onnx.TensorProto.FLOAT16)(tmp_path / 'half.onnx')
    (got,) = added(intradp, tmp_path / 'half.onnx', tmp_path)
    wanted = (PIXELS / 255).mean(1, keepdim=True).expand(-1, 2, -1, -1)
    torch.testing.assert_close(got, wanted, rtol=1e-2, atol=1e-2)


def test_pixels_are_what_a_file_of_uint8_takes(intradp, tmp_path: Path) -> None:
    """Arithmetic of 8 bits goes round as in the file; nothing is divided by 255."""
    onnx_of([node('Add', ['x', 'c'])], kind=onnx.TensorProto.UINT8, out=onnx.TensorProto.UINT8,
            weights=[number('c', 200, np.uint8)])(tmp_path / 'm.onnx')
    (got,) = added(intradp, tmp_path / 'm.onnx', tmp_path)
    assert torch.equal(got, PIXELS + 200)
    result = intradp('model', 'add', tmp_path / 'm.onnx', '--mean', '0.5,0.5,0.5')
    assert result.status == 2 and 'normalises inside' in result.err
    path = tmp_path / 'p.pt2'
    program(dtype=torch.uint8, model=Brighter())(path)
    assert torch.equal(added(intradp, path, tmp_path)[0], PIXELS + 200)


def test_what_computes_nothing_is_refused(intradp, tmp_path: Path) -> None:
    path, out = tmp_path / 'm.pt2', tmp_path / 'a.graph'
    program()(path)
    result = intradp('model', 'add', path, '--floats', '--out', out)
    assert result.status == 2 and 'computes nothing' in result.err and not out.exists()


def test_infinities_are_equal_to_themselves(intradp, tmp_path: Path) -> None:
    """Masked logits and logarithms of nothing are results as any others."""
    (got,) = added(intradp, 'example_models:masked', tmp_path)
    assert got.isinf().any() and got.isnan().any() and got.isfinite().any()
    onnx_of([node('Sub', ['x', 'x'], ['z']), node('Log', ['z'])])(tmp_path / 'm.onnx')
    (got,) = added(intradp, tmp_path / 'm.onnx', tmp_path)
    assert got.isneginf().all()


def test_normalisation_over_channels(intradp, tmp_path: Path) -> None:
    """onnx.reference sums over as many channels as there are samples: it was the one in error."""
    onnx_of([node('LRN', alpha=0.5, beta=0.75, bias=1.0, size=3)])(tmp_path / 'm.onnx')
    (got,) = added(intradp, tmp_path / 'm.onnx', tmp_path)
    wanted = nn.LocalResponseNorm(3, alpha=0.5, beta=0.75, k=1.0)(PIXELS / 255)
    torch.testing.assert_close(got, wanted)


def test_who_is_wrong_is_not_guessed(intradp, tmp_path: Path,
                                     monkeypatch: pytest.MonkeyPatch) -> None:
    """Two evaluations that differ: the operator is named, neither is accused."""
    monkeypatch.setattr(torch.nn.Sigmoid, 'forward', lambda self, x: x)
    onnx_of([node('Relu', ['x'], ['r']), node('Sigmoid', ['r'], ['s'], name='gate'),
             node('Neg', ['s'])])(tmp_path / 'm.onnx')
    result = intradp('model', 'add', tmp_path / 'm.onnx', '--out', tmp_path / 'a.graph')
    assert result.status == 2 and 'first at Sigmoid (gate)' in result.err
    assert 'is not known' in result.err


def test_constants_of_every_form(intradp, tmp_path: Path) -> None:
    """Sizes that are computed from the shape, in newer operators with bounds, too."""
    onnx_of([node('Shape', ['x'], ['s'], start=0, end=2),
             node('Constant', [], ['n'], value_ints=[8, 4, 2]),
             node('Concat', ['s', 'n'], ['t'], axis=0), node('Reshape', ['x', 't'], ['r']),
             node('Constant', [], ['f'], value_float=2.0), node('Mul', ['r', 'f'])])(
        tmp_path / 'm.onnx')
    (got,) = added(intradp, tmp_path / 'm.onnx', tmp_path)
    torch.testing.assert_close(got, (PIXELS / 255).reshape(1, 3, 8, 4, 2) * 2)


def test_slices_and_repetitions_of_known_sizes(intradp, tmp_path: Path) -> None:
    """Bounds and sizes in constants are numbers: no operator reads them from a tensor."""
    onnx_of([node('Slice', ['x', 'b', 'e', 'a', 's'], ['p']), node('Tile', ['p', 't'], ['q']),
             node('Expand', ['q', 'n'])],
            weights=[number('b', [1, -6]), number('e', [7, 2**62]), number('a', [2, -1]),
                     number('s', [2, 1]), number('t', [1, 2, 1, 1]),
                     number('n', [2, 1, 1, 1, 1])])(tmp_path / 'm.onnx')
    (got,) = added(intradp, tmp_path / 'm.onnx', tmp_path)
    part = (PIXELS / 255)[:, :, 1:7:2, -6:]
    torch.testing.assert_close(got, part.repeat(1, 2, 1, 1)[None].expand(2, -1, -1, -1, -1))


def test_the_file_says_the_size(intradp, tmp_path: Path) -> None:
    out = tmp_path / 'a.graph'
    onnx_of([node('Conv', ['x', 'w'])], weights=KERNEL)(tmp_path / 'm.onnx')
    assert intradp('model', 'add', tmp_path / 'm.onnx', '--out', out).status == 0
    program(model=Net())(tmp_path / 'm.pt2')
    assert intradp('model', 'add', tmp_path / 'm.pt2', '--out', out).status == 0


@pytest.mark.parametrize('name', ['script.pt', 'script.pth', 'program.pt', 'program.ts'])
def test_files_are_known_by_what_they_hold(intradp, tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    if name.startswith('script'):
        torch.jit.script(Net().eval()).save(str(path))
    else:
        program(model=Net())(path)
    (got,) = added(intradp, path, tmp_path)
    with torch.inference_mode():
        torch.testing.assert_close(got, Net()(PIXELS / 255))


@pytest.mark.parametrize('wrap', [
    lambda m: m.state_dict(), lambda m: m, lambda m: {'state_dict': m.state_dict(), 'epoch': 3},
    lambda m: {'model': None, 'ema': m}, lambda m: {'model': m.state_dict(), 'optimizer': {}},
    lambda m: {f'module.{k}': v for k, v in m.state_dict().items()},
    lambda m: {'state_dict': {f'model.{k}': v for k, v in m.state_dict().items()}}],
    ids=['state', 'module', 'nested', 'ema', 'model', 'parallel', 'lightning'])
def test_weights_as_trainings_keep_them(intradp, tmp_path: Path, example_models: Any,
                                        wrap: Callable[[nn.Module], Any]) -> None:
    model = example_models.net()
    nn.init.constant_(model.conv.weight, 0.25)
    torch.save(wrap(model), tmp_path / 'w.pth')
    (got,) = added(intradp, 'example_models:net', tmp_path, '--weights', tmp_path / 'w.pth')
    with torch.inference_mode():
        torch.testing.assert_close(got, model.eval()(PIXELS / 255))


def test_weights_of_before_pytorch_1_6(intradp, tmp_path: Path, example_models: Any) -> None:
    model = example_models.net()
    nn.init.constant_(model.conv.weight, 0.25)
    torch.save(model.state_dict(), tmp_path / 'w.pth', _use_new_zipfile_serialization=False)
    (got,) = added(intradp, 'example_models:net', tmp_path, '--weights', tmp_path / 'w.pth')
    with torch.inference_mode():
        torch.testing.assert_close(got, model.eval()(PIXELS / 255))
    torch.save(model, tmp_path / 'm.pth', _use_new_zipfile_serialization=False)
    result = intradp('model', 'add', 'example_models:net', '--input', '1x3x8x8', '--weights',
                     tmp_path / 'm.pth', '--out', tmp_path / 'b.graph')
    assert result.status == 2 and 'cannot be read as a checkpoint of tensors' in result.err


@pytest.mark.parametrize(('make', 'says'), [
    (lambda p: p.touch(), 'is empty'), (lambda p: p.write_text('x' * 99), 'is text'),
    (lambda p: torch.save([1, 2], p), 'no weights by name'),
    (lambda p: torch.save({'a': torch.ones(3)}, p), 'Missing key'),
    (lambda p: p.write_bytes(b'\x10' + bytes(7) + b'{"a": 1}' + bytes(9)), 'cannot be read')])
def test_weights_that_are_none(intradp, tmp_path: Path, make: Callable[[Path], object],
                               says: str) -> None:
    make(tmp_path / 'w.pth')
    result = intradp('model', 'add', 'example_models:net', '--input', '1x3x8x8', '--weights',
                     tmp_path / 'w.pth', '--out', tmp_path / 'a.graph')
    assert result.status == 2 and says in result.err and result.err.count('\n') == 1


@pytest.mark.parametrize(('name', 'says'), [
    ('two_inputs', 'takes 2 inputs (image, other)'), ('raises', 'a model may raise anything'),
    ('nothing_at_all', 'no tensor'), ('failing', 'not here'), ('not_a_module', 'returned a int'),
    ('no_such', 'no_such'), ('grey', 'channels'),
    ('unhashable', "list the parts of Equal (unhashable type: 'Equal')")])
def test_models_that_cannot_be(intradp, tmp_path: Path, name: str, says: str) -> None:
    result = intradp('model', 'add', f'example_models:{name}', '--input', '1x3x8x8', '--out',
                     tmp_path / 'a.graph')
    assert result.status == 2 and says in result.err and 'Traceback' not in result.err


def test_a_model_whose_parts_cannot_be_listed_is_refused_by_all(intradp, example_models) -> None:
    result = intradp('inspect', 'example_models:unhashable', '--input', '1x3x8x8')
    assert result.status == 2 and 'list the parts of Equal' in result.err
    with pytest.raises(CaptureError, match='list the parts of Equal'):
        capture(example_models.unhashable(), torch.zeros(1, 3, 8, 8))


@pytest.mark.parametrize(('held', 'says'), [
    ({'model': None, 'ema': None}, 'weights without a network'),
    ({'a': torch.ones(2)}, 'weights without a network'), ([1], 'weights without a network'),
    ({'model': nn.Linear(2, 2)}, 'not a model of ultralytics')])
def test_checkpoints_that_are_not_of_ultralytics(intradp, tmp_path: Path, held: Any,
                                                 says: str) -> None:
    pytest.importorskip('ultralytics')
    torch.save(held, tmp_path / 'm.pt')
    result = intradp('model', 'add', f'ultralytics:{tmp_path / "m.pt"}')
    assert result.status == 2 and says in result.err and 'KeyError' not in result.err
