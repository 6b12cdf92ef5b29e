# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Graphs survive serialisation; malformed ones are refused with one kind of error."""
from __future__ import annotations

from collections.abc import Callable
from functools import cache
import json
import math
from pathlib import Path
from typing import Any
import zipfile

from graph.nets import captured, Heads, prepared, Tables, TwoInputs, UNet, worst_difference
from hypothesis import given, settings
from hypothesis import strategies as st
import pytest
import torch
from torch import nn

from intradp_ros.core.limits import MAX_DIMENSIONS, MAX_OPERATORS, MAX_ROWS
from intradp_ros.graph.capture import capture
from intradp_ros.graph.encoding import decode, encode
from intradp_ros.graph.graph_errors import GraphFormatError
from intradp_ros.graph.operator_graph import OperatorGraph, ParameterRef, ValueRef
from intradp_ros.graph.reference_evaluation import run_graph
from intradp_ros.graph.serialise import graph_from_json, graph_to_json, load_graph, save_graph

Document = dict[str, Any]


@cache
def heads() -> OperatorGraph:
    torch.manual_seed(0)
    return captured(prepared(Heads()), torch.randn(1, 3, 6, 6))


def document() -> Document:
    read: Document = json.loads(graph_to_json(heads()))
    return read


@pytest.mark.parametrize(('model', 'args', 'kwargs'), [
    (UNet(), (torch.randn(1, 3, 8, 8),), {}),
    (Heads(), (torch.randn(1, 3, 8, 8),), {}),
    (Tables(), (torch.randn(5, 7),), {}),
    (TwoInputs(), (torch.randn(3), [torch.randn(3)]), {'mask': torch.rand(3) > 0.5}),
], ids=lambda item: type(item).__name__)
def test_round_trip(model: nn.Module, args: Any, kwargs: Any, tmp_path: Path) -> None:
    graph = captured(prepared(model), *args, kwargs=kwargs)
    text = graph_to_json(graph)
    assert graph_from_json(text) == graph
    assert graph_to_json(graph_from_json(text)) == text
    save_graph(graph, tmp_path / 'graph.zip')
    loaded = load_graph(tmp_path / 'graph.zip')
    assert loaded == graph
    assert all(torch.equal(loaded.parameters[k], t) for k, t in graph.parameters.items())
    assert worst_difference(loaded, model, *args, **kwargs) <= 1e-5


def test_archives_of_equal_graphs_are_equal_and_nothing_else_is_left(tmp_path: Path) -> None:
    for name in ('a', 'b'):
        save_graph(captured(prepared(Heads(), 3), torch.ones(1, 3, 6, 6)), tmp_path / name)
    first, second = (tmp_path / name for name in ('a', 'b'))
    assert first.stat().st_size == second.stat().st_size
    assert sorted(p.name for p in tmp_path.iterdir()) == ['a', 'b']
    save_graph(load_graph(first), second)
    assert first.read_bytes() == second.read_bytes()


def test_a_graph_without_data_is_good_for_planning_only(tmp_path: Path) -> None:
    graph = graph_from_json(graph_to_json(heads()))
    shapes = {name: t.shape for name, t in heads().parameters.items()}
    assert {name: t.shape for name, t in graph.parameters.items()} == shapes
    assert all(t.is_meta for t in graph.parameters.values())
    with pytest.raises(GraphFormatError, match='has no data'):
        save_graph(graph, tmp_path / 'graph.zip')
    assert not list(tmp_path.iterdir())


def test_parameters_are_checked() -> None:
    text, parameters = graph_to_json(heads()), dict(heads().parameters)
    name = next(iter(parameters))
    for wrong, message in (
            (parameters[name].double(), f'{name!r} is float64'),
            (parameters[name][None], f'{name!r} is float32')):
        with pytest.raises(GraphFormatError, match=message):
            graph_from_json(text, {**parameters, name: wrong})
    with pytest.raises(GraphFormatError, match="differ in names, first in 'other'"):
        graph_from_json(text, {**parameters, 'other': torch.ones(1)})
    del parameters[name]
    with pytest.raises(GraphFormatError, match='differ in names'):
        graph_from_json(text, parameters)


def test_an_opaque_model_is_refused_by_name() -> None:
    graph = capture(nn.ReLU(), torch.ones(3), methods=('module',), name='secret')
    with pytest.raises(GraphFormatError, match="'secret' was captured as one operator"):
        graph_to_json(graph)


arguments = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5),
        st.sampled_from([
            torch.float32, torch.bfloat16, torch.int64, torch.strided, torch.contiguous_format,
            torch.channels_last, torch.preserve_format, torch.device('cpu')]),
        st.builds(ValueRef, st.integers(0, 9)), st.builds(ParameterRef, st.text(max_size=5))),
    lambda parts: st.lists(parts, max_size=4), max_leaves=8)


@settings(max_examples=200)
@given(arguments)
def test_arguments_survive(argument: Any) -> None:
    text = json.dumps(encode(argument), allow_nan=False)
    again = decode(json.loads(text))
    assert repr(again) == repr(argument)  # repr: nan is not equal to itself, and 1 is to 1.0


def test_infinities_and_devices() -> None:
    assert encode([math.inf, -math.inf]) == [{'float': 'inf'}, {'float': '-inf'}]
    assert encode(torch.device('meta')) == {'device': 'cpu'}
    with pytest.raises(GraphFormatError, match='complex'):
        encode(1j)


def operator(k: int, **changes: Any) -> Callable[[Document], None]:
    return lambda d: d['operators'][k].update(changes)


def top(**changes: Any) -> Callable[[Document], None]:
    return lambda d: d.update(changes)


def leaf_tree(**changes: Any) -> str:
    return json.dumps([1, {'type': None, 'context': None, 'children_spec': [], **changes}])


@pytest.mark.parametrize(('change', 'message'), [
    (top(format='other'), 'no intradp_ros.graph document'),
    (top(version=2), 'document of version 2'),
    (top(extra=1), r"unknown or missing keys: \['extra'\]"),
    (lambda d: d.pop('name'), r"unknown or missing keys: \['name'\]"),
    (top(values={}), "'values' is a dict, not a list"),
    (top(name=True), "'name' is a bool, not a str"),
    (operator(0, target='os.system.default'), 'which is not allowed'),
    (operator(0, target='aten.__class__.default'), 'which is not allowed'),
    (operator(0, target='aten.conv2d.__call__'), 'which is not allowed'),
    (operator(0, target='aten.__and__.__call__'), 'which is not allowed'),
    (operator(0, target='aten.__iand__.Scalar'), 'which is not allowed'),
    (operator(0, target='aten.conv2d.default.extra'), 'which is not allowed'),
    (operator(0, target='aten.from_file.default'), 'which is not allowed'),
    (operator(0, target='module'), 'which is not allowed'),
    (operator(0, target='aten.no_such_operator.default'), 'torch knows no operator'),
    (operator(0, target='aten.relu_.default'), 'not a functional operator'),
    (operator(0, target='aten.relu.out'), 'not a functional operator'),
    (operator(0, target='aten.save.default'), 'not a functional operator'),
    (operator(0, target='aten.conv2d.op'), 'torch knows no operator|not a functional operator'),
    (operator(0, args=[]), "lacks the argument 'input'"),
    (operator(0, args=[None] * 20), 'arguments it does not take'),
    (operator(0, kwargs={'colour': 1}), 'arguments it does not take'),
    (operator(0, kwargs=[]), "'kwargs' is a list"),
    (operator(0, args=[{'value': 99}, None]), 'reads value 99'),
    (operator(0, args=[{'value': 1}, None]), 'reads value 1, which is out of range or comes lat'),
    (operator(0, args=[{'value': -1}, None]), 'reads value -1'),
    (operator(0, args=[{'value': True}, None]), "unknown argument 'value': True"),
    (operator(0, args=[{'parameter': 'nobody'}, None]), "unknown parameter 'nobody'"),
    (operator(0, args=[{'dtype': 'os'}, None]), "unknown argument 'dtype': 'os'"),
    (operator(0, args=[{'dtype': 'float32', 'x': 1}, None]), 'one is expected'),
    (operator(0, outputs=[0]), 'out of range or made twice'),
    (operator(0, outputs=[77]), 'out of range or made twice'),
    (operator(0, outputs=['1']), 'something else than whole numbers'),
    (operator(0, outputs=[None]), 'has no output'),
    (lambda d: d['operators'].reverse(), 'comes later'),
    (lambda d: d['operators'].pop(), 'out of range or comes later|neither an input'),
    (lambda d: d['values'].append(d['values'][0]), 'neither an input nor the result'),
    (lambda d: d['values'][0].update(shape=[-1]), 'impossible shape'),
    (lambda d: d['values'][0].update(shape=[2**21, 2**21]), 'impossible shape'),
    (lambda d: d['values'][0].update(shape=[1] * (MAX_DIMENSIONS + 1)), 'impossible shape'),
    (lambda d: d['values'][0].update(shape=[MAX_ROWS + 1]), 'impossible shape'),
    (lambda d: d['operators'].extend([d['operators'][0]] * MAX_OPERATORS), 'more than 32768 op'),
    (lambda d: d['values'].extend([d['values'][0]] * 4 * MAX_OPERATORS), 'more than 32768 op'),
    (lambda d: d['values'][0].update(shape=[1.0]), 'something else than whole numbers'),
    (lambda d: d['values'][0].update(dtype='float'), "unknown dtype 'float'"),
    (lambda d: d['parameters'].append(d['parameters'][0]), 'two parameters'),
    (top(inputs=[5, 5]), 'inputs and arguments'),
    (top(inputs=[1000]), 'input 1000 is out of range'),
    (top(arguments=[]), 'inputs and arguments'),
    (top(outputs=[]), 'another count of leaves'),
    (top(output_tree='['), 'structure is not a pair'),
    (top(output_tree='[2, {}]'), 'unknown protocol'),
    (top(output_tree='[1, {}]'), 'other keys'),
    (top(output_tree=leaf_tree(children_spec=3)), 'children are not a list'),
    (top(output_tree=leaf_tree(children_spec=[1])), 'a leaf that has parts'),
    (top(output_tree=leaf_tree(type='collections.defaultdict')), 'forbidden type'),
    (top(output_tree=leaf_tree(type='a', context='{"__enum__": true, "fqn": "os:x"}')),
     'names modules to import'),
    (top(output_tree=leaf_tree(type='builtins.dict', context='[[1]]')), 'not plain names'),
])
def test_malformed_documents_are_refused(
        change: Callable[[Document], Any], message: str) -> None:
    changed = document()
    change(changed)
    with pytest.raises(GraphFormatError, match=message):
        graph_from_json(json.dumps(changed))


@pytest.mark.parametrize('text', [
    '', '[]', 'null', '{', '"x"', '{"a": NaN}', '[' * 100_000, '{"a": 1, "a": 2}',
    '{"format": ' + '9' * 5000 + '}'])
def test_texts_that_are_no_documents_are_refused(text: str) -> None:
    with pytest.raises(GraphFormatError):
        graph_from_json(text)


def test_deep_arguments_are_refused() -> None:
    nested: Any = 0
    for _ in range(900):
        nested = [nested]
    changed = document()
    changed['operators'][0]['args'] = [nested, None]
    with pytest.raises(GraphFormatError):
        graph_from_json(json.dumps(changed))


json_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-2, 40), st.floats(allow_nan=False),
              st.text(max_size=4), st.sampled_from(
                  ['aten.add.Tensor', 'aten.split.Tensor', 'float32', 'value', '[1, {}]'])),
    lambda parts: st.one_of(
        st.lists(parts, max_size=3), st.dictionaries(st.sampled_from(
            ['value', 'parameter', 'dtype', 'float', 'name', 'x']), parts, max_size=2)),
    max_leaves=5)


def places(item: Any, here: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the paths to all parts of a document."""
    parts = item.items() if isinstance(item, dict) else enumerate(
        item if isinstance(item, list) else ())
    return [path for key, part in parts for path in ((*here, key), *places(part, (*here, key)))]


PLACES = cache(lambda: places(document()))


@settings(max_examples=400)
@given(st.data())
def test_fuzzed_documents_are_read_or_refused(data: st.DataObject) -> None:
    changed = document()
    for _ in range(data.draw(st.integers(1, 3))):
        *way, last = data.draw(st.sampled_from(PLACES()))
        try:
            holder: Any = changed
            for key in way:
                holder = holder[key]
            if data.draw(st.booleans()):
                holder[last] = data.draw(json_values)
            else:
                del holder[last]
        except (KeyError, IndexError, TypeError):
            continue  # an earlier change took the place away
    try:
        graph = graph_from_json(json.dumps(changed))
    except GraphFormatError:
        return
    text = graph_to_json(graph)
    assert graph_to_json(graph_from_json(text)) == text


@settings(max_examples=200)
@given(st.integers(0, 10**6), st.characters())
def test_fuzzed_texts_are_read_or_refused(place: int, character: str) -> None:
    text = graph_to_json(heads())
    place %= len(text)
    try:
        graph_from_json(text[:place] + character + text[place + 1:])
    except GraphFormatError:
        return


@settings(max_examples=60)
@given(place=st.integers(0, 10**9), byte=st.integers(0, 255))
def test_fuzzed_archives_are_read_or_refused(
        tmp_path_factory: pytest.TempPathFactory, place: int, byte: int) -> None:
    path = tmp_path_factory.mktemp('fuzz') / 'graph.zip'
    save_graph(heads(), path)
    data = bytearray(path.read_bytes())
    data[place % len(data)] = byte
    path.write_bytes(data)
    try:
        assert load_graph(path) == heads()
    except GraphFormatError:
        return


def test_archives_with_other_contents_are_refused(tmp_path: Path) -> None:
    path = tmp_path / 'graph.zip'
    path.write_bytes(b'no zip')
    with pytest.raises(GraphFormatError, match='is not an archive of a graph'):
        load_graph(path)
    with zipfile.ZipFile(path, 'w') as archive:
        archive.writestr('graph.json', graph_to_json(heads()))
    with pytest.raises(GraphFormatError, match='other files'):
        load_graph(path)
    with zipfile.ZipFile(path, 'a') as archive:
        archive.writestr('parameters.safetensors', b'nothing')
    with pytest.raises(GraphFormatError, match='is not an archive of a graph'):
        load_graph(path)


def test_parameters_that_are_views_of_each_other_can_be_saved(tmp_path: Path) -> None:
    class Shares(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.all = nn.Parameter(torch.randn(4, 4))
            self.row = nn.Parameter(self.all[1])

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x @ self.all + self.row

    graph = captured(Shares(), torch.randn(2, 4))
    save_graph(graph, tmp_path / 'graph.zip')
    loaded = load_graph(tmp_path / 'graph.zip')
    assert torch.equal(loaded.parameters['row'], loaded.parameters['all'][1])


def test_operators_with_names_as_in_python_are_kept() -> None:
    class Bits(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return ((x << 1) | 1) & 6 ^ (x >> 2)

    x = torch.arange(8)
    graph = graph_from_json(graph_to_json(capture(Bits(), x)))
    assert torch.equal(run_graph(graph, [x])[0], Bits()(x))
