# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
What was heard of robots, servers, fleets and sites, as a view.

Takes messages as plain data, live or of a recording, of any values; keeps no more than is shown.
"""
from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from statistics import median
from typing import Any

from intradp_ros.core.json_text import parse_json
from intradp_ros.report.operator_names import readable
from intradp_ros.report.palette import BLUE, DARK_GREY, PURPLE, YELLOW
from intradp_ros.report.view.blocks import (
    bands,
    Block,
    bottleneck,
    chart,
    cut,
    facts,
    facts_of,
    FATES,
    FRAME,
    frames,
    gantt,
    headline,
    line,
    machine,
    medium,
    megabits,
    number,
    OUT,
    results,
    ROWS,
    section,
    shown,
    table,
    view_of,
    WARNS,
    WELL,
)
from intradp_ros.report.view.kinds import kind_of, KINDS
from intradp_ros.report.view.possible import possible
from intradp_ros.wire.texts import unpacked

#: What costs nodes something, and is heard only on a wish; with what the page calls it.
OPTIONS: Mapping[str, str] = {'timelines': 'timelines (robot and server then measure them)',
                              'pictures': 'pictures (sent rarely: 10 kB/s at most)'}
#: Things of a kind that are kept; frames, figures and events of each.
MOST, FRAMES, HISTORY, EVENTS, TIMELINES = 256, 100, 600, 10, 20
#: Messages of late that a rate is of.
LATELY = 10
#: Seconds of silence after which a node counts as out, and after which it is forgotten.
SILENT, FORGOTTEN = 3.5, 600.0
_MAX_BOOK = 64 << 20
_PARTS = {'computing': BLUE, 'waiting for rows': YELLOW, 'other': DARK_GREY, 'after it': PURPLE}
_FATES = ('in_time', 'late', 'refused', 'cancelled', 'lost')

Data = Mapping[str, Any]
Sections = list[dict[str, Any]]


def _count(value: Any) -> float:
    return number(value) or 0.0


def _whole(value: Any) -> int:
    return int(_count(value))


def _texts(value: Any) -> list[str]:
    if not isinstance(value, list):
        raise TypeError('not a list')
    return [cut(each) for each in value[:MOST]]


def _by_name(cast: Callable[[Any], Any]) -> Callable[[Any], dict[str, Any]]:
    def read(value: Any) -> dict[str, Any]:
        return {cut(name, 60): cast(each) for name, each in list(value.items())[:MOST]}
    return read


def _shaped(shape: Mapping[str, Callable[[Any], Any]]) -> Callable[[Any], dict[str, Any]]:
    def read(value: Any) -> dict[str, Any]:
        return {name: cast(value[name]) for name, cast in shape.items()}
    return read


def _service(value: Any) -> dict[str, Any]:
    """Return the figures of a service, with answers a second of each executor at the best."""
    return {**_shaped({**dict.fromkeys((*_FATES, 'waiting', 'transfers'), _whole),
                       'p95_ms': number})(value),
            'asked': _whole(value.get('asked')), 'rates': {
                _whole(each['executor']): max(
                    (1e3 * _count(rows) / ms for rows, found in each['mean_ms'].items()
                     if (ms := _count(found)) > 0), default=0.0)
                for each in value.get('batches', [])[:MOST]}}


#: What is kept of each kind of message, and as what: from here on nothing of it is a surprise.
_READ: Mapping[str, Callable[[Any], dict[str, Any]]] = {
    'InferenceStats': _shaped({
        'inference': _whole, 'strategy': cut, 'schedule': _whole, 'shared': bool, 'by_rows': bool,
        'recovered': bool, 'latency_ms': _count, 'predicted_ms': number, 'alone_ms': number,
        'compute_ms': _count, 'waiting_ms': _count, 'extra_ms': _count, 'bytes_up': _count,
        'bytes_down': _count, 'energy_j': number}),
    'LinkState': _shaped({'up_rate': number, 'down_rate': number, 'predicted_rate': number,
                          'round_trip': _count, 'connected': bool}),
    'SharingEvent': _shaped({'kind': cut, 'inference': _whole, 'text': cut}),
    'FleetState': _shaped({'alive': _texts, 'expected': _texts, 'plan': str, 'text': cut,
                           'coordinator': cut, 'trouble': _texts}),
    'DeviceState': _shaped({'name': lambda name: cut(name, 60), 'speed': number,
                            'memory_bytes': _count, 'threads': _whole, 'battery': number,
                            'weight_bytes': _count}),
    'FleetQoe': _shaped({'latency_target': number, 'frames': _whole, 'missed_share': _count,
                         'latency': number, 'latency_expected': number, 'joules': number,
                         'switches': _whole}),
    'Gateway': lambda data: {'error': cut(data['error'])} if 'error' in data else _shaped({
        'site': lambda name: cut(name, 60), 'executors': _whole, 'hop_ms': _by_name(number),
        'problems': _by_name(cut), 'services': _by_name(_service)})(data)}


@dataclass
class _Node:
    values: Mapping[str, str] = field(default_factory=dict)
    message: str = ''
    well: bool = True
    seen: float = 0.0
    since: float = 0.0  # when it began to be as it is: well, warning or silent
    past: deque[tuple[float, Mapping[str, Any]]] = field(
        default_factory=lambda: deque(maxlen=HISTORY))


@dataclass
class _Robot:
    stats: deque[tuple[float, Data]] = field(default_factory=lambda: deque(maxlen=FRAMES))
    events: deque[Data] = field(default_factory=lambda: deque(maxlen=EVENTS))
    timelines: dict[Any, list[list[Any]]] = field(default_factory=dict)
    link: Data = field(default_factory=dict)
    link_seen: float = 0.0
    book: Sequence[Any] = ()
    picture: str = ''


@dataclass
class _Fleet:
    state: Data = field(default_factory=dict)
    stages: Block | None = None
    qoe: deque[tuple[float, Data]] = field(default_factory=lambda: deque(maxlen=HISTORY))
    devices: dict[str, Data] = field(default_factory=dict)
    missing: dict[str, float] = field(default_factory=dict)  # since when


class Observed:
    """What was heard; not for several threads at once."""

    def __init__(self, domain: str = '') -> None:
        self._domain = domain
        self.pictures: dict[str, bytes] = {}
        self._nodes: dict[str, _Node] = {}
        self._robots: dict[str, _Robot] = {}
        self._fleets: dict[str, _Fleet] = {}
        self._gateways: dict[str, _Node] = {}
        self._sites: dict[str, Data] = {}
        self._notices: dict[str, tuple[float, str]] = {}
        self._takes: Mapping[str, Callable[[str, Any, float], None]] = {
            'DiagnosticArray': self._diagnostics, 'InferenceStats': self._stats,
            'LinkState': self._link, 'SharingEvent': self._event, 'FleetState': self._state,
            'InferenceTimeline': self._timeline, 'DeviceState': self._device,
            'FleetQoe': self._qoe, 'ScheduleBook': self._book, 'Image': self._picture,
            'Gateway': self._gateway, 'Notice': self._notice}
        self.kinds = frozenset(self._takes)

    def take(self, kind: str, topic: str, data: Any, when: float) -> None:
        """Take a message that was heard at a time (seconds); what is none changes nothing."""
        try:
            read = _READ[kind](data) if kind in _READ else data
            self._takes[kind](topic, read, when)
        except (KeyError, TypeError, ValueError, AttributeError, IndexError, RecursionError):
            self._notices[topic] = when, f'{cut(topic, 80)}: a {cut(kind, 40)} that is not one'

    def view(self, query: Mapping[str, str], now: float) -> dict[str, Any]:
        """Return the view at a time; a query may name options and a chosen frame."""
        for name in [n for n, node in self._nodes.items() if now - node.seen > FORGOTTEN]:
            del self._nodes[name]
        notes = [text for when, text in self._notices.values() if now - when < 30.0]
        sections = [*self._map(now), *self._sharing(query, now), *self._fleet(), *self._language(),
                    *self._training(), *self._serving(now)]
        if not sections and self._domain:
            notes.append(
                f'Nothing is heard yet in ROS domain {self._domain}: looked for diagnostics, '
                'stats and links of robots, states of fleets. Start nodes in this environment '
                '(ROS_DOMAIN_ID, transport); intradp doctor finds the cause.')
        return view_of(
            f'ROS domain {self._domain}' if self._domain else 'Recording', sections, live=True,
            notes=notes, options=[{'name': name, 'label': label, 'on': query.get(name) == '1'}
                                  for name, label in OPTIONS.items()])

    # What is taken.

    def _diagnostics(self, topic: str, data: Any, when: float) -> None:
        for status in data['status'][:64]:
            values = {str(v['key']): str(v['value']) for v in status['values'][:200]}
            if not kind_of(values):
                continue
            node = _of(self._nodes, cut(status['name'], 120), _Node)
            well = status['level'] in (0, None)
            if not node.seen or well != node.well or when - node.seen > SILENT:
                node.since = when
            node.values, node.message, node.well, node.seen = \
                values, cut(status['message']), well, when
            node.past.append((when, values))

    def _stats(self, topic: str, data: Any, when: float) -> None:
        self._robot(topic).stats.append((when, data))

    def _link(self, topic: str, data: Any, when: float) -> None:
        robot = self._robot(topic)
        robot.link, robot.link_seen = data, when

    def _event(self, topic: str, data: Any, when: float) -> None:
        self._robot(topic).events.append(data)

    def _timeline(self, topic: str, data: Any, when: float) -> None:
        robot = self._robot(topic)
        robot.timelines[data['inference']] = [
            [lane, kind, readable(name), 1e3 * start, 1e3 * stop]
            for lane, kind, name, start, stop in zip(*(data[key] for key in (
                'lane', 'kind', 'name', 'start', 'stop')))]
        for old in list(robot.timelines)[:-TIMELINES]:
            del robot.timelines[old]

    def _book(self, topic: str, data: Any, when: float) -> None:
        if data['robot']:
            entries = parse_json(unpacked(data['book'], _MAX_BOOK), None)['entries']
            _of(self._robots, cut(data['robot'], 120), _Robot).book = [
                [[_whole(stage['stop']), _count(stage['share'])]
                 for stage in each['partition']['stages']] for each in entries]

    def _picture(self, topic: str, data: Any, when: float) -> None:
        picture = bytes.fromhex(data['png'])
        if len(self.pictures) < MOST or topic in self.pictures:
            self.pictures[topic] = picture
            above = topic.rpartition('/')[0]
            for name, robot in self._robots.items():
                if above in (name, name.rpartition('/')[0]):
                    robot.picture = topic

    def _state(self, topic: str, data: Any, when: float) -> None:
        fleet = _of(self._fleets, topic.removesuffix('/state'), _Fleet)
        fleet.state, fleet.stages = data, _stages(data['plan'])
        gone = [name for name in data['expected'] if name not in data['alive']]
        fleet.missing = {name: fleet.missing.get(name, when) for name in gone}

    def _device(self, topic: str, data: Any, when: float) -> None:
        fleet = _of(self._fleets, topic.removesuffix('/devices'), _Fleet)
        if len(fleet.devices) < MOST or data['name'] in fleet.devices:
            fleet.devices[data['name']] = data

    def _qoe(self, topic: str, data: Any, when: float) -> None:
        coordinator = topic.rpartition('/')[0]
        above = coordinator.rpartition('/')[0]
        for name, fleet in self._fleets.items():
            if name.rpartition('/')[0] == above:
                fleet.qoe.append((when, data))

    def _gateway(self, topic: str, data: Any, when: float) -> None:
        site = _of(self._gateways, topic, _Node)
        if 'error' in data:
            if site.well or not site.since:
                site.since = when
            site.well, site.message = False, cut(data['error'])
            return
        if not site.well or not site.since:
            site.since = when
        site.well, site.seen, self._sites[topic] = True, when, data
        rows = data['services'].values()
        site.past.append((when, {
            'in time': sum(row['in_time'] for row in rows),
            'all': sum(row[fate] for row in rows for fate in _FATES),
            **{f'asked {name}': row['asked'] for name, row in data['services'].items()}}))

    def _notice(self, topic: str, data: Any, when: float) -> None:
        if len(self._notices) < MOST:
            self._notices[topic] = when, cut(data['text'])

    def _robot(self, topic: str) -> _Robot:
        found: _Robot = _of(self._robots, topic.rpartition('/')[0], _Robot)
        return found

    # What is shown.

    def _map(self, now: float) -> Sections:
        machines, media = [], []
        out = {name for fleet in self._fleets.values() for name in fleet.missing}
        brakes = {self._busiest(fleet.state['alive']) for fleet in self._fleets.values()
                  if fleet.state}
        for name, node in sorted(self._nodes.items()):
            values, kind = node.values, kind_of(node.values)
            quiet = now - node.seen
            device = values.get('device_name', '')
            if device in out:
                continue  # said below, with the reason
            state = OUT if quiet > SILENT else WELL if node.well else WARNS
            battery = next((d.get('battery') for f in self._fleets.values()
                            for n, d in f.devices.items() if n == device), None)
            machines.append(machine(name, kind, state, [
                f'not heard for {quiet:.0f} s' if state == OUT else
                f'{node.message}, for {_ago(now - node.since)}' if node.message else '',
                values.get('trouble', ''), _rejected(values) if state == WARNS else '',
                _host(values),
                f'battery {battery:.0%}' if battery is not None else '',
                *(f'the bottleneck{said.removeprefix(device)}' for said in brakes
                  if device and said.startswith(f'{device},')),
                *(f'{key.replace("_", " ")} {values[key]}' for key in KINDS[kind][1]
                  if key != 'trouble' and values.get(key)),
                {'True': 'with a key', 'False': 'without a key'}.get(
                    values.get('authenticated', ''), '')]))
            media += [medium(key.removeprefix('medium '), (), value)
                      for key, value in values.items() if key.startswith('medium ')]
        for name, fleet in self._fleets.items():
            machines += [machine(device, 'device', OUT, [
                f'out for {_ago(now - since)}', _reason(device, fleet.state['trouble']),
                f'of fleet {name}']) for device, since in fleet.missing.items()]
        for name, robot in sorted(self._robots.items()):
            if robot.link:
                crossing, quiet = _crossing(robot, now), now - robot.link_seen
                media.append(medium(f'link of {name}', (), f'not heard for {quiet:.0f} s'
                                    if quiet > SILENT else ', '.join(filter(None, (
                    f'up {megabits(robot.link["up_rate"])}',
                    f'down {megabits(robot.link["down_rate"])}',
                    f'expected {megabits(robot.link["predicted_rate"])}',
                    f'round trip {shown(1e3 * robot.link["round_trip"], "ms")}',
                    f'{megabits(crossing)} cross now' if crossing is not None else ''))),
                    WELL if robot.link['connected'] and quiet <= SILENT else OUT))
        for address, site in sorted(self._gateways.items()):
            said = self._sites.get(address, {})
            machines.append(machine(said.get('site', address), 'site',
                                    WELL if site.well else OUT, [
                f'{site.message}, for {_ago(now - site.since)}' if not site.well else '',
                f'executors: {said["executors"]}' if said else '']))
        return [section('map', 'Map', chart(machines, media))] if machines else []

    def _sharing(self, query: Mapping[str, str], now: float) -> Iterator[dict[str, Any]]:
        for name, robot in sorted(self._robots.items()):
            if not robot.stats:
                continue
            chosen = next(((w, s) for w, s in robot.stats
                           if f'{name} {s["inference"]}' == query.get('frame')), robot.stats[-1])
            yield section(f'sharing{name.replace("/", "-")}', f'Sharing: {name}',
                          *_shared(name, robot, chosen[1], now))

    def _fleet(self) -> Iterator[dict[str, Any]]:
        for name, fleet in sorted(self._fleets.items()):
            if not fleet.state:
                continue
            state, qoe = fleet.state, fleet.qoe[-1][1] if fleet.qoe else {}
            target, took = qoe.get('latency_target'), qoe.get('latency')
            met = target is None or took is None or took <= target
            brake = self._busiest(state['alive'])
            end = f'; bottleneck: {brake}' if brake else ''
            says = headline(
                f'Target of {shown(1e3 * target, "ms")} {"met" if met else "missed"}: '
                f'{shown(1e3 * took, "ms")}, expected '
                f'{shown(_ms(qoe["latency_expected"]), "ms")}{end}',
                WELL if met else OUT) if target and took is not None else \
                headline(f'{len(state["alive"])} of {len(state["expected"])} devices are there'
                         + end, OUT if fleet.missing else WELL)
            began = fleet.qoe[0][0] if fleet.qoe else 0.0
            yield section(
                f'fleet{name.replace("/", "-")}', f'Fleet: {name}', says,
                facts([('coordinator', state['coordinator']), ('there', ', '.join(state['alive'])),
                       ('missing', ', '.join(fleet.missing)),
                       ('trouble', '; '.join(state['trouble'])),
                       ('bottleneck', brake),
                       ('frames answered', qoe.get('frames')),
                       ('missed of the last 100', shown(100 * qoe['missed_share'], '%')
                        if qoe else None),
                       ('energy of all devices', shown(qoe.get('joules'), 'J')),
                       ('changes of plan', qoe.get('switches')), ('plan', state['text'])]),
                fleet.stages,
                table('Devices', ['device', 'speed', 'memory for plans', 'threads', 'battery',
                                  'weights'], [
                    [n, shown(d['speed']), shown(d['memory_bytes'] / 1e6, 'MB')
                     if d['memory_bytes'] else 'no limit', d['threads'],
                     shown(100 * d['battery'], '%') if d['battery'] is not None else
                     'none', shown(d['weight_bytes'] / 1e6, 'MB')]
                    for n, d in sorted(fleet.devices.items())]),
                line('Latency', 's', 'ms', {
                    'measured': [(w - began, _ms(q['latency'])) for w, q in fleet.qoe],
                    'expected': [(w - began, _ms(q['latency_expected'])) for w, q in fleet.qoe],
                    'target': [(w - began, _ms(q['latency_target'])) for w, q in fleet.qoe]},
                    dashed=('expected', 'target')))

    def _busiest(self, devices: Sequence[str]) -> str:
        """Return which device of a fleet computes most of the time, '' where none does."""
        shares = {}
        for node in self._nodes.values():
            if (name := node.values.get('device_name', '')) in devices:
                shares[name] = _lately(node, 'stages_computing_s')
        name = max(shares, key=shares.__getitem__, default='')
        return f'{name}, computing {shares[name]:.0%} of the time' if name and shares[name] else ''

    def _goodput(self) -> tuple[float, float, float | None]:
        """Return what sites lately answered in time, were asked for, and can do (per second)."""
        sites = [(node, self._sites[address]) for address, node in self._gateways.items()
                 if address in self._sites]
        asked = {name: sum(_lately(node, f'asked {name}') for node, _ in sites)
                 for name in {name for _, said in sites for name in said['services']}}
        return (sum(_lately(node, 'in time') for node, _ in sites), sum(asked.values()), possible(
            asked, {((said['site'], executor), name): rate for node, said in sites if node.well
                    for name, row in said['services'].items()
                    for executor, rate in row['rates'].items()}))

    def _fullest(self) -> str:
        """Return at which site the most requests wait, '' where none do."""
        waiting = {said['site']: sum(row['waiting'] for row in said['services'].values())
                   for said in self._sites.values()}
        name = max(waiting, key=waiting.__getitem__, default='')
        return f'{name}, {waiting[name]} requests wait there' if waiting.get(name) else ''

    def _language(self) -> Iterator[dict[str, Any]]:
        heads = {n: node for n, node in self._nodes.items() if 'ms_per_token' in node.values}
        engines = [(n, node.values) for n, node in sorted(self._nodes.items())
                   if 'waiting_for_disk_s' in node.values]
        for name, node in sorted(heads.items()):
            values = node.values
            rates = list(_rates(node, 'tokens'))
            yield section(
                f'language{name.replace("/", "-")}', f'Language: {name}',
                headline(f'{shown(rates[-1][1] if rates else 0)} tokens a second, '
                         f'{values["ms_per_token"]} ms each'
                         + (f'; bottleneck: disk of {brake}' if (brake := values.get(
                             'disk_that_brakes')) else '')),
                facts([(key.replace('_', ' '), values.get(key)) for key in (
                    'model', 'tokens', 'serving', 'waiting', 'restarts', 'shared_prompt_tokens',
                    'drafted_tokens', 'accepted_drafts')]),
                line('Tokens a second', 's', '/s', {'tokens': rates}),
                table('Requests', ['fate', 'requests'], [
                    [key.removeprefix('requests_'), value] for key, value in values.items()
                    if key.startswith('requests_')]),
                table('Devices', ['device', 'computing', 'waits for disk', 'waits for others',
                                  'sent', 'read from disk'], [
                    [n, *(shown(v[key], 's') for key in (
                        'computing_s', 'waiting_for_disk_s', 'waiting_for_peers_s')),
                     *(shown((number(v[key]) or 0) / 1e6, 'MB') for key in (
                         'sent_bytes', 'read_bytes'))] for n, v in engines]))

    def _training(self) -> Iterator[dict[str, Any]]:
        for name, node in sorted(self._nodes.items()):
            values = node.values
            if 'rounds_done' not in values:
                continue
            yield section(
                f'training{name.replace("/", "-")}', f'Training: {name}',
                headline(f'Round {values.get("round", "")}, loss {values.get("loss", "")}, '
                         f'{values.get("samples_per_second", "")} samples a second',
                         WARNS if values.get('lost') or values.get('trouble') else WELL),
                line('Loss', 'round', 'loss', {word: [
                    (number(v.get('rounds_done')), number(v.get(key))) for _, v in node.past]
                    for word, key in (('training', 'loss'), ('validation', 'validation_loss'))}),
                facts([(word, values.get(key)) for word, key in (
                    ('task', 'task'), ('layers and samples', 'who'), ('lost', 'lost'),
                    ('rounds replayed', 'rounds_replayed'), ('checkpoint', 'checkpoint'),
                    ('energy, modelled', 'joules_modelled'),
                    ('paused', 'paused'), ('trouble', 'trouble'))]
                    + [(key.replace('_', ' '), value) for key, value in values.items()
                       if key.startswith('validation_')]))

    def _serving(self, now: float) -> Iterator[dict[str, Any]]:
        rows = [(said['site'], {**row, 'service': service})
                for said in self._sites.values() for service, row in said['services'].items()]
        if not rows:
            return
        done = sum(row['in_time'] for _, row in rows)
        every = sum(row[fate] for _, row in rows for fate in _FATES)
        good, offered, most = self._goodput()
        yield section(
            'serving', 'Serving', headline(
                f'{done} of {every} requests in time; {sum(row["lost"] for _, row in rows)} lost'
                + (f'. Lately {shown(good)} a second in time, {good / most:.0%} of the '
                   f'{shown(most)} that are possible'
                   + (': all that are asked for' if most > 0.99 * offered else
                      f': executors cannot do more of the {shown(offered)} asked for')
                   if most else ''),
                WELL if done >= 0.9 * every else WARNS),
            facts([('in time lately', shown(good, 'requests/s')),
                   ('possible', shown(most, 'requests/s')),
                   ('in time, of the possible', shown(100 * good / most, '%') if most else ''),
                   ('asked for', shown(offered, 'requests/s')),
                   ('bottleneck', self._fullest())], 'Goodput'),
            results('Sites', 'site', {'service': 'service', **FATES}, rows),
            *(line(f'Requests a second of {said["site"]}', 's', '/s', {
                word: list(_rates(self._gateways[address], word)) for word in ('all', 'in time')})
              for address, said in sorted(self._sites.items())),
            table('Who forwards to whom', ['site', 'to', 'hop'], [
                [said['site'], other, shown(ms, 'ms')] for said in self._sites.values()
                for other, ms in said['hop_ms'].items()]),
            facts([(f'{said["site"]}: {what}', why) for said in self._sites.values()
                   for what, why in said['problems'].items()], 'Problems'))


def _of(known: dict[str, Any], name: str, make: Callable[[], Any]) -> Any:
    """Return what is known by a name, made if there is room for it."""
    if name not in known:
        if len(known) >= MOST:
            raise ValueError('too many')
        known[name] = make()
    return known[name]


def _who(stats: Data) -> str:
    """Return who computed a frame."""
    return 'robot finished' if stats['recovered'] else 'robot alone' if not stats['shared'] else \
        'both by rows' if stats['by_rows'] else 'server took part'


def _shared(name: str, robot: _Robot, stats: Data, now: float) -> Iterator[Block | None]:
    """Yield the blocks of a robot's inferences, and of the one that is chosen."""
    when, latest = robot.stats[-1]
    predicted, alone, quiet = latest['predicted_ms'], latest['alone_ms'], now - when
    yield headline(f'{shown(latest["latency_ms"], "ms")}, predicted {shown(predicted, "ms")}'
                   + (f', alone {shown(alone, "ms")}' if alone else '') + f': {_who(latest)}'
                   + (f'; this was {_ago(quiet)} ago' if quiet > SILENT else ''),
                   WARNS if latest['recovered'] or quiet > SILENT else WELL)
    rows = []
    for _, each in robot.stats:
        took, computing, waiting = (each[key] for key in (
            'latency_ms', 'compute_ms', 'waiting_ms'))
        rows.append({'id': f'{name} {each["inference"]}',
                     'text': f'frame {each["inference"]}',
                     'values': [computing, waiting, max(0.0, took - computing - waiting),
                                each['extra_ms']],
                     'predicted': each['predicted_ms'], 'limit': each['alone_ms'] or None})
    yield frames('Latency of the last frames with its parts; dashed: the robot alone, expected',
                 _PARTS, rows, f'{name} {stats["inference"]}', 'frame')
    own = robot.timelines.get(stats['inference'], [])
    spans = own or next(reversed(robot.timelines.values()), [])
    yield facts_of('This frame', {
        'frame': 'inference', 'schedule': lambda row: f'{row["strategy"]} {row["schedule"]}',
        **FRAME, 'bottleneck': lambda row: bottleneck(own) or _longest(row)}, stats)
    schedule = stats['schedule']
    last = [each for _, each in robot.stats]
    gains = [each['alone_ms'] / each['latency_ms'] for each in last
             if each['alone_ms'] and each['latency_ms'] > 0]
    yield facts([('latency, median', shown(median(each['latency_ms'] for each in last), 'ms')),
                 ('gain over local', f'{median(gains):.2f} times as fast' if gains else ''),
                 ('who computed', ', '.join(f'{who} {count}' for who, count in Counter(
                     map(_who, last)).items()))], f'The last {len(last)} frames')
    stages = robot.book[schedule] if stats['by_rows'] and schedule < len(robot.book) else []
    yield bands(ROWS, stages, robot.picture, latest['inference'])
    yield gantt('Timeline of this frame' if own else
                'Timeline of the newest frame that has one', spans)
    yield table('What changed', ['kind', 'frame', 'what'], [
        [event['kind'], event['inference'], event['text']] for event in robot.events])


def _longest(stats: Data) -> str:
    """Return what took most of a frame, where no timeline was measured."""
    parts = {'computing of the robot': stats['compute_ms'],
             'waiting for server and link': stats['waiting_ms']}
    name = max(parts, key=parts.__getitem__)
    return f'{name}: {parts[name] / stats["latency_ms"]:.0%} of the frame' \
        if stats['latency_ms'] > 0 else ''


def _stages(plan: str) -> Block | None:
    """Return who holds what by a plan of any system, as far as it is known."""
    try:
        return _parts(parse_json(plan)) if plan else None
    except (KeyError, TypeError, ValueError, AttributeError, IndexError):
        return None


def _parts(plan: Data) -> Block | None:
    if stages := plan.get('stages'):
        if 'members' in stages[0]:
            return table('Stages', ['stage', 'devices', 'operators'], [
                [k, ', '.join(str(m['device']) for m in stage['members']),
                 len(stage['operators'])] for k, stage in enumerate(stages, 1)])
        return table('Layers', ['layers', 'devices (shares of samples)'], [
            [f'{stage["first"]} to {stage["last"] - 1}',
             ', '.join(f'{device} ({share})' for device, share in stage['shares'])]
            for stage in stages])
    if slots := plan.get('slots'):
        owner = {block: device for device, own in slots.items() for slot in own for block in slot}
        order = ' → '.join(device for device, _ in groupby(owner[b] for b in sorted(owner)))
        return table(f'Segments, in the order of the blocks: {order}', [
            'device', 'blocks', 'always in memory', 'read from disk for each token',
            'pages of keys and values'], [
            [device, _runs(own), _runs(slot for slot in own if len(slot) == 1),
             _runs(slot for slot in own if len(slot) > 1), plan.get('pages', '')]
            for device, own in slots.items()])
    return None


def _runs(slots: Iterable[Iterable[int]]) -> str:
    """Return blocks in words: how many, and from where to where."""
    blocks = sorted(block for slot in slots for block in slot)
    runs = [[b for _, b in run] for _, run in groupby(enumerate(blocks), lambda p: p[1] - p[0])]
    return f'{len(blocks)}: ' + ', '.join(
        f'{run[0]} to {run[-1]}' if run[1:] else str(run[0]) for run in runs) if runs else 'none'


def _rejected(values: Mapping[str, str]) -> str:
    """Return what a node has not taken, by cause; it warns where that grows."""
    counts = {key.removeprefix('rejected_').replace('_', ' '): value
              for key, value in values.items() if key.startswith('rejected_') and value != '0'}
    text = ', '.join(f'{value} {cause}' for cause, value in counts.items())
    return ': '.join(filter(None, (f'not taken: {text}' if text else '',
                                   values.get('last_rejection', ''))))


def _host(values: Mapping[str, str]) -> str:
    """Return how the machine of a node does."""
    used, whole = number(values.get('host_memory_used_mb')), number(values.get('host_memory_mb'))
    parts = [f'load {values["host_load"]}' if 'host_load' in values else '',
             f'memory {used / 1e3:.1f} of {whole / 1e3:.1f} GB'
             if used is not None and whole else '']
    text = ', '.join(filter(None, parts))
    return f'{values.get("host", "")}: {text}' if text else ''


def _reason(device: str, trouble: Sequence[str]) -> str:
    """Return why a device is left out: what was said of it, or that it is silent."""
    said = [text for text in trouble if text.split()[:1] == [device]]
    return '; '.join(said) or 'its heartbeats do not come: it has ended, or its network fails'


def _crossing(robot: _Robot, now: float, lately: float = 5.0) -> float | None:
    """Return the bytes a second that a robot's inferences send and receive."""
    found = [(when, each['bytes_up'] + each['bytes_down']) for when, each in robot.stats
             if now - when <= lately]
    return sum(count for _, count in found) / lately if found else None


def _rates(node: _Node, key: str) -> Iterator[tuple[float, float]]:
    """Yield when, in seconds since the first message, and how fast a count has grown."""
    past = list(node.past)
    for (w0, before), (w1, after) in zip(past, past[1:]):
        grown = (number(after.get(key)) or 0.0) - (number(before.get(key)) or 0.0)
        if w1 > w0 and grown >= 0:
            yield w1 - past[0][0], grown / (w1 - w0)


def _lately(node: _Node, key: str) -> float:
    """Return how fast a count has grown of late, 0.0 where that is not known."""
    rates = [rate for _, rate in _rates(node, key)][-LATELY:]
    return sum(rates) / len(rates) if rates else 0.0


def _ms(seconds: Any) -> float | None:
    found = number(seconds)
    return None if found is None else 1e3 * found


def _ago(seconds: float) -> str:
    seconds = max(0.0, seconds)
    return f'{seconds:.0f} s' if seconds < 120 else f'{seconds / 60:.0f} min'
