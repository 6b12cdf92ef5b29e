# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Timing every operator at several region heights on this machine's own hardware."""
from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
import logging
import time

import torch

from intradp_ros.graph.serialise import digest
from intradp_ros.power.power_sensors import EnergySensor
from intradp_ros.profiling.encoding_measurement import measure_encodings
from intradp_ros.profiling.machine import device_name
from intradp_ros.profiling.power import measure_power
from intradp_ros.profiling.profile import (
    EncodingTiming,
    OperatorTiming,
    PowerStates,
    Profile,
    significant,
    XAVIER_NX,
)
from intradp_ros.profiling.rounds import (
    bind,
    bind_whole,
    BoundOperator,
    clock,
    given,
    run_through,
    run_timed,
    Values,
)
from intradp_ros.profiling.tune import choose_tuning
from intradp_ros.split.calls.tuning import tuned
from intradp_ros.split.local_operator import Kernel, SplitGraph
from intradp_ros.split.regions.region import Region

HEIGHTS = (1.0, 0.5, 0.25, 0.125, 0.0625)
ROUNDS = (4, 40)  # at least, at most
CREDIBLE = (0.9, 1.1)  # of `Profile.scale`
Progress = Callable[[int, int], None]
_LOG = logging.getLogger(__name__)


@dataclass
class _Part:
    """An operator bound to rows in the middle, with the shortest time it took."""

    region: Region
    kernel: Kernel
    seconds: float = float('inf')


def measure_profile(split: SplitGraph, inputs: Sequence[torch.Tensor], *,
                    budget: float = 10.0, progress: Progress | None = None,
                    sensor: EnergySensor | None = None) -> Profile:
    """
    Choose the kernels of a graph on this device, and measure them on example inputs.

    All operators and heights are measured in rounds, and the shortest time
    of each is kept: what else the machine does only ever adds, and does not
    last through all rounds.  The whole graph runs once in every round; its
    time is the sum of the shortest times of its operators in these runs.  On
    an accelerator it is the shortest run in which no operator is waited for.

    Parameters
    ----------
    split, inputs :
        The graph with its split axis; one example tensor for each input.
    budget :
        Seconds that the rounds should take (there are at least four).
    progress :
        Called with measurements done and measurements in all.
    sensor :
        Measures the machine's power states (some seconds); else they are
        assumed.

    """
    with torch.inference_mode():
        tuning = choose_tuning(split, inputs)
        lean = tuned(split, tuning)
        parts, whole = _measure(lean, inputs, budget, progress or _silent)
        power = _power(lean, inputs, sensor) if sensor else XAVIER_NX
        encodings = value_encodings(split, inputs)
    timings = tuple(OperatorTiming(tuple(p.region.rows for p in of_one),
                                   tuple(significant(p.seconds) for p in of_one))
                    for of_one in parts)
    total = sum(timing.seconds[-1] for timing in timings)
    scale = whole / total if total > 0 else 1.0
    if not split.device.runs_ahead and not CREDIBLE[0] <= scale <= CREDIBLE[1]:
        _LOG.warning(
            'operators in a run of the whole graph took %.2f times what they took one by one '
            '(%.1f ms): is the machine busy? measure again when it is not', scale, 1e3 * total)
    return Profile(digest(split.captured), split.axis, device_name(split.device),
                   torch.get_num_threads(), timings, whole, scale, power, encodings, tuning)


def _power(split: SplitGraph, inputs: Sequence[torch.Tensor], sensor: EnergySensor,
           ) -> PowerStates:
    """Return what the machine draws in standby and running the graph."""
    if split.device.runs_ahead and not sensor.sees_accelerators:
        _LOG.warning('%s does not see what an accelerator draws, so power is assumed',
                     sensor.source)
        return XAVIER_NX
    return measure_power(sensor, partial(run_through, split, bind_whole(split), inputs))


def _measure(split: SplitGraph, inputs: Sequence[torch.Tensor], budget: float,
             progress: Progress) -> tuple[list[list[_Part]], float]:
    """Return the parts of all operators, and the seconds of the whole graph."""
    bound = bind_whole(split)
    parts = [_parts(split, op) for op in bound]
    start = time.perf_counter()
    _round(split, bound, parts, inputs, _silent)  # warms up
    rounds = round(budget / max(1e-6, time.perf_counter() - start))
    rounds = min(max(rounds, ROUNDS[0]), ROUNDS[1])
    whole, through = [float('inf')] * len(bound), float('inf')
    for turn in range(rounds):
        before = turn * len(bound)
        _round(split, bound, parts, inputs, partial(_advance, progress, before, rounds))
        run_timed(split, bound, inputs, whole)
        if split.device.runs_ahead:
            through = min(through, run_through(split, bound, inputs))
    return parts, min(sum(whole), through)


def _parts(split: SplitGraph, op: BoundOperator) -> list[_Part]:
    """Bind an operator to all heights, ascending; the last one is all of its rows."""
    whole, found = op.local.rows, []
    for rows in sorted({max(1, round(whole * height)) for height in HEIGHTS}):
        region = Region((whole - rows) // 2, (whole - rows) // 2 + rows)
        found.append(_Part(region, bind(split, op.local, region, op.overwrites)))
    return found


def _round(split: SplitGraph, bound: Sequence[BoundOperator], parts: Sequence[list[_Part]],
           inputs: Sequence[torch.Tensor], progress: Progress) -> None:
    """Run the graph once, and on the way every operator at its lower heights."""
    values, now = given(split, inputs), clock(split.device)
    for number, (op, (*lower, whole)) in enumerate(zip(bound, parts)):
        for part in lower:
            part.seconds = min(part.seconds, _seconds(split, op, part, values))
        tensors = op.inputs(values)
        start = now()
        result = op.kernel(tensors)
        whole.seconds = min(whole.seconds, now() - start)
        op.finish(result, values)
        progress(number + 1, len(bound))


def _seconds(split: SplitGraph, op: BoundOperator, part: _Part, values: Values) -> float:
    """Return what a part takes, on an input of its own if it writes over that."""
    cut = [split.cut(value, values[value], rowmap(part.region))
           for value, rowmap in zip(op.local.operator.inputs, op.local.maps)]
    if op.overwrites:
        cut[0] = cut[0].clone()
    now = clock(split.device)
    start = now()
    part.kernel(cut)
    return now() - start


def _advance(progress: Progress, before: int, rounds: int, done: int, count: int) -> None:
    progress(before + done, rounds * count)


def _silent(done: int, count: int) -> None:
    """Show no progress."""


def value_encodings(split: SplitGraph, inputs: Sequence[torch.Tensor],
                    ) -> tuple[dict[str, EncodingTiming], ...]:
    """Return for each value what encodings do to it; nothing for records of folded ones."""
    found: list[dict[str, EncodingTiming]] = [{} for _ in split.rows]
    values = given(split, inputs)

    def look(new: Iterable[int | None]) -> None:
        for v in new:
            if v is not None and v not in split.folded:
                found[v] = measure_encodings(split.device.give(values[v]))

    look(split.graph.inputs)
    for op in bind_whole(split):
        op.finish(op.kernel(op.inputs(values)), values)
        look(op.local.operator.outputs)
    return tuple(found)
