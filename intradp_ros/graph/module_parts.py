# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Copies of modules, and what their parts hold, to be put back after a run."""
from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
import copy
from typing import Any

import torch
from torch import nn

from intradp_ros.graph.graph_errors import CaptureError

_HOLDING = (dict, OrderedDict, list, set)


def check_hashable(model: nn.Module) -> None:
    """
    Check that PyTorch can list a model's parts.

    :raises CaptureError: if it cannot.
    """
    try:
        list(model.modules())
    except TypeError as error:
        raise CaptureError(
            f'PyTorch cannot list the parts of {type(model).__name__} ({error}): its class needs '
            '__hash__ = torch.nn.Module.__hash__ next to __eq__; a dataclass, eq=False'
        ) from error


def copied(module: nn.Module, known: dict[int, Any] | None = None) -> nn.Module:
    """
    Return a deep copy of a module, with what its parameters hold besides numbers.

    :param known: the memo of `copy.deepcopy`: what is copied already, by identity.
    """
    known = {} if known is None else known
    held, made = list(module.parameters()), copy.deepcopy(module, known)
    for own, other in zip(held, made.parameters()):  # PyTorch copies no attributes of them
        vars(other).update({name: copy.deepcopy(item, known) for name, item in vars(own).items()
                            if name not in vars(other)})
    return made


@contextmanager
def attributes_put_back(module: nn.Module) -> Iterator[None]:
    """Put back the attributes of a module's parts, and what is in their dicts, lists and sets."""
    parts = [(part, dict(vars(part))) for part in module.modules()
             if not isinstance(part, torch.jit.ScriptModule)]
    held = [(one, one.copy()) for _, had in parts for one in had.values()
            if type(one) in _HOLDING]  # hooks and buffers among them
    try:
        yield
    finally:
        for part, had in parts:
            vars(part).clear()
            vars(part).update(had)
        for one, before in held:
            one.clear()
            one.extend(before) if isinstance(one, list) else one.update(before)
