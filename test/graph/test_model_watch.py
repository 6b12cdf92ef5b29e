# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Whatever is changed of a model is noticed, and what is put back counts as unchanged."""
from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
import ctypes
from decimal import Context, Decimal, getcontext
from functools import partial
import importlib
import io
import logging
import os
import string
import sys
import types
from typing import Any
import weakref

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations, prune

from intradp_ros.graph.model_watch import ModelWatch

LIMIT = 1.0


class Slots:
    __slots__ = ('gain', '__weakref__')

    def __init__(self) -> None:
        self.gain = 1.0


def scale(x: torch.Tensor, by: float = 1.0) -> torch.Tensor:
    return x * by


SLOTS, WORDS, TABLE, BYTES, LARGE = Slots(), {'a'}, np.ones(3), bytearray(b'ab'), np.ones(50_000)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv, self.norm = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)
        self.act, self.drop = nn.Tanh(), nn.Dropout()
        self.gain, self.settings = 2.0, {'sizes': [1, 2]}
        self.scaled, self.cell = partial(torch.mul, other=1.0), ctypes.c_double(1.0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.drop(self.act(self.norm(self.conv(x)))) * self.gain + LIMIT
        y = self.scaled(scale(F.relu(y))) * self.cell.value * SLOTS.gain * float(TABLE.sum())
        if 'b' in WORDS or os.environ.get('NET_TWICE') or BYTES[0] == 0 or LARGE[7]:
            y = y * 2
        return y


def scaled(net: Net) -> dict[str, torch.Tensor]:
    return {k: v * 2 + 1 for k, v in net.state_dict().items()}


def moving_average(net: Net) -> None:
    for p in net.parameters():
        p.data.mul_(0.9).add_(0.1)


def by_numpy(net: Net) -> None:
    net.conv.weight.detach().numpy()[...] += 1


def another_global(net: Net) -> None:
    globals()['LIMIT'] = 0.5


def channels_last(net: Net) -> None:
    nn.Module.to(net, memory_format=torch.channels_last)  # type: ignore[call-overload]


def other_code(net: Net) -> None:
    scale.__code__ = (lambda x, by=2.0: x / by).__code__


def other_key(net: Net) -> None:
    net.settings['colours'] = net.settings.pop('sizes')


UNDO: dict[str, Callable[[], Any]] = {
    'in slots': lambda: setattr(SLOTS, 'gain', 1.0), 'in a set': lambda: WORDS.discard('b'),
    'in an array': lambda: TABLE.__setitem__(1, 1.0),
    'in bytes': lambda: BYTES.__setitem__(0, 97),
    'a variable': lambda: os.environ.pop('NET_TWICE'),
    'a default': lambda c=scale.__defaults__: setattr(scale, '__defaults__', c),
    'code': lambda c=scale.__code__: setattr(scale, '__code__', c),
    'a function of PyTorch': lambda f=F.relu: setattr(F, 'relu', f),
    'a layer of PyTorch': lambda f=nn.Conv2d.forward: setattr(nn.Conv2d, 'forward', f),
    'a function that a layer of PyTorch calls': lambda f=F.conv2d: setattr(F, 'conv2d', f),
}


CHANGES: dict[str, Callable[[Net], Any]] = {
    'load_state_dict': lambda net: net.load_state_dict(scaled(net)),
    'assigned': lambda net: net.load_state_dict(scaled(net), assign=True),
    'moving average': moving_average, 'by NumPy': by_numpy, 'a global': another_global,
    'other data': lambda net: setattr(net.conv.weight, 'data', net.conv.weight.data * 2),
    'a buffer': lambda net: net.norm.running_mean.data.add_(1),
    'a layer': lambda net: setattr(net, 'act', nn.Sigmoid()),
    'training': lambda net: net.train(), 'a part in training': lambda net: net.drop.train(),
    'an attribute': lambda net: setattr(net, 'gain', 3.0),
    'inside a container': lambda net: net.settings['sizes'].append(3),
    'a setting of a layer': lambda net: setattr(net.norm, 'eps', 1e-3),
    'a hook': lambda net: net.act.register_forward_hook(lambda *call: call[-1] * 2),
    'a hook before': lambda net: net.act.register_forward_pre_hook(lambda m, x: (x[0] * 2,)),
    'a forward': lambda net: setattr(net.act, 'forward', torch.relu),
    'an attribute of a parameter': lambda net: setattr(net.conv.weight, 'scale', 2.0),
    'a single number': lambda net: net.conv.weight.data[1, 2, 0].sub_(1),
    'in slots': lambda net: setattr(SLOTS, 'gain', 2.0), 'in a set': lambda net: WORDS.add('b'),
    'in an array': lambda net: TABLE.__setitem__(1, 5.0),
    'in bytes': lambda net: BYTES.__setitem__(0, 0), 'another key': other_key,
    'in a C number': lambda net: setattr(net.cell, 'value', 2.0),
    'a keyword': lambda net: net.scaled.keywords.update(other=3.0),
    'a default': lambda net: setattr(scale, '__defaults__', (3.0,)), 'code': other_code,
    'a variable': lambda net: os.environ.__setitem__('NET_TWICE', '1'),
    'a function of PyTorch': lambda net: setattr(F, 'relu', torch.relu),
    'a layer of PyTorch': lambda net: setattr(nn.Conv2d, 'forward', lambda self, x: x),
    'a function that a layer of PyTorch calls': lambda net: setattr(F, 'conv2d', torch.conv1d),
    'other memory format': channels_last,
    'half precision': lambda net: net.half(),
    'pruned': lambda net: prune.l1_unstructured(net.conv, 'weight', 0.5),
    'parametrised': lambda net: parametrizations.weight_norm(net.conv),
}


@pytest.mark.parametrize('change', CHANGES)
def test_changes_are_noticed(change: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), 'LIMIT', 1.0)
    net = Net().eval()
    watch = ModelWatch(net)
    assert [watch.changed() for _ in range(3)] == [''] * 3
    try:
        CHANGES[change](net)
        assert watch.changed()
    finally:
        UNDO.get(change, int)()


def test_a_global_that_is_named_like_an_attribute_is_nobodys(
        monkeypatch: pytest.MonkeyPatch) -> None:
    """In a script or notebook all variables are globals of the module that the model is in."""
    for name in ('conv', 'settings', 'weight', 'norm', 'drop', 'act'):
        monkeypatch.setitem(globals(), name, [1])
    watch = ModelWatch(Net().eval())
    for name in ('conv', 'settings', 'weight', 'norm', 'drop', 'act'):
        monkeypatch.setitem(globals(), name, [2])
    assert watch.changed() == ''


class Meta(type):
    gain = 1.0


class Made(metaclass=Meta):
    pass


class Scripted(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gain = 1.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.gain


class Answering:
    """An object whose class answers for every name."""

    __slots__ = ('held',)

    def __init__(self) -> None:
        self.held = {'gain': 1.0}

    def __getattr__(self, name: str) -> Any:
        return self.held[name]


class Kept:
    gain = 1.0


class Kept3:
    gain = 3.0


def times(gain: float) -> Callable[..., float]:
    return lambda *x: gain


def halved(x: float) -> float:
    return x / 2


def module_of(name: str) -> Any:
    module: Any = types.ModuleType(name)
    exec('GAIN = 1.0\ndef gain():\n    return GAIN\n', vars(module))
    return module


KEPT, IN_CONTEXT = Kept(), ContextVar('gain', default=1.0)
BY_TEXT, FILE = 1.0, io.BytesIO(b'a')
ALIKE, MODULES = [times(1.0), times(2.0)], [module_of('one'), module_of('other')]
NAMED = {'it': 'GAIN'}
LOGGER, OBJECTS = logging.getLogger('of this test'), np.array([1.0], object)
BEHIND, DIGITS = weakref.proxy(SLOTS), Context(prec=3)
SCRIPTED, ANSWERING, REFERRED = torch.jit.script(Scripted()), Answering(), weakref.ref(KEPT)

#: What a model reads, what changes it, and what puts it back where others would see it.
ELSEWHERE: dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]] = {
    'behind a weak reference': (
        lambda: REFERRED().gain,  # type: ignore[union-attr]
        lambda patch: setattr(KEPT, 'gain', 2.0)),
    'behind a weak proxy': (lambda: BEHIND.gain, lambda patch: patch.setattr(SLOTS, 'gain', 2.0)),
    'the first of closures of one function': (
        lambda: sum(f() for f in ALIKE),
        lambda patch: setattr(ALIKE[0].__closure__[0],  # type: ignore[index]
                              'cell_contents', 3.0)),
    'the last of closures of one function': (
        lambda: sum(f() for f in ALIKE),
        lambda patch: setattr(ALIKE[1].__closure__[0],  # type: ignore[index]
                              'cell_contents', 5.0)),
    'a global of one of two modules': (
        lambda: sum(module.gain() for module in MODULES),
        lambda patch: patch.setattr(MODULES[0], 'GAIN', 2.0)),
    'a global of the other': (
        lambda: sum(module.gain() for module in MODULES),
        lambda patch: patch.setattr(MODULES[1], 'GAIN', 2.0)),
    'a method of tensors': (
        lambda: torch.ones(1).sigmoid(), lambda patch: patch.setattr(
            torch.Tensor, 'sigmoid', lambda x: -x, raising=False)),
    'an operator of tensors': (
        lambda: torch.ones(1) - 3.0, lambda patch: patch.setattr(
            torch.Tensor, '__sub__', lambda x, y: x + y)),
    'a function in place of another': (
        lambda: halved(1.0), lambda patch: patch.setitem(globals(), 'halved', times(3.0))),
    'a class in place of another': (
        lambda: Made.gain, lambda patch: patch.setitem(globals(), 'Made', Kept3)),
    'a global that is not there': (
        lambda: globals().get('LATER', 1.0), lambda patch: patch.setitem(globals(), 'LATER', 2.0)),
    'an attribute of a module that is not there': (
        lambda: getattr(string, 'later', 1.0),
        lambda patch: patch.setattr(string, 'later', 2.0, raising=False)),
    'by a text that is held': (
        lambda: getattr(MODULES[0], NAMED['it']),
        lambda patch: patch.setattr(MODULES[0], 'GAIN', 2.0)),
    'another module': (
        lambda: string.of_ours,  # type: ignore[attr-defined]
        lambda patch: patch.setitem(globals(), 'string', types.SimpleNamespace(of_ours=2.0))),
    'the level of a logger': (
        lambda: LOGGER.isEnabledFor(10), lambda patch: LOGGER.setLevel(5)),
    'in an array of objects': (
        lambda: OBJECTS[0], lambda patch: OBJECTS.__setitem__(0, 2.0)),
    'in an object of C': (
        lambda: float(DIGITS.divide(1, 3)), lambda patch: setattr(DIGITS, 'prec', 1)),
    'in a context': (lambda: IN_CONTEXT.get(), lambda patch: IN_CONTEXT.set(2.0)),
    'of a metaclass': (lambda: Made.gain, lambda patch: patch.setattr(Meta, 'gain', 2.0)),
    'of a scripted module': (
        lambda: SCRIPTED.gain, lambda patch: setattr(SCRIPTED, 'gain', 2.0)),
    'in a file in memory': (lambda: FILE.getvalue()[0], lambda patch: FILE.write(b'b')),
    'of a class that answers for all': (
        lambda: ANSWERING.gain, lambda patch: ANSWERING.held.update(gain=2.0)),
    'of a class of PyTorch': (
        lambda: nn.Conv2d.of_ours,  # type: ignore[attr-defined]
        lambda patch: patch.setattr(nn.Conv2d, 'of_ours', 2.0)),
    'by a text of its module': (
        lambda: getattr(sys.modules[__name__], 'BY_TEXT'),  # noqa: B009
        lambda patch: patch.setitem(globals(), 'BY_TEXT', 2.0)),
    'by a text that is made': (
        lambda: globals()['BY_' + 'TEXT'], lambda patch: patch.setitem(globals(), 'BY_TEXT', 2.0)),
    'in a module that is imported by a text': (
        lambda: importlib.import_module('string').of_ours,
        lambda patch: patch.setattr('string.of_ours', 2.0)),
    'instead of a built-in': (
        lambda: abs(-1.0), lambda patch: patch.setitem(globals(), 'abs', lambda x: x)),
    'the directory': (lambda: len(os.getcwd()), lambda patch: patch.chdir('/')),
    'the digits of decimals': (
        lambda: float(Decimal(1) / 3), lambda patch: patch.setattr(getcontext(), 'prec', 3)),
}


@pytest.mark.parametrize('place', ELSEWHERE)
def test_what_code_reads_elsewhere_is_noticed(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Reading(Net):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * read()

    for module in (nn.Conv2d, string):
        monkeypatch.setattr(module, 'of_ours', 1.0, raising=False)
    read, change = ELSEWHERE[place]
    net = Reading().eval()
    watch = ModelWatch(net)
    before = net(torch.ones(1))
    assert not watch.changed() and not watch.changed()
    change(monkeypatch)
    assert not torch.equal(net(torch.ones(1)), before)
    assert watch.changed() and watch.changed()


def test_a_number_in_a_large_array_is_found_before_long() -> None:
    net = Net().eval()
    watch = ModelWatch(net)
    LARGE[7] = 0.0
    try:
        assert any(watch.changed() for _ in range(20))
    finally:
        LARGE[7] = 1.0


def test_what_a_function_imports_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType('settings_of_net')
    module.GAIN = 1.0  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, 'settings_of_net', module)

    class Importing(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            from settings_of_net import GAIN  # type: ignore[import-not-found]
            return x * GAIN
    watch = ModelWatch(Importing().eval())
    module.GAIN = 2.0  # type: ignore[attr-defined]
    assert watch.changed()


def test_what_is_put_back_counts_as_unchanged() -> None:
    net = Net().eval()
    watch, state = ModelWatch(net), {k: v.clone() for k, v in Net().state_dict().items()}
    net.train()
    assert watch.changed() == 'training'
    net.eval()
    assert not watch.changed()
    net.load_state_dict(state, assign=True)  # the same numbers elsewhere
    assert not watch.changed()
    with torch.no_grad():
        net.conv.weight.add_(1)
    assert watch.changed() == 'conv.weight'


def test_a_single_number_that_torch_does_not_count_is_found_before_long() -> None:
    net = nn.Sequential(nn.Linear(200, 200)).eval()
    watch = ModelWatch(net)
    net[0].weight.data[3, 7] = 5
    assert any(watch.changed() for _ in range(2 * net[0].weight.nbytes // 4096))


def test_a_model_may_fill_a_cache_of_its_own() -> None:
    net = Net().eval()
    net.cache = None
    watch = ModelWatch(net)
    net.cache = torch.ones(3)
    watch.accept()
    assert not watch.changed()
    net.norm.running_var.mul_(2)
    watch.accept()
    assert watch.changed()
