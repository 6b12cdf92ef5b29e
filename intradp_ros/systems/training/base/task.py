# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
What is trained: module, loss, optimiser and data, made by a factory that is named.

Nothing in a task knows of devices.  Results depend on the task alone, never on the plan: samples
are dealt in grains; batch norm normalises one grain and folds its running statistics in the
order of grains; dropout draws by round and grain; sums are divided once, by the round's samples.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import lru_cache
import hashlib
import importlib
import importlib.util
import math
import os
from pathlib import Path
import random
import sys
import traceback
from types import ModuleType
from typing import Any, Protocol

import numpy as np
import torch
from torch import nn

from intradp_ros.core.processes import search_working_directory
from intradp_ros.core.torchvision_import import declare_operators
from intradp_ros.systems.training.base.structure import rows_of, taken_apart, tensors_of

MOST_SAMPLES = 1 << 20
#: What `draw_seed` gets second for what augmentation draws.
AUGMENTED = 4
#: Samples of a grain, and micro-batches, where a task does not say.
GRAINS, MICRO_BATCHES = (8, 16), 4
CPU = torch.device('cpu')
#: The environment variable that names the device on which a factory makes its task, where it is
#: to train; not set where it is only planned for.
DEVICE = 'INTRADP_DEVICE'
#: Characters of an error of the user's code that are said: it may hold a whole tensor.
_LONGEST = 400
#: Where code lies that is not the user's.
_NOT_THEIRS = (os.sep + 'site-packages' + os.sep, os.sep + 'intradp_ros' + os.sep, '<frozen ')


class TaskError(ValueError):
    """A task that cannot be trained; the text says what to change."""


class Data(Protocol):
    """Samples by number."""

    def __len__(self) -> int:
        """Return how many there are."""

    def take(self, samples: Sequence[int]) -> tuple[Any, Any]:
        """
        Return what the module takes and the targets, of tensors with one row a sample.

        The first is a tuple of the module's arguments, or a dict of them by name; arguments and
        targets are tensors, or tuples, lists, dicts or dataclasses of tensors.
        """


def examples(data: Data, count: int) -> tuple[Any, Any]:
    """
    Return samples that show shapes and types, by which layers are exported and measured.

    They are the first ones, or what `data.examples` returns where not all of them lie here.
    """
    if hasattr(data, 'examples'):
        found: tuple[Any, Any] = data.examples(count)
        return found
    return data.take([k % len(data) for k in range(count)])


def autocast_of(dtype: torch.dtype | None, place: torch.device = CPU) -> torch.autocast:
    """Return the context of a forward pass in that type; None: as the network is."""
    return torch.autocast(place.type, dtype or torch.bfloat16, enabled=dtype is not None)


def call(module: nn.Module, inputs: Any) -> Any:
    """Return what a module makes of the inputs of some samples."""
    return module(**inputs) if isinstance(inputs, Mapping) else module(*inputs)


@dataclass(frozen=True)
class TensorData:
    """
    Samples that are in memory, each a row of all tensors.

    `inputs` is a tuple of the module's arguments, or a dict of them by name; `targets` is what
    the loss gets.  Both may have tuples, lists, dicts or dataclasses of tensors.
    """

    inputs: Any
    targets: Any

    def __post_init__(self) -> None:
        """Check that each sample has all; TaskError if not."""
        if not isinstance(self.inputs, tuple | Mapping):
            raise TaskError(f'inputs are a {type(self.inputs).__name__}: give a tuple of the '
                            "module's arguments, TensorData((inputs,), targets), or a dict of "
                            'them by name')
        if constants := taken_apart((self.inputs, self.targets))[1].constants:
            raise TaskError(f'inputs and targets have a {type(constants[0]).__name__} among them: '
                            'give tensors, by torch.from_numpy or torch.tensor')
        rows = [tuple(value.shape[:1]) for value in tensors_of((self.inputs, self.targets))]
        if len(set(rows)) != 1 or not rows[0]:
            raise TaskError('inputs and targets must have as many rows, one a sample, not '
                            + ', '.join(str(*count) or 'none' for count in rows))

    def __len__(self) -> int:
        """Return how many there are."""
        return len(tensors_of(self.targets)[0])

    def take(self, samples: Sequence[int]) -> tuple[Any, Any]:
        """Return the rows of these samples."""
        rows = torch.as_tensor(list(samples), dtype=torch.long)
        return rows_of(self.inputs, rows), rows_of(self.targets, rows)


@dataclass(frozen=True)
class TrainingTask:
    """
    A network and how it is trained.

    Attributes
    ----------
    module
        The network.  It takes and returns tensors with one row a sample, or tuples, lists, dicts
        or dataclasses of such tensors.
    loss
        From what the module returns and targets to the loss of each sample, shape (n,): no mean,
        no sum.  Where samples do not count alike, a tuple of it and of what each counts, shape
        (n,): the sum of losses is divided by the sum of counts, such as those of words or pixels
        that are not ignored, or of the weights of classes.
    optimiser
        From named parameters to their optimiser, with groups as you like (weight decay).  Each
        stage makes one of its own, so each parameter must be stepped on its own.
    batch, grain, micro_batches
        Samples of a round and of a grain; the micro-batches that a round is dealt in.  Grains
        and micro-batches that are not given (0) are chosen by the batch alone: the result does
        not depend on the plan.  `merges` says that micro-batches were not given: devices that
        train the whole network may then take a round in fewer passes.
    rounds, epochs
        Steps in all, or passes over the data, which become rounds.
    clip
        Largest norm of all gradients together; longer ones are scaled down to it.
    schedule
        From the round to a factor on the learning rates.
    autocast
        Type of the forward pass and the loss under autocast, of one grain after the other; None:
        as the parameters are.
    freeze_norms
        Batch norm uses its running statistics and leaves them alone, as fine-tuning wants.
    check
        Samples that are never trained with, by which the result is judged.
    validate_every, best_by, patience
        Rounds after which the weights are judged by `check` meanwhile (0: never), in eval mode, a
        grain at a time; by what they are better, 'loss' or 'accuracy'; validations without a
        better one after which training ends (None: it does not).

    :raises TaskError: if a figure makes no sense.

    """

    module: nn.Module
    loss: Callable[[Any, Any], torch.Tensor | tuple[torch.Tensor, torch.Tensor]]
    optimiser: Callable[[Sequence[tuple[str, nn.Parameter]]], torch.optim.Optimizer]
    data: Data
    batch: int
    grain: int = 0
    micro_batches: int = 0
    rounds: int = 0
    seed: int = 0
    clip: float | None = None
    schedule: Callable[[int], float] | None = None
    autocast: torch.dtype | None = None
    freeze_norms: bool = False
    check: Data | None = None
    validate_every: int = 0
    best_by: str = 'loss'
    patience: int | None = None
    epochs: float = 0.0
    merges: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        """Check the figures."""
        for what, example in (('module', ''), ('loss', "reduction='none'")):
            kind = getattr(self, what)
            if isinstance(kind, type) and issubclass(kind, nn.Module):
                raise TaskError(f'{what} is the class {kind.__name__}: give an object of it, '
                                f'{kind.__name__}({example or "..."})')
        if not isinstance(self.module, nn.Module):
            raise TaskError(f'module is a {type(self.module).__name__}, not a torch.nn.Module')
        for what in ('data', 'check'):
            data = getattr(self, what)
            if not (hasattr(data, 'take') and hasattr(data, '__len__') or
                    what == 'check' and data is None):
                raise TaskError(f'{what} is a {type(data).__name__}, which does not give samples '
                                'by number: wrap a torch Dataset as items.Items(dataset), tensors '
                                'as task.TensorData((inputs,), targets)')
        for what in ('loss', 'optimiser'):
            if not callable(getattr(self, what)):
                raise TaskError(f'{what} is a {type(getattr(self, what)).__name__}, not a '
                                'function: ' + (
                                    'write one from (outputs, targets) to the loss of each sample'
                                    if what == 'loss' else 'write one from named parameters to '
                                    'their optimiser, such as lambda named: '
                                    'torch.optim.SGD([p for _, p in named], lr=0.01)'))
        self._check_types()
        self._choose()
        if not 1 <= self.grain <= self.batch <= min(len(self.data), MOST_SAMPLES):
            raise TaskError(f'a round takes {self.batch} samples of {len(self.data)} in grains of '
                            f'{self.grain}: choose 1 <= grain <= batch <= samples')
        if not 1 <= self.micro_batches <= self.grains:
            raise TaskError(f'{self.grains} grains make 1 to {self.grains} micro-batches, not '
                            f'{self.micro_batches}')
        if self.rounds < 1:
            raise TaskError(f'training takes 1 round or more, not {self.rounds}: give the task '
                            'rounds or epochs')
        if self.clip is not None and not 0 < self.clip < math.inf:
            raise TaskError(f'gradients are clipped to a norm above 0, not {self.clip}')
        if self.validate_every < 0:
            raise TaskError(f'validate_every is 0 or more rounds, not {self.validate_every}')
        if self.best_by not in ('loss', 'accuracy'):
            raise TaskError(f'best_by is loss or accuracy, not {self.best_by!r}')
        if self.patience is not None and self.patience < 1:
            raise TaskError(f'patience is 1 or more validations, or None, not {self.patience}')
        if self.validate_every and not (self.check is not None and len(self.check)):
            raise TaskError(f'validate_every={self.validate_every} needs samples that are not '
                            'trained with: give the task check=Items(others)')
        if self.patience is not None and not self.validate_every:
            raise TaskError(f'patience={self.patience} counts validations: give the task '
                            'validate_every, too')

    def _check_types(self) -> None:
        """See that figures are numbers; TaskError names one that is not."""
        for what in ('batch', 'grain', 'micro_batches', 'rounds', 'seed', 'validate_every',
                     'patience'):
            value = getattr(self, what)
            if (what, value) != ('patience', None) and (
                    isinstance(value, bool) or not hasattr(value, '__index__')):
                raise TaskError(f'{what} is {value!r}, a {type(value).__name__}: give a whole '
                                'number')
        for what in ('epochs', 'clip'):
            value = getattr(self, what)
            if value is not None and not isinstance(value, int | float):
                raise TaskError(f'{what} is {value!r}, a {type(value).__name__}: give a number')
        if self.schedule is not None and not callable(self.schedule):
            raise TaskError(f'schedule is a {type(self.schedule).__name__}, not a function: write '
                            'one from the round to a factor on the learning rates, such as '
                            'lambda number: 0.99 ** number')
        if self.autocast not in (None, torch.bfloat16, torch.float16):
            raise TaskError(f'autocast is {self.autocast!r}: give torch.bfloat16 or '
                            'torch.float16, or None')

    def _choose(self) -> None:
        """Set what is not given, and epochs as rounds."""
        if self.epochs:
            if self.rounds or not 0 < self.epochs < math.inf or self.batch < 1:
                raise TaskError(f'epochs={self.epochs}: give a task epochs, above 0, or rounds '
                                f'(it has {self.rounds})')
            object.__setattr__(self, 'rounds', max(1, math.ceil(
                self.epochs * len(self.data) / self.batch)))
            object.__setattr__(self, 'epochs', 0.0)  # so that `replace` may give others
        if not self.grain and self.batch >= 1:
            object.__setattr__(self, 'grain', grain_of(self.batch))
        if not self.micro_batches and self.grain >= 1:
            object.__setattr__(self, 'merges', True)
            object.__setattr__(self, 'micro_batches', min(MICRO_BATCHES, self.grains))

    @property
    def grains(self) -> int:
        """Return the grains of a round."""
        return -(-self.batch // self.grain)

    def validates(self, number: int) -> bool:
        """Return whether the weights after a round are judged by `check`."""
        return self.validate_every > 0 and (
            (number + 1) % self.validate_every == 0 or number + 1 == self.rounds)

    @property
    def validations(self) -> int:
        """Return how often the weights are judged in all rounds."""
        return -(-self.rounds // self.validate_every) if self.validate_every else 0

    def grain_rows(self, grain: int) -> range:
        """Return the rows of a grain in its round; the last grain may be short."""
        return range(grain * self.grain, min((grain + 1) * self.grain, self.batch))


def grain_of(batch: int) -> int:
    """Return the samples of a grain for a batch: few, and such that the last one is full."""
    least, most = (min(count, batch) for count in GRAINS)
    return max(range(least, most + 1), key=lambda grain: (
        batch % grain == 0, batch % grain, -grain))


def losses_of(task: TrainingTask, outputs: Any, targets: Any,
              rows: int) -> tuple[torch.Tensor, torch.Tensor]:
    """
    Return the loss of each of some samples, and what each counts: 1, where the loss does not say.

    :raises TaskError: if the loss does not return one number a sample.
    """
    with nullcontext() if task.autocast is None else autocast_of(task.autocast):
        found: Any = task.loss(outputs, targets)
    several = isinstance(found, tuple | list) and len(found) == 2
    losses, counts = found if several else (found, torch.ones(rows, dtype=torch.float64))
    for one in (losses, counts):
        if not isinstance(one, torch.Tensor) or one.shape != (rows,):
            shape = tuple(one.shape) if isinstance(one, torch.Tensor) else type(one).__name__
            raise TaskError(
                f'loss must return one number a sample, shape ({rows},), not {shape}: use '
                "reduction='none', and take the mean over all but the first dimension where there "
                'are several. Where samples do not count alike (ignored words or pixels, weights '
                'of classes) return two of that shape: sums, and what they are to be divided by')
    if counts.requires_grad:
        raise TaskError('what samples count, which the loss returns as second, depends on weights '
                        'with a gradient, and nothing goes back through it: let the loss return '
                        'counts.detach() if that is meant')
    return losses, counts.double()


def samples_of(seed: int, samples: int, batch: int, number: int) -> list[int]:
    """
    Return the samples of a round, in order: a function of seed and round alone.

    Each pass over the data takes every sample once, in an order of its own; a round may lie
    across two passes.
    """
    first, found = number * batch, list[int]()
    while len(found) < batch:
        epoch, place = divmod(first + len(found), samples)
        order = _order(seed, epoch, samples)
        found += order[place:place + batch - len(found)].tolist()
    return found


@lru_cache(maxsize=2)
def _order(seed: int, epoch: int, samples: int) -> torch.Tensor:
    """Return the order of a pass over the data; nobody writes to it."""
    generator = torch.Generator().manual_seed(draw_seed(seed, 1, epoch))
    return torch.randperm(samples, generator=generator)


def take_of_round(task: TrainingTask, number: int, samples: Sequence[int]) -> tuple[Any, Any]:
    """Return samples as a round has them: what augmentation draws depends on both alone."""
    if getattr(task.data, 'augment', None) is None:
        return task.data.take(samples)
    seeds = [draw_seed(task.seed, AUGMENTED, number, int(k)) for k in samples]
    found: tuple[Any, Any] = task.data.take(samples, seeds)  # type: ignore[call-arg]
    return found


def draw_seed(*numbers: int) -> int:
    """Mix numbers to the seed of a generator (63 bits, splitmix64)."""
    mixed = 0
    for number in numbers:
        mixed = (mixed + number + 0x9E3779B97F4A7C15) & 0xFFFFFFFFFFFFFFFF
        mixed = ((mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9) & 0xFFFFFFFFFFFFFFFF
        mixed = ((mixed ^ mixed >> 27) * 0x94D049BB133111EB) & 0xFFFFFFFFFFFFFFFF
        mixed ^= mixed >> 31
    return mixed >> 1


def split_name(name: str) -> tuple[str, str]:
    """Return file or module, and function, of a task's name; TaskError if it is none."""
    where, _, function = name.rpartition(':')
    if not where or not function.isidentifier():
        raise TaskError(f'{name!r:.200} names no task: write file.py:function or '
                        'package.module:function, of a function that returns a TrainingTask')
    return where, function


def load_task(name: str) -> TrainingTask:
    """
    Return the task that a function makes: `package.module:function` or `path/file.py:function`.

    Code of the working directory may be named: the name comes from the user who starts the
    process, never from the network.  Generators are seeded before the call, so that every
    process makes the same initial weights.

    :raises TaskError: if there is no such function, it fails, or it makes no task.
    """
    where, function = split_name(name)
    declare_operators()
    if where.endswith('.py') and not Path(where).is_file():
        raise TaskError(f'{where} cannot be imported: there is no such file')
    try:
        module = _of_file(Path(where)) if where.endswith('.py') else _of_path(where)
    except (Exception, SystemExit) as error:  # whatever code of the user raises
        raise TaskError(f'{where} cannot be imported: {described(error)}') from error
    make = getattr(module, function, None)
    if not callable(make):
        found = [key for key, value in vars(module).items() if callable(value) and
                 getattr(value, '__module__', '') == module.__name__ and key[0] != '_']
        raise TaskError(f'{where} has no function {function}; it has '
                        f'{", ".join(found) or "none"}')
    torch.manual_seed(0)
    random.seed(0)
    np.random.seed(0)
    try:
        made = make()
    except TaskError:
        raise
    except (Exception, SystemExit) as error:
        raise TaskError(f'{name} raised {described(error)}') from error
    if not isinstance(made, TrainingTask):
        raise TaskError(f'{name} returned {type(made).__name__}, not a TrainingTask: return '
                        'TrainingTask(module, loss, optimiser, data, batch=..., epochs=...)')
    return made


def weights_digest(task: TrainingTask) -> str:
    """Return 16 hex digits that stand for the initial weights and statistics of a task."""
    content = hashlib.sha256()
    for name, tensor in sorted(task.module.state_dict().items()):
        body = tensor.detach().cpu().contiguous().flatten().view(torch.uint8)
        content.update(f'{name} {tuple(tensor.shape)} {tensor.dtype}\0'.encode())
        content.update(memoryview(body.numpy()))
    return content.hexdigest()[:16]


def _of_path(name: str) -> ModuleType:
    search_working_directory()
    return importlib.import_module(name)


def _of_file(path: Path) -> ModuleType:
    """Import a file by its path; what lies beside it may be imported by it."""
    path = path.resolve(strict=True)
    found = importlib.util.spec_from_file_location(path.stem, path)
    assert found is not None and found.loader is not None
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))
    module = importlib.util.module_from_spec(found)
    sys.modules.setdefault(path.stem, module)  # dataclasses of the file look their module up
    found.loader.exec_module(module)
    return module


def described(error: BaseException) -> str:
    """Return what an error of the user's code says, and the line of it that it came from."""
    return f'{type(error).__name__}: {" ".join(str(error).split()):.{_LONGEST}}{line_of(error)}'


def line_of(error: BaseException) -> str:
    """Return the line of the user's code from which an error came, in brackets; '' if none."""
    own = [one for one in traceback.extract_tb(error.__traceback__)
           if not any(part in one.filename for part in _NOT_THEIRS)]
    return f' ({Path(own[-1].filename).name}, line {own[-1].lineno})' if own else ''
