# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""From the files that a run left to a page that a person wants to read."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
import json
from pathlib import Path
import platform
from statistics import fmean
from typing import Any

import torch

from intradp_lab.emulation.settings import ACCESS_POINT, LinkSettings, SHARED_MEDIUM
from intradp_lab.emulation.trace import LinkTrace, read_trace
from intradp_lab.report.case_page import case_page, CaseFacts, OutageFacts
from intradp_lab.testbed.devices import COPIES
from intradp_lab.testbed.in_process import MARK
from intradp_lab.testbed.traces import mean_over
from intradp_lab.testbed.trial import load_seen, Seen, Trial
from intradp_ros.core.atomic_write import write_atomically
from intradp_ros.dds.transport_profile import find_transport
from intradp_ros.link.chunk_size import LEAST_CHUNK_BYTES
from intradp_ros.profiling.profile import Profile
from intradp_ros.report.book_plot import Curve
from intradp_ros.runtime.transport.timeline import Event
from intradp_ros.systems.sharing.book.book import ScheduleBook

PAGE = 'report.html'
#: Folder of a run whose link fails (`outage_run.py`), in that of the case.
OUTAGES = 'outages'


def write_case_page(folder: Path, title: str, home: str = '') -> Path:
    """
    Write the page of a case from what is in its folder, and return its path.

    :param folder: has ``report.json``, ``trial.json``, ``seen.json`` and ``trace.csv``, and what
        the trial names: books and profiles.  If the report has outages, ``outages`` holds
        ``seen.json`` and ``trace.csv`` of that run.
    :param title: says what ran.
    :param home: address of the page of all cases, if there is one.

    :raises OSError, ValueError: if a file is missing or not what it should be.
    """
    report = json.loads((folder / 'report.json').read_text())
    trial = Trial.load(folder / 'trial.json')
    path = folder / PAGE
    facts = case_facts(report, trial, load_seen(folder / 'seen.json'),
                       read_trace(folder / 'trace.csv'), title, home)
    if OUTAGES in report:
        facts = replace(facts, outages=_outage_facts(report[OUTAGES], folder / OUTAGES))
    write_atomically(path, case_page(facts))
    return path


def _outage_facts(figures: Mapping[str, Any], folder: Path) -> OutageFacts:
    seen, trace = load_seen(folder / 'seen.json'), read_trace(folder / 'trace.csv')
    return OutageFacts(figures, _latencies(seen), list(trace))


def case_facts(report: Mapping[str, Any], trial: Trial, seen: Sequence[Seen], trace: LinkTrace,
               title: str, home: str = '') -> CaseFacts:
    """Return what the page of a case says."""
    seconds = max(phase.seconds for phase in trial.phases)
    link = list(_shown(trace, seconds))
    bounds = [(mbps, ms) for mbps, ms in report['bounds_ms']]
    profiles = {side: trial.profile(side) for side in trial.profiles}
    return CaseFacts(
        title, _subtitle(profiles, link), report['systems'],
        _latencies(seen),
        link, {**_predicted(trial), **({'bound': bounds} if bounds else {})},
        {s.system: [Event.from_list(event) for event in s.timeline] for s in seen},
        measured(report, trial, profiles, link),
        mean_over(_shown(trace, seconds), sorted(bounds)) if bounds else None,
        report.get('exactness') or {}, profiles['robot'].power.source.removeprefix('modelled: '),
        home)


def _latencies(seen: Sequence[Seen]) -> dict[str, Curve]:
    return {s.system: [(t, 1e3 * latency) for t, latency in zip(s.at, s.latency)] for s in seen}


def _shown(trace: LinkTrace, seconds: float) -> LinkTrace:
    """Return what a run saw of a trace, at every step that it was replayed in."""
    fine = trace.resampled()
    count = max(1, sum(t < seconds for t in fine.times))
    return LinkTrace(fine.times[:count], fine.mbps[:count])


def _predicted(trial: Trial) -> dict[str, Curve]:
    """Return what the books say of each system, by bandwidth."""
    books = {path: ScheduleBook.load(Path(path)) for path in {p.book for p in trial.phases}}
    return {phase.system: [(e.mbps, 1e3 * e.predicted) for e in books[phase.book].entries
                           if e.strategy == phase.strategy] for phase in trial.phases}


def _subtitle(profiles: Mapping[str, Profile], link: Curve) -> str:
    rates = [mbps for _, mbps in link]
    alone = ', '.join(f'{side} alone {1e3 * profile.whole_seconds:.3g} ms'
                      for side, profile in profiles.items())
    return (f'{alone}; link {fmean(rates):.3g} Mbit/s in the mean '
            f'({min(rates):.3g} to {max(rates):.3g})')


def measured(report: Mapping[str, Any], trial: Trial, profiles: Mapping[str, Profile],
             link: Curve) -> list[tuple[str, str]]:
    """Return how the run was made, as terms and texts."""
    rates, emulated = [mbps for _, mbps in link], LinkSettings(**report['link'])
    devices = [(side, f'emulated from a profile of {profile.device}: an operator takes the '
                      'time of the profile and computes nothing; copies at '
                      f'{1e-9 / COPIES[side]:.0f} GB/s')
               for side, profile in profiles.items()]
    return [
        *devices,
        ('link', f'{_between(report)}, the rate of {_ways(emulated)} '
                 f'shaped in steps of 0.1 s: {fmean(rates):.3g} Mbit/s in the mean, from '
                 f'{min(rates):.3g} to {max(rates):.3g}{_packets(emulated)}'),
        ('transport', f'{_carried_by(report)}; nothing compressed'),
        ('bandwidth', f'measured at the receiver and predicted ({trial.predictor}) as on a '
                      'robot; schedules are chosen by it'),
        ('each system', f'up to {max(p.seconds for p in trial.phases):g} s, from the beginning of '
                        'the trace, one inference after the other'),
        ('not emulated', f"{_not_emulated(emulated)}what the network stack costs the robot's "
                         'processor'),
        ('versions', f'torch {torch.__version__}, Python {platform.python_version()}, '
                     f'{platform.system()} {platform.release()}')]


def _between(report: Mapping[str, Any]) -> str:
    return MARK if report['transport'] == MARK else 'real bytes between two network namespaces'


def _carried_by(report: Mapping[str, Any]) -> str:
    if report['transport'] == MARK:
        return 'none: robot and server are threads of one process and hand each other frames'
    most = find_transport(report['transport']).chunk_bytes
    return (f'DDS (Fast DDS, {report["transport"]}), in chunks of {LEAST_CHUNK_BYTES} to {most} '
            'bytes; robot and server are two processes')


def _ways(link: LinkSettings) -> str:
    return 'both ways together' if link.medium == SHARED_MEDIUM else 'each way'


def _packets(link: LinkSettings) -> str:
    """Return what befalls packets, in words that go on after a figure; '' if nothing does."""
    found = [f'{link.delay_ms:g} ms of delay each way'] if link.delay_ms else []
    if link.jitter_ms:
        found.append(f'up to {link.jitter_ms:g} ms of jitter')
    if link.loss:
        found.append(f'{100 * link.loss:g} % of the packets lost')
    if link.bottleneck == ACCESS_POINT:
        found.append('packets queue between the sides, and are dropped when the queue is full')
    return ''.join(f'; {text}' for text in found)


def _not_emulated(link: LinkSettings) -> str:
    """Return what this link does not have of a real radio, in words that others follow."""
    has = {'delay': link.delay_ms, 'jitter': link.jitter_ms, 'loss': link.loss}
    missing = [name for name, amount in has.items() if not amount]
    return f'{", ".join(missing)} of a real radio; ' if missing else ''
