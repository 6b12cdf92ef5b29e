# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Checkpoints: one safetensors file with weights, statistics, optimiser and the place in the data.

Plain torch reads it: `p:` and `b:` before the names of the module's own state::

    found = safetensors.torch.load_file(path)
    state = {name[2:]: t for name, t in found.items() if name[:2] in ('p:', 'b:')}
    module.load_state_dict(state, strict=False)

`o:NAME:KEY` are what the optimiser keeps of a parameter, `v:best` what validations found, `w:`
before `p:` or `b:` the best weights so far.
"""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
import hashlib
import json
import os
from pathlib import Path
import shutil

from safetensors.torch import load, save
import torch
from torch import nn

from intradp_ros.core.atomic_write import replacing
from intradp_ros.core.json_text import parse_json
from intradp_ros.core.plain_file import open_to_read
from intradp_ros.runtime.models.weight_file import (
    CHECKPOINT,
    file_facts,
    module_state,
    WeightsError,
)
from intradp_ros.systems.training.base.task import TaskError, TrainingTask
from intradp_ros.systems.training.layers.judgement import BEST_WEIGHTS, BestSoFar
from intradp_ros.systems.training.layers.layer_graph import LayerGraph
from intradp_ros.systems.training.layers.stage_optimiser import stage_optimiser
from intradp_ros.systems.training.layers.task_facts import alike

#: Numbers of rounds and samples that are believed.
MOST_COUNT = 1 << 53


@dataclass(frozen=True)
class Checkpoint:
    """
    A state between two rounds; `samples` are those of the data, 0 where nobody noted them.

    `training` is the number of the training that wrote it, 0 where it has none; `digest` the
    SHA-256 of the file that it was read from; `data` what some samples are, '' if nobody noted it.
    """

    state: Mapping[str, torch.Tensor]
    task: str
    round: int
    seed: int
    batch: int
    loss: float
    samples: int = 0
    training: int = 0
    digest: str = ''
    data: str = ''

    @property
    def weights(self) -> dict[str, torch.Tensor]:
        """Return parameters and statistics by the module's names."""
        return module_state(self.state)


def whole_state(task: TrainingTask, state: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """
    Return a trained state with all else that the module's own state has.

    That is what is frozen or never used, other names of the same tensors, and other buffers; who
    loads the file needs no other one.
    """
    found = dict(state)
    for name, (first, tensor) in _all_names(task.module).items():
        found.setdefault(name, state.get(first, tensor).detach().clone())
    return found


def _all_names(module: nn.Module) -> dict[str, tuple[str, torch.Tensor]]:
    """Return the first name of each tensor in a module's state, and the tensor, by its names."""
    first: dict[int, str] = {}
    for kept, named in (('p:', module.named_parameters()), ('b:', module.named_buffers())):
        first |= {id(tensor): kept + name for name, tensor in named}
    return {first[id(tensor)][:2] + name: (first[id(tensor)], tensor)
            for name, tensor in module.state_dict(keep_vars=True).items()
            if id(tensor) in first and 'num_batches_tracked' not in name}


def previous_of(path: Path) -> Path:
    """Return where the checkpoint before that of a file is kept."""
    return path.with_name(f'{path.stem}.previous{path.suffix}')


def best_of(path: Path) -> Path:
    """Return where the best weights of a training are kept, by its checkpoint's path."""
    return path.with_name(f'{path.stem}.best{path.suffix}')


def without_link(path: Path) -> Path:
    """Return a path next to a checkpoint; a link there, which others have laid, is removed."""
    if path.is_symlink():
        path.unlink()
    return path


def not_finite(state: Mapping[str, torch.Tensor], module: nn.Module | None = None) -> str:
    """
    Return the name of a tensor of a state that holds values which are not numbers, or ''.

    Buffers may hold such from the beginning, as masks do: only what a module had finite counts,
    and none of them where no module is given.
    """
    had = dict(module.named_buffers()) if module else {}
    for name, tensor in state.items():
        kind, _, own = name.removeprefix(BEST_WEIGHTS).partition(':')
        if not _is_finite(tensor) and (
                kind != 'b' or own in had and _is_finite(had[own])):
            return own
    return ''


def _is_finite(tensor: torch.Tensor) -> bool:
    return bool(torch.isfinite(tensor).all())


def write_checkpoint(path: Path, checkpoint: Checkpoint, keep: bool = False) -> str:
    """
    Write a checkpoint, whole or not at all; return its SHA-256.

    With `keep` the one that is there is kept as `previous_of` says.

    :raises ValueError: if a weight is not finite: training could not go on from it, and it would
        take the place of one from which it can.
    """
    if bad := not_finite(checkpoint.state):
        raise ValueError(f'{bad} holds values that are not numbers: nothing goes on from them')
    facts = {'task': checkpoint.task, 'round': checkpoint.round, 'seed': checkpoint.seed,
             'batch': checkpoint.batch, 'loss': checkpoint.loss, 'samples': checkpoint.samples,
             'number': checkpoint.training, 'data': checkpoint.data}
    noted = json.dumps(facts)
    data = save({name: t.contiguous() for name, t in checkpoint.state.items()}, {
        'format': CHECKPOINT, 'training': noted, 'content': _content(noted, checkpoint.state)})
    path = path.resolve()
    with replacing(path) as part:
        part.write_bytes(data)
        if keep and path.exists():
            with replacing(without_link(previous_of(path))) as before:
                try:
                    os.link(path, before)
                except OSError:  # no links on this file system
                    shutil.copyfile(path, before)
    return hashlib.sha256(data).hexdigest()


def _content(facts: str, state: Mapping[str, torch.Tensor]) -> str:
    """Return the SHA-256 of all that a checkpoint says, whatever the order of its tensors."""
    content = hashlib.sha256(facts.encode())
    for name, tensor in sorted(state.items()):
        body = tensor.detach().cpu().contiguous().flatten().view(torch.uint8)
        content.update(f'\0{name} {tuple(tensor.shape)} {tensor.dtype}\0'.encode())
        content.update(body.numpy().data)
    return content.hexdigest()


def read_checkpoint(path: Path) -> Checkpoint:
    """
    Read a checkpoint, once.

    :raises TaskError: if it is none, or not as it was written.
    """
    try:
        with open_to_read(path) as stream:
            most = os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES')
            if os.fstat(stream.fileno()).st_size > most:
                raise TaskError(f'{path} is larger than the memory of this machine')
            data = stream.read()
        entries = file_facts(data, path)
        if entries.get('format') != CHECKPOINT:
            raise TaskError(f'{path} is not a checkpoint of intradp train')
        facts, state = parse_json(entries['training']), load(data)
        noted = _content(entries['training'], state)
        if entries.get('content', noted) != noted or {*entries} - {'format', 'training',
                                                                  'content'}:
            raise TaskError(f'{path} is damaged: it does not hold what was written; take another '
                            'checkpoint, or begin anew')
        found = Checkpoint(state, str(facts['task']), int(facts['round']), int(facts['seed']),
                           int(facts['batch']), float(facts['loss']),
                           int(facts.get('samples', 0)), int(facts.get('number', 0)),
                           hashlib.sha256(data).hexdigest(),
                           str(facts.get('data', '')))
        if not all(0 <= count <= MOST_COUNT for count in (found.round, found.batch,
                                                          found.samples)):
            raise TaskError(f'{path} has counts that make no sense: round {found.round}, '
                            f'{found.batch} samples a round of {found.samples}')
        return found
    except TaskError:
        raise
    except WeightsError as error:
        raise TaskError(str(error)) from None
    except (OSError, ValueError, KeyError, TypeError, OverflowError, MemoryError,
            RecursionError) as error:
        raise TaskError(f'{path} cannot be read as a checkpoint: {error}') from None
    except Exception as error:  # safetensors raises its own kind
        raise TaskError(f'{path} is not a safetensors file: {error}') from None


def is_checkpoint(path: Path) -> bool:
    """Return whether a file is a checkpoint that can be read."""
    try:
        return path.is_file() and bool(read_checkpoint(path))
    except (TaskError, OSError):
        return False


def newest_checkpoint(path: Path) -> tuple[Checkpoint, Path, str]:
    """
    Read the checkpoint of a file, or the one before where that is of no use.

    Return it, where it is, and why it is not the newest, '' if it is.

    :raises TaskError: if neither can be read, or holds finite values.
    """
    try:
        return _finite(path), path, ''
    except TaskError as error:
        before = previous_of(path)
        if not before.is_file():
            raise
        return _finite(before), before, str(error)


def _finite(path: Path) -> Checkpoint:
    found = read_checkpoint(path)
    if bad := not_finite(found.state):
        raise TaskError(f'{bad} of {path} holds values that are not numbers: training has gone '
                        'wrong before; go on from an older one')
    return found


def check_fits(checkpoint: Checkpoint, task: TrainingTask, graph: LayerGraph,
               samples: str = '') -> None:
    """
    See that a task can go on exactly where a checkpoint ends; `samples` as of `task_facts.py`.

    :raises TaskError: if it is of another network, or its rounds would take other samples.
    """
    for what, noted, given in (('seed', checkpoint.seed, task.seed),
                               ('samples a round', checkpoint.batch, task.batch),
                               ('samples in all', checkpoint.samples or len(task.data),
                                len(task.data))):
        if noted != given:
            raise TaskError(f'the checkpoint was trained with {noted} {what}, the task has '
                            f'{given}: samples would be left out or seen twice; begin a new '
                            'training with its weights instead')
    if samples and checkpoint.data and not alike(samples, checkpoint.data):
        raise TaskError('the checkpoint was trained with other samples than the task has now: let '
                        'it have those, in the same order (sort what comes of a set or a folder), '
                        'or begin a new training with its weights instead')
    if checkpoint.round >= task.rounds:
        raise TaskError(f'the checkpoint has {checkpoint.round} rounds and the task wants '
                        f'{task.rounds}: there is nothing to go on with; give the task more '
                        'rounds')
    if BestSoFar.of(checkpoint.state).ends(task):
        raise TaskError(f'the training ended at round {checkpoint.round}, after {task.patience} '
                        'validations without better weights: give the task more patience')
    buffers = {name for layer in graph.layers for name in layer.buffers}
    learned = {name: p for layer in graph.layers for name in layer.parameters
               if (p := graph.root.get_parameter(name)).requires_grad}
    wanted: dict[str, torch.Tensor] = {f'p:{name}': p for name, p in learned.items()}
    wanted |= {f'b:{name}': graph.root.get_buffer(name) for name in sorted(buffers)}
    kept = _kept(task, learned)
    stepped = {name[2:].rpartition(':')[0] for name in checkpoint.state if name[:2] == 'o:'}
    if kept and not stepped:
        raise TaskError(f'the checkpoint was trained with another optimiser: it has nothing of '
                        f'{next(iter(kept))[2:]}')
    wanted |= {name: value for name, value in kept.items()  # of one that no sample reached: none
               if name[2:].rpartition(':')[0] in stepped}
    for name, tensor in wanted.items():
        found = checkpoint.state.get(name)
        if found is None or found.shape != tensor.shape or found.dtype != tensor.dtype:
            has = 'nothing' if found is None else f'{tuple(found.shape)} {found.dtype}'
            what = 'the checkpoint was trained with another optimiser: of' if name[:2] == 'o:' \
                else 'the checkpoint is of another network: of'
            raise TaskError(f'{what} {name[2:]} it has {has}, the task '
                            f'{tuple(tensor.shape)} {tensor.dtype}')
    if bad := not_finite({name: checkpoint.state[name] for name in wanted}, task.module):
        raise TaskError(f'{bad} of the checkpoint holds values that are not numbers: training has '
                        'gone wrong before; go on from an older one')
    if others := sorted(name for name in checkpoint.state if name[:2] == 'o:' and
                        name not in wanted):
        raise TaskError(f'the checkpoint was trained with another optimiser, or with more '
                        f'parameters: it has {others[0][2:]}, of which the task knows nothing')
    for name, (first, tensor) in _all_names(task.module).items():
        if first not in wanted and name in checkpoint.state and \
                not torch.equal(checkpoint.state[name], tensor):
            raise TaskError(f'{name[2:]}, which is not trained, is another one in the checkpoint '
                            'than in the task: give the task the same weights to begin with')


def _kept(task: TrainingTask, learned: Mapping[str, nn.Parameter]) -> dict[str, torch.Tensor]:
    """Return what the optimiser keeps of parameters, by the names of a state; try a step."""
    named = [(name, nn.Parameter(p.detach().clone())) for name, p in learned.items()]
    optimiser = stage_optimiser(task, named)
    for _, parameter in named:
        parameter.grad = torch.zeros_like(parameter)
    optimiser.step()
    return {f'o:{name}:{key}': value for name, p in named
            for key, value in optimiser.state.get(p, {}).items()
            if isinstance(value, torch.Tensor)}
