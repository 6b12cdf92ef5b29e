# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Plans for a fleet next to those of other planners, in the paper's four settings (modelled).

Devices and models as `intradp_lab/fleet/paper_fleets.py` imagines them.  Then what
a plan for links of its own loses on shared air, by its rate (the paper's Fig. 2),
and seconds of planning by nodes and devices.
"""
from __future__ import annotations

import argparse
import json
import time
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from intradp_lab.fleet.paper_fleets import (
    contention,
    measure,
    MODELS,
    Row,
    SETTINGS,
)
from intradp_ros.cli.output_paths import result_file
from intradp_ros.cluster.device import Device
from intradp_ros.cluster.topology import behind_access_point
from intradp_ros.core.atomic_write import write_atomically
from intradp_ros.planning.fleet_costs import FleetCosts
from intradp_ros.planning.planning_model import Flow, Node, PlanningModel, SOURCE
from intradp_ros.systems.fleet.partitioner import partition
from intradp_ros.systems.fleet.planner import plan_fleet

#: Mbit/s of the shared air; the paper's home has 650.
RATES = (1300, 650, 325, 160, 80, 40, 20)


def growth() -> list[dict[str, Any]]:
    """Return the seconds of phase 1, and of planning in all, by nodes and devices."""
    rows = []
    for nodes in (15, 30, 60):
        for devices in (2, 3, 5):
            rng = np.random.default_rng(nodes)
            parts = tuple(Node(f'n{k}', float(rng.uniform(1, 5)) * 1e-2, 1e6)
                          for k in range(nodes))
            flows = [Flow(SOURCE, (0,), 1e5)]
            flows += [Flow(k, (end,), float(rng.uniform(1, 9)) * 1e5)
                      for k, end in enumerate([*range(1, nodes), SOURCE])]
            machines = [Device(f'd{k}', speed=1.0 + k) for k in range(devices)]
            costs = FleetCosts(PlanningModel('chain', parts, tuple(flows)),
                               behind_access_point(machines, 1e7), 'd0')
            begun = time.process_time()
            partition(costs)
            middle = time.process_time()
            plan_fleet(costs)
            rows.append({'nodes': nodes, 'devices': devices, 'phase_1': middle - begun,
                         'all': time.process_time() - middle})
    return rows


def _add(table: Table, row: Row) -> None:
    if not row.latencies:
        table.add_row(row.setting, row.model, 'fits nowhere')
        return

    def text(value: float | None, form: str = '.2f') -> str:
        return '-' if value is None else format(value, form)

    table.add_row(row.setting, row.model, f'{row.planning_seconds:.2f}',
                  f'{row.latency:.3f}', f'{row.gain:.2f}', row.best_other, text(row.paper_gain),
                  text(row.contention), text(row.contention_lost), text(row.energy_saved, '.0%'))


def main() -> None:
    """Plan, print tables, and write JSON if asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--json', type=result_file, help='write the figures here')
    arguments = parser.parse_args()
    measure('traffic monitor', 'BERT 0.1B')  # compiles
    table = Table('setting', 'model', 'planned, s', 'round, s', 'gain', 'over',
                  "paper's", 'contention', 'it loses', 'energy saved')
    rows = []
    for setting in SETTINGS:
        for name in MODELS:
            row, _ = measure(setting, name)
            rows.append(row)
            _add(table, row)
    lost = [found for name in MODELS for rate in RATES
            if (found := contention(name, 1e6 * rate))]
    air = Table('model', 'Mbit/s', 'dedicated, s', 'shared, s', 'ours, s', 'it loses',
                'through ours')
    for r in lost:
        air.add_row(r.model, f'{r.rate / 1e6:g}', f'{r.dedicated:.3f}',
                    f'{r.shared:.3f}', f'{r.ours:.3f}', f'{r.shared / r.dedicated:.2f}',
                    f'{r.shared / r.ours:.2f}')
    grown = growth()
    times = Table('nodes', 'devices', 'phase 1, s', 'all, s')
    for g in grown:
        times.add_row(str(g['nodes']), str(g['devices']), f'{g["phase_1"]:.2f}',
                      f'{g["all"]:.2f}')
    console = Console(width=140)
    console.print(table)
    console.print(air)
    console.print(times)
    if arguments.json:
        write_atomically(arguments.json, json.dumps(
            {'settings': [vars(r) for r in rows], 'contention': [vars(r) for r in lost],
             'growth': grown}, indent=1))


if __name__ == '__main__':
    main()
