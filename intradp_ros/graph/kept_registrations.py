# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
What torch registers while it makes a program functional, made once.

`ExportedProgram.run_decompositions` looks up all operators once for each namespace, gives a
thousand of them kernels of ten dispatch keys and takes these back afterwards, for every program:
most of the time of a small capture.
"""
from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import torch
from torch._export import utils
from torch._subclasses import fake_impls
from torch.export import exported_program

_OVERRIDES, _LOOKS_UP = '_override_composite_implicit_decomp', '_materialize_cpp_cia_ops'
#: The releases whose way is known here; others register anew for each program.
_KNOWN = torch.__version__.startswith('2.13.')
_OVERRIDE: Callable[[Any], Any] | None = (
    getattr(exported_program, _OVERRIDES, None) if _KNOWN else None)
_LOOK_UP: Callable[[], None] | None = getattr(utils, _LOOKS_UP, None)
_RULES: dict[Any, Any] = fake_impls.op_implementations_dict


@dataclass(frozen=True)
class _State:
    """Kernels and rules of operators; the identity of all says whether states are the same."""

    all: tuple[tuple[Any, ...], ...]
    rules: tuple[Any, ...]
    kernels: tuple[dict[Any, Any], ...] = field(compare=False)

    @classmethod
    def of(cls, table: Mapping[Any, Any]) -> _State:
        kernels = tuple(dict(operator.py_kernels) for operator in table)
        return cls(tuple((*each, *each.values()) for each in kernels),
                   tuple(map(_RULES.get, table)), kernels)

    def put(self, table: Mapping[Any, Any]) -> None:
        for operator, kernels, rule in zip(table, self.kernels, self.rules):
            operator.py_kernels.clear()
            operator.py_kernels.update(kernels)
            operator._dispatch_cache.clear()
            if rule is not None:
                _RULES[operator] = rule


#: Tables of operators, with their states before torch overrides them by it, and meanwhile.
_kept: deque[tuple[Mapping[Any, Any], _State, _State]] = deque(maxlen=4)


@contextmanager
def registered_once() -> Iterator[None]:
    """Let torch take what it has registered before, where all is as it was then."""
    if _OVERRIDE is None or _LOOK_UP is None:
        yield
        return
    setattr(exported_program, _OVERRIDES, _override)
    setattr(utils, _LOOKS_UP, cache(_LOOK_UP))
    try:
        yield
    finally:
        setattr(exported_program, _OVERRIDES, _OVERRIDE)
        setattr(utils, _LOOKS_UP, _LOOK_UP)


@contextmanager
def _override(table: Mapping[Any, Any]) -> Iterator[None]:
    assert _OVERRIDE is not None
    known = next((k for k in _kept if k[0] == table and k[1] == _State.of(k[0])), None)
    if known is None:
        before = _State.of(table)
        with _OVERRIDE(table):
            _kept.append((dict(table), before, _State.of(table)))
            yield
        return
    table, before, during = known
    during.put(table)
    try:
        yield
    finally:
        before.put(table)
        for operator in table:  # as torch does, also for rules that were there before
            _RULES.pop(operator, None)
