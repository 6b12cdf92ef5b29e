# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""A demo's folder as views, one for each step of what was recorded."""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
import math
from pathlib import Path
from typing import Any

from intradp_ros.core.json_text import parse_json
from intradp_ros.report.operator_names import readable
from intradp_ros.report.palette import BLUE, PURPLE
from intradp_ros.report.view.blocks import (
    bands,
    Block,
    bottleneck,
    chart,
    Column,
    facts,
    facts_of,
    FATES,
    FRAME,
    frames,
    gantt,
    headline,
    kilobytes,
    line,
    machine,
    medium,
    number,
    OUT,
    power,
    remarks,
    results,
    ROWS,
    section,
    shown,
    view_of,
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

    :raises ValueError: if the folder holds no report that this release knows.
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
        said = self._report.get('said') or {}
        sections = list(self._make(self, self._report, step))
        if said:
            sections = [
                section('result', 'Result', headline(said['headline'], WELL if said['well']
                                                     else OUT), remarks(said['remarks'])),
                *sections, section('measured', 'How this was measured', facts(said['measured']))]
        return view_of(said.get('title', self.title), sections, length=self.length, at=step)

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
            return parse_json(path.read_text(), None)
        except ValueError as error:
            raise ValueError(f'{path} cannot be read: {error}') from error


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
    against = one.get('shared_against', {})
    ran = {name: m['median_ms'] for name, m in modes.items() if m['median_ms'] is not None}
    best = min(ran.keys() - {'shared'}, key=lambda name: ran[name], default='')
    mine = modes['shared']
    blocks: list[Block | None] = [
        headline(f'Shared: {shown(mine["median_ms"], "ms")} at the median, predicted '
                 f'{shown(mine["predicted_ms"], "ms")}'
                 + (f'; best other way: {best}, {shown(ran[best], "ms")}' if best else ''),
                 WELL if ran.get('shared', math.inf) <= ran.get(best, math.inf) else WARNS)]
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
            facts_of('This frame', {
                'phase': 'phase', 'frame': 'frame', **FRAME, 'link': 'rate_mbps Mbit/s',
                'rows divided': 'by_rows', 'bottleneck of the frame below': 'bottleneck'},
                {'phase': phase, 'frame': f'{k + 1} of {len(played["latency_ms"])}',
                 'bottleneck': bottleneck(spans['spans']), **{
                     key: played[key][k] for key in (
                         'latency_ms', 'predicted_ms', 'bytes_up', 'bytes_down', 'energy_j',
                         'rate_mbps', 'by_rows')}})]
    image = f'{model}/example.png'
    return [
        *blocks,
        bands(ROWS, spans['stages'], image if record.has(image) else ''),
        bands('A frame and its result', [], f'{model}.png') if record.has(f'{model}.png')
        else None,
        gantt('Timeline of a frame that was shared by rows', [
            [lane, kind, readable(name), 1e3 * start, 1e3 * stop]
            for lane, kind, name, start, stop in spans['spans']]),
        results('All ways', 'way', {
            'median': 'median_ms ms', '95 % interval': _interval, 'p95': 'p95_ms ms',
            'shared takes': _against, 'predicted': 'predicted_ms ms', 'frames': 'frames',
            'lost': 'lost', 'shared': 'shared', 'by rows': 'by_rows',
            'up': kilobytes('bytes_up'), 'down': kilobytes('bytes_down'),
            'energy, modelled': 'energy_j J',
            'largest difference': lambda row: power(row.get('max_rel_diff'))},
            [(name, {**m, 'against': against.get(name)}) for name, m in modes.items()],
            'shared'),
        _after_kill(killed, 'Server killed', {
            'frames while the server was killed': 'frames', 'lost': 'lost',
            'finished by the robot': 'recovered', 'shared again after the restart': lambda row:
            f'{row["shared_after_restart"]} of {row["frames_after_restart"]}'})]


def _interval(row: Report) -> str:
    low, high = row.get('median_low_ms'), row.get('median_high_ms')
    return '' if low is None or high is None else f'{shown(low)} to {shown(high, "ms")}'


def _against(row: Report) -> str:
    ratio = row.get('against')
    return f'{ratio["ratio"]:.2f} × ({ratio["low"]:.2f} to {ratio["high"]:.2f})' if ratio else ''


def _perception(record: Recorded, report: Report, step: int) -> Sections:
    cut_ = report['link_cut']
    return [section('map', 'Map', chart([machine('robot', 'robot', WELL, []),
                                         machine('server', 'server', WELL, [])],
                                        [medium('link', ('robot', 'server'), report['link'])])),
            section('sharing', 'Sharing', headline(
                f'{report["outage"][:1].upper()}{report["outage"][1:]}: {cut_["equal"]} of '
                f'{cut_["frames"]} frames meanwhile are the same, {cut_["lost"]} lost',
                WARNS if cut_['lost'] else WELL), results('Networks', 'network', {
                    'inference, median': 'median_ms ms', 'around it, median': 'extra_ms ms',
                    'frames': 'frames', 'lost': 'lost', 'equal': 'equal',
                    'with the server': 'shared', 'both computed': 'divided',
                    'by rows': 'by_rows', 'finished by the robot': 'recovered',
                    'messages': 'type'}, report['networks'].items()),
                bands('The camera, and what the messages say', [], 'overlay.png')
                if record.has('overlay.png') else None)]


def _fleet_runs(report: Report) -> list[tuple[str, Report]]:
    return [*report['systems'].items(),
            *((f'half the air, {name}', row) for name, row in report['burst'].items())]


def _fleet(record: Recorded, report: Report, step: int) -> Sections:
    runs, target = _fleet_runs(report), report['target']
    name, run = runs[step]
    brake, busy = _binds(run), run.get('busy_ms', {})
    does: dict[str, list[str]] = {device: [] for device in report['devices']}
    for count, stage in enumerate(run['stages'], 1):
        for device in stage['devices']:
            does.setdefault(device, []).append(f'stage {count}: {stage["operators"]} operators')
    air = report['air_mbps'] / (2 if step >= len(report['systems']) else 1)
    machines = [machine(device, 'device', WELL, [
        f'speed {shown(report["devices"].get(device))}', *(parts or ['computes nothing']),
        f'busy for {shown(busy[device], "ms")} of each frame' if device in busy else '',
        'the bottleneck' if device == brake else '']) for device, parts in does.items()]
    met = run['stream_ms'] is not None and run['stream_ms'] <= target['latency_ms'] \
        and not run['failed']
    used = f', carries for {shown(busy["air"], "ms")} of each frame' if 'air' in busy else ''
    return [
        section('map', 'Map', chart(machines, [medium(
            'air', does, shown(air, 'Mbit/s') + used + ('; the bottleneck' if brake == 'air'
                                                        else ''))])),
        section('fleet', 'Fleet', headline(
            f'{name}: target of {shown(target["latency_ms"], "ms")} at '
            f'{shown(target["fps"])} frames a second {"met" if met else "missed"}: '
            + (f'failed: {run["failed"]}' if run['failed'] else
               f'{shown(run["stream_ms"], "ms")} at the rate')
            + (f'; bottleneck: {_braked(run, target)}' if brake else ''), WELL if met else OUT),
            facts_of('This plan', {
                'plan': lambda row: name, 'alone': _beside('latency_ms', 'predicted_ms', 'ms'),
                'frames a second': _beside('fps', 'predicted_fps'),
                'bottleneck': lambda row: _braked(row, target),
                'the least that is possible': 'bound_ms ms',
                'energy of an inference, modelled': 'joules J',
                'target missed for': 'qoe_missed_s s', 'frames lost': 'lost',
                'failed': 'failed'}, run),
            results('All plans', 'plan', {
                'device and operators': lambda row: ', '.join(
                    f'{"+".join(stage["devices"])} {stage["operators"]}'
                    for stage in row['stages']),
                'alone': 'latency_ms ms', 'predicted': 'predicted_ms ms',
                'at the rate': 'stream_ms ms', 'frames a second': 'fps',
                'predicted rate': 'predicted_fps', 'bottleneck': _binds,
                'energy, modelled': 'joules J', 'target missed': 'qoe_missed_s s',
                'frames lost': 'lost'}, runs, name),
            gantt('Eight frames of the camera by our plan, modelled', [
                [lane, kind, readable(what), 1e3 * start, 1e3 * stop]
                for lane, kind, what, start, stop in report.get('schedule', ())]),
            _after_kill(report['killed'], 'A device killed and started again', {
                'device': 'device', 'frames': 'frames', 'lost': 'lost',
                'finished by the asker': 'by_asker',
                'longest time without the fleet': 'recovered_ms ms'}))]


def _beside(key: str, predicted: str, unit: str = '') -> Column:
    return lambda row: '' if row[key] is None else \
        f'{shown(row[key], unit)}, predicted {shown(row[predicted], unit)}'


def _binds(run: Report) -> str:
    """Return the device or medium that a frame keeps busy for the longest."""
    busy = run.get('busy_ms') or {}
    return max(busy, key=lambda lane: float(busy[lane]), default='')


def _braked(run: Report, target: Report) -> str:
    if not (brake := _binds(run)):
        return ''
    held, period = run['busy_ms'][brake], 1e3 / target['fps']
    return f'{brake}, busy for {shown(held, "ms")} of the {shown(period, "ms")} between two ' \
           f'frames ({held / period:.0%}, modelled)'


def _after_kill(killed: Report | None, caption: str, columns: Mapping[str, Column],
                ) -> Block | None:
    """Return what became of a kill."""
    if not killed:
        return None
    if killed.get('failed'):
        return headline(f'{caption}: failed: {killed["failed"]}', WARNS)
    return facts_of(caption, columns, killed)


def _language_steps(record: Recorded, report: Report) -> int:
    return len(report['systems']['language'].get('tokens', ())) if record.has(TRACE) else 1


def _language(record: Recorded, report: Report, step: int) -> Sections:
    systems, mine = report['systems'], report['systems']['language']
    found: Sections = []
    blocks: list[Block | None] = [headline(f'Failed: {mine.get("failed")}', OUT)]
    if not mine.get('failed'):
        found = [section('map', 'Map', chart([machine(
            name, 'head' if k == 0 else 'device', WELL, [
                f'{mine["blocks"][name]} blocks, {mine["streamed"][name]} read from disk each '
                'token', _memory({key: mine[key][name] for key in ('peak_mb', 'limit_mb')}),
                'the bottleneck: its ' + mine['binds'].partition(' ')[0]
                if mine['binds'].endswith(f' of {name}') else ''])
            for k, name in enumerate(mine['blocks'])], [medium(
                'network', mine['blocks'], shown(report['mbit'], 'Mbit/s'))]))]
        blocks = [
            headline(f'{shown(1e3 / mine["ms_per_token"])} tokens a second '
                     f'({shown(mine["ms_per_token"], "ms")} each, predicted '
                     f'{shown(mine["predicted_ms"], "ms")}); bottleneck: {mine["binds"]}'),
            results('Each token: devices', 'device', {
                'blocks': 'blocks', 'read from disk': 'streamed', 'memory': _memory,
                'computing': 'computing_ms ms', 'waits for disk': 'disk_ms ms',
                'waits for others': 'peers_ms ms', 'sent': 'sent_kb kB',
                'received': 'received_kb kB'}, [
                    (name, {**row, **{key: mine[key].get(name, 0) for key in (
                        'blocks', 'streamed', 'peak_mb', 'limit_mb')}})
                    for name, row in mine['per_token'].items()]),
            _of_token(record, mine, step)]
    return [*found, section(
        'language', 'Language', *blocks,
        facts_of('', {'question': 'question', 'answer': 'answer', 'tokens': 'tokens',
                      'same tokens as one process': 'identical'}, report),
        results('All ways', 'way', {
            'a token': 'ms_per_token ms', 'predicted': 'predicted_ms ms',
            'limit of its plan': 'limit_ms ms', 'times the limit': 'x', 'bottleneck': 'binds',
            'blocks (of them read in every token)': lambda row: ', '.join(
                f'{name} {count} ({row["streamed"][name]})'
                for name, count in row.get('blocks', {}).items()) or 'all of them',
            'most memory': lambda row: ', '.join(
                f'{name} {_memory({"peak_mb": row["peak_mb"].get(name), "limit_mb": limit})}'
                for name, limit in row.get('limit_mb', {}).items())},
            systems.items(), 'language'),
        _after_kill(report['killed'], 'A device killed', {
            'requests': 'requests', 'lost': 'lost', 'longest gap': 'gap_ms ms',
            'same tokens': 'identical'}))]


def _memory(row: Report) -> str:
    return f'{shown(row["peak_mb"])} of {shown(row["limit_mb"], "MB")}'


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
    killed, loss, plain = report['killed'] or {}, report['loss'], report['loss_one_process']
    systems = report['systems']
    mine, alone = systems.get('training', {}), systems.get('one device', {})
    parts = killed.get('recovery_ms') or {}
    blocks: list[Block | None] = [headline(f'Failed: {report.get("failed")}', OUT)]
    if loss and not report.get('failed'):
        at = min(step, len(loss) - 1)
        blocks = [
            headline(f'{shown(mine.get("round_ms"), "ms")} a round, predicted '
                     f'{shown(mine.get("predicted_ms"), "ms")}; one device takes '
                     f'{shown(alone.get("round_ms"), "ms")}'),
            line('Loss', 'round', 'loss', {
                'devices together': list(enumerate(loss, 1)),
                'one process': list(enumerate(plain, 1))}, cursor=at + 1,
                dashed=('one process',)),
            facts([('round', f'{at + 1} of {report["rounds"]}'),
                   ('loss', shown(loss[at], places=4)),
                   ('loss of one process', shown(plain[at], places=4)),
                   ('largest difference of weights', f'{report["max_rel_diff"]:.1e}'),
                   ('accuracy at the end', shown(100 * report['accuracy'], '%', 2))],
                  'This round'),
            gantt('Who trained which layers', [
                [device, 'compute', text, first, last]
                for device, text, first, last in report.get('parts', ())], 'round')]
    return [section(
        'training', 'Training', *blocks,
        results('Plans', 'plan', {
            'a round': 'round_ms ms', 'predicted': 'predicted_ms ms',
            'from one process': lambda row: power(row.get('loss_diff')),
            'layers: devices (grains)': lambda row: row.get('plan', ''),
            'the plan of': lambda row: row.get('same_plan_as', '')}, systems.items(),
            'training'),
        facts_of('A device killed', {
            'rounds replayed': 'rounds_replayed', 'samples lost': 'samples_lost',
            'until all have left the plan': 'detect ms', 'moving layers': 'move ms',
            'replaying rounds': 'replay ms', 'in all': lambda row: shown(
                sum(parts.values()) if parts else None, 'ms'),
            'with a plan from scratch instead': 'heavy_ms ms'}, {**killed, **parts}))]


def _serving(record: Recorded, report: Report, step: int) -> Sections:
    systems, bound = report['systems'], report['oracle_goodput']
    ours, row = next(iter(systems.items()))
    sites = report.get('sites', {})
    tight = max(sites, default='', key=lambda name: float(
        sites[name]['asked_per_s'] / sites[name]['capacity_per_s']))
    seconds = report.get('by_second', {})
    return [section(
        'serving', 'Serving', headline(
            f'{shown(row["goodput"])} of {shown(report["asked_per_s"])} requests a second in '
            f'time; no choice exceeds {shown(bound)}'
            + (f'; bottleneck: {tight}, asked for {shown(sites[tight]["asked_per_s"])} a second, '
               f'can do {shown(sites[tight]["capacity_per_s"])}' if tight else ''),
            WELL if row['goodput'] >= 0.9 * bound else WARNS),
        results('Choosers', 'chooser', {
            'goodput': 'goodput /s', 'of the bound': lambda each: shown(
                100 * each['goodput'] / bound, '%') if bound else '',
            'requests': 'requests', **FATES},
            [*systems.items(), ('simulated', report['simulated'])], ours),
        results('Sites', 'site', {'asked first': 'asked_per_s /s',
                                  'can do': 'capacity_per_s /s'}, sites.items()),
        line('Answers in time by second', 's', 'answers in time per s', {
            **{name: list(enumerate(counts)) for name, counts in seconds.items()},
            'bound': [(0, bound), (max(map(len, seconds.values())) - 1, bound)]
            if seconds else []}, dashed=('asked', 'bound')),
        line('The same while a site is killed (dashed line)', 's', 'answers in time per s', {
            name: list(enumerate(counts))
            for name, counts in report['killed'].get('by_second', {}).items()},
            cursor=report['killed'].get('at_s'), dashed=('asked',)),
        _after_kill(report['killed'], 'A site killed', {
            'site': 'site', 'requests': 'requests', **FATES, 'goodput': 'goodput requests/s'}),
        facts_of('Compare', {'capacity': 'capacity_per_s requests/s', 'how': 'how'}, report,
                 [('simulated', shown(report['simulated']['goodput'], 'requests/s'))]))]


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
