# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Plain Python as machine code, where numba is installed.

Numba keeps what it compiles on disk, next to the source or in the user's
cache folder; where it can write nowhere every process compiles anew.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache
import hashlib
import inspect
from types import FunctionType, ModuleType
from typing import Any, cast
import warnings

Modules = tuple[ModuleType, ...]


def machine_code(modules: Modules, entries: Sequence[Callable[..., Any]], inline: bool = True,
                 allocates: bool = True) -> tuple[Callable[..., Any], ...] | None:
    """
    Return functions that call those of some modules, compiled on their first call.

    None where numba is not installed, or kept from compiling by its variable
    NUMBA_DISABLE_JIT: the functions themselves do the same.
    `inline` makes small functions quicker, and compiling slower.  Functions
    that make no arrays are quicker if they say so: those that they are given
    are then not counted each time that one is named.
    """
    try:
        from numba import config, njit
    except ImportError:
        return None
    if config.DISABLE_JIT:  # type: ignore[attr-defined]  # set from its variables
        return None
    _let_be_called(modules, inline)
    digest = hashlib.sha256(''.join(map(inspect.getsource, modules)).encode()).hexdigest()[:12]
    options = {'error_model': 'numpy', 'no_cfunc_wrapper': True, '_nrt': allocates}
    return tuple(_compiled(njit, entry, digest, options) for entry in entries)


@cache
def _let_be_called(modules: Modules, inline: bool) -> None:
    """Tell numba that all functions of the modules may be called from compiled code."""
    from numba.extending import register_jitable
    for module in modules:
        for item in vars(module).values():
            if isinstance(item, FunctionType) and item.__module__ == module.__name__:
                register_jitable(error_model='numpy', forceinline=inline)(item)


def _compiled(njit: Callable[..., Any], function: Any, digest: str, options: Mapping[str, Any],
              ) -> Any:
    """
    Compile a function on its first call, with all that it calls.

    Its name carries a digest of all sources, since numba's cache looks only
    at the file of the function itself and would keep stale callees.  What it
    calls is compiled once for its types: numba would compile functions that
    are decorated themselves once more for every constant that they are called
    with.
    """
    twin = FunctionType(function.__code__, function.__globals__, function.__name__)
    twin.__qualname__ = f'{function.__name__}_{digest}'
    compiled = njit(**options)(twin)
    with suppress(RuntimeError):  # no folder that could be written to
        compiled._cache = _lenient_cache(twin)
    return compiled


def _lenient_cache(function: FunctionType) -> Any:
    """
    Return numba's cache for a function, that does without what cannot be read or written.

    Disks are full, and files are empty after a loss of power; numba would fail in each process.

    :raises RuntimeError: if there is no folder for it.
    """
    from numba.core import caching
    kept = cast(Any, caching).FunctionCache(function)
    load, save = kept.load_overload, kept.save_overload

    def load_what_is_whole(signature: Any, target: Any) -> Any:
        try:
            return load(signature, target)
        except Exception:  # noqa: BLE001 - whatever bytes that are not code lead to
            with suppress(Exception):
                kept.flush()
            return None

    def save_if_possible(signature: Any, compiled: Any) -> None:
        try:
            save(signature, compiled)
        except Exception as error:  # noqa: BLE001 - the function is compiled, and can be called
            warnings.warn(f'compiled code cannot be kept in {kept.cache_path}, and will be '
                          f'compiled again: {getattr(error, "strerror", None) or error} '
                          '(NUMBA_CACHE_DIR names another folder)', stacklevel=2)
    kept.load_overload, kept.save_overload = load_what_is_whole, save_if_possible
    return kept
