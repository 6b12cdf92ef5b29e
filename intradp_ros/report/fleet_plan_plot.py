# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Draw a simulated schedule: what each device computes, and what each medium carries."""
from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from intradp_ros.cluster.topology import Topology
from intradp_ros.report.saved_picture import save_picture
from intradp_ros.report.timeline_plot import timeline_figure
from intradp_ros.schedule.event_simulator import Simulation
from intradp_ros.schedule.task_graph import ComputeTask, TaskGraph, TransferTask


@dataclass(frozen=True, slots=True)
class TaskSpan:
    """When a task was carried out, and on what."""

    lane: str
    kind: str
    name: str
    start: float
    stop: float


def task_spans(graph: TaskGraph, played: Simulation, topology: Topology) -> list[TaskSpan]:
    """Return the spans of a schedule: devices first, then media, each in the topology's order."""
    spans = []
    for task, start, stop in zip(graph.tasks, played.start.tolist(), played.finish.tolist()):
        if isinstance(task, ComputeTask):
            spans.append(TaskSpan(task.device, 'compute', task.name, start, stop))
        elif isinstance(task, TransferTask) and task.nbytes:
            for medium in dict.fromkeys(topology.path(task.source, task.target)):
                spans.append(TaskSpan(medium, 'transfer', f'{task.source} > {task.target}',
                                      start, stop))
    lanes = [*topology.names, *(m.name for m in topology.media)]
    return sorted(spans, key=lambda span: (lanes.index(span.lane), span.start))


def draw_schedule(graph: TaskGraph, played: Simulation, topology: Topology, path: Path,
                  title: str) -> None:
    """Write the picture of a schedule."""
    save_picture(timeline_figure(task_spans(graph, played, topology), title,
                                 'the first inference was asked for'), path)
