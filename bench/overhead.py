# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
What the runtime costs on top of the model itself.

The whole model on one side of an in-process pair, against the plain eager
module, at one thread: ``local`` runs everything on the robot, ``offload``
everything on the server, over a link that is as fast as memory, both by the
kernels that profiling chooses.  Eager and shared inferences take turns
(A B A B), so that whatever else the machine does hits both; the overhead is
the median of the differences of neighbours.
Target: at most 5 % and 1 ms over the eager module.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median
import time

from models import command_line, print_table
import torch

from intradp_ros.cli.pair_run import connect
from intradp_ros.link.predictor import make_predictor
from intradp_ros.profiling.machine import device_name, prepare_process
from intradp_ros.profiling.tune import choose_tuning
from intradp_ros.runtime.models.catalogue import ModelSpec
from intradp_ros.runtime.models.model import share_module, SharedModel
from intradp_ros.systems.sharing.book.book import Entry, ScheduleBook
from intradp_ros.systems.sharing.partition.partition import local, offload
from intradp_ros.systems.sharing.session.pair import in_process_pair
from intradp_ros.systems.sharing.strategies import (
    LOCAL,
    OFFLOAD,
)

SHARE, SECONDS = 0.05, 1e-3  # the overhead that is allowed
MBPS = 1e4  # of the book's only bandwidth; the link is not shaped
Inference = Callable[[], object]


def book(model: SharedModel, predicted: float) -> ScheduleBook:
    """Return a book that knows only the two strategies which split nothing."""
    count = len(model.split.operators)
    return ScheduleBook(model.digest, model.split.axis, 0.0, 0.0, (
        Entry(MBPS, LOCAL, predicted, local(count)),
        Entry(MBPS, OFFLOAD, predicted, offload(count))))


def seconds(inference: Inference) -> float:
    """Return what one inference takes."""
    start = time.perf_counter()
    inference()
    return time.perf_counter() - start


def interleaved(inferences: dict[str, Inference], repeats: int) -> dict[str, list[float]]:
    """Return the times of inferences that take turns; one round before is not counted."""
    times: dict[str, list[float]] = {name: [] for name in inferences}
    for turn in range(repeats + 1):
        for name, inference in inferences.items():
            taken = seconds(inference)
            if turn:
                times[name].append(taken)
    return times


def figures(eager: Sequence[float], shared: Sequence[float]) -> dict[str, float | bool]:
    """Return medians and overhead, in milliseconds."""
    over = median(b - a for a, b in zip(eager, shared))
    allowed = SHARE * median(eager) + SECONDS
    return {'eager_ms': 1e3 * median(eager), 'shared_ms': 1e3 * median(shared),
            'overhead_ms': 1e3 * over, 'ratio': 1 + over / median(eager),
            'within_target': over <= allowed}


def measure(spec: ModelSpec, repeats: int) -> dict[str, dict[str, float | bool]]:
    """Return the figures of one model by strategy."""
    torch.manual_seed(0)
    module, inputs = spec.module(), (spec.example(),)
    model = share_module(module, inputs)
    with torch.inference_mode():
        model = model.tuned(choose_tuning(model.split, inputs))

    def eager() -> object:
        with torch.inference_mode():
            return module(*inputs)

    with in_process_pair(model, make_predictor('last')) as pair:
        connect(pair, book(model, seconds(eager)), [])

        def shared(strategy: str) -> Inference:
            return lambda: pair.robot.infer(inputs, strategy=strategy)

        return {strategy: figures(*interleaved(
            {'eager': eager, strategy: shared(strategy)}, repeats).values())
            for strategy in (LOCAL, OFFLOAD)}


def show(results: dict[str, dict[str, dict[str, float | bool]]]) -> None:
    """Print the figures as a table."""
    rows = [[name, strategy, f'{f["eager_ms"]:.1f}', f'{f["shared_ms"]:.1f}',
             f'{f["overhead_ms"]:+.2f}', f'{f["ratio"]:.3f}',
             'yes' if f['within_target'] else 'no']
            for name, strategies in results.items() for strategy, f in strategies.items()]
    print_table(f'overhead of the runtime, {device_name()}', ['model', 'strategy'],
                ['eager ms', 'shared ms', 'overhead ms', 'ratio', '<= 5 % + 1 ms'], rows)


if __name__ == '__main__':
    prepare_process(threads=1)
    command_line(__doc__ or '', measure, show, repeats=15)
