# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Checkpoints: one safetensors file with weights, statistics, optimiser and the place in the data.

Plain torch reads it: `p:` and `b:` before the names of the module's own state::

    found = safetensors.torch.load_file(path)
    state = {name[2:]: t for name, t in found.items() if name[:2] in ('p:', 'b:')}
    module.load_state_dict(state, strict=False)

`o:NAME:KEY` are what the optimiser keeps of a parameter.
"""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
import hashlib
import json
from pathlib import Path

from safetensors import safe_open
from safetensors.torch import save
import torch

from intradp_ros.core.whole_file import replacing
from intradp_ros.systems.training.task import TaskError

FORMAT = 'intradp-checkpoint-1'


@dataclass(frozen=True)
class Checkpoint:
    """A state between two rounds."""

    state: Mapping[str, torch.Tensor]
    task: str
    round: int
    seed: int
    batch: int
    loss: float

    @property
    def weights(self) -> dict[str, torch.Tensor]:
        """Return parameters and statistics by the module's names."""
        return {name[2:]: t for name, t in self.state.items() if name[:2] in ('p:', 'b:')}


def write_checkpoint(path: Path, checkpoint: Checkpoint) -> str:
    """Write a checkpoint, whole or not at all; return its SHA-256."""
    data = save({name: t.contiguous() for name, t in checkpoint.state.items()}, {
        'format': FORMAT, 'training': json.dumps({
            'task': checkpoint.task, 'round': checkpoint.round, 'seed': checkpoint.seed,
            'batch': checkpoint.batch, 'loss': checkpoint.loss})})
    with replacing(path) as part:
        part.write_bytes(data)
    return hashlib.sha256(data).hexdigest()


def read_checkpoint(path: Path) -> Checkpoint:
    """
    Read a checkpoint.

    Raises
    ------
    TaskError
        If it is none.

    """
    try:
        with safe_open(path, framework='pt') as file:
            told = file.metadata() or {}
            if told.get('format') != FORMAT:
                raise TaskError(f'{path} is no checkpoint of intradp train')
            facts = json.loads(told['training'])
            state = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        return Checkpoint(state, str(facts['task']), int(facts['round']), int(facts['seed']),
                          int(facts['batch']), float(facts['loss']))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise TaskError(f'{path} cannot be read as a checkpoint: {error}') from None
    except Exception as error:  # safetensors raises its own kind
        raise TaskError(f'{path} is no safetensors file: {error}') from None
