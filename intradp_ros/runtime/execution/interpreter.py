# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Runs a compiled program: the loop both sides spend their time in."""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
import time
from typing import Any

import torch

from intradp_ros.runtime.execution.processor import Turns
from intradp_ros.runtime.transport.mailbox import InferenceAbandonedError, Mailbox
from intradp_ros.runtime.transport.timeline import Recorder
from intradp_ros.schedule.program import Await, Cut, Emit, Gather, KernelCall, Program
from intradp_ros.split.calls.variants import in_layout
from intradp_ros.split.kernel_device import KernelDevice

#: Names the time in which the processor computed for others, among what was waited for.
OTHERS = 'others'

SendTransfer = Callable[[int, torch.Tensor], None]
Slots = list[Any]


class Execution:
    """
    One run of a program.

    The slots stay readable after a failure, so that what finishes the
    inference can start from what was already computed.  With `turns` it
    shares the processor with others: it takes one for each operator.
    `between` is called before each operator.
    """

    def __init__(self, program: Program, recorder: Recorder, mailbox: Mailbox | None = None,
                 send: SendTransfer | None = None, turns: Turns | None = None,
                 between: Callable[[], None] | None = None) -> None:
        self.program, self.recorder, self.turns = program, recorder, turns
        self.between = between
        self.mailbox = mailbox or Mailbox(_nobody)
        self.send = send or _nowhere
        self.slots: Slots = [None] * program.slots
        self.awaited: int | None = None
        self._at = 0

    def run(self, inputs: Mapping[int, torch.Tensor]) -> dict[int, torch.Tensor]:
        """
        Run to the end and return the graph's output values that this side delivers.

        :raises InferenceAbandonedError: if the mailbox says that the inference is over.
        """
        with torch.inference_mode():
            self.begin(inputs, time.monotonic())
            self.advance(until_missing=False)
            return self.outputs()

    def begin(self, inputs: Mapping[int, torch.Tensor], since: float) -> None:
        """Take the graph's inputs; the device had nothing else to do since then (monotonic)."""
        device = self.program.device
        for value, tensor in inputs.items():
            self.slots[self.program.inputs[value]] = device.take(tensor)
        device.idle_until(since)

    def send_first(self) -> None:
        """
        Send what is sent before anything is computed; call it in `torch.inference_mode`.

        :raises InferenceAbandonedError: if the mailbox says that the inference is over.
        """
        self._loop(until_missing=True, only_sends=True)

    def advance(self, *, until_missing: bool = True) -> bool:
        """
        Go on to the end, or up to a transfer that is not there (`awaited`); say whether it ended.

        Call it in `torch.inference_mode`.

        :raises InferenceAbandonedError: if the mailbox says that the inference is over.
        """
        try:
            ended = self._loop(until_missing)
            self.program.device.finish()
            return ended
        finally:
            self.recorder.close(time.monotonic())
            if self.turns:
                self.turns.rest()

    @property
    def ready(self) -> bool:
        """Whether it can compute or send something, or has ended, with the rows that came."""
        for instruction in self.program.instructions[self._at:]:
            if isinstance(instruction, Await):
                if not self.mailbox.holds(instruction.transfer):
                    return False
            elif not isinstance(instruction, Gather):
                return True
        return True

    @property
    def pending(self) -> set[int]:
        """Transfers that the program has not taken yet."""
        return {i.transfer for i in self.program.instructions[self._at:] if isinstance(i, Await)}

    def outputs(self) -> dict[int, torch.Tensor]:
        """Return the output values of a program that has ended."""
        program = self.program
        return {v: program.device.give(self.slots[slot]).contiguous()
                for v, slot in program.outputs.items()}

    def _loop(self, until_missing: bool, *, only_sends: bool = False) -> bool:
        slots, mailbox, recorder = self.slots, self.mailbox, self.recorder
        device, instructions = self.program.device, self.program.instructions
        while self._at < len(instructions):
            instruction = instructions[self._at]
            if only_sends and not isinstance(instruction, Emit):
                return False
            if self.turns and isinstance(instruction, (KernelCall, Gather)):
                self._take_turn(self.turns)
            if isinstance(instruction, KernelCall):
                if self.between:
                    self.between()
                result = instruction.kernel([slots[i] for i in instruction.arguments])
                store(slots, instruction.results, result)
                recorder.ran(instruction.name)
            elif isinstance(instruction, Gather):
                slots[instruction.result] = gather(slots, instruction.cuts, device)
            elif isinstance(instruction, Emit):
                self._emit(instruction)
            elif until_missing and not mailbox.holds(instruction.transfer):
                self.awaited = instruction.transfer
                return False
            else:
                slots[instruction.result] = self._await(instruction)
            for slot in instruction.free:  # before any failure: some may be overwritten
                slots[slot] = None
            self._at += 1
            if mailbox.failure:
                raise InferenceAbandonedError(mailbox.failure)
        return True

    def _take_turn(self, turns: Turns) -> None:
        waited = turns.take()
        if waited:
            self.recorder.waited(OTHERS, *waited)

    def _emit(self, instruction: Emit) -> None:
        device, rows = self.program.device, self.slots[instruction.slot]
        if device.runs_ahead:  # copying is not a time of its operators
            device.finish()
            start = time.monotonic()
            rows = device.give(rows)
            self.recorder.waited(str(instruction.transfer), start, time.monotonic())
        self.send(instruction.transfer, rows)

    def _await(self, instruction: Await) -> torch.Tensor:
        device = self.program.device
        device.finish()
        start = time.monotonic()
        if self.turns:
            self.turns.rest()
        try:
            tensor, arrived = self.mailbox.take(instruction.transfer)
            rows = device.take(tensor)
        finally:
            self.recorder.waited(str(instruction.transfer), start, time.monotonic())
        device.idle_until(arrived)
        return in_layout(rows) if instruction.channels_last else rows


def store(slots: Slots, results: Sequence[int | None], result: Any) -> None:
    """Put what a kernel returned into slots."""
    tensors = (result,) if isinstance(result, torch.Tensor) else result
    for slot, tensor in zip(results, tensors):
        if slot is not None:
            slots[slot] = tensor


def _nobody(waited: float) -> str:
    return 'there is no other side'


def _nowhere(transfer: int, tensor: torch.Tensor) -> None:
    raise InferenceAbandonedError(f'transfer {transfer} has nowhere to go')


def gather(slots: Slots, cuts: Sequence[Cut], device: KernelDevice) -> torch.Tensor:
    """Return rows of one or several slots, one after another."""
    if not cuts:
        return torch.empty(0)  # no row is needed: the kernel does not read it
    parts = [slots[slot].narrow(dim, start, rows)
             for slot, dim, start, rows in cuts]
    return parts[0] if len(parts) == 1 else device.join(parts, cuts[0][1])
