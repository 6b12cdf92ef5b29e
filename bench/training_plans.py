# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Plans of training rounds in Asteroid's environments (modelled) beside other planners' plans.

Figures of other planners are how many times as long their rounds take.  Device is the fastest
device alone, as if its memory sufficed.
"""
from __future__ import annotations

import argparse
import json
from pathlib import Path
import time
from typing import Any

from rich.console import Console
from rich.table import Table

from intradp_ros.lab.paper_training import ENVIRONMENTS, NETWORKS, paper_costs, TABLE_4
from intradp_ros.schedule.event_simulator import simulate
from intradp_ros.systems.training.baselines import BASELINES
from intradp_ros.systems.training.hybrid_plan import HybridStage
from intradp_ros.systems.training.hybrid_planner import estimate_plan, plan_round
from intradp_ros.systems.training.round_costs import RoundCosts
from intradp_ros.systems.training.round_tasks import Pipeline, round_tasks


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
            'estimated_seconds': estimate_plan(costs, plan).seconds, 'bytes': nbytes,
            'device': alone / seconds,
            **{name: one and one[0] / seconds for name, one in others.items()},
            'hetpipe_bytes': others['HetPipe'] and others['HetPipe'][1],
            'paper': TABLE_4.get((network, environment, mbits)), 'plan': plan.shape}


def main() -> None:
    """Plan, print a table, and write JSON if asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--json', type=Path, help='write the figures here')
    arguments = parser.parse_args()
    rows = [measure(network, environment, mbits) for network in NETWORKS
            for environment in ENVIRONMENTS for mbits in (100, 1000)]
    table = Table('network', 'env.', 'Mbit/s', 'round, s', 'Device', 'DP', 'PP', "paper's",
                  'PipeDream', 'DAPPLE', 'HetPipe', 'MB', 'planned, s', 'plan')

    def text(value: float | None) -> str:
        return 'no room' if value is None else f'{value:.2f}'

    for row in rows:
        table.add_row(row['network'], row['environment'], str(row['mbits']),
                      text(row['round_seconds']), text(row['device']), text(row['EDDL']),
                      text(row['PP']), ' / '.join(map(str, row['paper'] or '-')),
                      text(row['PipeDream']), text(row['DAPPLE']), text(row['HetPipe']),
                      f'{row["bytes"] / 1e6:.0f}', text(row['planning_seconds']), row['plan'])
    Console(width=250).print(table)
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=1))


if __name__ == '__main__':
    main()
