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
from intradp_ros.runtime.weight_file import CHECKPOINT, module_state
from intradp_ros.systems.training.layer_graph import LayerGraph
from intradp_ros.systems.training.task import TaskError, TrainingTask


@dataclass(frozen=True)
class Checkpoint:
    """A state between two rounds; `samples` are those of the data, 0 where nobody noted them."""

    state: Mapping[str, torch.Tensor]
    task: str
    round: int
    seed: int
    batch: int
    loss: float
    samples: int = 0

    @property
    def weights(self) -> dict[str, torch.Tensor]:
        """Return parameters and statistics by the module's names."""
        return module_state(self.state)


def write_checkpoint(path: Path, checkpoint: Checkpoint) -> str:
    """Write a checkpoint, whole or not at all; return its SHA-256."""
    data = save({name: t.contiguous() for name, t in checkpoint.state.items()}, {
        'format': CHECKPOINT, 'training': json.dumps({
            'task': checkpoint.task, 'round': checkpoint.round, 'seed': checkpoint.seed,
            'batch': checkpoint.batch, 'loss': checkpoint.loss,
            'samples': checkpoint.samples})})
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
            if told.get('format') != CHECKPOINT:
                raise TaskError(f'{path} is no checkpoint of intradp train')
            facts = json.loads(told['training'])
            state = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        return Checkpoint(state, str(facts['task']), int(facts['round']), int(facts['seed']),
                          int(facts['batch']), float(facts['loss']), int(facts.get('samples', 0)))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise TaskError(f'{path} cannot be read as a checkpoint: {error}') from None
    except Exception as error:  # safetensors raises its own kind
        raise TaskError(f'{path} is no safetensors file: {error}') from None


def check_fits(checkpoint: Checkpoint, task: TrainingTask, graph: LayerGraph) -> None:
    """
    See that a task can go on exactly where a checkpoint ends.

    Raises
    ------
    TaskError
        If it is of another network, or its rounds would take other samples.

    """
    for what, noted, given in (('seed', checkpoint.seed, task.seed),
                               ('samples a round', checkpoint.batch, task.batch),
                               ('samples in all', checkpoint.samples or len(task.data),
                                len(task.data))):
        if noted != given:
            raise TaskError(f'the checkpoint was trained with {noted} {what}, the task has '
                            f'{given}: samples would be left out or seen twice; begin a new '
                            'training with its weights instead')
    if checkpoint.round >= task.rounds:
        raise TaskError(f'the checkpoint has {checkpoint.round} rounds and the task wants '
                        f'{task.rounds}: there is nothing to go on with; give the task more '
                        'rounds')
    buffers = {name for layer in graph.layers for name in layer.buffers}
    wanted: dict[str, torch.Tensor] = {f'p:{name}': p for name, p in graph.root.named_parameters()}
    wanted |= {f'b:{name}': b for name, b in graph.root.named_buffers() if name in buffers}
    for name, tensor in wanted.items():
        found = checkpoint.state.get(name)
        if found is None or found.shape != tensor.shape or found.dtype != tensor.dtype:
            has = 'nothing' if found is None else f'{tuple(found.shape)} {found.dtype}'
            raise TaskError(f'the checkpoint is of another network: of {name[2:]} it has {has}, '
                            f'the task {tuple(tensor.shape)} {tensor.dtype}')
