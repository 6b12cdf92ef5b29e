# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
A task trained by torch's DistributedDataParallel, with samples by speed: what users have without.

Each device is a process, takes the seconds of an emulated one and sends at its rate, as our
workers do.  What DDP would need in addition to be exact is not there: batch norm normalises the
samples of one device.  ``python -m intradp_lab.training.ddp JSON`` is one of the processes.
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
import json
from pathlib import Path
import secrets
import sys
import time
from typing import Any

import torch

from intradp_lab.emulation.processes import starter
from intradp_ros.core.processes import Command, module_arguments
from intradp_ros.planning.shares import largest_remainder
from intradp_ros.systems.training.base.task import call, load_task, losses_of, samples_of
from intradp_ros.systems.training.run.round_groups import check_distributed

#: Seconds that all processes together may take to start, and to wait for each other.
TIMEOUT = 240.0


@dataclass(frozen=True)
class DdpDevice:
    """One of the processes: its samples of a round, seconds of a sample and of a step, bytes/s."""

    task: str
    rank: int
    shares: tuple[int, ...]
    sample: float
    step: float
    rate: float
    store: str
    rounds: int

    @property
    def rows(self) -> range:
        """Return the rows of a round that are this device's."""
        first = sum(self.shares[:self.rank])
        return range(first, first + self.shares[self.rank])


@dataclass(frozen=True)
class DdpRun:
    """What a run came to: samples of each device, seconds and loss of each round."""

    shares: Mapping[str, int]
    seconds: tuple[float, ...]
    loss: tuple[float, ...]


def train_by_ddp(task: str, batch: int, rounds: int, seconds: Mapping[str, tuple[float, float]],
                 rate: float, logs: Path) -> DdpRun:
    """
    Train some rounds on devices with the seconds of a sample, and of a step, at a rate (bytes/s).

    :raises ChildError: if a process fails.
    """
    shares = largest_remainder([1 / sample for sample, _ in seconds.values()], batch)
    store = logs / f'ddp-{secrets.token_hex(4)}.store'
    with starter(logs) as start:
        children = [start(Command(f'ddp-{name}', module_arguments(
            'intradp_lab.training.ddp', json.dumps(asdict(DdpDevice(
                task, rank, tuple(shares), sample, step, rate, str(store), rounds))))))
            for rank, (name, (sample, step)) in enumerate(seconds.items())]
        found = [json.loads(child.wait_for_line('^result (.*)$', TIMEOUT)[1])
                 for child in children]
    loss = tuple(sum(losses) / batch for losses in zip(*(one['loss'] for one in found)))
    return DdpRun(dict(zip(seconds, shares)), tuple(found[0]['seconds']), loss)


class _Pace:
    """Lets what is computed and sent take as long as on the emulated device."""

    def __init__(self, device: DdpDevice) -> None:
        self._device = device
        self._due = 0.0

    def begin(self) -> None:
        """Note when a round begins."""
        self._due = time.monotonic() + self._device.sample * len(self._device.rows)

    def reduce(self, group: Any, bucket: Any) -> Any:
        """Sum gradients once they are computed, in the seconds of a ring at the port's rate."""
        _sleep_until(self._due)
        count, tensor = len(self._device.shares), bucket.buffer()
        due = time.monotonic() + 2 * (count - 1) / count * tensor.nbytes / self._device.rate
        work = torch.distributed.all_reduce(tensor, group=group, async_op=True)
        assert work is not None

        def summed(future: Any) -> torch.Tensor:
            _sleep_until(due)
            total: torch.Tensor = future.value()[0].div_(count)
            return total
        return work.get_future().then(summed)


def _sleep_until(due: float) -> None:
    time.sleep(max(0.0, due - time.monotonic()))


def run_device(device: DdpDevice) -> dict[str, Sequence[float]]:
    """Train as one of the processes; return seconds and summed loss of each round."""
    check_distributed()
    distributed = torch.distributed
    torch.set_num_threads(1)
    task = load_task(device.task)
    from torch._C._distributed_c10d import FileStore
    store = FileStore(device.store, len(device.shares))
    distributed.init_process_group('gloo', store=store, rank=device.rank,
                                   world_size=len(device.shares),
                                   timeout=timedelta(seconds=TIMEOUT))
    module = torch.nn.parallel.DistributedDataParallel(
        task.module.train(), broadcast_buffers=False, gradient_as_bucket_view=True)
    pace = _Pace(device)
    module.register_comm_hook(None, lambda group, bucket: pace.reduce(group, bucket))
    optimiser = task.optimiser(list(task.module.named_parameters()))
    rates = [group['lr'] for group in optimiser.param_groups]
    seconds, losses = [], []
    distributed.barrier()
    for number in range(device.rounds):
        begun = time.monotonic()
        pace.begin()
        samples = samples_of(task.seed, len(task.data), task.batch, number)
        inputs, targets = task.data.take([samples[k] for k in device.rows])
        found, _ = losses_of(task, call(module, inputs), targets, len(device.rows))
        for group, rate in zip(optimiser.param_groups, rates):
            group['lr'] = rate * (task.schedule(number) if task.schedule else 1.0)
        optimiser.zero_grad()
        # DDP divides by the number of devices.
        torch.autograd.backward(found.sum() * len(device.shares) / task.batch)
        optimiser.step()
        _sleep_until(time.monotonic() + device.step)
        losses.append(float(found.detach().double().sum()))
        seconds.append(time.monotonic() - begun)
    distributed.destroy_process_group()
    return {'seconds': seconds, 'loss': losses}


def main() -> None:
    """Be the device that the command line describes."""
    data = json.loads(sys.argv[1])
    found = run_device(DdpDevice(**{**data, 'shares': tuple(data['shares'])}))
    print('result ' + json.dumps(found), flush=True)


if __name__ == '__main__':
    main()
