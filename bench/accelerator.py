# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
What inferences take on an accelerator, what the host adds, and what copies to it cost.

For each network: the model as it came (``eager``), its split graph, operator
by operator (``called``), the time in which the host calls all operators
(``host``), and, where a device can replay calls, the same as one CUDA graph,
with the copies of inputs and results (``replayed``).  An inference takes what
is faster.  They take turns; figures are medians, in milliseconds.  ``off`` is
by how much its results differ from the host's, in units of their spread.

Copies are of rows as they cross: from and to the memory of a tensor
(``pageable``), and of a buffer that the device reads by itself (``pinned``)
with the copy of the host's that it needs.
"""
from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
import json
import statistics
import time
from typing import Any

from models import missing_package, MODELS, print_table
import torch

from intradp_ros.cli.output_paths import result_file
from intradp_ros.core.atomic_write import write_atomically
from intradp_ros.profiling.machine import prepare_process
from intradp_ros.profiling.rounds import bind_whole, run_through, whole_kernel
from intradp_ros.runtime.models.catalogue import ModelSpec
from intradp_ros.runtime.models.model import share_module, SharedModel
from intradp_ros.split.calls.accelerator import Accelerator, DeviceError
from intradp_ros.split.checks.verify import output_error
from intradp_ros.split.local_operator import Kernel

SIZES = (1 << 12, 1 << 14, 1 << 16, 1 << 18, 1 << 20, 1 << 22)
Step = Callable[[], Any]


def main() -> None:
    """Measure what the command line names, and print it."""
    parser = argparse.ArgumentParser(description=(__doc__ or '').strip().splitlines()[0])
    parser.add_argument('models', nargs='*', metavar='MODEL', default=list(MODELS),
                        help=f'which of {", ".join(MODELS)} (default: all that are installed)')
    parser.add_argument('--device', default='cuda', help='device of PyTorch (default cuda)')
    parser.add_argument('--repeats', type=int, default=50, help='runs of each (default 50)')
    parser.add_argument('--json', type=result_file, help='write the figures here too')
    args = parser.parse_args()
    if unknown := [name for name in args.models if name not in MODELS]:
        parser.error(f'no model {unknown[0]!r}; there are {", ".join(MODELS)}')
    try:
        device = Accelerator(args.device)
    except DeviceError as error:
        parser.error(str(error))
    prepare_process(threads=1)
    found = {name: network(MODELS[name], device, args.repeats) for name in args.models
             if not missing_package(MODELS[name])}
    copied = {size: copies(size, device, args.repeats) for size in SIZES}
    show(device, found, copied)
    if args.json:
        write_atomically(args.json, json.dumps(
            {'device': device.hardware, 'networks': found, 'copies': copied}, indent=2) + '\n')


def network(spec: ModelSpec, device: Accelerator, repeats: int) -> dict[str, float | None]:
    """Return the milliseconds of a network in each way to run it, and the error of ours."""
    torch.manual_seed(0)
    source = spec.example()
    module = spec.module()
    host = share_module(module, (source,))
    ours = host.on(device)
    there, moved = device.take(source), module.to(device.where)
    bound = bind_whole(ours.split)
    steps: dict[str, Step] = {
        'eager': lambda: moved(there),
        'called': lambda: run_through(ours.split, bound, [there])}
    with torch.inference_mode():
        for step in steps.values():
            _run(step, device, 3)
        whole = whole_kernel(ours.split, bound)
        replayed = device.replayed(whole, [there])
        if replayed is not None:
            steps['replayed'] = lambda: replayed([there])
        off = _error(host, [device.give(t) for t in (replayed or whole)([there])], source)
        times = in_turns(steps, device, repeats)
        host_ms = statistics.median(_host_ms(whole, there, device) for _ in range(repeats))
    return {**times, 'host': host_ms, 'off': off}


def _error(host: SharedModel, got: Sequence[torch.Tensor], source: torch.Tensor) -> float:
    """Return the largest difference from the host's outputs, in units of their spread."""
    wanted = whole_kernel(host.split, bind_whole(host.split))([source])
    return max(output_error('', g, w).relative for g, w in zip(got, wanted))


def _host_ms(whole: Kernel, there: torch.Tensor, device: Accelerator) -> float:
    """Return the milliseconds until the host has called all operators."""
    device.finish()
    start = time.perf_counter()
    whole([there])
    return 1e3 * (time.perf_counter() - start)


def in_turns(steps: Mapping[str, Step], device: Accelerator, repeats: int) -> dict[str, float]:
    """Return the median milliseconds of steps that take turns."""
    times: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(repeats):
        for name, step in steps.items():
            times[name].append(_run(step, device, 1))
    return {name: statistics.median(each) for name, each in times.items()}


def _run(step: Step, device: Accelerator, times: int) -> float:
    device.finish()
    start = time.perf_counter()
    for _ in range(times):
        step()
    device.finish()
    return 1e3 * (time.perf_counter() - start)


def copies(size: int, device: Accelerator, repeats: int) -> dict[str, float]:
    """Return the microseconds that rows of some bytes take there and back, each way."""
    here = torch.zeros(size, dtype=torch.uint8)
    there = device.take(here)
    steps: dict[str, Step] = {'there': lambda: device.take(here),
                              'back': lambda: device.give(there)}
    if device.where.type == 'cuda':
        pinned = torch.zeros(size, dtype=torch.uint8, pin_memory=True)
        steps['there, pinned'] = lambda: pinned.copy_(here).to(device.where, non_blocking=True)
        steps['back, pinned'] = lambda: _back(there, pinned, device)
    for step in steps.values():
        _run(step, device, 3)
    return {name: 1e3 * ms for name, ms in in_turns(steps, device, repeats).items()}


def _back(there: torch.Tensor, pinned: torch.Tensor, device: Accelerator) -> torch.Tensor:
    pinned.copy_(there, non_blocking=True)
    device.finish()
    return pinned.clone()


def show(device: Accelerator, found: Mapping[str, Mapping[str, float | None]],
         copied: Mapping[int, Mapping[str, float]]) -> None:
    """Print both tables."""
    ways = ['eager', 'called', 'replayed', 'host']
    print_table(f'networks, {device.hardware}', ['model'], [f'{w} ms' for w in ways] + ['off'], [
        [name, *('' if row.get(w) is None else f'{row[w]:.2f}' for w in ways),
         f'{row["off"]:.0e}'] for name, row in found.items()])
    names = list(next(iter(copied.values())))
    print_table('copies', ['kB'], [f'{name} us' for name in names], [
        [f'{size / 1024:g}', *(f'{row[name]:.0f}' for name in names)]
        for size, row in copied.items()])


if __name__ == '__main__':
    main()
