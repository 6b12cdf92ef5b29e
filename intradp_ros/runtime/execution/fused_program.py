# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Programs whose computing between two messages is one call, which a device can replay.

Calling an operator takes the host some microseconds, which an accelerator
often waits for.  Devices that record what was called and replay it at once
(`KernelDevice.replayed`) are given segments: what a program computes from
one message to the next.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from intradp_ros.runtime.execution.interpreter import gather, store
from intradp_ros.schedule.program import Gather, Instruction, KernelCall, Program, reads, writes
from intradp_ros.split.kernel_device import KernelDevice
from intradp_ros.split.local_operator import Kernel

Inputs = Sequence[torch.Tensor]
#: Below this many calls there is little to gain.
FEWEST = 3


@dataclass(frozen=True, eq=False)
class Segment:
    """
    Instructions that compute, as one kernel: called with `arguments`, it returns `results`.

    Both are slots of the program; others that it writes are not read after it.
    """

    instructions: tuple[KernelCall | Gather, ...]
    arguments: tuple[int, ...]
    results: tuple[int, ...]
    slots: int
    device: KernelDevice

    def __call__(self, tensors: Inputs) -> tuple[torch.Tensor, ...]:
        """Run the instructions."""
        slots: list[Any] = [None] * self.slots
        for slot, tensor in zip(self.arguments, tensors):
            slots[slot] = tensor
        for instruction in self.instructions:
            if isinstance(instruction, KernelCall):
                store(slots, instruction.results,
                      instruction.kernel([slots[i] for i in instruction.arguments]))
            else:
                slots[instruction.result] = gather(slots, instruction.cuts, self.device)
            for slot in instruction.free:
                slots[slot] = None
        return tuple(slots[slot] for slot in self.results)

    @property
    def run(self) -> KernelCall:
        """The instruction that runs all of it."""
        names = [i.name for i in self.instructions if isinstance(i, KernelCall)]
        free = {slot for i in self.instructions for slot in i.free}.intersection(self.arguments)
        return KernelCall(f'{names[0]} .. {names[-1]}', self, self.arguments, self.results,
                          tuple(sorted(free)))


def in_segments(program: Program) -> list[Instruction | Segment]:
    """Return a program's instructions, with segments in place of those that they take."""
    found: list[Instruction | Segment] = []
    stretch: list[KernelCall | Gather] = []
    for instruction in program.instructions:
        if isinstance(instruction, (KernelCall, Gather)):
            stretch.append(instruction)
            continue
        found += _joined(program, stretch)
        stretch = []
        found.append(instruction)
    found += _joined(program, stretch)
    return found


def replayed(program: Program, warm_up: Callable[[Program], None]) -> Program:
    """
    Return a program whose segments are replayed where its device says that this is faster.

    `warm_up` runs a program once, on examples of what it gets.
    """
    parts = in_segments(program)
    seen: dict[int, Inputs] = {}
    warm_up(replace(program, instructions=tuple(
        _noting(part, k, seen) if isinstance(part, Segment) else part
        for k, part in enumerate(parts))))
    chosen: list[Instruction] = []
    for k, part in enumerate(parts):
        if not isinstance(part, Segment):
            chosen.append(part)
            continue
        kernel = program.device.replayed(part, seen[k]) if k in seen else None
        chosen += [replace(part.run, kernel=kernel)] if kernel else part.instructions
    return replace(program, instructions=tuple(chosen))


def _joined(program: Program, stretch: Sequence[KernelCall | Gather],
            ) -> Sequence[Instruction | Segment]:
    """Return a segment of instructions, or themselves if they are too few."""
    if sum(isinstance(i, KernelCall) for i in stretch) < FEWEST:
        return tuple(stretch)
    written: set[int] = set()
    arguments: dict[int, None] = {}
    for instruction in stretch:
        arguments.update(dict.fromkeys(s for s in reads(instruction) if s not in written))
        written.update(writes(instruction))
    freed = {slot for instruction in stretch for slot in instruction.free}
    return [Segment(tuple(stretch), tuple(arguments), tuple(sorted(written - freed)),
                    program.slots, program.device)]


def _noting(segment: Segment, number: int, seen: dict[int, Inputs]) -> KernelCall:
    def noted(tensors: Inputs) -> Any:
        seen[number] = [tensor.clone() for tensor in tensors]  # a kernel may write over them
        return segment(tensors)

    kernel: Kernel = noted
    return replace(segment.run, kernel=kernel)
