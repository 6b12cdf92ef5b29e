# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""A demo's folder as views, one for each step of what was recorded."""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
import json
import math
from pathlib import Path
from typing import Any

from intradp_ros.report.operator_names import readable
from intradp_ros.report.palette import BLUE, PURPLE
from intradp_ros.report.view.blocks import (
    bands,
    Block,
    bottleneck,
    chart,
    facts,
    frames,
    gantt,
    headline,
    line,
    machine,
    medium,
    number,
    OUT,
    section,
    shown,
    table,
    WARNS,
    WELL,
)

MAX_FILE = 64 << 20
#: Where `intradp demo-language` keeps what each device did, and when.
TRACE = 'trace.json'
#: Pictures that the page may show.
PICTURES = ('.png', '.jpg')
Report = Mapping[str, Any]
Sections = list[dict[str, Any]]


class Recorded:
    """
    What a demo wrote, as views: `length` steps, `view(step)` each.

    Raises
    ------
    ValueError
        If the folder holds no report that this release knows.

    """

    def __init__(self, folder: Path) -> None:
        self.folder, self._files = folder, dict[str, Any]()
        self._report: Report = self._read('report.json')
        found = [system for mark, system in _SYSTEMS.items() if mark in self._report]
        if not found:
            raise ValueError(f'{folder}/report.json is not of a demo that this release knows: '
                             'name a folder that intradp demo, demo-fleet, demo-language, '
                             'demo-training, demo-serving or demo-pipeline wrote')
        self.title, length, self._make = found[0]
        try:
            self.length = max(1, length(self, self._report))
            self.view(self.length - 1)
        except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
            raise ValueError(f'{folder}/report.json is not as this release writes it '
                             f'({type(error).__name__}: {error}): run the demo again') from error

    def seconds(self, step: int) -> float:
        """Return where a step stands on an axis of time: reports have none."""
        return float(step)

    def view(self, step: int, query: Mapping[str, str] | None = None) -> dict[str, Any]:
        """Return the view of a step; the nearest one if there is no such step."""
        step = min(max(0, step), self.length - 1)
        return {'title': self.title, 'live': False, 'length': self.length, 'at': step,
                'notes': [], 'options': [],
                'sections': self._make(self, self._report, step)}

    def picture(self, name: str) -> bytes | None:
        """Return a picture of the folder."""
        path = (self.folder / name).resolve()
        if not name.endswith(PICTURES) or not path.is_relative_to(self.folder.resolve()) \
                or not path.is_file() or path.stat().st_size > MAX_FILE:
            return None
        return path.read_bytes()

    def has(self, name: str) -> bool:
        """Return whether the folder has a file."""
        return (self.folder / name).is_file()

    def read(self, name: str) -> Any:
        """Return what a file of JSON says, None where there is none."""
        return self._read(name) if self.has(name) else None

    def _read(self, name: str) -> Any:
        if name not in self._files:
            self._files[name] = self._parsed(self.folder / name)
        return self._files[name]

    def _parsed(self, path: Path) -> Any:
        if not path.is_file():
            raise ValueError(f'{path} is missing: name a folder that a demo wrote, or a bag')
        if path.stat().st_size > MAX_FILE:
            raise ValueError(f'{path} is larger than {MAX_FILE >> 20} MiB')
        try:
            return json.loads(path.read_text())
        except (ValueError, RecursionError) as error:
            raise ValueError(f'{path} is not JSON: {error}') from error


def _sharing_steps(record: Recorded, report: Report) -> int:
    return max(len(_story(record, model)) for model in report['models'])


def _story(record: Recorded, model: str) -> list[tuple[str, int, Report]]:
    """Return the frames that a robot shared, also while its server was killed: phase, number."""
    played = record.read(f'{model}/player.json') or {'modes': {}}
    phases = {'shared': played['modes'].get('shared'),
              'server killed': played.get('server_killed'),
              'server started again': played.get('after_restart')}
    return [(name, k, phase) for name, phase in phases.items() if phase
            for k in range(len(phase['latency_ms']))]


def _sharing(record: Recorded, report: Report, step: int) -> Sections:
    machines = [machine('robot', 'robot', WELL, [str(report.get('link', ''))]),
                machine('server', 'server', WELL, [f'computes on {report.get("server", "")}'])]
    found: Sections = []
    for model, one in report['models'].items():
        story = _story(record, model)
        if not found:
            rate, state = '', WELL
            if story:
                phase, k, played = story[min(step, len(story) - 1)]
                rate = shown(played['rate_mbps'][k], 'Mbit/s')
                if phase == 'server killed' and not played['bytes_down'][k]:
                    machines[1] = machine('server', 'server', OUT, ['killed; the robot finishes'])
                    state = OUT
            found.append(section('map', 'Map', chart(machines, [medium(
                'link', ('robot', 'server'), rate, state)])))
        found.append(section(f'sharing-{model}', f'Sharing: {model}',
                             *_model(record, model, one, story, step)))
    return found


def _model(record: Recorded, model: str, one: Report, story: Sequence[tuple[str, int, Report]],
           step: int) -> list[Block | None]:
    if one.get('failed'):
        return [headline(f'Failed: {one["failed"]}', OUT)]
    modes, killed = one['modes'], one.get('server_killed')
    ran = {name: m['median_ms'] for name, m in modes.items() if m['median_ms'] is not None}
    best = min(ran.keys() - {'shared'}, key=lambda name: ran[name])
    mine = modes['shared']
    blocks: list[Block | None] = [
        headline(f'Shared: {shown(mine["median_ms"], "ms")} at the median, predicted '
                 f'{shown(mine["predicted_ms"], "ms")}; best other way: {best}, '
                 f'{shown(modes[best]["median_ms"], "ms")}',
                 WELL if ran.get('shared', math.inf) <= ran[best] else WARNS)]
    timelines = record.read(f'{model}/timelines.json') or []
    spans = timelines[step % len(timelines)] if timelines else {'spans': [], 'stages': []}
    if story:
        rows = [{'id': at, 'text': f'{phase}, frame {k + 1}', 'values': [
                 played['latency_ms'][k], max(0.0, played['answer_ms'][k]
                                              - played['latency_ms'][k])],
                 'predicted': number(played['predicted_ms'][k])}
                for at, (phase, k, played) in enumerate(story)]
        phase, k, played = story[min(step, len(story) - 1)]
        blocks += [
            frames('Latency of each frame', {'inference': BLUE, 'decoding, publishing': PURPLE},
                   rows, min(step, len(story) - 1)),
            facts([('phase', phase), ('frame', f'{k + 1} of {len(played["latency_ms"])}'),
                   ('latency', shown(played['latency_ms'][k], 'ms')),
                   ('predicted', shown(played['predicted_ms'][k], 'ms')),
                   ('sent', shown(played['bytes_up'][k] / 1e3, 'kB')),
                   ('received', shown(played['bytes_down'][k] / 1e3, 'kB')),
                   ('link', shown(played['rate_mbps'][k], 'Mbit/s')),
                   ('energy of the robot', shown(played['energy_j'][k], 'J')),
                   ('rows divided', 'yes' if played['by_rows'][k] else 'no'),
                   ('bottleneck of the frame below', bottleneck(spans['spans']))], 'This frame')]
    image = f'{model}/example.png'
    blocks += [
        bands('Who computed which rows: the robot the upper ones, the server the others',
              spans['stages'], image if record.has(image) else ''),
        gantt('Timeline of a frame that was shared by rows', [
            [lane, kind, readable(name), 1e3 * start, 1e3 * stop]
            for lane, kind, name, start, stop in spans['spans']]),
        table('All ways', ['way', 'median', 'p95', 'predicted', 'frames', 'lost', 'shared',
                           'by rows', 'energy'],
              [[name, shown(m['median_ms'], 'ms'), shown(m['p95_ms'], 'ms'),
                shown(m['predicted_ms'], 'ms'), m['frames'], m['lost'], m['shared'],
                m['by_rows'], shown(m['energy_j'], 'J')] for name, m in modes.items()], 'shared'),
        facts([('frames while the server was killed', killed['frames']),
               ('lost', killed['lost']), ('finished by the robot', killed['recovered']),
               ('shared again after the restart', f'{killed["shared_after_restart"]} of '
                f'{killed["frames_after_restart"]}')], 'Server killed') if killed else None]
    return blocks


def _perception(record: Recorded, report: Report, step: int) -> Sections:
    rows = [[name, shown(n['median_ms'], 'ms'), n['frames'], n['lost'], n['equal'], n['shared'],
             n['by_rows'], n['recovered'], n['type']] for name, n in report['networks'].items()]
    cut_ = report['link_cut']
    return [section('map', 'Map', chart([machine('robot', 'robot', WELL, []),
                                         machine('server', 'server', WELL, [])],
                                        [medium('link', ('robot', 'server'), report['link'])])),
            section('sharing', 'Sharing', headline(
                f'{cut_["equal"]} of {cut_["frames"]} frames are the same while '
                f'{report["outage"].removeprefix("the link was ")} link; {cut_["lost"]} lost',
                WARNS if cut_['lost'] else WELL), table('Networks', [
                    'network', 'median', 'frames', 'lost', 'equal', 'shared', 'by rows',
                    'finished by the robot', 'messages'], rows),
                bands('Camera with what the networks say', [], 'overlay.png')
                if record.has('overlay.png') else None)]


def _fleet_runs(report: Report) -> list[tuple[str, Report]]:
    return [*report['systems'].items(),
            *((f'half the air, {name}', row) for name, row in report['burst'].items())]


def _fleet(record: Recorded, report: Report, step: int) -> Sections:
    runs, target = _fleet_runs(report), report['target']
    name, run = runs[step]
    does = {device: [] for device in report['devices']}  # type: dict[str, list[str]]
    for count, stage in enumerate(run['stages'], 1):
        for device in stage['devices']:
            does.setdefault(device, []).append(f'stage {count}: {stage["operators"]} operators')
    air = report['air_mbps'] / (2 if step >= len(report['systems']) else 1)
    machines = [machine(device, 'device', WELL, [f'speed {shown(report["devices"].get(device))}',
                                                 *(parts or ['computes nothing'])])
                for device, parts in does.items()]
    met = run['stream_ms'] is not None and run['stream_ms'] <= target['latency_ms'] \
        and not run['failed']
    return [
        section('map', 'Map', chart(machines, [medium('air', does, shown(air, 'Mbit/s'))])),
        section('fleet', 'Fleet', headline(
            f'Plan "{name}": target of {shown(target["latency_ms"], "ms")} '
            + ('met' if met else 'missed') + f', {shown(run["stream_ms"], "ms")} at '
            f'{shown(target["fps"])} frames a second', WELL if met else OUT),
            facts([('alone, measured', shown(run['latency_ms'], 'ms')),
                   ('predicted', shown(run['predicted_ms'], 'ms')),
                   ('least of a frame', shown(run['bound_ms'], 'ms')),
                   ('frames a second', f'{shown(run["fps"])}, predicted '
                    f'{shown(run["predicted_fps"])}'),
                   ('energy of an inference', shown(run['joules'], 'J')),
                   ('target missed for', shown(run['qoe_missed_s'], 's')),
                   ('frames lost', run['lost']), ('failed', run['failed'])], 'This plan'),
            table('Stages', ['stage', 'devices', 'operators'],
                  [[k, ', '.join(stage['devices']), stage['operators']]
                   for k, stage in enumerate(run['stages'], 1)]),
            table('All plans (choose one by the slider)', [
                'plan', 'alone', 'predicted', 'at the rate', 'frames/s', 'energy', 'missed'],
                [[each, shown(row['latency_ms'], 'ms'), shown(row['predicted_ms'], 'ms'),
                  shown(row['stream_ms'], 'ms'), shown(row['fps']), shown(row['joules'], 'J'),
                  shown(row['qoe_missed_s'], 's')] for each, row in runs], name),
            _after_kill(report['killed'], 'A device killed and started again', {
                'device': ('device', ''), 'frames': ('frames', ''), 'lost': ('lost', ''),
                'finished by the asker': ('by_asker', ''),
                'longest time without the fleet': ('recovered_ms', 'ms')}))]


def _after_kill(killed: Report | None, caption: str, rows: Mapping[str, tuple[str, str]],
                ) -> Block | None:
    """Return what became of a kill: `rows` name what is shown, its key and its unit."""
    if not killed:
        return None
    if killed.get('failed'):
        return headline(f'{caption}: failed: {killed["failed"]}', WARNS)
    return facts([(name, shown(killed[key], unit) if number(killed[key]) is not None else
                   {True: 'yes', False: 'no'}.get(killed[key], killed[key]))
                  for name, (key, unit) in rows.items()], caption)


def _language_steps(record: Recorded, report: Report) -> int:
    return len(report['systems']['language'].get('tokens', ())) if record.has(TRACE) else 1


def _language(record: Recorded, report: Report, step: int) -> Sections:
    systems, mine = report['systems'], report['systems']['language']
    if mine.get('failed'):
        return [section('language', 'Language', headline(f'Failed: {mine["failed"]}', OUT))]
    devices = [machine(name, 'head' if k == 0 else 'device', WELL, [
        f'{mine["blocks"][name]} blocks, {mine["streamed"][name]} read from disk each token',
        f'{shown(mine["peak_mb"][name])} of {shown(mine["limit_mb"][name], "MB")}'])
        for k, name in enumerate(mine['blocks'])]
    return [
        section('map', 'Map', chart(devices, [medium(
            'network', mine['blocks'], shown(report['mbit'], 'Mbit/s'))])),
        section('language', 'Language', headline(
            f'{shown(1e3 / mine["ms_per_token"])} tokens a second '
            f'({shown(mine["ms_per_token"], "ms")} each, predicted '
            f'{shown(mine["predicted_ms"], "ms")}); bottleneck: {mine["binds"]}'),
            facts([('question', report['question']), ('answer', report['answer']),
                   ('tokens', report['tokens']),
                   ('same tokens as one process', 'yes' if report['identical'] else 'no')]),
            table('All ways', ['way', 'ms a token', 'predicted', 'limit', 'bottleneck'], [
                [name, shown(row['ms_per_token'], 'ms'), shown(row['predicted_ms'], 'ms'),
                 shown(row['limit_ms'], 'ms'), row.get('binds', '')]
                for name, row in systems.items()], 'language'),
            table('Devices', ['device', 'blocks', 'read from disk', 'memory', 'computing',
                              'waits for disk', 'waits for others', 'sent'], [
                [name, mine['blocks'][name], mine['streamed'][name],
                 f'{shown(mine["peak_mb"][name])} of {shown(mine["limit_mb"][name], "MB")}',
                 *(shown(row[key], 'ms') for key in ('computing_ms', 'disk_ms', 'peers_ms')),
                 shown(row['sent_kb'], 'kB')] for name, row in mine['per_token'].items()]),
            _of_token(record, mine, step),
            _after_kill(report['killed'], 'A device killed', {
                'requests': ('requests', ''), 'lost': ('lost', ''),
                'longest gap': ('gap_ms', 'ms'), 'same tokens': ('identical', '')}))]


def _of_token(record: Recorded, mine: Report, step: int) -> Block | None:
    """Return what each device did during one token."""
    found = record.read(TRACE)
    if not found:
        return None
    spans = [(device, *span) for device, trace in found['trace'].items() for span in trace]
    ends = sorted(stop for _, what, _, stop in spans if what[0] == 'D' and stop > found['began'])
    if not 0 <= step < len(ends):
        return None
    first, last = ends[step - 1] if step else found['began'], ends[step]
    return gantt(f'Token {step + 1} of {len(mine["tokens"])}', [
        [device, _kind(what), _what(what), 1e3 * (max(start, first) - first),
         1e3 * (min(stop, last) - first)]
        for device, what, start, stop in spans if start < last and stop > first])


def _kind(what: str) -> str:
    return 'wait' if what[:1] == 'A' else 'transfer' if '>' in what else 'compute'


def _what(what: str) -> str:
    """Return an action in words: A1.0<peer, S1.0>peer, R5.0, L5, L5>slot or D0."""
    letter, rest = what[:1], what[1:]
    if letter == 'A':
        return f'waits for {rest.partition("<")[2]}'
    if letter == 'S':
        return f'sends to {rest.partition(">")[2]}'
    if letter == 'D':
        return 'draws the token'
    return ('reads block ' if '>' in rest else 'block ') + rest.partition('>')[0].partition('.')[0]


def _training(record: Recorded, report: Report, step: int) -> Sections:
    mine, killed = report['systems'].get('training', {}), report['killed'] or {}
    loss, plain = report['loss'], report['loss_one_process']
    if report.get('failed') or not loss:
        return [section('training', 'Training', headline(f'Failed: {report.get("failed")}', OUT))]
    at = min(step, len(loss) - 1)
    parts = killed.get('recovery_ms') or {}
    return [section(
        'training', 'Training', headline(
            f'{shown(mine["round_ms"], "ms")} a round, predicted '
            f'{shown(mine["predicted_ms"], "ms")}; one device takes '
            f'{shown(report["systems"]["one device"]["round_ms"], "ms")}'),
        line('Loss', 'round', 'loss', {
            'devices together': list(enumerate(loss, 1)),
            'one process': list(enumerate(plain, 1))}, cursor=at + 1, dashed=('one process',)),
        facts([('round', f'{at + 1} of {report["rounds"]}'),
               ('loss', shown(loss[at], places=4)),
               ('loss of one process', shown(plain[at], places=4)),
               ('largest difference of weights', f'{report["max_rel_diff"]:.1e}'),
               ('accuracy at the end', shown(100 * report['accuracy'], '%', 2))], 'This round'),
        table('Plans', ['plan', 'a round', 'predicted'], [
            [name, shown(row['round_ms'], 'ms'), shown(row['predicted_ms'], 'ms')]
            for name, row in report['systems'].items()], 'training'),
        facts([('rounds replayed', killed.get('rounds_replayed')),
               ('samples lost', killed.get('samples_lost')),
               *((word, shown(parts.get(key), 'ms')) for key, word in (
                   ('detect', 'until it was noticed'), ('move', 'moving what it held'),
                   ('replay', 'replaying'))),
               ('with a whole checkpoint instead', shown(killed.get('heavy_ms'), 'ms'))],
              'A device killed'))]


def _serving(record: Recorded, report: Report, step: int) -> Sections:
    systems = report['systems']
    ours, row = next(iter(systems.items()))
    return [section(
        'serving', 'Serving', headline(
            f'{shown(row["goodput"])} of {shown(report["asked_per_s"])} requests a second in '
            f'time; no choice exceeds {shown(report["oracle_goodput"])}',
            WELL if row['goodput'] >= 0.9 * report['oracle_goodput'] else WARNS),
        table('Choosers', ['chooser', 'goodput /s', 'requests', 'in time', 'late', 'refused',
                           'cancelled', 'lost', 'p95', 'forwarded'], [
            [name, shown(each['goodput']), *(each[key] for key in (
                'requests', 'in_time', 'late', 'refused', 'cancelled', 'lost')),
             shown(each['p95_ms'], 'ms'), each['transfers']] for name, each in systems.items()],
            ours),
        _after_kill(report['killed'], 'A site killed', {
            'site': ('site', ''), 'requests': ('requests', ''), 'in time': ('in_time', ''),
            'late': ('late', ''), 'refused': ('refused', ''), 'lost': ('lost', ''),
            'goodput': ('goodput', 'requests/s')}),
        facts([('simulated', shown(report['simulated']['goodput'], 'requests/s')),
               ('capacity', shown(report['capacity_per_s'], 'requests/s')),
               ('how', report['how'])], 'Compare'))]


_Length = Callable[[Recorded, Report], int]
_Make = Callable[[Recorded, Report, int], Sections]
#: By a key of the report that only this demo writes: title, steps, sections of a step.
_SYSTEMS: Mapping[str, tuple[str, _Length, _Make]] = {
    'models': ('Sharing, recorded', _sharing_steps, _sharing),
    'networks': ('Perception, recorded', lambda record, report: 1, _perception),
    'burst': ('Fleet, recorded', lambda record, report: len(_fleet_runs(report)), _fleet),
    'prompts': ('Language, recorded', _language_steps, _language),
    'loss_one_process': ('Training, recorded',
                         lambda record, report: len(report['loss']), _training),
    'oracle_goodput': ('Serving, recorded', lambda record, report: 1, _serving)}
