# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Views as a recording that Rerun opens: curves, the map, timelines, rows over pictures, texts."""
from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, BinaryIO

from matplotlib.colors import to_rgb
import rerun as rr
import rerun.blueprint as rrb

from intradp_ros.core.atomic_write import replacing
from intradp_ros.report.view.blocks import Block, number, OUT, WARNS, WELL

View = Mapping[str, Any]
_LEVELS = {WARNS: rr.TextLogLevel.WARN, OUT: rr.TextLogLevel.ERROR}
#: What shows each kind of thing.
_VIEWS: Mapping[type, Any] = {
    rr.GraphNodes: rrb.GraphView, rr.Scalars: rrb.TimeSeriesView, rr.Boxes2D: rrb.Spatial2DView,
    rr.EncodedImage: rrb.Spatial2DView, rr.TextDocument: rrb.TextDocumentView}
_STATES = {WELL: '#009E73', WARNS: '#E69F00', OUT: '#D55E00'}


def write_rerun(path: Path, views: Iterable[tuple[float, View]],
                picture: Callable[[str], bytes | None]) -> int:
    """
    Write views, each with its time in seconds, until Ctrl-C; return how many there were.

    :param picture: returns a picture that a view names.
    :raises OSError: if the file cannot be written; it is as it was then.
    """
    count = 0
    with replacing(path) as part, part.open('wb') as stream, \
            closing(_File(stream, picture)) as file, suppress(KeyboardInterrupt):
        for seconds, view in views:
            file.add(seconds, view)
            file.flush()
            count += 1
    return count


class _File:
    def __init__(self, file: BinaryIO, picture: Callable[[str], bytes | None]) -> None:
        self._stream, self._picture = rr.RecordingStream('intradp_view'), picture
        self._file, self._bytes = file, rr.binary_stream(self._stream)
        self._last: dict[str, Any] = {}
        self._blocks: dict[str, Block] = {}
        self._tabs: dict[str, dict[str, Any]] = {}  # views by section and path
        self._tab = ''

    def flush(self) -> None:
        """Write what was logged: Rerun's own thread would not say that it cannot."""
        self._file.write(self._bytes.read() or b'')

    def close(self) -> None:
        self.flush()
        self._stream.disconnect()

    def add(self, seconds: float, view: View) -> None:
        self._stream.set_time('time', duration=seconds)
        known = sum(map(len, self._tabs.values()))
        for note in view['notes']:
            self._say('notes', note, '')
        for section in view['sections']:
            for k, block in enumerate(section['blocks']):
                self._tab = section['title']
                name = rr.new_entity_path([self._tab, block.get('caption') or f'{k}'])
                if self._blocks.get(name) != block:
                    self._blocks[name] = block
                    getattr(self, '_' + block['kind'])(name, block)
        if sum(map(len, self._tabs.values())) > known:
            self._stream.send_blueprint(rrb.Blueprint(rrb.Vertical(
                rrb.TextLogView(name='what was said'), rrb.Tabs(*(
                    rrb.Grid(*views.values(), name=name) for name, views in self._tabs.items()),
                    active_tab=min(1, len(self._tabs) - 1)), row_shares=[1, 4]),
                collapse_panels=True))

    def _log(self, name: str, what: Any, origin: str = '') -> None:
        """Log something that a view of its own shows, or one of all below `origin`."""
        if view := _VIEWS.get(type(what)):
            tab = self._tabs.setdefault(self._tab, {})
            if (origin or name) not in tab:
                tab[origin or name] = view(origin=origin or name)
        self._stream.log(name, what)

    def _say(self, name: str, text: str, tone: str) -> None:
        if self._last.get(name) != text:
            self._last[name] = text
            self._log(name, rr.TextLog(text, level=_LEVELS.get(tone, rr.TextLogLevel.INFO)))

    def _headline(self, name: str, b: Block) -> None:
        self._say(name, b['text'], b['tone'])

    def _facts(self, name: str, b: Block) -> None:
        self._table(name, {'head': ['', b['caption']], 'rows': b['rows']})

    def _table(self, name: str, b: Block) -> None:
        rows = [b['head'], ['---'] * len(b['head']), *b['rows']]
        self._log(name, rr.TextDocument('\n'.join(
            '| ' + ' | '.join(cell.replace('|', '/').replace('\n', ' ') for cell in row) + ' |'
            for row in rows), media_type=rr.MediaType.MARKDOWN))

    def _remarks(self, name: str, b: Block) -> None:
        self._log(name, rr.TextDocument('\n'.join(f'* {text}' for text in b['texts']),
                                        media_type=rr.MediaType.MARKDOWN))

    def _map(self, name: str, b: Block) -> None:
        machines = {m['name']: m for m in b['machines']}
        self._log(name, rr.GraphNodes(
            list(machines), labels=[f'{m["name"]}: {m["role"]}, {m["state"]}'
                                    for m in machines.values()],
            colors=[_colour(_STATES[m['state']]) for m in machines.values()]))
        ends = [(one, other) for m in b['media'] for k, one in enumerate(m['ends'])
                for other in list(m['ends'])[k + 1:]]
        self._log(name, rr.GraphEdges(ends, graph_type='undirected'))
        for medium in b['media']:
            self._say(f'{name}/media', f'{medium["name"]}: {medium["text"]}', medium['state'])

    def _line(self, name: str, b: Block) -> None:
        for series in b['series']:
            points = [p for p in series['points'] if b['cursor'] is None or p[0] <= b['cursor']]
            if points:
                self._log(name + rr.new_entity_path([series['name']]), rr.Scalars(points[-1][1]),
                          name)

    def _frames(self, name: str, b: Block) -> None:
        row = next((r for r in b['rows'] if r['id'] == b['chosen']), b['rows'][-1])
        figures = dict(zip((part for part, _ in b['parts']), row['values']))
        for part, value in {**figures, 'all': sum(row['values']),
                            'predicted': number(row.get('predicted')),
                            'limit': number(row.get('limit'))}.items():
            if value is not None:
                self._log(name + rr.new_entity_path([part]), rr.Scalars(value), name)

    def _gantt(self, name: str, b: Block) -> None:
        lanes = {lane: k for k, (lane, _) in enumerate(b['lanes'])}
        colours = {lane: _colour(name) for lane, name in b['lanes']}
        self._log(name, rr.Boxes2D(
            mins=[[start, 10 * lanes[lane]] for lane, _, _, start, _ in b['spans']],
            sizes=[[stop - start, 8] for *_, start, stop in b['spans']],
            labels=[f'{lane}: {what}' for lane, _, what, *_ in b['spans']], show_labels=False,
            colors=[colours[lane] for lane, *_ in b['spans']]))

    def _bands(self, name: str, b: Block) -> None:
        begin, sides = 0.0, list[tuple[list[float], list[float], str]]()
        for stop, share in b['stages']:
            for top, bottom, colour in ((0, share, b['lanes'][0]), (share, 1, b['lanes'][1])):
                if bottom > top:
                    sides.append(([begin, 100 * top], [stop - begin, 100 * (bottom - top)],
                                  colour))
            begin = stop
        if sides:
            mins, sizes, colours = zip(*sides)
            self._log(name + '/rows', rr.Boxes2D(mins=mins, sizes=sizes,
                                               colors=[*map(_colour, colours)]))
        data = self._picture(b['image']) if b['image'] else None
        if data:
            self._log(name + '/picture', rr.EncodedImage(contents=data, media_type=(
                'image/jpeg' if b['image'].endswith('.jpg') else 'image/png')))


def _colour(name: str) -> list[float]:
    return [*to_rgb(name)]
