# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
What memory one side of an inference takes, against the eager module.

Each figure is that of a process of its own, at one thread: the most memory
that was resident while inferences ran (``VmHWM``, set back before the first
one), libraries and weights included.  ``robot alone`` runs everything by the
kernels that profiling chooses; ``robot`` and ``server`` run their parts of
one shared schedule, each side half of the rows, in two bands.  Sides load
the model from an archive, as a robot would.  Target: at most 1.2 times the
eager module.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import astuple
import json
from pathlib import Path
import subprocess
import sys
import tempfile
from typing import Any

from models import command_line, print_table
import torch

from intradp_ros.graph.capture import capture
from intradp_ros.graph.serialise import save_graph
from intradp_ros.profiling.machine import device_name, prepare_process, release_memory
from intradp_ros.profiling.tune import choose_tuning
from intradp_ros.runtime.execution.interpreter import Execution
from intradp_ros.runtime.models.catalogue import ModelSpec
from intradp_ros.runtime.models.model import SharedModel
from intradp_ros.runtime.transport.mailbox import Mailbox
from intradp_ros.runtime.transport.timeline import Recorder
from intradp_ros.schedule.program import compile_program
from intradp_ros.schedule.schedule import ROBOT, Schedule, SERVER
from intradp_ros.systems.sharing.partition.lowering import lower
from intradp_ros.systems.sharing.partition.partition import local, Partition, RowStage

EAGER, ALONE = 'eager', 'robot alone'
SIDES = (ALONE, ROBOT, SERVER)
TARGET = 1.2
Inference = Callable[[], object]


def measure(spec: ModelSpec, repeats: int) -> dict[str, float]:
    """Return the MB of the eager module and of each side."""
    with tempfile.TemporaryDirectory() as folder:
        archive = str(Path(folder) / 'model')
        _child('archive', spec, repeats, archive)
        return {name: _child(name, spec, repeats, archive) for name in (EAGER, *SIDES)}


def _child(role: str, spec: ModelSpec, repeats: int, archive: str) -> float:
    """Play a role in a process of its own; return the MB that it reports."""
    source, shape, dtype = astuple(spec)
    order = {'role': role, 'source': source, 'shape': shape, 'repeats': repeats,
             'dtype': str(dtype).removeprefix('torch.'), 'archive': archive}
    done = subprocess.run([sys.executable, __file__, '--child', json.dumps(order)],
                          check=True, stdout=subprocess.PIPE, text=True)
    return float(done.stdout.split()[-1])


def play(order: dict[str, Any]) -> None:
    """Play a role in this process, and print the MB that its inferences need."""
    prepare_process(threads=1)
    spec = ModelSpec(order['source'], tuple(order['shape']), getattr(torch, order['dtype']))
    if order['role'] == 'archive':
        save_graph(capture(spec.module(), (spec.example(),)), Path(order['archive']))
        print(0)
        return
    inference = eager(spec) if order['role'] == EAGER else side(
        ModelSpec(order['archive']).load(), order['role'], spec.example())
    release_memory()
    Path('/proc/self/clear_refs').write_text('5')
    for _ in range(order['repeats']):
        inference()
    print(peak_mb())


def eager(spec: ModelSpec) -> Inference:
    """Return an inference of the module as it is."""
    module, inputs = spec.module(), spec.example()

    def infer() -> object:
        with torch.inference_mode():
            return module(inputs)

    return infer


def side(model: SharedModel, role: str, source: torch.Tensor) -> Inference:
    """Return an inference of one side, to which all that it waits for has come."""
    with torch.inference_mode():
        model = model.tuned(choose_tuning(model.split, [source]))
    split, device = model.split, SERVER if role == SERVER else ROBOT
    count = len(split.operators)
    partition = local(count) if role == ALONE else Partition((RowStage(count, 0.5, 2, 2),))
    schedule = lower(split, partition)
    program = compile_program(split, schedule, device, model.parameters,
                              delivers=device == ROBOT)
    inputs = {split.graph.inputs[0]: source} if device == ROBOT else {}
    return lambda: Execution(program, Recorder(device), _delivered(model, schedule, device),
                             lambda index, tensor: None).run(inputs)


def _delivered(model: SharedModel, schedule: Schedule, device: str) -> Mailbox:
    box = Mailbox(lambda waited: 'a transfer is missing')
    split = model.split
    for index, transfer in enumerate(schedule.transfers):
        if transfer.target == device:
            box.deliver(index, torch.zeros(
                split.shape(transfer.value, transfer.region.rows),
                dtype=split.graph.values[transfer.value].dtype))
    return box


def peak_mb() -> float:
    """Return the most memory that was resident since it was set back."""
    lines = Path('/proc/self/status').read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith('VmHWM'))


def show(results: dict[str, dict[str, float]]) -> None:
    """Print the figures as a table."""
    rows = []
    for name, mb in results.items():
        ratios = [mb[role] / mb[EAGER] for role in SIDES]
        rows.append([name, f'{mb[EAGER]:.0f}',
                     *(f'{mb[role]:.0f} ({ratio:.2f})' for role, ratio in zip(SIDES, ratios)),
                     'yes' if max(ratios) <= TARGET else 'no'])
    print_table(f'resident memory in MB (times eager), {device_name()}', ['model'],
                [EAGER, *SIDES, f'<= {TARGET}'], rows)


def main(arguments: Sequence[str]) -> None:
    """Run the command line, or a role of it."""
    if arguments[:1] == ['--child']:
        play(json.loads(arguments[1]))
    else:
        command_line(__doc__ or '', measure, show, repeats=3)


if __name__ == '__main__':
    main(sys.argv[1:])
