# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Stands in for the ``forward`` of one module, and leaves nothing in it.

The module gets a class of its own, derived from the one it has (PyTorch's
parametrizations do the same).  Its attributes stay what they were: copies,
pickles and exports of it are of the class that it had.
"""
from __future__ import annotations

from collections.abc import Callable
import functools
import inspect
from typing import Any

import torch
from torch import nn

from intradp_ros.graph.held_state import OURS

_CLASS: Any = vars(object)['__class__']
Call = Callable[[tuple[Any, ...], dict[str, Any]], Any]


class StandIn:
    """
    Calls of `model` go to `call`, until `end`.

    `plain` is what calls did before.  While PyTorch compiles the model, and
    in copies, calls go there.
    """

    def __init__(self, model: nn.Module, call: Call) -> None:
        self.model, self._call = model, call
        self._kind = type(model)
        self._own = vars(model).get('forward')  # if somebody else has put it there
        self._ended = False
        self.plain: Callable[..., Any] = model.forward
        derived = _derived(self) if not isinstance(model, torch.jit.ScriptModule) else None
        self._derived = derived
        if derived is None:  # code of TorchScript has a forward of another kind
            model.forward = lambda *args, **kwargs: call(args, kwargs)
            return
        vars(model).pop('forward', None)
        if self._own is None:
            self.plain = lambda *args, **kwargs: self._of_class(model)(*args, **kwargs)
        _CLASS.__set__(model, derived)

    def call(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Make a call of a module that has the derived class: the model, or a copy of it."""
        if module is not self.model or self._ended:
            return self._of_class(module)(*args, **kwargs)
        return self._call(args, kwargs)

    def _of_class(self, module: nn.Module) -> Callable[..., Any]:
        """Return the forward that the class of the model gives to a module."""
        forward: Any = inspect.getattr_static(self._kind, 'forward')
        bound: Callable[..., Any] = forward.__get__(module, self._kind)
        return bound

    def own(self, module: nn.Module) -> dict[str, Any]:
        """Return what stood in the attributes of a module and was taken out of them."""
        return {'forward': self._own} if module is self.model and self._own is not None else {}

    def end(self) -> None:
        """Give the model its own forward back."""
        self._ended = True
        if self._derived is None:
            vars(self.model).pop('forward', None)
        elif type(self.model) is self._derived:
            _CLASS.__set__(self.model, self._kind)
        if self._own is not None:
            vars(self.model).setdefault('forward', self._own)


def standing_in(model: nn.Module) -> Call | None:
    """Return what calls of a model go to, if something stands in for its forward."""
    found = vars(type(model)).get(OURS)
    return found._call if isinstance(found, StandIn) and found.model is model else None


def _derived(stand_in: StandIn) -> type:
    kind = type(stand_in.model)
    own = vars(stand_in.model).get('forward')

    @functools.wraps(kind.forward)
    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling():
            return kind.forward(self, *args, **kwargs) if own is None else own(*args, **kwargs)
        return stand_in.call(self, args, kwargs)

    def reduce(self: Any, protocol: Any) -> Any:
        reduced = super(derived, self).__reduce_ex__(protocol)
        if not isinstance(reduced, tuple):
            return reduced
        maker, given, *rest = reduced
        given = tuple(kind if item is derived else item for item in given)
        if rest and isinstance(rest[0], dict):
            rest[0] = {**rest[0], **stand_in.own(self)}
        return (kind if maker is derived else maker, given, *rest)

    def scriptable(self: Any) -> Any:
        """Give `torch.jit.script` a module of the class whose code it is to read."""
        if made := getattr(kind, '__prepare_scriptable__', None):
            return made(self)
        bare: Any = object.__new__(kind)
        vars(bare).update({**vars(self), **stand_in.own(self)})
        return bare

    # pickle, and programs that make another of a kind, ask the object for its class
    shown = property(lambda self: kind if _CLASS.__get__(self) is derived else
                     _CLASS.__get__(self), lambda self, other: _CLASS.__set__(self, other))
    body = {'forward': forward, '__reduce_ex__': reduce, '__class__': shown,
            '__prepare_scriptable__': scriptable,
            '__module__': kind.__module__, '__qualname__': kind.__qualname__,
            '__doc__': kind.__doc__, OURS: stand_in}
    # Neither the class nor its metaclass shall hear of one more: some keep books of them.
    # What programs write to the class of the model they mean for the one that it had.
    meta: Any = type.__new__(type, type(kind).__name__, (type,), {
        '__setattr__': lambda self, name, value: setattr(kind, name, value),
        '__delattr__': lambda self, name: delattr(kind, name)})
    meta.__bases__ = (type(kind),)
    derived: Any = type.__new__(meta, kind.__name__, (nn.Module,), body)
    try:
        type.__setattr__(derived, '__bases__', (kind,))
    except TypeError:  # its attributes have slots, which only classes born of it have
        derived = type.__new__(meta, kind.__name__, (kind,), body)
    return derived  # type: ignore[no-any-return]
