# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Notices, within microseconds, that a model is no longer what was captured.

At each call identities are compared of all that the model holds (attributes,
entries of its containers, layers, hooks, classes, functions, closures,
globals), and of each tensor its version, its address and some of its numbers.
Only where these differ everything is compared, so that a value put back counts
as none changed.  What PyTorch itself does not count, such as single numbers
written through ``.data`` or by NumPy, is found at once in the smallest tensors
(together `_WHOLE` words), else by sums of the bits, `_SUMMED` bytes at each
call: in a network of 10 MB after 160 calls at most.
"""
from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextvars import ContextVar
from functools import partial
from itertools import chain
from operator import attrgetter, is_, itemgetter
import os
import time
from typing import Any
import weakref

import numpy as np
import torch
from torch import nn
from torch.utils import _pytree as pytree

from intradp_ros.graph.held_state import (
    BYTES,
    FILES,
    has_attributes,
    held_state,
    HeldState,
    made_of,
    PLAIN,
    scripted,
    SETTINGS,
    slots,
)
from intradp_ros.graph.tensor_bits import as_words

_SAMPLES = 16
_WHOLE = 8192  # words of the smallest tensors, compared at each call
_SUMMED = 65536  # bytes of the others, at each call
_RESTS = 50.0  # times what a full comparison took, until the next one
_VERSIONS = attrgetter('_version')
_CODE = attrgetter('__code__', '__defaults__', '__kwdefaults__')


class _Bits:
    """Numbers and sums of the bits of tensors as they were, compared a piece at each call."""

    def __init__(self, rows: list[torch.Tensor]) -> None:
        samples, self._rows, spare = [], [], _WHOLE
        for words in sorted(rows, key=len):
            if len(words) <= spare:
                spare -= len(words)
                samples.append(words)
            else:
                samples += _sampled(words)
                self._rows.append(_widened(words))
        groups = [[w for w in samples if w.dtype == kind]
                  for kind in (torch.int8, torch.int16, torch.int32, torch.int64)]
        self._samples = [group for group in groups if group]
        with torch.inference_mode():
            self._sampled = [torch.cat(group) for group in self._samples]
            self._sums = [_sums(w) for w in self._rows]
        self._at = (0, 0)

    def same(self) -> bool:
        """Compare some numbers of each tensor, and the bits of the next piece of one."""
        with torch.inference_mode():
            for group, expected in zip(self._samples, self._sampled):
                if not torch.equal(torch.cat(group), expected):
                    return False
            if not self._rows:
                return True
            row, piece = self._at
            words, sums = self._rows[row], self._sums[row]
            at = _SUMMED // words.itemsize
            same = words[piece * at:(piece + 1) * at].sum(dtype=torch.int64).item() == sums[piece]
            self._at = (row, piece + 1) if piece + 1 < len(sums) else (
                (row + 1) % len(self._rows), 0)
            return same


class ModelWatch:
    """Keeps what a model held when it was made, and says whether it still does."""

    def __init__(self, model: nn.Module) -> None:
        self.model, self.state = model, held_state(model)
        self._rest_until, self._reason = float('-inf'), ''
        self._look(self.state)

    @property
    def tensors(self) -> list[torch.Tensor]:
        """All tensors that the model leads to."""
        return [held.tensor for held in self.state.tensors.values()]

    def changed(self) -> str:
        """Return what is other than it was, or nothing; where it lies, if that is known."""
        if self._same() and self._bits.same():
            self._reason = ''
            return ''
        if self._reason and time.monotonic() < self._rest_until:
            return self._reason
        start = time.monotonic()
        now = held_state(self.model)
        different = [*now.changed_tensors(self.state), *now.changed_items(self.state),
                     *(p for p in self.state.tensors if p not in now.tensors)]
        if different:
            self._reason = different[0]
            self._rest_until = time.monotonic() + _RESTS * (time.monotonic() - start)
            return self._reason
        self._look(now)
        return ''

    def accept(self) -> None:
        """Take what the model left in itself in a call of its own as unchanged."""
        if self._same():
            return
        now = held_state(self.model)
        if not any(now.tensors[p].registered for p in now.changed_tensors(self.state)):
            self._look(now)

    def _look(self, state: HeldState) -> None:
        """Keep what is compared at each call."""
        self.state = state
        self._modules = list(self.model.modules())
        self._classes = list(map(type, self._modules))
        held: list[Any] = [view for item in state.containers for view in _contents(item)]
        held += [vars(each).values() for each in state.classes]
        self._sizes = list(map(len, held))
        self._held, self._views = held, [view for view in held if len(view)]
        self._items = list(chain.from_iterable(self._views))
        self._others = [(look, look()) for item in state.containers for look in _looks(item)]
        names = sorted(state.variables)
        self._others.append((lambda: list(map(os.environ.get, names)),
                             list(map(os.environ.get, names))))
        asked = [SETTINGS[word] for word in sorted(state.words & SETTINGS.keys())]
        self._others.append((lambda: [ask() for ask in asked], [ask() for ask in asked]))
        missing = [(space.keys(), names) for space, names in state.missing.values()]
        self._others.append((lambda: all(space.isdisjoint(names) for space, names in missing),
                             True))
        self._functions = state.functions
        self._codes = list(map(_CODE, state.functions))
        self._cells = [(cell, cell.cell_contents) for cell in state.cells]
        self._names = _names(state)
        self._tensors = [t for t in self.tensors if not t.is_inference()
                         and t.layout == torch.strided and t.device.type != 'meta']
        self._versions = list(map(_VERSIONS, self._tensors))
        self._places = list(map(torch.Tensor.data_ptr, self._tensors))
        rows = [*map(_words, self._tensors), *map(_words_of_array, state.containers)]
        self._bits = _Bits([w for w in rows if w is not None])

    def _same(self) -> bool:
        return (
            list(map(len, self._held)) == self._sizes
            and all(map(is_, chain.from_iterable(self._views), self._items))
            and list(map(_VERSIONS, self._tensors)) == self._versions
            and list(map(torch.Tensor.data_ptr, self._tensors)) == self._places
            and list(map(type, self._modules)) == self._classes
            and self._same_names()
            and all(look() == seen for look, seen in self._others)
            and all(map(is_, chain.from_iterable(map(_CODE, self._functions)),
                        chain.from_iterable(self._codes)))
            and all(cell.cell_contents is item for cell, item in self._cells))

    def _same_names(self) -> bool:
        try:
            return all(all(map(is_, get(space), items)) for space, get, items in self._names)
        except KeyError:
            return False


def _names(state: HeldState) -> list[tuple[dict[str, Any], Callable[[Any], Any], Any]]:
    """Return what stands under the names that code looks up, by name space."""
    spaces: dict[int, tuple[dict[str, Any], list[str]]] = {}
    for space, name in state.names:
        if name in space:
            spaces.setdefault(id(space), (space, []))[1].append(name)
    found: list[tuple[dict[str, Any], Callable[[Any], Any], Any]] = []
    for space, names in spaces.values():
        get = itemgetter(*names, names[0])  # of two names at least it makes a tuple
        found.append((space, get, get(space)))
    return found


def _contents(item: Any) -> list[Any]:
    """Return the live views of what an object holds."""
    views: list[Any] = []
    if isinstance(item, dict):
        views += [item.values(), item.keys()]
    elif isinstance(item, (list, deque)):
        views.append(item)
    if isinstance(item, nn.Module):
        own = vars(item)
        inner = [own[name] for name in _INNER if isinstance(own.get(name), dict)]
        return [own.values(), *(each.values() for each in inner)]
    if has_attributes(item):
        views.append(vars(item).values())
    if names := slots(item):
        views.append(_Slots(item, names))
    return views


class _Slots:
    """What stands in the slots of an object, as a view."""

    def __init__(self, item: Any, names: list[str]) -> None:
        self.item, self.names = item, names

    def __len__(self) -> int:
        return len(self.names)

    def __iter__(self) -> Any:
        return (getattr(self.item, name, None) for name in self.names)


def _looks(item: Any) -> list[Callable[[], Any]]:
    """Return what shows the content of an object that no view shows."""
    if isinstance(item, set):
        return [lambda: frozenset(item)]
    if isinstance(item, np.ndarray) and not item.dtype.hasobject and _words_of_array(item) is None:
        return [item.tobytes]
    if isinstance(item, BYTES):
        return [lambda: bytes(memoryview(item))]
    if isinstance(item, FILES):
        file: Any = item
        return [lambda: file.__getstate__()[:-1]]
    if isinstance(item, ContextVar):
        return [lambda: id(item.get(None))]
    if isinstance(item, weakref.ref):
        return [lambda: id(item())]
    if isinstance(item, partial):
        return [lambda: [id(item.func), id(item.args), id(item.keywords)]]
    if isinstance(item, torch.jit.ScriptModule):
        return [lambda: [value for _, value in scripted(item)
                         if not isinstance(value, torch.Tensor)]]
    if isinstance(item, np.ndarray):
        return [lambda: list(map(id, item.ravel().tolist()))] * (item.dtype == object)
    if isinstance(item, (dict, list, tuple, frozenset, deque)) or has_attributes(item) \
            or slots(item):
        return []
    return [lambda: [part for part in pytree.tree_leaves(made_of(item))
                     if isinstance(part, PLAIN)]]


_INNER = ('_parameters', '_buffers', '_modules', '_forward_hooks', '_forward_pre_hooks')


def _words(tensor: torch.Tensor) -> torch.Tensor | None:
    """Return the bits of a dense tensor in the host's memory, as they lie there, else None."""
    plain = tensor.detach()
    if plain.device.type != 'cpu' or not plain.numel() or plain.is_quantized \
            or type(plain) is not torch.Tensor:
        return None
    if not plain.is_contiguous():
        order = sorted(range(plain.dim()), key=lambda d: -plain.stride()[d])
        plain = plain.permute(order)
        if not plain.is_contiguous():
            return None
    return as_words(plain)


def _words_of_array(item: Any) -> torch.Tensor | None:
    """Return the bytes of a large dense array of NumPy as they lie in memory, else None."""
    if not isinstance(item, np.ndarray) or item.dtype.hasobject or item.nbytes <= _SUMMED \
            or not item.flags.c_contiguous or not item.flags.writeable:
        return None
    return torch.from_numpy(item.reshape(-1).view(np.uint8)).view(torch.int8)


def _widened(words: torch.Tensor) -> torch.Tensor:
    """Return words as wide ones, of which sums are faster, where they lie and end so."""
    if words.nbytes % 8 or words.data_ptr() % 8 or words.storage_offset() * words.itemsize % 8:
        return words
    return words.view(torch.int64)


def _sampled(words: torch.Tensor) -> list[torch.Tensor]:
    if len(words) <= 2 * _SAMPLES:
        return [words]
    return [words[at:at + _SAMPLES] for at in (len(words) // 3, len(words) - _SAMPLES)]


def _sums(words: torch.Tensor) -> list[int]:
    at = _SUMMED // words.itemsize
    whole = len(words) // at
    sums: list[int] = words[:whole * at].view(-1, at).sum(1, dtype=torch.int64).tolist()
    rest = words[whole * at:]
    return [*sums, int(rest.sum(dtype=torch.int64))] if len(rest) else sums
