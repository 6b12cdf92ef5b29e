# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
What functions of a task do besides what they return: what they can reach, read, change and draw.

A device runs them on its own part of the network, again after a loss, or not at all where the
export has their operators.  So they must neither remember nor read what is trained elsewhere.
"""
from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
import gc
import hashlib
import inspect
import itertools
from itertools import islice
import logging
import math
from numbers import Number
import os
import random
import sys
import threading
import types
from typing import Any
import warnings

import numpy as np
import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

#: Objects that are looked at, and numbers of an array that are compared.
MOST_OBJECTS, MOST_NUMBERS = 20_000, 1 << 20
#: Numbers of a parameter that are compared, and of what may be a count.
_OF_PARAMETERS, _OF_COUNTS = 1 << 12, 64
#: Parts of an object that is long.
_LONG = 256
#: The generators of the process are shared by its threads.
DRAWING = threading.RLock()

#: What a user may write in place of what changes with rounds.
BY_ROUND = 'What changes with rounds the module may make of a buffer that counts its passes ' \
    '(register_buffer; self.n += 1 in forward), and return to the loss: self.n.expand(x.shape[0])'

_LIBRARIES = {*sys.stdlib_module_names, 'torch', 'torchvision', 'torchaudio', 'numpy', 'scipy',
              'cv2', 'PIL', 'intradp_ros'}
_PLAIN = (bool, int, float, complex, str, bytes, type(None))


@contextmanager
def drawing(seed: int) -> Iterator[None]:
    """Let all that draws meanwhile, by PyTorch, Python or NumPy, draw by this seed (63 bits)."""
    with DRAWING, torch.random.fork_rng(devices=[]):
        others = random.getstate(), np.random.get_state()
        torch.manual_seed(seed)
        random.seed(seed)
        np.random.seed(seed & 0xFFFFFFFF)
        try:
            yield
        finally:
            random.setstate(others[0])
            np.random.set_state(others[1])


def objects_reached(*roots: Any) -> list[Any]:
    """Return the objects that others lead to, the nearest ones first, as far as they are read."""
    return [one for _, one in islice(_walk(roots), MOST_OBJECTS)]


def path_to(these: Sequence[Any], **roots: Any) -> str:
    """Return the path on which objects lead to one of these; '' if none does."""
    wanted = {id(one) for one in these}
    return next((path for path, one in islice(_walk(roots.values(), tuple(roots)), MOST_OBJECTS)
                 if id(one) in wanted), '')


def tensors_reached(*roots: Any) -> list[torch.Tensor] | None:
    """Return the tensors that objects lead to, those of modules too; None if they are too many."""
    found = []
    for count, (_, one) in enumerate(_walk(roots)):
        if count >= MOST_OBJECTS:
            return None
        if isinstance(one, torch.Tensor):
            found.append(one)
    return found


def remembered(but: Sequence[Any] = (), **roots: Any) -> dict[str, str]:
    """
    Return what functions and modules may remember, by its path, to be compared later.

    That is numbers, texts, arrays, tensors and lengths that they lead to.  All that is `but` is
    left out, and what is trained: tensors that are parameters, buffers or attributes of modules
    which `module` leads to, where one of the roots has that name.
    """
    met = list(islice(_walk(roots.values(), tuple(roots), but), MOST_OBJECTS))
    trained = islice(_walk([roots['module']]), MOST_OBJECTS) if 'module' in roots else ()
    held = {id(tensor) for _, one in trained if isinstance(one, nn.Module) for tensor in (
        *one._parameters.values(), *one._buffers.values(), *vars(one).values())
        if isinstance(tensor, torch.Tensor)}
    return {path: text for path, one in met
            if id(one) not in held and (text := _text(one)) is not None}


def counted(**roots: Any) -> dict[str, str]:
    """Return numbers and lengths that objects lead to, by path: all that may be a count."""
    met = islice(_walk(roots.values(), tuple(roots)), MOST_OBJECTS)
    return {path: text for path, one in met
            if not isinstance(one, str | bytes | torch.Tensor | np.ndarray) or
            isinstance(one, torch.Tensor | np.ndarray) and math.prod(one.shape) <= _OF_COUNTS
            if (text := _text(one)) is not None}


def assigned_tensors(module: nn.Module) -> dict[str, torch.Tensor]:
    """Return tensors that are attributes of modules, neither parameters nor buffers, by path."""
    return {f'{name}.{key}'.lstrip('.'): value for name, part in module.named_modules()
            for key, value in vars(part).items() if isinstance(value, torch.Tensor)}


def changed_between(before: Mapping[str, str], after: Mapping[str, str]) -> str:
    """Return the path of something that differs, '' if nothing does."""
    return next((path for path in sorted({*before, *after})
                 if before.get(path) != after.get(path)), '')


def _text(one: Any) -> str | None:
    if isinstance(one, (*_PLAIN, Number, itertools.count, itertools.repeat)):
        return repr(one)
    if isinstance(one, bytearray | array | memoryview):
        return hashlib.sha256(bytes(one)).hexdigest()
    if isinstance(one, types.GeneratorType):
        return str(one.gi_frame and one.gi_frame.f_lasti)
    if isinstance(one, torch.Tensor):
        if hasattr(one, 'fake_mode'):
            return f'{one.dtype} {one.shape}'  # what an export has left
        most = _OF_PARAMETERS if isinstance(one, nn.Parameter) else MOST_NUMBERS
        if one.numel() > most or one.device.type == 'meta':
            return f'{one.shape} {one._version} {id(one)}'
        return f'{one.dtype} {one.shape} {_digest(one.detach().cpu().contiguous())}' \
            + ' trained' * one.requires_grad
    if isinstance(one, np.ndarray):
        return f'{one.dtype} {one.shape} ' + (
            hashlib.sha256(np.ascontiguousarray(one).tobytes()).hexdigest()
            if one.size <= MOST_NUMBERS and not one.dtype.hasobject else str(id(one)))
    if isinstance(one, torch.Generator):
        return _digest(one.get_state())
    if isinstance(one, random.Random):
        return repr(one.getstate())
    if isinstance(one, np.random.Generator):
        return repr(one.bit_generator.state)
    if isinstance(one, np.random.RandomState):
        return repr(one.get_state(legacy=False))
    if isinstance(one, Mapping | list | tuple | set | frozenset | deque):
        return str(len(one))
    return None


def _digest(tensor: torch.Tensor) -> str:
    if tensor.layout is not torch.strided:
        return str(tensor._version)
    body = torch.view_as_real(tensor) if tensor.is_complex() else tensor
    return hashlib.sha256(body.flatten().view(torch.uint8).numpy().data).hexdigest() \
        if body.numel() else ''


def _walk(roots: Any, names: Sequence[str] = (), but: Sequence[Any] = (),
          ) -> Iterator[tuple[str, Any]]:
    """
    Yield objects with their paths: what they hold, and what the code of functions names.

    What is near comes first, and parts of what is long last, so that a long list hides nothing.
    """
    ahead = deque((names[k] if names else str(k), one) for k, one in enumerate(roots))
    last = deque[tuple[str, Any]]()
    seen = set(map(id, but))
    kept = list[Any]()  # what is made here must not give its place to another
    while ahead or last:
        path, one = (ahead or last).popleft()
        if id(one) in seen and not isinstance(one, _PLAIN):
            continue
        seen.add(id(one))
        kept.append(one)
        yield path, one
        parts = [(f'{path}{name}', part) for name, part in _parts(one)]
        (last if len(parts) > _LONG else ahead).extend(parts)


def _parts(one: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(one, (*_PLAIN, torch.Tensor, np.ndarray, types.ModuleType, torch.Generator,
                        threading.Thread, logging.Filterer)):
        return  # a thread, of a progress bar say, goes by time; loggers keep what they are asked
    if isinstance(one, Mapping):
        yield from ((f'[{_named(key)}]', value) for key, value in list(one.items()))
    elif isinstance(one, list | tuple | set | frozenset | deque):
        yield from ((f'[{k}]', value) for k, value in enumerate(one))
    elif isinstance(one, types.GeneratorType):
        yield from ((f'.{name}', value) for name, value in
                    (one.gi_frame.f_locals if one.gi_frame else {}).items())
        yield from (('', part) for part in gc.get_referents(one, one.gi_frame)
                    if isinstance(part, Iterator))  # of its loops
    elif isinstance(one, staticmethod | classmethod):
        yield '', one.__func__
    elif isinstance(one, property):
        yield '', (one.fget, one.fset)
    elif isinstance(one, types.BuiltinMethodType | types.MethodWrapperType):
        yield '', one.__self__  # of an iterator's __next__, say
    elif isinstance(one, Iterator) and is_library(type(one)) and not hasattr(one, '__dict__'):
        yield '', _state(one)
    elif isinstance(one, types.MethodType):
        yield '', one.__self__
        yield '', one.__func__
    elif isinstance(one, partial):
        yield from (('', one.func), ('.args', one.args), ('.keywords', one.keywords))
    elif isinstance(one, types.FunctionType):
        yield from _of_function(one)
    elif isinstance(one, type):
        if not is_library(one):
            yield from ((f'.{name}', value) for name, value in vars(one).items()
                        if not name.startswith('__') or isinstance(value, types.FunctionType))
            yield from (('', base) for base in one.__bases__)
    elif isinstance(one, nn.Module):
        yield from ((f'.{name}', value) for name, value in vars(one).items()
                    if name not in ('_parameters', '_buffers'))
        yield from ((f'.{name}', value) for name, value in
                    (*one._parameters.items(), *one._buffers.items()) if value is not None)
        yield '', type(one)
    elif (wrapped := inspect.getattr_static(one, '__wrapped__', None)) is not None:
        yield '', wrapped  # of a cache
    elif not callable(one) or not is_library(type(one)):
        yield from ((f'.{name}', value) for name, value in getattr(one, '__dict__', {}).items())
        if not is_library(type(one)):
            yield from _slots(one)
            yield '', type(one)


def _named(key: Any) -> str:
    return f'{key!r:.40}' if isinstance(key, _PLAIN) else f'a {type(key).__name__}'


def _slots(one: Any) -> Iterator[tuple[str, Any]]:
    for kind in type(one).__mro__:
        names = vars(kind).get('__slots__', ())
        for name in (names,) if isinstance(names, str) else names:
            if name.startswith('__') and not name.endswith('__'):
                name = f'_{kind.__name__.lstrip("_")}{name}'
            if name not in ('__dict__', '__weakref__') and hasattr(one, name):
                yield f'.{name}', getattr(one, name)


def _state(one: Any) -> Any:
    """Return what an iterator of Python would be copied by: what it iterates, and its place."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter('ignore')
            return one.__reduce__()
    except Exception:  # a file, say
        return None


def _of_function(one: types.FunctionType) -> Iterator[tuple[str, Any]]:
    """Yield what a function closes over, its defaults, and the globals that its code names."""
    yield from ((f'.{name}', cell.cell_contents) for name, cell in zip(
        one.__code__.co_freevars, one.__closure__ or ()) if _is_filled(cell))
    yield from (('', one.__defaults__ or ()), ('', one.__kwdefaults__ or {}),
                ('', vars(one)))
    if is_library(one):
        return
    names = set(_names_of(one.__code__))
    if 'environ' in names:
        yield '.os.environ', os.environ
    named = {name: one.__globals__[name] for name in names & one.__globals__.keys()}
    inside = f'{one.__globals__.get("__package__") or ""}.'
    for name in names - named.keys():  # what the function imports itself
        for module in (name, inside + name):
            if module in sys.modules:
                named[name] = sys.modules[module]
    for name, value in sorted(named.items()):
        if not isinstance(value, types.ModuleType):
            yield f'.{name}', value
        elif not is_library(value):
            yield from ((f'.{name}.{part}', vars(value)[part])
                        for part in sorted(names & vars(value).keys()))


def _is_filled(cell: types.CellType) -> bool:
    try:
        return cell.cell_contents is not cell
    except ValueError:
        return False


def _names_of(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for one in code.co_consts:
        if isinstance(one, types.CodeType):
            yield from _names_of(one)


def is_library(one: Any) -> bool:
    """Whether code, or what has this name, is of a library, which remembers nothing."""
    name = one if isinstance(one, str) else one.__name__ if isinstance(
        one, types.ModuleType) else getattr(one, '__module__', '')
    return str(name).partition('.')[0] in _LIBRARIES


class Watch:
    """
    Notes which of some tensors are read meanwhile, by their names; a context.

    It is of the thread that enters it.
    """

    def __init__(self, named: Mapping[str, torch.Tensor]) -> None:
        self.read: dict[str, None] = {}
        self._at = {tensor.untyped_storage().data_ptr(): name for name, tensor in named.items()
                    if tensor.numel()}
        self._modes = _Operators(self._note), _Functions(self._note)

    def _note(self, given: Any) -> None:
        for one in pytree.tree_leaves(given):
            if isinstance(one, torch.Tensor) and one.layout is torch.strided and one.numel():
                name = self._at.get(one.untyped_storage().data_ptr())
                if name is not None:
                    self.read[name] = None

    def __enter__(self) -> Watch:
        """Begin to look."""
        for mode in self._modes:
            mode.__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *error: Any) -> None:
        """Look no more."""
        for mode in reversed(self._modes):
            mode.__exit__(*error)  # type: ignore[no-untyped-call]


class _Operators(TorchDispatchMode):  # type: ignore[no-untyped-call]
    def __init__(self, note: Callable[[Any], None]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._note = note

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (),
                           kwargs: Any = None) -> Any:
        self._note((args, kwargs))
        return func(*args, **(kwargs or {}))


class _Functions(TorchFunctionMode):
    """Sees what leaves PyTorch without an operator."""

    _LEAVING = ('numpy', 'tolist', '__array__', 'data_ptr', 'untyped_storage')

    def __init__(self, note: Callable[[Any], None]) -> None:
        super().__init__()
        self._note = note

    def __torch_function__(self, func: Any, types: Any, args: Any = (),
                           kwargs: Any = None) -> Any:
        if getattr(func, '__name__', '') in self._LEAVING:
            self._note(args[:1])
        return func(*args, **(kwargs or {}))
