# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The page of all cases: who wins where, and the paper's tables next to ours."""
from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
import json
from pathlib import Path
from statistics import fmean, median
from typing import Any

from intradp_lab.report.case_page import exactness_sentence
from intradp_lab.report.overview_plot import overview_figure
from intradp_lab.report.page import number_text, render
from intradp_lab.report.statements import (
    best_other,
    emulation_remarks,
    EVOLVED,
    gain,
    OURS,
    percent,
    SAME,
)
from intradp_lab.report.svg import inline_svg
from intradp_lab.testbed.evaluation_results import Case, FLOAT32, Results, SENSOR
from intradp_lab.testbed.pages import PAGE
from intradp_ros.core.atomic_write import write_atomically

INDEX = 'index.html'
_HEADINGS = {FLOAT32: 'Inputs as in the paper: float32', SENSOR: 'Inputs as sensors give them'}
_TEXTS = {
    FLOAT32: 'Every system sends float32 inputs, as those of the paper do.',
    SENSOR: 'Every system sends the bytes or bits of the sensor, and the network scales them: a '
            'quarter of the bytes or less, so that no gain is hidden in the encoding.'}
_CAPTIONS = {'4': 'latency of dense outputs', '5': 'energy of dense outputs',
             '6': 'latency of classifiers', '7': 'energy of classifiers'}
#: Heading, value and standard deviation of a table's columns; the factor makes shares percent.
_TIME = (('rows on their way, ms', 'transmission_ms', 'transmission_std_ms', 1.0),
         ('inference, ms', 'mean_ms', 'std_ms', 1.0),
         ('share on their way, %', 'transmission_share', '', 100.0))
_ENERGY = (('power, W', 'power_w', 'power_std_w', 1.0),
           ('energy of an inference, J', 'energy_j', 'energy_std_j', 1.0))
_COLUMNS = {'4': _TIME, '5': _ENERGY, '6': _TIME, '7': _ENERGY}


def write_index(folder: Path, results: Results) -> Path:
    """Write the page of all cases next to ``paper.json`` and return its path."""
    path = folder / INDEX
    write_atomically(path, index_page(results, [
        json.loads((folder / case.folder / 'report.json').read_text()) for case in results.cases]))
    return path


def index_page(results: Results, reports: Sequence[Mapping[str, Any]]) -> str:
    """
    Return the page of all cases as HTML.

    `reports` are those of the cases' folders.  ValueError if no case ran.
    """
    if not results.cases:
        raise ValueError('no case ran, so there is nothing to report')
    traces, kinds = (list(dict.fromkeys(getattr(case, name) for case in results.cases))
                     for name in ('trace', 'inputs'))
    targets = _targets(results.outcomes, results.cases)
    return render(
        'paper.html', subtitle=_subtitle(results.cases), headline=headline(results.cases),
        remarks=[*(f'{t["heading"]}: {t["met"]} of {len(t["rows"])} cases.' for t in targets),
                 *_frugality(results.energy),
                 *_searched(results.cases), *_prediction(results.cases), *_exactness(reports),
                 *emulation_remarks(case.systems for case in results.cases)],
        parts=[_part([c for c in results.cases if c.inputs == kind], kind) for kind in kinds],
        targets=targets, energy=_energy(results), tables=_tables(results.tables, traces),
        measured=[*_devices(results.cases), *results.machine.items()])


def headline(cases: Sequence[Case]) -> str:
    """Say in how many cases sharing is the fastest."""
    gains = [found for case in cases if (found := gain(case.systems)) is not None]
    if not gains:
        return 'Nothing can be compared: ours or all others were left out.'
    faster, slower = sum(g >= SAME for g in gains), sum(g <= -SAME for g in gains)
    return (f'Sharing is the fastest in {faster} of {len(gains)} cases, as fast as the best other '
            f'system in {len(gains) - faster - slower}, and slower in {slower}. In the median it '
            f'takes {percent(abs(median(gains)))} {"less" if median(gains) >= 0 else "more"} than '
            'the best of the others.')


def _subtitle(cases: Sequence[Case]) -> str:
    count = len({case.workload for case in cases})
    links = '; '.join(f'{c.trace} {c.link["mean_mbps"]:.0f} ± {c.link["std_mbps"]:.0f} Mbit/s'
                      for c in {c.trace: c for c in cases}.values())
    return f'{count} network{"s" if count > 1 else ""} on emulated devices; links: {links}'


def _devices(cases: Iterable[Case]) -> list[tuple[str, str]]:
    """Return for each emulated device where its times come from, and for which networks."""
    networks: dict[tuple[str, str], dict[str, None]] = {}
    for case in cases:
        for side, device in case.devices.items():
            networks.setdefault((side, device), {})[case.title] = None
    return [(side, f'emulated as {device}, for {"; ".join(titles)}')
            for (side, device), titles in sorted(networks.items())]


def _frugality(energy: Sequence[Mapping[str, Any]]) -> list[str]:
    return [f'Planned for the least energy, never above the others with the same inputs: '
            f'{sum(row["met"] for row in energy)} of {len(energy)} cases.'] if energy else []


def _searched(cases: Iterable[Case]) -> list[str]:
    """Say what our search gains over the paper's, all else being ours."""
    gains = [found for case in cases if (found := gain(case.systems, EVOLVED)) is not None]
    if not gains:
        return []
    mean = fmean(gains)
    return [f'Schedules by our search take {percent(abs(mean))} '
            f'{"less" if mean >= 0 else "more"} in the mean than those by the paper\'s '
            f'differential evolution ({EVOLVED}), all else being ours.']


def _prediction(cases: Iterable[Case]) -> list[str]:
    errors = [error for case in cases if OURS in case.systems
              if (error := case.systems[OURS]['error_median']) is not None]
    return [f'Predictions of shared inferences miss by {percent(median(errors))} in the median '
            f'of all cases, by {percent(max(errors))} in the worst.'] if errors else []


def _exactness(reports: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return one sentence on all cases that were checked."""
    found = [report['exactness'] for report in reports if report.get('exactness')]
    systems = {(k, name): row for k, one in enumerate(found)
               for name, row in one['systems'].items()}
    arrived = {(k, side): row for k, one in enumerate(found)
               for side, row in one['arrived'].items()}
    return ['Are the results those of the unsplit models? '
            + exactness_sentence({
                'systems': systems, 'arrived': arrived,
                'adjusted': any(one['adjusted'] for one in found),
                'telling': all(one['telling'] for one in found)})] if found else []


def _part(cases: Sequence[Case], kind: str) -> dict[str, Any]:
    heading = _HEADINGS.get(kind, kind)
    return {
        'heading': heading, 'text': _TEXTS.get(kind, ''),
        'groups': _grouped(cases, lambda case: case.title, _row),
        'latency': _overview(cases, f'{heading}: mean latency by network, link and system',
                             'latency of an inference, ms', 'mean_ms'),
        'energy': _overview(cases, f'{heading}: energy by network, link and system',
                            'energy of an inference, J (modelled)', 'energy_j')}


def _overview(cases: Sequence[Case], label: str, quantity: str, key: str) -> str:
    panels: dict[str, dict[str, dict[str, float]]] = {}
    for case in cases:
        row = {system: float(figures[key]) for system, figures in case.systems.items()}
        if key == 'mean_ms' and case.bound_ms > 0:
            row['bound'] = case.bound_ms
        panels.setdefault(case.trace, {})[case.title] = row
    return inline_svg(overview_figure(panels, quantity), label)


def _grouped(items: Iterable[Any], title: Callable[[Any], str], row: Callable[[Any], Any],
             ) -> list[dict[str, Any]]:
    groups: dict[str, list[Any]] = {}
    for item in items:
        groups.setdefault(title(item), []).append(row(item))
    return [{'title': name, 'rows': rows} for name, rows in groups.items()]


def _row(case: Case) -> dict[str, Any]:
    ours, other = case.systems.get(OURS, {}), best_other(case.systems)
    theirs = case.systems[other] if other else {}
    mean = ours.get('mean_ms')
    return {
        'trace': case.trace, 'ours': mean, 'other': other, 'other_ms': theirs.get('mean_ms'),
        'gain': gain(case.systems), 'bound': case.bound_ms or None,
        'times': mean / case.bound_ms if mean and case.bound_ms else None,
        'joules': ours.get('energy_j'), 'other_joules': theirs.get('energy_j'),
        'error': ours.get('error_median'), 'switches': ours.get('switches'),
        'href': f'{case.folder}/{PAGE}'}


def _targets(outcomes: Iterable[Mapping[str, Any]], cases: Iterable[Case]) -> list[dict[str, Any]]:
    """Return the cases of each target, those that miss it first."""
    titles = {case.workload: case.title for case in cases}
    found: dict[str, list[dict[str, Any]]] = {}
    for outcome in outcomes:
        bound = outcome['bound_ms']
        found.setdefault(_heading(outcome), []).append({
            **outcome, 'title': titles.get(outcome['workload'], outcome['workload']),
            'times': outcome['ours_ms'] / bound if bound else None})
    return [{'heading': heading, 'met': sum(row['met'] for row in rows),
             'rows': sorted(rows, key=lambda row: bool(row['met']))}
            for heading, rows in found.items()]


def _energy(results: Results) -> list[dict[str, Any]]:
    """Return how ours, planned for the least energy, stands; cases that miss the target first."""
    titles = {case.workload: case.title for case in results.cases}
    return sorted(({**row, 'title': titles.get(row['workload'], row['workload'])}
                   for row in results.energy), key=lambda row: bool(row['met']))


def _heading(outcome: Mapping[str, Any]) -> str:
    name = str(outcome['target'])
    name = f'{name[:1].upper()}{name[1:]}'
    wanted = outcome['wanted']
    return f'{name}: at least {percent(wanted)} less latency' if wanted > 0 else name


def _tables(tables: Mapping[str, Sequence[Mapping[str, Any]]], traces: Sequence[str],
            ) -> list[dict[str, Any]]:
    views = []
    for number, rows in sorted(tables.items()):
        for kind in dict.fromkeys(row['inputs'] for row in rows):
            views.append({
                'number': number, 'caption': _CAPTIONS[number], 'traces': traces,
                'inputs': 'float32 inputs' if kind == FLOAT32 else 'inputs as sensors give them',
                'columns': [heading for heading, *_ in _COLUMNS[number]],
                'groups': _table_groups([r for r in rows if r['inputs'] == kind], traces,
                                        _COLUMNS[number])})
    return views


def _table_groups(rows: Sequence[Mapping[str, Any]], traces: Sequence[str],
                  columns: Sequence[tuple[str, str, str, float]]) -> list[dict[str, Any]]:
    """Return a row for each network and system, with the traces side by side."""
    known = {(row['title'], row['system'], row['trace']): row for row in rows}

    def cells(pair: tuple[str, str]) -> dict[str, Any]:
        return {'system': pair[1], 'cells': [
            _cell(known.get((*pair, trace)), value, deviation, factor)
            for _, value, deviation, factor in columns for trace in traces]}

    pairs = dict.fromkeys((row['title'], row['system']) for row in rows)
    return _grouped(pairs, lambda pair: str(pair[0]), cells)


def _cell(row: Mapping[str, Any] | None, value: str, deviation: str, factor: float,
          ) -> dict[str, Any]:
    """Return what was measured here and, apart from it, what the paper and its logs say."""
    if row is None:
        return {'here': '–', 'notes': []}

    def text(source: str) -> str:
        found = row[value][source]
        spread = row[deviation][source] if deviation else None
        return '' if found is None else number_text(factor * found) + (
            '' if spread is None else f' ± {number_text(factor * spread)}')

    notes = [f'{word} {text(source)}' for word, source in (('paper', 'printed'),
                                                           ('logged', 'logged')) if text(source)]
    return {'here': text('here') or '–', 'notes': notes}
