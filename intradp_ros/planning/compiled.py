# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
The kernels as machine code, where numba is installed.

The modules of `kernels` are plain Python, which is quick enough to lower one
partition.  A search that judges thousands of them takes the compiled twins
from here: the same code, some two hundred times faster.  Numba keeps them on
disk, next to the kernels or in the user's cache folder; where it can write
nowhere they are compiled anew by every process.
"""
from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
import hashlib
import inspect
import logging
from types import FunctionType, SimpleNamespace
from typing import Any

from intradp_ros.planning.kernels import (
    bands,
    judging,
    play,
    programs,
    recurrence,
    rows,
    transfers,
)

_MODULES = (rows, bands, transfers, programs, play, judging, recurrence)
#: What is called from Python; wrappers of the others would only take time to compile.
_CALLED = ('judge', 'complete')
_log = logging.getLogger(__name__)


@lru_cache(maxsize=1)
def kernels() -> Any:
    """Return the kernels by name: compiled ones, or plain ones where numba is not installed."""
    try:
        from numba import njit
    except ImportError:
        _log.warning('numba is not installed, so planning takes minutes instead of seconds: '
                     'install it with "pip install numba"')
        return SimpleNamespace(compiled=False, **{f.__name__: f for f in _functions()})
    return SimpleNamespace(compiled=True, **_twins(njit))


def _functions() -> list[FunctionType]:
    return [item for module in _MODULES for item in vars(module).values()
            if isinstance(item, FunctionType) and item.__module__ == module.__name__]


def _twins(njit: Callable[..., Any]) -> dict[str, Any]:
    """
    Compile copies of all functions that find each other's copies, not the plain ones.

    Their names carry a digest of all sources, since numba's cache looks only
    at the file of the function itself and would keep stale callees.
    """
    digest = hashlib.sha256(''.join(map(inspect.getsource, _MODULES)).encode()).hexdigest()[:12]
    scopes = {module.__name__: dict(vars(module)) for module in _MODULES}
    functions = _functions()
    twins = {}
    for function in functions:
        twin = FunctionType(function.__code__, scopes[function.__module__], function.__name__)
        twin.__module__ = function.__module__
        twin.__qualname__ = f'{function.__name__}_{digest}'
        inner = function.__name__ not in _CALLED
        twins[function] = _compile(partial(
            njit, error_model='numpy', no_cpython_wrapper=inner, no_cfunc_wrapper=True), twin)
    for scope in scopes.values():
        scope.update({name: twins[item] for name, item in scope.items()
                      if isinstance(item, FunctionType) and item in twins})
    return {function.__name__: twin for function, twin in twins.items()}


def _compile(njit: Callable[..., Any], function: FunctionType) -> Any:
    try:
        return njit(cache=True)(function)
    except RuntimeError:  # no folder that could be written to
        return njit(function)


