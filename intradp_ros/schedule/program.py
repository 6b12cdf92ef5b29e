# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Programs: one side of a schedule compiled to flat instructions over slots.

Everything that can be known before the inference is settled here: which
kernel, which rows of which piece, what may be freed when.  A value lives as
pieces, each in a slot: what was computed in one step or came in one
transfer.  An operator that needs rows of several pieces gets them
concatenated; one that needs part of a piece gets a view.  Records of a
folded value are concatenated as they are.
"""
from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from intradp_ros.schedule.schedule import Compute, Receive, Schedule, Send, Step, Transfer
from intradp_ros.schedule.tiling import tiling
from intradp_ros.split.calls.tuning import wants_channels_last
from intradp_ros.split.in_place import in_place, overwritable
from intradp_ros.split.kernel_device import KernelDevice
from intradp_ros.split.local_operator import Kernel, LocalOperator, Parameters, SplitGraph
from intradp_ros.split.regions.region import Region

Cut = tuple[int, int, int, int]  # slot, dimension, first row, count of rows


@dataclass(frozen=True, slots=True)
class KernelCall:
    """Call a kernel on slots; store its results (one slot for each output, None to drop)."""

    name: str
    kernel: Kernel
    arguments: tuple[int, ...]
    results: tuple[int | None, ...]
    free: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Gather:
    """Put rows of one or several slots into a slot."""

    cuts: tuple[Cut, ...]
    result: int
    free: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Emit:
    """Hand a slot to the link as a transfer."""

    transfer: int
    slot: int
    free: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Await:
    """Wait for a transfer and put it into a slot, perhaps in another memory layout."""

    transfer: int
    result: int
    channels_last: bool = False
    free: tuple[int, ...] = ()


Instruction = KernelCall | Gather | Emit | Await


@dataclass(frozen=True, slots=True)
class Piece:
    """Rows of a value that a slot holds once its instruction has run."""

    slot: int
    value: int
    region: Region


@dataclass(frozen=True)
class Program:
    """
    The executable form of one side of a schedule.

    `inputs` maps graph inputs to slots; `outputs` are slots that hold the
    graph's output values at the end (only on the side that delivers them).
    `device` is what the instructions run on.
    """

    instructions: tuple[Instruction, ...]
    slots: int
    inputs: Mapping[int, int]
    outputs: Mapping[int, int]
    pieces: tuple[Piece, ...]
    device: KernelDevice


def compile_program(split: SplitGraph, schedule: Schedule, device: str,
                    parameters: Parameters, *, delivers: bool) -> Program:
    """
    Compile the program of one device.

    :param split, schedule, device: the graph, the schedule and whose side of it.
    :param parameters: the model's tensors by name.
    :param delivers: whether this device starts with the graph's inputs and ends with its outputs
        (the robot).
    :raises ValueError: if a step reads rows that no earlier step provides.
    """
    held = [(v, split.whole(v)) for v in split.graph.inputs] if delivers else []
    compiler = _Compiler(split, schedule.transfers, parameters, held)
    compiler.steps(schedule.programs[device])
    return compiler.finish(split.graph.output_values if delivers else ())


def compile_steps(split: SplitGraph, steps: Iterable[Step], parameters: Parameters,
                  held: Sequence[tuple[int, Region]], outputs: Sequence[int], *,
                  transfers: Sequence[Transfer] = (), keeps: bool = False) -> Program:
    """
    Compile steps that start from pieces already held.

    Slot `i` of the program takes piece `i` of `held` at the start.  A program
    that `keeps` frees nothing.
    """
    compiler = _Compiler(split, transfers, parameters, held)
    compiler.steps(steps)
    return compiler.finish(outputs, keeps)


class _Compiler:
    """Translates steps; keeps track of which slot holds which rows."""

    def __init__(self, split: SplitGraph, transfers: Sequence[Transfer], parameters: Parameters,
                 held: Sequence[tuple[int, Region]]) -> None:
        self.split, self.transfers, self.parameters = split, transfers, parameters
        self.instructions: list[Instruction] = []
        self.pieces: list[Piece] = []
        self.by_value: dict[int, list[Piece]] = {}
        self.gathered: dict[tuple[int, Region], int] = {}
        self.overwritable = overwritable(split)
        self.bound: dict[int, tuple[LocalOperator, Region]] = {}  # by index of the instruction
        self.slots = 0
        for value, region in held:
            self.hold(value, region)
        self.inputs = {p.value: p.slot for p in self.pieces}

    def new_slot(self) -> int:
        self.slots += 1
        return self.slots - 1

    def hold(self, value: int, region: Region) -> int:
        piece = Piece(self.new_slot(), value, region)
        self.pieces.append(piece)
        self.by_value.setdefault(value, []).append(piece)
        return piece.slot

    def steps(self, steps: Iterable[Step]) -> None:
        for step in steps:
            if isinstance(step, Compute):
                self.compute(step)
            elif isinstance(step, Send):
                transfer = self.transfers[step.transfer]
                slot = self.rows(transfer.value, transfer.region)
                self.instructions.append(Emit(step.transfer, slot))
            elif isinstance(step, Receive):
                transfer = self.transfers[step.transfer]
                slot = self.hold(transfer.value, transfer.region)
                self.instructions.append(Await(
                    step.transfer, slot, wants_channels_last(self.split, transfer.value)))

    def compute(self, step: Compute) -> None:
        local = self.split.operators[step.operator]
        op = local.operator
        arguments = tuple(self.rows(value, rowmap(step.region))
                          for value, rowmap in zip(op.inputs, local.maps))
        results = tuple(None if v is None else self.hold(v, step.region) for v in op.outputs)
        kernel = local.bind(step.region, self.parameters)
        self.bound[len(self.instructions)] = local, step.region
        self.instructions.append(KernelCall(op.name, kernel, arguments, results))

    def rows(self, value: int, need: Region) -> int:
        """Return a slot that holds exactly the rows `need` of a value."""
        for piece in self.by_value.get(value, ()):
            if piece.region == need:
                return piece.slot
        key = (value, need)
        if key not in self.gathered:
            cuts = tuple(self.cover(value, need))
            self.gathered[key] = self.new_slot()
            self.instructions.append(Gather(cuts, self.gathered[key]))
        return self.gathered[key]

    def cover(self, value: int, need: Region) -> Iterable[Cut]:
        if value in self.split.folded:
            yield from self.joined(value, need)
            return
        dim = self.split.dims[value] or 0
        at = need.start
        while at < need.stop:
            piece = max((p for p in self.by_value.get(value, ())
                         if p.region.start <= at < p.region.stop),
                        key=lambda p: p.region.stop, default=None)
            if piece is None:
                raise ValueError(f'rows {need} of value {value} are read but row {at} is nowhere')
            stop = min(need.stop, piece.region.stop)
            yield piece.slot, dim, at - piece.region.start, stop - at
            at = stop

    def joined(self, value: int, need: Region) -> Iterable[Cut]:
        pieces = self.by_value.get(value, [])
        chain = tiling([p.region for p in pieces], need)
        if chain is None:
            raise ValueError(f'records of rows {need} of value {value} are read but the pieces '
                             f'{[tuple(p.region) for p in pieces]} do not tile them')
        return [(pieces[i].slot, self.split.dims[value] or 0, 0, 1) for i in chain]

    def finish(self, outputs: Sequence[int], keeps: bool = False) -> Program:
        slots = {v: self.rows(v, self.split.whole(v)) for v in outputs}
        kept = set(range(self.slots)) if keeps else set(slots.values())
        instructions = _free_after_last_use(self.instructions, kept)
        self.overwrite(instructions)
        return Program(tuple(instructions), self.slots, self.inputs, slots, tuple(self.pieces),
                       self.split.device)

    def overwrite(self, instructions: list[Instruction]) -> None:
        """Let operators write over inputs that nothing reads after them, to reuse warm memory."""
        own = {slot for i in instructions if isinstance(i, KernelCall) for slot in writes(i)}
        own -= {slot for i in instructions if not isinstance(i, KernelCall) for slot in reads(i)}
        regions = {piece.slot: piece.region for piece in self.pieces}
        for index, (local, region) in self.bound.items():
            run = instructions[index]
            assert isinstance(run, KernelCall)
            slot = run.arguments[0] if run.arguments else None
            if local.operator.id in self.overwritable and slot in own and slot in run.free \
                    and regions[slot] == region:
                kernel = in_place(local, region, self.parameters)
                instructions[index] = replace(run, kernel=kernel)


def reads(instruction: Instruction) -> tuple[int, ...]:
    """Return the slots that an instruction reads."""
    if isinstance(instruction, KernelCall):
        return instruction.arguments
    if isinstance(instruction, Gather):
        return tuple(slot for slot, *_ in instruction.cuts)
    return (instruction.slot,) if isinstance(instruction, Emit) else ()


def writes(instruction: Instruction) -> tuple[int, ...]:
    """Return the slots that an instruction writes."""
    if isinstance(instruction, KernelCall):
        return tuple(slot for slot in instruction.results if slot is not None)
    return () if isinstance(instruction, Emit) else (instruction.result,)


def _free_after_last_use(instructions: Sequence[Instruction], keep: set[int],
                         ) -> list[Instruction]:
    """Give every instruction the slots that nobody reads after it."""
    seen = set(keep)
    result: list[Instruction] = []
    for instruction in reversed(instructions):
        touched = {*reads(instruction), *writes(instruction)} - seen
        seen |= touched
        result.append(
            replace(instruction, free=tuple(sorted(touched))) if touched else instruction)
    return result[::-1]
