# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Files that people give to `intradp model add` and that cannot be, made anew for each run."""
from __future__ import annotations

from collections.abc import Callable, Sequence
import os
from pathlib import Path
import pickle
from typing import Any
import zipfile

import numpy as np
import onnx
from onnx import helper, numpy_helper, TensorProto
from safetensors.torch import save_file
import torch
from torch import nn

Make = Callable[[Path], object]
SIZE = (1, 3, 8, 8)


class Net(nn.Module):
    """One convolution."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv = nn.Conv2d(3, 4, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.conv(x)


class Brighter(nn.Module):
    """Adds to pixels, round and round."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + 200


class Two(nn.Module):
    """A sum of two pictures."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x + y


class Evil:
    """Leaves a file behind when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f'touch {self.mark}',)


def text(path: Path) -> None:
    path.write_text('this is not a model\n')


def zip_bomb(path: Path) -> None:
    with zipfile.ZipFile(path, 'w', zipfile.ZIP_DEFLATED) as archive:
        archive.writestr('m/data.pkl', b'\x80\x02N.')
        with archive.open('m/data/0', 'w') as file:
            for _ in range(96):
                file.write(bytes(2**20))


def half_of(make: Make, share: float = 0.5) -> Make:
    def cut(path: Path) -> None:
        make(path)
        data = path.read_bytes()
        path.write_bytes(data[:int(len(data) * share)])
    return cut


def script(path: Path) -> None:
    torch.jit.script(Net().eval()).save(str(path))


def script_of_two(path: Path) -> None:
    torch.jit.script(Two().eval()).save(str(path))


def changed(make: Make, member: str, content: bytes) -> Make:
    """Return what makes a zip archive with another content of a member."""
    def write(path: Path) -> None:
        make(path)
        with zipfile.ZipFile(path) as archive:
            held = {m.filename: archive.read(m) for m in archive.infolist()}
        with zipfile.ZipFile(path, 'w') as archive:
            for name, data in held.items():
                archive.writestr(name, content if name.endswith(member) else data)
    return write


def with_member(make: Make, member: str) -> Make:
    """Return what makes a zip archive with one more member."""
    def write(path: Path) -> None:
        make(path)
        with zipfile.ZipFile(path, 'a') as archive:
            archive.writestr(member, pickle.dumps([1]))
    return write


def program(*shape: int, dtype: torch.dtype = torch.float32, model: nn.Module | None = None,
            inputs: int = 1) -> Make:
    def write(path: Path) -> None:
        made = (model or nn.Identity()).eval().to(dtype) if dtype.is_floating_point else (
            model or nn.Identity())
        example = (torch.zeros(shape or SIZE).to(dtype),) * inputs
        torch.export.save(torch.export.export(made, example), path)
    return write


def evil_program(path: Path) -> None:
    """Write a program whose sample inputs would run a command when they are loaded."""
    program(model=Net())(path)
    torch.save({'x': Evil(path.with_suffix('.ran'))}, path.with_suffix('.tmp'))
    changed(lambda _: None, 'sample_inputs/model.pt',
            path.with_suffix('.tmp').read_bytes())(path)


def evil_pickle(path: Path) -> None:
    path.write_bytes(pickle.dumps(Evil(path.with_suffix('.ran'))))


def evil_checkpoint(path: Path) -> None:
    torch.save({'model': Evil(path.with_suffix('.ran'))}, path)


def whole_module(path: Path) -> None:
    torch.save(Net(), path)


def weights(path: Path) -> None:
    torch.save(Net().state_dict(), path)


def old_weights(path: Path) -> None:
    torch.save(Net().state_dict(), path, _use_new_zipfile_serialization=False)


def safetensors(path: Path) -> None:
    save_file(Net().state_dict(), path)


def onnx_of(nodes: Sequence[Any], *, kind: int = TensorProto.FLOAT, dims: Sequence[Any] = SIZE,
            weights: Sequence[Any] = (), opset: int = 17, inputs: Sequence[str] = ('x',),
            domains: Sequence[str] = (), out: int = TensorProto.FLOAT, name: str = 'y') -> Make:
    """Return what writes nodes from x to y as a file."""
    def write(path: Path) -> None:
        graph = helper.make_graph(
            list(nodes), 'net', [helper.make_tensor_value_info(x, kind, dims) for x in inputs],
            [helper.make_tensor_value_info(name, out, None)], list(weights))
        onnx.save(helper.make_model(graph, ir_version=8, opset_imports=[
            helper.make_opsetid('', opset), *(helper.make_opsetid(d, 1) for d in domains)]),
            str(path))
    return write


def node(kind: str, inputs: Sequence[str] = ('x',), outputs: Sequence[str] = ('y',),
         **said: Any) -> Any:
    return helper.make_node(kind, [*inputs], [*outputs], **said)


def external(path: Path) -> None:
    """Write a file whose weights stand in another one, and remove that."""
    weight = numpy_helper.from_array(np.ones((4, 3, 3, 3), np.float32), 'w')
    onnx_of([node('Conv', ['x', 'w'])], weights=[weight])(path)
    onnx.save_model(onnx.load(str(path)), str(path), save_as_external_data=True,
                    location='weights.bin', size_threshold=0)
    path.with_name('weights.bin').unlink()


def typed_weight(kind: int, raw: bytes, dims: Sequence[int]) -> Make:
    weight = TensorProto(name='w', data_type=kind, dims=dims, raw_data=raw)
    return onnx_of([node('Add', ['x', 'w'])], weights=[weight])


def branch() -> Any:
    body = helper.make_graph([node('Relu', ['x'], ['r'])], 'b', [], [
        helper.make_tensor_value_info('r', TensorProto.FLOAT, None)])
    return node('If', ['c'], then_branch=body, else_branch=body)


def loop() -> Any:
    body = helper.make_graph(
        [node('Identity', ['ci'], ['co']), node('Relu', ['vi'], ['vo'])], 'b',
        [helper.make_tensor_value_info('i', TensorProto.INT64, []),
         helper.make_tensor_value_info('ci', TensorProto.BOOL, []),
         helper.make_tensor_value_info('vi', TensorProto.FLOAT, SIZE)],
        [helper.make_tensor_value_info('co', TensorProto.BOOL, []),
         helper.make_tensor_value_info('vo', TensorProto.FLOAT, SIZE)])
    return node('Loop', ['n', 'c', 'x'], body=body)


def number(name: str, value: Any, kind: Any = np.int64) -> Any:
    return numpy_helper.from_array(np.array(value, kind), name)


CONV = (node('Conv', ['x', 'w']),)
KERNEL = (numpy_helper.from_array(np.random.default_rng(0).standard_normal(
    (4, 3, 3, 3)).astype(np.float32), 'w'),)
RELU = (node('Relu'),)
GIVEN = ('--input', '1x3x8x8')
TRUE = number('c', True, np.bool_)

#: Name of the file, what makes it, options, and what the one line must say.
def rotten(make: Make) -> Make:
    """Return what makes a file in which a weight has changed on the disk."""
    def changed(path: Path) -> None:
        make(path)
        weight = Net().conv.weight.detach().numpy().tobytes()
        whole = bytearray(path.read_bytes())
        at = bytes(whole).index(weight[:40]) + 8
        whole[at:at + 4] = b'\0\0@@'
        path.write_bytes(whole)
    return changed


ODD: tuple[tuple[str, Make, tuple[str, ...], str], ...] = (
    # kinds of files
    ('nothing.onnx', lambda p: p.touch(), GIVEN, 'is empty'),
    ('nothing.pt2', lambda p: p.touch(), GIVEN, 'is empty'),
    ('nothing.ts', lambda p: p.touch(), GIVEN, 'is empty'),
    ('nothing.pth', lambda p: p.touch(), GIVEN, 'is empty'),
    ('folder.onnx', lambda p: p.mkdir(), GIVEN, 'is a folder without a config.json'),
    ('folder', lambda p: p.mkdir(), GIVEN, 'is a folder without a config.json'),
    ('text.onnx', text, GIVEN, 'is text'), ('text.ts', text, GIVEN, 'is text'),
    ('text.pt2', text, GIVEN, 'is text'), ('text.pt', text, GIVEN, 'is text'),
    ('noise.onnx', lambda p: p.write_bytes(bytes(range(255, 0, -1)) * 40), GIVEN,
     'not an ONNX file'),
    ('noise.ts', lambda p: p.write_bytes(bytes(range(255, 0, -1)) * 40), GIVEN, 'not known'),
    ('photo.onnx', lambda p: p.write_bytes(b'\x89PNG\r\n\x1a\n' + bytes(99)), GIVEN, 'a picture'),
    ('packed.onnx', lambda p: p.write_bytes(b'\x1f\x8b' + bytes(99)), GIVEN, 'unpack it first'),
    ('keras.h5', lambda p: p.write_bytes(b'\x89HDF\r\n\x1a\n' + bytes(99)), GIVEN, 'HDF5'),
    ('bomb.pt', zip_bomb, GIVEN, 'would unpack to'), ('bomb.pt2', zip_bomb, GIVEN, 'unpack to'),
    ('bomb.ts', zip_bomb, GIVEN, 'would unpack to'),
    ('other.pt2', lambda p: zipfile.ZipFile(p, 'w').close(), GIVEN, 'zip archive of other things'),
    ('library.pt2', with_member(program(), 'x/data/aotinductor/m.so'), GIVEN, 'AOTInductor'),
    ('object.pt2', with_member(program(), 'x/data/constants/opaque_obj_0'), GIVEN,
     'objects of other classes'),
    ('half.ts', half_of(script), GIVEN, 'damaged or incomplete'),
    ('half.pt2', half_of(program()), GIVEN, 'damaged or incomplete'),
    ('half.pt', half_of(weights), GIVEN, 'damaged or incomplete'),
    ('rotten.ts', rotten(script), GIVEN, 'is damaged (the checksum of '),
    ('rotten.pt2', rotten(program(model=Net())), GIVEN, 'is damaged (the checksum of '),
    ('rotten.pth', rotten(weights), GIVEN, 'is damaged (the checksum of '),
    ('pointer.onnx', lambda p: p.write_text('version https://git-lfs.github.com/spec/v1\n'),
     GIVEN, 'git lfs pull'),
    ('page.pt', lambda p: p.write_text('<!DOCTYPE html><p>Not found'), GIVEN, 'is a web page'),
    # places
    ('pipe.pt', os.mkfifo, GIVEN, 'is not a file but a pipe'),
    ('pipe.onnx', os.mkfifo, GIVEN, 'is not a file but a pipe'),
    ('null.pt', lambda p: p.symlink_to('/dev/null'), GIVEN, 'is not a file but'),
    ('link.pt', lambda p: p.symlink_to('nowhere.pt'), GIVEN, "link to 'nowhere.pt'"),
    ('circle.onnx', lambda p: p.symlink_to(p), GIVEN, 'is a link to'),
    ('nowhere.pt', lambda p: None, GIVEN, 'there is no such file'),
    ('\x1b[31mred.pt', lambda p: None, GIVEN, '\\x1b[31mred.pt: there is no such file'),
    # what pickles hold
    ('evil.pt', evil_pickle, GIVEN, 'would run code'),
    ('evil.pth', evil_checkpoint, GIVEN, 'would run code'),
    ('evil.ts', evil_pickle, GIVEN, 'would run code'),
    ('evil.pt2', evil_program, GIVEN, 'would run code'),
    ('module.pth', whole_module, GIVEN, 'holds objects of odd_files.Net'),
    ('module.pt2', whole_module, GIVEN, 'holds objects of odd_files.Net'),
    ('weights.pth', weights, GIVEN, 'weights without a network'),
    ('weights.bin', old_weights, GIVEN, 'weights without a network'),
    ('weights.onnx', weights, GIVEN, 'weights without a network'),
    ('weights.ts', weights, GIVEN, 'weights without a network'),
    ('weights.safetensors', safetensors, GIVEN, 'weights without a network'),
    ('weights.pt2', safetensors, GIVEN, 'weights without a network'),
    # TorchScript
    ('version.ts', changed(script, 'version', b'999\n'), GIVEN, 'version'),
    ('code.ts', changed(script, 'odd_files.py', b'class'), GIVEN, 'cannot load'),
    ('two.ts', script_of_two, GIVEN, 'takes 2 inputs'),
    # torch.export
    ('version.pt2', changed(program(), 'archive_version', b'999'), GIVEN, 'version 999'),
    ('json.pt2', changed(program(), 'model.json', b'{'), GIVEN, 'cannot load'),
    ('two.pt2', program(model=Two(), inputs=2), GIVEN, 'takes 2 inputs'),
    ('last.pt2', program(1, 8, 8, 3), GIVEN, 'colours last'),
    ('grey.pt2', program(1, 1, 8, 8), GIVEN, 'takes 1 channels'),
    ('batch.pt2', program(4, 3, 8, 8), GIVEN, 'batches of 4'),
    ('flat.pt2', program(1, 192), GIVEN, '2 dimensions'),
    ('whole.pt2', program(dtype=torch.int64), GIVEN, 'takes int64'),
    # ONNX: whole files
    ('half.onnx', half_of(onnx_of(CONV, weights=KERNEL), 0.7), GIVEN, 'onnx'),
    ('graphless.onnx', lambda p: p.write_bytes(b'\x08\x08'), GIVEN, 'holds no graph'),
    ('external.onnx', external, GIVEN, 'weights.bin'),
    ('foreign.onnx', onnx_of([node('FusedConv', domain='com.microsoft')],
                             domains=['com.microsoft']), GIVEN, 'FusedConv of com.microsoft'),
    ('unnamed.onnx', onnx_of([node('Strange', domain='mine')]), GIVEN, 'Strange of mine'),
    ('unknown.onnx', onnx_of([node('NoSuch')]), GIVEN, 'NoSuch'),
    ('branch.onnx', onnx_of([branch()], weights=[TRUE]), GIVEN, 'has If'),
    ('loop.onnx', onnx_of([loop()], weights=[TRUE, number('n', 3)]), GIVEN, 'has Loop'),
    ('two.onnx', onnx_of([node('Add', ['x', 'z'])], inputs=['x', 'z']), GIVEN,
     'takes 2 inputs (x, z)'),
    # ONNX: inputs
    ('last.onnx', onnx_of(RELU, dims=[1, 8, 8, 3]), GIVEN, 'colours last'),
    ('grey.onnx', onnx_of(RELU, dims=[1, 1, 8, 8]), GIVEN, 'takes 1 channels'),
    ('batch.onnx', onnx_of(RELU, dims=[8, 3, 8, 8]), GIVEN, 'batches of 8'),
    ('flat.onnx', onnx_of(RELU, dims=[1, 192]), GIVEN, '2 dimensions'),
    ('open.onnx', onnx_of(RELU, dims=['n', 3, 'h', 'w']), (), 'leaves height and width open'),
    ('huge.onnx', onnx_of(RELU, dims=[1, 3, 10**6, 10**6]), (), 'pixels; 67108864 at most'),
    ('boxes.onnx', onnx_of([node('NonMaxSuppression', ('x', 'x'))]), GIVEN,
     'NonMaxSuppression inside'),
    ('asked.onnx', onnx_of(RELU), ('--input', '1x1x8x8'), '--input 1x1x8x8 is not a picture'),
    ('asked.onnx', onnx_of(RELU), ('--input', '1x8x8x3'), 'is not a picture'),
    ('asked.onnx', onnx_of(RELU), ('--input', 'x'), 'not an input shape'),
    ('strings.onnx', onnx_of(RELU, kind=TensorProto.STRING), GIVEN, 'takes string'),
    ('int64.onnx', onnx_of(RELU, kind=TensorProto.INT64), GIVEN, 'takes int64'),
    ('bfloat.onnx', onnx_of(RELU, kind=TensorProto.BFLOAT16), GIVEN, 'takes bfloat16'),
    # ONNX: weights
    ('bfloat16.onnx', typed_weight(TensorProto.BFLOAT16, b'\0\0', [1]), GIVEN,
     'numbers of bfloat16'),
    ('int4.onnx', typed_weight(TensorProto.INT4, b'\0', [1]), GIVEN, 'numbers of int4'),
    ('strange.onnx', typed_weight(99, b'\0', [1]), GIVEN, 'numbers of'),
    ('string.onnx', onnx_of([node('Add', ['x', 'w'])], weights=[
        TensorProto(name='w', data_type=TensorProto.STRING, dims=[1], string_data=[b'a'])]),
     GIVEN, 'numbers of string'),
    ('hollow.onnx', typed_weight(TensorProto.FLOAT, b'\0' * 8, [1000, 1000]), GIVEN, 'damaged'),
    ('vast.onnx', typed_weight(TensorProto.FLOAT, b'', [2**20, 2**20]), GIVEN, 'at most'),
    # ONNX: what is computed
    ('vast_value.onnx', onnx_of([node('ConstantOfShape', ['s'], ['z']),
                                 node('Add', ['x', 'z'])], weights=[number('s', [2**20, 2**20])]),
     GIVEN, 'numbers (z)'),
    ('lacking.onnx', onnx_of([node('Det')]), GIVEN, 'it has no Det'),
    ('quantised.onnx', onnx_of(
        [node('QuantizeLinear', ['x', 's'], ['q']), node('DequantizeLinear', ['q', 's'])],
        weights=[number('s', 0.1, np.float32)]), GIVEN, 'it has no'),
    ('order.onnx', onnx_of([node('Relu', ['z']), node('Relu', ['x'], ['z'])]), GIVEN,
     'made after it'),
    ('missing.onnx', onnx_of([node('Add', ['x', 'nowhere'])]), GIVEN, 'nowhere'),
    ('misfit.onnx', onnx_of(CONV, weights=[number('w', np.ones((4, 5, 3, 3)), np.float32)]),
     GIVEN, 'contradicts itself'),
    ('fixed.onnx', onnx_of([node('Reshape', ['x', 's'])], weights=[number('s', [1, 192])]),
     ('--input', '1x3x9x9'), 'is made for 1x3x8x8, not for 1x3x9x9'),
    ('outputless.onnx', onnx_of(RELU, name='z'), GIVEN, "nothing makes its output 'z'"),
    ('resize.onnx', onnx_of([node('Resize', ['x', '', 's'], mode='magic')],
                            weights=[number('s', [1, 1, 2, 2], np.float32)]), GIVEN, 'magic'),
    ('computed.onnx', onnx_of(
        [node('ReduceSum', ['x'], ['a'], keepdims=0), node('Cast', ['a'], ['b'], to=7),
         node('Unsqueeze', ['b', 'z'], ['c']), node('Concat', ['k', 'c', 'c'], ['s'], axis=0),
         node('Resize', ['x', '', '', 's'])],
        weights=[number('z', [0]), number('k', [1, 3])]), GIVEN, 'from data'),
)
