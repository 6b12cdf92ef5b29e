# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Latency and frames per second of a pipeline: what the simulator says, and what was measured."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
import math
import statistics
import time

import torch

from intradp_lab.fleet.asking import SeenAnswer
from intradp_lab.fleet.local_fleet import LocalFleet
from intradp_ros.cluster.topology import Topology
from intradp_ros.runtime.pipeline.fleet_result import FleetResult
from intradp_ros.schedule.event_simulator import Discipline, FAIR, simulate
from intradp_ros.schedule.stage_plan import StagePlan
from intradp_ros.schedule.stage_tasks import stage_tasks
from intradp_ros.split.local_operator import SplitGraph


@dataclass(frozen=True)
class PipelineFigures:
    """Median seconds of a frame alone in the pipeline, and frames per second of many."""

    latency: float
    fps: float


def usual_inflight(plan: StagePlan) -> int:
    """Return how many inferences a client has in flight where nothing else is said."""
    return 2 * len(plan.stages) + 1


def predicted(split: SplitGraph, plan: StagePlan, seconds: Mapping[str, Sequence[float]],
              topology: Topology, alone: int, frames: int, inflight: int,
              discipline: Discipline = FAIR) -> PipelineFigures:
    """Return what the event simulator says of so many frames alone, and of so many at once."""
    one = stage_tasks(split, plan, seconds, topology, alone, inflight=1)
    many = stage_tasks(split, plan, seconds, topology, frames, inflight=inflight)
    latency = max(one.latencies(simulate(one.graph, topology, discipline))) / alone
    return PipelineFigures(latency, _fps(
        many.latencies(simulate(many.graph, topology, discipline)), inflight))


def for_payload(topology: Topology, share: float) -> Topology:
    """Return a topology whose media have the share of their rates that payload gets."""
    return Topology(topology.devices, tuple(
        replace(m, bytes_per_second=m.bytes_per_second * share) for m in topology.media),
        topology.paths)


def measured_local(fleet: LocalFleet, inputs: Sequence[Sequence[torch.Tensor]], alone: int,
                   inflight: int, timeout: float = math.inf,
                   ) -> tuple[PipelineFigures, list[FleetResult]]:
    """
    Ask for inferences one at a time, `alone` of them, and then for the others together.

    :raises queue.Empty: if an answer does not come within `timeout` (s).
    """
    answers = []
    for frame in inputs[:alone]:
        fleet.client.ask(frame)
        answers += fleet.answers(1, timeout)
    begin, asked = time.monotonic(), []
    for frame in inputs[alone:]:
        fleet.wait_for_room()
        asked.append(time.monotonic() - begin)
        fleet.client.ask(frame)
    many = fleet.answers(len(asked), timeout)
    ends = [at + answer.latency for at, answer in zip(asked, many)]
    return PipelineFigures(statistics.median(a.latency for a in answers), _fps(ends, inflight)), \
        answers + many


def measured_nodes(seen: Sequence[SeenAnswer], alone: int, inflight: int) -> PipelineFigures:
    """Return the figures of what an asker saw, which asked for the first `alone` one at a time."""
    return PipelineFigures(statistics.median(s.latency for s in seen[:alone]),
                           _fps([s.asked + s.latency for s in seen[alone:]], inflight))


def without_pipeline(seen: Sequence[SeenAnswer], since: float, until: float) -> float:
    """Return the longest time between two pipelined frames that ends after a fault (s)."""
    times = [s.asked for s in seen if s.pipelined and s.asked <= until]
    gaps = [b - a for a, b in zip(times, [*times[1:], until]) if b > since]
    return max(gaps, default=until - since)


def _fps(ends: Sequence[float], inflight: int) -> float:
    """
    Return frames per second between the first answer and the last; answers go in order.

    Of many frames those that filled the pipeline, and those that emptied it, are left out.
    """
    ordered = list(accumulate(ends, max))
    counted = ordered[inflight:-inflight] if len(ordered) > 3 * inflight else ordered
    return (len(counted) - 1) / (counted[-1] - counted[0])
