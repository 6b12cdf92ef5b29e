# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
`intradp demo-serving`: twelve robots ask three sites, of which one is killed.

Real weights (MobileNetV2), real processes and sockets.  The same requests are played with sites
chosen in several ways, and in the simulator; each answer is compared with the model's alone.
"""
from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
import math
from pathlib import Path
import time
from typing import Any

import numpy as np

from intradp_lab.cli.claimed_folder import claim_folder
from intradp_lab.emulation import device_limits, network
from intradp_lab.emulation.processes import ChildError
from intradp_lab.report.page import number_text
from intradp_lab.report.serving_plot import by_second, draw_serving, Played
from intradp_lab.serving.choosers import OURS, SYSTEMS
from intradp_lab.serving.robots_process import FATES, Requests
from intradp_lab.serving.scene import (
    capacities,
    make_models,
    make_requests,
    Scene,
    scene,
    SERVICES,
    SITES,
)
from intradp_lab.serving.simulated import simulated
from intradp_ros.cli.arguments import number
from intradp_ros.cli.command_errors import CommandError
from intradp_ros.cli.output import Output, output, table
from intradp_ros.cli.output_paths import result_folder
from intradp_ros.profiling.machine import prepare_process
from intradp_ros.report.result_tables import write_json
from intradp_ros.report.view.standing_page import write_page
from intradp_ros.runtime.requests.infer_requests import InferFate
from intradp_ros.systems.serving.site_functions import warmed

RESULTS = ('models', 'page.html', 'processes', 'report.json', 'runs', 'serving.png')
#: Share of all sites' capacity that is asked for, and while one is killed.
LOAD, KILL_LOAD = 0.8, 0.6
#: The site that is killed, and after which part of the run.
VICTIM, WHEN = 'hall', 0.4
#: Seconds by which goodput after a kill is judged, so often in a row (one long window would hide a
#: short gap), and the share of what it was that counts as back.
WINDOW, ROWS, BACK = 0.3, 3, 0.9


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the demo's options."""
    parser.description = (
        'Let twelve robots ask three sites for what MobileNetV2 sees in pictures of two sizes, '
        'most of them at one site; compare ways to choose a site on the same requests, each '
        "answer with the model's alone; then kill a site. Writes report.json, serving.png and "
        'page.html. As root sites have network namespaces and a part of the processor each.')
    parser.add_argument('--air', type=number(20.0, 1000.0), default=300.0, metavar='MBPS',
                        help='rate that all robots share (default %(default)s)')
    parser.add_argument('--cores', type=number(0.1, 16.0), default=0.5, metavar='N',
                        help='processor cores of each site (default %(default)s)')
    parser.add_argument('--seconds', type=number(5.0, 600.0), default=25.0, metavar='S',
                        help='that each way is played (default %(default)s)')
    parser.add_argument('--out', type=result_folder, default='out/demo-serving',
                        help='folder to write to')


def run(args: argparse.Namespace) -> int:
    """Run the demo; return the exit code."""
    with output(False) as out:
        try:
            claim_folder(args.out, 'demo-serving', RESULTS)
            prepare_process(1)
            with out.steps() as step:
                report = _played(args, step)
        except (ValueError, ModuleNotFoundError, network.NetworkError, device_limits.LimitError,
                ) as error:
            raise CommandError(str(error)) from error
        except ChildError as error:
            out.warn(f'the demo failed: {error}')
            return 1
        _show(report, out)
        out.show(f'Wrote {args.out}/report.json, serving.png and page.html')
    return 0 if well(report) else 1


def well(report: Mapping[str, Any]) -> bool:
    """Return whether each request had its one fate, and each answer is the model's."""
    return bool(report['lost'] == 0 and report['wrong'] == 0 and report['killed']['lost'] == 0
                and report['doubled'] == 0 and report['killed']['recovered_ms'] is not None)


def _played(args: argparse.Namespace, step: Callable[[str], None]) -> dict[str, Any]:
    """Run all; write the results and return the report."""
    runs, processes = args.out / 'runs', args.out / 'processes'
    for folder in (runs, processes):
        folder.mkdir(parents=True, exist_ok=True)
    models = make_models(args.out / 'models', step)
    step('compiling what decides at a site')
    warmed()  # sites find it on disk, and have all of their part of the processor
    step('starting three sites and twelve robots')
    with scene(processes, models, args.air, args.cores) as found:
        step('robots ask until the sites know what batches take')
        found.play(make_requests(sum(capacities(found.states()).values()), 6.0, 0),
                   runs / 'warm-up')
        can = capacities(found.states())
        rate = LOAD * sum(can.values())
        requests = make_requests(rate, args.seconds, 1)
        systems, drawn = {}, []
        for name in SYSTEMS:
            step(f'{len(requests.time)} requests, sites {name}')
            systems[name], ends = _system(found, name, requests, runs / name.replace(' ', '_'))
            drawn.append(Played(name, requests.time, ends['fate'] == 0))
            if name == OURS:
                states = found.states()
        step(f'{VICTIM} is killed while robots ask')
        killed, ends, kill_requests, when = _killed(found, args.seconds, runs / 'killed')
        how = found.how
    step('simulating')
    model = simulated(states, requests, found.homes, args.air if 'namespaces' in how else math.inf)
    report = {
        'requests': sum(row['requests'] for row in systems.values()) + killed['requests'],
        'lost': sum(row['lost'] for row in (*systems.values(), killed)),
        'wrong': sum(row['wrong'] for row in (*systems.values(), killed)),
        'doubled': sum(row['doubled'] for row in (*systems.values(), killed)),
        'asked_per_s': len(requests.time) / args.seconds, 'capacity_per_s': rate / LOAD,
        'sites': {site: {'asked_per_s': rate * SITES[site], 'capacity_per_s': can[site]}
                  for site in can}, 'by_second': _by_second(drawn),
        'systems': systems, 'simulated': {key: model[key] for key in ('goodput', 'p95_ms')},
        'oracle_goodput': model['bound'], 'killed': killed, 'how': how}
    report['said'] = said(report)
    write_json(args.out / 'report.json', report)
    draw_serving(drawn, Played(OURS, kill_requests.time, ends['fate'] == 0), when, VICTIM,
                 report['oracle_goodput'], args.out / 'serving.png')
    write_page(args.out)
    return report


def _system(found: Scene, name: str, requests: Requests, folder: Path,
            ) -> tuple[dict[str, Any], dict[str, Any]]:
    """Play requests with sites chosen in a way; return figures, and what became of each."""
    found.policy(name)
    before = _transfers(found.states())
    ends = found.play(requests, folder)
    after = _transfers(found.states())
    row = figures(requests, ends)
    row['transfers'], row['wasted'] = (b - a for a, b in zip(before, after))
    return row, ends


def figures(requests: Requests, ends: Mapping[str, Any]) -> dict[str, Any]:
    """Return what became of requests: goodput in answers in time per second."""
    counts = {name: int((ends['fate'] == k).sum()) for k, name in enumerate(FATES)}
    in_time = ends['fate'] == 0
    took = 1e3 * (ends['heard'] - ends['begun'])[in_time]
    span = float(requests.time[-1] - requests.time[0])
    return {'requests': len(requests.time), 'goodput': counts[InferFate.IN_TIME.value] / span,
            **counts, 'p95_ms': float(np.quantile(took, 0.95)) if len(took) else None,
            'wrong': int(ends['wrong'].sum()), 'doubled': int(ends['doubled'][0])}


def _transfers(states: Mapping[str, Mapping[str, Any]]) -> tuple[int, int]:
    rows = [row for state in states.values() for row in state['services'].values()]
    return sum(row['transfers'] for row in rows), sum(row['wasted_transfers'] for row in rows)


def _by_second(runs: Sequence[Played]) -> dict[str, list[int]]:
    """Return by second how many requests were sent, and of them in time in each run."""
    sent = runs[0].sent
    return {'asked': by_second(sent, np.ones(len(sent), bool)).tolist(), **{
        run.name: by_second(run.sent, run.in_time).tolist() for run in runs}}


def _killed(found: Scene, seconds: float, folder: Path,
            ) -> tuple[dict[str, Any], dict[str, Any], Requests, float]:
    """Kill a site while robots ask; return figures, ends, requests, and when."""
    found.policy(OURS)
    requests = make_requests(KILL_LOAD * sum(capacities(found.states()).values()), seconds, 2)
    at = WHEN * seconds
    killed_at = [0.0]

    def kill(begun: float) -> None:
        time.sleep(max(0.0, begun + at - time.monotonic()))
        found.sites[VICTIM].kill()
        killed_at[0] = time.monotonic() - begun
    ends = found.play(requests, folder, kill)
    row = figures(requests, ends)
    row['site'], row['at_s'] = VICTIM, killed_at[0]
    row['by_second'] = _by_second([Played(OURS, requests.time, ends['fate'] == 0)])
    row['recovered_ms'] = recovered_ms(requests.time, ends['fate'] == 0, killed_at[0])
    return row, ends, requests, killed_at[0]


def recovered_ms(sent: Any, in_time: Any, killed: float) -> float | None:
    """
    Return when goodput was back after a kill; None if it never was.

    That is from when on requests are answered in time as before the kill, or nearly so: the sites
    that are left have room for all.
    """
    before = float(in_time[sent < killed].mean()) if (sent < killed).any() else 1.0
    for start in np.arange(killed, float(sent[-1]) - ROWS * WINDOW, 0.05):
        edges = start + WINDOW * np.arange(ROWS + 1)
        asked, good = (np.histogram(times, edges)[0] for times in (sent, sent[in_time]))
        if (asked > 0).all() and (good >= BACK * before * asked).all():
            return 1e3 * float(start - killed)
    return None


def said(report: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the page says of a report: title, headline, remarks, how it was measured."""
    killed = report['killed']
    return {
        'title': 'Twelve robots, three sites', 'well': well(report),
        'headline': "Each request had one fate, and each answer is the model's." if well(report)
        else 'Not all is as it must be.',
        'remarks': [
            f'{report["requests"]} requests: {report["lost"]} lost, {report["wrong"]} wrong.',
            f'{killed["site"]} was killed while {killed["requests"]} were asked: '
            f'{killed["lost"]} lost, ' + (
                'goodput was never back.' if killed['recovered_ms'] is None else
                f'goodput was back after {killed["recovered_ms"] / 1e3:.1f} s.')],
        'measured': [
            ('requests', f'{report["asked_per_s"]:.0f} a second at random times, '
                         f'{100 * LOAD:.0f} % of what the sites say they can compute; '
                         + ', '.join(f'{100 * share:.0f} % at {site}'
                                     for site, share in SITES.items())),
            ('services', '; '.join(f'{name}: MobileNetV2 on {side}x{side} pixels within '
                                   f'{1e3 * deadline:.0f} ms'
                                   for name, (side, deadline) in SERVICES.items())),
            ('bound', 'what nobody can exceed who knows all requests beforehand, from the times '
                      'that the sites measured'),
            ('machine', report['how']),
            ('again', '`make demo-serving` makes these figures again; one run')]}


def _show(report: Mapping[str, Any], out: Output) -> None:
    shown = table(f'{report["asked_per_s"]:.0f} requests a second, bound '
                  f'{report["oracle_goodput"]:.1f}', 'site chosen', 'in time per s', 'in time',
                  'late', 'refused', 'p95 ms', 'sent on', 'in vain', left=1)
    for name, row in report['systems'].items():
        shown.add_row(name, number_text(row['goodput']), *(str(row[key]) for key in (
            'in_time', 'late', 'refused')), number_text(row['p95_ms']), str(row['transfers']),
            str(row['wasted']))
    shown.add_row('simulated', number_text(report['simulated']['goodput']), '', '', '',
                  number_text(report['simulated']['p95_ms']), '', '')
    killed = report['killed']
    out.show(shown, report['how'],
             f'{report["requests"]} requests, {report["lost"]} lost, {report["wrong"]} wrong; '
             f'{killed["site"]} killed: {killed["lost"]} lost, goodput back after '
             f'{number_text(killed["recovered_ms"])} ms')
