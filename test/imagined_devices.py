# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""A small model, and profiles of a robot and a server that take as long as wanted for it."""
from __future__ import annotations

import json
from pathlib import Path

from intradp_ros.cli.main import main
from intradp_ros.profiling.profile import Profile

MODEL = ('intradp_lab.zoo.dense:depth', '--input', '1x3x96x128', '--dtype', 'uint8')


def profiles(folder: Path) -> tuple[str, ...]:
    """Measure here, and make of it a robot that takes 60 ms and a server that takes 6 ms."""
    measured = folder / 'here.json'
    assert main(['profile', *MODEL, '-o', str(measured)]) == 0
    words: list[str] = []
    for side, seconds in (('robot', 0.06), ('server', 0.006)):
        data = json.loads(measured.read_text())
        scale = data['scale'] * seconds / data['whole_seconds']
        data.update(device=f'an imagined {side}', scale=scale, whole_seconds=seconds)
        path = folder / f'{side}.json'
        path.write_text(json.dumps(data))
        assert Profile.from_json(path.read_text()).whole_seconds == seconds
        words += [f'--{side}-profile', str(path)]
    return tuple(words)
