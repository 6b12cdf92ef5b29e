# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Weights from a file for a module: limits first, then the digest, then every name and shape."""
from __future__ import annotations

from collections.abc import Mapping
import hashlib
import json
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import nn

#: Bytes of a file's header, and what a file may have beyond its weights: an optimiser's state.
MOST_HEADER, MOST_TIMES = 1 << 24, 8
#: The format of checkpoints of training, and how names of parameters and statistics begin there.
CHECKPOINT, KEPT = 'intradp-checkpoint-1', ('p:', 'b:')
#: Buffers that a checkpoint may lack: nothing is computed with them.
_COUNTS = 'num_batches_tracked'


class WeightsError(ValueError):
    """A file whose weights cannot be used; the text says why."""


def read_weights(path: Path, nbytes: float, sha256: str = '') -> dict[str, torch.Tensor]:
    """
    Return the tensors of a safetensors file by the module's names.

    Parameters
    ----------
    path :
        Of plain weights, or a checkpoint of training, whose optimiser is left out.
    nbytes :
        Bytes of the module's weights; a file of more than `MOST_TIMES` of it is not read.
    sha256 :
        What the file's SHA-256 must be; empty for whatever it is.

    Raises
    ------
    WeightsError
        If it is too large, another file, or no safetensors.

    """
    try:
        with path.open('rb') as stream:
            most = int(MOST_TIMES * nbytes) + MOST_HEADER
            data = stream.read(most + 1)
    except OSError as error:
        raise WeightsError(f'{path} cannot be read: {error.strerror}') from error
    if len(data) > most:
        raise WeightsError(f'{path} has more than {most} bytes: too many for a model whose '
                           f'weights have {nbytes:.0f}')
    if sha256 and hashlib.sha256(data).hexdigest() != sha256.lower():
        raise WeightsError(f'{path} is not the file that is meant: its SHA-256 is '
                           f'{hashlib.sha256(data).hexdigest()}')
    facts = _metadata(data, path)
    try:
        found: dict[str, torch.Tensor] = safetensors.torch.load(data)
    except Exception as error:  # of a kind of its own
        raise WeightsError(f'{path} is no safetensors file: {error}') from error
    return module_state(found) if facts.get('format') == CHECKPOINT else found


def module_state(checkpoint: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return the parameters and statistics of a checkpoint's tensors, by the module's names."""
    return {name[2:]: tensor for name, tensor in checkpoint.items() if name.startswith(KEPT)}


def load_weights(module: nn.Module, weights: Mapping[str, torch.Tensor]) -> None:
    """
    Give a module all its weights; where they do not fit it keeps what it has.

    Raises
    ------
    WeightsError
        If one is missing or too much, of another shape or kind, or not finite.

    """
    wanted: dict[str, torch.Tensor] = module.state_dict()
    missing = [name for name in wanted if name not in weights and not name.endswith(_COUNTS)]
    others = [name for name in weights if name not in wanted]
    if missing or others:
        raise WeightsError('the weights are of another model: ' + '; '.join(
            f'{what} {", ".join(names[:3])}{" ..." * (len(names) > 3)}'
            for what, names in (('they lack', missing), ('the model lacks', others)) if names))
    for name, tensor in weights.items():
        like = wanted[name]
        if tensor.shape != like.shape or \
                tensor.is_floating_point() != like.is_floating_point():
            raise WeightsError(f'the weights are of another model: {name} is '
                               f'{tuple(tensor.shape)} {tensor.dtype}, the model has '
                               f'{tuple(like.shape)} {like.dtype}')
        if not bool(torch.isfinite(tensor).all()):
            raise WeightsError(f'{name} holds values that are no numbers: training has gone wrong')
    module.load_state_dict(weights, strict=False)


def _metadata(data: bytes, path: Path) -> Mapping[str, Any]:
    """Return what a file says of itself."""
    length = int.from_bytes(data[:8], 'little')
    if len(data) < 8 or length > min(MOST_HEADER, len(data) - 8):
        raise WeightsError(f'{path} is no safetensors file')
    try:
        header = json.loads(data[8:8 + length])
        facts = header.get('__metadata__', {})
        return facts if isinstance(facts, dict) else {}
    except (ValueError, AttributeError, RecursionError) as error:
        raise WeightsError(f'{path} is no safetensors file: {error}') from error
