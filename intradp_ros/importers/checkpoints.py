# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What checkpoints of torch and safetensors hold: read without running code of theirs."""
from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
import pickle
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file
import torch

from intradp_ros.importers.file_kinds import Kind, kind_of
from intradp_ros.importers.loading_error import LoadingError
from intradp_ros.importers.pickled_weights import Inert, read_inert, weights_of

#: Below which keys training scripts keep weights; an average of them is the better one.
_KEYS = ('ema', 'model_ema', 'state_dict_ema', 'state_dict', 'model_state_dict', 'model', 'net',
         'network', 'weights', 'module')


def classes_in(path: Path) -> list[str]:
    """Return what a checkpoint names besides tensors and containers."""
    try:
        return sorted(torch.serialization.get_unsafe_globals_in_checkpoint(path))
    except (ValueError, RuntimeError):  # of before PyTorch 1.6: nothing lists them
        return []


def checkpoint_module(path: Path) -> Any:
    """
    Return the module that a checkpoint of ultralytics holds, as an inert object.

    :raises LoadingError: if it holds none.
    """
    kind = kind_of(path)
    if kind is not Kind.CHECKPOINT:
        raise LoadingError(f'{path} is not a checkpoint: it {kind.value}')
    held = _read(path)
    if isinstance(held, Mapping):
        modules = [held[key] for key in ('ema', 'model') if isinstance(held.get(key), Inert)]
        held = modules[0] if modules else held
    if isinstance(held, Inert) and isinstance(vars(held).get('yaml'), Mapping):
        return held
    if isinstance(held, Inert):
        raise LoadingError(f'{path} holds a {type(held).__name__}, which is not a model of '
                           'ultralytics (YOLOv8 or later)')
    raise LoadingError(f'{path} holds weights without a network: a checkpoint of ultralytics has '
                       'both; give what its training or export wrote')


def state_of(path: Path) -> dict[str, torch.Tensor]:
    """
    Return the weights in a file, by name.

    Those of a training's checkpoint or a whole pickled module are found, too.

    :raises LoadingError: if there are none.
    """
    try:
        kind = kind_of(path)
    except LoadingError as error:
        raise LoadingError(f'the weights do not fit: {error}') from error
    if kind is Kind.SAFETENSORS:
        try:
            return load_file(path)
        except (SafetensorError, OSError, ValueError) as error:
            raise LoadingError(f'the weights {path} cannot be read: {error}') from error
    if kind is not Kind.CHECKPOINT:
        raise LoadingError(f'the weights {path} do not fit: the file {kind.value}')
    held = _state_in(_read(path))
    if held is None:
        raise LoadingError(f'the weights {path} do not fit: the checkpoint holds no weights by '
                           'name')
    return held


def _read(path: Path) -> Any:
    try:
        return read_inert(path)
    except (pickle.UnpicklingError, RuntimeError, ValueError, OSError, EOFError, KeyError,
            AttributeError, TypeError, IndexError) as error:
        said = str(error).strip().partition('\n')[0]
        raise LoadingError(f'{path} cannot be read as a checkpoint of tensors: {said}') from error


def _state_in(held: Any) -> dict[str, torch.Tensor] | None:
    if isinstance(held, Inert):
        return weights_of(held) or None
    if not isinstance(held, Mapping):
        return None
    for key in _KEYS:
        if (found := held.get(key)) is not None and not isinstance(found, torch.Tensor):
            inner = _state_in(found)
            if inner:
                return inner
    tensors = {str(name): x for name, x in held.items() if isinstance(x, torch.Tensor)}
    return tensors or None
