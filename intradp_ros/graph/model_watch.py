# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Notices, within microseconds, that a model is no longer what was captured.

At each call identities are compared of all that the model holds (attributes,
entries of its containers, layers, hooks, classes, closures, globals), and of
each tensor its version, its address and some of its numbers.  Only where
these differ everything is compared, so that a value put back counts as none
changed.  What PyTorch itself does not count, such as single numbers written
through ``.data``, is found by sums of the bits, a few kilobytes at each call.
"""
from __future__ import annotations

from collections import deque
from itertools import chain
from operator import attrgetter, is_
import time
from typing import Any

import torch
from torch import nn

from intradp_ros.graph.held_state import as_words, held_state, HeldState

_SAMPLES = 16
_WHOLE = 32  # tensors of so few numbers are compared whole
_SUMMED = 4096  # words at each call
_RESTS = 50.0  # times what a full comparison took, until the next one
_VERSIONS = attrgetter('_version')


class ModelWatch:
    """Keeps what a model held when it was made, and tells whether it still does."""

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
        if self._same() and self._same_bits():
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
        self._cells = [(cell, cell.cell_contents) for cell in state.cells]
        self._names = [(space, name, space.get(name)) for space, name in state.names]
        self._tensors = [t for t in self.tensors if not t.is_inference()
                         and t.layout == torch.strided and t.device.type != 'meta']
        self._versions = list(map(_VERSIONS, self._tensors))
        self._places = list(map(torch.Tensor.data_ptr, self._tensors))
        words = [_words(t) for t in self._tensors]
        self._rows = [w for w in words if w is not None]
        self._samples = [[part for w in self._rows if w.dtype == kind for part in _sampled(w)]
                         for kind in (torch.int8, torch.int16, torch.int32, torch.int64)]
        self._samples = [group for group in self._samples if group]
        with torch.inference_mode():
            self._sampled = [torch.cat(group) for group in self._samples]
            self._sums = [_sums(w) for w in self._rows]
        self._at = (0, 0)

    def _same(self) -> bool:
        return (
            list(map(len, self._held)) == self._sizes
            and all(map(is_, chain.from_iterable(self._views), self._items))
            and list(map(_VERSIONS, self._tensors)) == self._versions
            and list(map(torch.Tensor.data_ptr, self._tensors)) == self._places
            and list(map(type, self._modules)) == self._classes
            and all(space.get(name) is item for space, name, item in self._names)
            and all(cell.cell_contents is item for cell, item in self._cells))

    def _same_bits(self) -> bool:
        """Compare some numbers of each tensor, and the bits of the next piece of one."""
        with torch.inference_mode():
            for group, expected in zip(self._samples, self._sampled):
                if not torch.equal(torch.cat(group), expected):
                    return False
            if not self._rows:
                return True
            row, piece = self._at
            words, sums = self._rows[row], self._sums[row]
            part = words[piece * _SUMMED:(piece + 1) * _SUMMED]
            same = part.sum(dtype=torch.int64).item() == sums[piece]
            self._at = (row, piece + 1) if piece + 1 < len(sums) else (
                (row + 1) % len(self._rows), 0)
            return same


def _contents(item: Any) -> list[Any]:
    """Return the live views of what an object holds."""
    views: list[Any] = []
    if isinstance(item, dict):
        views.append(item.values())
    elif isinstance(item, (list, deque)):
        views.append(item)
    if isinstance(item, nn.Module):
        own = vars(item)
        inner = [own[name] for name in _INNER if isinstance(own.get(name), dict)]
        return [own.values(), *(each.values() for each in inner)]
    if hasattr(item, '__dict__'):
        views.append(vars(item).values())
    return views


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


def _sampled(words: torch.Tensor) -> list[torch.Tensor]:
    if len(words) <= _WHOLE:
        return [words]
    return [words[at:at + _SAMPLES] for at in (len(words) // 3, len(words) - _SAMPLES)]


def _sums(words: torch.Tensor) -> list[int]:
    whole = len(words) // _SUMMED
    sums: list[int] = words[:whole * _SUMMED].view(-1, _SUMMED).sum(1, dtype=torch.int64).tolist()
    rest = words[whole * _SUMMED:]
    return [*sums, int(rest.sum(dtype=torch.int64))] if len(rest) else sums
