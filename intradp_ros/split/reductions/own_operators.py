# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Operators that no user's model has: parts of reductions, known to torch by their schemas."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from torch import library

from intradp_ros.graph.operator_graph import resolve_target
from intradp_ros.split.calls.call import call_plainly

NAMESPACE = 'intradp'
_LIBRARY: Any = library.Library(NAMESPACE, 'DEF')  # type: ignore[no-untyped-call]
_Function = TypeVar('_Function', bound=Callable[..., Any])


def operator(schema: str) -> Callable[[_Function], _Function]:
    """
    Make a function an operator of torch with this schema (without the namespace).

    Operators of that kind call other operators, so they run wherever those do.
    """
    def register(function: _Function) -> _Function:
        _LIBRARY.define(schema)
        _LIBRARY.impl(function.__name__, function, 'CompositeExplicitAutograd')
        call_plainly(resolve_target(target(function)), function)
        return function

    return register


def target(function: Callable[..., Any]) -> str:
    """Return the target by which the graph names an operator that a function implements."""
    return f'{NAMESPACE}.{function.__name__}.default'
