# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""An exception at any call of a loop: functions of modules raise once, on threads by name."""
from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
import functools
import inspect
import threading
from types import ModuleType
from typing import Any


class Panic(BaseException):
    """What extensions raise that is not an `Exception`."""


class Injector:
    """
    Counts the calls of functions on threads whose names begin so, and lets one of them raise.

    `calls` are the names of functions with how often each was called, `raised` whether the one
    that was `armed` did.
    """

    def __init__(self, threads: Sequence[str]) -> None:
        self._threads = tuple(threads)
        self.calls: Counter[str] = Counter()
        self._armed: tuple[str, int, type[BaseException]] | None = None
        self.raised = False
        self._lock = threading.Lock()

    def arm(self, name: str, number: int, kind: type[BaseException]) -> None:
        """Let the `number`-th call of a function from now on raise, once."""
        with self._lock:
            self.calls.clear()
            self._armed, self.raised = (name, number, kind), False

    def disarm(self) -> None:
        """Let nothing raise any more."""
        with self._lock:
            self._armed = None

    def called(self, name: str) -> None:
        """Take a call; raise if it is the one."""
        if not threading.current_thread().name.startswith(self._threads):
            return
        with self._lock:
            self.calls[name] += 1
            if self._armed is None or (name, self.calls[name]) != self._armed[:2]:
                return
            kind, self._armed, self.raised = self._armed[2], None, True
        raise kind(f'injected into {name}')

    def wrapped(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that counts its calls, or raises instead."""
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            self.called(name)
            return function(*args, **kwargs)
        return call

    @contextmanager
    def inside(self, defining: Sequence[ModuleType], using: Sequence[ModuleType],
               left_out: Sequence[str] = ()) -> Iterator[None]:
        """Count all functions and methods of modules, wherever these or others use them."""
        undo: list[tuple[Any, str, Any]] = []

        def put(owner: Any, name: str, new: Any) -> None:
            undo.append((owner, name, vars(owner)[name]))
            setattr(owner, name, new)
        made: dict[Any, Any] = {}
        for module in defining:
            for name, item in list(vars(module).items()):
                full = f'{module.__name__.rpartition(".")[2]}.{name}'
                if getattr(item, '__module__', '') != module.__name__ or full in left_out:
                    continue
                if inspect.isfunction(item) and not inspect.isgeneratorfunction(item):
                    made[item] = self.wrapped(full, item)
                elif inspect.isclass(item) and not issubclass(item, BaseException):
                    for method, function in list(vars(item).items()):
                        if inspect.isfunction(function) and not method.startswith('__') \
                                and not inspect.isgeneratorfunction(function) \
                                and f'{full}.{method}' not in left_out:
                            put(item, method, self.wrapped(f'{full}.{method}', function))
        for module in using:
            for name, item in list(vars(module).items()):
                if inspect.isfunction(item) and item in made:
                    put(module, name, made[item])
        try:
            yield
        finally:
            for owner, name, old in reversed(undo):
                setattr(owner, name, old)
