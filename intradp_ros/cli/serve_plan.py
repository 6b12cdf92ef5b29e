# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""``intradp serve plan``: which site runs what, and what would be answered in time."""
from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
import math
from typing import Any

import numpy as np

from intradp_ros.cli.arguments import existing_file, whole
from intradp_ros.cli.command_errors import CommandError
from intradp_ros.cli.output import add_json, Output, output, size, table
from intradp_ros.cli.output_paths import result_file
from intradp_ros.cluster.device import Device
from intradp_ros.cluster.topology import Topology
from intradp_ros.profiling.machine import prepare_process
from intradp_ros.runtime.models.catalogue import ModelSpecError
from intradp_ros.split.calls.accelerator import DeviceError, open_device
from intradp_ros.systems.serving.loaded_service import load_service
from intradp_ros.systems.serving.service import read_services, Service, ServicesError
from intradp_ros.systems.serving.service_table import ServiceTable
from intradp_ros.systems.serving.side_by_side import measured_together
from intradp_ros.systems.serving.site_files import read_sites
from intradp_ros.systems.serving.site_planner import (
    by_rows,
    Forecast,
    forecast,
    OfferedSite,
    shares,
    Sites,
    with_batches,
)

DESCRIPTION = """\
Place services on the executors of all sites, and predict what would be answered in time: sizes of
batches follow from measured times and deadlines, the best placements are replayed with the
functions that decide at the live sites. Nothing is started.

Times are measured on this machine, and scaled by the speed of each device in the fleet file."""

EPILOG = """\
examples:
  intradp serve plan --fleet fleet.yaml --services services.yaml --robots 10
  intradp serve plan --fleet fleet.yaml --services services.yaml \\
      --asked detector=200 --asked detector@hall=20 --asked pi0=30 -o placement.json
  intradp serve up --fleet fleet.yaml --services services.yaml --plan placement.json"""
CATEGORIES = {'latency': 'each answer', 'frequency': 'frames'}
#: Seconds of one way between sites that no network of the fleet file joins.
HOP = 0.002


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command line of the verb."""
    parser.description, parser.epilog = DESCRIPTION, EPILOG
    parser.add_argument('--fleet', type=existing_file, required=True, metavar='FILE',
                        help='fleet.yaml')
    parser.add_argument('--services', type=existing_file, required=True, metavar='FILE',
                        help='services.yaml')
    parser.add_argument('--robots', type=whole(0, 10_000), default=0, metavar='N',
                        help='robots at each site, each of which sends the declared rate of every '
                             'service that has one')
    parser.add_argument('--asked', action='append', default=[], metavar='NAME[@SITE]=N',
                        help='requests per second for a service, at each site or at one')
    parser.add_argument('--executors', type=_executors, default=(1,), metavar='N',
                        help='processes that compute at each site; they are measured at once; '
                             'auto: 1 or 2, what answers more (default 1)')
    parser.add_argument('--threads', type=whole(1, 64), default=1, metavar='N',
                        help='processor threads of each (default %(default)s)')
    parser.add_argument('--compute', default='cpu', metavar='DEVICE',
                        help='cpu, or a device of PyTorch such as cuda (default %(default)s)')
    parser.add_argument('-o', '--output', type=result_file, metavar='FILE',
                        help='write the placement, for serve up --plan')
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Measure, plan, and show."""
    with output(args.json) as out:
        try:
            topology, devices = read_sites(args.fleet)
            services = read_services(args.services)
            asked = asked_rates(services, list(devices), args.robots, args.asked)
            with out.steps() as step:
                prepare_process(args.threads)
                tables = {count: measured(services, args.compute, step, count, args.threads)
                          for count in args.executors}
                step('placing and replaying')
                best = max((forecast(planned_sites(services, topology, devices, asked, count,
                                                   tables[count])) for count in args.executors),
                           key=lambda one: one.report.share)  # of equals fewer executors
        except (ServicesError, ModelSpecError, DeviceError, ValueError) as error:
            raise CommandError(str(error)) from error
        if args.output:
            best.plan.write(args.output)
        data = described(best)
        _show(data, best, out)
        out.result(data)
    return 0


def _executors(text: str) -> tuple[int, ...]:
    return (1, 2) if text == 'auto' else (whole(1, 64)(text),)


def asked_rates(services: Sequence[Service], sites: Sequence[str], robots: int,
                asked: Sequence[str]) -> np.ndarray[Any, np.dtype[np.float64]]:
    """
    Return the requests per second by site and service; what names a site counts more.

    :raises CommandError: if an entry cannot be read, or nothing is asked for.
    """
    names = [service.name for service in services]
    rates = np.array([[robots * service.rate if math.isfinite(service.rate) else 0.0
                       for service in services]] * len(sites))
    for text in sorted(asked, key=lambda text: '@' in text):
        where, _, number = text.partition('=')
        name, _, site = where.partition('@')
        try:
            rate = float(number)
        except ValueError:
            rate = -1.0
        if not 0 <= rate <= 1e6 or name not in names or site and site not in sites:
            raise CommandError(f'--asked {text}: write NAME=N or NAME@SITE=N with requests per '
                               f'second; services are {", ".join(names)}; sites '
                               f'{", ".join(sites)}')
        rates[[sites.index(site)] if site else slice(None), names.index(name)] = rate
    if not rates.sum() > 0:
        raise CommandError('nothing is asked for: give --robots N (for services with a "rate" in '
                           f'the file) or --asked {names[0]}=N')
    return rates


def measured(services: Sequence[Service], compute: str, step: Callable[[str], None],
             executors: int, threads: int) -> list[tuple[Service, ServiceTable]]:
    """Return services with the batches that they run in, and their times here, all at once."""
    found = []
    for service in services:
        if service.seconds:
            found.append((service, by_rows(service.batches, [
                service.seconds[b - 1] for b in service.batches], [0.0] * len(service.batches))))
            continue
        step(f'measuring {service.name}' + (f' on {executors} executors at once'
                                            if executors > 1 else ''))
        if executors > 1:
            there = measured_together(service, executors, threads=threads, device=compute)
            found.append((with_batches(service, there.sizes), by_rows(
                there.sizes, there.seconds, there.spread, there.nbytes)))
            continue
        device = open_device(compute)
        try:
            loaded = load_service(service.model, service.batches, device, service.inputs)
            loaded.measure()
        except Exception as error:  # whatever the model's own code raises
            raise ModelSpecError(f'service {service.name}: {error}') from error
        nbytes = sum(t.nbytes for t in loaded.ladder.one.parameters.values())
        sizes = loaded.sizes
        found.append((with_batches(service, sizes), by_rows(
            sizes, [loaded.seconds[b] for b in sizes], [loaded.spread[b] for b in sizes],
            nbytes)))
        if loaded.ladder.why:
            step(f'{service.name}: no larger batches: {loaded.ladder.why}')
    return found


def planned_sites(services: Sequence[Service], topology: Topology, devices: Mapping[str, Device],
                  asked: np.ndarray[Any, np.dtype[np.float64]], executors: int,
                  tables: Sequence[tuple[Service, ServiceTable]]) -> Sites:
    """Return the sites of a fleet with tables of their speed."""
    names = [device.name for device in devices.values()]
    hop, rates = np.zeros((len(names), len(names))), [math.inf]
    for i, a in enumerate(names):
        for j, b in enumerate(names):
            if (a, b) in topology.paths:
                hop[i, j] = topology.delay(a, b)
                rates.append(topology.rate(a, b))
            elif i != j:
                hop[i, j] = HOP
    return Sites(tuple(one for one, _ in tables), tuple(OfferedSite(
        site, executors, device.memory_bytes, tuple(
            measured if service.seconds else measured.at_speed(device.speed)
            for service, measured in tables)) for site, device in devices.items()),
        asked, hop, tuple(sum(spec.nbytes for spec in service.inputs) / min(rates)
                          for service, _ in tables))


def described(best: Forecast) -> dict[str, Any]:
    """Return what is planned and predicted."""
    found, report = best.sites, best.report
    together, asked = shares(found), float(found.asked.sum())
    names = [service.name for service in found.services]
    services = {}
    for s, service in enumerate(found.services):
        mine = report.arrivals.service == s
        seconds = report.finish[mine & (report.fate == 0)] - report.arrivals.time[
            mine & (report.fate == 0)]
        allocations = {}
        for i, site in enumerate(found.sites):
            one = found.allocation(i, s)
            allocations[site.name] = None if one is None else {
                'BS': one.batch, 'MT': sum(
                    service.name in names for names in best.plan.sites[site.name]),
                'MF': one.frames, 'streams': one.streams, 'DP': one.groups, 'per_s': one.rate,
                'promised_ms': 1e3 * site.tables[s].quantile(one.batch)}
        services[service.name] = {
            'category': found.kind(s), 'deadline_ms': 1e3 * service.deadline,
            'allocation': allocations,
            'shares_with': [names[t] for t in range(len(names)) if t != s and together[s, t]],
            'asked_per_s': float(found.asked[:, s].sum()),
            **{fate: float(found.asked[:, s].sum()) * count / max(1, int(mine.sum()))
               for fate, count in report.fates(s).items()},
            'p95_ms': 1e3 * float(np.quantile(seconds, 0.95)) if len(seconds) else None}
    plan = best.plan
    return {
        'services': services, 'placement': plan.to_json(),
        'asked_per_s': asked, 'goodput': asked * report.share,
        'in_time_share': report.share, 'bound_of_placement': asked * best.of_placement,
        'bound': asked * best.of_all, 'transfers_per_request': report.transfers / len(report.fate),
        'binds': best.binds}


def _show(data: Mapping[str, Any], best: Forecast, out: Output) -> None:
    sizes = table('sizes, by site where they differ', 'service', 'matters', 'deadline ms', 'BS',
                  'MT', 'MF', 'streams', 'DP', 'rows/s of an executor', 'may share one with')
    for name, row in data['services'].items():
        columns = [_range(row['allocation'], key) for key in (
            'BS', 'MT', 'MF', 'streams', 'DP', 'per_s')]
        sizes.add_row(name, CATEGORIES[row['category']], f'{row["deadline_ms"]:.0f}', *columns,
                      ', '.join(row['shares_with']))
    places = table('placement', 'site', 'executor', 'services', 'memory', left=3)
    for i, (site, executors) in enumerate(best.plan.sites.items()):
        offered = best.sites.sites[i]
        used = sum(offered.tables[s].nbytes for names in executors
                   for s, service in enumerate(best.sites.services) if service.name in names)
        for number, names in enumerate(executors):
            places.add_row(site if not number else '', str(number), ', '.join(names) or 'nothing',
                           '' if number else f'{size(used)} of {size(offered.room)}')
    answers = table('predicted, a second', 'service', 'asked', 'in time', 'late', 'refused',
                    'replaced', 'p95 ms')
    for name, row in data['services'].items():
        answers.add_row(name, f'{row["asked_per_s"]:.1f}', *(
            f'{row[fate]:.1f}' for fate in ('in_time', 'late', 'refused', 'cancelled')),
            '' if row['p95_ms'] is None else f'{row["p95_ms"]:.0f}')
    out.show(sizes, places, answers,
             f'{data["goodput"]:.1f} of {data["asked_per_s"]:.1f} requests a second in time '
             f'({100 * data["in_time_share"]:.1f} %). No choice of sites and batches exceeds '
             f'{data["bound_of_placement"]:.1f} with this placement, {data["bound"]:.1f} with '
             'any.',
             f'What binds: {data["binds"]}.' if data['binds'] else 'Nothing binds.')


def _range(allocation: Mapping[str, Any], key: str) -> str:
    found = sorted({round(one[key], 1) for one in allocation.values() if one})
    if not found:
        return 'none fits'
    return f'{found[0]:g}' if len(found) == 1 else f'{found[0]:g}-{found[-1]:g}'
