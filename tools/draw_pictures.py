# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Draw the pictures of the README and the documentation as SVG, light and dark.

    python tools/draw_pictures.py [--check]

Three colours: blue for the robot, green for the server and other machines, grey for links and
labels.  Figures are read from the README's table, from ``doc/results/sharing.md``
and from ``doc/images/outage.csv`` (written by ``tools/record_outage.py``), so that pictures cannot
say something else.  ``--check`` compares
with the files that are there and ends with 1 where one is not as drawn.
"""
from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
import re
import sys

ROOT = Path(__file__).resolve().parents[1]
IMAGES = ROOT / 'doc' / 'images'
WIDTH = 800
#: The smallest text, in pixels at this width.
SMALL = 15

Number = int | float


@dataclass(frozen=True)
class Theme:
    """Colours of a picture: robot, server, link, text, and what lies behind."""

    suffix: str
    robot: str
    server: str
    link: str
    text: str
    ground: str


LIGHT = Theme('', '#2f6fd6', '#2b9a57', '#7a828e', '#1f2937', '#ffffff')
DARK = Theme('-dark', '#6ea8fe', '#57c785', '#8b949e', '#e6edf3', '#0d1117')


@dataclass(frozen=True)
class Box:
    """A rectangle: left, top, width and height in pixels."""

    x: Number
    y: Number
    width: Number
    height: Number


def tag(name: str, inside: str = '', /, **attributes: object) -> str:
    """Return an element; underscores of attributes become hyphens."""
    given = ''.join(f' {key.rstrip("_").replace("_", "-")}="{_short(value)}"'
                    for key, value in attributes.items())
    return f'<{name}{given}>{inside}</{name}>' if inside else f'<{name}{given}/>'


def text(words: str, x: Number, y: Number, fill: str, size: int = SMALL, anchor: str = 'start',
         **more: object) -> str:
    """Return a line of text."""
    escaped = words.replace('&', '&amp;').replace('<', '&lt;')
    return tag('text', escaped, x=x, y=y, fill=fill, font_size=size, text_anchor=anchor, **more)


def rectangle(box: Box, fill: str, **more: object) -> str:
    """Return a filled rectangle."""
    return tag('rect', x=box.x, y=box.y, width=box.width, height=box.height, fill=fill, **more)


def picture(height: int, title: str, parts: Iterable[str]) -> str:
    """Return a whole SVG file."""
    head = (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
            f'width="{WIDTH}" height="{height}" role="img" '
            'font-family="Inter, Segoe UI, Helvetica, Arial, sans-serif">')
    return '\n'.join([head, tag('title', title), *parts, '</svg>', ''])


def _short(value: object) -> str:
    return f'{value:.1f}'.rstrip('0').rstrip('.') if isinstance(value, float) else str(value)


# --- idea --------------------------------------------------------------------------------------

#: What part of the rows the robot computes: of the image, of four layers, of the result.
CUTS = (0.42, 0.5, 0.36, 0.56, 0.46, 0.5)
TOP, TALL, SLAB = 62, 190, 82


def idea(theme: Theme, times: Mapping[str, float]) -> str:
    """Draw one image that is cut by a line stepping from layer to layer; below, milliseconds."""
    left = [164 + i * 122 for i in range(4)]
    image, result = Box(18, TOP, 118, TALL), Box(676, TOP, 106, TALL)
    boxes = [image, *(Box(x + 16, TOP, SLAB, TALL) for x in left), result]
    parts = []
    for box, cut in zip(boxes, CUTS):
        height = round(box.height * cut)
        opacity = 0.32 if box in (image, result) else 0.9
        parts += [rectangle(Box(box.x, box.y, box.width, height), theme.robot, opacity=opacity),
                  rectangle(Box(box.x, box.y + height, box.width, box.height - height),
                            theme.server, opacity=opacity)]
    parts += _scene(image, theme) + _edges(result, theme)
    for here, there, cut, following in zip(boxes, boxes[1:], CUTS, CUTS[1:]):
        parts.append(_crossing(here, there, cut, following, theme))
    middle = (boxes[1].x + boxes[4].x + SLAB) / 2
    parts += [
        *_robot(middle - 132, 8, theme), text('robot', middle - 94, 37, theme.robot, 20,
                                              font_weight='bold'),
        *_waves(middle + 8, 30, theme),
        *_server(middle + 50, 12, theme), text('server', middle + 88, 37, theme.server, 20,
                                               font_weight='bold'),
        text('camera image', image.x + image.width / 2, TOP + TALL + 24, theme.text,
             anchor='middle'),
        text('layers', middle, TOP + TALL + 24, theme.text, anchor='middle'),
        text('= original model', result.x + result.width / 2, TOP + TALL + 24, theme.text,
             anchor='middle'),
    ]
    y = 304
    for label, milliseconds in times.items():
        long = 520 * milliseconds / max(times.values())
        split = long / 2 if label == 'shared' else 0 if label == 'server alone' else long
        parts += [text(label, 132, y + 16, theme.text, 16, 'end'),
                  rectangle(Box(144, y, split, 20), theme.robot),
                  rectangle(Box(144 + split, y, long - split, 20), theme.server),
                  text(f'{milliseconds:g} ms', 152 + long, y + 16, theme.text, 16,
                       font_weight='bold')]
        y += 28
    return picture(y + 4, 'Each layer is cut into rows for the robot and rows for the server',
                   parts)


def demo_times(page: str) -> dict[str, float]:
    """Return the medians of the demo's modes, from the page of results."""
    rows = re.findall(r'^\| \**(local|offload|shared)\** \| \**([\d.]+) ms', page, re.MULTILINE)
    names = {'local': 'robot alone', 'offload': 'server alone', 'shared': 'shared'}
    return {names[mode]: float(value) for mode, value in rows}


def _scene(box: Box, theme: Theme) -> list[str]:
    x, y, w, h = box.x, box.y, box.width, box.height
    hill = (f'M{x} {y + h * .62:.0f} L{x + w * .3:.0f} {y + h * .3:.0f} L{x + w * .52:.0f} '
            f'{y + h * .56:.0f} L{x + w * .7:.0f} {y + h * .4:.0f} L{x + w} {y + h * .66:.0f}')
    road = (f'M{x + w * .44:.0f} {y + h * .66:.0f} L{x + w * .12:.0f} {y + h} '
            f'M{x + w * .56:.0f} {y + h * .66:.0f} L{x + w * .9:.0f} {y + h}')
    stroke = {'fill': 'none', 'stroke': theme.text, 'stroke_width': 2}
    return [tag('path', d=hill, **stroke), tag('path', d=road, **stroke),
            tag('circle', cx=x + w * .8, cy=y + h * .16, r=11, **stroke),
            rectangle(box, 'none', stroke=theme.text, stroke_width=2)]


def _edges(box: Box, theme: Theme) -> list[str]:
    """Draw the same scene as a finished result: outlines, thick."""
    scene = _scene(box, theme)
    return [part.replace('stroke-width="2"', 'stroke-width="4"') for part in scene[:-1]] + [
        scene[-1]]


def _crossing(here: Box, there: Box, cut: float, following: float, theme: Theme) -> str:
    """Draw the border between two boxes, and the way in which rows cross it."""
    start, end = here.y + here.height * cut, there.y + there.height * following
    x0, x1 = here.x + here.width, there.x
    line = tag('line', x1=x0, y1=start, x2=x1, y2=end, stroke=theme.link, stroke_width=2,
               stroke_dasharray='4 3')
    middle, up = (x0 + x1) / 2, end > start
    y = (start + end) / 2
    length = 20 if up else -20
    arrow = (f'M{middle:.0f} {y + length:.0f} L{middle:.0f} {y - length:.0f} '
             f'm-5 {7 if up else -7} l5 {-7 if up else 7} l5 {7 if up else -7}')
    return line + tag('path', d=arrow, fill='none', stroke=theme.link, stroke_width=2)


def _robot(x: Number, y: Number, theme: Theme) -> list[str]:
    return [tag('rect', x=x, y=y + 6, width=28, height=20, rx=6, fill=theme.robot),
            tag('circle', cx=x + 9, cy=y + 16, r=3, fill=theme.ground),
            tag('circle', cx=x + 19, cy=y + 16, r=3, fill=theme.ground),
            tag('line', x1=x + 14, y1=y + 6, x2=x + 14, y2=y, stroke=theme.robot, stroke_width=3),
            tag('circle', cx=x + 5, cy=y + 31, r=5, fill=theme.robot),
            tag('circle', cx=x + 23, cy=y + 31, r=5, fill=theme.robot)]


def _server(x: Number, y: Number, theme: Theme) -> list[str]:
    return [part for row in range(3) for part in (
        tag('rect', x=x, y=y + 11 * row, width=30, height=9, rx=2, fill=theme.server),
        tag('circle', cx=x + 5, cy=y + 11 * row + 4.5, r=2, fill=theme.ground))]


def _waves(x: Number, y: Number, theme: Theme) -> list[str]:
    stroke = {'fill': 'none', 'stroke': theme.link, 'stroke_width': 3, 'stroke_linecap': 'round'}
    arcs = [tag('path', d=f'M{x + side * (4 + r):.0f} {y - r} q{side * r} {r} 0 {2 * r}', **stroke)
            for side in (-1, 1) for r in (5, 10, 15)]
    return [*arcs, tag('circle', cx=x, cy=y, r=3, fill=theme.link)]


# --- win ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Result:
    """A row of the README's table: milliseconds of robot, server, best other system, shared."""

    network: str
    robot: float
    server: float
    other: float
    shared: float


def results(readme: str) -> list[Result]:
    """Return the rows of the README's table of results."""
    number = r' *([\d.]+) *\|'
    rows = re.findall(rf'^\| *([\w ]+?) *\|{number * 3} *\*\*([\d.]+)\*\*', readme, re.MULTILINE)
    return [Result(name, *map(float, values)) for name, *values in rows]


def win(theme: Theme, rows: Sequence[Result]) -> str:
    """Draw bars of each network, each on a scale of its own that begins at zero."""
    parts, y, left, long = [], 14, 190, 500
    for row in rows:
        most = max(row.robot, row.server)
        change = round(100 * (1 - row.shared / row.other))
        parts.append(text(row.network, left - 14, y + 37, theme.text, 17, 'end',
                          font_weight='bold'))
        for label, value, colour, opacity in (
                ('robot alone', row.robot, theme.robot, 0.45),
                ('server alone', row.server, theme.server, 0.45),
                ('best other system', row.other, theme.link, 0.45),
                ('shared', row.shared, theme.robot, 1.0)):
            width = max(3.0, long * value / most)
            if label == 'shared':
                # What shares nothing is the robot's alone.
                own = width if row.shared >= row.robot else width / 2
                parts += [rectangle(Box(left, y, own, 20), theme.robot),
                          rectangle(Box(left + own, y, width - own, 20), theme.server)]
            else:
                parts.append(rectangle(Box(left, y, width, 20), colour, opacity=opacity))
            note = f'{label} {value:g} ms'
            if label == 'shared':
                note += f', {change} % less' if change else ', no gain'
            inside = width > 300 and label != 'shared'
            parts.append(text(note, left + width + 8 if not inside else left + width - 8, y + 15,
                              theme.text, SMALL, 'end' if inside else 'start',
                              **({'font_weight': 'bold'} if label == 'shared' else {})))
            y += 22
        y += 18
    return picture(y, 'Time of an inference: robot alone, server alone, shared', parts)


# --- survive -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Frame:
    """An inference of the recording: when it was asked for, what it took, who computed."""

    seconds: float
    latency_ms: float
    shared: bool


@dataclass(frozen=True)
class Recording:
    """Frames around a cut link, in seconds of the recording."""

    frames: list[Frame]
    images: int
    cut: tuple[float, float]
    length: float


def recording(words: str) -> Recording:
    """Read what ``tools/record_outage.py`` wrote."""
    cut, restored = map(float, re.findall(r'cut from ([\d.]+) to ([\d.]+)', words)[0])
    rows = [line.split(',') for line in words.splitlines()[1:] if not line.startswith('#')]
    images = {float(row[0]) for row in rows if not row[1]}
    frames = [Frame(float(r[0]), float(r[1]), r[2] == '1') for r in rows if r[1]]
    begin = min(images)
    answered = [f for f in frames if f.seconds in images]
    # The last image was still computed when the recording ended.
    last = max(f.seconds for f in answered)
    return Recording([Frame(f.seconds - begin, f.latency_ms, f.shared) for f in answered],
                     sum(t <= last for t in images), (cut - begin, restored - begin),
                     last - begin)


def survive(theme: Theme, data: Recording) -> str:
    """Draw the latency of each frame around an outage of the link."""
    left, right, top, bottom = 70, 780, 56, 270
    most = max(f.latency_ms for f in data.frames) * 1.1
    step = next(s for s in (50, 100, 200, 500, 1000) if most / s <= 6)

    def across(seconds: float) -> float:
        return left + (right - left) * seconds / data.length

    def up(milliseconds: float) -> float:
        return bottom - (bottom - top) * milliseconds / most

    lost = data.images - len(data.frames)
    band = Box(across(data.cut[0]), top, across(data.cut[1]) - across(data.cut[0]), bottom - top)
    parts = [
        rectangle(band, theme.link, opacity=0.25),
        text('link cut', band.x + band.width / 2, top - 8, theme.text, SMALL, 'middle'),
        text(f'{len(data.frames)} frames, {lost} lost', right, 24, theme.text, 18, 'end',
             font_weight='bold'),
        tag('circle', cx=left + 6, cy=18, r=6, fill=theme.server),
        text('shared', left + 18, 23, theme.text),
        tag('circle', cx=left + 92, cy=18, r=6, fill=theme.robot),
        text('robot alone', left + 104, 23, theme.text),
    ]
    for value in range(0, int(most) + 1, step):
        parts += [tag('line', x1=left, x2=right, y1=up(value), y2=up(value), stroke=theme.link,
                      stroke_width=1, opacity=0.5),
                  text(f'{value} ms' if value else '0', left - 8, up(value) + 5, theme.text,
                       SMALL, 'end')]
    for second in range(0, int(data.length) + 1, 5):
        parts.append(text(f'{second} s', across(second), bottom + 22, theme.text, SMALL, 'middle'))
    parts += [tag('circle', cx=across(f.seconds), cy=up(f.latency_ms), r=6,
                  fill=theme.server if f.shared else theme.robot) for f in data.frames]
    return picture(bottom + 34, 'Latency of each frame while the link is cut', parts)


# --- fleet -------------------------------------------------------------------------------------


def fleet(theme: Theme) -> str:
    """Draw stages of a network over four machines, one of which failed."""
    centre = (400, 170)
    places = {'robot 1': (40, 26), 'robot 2': (40, 214), 'box': (590, 26), 'server': (590, 214)}
    parts = []
    for name, (x, y) in places.items():
        gone = name == 'robot 2'
        inner = (x + 170 if x < 400 else x, y + 50)
        parts.append(tag('line', x1=inner[0], y1=inner[1], x2=centre[0], y2=centre[1],
                         stroke=theme.link, stroke_width=2,
                         stroke_dasharray='3 6' if gone else '9 4'))
    parts += [*_waves(*centre, theme), text('access point', centre[0], centre[1] - 30, theme.text,
                                            SMALL, 'middle')]
    stages = {'robot 1': ('1',), 'robot 2': ('2',), 'box': ('2', '3'), 'server': ('4',)}
    for name, (x, y) in places.items():
        parts += _machine(Box(x, y, 170, 104), name, stages[name], theme)
    # Frames in flight: tiles with their numbers, on the lines between the machines.
    for number, (x, y) in zip((9, 8, 7), ((300, 122), (490, 126), (545, 236))):
        parts += [tag('rect', x=x - 14, y=y - 14, width=28, height=28, rx=4, fill=theme.ground,
                      stroke=theme.text, stroke_width=2),
                  text(str(number), x, y + 6, theme.text, 16, 'middle', font_weight='bold')]
    arrow = 'M214 262 C 390 320, 480 260, 578 104 m-11 5 l11 -5 l3 12'
    parts += [tag('path', d=arrow, fill='none', stroke=theme.server, stroke_width=3,
                  stroke_dasharray='7 5')]
    return picture(336, 'Stages of a network over four machines; one fails, its stage moves',
                   parts)


def _machine(box: Box, name: str, stages: Sequence[str], theme: Theme) -> list[str]:
    gone = name == 'robot 2'
    colour = theme.robot if name == 'robot 1' else theme.server
    parts = [rectangle(box, theme.ground, stroke=theme.link if gone else colour, stroke_width=2,
                       rx=8),
             text(name, box.x + 14, box.y + 26, theme.text, 17, font_weight='bold')]
    for index, stage in enumerate(stages):
        slab = Box(box.x + 14 + 76 * index, box.y + 42, 68, 46)
        fill = theme.link if gone else colour
        parts += [rectangle(slab, fill, opacity=0.35 if gone else 0.9, rx=4),
                  text(f'stage {stage}', slab.x + 34, slab.y + 29,
                       theme.text if gone else theme.ground, SMALL, 'middle')]
    if gone:
        for way in (1, -1):
            y = (box.y + 6, box.y + box.height - 6)[::way]
            parts.append(tag('line', x1=box.x + 6, y1=y[0], x2=box.x + box.width - 6, y2=y[1],
                             stroke=theme.text, stroke_width=3))
    return parts


# --- all ---------------------------------------------------------------------------------------


def pictures() -> dict[str, str]:
    """Return the pictures by the names of their files."""
    rows = results((ROOT / 'README.md').read_text())
    outage = IMAGES / 'outage.csv'
    demo = demo_times((ROOT / 'doc' / 'results' / 'sharing.md').read_text())
    drawn = {}
    for theme in (LIGHT, DARK):
        drawn[f'idea{theme.suffix}.svg'] = idea(theme, demo)
        drawn[f'win{theme.suffix}.svg'] = win(theme, rows)
        drawn[f'fleet{theme.suffix}.svg'] = fleet(theme)
        if outage.exists():
            drawn[f'survive{theme.suffix}.svg'] = survive(theme, recording(outage.read_text()))
    return drawn


def stale() -> list[str]:
    """Return the names of pictures whose files are not as drawn."""
    return [name for name, words in pictures().items()
            if not (IMAGES / name).exists() or (IMAGES / name).read_text() != words]


def main() -> int:
    """Write all pictures, or compare with those that are there."""
    names = stale()
    if '--check' in sys.argv[1:]:
        for name in names:
            print(f'doc/images/{name} is not as drawn: run python tools/draw_pictures.py')
        return 1 if names else 0
    for name, words in pictures().items():
        (IMAGES / name).write_text(words)
    print(f'{len(names)} pictures changed')
    return 0


if __name__ == '__main__':
    sys.exit(main())
