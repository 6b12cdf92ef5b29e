# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Fit the costs of operators to the recorded times of the workloads that have some.

Writes ``intradp_lab/data/operator_costs.json``.  For each kind of operator
and each device: non-negative least squares of seconds over calls, operations
and bytes, each operator weighted by one over the root of its seconds, between
absolute errors (that see large operators only) and relative ones (noise).
With it goes, for each network, what the costs make of it, and what those
costs make of it that were fitted to the other networks.
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from scipy.optimize import nnls

from intradp_lab.testbed.evaluation_results import FLOAT32
from intradp_lab.testbed.operator_costs import KINDS, OperatorCost, OTHER, Work, work_of
from intradp_lab.testbed.package_data import package_data
from intradp_lab.testbed.recorded import DEVICES, profile_from_recording, read_recording
from intradp_lab.testbed.workloads import Workload, WORKLOADS
from intradp_ros.report.result_tables import write_json
from intradp_ros.runtime.models.model import share_module

OUTPUT = Path(__file__).parents[1] / 'intradp_lab' / 'data' / 'operator_costs.json'
LEAST = 20e-6  # seconds; what is shorter is noise of the recordings
Rows = Sequence[tuple[Work, Mapping[str, float]]]


def rows_of(workload: Workload) -> Rows:
    """Return the work of a network's operators and their recorded seconds by device."""
    model = share_module(workload.module(FLOAT32), (workload.example(FLOAT32),))
    recording = read_recording(package_data('devices', f'{workload.recording}.json'))
    timings = {device: profile_from_recording(
        model.split, model.digest, recording, device).timings for device in DEVICES}
    return [(work_of(model.split, op), {d: timings[d][i].seconds[-1] for d in DEVICES})
            for i, op in enumerate(model.split.operators)]


def fit(rows: Rows, device: str) -> dict[str, OperatorCost]:
    """Return the costs by kind that fit recorded seconds best."""
    return {kind: _fit_kind([(work, s[device]) for work, s in rows
                             if work.kind == kind and s[device] > 0], kind != OTHER)
            for kind in KINDS if any(work.kind == kind for work, _ in rows)}


def _fit_kind(rows: Sequence[tuple[Work, float]], computes: bool) -> OperatorCost:
    seconds = np.array([s for _, s in rows])
    weight = 1 / np.sqrt(np.maximum(seconds, LEAST))
    columns = np.array([(1e-3, work.flops * 1e-12 * computes, work.nbytes * 1e-9)
                        for work, _ in rows])
    found, _ = nnls(columns * weight[:, None], seconds * weight)
    call, flop, byte = (float(f'{x:.4g}') for x in found * (1e-3, 1e-12, 1e-9))
    return OperatorCost(call, flop, byte)


def total(rows: Rows, costs: Mapping[str, OperatorCost]) -> float | None:
    """Return the seconds of a network, None if a kind of operator has no cost."""
    if any(work.kind not in costs for work, _ in rows):
        return None
    return sum(costs[work.kind].seconds(work) for work, _ in rows)


def main() -> None:
    """Fit and write."""
    # The scene completion network is recorded once; its second size would count it twice.
    nets = {key: rows_of(w) for key, w in WORKLOADS.items()
            if w.recording and key != 'scene-completion'}
    every = [row for rows in nets.values() for row in rows]
    names = {'robot': 'Jetson Xavier NX 8 GB', 'server': 'GPU server'}
    devices, networks = {}, {}
    for device in DEVICES:
        costs = fit(every, device)
        devices[device] = {'device': names[device], 'kinds': {
            kind: [c.call, c.flop, c.byte] for kind, c in costs.items()}}
        networks[device] = {key: _errors(rows, costs, nets, key, device)
                            for key, rows in nets.items()}
    write_json(OUTPUT, {'note': 'seconds of a call, an operation, a byte, by kind of operator',
                        'devices': devices, 'whole_ms': networks})


def _errors(rows: Rows, costs: Mapping[str, OperatorCost], nets: Mapping[str, Rows], key: str,
            device: str) -> dict[str, float | None]:
    others = fit([row for name, found in nets.items() if name != key for row in found], device)
    values = {'recorded': sum(s[device] for _, s in rows), 'fitted': total(rows, costs),
              'fitted_to_others': total(rows, others)}
    return {name: None if s is None else round(1e3 * s, 2) for name, s in values.items()}


if __name__ == '__main__':
    main()
