# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Timing every operator at several region heights on this machine's own hardware."""
from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, pairwise
import logging
import math
from statistics import median, quantiles
import time

import numpy as np
import numpy.typing as npt
import torch

from intradp_ros.graph.serialise import digest
from intradp_ros.power.power_sensors import EnergySensor
from intradp_ros.power.power_states import PowerStates, XAVIER_NX
from intradp_ros.profiling.encoding_measurement import measure_encodings
from intradp_ros.profiling.joins import Joins
from intradp_ros.profiling.machine import device_name
from intradp_ros.profiling.parts import OperatorParts, Part, parts_of, time_part
from intradp_ros.profiling.power import measure_power
from intradp_ros.profiling.profile import (
    EncodingTiming,
    JoinCost,
    OperatorTiming,
    Profile,
    significant,
)
from intradp_ros.profiling.rounds import (
    bind_whole,
    BoundOperator,
    clock,
    given,
    replayed_run,
    run_through,
    run_timed,
    Values,
)
from intradp_ros.profiling.speed_track import SpeedTrack, track_speed
from intradp_ros.profiling.tune import Check, choose_tuning, no_check, SECONDS
from intradp_ros.split.calls.tuning import tuned
from intradp_ros.split.local_operator import SplitGraph

ROUNDS = (4, 40)  # at least, at most
CREDIBLE = (0.9, 1.1)  # of `Profile.scale`
#: Seconds of a network below which the clock and the calls themselves decide that.
MEASURABLE = 1e-3
#: Looking between heights: how often at most, how often each is run, and how many there may be.
LOOKS, TRIES, MOST_HEIGHTS = 4, 3, 16
#: Seconds, and the part of what was expected, by which a height must be off to be added.
OFF_SECONDS, OFF = 2e-6, 0.2
#: Share of the seconds for all that plain runs take in each of the two phases of choosing kernels
#: (some seven candidates run as often).
TUNING = 1 / 30
#: Seconds of a round with the run of the whole graph that follows, in those of the round.
WITH_RUN = 1.3
Progress = Callable[[int, int], None]
Floats = npt.NDArray[np.float64]
_LOG = logging.getLogger(__name__)


def measure_profile(split: SplitGraph, inputs: Sequence[torch.Tensor], *,
                    budget: float = 10.0, progress: Progress | None = None,
                    sensor: EnergySensor | None = None, seconds: float = math.inf,
                    check: Check = no_check) -> Profile:
    """
    Choose the kernels of a graph on this device, and measure them on example inputs.

    All operators and heights are measured in rounds; the median of each, at
    the usual speed of the device (`SpeedTrack`), is what it typically takes,
    with what it takes more when others have run since it did
    (`OperatorParts`), and the shortest is kept as well.  The whole graph runs once in every
    round, and its time is the median of these runs, at the same speed; on an
    accelerator, of runs in which no operator is waited for.  Heights are added
    where times are off the line between those on either side.

    :param split, inputs: the graph with its split axis; one example tensor for each input.
    :param budget: seconds that the rounds should take (there are at least four).
    :param progress: called with measurements done and measurements in all.
    :param sensor: measures the machine's power states (some seconds); else they are assumed.
    :param seconds: what everything but the power states should take in all, on one core; the least
        numbers of runs are made nevertheless.
    :param check: called between operators; it may raise to end the measurement.
    """
    now = clock(split.device)
    end = now() + seconds
    with torch.inference_mode():
        encodings = value_encodings(split, inputs, check)
        tuning = choose_tuning(split, inputs, min(SECONDS, TUNING * seconds), check)
        lean = tuned(split, tuning)
        measured, runs = measure_parts(lean, inputs, budget, progress or _silent, check, end)
        power = _power(lean, inputs, sensor) if sensor else XAVIER_NX
    timings = tuple(_timing(of_one, runs.track) for of_one in measured)
    whole, total = runs.typical, sum(timing.seconds[-1] for timing in timings)
    scale = whole / total if total > 0 else 1.0
    if total > MEASURABLE and not split.device.runs_ahead \
            and not CREDIBLE[0] <= scale <= CREDIBLE[1]:
        _LOG.warning(
            'operators in a run of the whole graph took %.2f times what they took one by one '
            '(%.1f ms): is the machine busy? measure again when it is not', scale, 1e3 * total)
    return Profile(digest(split.captured), split.axis, device_name(split.device),
                   torch.get_num_threads(), timings, whole, scale, power, encodings, tuning,
                   least_seconds=runs.least, spread=significant(_range(runs.whole) / whole),
                   joining=runs.joining)


def _timing(measured: OperatorParts, track: SpeedTrack) -> OperatorTiming:
    parts, typical = measured.parts, measured.typical(track)
    least = [min(part.least, usual) for part, usual in zip(parts, typical)]  # seen slow only
    return OperatorTiming(tuple(p.rows for p in parts), tuple(map(significant, typical)),
                          tuple(map(significant, least)), significant(measured.once(track)))


def _range(samples: Sequence[float]) -> float:
    """Return the seconds between the quartiles."""
    if len(samples) < 2:
        return 0.0
    low, _, high = quantiles(samples, n=4, method='inclusive')
    return high - low


def _power(split: SplitGraph, inputs: Sequence[torch.Tensor], sensor: EnergySensor,
           ) -> PowerStates:
    """Return what the machine draws in standby and running the graph."""
    if split.device.runs_ahead and not sensor.sees_accelerators:
        _LOG.warning('%s does not see what an accelerator draws, so power is assumed',
                     sensor.source)
        return XAVIER_NX
    return measure_power(sensor, partial(run_through, split, bind_whole(split), inputs))


@dataclass
class Runs:
    """
    Seconds of runs of the whole graph, and the shortest ones of its operators, summed.

    `typical` are those of the whole graph at the device's usual speed, which
    `track` says; `joining` is what putting rows together took.
    """

    whole: list[float]
    typical: float
    least: float
    joining: JoinCost
    track: SpeedTrack


def measure_parts(split: SplitGraph, inputs: Sequence[torch.Tensor], budget: float,
                  progress: Progress, check: Check = no_check,
                  end: float = math.inf) -> tuple[list[OperatorParts], Runs]:
    """
    Return the parts of all operators, and runs of the whole graph.

    Rounds beyond the least number end at `end`, by the clock of the device.
    """
    bound = bind_whole(split)
    measured = [OperatorParts.of(split, op) for op in bound]
    joins = Joins()

    def checking(done: int, count: int) -> None:
        check()

    _round(split, bound, measured, joins, inputs, checking)  # warms up
    for of_one in measured:
        of_one.forget()
    start, now = time.perf_counter(), clock(split.device)
    begun = now()
    _round(split, bound, measured, joins, inputs, checking)
    rounds = round(budget / max(1e-6, time.perf_counter() - start))
    one = max(1e-6, WITH_RUN * (now() - begun))
    look_between(split, bound, [of_one.parts for of_one in measured], inputs, check,
                 lambda: now() < end - ROUNDS[0] * one)
    rounds = int(min(max(min(rounds, (end - now()) / one), ROUNDS[0]), ROUNDS[1]))
    runs, stops = [], []
    for turn in range(rounds):
        _round(split, bound, measured, joins, inputs,
               partial(_advance, progress, check, turn * len(bound), rounds))
        runs.append(run_timed(split, bound, inputs)[1])
        stops.append(time.monotonic())
    took, ends = np.array(runs), _ends(np.array(runs), np.array(stops))
    for of_one, seconds, moments in zip(measured, took.T.tolist(), ends.T.tolist()):
        for each in zip(seconds, moments):
            of_one.run.took(*each)
    track = _track(measured)
    if split.device.runs_ahead:
        run = replayed_run(split, bound, inputs)
        through = [run() for _ in range(rounds)]
        return measured, Runs(through, median(through), min(through), joins.typical, track)
    typical = float(np.median((took / track.slowness(ends)).sum(axis=1)))
    least = min(typical, float(took.min(axis=0).sum()))
    return measured, Runs(took.sum(axis=1).tolist(), typical, least, joins.typical, track)


def _ends(took: Floats, stops: Floats) -> Floats:
    """Return when operators ended, by run (rows), from what they took and when runs ended."""
    ends: Floats = took.cumsum(axis=1) + (stops - took.sum(axis=1))[:, None]
    return ends


def _track(measured: Iterable[OperatorParts]) -> SpeedTrack:
    """Return how fast the device was while all parts were measured."""
    every = [part for of_one in measured for part in of_one.every]
    return track_speed(
        np.repeat(np.arange(len(every)), [len(part.samples) for part in every]),
        np.concatenate([part.moments for part in every]),
        np.concatenate([part.samples for part in every]))


def look_between(split: SplitGraph, bound: Sequence[BoundOperator], parts: Sequence[list[Part]],
                 inputs: Sequence[torch.Tensor], check: Check = no_check,
                 go_on: Callable[[], bool] = lambda: True) -> None:
    """
    Add heights where an operator takes another time than the line between two others says.

    The middle of each gap is looked at, and where it is off, then those of
    the two gaps that it leaves.  All rows but one are looked at as well:
    kernels may be faster on just the rows of the whole than on any fewer.
    Looking ends early where `go_on` says so.
    """
    gaps = [list(pairwise(p.rows for p in of_one)) for of_one in parts]
    middles = [_middles([*of_one, (op.local.rows - 2, op.local.rows)], {p.rows for p in own})
               for op, of_one, own in zip(bound, gaps, parts)]
    for _ in range(LOOKS):
        if not any(middles) or not go_on():
            return
        gaps = _look(split, bound, parts, inputs, middles, check)
        middles = list(map(_middles, gaps))


def _middles(gaps: Iterable[tuple[int, int]], known: Collection[int] = ()) -> list[int]:
    return sorted({(low + high) // 2 for low, high in gaps if low >= 0 and high - low > 1}
                  .difference(known))


def _look(split: SplitGraph, bound: Sequence[BoundOperator], parts: Sequence[list[Part]],
          inputs: Sequence[torch.Tensor], middles: Sequence[Sequence[int]],
          check: Check) -> list[list[tuple[int, int]]]:
    """Run operators at more heights, keep those that are off, and return the gaps they leave."""
    values, gaps = given(split, inputs), []
    for op, of_one, rows in zip(bound, parts, middles):
        check()
        room = MOST_HEIGHTS - len(of_one)
        looks = parts_of(split, op.local, op.overwrites, rows[:room] if room > 0 else ())
        for part in looks * TRIES:
            time_part(split, op, part, values)
        gaps.append(_keep(of_one, looks, op.local.rows))
        op.finish(op.kernel(op.inputs(values)), values)
    return gaps


def _keep(parts: list[Part], looks: Iterable[Part], rows: int) -> list[tuple[int, int]]:
    """Add what is off to the parts of an operator; return the gaps on either side of it."""
    expected = OperatorTiming(tuple(p.rows for p in parts), tuple(p.least for p in parts)
                              ).table(rows)
    found = [p for p in looks if _is_off(p.least, expected[p.rows])]
    parts[:] = sorted([*parts, *found], key=lambda p: p.rows)
    new = {p.rows for p in found}
    return [gap for gap in pairwise(p.rows for p in parts) if not new.isdisjoint(gap)]


def _is_off(seconds: float, expected: float) -> bool:
    return abs(seconds - expected) > max(OFF_SECONDS, OFF * expected)


def _round(split: SplitGraph, bound: Sequence[BoundOperator], measured: Sequence[OperatorParts],
           joins: Joins, inputs: Sequence[torch.Tensor], progress: Progress) -> None:
    """Run the graph once, and on the way every operator at its lower heights, and joins."""
    values, now = given(split, inputs), clock(split.device)
    for number, (op, of_one) in enumerate(zip(bound, measured)):
        for part in of_one.lower:
            time_part(split, op, part, values)
        joins.time(split, op, values)
        tensors = op.inputs(values)
        start = now()
        result = op.kernel(tensors)
        of_one.parts[-1].took(now() - start)
        op.finish(result, values)
        progress(number + 1, len(bound))
    joins.end_round()


def _advance(progress: Progress, check: Check, before: int, rounds: int, done: int, count: int,
             ) -> None:
    check()
    progress(before + done, rounds * count)


def _silent(done: int, count: int) -> None:
    """Show no progress."""


def value_encodings(split: SplitGraph, inputs: Sequence[torch.Tensor],
                    check: Check = no_check) -> tuple[dict[str, EncodingTiming], ...]:
    """Return for each value what encodings do to it; nothing for records of folded ones."""
    found: list[dict[str, EncodingTiming]] = [{} for _ in split.rows]
    for v, value in crossing_values(split, inputs):
        check()
        found[v] = measure_encodings(value, split.dims[v])
    return tuple(found)


def crossing_values(split: SplitGraph, inputs: Sequence[torch.Tensor],
                    ) -> Iterator[tuple[int, torch.Tensor]]:
    """Yield the inputs and what operators make of them, in turn; no records of folded values."""
    values = given(split, inputs)
    made = chain([split.graph.inputs], (_finished(op, values) for op in bind_whole(split)))
    for v in chain.from_iterable(made):
        if v is not None and v not in split.folded:
            yield v, split.device.give(values[v])


def _finished(op: BoundOperator, values: Values) -> Sequence[int | None]:
    """Run an operator; return what it has made."""
    op.finish(op.kernel(op.inputs(values)), values)
    return op.local.operator.outputs
