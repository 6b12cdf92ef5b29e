# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
A robot whose rows are late again and again, in ever other places, does not grow.

In a process of its own: how its memory behaves is set up once for a process.
"""
from __future__ import annotations

from collections.abc import Mapping
import json
from random import Random
from statistics import median
import subprocess
import sys

import pytest
import torch

from intradp_lab.zoo.dense import depth
from intradp_ros.graph.capture import capture
from intradp_ros.profiling.kept_memory import KeptMemory, private_bytes
from intradp_ros.profiling.machine import prepare_process
from intradp_ros.runtime.execution.interpreter import Execution
from intradp_ros.runtime.execution.straggler_mitigation import StragglerMitigation
from intradp_ros.runtime.transport.mailbox import Mailbox
from intradp_ros.runtime.transport.timeline import Recorder
from intradp_ros.schedule.program import compile_program, compile_steps
from intradp_ros.schedule.schedule import Compute, ROBOT, Schedule, SERVER
from intradp_ros.split.local_operator import SplitGraph
from intradp_ros.split.split_graph import split_graph
from intradp_ros.systems.sharing.partition.lowering import lower
from intradp_ros.systems.sharing.partition.partition import Partition, RowStage

SHAPE = (1, 3, 192, 256)
SCHEDULES, FRAMES, WINDOW = 40, 160, 20


def schedules(split: SplitGraph) -> list[Schedule]:
    """Return schedules of the kinds that a book holds, for all shares of the rows."""
    operators, random = len(split.operators), Random(5)
    return [lower(split, Partition((
        RowStage(operators // 2, random.uniform(0.1, 0.9), 1, 2 + number % 6),
        RowStage(operators, random.uniform(0.1, 0.9), 1, 2 + number % 6))))
        for number in range(SCHEDULES)]


def values_of(split: SplitGraph, source: torch.Tensor) -> Mapping[int, torch.Tensor]:
    """Return all values: what a server would send rows of."""
    steps = [Compute(op.operator.id, split.whole(op.operator.outputs[0] or 0))
             for op in split.operators]
    held = [(value, split.whole(value)) for value in split.graph.inputs]
    program = compile_steps(split, steps, split.graph.parameters, held, (), keeps=True)
    execution = Execution(program, Recorder(SERVER))
    execution.run({split.graph.inputs[0]: source})
    return {piece.value: execution.slots[piece.slot] for piece in program.pieces}


def robot(looks: bool) -> None:
    """Let rows be late in every other inference; print the memory after each of the others."""
    prepare_process()
    split = split_graph(capture(depth(), torch.zeros(SHAPE, dtype=torch.uint8)))
    (output,) = split.graph.output_values
    source = torch.randint(0, 256, SHAPE, dtype=torch.uint8)
    values = values_of(split, source)
    book = [(s, compile_program(split, s, ROBOT, split.graph.parameters, delivers=True))
            for s in schedules(split)]
    random, held, frame = Random(7), [], 0
    memory = KeptMemory(clock=lambda: 60.0 * frame)  # a robot that does not hurry
    for frame in range(FRAMES):
        schedule, program = book[frame % SCHEDULES]
        box = Mailbox(lambda waited: None)
        catch_up = StragglerMitigation(split, Execution(program, Recorder(ROBOT), box,
                                                        lambda *sent: None),
                                       schedule, lambda waited: 'late')
        coming = list(schedule.between(SERVER, ROBOT))
        for transfer in coming[:random.randrange(len(coming) + 1) if frame % 2 else None]:
            whole = values[transfer.value]
            box.deliver(transfer.id, split.cut(transfer.value, whole, transfer.region).clone())
        result = catch_up.run({split.graph.inputs[0]: source})[output]
        assert (result - values[output]).abs().max() < 1e-5
        catch_up.forget()
        if looks:
            memory.look(usual=not catch_up.events)
        if not frame % 2:
            held.append(private_bytes())
    print(json.dumps(held))


def memory_of(looks: bool) -> list[int]:
    """Return what a robot that looks at its memory, or does not, held by and by."""
    done = subprocess.run([sys.executable, __file__, str(int(looks))], check=True, text=True,
                          stdout=subprocess.PIPE, timeout=900)
    held: list[int] = json.loads(done.stdout.splitlines()[-1])
    return held


@pytest.mark.slow
@pytest.mark.skipif(not private_bytes(), reason='the system does not tell what a process holds')
def test_own_work_in_ever_other_places_leaves_the_memory_as_it_was() -> None:
    kept = memory_of(looks=True)
    late = median(kept[-WINDOW:])
    assert late < 1.05 * median(kept[WINDOW:2 * WINDOW]), kept
    grown = memory_of(looks=False)
    assert median(grown[-WINDOW:]) > 1.2 * late, 'what the robot looks for does not happen'


if __name__ == '__main__':
    robot(sys.argv[1] == '1')
