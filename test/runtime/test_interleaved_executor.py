# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Which of several inferences a device goes on with."""
from __future__ import annotations

from collections.abc import Sequence
import threading

import torch

from intradp_ros.runtime.pipeline import interleaved_executor as pipeline
from intradp_ros.runtime.transport.mailbox import Mailbox
from intradp_ros.schedule.program import Await, Emit, Instruction, KernelCall, Program
from intradp_ros.split.kernel_device import HOST


class Log:
    """Runs programs and keeps what they did, in order."""

    def __init__(self) -> None:
        self.did: list[str] = []
        self.executor = pipeline.InterleavedExecutor('test')
        self._ended = threading.Semaphore(0)

    def run(self, inference: int, *instructions: Instruction) -> pipeline.ProgramRun:
        """Return a run of instructions on one input, in slot 0."""
        program = Program(instructions, 2, {0: 0}, {}, (), HOST)
        return pipeline.ProgramRun(
            inference, program, Mailbox(lambda _: None, self.executor.wake),
            lambda transfer, rows: self.did.append(f'{inference} sends {transfer}'),
            {0: torch.zeros(1)}, lambda *_: self._ended.release())

    def computes(self, inference: int) -> KernelCall:
        """Return an instruction that computes slot 1."""
        def kernel(values: Sequence[torch.Tensor | None]) -> torch.Tensor:
            self.did.append(f'{inference} computes')
            return torch.ones(1)
        return KernelCall('work', kernel, (0,), (1,))

    def all_of(self, *runs: pipeline.ProgramRun, ends: int = 0) -> list[str]:
        """Start runs while the executor is busy; return what all that ended did."""
        gate = threading.Event()
        self.executor.call(gate.wait)
        for run in runs:
            self.executor.start(run)
        gate.set()
        for _ in range(ends or len(runs)):
            assert self._ended.acquire(timeout=60)
        self.executor.close()
        return self.did


def test_the_oldest_goes_first() -> None:
    log = Log()
    assert log.all_of(log.run(2, log.computes(2)), log.run(1, log.computes(1))) == [
        '1 computes', '2 computes']


def test_inputs_of_a_new_one_leave_before_older_ones_compute() -> None:
    """Other devices wait for them; until they left, these were idle while this one computed."""
    log = Log()
    assert log.all_of(log.run(1, log.computes(1), Emit(5, 1)),
                       log.run(2, Emit(4, 0), log.computes(2))) == [
        '2 sends 4', '1 computes', '1 sends 5', '2 computes']


def test_inputs_of_a_new_one_leave_between_the_operators_of_an_older_one() -> None:
    log = Log()
    new = log.run(2, Emit(4, 0), log.computes(2))

    def kernel(values: Sequence[torch.Tensor | None]) -> torch.Tensor:
        log.executor.start(new)
        return torch.ones(1)

    old = log.run(1, KernelCall('begins another', kernel, (0,), (1,)), log.computes(1))
    assert log.all_of(old, ends=2) == ['2 sends 4', '1 computes', '2 computes']


def test_who_awaits_rows_lets_others_go_on() -> None:
    log = Log()
    first = log.run(1, Emit(3, 0), Await(7, 1), log.computes(1))
    second = log.run(2, log.computes(2))
    ended = second.done

    def deliver(run: pipeline.ProgramRun, outputs: pipeline.Outputs | None,
                error: Exception | None, ) -> None:
        first.mailbox.deliver(7, torch.ones(1))
        ended(run, outputs, error)

    second.done = deliver
    assert log.all_of(first, second) == ['1 sends 3', '2 computes', '1 computes']
