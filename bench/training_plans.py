# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Plans of training rounds in Asteroid's environments (modelled) beside other planners' plans.

Figures of other planners are how many times as long their rounds take.  Device is the fastest
device alone, as if its memory sufficed.  MB of HDP are those of two pipelines side by side that
sum their gradients through a parameter server (Eq. 1 of the paper), with room for them.  A second
table has what the loss of each device costs at 100 Mbit/s: rounds by light plans (Asteroid's
layer-wise ones) against plans from scratch, and the seconds in which layers with their optimiser
move; those of plans from scratch as the paper's heavy rescheduling does it, all through one
device.
"""
from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
import json
from statistics import median
import time
from typing import Any

from rich.console import Console
from rich.table import Table

from intradp_lab.paper_training import (
    ENVIRONMENTS,
    NETWORKS,
    paper_costs,
    TABLE_2,
    TABLE_4,
)
from intradp_ros.cli.output_paths import result_file
from intradp_ros.core.atomic_write import write_atomically
from intradp_ros.schedule.event_simulator import simulate
from intradp_ros.systems.training.plan.baselines import BASELINES
from intradp_ros.systems.training.plan.hybrid_plan import HybridStage
from intradp_ros.systems.training.plan.hybrid_planner import judged, plan_round
from intradp_ros.systems.training.plan.replanning import light_stages
from intradp_ros.systems.training.plan.round_costs import RoundCosts
from intradp_ros.systems.training.plan.round_estimate import (
    ending_seconds,
    round_seconds,
    steps_of,
)
from intradp_ros.systems.training.plan.round_tasks import Pipeline, round_tasks
from intradp_ros.systems.training.plan.training_plan import TrainingPlan, TrainingStage
from intradp_ros.systems.training.run.snapshots import backups, moves


def play(costs: RoundCosts, pipelines: list[Pipeline]) -> tuple[float, float]:
    """Return the seconds of a round, and the bytes that leave devices."""
    played = simulate(round_tasks(costs, pipelines), costs.topology)
    return played.makespan, sum(nbytes for medium, nbytes in played.carried.items()
                                if medium.endswith('.up'))


def measure(network: str, environment: str, mbits: int) -> dict[str, Any]:
    """Return a row of figures."""
    costs = paper_costs(network, environment, mbits)
    begun = time.process_time()
    plan = plan_round(costs)
    planned = time.process_time() - begun
    alone = min(play(costs, [([HybridStage(0, costs.layers, ((d.name, costs.micro_batch),), 1)],
                              costs.micro_batches)])[0] for d in costs.topology.devices)
    others = {name: play(costs, found) if (found := rule(costs)) else None
              for name, rule in BASELINES.items()}
    seconds, nbytes = play(costs, [(plan.stages, costs.micro_batches)])
    return {'network': network, 'environment': environment, 'mbits': mbits,
            'planning_seconds': planned, 'round_seconds': seconds,
            'estimated_seconds': round_seconds(steps_of(costs, plan.stages), costs.micro_batches)
            + ending_seconds(costs, plan.stages), 'bytes': nbytes,
            'device': alone / seconds,
            **{name: one and one[0] / seconds for name, one in others.items()},
            'hdp_bytes': hdp_bytes(costs), 'dp_bytes': others['EDDL'] and others['EDDL'][1],
            'paper': TABLE_4.get((network, environment, mbits)),
            'paper_bytes': TABLE_2.get(network) if (environment, mbits) == ('A', 100) else None,
            'plan': plan.shape}


def hdp_bytes(costs: RoundCosts) -> float:
    """Return the bytes of a round by HetPipe's pipelines, as if memory sufficed (Eq. 1)."""
    roomy = replace(costs, topology=replace(costs.topology, devices=tuple(
        replace(device, memory_bytes=float('inf')) for device in costs.topology.devices)))
    found = BASELINES['HetPipe'](roomy)
    assert found is not None
    borders = sum(costs.micro_batch * count * (costs.table.border_bytes[stage.first]
                                               + costs.table.gradient_bytes[stage.first])
                  for stages, count in found for stage in stages[1:])
    return 2 * len(found) * costs.weights(0, costs.layers) + borders


def after_losses(network: str, environment: str, mbits: int = 100) -> dict[str, Any]:
    """Return medians over the loss of each device that has a part."""
    costs = paper_costs(network, environment, mbits)
    before = plan_round(costs).stages
    sizes = [costs.state_bytes(k) for k in range(costs.layers)]
    rate = mbits * 1e6 / 8
    rows = []
    for lost in [name for stage in before for name in stage.devices]:
        left = replace(costs, topology=costs.topology.without({lost}))
        stages = light_stages(left, before)
        if stages is None:
            continue
        begun = time.process_time()
        heavy = plan_round(left)
        planned = time.process_time() - begun
        here = {name: {1: list(range(stage.first, stage.last))}
                for stage in before for name in stage.devices if name != lost}
        copies = backups(_plan(costs, before))
        for source, target in copies.items():
            if target != lost:
                stage = next(s for s in before if source in s.devices)
                here[target][1] = sorted({*here[target][1], *range(stage.first, stage.last)})
        sent: dict[str, float] = {}
        for move in moves(here, 1, _plan(left, stages), sizes):
            sent[move.source] = sent.get(move.source, 0.0) + sum(sizes[k] for k in move.layers)
        gathered = sum(sizes) + sum(sizes[k] for stage in heavy.stages for _ in stage.devices
                                    for k in range(stage.first, stage.last))
        rows.append((heavy.seconds / judged(left, stages).seconds,
                     max(sent.values(), default=0.0) / rate, gathered / rate, planned))
    columns = [median(column) for column in zip(*rows)]
    return {'network': network, 'environment': environment, 'losses': len(rows),
            **dict(zip(('throughput', 'light_move', 'heavy_move', 'heavy_planning'), columns)),
            'least_throughput': min((row[0] for row in rows), default=None)}


def _plan(costs: RoundCosts, stages: Sequence[HybridStage]) -> TrainingPlan:
    return TrainingPlan(tuple(TrainingStage(s.first, s.last, tuple(
        (name, costs.blocks(samples)) for name, samples in s.shares)) for s in stages),
        costs.micro_batches * (len(costs.sizes) - 1), costs.micro_batches,
        of_round=stages[0].of_round)


def main() -> None:
    """Plan, print a table, and write JSON if asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--json', type=result_file, help='write the figures here')
    arguments = parser.parse_args()
    rows = [measure(network, environment, mbits) for network in NETWORKS
            for environment in ENVIRONMENTS for mbits in (100, 1000)]
    table = Table('network', 'env.', 'Mbit/s', 'round, s', 'Device', 'DP', 'PP', "paper's",
                  'PipeDream', 'DAPPLE', 'HetPipe', 'MB', 'MB of HDP', "paper's", 'MB of DP',
                  'planned, s', 'plan')

    def text(value: float | None) -> str:
        return 'no room' if value is None else f'{value:.2f}'

    for row in rows:
        table.add_row(row['network'], row['environment'], str(row['mbits']),
                      text(row['round_seconds']), text(row['device']), text(row['EDDL']),
                      text(row['PP']), ' / '.join(map(str, row['paper'] or '-')),
                      text(row['PipeDream']), text(row['DAPPLE']), text(row['HetPipe']),
                      f'{row["bytes"] / 1e6:.0f}', f'{row["hdp_bytes"] / 1e6:.0f}',
                      ' against '.join(map(str, row['paper_bytes'] or '-')),
                      '-' if row['dp_bytes'] is None else f'{row["dp_bytes"] / 1e6:.0f}',
                      text(row['planning_seconds']), row['plan'])
    Console(width=250).print(table)
    losses = [after_losses(network, environment) for network in NETWORKS
              for environment in ENVIRONMENTS]
    table = Table('network', 'env.', 'losses', 'light rounds against heavy', 'least',
                  'light moves, s', 'heavy moves, s', 'heavy planned, s')
    for row in losses:
        table.add_row(row['network'], row['environment'], str(row['losses']), *(
            '-' if row.get(key) is None else f'{row[key]:.2f}' for key in (
                'throughput', 'least_throughput', 'light_move', 'heavy_move', 'heavy_planning')))
    Console(width=250).print(table)
    if arguments.json:
        write_atomically(arguments.json, json.dumps({'plans': rows, 'losses': losses}, indent=1))


if __name__ == '__main__':
    main()
