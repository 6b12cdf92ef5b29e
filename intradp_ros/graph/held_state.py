# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
All that a model holds, so that two moments of its life can be compared.

The walk begins at the module and goes through attributes, containers,
objects, arrays and hooks, and through code: closures, defaults, attributes of
classes, and the names that functions look up: globals, modules that they
import, the environment's variables.  Code of PyTorch, NumPy and Python's own
library is not entered; which functions of it stand under the names that the
model looks up is noted, as programs replace some.  What only code leads to is
`outside`: a deep copy of the model shares it with the original, so that it
can be put back as it was.
"""
from __future__ import annotations

from array import array
import builtins
from collections import deque
from collections.abc import Callable, Iterator, Set
from contextlib import contextmanager
from contextvars import ContextVar
import ctypes
from dataclasses import dataclass, field
import decimal
import dis
import functools
import gc
import io
import itertools
import logging
import mmap
import os
from pathlib import Path
import random
import sys
import sysconfig
import threading
from types import (
    BuiltinFunctionType,
    CellType,
    CodeType,
    FrameType,
    FunctionType,
    GeneratorType,
    MethodType,
    ModuleType,
)
from typing import Any
import weakref

import numpy as np
import torch
from torch import nn

from intradp_ros.graph.restore import (
    restore_attribute,
    restore_bytes,
    restore_items,
    restore_sequence,
    restore_set,
    restore_tensor,
    restore_variable,
)
from intradp_ros.graph.tensor_bits import Numbers, numbers_of

MOST_OBJECTS = 200_000
"""The walk ends after so many; what lies further from the module is not seen."""
OURS = '_of_intradp'
"""An attribute of classes that a model is given, and that are not part of it."""
@dataclass(frozen=True)
class HeldTensor:
    """A tensor that is held; `registered` as parameter or buffer.  It is kept alive."""

    tensor: torch.Tensor
    registered: bool
    numbers: Numbers


class _ByPath(dict[str, Any]):
    """What was found, by path; of several things at one (closures of one code) each is kept."""

    def __init__(self) -> None:
        super().__init__()
        self._count: dict[str, int] = {}

    def __setitem__(self, path: str, item: Any) -> None:
        """Note what is at a path, with a number behind it where something else is already."""
        number = self._count[path] = self._count.get(path, 0) + 1
        super().__setitem__(path if number == 1 else f'{path} ({number})', item)


@dataclass
class HeldState:
    """
    What was found, by path: plain items as they are, tensors with their numbers.

    `once` are iterators that only code leads to: a run of the model takes
    from them.  `containers`, `classes`, `cells` and global `names` are where
    it was found; under names that are `missing` there is nothing, or one of Python's built-ins.
    """

    items: dict[str, Any] = field(default_factory=_ByPath)
    tensors: dict[str, HeldTensor] = field(default_factory=_ByPath)
    once: list[str] = field(default_factory=list)
    containers: list[Any] = field(default_factory=list)
    classes: list[type] = field(default_factory=list)
    functions: list[FunctionType] = field(default_factory=list)
    cells: list[CellType] = field(default_factory=list)
    words: set[str] = field(default_factory=set)
    variables: set[str] = field(default_factory=set)
    names: list[tuple[dict[str, Any], str]] = field(default_factory=list)
    missing: dict[int, tuple[dict[str, Any], set[str]]] = field(default_factory=dict)
    outside: list[Callable[[], None]] = field(default_factory=list)

    def changed_items(self, before: HeldState) -> list[str]:
        """Return the paths, but for tensors, at which something else stands than before."""
        paths = {**before.items, **self.items}
        return [p for p in paths if not _same_item(before.items.get(p, _NOTHING),
                                                   self.items.get(p, _NOTHING))]

    def changed_tensors(self, before: HeldState) -> list[str]:
        """Return the paths at which there are other numbers than before."""
        return [p for p, held in self.tensors.items()
                if p not in before.tensors or not held.numbers.same(before.tensors[p].numbers)]


def held_state(root: nn.Module, shared: frozenset[int] = frozenset()) -> HeldState:
    """
    Return what a module holds now.

    `shared` are identities of objects that count as outside though the module
    itself leads to them: a copy that still has objects of its original, say.
    """
    import torch._dynamo  # noqa: F401  (replaces functions of torch when it is first imported)
    walk = _Walk(shared)
    walk.visit('', root, False)
    while walk.queue and len(walk.alive) < MOST_OBJECTS:
        walk.enter(*walk.queue.popleft())
        if not walk.queue:
            walk.enter_modules()
    walk.methods_of(torch.Tensor)
    walk.methods_of(nn.Module)
    return walk.state


def mutable_identities(state: HeldState) -> frozenset[int]:
    """Return the identities of the containers and objects that a walk has entered."""
    return frozenset(map(id, state.containers))


@contextmanager
def put_back(state: HeldState) -> Iterator[None]:
    """Put back afterwards what lies outside of the module: globals, closures, classes."""
    try:
        yield
    finally:
        for restore in state.outside:
            restore()


_NOTHING = object()
#: What an attribute that somebody gives to a module of a library may count with.
_COUNTING = (int, float, complex, str, bytes, list, set, bytearray, np.ndarray, torch.Tensor)
#: Results of a cached function that can be other than they were.
_CHANGING = (list, dict, set, bytearray, np.ndarray, torch.Tensor, nn.Module)
PLAIN = (int, float, complex, str, bytes, bool, type(None), type(Ellipsis), range, slice,
         torch.dtype, torch.device, torch.Size, np.generic, torch.memory_format, torch.layout)
_UNSEEN = (ModuleType, logging.Logger, logging.Handler, logging.LoggerAdapter, io.RawIOBase,
           io.BufferedIOBase, io.TextIOBase, threading.Thread, CodeType, FrameType,
           BuiltinFunctionType,
           type(threading.Lock()), type(threading.RLock()), torch.jit.ScriptFunction)
BYTES: Any = (bytearray, array, mmap.mmap, ctypes.Structure, ctypes.Union, ctypes.Array,
              ctypes._SimpleCData)
"""Classes of objects that are what their bytes say."""
FILES = (io.BytesIO, io.StringIO)
"""Classes of files in memory."""
SETTINGS: dict[str, Callable[[], Any]] = {
    'getcwd': os.getcwd, 'cwd': os.getcwd, 'argv': lambda: list(sys.argv),
    'getrecursionlimit': sys.getrecursionlimit,
    'current_thread': lambda: threading.current_thread().name,
    **dict.fromkeys(('isEnabledFor', 'getEffectiveLevel'), lambda: (
        logging.root.level, logging.root.manager.disable, {
            name: logger.level for name, logger in logging.root.manager.loggerDict.items()
            if isinstance(logger, logging.Logger) and logger.level})),
    **dict.fromkeys(('Decimal', 'getcontext'), lambda: (
        decimal.getcontext().prec, decimal.getcontext().rounding)),
    **dict.fromkeys(('expandvars', 'expanduser'), lambda: dict(os.environ)),
    **dict.fromkeys(('get_printoptions', 'array2string', 'array_repr', 'array_str'),
                    np.get_printoptions)}
"""What the process is set to, by the names under which code asks for it."""
_CACHED = type(functools.lru_cache(int))
_ITERATORS: Any = (GeneratorType, itertools.count, itertools.cycle, itertools.chain, map, filter,
                   zip, enumerate, type(iter([])), type(iter(())), type(iter({})))


def _same_item(before: Any, after: Any) -> bool:
    try:
        return type(before) is type(after) and bool(
            before == after or before != before and after != after)
    except Exception:
        return before is after


class _Walk:
    def __init__(self, shared: frozenset[int]) -> None:
        self.state, self.shared = HeldState(), shared
        self.seen: set[int] = set()
        self.looked_up: set[tuple[int, str | frozenset[str]]] = set()
        self.alive: list[Any] = []  # so that no identity is used twice
        self.queue: deque[tuple[str, Any, bool]] = deque()
        self.modules: list[ModuleType] = []  # that are held
        self.asked: list[ModuleType] = []  # for what has a name that is a text

    def visit(self, path: str, item: Any, outside: bool) -> None:
        """Note an item; what can hold others is entered later, once."""
        if isinstance(item, PLAIN) and not hasattr(item, '__dict__'):
            self.state.items[path] = item
        elif isinstance(item, torch.Tensor):
            self._tensor(path, item, outside, False)
        elif isinstance(item, _UNSEEN) and not isinstance(item, FILES):
            self.state.items[path] = id(item)
            self.alive.append(item)
            if isinstance(item, ModuleType) and is_users(item.__name__):
                self.modules.append(item)
        else:
            # Another function, or an object of another class, is another computation.
            self.state.items[f'what {path or "the model"} is'] = (
                item.__code__ if isinstance(item, FunctionType) else type(item))
            self._later(path, item, outside)

    def enter_modules(self) -> None:
        """Note what code may read of modules that are held, by any name that it mentions."""
        held = frozenset(item for item in self.state.items.values()
                         if isinstance(item, str) and item.isidentifier())
        words = held | self.state.words
        for module in self.modules:
            self._module(module, words, frozenset())
        for module in self.asked:
            self._module(module, held, frozenset())

    def methods_of(self, kind: type) -> None:
        """Note the methods of a class of PyTorch that code calls by name, or PyTorch itself."""
        self.state.classes.append(kind)
        for name, item in vars(kind).items():
            if callable(item) and (name.startswith('_') or name in self.state.words):
                self.state.items[f'{kind.__name__}.{name}'] = item

    def _later(self, path: str, item: Any, outside: bool) -> None:
        if id(item) not in self.seen:
            self.seen.add(id(item))
            self.alive.append(item)
            self.queue.append((path, item, outside or id(item) in self.shared))

    def enter(self, path: str, item: Any, outside: bool) -> None:
        """Note what an item holds."""
        if isinstance(item, type):
            self._class(item)
        elif isinstance(item, FunctionType):
            self._function(path, item)
        elif isinstance(item, MethodType):
            self.visit(path, item.__func__, True)
            self.visit(path, item.__self__, outside)
        elif isinstance(item, (staticmethod, classmethod)):
            self.visit(path, item.__func__, True)
        elif isinstance(item, property):
            self._children(path, [('', f) for f in (item.fget, item.fset) if f], True)
        elif isinstance(item, functools.partial):
            self.state.containers.append(item)
            self._children(path, [('', item.func), *_numbered(item.args),
                                  ('', item.keywords)], outside)
        elif isinstance(item, CellType):
            self._cell(path, item)
        elif isinstance(item, _ITERATORS) and outside:
            self.state.once.append(path)
        else:
            try:
                self._object(path, item, outside)
            except Exception:  # its class answers for attributes that it does not have, say
                self.state.items[path] = id(item)

    def _object(self, path: str, item: Any, outside: bool) -> None:
        self.state.containers.append(item)
        if isinstance(item, np.ndarray):
            self._array(path, item, outside)
        elif isinstance(item, torch.Generator):
            self.state.tensors[path] = HeldTensor(item.get_state(), False,
                                                  numbers_of(item.get_state()))
            self._restore(outside, item.set_state, item.get_state())
        elif isinstance(item, random.Random):
            self.state.items[path] = item.getstate()
            self._restore(outside, item.setstate, item.getstate())
        elif isinstance(item, np.random.Generator):
            self.state.items[path] = repr(item.bit_generator.state)
            self._restore(outside, functools.partial(setattr, item.bit_generator, 'state'),
                          item.bit_generator.state)
        elif isinstance(item, dict):
            self._dict(path, item, outside)
        elif isinstance(item, (list, tuple, deque)):
            self._sequence(path, item, outside)
        elif isinstance(item, (set, frozenset)):
            self._set(path, item, outside)
        elif isinstance(item, BYTES):
            content = bytes(memoryview(item))
            self.state.items[path] = content
            self._restore(outside, functools.partial(restore_bytes, item), content)
        elif isinstance(item, FILES):
            file: Any = item
            self.state.items[path] = file.__getstate__()[:-1]
            self._restore(outside, file.__setstate__, file.__getstate__())
        elif isinstance(item, ContextVar):
            self._restore(True, item.set, item.get(None))
            self.visit(path, item.get(None), True)
        elif isinstance(item, weakref.ref):
            self.visit(path, item(), True)
        elif isinstance(item, _CACHED):
            self.state.items[f'the cache of {path}'] = tuple(item.cache_info())[1:]
            self._children(f'the cache of {path}', _numbered(_cached_results(item)), True)
        elif not has_attributes(item) and not slots(item):
            self._reduced(path, item)
        if has_attributes(item) and not isinstance(item, (type, weakref.ref)):
            self._attributes(path, item, outside)
        if isinstance(item, torch.jit.ScriptModule):
            self._children(path, scripted(item), outside)
        for name in slots(item):
            if hasattr(item, name):
                self.visit(f'{path}.{name}', getattr(item, name), outside)
        self.visit(path, type(item), True)

    def _attributes(self, path: str, item: Any, outside: bool) -> None:
        own = vars(item)
        if outside:
            kept = dict(own)
            self.state.outside.append(lambda: restore_items(own, kept))
        names = {k: v for k, v in own.items() if k not in _OF_MODULES} \
            if isinstance(item, nn.Module) else own
        self.state.items[f'the attributes of {path or "the model"}'] = tuple(names)
        self._children(path, names.items(), outside)
        if isinstance(item, nn.Module):
            for kind in (item._parameters, item._buffers):
                for name, tensor in kind.items():
                    if isinstance(tensor, torch.Tensor):
                        self._tensor(_joined(path, name), tensor, outside, True)
                    else:
                        self.state.items[_joined(path, name)] = tensor
            self._children(path, item._modules.items(), outside)
            for hooks in HOOKS:
                self._children(f'a hook of {path or "the model"}',
                               _numbered(own.get(hooks, {}).values()), outside)

    def _children(self, path: str, children: Any, outside: bool) -> None:
        for name, child in children:
            self.visit(_joined(path, str(name)), child, outside)

    def _dict(self, path: str, item: dict[Any, Any], outside: bool) -> None:
        found = dict(dict.items(item))  # of a subclass, what stands in it, not what it makes up
        keys = tuple(k if isinstance(k, (int, float, str, bytes, bool, tuple, type(None)))
                     else repr(type(k)) for k in found)
        self.state.items[f'the keys of {path}'] = keys
        if outside:
            self.state.outside.append(lambda: restore_items(item, found))
        self._children(path, zip(map(str, keys), found.values()), outside)
        for key in found:
            if not isinstance(key, (int, float, str, bytes, bool, type(None))):
                self.visit(f'a key of {path}', key, outside)

    def _sequence(self, path: str, item: Any, outside: bool) -> None:
        if outside and not isinstance(item, tuple):
            kept = list(item)
            self.state.outside.append(lambda: restore_sequence(item, kept))
        if all(type(part) in PLAIN for part in item):
            self.state.items[path] = tuple(item)
            return
        self.state.items[f'the length of {path}'] = len(item)
        self._children(path, _numbered(item), outside)

    def _set(self, path: str, item: Any, outside: bool) -> None:
        if outside and isinstance(item, set):
            kept = set(item)
            self.state.outside.append(lambda: restore_set(item, kept))
        plain = all(type(part) in PLAIN for part in item)
        self.state.items[path] = frozenset(item) if plain else len(item)
        if not plain:
            self._children(path, _numbered(item), outside)

    def _array(self, path: str, item: np.ndarray[Any, Any], outside: bool) -> None:
        if item.dtype.hasobject:
            self._sequence(path, item.ravel().tolist(), False)
            return
        kept = item.copy()
        self.state.items[path] = (item.shape, str(item.dtype), hash(kept.tobytes()))
        if outside and item.flags.writeable:
            self.state.outside.append(lambda: np.copyto(item, kept))

    def _tensor(self, path: str, tensor: torch.Tensor, outside: bool, registered: bool) -> None:
        numbers = numbers_of(tensor)
        self.state.tensors[path] = HeldTensor(tensor, registered, numbers)
        # Scales of quantised weights and of adapters are attributes of parameters.
        if id(tensor) not in self.seen:
            self.seen.add(id(tensor))
            self.alive.append(tensor)
            self.state.containers.append(tensor)
            own = vars(tensor)
            self.state.items[f'the attributes of {path}'] = tuple(own)
            if outside:
                kept_attributes = dict(own)
                self.state.outside.append(lambda: restore_items(own, kept_attributes))
            self._children(path, own.items(), outside)
        if outside and numbers.content is not None:
            kept = tensor.detach().clone()
            self.state.outside.append(lambda: restore_tensor(tensor, kept))

    def _cell(self, path: str, cell: CellType) -> None:
        try:
            content = cell.cell_contents
        except ValueError:
            return  # not set yet
        self.state.cells.append(cell)
        self.state.outside.append(lambda: setattr(cell, 'cell_contents', content))
        self.visit(path, content, True)

    def _function(self, path: str, function: FunctionType) -> None:
        if not is_users(function.__module__):
            return
        name = function.__qualname__
        for variable, cell in zip(function.__code__.co_freevars, function.__closure__ or ()):
            self.visit(f'{variable!r} in the closure of {name}', cell, True)
        for default in (function.__defaults__, function.__kwdefaults__):
            if default:
                self.visit(f'a default of {name}', default, True)
        if vars(function):
            self.visit(f'the attributes of {name}', vars(function), True)
        self.state.functions.append(function)
        self._look_up(function)

    def _look_up(self, function: FunctionType) -> None:
        """Note what stands under the names that a function looks up."""
        space, names = function.__globals__, _names(function.__code__)
        loaded, texts = _loaded(function.__code__), _texts(function.__code__)
        for word in sorted((names & SETTINGS.keys()) - self.state.words):
            self.state.items[f'what {word} says'] = SETTINGS[word]()
        self.state.words.update(names)
        if not names.isdisjoint(('environ', 'getenv')):
            self._variables(texts)
        if not names.isdisjoint(_BY_TEXT):
            names |= texts
            for text in sorted(texts):
                if isinstance(sys.modules.get(text), ModuleType):
                    self._module(sys.modules[text], names, texts)
            if not loaded.isdisjoint(('__name__', 'globals')):  # of any name, however it is made
                self._missing(space, texts)
                loaded |= {name for name, item in space.items() if name in texts
                           or 'globals' in loaded and isinstance(item, (*_COUNTING, dict))
                           and not name.startswith('__')}
        else:
            texts = frozenset()
        for name in sorted(loaded):
            if name in space:
                self._named(space, name, names, texts)
                continue
            self._missing(space, {name})
            if name in vars(builtins):
                self._named(vars(builtins), name, names, texts)
            for found in _imported(name, space.get('__package__')):
                self._named(sys.modules, found, names, texts)

    def _missing(self, space: dict[str, Any], names: Set[str]) -> None:
        """Note names, of those that code may look up, that stand nowhere in a name space."""
        if absent := {name for name in names if name not in space}:
            self.state.missing.setdefault(id(space), (space, set()))[1].update(absent)

    def _variables(self, names: frozenset[str]) -> None:
        """Note the variables of the environment that code may name."""
        for name in names - self.state.variables:
            value = os.environ.get(name)
            self.state.variables.add(name)
            self.state.items[f'the variable {name} of the environment'] = value
            self.state.outside.append(functools.partial(restore_variable, name, value))

    def _named(self, space: dict[str, Any], name: str, names: frozenset[str],
               texts: frozenset[str]) -> None:
        item = space[name]
        path = f'the global {name!r}'
        new = self._standing(space, name, path)
        if isinstance(item, ModuleType):
            self._module(item, names, texts)
        elif isinstance(item, (FunctionType, type)):
            if new and is_users(item.__module__):
                self.visit(path, item, True)
        elif new:
            self.state.outside.append(lambda: space.__setitem__(name, item))
            self.visit(path, item, True)

    def _module(self, module: ModuleType, names: frozenset[str], texts: frozenset[str]) -> None:
        users = is_users(module.__name__)
        space = vars(module)
        self._missing(space, texts)
        if users and not names.isdisjoint(_BY_TEXT) and self._first((id(module), 'asked')):
            self.asked.append(module)
        for name in sorted(names & space.keys()):
            if users and not isinstance(space[name], ModuleType):
                self._named(space, name, names, texts)
            elif isinstance(space[name], ModuleType):
                if not users and space[name] is not module \
                        and self._first((id(space[name]), names)):
                    self._module(space[name], names, texts)
            elif callable(space[name]):
                self._standing(space, name, f'{module.__name__}.{name}')
            elif isinstance(space[name], _COUNTING) and module is not sys:
                self._named(space, name, names, texts)

    def _standing(self, space: dict[str, Any], name: str, path: str) -> bool:
        """Note that an item stands under a name; return whether that is new."""
        if not self._first((id(space), name)):
            return False
        self.state.names.append((space, name))
        item = space[name]
        if isinstance(item, (BuiltinFunctionType, ModuleType)) or isinstance(
                item, (FunctionType, type)) and not is_users(item.__module__):
            self.state.items[f'what {path} is'] = item
        return True

    def _first(self, key: tuple[int, str | frozenset[str]]) -> bool:
        new = key not in self.looked_up
        self.looked_up.add(key)
        return new

    def _class(self, kind: type) -> None:
        if is_users(type(kind).__module__):
            self.visit(f'what {kind.__name__} is made by', type(kind), True)
        for each in kind.__mro__:
            if each is not kind and id(each) in self.seen or OURS in vars(each):
                continue
            self.seen.add(id(each))
            if not is_users(each.__module__):
                self._layer(each)
                continue
            self.alive.append(each)
            self.state.classes.append(each)
            for name, item in list(vars(each).items()):
                if name.startswith('__') and not isinstance(item, FunctionType) \
                        or name in ('_abc_impl', '_is_protocol'):
                    continue
                if not isinstance(item, (FunctionType, property, staticmethod, classmethod)):
                    self.state.outside.append(
                        functools.partial(restore_attribute, each, name, item))
                self.visit(f'{each.__name__}.{name}', item, True)

    def _layer(self, kind: type) -> None:
        """Note the functions of a class of layers that is a library's."""
        if not issubclass(kind, nn.Module) or kind is nn.Module:
            return
        self.alive.append(kind)
        self.state.classes.append(kind)
        for name, item in vars(kind).items():
            if isinstance(item, FunctionType):
                self.state.items[f'{kind.__name__}.{name}'] = item
            elif isinstance(item, _COUNTING) and not name.startswith('__'):
                self.visit(f'{kind.__name__}.{name}', item, True)
        waiting, done = ['forward'], set[str]()
        while waiting:  # what `forward` calls of the class, too
            called = getattr(kind, name := waiting.pop(), None)
            if isinstance(called, FunctionType) and name not in done:
                done.add(name)
                self._look_up(called)
                waiting += _names(called.__code__) - vars(nn.Module).keys() - done

    def _reduced(self, path: str, item: Any) -> None:
        """Look into an object that has no attributes by what a copy of it is made of."""
        parts = made_of(item)
        if parts is None:
            self.state.items[path] = id(item)
            return
        for part in parts:
            self.visit(path, part, False)

    def _restore(self, outside: bool, setter: Callable[[Any], Any], kept: Any) -> None:
        if outside:
            self.state.outside.append(lambda: setter(kept))


HOOKS = ('_forward_hooks', '_forward_pre_hooks', '_backward_hooks', '_backward_pre_hooks')
_OF_MODULES = frozenset((*vars(nn.Module()), 'training')) - {'training'}


def _cached_results(function: Any) -> list[Any]:
    """Return what a cache of `functools` holds, as far as it can hold numbers that change."""
    return [part for part in gc.get_referents(function)
            if isinstance(part, _CHANGING) and part is not vars(function)]


def made_of(item: Any) -> list[Any] | None:
    """Return what a copy of an object is made of; None if there can be no copy."""
    try:
        reduced = item.__reduce_ex__(4)
    except Exception:
        return None
    if not isinstance(reduced, tuple):
        return []
    return [*reduced[1:3], *(list(parts) for parts in reduced[3:5] if parts is not None)]


def has_attributes(item: Any) -> bool:
    """Return whether an object has a dictionary, also where its class answers for all names."""
    try:
        return hasattr(item, '__dict__')
    except Exception:
        return type(item).__dictoffset__ != 0


def scripted(module: torch.jit.ScriptModule) -> list[tuple[str, Any]]:
    """Return the attributes of a scripted module that Python does not hold."""
    kind = vars(module).get('_concrete_type')
    names = kind.get_attributes() if kind else ()
    return [(name, getattr(module, name)) for name in sorted(names)]


def _joined(path: str, name: str) -> str:
    return f'{path}.{name}' if path and name else path or name


def _numbered(items: Any) -> Iterator[tuple[str, Any]]:
    return ((str(k), item) for k, item in enumerate(items))


def slots(item: Any) -> list[str]:
    """Return the names of the slots of an object."""
    found = []
    for kind in type(item).__mro__:
        own = vars(kind).get('__slots__', ())
        found += [own] if isinstance(own, str) else list(own)
    return [name for name in found if name not in ('__dict__', '__weakref__')
            and not name.startswith('__')]


@functools.lru_cache(maxsize=4096)
def _names(code: CodeType) -> frozenset[str]:
    """Return the names that a function, and those defined in it, look up."""
    inner = (_names(c) for c in code.co_consts if isinstance(c, CodeType))
    return frozenset(code.co_names).union(*inner)


@functools.lru_cache(maxsize=4096)
def _loaded(code: CodeType) -> frozenset[str]:
    """
    Return the names that a function, and those defined in it, load or import as globals.

    An attribute of the same name is none of them: what a script calls `mean` or `features` is
    nothing to a model that reads ``x.mean`` or ``self.features``.
    """
    inner = (_loaded(c) for c in code.co_consts if isinstance(c, CodeType))
    own = (str(each.argval) for each in dis.get_instructions(code) if each.opname in _GLOBALS)
    return frozenset(own).union(*inner)


@functools.lru_cache(maxsize=4096)
def _texts(code: CodeType) -> frozenset[str]:
    """Return the constant texts of a function, and of those defined in it."""
    inner = (_texts(c) for c in code.co_consts if isinstance(c, CodeType))
    own = (c for c in code.co_consts if isinstance(c, str) and '\0' not in c and '=' not in c)
    return frozenset(own).union(*inner)


@functools.lru_cache(maxsize=4096)
def _imported(name: str, package: str | None) -> tuple[str, ...]:
    """Return the names of loaded modules that a function may mean where it imports a name."""
    parents = (package or '').split('.')
    absolute = [name, *('.'.join((*parents[:k], name)) for k in range(1, len(parents) + 1))]
    return tuple(each for each in absolute
                 if each in sys.modules and isinstance(sys.modules[each], ModuleType))


@functools.lru_cache(maxsize=4096)
def is_users(module: object) -> bool:
    """
    Return whether a module is neither Python's own, nor of a library that keeps no memory.

    `module` is what stands under ``__module__``: a class may have anything there, C code does.
    """
    root = module.partition('.')[0] if isinstance(module, str) else ''
    if root == '__main__':
        return True
    if not root or root in _LIBRARIES or root in sys.builtin_module_names:
        return False
    file = getattr(sys.modules.get(root), '__file__', None)
    if file is None:
        return root not in sys.stdlib_module_names
    path = Path(file)
    return not path.is_relative_to(_PYTHON) or 'site-packages' in path.parts


#: Names by which code reads what stands under a name that is a text.
_BY_TEXT = frozenset(('globals', 'vars', 'getattr', 'attrgetter', 'modules', 'import_module',
                      '__dict__', '__import__'))
#: Instructions by which code reads, writes or imports a name of its module.
_GLOBALS = frozenset(('LOAD_GLOBAL', 'LOAD_NAME', 'LOAD_FROM_DICT_OR_GLOBALS', 'STORE_GLOBAL',
                      'DELETE_GLOBAL', 'IMPORT_NAME', 'IMPORT_FROM'))
_PYTHON = sysconfig.get_path('stdlib')
_LIBRARIES = frozenset(('torch', 'numpy', 'scipy', 'intradp_ros', 'typing_extensions', 'cv2',
                        'rclpy', 'transformers', 'triton', 'sympy', 'pytest', '_pytest',
                        'pluggy', 'xdist', 'hypothesis'))
